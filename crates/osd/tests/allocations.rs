//! Memtables that take turns allocate nothing: what one has given up the other one fills.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::alloc::System;

use sateen_osd::{Batch, Key, Store, StoreLimits};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn commits_allocate_nothing_once_both_memtables_were_full() {
    const COMMITS: u64 = 50_000;
    let mut store = Store::new(1, 0, StoreLimits::default());
    let mut batch = Batch::new();
    for round in 0..5 {
        let heap = Region::new(HEAP);
        for n in 0..COMMITS {
            // A name in the order of its hash, an inode in the order of its number, and
            // something that is gone.
            let number = round * COMMITS + n;
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            batch.clear();
            batch.put_with(&Key::tag(b'e').with(&hash.to_be_bytes()), |out| out.extend([1; 45]));
            batch.put_with(&Key::tag(b'i').with(&number.to_be_bytes()), |out| out.extend([2; 110]));
            batch.remove(&Key::tag(b'g').with(&number.to_be_bytes()));
            store.commit(&batch);
            if n % 100 == 99 {
                let flush = store.begin_flush().unwrap();
                store.flush_done(flush);
            }
        }
        let change = heap.change();
        println!("round {round}: {change:?}");
        if round >= 2 {
            assert_eq!((change.allocations, change.reallocations), (0, 0), "round {round}");
        }
        let checkpoint = store.begin_checkpoint().unwrap();
        assert_eq!(checkpoint.table.len() as u64, 3 * COMMITS);
        drop(checkpoint);
        store.checkpoint_done();
    }
}
