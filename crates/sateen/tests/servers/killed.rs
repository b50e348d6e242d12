//! A mount's process that dies in the middle of everything: programs read and map what only an OST
//! that stands still could give them, write, sync and wait for locks, and a thread of the process
//! itself waits in the kernel for a page that one of them fills, because another mount writes the
//! same file. That thread keeps the connection open; the guard, or whoever mounts again if there is
//! no guard any more, aborts it. Everybody hears an error, soon, and nothing stays behind.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, run_folder, until};

use crate::forced::{MAPS, Waiting, has_ended, is_mounted, soon};
use crate::waiting::{go_on, stop};
use crate::{BINARY, bytes};

/// What of the mount waits, beside the process itself.
const PROGRAMS: [(&str, &str); 6] = [
    ("reads", "open($f, '<', \"$ARGV[0]/cold\") and sysread($f, my $b, 9) and exit 0"),
    (
        "reads what another mount writes",
        "open($f, '<', \"$ARGV[0]/shared\") and sysread($f, my $b, 9) and exit 0",
    ),
    (MAPS, "open($f, '<:mmap', \"$ARGV[0]/mapped\") and defined(getc($f)) and exit 0"),
    (
        "syncs",
        "open($f, '+<', \"$ARGV[0]/open\") and syswrite($f, 'x' x 9000) \
         and POSIX::fsync(fileno($f)) and exit 0",
    ),
    (
        "writes past the cache",
        "sysopen($f, \"$ARGV[0]/direct\", 040001) and \
         syswrite($f, 'y' x 4096) and POSIX::fsync(fileno($f)) and exit 0",
    ),
    ("waits for a lock", "open($f, '+<', \"$ARGV[0]/locked\") and flock($f, 2) and exit 0"),
];

const FILES: [&str; 6] = ["cold", "shared", "mapped", "open", "direct", "locked"];
/// The last page is read before there is nobody to read from.
const FILE_BYTES: usize = 1 << 20;

/// Two mounts, of which one is in the middle of everything.
struct Busy {
    cluster: Cluster,
    servers: [Server; 2],
    mnt: PathBuf,
    daemon: Pid,
    waiting: Waiting,
    /// Of the other mount: it has the lock that one program waits for.
    lock: File,
    writer: JoinHandle<()>,
}

/// Whether a thread of the process waits for a page, with which the kernel is to be told something.
fn notification_waits(daemon: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.as_raw_nonzero())).unwrap();
    tasks.flatten().any(|task| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(')').next().unwrap_or_default().trim();
        read("comm").trim() == "notify" && state.starts_with('D')
    })
}

impl Busy {
    fn with(name: &str, options: &[&str]) -> Busy {
        let mut cluster = Cluster::new(BINARY, name);
        let (mds, oss) = cluster.start();
        let other = cluster.mount("other");
        for name in FILES {
            fs::write(other.join(name), bytes(FILE_BYTES, 3)).unwrap();
            File::open(other.join(name)).unwrap().sync_all().unwrap();
        }
        let lock = File::open(other.join("locked")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let mut mount = cluster.mount_command("mnt");
        let mnt = cluster.path("mnt");
        cluster.mounts.push(mnt.clone());
        ok(mount.args(["-o", "retry=2"]).args(options));
        let daemon = Pid::from_raw(cluster.mount_pid(&mnt) as i32).unwrap();
        // It knows its OSTs, and its servers have nothing to ask of anybody.
        for name in FILES {
            let last = FILE_BYTES as u64 - 1;
            File::open(mnt.join(name)).unwrap().read_exact_at(&mut [0], last).unwrap();
        }
        stop(&oss);
        let mut waiting = Waiting::of(&mnt, &PROGRAMS);
        std::thread::sleep(Duration::from_secs(2));
        waiting.still_wait();
        let shared = other.join("shared");
        // Its open waits for the reader already.
        let writer = std::thread::spawn(move || {
            let shared = File::options().write(true).open(shared).unwrap();
            shared.write_all_at(b"written", 0).unwrap();
        });
        until("the reader's page is to go", || notification_waits(daemon));
        waiting.still_wait();
        Busy { cluster, servers: [mds, oss], mnt, daemon, waiting, lock, writer }
    }

    fn send(&self, signals: &[Signal]) {
        for signal in signals {
            kill_process(self.daemon, *signal).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Everybody is told, the process ends, and it is mounted again at the same place.
    fn ends(self, begun: Instant) {
        let Busy { cluster, servers: [mds, oss], mnt, daemon, waiting, lock, writer } = self;
        waiting.are_told(begun);
        soon("its process ends", begun, || has_ended(daemon.as_raw_nonzero().get() as u32));
        if is_mounted(&mnt) {
            let asks = fs::metadata(mnt.join("unknown")).unwrap_err().raw_os_error();
            assert!([Some(107), Some(103)].contains(&asks), "{asks:?}");
        }
        go_on(&oss);
        mounts_again(&cluster, &mnt);
        writer.join().unwrap();
        let mut there = [0; 7];
        File::open(mnt.join("shared")).unwrap().read_exact_at(&mut there, 0).unwrap();
        assert_eq!(&there, b"written");
        assert!(fs::read(mnt.join("cold")).unwrap() == bytes(FILE_BYTES, 3));
        drop(lock);
        let taken = File::open(mnt.join("locked")).unwrap();
        flock(&taken, FlockOperation::LockExclusive).unwrap();
        drop(taken);
        cluster.finish([oss, mds]);
    }
}

fn mounts_again(cluster: &Cluster, mnt: &Path) {
    let mut mount = Command::new(BINARY);
    ok(mount.arg("mount").arg(cluster.source()).arg(mnt).args(["-o", "retry=2"]));
}

fn killed(name: &str, options: &[&str], signals: &[Signal]) {
    if !can_mount() {
        return;
    }
    let busy = Busy::with(name, options);
    busy.send(signals);
    busy.ends(Instant::now());
}

#[test]
fn nobody_hangs_in_a_mount_whose_process_is_killed() {
    killed("busy-killed", &[], &[Signal::KILL]);
}

#[test]
fn nobody_hangs_in_a_mount_over_dev_fuse_whose_process_is_killed() {
    killed("busy-classic", &["-o", "transport=classic"], &[Signal::KILL]);
}

#[test]
fn nobody_hangs_in_a_mount_whose_process_is_stopped_and_killed() {
    killed("busy-stopped", &[], &[Signal::STOP, Signal::KILL]);
}

/// It leaves a core, for which its main thread waits.
#[test]
fn nobody_hangs_in_a_mount_whose_process_aborts() {
    killed("busy-aborted", &[], &[Signal::ABORT]);
}

/// Then there is no path to it: only its device tells which connection it was.
#[test]
fn nobody_hangs_in_a_mount_that_is_out_of_the_tree_and_killed() {
    if !can_mount() {
        return;
    }
    let busy = Busy::with("busy-lazy", &[]);
    ok(Command::new("umount").arg("-l").arg(&busy.mnt));
    busy.send(&[Signal::KILL]);
    busy.ends(Instant::now());
}

#[test]
fn who_mounts_again_frees_a_mount_that_was_killed_with_its_guard() {
    if !can_mount() {
        return;
    }
    let mut busy = Busy::with("busy-guard", &[]);
    kill_process(guard_of(&busy.mnt), Signal::KILL).unwrap();
    busy.send(&[Signal::KILL]);
    std::thread::sleep(Duration::from_secs(3));
    busy.waiting.still_wait();
    assert!(!has_ended(busy.daemon.as_raw_nonzero().get() as u32));
    go_on(&busy.servers[1]);
    let begun = Instant::now();
    mounts_again(&busy.cluster, &busy.mnt);
    let Busy { cluster, servers: [mds, oss], waiting, lock, writer, .. } = busy;
    waiting.are_told(begun);
    writer.join().unwrap();
    drop(lock);
    cluster.finish([oss, mds]);
}

/// The guard of a mount's process.
fn guard_of(mnt: &Path) -> Pid {
    let folder = run_folder(mnt);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        if words.get(1) == Some(&&b"guard"[..])
            && words.contains(&folder.as_os_str().as_encoded_bytes())
        {
            return Pid::from_raw(process.file_name().to_str().unwrap().parse().unwrap()).unwrap();
        }
    }
    panic!("it has no guard");
}
