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

impl Clock {
    /// Agrees on the root's clock; on one node there is nothing to agree on.
    pub fn agree(comm: &dyn Communicator, nodes: usize) -> Result<Self> {
        if nodes <= 1 {
            return Ok(Self { ahead_ns: 0 });
        }
        comm.barrier()?;
        let mine = now_ns();
        let root = comm.broadcast_u64(mine)?;
        Ok(Self { ahead_ns: root.wrapping_sub(mine).cast_signed() })
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
