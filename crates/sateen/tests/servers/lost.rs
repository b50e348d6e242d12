//! The rows of docs/semantics.md about what programs are told that had files open when something
//! was lost: by the restart of an MDT or of an OST, or because their mount was thrown out.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, run_folder, server_folder, text, until};
use sateen_testkit::forgetfs::{ForgetFs, Loss};

use crate::replayed::made_again;
use crate::{
    BINARY, as_program, bytes, knows_its_runs, param, with_the_power_gone, write_durably,
    written_out,
};

/// Opens a file, writes at its beginning, and waits for a word; then makes each call once and says
/// how it ended.
const HOLDS: &str = r#"
use Fcntl; use IO::Handle;
sysopen(my $f, $ARGV[0], O_RDWR) or die "open: $!";
syswrite($f, 'answered') == 8 or die "write: $!";
$| = 1; print "open\n"; <STDIN>;
sub told { print "$_[0] ", ($_[1] ? 'done' : $! + 0), "\n" }
told('read', sysread($f, my $buffer, 5));
told('write', syswrite($f, 'x'));
told('truncate', truncate($f, 3));
told('seek', sysseek($f, 0, 4));
told('sync', $f->sync);
told('close', close($f));
"#;
/// What it says of a descriptor that is lost.
const ALL_LOST: &str = "read 5\nwrite 5\ntruncate 5\nseek 5\nsync 5\nclose 5\n";

/// And of one that goes on.
const GOES_ON: &str = "read done\nwrite done\ntruncate done\nseek done\nsync done\nclose done\n";
/// So often an MDT is killed under a mount that makes files, until it takes some with it.
const TRIES: usize = 10;
/// Files that are made each time.
const MADE: usize = 3000;

/// A program that has a file open.
struct Holder {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Holder {
    fn of(path: &Path) -> Holder {
        let mut perl = Command::new("perl");
        let perl = perl.args(["-e", HOLDS]).arg(path);
        let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert_eq!(line, "open\n");
        Holder { child, says }
    }

    /// What it is told when it goes on.
    fn goes_on(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.says.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said
    }
}

/// An MDT that is killed takes changes with it that it had answered for. Their mount has them made
/// again, and nobody is told anything.
#[test]
fn what_was_open_at_a_crash_of_an_mdt_goes_on_with_all_changes() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "lost-mdt");
    let (mds, oss) = cluster.start();
    let mut mds = Some(mds);
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let path = mnt.join("file");
    for number in 0..TRIES {
        write_durably(&path, b"as it was before").unwrap();
        write_durably(&mnt.join("another"), b"as it was before").unwrap();
        let (holder, idle) = (Holder::of(&path), Holder::of(&other.join("another")));
        std::thread::sleep(std::time::Duration::from_millis(300));
        let folder = mnt.join(format!("folder{number}"));
        fs::create_dir(&folder).unwrap();
        let makes = std::thread::spawn(move || {
            for file in 0..MADE {
                File::create(folder.join(file.to_string())).unwrap();
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        mds.take().unwrap().crash();
        mds = Some(cluster.serve(1, &["mgt", "mdt0"]));
        assert_eq!([holder.goes_on(), idle.goes_on()], [GOES_ON, GOES_ON]);
        makes.join().unwrap();
        let folder = other.join(format!("folder{number}"));
        assert_eq!(fs::read_dir(folder).unwrap().count(), MADE);
        assert_eq!(fs::read(&path).unwrap(), b"ans");
        if number > 0 && made_again(&cluster.logs()) > 0 {
            break;
        }
    }
    let logs = cluster.logs();
    assert!(made_again(&logs) > 0, "{logs}");
    assert!(!logs.contains("evict"), "{logs}");
    cluster.finish([oss, mds.unwrap()]);
}

#[test]
fn what_was_open_at_a_mount_that_was_thrown_out_is_lost() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "lost-mount");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let patience_s = |seconds: u32| {
        let mut lctl = as_program("lctl");
        lctl.arg("--data").arg(server_folder(&cluster.path("mgt")));
        ok(lctl.args(["set_param", &format!("mdt.*.ldlm_timeout={seconds}")]));
    };
    let path = mnt.join("file");
    write_durably(&path, b"as it was before").unwrap();
    let holder = Holder::of(&path);
    written_out(&mnt);
    let pid = Pid::from_raw(cluster.mount_pid(&mnt) as i32).unwrap();
    // It stands still, and does not give back what somebody else wants.
    kill_process(pid, Signal::STOP).unwrap();
    patience_s(2);
    let mut file = File::options().append(true).open(other.join("file")).unwrap();
    file.write_all(b", and since").unwrap();
    drop(file);
    let now = b"answereds before, and since";
    assert_eq!(fs::read(other.join("file")).unwrap(), now);
    // Nobody else is to be thrown out, who only stands still for a moment.
    patience_s(60);
    kill_process(pid, Signal::CONT).unwrap();
    until("new calls work", || fs::read(&path).is_ok_and(|read| read == now));
    assert_eq!(holder.goes_on(), ALL_LOST);
    assert_eq!([&mnt, &other].map(|mount| fs::read(mount.join("file")).unwrap()), [now; 2]);
    assert!(cluster.logs().contains("evict"), "it was thrown out:\n{}", cluster.logs());
    cluster.finish([oss, mds]);
}

/// Whoever waits for a lock waits on, and whoever has it has it.
#[test]
fn locks_outlive_a_crash_of_an_mdt() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept-locks");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let path = mnt.join("file");
    write_durably(&path, b"as it was before").unwrap();
    File::open(&mnt).unwrap().sync_all().unwrap();
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let (mut holder, waiting) = (open(&path), open(&other.join("file")));
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let waiting = std::thread::spawn(move || flock(&waiting, FlockOperation::LockExclusive));
    std::thread::sleep(std::time::Duration::from_millis(500));
    mds.crash();
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    let new = open(&other.join("file"));
    let tried = flock(&new, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(tried, Err(Errno::WOULDBLOCK));
    holder.write_all(b"under the same lock").unwrap();
    assert!(!waiting.is_finished());
    flock(&holder, FlockOperation::Unlock).unwrap();
    waiting.join().unwrap().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"under the same lock");
    drop((holder, new));
    assert!(!cluster.logs().contains("evict"), "{}", cluster.logs());
    cluster.finish([oss, mds]);
}

/// Whether `sateen sync` says that all of a mount is safe.
fn sync(mount: &Path) -> bool {
    let output = Command::new(BINARY).arg("sync").arg(mount).output().unwrap();
    println!("{}", text(&output));
    output.status.success()
}

/// An OST whose disk forgets what was not synced, with the name of its folder.
fn on_a_forgetful_disk(cluster: &Cluster, folder: &str) -> ForgetFs {
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    ok(&mut cluster.mkfs("mdt", Some(0), "mdt0"));
    fs::create_dir(cluster.path(folder)).unwrap();
    let disk = ForgetFs::mount(&cluster.path(folder)).unwrap();
    ok(&mut cluster.mkfs("ost", Some(0), folder));
    disk
}

#[test]
fn what_an_ost_forgets_is_written_again_by_who_wrote_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "again");
    let mut disk = on_a_forgetful_disk(&cluster, "ost0");
    let (mds, oss) = (cluster.serve(1, &["mgt", "mdt0"]), cluster.serve(2, &["ost0"]));
    cluster.knows_osts("mgt", 1);
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let mut lctl = as_program("lctl");
    lctl.arg("--data").arg(run_folder(&mnt));
    ok(lctl.args(["set_param", "osc.*.max_unstable_mb=32"]));
    assert_eq!(param(&mnt, "osc.*.max_unstable_mb"), "32\n");
    assert_eq!(param(&other, "osc.*.max_unstable_mb"), "0\n", "if nobody says otherwise");
    let content = bytes(3 << 20, 9);
    let files = ["small", "large", "closed", "looked-at"].map(|name| {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(mnt.join(name)).unwrap();
        // That there is an object has to be durable.
        file.write_all_at(b"begun", 0).unwrap();
        file.sync_all().unwrap();
        file
    });
    let [small, large, closed, looked_at] = files;
    for file in [&large, &closed, &looked_at] {
        file.write_all_at(&content, 0).unwrap();
    }
    written_out(&mnt);
    // Over what was written before.
    small.write_all_at(b"again", 3).unwrap();
    large.write_all_at(b"younger", 1 << 20).unwrap();
    drop(closed);
    // Another mount has had the file, and may have written to it.
    assert!(fs::read(other.join("looked-at")).unwrap() == content);
    written_out(&mnt);
    assert_ne!(param(&mnt, "osc.*.cur_unstable_bytes"), "0\n");
    let mut right = content.clone();
    right[1 << 20..][..7].copy_from_slice(b"younger");
    let mut oss = oss;
    for turn in 0..2 {
        oss.crash();
        disk.cut(Loss::All).unwrap();
        oss = cluster.serve(2, &["ost0"]);
        let told = |file: &File| file.sync_all().map_err(|error| error.raw_os_error());
        assert_eq!([told(&small), told(&large)], [Ok(()), Ok(())], "in turn {turn}");
        let lost = if turn == 0 { Err(Some(5)) } else { Ok(()) };
        assert_eq!(told(&looked_at), lost, "of that nobody has a copy any more");
        told(&File::open(mnt.join("closed")).unwrap()).unwrap();
        // What is durable is not kept.
        assert_eq!(param(&mnt, "osc.*.cur_unstable_bytes"), "0\n");
        assert_eq!(fs::read(other.join("small")).unwrap(), b"begagain");
        assert!(fs::read(other.join("large")).unwrap() == right, "in turn {turn}");
        assert!(fs::read(other.join("closed")).unwrap() == content, "in turn {turn}");
    }
    drop((small, large, looked_at));
    [mnt, other].iter().for_each(|mount| cluster.umount(mount));
    [oss, mds].into_iter().for_each(Server::end);
    cluster.fsck();
}

#[test]
fn what_an_ost_has_lost_is_told_once_to_who_wrote_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "lost-ost");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let open = |mount: &Path, name: &str| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(mount.join(name)).unwrap()
    };
    let names = ["synced", "unsynced", "another"];
    let [mut synced, mut unsynced, mut another] = names.map(|name| open(&mnt, name));
    for file in [&mut synced, &mut unsynced, &mut another] {
        file.write_all(b"content").unwrap();
    }
    synced.sync_all().unwrap();
    written_out(&mnt);
    oss.crash();
    with_the_power_gone(&cluster, &["ost0", "ost1"]);
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    // Others are not told, whatever they sync.
    open(&other, "unsynced").sync_all().unwrap();
    assert!(sync(&other));
    // Who wrote is: by the file's fsync, and by a sync of the mount, which does not take anything
    // away from that.
    synced.sync_all().unwrap();
    let told = |file: &File| file.sync_all().map_err(|error| error.raw_os_error());
    assert_eq!([told(&unsynced), told(&unsynced)], [Err(Some(5)), Ok(())]);
    assert_eq!([sync(&mnt), sync(&mnt)], [false, true]);
    assert_eq!([told(&another), told(&another)], [Err(Some(5)), Ok(())]);
    assert!(sync(&mnt));
    // What an fsync has told no sync tells again.
    another.write_all(b" and more").unwrap();
    written_out(&mnt);
    oss.crash();
    with_the_power_gone(&cluster, &["ost0", "ost1"]);
    let mut oss = cluster.serve(2, &["ost0", "ost1"]);
    assert_eq!(told(&another), Err(Some(5)));
    assert!(sync(&mnt));
    // What the kernel has kept is not lost.
    another.write_all(b" and yet more").unwrap();
    written_out(&mnt);
    if knows_its_runs(&cluster, "ost0") {
        oss.crash();
        oss = cluster.serve(2, &["ost0", "ost1"]);
        assert_eq!(told(&another), Ok(()));
        assert!(sync(&mnt));
        assert_eq!(fs::read(other.join("another")).unwrap(), b"content and more and yet more");
    }
    drop((synced, unsynced, another));
    cluster.finish([oss, mds]);
}
