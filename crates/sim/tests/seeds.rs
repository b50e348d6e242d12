//! Runs seeds: the same ones in every run, and the one in `SEED`.

#![allow(clippy::panic)]
use sateen_sim::{Config, Report, World};

/// A world without faults. Fewer operations than a full run, because there is nothing to
/// recover from.
fn calm(seed: u64) -> Config {
    Config { seed, operations: 2000, network_faults: false, crashes: false, trace: 0 }
}

fn run(config: Config) -> Report {
    match World::run(config) {
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
fn without_faults_everything_is_as_posix_says() {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut total = Report::default();
    for seed in first..first + 8 {
        total.add(&run(calm(seed)));
    }
    println!("seeds from SEED={first}: {total}");
    assert!(total.operations >= 8 * 2000, "{total}");
    assert!(total.get("answer from a kernel cache") > 500, "{total}");
    assert!(total.get("fsync believed") > 200, "{total}");
}

#[test]
fn a_seed_is_a_run() {
    let config = Config { operations: 600, ..calm(77) };
    assert_eq!(run(config), run(config), "the same seed, the same events");
}
