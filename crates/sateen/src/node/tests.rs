//! A mount whose client is thrown out: what was open is lost, and then it works again. Needs
//! root and /dev/fuse.

mod alone;
mod copies;
pub(super) mod costs;
pub(super) mod slow_disk;
mod timers;
mod world;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use sateen_fuse::UnmountMode;
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{PATIENCE, until};

use super::{How, Node};
use crate::data_dir::DataDir;
use crate::targets;
use crate::testing::Scratch;

/// What whoever does not answer gets, so that nobody is thrown out for being slow: 600 s.
const LIMIT_NS: u64 = 600_000_000_000;

fn is_eio<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(5))
}

/// Whoever tries again and again leaves no clients behind.
#[test]
fn a_mount_that_fails_says_goodbye() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("failed");
    let data = DataDir::at(&scratch.path().join("data")).unwrap();
    let lock = data.open().unwrap();
    let targets = targets::open_or_make(&data, Some(1), Some(1)).unwrap();
    let embedded = Node::embedded_with(&targets, LIMIT_NS).unwrap();
    let exports = || {
        let all = embedded.devices().params();
        let counts = all.iter().filter(|param| param.name.ends_with("/num_exports"));
        counts.map(|param| (param.name.clone(), param.value())).collect::<Vec<_>>()
    };
    // The MDT is a client of its OST once that has started; whoever registered them has left.
    let alone = || {
        let count = |name: &str| if name.starts_with("obdfilter/") { "1" } else { "0" };
        exports().iter().all(|(name, value)| value == count(name))
    };
    assert_eq!(exports().len(), 3);
    until("the targets are alone", alone);
    assert!(embedded.mount(&scratch.path().join("absent"), How::new(false)).is_err());
    // A goodbye is not waited for on and on.
    until("the client has left", alone);
    embedded.close().unwrap();
    drop(lock);
}

#[test]
fn a_mount_that_was_thrown_out_comes_back() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("evicted");
    let data = DataDir::at(&scratch.path().join("data")).unwrap();
    let lock = data.open().unwrap();
    let targets = targets::open_or_make(&data, Some(1), Some(2)).unwrap();
    let embedded = Node::embedded_with(&targets, LIMIT_NS).unwrap();
    let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
    for point in [&a, &b] {
        fs::create_dir(point).unwrap();
    }
    let deaf = embedded.mount(&a, How::new(false)).unwrap();
    let other = embedded.mount(&b, How::new(false)).unwrap();

    let mut open = fs::File::create(a.join("file")).unwrap();
    open.write_all(b"written by a").unwrap();
    deaf.deafen();
    embedded.devices().set("mdt.*.ldlm_timeout", "1");
    // Waits until the lock is taken from a, which does not hear that it is wanted. Nothing is
    // wanted of b, which may be slow.
    fs::write(b.join("file"), b"b").unwrap();
    embedded.devices().set("mdt.*.ldlm_timeout", "600");
    deaf.hear_again();

    // The file was open, and its size not told: whoever has it open hears of it.
    // A write may be kept before it hears, and is lost then: nothing is written behind b's back.
    let late = open.write_at(b"late", 0);
    assert!(late.is_ok() || is_eio(late));
    assert!(is_eio(open.sync_all()));
    assert!(is_eio(fs::File::open(a.join("file")).and_then(|mut file| {
        // Opened anew it is there, as b made it.
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        assert_eq!(text, "b");
        open.sync_all()
    })));
    drop(open);
    fs::write(a.join("file"), b"a again").unwrap();
    assert_eq!(fs::read(b.join("file")).unwrap(), b"a again");
    fs::rename(a.join("file"), a.join("moved")).unwrap();
    assert!(!b.join("file").exists());

    for mounted in [&deaf, &other] {
        mounted.session.unmount(UnmountMode::Clean).unwrap();
        mounted.session.join_timeout(PATIENCE).unwrap();
        mounted.leave();
    }
    embedded.close().unwrap();
    drop(lock);
}
