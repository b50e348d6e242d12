//! Very many files: a directory that is read while others change it, what servers and mounts
//! take of memory for it at any moment, and that they keep nothing of what is gone.
//!
//! `FILES` in the directory; `SECONDS_LONG` of making and removing. In CI both are small, and
//! the limits with them; `scripts/test-long.sh` has the million and the hour. In CI's seconds the
//! caches of servers only fill, so that no leak shows beside them: what an MDT keeps of each file
//! that is gone `sateen-mdt`'s test `kept` counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{RawDir, SeekFrom, seek};
use sateen_testkit::cluster::{Cluster, peak_mib, resident_mib};
use sateen_testkit::random::Random;
use sateen_testkit::{can_mount, env_number};

use crate::BINARY;

const FILES: u64 = 20_000;
const SECONDS_LONG: u64 = 20;
/// So many threads make the files: each waits for the disk before it writes the first byte.
const MAKERS: u64 = 8;
/// What a process may take before there is any file; and the two rings of 2 MiB of each connection
/// over shared memory, of which it has half a dozen at most.
const EMPTY_MIB_MAX: u64 = 60 + 6 * 4;
/// For each file, until a server's caches are full; then it stays below so much, whatever there is:
/// also with a million files.
const SERVER_FILE_BYTES: u64 = 1200;
const SERVER_MIB_MAX: u64 = 600;
/// For each file that a mount may know, and how many that are: one that has made or walked a
/// million stays below 300 MiB.
const MOUNT_FILE_BYTES: u64 = 1250;
const MOUNT_FILES_MAX: u64 = 200_000;
/// For each file that it makes as long as it keeps what was written, and of two OSTs at most. That
/// is what was seen (up to 1.8 KiB), with room: a piece and a file count 1.3 KiB together
/// (`client/src/dirty/overhead.rs`), which is estimated.
const KEPT_FILE_BYTES: u64 = 3000;
const KEPT_MIB_MAX: u64 = 64;
/// What a process takes at most with its caches full: an MDT's table in memory, the frames and
/// the blocks that it keeps (48, 32 and 96 MiB).
const FULL_MIB_MAX: u64 = 240;
/// The same of two OSTs in one process: 8 MiB for a table, and as much for the one that is being
/// written, 4 and 8 MiB each, with what writes have in flight.
const OSTS_FULL_MIB_MAX: u64 = 110;
/// What is written into each file that comes and goes, so that OSTs have their part.
const CONTENT: [u8; 4096] = [7; 4096];
/// Growth from the second to the last quarter of making and removing, of each quarter the lowest: a
/// checkpoint takes some for a moment, and a quarter of an hour has several.
const GROWTH_MIB_MAX: u64 = 16;
/// More is no leak as long as caches fill: what an MDT (with its MGS), two OSTs and a mount have
/// when theirs are full, between checkpoints, beside the 30 MiB that one without files takes. An
/// MDT's blocks are those of tables that are gone by now, which nothing drops but newer ones: an
/// hour does not fill their 96 MiB. A mount keeps what it has written where OSTs take longer than
/// programs (as where the file system below has no journal: ext4 then looks at each inode that was
/// free within the last minute before it takes one), 64 MiB of two OSTs, and each file that is being
/// written out has a task, 8 KiB in all.
const CACHES_MIB: [u64; 3] = [48 + 32 + 96 + 30, 2 * (8 + 4 + 8) + 30, 64 + 96 + 30];
/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_millis(200);
/// Files that come and go at any time.
const PASSING: usize = 200;
/// Places in the directory that are sought again later.
const PLACES: usize = 50;

fn name(number: u64) -> String {
    format!("file.{number:07}")
}

/// The number of a file that stays.
fn number(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name).ok()?.strip_prefix("file.")?.parse().ok()
}

fn make(dir: &Path, files: u64) {
    thread::scope(|scope| {
        for maker in 0..MAKERS {
            scope.spawn(move || {
                for number in (maker..files).step_by(MAKERS as usize) {
                    let mut file = File::create_new(dir.join(name(number))).unwrap();
                    // OSTs have as many objects as there are files.
                    file.write_all(b"x").unwrap();
                }
            });
        }
    });
}

/// Makes and removes files until told to stop; how many.
fn pass(dir: &Path, seed: u64, content: &[u8], stop: &AtomicBool) -> u64 {
    let mut random = Random::new(seed);
    let mut there: Vec<u64> = Vec::new();
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        if there.len() == PASSING {
            let gone = there.swap_remove(random.below(PASSING as u64) as usize);
            fs::remove_file(dir.join(format!("passing.{gone}"))).unwrap();
        }
        let mut file = File::create_new(dir.join(format!("passing.{made}"))).unwrap();
        file.write_all(content).unwrap();
        there.push(made);
        made += 1;
    }
    for gone in there {
        fs::remove_file(dir.join(format!("passing.{gone}"))).unwrap();
    }
    made
}

/// The numbers of the files that stay from where the directory's descriptor is, at most so
/// many, each with the place behind it.
fn read_on(dir: &File, at_most: usize) -> Vec<(u64, u64)> {
    let mut room = vec![MaybeUninit::uninit(); 32 << 10];
    let mut raw = RawDir::new(dir, &mut room);
    let mut found = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = entry.unwrap();
        if let Some(number) = number(entry.file_name().to_bytes()) {
            found.push((number, entry.next_entry_cookie()));
            if found.len() == at_most {
                break;
            }
        }
    }
    found
}

/// Reads the directory while it changes: who stays is there once, and a place remains where it
/// was (`telldir`, `seekdir`).
fn read_and_seek(dir: &Path, files: u64) {
    let handle = File::open(dir).unwrap();
    let all = read_on(&handle, usize::MAX);
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for (number, _) in &all {
        *times.entry(*number).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "some came twice");
    assert_eq!(times.len() as u64, files, "some never came");
    let mut random = Random::new(files);
    for _ in 0..PLACES {
        let at = random.below(all.len() as u64 - 1) as usize;
        seek(&handle, SeekFrom::Start(all[at].1)).unwrap();
        let next = read_on(&handle, 1);
        assert_eq!(next[0].0, all[at + 1].0, "after entry {at}");
    }
}

#[test]
fn a_directory_of_many_files_is_read_while_it_changes() {
    if !can_mount() {
        return;
    }
    let files = env_number("FILES", FILES);
    let mut cluster = Cluster::new(BINARY, "many");
    let (mds, oss) = cluster.start();
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let dir = a.join("dir");
    fs::create_dir(&dir).unwrap();
    let started = Instant::now();
    make(&dir, files);
    let made = started.elapsed();
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let passed = thread::scope(|scope| {
        let passing = scope.spawn(|| pass(&dir, files, b"x", &stop));
        // A panic must not leave the other running for ever.
        let read = scope.spawn(|| read_and_seek(&b.join("dir"), files)).join();
        stop.store(true, Ordering::Relaxed);
        let passed = passing.join().unwrap();
        read.map(|()| passed).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let read = started.elapsed();
    let started = Instant::now();
    for number in 0..files {
        assert_eq!(fs::metadata(b.join("dir").join(name(number))).unwrap().len(), 1);
    }
    println!(
        "shown: {files} files made in {made:.1?}, read in {read:.1?} while {passed} came and went, \
         looked at in {:.1?}",
        started.elapsed()
    );
    let server = (EMPTY_MIB_MAX + ((files * SERVER_FILE_BYTES) >> 20)).min(SERVER_MIB_MAX);
    let mount = EMPTY_MIB_MAX + ((files.min(MOUNT_FILES_MAX) * MOUNT_FILE_BYTES) >> 20);
    let kept = ((files * KEPT_FILE_BYTES) >> 20).min(KEPT_MIB_MAX);
    let sizes = [
        ("MGS and MDT", mds.pid().as_raw_nonzero().get() as u32, server),
        ("OSTs", oss.pid().as_raw_nonzero().get() as u32, server),
        ("the mount that made them", cluster.mount_pid(&a), mount + kept),
        ("the mount that walked them", cluster.mount_pid(&b), mount),
    ]
    .map(|(what, pid, limit)| (what, peak_mib(pid), resident_mib(pid), limit));
    let shown = sizes
        .map(|(what, peak, now, limit)| format!("{what} {peak} MiB of {limit}, {now} in the end"));
    println!("shown: memory with {files} files, at most: {}", shown.join("; "));
    for (what, peak, _, limit) in sizes {
        assert!(peak <= limit, "{what}: {peak} MiB, more than {limit}");
    }
    cluster.finish([oss, mds]);
}

#[test]
fn what_is_gone_takes_no_memory() {
    if !can_mount() {
        return;
    }
    let time = Duration::from_secs(env_number("SECONDS_LONG", SECONDS_LONG));
    let mut cluster = Cluster::new(BINARY, "gone");
    cluster.in_small_pages();
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("a");
    let pids = [&mds, &oss].map(|server| server.pid().as_raw_nonzero().get() as u32);
    let pids = [pids[0], pids[1], cluster.mount_pid(&mnt)];
    let stop = AtomicBool::new(false);
    let lowest_of_a_quarter = || {
        let mut lowest = pids.map(resident_mib);
        let started = Instant::now();
        while started.elapsed() < time / 4 {
            thread::sleep(SAMPLE);
            for (lowest, pid) in lowest.iter_mut().zip(pids) {
                *lowest = resident_mib(pid).min(*lowest);
            }
        }
        lowest
    };
    let (passed, quarters) = thread::scope(|scope| {
        let passing = scope.spawn(|| pass(&mnt, 1, &CONTENT, &stop));
        let quarters = [(); 4].map(|()| lowest_of_a_quarter());
        stop.store(true, Ordering::Relaxed);
        (passing.join().unwrap(), quarters)
    });
    let peaks = pids.map(peak_mib);
    println!(
        "shown: {passed} files made and removed in {} s; MGS and MDT, OSTs, mount: {quarters:?} MiB \
         at least in each quarter of it, {peaks:?} at most",
        time.as_secs()
    );
    let [_, early, _, late] = quarters;
    for ((early, late), full) in early.into_iter().zip(late).zip(CACHES_MIB) {
        assert!(late <= full.max(early + GROWTH_MIB_MAX), "it grows from {early} to {late} MiB");
    }
    let limits = [FULL_MIB_MAX, OSTS_FULL_MIB_MAX, FULL_MIB_MAX];
    let within = peaks.iter().zip(limits).all(|(peak, limit)| *peak <= limit);
    assert!(within, "{peaks:?} MiB at most, of {limits:?}");
    cluster.finish([oss, mds]);
}
