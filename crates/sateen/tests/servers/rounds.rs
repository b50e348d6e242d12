//! kill -9 of one server after the other, under load, without remounting: nothing that was
//! synced is lost, nothing else is there than was written, and `fsck` finds nothing, neither in
//! the end nor on the disks of servers that have just died. `ROUNDS`
//! rounds; `SEED` repeats what is done, though not the moment of the kill.
//!
//! Workers must be seen working: all of them before anything is killed and without the MGS, and
//! after the restart of an OST all whom its crash has not ended, by an fsync that tells of what
//! it has lost.
//!
//! The MGS is alone in its process, and killed in each round: whoever is mounted must not notice,
//! and whoever mounts afterwards find everything.
//!
//! A round ends with the MDT: what it had answered for and not made durable is lost, and a sync
//! that comes after its restart does not tell of that. What is found afterwards is synced, so
//! that the next round has to keep it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sateen_testkit::cluster::{Cluster, Server, until};
use sateen_testkit::load::{Checked, Load, Running};
use sateen_testkit::random::{Random, mix};
use sateen_testkit::{can_mount, env_number};

use crate::{BINARY, write_durably};

const ROUNDS: u64 = 2;
const WORKERS: usize = 4;
/// The load runs that long at least before each crash, and up to as much longer.
const LOAD_MS: u64 = 400;
/// A server is gone for up to that long.
const GONE_MS: u64 = 600;

/// In each such round all servers die at once, and `fsck` looks at what they leave.
const FSCK_EVERY: u64 = 2;

const MGS: &[&str] = &["mgt"];
const MDS: &[&str] = &["mdt0"];
const OSS: [&[&str]; 2] = [&["ost0", "ost1"], &["ost2"]];
/// Its number as a host; the OSTs have 2 and 3.
const MDS_HOST: u8 = 4;

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
    mgs: Option<Server>,
    mds: Option<Server>,
    oss: [Option<Server>; 2],
}

impl Servers {
    fn crash(&mut self, oss: usize) {
        if let Some(server) = self.oss[oss].take() {
            server.crash();
        }
    }

    fn crash_all(&mut self) {
        let oss = self.oss.iter_mut().filter_map(Option::take);
        oss.chain(self.mds.take()).chain(self.mgs.take()).for_each(Server::crash);
    }

    fn start(&mut self, cluster: &Cluster) {
        self.mgs.get_or_insert_with(|| cluster.begin(1, MGS));
        for (number, oss) in (0..).zip(&mut self.oss) {
            oss.get_or_insert_with(|| cluster.begin(2 + number, OSS[usize::from(number)]));
        }
        self.mds.get_or_insert_with(|| cluster.begin(MDS_HOST, MDS));
    }

    /// The MGS alone is killed. Those who are mounted go on meanwhile; a mount goes on after it.
    fn lose_mgs(&mut self, cluster: &mut Cluster, load: &Running, random: &mut Random) {
        self.mgs.take().unwrap().crash();
        assert_eq!(all_get_on(load, "without the MGS"), WORKERS);
        let here = cluster.mounts[random.below(2) as usize].join("without the MGS");
        write_durably(&here, b"served").unwrap();
        pause(random, 0, GONE_MS);
        self.mgs = Some(cluster.serve(1, MGS));
        let later = cluster.mount("later");
        assert_eq!(fs::read(later.join("without the MGS")).unwrap(), b"served");
        fs::remove_file(later.join("without the MGS")).unwrap();
        assert!(!here.exists());
        cluster.umount(&later);
    }
}

/// Waits until each worker that has not ended has done something more; how many these are.
fn all_get_on(load: &Running, when: &str) -> usize {
    let before = load.steps();
    until(&format!("workers get on {when}: {before:?} steps"), || {
        let done = load.steps().into_iter().zip(&before).map(|(now, before)| now > *before);
        done.zip(load.alive()).all(|(done, alive)| done || !alive)
    });
    load.alive().into_iter().filter(|alive| *alive).count()
}

/// What a round's workers have done.
struct Work {
    /// The least that one of them has done, and all together.
    least: u64,
    all: u64,
    /// How many worked until the MDT was killed.
    to_the_end: usize,
}

fn one_round(
    cluster: &mut Cluster,
    servers: &mut Servers,
    load: &mut Load,
    (seed, looks_into): (u64, bool),
) -> (Checked, Work) {
    let mut random = Random::new(seed);
    let running = load.start(seed);
    pause(&mut random, LOAD_MS, LOAD_MS);
    assert_eq!(all_get_on(&running, "from the start"), WORKERS);
    servers.lose_mgs(cluster, &running, &mut random);
    pause(&mut random, 0, LOAD_MS);
    running.killed();
    for _ in 0..random.below(3) {
        servers.crash(random.below(2) as usize);
        pause(&mut random, 0, GONE_MS);
        servers.start(cluster);
        all_get_on(&running, "after the restart of OSTs");
        pause(&mut random, LOAD_MS, LOAD_MS);
    }
    let to_the_end = all_get_on(&running, "before the end");
    if random.one_in(3) {
        servers.crash(random.below(2) as usize);
    }
    if random.one_in(3) {
        servers.mgs.take().unwrap().crash();
    }
    servers.mds.take().unwrap().crash();
    let steps = running.steps();
    let (least, all) = (steps.iter().min().copied().unwrap_or(0), steps.iter().sum());
    running.over();
    if looks_into {
        servers.crash_all();
        cluster.fsck();
    }
    pause(&mut random, 0, GONE_MS);
    servers.start(cluster);
    load.join(running).unwrap();
    for mount in &cluster.mounts {
        until("the mount goes on", || sync(mount));
        hear(mount);
    }
    let checked = load.check().unwrap_or_else(|error| {
        describe(cluster, &format!("{error:?}"));
        panic!("{error:?}");
    });
    (checked, Work { least, all, to_the_end })
}

/// What is where of the file whose number stands first in a complaint: its size as each mount
/// knows it, and its objects.
fn describe(cluster: &Cluster, complaint: &str) {
    let numbers = complaint.split(['(', ')']).filter_map(|word| word.parse::<u64>().ok());
    let Some(ino) = numbers.into_iter().find(|number| number >> 17 > 0) else { return };
    for mount in &cluster.mounts {
        each_below(mount, &mut |path, meta| {
            if meta.ino() == ino {
                println!("{}: {} bytes", path.display(), meta.len());
            }
        });
    }
    // Inode numbers are the sequence above 17 bits of the object's number, in decimal here and
    // in hex in the names of objects.
    let sequence = format!("/{:x}/", ino >> 17);
    let object = format!("{:x}.", ino & 0x1ffff);
    for ost in OSS.iter().flat_map(|folders| folders.iter()) {
        each_below(&cluster.path(ost), &mut |path, meta| {
            let name = path.file_name().unwrap().to_string_lossy();
            if path.to_string_lossy().contains(&sequence) && name.starts_with(&object) {
                println!("{}: {} bytes", path.display(), meta.len());
            }
        });
    }
}

/// Every file below a folder; what goes meanwhile is left out.
fn each_below(folder: &Path, found: &mut impl FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
        if meta.is_dir() {
            each_below(&entry.path(), found);
        } else {
            found(&entry.path(), &meta);
        }
    }
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
    let mgs = cluster.serve(1, MGS);
    let mds = cluster.serve(MDS_HOST, MDS);
    let oss = [cluster.serve(2, OSS[0]), cluster.serve(3, OSS[1])];
    cluster.knows_osts("mdt0", 3);
    let mut servers = Servers { mgs: Some(mgs), mds: Some(mds), oss: oss.map(Some) };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let mut load = Load::new(&mounts, WORKERS).unwrap();
    let (mut syncs, mut unsynced, mut steps, mut worked_to_the_end) = (0, 0, 0, 0);
    for round in 1..=rounds {
        let how = (mix(seed ^ mix(round)), round % FSCK_EVERY == 0);
        let (checked, work) = one_round(&mut cluster, &mut servers, &mut load, how);
        let Checked { syncs: kept, lost, entries, .. } = checked;
        let Work { least, all, to_the_end } = work;
        println!(
            "round {round}: {kept} syncs kept, {lost} unsynced lost, {entries} entries; {all} \
             steps, {least} at least by each of {WORKERS}, {to_the_end} to the end"
        );
        assert!(kept > 0, "nothing was synced in this round");
        worked_to_the_end += to_the_end;
        syncs += kept;
        unsynced += lost;
        steps += all;
    }
    println!(
        "shown: {rounds} rounds: {syncs} syncs kept, {unsynced} unsynced steps lost, {steps} steps \
         by {WORKERS} workers on two mounts that stayed, {worked_to_the_end} times a worker to the \
         end of a round; fsck clean {} times before the last",
        rounds / FSCK_EVERY
    );
    assert!(worked_to_the_end > 0, "no worker has outlived the crash of an OST");
    let Servers { mgs, mds, oss } = servers;
    cluster.finish(oss.into_iter().chain([mds, mgs]).flatten());
}
