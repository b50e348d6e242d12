//! Two MDTs, each with a server of its own.

use std::fs;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, text, until};

use crate::{BINARY, as_program, bytes, write_durably};

#[test]
fn an_mdt_of_its_own_server_comes_and_goes() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "mdts");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let content = bytes(2 << 20, 6);
    write_durably(&mnt.join("before"), &content).unwrap();

    // Added to a file system that is in use.
    ok(&mut cluster.mkfs("mdt", Some(1), "mdt1"));
    let second = cluster.serve(3, &["mdt1"]);
    let lfs = |args: &[&str]| ok(as_program("lfs").args(args).arg(&mnt));
    let row = "1: scratch-MDT0001_UUID ACTIVE\n";
    until("the mount hears of it", || lfs(&["mdts"]).contains(row));
    until("it answers", || lfs(&["check", "mdts"]).contains("scratch-MDT0001 active."));
    assert!(lfs(&["df"]).contains("scratch-MDT0001_UUID"), "{}", lfs(&["df"]));
    // A mount that comes later has it from the start.
    let later = cluster.mount("later");
    assert!(ok(as_program("lfs").arg("mdts").arg(&later)).contains(row));
    assert!(fs::read(later.join("before")).unwrap() == content);

    let state = |cluster: &Cluster| {
        let mut status = Command::new(BINARY);
        let output = status.args(["status", "--json", &cluster.source()]).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = &value["targets"][1];
        assert_eq!(row["name"], "MDT0001", "{}", text(&output));
        (output.status.code(), row["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(state(&cluster), (Some(0), "up".to_owned()));
    // What is elsewhere goes on without it, and it is found where it comes back.
    second.crash();
    assert_eq!(state(&cluster), (Some(3), "down".to_owned()));
    // Nor does a new mount wait for it.
    let new = cluster.mount("new");
    for (mount, name) in [(&mnt, "one"), (&later, "other"), (&new, "third")] {
        write_durably(&mount.join(name), &content).unwrap();
    }
    let second = cluster.serve(4, &["mdt1"]);
    assert_eq!(state(&cluster), (Some(0), "up".to_owned()));
    until("the mount finds it again", || {
        lfs(&["check", "mdts"]).contains("scratch-MDT0001 active.")
    });
    cluster.finish([second, oss, mds]);
}
