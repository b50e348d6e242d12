//! Writes that are kept (`osc.*.max_dirty_mb`): how many requests they take, what other mounts
//! see of them, and what a close says when they are lost.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, server_folder, until};

use crate::{BINARY, as_program, bytes, param, write_durably, written_out};

const PAGE: usize = 4096;
const PAGES: usize = 2048;

/// Opens a file twice, writes to it, and waits for a word; then says how the closes ended.
const CLOSES: &str = r#"
use Fcntl; use IO::Handle;
sysopen(my $f, $ARGV[0], O_WRONLY) or die "open: $!";
open(my $same, '>&', $f) or die "dup: $!";
syswrite($f, 'x' x 4096) == 4096 or die "write: $!";
syswrite($f, 'answered') == 8 or die "write: $!";
$| = 1; print "open\n"; <STDIN>;
sub told { print "$_[0] ", ($_[1] ? 'done' : $! + 0), "\n" }
told('close', close($f));
told('close', close($same));
"#;

/// A mount keeps up to 64 MiB for each of its two OSTs.
fn keeps(mount: &Path) {
    let mut lctl = as_program("lctl");
    let lctl = lctl.arg("--data").arg(run_folder(mount));
    ok(lctl.args(["set_param", "-P", "osc.*.max_dirty_mb=64"]));
    until("it is set", || param(mount, "osc.*.max_dirty_mb") == "64\n64\n");
}

/// Writes that a mount has asked OSTs for.
fn requests(mount: &Path) -> u64 {
    let stats = param(mount, "osc.*.stats");
    let writes = stats.lines().filter(|line| line.starts_with("ost_write"));
    writes.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

#[test]
fn small_writes_take_few_requests_and_are_seen_by_others() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    assert_eq!(param(&mnt, "osc.*.max_dirty_mb"), "32\n32\n", "if nobody says otherwise");
    keeps(&mnt);
    let content = bytes(PAGES * PAGE, 5);
    let file = File::create(mnt.join("file")).unwrap();
    let before = requests(&mnt);
    for (page, bytes) in content.chunks(PAGE).enumerate() {
        file.write_all_at(bytes, (page * PAGE) as u64).unwrap();
    }
    // Before it is closed or synced.
    assert_eq!(fs::metadata(other.join("file")).unwrap().len(), content.len() as u64);
    assert!(fs::read(other.join("file")).unwrap() == content);
    let asked = requests(&mnt) - before;
    assert!(asked < PAGES as u64 / 8, "{asked} requests for {PAGES} pages");
    // Both write, one after the other.
    let beside = File::options().read(true).write(true).open(other.join("file")).unwrap();
    for turn in 0..20_u8 {
        file.write_all_at(&[turn; 100], 50).unwrap();
        let mut read = [0; 120];
        beside.read_exact_at(&mut read, 40).unwrap();
        assert_eq!(read[10..110], [turn; 100]);
        assert_eq!(read[9], content[49]);
        beside.write_all_at(&[!turn; 60], 60).unwrap();
        assert_eq!(fs::read(mnt.join("file")).unwrap()[60..120], [!turn; 60]);
    }
    file.sync_all().unwrap();
    assert_eq!(param(&mnt, "osc.*.cur_dirty_bytes"), "0\n0\n");
    drop((file, beside));
    cluster.finish([oss, mds]);
}

/// Records with gaps between them: several go in one request, also those that lie over the end of a stripe.
#[test]
fn records_with_gaps_go_together() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept-gaps");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    keeps(&mnt);
    ok(as_program("lfs").args(["setstripe", "-c", "2", "-S", "64K"]).arg(&mnt));
    let (records, len) = (400, 4700);
    let file = File::create(mnt.join("file")).unwrap();
    let mut content = vec![0; 2 * records * len];
    let data = bytes(records * len, 6);
    let before = requests(&mnt);
    for (number, record) in data.chunks(len).enumerate() {
        let at = 2 * number * len;
        content[at..at + len].copy_from_slice(record);
        file.write_all_at(record, at as u64).unwrap();
    }
    file.sync_all().unwrap();
    let asked = requests(&mnt) - before;
    assert!(asked < records as u64 / 8, "{asked} requests for {records} records");
    let stats = param(&mnt, "osc.*.stats");
    assert!(stats.contains("write_many") && stats.contains("[pieces]"), "{stats}");
    content.truncate(content.len() - len);
    assert!(fs::read(other.join("file")).unwrap() == content);
    // Over what is there, in another raster.
    for number in 0..100 {
        let at = number * 3001;
        file.write_all_at(&[number as u8; 1000], at as u64).unwrap();
        content[at..at + 1000].fill(number as u8);
    }
    assert!(fs::read(other.join("file")).unwrap() == content);
    drop(file);
    cluster.finish([oss, mds]);
}

#[test]
fn a_close_tells_what_could_not_be_written_out() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept-lost");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    keeps(&mnt);
    let patience_s = |seconds: u32| {
        let mut lctl = as_program("lctl");
        lctl.arg("--data").arg(server_folder(&cluster.path("mgt")));
        ok(lctl.args(["set_param", &format!("mdt.*.ldlm_timeout={seconds}")]));
    };
    let path = mnt.join("file");
    write_durably(&path, b"as it was before").unwrap();
    let mut perl = Command::new("perl");
    let perl = perl.args(["-e", CLOSES]).arg(&path);
    let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    let pid = Pid::from_raw(cluster.mount_pid(&mnt) as i32).unwrap();
    // It stands still, and does not give back what somebody else wants.
    kill_process(pid, Signal::STOP).unwrap();
    patience_s(2);
    assert!(fs::read(other.join("file")).is_ok());
    patience_s(60);
    kill_process(pid, Signal::CONT).unwrap();
    until("new calls work", || fs::read(&path).is_ok());
    drop(child.stdin.take());
    let mut said = String::new();
    says.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    // Once for both, which are one open.
    assert_eq!(said, "close 5\nclose done\n");
    assert!(fs::read(&path).unwrap() == fs::read(other.join("file")).unwrap());
    assert!(cluster.logs().contains("evict"), "it was thrown out:\n{}", cluster.logs());
    cluster.finish([oss, mds]);
}

/// A program that replaces a file by a new one, and syncs neither, has one of both, whatever becomes
/// of its mount.
#[test]
fn a_file_is_replaced_by_what_osts_have() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept-rename");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    keeps(&mnt);
    // What is kept needs a promise of its OST.
    for name in ["file", "one", "two", "three"] {
        write_durably(&mnt.join(name), b"as it was before").unwrap();
    }
    let stop = |signal| kill_process(oss.pid(), signal).unwrap();
    let old = fs::metadata(other.join("file")).unwrap().ino();
    stop(Signal::STOP);
    // A thread of it may be at something still.
    let threads = || fs::read_dir(format!("/proc/{}/task", oss.pid().as_raw_nonzero())).unwrap();
    let stands = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    };
    until("all of it stands still", || threads().all(|thread| thread.is_ok_and(stands)));
    // It is answered, and so is the close.
    fs::write(mnt.join("new"), b"as it is now").unwrap();
    let from = mnt.clone();
    let rename = std::thread::spawn(move || fs::rename(from.join("new"), from.join("file")));
    std::thread::sleep(Duration::from_secs(2));
    if rename.is_finished() {
        panic!("nobody has what was written: {:?}", rename.join());
    }
    assert_eq!(fs::metadata(other.join("file")).unwrap().ino(), old);
    let pid = Pid::from_raw(cluster.mount_pid(&mnt) as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    stop(Signal::CONT);
    assert!(rename.join().unwrap().is_err());
    assert_eq!(fs::read(other.join("file")).unwrap(), b"as it was before");
    // Its process is gone, and may have taken it along.
    let _ = Command::new("umount").arg("-l").arg(&mnt).status();
    cluster.mounts.retain(|mount| *mount != mnt);
    // From a mount that lives it goes on when the OST does.
    fs::write(other.join("another"), b"as it is now").unwrap();
    fs::rename(other.join("another"), other.join("file")).unwrap();
    assert_eq!(fs::read(other.join("file")).unwrap(), b"as it is now");
    cluster.finish([oss, mds]);
}

/// Nor is it replaced by one that was lost before, as a close has found that nobody waited for.
#[test]
fn what_was_lost_before_replaces_nothing() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept-failed");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    keeps(&mnt);
    for name in ["file", "one", "two", "three"] {
        write_durably(&mnt.join(name), b"as it was before").unwrap();
    }
    let set = |what: &str| {
        let mut lctl = as_program("lctl");
        ok(lctl.arg("--data").arg(run_folder(&mnt)).args(["set_param", what]));
    };
    kill_process(oss.pid(), Signal::STOP).unwrap();
    // A thread that is running goes on for a moment.
    let tasks = format!("/proc/{}/task", oss.pid().as_raw_nonzero());
    until("it stands still", || {
        let stats = fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path().join("stat"));
        stats.into_iter().all(|stat| fs::read_to_string(stat).is_ok_and(|it| it.contains(") T ")))
    });
    fs::write(mnt.join("new"), b"as it is now").unwrap();
    let dirty = param(&mnt, "osc.*.cur_dirty_bytes");
    assert_ne!(dirty, "0\n0\n", "its OST has it already");
    // What is on its way fails.
    set("osc.*.active=0");
    written_out(&mnt);
    kill_process(oss.pid(), Signal::CONT).unwrap();
    set("osc.*.active=1");
    let rename = || fs::rename(mnt.join("new"), mnt.join("file"));
    assert_eq!(rename().unwrap_err().raw_os_error(), Some(5));
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"as it was before");
    // Once.
    rename().unwrap();
    cluster.finish([oss, mds]);
}

/// How a lock of a program is taken and given back.
type TakeAndGive = (&'static str, fn(&File), fn(&File, File));

/// Who gets a lock finds what was written under it, whatever becomes of the mount that had it.
#[test]
fn a_lock_that_was_given_back_leaves_nothing_to_be_lost() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "kept-lock");
    let (mds, oss) = cluster.start();
    let other = cluster.mount("other");
    let mut lctl = as_program("lctl");
    lctl.arg("--data").arg(server_folder(&cluster.path("mgt")));
    ok(lctl.args(["set_param", "mdt.*.ldlm_timeout=2"]));
    let kinds: [TakeAndGive; 4] = [
        (
            "unlocked-flock",
            |file| flock(file, FlockOperation::LockExclusive).unwrap(),
            |file, _| flock(file, FlockOperation::Unlock).unwrap(),
        ),
        (
            "unlocked-fcntl",
            |file| fcntl_lock(file, FlockOperation::LockExclusive).unwrap(),
            |file, _| fcntl_lock(file, FlockOperation::Unlock).unwrap(),
        ),
        (
            "closed-fcntl",
            |file| fcntl_lock(file, FlockOperation::LockExclusive).unwrap(),
            |_, same| drop(same),
        ),
        (
            "shared-flock",
            |file| flock(file, FlockOperation::LockExclusive).unwrap(),
            |file, _| {
                flock(file, FlockOperation::LockShared).unwrap();
            },
        ),
    ];
    for (name, take, give) in kinds {
        let mnt = cluster.mount(name);
        keeps(&mnt);
        let path = mnt.join(name);
        for file in [&path, &mnt.join("one"), &mnt.join("two")] {
            write_durably(file, b"as it was before").unwrap();
        }
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (file, same) = (open(), open());
        take(&file);
        file.write_all_at(b"as it is now, so", 0).unwrap();
        assert_ne!(param(&mnt, "osc.*.cur_dirty_bytes"), "0\n0\n", "it is kept");
        give(&file, same);
        // A program there may have the lock now.
        let pid = Pid::from_raw(cluster.mount_pid(&mnt) as i32).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(fs::read(other.join(name)).unwrap(), b"as it is now, so", "{name}");
        drop(file);
        let _ = Command::new("umount").arg("-l").arg(&mnt).status();
        cluster.mounts.retain(|mount| *mount != mnt);
    }
    cluster.finish([oss, mds]);
}
