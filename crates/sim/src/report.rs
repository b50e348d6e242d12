//! What a run did: faults injected and recoveries by kind, work done, and a hash over every
//! event, which is the same whenever the seed is.

use std::collections::BTreeMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The counts of one run, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// Operations that ended.
    pub operations: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// Hash over all events.
    pub hash: u64,
}

/// Kinds of faults: a run of the full world must have this many of them together.
pub const FAULT_KINDS: &[&str] = &[
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

    pub(crate) fn mix(&mut self, bytes: &[u8]) {
        self.hash = xxh3_64_with_seed(bytes, self.hash);
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Report) {
        for (kind, n) in &other.counts {
            self.count(kind, *n);
        }
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
        Ok(())
    }
}
