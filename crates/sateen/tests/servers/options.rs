//! What targets and mounts are told when they are made: parameters that the MGS is to keep, and
//! OSTs that a mount does not use.

use std::fs;
use std::path::Path;

use sateen_testkit::cluster::{Cluster, ok, refused, run_folder, until};
use sateen_testkit::{can_mount, transport};

use crate::{BINARY, as_program};

fn param(mnt: &Path, name: &str) -> String {
    let mut lctl = as_program("lctl");
    ok(lctl.arg("--data").arg(run_folder(mnt)).args(["get_param", "-n", name]))
}

#[test]
fn targets_bring_parameters_along() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "brought");
    for (told, says) in [
        ("--param=osc.*.active", "it has no value"),
        ("--param=osc.*.active=2", "0 to 1"),
        ("--param=osc.*.stats=clear", "nothing to keep"),
        ("--param=ost.quota_type=ug", "no parameter that ends so"),
        ("--param=osc.a/b.active=1", "that is no name"),
        ("--servicenode=10.0.0.1@tcp", "keeps no --servicenode"),
        ("--failnode=10.0.0.1@tcp", "keeps no --servicenode"),
    ] {
        let said = refused(cluster.mkfs("ost", Some(0), "ost0").arg(told));
        assert!(said.contains(says), "{told}: {said}");
        assert!(!cluster.path("ost0").exists(), "nothing was made");
    }
    ok(cluster.mkfs("mgs", None, "mgt").arg("--param=mdc.*.max_rpcs_in_flight=11"));
    ok(&mut cluster.mkfs("mdt", Some(0), "mdt0"));
    ok(cluster.mkfs("ost", Some(0), "ost0").args([
        "--param=osc.*-OST0000*.max_rpcs_in_flight=9",
        "--param",
        "lod.*.qos_threshold_rr=20",
    ]));
    assert!(cluster.path("ost0").join("params").exists());
    // One that was never served is made anew without what it was to bring.
    ok(cluster.mkfs("ost", Some(1), "ost1").arg("--param=osc.*-OST0001*.active=0"));
    ok(cluster.mkfs("ost", Some(1), "ost1").arg("--reformat"));
    assert!(!cluster.path("ost1").join("params").exists());

    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    let mnt = cluster.mount("mnt");
    let mdc = "mdc.*.max_rpcs_in_flight";
    let osc = "osc.*-OST0000*.max_rpcs_in_flight";
    assert_eq!(param(&mnt, mdc), "11\n");
    // A mount hears of it when the target comes.
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    until("the mount has heard", || param(&mnt, mdc) == "11\n" && heard(&mnt, osc, "9\n"));
    assert_eq!(param(&mnt, "osc.*-OST0001*.active"), "1\n");
    assert!(!cluster.path("ost0").join("params").exists(), "the MGS has it");
    // What is taken back stays so when the target is served again.
    let lctl = ["set_param", "-P", osc];
    ok(as_program("lctl").arg("--data").arg(run_folder(&mnt)).args([lctl[0], lctl[1], "-d", osc]));
    oss.end();
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let other = cluster.mount("other");
    assert_eq!(param(&other, osc), "64\n");
    assert_eq!(param(&other, mdc), "11\n");
    cluster.finish([oss, mds]);
}

/// A parameter of a connection that may not be there yet.
fn heard(mnt: &Path, name: &str, value: &str) -> bool {
    let mut lctl = as_program("lctl");
    let output =
        lctl.arg("--data").arg(run_folder(mnt)).args(["get_param", "-n", name]).output().unwrap();
    output.stdout == value.as_bytes()
}

#[test]
fn a_mount_leaves_osts_alone_that_it_is_told_to() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "exclude");
    let (mds, oss) = cluster.start();
    let whole = cluster.mount("whole");
    for ost in ["0", "1"] {
        let path = whole.join(format!("on{ost}"));
        ok(as_program("lfs").args(["setstripe", "-c", "1", "-i", ost]).arg(&path));
        fs::write(path, b"content").unwrap();
    }
    let exclude = |list: &str| format!("rw,exclude={list}");
    for bad in ["other-OST0001", "scratch-OST0001:", "1"] {
        let said = refused(cluster.mount_command("part").args(["-o", &exclude(bad)]));
        assert!(said.contains("no OST of scratch"), "{said}");
    }
    let part = cluster.path("part");
    let option = exclude("scratch-OST0001:scratch-OST0007");
    ok(cluster.mount_command("part").args(["-o", &option, "-o", "retry=2"]));
    cluster.mounts.push(part.clone());
    let osts = |mnt: &Path| ok(as_program("lfs").arg("osts").arg(mnt));
    assert!(osts(&part).contains("1: scratch-OST0001_UUID INACTIVE"), "{}", osts(&part));
    assert!(!osts(&whole).contains("INACTIVE"));
    assert_eq!(fs::read(part.join("on0")).unwrap(), b"content");
    let gone = fs::read(part.join("on1")).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(5));
    // It stays so when the configuration changes, and when somebody sets it for all.
    let active = "osc.*-OST0001*.active";
    for value in ["osc.*.max_rpcs_in_flight=9", &format!("{active}=1")] {
        let mut lctl = as_program("lctl");
        ok(lctl.arg("--data").arg(run_folder(&whole)).args(["set_param", "-P", value]));
    }
    until("both have heard", || {
        [&whole, &part].iter().all(|mnt| heard(mnt, "osc.*-OST0000*.max_rpcs_in_flight", "9\n"))
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!((param(&part, active), param(&whole, active)), ("0\n".into(), "1\n".into()));
    assert_eq!(fs::read(whole.join("on1")).unwrap(), b"content");
    cluster.finish([oss, mds]);
}

#[test]
fn a_mount_speaks_the_transport_that_it_is_told_to() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "transport");
    let (mds, oss) = cluster.start();
    for bad in ["transport=", "transport=uring"] {
        let said = refused(cluster.mount_command("none").args(["-o", bad]));
        assert!(said.contains(bad) && said.contains("transport=classic"), "{said}");
    }
    let said = refused(cluster.mount_command("none").args(["-o", "poll=1001"]));
    assert!(said.contains("poll=1001") && said.contains("0 to 1000"), "{said}");
    for bad in ["max_request=", "max_request=1000", "max_request=32M"] {
        let said = refused(cluster.mount_command("none").args(["-o", bad]));
        assert!(said.contains(bad) && said.contains("up to 16.0M"), "{said}");
    }
    let own = cluster.mount("own");
    let classic = cluster.path("classic");
    let options = ["-o", "transport=classic,poll=0,max_request=512k", "-o", "retry=2"];
    ok(cluster.mount_command("classic").args(options));
    cluster.mounts.push(classic.clone());
    let largest = |mnt: &Path| {
        let mut status = std::process::Command::new(BINARY);
        let said = ok(status.args(["status", "--json", "--data"]).arg(run_folder(mnt)));
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        report["mounts"][0]["max_request_bytes"].as_u64().unwrap()
    };
    assert_eq!(cluster.transport(&classic), "classic");
    assert_eq!(cluster.transport(&own), transport::expected());
    assert_eq!([largest(&classic), largest(&own)], [512 << 10, 1 << 20]);
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
    fs::write(classic.join("file"), &bytes).unwrap();
    assert!(fs::read(own.join("file")).unwrap() == bytes);
    assert!(fs::read(classic.join("file")).unwrap() == bytes);
    // It is decided when something is mounted.
    let other = ["-o", "remount,transport=io_uring"];
    let said = refused(cluster.mount_command("classic").args(other));
    assert!(said.contains("transport=io_uring is decided when"), "{said}");
    let said = refused(cluster.mount_command("classic").args(["-o", "remount,max_request=1M"]));
    assert!(said.contains("max_request=1M is decided when"), "{said}");
    let said = refused(cluster.mount_command("classic").args(["-o", "remount,poll=9"]));
    assert!(said.contains("poll=9 is decided when"), "{said}");
    ok(cluster.mount_command("classic").args(["-o", "remount,poll=0"]));
    cluster.finish([oss, mds]);
}

/// What was set is not set again, though what came behind it was not: somebody may have chosen
/// something else meanwhile.
#[test]
fn each_parameter_is_brought_once() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "once");
    ok(cluster.mkfs("mgs", None, "mgt").arg("--param=mdc.*.max_rpcs_in_flight=11"));
    ok(&mut cluster.mkfs("mdt", Some(0), "mdt0"));
    let params = cluster.path("mgt").join("params");
    let first = fs::read_to_string(&params).unwrap();
    let damaged = format!("osc.{}=1\n", "x".repeat(300));
    fs::write(&params, first + &damaged).unwrap();
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    assert_eq!(fs::read_to_string(&params).unwrap(), damaged);
    let mnt = cluster.mount("mnt");
    let mdc = "mdc.*.max_rpcs_in_flight";
    assert_eq!(param(&mnt, mdc), "11\n");
    let set = format!("{mdc}=7");
    ok(as_program("lctl").arg("--data").arg(run_folder(&mnt)).args(["set_param", "-P", &set]));
    cluster.umount(&mnt);
    mds.end();
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    let mnt = cluster.mount("mnt");
    assert_eq!(param(&mnt, mdc), "7\n");
    cluster.finish([mds]);
}
