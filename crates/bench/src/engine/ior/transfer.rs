//! The measuring loop. Between two transfers it allocates nothing, formats nothing and takes no
//! lock: it computes an offset, reads the clock, counts a latency and looks whether it is to
//! stop. One reading of the clock ends a transfer and begins the next, unless data is made or
//! compared between them.

use std::io;
use std::path::Path;

use super::order::Order;
use crate::clock::now_ns;
use crate::comm::Communicator;
use crate::engine::whole;
use crate::error::{Error, Result};
use crate::io::FileInterface;
use crate::pattern::{Packet, Pattern, Wrong};
use crate::stats::Latencies;

/// Wrong transfers that a rank describes; the others are counted.
const DESCRIBED_MAX: u64 = 10;

/// What is done with each transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is written.
    Write,
    /// It is read.
    Read,
    /// It is read and compared.
    Check,
}

/// When to stop before the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// The stonewall, if there is one.
    pub deadline_ns: Option<u64>,
    /// Transfers at most.
    pub count_max: Option<u64>,
    /// Time at least; at the end of the data it begins anew.
    pub time_min_ns: u64,
    /// Whether ranks that were slower go on to where the fastest was at the stonewall.
    pub wear_out: bool,
    /// Whether the root decides for all, after each transfer, that the stonewall is reached.
    pub together: bool,
}

/// What a rank had done at the stonewall, beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stonewall {
    /// When it was reached and all knew.
    pub seconds: f64,
    /// Transfers of the slowest.
    pub count_min: u64,
    /// Transfers of the fastest.
    pub count_max: u64,
    /// Transfers of all.
    pub count_sum: u64,
}

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moved {
    /// Transfers.
    pub count: u64,
    /// Those that held wrong data.
    pub wrong: u64,
    /// How it was at the stonewall, with wear-out.
    pub stonewall: Option<Stonewall>,
}

/// One rank's work in a phase.
#[derive(Debug)]
pub struct Transfer<'a, I: FileInterface> {
    /// The target.
    pub io: &'a I,
    /// The file.
    pub file: &'a I::File,
    /// Its name, for messages.
    pub path: &'a Path,
    /// What is done.
    pub access: Access,
    /// Where, in which order.
    pub order: &'a Order,
    /// The data, and whose it is.
    pub pattern: Pattern,
    /// The bytes of a transfer.
    pub buffer: &'a mut [u8],
    /// Whether each write is made durable.
    pub sync_each: bool,
    /// How long each took.
    pub latencies: &'a mut Latencies,
}

impl<I: FileInterface> Transfer<'_, I> {
    /// Moves everything, or until a limit is reached.
    pub fn run(&mut self, comm: &dyn Communicator, limits: &Limits) -> Result<Moved> {
        let mut moved = Moved::default();
        let all = self.order.count();
        let start = now_ns();
        let deadline = limits.deadline_ns.map_or(u64::MAX, |ns| start.saturating_add(ns));
        let count_max = limits.count_max.unwrap_or(u64::MAX);
        let mut at = 0;
        let mut now = start;
        while at < all && moved.count < count_max {
            now = self.one(at, &mut moved, now)?;
            at += 1;
            comm.note_done(moved.count);
            comm.check()?;
            let mut over = now >= deadline;
            if limits.together && limits.deadline_ns.is_some() {
                over = comm.broadcast_u64(u64::from(over))? == 1;
                now = now_ns();
            }
            if over {
                break;
            }
            if at == all && now.saturating_sub(start) < limits.time_min_ns {
                at = 0;
            }
        }
        if limits.wear_out {
            self.wear_out(comm, start, at, &mut moved)?;
        }
        Ok(moved)
    }

    /// Goes on to where the fastest rank was.
    fn wear_out(
        &mut self,
        comm: &dyn Communicator,
        start: u64,
        mut at: u64,
        moved: &mut Moved,
    ) -> Result<()> {
        let counts = comm.all_gather_u64(moved.count)?;
        let stonewall = Stonewall {
            seconds: crate::clock::seconds(now_ns() - start),
            count_min: counts.iter().copied().min().unwrap_or(0),
            count_max: counts.iter().copied().max().unwrap_or(0),
            count_sum: counts.iter().sum(),
        };
        moved.stonewall = Some(stonewall);
        let mut now = now_ns();
        while moved.count < stonewall.count_max && self.order.count() > 0 {
            // A minimum of time has led beyond the end before.
            if at >= self.order.count() {
                at = 0;
            }
            now = self.one(at, moved, now)?;
            at += 1;
            comm.note_done(moved.count);
            comm.check()?;
        }
        Ok(())
    }

    /// Whether more than bookkeeping lies between two transfers.
    #[inline]
    fn prepares(&self) -> bool {
        match self.access {
            Access::Write => self.pattern.packet != Packet::Timestamp,
            Access::Read => false,
            Access::Check => true,
        }
    }

    /// Makes a transfer, after one that was over at a time; the time when it was over.
    #[inline]
    fn one(&mut self, number: u64, moved: &mut Moved, last: u64) -> Result<u64> {
        let offset = self.order.offset(number);
        match self.access {
            Access::Write => self.pattern.place(self.buffer, offset),
            Access::Check => Pattern::spoil(self.buffer),
            Access::Read => {}
        }
        let before = if self.prepares() { now_ns() } else { last };
        let done = match self.access {
            Access::Write => whole::put(self.io, self.file, self.buffer, offset),
            Access::Read | Access::Check => whole::get(self.io, self.file, self.buffer, offset),
        };
        if let Err(error) = done {
            return Err(self.failed(offset, error));
        }
        // A write that is made durable is over when it is durable.
        if self.sync_each && self.access == Access::Write {
            self.io.sync(self.file).map_err(|error| Error::io("fsync", self.path, error))?;
        }
        let after = now_ns();
        self.latencies.note(after - before);
        if self.access == Access::Check
            && let Err(wrong) = self.pattern.check(self.buffer, offset)
        {
            moved.wrong += 1;
            if moved.wrong <= DESCRIBED_MAX {
                self.describe(offset, wrong);
            }
        }
        moved.count += 1;
        Ok(after)
    }

    #[cold]
    fn failed(&self, offset: u64, error: io::Error) -> Error {
        let what = if self.access == Access::Write { "write" } else { "read" };
        Error::Io { what: format!("{what} {} at {offset}", self.path.display()), source: error }
    }

    #[cold]
    fn describe(&self, offset: u64, wrong: Wrong) {
        let place = offset + wrong.at as u64;
        let writer = match wrong.writer(self.pattern.packet, crate::comm::RANKS_MAX) {
            Some(rank) if rank != u64::from(self.pattern.rank) => {
                format!(", which is rank {rank}'s")
            }
            _ => String::new(),
        };
        eprintln!(
            "sateen-bench: wrong data in {} at {place}: {:#018x} expected, written by rank {}; \
             {:#018x} found{writer}",
            self.path.display(),
            wrong.expected,
            self.pattern.rank,
            wrong.found
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::order::Plan;
    use super::*;
    use crate::comm::Solo;
    use crate::io::slow::Slow;

    fn written(count: u64, limits: &Limits) -> (Moved, Latencies) {
        let plan = Plan {
            block: count * 4096,
            transfer: 4096,
            segments: 1,
            ranks: 1,
            shared: true,
            random: 0,
            seed: 1,
        };
        let io = Slow { sync: Duration::from_millis(20), ..Slow::default() };
        let mut latencies = Latencies::new().unwrap();
        let moved = Transfer {
            io: &io,
            file: &(),
            path: Path::new("f"),
            access: Access::Write,
            order: &Order::new(&plan, 0),
            pattern: Pattern { packet: Packet::Timestamp, signature: 1, rank: 0 },
            buffer: &mut [0; 4096],
            sync_each: true,
            latencies: &mut latencies,
        }
        .run(&Solo::new().unwrap(), limits);
        (moved.unwrap(), latencies)
    }

    #[test]
    fn making_each_write_durable_is_part_of_it() {
        let (moved, latencies) = written(5, &Limits::default());
        let found = latencies.quantiles();
        assert_eq!((moved.count, found.count), (5, 5));
        assert!(found.p50_us >= 19_900.0 && found.mean_us >= 19_900.0, "{found:?}");
        // The stonewall is reached within the first one.
        let limits = Limits { deadline_ns: Some(10_000_000), ..Limits::default() };
        assert_eq!(written(5, &limits).0.count, 1);
    }
}
