//! What the measuring loops themselves cost: the same loops as in a run, on a target that does
//! nothing. `cargo bench -p sateen-bench --bench overhead`.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use sateen_bench::comm::Solo;
use sateen_bench::engine::ior::{Access, Limits, Order, Plan, Transfer};
use sateen_bench::engine::iozone;
use sateen_bench::engine::mdtest::{Kind, Names, Operation, Shape, Work};
use sateen_bench::io::Null;
use sateen_bench::pattern::{Packet, Pattern};
use sateen_bench::stats::Latencies;

/// Operations of a round.
const OPERATIONS: u64 = 4_000_000;
/// Rounds, of which the median is shown.
const ROUNDS: usize = 5;
/// Bytes of a transfer.
const TRANSFER: u64 = 4096;

/// Nanoseconds that this thread has had of a processor: others' work is not the loops'.
fn used_ns() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 * 1e9 + used.tv_nsec as f64
}

/// Nanoseconds of an operation: the median round's.
fn median_ns(mut round: impl FnMut()) -> f64 {
    let mut found: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = used_ns();
            round();
            (used_ns() - start) / OPERATIONS as f64
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found.get(ROUNDS / 2).copied().unwrap_or(f64::NAN)
}

fn show(name: &str, ns: f64) {
    println!("{name:<44} {ns:>8.1} ns");
}

fn ior(comm: &Solo, name: &str, access: Access, packet: Packet, random: u8) {
    let block = OPERATIONS / 4 * TRANSFER;
    let plan =
        Plan { block, transfer: TRANSFER, segments: 4, ranks: 1, shared: true, random, seed: 1 };
    let order = Order::new(&plan, 0);
    let pattern = Pattern { packet, signature: 1, rank: 0 };
    let mut buffer = vec![0; TRANSFER as usize];
    pattern.fill(&mut buffer);
    let mut latencies = Latencies::new().unwrap();
    let ns = median_ns(|| {
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
        .run(comm, &Limits { deadline_ns: Some(1 << 60), ..Limits::default() });
        assert_eq!(moved.unwrap().count, OPERATIONS);
    });
    show(name, ns);
}

fn mdtest(comm: &Solo, name: &str, kind: Kind, bytes: usize) {
    let shape = Shape {
        branches: 1,
        dirs: 4,
        first_dir: 0,
        per_dir: OPERATIONS / 4,
        per_tree: OPERATIONS,
        trees: 1,
    };
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
    let ns = median_ns(|| {
        let pattern = Pattern { packet: Packet::Offset, signature: 1, rank: 0 };
        let buffer = &mut buffer[..];
        let operation = Operation { kind, pattern, buffer, fsync: false, verify: false };
        let paths = names.of(0, "file");
        let mut work = Work { io: &Null, paths, operation, latencies: &mut latencies, wrong: 0 };
        assert_eq!(work.run(comm, (0, OPERATIONS), None).unwrap(), OPERATIONS);
    });
    show(name, ns);
}

fn iozone(comm: &Solo, name: &str, test: iozone::Test, write: bool) {
    let order = iozone::Order::new(test, OPERATIONS, 17, 0);
    let data = iozone::Data::of(0);
    let mut buffer = vec![0; TRANSFER as usize];
    data.fill(&mut buffer);
    let mut latencies = Latencies::new().unwrap();
    let ns = median_ns(|| {
        let mut work = iozone::Work {
            io: &Null,
            file: &(),
            path: Path::new("/dev/null"),
            call: test.call(),
            write,
            order: &order,
            count: OPERATIONS,
            data,
            buffer: &mut buffer,
            verify: false,
            latencies: &mut latencies,
            wrong: 0,
        };
        work.run(comm).unwrap();
    });
    assert_eq!(latencies.quantiles().count, ROUNDS as u64 * OPERATIONS);
    show(name, ns);
}

fn main() {
    let comm = Solo::new().unwrap();
    println!("an operation of the engines on nothing, median of {ROUNDS} rounds of {OPERATIONS}");
    ior(&comm, "ior, write", Access::Write, Packet::Timestamp, 0);
    ior(&comm, "ior, write, data with offsets", Access::Write, Packet::Offset, 0);
    ior(&comm, "ior, read", Access::Read, Packet::Timestamp, 0);
    ior(&comm, "ior, read at shuffled offsets", Access::Read, Packet::Timestamp, 1);
    mdtest(&comm, "mdtest, create", Kind::CreateFile, 0);
    mdtest(&comm, "mdtest, create and write 3901 bytes", Kind::CreateFile, 3901);
    mdtest(&comm, "mdtest, stat", Kind::StatFile, 0);
    mdtest(&comm, "mdtest, remove", Kind::RemoveFile, 0);
    iozone(&comm, "iozone, write", iozone::Test::InitialWrite, true);
    iozone(&comm, "iozone, read", iozone::Test::Read, false);
    iozone(&comm, "iozone, stride read", iozone::Test::StrideRead, false);
    iozone(&comm, "iozone, random read", iozone::Test::RandomRead, false);
    iozone(&comm, "iozone, random write", iozone::Test::RandomWrite, true);
    iozone(&comm, "iozone, pwrite", iozone::Test::Pwrite, true);
    iozone(&comm, "iozone, fwrite", iozone::Test::Fwrite, true);
    iozone(&comm, "iozone, fread", iozone::Test::Fread, false);
}
