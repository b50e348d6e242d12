//! Connections that break under load, between all processes, while no server dies: each request
//! is carried out once, whatever became of it or of its answer on the way, and no program
//! notices anything but the time that it takes.
//!
//! Each process has a network of its own, and all that leaves one goes through a cutter, which
//! ends connections in the middle of anything. `ROUNDS` storms of `STORM_MS`; `SEED` repeats what
//! is done and how connections break, though not which of them is where when it does.

mod programs;
mod traffic;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sateen_testkit::cluster::{Cluster, PATIENCE, Server, ok};
use sateen_testkit::cutter::{Cutter, How, Line};
use sateen_testkit::network::{Network, has_ip};
use sateen_testkit::random::{Random, mix};
use sateen_testkit::{can_mount, env_number, seed};

use crate::BINARY;
use programs::{PROGRAMS, Work};
use traffic::{Sums, Traffic};

const ROUNDS: u64 = 2;
const STORM_MS: u64 = 6000;
/// Servers, by their numbers as hosts; the last two are OSTs.
const SERVERS: [(u8, &[&str]); 4] = [(1, &["mgt"]), (2, &["mdt0"]), (3, &["ost0"]), (4, &["ost1"])];
const MOUNTS: [&str; 2] = ["a", "b"];
/// Threads that take turns, and processes that append, on each mount.
const EACH: usize = 2;

/// In each second of a storm at least so many connections break with requests under way.
const MET_EACH_S: u64 = 4;
/// And so many requests are made again that had been carried out.
const EXECUTED_EACH_S: u64 = 3;

/// In all these ways connections break in the storms.
const HOWS: [How; 5] = [How::Reset, How::Finished, How::Stalled, How::Silent, How::Lost];

/// A guest whose goodbye meets silence again and again may go without it, and is evicted then: one
/// in so many, and a few beside on a machine that stands still now and then, where there are few.
const GUESTS_EACH_EVICTED: u64 = 25;
const EVICTED_BESIDE: u64 = 2;

/// The networks, and who is in them.
struct Rig {
    cluster: Cluster,
    servers: Vec<Server>,
    /// Of the servers, then of the mounts.
    networks: Vec<Network>,
    cutter: Cutter,
    traffic: Arc<Traffic>,
    points: Vec<PathBuf>,
}

impl Rig {
    fn start(seed: u64) -> Rig {
        let cluster = Cluster::new(BINARY, "cuts");
        cluster.make(2);
        let all = SERVERS.len() + MOUNTS.len();
        let networks: Vec<Network> = (0..all).map(|_| Network::new()).collect();
        let mut lines = Vec::new();
        for (from, (to, host)) in (0..all)
            .flat_map(|from| SERVERS.iter().enumerate().map(move |(to, s)| (from, (to, s.0))))
        {
            let address: SocketAddr = ([127, 0, 0, host], cluster.port).into();
            if from != to {
                let (from, to) = (networks[from].door(), networks[to].door());
                lines.push(Line { from, to, address });
            }
        }
        let traffic = Arc::new(Traffic::default());
        let cutter = Cutter::start(seed, lines, traffic.clone());
        let start = |((host, folders), network): (&(u8, &[&str]), &Network)| {
            let mut command = network.inside(&cluster.command(*host, folders));
            cluster.start_as(&mut command, *host)
        };
        let servers = SERVERS.iter().zip(&networks).map(start).collect();
        cluster.knows_osts("mdt0", 2);
        let mut rig = Rig { cluster, servers, networks, cutter, traffic, points: Vec::new() };
        for (number, name) in MOUNTS.iter().enumerate() {
            let point = rig.mount(number, name);
            rig.points.push(point);
        }
        rig
    }

    /// Mounts it where mount `number` is, at a folder of this name.
    fn mount(&mut self, number: usize, name: &str) -> PathBuf {
        let point = self.cluster.path(name);
        fs::create_dir_all(&point).unwrap();
        let mut mount = Command::new(BINARY);
        // In a storm servers may be out of reach for longer than a mount waits for them.
        mount.arg("mount").args(["-o", "retry=5"]).arg(self.cluster.source()).arg(&point);
        self.cluster.mounts.push(point.clone());
        ok(&mut self.networks[SERVERS.len() + number].inside(&mount));
        point
    }

    /// Whether the storms have done as much as in so many seconds they have to.
    fn has_stormed(&self, seconds: u64) -> bool {
        let (sums, broken) = (self.traffic.sums(), self.cutter.broken());
        sums.met >= MET_EACH_S * seconds
            && sums.executed.values().sum::<u64>() >= EXECUTED_EACH_S * seconds
            && HOWS.iter().all(|how| broken.contains_key(how))
    }

    /// One more mount comes in a storm, finds what the others have made, and goes.
    fn guest(&mut self, number: u64) {
        let at = number as usize % MOUNTS.len();
        let name = format!("guest{number}");
        File::create_new(self.points[at].join(&name)).unwrap();
        let guest = self.mount(at, "guest");
        fs::remove_file(guest.join(&name)).unwrap();
        self.cluster.umount(&guest);
        assert!(!self.points[1 - at].join(&name).exists());
    }
}

/// All programs of a round.
struct Running {
    stop: Arc<AtomicBool>,
    /// The same for processes.
    stop_file: PathBuf,
    threads: Vec<(String, JoinHandle<u64>)>,
    turns: Vec<JoinHandle<u64>>,
    appenders: Vec<std::process::Child>,
}

impl Running {
    fn start(rig: &Rig, round: u64, seed: u64) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_file = rig.cluster.path(&format!("stop{round}"));
        let root = format!("round{round}");
        fs::create_dir(rig.points[0].join(&root)).unwrap();
        fs::create_dir(rig.points[0].join(&root).join("turns")).unwrap();
        let (mut threads, mut turns, mut appenders) = (Vec::new(), Vec::new(), Vec::new());
        for (at, here) in rig.points.iter().enumerate() {
            let there = &rig.points[1 - at];
            let work = |folder: &str, number: u64| Work {
                here: here.join(&root).join(folder),
                there: there.join(&root).join(folder),
                random: Random::new(mix(seed ^ mix(number))),
                stop: stop.clone(),
            };
            for (number, (name, program)) in (0..).zip(PROGRAMS) {
                let name = format!("{name}.{at}");
                fs::create_dir(here.join(&root).join(&name)).unwrap();
                let work = work(&name, 2 * number + at as u64);
                threads.push((name, thread::spawn(move || program(work))));
            }
            for number in 0..EACH {
                let work = work("turns", 0);
                turns.push(thread::spawn(move || programs::turns(work)));
                let records = here.join(&root).join("records");
                appenders.push(programs::appender(&records, EACH * at + number, &stop_file));
            }
        }
        Running { stop, stop_file, threads, turns, appenders }
    }

    /// Waits until all have ended, and looks at what they have left.
    fn end(mut self, folders: &[PathBuf]) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        fs::write(&self.stop_file, b"").unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let unfinished = self.threads.iter().filter(|(_, thread)| !thread.is_finished());
            let mut left: Vec<&str> = unfinished.map(|(name, _)| name.as_str()).collect();
            left.extend(self.turns.iter().filter(|one| !one.is_finished()).map(|_| "turns"));
            let ended = |one: &mut std::process::Child| one.try_wait().unwrap().is_some();
            left.extend(
                self.appenders.iter_mut().filter_map(|one| (!ended(one)).then_some("appends")),
            );
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "these hang: {left:?}");
            thread::sleep(Duration::from_millis(20));
        }
        let mut calls = 0;
        for (name, thread) in self.threads {
            let own = thread.join().unwrap_or_else(|_| panic!("{name} failed"));
            calls += own;
        }
        let turns: u64 = self.turns.into_iter().map(|one| one.join().unwrap()).sum();
        let records: Vec<u64> = self.appenders.into_iter().map(programs::appended).collect();
        for folder in folders {
            assert_eq!(programs::counted(&folder.join("turns")), turns, "turns");
            programs::check_records(&folder.join("records"), &records);
        }
        println!("  {calls} calls, {turns} turns, {records:?} records");
        calls + turns + records.iter().sum::<u64>()
    }
}

fn show(sums: &Sums, cutter: &Cutter) {
    println!(
        "  {} connections, broken {:?}, ended {:?}\n  {} requests; {} connections broke under {} of \
         them; {} arrived again, of which had been carried out:",
        cutter.connections(),
        cutter.broken(),
        sums.places,
        sums.requests,
        sums.met,
        sums.under_way,
        sums.again
    );
    for (kind, number) in &sums.executed {
        println!("    {number:6} {kind}");
    }
}

#[test]
fn broken_connections_are_not_noticed() {
    if !can_mount() || !has_ip() {
        return;
    }
    let (rounds, storm_ms) = (env_number("ROUNDS", ROUNDS), env_number("STORM_MS", STORM_MS));
    println!("ROUNDS={rounds} STORM_MS={storm_ms}");
    let seed = seed();
    let mut rig = Rig::start(seed);
    let (mut guests, mut calls) = (0, 0);
    for round in 1..=rounds {
        println!("round {round}:");
        let running = Running::start(&rig, round, mix(seed ^ mix(round)));
        let begun = Instant::now();
        rig.cutter.storm(true);
        let storm = Duration::from_millis(storm_ms);
        // A slow machine does the same in more time.
        let is_enough = |rig: &Rig, so_far: Duration| {
            so_far >= PATIENCE.max(storm) || rig.has_stormed(round * storm_ms / 1000)
        };
        while begun.elapsed() < storm || !is_enough(&rig, begun.elapsed()) {
            rig.guest(guests);
            guests += 1;
        }
        println!("  stormed for {:?}", begun.elapsed());
        rig.cutter.storm(false);
        let root = format!("round{round}");
        let folders: Vec<PathBuf> = rig.points.iter().map(|point| point.join(&root)).collect();
        calls += running.end(&folders);
        println!("  ended after {:?}", begun.elapsed());
    }
    let sums = rig.traffic.sums();
    show(&sums, &rig.cutter);
    let logs = rig.cluster.logs();
    let evicted = logs.matches("evicting a client").count() as u64;
    let evicted_max = EVICTED_BESIDE + guests / GUESTS_EACH_EVICTED;
    assert!(evicted <= evicted_max, "who goes says goodbye: {evicted}\n{logs}");
    let found = rig.cluster.finish(rig.servers);
    let broken = rig.cutter.broken();
    let executed: u64 = sums.executed.values().sum();
    println!(
        "shown: {rounds} storms of {storm_ms} ms: {} connections broken, {} of them under {} \
         requests; {} requests came again, {executed} of them after an answer; {calls} calls, \
         {guests} mounts came and went, {evicted} evicted; {}",
        broken.values().sum::<u64>(),
        sums.met,
        sums.under_way,
        sums.again,
        found.lines().next().unwrap_or_default()
    );
    assert_eq!(sums.mistaken, [""; 0], "a number stands for one request");
    let seconds = rounds * storm_ms / 1000;
    assert!(sums.met >= MET_EACH_S * seconds, "too few connections broke under requests");
    assert!(executed >= EXECUTED_EACH_S * seconds, "too little was made again");
    assert!(HOWS.iter().all(|how| broken.contains_key(how)), "{broken:?}");
}
