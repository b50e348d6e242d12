//! Others look at a file that is written from here: what is known of its size and times is told, at
//! once and without waiting for anything, and the lock stays.
//!
//! Told is what a program of this client would be told now, with what is kept and no OST has heard
//! of; it is no report, nothing of it is stored, and nobody may cache it. Whoever wants more than to
//! look gets the lock as ever. A lock under which nothing was written for a while is better given
//! back, so that those who look may keep what they see: then, and where the size is not known or is
//! about to be another, the answer is that nothing can be said, and the MDT calls the lock back.

use std::sync::Arc;

use sateen_types::{Fid, Timespec};
use sateen_wire::{LockId, MdtRequest, SizeReport};

use crate::client::Client;
use crate::inode::InodeState;
use crate::patience::to_the_end;
use crate::stats::Verb;
use crate::sync::lock;

/// A file that was not written for so long is not being written: 10 s.
const WRITTEN_S: u64 = 10;

impl InodeState {
    /// What others may be told of the data that this client holds under this lock.
    fn glimpsed(&self, id: LockId, now: Timespec) -> Option<SizeReport> {
        let held = self.locks.iter().find(|held| held.id == id)?;
        let attr = self.attr.as_ref().filter(|_| self.size_known)?;
        // The MDT has made another size of it, or is about to.
        if self.emptying || !held.owns_data() {
            return None;
        }
        // A time that is yet to come was set, and says nothing.
        let lately = now.sec.abs_diff(attr.mtime.sec) <= WRITTEN_S;
        let written = self.write_opens > 0 && lately;
        if !written && held.users == 0 && self.dirty.is_none() && !self.reporting {
            return None;
        }
        let (mtime, atime) = (Some(attr.mtime), Some(attr.atime));
        Some(SizeReport { size: attr.size, blocks: attr.blocks, mtime, atime })
    }
}

impl Client {
    /// Somebody looks.
    pub(crate) fn on_glimpse(self: &Arc<Client>, fid: Fid, (id, question): (LockId, u64)) {
        let (era, now) = (self.era(), self.port.now().wall());
        // Others who look do not use it, and one that is not known is not made for them.
        let inode = self.inodes.find(fid);
        let told = inode.and_then(|inode| lock(&inode.state).glimpsed(id, now));
        if told.is_some() {
            self.count(Verb::LockGlimpse);
        }
        let client = self.clone();
        self.port.spawn(Box::pin(async move {
            let answer = MdtRequest::AnswerGlimpse { fid, question, told };
            if let Err(error) = to_the_end(client.mdt_in(era, fid, answer)).await {
                tracing::debug!(%fid, %error, "an MDT did not hear what it had asked for");
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use sateen_wire::{Ibits, LockMode};

    use super::*;
    use crate::held::{Granted, Held};
    use crate::testing::attr;

    const ID: LockId = LockId(1);

    /// A file that is being written.
    fn written() -> InodeState {
        let mut state = InodeState { write_opens: 1, size_known: true, ..InodeState::default() };
        let lock = (LockMode::Pw, Ibits::DATA);
        state.locks.push(Held::new(ID, lock, Granted::new(0, 0)));
        state.attr = Some(attr(Fid::ROOT, 5));
        state.wrote(100, 100, Timespec { sec: 50, nsec: 7 });
        state
    }

    const NOW: Timespec = Timespec { sec: 55, nsec: 0 };

    #[test]
    fn who_looks_is_told_what_was_written_and_the_lock_stays() {
        let mut state = written();
        let told = state.glimpsed(ID, NOW).expect("it is being written");
        assert_eq!((told.size, told.mtime), (100, Some(Timespec { sec: 50, nsec: 7 })));
        state.wrote(130, 30, NOW);
        assert_eq!(state.glimpsed(ID, NOW).map(|told| told.size), Some(130));
        assert!(state.locks.len() == 1 && state.unreported_mtime == Some(NOW), "nothing is told");
        assert_eq!(state.report().map(|report| report.size), Some(130));
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known_or_not_written_any_more() {
        let none = |change: fn(&mut InodeState)| {
            let mut state = written();
            assert!(state.glimpsed(ID, NOW).is_some());
            change(&mut state);
            assert!(state.glimpsed(ID, NOW).is_none());
        };
        none(|state| state.size_known = false);
        none(|state| state.emptying = true);
        none(|state| state.write_opens = 0);
        none(|state| state.locks[0].mode = LockMode::Pr);
        none(|state| {
            state.locks.remove(ID);
        });
        let mut state = written();
        let later = Timespec { sec: 61, nsec: 0 };
        assert!(state.glimpsed(ID, later).is_none(), "not for a while");
        // Nor for ever because somebody has set a time that is yet to come.
        assert!(state.glimpsed(ID, Timespec { sec: 30, nsec: 0 }).is_none());
        state.locks[0].users = 1;
        assert!(state.glimpsed(ID, later).is_some(), "something is under way");
    }
}
