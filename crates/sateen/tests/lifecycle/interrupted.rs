//! Ctrl-C, or whatever else ends the command that waits for the mount: nobody knows of the process
//! that it has started then, and so that ends, too, and leaves nothing behind.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;

use crate::Fs;
use crate::again::is_mounted;

fn left_nothing(fs_: &Fs) {
    fs_.wait_ended();
    assert!(!is_mounted(&fs_.mnt()), "{}", fs_.log());
    fs_.ok(&["up"]);
    fs_.ok(&["down"]);
}

/// Signals `up` while the process behind it starts. False, if it was done by then.
fn is_interrupted(fs_: &Fs, signal: Signal) -> bool {
    let log = fs_.data.join("log");
    let _ = std::fs::remove_file(&log);
    let mut up = Command::new(env!("CARGO_BIN_EXE_sateen"));
    up.args(["up", "--data"]).arg(&fs_.data).stdout(Stdio::null());
    let mut up = up.spawn().unwrap();
    // The process has begun, and is far from its mount.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !log.exists() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&up), signal).unwrap();
    match up.wait().unwrap().code() {
        None => true,
        Some(code) => {
            assert_eq!(code, 0, "the signal ends it, or it is done");
            fs_.ok(&["down"]);
            false
        }
    }
}

#[test]
fn up_that_is_interrupted_ends() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("interrupted");
    for signal in [Signal::INT, Signal::KILL] {
        // On a busy machine it may be done before it is signalled.
        assert!((0..5).any(|_| is_interrupted(&fs_, signal)), "it is too fast for this test");
        left_nothing(&fs_);
    }
}

/// The one that waits ends between the last look at it and the line that it waits for.
#[test]
fn up_that_nobody_reads_of_ends() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("unread");
    let me = std::process::id().to_string();
    let mut up = Command::new(env!("CARGO_BIN_EXE_sateen"));
    up.args(["up", "--osts", "2", "--daemon", &me, "--data"]).arg(&fs_.data);
    // The reader is gone before it starts: a line that is read by nobody would not end it.
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let mut up = up.stdout(OwnedFd::from(writer)).spawn().unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(0), "it ends in good order");
    let status = fs_.wait_ended();
    assert!(status["ended"]["why"].as_str().unwrap().contains("did not wait"), "{status}");
    left_nothing(&fs_);
}
