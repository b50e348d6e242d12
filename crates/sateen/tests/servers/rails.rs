//! Servers and a mount with two networks between them: data goes over both at once, and one that is
//! cut is missed by nobody.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, run_folder, server_folder, text, until};
use sateen_testkit::network::{Network, has_ip};
use serde_json::Value;

use crate::{BINARY, as_program, bytes, write_durably};

/// Nobody waits for longer than this for what was on a network that is cut.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two networks, with two cables between them.
struct Cables {
    servers: Network,
    away: Network,
}

impl Cables {
    fn new() -> Cables {
        let (servers, away) = (Network::new(), Network::new());
        let there = away.id().to_string();
        for n in ["1", "2"] {
            let (here, far) = (format!("here{n}"), format!("far{n}"));
            let link = ["link", "add", &here, "type", "veth", "peer", "name", &far, "netns"];
            servers.ip(&[&link[..], &[&there]].concat());
            servers.ip(&["addr", "add", &format!("10.98.{n}.1/24"), "dev", &here]);
            away.ip(&["addr", "add", &format!("10.98.{n}.2/24"), "dev", &far]);
            servers.ip(&["link", "set", &here, "up"]);
            away.ip(&["link", "set", &far, "up"]);
        }
        Cables { servers, away }
    }

    fn plug(&self, n: u8, way: bool) {
        self.servers.ip(&["link", "set", &format!("here{n}"), if way { "up" } else { "down" }]);
    }
}

/// Servers on two networks, a mount that reaches both, and their control folders.
struct Rig {
    cluster: Cluster,
    cables: Cables,
    server: Server,
    mnt: PathBuf,
    nids: [String; 2],
}

fn rig(name: &str) -> Rig {
    let mut cluster = Cluster::new(BINARY, name);
    let cables = Cables::new();
    let port = cluster.port;
    let nids = [format!("10.98.1.1:{port}@tcp"), format!("10.98.2.1:{port}@tcp1")];
    let mgs = nids.join(":");
    let mkfs = |args: &[&str], folder: &str| {
        let mut mkfs = as_program("mkfs.sateen");
        ok(mkfs.arg("--fsname=scratch").args(args).arg(cluster.path(folder)));
    };
    let node = format!("--mgsnode={mgs}");
    mkfs(&["--mgs"], "mgt");
    mkfs(&["--mdt", "--index=0", &node], "mdt0");
    mkfs(&["--ost", "--index=0", &node], "ost0");
    mkfs(&["--ost", "--index=1", &node], "ost1");
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--nid", &nids[0], "--nid", &nids[1]]);
    serve.args(["mgt", "mdt0", "ost0", "ost1"].map(|folder| cluster.path(folder)));
    let server = cluster.start_as(&mut cables.servers.inside(&serve), 1);
    let mnt = cluster.path("mnt");
    fs::create_dir(&mnt).unwrap();
    let mut mount = Command::new(BINARY);
    mount.arg("mount").arg(format!("{mgs}:/scratch")).arg(&mnt);
    ok(&mut cables.away.inside(&mount));
    cluster.mounts.push(mnt.clone());
    Rig { cluster, cables, server, mnt, nids }
}

fn lctl(folder: &Path, args: &[&str]) -> String {
    ok(as_program("lctl").arg("--data").arg(folder).args(args))
}

fn shown(folder: &Path, what: &str) -> Vec<Value> {
    let text = lctl(folder, &[what, "show", "--json"]);
    serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
}

impl Rig {
    /// What the mount knows of one of the servers' NIDs.
    fn rail(&self, at: usize) -> Value {
        let all = shown(&run_folder(&self.mnt), "peer");
        let rail = all.iter().find(|row| row["nid"] == self.nids[at].as_str());
        rail.unwrap_or_else(|| panic!("{all:?}")).clone()
    }

    fn counted(&self, what: &str) -> [u64; 2] {
        [0, 1].map(|at| self.rail(at)[what].as_u64().unwrap())
    }

    fn evictions(&self) -> String {
        let stats =
            lctl(&server_folder(&self.cluster.path("mgt")), &["get_param", "-n", "mdt.*.md_stats"]);
        stats.lines().filter(|line| line.starts_with("evict_")).collect()
    }

    fn finish(self) {
        self.cluster.finish([self.server]);
    }
}

#[test]
fn both_networks_carry_data_at_once_and_that_is_shown() {
    if !can_mount() || !has_ip() {
        return;
    }
    let rig = rig("rails");
    let content = bytes(32 << 20, 5);
    until("both rails are there", || {
        write_durably(&rig.mnt.join("file"), &content[..4 << 20]).unwrap();
        (0..2).all(|at| rig.rail(at)["state"] == "up")
    });
    let before = rig.counted("send_bytes");
    write_durably(&rig.mnt.join("file"), &content).unwrap();
    let after = rig.counted("send_bytes");
    let sent = [0, 1].map(|at| after[at] - before[at]);
    assert!(sent.iter().all(|bytes| *bytes > 4 << 20), "both carry what is written: {sent:?}");
    assert!(sent.iter().sum::<u64>() < 48 << 20, "and nothing goes twice: {sent:?}");
    // Read by somebody who has nothing in memory: the same mount without its kernel's pages.
    fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    let before = rig.counted("recv_bytes");
    assert!(fs::read(rig.mnt.join("file")).unwrap() == content);
    let after = rig.counted("recv_bytes");
    let came = [0, 1].map(|at| after[at] - before[at]);
    assert!(came.iter().all(|bytes| *bytes > 4 << 20), "and what is read: {came:?}");

    // The mount's own NIDs, each on the network of the server's; and the same from the servers.
    let at_mount = run_folder(&rig.mnt);
    let nets = shown(&at_mount, "net");
    let nids: Vec<&str> = nets.iter().map(|row| row["nid"].as_str().unwrap()).collect();
    assert_eq!(nids, ["10.98.1.2@tcp", "10.98.2.2@tcp1"]);
    assert!(nets.iter().all(|row| row["send_bytes"].as_u64().unwrap() > 8 << 20), "{nets:?}");
    let at_server = server_folder(&rig.cluster.path("mgt"));
    let peers = shown(&at_server, "peer");
    for nid in nids {
        let seen =
            peers.iter().find(|row| row["nid"] == nid).unwrap_or_else(|| panic!("{peers:?}"));
        assert!(seen["state"] == "up" && seen["recv_bytes"].as_u64().unwrap() > 8 << 20, "{seen}");
    }
    let nets = shown(&at_server, "net");
    let own: Vec<&str> = nets.iter().map(|row| row["nid"].as_str().unwrap()).collect();
    assert!(rig.nids.iter().all(|nid| own.contains(&nid.as_str())), "{own:?}");
    // For people.
    let table = lctl(&at_mount, &["peer", "show"]);
    let (head, rows) = table.split_once('\n').unwrap();
    assert!(head.starts_with("nid") && head.contains("health") && head.contains("drop_count"));
    for nid in &rig.nids {
        let row = rows.lines().find(|row| row.starts_with(nid.as_str())).unwrap();
        assert!(row.contains("  up ") && row.contains("OST0000") && row.contains(" 1000"), "{row}");
    }
    let one = lctl(&at_mount, &["peer", "show", "--nid", &rig.nids[1]]);
    assert_eq!(one.lines().count(), 2, "{one}");
    let tcp1 = lctl(&at_mount, &["net", "show", "--net", "tcp1"]);
    assert!(tcp1.lines().count() == 2 && tcp1.contains("10.98.2.2@tcp1"), "{tcp1}");
    let mut nobody = as_program("lctl");
    nobody.arg("--data").arg(&at_mount).args(["peer", "show", "--nid", "10.98.3.1@tcp"]);
    let nobody = nobody.output().unwrap();
    assert!(!nobody.status.success() && text(&nobody).contains("no process"), "{nobody:?}");
    rig.finish();
}

/// Programs that write and read, and count how often.
struct Load {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    done: Vec<Arc<AtomicU64>>,
}

impl Load {
    fn start(folder: &Path) -> Load {
        let stop = Arc::<AtomicBool>::default();
        let done: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
        let threads = done.iter().enumerate().map(|(number, count)| {
            let (stop, count) = (stop.clone(), count.clone());
            let path = folder.join(format!("file{number}"));
            std::thread::spawn(move || work(&path, number as u64, &stop, &count))
        });
        Load { threads: threads.collect(), stop: stop.clone(), done }
    }

    /// Everybody goes on.
    fn goes_on(&self) {
        let now = || self.done.iter().map(|done| done.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (before, begun) = (now(), Instant::now());
        while now().iter().zip(&before).any(|(now, before)| *now < before + 3) {
            assert!(begun.elapsed() < PATIENCE, "{before:?} {:?}", now());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Writes and syncs, reads back, makes and removes names: nothing of it may fail.
fn work(path: &Path, number: u64, stop: &AtomicBool, count: &AtomicU64) {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.unwrap();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let content = bytes(2 << 20, number * 1000 + round);
        file.write_all_at(&content, 0).unwrap();
        file.sync_all().unwrap();
        let mut found = vec![0; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == content, "round {round}");
        let side = path.with_extension("side");
        fs::write(&side, b"side").unwrap();
        fs::remove_file(&side).unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_network_that_is_cut_under_load_is_missed_by_nobody_and_comes_back() {
    if !can_mount() || !has_ip() {
        return;
    }
    let rig = rig("rail-cut");
    let load = Load::start(&rig.mnt);
    until("both rails are there", || (0..2).all(|at| rig.rail(at)["state"] == "up"));
    // First that over which data alone goes, then that with everything else.
    for round in 0..2 {
        let primary = usize::from(rig.rail(0)["primary"] != true);
        let cut = if round == 0 { 1 - primary } else { primary };
        load.goes_on();
        assert!(rig.rail(cut)["health"].as_u64().unwrap() > 500, "{}", rig.rail(cut));
        rig.cables.plug(cut as u8 + 1, false);
        load.goes_on();
        until("it is seen", || rig.rail(cut)["health"].as_u64().unwrap() <= 500);
        until("it is given up", || rig.rail(cut)["state"] == "down");
        load.goes_on();
        assert_eq!(rig.rail(1 - cut)["state"], "up");
        let lost = rig.rail(cut);
        assert!(lost["drop_count"].as_u64().unwrap() > 0, "{lost}");
        rig.cables.plug(cut as u8 + 1, true);
        until("it is back", || rig.rail(cut)["state"] == "up");
        until("it is well", || rig.rail(cut)["health"] == 1000);
        let before = rig.counted("send_bytes");
        load.goes_on();
        let after = rig.counted("send_bytes");
        assert!((0..2).all(|at| after[at] > before[at]), "both carry data: {before:?} {after:?}");
    }
    load.end();
    let evictions = rig.evictions();
    assert!(evictions.is_empty(), "{evictions}");
    rig.finish();
}
