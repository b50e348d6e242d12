//! A later `up`: it mounts where the last one did, and clears away what that one left.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use sateen_testkit::can_mount;

use crate::{Fs, kill};

/// What is mounted at a path, by the kernel's table: looking at it may wait.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

fn mounts(fs_: &Fs) -> Vec<PathBuf> {
    let status = fs_.status();
    let all = status["mounts"].as_array().unwrap().iter();
    all.map(|mount| mount["path"].as_str().unwrap().into()).collect()
}

#[test]
fn it_is_mounted_where_it_was() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("again");
    let points: Vec<PathBuf> = ["a", "b"].map(|name| fs_.data.with_extension(name)).into();
    let [a, b] = [0, 1].map(|at: usize| points[at].to_str().unwrap());
    fs_.ok(&["up", "--osts", "1", "--direct-io", "--mount", a, "--mount", b]);
    fs::write(points[0].join("file"), b"file").unwrap();
    fs_.ok(&["down"]);
    let said = fs_.ok(&["up"]);
    assert!(said.contains(a) && said.contains(b), "{said}");
    assert_eq!(mounts(&fs_), points);
    assert_eq!(fs::read(points[1].join("file")).unwrap(), b"file");
    assert!(!fs_.mnt().exists(), "nobody has asked for a third");
    let state = || fs::read_to_string(fs_.data.join("state.json")).unwrap();
    assert!(state().contains("\"direct_io\": true"), "{}", state());
    // After a crash, too; and nothing of it is left where it is not mounted any more.
    for (up, left) in [(&["up"][..], &points[..]), (&["up", "--mount", b], &points[1..])] {
        kill(&fs_.status()["pid"], Signal::KILL);
        fs_.wait_ended();
        fs_.ok(up);
        assert_eq!(mounts(&fs_), left);
        for point in &points {
            assert_eq!(is_mounted(point), left.contains(point), "{}", point.display());
            assert_eq!(point.join("file").exists(), left.contains(point), "it answers");
        }
    }
    assert!(state().contains("\"direct_io\": false"), "{}", state());
    fs_.ok(&["down"]);
    assert_eq!(fs_.ok(&["down"]), "not running\n");
    points.iter().for_each(|point| fs::remove_dir(point).unwrap());
}

/// The original's mount points are its own, also while it is not there.
#[test]
fn a_copy_is_mounted_in_its_own_place() {
    if !can_mount() {
        return;
    }
    let (fs_, copy) = (Fs::new("copied"), Fs::new("copy"));
    let point = fs_.data.with_extension("point");
    fs_.ok(&["up", "--osts", "1", "--mount", point.to_str().unwrap()]);
    fs_.ok(&["down"]);
    let mut cp = std::process::Command::new("cp");
    let from = fs_.data.join(".");
    assert!(cp.arg("-a").arg(from).arg(&copy.data).status().unwrap().success());
    copy.ok(&["up"]);
    assert_eq!(mounts(&copy), [copy.mnt()]);
    assert!(!is_mounted(&point));
    fs_.ok(&["up"]);
    assert_eq!(mounts(&fs_), std::slice::from_ref(&point));
    copy.ok(&["down"]);
    fs_.ok(&["down"]);
    fs::remove_dir(&point).unwrap();
}

/// A mount point in the data folder goes where that goes.
#[test]
fn a_data_folder_may_move() {
    if !can_mount() {
        return;
    }
    let mut fs_ = Fs::new("moves");
    fs_.ok(&["up", "--osts", "1"]);
    fs::write(fs_.mnt().join("file"), b"file").unwrap();
    fs_.ok(&["down"]);
    let before = fs_.data.clone();
    fs_.data = before.with_extension("moved");
    fs::rename(&before, &fs_.data).unwrap();
    fs_.ok(&["up"]);
    assert_eq!(mounts(&fs_), [fs_.mnt()]);
    assert_eq!(fs::read(fs_.mnt().join("file")).unwrap(), b"file");
    assert!(!before.exists());
}
