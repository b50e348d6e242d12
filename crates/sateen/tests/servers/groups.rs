//! Group locks of programs on two mounts, by both kinds of ioctl: who joins and who does not, that
//! everybody else waits and can look all the same, and what ends a group; that nobody waits on the mounts
//! of members, or their kernels would have members wait, too; and that not too many do elsewhere.

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
    elsif ($what eq "read") { sysseek($file, $number, 0); $done = sysread($file, $text, 1000) }
    else { $done = undef }
    print defined $done ? "ok\n" : "error " . ($! + 0) . "\n";
}
"#;

const EFAULT: &str = "error 14";
const EAGAIN: &str = "error 11";
const EINVAL: &str = "error 22";
const EBUSY: &str = "error 16";
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

/// What people do to a file from a shell, of which a kernel holds the inode's lock meanwhile.
const COMMANDS: [&str; 7] = [
    "touch f",
    "touch -d 2001-01-01 f",
    "truncate -s 90000 f",
    "echo x >> f",
    "fallocate -l 120000 f",
    "fallocate -p -o 8192 -l 4096 f",
    "dd if=/dev/zero of=f bs=4096 count=1 seek=40 conv=notrunc status=none",
];

fn begin(folder: &Path, command: &str) -> Child {
    Command::new("sh").args(["-c", command]).current_dir(folder).spawn().unwrap()
}

/// Waits for a program to end; whether it went well.
fn ends(child: &mut Child, what: &str) -> bool {
    let mut ended = None;
    until(what, || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap().success()
}

#[test]
fn nobody_waits_on_a_mount_whose_members_would_wait_for_him() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "group-beside");
    let (_mds, _oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    a_file(&one, "f");
    let (path, beside) = (one.join("f"), two.join("f"));
    let mut a = Member::new(&path, false);
    let mut b = Member::new(&beside, false);
    assert_eq!((a.does("lock 7"), b.does("lock 7")), ("ok".into(), "ok".into()));
    for command in COMMANDS {
        let mut outsider = begin(&one, command);
        // Into the file, beyond its end, and beyond that of whatever the outsider does.
        for words in ["write 0 aa", "write 85000 aa", "write 200000 aa", "cut 85000"] {
            assert_eq!(a.does(words), "ok", "beside {command}");
        }
        assert_eq!(b.does("write 1000 bb"), "ok", "beside {command}");
        assert!(ends(&mut outsider, command), "{command}");
    }
    // All at once, again and again.
    let all = COMMANDS.join("; ");
    let mut outsiders: Vec<_> =
        (0..4).map(|_| begin(&one, &format!("for i in 1 2 3 4 5; do {all}; done"))).collect();
    for turn in 0..50 {
        for words in ["write 0 aa", "write 85000 aa", "write 200000 aa"] {
            assert_eq!(a.does(words), "ok", "turn {turn}");
        }
    }
    for outsider in &mut outsiders {
        assert!(ends(outsider, "commands of outsiders"));
    }
    // Where nobody belongs to it they wait, also for each other, and are served when somebody does.
    let other = cluster.mount("other");
    let waiting = ["touch f", "echo x >> f", "truncate -s 90000 f"];
    let mut waiting = waiting.map(|command| begin(&other, command));
    thread::sleep(A_WHILE);
    assert!(waiting.iter_mut().all(|outsider| outsider.try_wait().unwrap().is_none()));
    let mut c = Member::new(&other.join("f"), false);
    assert_eq!((c.does("lock 7"), c.does("write 3000 cc")), ("ok".into(), "ok".into()));
    for outsider in &mut waiting {
        assert!(ends(outsider, "who has waited for a member of his mount"));
    }
    drop((a, b, c));
    assert_eq!(&reads(&path).recv_timeout(PATIENCE).unwrap()[..4], b"aaaa");
}

#[test]
fn so_many_wait_for_a_group_on_a_mount_and_more_are_refused() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "group-many");
    let (_mds, _oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    a_file(&one, "f");
    let (path, beside) = (one.join("f"), two.join("f"));
    let mut a = Member::new(&path, false);
    assert_eq!((a.does("lock 7"), a.does("write 0 aa")), ("ok".into(), "ok".into()));
    let mut outsiders: Vec<_> = (0..17).map(|_| Member::new(&beside, false)).collect();
    outsiders.iter_mut().take(16).for_each(|outsider| outsider.begin("read 0"));
    thread::sleep(A_WHILE);
    assert_eq!(outsiders[16].does("read 0"), EBUSY);
    assert_eq!(fs::metadata(&beside).unwrap().len(), 1000);
    fs::write(two.join("other"), b"goes on").unwrap();
    // Who is killed makes room; and the others get what they have waited for.
    drop(outsiders.remove(0));
    let mut last = outsiders.pop().unwrap();
    last.begin("read 0");
    thread::sleep(A_WHILE);
    assert_eq!(a.does("unlock 7"), "ok");
    outsiders.push(last);
    assert!(outsiders.iter_mut().all(|outsider| outsider.answer() == "ok"));
}
