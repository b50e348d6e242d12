//! A storm: threads and processes on two mounts of one host, or on four of which each has a host,
//! do everything that there is to do with a few names in a few directories, all at once. Each call
//! ends, as it may on a local file system that others change meanwhile and in no other way; afterwards
//! all mounts show the same, counts are right, and `fsck` finds nothing.
//!
//! `STORM_SECONDS` of it; `SEED` repeats what each thread chooses, though not who comes first.

mod calls;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sateen_testkit::cluster::{Cluster, PATIENCE, text};
use sateen_testkit::network::has_ip;
use sateen_testkit::random::{Random, mix};
use sateen_testkit::{can_mount, env_number, seed};

use crate::BINARY;
use crate::side::{Side, same};
use calls::{KINDS, Program};

const STORM_SECONDS: u64 = 8;
/// Threads on all mounts together.
const THREADS: u64 = 8;
/// Of each kind so many calls have to do something, however long that takes.
const EACH_MIN: u64 = 5;
const FOLDER: &str = "storm";

/// What a process does again and again: it walks, copies, moves and removes what it finds.
const SHELL: &str = r#"
cd "$1"
round=0
while [ ! -e "$2" ]; do
    round=$((round + 1))
    ls -lR . >/dev/null
    cat f0 d0/f1 d1/f2 >/dev/null
    cp f1 "f$((round % 6))"
    mkdir -p d0/d1
    cp d0/f* d1
    mv "d$((round % 3))/f3" f4
    find . -type f -exec stat {} + >/dev/null
    rm -rf d0/d1 "d$((round % 3))/d2"
done
"#;

/// What no program may be told of.
const NEVER_SAID: [&str; 5] = [
    "Input/output error",
    "Structure needs cleaning",
    "ransport endpoint",
    "Connection",
    "Protocol",
];

/// How often calls of a kind did something, and what else they ended with.
#[derive(Default)]
struct Ends {
    done: u64,
    refused: BTreeMap<String, u64>,
}

/// What all threads share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// By kinds.
    ends: Mutex<BTreeMap<&'static str, Ends>>,
    wrong: Mutex<Vec<String>>,
}

/// A thread, and the call that it is in since when.
struct Worker {
    thread: JoinHandle<()>,
    call: Arc<Mutex<(Instant, &'static str)>>,
}

fn locked<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(number: u64, root: &Path, seed: u64, shared: &Arc<Shared>) -> Worker {
    let call = Arc::new(Mutex::new((Instant::now(), "")));
    let mut program = Program::new(root, Random::new(mix(seed ^ mix(number))));
    let (shared, now) = (shared.clone(), call.clone());
    let thread = thread::spawn(move || {
        while !shared.stop.load(Ordering::Relaxed) {
            let kind = KINDS[program.random.below(KINDS.len() as u64) as usize];
            *locked(&now) = (Instant::now(), kind.name);
            let done = (kind.call)(&mut program);
            let mut ends = locked(&shared.ends);
            let ends = ends.entry(kind.name).or_default();
            match done {
                Ok(()) => ends.done += 1,
                Err(errno) => {
                    *ends.refused.entry(format!("{errno:?}")).or_default() += 1;
                    if !kind.may_end_with(errno) {
                        locked(&shared.wrong).push(format!("{}: {errno}", kind.name));
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    Worker { thread, call }
}

/// Waits, and ends the test if a call takes too long.
fn watch(workers: &[Worker], mut until: impl FnMut() -> bool) {
    while !until() {
        for worker in workers.iter().filter(|worker| !worker.thread.is_finished()) {
            let (since, name) = *locked(&worker.call);
            assert!(since.elapsed() < PATIENCE, "{name} hangs");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Each kind of call has done something.
fn has_done_all(shared: &Shared) -> bool {
    let ends = locked(&shared.ends);
    KINDS.iter().all(|kind| ends.get(kind.name).is_some_and(|ends| ends.done >= EACH_MIN))
}

fn shell(root: &Path, stop: &Path, log: &Path) -> Child {
    let mut shell = Command::new("bash");
    shell.args(["-c", SHELL, "storm"]).arg(root).arg(stop).env("LC_ALL", "C");
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(log).unwrap());
    shell.spawn().unwrap()
}

/// Holds the counts of links against the names that there are.
fn check_links(side: &Side) {
    // Of a directory these are the directories in it, of all else its names.
    let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut folders = vec![side.at(".")];
    while let Some(folder) = folders.pop() {
        let mut below = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                below += 1;
                folders.push(path);
            } else {
                let count = counts.entry(meta.ino()).or_insert((0, meta.nlink()));
                count.0 += 1;
            }
        }
        let meta = fs::symlink_metadata(&folder).unwrap();
        counts.insert(meta.ino(), (below + 2, meta.nlink()));
    }
    let wrong: Vec<_> = counts.iter().filter(|(_, count)| count.0 != count.1).collect();
    assert!(wrong.is_empty(), "links there are, and are counted, of these inodes: {wrong:?}");
}

/// All are told to end, which they do; what they were told while it went on.
fn end(shared: &Shared, workers: Vec<Worker>, mut shells: Vec<Child>, stop: &Path) {
    shared.stop.store(true, Ordering::Relaxed);
    fs::write(stop, b"").unwrap();
    watch(&workers, || workers.iter().all(|worker| worker.thread.is_finished()));
    let begun = Instant::now();
    while shells.iter_mut().any(|shell| shell.try_wait().unwrap().is_none()) {
        assert!(begun.elapsed() < PATIENCE, "a process hangs");
        thread::sleep(Duration::from_millis(20));
    }
    for worker in workers {
        worker.thread.join().unwrap();
    }
    let wrong = locked(&shared.wrong);
    assert!(wrong.is_empty(), "no local file system ends a call so: {wrong:?}");
}

#[test]
fn a_storm_of_everything_leaves_both_the_same() {
    if can_mount() {
        storm(Cluster::new(BINARY, "storm"), &["a", "b"]);
    }
}

#[test]
fn a_storm_of_four_hosts_leaves_all_the_same() {
    if can_mount() && has_ip() {
        storm(Cluster::on_hosts(BINARY, "storm-hosts"), &["a", "b", "c", "d"]);
    }
}

fn storm(mut cluster: Cluster, names: &[&str]) {
    let seconds = Duration::from_secs(env_number("STORM_SECONDS", STORM_SECONDS));
    let seed = seed();
    let (mds, oss) = cluster.start();
    let mounts: Vec<_> = names.iter().map(|name| cluster.mount(name)).collect();
    let sides: Vec<Side> = mounts.iter().map(|mount| Side::new(mount, FOLDER)).collect();
    sides[0].mkdir(".");
    let shared = Arc::new(Shared::default());
    let (stop, begun) = (cluster.path("stop"), Instant::now());
    let logs = names.iter().map(|name| cluster.path(&format!("shell-{name}")));
    let logs: Vec<_> = logs.collect();
    let shells = sides.iter().zip(&logs).map(|(side, log)| shell(&side.at("."), &stop, log));
    let shells: Vec<Child> = shells.collect();
    let workers: Vec<Worker> = (0..THREADS)
        .map(|number| start(number, &sides[number as usize % sides.len()].at("."), seed, &shared))
        .collect();
    watch(&workers, || {
        let over = begun.elapsed() >= seconds && has_done_all(&shared);
        let given_up = begun.elapsed() >= seconds + PATIENCE;
        let ended = workers.iter().any(|worker| worker.thread.is_finished());
        over || given_up || ended || shared.stop.load(Ordering::Relaxed)
    });
    let lasted = begun.elapsed();
    let shown: Vec<String> = locked(&shared.ends)
        .iter()
        .map(|(name, ends)| format!("{name} {} {:?}", ends.done, ends.refused))
        .collect();
    println!("{}", shown.join("\n"));
    end(&shared, workers, shells, &stop);
    assert!(has_done_all(&shared), "some calls never did anything");
    for log in &logs {
        let said = fs::read_to_string(log).unwrap();
        let never = NEVER_SAID.iter().find(|never| said.contains(*never));
        assert!(never.is_none(), "a process was told {never:?}: {said}");
    }
    for side in &sides {
        same(&sides[0], side);
        check_links(side);
    }
    let evicted = cluster.logs().matches("evicting a client").count();
    assert_eq!(evicted, 0, "nobody is thrown out");
    let done: u64 = locked(&shared.ends).values().map(|ends| ends.done).sum();
    let left = sides[0].all().len();
    // Everything can be removed, by the one or the other.
    let removed = Command::new("rm").arg("-rf").arg(sides[1].at(".")).output().unwrap();
    assert!(removed.status.success(), "{}", text(&removed));
    let found = cluster.finish([oss, mds]);
    println!(
        "shown: a storm of {lasted:.1?} by {} mounts: {done} calls did something, {left} names \
         are left; {}",
        names.len(),
        found.lines().next().unwrap_or_default()
    );
}
