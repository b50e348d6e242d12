//! What a client asks of a target, from when it has to wait for a slot until it is answered.

use std::future::poll_fn;
use std::task::Poll;

use sateen_types::{Errno, Result};
use sateen_wire::{Body, Bulk, Header, Message, OstRequest, Request};

use super::line::{Place, Rank};
use super::pending::{Pending, without_grant};
use super::room::InUse;
use super::{Answer, Answered, Import, Link, RESEND_NS, SlotState, State};
use crate::patience;
use crate::port::Port;
use crate::sync::{lock, until};
use crate::uncommitted::waits_for_room;

/// What is asked of a target.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) bulk: Bulk,
    /// See [`Header::direct`](sateen_wire::Header::direct).
    pub(crate) direct: bool,
}

impl From<(Request, Bulk)> for Call {
    fn from((request, bulk): (Request, Bulk)) -> Call {
        Call { request, bulk, direct: false }
    }
}

/// Somebody waits for the answer in a slot. One that stops to, because it takes too long, leaves
/// the slot to others as soon as the answer is there.
struct Asked<'a> {
    import: &'a Import,
    slot: u16,
    owner: u64,
}

impl Asked<'_> {
    /// The answer was fetched, and with it the slot left: nothing remains to be done, and nobody
    /// has to look.
    fn answered(self) {
        core::mem::forget(self);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = lock(&self.import.state);
            let State { slots, free, .. } = &mut *state;
            let Some(slot) = slots.get_mut(usize::from(self.slot)) else { return };
            if slot.owner != self.owner {
                return;
            }
            slot.owner = 0;
            match &mut slot.state {
                SlotState::Busy(pending) => {
                    pending.left = true;
                    return;
                }
                SlotState::Answered(_) => {
                    slot.state = SlotState::Free;
                    free.push(self.slot);
                }
                SlotState::Free => return,
            }
            state.call_next()
        };
        next.wake();
    }
}

impl Import {
    /// Sends a request and waits for its answer. `pin` marks requests whose data lock must be
    /// in use from the moment it is granted. Locks in the answer are handled on arrival.
    ///
    /// One under which locks are `in_use` finds slots that others do not.
    ///
    /// A request of an `era` is made in that era, or not at all: what it goes by ends with it.
    ///
    /// # Errors
    /// `EIO` if the connection was lost on the way: it may or may not have been executed. Or if
    /// the target is not in use, or has stopped. `EINTR` if nobody waits any more, and it was not
    /// sent. What the target answered otherwise is in the reply.
    pub(crate) async fn call(
        &self,
        port: &dyn Port,
        call: impl Into<Call>,
        in_use: InUse<'_>,
        (stamp, pin): (impl Fn() -> u64, bool),
        era: Option<u64>,
    ) -> Result<Answer> {
        let call = call.into();
        if waits_for_room(&call.request) {
            self.has_room(port, era).await;
        }
        let mut asked = Some(call);
        let mut came_in = None;
        let mut hurried = false;
        let mut place = Place::new(self);
        let (slot, owner, stamp, message) = poll_fn(|context| {
            let mut state = lock(&self.state);
            let s = &mut *state;
            let rank = asked.as_ref().map_or(Rank::Changes, |call| Rank::of(&call.request, in_use));
            let mut found = || {
                if s.inactive || era.is_some_and(|era| era != s.era) {
                    return Some(Err(Errno::EIO));
                }
                let given_up = || patience::is_over().then_some(Err(Errno::EINTR));
                if s.link != Link::Open {
                    return if s.has_failed() { Some(Err(Errno::EIO)) } else { given_up() };
                }
                let since = *came_in.get_or_insert(s.generation);
                if !place.finds(s, rank) {
                    // Those of closes, perhaps, for which nobody waited so far.
                    if !core::mem::replace(&mut hurried, true) {
                        port.hurry();
                    }
                    return given_up();
                }
                if let (false, Some(call)) = (since == s.generation, &mut asked) {
                    without_grant(&mut call.request);
                }
                let slot = s.take_slot()?;
                let stamp = stamp();
                let message = self.begin(s, port, slot, asked.take()?, (stamp, pin))?;
                Some(Ok((slot, s.calls, stamp, message)))
            };
            let found = found();
            match &found {
                Some(Ok(_)) => {}
                Some(Err(_)) => drop(place.leave(s)),
                None => place.wait(s, rank, context.waker()),
            }
            // What was put by for this one, if it was called and has not taken it.
            let next = s.call_next();
            drop(state);
            place.is_left();
            next.wake();
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await?;
        drop(place);
        port.send(message);
        let asked = Asked { import: self, slot, owner };
        let (answer, woken) = until(
            &self.state,
            |s| match s.slots.get_mut(usize::from(slot)) {
                Some(entry) => &mut entry.waiting,
                None => &mut s.opening,
            },
            |s| {
                let entry = s.slots.get_mut(usize::from(slot))?;
                if entry.owner != owner {
                    return Some((Err(Errno::EIO), s.call_next()));
                }
                if !matches!(entry.state, SlotState::Answered(_)) {
                    return None;
                }
                entry.owner = 0;
                let state = core::mem::replace(&mut entry.state, SlotState::Free);
                s.free.push(slot);
                match state {
                    SlotState::Answered(answer) => Some((Ok(answer), s.call_next())),
                    _ => None,
                }
            },
        )
        .await;
        asked.answered();
        woken.wake();
        let Answered { reply, bulk, boot_epoch } = answer?;
        reply.map(|reply| Answer { reply, bulk, stamp, boot_epoch })
    }

    /// Puts a request into a slot; the message to be sent.
    pub(super) fn begin(
        &self,
        state: &mut State,
        port: &dyn Port,
        slot: u16,
        call: Call,
        (stamp, pin): (u64, bool),
    ) -> Option<Message> {
        let generation = state.generation;
        let Call { mut request, bulk, direct } = call;
        self.of_this_run(&mut request, state.boot_epoch);
        state.asked_ns = port.now().mono_ns;
        let entry = state.slots.get_mut(usize::from(slot))?;
        entry.seq += 1;
        state.calls += 1;
        entry.owner = state.calls;
        let header = self.header(state.me, (generation, slot), entry.seq);
        let header = Header { direct, ..header };
        let buffer_len = match (&request, &bulk) {
            (Request::Ost(OstRequest::Read { len, .. }), Bulk::Buffer(_)) => *len as usize,
            _ => 0,
        };
        let kept_bulk = match &bulk {
            Bulk::Data(data) => Bulk::Data(data.clone()),
            Bulk::None | Bulk::Buffer(_) => Bulk::None,
        };
        let unheard = matches!(request, Request::Ping);
        let body = Body::Request(request);
        let kept = Message { header, body: body.clone(), bulk: kept_bulk };
        entry.state = SlotState::Busy(Pending {
            message: kept,
            buffer_len,
            sent_ns: state.asked_ns,
            resend_after_ns: RESEND_NS,
            stamp,
            pin,
            unheard,
            left: false,
            asked_before: false,
            at_crash: false,
            copies: 1,
            refused: false,
        });
        Some(Message { header, body, bulk })
    }
}
