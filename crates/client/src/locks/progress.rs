//! A lock that is given back slowly, because OSTs are slow: the MDT is told that they do something, and
//! throws nobody out for it (docs/protocol.md, *Locks*).
//!
//! It is told when it calls back once more, and only if OSTs have answered something of the inode since it
//! was told last. So whose OSTs stand still says nothing, and a lock that goes at once costs no message.

use std::sync::Arc;

use sateen_wire::{LockId, MdtRequest};

use crate::client::Client;
use crate::held::Held;
use crate::inode::{Inode, InodeState};
use crate::patience::to_the_end;
use crate::sync::lock;

/// What a read or write counts at least that ends under a lock which is given back, however long it was: as
/// much as a kernel asks for at once, 1 MiB. Many small ones take no less time.
const CALL_BYTES: u64 = 1 << 20;

impl Held {
    /// A read or write under it has ended.
    pub(super) fn call_ended(&mut self) {
        if self.cancelling {
            self.busy().done += CALL_BYTES;
        }
    }
}

impl InodeState {
    /// So much of what was kept has been written out.
    pub(crate) fn went_out(&mut self, bytes: u64) {
        let waits = |held: &&mut Held| held.cancelling && held.keeps();
        for held in self.locks.iter_mut().filter(waits) {
            held.busy().done += bytes.max(CALL_BYTES);
        }
    }

    /// How much was done for a lock to be given back, if it is more than the MDT was told.
    fn news_of(&mut self, id: LockId) -> Option<u64> {
        let held = self.locks.iter_mut().find(|held| held.id == id && held.cancelling)?;
        let busy = held.busy();
        let is_news = busy.done > busy.told;
        busy.told = busy.done;
        is_news.then_some(busy.done)
    }
}

impl Client {
    /// A lock was called back, perhaps once more. Whether it is being given back, and there was news of that.
    pub(super) async fn tell_progress(self: &Arc<Client>, inode: &Inode, id: LockId) -> bool {
        let (era, fid) = (self.era(), inode.fid);
        if !self.hears_of_progress(fid) {
            return false;
        }
        let Some(done) = lock(&inode.state).news_of(id) else { return false };
        let word = MdtRequest::GoesOn { fid, id, done };
        if let Err(error) = to_the_end(self.mdt_in(era, fid, word)).await {
            tracing::debug!(%fid, %error, "an MDT did not hear that a lock is on its way");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use sateen_wire::{Ibits, LockMode};

    use super::*;
    use crate::held::Granted;

    fn holds(mode: LockMode) -> InodeState {
        let mut state = InodeState::default();
        state.locks.push(Held::new(LockId(1), (mode, Ibits::DATA), Granted::new(0, 0)));
        state
    }

    #[test]
    fn only_what_is_done_for_a_lock_that_is_given_back_is_told_and_once() {
        let mut state = holds(LockMode::Pw);
        state.went_out(7);
        state.locks[0].call_ended();
        assert_eq!(state.news_of(LockId(1)), None, "nobody wants it");
        state.locks[0].cancelling = true;
        assert_eq!(state.news_of(LockId(1)), None, "nothing was done for that");
        state.went_out(7);
        assert_eq!(state.news_of(LockId(2)), None, "another");
        assert_eq!([state.news_of(LockId(1)), state.news_of(LockId(1))], [Some(CALL_BYTES), None]);
        state.went_out(5 * CALL_BYTES);
        state.locks[0].call_ended();
        assert_eq!(state.news_of(LockId(1)), Some(7 * CALL_BYTES));
    }

    #[test]
    fn what_is_written_out_is_no_progress_of_a_lock_that_does_not_wait_for_it() {
        let mut state = holds(LockMode::Cw);
        state.locks[0].cancelling = true;
        state.went_out(7);
        assert_eq!(state.news_of(LockId(1)), None);
        state.locks[0].call_ended();
        assert_eq!(state.news_of(LockId(1)), Some(CALL_BYTES));
    }
}
