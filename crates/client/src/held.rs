//! The locks that a client holds on one inode.
//!
//! A client has millions of them that it does nothing with: they lie beside their inode, two of
//! them, as most files have, without memory of their own, and what is only needed while one is used
//! or given back is made then ([`Busy`]).

use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use sateen_types::Comb;
use sateen_wire::{Ibits, LockId, LockMode};

use crate::locks::{Access, Range};
use crate::lru::Namespace;

/// Ranges of a file that reads and writes were served of: offset and length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Served {
    #[default]
    Nothing,
    Ranges(Vec<(u64, u64)>),
    /// All of it, or nobody has counted.
    All,
}

impl Served {
    /// More than these are taken for all of it.
    const RANGES_MAX: usize = 64;

    /// Another is served, of all of the file if no range is named.
    pub(crate) fn add(&mut self, range: Option<(u64, u64)>) {
        match (&mut *self, range) {
            (Served::Nothing, Some(range)) => *self = Served::Ranges(vec![range]),
            (Served::Ranges(all), Some(range)) if all.len() < Served::RANGES_MAX => {
                all.push(range);
            }
            _ => *self = Served::All,
        }
    }
}

/// What a lock needs while it is being given back, or as long as requests that it came for have yet
/// to learn of it.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// What was served since the invalidation that is running began.
    pub(crate) served: Served,
    /// Rounds of invalidation so far.
    pub(crate) rounds: u32,
    /// The kernel has no pages of it any more, and those who still use it are waited for: others
    /// wait until they have ended, or that never ends where there are always some.
    pub(crate) draining: bool,
    /// Stamps of the requests that it came for, and which have yet to learn of it; each
    /// counts among the users.
    pub(crate) pins: Vec<u64>,
    /// Bytes that were written out, or read, while it is given back; and of how many the MDT was told.
    pub(crate) done: u64,
    pub(crate) told: u64,
    /// Of a part, the records that it is for; it stays as long as the lock.
    comb: Option<Comb>,
}

/// When a lock was granted: the stamp of the request that it came for, and how much later it was there.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct Granted {
    asked: u64,
    after: u32,
}

impl Granted {
    pub(crate) fn new(asked: u64, there: u64) -> Granted {
        match u32::try_from(there.saturating_sub(asked)) {
            Ok(after) => Granted { asked, after },
            // It does not say any more that its own request found what it covers.
            Err(_) => Granted { asked: there, after: 0 },
        }
    }

    /// Whether what a request sent at `stamp` found was covered: what was asked between the two
    /// may have been answered before the lock was granted.
    pub(crate) fn covers(self, stamp: u64) -> bool {
        let Granted { asked, after } = self;
        stamp == asked || stamp >= asked + u64::from(after)
    }
}

/// One lock that the client holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: LockId,
    pub(crate) granted: Granted,
    busy: Option<Box<Busy>>,
    pub(crate) bits: Ibits,
    /// Reads and writes that go by it now.
    pub(crate) users: u32,
    pub(crate) mode: LockMode,
    /// Pages may be read under it even if it is for reading only: it was there before this
    /// client opened the file for writing.
    pub(crate) readable: bool,
    /// Data was read under it: the kernel may have pages.
    pub(crate) pages: bool,
    /// It is being given back: only reads and writes of data may still go by it, because the
    /// kernel's invalidation waits for those in flight.
    pub(crate) cancelling: bool,
}

const _: () = assert!(size_of::<Held>() == 40, "there are millions of them");

impl Held {
    /// One that nobody uses yet.
    pub(crate) fn new(id: LockId, (mode, bits): (LockMode, Ibits), granted: Granted) -> Held {
        let (readable, pages, cancelling) = (false, false, false);
        Held { id, granted, busy: None, bits, users: 0, mode, readable, pages, cancelling }
    }

    /// The same of a part of the data.
    pub(crate) fn part(id: LockId, comb: Comb, granted: Granted) -> Held {
        let mut held = Held::new(id, (LockMode::Part, Ibits::DATA), granted);
        held.busy().comb = Some(comb);
        held
    }

    /// What is needed while it is not idle.
    pub(crate) fn busy(&mut self) -> &mut Busy {
        self.busy.get_or_insert_default()
    }

    /// The same, if there is any.
    pub(crate) fn if_busy(&self) -> Option<&Busy> {
        self.busy.as_deref()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.if_busy().is_some_and(|busy| busy.draining)
    }

    /// Whether nothing was served under it since the invalidation that is running began.
    pub(crate) fn served_nothing(&self) -> bool {
        self.if_busy().is_none_or(|busy| busy.served == Served::Nothing)
    }

    /// Rounds of invalidation so far.
    pub(crate) fn rounds(&self) -> u32 {
        self.if_busy().map_or(0, |busy| busy.rounds)
    }

    /// Whether it came for a request that has yet to learn of it.
    pub(crate) fn is_pinned_by(&self, stamp: u64) -> bool {
        self.if_busy().is_some_and(|busy| busy.pins.contains(&stamp))
    }

    /// That request knows now.
    pub(crate) fn unpin(&mut self, stamp: u64) {
        let Some(busy) = &mut self.busy else { return };
        busy.pins.retain(|pin| *pin != stamp);
        // What was served counts for an invalidation that has begun, and it sets that anew.
        if busy.pins.is_empty() && !self.cancelling {
            let comb = busy.comb;
            self.busy = comb.map(|comb| Box::new(Busy { comb: Some(comb), ..Busy::default() }));
        }
    }

    /// Whether the kernel may have pages that were read under it.
    pub(crate) fn may_have_pages(&self) -> bool {
        self.readable || self.mode.covers(LockMode::Pw) || self.is_group()
    }

    /// Whether the size is this client's to tell under it.
    pub(crate) fn owns_data(&self) -> bool {
        self.bits.contains(Ibits::DATA) && self.mode.covers(LockMode::Pw)
    }

    /// Whether what is written under it may be kept: nobody else reads or writes there.
    pub(crate) fn keeps(&self) -> bool {
        self.owns_data() || self.is_part()
    }

    /// Whether others may write beside this client: nothing is cached under it but what is written to
    /// a part.
    pub(crate) fn is_shared(&self) -> bool {
        self.mode.is_shared()
    }

    /// Whether it is such a one, and this client may write as well.
    pub(crate) fn shares_writes(&self) -> bool {
        matches!(self.mode, LockMode::Cw | LockMode::Group | LockMode::Part)
    }

    /// Whether it is for some records alone.
    pub(crate) fn is_part(&self) -> bool {
        self.mode == LockMode::Part
    }

    /// Whether it is a lock on all of the data that others have beside this client, but for a group's.
    pub(crate) fn is_common(&self) -> bool {
        self.bits.contains(Ibits::DATA) && matches!(self.mode, LockMode::Cr | LockMode::Cw)
    }

    /// Those records.
    pub(crate) fn comb(&self) -> Option<Comb> {
        self.if_busy().and_then(|busy| busy.comb)
    }

    /// Whether all of a range is in one of them.
    fn has(&self, range: Range) -> bool {
        let (Some(comb), Some((offset, len))) = (self.comb(), range) else { return false };
        self.is_part() && comb.has(offset, len)
    }

    /// Whether it is a group's: see [`crate::group`].
    pub(crate) fn is_group(&self) -> bool {
        self.mode == LockMode::Group
    }

    /// Whether data may be read or written under it, in this range. Under a group's anybody may, whether or
    /// not he belongs to it: see [`crate::group`]. Nothing is read under a part.
    pub(crate) fn allows(&self, access: Access, range: Range) -> bool {
        self.is_group()
            || self.mode.covers(LockMode::Pw)
            || matches!(access, Access::Read | Access::Look) && self.readable
            || access == Access::Share && self.mode == LockMode::Cw
            || access == Access::Look && matches!(self.mode, LockMode::Cr | LockMode::Cw)
            || matches!(access, Access::Share | Access::Put) && self.has(range)
    }
}

/// A lock that is given back, and whose cancel the client does not know to be answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) id: LockId,
    /// What it was; `None` for one that was called back and never known here.
    pub(crate) was: Option<(LockMode, Ibits)>,
    /// The records of a part.
    pub(crate) comb: Option<Comb>,
    /// The MDT has answered the cancel, and whoever sent it has yet to look.
    pub(crate) answered: bool,
    /// The cancel brings a report.
    pub(crate) tells: bool,
}

impl Leaving {
    pub(crate) fn new(id: LockId, was: Option<&Held>) -> Leaving {
        let comb = was.and_then(Held::comb);
        let was = was.map(|held| (held.mode, held.bits));
        Leaving { id, was, comb, answered: false, tells: false }
    }
}

/// A file has two as a rule: on its names and attributes, and on its data.
#[derive(Debug, Default)]
enum Few {
    #[default]
    None,
    One([Held; 1]),
    Two([Held; 2]),
    Many(Vec<Held>),
}

/// All locks on an inode; they count among those of its MDT.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    few: Few,
    of: Arc<Namespace>,
}

impl Locks {
    /// None yet, of the MDT that the inode belongs to.
    pub(crate) fn of(of: Arc<Namespace>) -> Locks {
        Locks { few: Few::None, of }
    }

    /// The MDT's.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.of
    }

    pub(crate) fn push(&mut self, held: Held) {
        self.few = match core::mem::take(&mut self.few) {
            Few::None => Few::One([held]),
            Few::One([first]) => Few::Two([first, held]),
            Few::Two([first, second]) => Few::Many(vec![first, second, held]),
            Few::Many(mut many) => {
                many.push(held);
                Few::Many(many)
            }
        };
        self.of.counts(1, 0);
    }

    /// Keeps those for which this holds.
    pub(crate) fn retain_mut(&mut self, mut keep: impl FnMut(&mut Held) -> bool) {
        let mut kept = Locks::of(self.of.clone());
        while let Some(mut held) = self.pop() {
            if keep(&mut held) {
                kept.push(held);
            }
        }
        core::mem::swap(self, &mut kept);
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, id: LockId) -> Option<Held> {
        let (few, removed) = match core::mem::take(&mut self.few) {
            Few::One([held]) if held.id == id => (Few::None, Some(held)),
            Few::Two([held, other]) if held.id == id => (Few::One([other]), Some(held)),
            Few::Two([other, held]) if held.id == id => (Few::One([other]), Some(held)),
            Few::Many(mut many) => {
                let at = many.iter().position(|held| held.id == id);
                let removed = at.map(|at| many.remove(at));
                (Few::Many(many), removed)
            }
            few => (few, None),
        };
        self.few = few;
        self.of.counts(0, usize::from(removed.is_some()));
        removed
    }

    /// Takes the first.
    pub(crate) fn pop(&mut self) -> Option<Held> {
        self.remove(self.first()?.id)
    }

    /// Drops all; whether there were any.
    pub(crate) fn clear(&mut self) -> bool {
        let count = self.len();
        self.of.counts(0, count);
        self.few = Few::None;
        count > 0
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.of.counts(0, self.len());
    }
}

impl Deref for Locks {
    type Target = [Held];

    fn deref(&self) -> &[Held] {
        match &self.few {
            Few::None => &[],
            Few::One(one) => one,
            Few::Two(two) => two,
            Few::Many(many) => many,
        }
    }
}

impl DerefMut for Locks {
    fn deref_mut(&mut self) -> &mut [Held] {
        match &mut self.few {
            Few::None => &mut [],
            Few::One(one) => one,
            Few::Two(two) => two,
            Few::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(id: u64) -> Held {
        Held::new(LockId(id), (LockMode::Pr, Ibits::META), Granted::new(0, 0))
    }

    #[test]
    fn any_number_of_locks_is_kept_in_order_and_counted() {
        let of = Arc::<Namespace>::default();
        let mut locks = Locks::of(of.clone());
        for id in 0..5 {
            locks.push(lock(id));
            assert_eq!((locks.len() as u64, of.lock_count() as u64), (id + 1, id + 1));
        }
        let ids = |locks: &Locks| locks.iter().map(|held| held.id.0).collect::<Vec<_>>();
        assert_eq!(locks.remove(LockId(2)).map(|held| held.id), Some(LockId(2)));
        assert!(locks.remove(LockId(2)).is_none());
        assert_eq!(ids(&locks), [0, 1, 3, 4]);
        locks.retain_mut(|held| held.id.0 % 2 == 1);
        assert_eq!((ids(&locks), of.lock_count()), (vec![1, 3], 2));
        if let Some(held) = locks.iter_mut().next() {
            held.users = 1;
        }
        assert!(locks[0].users == 1 && locks[1].users == 0);
        assert_eq!(locks.remove(LockId(1)).map(|held| held.users), Some(1));
        assert_eq!(ids(&locks), [3]);
        locks.push(lock(9));
        assert_eq!(locks.pop().map(|held| held.id), Some(LockId(3)));
        locks.push(lock(11));
        assert!(locks.clear() && !locks.clear() && locks.pop().is_none());
        assert!(locks.is_empty() && of.lock_count() == 0);
        locks.push(lock(10));
        drop(locks);
        assert_eq!(of.lock_count(), 0);
    }

    #[test]
    fn what_was_asked_before_a_lock_was_there_is_not_covered_but_its_own_request_is() {
        let granted = Granted::new(10, 20);
        assert!(granted.covers(10) && granted.covers(20) && granted.covers(21));
        assert!(!granted.covers(9) && !granted.covers(11) && !granted.covers(19));
        let late = Granted::new(10, 10 + (1 << 40));
        assert!(!late.covers(10) && late.covers(10 + (1 << 40)));
    }

    #[test]
    fn what_a_lock_needs_while_it_is_busy_goes_with_its_pins() {
        let mut held = lock(1);
        assert!(held.served_nothing() && held.rounds() == 0 && !held.is_draining());
        held.busy().pins.push(7);
        held.busy().served.add(None);
        assert!(held.is_pinned_by(7) && !held.is_pinned_by(8) && !held.served_nothing());
        held.cancelling = true;
        held.unpin(7);
        assert!(!held.served_nothing(), "it is being given back");
        held.cancelling = false;
        held.unpin(8);
        assert!(held.if_busy().is_none());
    }

    #[test]
    fn a_part_has_its_records_as_long_as_it_is_there_and_allows_writing_them_alone() {
        let comb = Comb::new(100, 10, 50).expect("a comb");
        let mut held = Held::part(LockId(1), comb, Granted::new(0, 0));
        held.busy().pins.push(7);
        held.unpin(7);
        assert_eq!(held.comb(), Some(comb));
        assert!(held.keeps() && held.is_shared() && held.shares_writes());
        assert!(!held.owns_data() && !held.may_have_pages());
        for access in [Access::Share, Access::Put] {
            assert!(held.allows(access, Some((150, 10))), "{access:?}");
            for range in [None, Some((150, 11)), Some((160, 1)), Some((50, 10)), Some((150, 0))] {
                assert!(!held.allows(access, range), "{access:?} {range:?}");
            }
        }
        for access in [Access::Read, Access::Look, Access::Write] {
            assert!(!held.allows(access, Some((150, 10))) && !held.allows(access, None));
        }
        let unknown = Held::new(LockId(2), (LockMode::Part, Ibits::DATA), Granted::new(0, 0));
        assert!(!unknown.allows(Access::Share, Some((150, 10))), "its records are not known");
    }
}
