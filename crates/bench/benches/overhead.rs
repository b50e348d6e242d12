//! What the measuring loops themselves cost: the same loops as in a run, on a target that does
//! nothing, by one rank alone and by ranks of one machine, which share the words in which they
//! count. `cargo bench -p sateen-bench --bench overhead`; it fails if an operation of any loop
//! costs 100 ns or more.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;

use sateen_bench::comm::{Communicator, Local, Reduce, Solo, launch};
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
/// What an operation must cost less than.
const NS_MAX: f64 = 100.0;

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

/// The loops of a rank, and what the most expensive one costs.
struct Loops<'a> {
    comm: &'a dyn Communicator,
    most_ns: f64,
}

impl Loops<'_> {
    /// The slowest rank's time, which all hear; the root prints it.
    fn show(&mut self, name: &str, ns: f64) {
        let ns = self.comm.reduce_f64(ns, Reduce::Max).unwrap();
        self.most_ns = self.most_ns.max(ns);
        if self.comm.is_root() {
            println!("{name:<44} {:>3} {ns:>8.1} ns", self.comm.size());
        }
    }

    fn all(&mut self) {
        self.ior("ior, write", Access::Write, Packet::Timestamp, 0);
        self.ior("ior, write, data with offsets", Access::Write, Packet::Offset, 0);
        self.ior("ior, read", Access::Read, Packet::Timestamp, 0);
        self.ior("ior, read at shuffled offsets", Access::Read, Packet::Timestamp, 1);
        self.mdtest("mdtest, create", Kind::CreateFile, 0);
        self.mdtest("mdtest, create and write 3901 bytes", Kind::CreateFile, 3901);
        self.mdtest("mdtest, stat", Kind::StatFile, 0);
        self.mdtest("mdtest, remove", Kind::RemoveFile, 0);
        self.iozone("iozone, write", iozone::Test::InitialWrite, true);
        self.iozone("iozone, read", iozone::Test::Read, false);
        self.iozone("iozone, stride read", iozone::Test::StrideRead, false);
        self.iozone("iozone, random read", iozone::Test::RandomRead, false);
        self.iozone("iozone, random write", iozone::Test::RandomWrite, true);
        self.iozone("iozone, pwrite", iozone::Test::Pwrite, true);
        self.iozone("iozone, fwrite", iozone::Test::Fwrite, true);
        self.iozone("iozone, fread", iozone::Test::Fread, false);
    }

    fn ior(&mut self, name: &str, access: Access, packet: Packet, random: u8) {
        let block = OPERATIONS / 4 * TRANSFER;
        let plan = Plan {
            block,
            transfer: TRANSFER,
            segments: 4,
            ranks: 1,
            shared: true,
            random,
            seed: 1,
        };
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
            .run(self.comm, &Limits { deadline_ns: Some(1 << 60), ..Limits::default() });
            assert_eq!(moved.unwrap().count, OPERATIONS);
        });
        self.show(name, ns);
    }

    fn mdtest(&mut self, name: &str, kind: Kind, bytes: usize) {
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
            let mut work =
                Work { io: &Null, paths, operation, latencies: &mut latencies, wrong: 0 };
            assert_eq!(work.run(self.comm, (0, OPERATIONS), None).unwrap(), OPERATIONS);
        });
        self.show(name, ns);
    }

    fn iozone(&mut self, name: &str, test: iozone::Test, write: bool) {
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
                compare: iozone::Compare::Nothing,
                latencies: &mut latencies,
                wrong: 0,
            };
            work.run(self.comm).unwrap();
        });
        assert_eq!(latencies.quantiles().count, ROUNDS as u64 * OPERATIONS);
        self.show(name, ns);
    }
}

/// Measures as a rank. The ranks agree on the code: as one that they may all end with, since the
/// launcher takes 1 for the loss of a rank.
fn rank(comm: &dyn Communicator) -> u8 {
    let mut loops = Loops { comm, most_ns: 0.0 };
    loops.all();
    if loops.most_ns < NS_MAX {
        return 0;
    }
    if comm.is_root() {
        let most = loops.most_ns;
        println!("FAILED: an operation costs {most:.1} ns, which has to be less than {NS_MAX}");
    }
    sateen_bench::error::EXIT_WRONG_DATA
}

fn main() -> ExitCode {
    if let Some(comm) = Local::attach().unwrap() {
        return rank(&comm).into();
    }
    println!("an operation of the engines on nothing, median of {ROUNDS} rounds of {OPERATIONS}");
    println!("{:<44} {:>3} {:>11}", "loop", "np", "slowest");
    let alone = rank(&Solo::new().unwrap());
    let ranks = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let together = launch(ranks, &std::env::args_os().collect::<Vec<_>>()).unwrap();
    alone.max(together).into()
}
