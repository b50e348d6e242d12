//! A mount, end to end, over each transport. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, reason = "test helpers")]
#[path = "../examples/common/null.rs"]
mod null;
#[path = "common/patience.rs"]
mod patience;
#[path = "common/transport.rs"]
mod transport;

use sateen_fuse::{
    Attr, EndReason, Filesystem, MountOptions, Op, Reply, Request, Session, TransportChoice,
    UnmountMode, fusectl,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A fresh directory to mount at; removed when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("sateen-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Unmounts what nobody uses any more. A program that another test is just starting has all files
/// that were open here until it is a program of its own.
fn unmount(session: &Session) {
    let unmounted = || session.unmount(UnmountMode::Clean).is_ok();
    assert!(patience::comes(unmounted), "{:?}", session.unmount(UnmountMode::Clean));
}

fn work(choice: TransportChoice, name: &str) {
    let dir = Dir::new(name);
    let options = MountOptions { transport: transport::asked(choice), ..MountOptions::new(&dir.0) };
    let session = Session::mount(options, Arc::new(null::NullFs::new(false))).unwrap();
    transport::check(&session, choice);
    let path = dir.0.join("file");
    let mut file = fs::File::create_new(&path).unwrap();
    file.write_all(&vec![1; 3_000_000]).unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().size(), 3_000_000);
    let mut read = Vec::new();
    fs::File::open(&path).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), 3_000_000);
    let long = dir.0.join("n".repeat(200));
    fs::create_dir(&long).unwrap();
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 2);
    assert_eq!(fs::create_dir(&long).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    fs::remove_dir(&long).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    for _ in 0..2 {
        session.notifier().inval_inode(1, 0, 0).unwrap();
        session.notifier().inval_entry(1, b"file").unwrap();
    }
    if session.offer().has_inc_epoch() {
        session.notifier().inc_epoch().unwrap();
    }
    let busy = fs::File::open(&dir.0).unwrap();
    let error = session.unmount(UnmountMode::Clean).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    drop(busy);
    unmount(&session);
    assert!(patience::comes(|| session.ended().is_some()));
    assert_eq!(session.ended(), Some(EndReason::Unmounted));
}

fn run(program: &str, args: &[&str]) -> bool {
    let path = |arg: &&str| Path::new(arg).to_owned();
    Command::new(program).args(args.iter().map(path)).status().unwrap().success()
}

/// What is mounted where one of ours is, or was, is left alone; by force ours ends, wherever it is.
fn others_stay(name: &str, first: &[&str]) {
    let dir = Dir::new(name);
    let point = dir.0.to_str().unwrap();
    let session =
        Session::mount(MountOptions::new(&dir.0), Arc::new(null::NullFs::new(false))).unwrap();
    let busy = fs::File::create_new(dir.0.join("open")).unwrap();
    let device = busy.metadata().unwrap().dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    if let [program, args @ ..] = first {
        assert!(run(program, &[args, &[point]].concat()));
    }
    assert!(run("mount", &["-t", "tmpfs", "none", point]));
    fs::write(dir.0.join("another's"), b"kept").unwrap();
    let error = session.unmount(UnmountMode::Clean).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(fs::read(dir.0.join("another's")).unwrap(), b"kept");
    // By fusectl, whether it is mounted here or not.
    session.unmount(UnmountMode::Force).unwrap();
    assert_eq!(fs::read(dir.0.join("another's")).unwrap(), b"kept");
    assert!(session.join_timeout(patience::HANG).is_some());
    // Its number is in use as long as something is open there, and nobody is there to be ended.
    assert!(fusectl::abort(device).is_ok());
    drop(busy);
    // As in `unmount`.
    let umount = || run("umount", &[point]);
    assert!(patience::comes(umount));
    if first.is_empty() {
        assert!(patience::comes(umount));
    }
}

#[test]
fn what_was_mounted_in_its_place_stays() {
    others_stay("place", &["umount", "-l"]);
    others_stay("top", &[]);
}

#[test]
fn classic() {
    work(TransportChoice::Classic, "classic");
}

#[test]
fn uring() {
    work(TransportChoice::Uring, "uring");
}

/// Answers LOOKUP never, by dropping the reply.
struct Careless;

impl Filesystem for Careless {
    fn dispatch(&self, request: Request, reply: Reply) {
        match request.op {
            Op::Lookup { .. } => drop(reply),
            Op::Getattr { ino, .. } => {
                let attr = Attr { ino, mode: 0o40755, ..Attr::default() };
                reply.attr(&attr, Duration::ZERO);
            }
            _ => reply.error(libc::ENOSYS),
        }
    }
}

#[test]
fn a_dropped_reply_is_an_error_and_not_a_hang() {
    let dir = Dir::new("careless");
    let session = Session::mount(MountOptions::new(&dir.0), Arc::new(Careless)).unwrap();
    let error = fs::metadata(dir.0.join("x")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    drop(session);
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
}

#[test]
fn mount_flags_reach_the_kernel() {
    let dir = Dir::new("flags");
    let mut options = MountOptions::new(&dir.0);
    assert!(options.flags.set("ro") && options.flags.set("noatime") && !options.flags.set("x"));
    let _session = Session::mount(options, Arc::new(null::NullFs::new(false))).unwrap();
    let error = fs::File::create(dir.0.join("x")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(dir.0.to_str().unwrap())).unwrap();
    assert!(line.contains("fuse.sateen ro,nosuid,nodev,noatime"), "{line}");
}

/// Does not answer READs of any file but one.
struct Away {
    rest: null::NullFs,
    here: AtomicU64,
    kept: Mutex<Vec<Reply>>,
}

impl Filesystem for Away {
    fn dispatch(&self, request: Request, reply: Reply) {
        match request.op {
            Op::Read { ino, .. } if ino != self.here.load(Ordering::Relaxed) => {
                self.kept.lock().unwrap().push(reply);
            }
            _ => self.rest.dispatch(request, reply),
        }
    }
}

/// A program on the first CPU, whose requests all come by the same queue.
fn on_one_cpu(program: &[&str], path: &Path) -> Child {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).args(program).arg(path).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// The kernel reads ahead for programs that are gone by now: these READs stay, and must not be in
/// everybody's way.
fn reads_that_wait(choice: TransportChoice, name: &str) {
    const PROGRAMS: usize = 16;
    let dir = Dir::new(name);
    let options = MountOptions { transport: transport::asked(choice), ..MountOptions::new(&dir.0) };
    let rest = null::NullFs::new(false);
    let fs = Arc::new(Away { rest, here: AtomicU64::new(0), kept: Mutex::default() });
    let session = Session::mount(options, fs.clone()).unwrap();
    transport::check(&session, choice);
    let make = |name: String| {
        let path = dir.0.join(name);
        fs::File::create_new(&path).unwrap().write_all_at(b"x", 4 << 20).unwrap();
        path
    };
    let here = make("here".to_owned());
    fs.here.store(fs::metadata(&here).unwrap().ino(), Ordering::Relaxed);
    let away: Vec<_> = (0..PROGRAMS).map(|number| make(format!("away{number}"))).collect();
    let mut readers: Vec<_> =
        away.iter().map(|path| on_one_cpu(&["head", "-c", "1"], path)).collect();
    let all_wait = patience::comes(|| fs.kept.lock().unwrap().len() >= PROGRAMS);
    for reader in &mut readers {
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    let programs: [&[&str]; 2] = [&["stat"], &["head", "-c", "1"]];
    let answered = programs.map(|program| {
        let mut child = on_one_cpu(program, &here);
        let ended = patience::comes(|| child.try_wait().unwrap().is_some());
        child.kill().unwrap();
        ended && child.wait().unwrap().success()
    });
    // Nothing here may be left behind that waits.
    fs.kept.lock().unwrap().clear();
    session.unmount(UnmountMode::Force).unwrap();
    assert!(all_wait, "the last of them did not get as far as the file system");
    assert_eq!(answered, [true; 2], "another file's");
}

#[test]
fn reads_that_wait_are_in_nobodys_way() {
    reads_that_wait(TransportChoice::Uring, "away");
}

#[test]
fn reads_that_wait_are_in_nobodys_way_without_queues() {
    reads_that_wait(TransportChoice::Classic, "away-classic");
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

#[test]
fn entries_that_nobody_uses_take_no_memory() {
    let dir = Dir::new("memory");
    let transport = transport::asked(TransportChoice::Uring);
    let options = MountOptions { transport, ..MountOptions::new(&dir.0) };
    let all = u64::from(options.ring_depth) * u64::from(options.max_write);
    let before = resident();
    let session = Session::mount(options, Arc::new(null::NullFs::new(false))).unwrap();
    fs::metadata(&dir.0).unwrap();
    let grown = resident().saturating_sub(before);
    println!("{} KiB for a mount", grown >> 10);
    unmount(&session);
    // Others run beside this.
    assert!(grown < all / 2, "{grown} bytes, and the entries of one queue have {all}");
}
