//! A slow disk is no dead client, calm and on a bad network.

#![allow(clippy::panic)]
use sateen_sim::{Config, Report, World};
use sateen_wire::MessageKind;

/// So often each fault but a crash meets the word of who goes on, in so many seeds of a bad network.
const EACH_FAULT_MIN: u64 = 2;
const SEEDS: u64 = 40;

fn all_of(seeds: u64, network_faults: bool) -> Report {
    let mut total = Report::default();
    let first = sateen_testkit::seed();
    for seed in first..first + seeds {
        let config = Config { operations: 3, network_faults, crashes: false, ..Config::full(seed) };
        match World::run_slow(config) {
            Ok(report) => {
                assert!(report.get("told that it goes on") >= 3, "SEED={seed}: {report}");
                total.add(&report);
            }
            Err(failure) => panic!("SEED={seed}: {}\n{}", failure.what, failure.report),
        }
    }
    println!("{seeds} seeds from SEED={first}, bad network: {network_faults}: {total}");
    total
}

#[test]
fn who_writes_out_what_he_kept_slowly_is_not_evicted() {
    all_of(4, false);
    let total = all_of(SEEDS, true);
    let goes_on =
        MessageKind::all().into_iter().find(|kind| kind.to_string() == "request MDT GoesOn");
    let met = goes_on.map_or([0; 4], |kind| total.traffic.of(kind).faults);
    let [dropped, duplicated, delayed, _] = met;
    let least = dropped.min(duplicated).min(delayed);
    assert!(least >= EACH_FAULT_MIN, "{met:?}: {total}");
}
