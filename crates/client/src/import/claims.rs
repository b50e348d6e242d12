//! Telling an MDT that was started again what is held: the import's part of [`crate::recover`].
//!
//! Life of it: the MDT says that it follows a run that what is held is from; the `Reclaim`s are put
//! together and sent one by one, each until it is answered, in a slot that nothing else uses; the
//! answer to the last one opens the connection. Another restart begins it anew, as often as it
//! likes: a run that stops before it was told of what is held leaves it to the next one to ask, and
//! which runs there were in between need not be known here. The MDT says of this very client that it
//! may go on; one that it has missed for too long it refuses.
//!
//! A run does not remember what another was told: a `Reclaim` that is not answered when a run ends has
//! not been executed for the next one, and its number is used again.

use std::collections::{BTreeSet, VecDeque};

use sateen_types::Errno;
use sateen_wire::{
    Body, Bulk, CLAIM_SLOT, Header, HeldFileLock, LockId, MdtRequest, Message, Reply, Request,
};

use super::pending::Pending;
use super::{Arrival, Import, Link, SlotState, State};
use crate::port::Port;
use crate::sync::lock;

/// Runs remembered that were told of what is held, since it was last taken up.
const RUNS_MAX: usize = 64;

/// A run of a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) boot_epoch: u64,
    /// The one before, if this client may go on with what it had.
    pub(super) follows: u64,
    /// The last transaction that there is of that; `u64::MAX` if it ended in good order.
    pub(super) durable: u64,
}

/// What a run of an MDT has of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing, and nothing is held.
    New,
    /// Nothing, though something is held.
    Forgotten,
    /// What the run before had, when it is told.
    GoesOn,
    /// It was told, and does not know it.
    Refused,
}

/// What is told, and how far that is.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// What is still to be told.
    line: VecDeque<MdtRequest>,
    /// The last number in the slot.
    pub(super) seq: u64,
    pub(super) pending: Option<Box<Pending>>,
    /// Of an OST: the number of the last piece that it was told.
    pub(super) told: u64,
}

impl State {
    pub(super) fn stands(&self, run: Run) -> Standing {
        match run.follows {
            // One that has given nothing can have forgotten nothing.
            0 if self.runs.is_empty() || !self.given => Standing::New,
            0 => Standing::Forgotten,
            // A run is told once: what it could not take up then it cannot later.
            _ if self.runs.contains(&run.boot_epoch) => Standing::Refused,
            _ => Standing::GoesOn,
        }
    }

    /// The last transaction of those that this client was answered for that is there for sure. Of
    /// a run that it has missed it knows nothing: that one may have used numbers again.
    pub(super) fn surely_there(&self, run: Run) -> u64 {
        self.last_committed.max(if self.knows(run) { run.durable } else { 0 })
    }

    /// Whether what is said of the last run that has answered anybody is about this client's answers.
    fn knows(&self, run: Run) -> bool {
        run.durable == u64::MAX || run.follows == self.answered_by
    }

    /// Whether what is missing can be told to a run: it would take the numbers for those of another.
    pub(super) fn can_tell(&self, run: Run) -> bool {
        self.knows(run) || self.uncommitted.misses_nothing()
    }

    /// An MDT has crashed: of what is under way nobody will know whether it was executed.
    pub(super) fn meet_a_crash(&mut self) {
        for slot in &mut self.slots {
            if let SlotState::Busy(pending) = &mut slot.state {
                pending.at_crash = true;
            }
        }
    }

    /// An MDT is to be told of what is held.
    pub(super) fn recover(&mut self, run: Run) {
        self.link = Link::Recovering;
        if self.runs.len() >= RUNS_MAX {
            self.runs.remove(0);
        }
        self.runs.push(run.boot_epoch);
        self.claims.line.clear();
    }
}

/// Requests that an MDT has not answered, so far as they change what is held.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// Locks that are given back.
    pub(crate) cancels: BTreeSet<LockId>,
    /// Those that were given back beside others: also a run that knows what it has executed does not
    /// know it of them.
    pub(crate) beside: BTreeSet<LockId>,
    /// Opens that are closed.
    pub(crate) closes: BTreeSet<u64>,
    /// Locks of programs.
    pub(crate) file_locks: Vec<HeldFileLock>,
    /// Something else is changed.
    pub(crate) changes: bool,
    /// The goodbye: if it was executed others may have everything that was held.
    pub(crate) goodbye: bool,
}

impl UnderWay {
    fn add(&mut self, request: &MdtRequest) {
        match request {
            MdtRequest::Cancel { id, more, .. } => {
                self.cancels.insert(*id);
                self.beside.extend(more.iter().map(|other| other.id));
            }
            MdtRequest::Close { open_id, .. } => {
                self.closes.insert(open_id.id);
            }
            MdtRequest::SetFileLock { fid, open_id, lock, .. } => {
                self.file_locks.push(HeldFileLock { fid: *fid, open_id: *open_id, lock: *lock });
            }
            MdtRequest::GetAttr { .. }
            | MdtRequest::Lookup { .. }
            | MdtRequest::ReadDir { .. }
            | MdtRequest::ReadLink { .. }
            | MdtRequest::GetXattr { .. }
            | MdtRequest::ListXattr { .. }
            | MdtRequest::GetStripe { .. }
            | MdtRequest::GetLinks { .. }
            | MdtRequest::Enqueue { .. }
            | MdtRequest::EnqueueGroup { .. }
            | MdtRequest::EnqueuePart { .. }
            | MdtRequest::ReportSize { .. }
            | MdtRequest::Sync { .. }
            | MdtRequest::GrantSeq
            | MdtRequest::StatFs
            | MdtRequest::TestFileLock { .. }
            | MdtRequest::LeaveFileLock { .. }
            | MdtRequest::AnswerGlimpse { .. }
            | MdtRequest::GoesOn { .. } => {}
            _ => self.changes = true,
        }
    }
}

impl Import {
    /// What the target has not answered; or only what it had not when it crashed last.
    pub(crate) fn under_way(&self, at_crash: bool) -> UnderWay {
        let mut all = UnderWay::default();
        for slot in &lock(&self.state).slots {
            let SlotState::Busy(pending) = &slot.state else { continue };
            match &pending.message.body {
                _ if at_crash && !pending.at_crash => {}
                Body::Request(Request::Mdt(request)) => all.add(request),
                Body::Request(Request::Disconnect) => all.goodbye = true,
                _ => {}
            }
        }
        all
    }

    /// How often the target was told of what is held.
    pub(crate) fn taken_up(&self) -> u64 {
        self.taken_up.load(core::sync::atomic::Ordering::SeqCst)
    }

    /// Tells the MDT what is held, on the connection of this generation.
    pub(crate) fn claim(&self, port: &dyn Port, generation: u32, requests: Vec<MdtRequest>) {
        let message = {
            let mut state = lock(&self.state);
            if state.link != Link::Recovering || state.generation != generation {
                return;
            }
            // What is missing there comes first: what is held may go by it.
            let mut all = state.uncommitted.replays();
            all.extend(requests);
            let Claims { line, seq, pending, .. } = &mut state.claims;
            *line = all.into();
            *seq -= u64::from(pending.take().is_some());
            self.next_claim(&mut state, port.now().mono_ns)
        };
        if let Some(message) = message {
            port.send(message);
        }
    }

    fn next_claim(&self, state: &mut State, now_ns: u64) -> Option<Message> {
        let next = state.claims.line.front()?.clone();
        state.claims.seq += 1;
        state.asked_ns = now_ns;
        let header = self.header(state.me, (state.generation, CLAIM_SLOT), state.claims.seq);
        let body = Body::Request(Request::Mdt(next));
        let message = Message { header, body, bulk: Bulk::None };
        state.claims.pending = Some(Box::new(Pending::claim(message.clone(), now_ns)));
        Some(message)
    }

    /// What has waited too long for an answer, or was put off.
    pub(super) fn claim_again(&self, state: &mut State, now_ns: u64) -> Option<Message> {
        if state.link != Link::Recovering || !self.is_mdt() {
            return None;
        }
        match &mut state.claims.pending {
            Some(pending) if pending.is_due(now_ns) => Some(pending.patiently_again(now_ns)),
            Some(_) => None,
            None => self.next_claim(state, now_ns),
        }
    }

    /// A message in the slot of the claims was answered, on this connection.
    pub(super) fn on_claimed(&self, port: &dyn Port, header: &Header, reply: &Reply) -> Arrival {
        let (messages, woken) = {
            let mut state = lock(&self.state);
            let current = state.me == header.client && state.generation == header.generation;
            if state.link != Link::Recovering || !current {
                return Arrival::Ignored;
            }
            let Some(pending) = &mut state.claims.pending else { return Arrival::Ignored };
            if pending.message.header.seq != header.seq {
                return Arrival::Ignored;
            }
            if pending.was_not_delivered(reply) {
                return Arrival::Ignored;
            }
            match reply.error {
                // Not executed; it is asked again with the next tick.
                Some(Errno::EAGAIN) => {
                    state.claims.pending = None;
                    return Arrival::Ignored;
                }
                Some(_) => {
                    state.link = Link::Closed;
                    return Arrival::Refused(state.me);
                }
                None => {}
            }
            state.claims.pending = None;
            let told = state.claims.line.pop_front();
            if let Some(MdtRequest::Replay { last: true, .. }) = told {
                state.uncommitted.replayed();
            }
            match self.next_claim(&mut state, port.now().mono_ns) {
                Some(next) => (vec![next], None),
                None => {
                    state.runs = vec![state.boot_epoch];
                    let (again, woken) = self.open(&mut state, port, true, false);
                    (again, Some(woken.and(state.everybody())))
                }
            }
        };
        let opened = woken.is_some();
        for message in messages {
            port.send(message);
        }
        if let Some(woken) = woken {
            woken.wake();
        }
        if opened { Arrival::Recovered } else { Arrival::Answer }
    }
}
