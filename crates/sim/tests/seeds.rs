//! Runs seeds of each world: the same ones in every run, or those from `SEED` on. Those that nobody
//! has seen before run in `fresh.rs`.

#![allow(clippy::panic)]
use sateen_sim::{Config, Report, World, report};
use sateen_wire::MessageKind;

/// As often each kind of message must have been dropped, duplicated, delayed, and cut by a crash
/// in the seeds of the full world.
const EACH_FAULT_MIN: u64 = 100;

/// A world without faults.
fn calm(seed: u64) -> Config {
    Config { network_faults: false, crashes: false, ..Config::full(seed) }
}

/// A world in which only the network is bad: no program may notice.
fn bad_network(seed: u64) -> Config {
    Config { crashes: false, ..Config::full(seed) }
}

fn run(config: Config) -> Report {
    match World::run(config) {
        Ok(report) => report,
        Err(failure) => {
            let told = World::run(Config { trace: 100, ..config }).err().unwrap_or(failure);
            for line in &told.trace {
                eprintln!("{line}");
            }
            panic!("SEED={}: {}\n{}", config.seed, told.what, told.report);
        }
    }
}

fn run_all(world: fn(u64) -> Config, seeds: u64) -> Report {
    let mut total = Report::default();
    let first = sateen_testkit::seed();
    for seed in first..first + seeds {
        total.add(&run(world(seed)));
    }
    println!("{seeds} seeds from SEED={first}: {total}");
    assert!(total.operations >= seeds * 2000, "{total}");
    total
}

#[test]
fn without_faults_everything_is_as_posix_says() {
    let total = run_all(calm, 8);
    assert_eq!(total.faults(), 0, "{total}");
    assert!(total.get("answer from a kernel cache") > 500, "{total}");
    assert!(total.get("fsync believed") > 200, "{total}");
}

#[test]
fn a_bad_network_is_not_noticed() {
    let total = run_all(bad_network, 30);
    for kind in ["dropped", "duplicated", "delayed", "reordered"] {
        assert!(total.get(&format!("message {kind}")) > 100, "{total}");
    }
}

#[test]
fn crashes_lose_only_what_was_not_synced() {
    let seeds = 400;
    let total = run_all(Config::full, seeds);
    let mut missing = total.missing(report::FULL, seeds);
    missing.extend(total.traffic.missing(EACH_FAULT_MIN));
    assert!(missing.is_empty(), "too few: {missing:#?}\n{total}");
}

/// Clients that were cut off for so long that they were evicted come back.
#[test]
fn long_partitions_lose_only_what_was_not_synced() {
    let seeds = report::MINIMUMS_SEEDS;
    let world = |seed| Config { long_partitions: true, ..Config::full(seed) };
    let total = run_all(world, seeds);
    let missing = total.missing(report::LONG_PARTITIONS, seeds);
    assert!(missing.is_empty(), "too few: {missing:#?}\n{total}");
}

/// A file system in one process, whose kernel is given files.
fn given(seed: u64) -> Config {
    Config { network_faults: false, given: true, ..Config::full(seed) }
}

/// What the kernel reads and writes itself is what programs see and what survives, and it never meets
/// an open that does not go together with those that there are.
#[test]
fn files_that_the_kernel_has_are_as_posix_says() {
    let calm = run_all(|seed| Config { crashes: false, ..given(seed) }, 20);
    for kind in ["open beside a file that is given", "write that nobody hears of"] {
        assert!(calm.get(kind) > 20, "{calm}");
    }
    let seeds = 2 * report::MINIMUMS_SEEDS;
    let total = run_all(given, seeds);
    let missing = total.missing(report::GIVEN, seeds);
    assert!(missing.is_empty(), "too few: {missing:#?}\n{total}");
    for name in ["request OST SetSize", "request OST SetTimes", "request OST Append"] {
        let mut kinds = MessageKind::all().into_iter();
        let kind = kinds.find(|kind| kind.to_string() == name);
        assert!(kind.is_some_and(|kind| total.traffic.of(kind).sent > 5), "{name}: {total}");
    }
}

/// So do programs at once that open and close one file over and over, and append to it: it is given and
/// taken back all the time.
#[test]
fn what_is_appended_beside_the_begin_and_the_end_of_a_giving_is_there() {
    let mut total = Report::default();
    let first = sateen_testkit::seed();
    for seed in first..first + 40 {
        match World::run_contention(Config { crashes: false, ..given(seed) }) {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("SEED={seed}: {}\n{}", failure.what, failure.report),
        }
    }
    println!("40 seeds from SEED={first}: {total}");
    for kind in ["record appended", "open as ever", "open of a file that is given"] {
        assert!(total.get(kind) > 4000, "{kind}: {total}");
    }
    assert!(total.get("open beside a file that is given") > 400, "{total}");
}

#[test]
fn a_seed_is_a_run() {
    for world in [calm, bad_network, given, Config::full] {
        let config = Config { operations: 600, ..world(77) };
        assert_eq!(run(config), run(config), "the same seed, the same events");
        let other = Config { seed: 78, ..config };
        assert_ne!(run(config).hash, run(other).hash, "another seed, other events");
    }
}
