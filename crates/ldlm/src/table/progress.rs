//! Who gives a lock back slowly: he is not gone, as long as he says that he goes on.
//!
//! Life of a callback: it is sent, and sent again; each word of more that was done begins its holder's
//! time anew; it ends with the lock, or its time is over, and the holder is evicted. What he says is not
//! proved, so that it buys no more than [`CALLBACK_MAX_NS`].

use sateen_types::{ClientId, Fid};
use sateen_wire::{Ibits, LockId};

use super::LockTable;

/// Whatever is told, somebody waits for no more than this, or one time limit: 10 min.
pub const CALLBACK_MAX_NS: u64 = 600_000_000_000;
/// What a byte buys, beside the time limit, however often it begins anew: a second for 32 KiB.
const BYTE_NS: u64 = 30_518;

/// The time of one callback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// When it was sent, or its holder could begin.
    since_ns: u64,
    /// When he went on last, or was called.
    went_on_ns: u64,
    pub(super) repeated_ns: u64,
    /// How much he has said that was done.
    done: u64,
}

impl Clock {
    pub(super) fn new(now_ns: u64) -> Clock {
        Clock { since_ns: now_ns, went_on_ns: now_ns, repeated_ns: now_ns, done: 0 }
    }

    /// Its holder has all of his time from now on.
    pub(super) fn begin_anew(&mut self, now_ns: u64) {
        (self.since_ns, self.went_on_ns) = (now_ns, now_ns);
    }

    /// More was done, if it was.
    fn goes_on(&mut self, now_ns: u64, done: u64) -> bool {
        let more = done > self.done;
        if more {
            (self.went_on_ns, self.done) = (now_ns, done);
        }
        more
    }

    /// Whether nobody need wait any longer.
    pub(super) fn is_over(&self, now_ns: u64, limit_ns: u64) -> bool {
        let bought_ns = limit_ns.saturating_add(self.done.saturating_mul(BYTE_NS));
        let most_ns = bought_ns.min(limit_ns.max(CALLBACK_MAX_NS));
        now_ns.saturating_sub(self.went_on_ns) >= limit_ns
            || now_ns.saturating_sub(self.since_ns) >= most_ns
    }
}

impl LockTable {
    /// A holder that is called back says how many bytes were written out since he began to give the lock
    /// back. Whether that gives him more time: if it is more than he said before, and the lock one on data.
    /// For others nothing has to be written out.
    pub fn goes_on(
        &mut self,
        now_ns: u64,
        (client, fid, id): (ClientId, Fid, LockId),
        done: u64,
    ) -> bool {
        let lock = self.slab.find(id).and_then(|slot| self.slab.get(slot));
        let is_his = lock.is_some_and(|lock| {
            (lock.client, lock.fid) == (client, fid) && lock.bits.intersects(Ibits::DATA)
        });
        is_his && self.called.get_mut(&id).is_some_and(|clock| clock.goes_on(now_ns, done))
    }
}
