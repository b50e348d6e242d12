//! Group locks of programs on two mounts, by both kinds of ioctl: who joins and who does not, that
//! everybody else waits and can look all the same, and what ends a group.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, until};

use crate::{BINARY, as_program};

/// A program with one file, which does what it is told and says how that went.
const MEMBER: &str = r#"
use Fcntl;
$| = 1;
my ($path, $nonblock) = @ARGV;
sysopen(my $file, $path, O_RDWR | ($nonblock ? O_NONBLOCK : 0)) or die "open: $!";
print "ready\n";
while (my $line = <STDIN>) {
    my ($what, $number, $text) = split ' ', $line;
    my $at = pack("Q", $number);
    my $done;
    if ($what eq "lock") { $done = ioctl($file, 0x669e, $number + 0) }
    elsif ($what eq "unlock") { $done = ioctl($file, 0x669f, $number + 0) }
    elsif ($what eq "lock_at") { $done = ioctl($file, 0x4008669e, $at) }
    elsif ($what eq "unlock_at") { $done = ioctl($file, 0x4008669f, $at) }
    elsif ($what eq "lock_field") { $done = ioctl($file, 0x4008669e, $number + 0) }
    elsif ($what eq "write") { sysseek($file, $number, 0); $done = syswrite($file, $text x 500) }
    elsif ($what eq "cut") { $done = truncate($file, $number) ? 1 : undef }
    else { $done = undef }
    print defined $done ? "ok\n" : "error " . ($! + 0) . "\n";
}
"#;

const EFAULT: &str = "error 14";
const EAGAIN: &str = "error 11";
const EINVAL: &str = "error 22";
const PATIENCE: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_millis(300);

struct Member {
    child: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Member {
    fn new(path: &Path, nonblock: bool) -> Member {
        let mut perl = Command::new("perl");
        perl.args(["-e", MEMBER]).arg(path).args(nonblock.then_some("1"));
        let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let words = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut member = Member { child, words, answers };
        assert_eq!(member.answer(), "ready");
        member
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn begin(&mut self, words: &str) {
        writeln!(self.words, "{words}").unwrap();
    }

    fn does(&mut self, words: &str) -> String {
        self.begin(words);
        self.answer()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a file's first bytes, and tells.
fn reads(path: &Path) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let mut bytes = vec![0; 1000];
        let got = File::open(path).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes.truncate(got);
        tell.send(bytes)
    });
    told
}

fn a_file(mount: &Path, name: &str) {
    let path = mount.join(name);
    ok(as_program("lfs").args(["setstripe", "-c", "2", "-S", "64K"]).arg(&path));
}

#[test]
fn a_group_has_a_file_for_itself_on_two_mounts() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "groups");
    let (mds, _oss) = cluster.start();
    let (one, two, three) = (cluster.mount("one"), cluster.mount("two"), cluster.mount("three"));
    a_file(&one, "f");
    let (path, beside, elsewhere) = (one.join("f"), two.join("f"), three.join("f"));
    let mut a = Member::new(&path, false);
    let mut b = Member::new(&beside, true);
    for (words, said) in [
        ("lock 0", EINVAL),
        ("unlock 7", EINVAL),
        ("lock_field 7", EFAULT),
        ("lock 7", "ok"),
        ("lock 7", EINVAL),
        ("unlock 8", EINVAL),
        ("unlock_at 7", "ok"),
        ("lock_at 7", "ok"),
    ] {
        assert_eq!(a.does(words), said, "{words}");
    }
    assert_eq!(b.does("lock 8"), EAGAIN);
    assert_eq!(b.does("lock 7"), "ok");
    assert_eq!(a.does("cut 80000"), "ok", "a member");
    // Records of both, in turns; that of A over the border of two objects.
    assert_eq!((a.does("write 0 aa"), b.does("write 2000 bb")), ("ok".into(), "ok".into()));
    assert_eq!((a.does("write 65000 aa"), b.does("write 67000 bb")), ("ok".into(), "ok".into()));
    // Others wait elsewhere, look all the same, and the mounts go on serving. Whose pages a member's
    // write would wait for reads what there is.
    let waiting: Vec<_> = (0..64).map(|_| reads(&elsewhere)).collect();
    for mount in [&path, &beside] {
        assert_eq!(reads(mount).recv_timeout(PATIENCE).unwrap(), b"a".repeat(1000));
    }
    thread::sleep(A_WHILE);
    assert!(waiting.iter().all(|told| told.try_recv().is_err()), "somebody has read it");
    for mount in [&one, &two, &three] {
        assert_eq!(fs::metadata(mount.join("f")).unwrap().len(), 80_000);
        fs::write(mount.join("other"), b"goes on").unwrap();
        assert_eq!(fs::read(mount.join("other")).unwrap(), b"goes on");
    }
    // A restart of the MDT takes nothing from them.
    mds.end();
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    assert_eq!((a.does("write 1000 cc"), b.does("write 3000 dd")), ("ok".into(), "ok".into()));
    assert!(waiting.iter().all(|told| told.try_recv().is_err()), "somebody has read it");
    mds.crash();
    let _mds = cluster.serve(1, &["mgt", "mdt0"]);
    assert_eq!((a.does("write 0 ee"), b.does("write 4000 ff")), ("ok".into(), "ok".into()));
    thread::sleep(A_WHILE);
    assert!(waiting.iter().all(|told| told.try_recv().is_err()), "somebody has read it");
    // A program that is killed leaves its group with its file.
    drop(a);
    assert_eq!(b.does("unlock 7"), "ok");
    for told in waiting {
        assert!(told.recv_timeout(PATIENCE).unwrap() == b"e".repeat(1000));
    }
    until("the next group has it", || b.does("lock_at 8") == "ok");
    assert_eq!(b.does("write 0 gg"), "ok");
    drop(b);
    assert!(reads(&path).recv_timeout(PATIENCE).unwrap() == b"g".repeat(1000));
    assert_eq!(fs::metadata(&path).unwrap().len(), 80_000);
}

/// Who waits for a group ends with a signal.
#[test]
fn who_waits_for_a_group_can_be_killed() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "group-waits");
    let (_mds, _oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    a_file(&one, "f");
    let path = one.join("f");
    let mut a = Member::new(&path, false);
    assert_eq!((a.does("lock 7"), a.does("write 0 aa")), ("ok".into(), "ok".into()));
    let mut waits = Member::new(&path, false);
    waits.begin("lock 8");
    let mut reader = Command::new("cat");
    let mut reader = reader.arg(two.join("f")).stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(A_WHILE);
    assert!(reader.try_wait().unwrap().is_none(), "it waits");
    reader.kill().unwrap();
    reader.wait().unwrap();
    drop(waits);
    // Neither has anything of it.
    let mut b = Member::new(&path, false);
    assert_eq!((a.does("unlock 7"), b.does("lock 9")), ("ok".into(), "ok".into()));
}
