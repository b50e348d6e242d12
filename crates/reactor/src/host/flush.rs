//! Group commits and checkpoints of a host.
//!
//! Whoever wants durability asks for a group commit. If none is being written, the asking
//! thread writes one itself, or hands it over if objects are to be synced first: it takes the frame under the lock, writes and syncs without it,
//! and reports under the lock again. If one is being written, the wish is noted under the
//! same lock, and the thread that writes sees it when it reports, because it reports under
//! that lock too: so a wish is either in the frame, or noted before the report, or made
//! after it and then finds nobody writing. No wish is lost and no thread is woken for one.

use sateen_meter::{Part, begin};
use sateen_osd::{Checkpoint, Flush};
use sateen_target::{Outbox, Service};
use sateen_wire::StatFs;

use super::{HostError, State, TargetHost, measured, take_outbox};
use crate::run_loop::{self, Begun, Sleeps, Work};
use crate::sync::{Arc, MutexGuard, Ordering, PoisonError, lock};

/// Journal bytes since the last checkpoint that bring on the next, even if the memtable is
/// small because the same keys change again and again: bounds the replay at a restart.
pub(super) const JOURNAL_BYTES_MAX: u64 = 256 << 20;
/// Of what is free on the disk this part may become journal before a checkpoint is made: where
/// there is no room for another segment, the target would stop.
const JOURNAL_PART: u64 = 4;
/// But no checkpoint is made for less.
const JOURNAL_BYTES_MIN: u64 = 16 << 20;
/// Each frame takes whole pages of the journal, and small ones are mostly padding.
const FRAME_ALIGN_BYTES: u64 = 4096;
/// Bytes waiting for the journal that start a group commit before their age does.
pub(super) const PENDING_BYTES_SOON: usize = 1 << 20;

/// How many bytes in the journal bring on a checkpoint, where there is so much space.
pub(super) fn journal_bytes_max(space: &StatFs) -> u64 {
    (space.bytes_avail / JOURNAL_PART).clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX)
}

impl<S: Service + 'static> TargetHost<S> {
    /// Writes a group commit, unless there is nothing to write or another thread is at it.
    pub(super) fn group_commit(self: &Arc<Self>) {
        let Some(begun) = self.begin_group_commit() else { return };
        if begun.objects.is_empty() || run_loop::sleeps() == Sleeps::Anything {
            return self.end_of_group_commit(begun);
        }
        // Of an object that was cut all that is left may have to be written out.
        self.sleepers.push(self.me, Work::Commit(self.clone(), Box::new(begun)));
    }

    pub(super) fn end_of_group_commit(self: &Arc<Self>, Begun { flush, objects }: Begun) {
        let mut out = take_outbox();
        match self.write_group_commit(&flush, &objects) {
            Ok(()) => {
                let space = self.space_now();
                let again = self.end_group_commit(flush, space, &mut out);
                self.flushed.notify_all();
                self.perform(out, 0);
                if again {
                    // Behind the answers that this thread is about to carry home. Whoever
                    // asks in the meantime finds nobody writing and does it.
                    self.slow(Work::Flush(self.clone()));
                }
            }
            Err((doing, error)) => {
                self.poison(doing, &error, &mut out);
                self.perform(out, 0);
            }
        }
    }

    fn begin_group_commit(&self) -> Option<Begun> {
        let mut state = lock(&self.state);
        if state.poisoned {
            return None;
        }
        state.flush_soon = false;
        if state.flushing {
            state.flush_again = true;
            return None;
        }
        let flush = state.service.store().begin_flush()?;
        state.age.take(flush.upto);
        // Whoever asked for this one wants what did not fit into it as well.
        state.flush_again = state.service.store().transno() > flush.upto;
        let objects = state.service.sync_before_flush();
        state.flushing = true;
        Some(Begun { flush, objects })
    }

    fn write_group_commit(
        &self,
        flush: &Flush,
        objects: &[sateen_types::ObjectId],
    ) -> Result<(), (&'static str, std::io::Error)> {
        if let (Some(store), false) = (&self.objects, objects.is_empty()) {
            let begun = begin(Part::Osd);
            store.sync(objects).map_err(|error| ("syncing objects", error.0))?;
            begun.end(Part::Osd, || measured::SYNC_BEFORE);
        }
        let mut journal = lock(&self.journal);
        let begun = begin(Part::Journal);
        let written = journal.write(flush).map_err(|error| ("writing the journal", error));
        let took = begun.stop();
        drop(journal);
        if written.is_ok() {
            took.count(Part::Journal, || measured::COMMIT);
        }
        written
    }

    /// Whether another group commit was asked for and has something to write.
    fn end_group_commit(
        self: &Arc<Self>,
        flush: Flush,
        space: Option<StatFs>,
        out: &mut Outbox,
    ) -> bool {
        let mut state = lock(&self.state);
        if let Some(space) = space {
            self.learn_space(&mut state, space);
        }
        let now = self.clock.now();
        state.journal_bytes += (flush.frame.len() as u64).next_multiple_of(FRAME_ALIGN_BYTES);
        state.service.store().flush_done(flush);
        state.service.on_flushed(now, out);
        state.flushing = false;
        let due_ns = self.due_ns(&mut state, now.mono_ns);
        let again = std::mem::take(&mut state.flush_again) && state.service.store().dirty();
        drop(state);
        self.hosts.tick_by(due_ns);
        again
    }

    /// Makes everything up to `upto` durable and waits for it. Not for threads of a
    /// transport, nor inside a run loop.
    fn wait_committed(self: &Arc<Self>, upto: u64) -> Result<(), HostError> {
        loop {
            run_loop::run(Work::Flush(self.clone()));
            let mut state = lock(&self.state);
            loop {
                if state.poisoned {
                    return Err(HostError::Poisoned);
                }
                if state.service.store().committed() >= upto {
                    return Ok(());
                }
                if !state.flushing {
                    break;
                }
                state = self.wait_flushed(state);
            }
        }
    }

    fn wait_flushed<'a>(&self, state: MutexGuard<'a, State<S>>) -> MutexGuard<'a, State<S>> {
        self.flushed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes everything durable that was done before this call, and waits for it. Not for
    /// threads of a transport, nor inside a run loop.
    ///
    /// # Errors
    /// [`HostError::Poisoned`].
    pub fn commit_all(self: &Arc<Self>) -> Result<(), HostError> {
        let upto = lock(&self.state).service.store().transno();
        self.wait_committed(upto)
    }

    /// Freezes the memtable, waits until its changes are in the journal, writes it into the
    /// index and gives the journal's space back. Returns when all is durable. One caller at
    /// a time: the checkpoint thread, or whoever stopped it.
    ///
    /// # Errors
    /// [`HostError::Poisoned`].
    pub fn write_checkpoint(self: &Arc<Self>) -> Result<(), HostError> {
        self.checkpoint_asked.store(false, Ordering::Release);
        let Some(Checkpoint { table, upto }) = self.begin_checkpoint() else { return Ok(()) };
        self.wait_committed(upto)?;
        let begun = begin(Part::Osd);
        if let Err(error) = self.index.checkpoint(&table, upto) {
            return Err(self.give_up("writing a checkpoint", &error));
        }
        begun.end(Part::Osd, || measured::CHECKPOINT);
        lock(&self.state).service.store().checkpoint_done();
        // The store keeps the table's memory for the next one, and has it to itself now.
        drop(table);
        let mut journal = lock(&self.journal);
        let begun = begin(Part::Journal);
        let trimmed = journal.trim(upto);
        let took = begun.stop();
        drop(journal);
        took.count(Part::Journal, || measured::TRIM);
        trimmed.map_err(|error| self.give_up("trimming the journal", &error))
    }

    fn begin_checkpoint(&self) -> Option<Checkpoint> {
        let mut state = lock(&self.state);
        if state.poisoned {
            return None;
        }
        let checkpoint = state.service.store().begin_checkpoint();
        if checkpoint.is_some() {
            state.journal_bytes = 0;
        }
        checkpoint
    }

    fn give_up(self: &Arc<Self>, doing: &str, error: &dyn std::fmt::Display) -> HostError {
        let mut out = take_outbox();
        self.poison(doing, error, &mut out);
        run_loop::enter(|| self.perform(out, 0));
        HostError::Poisoned
    }
}
