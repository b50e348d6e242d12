//! Targets that are not where a mount looks for them: what is said, what is shown, and what
//! is never written.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, refused, run_folder, text, until};

use crate::{BINARY, as_program, bytes, keeps_nothing};

fn status(of: &str, how: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).arg("status").args(how).arg(of).output().unwrap();
    (output.status.code(), text(&output))
}

/// The exit code, and the states of the MDT and the OST; nothing if there was no answer.
fn states(of: &str) -> Option<(Option<i32>, [String; 2], serde_json::Value)> {
    let (code, shown) = status(of, &["--json"]);
    let value: serde_json::Value = serde_json::from_str(&shown).ok()?;
    let state = |at: usize, name: &str| {
        let row = &value["targets"][at];
        assert_eq!(row["name"].as_str(), Some(name), "{shown}");
        row["state"].as_str().unwrap().to_owned()
    };
    let all = [state(0, "MDT0000"), state(1, "OST0000")];
    Some((code, all, value))
}

/// Waits until this is the exit code, and these are the states: who stands still for a moment
/// counts as one that does not answer.
fn shows(of: &str, code: i32, wanted: [&str; 2]) -> serde_json::Value {
    let mut all = serde_json::Value::Null;
    until(&format!("{of}: {code}, {wanted:?}"), || {
        let Some((is, seen, value)) = states(of) else { return false };
        println!("{of}: {is:?}, {seen:?}");
        all = value;
        (is, seen) == (Some(code), wanted.map(str::to_owned))
    });
    all
}

/// The state of a mount's connection to the OST.
fn import_state(mnt: &Path) -> String {
    let data = run_folder(mnt);
    let shown =
        ok(as_program("lctl").arg("--data").arg(data).args(["get_param", "-n", "osc.*.import"]));
    let state = shown.lines().find_map(|line| line.trim().strip_prefix("state: "));
    state.unwrap_or_else(|| panic!("{shown}")).to_owned()
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
        let value = shows(of, 0, ["up", "up"]);
        let nids = serde_json::json!([cluster.nid(2), cluster.nid(12)]);
        assert_eq!(value["targets"][1]["nids"], nids);
        assert!(value["targets"][1]["bytes_total"].as_u64().unwrap() > 0, "{value}");
    }
    assert_eq!(import_state(&mnt), "FULL");
    oss.end();
    // Nobody has asked it anything since.
    let state = import_state(&mnt);
    assert!(["DISCONN", "CONNECTING"].contains(&state.as_str()), "{state}");
    shows(&cluster.source(), 3, ["up", "down"]);
    let df = |option: &str| {
        let shown = as_program("lfs").args(["df", option]).arg(&mnt).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (shown.status.code(), text(shown.stdout), text(shown.stderr))
    };
    until("the mount has noticed", || !df("-l").1.contains("OST0000"));
    assert_eq!(df("-l").0, Some(0), "it was not asked for");
    let (code, shown, said) = df("-v");
    assert!(shown.contains("OST0000             : Resource temporarily unavailable"), "{shown}");
    assert!(code == Some(11) && said.contains("scratch-OST0000 does not answer on "), "{said}");
    // One that is out of use is not missed.
    let params = ["set_param", "-P", "osc.*-OST0000*.active=0"];
    ok(as_program("lctl").arg("--data").arg(run_folder(&mnt)).args(params));
    shows(&cluster.source(), 0, ["up", "inactive"]);
    // While the MGS is away the mount says what it knows, whoever asks for it.
    mgs.end();
    for of in [mnt.to_str().unwrap(), file.to_str().unwrap(), &cluster.source()] {
        let value = shows(of, 3, ["up", "inactive"]);
        assert_eq!(value["mgs_state"], "down", "{value}");
    }
    let mgs_row = |how: &str| {
        until(&format!("the MGS is shown as {how}"), || {
            let (_, shown) = status(&cluster.source(), &[]);
            let row = shown.lines().find(|line| line.starts_with("MGS"));
            row.is_some_and(|row| row.contains(how) && row.contains(&cluster.nid(1)))
        });
    };
    mgs_row("down");
    let mgs = cluster.serve(1, &["mgt"]);
    mgs_row("up");
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

#[test]
fn a_writer_waits_for_its_ost_though_others_look() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "writer");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("a"), cluster.mount("b"));
    keeps_nothing(&mnt);
    let content = bytes(2 << 20, 11);
    fs::write(mnt.join("idle"), b"idle").unwrap();
    let idle = fs::File::open(mnt.join("idle")).unwrap();
    let file = fs::File::create(mnt.join("file")).unwrap();
    file.write_all_at(&content[..1 << 20], 0).unwrap();
    oss.crash();
    let rest = content[1 << 20..].to_vec();
    let writer = std::thread::spawn(move || file.write_all_at(&rest, 1 << 20).map(|()| file));
    std::thread::sleep(Duration::from_secs(1));
    let path = other.join("file");
    // Who only looks waits for nobody but the writer's mount, which knows.
    assert!(fs::metadata(&path).unwrap().len() >= 1 << 20);
    let reader = std::thread::spawn(move || fs::read(path));
    // Longer than a client has that is there and gives nothing back.
    std::thread::sleep(Duration::from_secs(27));
    assert!(!writer.is_finished() && !reader.is_finished(), "both wait");
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let file = writer.join().unwrap().expect("it has only waited");
    // The kernel may have split the write, and the other have read in between; or before it, if
    // the writer came late.
    assert!(reader.join().unwrap().unwrap().len() >= 1 << 20);
    assert_eq!(fs::metadata(other.join("file")).unwrap().len(), content.len() as u64);
    // What was open is open.
    file.write_all_at(b"more", content.len() as u64).unwrap();
    assert_eq!(idle.metadata().unwrap().len(), 4);
    let log = fs::read_to_string(cluster.path("log1")).unwrap();
    assert!(!log.contains("evicting"), "{log}");
    drop((file, idle));
    // What the OST had not synced before the crash may be lost with it.
    assert!(fs::read(other.join("file")).unwrap()[1 << 20..].starts_with(&content[1 << 20..]));
    cluster.finish([oss, mds]);
}

#[test]
fn another_file_system_at_the_same_address_gets_nothing() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "foreign");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let content = bytes(1 << 20, 3);
    fs::write(mnt.join("file"), &content).unwrap();
    oss.end();
    // Its MGS is elsewhere, its OST where that of the first was.
    let other = |args: &[&str], folder: &str| {
        let mut command = as_program("mkfs.sateen");
        ok(command.arg("--fsname=other").args(args).arg(cluster.path(folder)));
    };
    let node = format!("--mgsnode={}", cluster.nid(4));
    other(&["--mgs"], "omgt");
    other(&["--mdt", "--index=0", &node], "omdt0");
    other(&["--ost", "--index=0", &node], "oost0");
    other(&["--ost", "--index=1", &node], "oost1");
    let others = (cluster.serve(4, &["omgt", "omdt0"]), cluster.serve(2, &["oost0", "oost1"]));

    let (path, data) = (mnt.join("during"), content.clone());
    let writer = std::thread::spawn(move || fs::write(path, data));
    let log = || fs::read_to_string(run_folder(Path::new(&mnt)).join("log")).unwrap_or_default();
    until("the mount says what it found", || log().contains("belongs to another file system"));
    std::thread::sleep(Duration::from_millis(1200));
    assert!(!writer.is_finished(), "it waits for its own");
    others.1.end();
    others.0.end();
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    writer.join().unwrap().unwrap();
    for name in ["file", "during"] {
        assert!(fs::read(mnt.join(name)).unwrap() == content, "{name}");
    }
    cluster.umount(&mnt);
    oss.end();
    mds.end();
    let fsck = |folders: [&str; 4]| {
        ok(Command::new(BINARY).arg("fsck").args(folders.map(|folder| cluster.path(folder))))
    };
    fsck(["mgt", "mdt0", "ost0", "ost1"]);
    // A target alone is not damaged for want of the others.
    let alone = Command::new(BINARY).arg("fsck").arg(cluster.path("ost0")).output().unwrap();
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert_eq!(alone.status.code(), Some(2), "{said}");
    assert!(said.contains("of OST0000, the MGS's and MDT0000's folder is not among"), "{said}");
    assert!(said.contains("name the folders of all targets"), "{said}");
    let found = fsck(["omgt", "omdt0", "oost0", "oost1"]);
    assert!(found.contains(" 0 objects"), "{found}");
}
