//! Files that several mounts write, in turns or each its own segment: each mount has a part of the file, asks
//! once for all of its records, or now and then for the next range, and keeps what it writes there. Others
//! find all of it, and what a mount that dies had not synced is lost, and nothing else.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, run_folder, server_folder, until};

use crate::{BINARY, as_program};

/// Bytes of a record, as io500's hard pattern has them: they share pages, and some lie in two objects.
const RECORD: usize = 47_008;
/// Records of each mount.
const RECORDS: usize = 600;
/// So many records each writes when the other one has written, too.
const ALTERNATE: usize = 12;
/// What the program of a mount that is killed has synced by then.
const SYNCED: usize = 300;

fn record(number: usize) -> Vec<u8> {
    let pattern = (number as u64 + 1).to_le_bytes();
    pattern.iter().copied().cycle().take(RECORD).collect()
}

fn offset(number: usize) -> u64 {
    (number * RECORD) as u64
}

fn lctl(folder: &Path, words: &[&str]) -> String {
    ok(as_program("lctl").arg("--data").arg(folder).args(words))
}

/// A file system of two OSTs, whose MDT gives out parts, and so many mounts.
struct Rig {
    cluster: Cluster,
    servers: [Server; 2],
    mds: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Rig {
    fn new(name: &str, mounts: usize) -> Rig {
        let mut cluster = Cluster::new(BINARY, name);
        let (mds_server, oss) = cluster.start();
        let mounts = (0..mounts).map(|mount| cluster.mount(&format!("mount{mount}"))).collect();
        let mds = server_folder(&cluster.path("mgt"));
        let rig = Rig { cluster, servers: [oss, mds_server], mds, mounts };
        rig.set("ldlm.namespaces.*.parts=1");
        rig
    }

    fn set(&self, what: &str) {
        lctl(&self.mds, &["set_param", what]);
    }

    /// What the MDT counts under this name.
    fn told(&self, what: &str) -> u64 {
        let name = format!("ldlm.namespaces.mdt-*.{what}");
        let text = lctl(&self.mds, &["get_param", "-n", &name]);
        text.lines().map(|line| line.parse::<u64>().unwrap()).sum()
    }

    /// How often something was counted by all mounts and of all targets.
    fn counted(&self, stats: &str, what: &str) -> u64 {
        let of = |mount: &PathBuf| {
            let text = lctl(&run_folder(mount), &["get_param", "-n", stats]);
            let samples = text.lines().filter_map(|line| {
                let mut words = line.split_whitespace();
                (words.next()? == what).then(|| words.next()?.parse::<u64>().ok())?
            });
            samples.sum::<u64>()
        };
        self.mounts.iter().map(of).sum()
    }

    /// Requests for locks and callbacks of all mounts so far, and what they had OSTs write.
    fn looked(&self) -> [u64; 3] {
        let stats = [("mdc.*.stats", "ldlm_enqueue"), ("llite.*.stats", "lock_callback")];
        let [enqueues, callbacks] = stats.map(|(stats, what)| self.counted(stats, what));
        [enqueues, callbacks, self.counted("osc.*.stats", "ost_write")]
    }

    fn striped(&self, name: &str) {
        let path = self.mounts[0].join(name);
        ok(as_program("lfs").args(["setstripe", "-c", "2", "-S", "1M"]).arg(path));
    }

    fn for_writing(&self, mount: usize, name: &str) -> File {
        OpenOptions::new().write(true).open(self.mounts[mount].join(name)).unwrap()
    }
}

/// What is there, and how long the file is.
fn verify(mount: &Path, name: &str, records: usize) {
    let file = File::open(mount.join(name)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), offset(records));
    let mut bytes = vec![0; RECORD];
    for number in 0..records {
        file.read_exact_at(&mut bytes, offset(number)).unwrap();
        assert!(bytes == record(number), "record {number}");
    }
}

#[test]
fn mounts_that_write_in_turns_ask_once_each_and_keep_what_they_write() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new("parts", 2);
    rig.striped("hard");
    let before = rig.looked();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        for me in 0..2 {
            let (rig, barrier) = (&rig, &barrier);
            scope.spawn(move || {
                let file = rig.for_writing(me, "hard");
                barrier.wait();
                for number in (0..2 * RECORDS).skip(me).step_by(2) {
                    file.write_all_at(&record(number), offset(number)).unwrap();
                }
                file.sync_all().unwrap();
            });
        }
    });
    let after = rig.looked();
    let [enqueues, callbacks, writes] = core::array::from_fn(|at| after[at] - before[at]);
    let (granted, broken) = (rig.told("parts_granted"), rig.told("parts_broken"));
    println!(
        "{enqueues} requests for locks, {callbacks} callbacks, {writes} writes; {granted} parts, \
         {broken} times broken"
    );
    let three = rig.cluster.mount("three");
    verify(&three, "hard", 2 * RECORDS);
    assert!(granted >= 2, "{granted} parts");
    assert!(enqueues <= 60, "{enqueues} requests for locks");
    assert!(callbacks <= 30, "{callbacks} callbacks");
    assert!(writes <= 2 * RECORDS as u64 / 5, "{writes} writes");

    // As without parts.
    rig.set("ldlm.namespaces.*.parts=0");
    rig.striped("off");
    thread::scope(|scope| {
        for me in 0..2 {
            let rig = &rig;
            scope.spawn(move || {
                let file = rig.for_writing(me, "off");
                for number in (0..2 * RECORDS).skip(me).step_by(2) {
                    file.write_all_at(&record(number), offset(number)).unwrap();
                }
            });
        }
    });
    verify(&three, "off", 2 * RECORDS);
    assert_eq!(rig.told("parts_granted"), granted);
    let Rig { cluster, servers, .. } = rig;
    cluster.finish(servers);
}

#[test]
fn mounts_that_write_a_segment_each_have_ranges_of_it_and_keep_what_they_write() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new("segments", 2);
    rig.striped("easy");
    let barrier = Barrier::new(2);
    let before = rig.looked();
    thread::scope(|scope| {
        let write = |me: usize| {
            let (rig, barrier) = (&rig, &barrier);
            move || {
                let file = rig.for_writing(me, "easy");
                // Each takes it from the other, until the file counts as contended.
                for number in 0..RECORDS {
                    if number < ALTERNATE {
                        barrier.wait();
                    }
                    let number = me * RECORDS + number;
                    file.write_all_at(&record(number), offset(number)).unwrap();
                }
                file.sync_all().unwrap();
            }
        };
        for me in 0..2 {
            scope.spawn(write(me));
        }
    });
    let after = rig.looked();
    let [enqueues, callbacks, writes] = core::array::from_fn(|at| after[at] - before[at]);
    let names = ["parts_granted", "parts_broken", "parts_cut"];
    let [granted, broken, cut] = names.map(|name| rig.told(name));
    println!(
        "{enqueues} requests for locks, {callbacks} callbacks, {writes} writes; {granted} ranges, {cut} of \
         them cut, {broken} times broken"
    );
    let three = rig.cluster.mount("three");
    verify(&three, "easy", 2 * RECORDS);
    assert!(granted >= 2, "{granted} ranges");
    assert!(enqueues <= 60, "{enqueues} requests for locks");
    assert!(callbacks <= 50, "{callbacks} callbacks");
    assert!(writes <= 2 * RECORDS as u64 / 5, "{writes} writes");
    let Rig { cluster, servers, .. } = rig;
    cluster.finish(servers);
}

#[test]
fn of_a_mount_that_is_killed_only_what_it_had_not_synced_is_lost() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new("parts-killed", 3);
    rig.set("mdt.*.ldlm_timeout=2");
    rig.striped("hard");
    let pid = rig.cluster.mount_pid(&rig.mounts[0]);
    let written = AtomicUsize::new(0);
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        for me in 0..3 {
            let (rig, written, barrier) = (&rig, &written, &barrier);
            scope.spawn(move || {
                let file = rig.for_writing(me, "hard");
                barrier.wait();
                for turn in 0..RECORDS {
                    let number = 3 * turn + me;
                    let done = file.write_all_at(&record(number), offset(number));
                    if me > 0 {
                        done.unwrap();
                        continue;
                    }
                    if done.is_err() {
                        return;
                    }
                    if turn + 1 == SYNCED {
                        file.sync_all().unwrap();
                    }
                    if turn + 1 == SYNCED + 50 {
                        let pid = Pid::from_raw(pid as i32).unwrap();
                        kill_process(pid, Signal::KILL).unwrap();
                    }
                    written.store(turn + 1, Ordering::SeqCst);
                }
            });
        }
    });
    let written = written.load(Ordering::SeqCst);
    println!("{written} records were written by the mount that was killed");
    assert!(written < RECORDS && rig.told("parts_granted") >= 3);
    // Another of its records is of this file only if it was written.
    let file = File::open(rig.mounts[1].join("hard")).unwrap();
    let mut bytes = vec![0; RECORD];
    for number in 0..3 * RECORDS {
        let (turn, of) = (number / 3, number % 3);
        if of == 0 && turn > written {
            continue;
        }
        file.read_exact_at(&mut bytes, offset(number)).unwrap();
        if of > 0 || turn < SYNCED {
            assert!(bytes == record(number), "record {number}");
        } else {
            // Some of it may be there, also a half that lies in one object.
            let all = record(number);
            let right = bytes.iter().zip(&all).all(|(is, was)| is == was || *is == 0);
            assert!(right, "record {number} has other bytes");
        }
    }
    drop(file);
    let gone = rig.mounts.remove(0);
    until("the dead mount goes", || {
        let tried = Command::new("umount").arg("-l").arg(&gone).output().unwrap();
        tried.status.success() || fs::metadata(gone.join("hard")).is_ok_and(|_| false)
    });
    rig.cluster.mounts.retain(|mount| *mount != gone);
    let Rig { cluster, servers, .. } = rig;
    cluster.finish(servers);
}
