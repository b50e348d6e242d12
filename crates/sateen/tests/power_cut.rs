//! The power is cut under load, again and again, on a disk that forgets everything that was
//! not synced, names included: nothing that was synced on the mount is lost, nothing else is
//! there than was written, and `fsck` finds nothing. `ROUNDS` rounds; `SEED` repeats what is
//! done, though not the moment of the cut. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use sateen_testkit::{can_mount, rounds::Rounds};

#[test]
fn nothing_synced_is_lost_when_the_power_is_cut() {
    if !can_mount() {
        return;
    }
    Rounds::new(env!("CARGO_BIN_EXE_sateen"), "power").with_power_cuts().run().unwrap();
}
