//! What a lock takes of a server's memory: no more than the bounds of a table count for it, with the
//! vectors and tables at their worst, when they have just grown.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::alloc::System;

use sateen_ldlm::{LOCK_BYTES, LockTable};
use sateen_types::{ClientId, Fid, Seq};
use sateen_wire::{Ibits, LockMode};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes in use beside what was when the region began.
fn used(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

#[test]
fn a_lock_takes_what_is_counted_for_it() {
    let region = Region::new(HEAP);
    let mut table = LockTable::new();
    let (mut most, mut all) = (0, 0);
    for oid in 0..1_200_000u32 {
        let fid = Fid::new(Seq(0x2_0000_0400 + u64::from(oid >> 16)), oid & 0xffff);
        table.try_grant(ClientId(1), fid, LockMode::Pr, Ibits::META).unwrap();
        all += 1;
        if all > 100_000 {
            most = most.max(used(&region) / all);
        }
    }
    println!("a lock on an inode of its own: {} bytes, {most} at most", used(&region) / all);
    assert!(most <= usize::try_from(LOCK_BYTES).unwrap(), "{most}");
    for oid in 0..1_200_000u32 {
        let fid = Fid::new(Seq(0x2_0000_0400 + u64::from(oid >> 16)), oid & 0xffff);
        table.try_grant(ClientId(1), fid, LockMode::Pr, Ibits::DATA).unwrap();
        all += 1;
    }
    println!("two locks on each inode: {} bytes for each", used(&region) / all);
    assert!(used(&region) / all <= usize::try_from(LOCK_BYTES).unwrap());
}
