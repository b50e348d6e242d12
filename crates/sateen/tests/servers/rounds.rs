//! kill -9 of one server after the other, under load, without remounting: nothing that was
//! synced is lost, nothing else is there than was written, and `fsck` finds nothing. `ROUNDS`
//! rounds; `SEED` repeats what is done, though not the moment of the kill.
//!
//! A round ends with the MDT: what it had answered for and not made durable is lost, and a sync
//! that comes after its restart does not tell of that. What is found afterwards is synced, so
//! that the next round has to keep it.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sateen_testkit::cluster::{Cluster, Server, ok, until};
use sateen_testkit::load::{Checked, Load};
use sateen_testkit::random::{Random, mix};
use sateen_testkit::{can_mount, env_number};

use crate::BINARY;

const ROUNDS: u64 = 2;
const WORKERS: usize = 4;
/// The load runs that long at least before each crash, and up to as much longer.
const LOAD_MS: u64 = 400;
/// A server is gone for up to that long.
const GONE_MS: u64 = 600;

const MDS: &[&str] = &["mgt", "mdt0"];
const OSS: [&[&str]; 2] = [&["ost0", "ost1"], &["ost2"]];

fn pause(random: &mut Random, least_ms: u64, more_ms: u64) {
    std::thread::sleep(Duration::from_millis(least_ms + random.below(more_ms)));
}

fn sync(mount: &Path) -> bool {
    // What a crash has lost is told to one of them, once.
    Command::new(BINARY).arg("sync").arg(mount).output().unwrap().status.success()
}

/// What a crash has lost is told to whoever syncs the file or directory, too: here, so that no
/// program of the next round hears of it.
fn hear(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    if !found.is_dir() && !found.is_file() {
        return;
    }
    if let Ok(file) = File::open(path) {
        // It may say that something was lost, which is what it is here for.
        let _ = file.sync_all();
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        hear(&entry.path());
    }
}

/// The processes; `None` while one is gone.
struct Servers {
    mds: Option<Server>,
    oss: [Option<Server>; 2],
}

impl Servers {
    fn crash(&mut self, oss: usize) {
        if let Some(server) = self.oss[oss].take() {
            server.crash();
        }
    }

    fn start(&mut self, cluster: &Cluster) {
        for (number, oss) in (0..).zip(&mut self.oss) {
            oss.get_or_insert_with(|| cluster.begin(2 + number, OSS[usize::from(number)]));
        }
        self.mds.get_or_insert_with(|| cluster.begin(1, MDS));
    }
}

fn one_round(cluster: &Cluster, servers: &mut Servers, load: &mut Load, seed: u64) -> Checked {
    let mut random = Random::new(seed);
    let running = load.start(seed);
    pause(&mut random, LOAD_MS, LOAD_MS);
    running.killed();
    for _ in 0..random.below(3) {
        servers.crash(random.below(2) as usize);
        pause(&mut random, 0, GONE_MS);
        servers.start(cluster);
        pause(&mut random, LOAD_MS, LOAD_MS);
    }
    if random.one_in(3) {
        servers.crash(random.below(2) as usize);
    }
    servers.mds.take().unwrap().crash();
    running.over();
    pause(&mut random, 0, GONE_MS);
    servers.start(cluster);
    load.join(running).unwrap();
    for mount in &cluster.mounts {
        until("the mount goes on", || sync(mount));
        hear(mount);
    }
    load.check().unwrap()
}

#[test]
fn nothing_synced_is_lost_when_servers_are_killed() {
    if !can_mount() {
        return;
    }
    let rounds = env_number("ROUNDS", ROUNDS);
    println!("ROUNDS={rounds}");
    let seed = sateen_testkit::seed();
    let mut cluster = Cluster::new(BINARY, "rounds");
    cluster.make(3);
    let mds = cluster.serve(1, MDS);
    let oss = [cluster.serve(2, OSS[0]), cluster.serve(3, OSS[1])];
    let mut servers = Servers { mds: Some(mds), oss: oss.map(Some) };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let mut load = Load::new(&mounts, WORKERS).unwrap();
    let mut syncs = 0;
    for round in 1..=rounds {
        let checked = one_round(&cluster, &mut servers, &mut load, mix(seed ^ mix(round)));
        let Checked { syncs: kept, lost, entries, .. } = checked;
        println!("round {round}: {kept} syncs kept, {lost} unsynced lost, {entries} entries");
        syncs += kept;
    }
    assert!(syncs > 0, "the load never synced anything");
    for mount in mounts {
        cluster.umount(&mount);
    }
    servers.oss.into_iter().flatten().for_each(Server::end);
    servers.mds.unwrap().end();
    let folders = ["mgt", "mdt0", "ost0", "ost1", "ost2"].map(|folder| cluster.path(folder));
    ok(Command::new(BINARY).arg("fsck").args(&folders));
}
