//! Runs seeds of the full world that nobody has seen before, or those from `SEED` on, on all
//! processors, for which this is a test program of its own. 2000 are wanted, which is some 5 minutes;
//! as long as one of some 2000 finds an old fault (docs/results/simulator.md) it is a hundred.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sateen_sim::{Config, World};

/// So many are run, unless `SEEDS` says how many.
const SEEDS: u64 = 100;
/// A machine that takes longer fails: it would run too few of them each time.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// What is wrong with a seed, if anything is, told with its last events.
fn wrong_with(config: Config) -> Option<String> {
    let seed = config.seed;
    let Ok(run) = catch_unwind(|| World::run(config)) else {
        return Some(format!("SEED={seed}: a panic, as told above"));
    };
    let failure = run.err()?;
    let told = World::run(Config { trace: 100, ..config }).err().unwrap_or(failure);
    for line in &told.trace {
        eprintln!("{line}");
    }
    Some(format!("SEED={seed}: {}\n{}", told.what, told.report))
}

/// A failure names the seed, which repeats it; it is an old fault, and not that of a change which
/// happens to meet it.
#[test]
fn seeds_that_nobody_has_seen() {
    let first = sateen_testkit::fresh_seed();
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
            if let Some(what) = wrong_with(Config::full(first.wrapping_add(number))) {
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
    println!(
        "{done} seeds of the full world from SEED={first}, in {took} s on {threads} processors"
    );
    assert!(done == seeds, "only {done} of {seeds} seeds in {took} s: the machine is too slow");
}
