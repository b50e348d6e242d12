//! The end of a run in good order: nothing of it is lost.
//!
//! 1. Nothing new is begun, but what was is finished and answered; if that takes too long, the run
//!    ends as if it had crashed.
//! 2. All objects that were written and not synced since are synced. Which ones is kept in memory;
//!    of too many it is not known, and the run does not end in good order. Then those that were given
//!    away, which the store knows.
//! 3. The boot epoch of this run is written down beside those of earlier ones that ended so. A
//!    `Sync` that names one of them succeeds in every later run, because nothing that was written
//!    in it can be lost any more; `Connected` tells the last.
//!
//! A run that was killed is as good as one that ended so, if the store knows that the kernel has
//! kept what it was given ([`Ost::nothing_lost_of`]): what an OST has answered for it has written.
//! What such a run had not committed yet are records of its writers and objects: of an object that was
//! born in its last 50 ms the guard against older generations of its layout is missing until somebody
//! writes to it again, as after any crash.

use std::collections::BTreeSet;

use sateen_osd::ObjectOp;
use sateen_target::{Effect, Ending, Fault, Outbox};
use sateen_types::ObjectId;
use sateen_wire::disk::stopped::{CLEAN_RUNS_MAX, CleanRuns};

use crate::keys;
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

/// How long what was begun may take: 5 s.
const ANSWER_LIMIT_NS: u64 = 5_000_000_000;
/// Most objects that are known as written and not synced.
pub(crate) const UNSYNCED_MAX: usize = if cfg!(test) { 64 } else { 1 << 17 };
/// So many are synced at once.
const SYNC_MAX: usize = 256;

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Leaving {
    /// It is not asked for.
    #[default]
    Not,
    /// What was begun is being finished.
    Answering { since_ns: u64 },
    /// Objects are being synced.
    Syncing,
    /// It is to become durable that nothing is lost.
    Marked { upto: u64 },
    /// It is done.
    Ended(Ending),
}

/// Objects that were written and not synced since.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    objects: BTreeSet<ObjectId>,
    /// There were more than are known.
    too_many: bool,
    /// The store has been told to sync what was given away.
    given: bool,
}

impl Unsynced {
    /// Object I/O begins. A sync waits for the writes before it, and what is written during it
    /// counts anew.
    pub(crate) fn begins(&mut self, io: &ObjectOp) {
        match io {
            ObjectOp::Write { object, .. }
            | ObjectOp::WriteMany { object, .. }
            | ObjectOp::Append { object, .. }
            | ObjectOp::Punch { object, .. }
            | ObjectOp::Grow { object, .. }
            | ObjectOp::Allocate { object, .. } => self.add(*object),
            ObjectOp::Remove { objects } | ObjectOp::Sync { objects } => {
                for object in objects {
                    self.objects.remove(object);
                }
            }
            _ => {}
        }
    }

    /// A sync of these did not succeed.
    pub(crate) fn failed(&mut self, objects: &[ObjectId]) {
        for object in objects {
            self.add(*object);
        }
    }

    fn add(&mut self, object: ObjectId) {
        self.too_many |= self.objects.len() >= UNSYNCED_MAX;
        if !self.too_many {
            self.objects.insert(object);
        }
    }
}

impl Ost {
    /// Nothing is lost of these runs, which ended in good order, nor of those that the store has
    /// survived. The last may have been the one before this.
    pub(crate) fn take_up(&mut self, mut epochs: Vec<u64>) {
        let survived = std::mem::take(&mut self.survived);
        epochs.retain(|epoch| !survived.contains(epoch));
        epochs.extend(survived);
        self.core.follows = epochs.last().copied().unwrap_or(0);
        self.core.follows_all = true;
        self.clean_runs = epochs;
    }

    /// The run is to end.
    pub(crate) fn leave(&mut self) {
        if self.leaving != Leaving::Not {
            return;
        }
        let ready = !self.core.is_poisoned() && !self.is_starting();
        self.leaving = if ready {
            Leaving::Answering { since_ns: self.core.lived_ns() }
        } else {
            Leaving::Ended(Ending::Lost)
        };
    }

    /// Goes on with ending. Whether there is something to be run.
    pub(crate) fn leave_on(&mut self, out: &mut Outbox) -> bool {
        match self.leaving {
            Leaving::Answering { .. } if self.core.is_poisoned() => {
                self.leaving = Leaving::Ended(Ending::Lost);
            }
            Leaving::Answering { since_ns } => {
                if !self.has_requests() && !self.core.has_waiting() {
                    if self.unsynced.too_many {
                        tracing::warn!("too much was written to sync it now: it may be lost");
                        self.leaving = Leaving::Ended(Ending::Lost);
                        return false;
                    }
                    self.leaving = Leaving::Syncing;
                    self.enter(Op::new(Work::Settle));
                    return true;
                }
                if self.core.lived_ns().saturating_sub(since_ns) >= ANSWER_LIMIT_NS {
                    tracing::warn!("what was begun could not be finished in time");
                    self.leaving = Leaving::Ended(Ending::Lost);
                }
            }
            Leaving::Marked { upto } if self.core.store.committed() >= upto => {
                self.leaving = Leaving::Ended(Ending::Clean);
            }
            Leaving::Marked { .. } => out.push(Effect::Flush),
            Leaving::Not | Leaving::Syncing | Leaving::Ended(_) => {}
        }
        false
    }
}

/// Syncs what is left, then writes down that nothing is lost.
pub(crate) fn begin(ost: &mut Ost) -> Result<Step, Fault> {
    let some: Vec<ObjectId> = ost.unsynced.objects.iter().take(SYNC_MAX).copied().collect();
    if !some.is_empty() {
        return Ok(Step::Io(ObjectOp::Sync { objects: some }));
    }
    if !std::mem::replace(&mut ost.unsynced.given, true) {
        return Ok(Step::Io(ObjectOp::SyncGiven));
    }
    ost.room()?;
    let mut epochs = ost.clean_runs.clone();
    epochs.push(ost.core.config.boot_epoch);
    let from = epochs.len().saturating_sub(CLEAN_RUNS_MAX);
    epochs.drain(..from);
    ost.batch.clear();
    ost.batch.put(&keys::CLEAN_RUNS, &CleanRuns { epochs });
    ost.leaving = Leaving::Marked { upto: ost.commit() };
    Ok(Step::End)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_until_it_is_synced() {
        let mut unsynced = Unsynced::default();
        let object = |stripe| ObjectId { stripe, ..ObjectId::default() };
        let write = |stripe| ObjectOp::Write {
            object: object(stripe),
            offset: 0,
            data: bytes::Bytes::new(),
            direct: false,
        };
        let sync = |stripe| ObjectOp::Sync { objects: vec![object(stripe)] };
        unsynced.begins(&write(1));
        unsynced.begins(&write(2));
        unsynced.begins(&sync(1));
        assert_eq!(unsynced.objects, BTreeSet::from([object(2)]));
        unsynced.failed(&[object(1)]);
        unsynced.begins(&ObjectOp::Remove { objects: vec![object(2)] });
        assert_eq!(unsynced.objects, BTreeSet::from([object(1)]));
        for stripe in 0..=UNSYNCED_MAX as u32 {
            unsynced.begins(&write(stripe));
        }
        assert!(unsynced.too_many && unsynced.objects.len() <= UNSYNCED_MAX);
    }
}
