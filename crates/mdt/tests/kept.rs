//! What an MDT keeps of files that are gone: nothing. Files come and go, all that was changed is
//! checkpointed and dropped from memory, and what is left of the heap is counted for each file.
//!
//! A leak of some bytes a file, which shows in a process only after hours, among caches that fill,
//! shows here at once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

#[path = "mdt/harness.rs"]
#[allow(dead_code, unreachable_pub, reason = "what the other tests need")]
mod harness;

use std::alloc::System;

use harness::{A, ROOT, World, report};
use sateen_wire::{Ibits, MdtReply, ReplyBody};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Files of a round.
const FILES: usize = 2000;
/// Rounds in which tables and buffers get their size, and as many that are looked at: a table that
/// grows by the file doubles at least once in these.
const ROUNDS: usize = 4;
/// Bytes for each file: what the harness notes, or a buffer that grows once more.
const KEPT_MAX: usize = 10;

fn live() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Files are made, written, closed and removed; some are there at any time.
fn come_and_go(world: &mut World, round: usize) {
    for number in 0..FILES {
        let name = format!("file.{round}.{number}");
        let (reply, open_id) = world.creat(A, ROOT, &name, Ibits::META.union(Ibits::DATA));
        let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else {
            panic!("{reply:?}")
        };
        world.close(A, attr.fid, open_id, Some(report(4096, true)));
        world.ok(A, World::unlink_request(ROOT, &name, false));
    }
    world.rest();
    world.checkpoint();
    world.forget();
}

/// One test, because the heap is everybody's.
#[test]
fn nothing_is_kept_of_files_that_are_gone() {
    let mut world = World::with_clients(2);
    for round in 0..ROUNDS {
        come_and_go(&mut world, round);
    }
    let before = live();
    for round in ROUNDS..2 * ROUNDS {
        come_and_go(&mut world, round);
    }
    let (kept, files) = (live().saturating_sub(before), ROUNDS * FILES);
    println!("shown: {kept} bytes are kept of {files} files that are gone");
    assert!(kept <= KEPT_MAX * files, "{kept} bytes are kept of {files} files that are gone");
}
