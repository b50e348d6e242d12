//! Between two operations the measuring loops allocate nothing: 100 000 of them take as many
//! allocations as one. What a loop makes once (a buffer of a record for fwrite and fread) may be.
//!
//! One exception: with `-c -D` ior's ranks agree after each transfer whether the stonewall was
//! reached, which allocates what they tell each other. It is another measurement then, of
//! transfers that are made together.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::alloc::System;
use std::path::Path;

use sateen_bench::comm::Solo;
use sateen_bench::engine::ior::{Access, Limits, Order, Plan, Transfer};
use sateen_bench::engine::iozone;
use sateen_bench::engine::mdtest::{Kind, Names, Operation, Shape, Work};
use sateen_bench::io::Null;
use sateen_bench::pattern::{Packet, Pattern};
use sateen_bench::stats::Latencies;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MANY: u64 = 100_000;
const BYTES: u64 = 4096;

/// Allocations of what is done.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(HEAP);
    work();
    let change = region.change();
    change.allocations + change.reallocations
}

fn ior(
    comm: &Solo,
    count: u64,
    access: Access,
    (packet, random): (Packet, u8),
    limits: Limits,
) -> usize {
    let block = count * BYTES;
    let plan =
        Plan { block, transfer: BYTES, segments: 1, ranks: 1, shared: true, random, seed: 1 };
    let order = Order::new(&plan, 0);
    let pattern = Pattern { packet, signature: 1, rank: 0 };
    let mut buffer = vec![0; BYTES as usize];
    pattern.fill(&mut buffer);
    let mut latencies = Latencies::new().unwrap();
    let found = allocations(|| {
        let moved = Transfer {
            io: &Null,
            file: &(),
            path: Path::new("/dev/null"),
            access,
            order: &order,
            pattern,
            buffer: &mut buffer,
            sync_each: false,
            latencies: &mut latencies,
        }
        .run(comm, &limits);
        assert_eq!(moved.unwrap().count, count);
    });
    assert_eq!(latencies.quantiles().count, count);
    found
}

fn mdtest(comm: &Solo, count: u64, kind: Kind, bytes: usize) -> usize {
    let shape =
        Shape { branches: 1, dirs: 1, first_dir: 0, per_dir: MANY, per_tree: MANY, trees: 1 };
    let names = Names {
        dirs: vec!["/mnt/file-system/out".to_owned()],
        shape,
        unique: true,
        shared: false,
        ranks: 1,
        stride: 0,
        iteration: 0,
    };
    let mut buffer = vec![0; bytes];
    let mut latencies = Latencies::new().unwrap();
    let pattern = Pattern { packet: Packet::Offset, signature: 1, rank: 0 };
    let operation =
        Operation { kind, pattern, buffer: &mut buffer[..], fsync: true, verify: false };
    let paths = names.of(0, "file");
    let mut work = Work { io: &Null, paths, operation, latencies: &mut latencies, wrong: 0 };
    // The first item's name is made as a whole.
    work.run(comm, (0, 1), None).unwrap();
    allocations(|| assert_eq!(work.run(comm, (0, count), None).unwrap(), count))
}

fn iozone(comm: &Solo, count: u64, test: iozone::Test, write: bool) -> usize {
    let order = iozone::Order::new(test, count, 17, 0);
    let data = iozone::Data::of(0);
    let mut buffer = vec![0; BYTES as usize];
    data.fill(&mut buffer);
    let mut latencies = Latencies::new().unwrap();
    allocations(|| {
        let mut work = iozone::Work {
            io: &Null,
            file: &(),
            path: Path::new("/dev/null"),
            call: test.call(),
            write,
            order: &order,
            count,
            data,
            buffer: &mut buffer,
            compare: iozone::Compare::Nothing,
            latencies: &mut latencies,
            wrong: 0,
        };
        work.run(comm).unwrap();
    })
}

/// One test: what others allocate meanwhile is counted, too.
#[test]
fn many_operations_allocate_as_often_as_one() {
    let comm = Solo::new().unwrap();
    let same = |name: &str, of: &dyn Fn(u64) -> usize| {
        // The thread that waits for this test allocates when it pleases: fewest are the loop's.
        let fewest = |count| (0..5).map(|_| of(count)).min().unwrap();
        let (one, many) = (fewest(1), fewest(MANY));
        assert_eq!(one, many, "{name}: allocations of one operation, and of {MANY}");
    };
    let walled = Limits { deadline_ns: Some(1 << 60), wear_out: true, ..Limits::default() };
    for packet in [Packet::Timestamp, Packet::Offset, Packet::Incompressible, Packet::Random] {
        for random in [0, 1, 2] {
            let how = (packet, random);
            same("ior, write", &|count| ior(&comm, count, Access::Write, how, Limits::default()));
            same("ior, read", &|count| ior(&comm, count, Access::Read, how, walled));
        }
    }
    for (kind, bytes) in [
        (Kind::CreateFile, 0),
        (Kind::CreateFile, 3901),
        (Kind::ReadFile, 3901),
        (Kind::StatFile, 0),
        (Kind::StatDir, 0),
        (Kind::MakeDir, 0),
        (Kind::MakeNode, 0),
        (Kind::RemoveDir, 0),
        (Kind::RemoveFile, 0),
    ] {
        same(&format!("mdtest, {kind:?}"), &|count| mdtest(&comm, count, kind, bytes));
    }
    for test in iozone::Test::ALL {
        for write in [true, false] {
            same(&format!("iozone, {test:?}"), &|count| iozone(&comm, count, test, write));
        }
    }
    // The exception.
    let agreed = Limits { together: true, ..walled };
    let how = (Packet::Timestamp, 0);
    let of = |count| ior(&comm, count, Access::Write, how, agreed);
    assert!(of(MANY) > of(1) + MANY as usize / 2, "ranks that agree talk");
}
