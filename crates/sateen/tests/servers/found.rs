//! What `lctl` shows of a host when nobody tells it whom to ask: it finds the processes in the
//! folder where each of them has its place.

use std::fs;
use std::process::{Command, Stdio};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, text, until};

use crate::{BINARY, as_program};

/// Runs `lctl` on the host whose processes are found in this cluster's own folder: the exit code,
/// and what it said.
fn lctl(cluster: &Cluster, args: &[&str]) -> (Option<i32>, String) {
    let output = here(cluster, as_program("lctl")).args(args).output().unwrap();
    (output.status.code(), text(&output))
}

/// A command of that host.
fn here(cluster: &Cluster, mut command: Command) -> Command {
    command.env("SATEEN_RUN", cluster.path("run"));
    command
}

/// A mount that waits for its MGS can tell it nothing.
#[test]
fn what_nobody_can_keep_is_refused() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "nobody");
    cluster.make(1);
    let mut mount = here(&cluster, cluster.mount_command("mnt"));
    let mut mount = mount.args(["-o", "retry=10"]).stdout(Stdio::null()).spawn().unwrap();
    until("its process is there", || lctl(&cluster, &["dl"]).0 == Some(0));
    let set = "mdc.*.max_rpcs_in_flight=9";
    for args in [&["set_param", "-P", set][..], &["set_param", "-P", "-d", "mdc.*.active"]] {
        let (code, said) = lctl(&cluster, args);
        assert_eq!(code, Some(5), "{said}");
        assert!(said.contains("no process of this host answers"), "{said}");
    }
    let mds = cluster.start_as(&mut here(&cluster, cluster.command(1, &["mgt", "mdt0"])), 1);
    let oss = cluster.start_as(&mut here(&cluster, cluster.command(2, &["ost0"])), 2);
    assert!(mount.wait().unwrap().success());
    cluster.mounts.push(cluster.path("mnt"));
    let (code, said) = lctl(&cluster, &["set_param", "-P", set]);
    assert_eq!(code, Some(0), "{said}");
    cluster.finish([oss, mds]);
}

#[test]
fn lctl_finds_all_processes_of_the_host() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "found");
    let nobody = |cluster: &Cluster| {
        let (code, said) = lctl(cluster, &["dl"]);
        assert!(code == Some(2) && said.contains("no Sateen process runs on this host"), "{said}");
    };
    nobody(&cluster);
    cluster.make(2);
    let mds = cluster.start_as(&mut here(&cluster, cluster.command(1, &["mgt", "mdt0"])), 1);
    let oss = cluster.start_as(&mut here(&cluster, cluster.command(2, &["ost0", "ost1"])), 2);
    ok(here(&cluster, cluster.mount_command("mnt")).args(["-o", "retry=2"]));
    cluster.mounts.push(cluster.path("mnt"));

    let (code, devices) = lctl(&cluster, &["dl"]);
    assert_eq!(code, Some(0), "{devices}");
    let mgc = format!(" UP mgc MGC{} ", cluster.nid(1));
    assert_eq!(devices.matches(&mgc).count(), 3, "two servers and a mount: {devices}");
    for device in ["mgs MGS", "mdt scratch-MDT0000", "obdfilter scratch-OST0001", "llite scratch-"]
    {
        assert_eq!(devices.matches(&format!(" UP {device}")).count(), 1, "{device}: {devices}");
    }
    let numbers: Vec<&str> =
        devices.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let counted: Vec<String> = (0..numbers.len()).map(|number| number.to_string()).collect();
    assert_eq!(numbers, counted, "{devices}");
    let (_, nids) = lctl(&cluster, &["list_nids"]);
    assert!(nids.contains(&cluster.nid(1)) && nids.contains(&cluster.nid(2)), "{nids}");
    let (_, health) = lctl(&cluster, &["get_param", "-n", "health_check"]);
    assert_eq!(health, "healthy\n".repeat(3));
    // Whoever is asked has the MGS tell everybody.
    let (code, said) = lctl(&cluster, &["set_param", "-P", "osc.*.max_rpcs_in_flight=9"]);
    assert_eq!(code, Some(0), "{said}");
    let set = ["get_param", "-n", "osc.*.max_rpcs_in_flight"];
    until("the mount has heard of it", || lctl(&cluster, &set).1 == "9\n9\n");

    // Another file system on the same host: both are shown, and for good only one is set.
    let data = cluster.path("data");
    fs::create_dir(&data).unwrap();
    let sateen = |name: &str| {
        let mut command = here(&cluster, Command::new(BINARY));
        command.args([name, "--data"]).arg(&data);
        command
    };
    ok(&mut sateen("up"));
    let (_, devices) = lctl(&cluster, &["dl"]);
    assert!(devices.contains("sateen-MDT0000") && devices.contains("scratch-MDT0000"), "{devices}");
    let (code, said) = lctl(&cluster, &["set_param", "-P", "osc.*.max_rpcs_in_flight=8"]);
    assert_eq!(code, Some(22), "{said}");
    assert!(said.contains("sateen and scratch run here: name one of them with --data"), "{said}");
    ok(&mut sateen("down"));

    // One that was killed is passed over, its folder being there.
    oss.crash();
    let (code, devices) = lctl(&cluster, &["dl"]);
    assert!(code == Some(0) && !devices.contains("obdfilter"), "{devices}");
    let oss = cluster.start_as(&mut here(&cluster, cluster.command(2, &["ost0", "ost1"])), 2);
    let mnt = cluster.path("mnt");
    cluster.umount(&mnt);
    for server in [oss, mds] {
        server.end();
    }
    until("nobody is found", || lctl(&cluster, &["dl"]).0 == Some(2));
    nobody(&cluster);
    cluster.fsck();
}
