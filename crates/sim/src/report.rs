//! What a run did: faults injected and recoveries by kind, work done, and a hash over every
//! event, which is the same whenever the seed is.

use std::collections::BTreeMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::traffic::Traffic;

/// The counts of one run, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// Messages by kind, and the faults they met.
    pub traffic: Traffic,
    /// Operations that ended.
    pub operations: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// Hash over all events.
    pub hash: u64,
}

/// Kinds of faults and of recoveries, and how many of each 1000 seeds of the full world must
/// have at least: half of what the first 1000 seeds had when this was written, less for what is
/// rare.
pub const MINIMUMS: &[(&str, u64)] = &[
    ("message dropped", 24_000),
    ("message duplicated", 45_000),
    ("message delayed", 40_000),
    ("message reordered", 900_000),
    ("message cut off", 6000),
    ("partition", 1800),
    ("crash MGS", 1000),
    ("crash MDT", 3600),
    ("crash OST", 4800),
    ("crash client", 2000),
    ("crash behind a truncate", 600),
    ("crash behind a write", 300),
    ("crash around a message", 12_000),
    ("message lost in a crash", 22_000),
    ("message sought out", 170_000),
    ("two targets crash at once", 700),
    ("frame torn", 300),
    ("checkpoint cut off", 5),
    ("object write torn", 10_000),
    ("object change lost", 17_000),
    ("object name lost", 1700),
    ("transaction lost in a crash", 400),
    ("world short of space", 100),
    ("write refused for want of space", 600),
    ("MGS restarted", 1000),
    ("MDT restarted", 3600),
    ("OST restarted", 4800),
    ("client replaced", 2000),
    ("client unmounted", 3500),
    ("client evicted", 3000),
    ("client reconnected", 12_000),
    ("MDT recovered to a prefix", 2500),
    ("OST held against what was synced", 4800),
    ("transactions replayed", 390_000),
    ("caught operation had happened", 5000),
    ("loss told by fsync", 8000),
    ("fsync believed", 67_000),
    ("answer from a kernel cache", 160_000),
    ("file looked at in the end", 23_000),
];

/// Fewer seeds than these say nothing about single kinds: each of them must have its operations
/// and its faults.
const MINIMUMS_SEEDS: u64 = 20;

/// Kinds of faults: a run of the full world must have enough of them together.
const FAULT_KINDS: &[&str] = &[
    "message dropped",
    "message duplicated",
    "message delayed",
    "partition",
    "crash MGS",
    "crash MDT",
    "crash OST",
    "crash client",
    "frame torn",
    "checkpoint cut off",
    "object write torn",
    "object change lost",
];

impl Report {
    /// Counts something.
    pub fn count(&mut self, kind: &'static str, n: u64) {
        if n > 0 {
            *self.counts.entry(kind).or_default() += n;
        }
    }

    /// How often something was counted.
    pub fn get(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or_default()
    }

    /// All faults together.
    pub fn faults(&self) -> u64 {
        FAULT_KINDS.iter().map(|kind| self.get(kind)).sum()
    }

    /// What so many seeds of the full world did too little of.
    pub fn missing(&self, seeds: u64) -> Vec<String> {
        if seeds < MINIMUMS_SEEDS {
            return Vec::new();
        }
        let short = MINIMUMS.iter().filter(|(kind, least)| self.get(kind) < least * seeds / 1000);
        short
            .map(|(kind, least)| format!("{kind}: {} of {}", self.get(kind), least * seeds / 1000))
            .collect()
    }

    pub(crate) fn mix(&mut self, bytes: &[u8]) {
        self.hash = xxh3_64_with_seed(bytes, self.hash);
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Report) {
        for (kind, n) in &other.counts {
            self.count(kind, *n);
        }
        self.traffic.add(&other.traffic);
        self.operations += other.operations;
        self.events += other.events;
        self.virtual_ns += other.virtual_ns;
        self.mix(&other.hash.to_le_bytes());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} operations, {} faults, {} events, {}.{:03} s of virtual time, hash {:016x}",
            self.operations,
            self.faults(),
            self.events,
            self.virtual_ns / 1_000_000_000,
            self.virtual_ns / 1_000_000 % 1000,
            self.hash,
        )?;
        for (kind, n) in &self.counts {
            writeln!(f, "  {n:>8} {kind}")?;
        }
        write!(f, "{}", self.traffic)
    }
}
