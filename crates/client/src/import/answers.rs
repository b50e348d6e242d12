//! What a target answers to `Connect` and to a goodbye, and what follows from it; and what any answer
//! says of the connection.

use std::sync::atomic::Ordering;

use sateen_types::{Endpoint, Errno};
use sateen_wire::{Body, Header, Message, OstRequest, Reply, ReplyBody, Request};

use super::claims::{Run, Standing};
use super::{Arrival, Import, Link, SlotState, State, Trouble};
use crate::inode::Unsynced;
use crate::port::Port;
use crate::sync::{Woken, lock};

/// Whether an MDT has noted this client by the time that it answers so.
pub(super) fn gives(request: &Body, reply: &Reply) -> bool {
    let is_noted = matches!(request, Body::Request(Request::Mdt(request)) if request.is_noted());
    is_noted && (reply.error.is_none() || !reply.grants.is_empty())
}

/// Whether an answer refuses the connection, as opposed to a stale object or file: it carries nothing
/// at all.
pub(super) fn is_unknown(reply: &Reply) -> bool {
    reply.last_committed == 0 && reply.transno == 0 && reply.body == ReplyBody::Empty
}

impl Import {
    /// A connection was refused. It is tried again at a later tick.
    pub(super) fn on_refused(&self, header: &Header, reply: &Reply) -> Arrival {
        let (answers, line) = {
            let mut state = lock(&self.state);
            let attempt = match state.link {
                Link::Connecting { attempt, .. } => attempt,
                Link::Closed | Link::Recovering | Link::Open => return Arrival::Ignored,
            };
            if header.client != state.me || header.seq != attempt {
                return Arrival::Ignored;
            }
            state.link = Link::Closed;
            let trouble = match reply.error {
                Some(Errno::EIO) => Some(Trouble::Failed),
                Some(Errno::EXDEV) => Some(Trouble::Foreign),
                _ => None,
            };
            let news = trouble != core::mem::replace(&mut state.trouble, trouble);
            match trouble {
                None if reply.error == Some(Errno::ESTALE) => {
                    state.evicted = true;
                    return Arrival::Refused(state.me);
                }
                Some(Trouble::Failed) if news => state.give_up(false),
                Some(Trouble::Foreign) if news => return Arrival::Foreign,
                _ => return Arrival::Ignored,
            }
        };
        answers.wake();
        line.wake();
        Arrival::Failed
    }

    /// A connection is there.
    pub(super) fn on_connected(
        &self,
        port: &dyn Port,
        header: &Header,
        (run, generation): (Run, u32),
        features: u64,
    ) -> Arrival {
        let mut again = Vec::new();
        let (woken, arrival) = {
            let mut state = lock(&self.state);
            match state.link {
                Link::Connecting { attempt, .. }
                    if attempt == header.seq && state.me == header.client => {}
                _ => return Arrival::Ignored,
            }
            let is_mdt = matches!(self.target, Endpoint::Mdt(_));
            let standing = if is_mdt { state.stands(run) } else { Standing::New };
            if standing == Standing::Refused {
                (state.link, state.evicted) = (Link::Closed, true);
                return Arrival::Refused(state.me);
            }
            let sure = state.surely_there(run);
            let goes_on = standing == Standing::GoesOn;
            if goes_on && !(state.uncommitted.has_upto(sure) && state.can_tell(run)) {
                // What goes by changes that are lost cannot go on.
                state.link = Link::Closed;
                return Arrival::Refused(state.me);
            }
            let restarted = state.boot_epoch != 0 && state.boot_epoch != run.boot_epoch;
            let follows = restarted && run.follows == state.boot_epoch;
            match self.target {
                Endpoint::Ost(ost) if follows => self.ended.add(ost, run.follows),
                _ if restarted && !goes_on => state.uncommitted.restarted(),
                _ => {}
            }
            state.trouble = None;
            (state.silent, state.evicted) = (false, false);
            state.generation = generation;
            state.boot_epoch = run.boot_epoch;
            state.features = features;
            match standing {
                Standing::GoesOn => {
                    state.recover(run);
                    self.taken_up.fetch_add(1, Ordering::SeqCst);
                    let crashed = run.durable != u64::MAX;
                    if crashed {
                        state.meet_a_crash();
                    }
                    return Arrival::Recovering(generation, crashed.then_some(sure));
                }
                Standing::Forgotten => (state.close(false), Arrival::Forgotten),
                Standing::New | Standing::Refused => {
                    let met_before = is_mdt && !state.runs.is_empty();
                    state.runs = vec![run.boot_epoch];
                    // Of a goodbye to a run that is gone the next one need not hear.
                    let woken = if met_before {
                        state.give_up(true)
                    } else {
                        (Woken::default(), state.everybody())
                    };
                    if let Some(first) = self.begin_replay(&mut state, port) {
                        again.push(first);
                        drop(state);
                        again.into_iter().for_each(|message| port.send(message));
                        woken.0.wake();
                        woken.1.wake();
                        return Arrival::Connected { restarted, follows };
                    }
                    // Given up from here, and met again as it was: it goes on counting.
                    let counts_on = core::mem::take(&mut state.slots_kept) && !restarted;
                    let doubtful;
                    (again, doubtful) = self.open(&mut state, port, counts_on, restarted);
                    let woken = (woken.0.and(doubtful), woken.1);
                    (woken, Arrival::Connected { restarted, follows })
                }
            }
        };
        for message in again {
            port.send(message);
        }
        woken.0.wake();
        woken.1.wake();
        arrival
    }

    /// A goodbye was answered: there is no connection any more, nor another, whatever else comes.
    /// Returns who is to be woken.
    pub(crate) fn is_left(&self) -> (Woken, Woken) {
        let (answers, line) = lock(&self.state).close(false);
        (answers.and(self.is_cut_off()), line)
    }

    /// Requests may be sent from now on: those that were under way, but for appends that may have been
    /// done: these have failed, and in their place something harmless is asked, because the target may
    /// go on counting in the slots. Slots begin anew, unless they go on. Also returns who is to be
    /// woken.
    pub(super) fn open(
        &self,
        state: &mut State,
        port: &dyn Port,
        goes_on: bool,
        restarted: bool,
    ) -> (Vec<Message>, Woken) {
        state.link = Link::Open;
        state.answered_by = state.boot_epoch;
        let (generation, boot_epoch) = (state.generation, state.boot_epoch);
        let now = port.now().mono_ns;
        let (mut again, mut woken) = (Vec::new(), Woken::default());
        for slot in &mut state.slots {
            if !goes_on {
                slot.seq = 0;
            }
            if let SlotState::Busy(pending) = &mut slot.state {
                if !goes_on {
                    slot.seq = 1;
                }
                pending.move_to(generation, slot.seq, restarted);
                if pending.must_not_be_repeated() {
                    slot.owner = 0;
                    pending.ask_something_harmless();
                    woken = woken.and(slot.waiting.take());
                }
                if let Body::Request(request) = &mut pending.message.body {
                    self.of_this_run(request, boot_epoch);
                }
                again.push(pending.again(now));
            }
        }
        (again, woken)
    }

    /// What was written in a run of an OST that ended in good order is durable, and to sync it asks
    /// nothing of the one that there is now; what was lost, and written again, that one has.
    pub(super) fn of_this_run(&self, request: &mut Request, now: u64) {
        if let (Request::Ost(OstRequest::Sync { boot_epoch, objects }), Endpoint::Ost(ost)) =
            (request, self.target)
        {
            *boot_epoch = self.unstable.all_now(objects, (ost, *boot_epoch));
            if self.ended.has(Unsynced { ost, boot_epoch: *boot_epoch }) {
                *boot_epoch = now;
            }
        }
    }
}
