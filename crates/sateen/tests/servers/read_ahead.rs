//! What is read ahead of a program is found, and is never older than what another mount has written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder};

use crate::{BINARY, as_program, set_param};

const MIB: u64 = 1 << 20;
const RECORD: usize = 64 << 10;
const RECORDS: u64 = 48;
const PAGE: u64 = 4096;

/// What a mount counts of its read-ahead.
fn counts(mount: &Path, name: &str) -> u64 {
    let mut lctl = as_program("lctl");
    let text = ok(lctl.arg("--data").arg(run_folder(mount)).args([
        "get_param",
        "-n",
        "llite.*.read_ahead_stats",
    ]));
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn record(number: u64, turn: u64) -> Vec<u8> {
    let mut bytes = vec![turn as u8; RECORD];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[RECORD - 8..].copy_from_slice(&turn.to_le_bytes());
    bytes
}

/// Reads the records of `numbers` one after the other, each of which was written in its turn.
fn reads(file: &File, numbers: impl Iterator<Item = u64>, turns: &[u64]) {
    let mut bytes = vec![0; RECORD];
    for number in numbers {
        file.read_exact_at(&mut bytes, number * MIB).unwrap();
        assert!(bytes == record(number, turns[number as usize]), "record {number}");
    }
}

#[test]
fn who_reads_by_steps_finds_what_is_next_and_what_another_mount_wrote() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "read_ahead");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let writes = File::create_new(here.join("file")).unwrap();
    let mut turns = vec![0; RECORDS as usize];
    let write =
        |number: u64, turn| writes.write_all_at(&record(number, turn), number * MIB).unwrap();
    (0..RECORDS).for_each(|number| write(number, 0));
    writes.sync_all().unwrap();
    // Also where an answer takes no time.
    set_param(&run_folder(&there), "llite.*.read_ahead_slow_us=0");

    let file = File::open(there.join("file")).unwrap();
    reads(&file, 0..RECORDS, &turns);
    let pages = RECORDS * RECORD as u64 / PAGE;
    let hits = counts(&there, "hits");
    assert!(hits > pages / 2, "{hits} of {pages}");
    // From behind as well; and what is written ahead of the reader is what he reads.
    for turn in 1..=12 {
        for (stops, backward) in [(30, false), (20, true)] {
            let before = counts(&there, "hits");
            let order = |number| if backward { RECORDS - 1 - number } else { number };
            reads(&file, (0..stops).map(order), &turns);
            for number in [stops, stops + 1, stops + 5].map(order) {
                turns[number as usize] = turn;
                write(number, turn);
                reads(&file, [number].into_iter(), &turns);
            }
            reads(&file, (stops..RECORDS).map(order), &turns);
            assert!(counts(&there, "hits") > before, "turn {turn}, backward {backward}");
        }
    }
    set_param(&run_folder(&there), "llite.*.read_ahead_stats=clear");
    set_param(&run_folder(&there), "llite.*.max_read_ahead_mb=0");
    // Somebody writes, so that the kernel has nothing.
    write(0, 0);
    turns[0] = 0;
    reads(&file, 0..RECORDS, &turns);
    assert_eq!(counts(&there, "hits"), 0);
    drop((file, writes));
    cluster.finish([oss, mds]);
}

/// A program that changes what it reads by steps finds what it wrote.
#[test]
fn who_writes_what_he_reads_by_steps_finds_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "read_ahead2");
    let (mds, oss) = cluster.start();
    let here = cluster.mount("here");
    let path = here.join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut turns = vec![0; RECORDS as usize];
    for number in 0..RECORDS {
        file.write_all_at(&record(number, 0), number * MIB).unwrap();
    }
    file.sync_all().unwrap();
    set_param(&run_folder(&here), "llite.*.read_ahead_slow_us=0");
    for turn in 1..6 {
        for number in 0..RECORDS {
            reads(&file, [number].into_iter(), &turns);
            // Sometimes what is read next, sometimes what was read.
            let written = if number % 5 == 0 { (number + turn) % RECORDS } else { number };
            turns[written as usize] = turn;
            file.write_all_at(&record(written, turn), written * MIB).unwrap();
        }
    }
    assert!(counts(&here, "hits") > 0);
    file.set_len(MIB).unwrap();
    file.set_len(RECORDS * MIB).unwrap();
    let mut bytes = vec![1; RECORD];
    for number in 1..RECORDS {
        file.read_exact_at(&mut bytes, number * MIB).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "record {number}");
    }
    drop(file);
    cluster.finish([oss, mds]);
}
