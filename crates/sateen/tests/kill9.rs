//! kill -9 of the whole file system under load, again and again: nothing that was synced is
//! lost, nothing else is there than was written, and `fsck` finds nothing. `ROUNDS` rounds;
//! `SEED` repeats what is done, though not the moment of the kill. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use sateen_testkit::{can_mount, rounds::Rounds};

#[test]
fn nothing_synced_is_lost_when_the_process_is_killed() {
    if !can_mount() {
        return;
    }
    Rounds::new(env!("CARGO_BIN_EXE_sateen"), "kill9").run().unwrap();
}
