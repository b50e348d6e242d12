//! Runs seeds that no other state of the source has met, or those from `SEED` on, on all processors,
//! for which this is a test program of its own: mostly the full world, and now and then each of the
//! others.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sateen_sim::{Config, Failure, Report, World};

/// So many are run, unless `SEEDS` says how many: some six minutes of two cores. Of some thousand one fails now
/// and then, for the judge's sake as a rule (docs/results/simulator.md): so who changes what is simulated runs
/// this test before others have to.
const SEEDS: u64 = 2000;
/// Whose sources make a seed what it is.
const SOURCES: [&str; 11] =
    ["client", "journal", "ldlm", "mdt", "mgs", "osd", "ost", "sim", "target", "types", "wire"];
/// A machine that takes longer fails: it would run too few of them each time.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// A world: what `sateen-sim` calls it, what is in it, and how it is run.
struct Kind {
    option: &'static str,
    config: Config,
    run: fn(Config) -> Result<Report, Box<Failure>>,
}

/// The world of a seed: of twenty in a row fifteen are the full one.
fn world_of(seed: u64) -> Kind {
    let full = Config::full(seed);
    let given = Config { given: true, network_faults: false, ..full };
    let kind = |option, config, run| Kind { option, config, run };
    match seed % 20 {
        15 => kind(" --given", given, World::run),
        16 => kind(" --contention", full, World::run_contention),
        17 => kind(" --file-locks", full, World::run_file_locks),
        18 => {
            let cut_off = Config { long_partitions: true, ..full };
            kind(" --long-partitions", cut_off, World::run)
        }
        19 => kind(" --given --contention", given, World::run_contention),
        _ => kind("", full, World::run),
    }
}

/// What is wrong with a seed, if anything is, told with its last events.
fn wrong_with(seed: u64) -> Option<String> {
    let Kind { option, config, run } = world_of(seed);
    let shown = format!("SEED={seed} (sateen-sim{option} --seed {seed})");
    let Ok(done) = catch_unwind(|| run(config)) else {
        return Some(format!("{shown}: a panic, as told above"));
    };
    let failure = done.err()?;
    let told = run(Config { trace: 100, ..config }).err().unwrap_or(failure);
    for line in &told.trace {
        eprintln!("{line}");
    }
    Some(format!("{shown}: {}\n{}", told.what, told.report))
}

/// A failure names the seed, which repeats it. It may be an old fault, and not that of the change
/// that meets it, but it is of the source that is tested: the same source fails again.
#[test]
fn seeds_that_nobody_has_seen() {
    let first = sateen_testkit::fresh_seed(&SOURCES);
    let said = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds = said.unwrap_or(SEEDS);
    let begun = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    // The first failure ends all: whoever repeats it wants to read of one.
    let worker = || -> Option<String> {
        while begun.elapsed() < TIME_MAX {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                return None;
            }
            if let Some(what) = wrong_with(first.wrapping_add(number)) {
                next.store(seeds, Ordering::Relaxed);
                return Some(what);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        None
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let ended = workers.into_iter().filter_map(|worker| worker.join().ok());
        ended.flatten().collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let (done, took) = (done.into_inner(), begun.elapsed().as_secs());
    println!("{done} seeds from SEED={first}, in {took} s on {threads} processors");
    assert!(done == seeds, "only {done} of {seeds} seeds in {took} s: the machine is too slow");
}
