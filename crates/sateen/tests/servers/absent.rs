//! Targets that are not where a mount looks for them: what is said, and what is shown.

use std::fs;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, refused, run_folder, text};

use crate::{BINARY, as_program};

fn status(of: &str, how: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).arg("status").args(how).arg(of).output().unwrap();
    (output.status.code(), text(&output))
}

/// The exit code, and the states of the MDT and the OST.
fn states(of: &str) -> (Option<i32>, [String; 2], serde_json::Value) {
    let (code, shown) = status(of, &["--json"]);
    let value: serde_json::Value = serde_json::from_str(&shown).expect(&shown);
    let state = |at: usize, name: &str| {
        let row = &value["targets"][at];
        assert_eq!(row["name"].as_str(), Some(name), "{shown}");
        row["state"].as_str().unwrap().to_owned()
    };
    let all = [state(0, "MDT0000"), state(1, "OST0000")];
    (code, all, value)
}

#[test]
fn what_is_absent_is_named_and_shown() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "absent");
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    ok(&mut cluster.mkfs("mdt", Some(0), "mdt0"));
    ok(&mut cluster.mkfs("ost", Some(0), "ost0"));
    let mgs = cluster.serve(1, &["mgt"]);
    let mds = cluster.serve(3, &["mdt0"]);
    // Reached by two addresses.
    let mut command = cluster.command(2, &["ost0"]);
    let oss = cluster.start_as(command.arg("--nid").arg(cluster.nid(12)), 2);
    let mnt = cluster.mount("mnt");
    let file = mnt.join("file");
    fs::write(&file, b"file").unwrap();
    for of in [mnt.to_str().unwrap(), file.to_str().unwrap(), &cluster.source()] {
        let (code, seen, value) = states(of);
        assert_eq!((code, seen), (Some(0), ["up", "up"].map(str::to_owned)), "{of}");
        let nids = serde_json::json!([cluster.nid(2), cluster.nid(12)]);
        assert_eq!(value["targets"][1]["nids"], nids);
        assert!(value["targets"][1]["bytes_total"].as_u64().unwrap() > 0, "{value}");
    }
    oss.end();
    let (code, seen, _) = states(&cluster.source());
    assert_eq!((code, seen), (Some(3), ["up", "down"].map(str::to_owned)));
    // One that is out of use is not missed.
    let params = ["set_param", "-P", "osc.*-OST0000*.active=0"];
    ok(as_program("lctl").arg("--data").arg(run_folder(&mnt)).args(params));
    let (code, seen, _) = states(&cluster.source());
    assert_eq!((code, seen), (Some(0), ["up", "inactive"].map(str::to_owned)));
    mds.end();
    // By its name, not by looking at it: that would wait for the MDT.
    let (code, shown) = status(mnt.to_str().unwrap(), &[]);
    assert_eq!(code, Some(3), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("MDT0000")).expect(&shown);
    assert!(row.contains("down") && row.contains(&cluster.nid(3)), "{shown}");
    cluster.umount(&mnt);
    let said = refused(&mut cluster.mount_command("mnt"));
    assert!(said.contains("MDT0000 does not answer") && said.contains("refused"), "{said}");
    mgs.end();
    let (code, said) = status(&cluster.source(), &[]);
    assert!(code == Some(1) && said.contains("MGS"), "{said}");
    for (of, why) in [("/", "not on a mount"), ("/nowhere", "No such file"), ("x@tcp:/y", "NID")] {
        let (code, said) = status(of, &[]);
        assert!(code == Some(1) && said.contains(why), "{of}: {said}");
    }
}
