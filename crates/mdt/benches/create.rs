//! How fast the MDT itself is: messages in, effects out, no network, no disk. Group commits
//! every 1000 operations go nowhere. Prints operations per second, microseconds and heap
//! allocations per operation, and ends with 1 if a create takes more than decision 0002 allows:
//! 5 us of a processor, making the request included, and no allocation.
//!
//! `cargo bench -p sateen-mdt -- [FILES]`

#![allow(missing_docs, reason = "a program")]

use std::alloc::System;
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use sateen_mdt::{Mdt, MdtConfig};
use sateen_osd::memory::MemoryIndex;
use sateen_osd::{Index, Prefetched, Store, StoreLimits};
use sateen_target::{CoreConfig, Effect, Outbox, Service};
use sateen_types::{ClientId, DirCookie, Endpoint, Fid, Name, Seq, Timestamp};
use sateen_wire::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENT: ClientId = ClientId(1);
const FLUSH_EVERY: u64 = 1000;
/// What a create may take, in microseconds of a processor.
const CPU_US_MAX: f64 = 5.0;
/// Its allocations: none but blocks and buffers that grow, for a thousand creates at once.
const ALLOCATIONS_MAX: f64 = 0.01;

struct Bench {
    mdt: Mdt,
    index: MemoryIndex,
    out: Outbox,
    now: Timestamp,
    generation: u32,
    seq: u64,
    answer: Option<Reply>,
    failed: u64,
}

fn config() -> CoreConfig {
    CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 5, hash_key: 42 }
}

impl Bench {
    fn new() -> Bench {
        let mut out = Outbox::new();
        let now = Timestamp { mono_ns: 1, wall_ns: 1 };
        let store = Store::new(1, 0, StoreLimits::default());
        let mdt = Mdt::new(config(), store, MdtConfig::new(0, 0..4), now, &mut out);
        let index = MemoryIndex::default();
        let mut bench =
            Bench { mdt, index, out, now, generation: 0, seq: 0, answer: None, failed: 0 };
        bench.send(1, Request::Connect { features: 0 });
        bench
    }

    fn send(&mut self, seq: u64, request: Request) {
        let header = Header {
            generation: self.generation,
            seq,
            ..Header::between(Endpoint::Client(CLIENT), Endpoint::Mdt(0), CLIENT)
        };
        self.answer = None;
        let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
        self.mdt.on_message(self.now, message, &mut self.out);
        self.effects();
    }

    fn effects(&mut self) {
        loop {
            let mut again = Vec::new();
            for effect in self.out.drain() {
                match effect {
                    Effect::Send(message) => {
                        let Body::Reply(reply) = message.body else { continue };
                        if let ReplyBody::Connected { generation, .. } = reply.body {
                            self.generation = generation;
                        }
                        self.failed += u64::from(reply.error.is_some());
                        self.answer = Some(reply);
                    }
                    other => again.push(other),
                }
            }
            if again.is_empty() {
                return;
            }
            for effect in again {
                match effect {
                    Effect::Prefetch { id, wants, generation } => {
                        let view = Prefetched::read(&self.index, &wants, generation);
                        let view = view.expect("memory does not fail");
                        self.mdt.on_prefetched(self.now, id, view, &mut self.out);
                    }
                    Effect::Flush => self.flush(),
                    _ => {}
                }
            }
        }
    }

    fn flush(&mut self) {
        self.now.mono_ns += 5_000_000;
        self.now.wall_ns += 5_000_000;
        if let Some(flush) = self.mdt.store().begin_flush() {
            self.mdt.store().flush_done(flush);
            self.mdt.on_flushed(self.now, &mut self.out);
        }
    }

    fn checkpoint(&mut self) {
        self.flush();
        if let Some(checkpoint) = self.mdt.store().begin_checkpoint() {
            let written = self.index.checkpoint(&checkpoint.table, checkpoint.upto);
            written.expect("memory does not fail");
            self.mdt.store().checkpoint_done();
            self.mdt.store().drop_cache();
        }
    }

    fn call(&mut self, request: MdtRequest) {
        self.seq += 1;
        self.send(self.seq, Request::Mdt(request));
        if self.seq.is_multiple_of(FLUSH_EVERY) {
            self.flush();
            self.effects();
        }
    }

    fn sequence(&mut self) -> Seq {
        self.call(MdtRequest::GrantSeq);
        let Some(Reply { body: ReplyBody::Mdt(MdtReply::Sequence(seq)), .. }) = self.answer else {
            unreachable!("a sequence is granted")
        };
        seq
    }

    /// Runs `count` requests and prints what they took; microseconds of a processor and
    /// allocations of each. `fails`: each of them is expected to.
    fn run(
        &mut self,
        what: &str,
        count: u32,
        fails: bool,
        make: impl Fn(u32) -> MdtRequest,
    ) -> (f64, f64) {
        self.failed = 0;
        let heap = Region::new(HEAP);
        let (start, cpu_start) = (Instant::now(), cpu_us());
        for i in 0..count {
            self.call(make(i));
            black_box(&self.answer);
        }
        let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_us() - cpu_start);
        let heap = heap.change();
        let count = f64::from(count);
        let allocations = heap.allocations as f64 / count;
        println!(
            "{what:<34} {:>9.0} ops/s {:>7.2} us {allocations:>7.2} allocations",
            count / took,
            took * 1e6 / count,
        );
        assert_eq!(self.failed, if fails { count as u64 } else { 0 }, "{what}");
        (cpu / count, allocations)
    }
}

fn cpu_us() -> f64 {
    sateen_testkit::processor_time().as_secs_f64() * 1e6
}

/// Without an allocation, which would be counted as one of the MDT's.
fn name(i: u32) -> Name {
    let mut bytes = [0; 16];
    let mut rest = bytes.as_mut_slice();
    write!(rest, "file.{i}").expect("15 bytes at most");
    let left = rest.len();
    Name::new(bytes.get(..bytes.len() - left).unwrap_or_default()).expect("a name")
}

fn create(fid: Fid, i: u32, open: bool, want: Ibits) -> MdtRequest {
    MdtRequest::Create {
        parent: Fid::ROOT,
        name: name(i),
        fid,
        mode: 0o100_644,
        rdev: 0,
        cred: Cred { uid: 1, gid: 1, umask: 0 },
        symlink: Bytes::new(),
        policy: None,
        open: open.then_some(OpenFlags { write: true, truncate: false, exec: false }),
        open_id: OpenId { id: i.into() },
        exclusive: true,
        want,
    }
}

fn main() -> ExitCode {
    let files = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000u32);
    let mut bench = Bench::new();
    let seqs: Vec<Seq> = (0..=files / 131_000).map(|_| bench.sequence()).collect();
    let fid = |i: u32| {
        let seq = seqs.get((i / 131_000) as usize).copied().unwrap_or_default();
        Fid::new(seq, i % 131_000 + 1)
    };
    // What making the request itself costs is part of no figure of the MDT.
    let start = Instant::now();
    for i in 0..files {
        black_box(create(fid(i), i, true, Ibits::NONE));
    }
    let request = start.elapsed().as_secs_f64() * 1e6 / f64::from(files);
    println!("{:<34} {:>15} {request:>7.2} us (in each figure of a name)", "making a request", "");

    let all = Ibits::META.union(Ibits::DATA);
    let lookup = |i| MdtRequest::Lookup {
        parent: Fid::ROOT,
        name: name(i),
        want_parent: Ibits::NONE,
        want: Ibits::NONE,
    };
    let unlink = |i| MdtRequest::Unlink { parent: Fid::ROOT, name: name(i), directory: false };
    let (cpu_us, allocations) =
        bench.run("create", files, false, |i| create(fid(i), i, false, Ibits::NONE));
    bench.run("stat", files, false, |i| MdtRequest::GetAttr { fid: fid(i), want: Ibits::NONE });
    bench.run("stat with lock", files, false, |i| MdtRequest::GetAttr { fid: fid(i), want: all });
    bench.run("lookup", files, false, lookup);
    bench.run("lookup, no such name", files, true, |i| lookup(i + files));
    bench.run("unlink", files, false, unlink);

    let mut bench = Bench::new();
    let seqs: Vec<Seq> = (0..=files / 131_000).map(|_| bench.sequence()).collect();
    let fid = |i: u32| {
        let seq = seqs.get((i / 131_000) as usize).copied().unwrap_or_default();
        Fid::new(seq, i % 131_000 + 1)
    };
    bench.run("create, opened and with locks", files, false, |i| create(fid(i), i, true, all));
    bench.run("close after writing", files, false, |i| MdtRequest::Close {
        fid: fid(i),
        open_id: OpenId { id: i.into() },
        report: Some(SizeReport {
            size: 4096,
            blocks: 8,
            mtime: Some(Timestamp::default().wall()),
            atime: None,
        }),
    });
    bench.checkpoint();
    bench.run("stat, from the index", files, false, |i| MdtRequest::GetAttr {
        fid: fid(i),
        want: Ibits::NONE,
    });
    bench.mdt.store().drop_cache();
    let start = Instant::now();
    let mut after = DirCookie::START;
    let mut listed = 0;
    loop {
        bench.call(MdtRequest::ReadDir { fid: Fid::ROOT, after, count: 1000, plus: true });
        let Some(Reply { body: ReplyBody::Mdt(MdtReply::Entries { entries, end, .. }), .. }) =
            &bench.answer
        else {
            unreachable!("a page of entries")
        };
        listed += entries.len();
        after = entries.last().map_or(after, |entry| entry.cookie);
        if *end {
            break;
        }
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / listed as f64;
    println!("{:<34} {listed:>9} names {each:>6.2} us", "readdir plus, from the index");
    bench.mdt.store().drop_cache();
    bench.run("unlink, from the index", files, false, unlink);
    let passes = cpu_us < CPU_US_MAX && allocations < ALLOCATIONS_MAX;
    let verdict = if passes { "PASS" } else { "FAIL" };
    println!(
        "{verdict}: a create takes {cpu_us:.2} us of a processor, of {CPU_US_MAX}, and \
         {allocations:.3} allocations, of {ALLOCATIONS_MAX}"
    );
    if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
