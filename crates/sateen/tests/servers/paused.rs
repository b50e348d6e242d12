//! Servers of every kind are killed one after the other, at any moment, under programs on two
//! mounts, all of them on hosts of their own: none of them is told of an error, no mount is thrown out, and all that was written is
//! there, whether it was synced or not. `PAUSED_SECONDS` for how long, `SEED` for who and when.
//!
//! What an MDT had not committed its clients have made again; what an OST had been given the
//! kernel has kept, and the OST knows that it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sateen_testkit::cluster::{Cluster, Server};
use sateen_testkit::network::has_ip;
use sateen_testkit::random::Random;
use sateen_testkit::{can_mount, env_number};

use crate::upgrade::{Programs, appended, appends, holds, makes, writes};
use crate::{BINARY, bytes, knows_its_runs};

const SECONDS: u64 = 20;
/// Server processes: who is in them.
const SERVERS: [(u8, &[&str]); 4] =
    [(1, &["mgt"]), (4, &["mdt0"]), (2, &["ost0", "ost1"]), (3, &["ost2"])];
/// A server is gone for up to that long.
const GONE_MS: u64 = 400;
/// And all are there for up to that long.
const THERE_MS: u64 = 600;

/// Writes files and never syncs any; reads back those of a while ago.
fn leaves(programs: &mut Programs, mount: &Path, name: &str) {
    let folder = mount.join(name);
    fs::create_dir(&folder).unwrap();
    programs.start(name, move |number| {
        let content = |number: u64| bytes(1 + (number as usize * 7919) % 90_000, number + 1);
        let path = |number: u64| folder.join(format!("{}", number % 64));
        if number >= 64 && fs::read(path(number))? != content(number - 64) {
            return Err(std::io::Error::other("it is not what was written"));
        }
        fs::write(path(number), content(number))
    });
}

#[test]
fn servers_are_killed_under_programs_and_none_is_told() {
    if !can_mount() || !has_ip() {
        return;
    }
    let seconds = env_number("PAUSED_SECONDS", SECONDS);
    let seed = sateen_testkit::seed();
    println!("PAUSED_SECONDS={seconds} SEED={seed}");
    let mut random = Random::new(seed);
    let mut cluster = Cluster::on_hosts(BINARY, "paused");
    cluster.make(3);
    let mut servers: Vec<Option<Server>> =
        SERVERS.iter().map(|(host, folders)| Some(cluster.serve(*host, folders))).collect();
    cluster.knows_osts("mdt0", 3);
    if !knows_its_runs(&cluster, "ost0") {
        return;
    }
    let mounts: Vec<PathBuf> = ["one", "two"].map(|name| cluster.mount(name)).into();
    let mut programs = Programs::default();
    for (number, mount) in mounts.iter().enumerate() {
        writes(&mut programs, mount, &format!("writes{number}"));
        makes(&mut programs, mount, &format!("makes{number}"));
        appends(&mut programs, mount, &format!("appends{number}"));
        holds(&mut programs, mount, &format!("holds{number}"));
        leaves(&mut programs, mount, &format!("leaves{number}"));
    }
    programs.get_on(&cluster, "from the start");
    let mut killed = [0_u64; SERVERS.len()];
    let end = Instant::now() + Duration::from_secs(seconds);
    // Each at least once.
    while Instant::now() < end || killed.contains(&0) {
        let which = random.below(SERVERS.len() as u64) as usize;
        std::thread::sleep(Duration::from_millis(random.below(THERE_MS)));
        servers[which].take().unwrap().crash();
        // Another one may die meanwhile.
        let also = random.one_in(4).then(|| random.below(SERVERS.len() as u64) as usize);
        if let Some(other) = also.and_then(|also| servers[also].take().map(|it| (also, it))) {
            std::thread::sleep(Duration::from_millis(random.below(GONE_MS)));
            other.1.crash();
            killed[other.0] += 1;
        }
        std::thread::sleep(Duration::from_millis(random.below(GONE_MS)));
        killed[which] += 1;
        for (server, (host, folders)) in servers.iter_mut().zip(SERVERS) {
            server.get_or_insert_with(|| cluster.begin(host, folders));
        }
        programs.get_on(&cluster, &format!("after {killed:?} have died"));
    }
    let done = programs.end(&cluster);
    println!("shown: {seconds} s, killed {killed:?} of mgt, mdt0, ost0 with ost1, ost2; {done:?}");
    let logs = cluster.logs();
    assert!(!logs.contains("evict"), "{logs}");
    for mount in &mounts {
        appended(mount, &done);
    }
    cluster.finish(servers.into_iter().flatten().rev());
}
