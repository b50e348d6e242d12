//! What a client keeps of a file that its kernel has looked at, in bytes: the inode, and the locks on
//! its names and attributes and on its data.
//!
//! `SATEEN_INODES=4000000 cargo test --release -p sateen-client --test inodes -- --nocapture` looks at
//! so many.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "this is a test")]
#![allow(dead_code, reason = "the other tests need more of their surroundings")]

use std::alloc::System;

use sateen_client::Client;
use sateen_types::{Attr, Endpoint, Fid, Seq};
use sateen_wire::{Grant, Ibits, LockId, LockMode, MdtReply, MdtRequest, Request};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[path = "client/rig.rs"]
mod rig;

use rig::{Rig, attr, reply};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes of an inode with two locks, and of its place in the table.
const BYTES_MAX: usize = 450;

fn fid(n: u32) -> Fid {
    Fid::new(Seq(0x2_0000_0400 + u64::from(n >> 16)), n & 0xffff)
}

/// The kernel looks a name up, and keeps what it is told.
fn look(rig: &Rig, n: u32) {
    let client = rig.client.clone();
    let name = n.to_string();
    let mut verb = rig.start(async move { client.lookup(Fid::ROOT, name.as_bytes()).await });
    let (header, request) = rig.take_request();
    assert!(matches!(request, Request::Mdt(MdtRequest::Lookup { .. })), "{request:?}");
    let grant = |id, bits| Grant { id: LockId(id), fid: fid(n), mode: LockMode::Pr, bits };
    let locks =
        [(0, Ibits::META), (1, Ibits::DATA)].map(|(id, bits)| grant(2 * u64::from(n) + id, bits));
    let attr = Attr { fid: fid(n), ..attr(1, 0) };
    rig.answer(&header, reply(MdtReply::Inode { attr }, &locks));
    let entry = rig.poll(&mut verb).unwrap().unwrap();
    assert!(rig.client.introduce_entry(entry).held || entry.inode.unwrap().held);
}

/// What this process has in memory, if that can be known here.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib * 1024)
}

#[test]
fn an_inode_with_its_locks_is_small() {
    let count: u32 =
        std::env::var("SATEEN_INODES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let rig = Rig::mounted();
    Client::set_inodes_max(&rig.client, 100_000_000);
    look(&rig, 0);
    let (region, before) = (Region::new(HEAP), resident());
    for n in 1..=count {
        look(&rig, n);
    }
    let change = region.change();
    let each = (change.bytes_allocated - change.bytes_deallocated) / count as usize;
    let locks = rig.client.lru_info(Endpoint::Mdt(0)).unwrap().locks;
    assert_eq!(locks, 2 * (count as usize + 1));
    println!("{count} files, {locks} locks: {each} bytes for each file");
    if let (Some(before), Some(after)) = (before, resident()) {
        let more = after.saturating_sub(before);
        println!("in memory: {} MiB, {} bytes for each file", more >> 20, more / count as usize);
    }
    assert!(each <= BYTES_MAX, "{each}");
}
