//! A start on a disk that something else has filled up: what is on it can be removed through the
//! mount only, so there must be one.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sateen_testkit::can_mount;
use sateen_testkit::cluster::until;

use crate::{Fs, kill, umount};

#[test]
fn a_full_disk_can_be_started_on_and_made_emptier() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("full-start");
    let mut small = Command::new("mount");
    small.args(["-t", "tmpfs", "-o", "size=512m", "tmpfs"]).arg(&fs_.data);
    assert!(small.status().unwrap().success());
    fs_.ok(&["up", "--osts", "1"]);
    let big = fs_.mnt().join("big");
    let mut file = File::create(&big).unwrap();
    file.write_all(&vec![7; 64 << 20]).and_then(|()| file.sync_all()).unwrap();
    drop(file);
    let fill = || {
        let mut filler = File::options().append(true).create(true).open(fs_.data.join("filler"))?;
        (0..1 << 20).try_for_each(|_| filler.write_all(&[1; 4096]))
    };
    assert!(fill().is_err());
    kill(&fs_.status()["pid"], Signal::KILL);
    fs_.wait_ended();
    // What the process had may be given back a moment after its lock.
    until("whoever has filled it goes on", || {
        // Until it fails, which the next line looks at.
        let _ = fill();
        rustix::fs::statvfs(&fs_.data).unwrap().f_bavail == 0
    });
    // What a start gives back of the journal somebody else may take before anything is written.
    let in_the_way = fs_.data.join("state.new");
    fs::create_dir(&in_the_way).unwrap();
    fs_.ok(&["up"]);
    let state = fs::read_to_string(fs_.data.join("state.json")).unwrap();
    let pid = format!("\"pid\": {}", fs_.status()["pid"]);
    assert!(state.contains(&pid), "{pid}: it is that of the run before: {state}");
    fs::remove_dir(&in_the_way).unwrap();
    fs::remove_file(&big).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::write(fs_.mnt().join("small"), [7; 1 << 20]).is_err() {
        assert!(Instant::now() < deadline, "room that was freed is not used");
        std::thread::sleep(Duration::from_millis(50));
    }
    fs_.ok(&["down"]);
    fs_.ok(&["fsck"]);
    umount(&fs_.data);
}
