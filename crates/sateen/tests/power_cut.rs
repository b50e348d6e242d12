//! The power is cut under load, again and again, on a disk that forgets everything that was
//! not synced, names included: nothing that was synced on the mount is lost, nothing else is
//! there than was written, and `fsck` finds nothing. `ROUNDS` rounds; `SEED` repeats what is
//! done, though not the moment of the cut. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::fs;

use sateen_testkit::forgetfs::Loss;
use sateen_testkit::program::Program;
use sateen_testkit::{can_mount, rounds::Rounds};

#[test]
fn nothing_synced_is_lost_when_the_power_is_cut() {
    if !can_mount() {
        return;
    }
    Rounds::new(env!("CARGO_BIN_EXE_sateen"), "power").with_power_cuts().run().unwrap();
}

/// What a stop in good order leaves needs no luck either: the checkpoint, which takes the
/// journal's place, is durable with every name above it.
#[test]
fn nothing_is_lost_after_a_stop_in_good_order() {
    if !can_mount() {
        return;
    }
    let mut program = Program::new(env!("CARGO_BIN_EXE_sateen"), "stop", 1, &[]).unwrap();
    program.forget().unwrap();
    for round in 0..2 {
        program.up().unwrap();
        let file = |number: u32| program.mnt().join(format!("file{number}"));
        for number in 0..round * 10 {
            assert!(fs::read(file(number)).unwrap() == [number as u8; 5000], "file {number}");
        }
        for number in round * 10..(round + 1) * 10 {
            fs::write(file(number), [number as u8; 5000]).unwrap();
            fs::File::open(file(number)).unwrap().sync_all().unwrap();
        }
        program.down().unwrap();
        program.cut_power(Loss::All).unwrap();
        program.fsck().unwrap();
    }
}
