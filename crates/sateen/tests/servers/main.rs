//! Servers and mounts as processes of their own, over TCP: what works across them, what a
//! crash of one of them does to the others, and what is refused. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

mod absent;
mod balance;
mod before_mgs;
mod below;
mod contended;
mod crashed;
mod cuts;
mod direct;
mod ends;
mod forced;
mod found;
mod fuzz;
mod groups;
mod kept;
mod killed;
mod large;
mod looked_at;
mod lost;
mod many;
mod mdts;
mod mount8;
mod nids;
mod no_mgs;
mod one_core;
mod one_host;
mod options;
mod own_place;
mod parameters;
mod parts;
mod paused;
mod rails;
mod read_ahead;
mod refusals;
mod replayed;
mod rounds;
mod rows;
mod shared;
mod silent;
mod synced;
mod trips;
mod upgrade;
mod waiting;
mod wrong;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{
    self, Cluster, Server, ok, refused, refused_for_good, run_folder, server_folder, text, until,
};

const BINARY: &str = env!("CARGO_BIN_EXE_sateen");

fn as_program(name: &str) -> Command {
    cluster::as_program(BINARY, name)
}

/// Bytes that repeat nowhere near.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn write_durably(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// What a power cut leaves of these OSTs' folders besides: the next run is under another kernel.
fn with_the_power_gone(cluster: &Cluster, osts: &[&str]) {
    for ost in osts {
        // It is on ext4, XFS and F2FS alone.
        let _ = fs::remove_file(cluster.path(ost).join("runs"));
    }
}

/// Whether an OST that is killed can know that nothing is lost; if not, the test is skipped.
fn knows_its_runs(cluster: &Cluster, ost: &str) -> bool {
    let knows = cluster.path(ost).join("runs").exists();
    if !knows {
        sateen_testkit::skipped("needs ext4, XFS or F2FS below the folder for temporary files");
    }
    knows
}

/// A parameter of a mount.
fn param(mount: &Path, name: &str) -> String {
    let mut lctl = as_program("lctl");
    ok(lctl.arg("--data").arg(run_folder(mount)).args(["get_param", "-n", name]))
}

/// Sets a parameter of whoever runs with this folder: a server's, or a mount's.
fn set_param(folder: &Path, what: &str) {
    ok(as_program("lctl").arg("--data").arg(folder).args(["set_param", what]));
}

/// A mount answers writes from now on when their OSTs have, through what is opened then.
fn keeps_nothing(mount: &Path) {
    let mut lctl = as_program("lctl");
    let lctl = lctl.arg("--data").arg(run_folder(mount));
    ok(lctl.args(["set_param", "osc.*.max_dirty_mb=0"]));
}

/// Waits until the OSTs have what was written on a mount.
fn written_out(mount: &Path) {
    let all = || param(mount, "osc.*.cur_dirty_bytes");
    until("everything is written out", || all().lines().all(|bytes| bytes == "0"));
}

fn osts_of(path: &Path) -> Vec<u32> {
    let shown = ok(as_program("lfs").arg("getstripe").arg(path));
    let rows = shown.lines().skip_while(|line| !line.contains("obdidx")).skip(1);
    rows.filter_map(|row| row.split_whitespace().next()?.parse().ok()).collect()
}

/// Listens no more, so that somebody else can at once: what is only closed here may be open for
/// a moment in a program that another test has just begun to start.
fn leave_port(listener: &TcpListener) {
    rustix::net::shutdown(listener, rustix::net::Shutdown::Both).unwrap();
}

#[test]
fn files_go_over_the_network() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "files");
    let (mds, oss) = cluster.start();
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let content = bytes(9 << 20, 7);
    fs::create_dir(a.join("dir")).unwrap();
    write_durably(&a.join("dir/large"), &content).unwrap();
    fs::write(a.join("dir/small"), b"small").unwrap();
    assert!(fs::read(b.join("dir/large")).unwrap() == content, "the other mount reads the same");
    let mut osts = osts_of(&b.join("dir/large"));
    osts.sort_unstable();
    assert_eq!(osts, [0, 1]);

    fs::rename(b.join("dir/small"), b.join("dir/moved")).unwrap();
    assert!(!a.join("dir/small").exists());
    File::options().append(true).open(a.join("dir/moved")).unwrap().write_all(b" more").unwrap();
    assert_eq!(fs::read(b.join("dir/moved")).unwrap(), b"small more");
    fs::remove_file(a.join("dir/large")).unwrap();
    assert!(!b.join("dir/large").exists());

    until("the space of all is shown", || {
        let shown = as_program("lfs").arg("df").arg(&a).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("scratch-OST0001_UUID")
            && shown.status.success()
    });

    // One that is added is used at once, by mounts that are there.
    ok(&mut cluster.mkfs("ost", Some(7), "ost7"));
    let added = cluster.serve(3, &["ost7"]);
    let number = std::cell::Cell::new(0);
    until("the new OST is used", || {
        number.set(number.get() + 1);
        let path = a.join(format!("wide{}", number.get()));
        fs::write(&path, &content).unwrap();
        osts_of(&path).contains(&7)
    });
    let wide = format!("wide{}", number.get());
    assert!(fs::read(b.join(&wide)).unwrap() == content);

    // In good order everything may end in any order, and come back.
    oss.end();
    added.end();
    mds.end();
    let mds = cluster.begin(1, &["mgt", "mdt0"]);
    let oss = cluster.begin(2, &["ost0", "ost1", "ost7"]);
    until("the files are there again", || fs::read(b.join(&wide)).is_ok_and(|is| is == content));
    cluster.finish([oss, mds]);
}

#[test]
fn servers_may_crash_under_a_mount() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "crash");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let content = bytes(5 << 20, 3);
    write_durably(&mnt.join("before"), &content).unwrap();

    // A writer waits for its OST, and goes on when it is back.
    oss.crash();
    let path = mnt.join("during");
    let data = content.clone();
    let writer = std::thread::spawn(move || write_durably(&path, &data));
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!writer.is_finished(), "there is nothing to write to");
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    writer.join().unwrap().unwrap();
    assert!(fs::read(mnt.join("during")).unwrap() == content);
    assert!(fs::read(mnt.join("before")).unwrap() == content);

    // Of the MDT the mount is a new client afterwards, and goes on as well.
    mds.crash();
    let looker = {
        let path = mnt.join("not there");
        std::thread::spawn(move || fs::metadata(path).unwrap_err())
    };
    std::thread::sleep(Duration::from_millis(500));
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    let error = looker.join().unwrap();
    assert!([Some(2), Some(5)].contains(&error.raw_os_error()), "{error}");
    until("the mount goes on", || write_durably(&mnt.join("after"), b"after").is_ok());
    // A mount may go while a server is gone.
    let other = cluster.mount("other");
    assert!(fs::read(other.join("before")).unwrap() == content);
    oss.crash();
    cluster.umount(&other);
    let mut status = Command::new(BINARY);
    status.args(["status", "--data"]).arg(run_folder(&other));
    until("its process leaves", || text(&status.output().unwrap()).contains("not running"));
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    for name in ["before", "during"] {
        assert!(fs::read(mnt.join(name)).unwrap() == content, "{name}");
    }
    assert_eq!(fs::read(mnt.join("after")).unwrap(), b"after");
    let found = cluster.finish([oss, mds]);
    assert!(found.contains("objects checked"), "{found}");
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "nolog");
    cluster.make(1);
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    let mut oss = cluster.command(2, &["ost0"]);
    oss.env("SATEEN_LOG", "debug").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut oss = oss.spawn().unwrap();
    drop(oss.stderr.take());
    let mut oss = Server::of(oss);
    cluster.wait_ready(&mut oss);
    let mnt = cluster.mount("a");
    write_durably(&mnt.join("file"), b"written").unwrap();
    cluster.finish([oss, mds]);
}

#[test]
fn servers_take_commands() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "commands");
    let (mds, oss) = cluster.start();
    let at = |name: &str, folder: &str| {
        let mut command = Command::new(BINARY);
        command.args([name, "--data"]).arg(server_folder(&cluster.path(folder)));
        command
    };
    let said = ok(at("status", "ost0").arg("--json"));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&report["running"], &report["fsname"]), (&true.into(), &"scratch".into()));
    let names: Vec<&str> =
        report["targets"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(names, ["OST0000", "OST0001"]);
    assert!(ok(&mut at("down", "ost0")).contains("everything is on the disk"));
    oss.ended();
    let status = at("status", "ost0").output().unwrap();
    assert!(text(&status).contains("sateen down"), "{}", text(&status));
    // One that was killed leaves nothing behind that is in the way of the next.
    mds.crash();
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    assert!(ok(&mut at("status", "mgt")).contains("running"));
    mds.end();
    assert_eq!(at("status", "mgt").output().unwrap().status.code(), Some(3));
}

#[test]
fn parameters_are_told_to_every_process() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "params");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let lctl =
        |folder: &Path, args: &[&str]| ok(as_program("lctl").arg("--data").arg(folder).args(args));
    let (at_mds, at_oss) =
        (server_folder(&cluster.path("mgt")), server_folder(&cluster.path("ost0")));
    // Said at a server, heard at the mount; and at one that comes later.
    lctl(&at_oss, &["set_param", "-P", "osc.*OST0001*.max_rpcs_in_flight=9"]);
    let at =
        |point: &Path| lctl(&run_folder(point), &["get_param", "-n", "osc.*.max_rpcs_in_flight"]);
    until("the mount has heard of it", || at(&mnt) == "64\n9\n");
    let other = cluster.mount("other");
    assert_eq!(at(&other), "64\n9\n");
    fs::write(mnt.join("file"), bytes(3 << 20, 1)).unwrap();
    let over_tcp = cluster.net.as_deref() == Some("tcp");
    let peer = if over_tcp { "127.0.0.1@tcp" } else { "127.0.0.2@shm" };
    let own = lctl(&at_oss, &["get_param", &format!("obdfilter.*.exports.{peer}.stats")]);
    assert!(own.contains("write_bytes"), "{own}");
    let devices = lctl(&at_mds, &["dl"]);
    assert!(devices.contains(" UP osp scratch-OST0000-osc-MDT0000 "), "{devices}");
    let mgc = format!(" UP mgc MGC{} ", cluster.nid(1));
    assert!(devices.lines().nth(1).is_some_and(|second| second.contains(&mgc)), "{devices}");
    for user in [&at_oss, &run_folder(&mnt)] {
        assert!(lctl(user, &["dl"]).starts_with(&format!("  0{mgc}")), "{user:?}");
    }
    let devices = lctl(&run_folder(&mnt), &["dl", "-t"]);
    for (kind, host) in [("mdc", 1), ("osc", 2)] {
        // They are of one host.
        let nid = cluster.nid(host);
        let end = format!(" {}", if over_tcp { nid } else { nid.replace("@tcp", "@shm") });
        let mut lines = devices.lines().filter(|line| line.contains(&format!(" UP {kind} ")));
        assert!(lines.clone().count() > 0 && lines.all(|line| line.ends_with(&end)), "{devices}");
    }
    assert_eq!(lctl(&at_oss, &["list_nids"]), format!("{}\n", cluster.nid(2)));
    // It gives up after 2 s.
    let pinged = || text(&as_program("lctl").arg("ping").arg(cluster.nid(2)).output().unwrap());
    until("the server answers", || pinged() == format!("12345-{}\n", cluster.nid(2)));
    for mount in [mnt, other] {
        cluster.umount(&mount);
    }
    oss.end();
    mds.end();
    cluster.fsck();
    let silent = as_program("lctl").arg("ping").arg(cluster.nid(2)).output().unwrap();
    assert!(text(&silent).contains("failed to ping"), "{}", text(&silent));
}

/// A small disk in memory, gone in the end.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// One of this size, at a folder that is made.
    fn at(folder: std::path::PathBuf, size: &str) -> SmallDisk {
        let disk = SmallDisk(folder);
        fs::create_dir(&disk.0).unwrap();
        let size = format!("size={size}");
        ok(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&disk.0));
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_ost_is_for_those_who_must_have_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "full");
    let _disk = SmallDisk::at(cluster.path("ost0"), "300m");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let on_ost0 = |name: &str| {
        let mut lfs = as_program("lfs");
        ok(lfs.args(["setstripe", "-c", "1", "-i", "0"]).arg(mnt.join(name)));
    };
    on_ost0("filler");
    let mut filler = File::options().write(true).open(mnt.join("filler")).unwrap();
    let piece = bytes(1 << 20, 5);
    let full = (0..300).find_map(|_| filler.write_all(&piece).err()).unwrap();
    assert_eq!(full.raw_os_error(), Some(28), "{full}");
    drop(filler);
    // Nobody else gets that any more: what is put there before the MDT knows goes elsewhere with its
    // first write.
    let dir = mnt.join("new");
    fs::create_dir(&dir).unwrap();
    ok(as_program("lfs").args(["setstripe", "-c", "1"]).arg(&dir));
    for number in 0..20 {
        let path = dir.join(format!("new{number}"));
        fs::write(&path, bytes(3 << 20, 9)).unwrap();
        assert_eq!(osts_of(&path), [1], "there is room elsewhere");
    }
    on_ost0("must");
    let refused = fs::write(mnt.join("must"), bytes(8 << 20, 1)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(28), "{refused}");
    fs::remove_file(mnt.join("filler")).unwrap();
    until("there is room again", || fs::write(mnt.join("must"), bytes(8 << 20, 1)).is_ok());
    cluster.umount(&mnt);
    oss.end();
    mds.end();
    cluster.fsck();
}

#[test]
fn one_process_serves_everything_and_two_share_an_address() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "together");
    cluster.make(3);
    let all = cluster.serve(1, &["mgt", "mdt0", "ost0", "ost1"]);
    // The third OST's server is on the same address, behind another port.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nid = format!("127.0.0.1:{port}@tcp");
    let ost2 = cluster.path("ost2");
    let beside = || {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--nid", &nid]).arg(&ost2);
        command
    };
    let other = cluster.start_as(&mut beside(), 4);
    cluster.knows_osts("mgt", 3);
    let mnt = cluster.mount("mnt");
    let content = bytes(6 << 20, 12);
    fs::write(mnt.join("file"), &content).unwrap();
    let mut osts = osts_of(&mnt.join("file"));
    osts.sort_unstable();
    assert_eq!(osts, [0, 1, 2]);
    let (one, two) = (serde_json::json!([cluster.nid(1)]), serde_json::json!([nid]));
    let wanted = [one.clone(), one.clone(), one, two];
    // Who stands still for a moment counts as one that does not answer.
    until("status shows each where it is", || {
        let mut status = Command::new(BINARY);
        let output = status.args(["status", "--json"]).arg(cluster.source()).output().unwrap();
        println!("{}", text(&output));
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let nids: Vec<_> = (0..4).map(|at| shown["targets"][at]["nids"].clone()).collect();
        output.status.success() && nids == wanted
    });
    // Each goes and comes by itself; a mount over both sees the whole.
    other.crash();
    let other = cluster.start_as(&mut beside(), 4);
    write_durably(&mnt.join("again"), &content).unwrap();
    let second = cluster.mount("second");
    assert!(fs::read(second.join("again")).unwrap() == content);
    cluster.finish([other, all]);
}

#[test]
fn a_lost_ost_is_replaced() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "replace");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let content = bytes(3 << 20, 4);
    let on = |index: &str, name: &str| {
        let path = mnt.join(name);
        ok(as_program("lfs").args(["setstripe", "-c", "1", "-i", index]).arg(&path));
        write_durably(&path, &content).unwrap();
        path
    };
    let (kept, lost) = (on("0", "kept"), on("1", "lost"));
    oss.end();
    // The disk of the second is gone, and with it what it held.
    fs::remove_dir_all(cluster.path("ost1")).unwrap();
    ok(&mut cluster.mkfs("ost", Some(1), "ost1"));
    let said = refused_for_good(&mut cluster.command(2, &["ost0", "ost1"]));
    assert!(said.contains("OST0001 is not the target") && said.contains("--replace"), "{said}");
    let said = refused(cluster.mkfs("ost", Some(1), "ost1").arg("--replace"));
    assert!(said.contains("--reformat"), "{said}");
    ok(cluster.mkfs("ost", Some(1), "ost1").args(["--replace", "--reformat"]));
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    assert!(fs::read(&kept).unwrap() == content);
    assert!(fs::read(&lost).unwrap() == vec![0; content.len()], "its names and sizes are there");
    write_durably(&lost, &content).unwrap();
    assert!(fs::read(&lost).unwrap() == content);
    // It takes the place once: a later one has it, and what it was made from is no key.
    oss.end();
    fs::rename(cluster.path("ost1"), cluster.path("before")).unwrap();
    ok(cluster.mkfs("ost", Some(1), "ost1").arg("--replace"));
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let said = refused_for_good(&mut cluster.command(4, &["before"]));
    assert!(said.contains("OST0001 is not the target"), "{said}");
    fs::remove_dir_all(cluster.path("before")).unwrap();
    on("1", "new");
    cluster.finish([oss, mds]);
}

#[test]
fn targets_that_do_not_fit_are_refused() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "targets");
    let (mds, oss) = cluster.start();
    let serve = |host, folder| refused(&mut cluster.command(host, &[folder]));
    let for_good = |folder| refused_for_good(&mut cluster.command(4, &[folder]));

    let said = refused(&mut cluster.mkfs("ost", Some(5), "ost0"));
    assert!(said.contains("OST0000 of scratch") && said.contains("--reformat"), "{said}");
    let said = refused(cluster.mkfs("ost", Some(5), "ost0").arg("--reformat"));
    assert!(said.contains("in use by another server"), "{said}");
    assert!(serve(4, "ost0").contains("in use by another server"));
    assert!(serve(4, "nowhere").contains("holds no target"));
    // Another target under an index that is taken.
    ok(&mut cluster.mkfs("ost", Some(1), "second"));
    assert!(for_good("second").contains("not the target that this file system knows"));
    // Other file systems, by name and by descent.
    let mut other = as_program("mkfs.sateen");
    other.args(["--ost", "--fsname=other", "--index=3"]);
    ok(other.arg(format!("--mgsnode={}", cluster.nid(1))).arg(cluster.path("other")));
    assert!(for_good("other").contains("the MGS manages scratch"));
    oss.end();
    mds.end();
    ok(&mut cluster.mkfs("mgs", None, "newmgt"));
    let mgs = cluster.serve(1, &["newmgt"]);
    assert!(for_good("ost0").contains("another file system with the name scratch"));
    // A disk format of the future.
    let label = cluster.path("ost1/label");
    let mut bytes = fs::read(&label).unwrap();
    bytes[8] = 99;
    fs::write(&label, bytes).unwrap();
    assert!(for_good("ost1").contains("newer sateen"));
    // Without its label it is not anybody's to make anew.
    fs::rename(cluster.path("ost0/label"), cluster.path("kept")).unwrap();
    assert!(refused(&mut cluster.mkfs("ost", Some(0), "ost0")).contains("not empty"));
    fs::rename(cluster.path("kept"), cluster.path("ost0/label")).unwrap();
    let mut nowhere = Command::new(BINARY);
    nowhere.args(["serve", "--nid", "0@lo"]).arg(cluster.path("ost0"));
    assert!(refused_for_good(&mut nowhere).contains("reached by nobody"));
    // An address that is taken.
    assert!(serve(1, "ost0").contains("cannot listen"));
    mgs.end();

    let bad =
        |args: &[&str]| refused(as_program("mkfs.sateen").args(args).arg(cluster.path("bad")));
    let node = "--mgsnode=127.0.0.1@tcp";
    assert!(bad(&["--ost", "--fsname=scratch", node]).contains("index"));
    assert!(bad(&["--ost", "--fsname=scratch", "--index=4294967295", node]).contains("more than"));
    assert!(bad(&["--mdt", "--fsname=scratch", "--index=0"]).contains("--mgsnode"));
    assert!(bad(&["--mgs", "--fsname=muchtoolong"]).contains("name"));
    assert!(bad(&["--ost", "--fsname=scratch", "--index=0", "--mgsnode=10.0.0.1"]).contains("NID"));
    let many = format!("--mgsnode={}", ["10.0.0.1@tcp"; 99].join(":"));
    assert!(bad(&["--ost", "--fsname=scratch", "--index=0", &many]).contains("more than 1024"));
    assert!(!cluster.path("bad").exists(), "nothing was made");
    fs::create_dir(cluster.path("bad")).unwrap();
    fs::write(cluster.path("bad/thesis"), b"").unwrap();
    assert!(bad(&["--mgs", "--fsname=scratch"]).contains("not empty"));
    // Only a target is destroyed, and only if there is nothing else.
    assert!(bad(&["--mgs", "--fsname=scratch", "--reformat"]).contains("not empty"));
    assert!(bad(&["--mgs", "--mdt", "--fsname=scratch"]).contains("a folder holds one target"));
    let said = bad(&["--mdt", "--fsname=scratch", "--index=0", "--replace", node]);
    assert!(said.contains("only an OST"), "{said}");
    fs::write(cluster.path("ost0/thesis"), b"").unwrap();
    let said = refused(cluster.mkfs("ost", Some(0), "ost0").arg("--reformat"));
    assert!(said.contains("thesis"), "{said}");
    fs::remove_file(cluster.path("ost0/thesis")).unwrap();
    ok(cluster.mkfs("ost", Some(5), "ost0").arg("--reformat"));
    let left = fs::read_dir(cluster.path("ost0/objects")).unwrap().count();
    assert_eq!(left, 0, "nothing is left of it");
}

#[test]
fn mounts_that_cannot_be_are_refused() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "mounts");
    let mut mount = cluster.mount_command("mnt");
    let said = refused(&mut mount);
    assert!(said.contains("the MGS does not answer") && said.contains("refused"), "{said}");
    // Something else listens there.
    let other = TcpListener::bind(("127.0.0.1", cluster.port)).unwrap();
    let talk = std::thread::spawn(move || {
        for stream in other.incoming() {
            let mut stream = stream.unwrap();
            let mut first = [0; 1];
            if stream.read(&mut first).unwrap_or(0) == 1 && first[0] == b'!' {
                leave_port(&other);
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert!(refused(&mut mount).contains("does not answer as an MGS"));
    TcpStream::connect(("127.0.0.1", cluster.port)).unwrap().write_all(b"!").unwrap();
    talk.join().unwrap();

    let (mds, oss) = cluster.start();
    // Garbage on the port harms nobody.
    for host in ["127.0.0.1", "127.0.0.2"] {
        for garbage in [bytes(1 << 20, 5), b"GET / HTTP/1.1\r\n\r\n".to_vec(), Vec::new()] {
            let mut stream = TcpStream::connect((host, cluster.port)).unwrap();
            let _ = stream.write_all(&garbage);
        }
    }
    // A server, but not the MGS.
    let source = |nid: String| format!("{nid}:/scratch");
    let at = |source: String| {
        let mut command = as_program("mount.sateen");
        command.arg(source).arg(cluster.path("mnt"));
        command
    };
    assert!(refused(&mut at(source(cluster.nid(2)))).contains("does not answer as an MGS"));
    assert!(refused(&mut at(format!("{}:/other", cluster.nid(1)))).contains("manages scratch"));
    assert!(refused(&mut at(cluster.nid(1))).contains("names no file system"));
    assert!(refused(&mut at("10.0.0.1:/scratch".to_owned())).contains("NID"));
    let said = refused(at(source(cluster.nid(1))).args(["-o", "rw,frobnicate"]));
    assert!(said.contains("frobnicate"), "{said}");
    let nowhere =
        as_program("mount.sateen").arg(cluster.source()).arg("/nowhere").output().unwrap();
    assert!(text(&nowhere).contains("check the path"), "{}", text(&nowhere));

    let mnt = cluster.mount("mnt");
    assert!(refused(&mut cluster.mount_command("mnt")).contains("already"));
    fs::write(mnt.join("file"), b"file").unwrap();
    cluster.umount(&mnt);
    for read_only in [&["-o", "ro,noatime,_netdev"][..], &["-r"]] {
        ok(cluster.mount_command("mnt").args(read_only));
        cluster.mounts.push(mnt.clone());
        assert_eq!(fs::write(mnt.join("file"), b"").unwrap_err().raw_os_error(), Some(30));
        assert_eq!(fs::read(mnt.join("file")).unwrap(), b"file");
        cluster.umount(&mnt);
    }
    cluster.finish([oss, mds]);
}
