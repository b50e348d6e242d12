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

/// Kinds of faults, of recoveries and of work, and how many of each 1000 seeds of a world must
/// have at least.
pub type Minimums = &'static [(&'static str, u64)];

/// Those of the full world: half of what the first seeds had when this was written, less for
/// what is rare.
pub const FULL: Minimums = &[
    // No row of seeds has less: see `world/shape.rs`.
    ("largest world", 40),
    ("message dropped", 120_000),
    ("message duplicated", 140_000),
    ("message delayed", 140_000),
    ("message reordered", 1_500_000),
    ("message cut off", 6000),
    ("partition", 1800),
    ("connection broken", 30_000),
    ("message lost with its connection", 5000),
    ("request whose connection broke", 90_000),
    ("request that no host took", 40_000),
    ("request to a process without the target", 40_000),
    ("crash MGS", 11_000),
    ("crash MDT0000", 11_000),
    ("crash another MDT", 1900),
    ("crash OST", 9000),
    ("crash client", 13_000),
    ("crash client, and nobody tells", 2700),
    ("client noticed to be silent", 3400),
    ("target stands still", 240),
    ("crash behind a truncate", 600),
    ("crash behind a write", 750),
    ("crash around a message", 37_000),
    ("OST late behind an MDT", 2000),
    ("size looked at behind a late OST", 1500),
    ("client that has all that an OST has lost of a file", 2500),
    ("lost write told again", 2000),
    ("message lost in a crash", 50_000),
    ("message sought out", 290_000),
    ("two targets crash at once", 700),
    ("client and MDT0000 crash at once", 1300),
    ("orderly restart of MDT0000", 1500),
    ("orderly restart of another MDT", 200),
    ("orderly restart of OST", 1200),
    ("message lost with a target that ended", 300),
    ("client taken up", 2000),
    ("client goes on as itself after a crash", 10_000),
    ("client goes on as another after a crash", 7000),
    ("client with changes made again", 6000),
    ("change made again after a crash", 8000),
    ("name or file made again after a crash", 2500),
    ("crash around a claim", 500),
    ("claimed: change", 15_000),
    ("claimed: lock", 20_000),
    ("claimed: open", 8000),
    ("open that an MDT had kept", 1000),
    ("open closed before a last name went", 60),
    ("claimed: file lock", 1500),
    ("frame torn", 1000),
    ("checkpoint cut off", 60),
    ("object write torn", 10_000),
    ("object change lost", 17_000),
    ("object name lost", 2300),
    ("transaction lost in a crash", 1400),
    ("world short of space", 100),
    ("write refused for want of space", 130),
    ("MGS restarted", 11_000),
    ("MDT restarted", 13_000),
    ("OST restarted", 9000),
    ("client replaced", 13_000),
    ("client unmounted", 3500),
    ("client evicted", 39_000),
    ("client reconnected", 28_000),
    ("MDT recovered to a prefix", 11_000),
    ("OST held against what was synced", 9000),
    ("transactions replayed", 1_600_000),
    ("caught operation had happened", 11_000),
    // Who goes on as himself is told nothing.
    ("loss told by fsync", 1200),
    ("fsync believed", 40_000),
    ("answer from a kernel cache", 460_000),
    ("name looked up ahead", 12_000),
    ("file looked at in the end", 23_000),
    ("file shared", 2300),
    ("file moved before its first write", 1500),
    ("op fstat", 24_000),
    ("op flock", 70_000),
    ("op fcntl lock", 70_000),
    ("op test lock", 14_000),
    ("lock refused", 7000),
    ("wait for a lock given up", 30_000),
    ("deadlock found", 100),
    ("op group", 100_000),
    ("group joined", 25_000),
    ("wait for a group given up", 7000),
    ("claimed: group lock", 5000),
    ("file written in turns", 550),
    ("part granted", 1200),
    ("part broken", 300),
    ("part called back", 600),
    ("part given back", 650),
    ("write kept in a part", 1500),
    ("claimed: part", 700),
    ("crash behind parts", 80),
    ("stop behind parts", 80),
    ("call waited for a lock of the kernel", 40_000),
    ("invalidation waited for pages", 200),
    ("disks slow for who gives a lock back", 1200),
    ("told that it goes on", 500),
];

/// Those of `--contention`, likewise.
pub const CONTENTION: Minimums = &[
    ("message dropped", 14_000),
    ("message duplicated", 29_000),
    ("message delayed", 25_000),
    ("message reordered", 350_000),
    ("connection broken", 30_000),
    ("message lost with its connection", 9000),
    ("request whose connection broke", 38_000),
    ("lock called back", 35_000),
    ("orderly restart of MDT0000", 200),
    ("orderly restart of OST", 200),
    ("client taken up", 300),
    ("record written", 80_000),
    ("record of many written", 500_000),
    ("record of many read", 60_000),
    ("shared lock granted", 40_000),
    ("shared lock for reading granted", 1000),
    ("record read through a mapping", 50_000),
    ("record read", 440_000),
    ("record appended", 80_000),
    ("answer from a kernel cache", 700_000),
    ("call waited for a lock of the kernel", 330_000),
    ("call waited for pages", 8000),
    ("invalidation waited for pages", 18_000),
    ("group joined", 50_000),
    ("record of a group written", 130_000),
    ("record of a group looked at", 80_000),
    ("claimed: group lock", 300),
    ("record of a comb written", 800_000),
    ("record of a segment written", 150_000),
    ("record of a comb read", 450_000),
    ("part granted", 20_000),
    ("part broken", 8000),
    ("range cut", 700),
    ("write kept in a part", 40_000),
    ("claimed: part", 300),
];

/// Those of `--file-locks`, likewise.
pub const FILE_LOCKS: Minimums = &[
    ("message dropped", 18_000),
    ("message duplicated", 88_000),
    ("message delayed", 66_000),
    ("message reordered", 2_000_000),
    ("connection broken", 35_000),
    ("orderly restart of MDT0000", 200),
    ("client taken up", 300),
    ("claimed: file lock", 300),
    ("counted under a range", 900_000),
    ("counted under flock", 300_000),
    ("lock refused", 130_000),
    ("wait for a lock given up", 12_000),
    ("deadlock found", 7000),
    ("told that it is its turn", 500_000),
];

/// Those of `--long-partitions`, likewise.
pub const LONG_PARTITIONS: Minimums = &[
    ("long partition", 1100),
    ("connection broken", 25_000),
    ("partition", 990),
    ("message dropped", 120_000),
    ("message duplicated", 130_000),
    ("message delayed", 130_000),
    ("message cut off", 60_000),
    ("crash MGS", 11_000),
    ("crash MDT0000", 11_000),
    ("crash another MDT", 1800),
    ("crash OST", 8800),
    ("crash client", 13_000),
    ("client cut off for too long", 50),
    ("client evicted", 39_000),
    ("client reconnected", 25_000),
    ("client replaced", 13_000),
    ("transactions replayed", 1_500_000),
    ("caught operation had happened", 11_000),
    // Of what is kept over something else that is lost nobody need tell.
    ("loss told by fsync", 1200),
    ("fsync believed", 46_000),
    ("file looked at in the end", 20_000),
];

/// Those of `--given`, likewise.
pub const GIVEN: Minimums = &[
    ("machine loses its power", 3500),
    ("process is killed", 3500),
    ("client unmounted", 3500),
    ("open of a file that is given", 18_000),
    ("open beside a file that is given", 2000),
    ("open as ever", 150_000),
    ("read that nobody hears of", 7000),
    ("write that nobody hears of", 6500),
    ("op touch", 13_000),
    ("fsync believed", 40_000),
    ("object change lost", 14_000),
    ("answer from a kernel cache", 600_000),
    ("call waited for a lock of the kernel", 16_000),
    ("file looked at in the end", 12_000),
];

/// Fewer seeds than these say nothing about single kinds: each of them must have its operations
/// and its faults. So many already ask for one of each kind at least.
pub const MINIMUMS_SEEDS: u64 = 25;

/// Kinds of faults: a run of the full world must have enough of them together.
const FAULT_KINDS: &[&str] = &[
    "message dropped",
    "message duplicated",
    "message delayed",
    "partition",
    "connection broken",
    "crash MGS",
    "crash MDT0000",
    "crash another MDT",
    "crash OST",
    "crash client",
    "target stands still",
    "OST late behind an MDT",
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

    /// What so many seeds of a world did too little of.
    pub fn missing(&self, minimums: Minimums, seeds: u64) -> Vec<String> {
        if seeds < MINIMUMS_SEEDS {
            return Vec::new();
        }
        let short = minimums.iter().filter(|(kind, least)| self.get(kind) < least * seeds / 1000);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minimum_is_none() {
        for minimums in [FULL, CONTENTION, FILE_LOCKS, LONG_PARTITIONS, GIVEN] {
            for (kind, least) in minimums {
                let of_few = least * MINIMUMS_SEEDS / 1000;
                assert!(of_few > 0, "{kind}: {least} of 1000 are none of {MINIMUMS_SEEDS}");
            }
            let nothing = Report::default();
            assert_eq!(nothing.missing(minimums, MINIMUMS_SEEDS).len(), minimums.len());
            assert!(nothing.missing(minimums, MINIMUMS_SEEDS - 1).is_empty());
        }
    }

    #[test]
    fn every_fault_of_the_full_world_has_its_minimum() {
        for kind in FAULT_KINDS {
            assert!(FULL.iter().any(|(name, _)| name == kind), "{kind}");
        }
    }
}
