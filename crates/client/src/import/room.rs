//! Who finds a slot when others have to wait; and that whoever wants something changed waits while no
//! more changes can be kept that an MDT may lose.

use sateen_types::{Errno, Result};
use sateen_wire::{Body, Bulk, FileLockMode, Ibits, MdtRequest, Request};

use super::{Import, Link, RPCS_IN_FLIGHT_MAX, SLOTS_KEPT, SlotState, State};
use crate::port::Port;
use crate::sync::lock;
use crate::uncommitted::waits_for_room;

/// Whether others may be kept waiting for locks until a request is answered. Looked at whenever it
/// could be sent, because that changes.
pub(crate) type InUse<'a> = &'a (dyn Fn() -> bool + Send + Sync);
/// They may be.
pub(crate) const WAITED_FOR: InUse<'static> = &|| true;

/// Slots that a request finds beside those for everybody.
pub(super) fn slots_kept_for(request: &Request, in_use: InUse<'_>) -> usize {
    match request {
        Request::Ping | Request::Disconnect | Request::Mdt(MdtRequest::Cancel { .. }) => {
            2 * SLOTS_KEPT
        }
        // Nor do these, and others wait for what they give back, or tell.
        Request::Mdt(
            MdtRequest::LeaveFileLock { .. }
            | MdtRequest::AnswerGlimpse { .. }
            | MdtRequest::GoesOn { .. },
        ) => 2 * SLOTS_KEPT,
        Request::Mdt(MdtRequest::SetFileLock { lock, .. }) => match lock.mode {
            FileLockMode::Unlock => 2 * SLOTS_KEPT,
            // Others are kept waiting by a turn that is not taken.
            FileLockMode::Read | FileLockMode::Write => SLOTS_KEPT,
        },
        // It empties the file under a data lock in use, which others may want meanwhile. Those
        // that do so without a lock, or set a mode, wait for others as any request does, and
        // many at once would leave no slot to give locks back in.
        Request::Mdt(MdtRequest::Open { flags, .. }) if flags.truncate && in_use() => SLOTS_KEPT,
        Request::Mdt(MdtRequest::SetAttr { .. }) if in_use() => SLOTS_KEPT,
        Request::Mdt(
            MdtRequest::ReportSize { .. }
            | MdtRequest::Close { .. }
            | MdtRequest::Sync { .. }
            | MdtRequest::GetStripe { .. }
            | MdtRequest::NoRoom { .. }
            | MdtRequest::GetAttr { want: Ibits::NONE, .. },
        ) => SLOTS_KEPT,
        _ => 0,
    }
}

/// Enough pieces of one file on their way to an OST that it always has the next, and few enough that to
/// look at each of them at every answer costs nothing.
const WRITES_AT_ONCE: usize = 32;

impl State {
    /// Requests in flight that change something, at most: as many as there may be in all, or, if a
    /// number was set, always less, so that those who only look find a slot beside them.
    pub(super) fn mod_rpcs_max(&self) -> usize {
        match self.mod_rpcs_set {
            Some(set) => set.min(self.rpcs_max - 1).max(1),
            None => self.rpcs_max,
        }
    }

    /// Whether too many are in flight that change something for one more. Not of those that are under
    /// way while others wait for the locks in use, nor of what gives something back.
    pub(super) fn changes_enough(&self) -> bool {
        let max = self.mod_rpcs_max();
        if self.in_flight() < max {
            return false;
        }
        let changing = self.slots.iter().filter(|slot| match &slot.state {
            SlotState::Busy(pending) => match &pending.message.body {
                Body::Request(request) => waits_for_room(request),
                _ => false,
            },
            SlotState::Free | SlotState::Answered(_) => false,
        });
        changing.count() >= max
    }
}

impl Import {
    /// How many requests may be in flight that change something.
    ///
    /// # Errors
    /// `ERANGE` unless it is 1 to less than [`RPCS_IN_FLIGHT_MAX`]; `EOPNOTSUPP` unless it is an MDT.
    pub(crate) fn set_mod_rpcs_max(&self, max: usize) -> Result<()> {
        if !self.is_mdt() {
            return Err(Errno::EOPNOTSUPP);
        }
        if !(1..RPCS_IN_FLIGHT_MAX).contains(&max) {
            return Err(Errno::ERANGE);
        }
        let woken = {
            let mut state = lock(&self.state);
            state.mod_rpcs_set = Some(max);
            state.everybody()
        };
        woken.wake();
        Ok(())
    }

    /// So many pieces of one file are on their way at once when it is written out: as many as there are
    /// slots for, and of many of those half.
    pub(crate) fn writes_at_once(&self) -> usize {
        let max = lock(&self.state).rpcs_max;
        WRITES_AT_ONCE.max(max / 2).min(max)
    }

    /// Slots that are free for what nobody has asked for yet, of which so much was `asked`: half of
    /// all are left to others.
    pub(crate) fn slots_to_spare(&self, asked: usize) -> usize {
        let state = lock(&self.state);
        if state.link != Link::Open {
            return 0;
        }
        (state.rpcs_max / 2).saturating_sub(state.in_flight().max(asked))
    }

    /// Waits until a further change can be kept that the MDT may lose: has it commit those that are.
    pub(super) async fn has_room(&self, port: &dyn Port, era: Option<u64>) {
        let full = || lock(&self.state).uncommitted.full();
        while let Some(upto) = full() {
            let request = (Request::Mdt(MdtRequest::Sync { upto }), Bulk::None);
            // No change itself: it does not come by here again.
            let synced = Box::pin(self.call(port, request, WAITED_FOR, (|| 0, false), era));
            if synced.await.is_err() {
                // Whoever asks hears what has become of the connection.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sateen_types::Fid;
    use sateen_wire::{Cred, FileLock, OpenFlags, OpenId, SetAttr};

    use super::*;

    #[test]
    fn who_gives_back_finds_a_slot_and_who_has_a_lock_in_use() {
        let (fid, open_id) = (Fid::ROOT, OpenId { id: 1 });
        let cred = Cred { uid: 0, gid: 0, umask: 0 };
        let open = |truncate| {
            let flags = OpenFlags { write: true, truncate, exec: false };
            Request::Mdt(MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE })
        };
        let set = || Request::Mdt(MdtRequest::SetAttr { fid, set: SetAttr::default(), cred });
        let lock = |mode| {
            let lock = FileLock { owner: 1, flock: false, mode, start: 0, end: 9, pid: 7 };
            Request::Mdt(MdtRequest::SetFileLock { fid, open_id, lock, wait: None })
        };
        let kept = |request: Request| {
            [slots_kept_for(&request, &|| true), slots_kept_for(&request, &|| false)]
        };
        assert_eq!(kept(open(true)), [SLOTS_KEPT, 0], "while the lock is in use");
        assert_eq!(kept(open(false)), [0, 0]);
        assert_eq!(kept(set()), [SLOTS_KEPT, 0]);
        assert_eq!(kept(lock(FileLockMode::Unlock)), [2 * SLOTS_KEPT; 2]);
        assert_eq!(kept(lock(FileLockMode::Write)), [SLOTS_KEPT; 2]);
        assert_eq!(kept(Request::Ping), [2 * SLOTS_KEPT; 2]);
        assert_eq!(kept(Request::Mdt(MdtRequest::Sync { upto: 1 })), [SLOTS_KEPT; 2]);
        assert_eq!(kept(Request::Mdt(MdtRequest::StatFs)), [0, 0]);
    }
}
