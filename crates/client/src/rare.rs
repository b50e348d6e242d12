//! What only some inodes need: those that are written, that wait for something, whose locks are given
//! back, and directories. A client has millions of others. It is made when it is first changed, and
//! goes when nothing of it is left ([`InodeState::slim`]).
//!
//! Reading it needs nothing; `&mut` makes it. So whoever clears something that is not there as a rule
//! looks whether it is before.

use core::ops::{Deref, DerefMut};
use std::cell::RefCell;
use std::sync::OnceLock;

use sateen_types::{Errno, Timespec};

use crate::by_stripe::ByStripe;
use crate::comb::Vain;
use crate::dir_pages::DirPages;
use crate::dirty::{Dirty, LateErrors};
use crate::given::GivenAway;
use crate::group::Group;
use crate::held::Leaving;
use crate::inode::{InodeState, SharedWrites, Unsynced};
use crate::kept_xattrs::KeptXattrs;
use crate::known_names::KnownNames;
use crate::open_cache::KeptOpens;
use crate::readahead::Ahead;
use crate::sync::{Waiters, Woken};

/// So many that have gone a thread keeps the memory of: a file that is made and closed needs one for a
/// moment.
const SPARE_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<Rare>> = const { RefCell::new(Vec::new()) };
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RareState {
    /// Cancels that the MDT has not answered: it may meanwhile have granted the same lock once
    /// more, and is about to take it back, so that no grant is believed.
    pub(crate) cancels: Vec<Leaving>,
    /// Of a directory whose names it knows all of, and has held locked since.
    pub(crate) names: KnownNames,
    /// Opens for reading and writing: only these can be mapped to store.
    pub(crate) map_opens: u32,
    pub(crate) exec_opens: u32,
    /// Open at the MDT, and for no program here: see [`crate::open_cache`].
    pub(crate) kept_opens: KeptOpens,
    /// Of a directory, what was listed: see [`crate::dir_pages`].
    pub(crate) dir_pages: DirPages,
    /// What was answered of it: see [`crate::kept_xattrs`].
    pub(crate) xattrs: Option<Box<KeptXattrs>>,
    /// When the data was last written, if the MDT has not heard of it.
    pub(crate) unreported_mtime: Option<Timespec>,
    /// The same of what was written under a shared lock.
    pub(crate) shared: Option<Box<SharedWrites>>,
    /// The atime that reading from here has set, if the MDT has not heard of it.
    pub(crate) unreported_atime: Option<Timespec>,
    /// What was written and is not at the OSTs yet: only while the lock for writing is held, or a
    /// part, and the size is to be told.
    pub(crate) dirty: Option<Box<Dirty>>,
    /// Those who want nothing to be kept meanwhile: see [`crate::dirty`].
    pub(crate) looking: u32,
    pub(crate) late: LateErrors,
    pub(crate) unsynced: ByStripe<Unsynced>,
    /// The kernel reads and writes it itself: see [`crate::given`].
    pub(crate) given: Option<Box<GivenAway>>,
    /// Its data is a group's: see [`crate::group`].
    pub(crate) group: Group,
    /// Whether a part of its data was asked for in vain. It may be forgotten.
    pub(crate) no_parts: Vain,
    /// What was read before anybody asked: see [`crate::readahead`].
    pub(crate) ahead: Option<Box<Ahead>>,
    /// Syncs of the objects: one at a time, each with a number.
    pub(crate) sync_round: u64,
    /// The last of them that failed.
    pub(crate) sync_failed: Option<(u64, Errno)>,
    /// Writes under way.
    pub(crate) writing: u32,
    /// Those who set times or the size, where files are given away.
    pub(crate) setting: u32,
    pub(crate) waiters: Waiters,
}

impl RareState {
    /// Whether nothing of it is left. Numbers of syncs may begin anew if nobody is at one.
    fn is_nothing(&self) -> bool {
        self.cancels.is_empty()
            && self.names.is_new()
            && self.map_opens == 0
            && self.exec_opens == 0
            && self.kept_opens.is_empty()
            && self.dir_pages.is_nothing()
            && self.xattrs.is_none()
            && self.unreported_mtime.is_none()
            && self.shared.is_none()
            && self.unreported_atime.is_none()
            && self.dirty.is_none()
            && self.looking == 0
            && self.late.count() == 0
            && self.unsynced.is_empty()
            && self.given.is_none()
            && self.group.is_none()
            && self.ahead.is_none()
            && self.writing == 0
            && self.setting == 0
            && self.waiters.is_empty()
    }
}

/// The same, if there is any.
#[derive(Debug, Default)]
pub(crate) struct Rare(Option<Box<RareState>>);

impl Rare {
    fn make(&mut self) -> &mut RareState {
        // A thread that ends has none any more.
        let spare = || SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        self.0.get_or_insert_with(|| spare().and_then(|spare| spare.0).unwrap_or_default())
    }

    /// Nothing is left of it.
    fn goes(&mut self) {
        let Some(mut rare) = self.0.take() else { return };
        *rare = RareState::default();
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(Rare(Some(rare)));
            }
        });
    }
}

impl Deref for InodeState {
    type Target = RareState;

    fn deref(&self) -> &RareState {
        static NOTHING: OnceLock<RareState> = OnceLock::new();
        match &self.rare.0 {
            Some(rare) => rare,
            None => NOTHING.get_or_init(RareState::default),
        }
    }
}

impl DerefMut for InodeState {
    fn deref_mut(&mut self) -> &mut RareState {
        self.rare.make()
    }
}

impl InodeState {
    /// What there is of it.
    pub(crate) fn rare_if_any(&mut self) -> Option<&mut RareState> {
        self.rare.0.as_deref_mut()
    }

    /// Everyone who waits, to be woken when the state's mutex is released.
    pub(crate) fn take_waiters(&mut self) -> Woken {
        self.rare_if_any().map(|rare| rare.waiters.take()).unwrap_or_default()
    }

    /// Keeps nothing that it does not need. For who knows that nobody is at this inode: a sync that
    /// has ended may yet be looked at.
    pub(crate) fn slim(&mut self) {
        let idle = self.opens == 0 && !self.syncing;
        if idle && self.rare.0.as_ref().is_some_and(|rare| rare.is_nothing()) {
            self.rare.goes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_is_not_made_and_what_is_empty_goes() {
        let mut state = InodeState::default();
        assert!(state.cancels.is_empty() && state.dirty.is_none() && state.looking == 0);
        state.take_waiters().wake();
        assert!(state.report().is_none());
        state.lost_locks();
        state.forgotten();
        assert!(state.rare.0.is_none());
        state.looking += 1;
        state.slim();
        assert!(state.rare.0.is_some());
        state.looking -= 1;
        state.opens = 1;
        state.slim();
        assert!(state.rare.0.is_some(), "somebody has it open");
        state.opens = 0;
        state.slim();
        assert!(state.rare.0.is_none());
    }
}
