//! Programs that count under locks of flock and fcntl, calm and on a bad network.

#![allow(clippy::panic)]
use sateen_sim::{Config, Report, World, report};

fn run(config: Config) -> Report {
    match World::run_file_locks(config) {
        Ok(report) => report,
        Err(failure) => {
            for line in &failure.trace {
                eprintln!("{line}");
            }
            panic!("SEED={}: {}\n{}", config.seed, failure.what, failure.report);
        }
    }
}

#[test]
fn counters_under_locks_count_right() {
    let first = sateen_testkit::seed();
    for (network_faults, seeds) in [(false, 8), (true, report::MINIMUMS_SEEDS)] {
        let mut total = Report::default();
        for seed in first..first + seeds {
            let config = Config { network_faults, crashes: false, ..Config::full(seed) };
            total.add(&run(config));
        }
        println!("seeds from SEED={first}, bad network: {network_faults}: {total}");
        assert!(total.operations >= seeds * 2000, "{total}");
        assert_eq!(total.faults() > 0, network_faults, "{total}");
        if network_faults {
            let missing = total.missing(report::FILE_LOCKS, seeds);
            assert!(missing.is_empty(), "too few: {missing:#?}\n{total}");
        }
    }
}
