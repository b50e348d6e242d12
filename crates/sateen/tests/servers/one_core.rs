//! Servers, a mount and programs on one processor: who looks for work before he sleeps
//! (docs/hot-path.md) takes it from nobody. A program that never stops has its share beside
//! a file system that is asked all the time, and beside one that was just asked nearly all of it.
//!
//! Others may be on that processor as well, as other tests: so what a program has is held against what
//! the file system has, and what it takes while it waits against the time on the wall.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::Cluster;

use crate::BINARY;

/// How long it is looked at.
const LONG: Duration = Duration::from_secs(2);

/// All that this thread starts from now on is on one processor, as it is.
fn on_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
}

/// A program that does not stop by itself for a minute of a processor's time; ended on drop.
struct Busy(Child);

impl Busy {
    fn new() -> Busy {
        Busy(Command::new("sh").args(["-c", "ulimit -t 60; while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended by its limit.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a process has run so far, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // What is before has a name of any kind.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// What a file system is asked for; how often.
fn work(mnt: &Path, until: Instant) -> u64 {
    let mut done = 0;
    while Instant::now() < until {
        let path = mnt.join(format!("file{done}"));
        drop(File::create_new(&path).unwrap());
        drop(File::open(&path).unwrap());
        fs::remove_file(&path).unwrap();
        done += 1;
    }
    done
}

/// What `busy` and the file system have had of processors while this was done, and how long it took.
fn shares(busy: u32, others: &[u32], act: impl FnOnce()) -> (u64, u64, u64) {
    let begun = Instant::now();
    let look = || {
        let others = others.iter().map(|pid| ticks(*pid)).sum::<u64>();
        (ticks(busy), others)
    };
    let before = look();
    act();
    let after = look();
    let wall = begun.elapsed().as_millis() as u64 / 10;
    (after.0 - before.0, after.1 - before.1, wall)
}

fn share(net: &str) {
    let mut cluster = Cluster::new(BINARY, &format!("core_{net}"));
    cluster.net = Some(net.to_owned());
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let servers = [&mds, &oss].map(|server| server.pid().as_raw_nonzero().get() as u32);
    let all = [servers[0], servers[1], cluster.mount_pid(&mnt)];
    let busy = Busy::new();
    let mut done = 0;
    let (had, others, wall) =
        shares(busy.0.id(), &all, || done = work(&mnt, Instant::now() + LONG));
    println!("{net}, asked {done} times: {had} ticks, the file system {others}, of {wall}");
    assert!(done > 0, "and the file system is not kept waiting for ever");
    // Alone on it each would have had a third to a half.
    assert!(had * 5 >= others, "a sixth of what both have had: {had}, and {others}");
    // It has just been asked, and could go on looking.
    let (had, others, wall) = shares(busy.0.id(), &all, || thread::sleep(LONG));
    println!("{net}, idle: {had} ticks, the file system {others}, of {wall}");
    assert!(others * 5 <= wall, "a fifth of a processor at most, for nothing: {others} of {wall}");
    drop(busy);
    let (_, others, wall) = shares(std::process::id(), &all, || thread::sleep(LONG));
    println!("{net}, idle and alone: the file system {others}, of {wall}");
    assert!(others * 5 <= wall, "nor is it more where nobody is beside it: {others} of {wall}");
    cluster.finish([oss, mds]);
}

#[test]
fn a_program_has_its_share_of_the_processor_that_others_look_for_work_on() {
    if !can_mount() {
        return;
    }
    // What is bound must not be bound for other tests.
    let bound = thread::spawn(|| {
        on_one_processor();
        ["tcp", "shm"].into_iter().for_each(share);
    });
    bound.join().unwrap();
}
