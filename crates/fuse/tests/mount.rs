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
    UnmountMode,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
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

fn work(choice: TransportChoice, name: &str) {
    let dir = Dir::new(name);
    let options = MountOptions { transport: choice, ..MountOptions::new(&dir.0) };
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
    session.unmount(UnmountMode::Clean).unwrap();
    assert!(patience::comes(|| session.ended().is_some()));
    assert_eq!(session.ended(), Some(EndReason::Unmounted));
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
