//! What the measuring loops themselves cost: the same loops as in a run, on a target that does
//! nothing. `cargo bench -p sateen-bench --bench overhead`.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Instant;

use sateen_bench::comm::Solo;
use sateen_bench::engine::ior::{Access, Limits, Order, Plan, Transfer};
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

/// Nanoseconds of an operation: the median round's.
fn median_ns(mut round: impl FnMut()) -> f64 {
    let mut found: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / OPERATIONS as f64
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
}
