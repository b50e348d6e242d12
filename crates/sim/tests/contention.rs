//! Programs that want the same all at once, files or locks of them, calm and on a bad network.

#![allow(clippy::panic)]
use sateen_sim::{Config, Failure, Report, World, report};

type Run = fn(Config) -> Result<Report, Box<Failure>>;

fn run(world: Run, config: Config) -> Report {
    match world(config) {
        Ok(report) => report,
        Err(failure) => {
            for line in &failure.trace {
                eprintln!("{line}");
            }
            panic!("SEED={}: {}\n{}", config.seed, failure.what, failure.report);
        }
    }
}

/// `minimums` is what the bad network must have brought about.
fn all_is_well(world: Run, minimums: report::Minimums) {
    let first = sateen_testkit::seed();
    for (network_faults, seeds) in [(false, 8), (true, report::MINIMUMS_SEEDS)] {
        let mut total = Report::default();
        for seed in first..first + seeds {
            let config = Config { network_faults, crashes: false, ..Config::full(seed) };
            total.add(&run(world, config));
        }
        println!("seeds from SEED={first}, bad network: {network_faults}: {total}");
        assert!(total.operations >= seeds * 2000, "{total}");
        assert_eq!(total.faults() > 0, network_faults, "{total}");
        if network_faults {
            let missing = total.missing(minimums, seeds);
            assert!(missing.is_empty(), "too few: {missing:#?}\n{total}");
        }
    }
}

#[test]
fn files_that_all_write_at_once_lose_nothing() {
    all_is_well(World::run_contention, report::CONTENTION);
}

#[test]
fn counters_under_locks_count_right() {
    all_is_well(World::run_file_locks, report::FILE_LOCKS);
}
