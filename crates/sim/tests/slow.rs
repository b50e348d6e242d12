//! A slow disk is no dead client, calm and on a bad network.

#![allow(clippy::panic)]
use sateen_sim::{Config, World};

#[test]
fn who_writes_out_what_he_kept_slowly_is_not_evicted() {
    let first = sateen_testkit::seed();
    for (seed, network_faults) in (first..first + 4).flat_map(|at| [(at, false), (at, true)]) {
        let config = Config { operations: 3, network_faults, crashes: false, ..Config::full(seed) };
        match World::run_slow(config) {
            Ok(report) => assert!(report.get("told that it goes on") >= 3, "{report}"),
            Err(failure) => panic!("SEED={seed}: {}\n{}", failure.what, failure.report),
        }
    }
}
