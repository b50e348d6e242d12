//! Two kinds of time: what files are stamped with, and what timers run on.

/// Wall-clock time of a file, as `stat` shows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timespec {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

impl Timespec {
    /// From nanoseconds since the epoch.
    pub const fn from_ns(ns: i64) -> Timespec {
        Timespec { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) as u32 }
    }
}

/// What a service is told when an event reaches it. Services own no clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Monotonic nanoseconds since the process (or the simulation) began: for timers.
    pub mono_ns: u64,
    /// Wall-clock nanoseconds since the epoch: for stamping files.
    pub wall_ns: i64,
}

impl Timestamp {
    /// The wall-clock part as a file time.
    pub const fn wall(self) -> Timespec {
        Timespec::from_ns(self.wall_ns)
    }
}
