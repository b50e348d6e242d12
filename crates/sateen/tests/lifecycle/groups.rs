//! Who waits for a group on a mount of `up`, whose targets are always there: he can be killed, too, and so
//! can the first one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::until;

use crate::Fs;

/// Has a file for a group until its input ends.
const MEMBER: &str = r#"
use Fcntl;
$| = 1;
sysopen(my $file, $ARGV[0], O_RDWR | O_CREAT) or die "open: $!";
ioctl($file, 0x669e, 7) or die "group: $!";
syswrite($file, "x" x 9000) or die "write: $!";
print "ready\n";
<STDIN>;
"#;

fn member(path: &Path) -> Child {
    let mut perl = Command::new("perl");
    perl.args(["-e", MEMBER]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = perl.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn who_waits_for_a_group_on_a_mount_of_up_can_be_killed() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("groups");
    let second = fs_.data.with_extension("second");
    fs_.ok(&["up", "--mount", fs_.mnt().to_str().unwrap(), "--mount", second.to_str().unwrap()]);
    let mut member = member(&fs_.mnt().join("f"));
    // The commands put a program in their place: it is that which waits.
    for (command, signal) in [
        ("exec touch f", Signal::KILL),
        ("exec perl -e 'open(F, q(+<), q(f)); sysread(F, $_, 9)'", Signal::KILL),
        ("exec cat f", Signal::KILL),
        ("exec touch f", Signal::TERM),
        ("exec perl -e 'open(F, q(>), q(f))'", Signal::KILL),
        ("exec perl -e 'open(F, q(>>), q(f)); syswrite(F, 9)'", Signal::INT),
        ("exec truncate -s 9 f", Signal::HUP),
    ] {
        let mut outsider = Command::new("sh");
        let outsider = outsider.args(["-c", command]).current_dir(&second);
        let mut outsider = outsider.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        assert!(outsider.try_wait().unwrap().is_none(), "{command} waits");
        kill_process(Pid::from_child(&outsider), signal).unwrap();
        let mut ended = None;
        until(&format!("{command} ends"), || {
            ended = outsider.try_wait().unwrap();
            ended.is_some()
        });
        assert!(!ended.unwrap().success(), "{command}");
    }
    drop(member.stdin.take());
    assert!(member.wait().unwrap().success());
    let mut touched = Command::new("touch").arg("f").current_dir(&second).spawn().unwrap();
    assert!(touched.wait().unwrap().success());
    fs_.ok(&["down"]);
    std::fs::remove_dir(second).unwrap();
}
