//! What an operation costs from end to end, embedded, over TCP and over shared memory: requests of
//! the kernel, RPCs, and allocations of the whole process, its client's and servers' alike. The figures are ceilings, which only go
//! down; whoever brings one down writes the new one here. Times are for `make rates`: these hold on
//! a busy machine, too.
//!
//! Left out is what comes by the second and not by the operation, or a busy machine would have more
//! of it for each operation: changes get old before they are made durable, and pings and grants of
//! sequences are no RPCs here. What is left of it (a table that grows, a thread that looks around)
//! is in some rounds only: the best of a few counts.
//!
//! Needs root and /dev/fuse. Others in the process would be counted: it runs alone, in a process of
//! its own.

use std::alloc::System;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sateen_fuse::{Caps, Filesystem, KernelOffer, Reply, Request};
use sateen_meter::Part;
use sateen_mount::KernelFs;
use sateen_testkit::can_mount;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use super::alone::alone;
use super::world::{Way, World, mounted_with};
use crate::node::{How, Node, Passthrough};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const OSTS: u32 = 4;
/// Operations of a round, and rounds of which the best counts.
const OPS: u64 = 200;
const ROUNDS: u64 = 5;
/// What came by the way (RELEASE, for which no close waits) is over by then.
const SETTLE: Duration = Duration::from_millis(100);
/// How old a change gets at most, in milliseconds: no group commit falls into a round.
const COMMIT_AGE_MS: &str = "60000";
/// RPCs that no operation asks for.
const BY_THE_WAY: [&str; 2] = ["obd_ping", "mds_other"];

/// What one operation costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The kernel's, but FORGETs, which come together.
    requests: f64,
    rpcs: f64,
    /// Tables that grow now and then make fractions.
    allocations: f64,
}

/// Once more or once less is more than this.
const TOLERANCE: f64 = 0.5;
/// Over a network it goes by the moment how much is written out and given back together: by so much
/// less nothing has become cheaper.
const TOGETHER: f64 = 8.0;

const OPERATIONS: [&str; 9] = [
    "create and close",
    "stat",
    "open and close",
    "write 4 KiB",
    "open, read 4 KiB, close",
    "open for the third time and close",
    "create, write 4 KiB, close",
    "unlink",
    "open a small file to write, read it, close",
];

const CEILINGS: [(Way, [Cost; OPERATIONS.len()]); 3] = [
    (
        Way::Embedded,
        [
            cost(4.0, 2.0, 4.0),
            cost(1.0, 0.0, 0.0),
            cost(2.0, 2.0, 1.0),
            cost(1.0, 0.0, 0.0),
            cost(3.0, 3.0, 1.0),
            cost(2.0, 0.0, 1.0),
            cost(5.0, 3.0, 7.25),
            cost(2.0, 1.0, 0.0),
            cost(3.0, 3.0, 2.0),
        ],
    ),
    (
        Way::Tcp,
        [
            cost(5.0, 2.0, 8.25),
            cost(1.0, 0.0, 0.0),
            cost(2.0, 1.0, 5.25),
            cost(1.0, 0.0, 2.0),
            cost(3.0, 2.0, 8.25),
            cost(2.0, 0.0, 1.0),
            cost(6.0, 3.0, 41.0),
            cost(2.0, 3.0, 20.0),
            cost(4.0, 2.0, 14.75),
        ],
    ),
    (
        Way::Shm,
        [
            cost(5.0, 2.0, 8.25),
            cost(1.0, 0.0, 0.0),
            cost(2.0, 1.0, 5.25),
            cost(1.0, 0.0, 2.0),
            cost(3.0, 2.0, 8.25),
            cost(2.0, 0.0, 1.0),
            cost(6.0, 3.0, 41.0),
            cost(2.0, 3.0, 18.0),
            cost(4.0, 2.0, 14.75),
        ],
    ),
];

const fn cost(requests: f64, rpcs: f64, allocations: f64) -> Cost {
    Cost { requests, rpcs, allocations }
}

impl Cost {
    const MOST: Cost = cost(f64::MAX, f64::MAX, f64::MAX);

    /// Each figure with its counterpart.
    fn beside(self, other: Cost) -> [(f64, f64); 3] {
        let (of, by) = (self, other);
        [(of.requests, by.requests), (of.rpcs, by.rpcs), (of.allocations, by.allocations)]
    }

    fn least(self, other: Cost) -> Cost {
        let [requests, rpcs, allocations] = self.beside(other).map(|(a, b)| a.min(b));
        cost(requests, rpcs, allocations)
    }
}

/// Requests that the kernel has sent, but FORGETs, which come together.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// A file system whose requests are counted.
pub(in crate::node) struct Counted(pub(in crate::node) Arc<KernelFs>);

impl Filesystem for Counted {
    fn init(&self, offer: &KernelOffer) -> Caps {
        self.0.init(offer)
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        use sateen_fuse::Op;
        if !matches!(request.op, Op::Forget { .. } | Op::BatchForget { .. }) {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
        }
        self.0.dispatch(request, reply);
    }

    fn looker(&self) -> Option<Box<dyn sateen_fuse::Look>> {
        self.0.looker()
    }

    fn destroy(&self) {
        self.0.destroy();
    }
}

#[test]
fn no_operation_costs_more_than_it_did() {
    if can_mount() {
        alone("node::tests::costs::no_operation_costs_more_than_it_did", || {
            let found = CEILINGS.map(|(way, _)| {
                let mut found = [Cost::MOST; OPERATIONS.len()];
                let how = How { passthrough: Passthrough::Perhaps, ..How::new(false) };
                mounted_with((way, OSTS), how, |world| found = best(way, world));
                found
            });
            for ((way, ceilings), found) in CEILINGS.into_iter().zip(found) {
                for ((what, ceiling), found) in OPERATIONS.iter().zip(ceilings).zip(found) {
                    check((way, what), ceiling, found);
                }
            }
        });
    }
}

fn check((way, what): (Way, &str), ceiling: Cost, found: Cost) {
    let tolerance = if way == Way::Embedded { TOLERANCE } else { TOGETHER };
    for (found, ceiling) in found.beside(ceiling) {
        let more = found >= ceiling + TOLERANCE;
        assert!(!more, "{way:?}: {what} costs {found}, more than {ceiling}");
        let less = found < ceiling - tolerance;
        assert!(
            !less,
            "{way:?}: {what} costs {found}, less than {ceiling}: the ceiling from now on"
        );
    }
}

/// The least that each operation costs on a mount, of a few rounds.
fn best(way: Way, world: World<'_>) -> [Cost; OPERATIONS.len()] {
    for was_set in world.servers.devices().set("*.*.commit_age_ms", COMMIT_AGE_MS) {
        assert!(was_set.error.is_none(), "{}", was_set.name);
    }
    measure_a_round(way, world);
    let mut best = [Cost::MOST; OPERATIONS.len()];
    for round in 0..ROUNDS {
        for (least, found) in best.iter_mut().zip(costs_of_a_round(world, round)) {
            *least = least.least(found);
        }
    }
    for (what, found) in OPERATIONS.iter().zip(&best) {
        println!("{way:?}, {what}: {found:.2?}");
    }
    // So much it costs where nobody measures, also if somebody did before.
    assert_eq!(Part::ALL.map(samples), [0; Part::ALL.len()]);
    best
}

/// How often something was measured in a part.
fn samples(part: Part) -> u64 {
    sateen_meter::read(part).iter().map(|(_, measured)| measured.samples).sum()
}

/// What is counted afterwards is seen by timers, if they are on: here it is, and then they are off.
fn measure_a_round(way: Way, world: World<'_>) {
    let set = |value: &str| {
        for was_set in world.node.devices().set("*.timers", value) {
            assert!(was_set.error.is_none(), "{}", was_set.name);
        }
    };
    set("1");
    costs_of_a_round(world, ROUNDS);
    for part in Part::ALL {
        // No group commit falls into a round.
        let is_there = part != Part::Journal && (part != Part::Lnd || way != Way::Embedded);
        assert!(!is_there || samples(part) >= OPS, "{part:?}: {}", samples(part));
    }
    set("0");
    std::thread::sleep(SETTLE);
    // What ended when they went off.
    set("clear");
}

/// What the clients have asked of their targets.
fn rpcs(node: &Node) -> u64 {
    let all = node.devices().params();
    let of_requests = |name: &str| {
        name.ends_with("/stats") && (name.starts_with("mdc/") || name.starts_with("osc/"))
    };
    let texts = all.iter().filter(|param| of_requests(&param.name)).map(|param| param.value());
    let counted = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, samples) = (words.next()?, words.next()?);
        let counts = line.ends_with("samples [reqs]") && !BY_THE_WAY.contains(&name);
        counts.then(|| samples.parse::<u64>().unwrap())
    };
    texts.map(|text| text.lines().filter_map(counted).sum::<u64>()).sum()
}

/// The costs of each operation, in the order of [`OPERATIONS`].
fn costs_of_a_round(world: World<'_>, round: u64) -> Vec<Cost> {
    let folder = world.point.join(format!("round-{round}"));
    fs::create_dir(&folder).unwrap();
    let named = |kind: &str| -> Vec<PathBuf> {
        (0..OPS).map(|n| folder.join(format!("{kind}{n}"))).collect()
    };
    let (empty, full, more) = (named("e"), named("f"), named("g"));
    let mut costs = Vec::with_capacity(OPERATIONS.len());
    let mut count = |each: &mut dyn FnMut(usize)| {
        std::thread::sleep(SETTLE);
        let before = (REQUESTS.load(Ordering::Relaxed), rpcs(world.node), allocated());
        for n in 0..OPS as usize {
            each(n);
        }
        std::thread::sleep(SETTLE);
        let allocations = allocated() - before.2;
        let requests = REQUESTS.load(Ordering::Relaxed) - before.0;
        let of_one = |count: u64| count as f64 / OPS as f64;
        let rpcs = rpcs(world.node) - before.1;
        costs.push(cost(of_one(requests), of_one(rpcs), of_one(allocations)));
    };
    let data = [7; 4096];
    let mut buffer = [0; 4096];
    count(&mut |n| drop(File::create(&empty[n]).unwrap()));
    count(&mut |n| assert!(fs::symlink_metadata(&empty[n]).unwrap().is_file()));
    count(&mut |n| drop(File::open(&empty[n]).unwrap()));
    let open = File::create(folder.join("open")).unwrap();
    open.write_all_at(&data, 0).unwrap();
    count(&mut |n| open.write_all_at(&data, n as u64 * 4096).unwrap());
    drop(open);
    for path in &full {
        fs::write(path, data).unwrap();
    }
    count(&mut |n| File::open(&full[n]).unwrap().read_exact(&mut buffer).unwrap());
    // An MDT keeps open what is closed for the second time.
    full.iter().for_each(|path| drop(File::open(path).unwrap()));
    count(&mut |n| drop(File::open(&full[n]).unwrap()));
    count(&mut |n| File::create(&more[n]).unwrap().write_all_at(&data, 0).unwrap());
    count(&mut |n| fs::remove_file(&empty[n]).unwrap());
    let mut open = File::options();
    let open = open.read(true).write(true);
    count(&mut |n| open.open(&more[n]).unwrap().read_exact(&mut buffer).unwrap());
    costs
}

fn allocated() -> u64 {
    let stats = HEAP.stats();
    (stats.allocations + stats.reallocations) as u64
}
