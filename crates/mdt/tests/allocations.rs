//! The hot operations of an MDT allocate nothing of their own, once its buffers have their
//! size. Changes fill memtables, which take memory in blocks, each for thousands of
//! operations; that those are used again after a checkpoint is `sateen-osd`'s test.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::alloc::System;

use bytes::Bytes;
use sateen_mdt::{Mdt, MdtConfig};
use sateen_osd::{Store, StoreLimits};
use sateen_target::{CoreConfig, Effect, Outbox, Service};
use sateen_types::{ClientId, Endpoint, Fid, Name, Seq, Timestamp};
use sateen_wire::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENT: ClientId = ClientId(1);
const FLUSH_EVERY: u64 = 1000;
/// Files of a round.
const FILES: u32 = 10_000;
/// Blocks of keys and of values that the changes of a round may fill.
const BLOCKS_MAX: usize = 6;
/// Group commits of a round, each of which may make a list of OSTs to talk to.
const COMMITS: usize = FILES as usize / FLUSH_EVERY as usize + 1;

struct World {
    mdt: Mdt,
    out: Outbox,
    now: Timestamp,
    generation: u32,
    seq: u64,
    answer: Option<Reply>,
}

impl World {
    fn new() -> World {
        let config = CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 5, hash_key: 42 };
        let store = Store::new(1, 0, StoreLimits::default());
        let (now, mut out) = (Timestamp { mono_ns: 1, wall_ns: 1 }, Outbox::new());
        let mdt = Mdt::new(config, store, MdtConfig::new(0, 0..4), now, &mut out);
        let mut world = World { mdt, out, now, generation: 0, seq: 0, answer: None };
        world.send(1, Request::Connect { features: 0 });
        world
    }

    fn send(&mut self, seq: u64, request: Request) {
        let header = Header {
            generation: self.generation,
            seq,
            ..Header::between(Endpoint::Client(CLIENT), Endpoint::Mdt(0), CLIENT)
        };
        let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
        self.mdt.on_message(self.now, message, &mut self.out);
        self.effects();
    }

    fn effects(&mut self) {
        let mut flush = false;
        for effect in self.out.drain() {
            match effect {
                Effect::Send(Message { body: Body::Reply(reply), .. }) => {
                    if let ReplyBody::Connected { generation, .. } = reply.body {
                        self.generation = generation;
                    }
                    self.answer = Some(reply);
                }
                Effect::Flush => flush = true,
                // Nobody plays the OSTs.
                Effect::Send(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if flush {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.now.mono_ns += 5_000_000;
        self.now.wall_ns += 5_000_000;
        if let Some(flush) = self.mdt.store().begin_flush() {
            self.mdt.store().flush_done(flush);
            self.mdt.on_flushed(self.now, &mut self.out);
        }
        self.effects();
    }

    fn call(&mut self, request: MdtRequest) -> &Reply {
        self.seq += 1;
        self.send(self.seq, Request::Mdt(request));
        if self.seq.is_multiple_of(FLUSH_EVERY) {
            self.flush();
        }
        let reply = self.answer.as_ref().unwrap();
        assert_eq!(reply.error, None);
        reply
    }

    /// Allocations of one request for each file.
    fn count(&mut self, request: impl Fn(u32) -> MdtRequest) -> usize {
        let heap = Region::new(HEAP);
        for file in 1..=FILES {
            self.call(request(file));
        }
        let change = heap.change();
        change.allocations + change.reallocations
    }
}

/// One test, because the heap is everybody's. The harness's own thread has something to note when
/// it has started the test, and again after a minute: what the operations allocate they allocate
/// in every round.
#[test]
fn hot_operations_allocate_nothing() {
    let mut world = World::new();
    let mut fewest = [("", usize::MAX); 4];
    for round in 0..4 {
        let ReplyBody::Mdt(MdtReply::Sequence(seq)) = world.call(MdtRequest::GrantSeq).body else {
            panic!("a sequence is granted")
        };
        let all = [
            ("create", world.count(|file| create(seq, round, file))),
            (
                "stat",
                world.count(|file| MdtRequest::GetAttr {
                    fid: Fid::new(seq, file),
                    want: Ibits::NONE,
                }),
            ),
            (
                "lookup",
                world.count(|file| MdtRequest::Lookup {
                    parent: Fid::ROOT,
                    name: name(round, file),
                    want_parent: Ibits::NONE,
                    want: Ibits::NONE,
                }),
            ),
            (
                "unlink",
                world.count(|file| MdtRequest::Unlink {
                    parent: Fid::ROOT,
                    name: name(round, file),
                    directory: false,
                }),
            ),
        ];
        println!("round {round}: {all:?} allocations in {FILES} operations each");
        // In the first round buffers get their size.
        if round > 0 {
            for (least, found) in fewest.iter_mut().zip(all) {
                *least = if found.1 < least.1 { found } else { *least };
            }
        }
    }
    for (what, allocations) in fewest {
        let changes = matches!(what, "create" | "unlink");
        let max = if changes { BLOCKS_MAX + COMMITS } else { 1 };
        assert!(allocations <= max, "{what} allocates: {allocations}");
    }
}

fn name(round: u32, file: u32) -> Name {
    let mut text = *b"file.________";
    let number = round << 24 | file;
    for (at, letter) in text[5..].iter_mut().enumerate() {
        *letter = b'a' + (number >> (4 * at) & 15) as u8;
    }
    Name::new(&text).unwrap()
}

fn create(seq: Seq, round: u32, file: u32) -> MdtRequest {
    MdtRequest::Create {
        parent: Fid::ROOT,
        name: name(round, file),
        fid: Fid::new(seq, file),
        mode: 0o100_644,
        rdev: 0,
        cred: Cred { uid: 1, gid: 1, umask: 0 },
        symlink: Bytes::new(),
        policy: None,
        open: None,
        open_id: OpenId { id: 0 },
        exclusive: true,
        want: Ibits::NONE,
    }
}
