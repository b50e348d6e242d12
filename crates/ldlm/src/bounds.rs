//! How many locks a target keeps: as many as the memory that it is given for them holds.
//!
//! Up to a first bound nobody notices. Beyond it the target asks for those back that it has granted
//! first, of whoever has most, for nobody's sake; beyond a second one replies bring no locks along
//! any more, which is right but not cached; beyond a third nobody gets a lock that he waits for. What
//! clients had before a restart, and the target's own locks, are bound by the slots alone.

use crate::slab::SLOTS_MAX;

/// Memory of the server that a lock takes, with its place in the tables, when these have just grown:
/// see `tests/memory.rs`.
pub const LOCK_BYTES: u64 = 168;
/// Memory for the locks of a target, unless it is set otherwise: 1 GiB, 6.4 million locks.
pub const LOCK_LIMIT_BYTES: u64 = 1 << 30;
/// Beyond this much of it locks are asked back, unless it is set otherwise: 768 MiB, 4.8 million.
pub const LOCK_RECLAIM_BYTES: u64 = 768 << 20;
/// Slots kept for the target's own locks.
const SLOTS_OWN: usize = 1 << 20;
/// Most locks that may be there after a restart.
pub(crate) const TOLD_MAX: usize = SLOTS_MAX - SLOTS_OWN;

/// How many locks there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Beyond so many, those granted first are asked back.
    pub reclaim: usize,
    /// So many at most come along with replies.
    pub limit: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::of_bytes(LOCK_LIMIT_BYTES, LOCK_RECLAIM_BYTES)
    }
}

impl Bounds {
    /// As many as have room in so much memory.
    pub fn of_bytes(limit_bytes: u64, reclaim_bytes: u64) -> Bounds {
        let locks = |bytes: u64| usize::try_from(bytes / LOCK_BYTES).unwrap_or(usize::MAX);
        // Those that clients wait for come on top.
        let limit = locks(limit_bytes).min(TOLD_MAX / 5 * 4);
        Bounds { reclaim: locks(reclaim_bytes).min(limit), limit }
    }

    /// Most locks, with those that clients wait for.
    pub fn waited(&self) -> usize {
        self.limit.saturating_add(self.limit / 4 + 1).min(TOLD_MAX)
    }
}
