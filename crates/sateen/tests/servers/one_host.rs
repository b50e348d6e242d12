//! Memory that mounts and servers of one host share, instead of connections over TCP: by itself where
//! it can be had, over TCP where not, as one is told, and when either end is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{
    Cluster, Server, ok, refused, refused_for_good, run_folder, server_folder, text, until,
};

use crate::{BINARY, as_program, bytes, write_durably};

/// A mount with options of its own, and other places of things, if any.
fn mount(cluster: &mut Cluster, name: &str, options: &str, run: Option<&Path>) -> PathBuf {
    let mut command = cluster.mount_command(name);
    command.args(["-o", "retry=2", "-o", options]);
    if let Some(run) = run {
        command.env("SATEEN_RUN", run);
    }
    ok(&mut command);
    let point = cluster.path(name);
    cluster.mounts.push(point.clone());
    point
}

/// The NIDs at which whoever has this folder reaches the targets of others: MDTs, then OSTs.
fn reached(folder: &Path) -> Vec<String> {
    let devices = ok(as_program("lctl").arg("--data").arg(folder).args(["dl", "-t"]));
    let of_others = [" UP mdc ", " UP osc ", " UP osp "];
    let lines = devices.lines().filter(|line| of_others.iter().any(|kind| line.contains(kind)));
    lines.filter_map(|line| Some(line.split_whitespace().last()?.to_owned())).collect()
}

/// Those of the usual cluster, over this.
fn all_over(cluster: &Cluster, network: &str) -> Vec<String> {
    let at = |host: u8| cluster.nid(host).replace("@tcp", &format!("@{network}"));
    vec![at(1), at(2), at(2)]
}

fn with(cluster: &Cluster, host: u8, folders: &[&str], net: &str) -> Server {
    cluster.start_as(cluster.command(host, folders).args(["--net", net]), host)
}

fn works(mount: &Path, name: &str) {
    let content = bytes(3 << 20, 9);
    write_durably(&mount.join(name), &content).unwrap();
    assert!(fs::read(mount.join(name)).unwrap() == content);
    fs::remove_file(mount.join(name)).unwrap();
}

#[test]
fn memory_is_shared_where_it_can_be_and_as_one_is_told() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "onehost");
    cluster.net = None;
    cluster.make(2);
    let mut mds = cluster.serve(1, &["mgt", "mdt0"]);
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    cluster.knows_osts("mgt", 2);
    // By itself, servers among themselves as well.
    let auto = mount(&mut cluster, "auto", "net=auto", None);
    assert_eq!(reached(&run_folder(&auto)), all_over(&cluster, "shm"));
    let at_mds = server_folder(&cluster.path("mgt"));
    assert_eq!(reached(&at_mds), all_over(&cluster, "shm")[1..]);
    let tcp = mount(&mut cluster, "tcp", "net=tcp", None);
    assert_eq!(reached(&run_folder(&tcp)), all_over(&cluster, "tcp"));
    let shm = mount(&mut cluster, "shm", "net=shm", None);
    assert_eq!(reached(&run_folder(&shm)), all_over(&cluster, "shm"));
    // Somebody who does not find where they meet, as in a container.
    let elsewhere = cluster.path("run");
    fs::create_dir(&elsewhere).unwrap();
    let lonely = mount(&mut cluster, "lonely", "rw", Some(&elsewhere));
    let folder = elsewhere.join(run_folder(&lonely).file_name().unwrap());
    assert_eq!(reached(&folder), all_over(&cluster, "tcp"));
    for point in [&auto, &tcp, &shm, &lonely] {
        works(point, "file");
    }
    fs::write(auto.join("file"), b"of one").unwrap();
    for point in [&tcp, &shm, &lonely] {
        assert_eq!(fs::read(point.join("file")).unwrap(), b"of one", "and of all others");
    }
    let seen =
        ok(as_program("lctl").arg("--data").arg(&at_mds).args(["list_param", "mdt.*.exports.*"]));
    assert!(seen.contains("127.0.0.1@shm") && seen.contains("127.0.0.1@tcp"), "{seen}");

    // A server that shares nothing any more, whose socket a crash has left.
    cluster.umount(&shm);
    let mut status = Command::new(BINARY);
    status.args(["status", "--data"]).arg(run_folder(&shm));
    // Or it would be waited for after the crash.
    until("it has said goodbye", || text(&status.output().unwrap()).contains("not running"));
    mds.crash();
    mds = with(&cluster, 1, &["mgt", "mdt0"], "tcp");
    for point in [&auto, &tcp, &lonely] {
        works(point, "again");
    }
    let mut mixed = all_over(&cluster, "shm");
    mixed[0] = cluster.nid(1);
    assert_eq!(reached(&run_folder(&auto)), mixed);
    let said = refused(cluster.mount_command("shm").args(["-o", "net=shm"]));
    assert!(said.contains("the MGS does not answer") && said.contains(&cluster.nid(1)), "{said}");
    // And one that shares again, but nothing else.
    for point in [&tcp, &lonely] {
        cluster.umount(point);
    }
    mds.end();
    mds = with(&cluster, 1, &["mgt", "mdt0"], "shm");
    works(&auto, "once more");
    assert_eq!(reached(&run_folder(&auto)), all_over(&cluster, "shm"));
    let said = refused(cluster.mount_command("tcp").args(["-o", "net=tcp"]));
    assert!(said.contains("the MGS does not answer"), "{said}");
    cluster.finish([oss, mds]);
}

#[test]
fn a_nid_of_shared_memory_is_for_this_host_alone() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "shmnid");
    cluster.net = None;
    let nid = |host: u8| format!("127.0.0.{host}:{}@shm", cluster.port);
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    for (kind, folder) in [("mdt", "mdt0"), ("ost", "ost0")] {
        let mut mkfs = as_program("mkfs.sateen");
        mkfs.arg(format!("--{kind}")).args(["--fsname=scratch", "--index=0"]);
        ok(mkfs.arg(format!("--mgsnode={}", nid(1))).arg(cluster.path(folder)));
    }
    let command = |host: u8, folders: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--nid", &nid(host)]);
        command.args(folders.iter().map(|folder| cluster.path(folder)));
        command
    };
    let said = refused(command(1, &["mgt", "mdt0"]).args(["--net", "tcp"]));
    assert!(said.contains("cannot listen") && said.contains("--net=tcp"), "{said}");
    let mds = cluster.start_as(&mut command(1, &["mgt", "mdt0"]), 1);
    let oss = cluster.start_as(&mut command(2, &["ost0"]), 2);
    cluster.knows_osts("mgt", 1);
    // Nobody listens there over TCP.
    assert!(std::net::TcpStream::connect(("127.0.0.1", cluster.port)).is_err());
    let mnt = cluster.path("mnt");
    fs::create_dir(&mnt).unwrap();
    let source = format!("{}:/scratch", nid(1));
    ok(as_program("mount.sateen").args(["-o", "retry=2", &source]).arg(&mnt));
    let nids = vec![nid(1), nid(2)];
    cluster.mounts.push(mnt.clone());
    assert_eq!(reached(&run_folder(&mnt)), nids);
    works(&mnt, "file");
    until("status shows them", || {
        let mut status = Command::new(BINARY);
        let output = status.args(["status", "--json", &source]).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let at = |row: usize| shown["targets"][row]["nids"].clone();
        output.status.success()
            && [at(0), at(1)] == [0, 1].map(|row| serde_json::json!([nids[row]]))
    });
    assert_eq!(ok(as_program("lctl").args(["ping", &nids[1]])), format!("12345-{}\n", nids[1]));
    // Two cannot be met at one place.
    ok(as_program("mkfs.sateen")
        .args(["--ost", "--fsname=scratch", "--index=1", &format!("--mgsnode={}", nids[0])])
        .arg(cluster.path("ost1")));
    let mut second = Command::new(BINARY);
    second.args(["serve", "--nid", &nids[1]]).arg(cluster.path("ost1"));
    let said = refused(&mut second);
    assert!(said.contains("cannot listen") && said.contains(&nids[1]), "{said}");
    oss.end();
    let silent = as_program("lctl").args(["ping", &nids[1]]).output().unwrap();
    assert!(!silent.status.success(), "nobody is there");
    let mut bad = Command::new(BINARY);
    let said = refused_for_good(bad.args(["serve", "--nid", "0@lo"]).arg(cluster.path("ost0")));
    assert!(said.contains("reached by nobody"), "{said}");
    let mut oss = Command::new(BINARY);
    oss.args(["serve", "--nid", &nids[1]]).arg(cluster.path("ost0"));
    let oss = cluster.start_as(&mut oss, 2);
    works(&mnt, "after");
    cluster.umount(&mnt);
    oss.end();
    mds.end();
}

/// Makes, writes, reads and removes files, one after the other, until it is told to stop.
struct Load {
    thread: std::thread::JoinHandle<()>,
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn on(mount: &Path, name: &str) -> Load {
        let (rounds, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, told) = (rounds.clone(), stop.clone());
        let folder = mount.join(name);
        fs::create_dir(&folder).unwrap();
        let content = bytes(300_000, name.len() as u64);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let path = folder.join(format!("file{}", number % 7));
                fs::write(&path, &content).unwrap();
                assert!(fs::read(&path).unwrap() == content, "round {number}");
                if number % 3 == 0 {
                    fs::remove_file(&path).unwrap();
                }
            }
        });
        Load { thread, rounds, stop }
    }

    fn goes_on(&self, when: &str) {
        let (before, begun) = (self.rounds.load(Ordering::Relaxed), Instant::now());
        while self.rounds.load(Ordering::Relaxed) <= before + 5 {
            assert!(begun.elapsed() < Duration::from_secs(120), "it goes on {when}");
            assert!(!self.thread.is_finished(), "it fails {when}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[test]
fn either_end_may_be_killed_under_load() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "shmkill");
    cluster.net = None;
    cluster.make(2);
    let mut mds = Some(with(&cluster, 1, &["mgt", "mdt0"], "shm"));
    let mut oss = Some(with(&cluster, 2, &["ost0", "ost1"], "shm"));
    cluster.knows_osts("mgt", 2);
    let stays = mount(&mut cluster, "stays", "net=shm", None);
    let load = Load::on(&stays, "load");
    load.goes_on("from the start");
    for round in 0..3 {
        oss.take().unwrap().crash();
        oss = Some(with(&cluster, 2, &["ost0", "ost1"], "shm"));
        load.goes_on(&format!("after the OSTs were killed in round {round}"));
        mds.take().unwrap().crash();
        mds = Some(with(&cluster, 1, &["mgt", "mdt0"], "shm"));
        load.goes_on(&format!("after the MDT was killed in round {round}"));
    }
    // What a mount held that is killed others get, and its servers stay.
    let goes = mount(&mut cluster, "goes", "net=shm", None);
    let doomed = goes.clone();
    let held = fs::File::create(goes.join("held")).unwrap();
    let writing = std::thread::spawn(move || {
        let content = bytes(1 << 20, 3);
        (0..).find(|number| {
            fs::write(doomed.join(format!("doomed{}", number % 9)), &content).is_err()
        })
    });
    std::thread::sleep(Duration::from_millis(300));
    let killed = rustix::process::Pid::from_raw(cluster.mount_pid(&goes) as i32).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    assert!(writing.join().unwrap().is_some());
    drop(held);
    load.goes_on("after a mount was killed");
    write_durably(&stays.join("held"), b"taken over").unwrap();
    cluster.umount(&goes);
    let goes = mount(&mut cluster, "goes", "net=shm", None);
    assert_eq!(fs::read(goes.join("held")).unwrap(), b"taken over");
    assert_eq!(reached(&run_folder(&goes)), all_over(&cluster, "shm"));
    load.end();
    cluster.finish(oss.into_iter().chain(mds));
}
