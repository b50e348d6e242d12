//! When a target ticks, and when its changes are made durable that nobody waits for.
//!
//! A change gets as old as `commit_age_ns`. A tick that comes when it is half as old takes it
//! along, so that the targets of a process write together and a busy one as often as its changes
//! get old. A target that goes on with ticks alone ([`Pace::Soon`]) has all its changes written at
//! each.

use sateen_target::{Pace, Service, TICK_NS};
use sateen_wire::StatFs;

use super::{State, TargetHost, flush};
use crate::sync::{Ordering, lock};

/// The space is looked at each second, with a tick that may come a little early.
const SPACE_NS: u64 = 900_000_000;
/// And at each tick and group commit while less is left: what others write in a second.
const SCARCE_BYTES: u64 = 2 << 30;

/// How old the oldest change is that no group commit has taken.
#[derive(Debug, Default)]
pub(super) struct Age {
    /// When it was made, or found to be there.
    since_ns: Option<u64>,
    /// The last transaction that a group commit has taken.
    taken: u64,
}

impl Age {
    /// The last transaction is this, and it is not durable.
    fn look(&mut self, transno: u64, now_ns: u64) {
        if transno > self.taken {
            self.since_ns.get_or_insert(now_ns);
        }
    }

    /// A group commit takes the transactions up to this one.
    pub(super) fn take(&mut self, upto: u64) {
        (self.since_ns, self.taken) = (None, upto);
    }
}

/// When the space was looked at.
#[derive(Debug, Default)]
pub(super) struct Space {
    looked_ns: Option<u64>,
    scarce: bool,
}

impl<S: Service + 'static> TargetHost<S> {
    /// When the target wants its next tick. To be asked after each event.
    pub(super) fn due_ns(&self, state: &mut State<S>, now_ns: u64) -> u64 {
        let pace = state.service.pace();
        let store = state.service.store();
        // Who waits for room goes on with a tick.
        let pace = if store.must_wait() { Pace::Soon } else { pace };
        if store.dirty() {
            let transno = store.transno();
            state.age.look(transno, now_ns);
        }
        let age_ns = self.commit_age_ns.load(Ordering::Relaxed);
        let old_ns = state.age.since_ns.map_or(u64::MAX, |since| since.saturating_add(age_ns));
        old_ns.min(now_ns.saturating_add(pace.ns()))
    }

    /// At a tick: whether a group commit is to be written now. When the next tick is wanted the
    /// ticker hears.
    pub(super) fn wants_commit(&self) -> bool {
        let mut state = lock(&self.state);
        let now_ns = self.clock.mono_ns();
        let due_ns = self.due_ns(&mut state, now_ns);
        let age_ns = self.commit_age_ns.load(Ordering::Relaxed);
        let soon = state.service.pace() == Pace::Soon;
        let old = |since: u64| soon || since.saturating_add(age_ns / 2) <= now_ns;
        let wants = !state.poisoned && !state.flushing && state.age.since_ns.is_some_and(old);
        drop(state);
        // If changes go on the next are as old by then; and one that is being written takes its
        // time.
        let next_ns = if wants { now_ns.saturating_add(age_ns) } else { due_ns };
        self.hosts.tick_by(next_ns.max(now_ns.saturating_add(TICK_NS)));
        wants
    }

    /// The space, if it is time to look.
    pub(super) fn space_now(&self) -> Option<StatFs> {
        let mut state = lock(&self.state);
        let now_ns = self.clock.mono_ns();
        let Space { looked_ns, scarce } = &mut state.space;
        if !*scarce && looked_ns.is_some_and(|looked| now_ns < looked.saturating_add(SPACE_NS)) {
            return None;
        }
        *looked_ns = Some(now_ns);
        drop(state);
        self.index.space()
    }

    /// What was seen of it.
    pub(super) fn learn_space(&self, state: &mut State<S>, space: StatFs) {
        state.space.scarce = space.bytes_avail < SCARCE_BYTES;
        state.journal_bytes_max = flush::journal_bytes_max(&space);
        state.service.on_space(space);
    }
}
