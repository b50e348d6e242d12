//! One time for all ranks: seconds of this node's monotonic clock, moved by what the root's
//! differed from it when the run began. Ranks of one node share the clock itself.

use crate::comm::Communicator;
use crate::error::Result;

/// Nanoseconds of this node's monotonic clock.
#[inline]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The clock of a run.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    ahead_ns: i64,
}

/// How often the clocks are compared. A rank that is kept from running meanwhile learns little
/// from that one comparison; it does not have to be the only one.
const ROUNDS: usize = 20;

/// A comparison: the root read its clock after this node's had `from`, and before it had `until`.
#[derive(Debug, Clone, Copy)]
struct Round {
    from: u64,
    root: u64,
    until: u64,
}

/// How far the root's clock is ahead, in the middle of what all comparisons together allow.
fn ahead(rounds: &[Round]) -> i64 {
    let between = |later: u64, earlier: u64| later.wrapping_sub(earlier).cast_signed();
    let least = rounds.iter().map(|round| between(round.root, round.until)).max().unwrap_or(0);
    let most = rounds.iter().map(|round| between(round.root, round.from)).min().unwrap_or(0);
    least.midpoint(most)
}

impl Clock {
    /// Agrees on the root's clock; on one node there is nothing to agree on. The nodes are those
    /// that there are: what the user says of them moves no clock.
    pub fn agree(comm: &dyn Communicator, nodes: usize) -> Result<Self> {
        if nodes <= 1 {
            return Ok(Self { ahead_ns: 0 });
        }
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let from = now_ns();
            // No rank leaves before all have come: the root's reading is between ours.
            comm.barrier()?;
            let root = comm.broadcast_u64(now_ns())?;
            rounds.push(Round { from, root, until: now_ns() });
        }
        let ahead_ns = if comm.is_root() { 0 } else { ahead(&rounds) };
        Ok(Self { ahead_ns })
    }

    /// Seconds of the root's clock.
    pub fn now(&self) -> f64 {
        seconds(now_ns().wrapping_add_signed(self.ahead_ns))
    }
}

/// Nanoseconds as seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_without_a_pause_is_enough() {
        let ahead_by = 5_000_000_000_i64;
        let round = |from: u64, read: u64, until: u64| Round {
            from,
            root: read.wrapping_add_signed(ahead_by),
            until,
        };
        // Kept from running before the meeting, after it, and not at all.
        let late = round(1_000, 900_000, 901_000);
        let held = round(2_000_000, 2_001_000, 9_000_000);
        let good = round(10_000_000, 10_004_000, 10_006_000);
        let error = |rounds: &[Round]| (ahead(rounds) - ahead_by).abs();
        assert!(error(&[late]) > 400_000 && error(&[held]) > 3_000_000);
        assert!(error(&[late, held, good]) <= 3_000, "{}", error(&[late, held, good]));
        assert!(error(&[good, held, late]) <= 3_000);
        // What each leaves open on one side the other closes.
        assert!(error(&[late, held]) <= 1_000, "{}", error(&[late, held]));
        let behind = Round { root: 3_000, ..good };
        assert!(ahead(&[behind]) < 0);
    }
}
