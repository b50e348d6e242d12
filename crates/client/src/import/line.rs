//! The line of those who wait for a slot. For each slot that becomes free one is woken, the first of
//! those that may have it: of thousands who wait, to have each look at every answer takes longer than
//! what they ask for.
//!
//! Who was *called* has a slot put by until he has looked. Nobody is called for a slot that he does not
//! find, so whoever is called in vain (another, who may go on with fewer slots left, was quicker; or he
//! does not want it any more) has the next looked for. All are woken where more than a slot has
//! changed: the connection, or how many there may be.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use sateen_wire::Request;

use super::room::{InUse, slots_kept_for};
use super::{Import, Link, SLOTS_KEPT, State};
use crate::sync::{Woken, lock};
use crate::uncommitted::waits_for_room;

/// Which slots a request finds. Those with more come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Nobody ever waits for what it waits for.
    GivesBack,
    /// Others may wait for its end.
    WaitedFor,
    /// It changes nothing.
    Looks,
    Changes,
}

impl Rank {
    pub(super) fn of(request: &Request, in_use: InUse<'_>) -> Rank {
        match slots_kept_for(request, in_use) {
            0 if waits_for_room(request) => Rank::Changes,
            0 => Rank::Looks,
            SLOTS_KEPT => Rank::WaitedFor,
            _ => Rank::GivesBack,
        }
    }

    /// How many it finds beside those for everybody.
    pub(super) fn slots_kept(self) -> usize {
        match self {
            Rank::GivesBack => 2 * SLOTS_KEPT,
            Rank::WaitedFor => SLOTS_KEPT,
            Rank::Looks | Rank::Changes => 0,
        }
    }
}

/// A place in the line: which slots are wanted, and who came before.
type Key = (Rank, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: BTreeMap<Key, Waker>,
    /// Those who were woken for a slot each, and have not looked since.
    called: BTreeSet<u64>,
    /// How many have come so far: each has a number of its own.
    came: u64,
}

impl Line {
    /// Everybody, to be woken after the state's mutex is released. Who was called still is.
    pub(super) fn take(&mut self) -> Woken {
        core::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Slots that are put by.
    pub(super) fn put_by(&self) -> usize {
        self.called.len()
    }

    /// Who came first of a rank.
    fn first(&self, rank: Rank) -> Option<Key> {
        let (key, _) = self.waiting.range((rank, 0)..).next()?;
        (key.0 == rank).then_some(*key)
    }
}

impl State {
    /// Whether there is a slot for a request of this rank, if so many are put by for others.
    pub(super) fn has_slot(&self, rank: Rank, put_by: usize) -> bool {
        let all = self.rpcs_max + rank.slots_kept();
        self.in_flight() + put_by < all && !(rank == Rank::Changes && self.changes_enough())
    }

    /// A slot may be free: who is called for it, to be woken after the mutex is released.
    pub(super) fn call_next(&mut self) -> Woken {
        if self.line.waiting.is_empty() || self.link != Link::Open {
            return Woken::default();
        }
        let put_by = self.line.put_by();
        let first = |rank: Rank| {
            let key = self.line.first(rank)?;
            self.has_slot(rank, put_by).then_some(key)
        };
        let rest = [Rank::WaitedFor, Rank::Looks, Rank::Changes].into_iter().filter_map(first);
        let next = first(Rank::GivesBack).or_else(|| rest.min_by_key(|(_, number)| *number));
        let woken = next.and_then(|key| {
            self.line.called.insert(key.1);
            self.line.waiting.remove(&key)
        });
        woken.into_iter().collect()
    }
}

/// Somebody who wants a slot. Where it ends, what was put by for it is somebody else's.
#[derive(Debug)]
pub(super) struct Place<'a> {
    import: &'a Import,
    /// 0 as long as it did not have to wait.
    number: u64,
    /// Where it waits, if it does.
    key: Option<Key>,
    /// Whom it had woken before: to be dropped when nothing is locked, since that may be the last that
    /// knows of a task.
    woke: Option<Waker>,
}

impl Place<'_> {
    pub(super) fn new(import: &Import) -> Place<'_> {
        Place { import, number: 0, key: None, woke: None }
    }

    /// It looks: whether a request finds a slot, and nobody is before it. It waits no more, and
    /// nothing is put by for it.
    pub(super) fn finds(&mut self, state: &mut State, rank: Rank) -> bool {
        let called = self.leave(state);
        let put_by = if called { 0 } else { state.line.put_by() };
        let is_before = |key: Key| self.number != 0 && (rank, self.number) < key;
        let first = called || state.line.first(rank).is_none_or(is_before);
        first && state.has_slot(rank, put_by)
    }

    /// It waits.
    pub(super) fn wait(&mut self, state: &mut State, rank: Rank, waker: &Waker) {
        self.leave(state);
        if self.number == 0 {
            state.line.came += 1;
            self.number = state.line.came;
        }
        let key = (rank, self.number);
        state.line.waiting.insert(key, waker.clone());
        self.key = Some(key);
    }

    /// When the mutex is released.
    pub(super) fn is_left(&mut self) {
        self.woke = None;
    }

    /// It waits no more; whether it was called.
    pub(super) fn leave(&mut self, state: &mut State) -> bool {
        let Some(key) = self.key.take() else { return false };
        self.woke = state.line.waiting.remove(&key);
        state.line.called.remove(&self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.key.is_none() {
            return;
        }
        let next = {
            let mut state = lock(&self.import.state);
            self.leave(&mut state);
            state.call_next()
        };
        next.wake();
    }
}
