//! The end of a run in good order: its clients may go on with the next one.
//!
//! 1. Nothing is executed any more. What waits (for the index, for locks, for the journal) is
//!    dropped, and so is what comes: their clients send it again, to the next run. A goodbye is
//!    heard.
//! 2. What was executed is answered, as soon as it is durable; truncates when the OSTs have cut.
//!    If that takes too long the run ends without a mark, and its clients are evicted when the
//!    next one starts: some of them would be answered otherwise than was done. OSTs that can be
//!    reached destroy what was gathered for them, if that does not take long.
//! 3. Clients are written down, with what was answered last in each of their slots, in as many
//!    transactions as it takes; then, in the last one, the mark.

use sateen_ldlm::Range;
use sateen_target::{Carried, Effect, Ending, Outbox};
use sateen_types::{ClientId, Timestamp};
use sateen_wire::disk::stopped::{StopMark, StoppedClient, StoppedSlot};
use sateen_wire::{
    Body, Grants, HeldFileLock, HeldOpen, LockId, MdtRequest, Message, OpenFlags, OpenId,
    RECLAIM_MAX, Reply, Request,
};

use crate::keys;
use crate::mdt::Mdt;

/// How long what was executed may take to be answered: 5 s.
const ANSWER_LIMIT_NS: u64 = 5_000_000_000;
/// How long the OSTs may take to destroy what was removed: 1 s. The next run goes on with the rest.
const DESTROY_LIMIT_NS: u64 = 1_000_000_000;
/// Bytes of one transaction.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Bytes that may wait for the journal while more is written down.
const PENDING_BYTES_MAX: usize = 4 << 20;

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Leaving {
    /// It is not asked for.
    #[default]
    Not,
    /// What was executed is being answered.
    Answering { since_ns: u64 },
    /// Clients are being written down, up to this one yet.
    Writing { after: Option<ClientId> },
    /// The mark is to become durable.
    Marked { upto: u64 },
    /// It is done.
    Ended(Ending),
}

/// What of a request must be known when it is asked again in another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Trace {
    /// Its answer.
    #[default]
    Answer,
    /// And that it opened this.
    Opens(OpenId),
    /// And that it closed this.
    Closes(OpenId),
    /// And that it gave this lock back: somebody else may have it since, whom its client does not
    /// know of.
    Cancels(LockId),
    /// And that it was about this lock of a program: what its owner has there, of which its client
    /// may not know.
    Locks(HeldFileLock),
    /// It is executed once more: its effect lay in memory alone, and the client tells what it has
    /// got of that.
    Again,
}

impl Trace {
    pub(crate) const fn of(request: &MdtRequest) -> Trace {
        match request {
            MdtRequest::Open { open_id, .. }
            | MdtRequest::Tmpfile { open_id, .. }
            | MdtRequest::Create { open: Some(_), open_id, .. } => Trace::Opens(*open_id),
            MdtRequest::Close { open_id, .. } => Trace::Closes(*open_id),
            MdtRequest::Cancel { id, .. } => Trace::Cancels(*id),
            MdtRequest::SetFileLock { fid, open_id, lock, .. } => {
                Trace::Locks(HeldFileLock { fid: *fid, open_id: *open_id, lock: *lock })
            }
            MdtRequest::Enqueue { .. }
            | MdtRequest::EnqueueGroup { .. }
            | MdtRequest::EnqueuePart { .. }
            | MdtRequest::TestFileLock { .. }
            | MdtRequest::LeaveFileLock { .. }
            | MdtRequest::AnswerGlimpse { .. }
            | MdtRequest::GoesOn { .. }
            | MdtRequest::Reclaim { .. }
            | MdtRequest::ReclaimGroups { .. }
            | MdtRequest::ReclaimParts { .. }
            | MdtRequest::Replay { .. } => Trace::Again,
            _ => Trace::Answer,
        }
    }
}

impl Mdt {
    /// Whether nothing is executed any more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving != Leaving::Not
    }

    /// The run is to end.
    pub(crate) fn leave(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.is_leaving() {
            return;
        }
        if self.core.is_poisoned() || !self.startup.serving() {
            tracing::info!("ending before clients could be served: they start anew");
            self.leaving = Leaving::Ended(Ending::Lost);
            return;
        }
        let held = core::mem::take(&mut self.held);
        for message in held {
            // Its export is closed already.
            if matches!(message.body, Body::Request(Request::Disconnect)) {
                self.disconnected(message.header.client);
            }
        }
        self.parked.clear();
        self.tickets.clear();
        self.unfenced.clear();
        self.works.clear();
        self.working.clear();
        self.core.drop_parked();
        self.leaving = Leaving::Answering { since_ns: now.mono_ns };
        // Nobody may be there to ask for it for a long time.
        self.osp.set_destroy_delay(0);
        self.run_llog(now, out);
        self.leave_on(now, out);
    }

    /// A message that comes while the run ends.
    pub(crate) fn hear_goodbye(&mut self, message: Message, out: &mut Outbox) {
        let answering = matches!(self.leaving, Leaving::Answering { .. });
        if answering
            && matches!(message.body, Body::Request(Request::Disconnect))
            && let Some(message) = self.core.admit(message, out)
        {
            self.disconnected(message.header.client);
        }
    }

    /// Goes on with ending, as far as it gets.
    pub(crate) fn leave_on(&mut self, now: Timestamp, out: &mut Outbox) {
        if let Leaving::Answering { since_ns } = self.leaving {
            // A truncate that is done must not be found by the next run.
            self.drop_done();
            let waited_for = self.core.has_waiting() || self.llog.has_answers();
            let took_ns = now.mono_ns.saturating_sub(since_ns);
            let destroys =
                took_ns < DESTROY_LIMIT_NS && (self.llog.has_unlinks() || self.osp.destroys());
            if !waited_for && !self.llog.has_done() && !destroys {
                self.leaving = Leaving::Writing { after: None };
                self.write_linkable();
            } else if took_ns >= ANSWER_LIMIT_NS {
                tracing::warn!(
                    "what was executed could not be answered in time: clients will be evicted"
                );
                self.leaving = Leaving::Ended(Ending::Lost);
            } else {
                out.push(Effect::Flush);
            }
        }
        while let Leaving::Writing { after } = self.leaving {
            if self.core.store.must_wait() || self.core.store.pending_bytes() > PENDING_BYTES_MAX {
                out.push(Effect::Flush);
                return;
            }
            self.leaving = match self.write_down(after) {
                Some(client) => Leaving::Writing { after: Some(client) },
                None => Leaving::Marked { upto: self.write_mark() },
            };
        }
        if let Leaving::Marked { upto } = self.leaving {
            if self.core.store.committed() >= upto {
                self.leaving = Leaving::Ended(Ending::Clean);
            } else {
                out.push(Effect::Flush);
            }
        }
    }

    /// Files that never had a name, and may be given one yet.
    fn write_linkable(&mut self) {
        self.batch.clear();
        for fid in self.opens.linkable() {
            self.batch.put(&keys::orphan(fid), &crate::ops::LINKABLE);
            if self.batch.as_bytes().len() > BATCH_BYTES_MAX {
                self.core.commit(&self.batch);
                self.batch.clear();
            }
        }
        if !self.batch.is_empty() {
            self.core.commit(&self.batch);
        }
    }

    /// Writes down the client behind `after`.
    fn write_down(&mut self, after: Option<ClientId>) -> Option<ClientId> {
        let (client, peer, attempt) = self.core.exports.next_user(after)?;
        self.batch.clear();
        // Also one that has been given nothing yet: it may have asked for something since. But it is
        // none of those whom a crash of the next run would cost what they hold.
        self.batch.put(&keys::stopped_client(client), &StoppedClient { peer, attempt });
        let slots: Vec<Carried> = self.core.exports.carried(client).collect();
        for carried in slots {
            let slot = carried.slot;
            let Some(record) = self.stopped_slot(client, carried) else { continue };
            self.batch.put(&keys::stopped_slot(client, slot), &record);
            if self.batch.as_bytes().len() > BATCH_BYTES_MAX {
                self.core.commit(&self.batch);
                self.batch.clear();
            }
        }
        if !self.batch.is_empty() {
            self.core.commit(&self.batch);
        }
        Some(client)
    }

    /// What is written down of a slot; `None` if its last request is to be executed once more.
    fn stopped_slot(&self, client: ClientId, carried: Carried) -> Option<StoppedSlot> {
        let Carried { slot, seq, reply } = carried;
        let reply = Reply { grants: Grants::NONE, ..reply };
        let mut stopped = StoppedSlot {
            seq,
            reply,
            open: None,
            closed: None,
            cancelled: None,
            file_lock: None,
            has: Vec::new(),
        };
        match self.clients.trace(client, slot, seq) {
            Trace::Answer => {}
            Trace::Again => return None,
            Trace::Opens(open_id) => {
                stopped.open = self.clients.opened(client, open_id).map(|(fid, purpose)| {
                    let (write, exec) = (purpose.write, purpose.exec);
                    let flags = OpenFlags { write, truncate: false, exec };
                    HeldOpen { open_id, fid, flags, closing: false }
                });
            }
            Trace::Cancels(id) => stopped.cancelled = Some(id),
            Trace::Locks(asked) => {
                stopped.has = self.held_within(client, &asked);
                stopped.file_lock = Some(asked);
            }
            Trace::Closes(open_id) => {
                let is_open = self.clients.opened(client, open_id).is_some();
                stopped.closed = (!is_open).then_some(open_id);
            }
        }
        Some(stopped)
    }

    /// What the owner of a program's lock has within its range.
    fn held_within(&self, client: ClientId, asked: &HeldFileLock) -> Vec<HeldFileLock> {
        let (fid, flock) = (asked.fid, asked.lock.flock);
        let within = Range::of(client, asked.open_id, &asked.lock);
        let all = self.file_locks.holders(fid);
        let mine = all.filter(|(of, held)| {
            *of == flock && held.owner == within.owner && held.overlaps(&within)
        });
        let piece = |(_, held): (bool, Range)| {
            let (start, end) = (held.start.max(within.start), held.end.min(within.end));
            let lock = Range { start, end, ..held }.lock(flock);
            HeldFileLock { fid, open_id: held.open, lock }
        };
        mine.map(piece).take(RECLAIM_MAX).collect()
    }

    fn write_mark(&mut self) -> u64 {
        self.batch.clear();
        let boot_epoch = self.core.config.boot_epoch;
        self.batch.put(&keys::stopped(), &StopMark { boot_epoch });
        self.core.commit(&self.batch)
    }
}
