//! kill -9 of the whole file system under load, again and again: nothing that was synced is
//! lost, nothing else is there than was written, and `fsck` finds nothing. `ROUNDS` rounds;
//! `SEED` repeats what is done, though not the moment of the kill. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::fs;

use sateen_testkit::program::Program;
use sateen_testkit::{can_mount, rounds::Rounds};

#[test]
fn nothing_synced_is_lost_when_the_process_is_killed() {
    if !can_mount() {
        return;
    }
    Rounds::new(env!("CARGO_BIN_EXE_sateen"), "kill9").run().unwrap();
}

/// Each start begins a segment of the journal, and only a checkpoint gives them back. Where there
/// is room for no other, a file system must start all the same.
#[test]
fn starts_after_kills_do_not_fill_the_disk() {
    const STARTS: usize = 8;
    /// Those that may wait for a checkpoint, the one in use, and one that is made ahead.
    const SEGMENTS_MAX: usize = 6;
    if !can_mount() {
        return;
    }
    let program = Program::new(env!("CARGO_BIN_EXE_sateen"), "starts", 1, &[]).unwrap();
    let mut most = 0;
    for start in 0..STARTS {
        program.up().unwrap();
        for before in 0..start {
            assert_eq!(fs::read(program.mnt().join(format!("f{before}"))).unwrap(), b"synced");
        }
        let path = program.mnt().join(format!("f{start}"));
        fs::write(&path, b"synced").unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        program.kill(program.pid().unwrap(), || ()).unwrap();
        let journal = program.scratch().join("disk/data/mdt0000/journal");
        most = most.max(fs::read_dir(journal).unwrap().count());
    }
    assert!((3..=SEGMENTS_MAX).contains(&most), "{most} segments");
    program.fsck().unwrap();
}
