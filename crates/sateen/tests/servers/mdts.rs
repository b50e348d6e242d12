//! Two MDTs, each with a server of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, server_folder, text, until};

use crate::{BINARY, as_program, bytes, write_durably};

fn lfs_of(path: &Path, command: &str) -> String {
    ok(as_program("lfs").arg(command).arg(path))
}

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
    let df = |options: &[&str]| {
        let shown = as_program("lfs").arg("df").args(options).arg(&mnt).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    until("df shows it", || df(&[]).contains("scratch-MDT0001_UUID"));
    // Its inodes are the mount's; and every server of the file system knows it, and it them.
    let inodes = |target: &str| {
        let shown = df(&["-i"]);
        let row = shown.lines().find(|line| line.starts_with(target)).expect(&shown);
        row.split_whitespace().nth(1).unwrap().parse::<u64>().ok()
    };
    // One that does not answer within a second is shown as inactive, and not counted.
    let sums = || {
        let both = inodes("scratch-MDT0000_UUID")? + inodes("scratch-MDT0001_UUID")?;
        Some((both, inodes("filesystem_summary:")?, rustix::fs::statvfs(&mnt).unwrap().f_files))
    };
    until("df and statfs count the inodes of both", || {
        sums().is_some_and(|(both, summary, statfs)| summary == both && statfs == both)
    });
    let lctl = |args: &[&str]| {
        let folder = server_folder(&cluster.path("mdt1"));
        ok(as_program("lctl").arg("--data").arg(folder).args(args))
    };
    let devices = lctl(&["dl"]);
    assert!(devices.contains(" UP mdt scratch-MDT0001 "), "{devices}");
    for ost in ["OST0000", "OST0001"] {
        assert!(devices.contains(&format!(" UP osp scratch-{ost}-osc-MDT0001 ")), "{devices}");
    }
    // The mounts are its clients. What they keep there is for directories that are put there.
    let clients = || lctl(&["get_param", "-n", "mdt.*.num_exports"]).trim().parse::<u32>().unwrap();
    assert!(clients() >= 1, "{}", clients());
    let live = ok(as_program("lctl")
        .arg("--data")
        .arg(server_folder(&cluster.path("mgt")))
        .args(["get_param", "mgs.MGS.live.scratch"]));
    assert!(live.contains("- scratch-MDT0001 "), "{live}");
    // A mount that comes later has it from the start.
    let later = cluster.mount("later");
    assert!(ok(as_program("lfs").arg("mdts").arg(&later)).contains(row));
    assert!(fs::read(later.join("before")).unwrap() == content);

    // A server that stands still for a moment counts as one that does not answer.
    let stands = |cluster: &Cluster, code: i32, wanted: &str| {
        until(&format!("status ends with {code} and shows MDT0001 {wanted}"), || {
            let mut status = Command::new(BINARY);
            let output = status.args(["status", "--json", &cluster.source()]).output().unwrap();
            println!("{}", text(&output));
            let value: serde_json::Value =
                serde_json::from_slice(&output.stdout).unwrap_or_default();
            let row = &value["targets"][1];
            let is = (row["name"].as_str(), row["state"].as_str());
            output.status.code() == Some(code) && is == (Some("MDT0001"), Some(wanted))
        });
    };
    stands(&cluster, 0, "up");
    // What was there before goes on by MDT0000, and what is new as well.
    fs::create_dir(mnt.join("new directory")).unwrap();
    write_durably(&mnt.join("new directory/file"), &content).unwrap();
    let fid = lfs_of(&mnt.join("new directory"), "path2fid");
    let before = lfs_of(&mnt.join("before"), "path2fid");
    assert_eq!(fid.split(':').next(), before.split(':').next(), "of the sequence of MDT0000");
    // What is elsewhere goes on without it, and it is found where it comes back.
    second.crash();
    stands(&cluster, 3, "down");
    // Nor does a new mount wait for it.
    let new = cluster.mount("new");
    for (mount, name) in [(&mnt, "one"), (&later, "other"), (&new, "third")] {
        write_durably(&mount.join(name), &content).unwrap();
    }
    let second = cluster.serve(4, &["mdt1"]);
    stands(&cluster, 0, "up");
    until("the mount finds it again", || {
        lfs(&["check", "mdts"]).contains("scratch-MDT0001 active.")
    });
    cluster.finish([second, oss, mds]);
}
