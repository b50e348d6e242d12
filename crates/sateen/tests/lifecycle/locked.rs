//! Somebody else has the lock of a data folder, and a number in it is not theirs: `down` ends
//! nobody who has nothing to do with it.

use std::fs::{self, File};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use sateen_testkit::can_mount;

use crate::Fs;

#[test]
fn down_signals_only_who_holds_the_lock() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("locked");
    fs_.ok(&["up", "--osts", "1"]);
    fs_.ok(&["down"]);
    let path = fs_.data.join("lock");
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    // The number that the last process had is somebody else's by now.
    fs::write(&path, format!("sateen data folder\n{}\n", other.id())).unwrap();
    let lock = File::open(&path).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let said = fs_.refused(&["down"]);
    assert!(said.contains("does not answer") && said.contains("fuser"), "{said}");
    assert!(other.try_wait().unwrap().is_none(), "it goes on");
    // A program that another test is just starting may have the same file open for a moment.
    flock(&lock, FlockOperation::Unlock).unwrap();
    drop(lock);
    other.kill().unwrap();
    other.wait().unwrap();

    // One that has it, and cannot answer, is told; and is given the time that it needs.
    let script = "use Fcntl ':flock'; open F, '<', shift or die; flock F, LOCK_EX; sleep 600";
    let mut holder = Command::new("perl").args(["-e", script]).arg(&path).spawn().unwrap();
    while !matches!(fs_.run(&["status"]).status.code(), Some(1)) {
        assert!(holder.try_wait().unwrap().is_none(), "it could not take the lock");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    fs::write(&path, format!("sateen data folder\n{}\n", holder.id())).unwrap();
    let down = fs_.run(&["down"]);
    let said = String::from_utf8_lossy(&down.stderr).into_owned();
    assert!(said.contains("SIGTERM"), "{said}");
    assert_eq!(holder.wait().unwrap().code(), None, "the signal has ended it");
    fs_.ok(&["up"]);
}

/// `fsck` takes the lock, too. Nothing is to be stopped then.
#[test]
fn a_check_is_named() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("checked");
    fs_.ok(&["up", "--osts", "1"]);
    fs_.ok(&["down"]);
    let path = fs_.data.join("lock");
    fs::write(&path, format!("sateen data folder\n{} fsck\n", std::process::id())).unwrap();
    let lock = File::open(&path).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    for command in ["up", "down", "status"] {
        let said = fs_.refused(&[command]);
        assert!(said.contains("checks the file system"), "{command}: {said}");
    }
}
