//! Servers that are reached by two addresses, of which one stops answering.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, until};

use crate::{BINARY, as_program, bytes, write_durably};

/// The second address of a host.
const OTHER: u8 = 10;

/// The command that serves folders at both addresses.
fn at_both(cluster: &Cluster, host: u8, folders: &[&str]) -> Command {
    let mut command = cluster.command(host, folders);
    command.arg("--nid").arg(cluster.nid(host + OTHER));
    command
}

fn mount(cluster: &mut Cluster, source: &str, name: &str) -> PathBuf {
    let point = cluster.path(name);
    fs::create_dir(&point).unwrap();
    ok(as_program("mount.sateen").arg(source).arg(&point));
    cluster.mounts.push(point.clone());
    point
}

#[test]
fn whoever_comes_back_at_one_of_its_addresses_is_found_there() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "nids");
    let mgs = format!("{}:{}", cluster.nid(1), cluster.nid(1 + OTHER));
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    for (kind, folder) in [("mdt", "mdt0"), ("ost", "ost0")] {
        let mut mkfs = as_program("mkfs.sateen");
        mkfs.arg(format!("--{kind}")).args(["--fsname=scratch", "--index=0"]);
        ok(mkfs.arg(format!("--mgsnode={mgs}")).arg(cluster.path(folder)));
    }
    let mds = cluster.start_as(&mut at_both(&cluster, 1, &["mgt", "mdt0"]), 1);
    let oss = cluster.start_as(&mut at_both(&cluster, 2, &["ost0"]), 2);
    let source = format!("{mgs}:/scratch");
    let mnt = mount(&mut cluster, &source, "mnt");
    let content = bytes(3 << 20, 4);
    write_durably(&mnt.join("before"), &content).unwrap();

    // The MGS: nobody can tell where it is now. The MDT in the same process: the MGS tells.
    mds.crash();
    let mds = cluster.serve(1 + OTHER, &["mgt", "mdt0"]);
    until("the mount goes on", || write_durably(&mnt.join("during"), &content).is_ok());
    oss.crash();
    let oss = cluster.serve(2 + OTHER, &["ost0"]);
    assert!(fs::read(mnt.join("before")).unwrap() == content);
    let mut status = Command::new(BINARY);
    let shown = ok(status.args(["status", "--json"]).arg(&source));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    for (at, host) in [(0, 1), (1, 2)] {
        let row = &shown["targets"][at];
        assert_eq!(row["nids"], serde_json::json!([cluster.nid(host + OTHER)]), "{shown}");
        assert_eq!(row["state"], "up", "{shown}");
    }
    let new = mount(&mut cluster, &source, "new");
    assert!(fs::read(new.join("during")).unwrap() == content);
    cluster.finish([oss, mds]);
}
