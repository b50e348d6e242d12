//! Writing again what an OST has lost in a crash: the import's part of [`crate::unstable`].
//!
//! Life of it: a run answers `Connect` that has not everything which runs before it were answered
//! for; it is told what is missing piece by piece, in the slot that an MDT is told in what is held,
//! and by that knows that it is not to make an object that it does not know: that was removed. The
//! answer to the last piece opens the connection, and what was under way is asked again. A piece
//! that is refused is lost.
//!
//! Which piece is next is found out when its turn comes, because they may be dropped meanwhile. A
//! connection that is lost, or another crash, begins with the first that is missing then.

use bytes::Bytes;
use sateen_types::{Endpoint, Errno, ObjectId};
use sateen_wire::{
    Body, Bulk, CLAIM_SLOT, Header, Message, OstReply, OstRequest, Reply, ReplyBody, Request, Span,
    spans,
};

use super::claims::Claims;
use super::pending::Pending;
use super::{Arrival, Import, Link, SlotState, State};
use crate::inode::Unsynced;
use crate::osc::Places;
use crate::port::Port;
use crate::sync::{Woken, lock};

/// A write that was answered: by which run, of what, and as much of its data as was written.
pub(super) struct Written {
    run: u64,
    object: ObjectId,
    layout_gen: u32,
    places: Places,
    data: Bytes,
    /// The answer says what cannot be: more was written than was sent, or where no file reaches.
    is_wrong: bool,
}

/// What an answer says was written. Of an append it says where, and it is written again there.
pub(super) fn written(message: &Message, reply: &Reply) -> Option<Written> {
    let Body::Request(Request::Ost(request)) = &message.body else { return None };
    let (Bulk::Data(data), None, ReplyBody::Ost(answer)) =
        (&message.bulk, reply.error, &reply.body)
    else {
        return None;
    };
    let (object, layout_gen, places, len, run) = match (request, answer) {
        (
            OstRequest::Write { object, layout_gen, offset, .. },
            OstReply::Written { len, boot_epoch, .. },
        )
        | (
            OstRequest::Append { object, layout_gen, .. },
            OstReply::Appended { offset, len, boot_epoch, .. },
        ) => (*object, *layout_gen, Places::At(*offset), *len, *boot_epoch),
        (
            OstRequest::WriteMany { object, layout_gen, pieces, .. },
            OstReply::Written { len, boot_epoch, .. },
        ) => (*object, *layout_gen, Places::Pieces(pieces.clone()), *len, *boot_epoch),
        _ => return None,
    };
    let is_near = |(offset, len): (u64, u64)| {
        offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64)
    };
    let is_wrong = !places.ranges(len.into()).all(is_near) || len as usize > data.len();
    let data = data.slice(..data.len().min(len as usize));
    Some(Written { run, object, layout_gen, places, data, is_wrong })
}

/// Offsets and lengths.
#[cfg(test)]
type Ranges = Vec<(u64, u64)>;

impl Written {
    /// The parts, for tests.
    #[cfg(test)]
    pub(super) fn place(&self) -> (u64, ObjectId, u32, Ranges, &[u8]) {
        (self.run, self.object, self.layout_gen, self.ranges().collect(), &self.data)
    }

    /// Whether the answer says what cannot be, for tests.
    #[cfg(test)]
    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// What was written of the object.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.places.ranges(self.data.len() as u64)
    }

    /// Whether another write of the same bytes is under way. Which of the two the OST did first
    /// nobody knows.
    fn has_rivals(&self, state: &State) -> bool {
        state.slots.iter().any(|slot| {
            let SlotState::Busy(pending) = &slot.state else { return false };
            match (&pending.message.body, &pending.message.bulk) {
                (
                    Body::Request(Request::Ost(OstRequest::Write { object, offset, .. })),
                    Bulk::Data(data),
                ) => {
                    let range = (*offset, data.len() as u64);
                    *object == self.object && spans::meet(self.ranges(), [range])
                }
                (Body::Request(Request::Ost(OstRequest::WriteMany { object, pieces, .. })), _) => {
                    *object == self.object
                        && spans::meet(self.ranges(), pieces.iter().map(Span::range))
                }
                // Where it goes is not known.
                (Body::Request(Request::Ost(OstRequest::Append { object, .. })), _) => {
                    *object == self.object
                }
                _ => false,
            }
        })
    }
}

impl Import {
    fn ost(&self) -> Option<u32> {
        match self.target {
            Endpoint::Ost(ost) => Some(ost),
            _ => None,
        }
    }

    /// A write was answered that the OST may lose.
    pub(super) fn keep_written(&self, state: &State, written: Written) {
        let Some(ost) = self.ost() else { return };
        if written.is_wrong {
            tracing::warn!(ost, object = %written.object, "it says of a write what cannot be");
            return self.unstable.miss(written.object.fid);
        }
        if written.data.is_empty() {
            return;
        }
        if !self.unstable.keeps(written.object.fid) {
            return;
        }
        if written.has_rivals(state) {
            return self.unstable.miss(written.object.fid);
        }
        let Written { run, object, layout_gen, data, .. } = &written;
        let mut at = 0;
        for (offset, len) in written.ranges() {
            let piece = data.slice(at..at + len as usize);
            at += len as usize;
            self.unstable.wrote((ost, *run), (*object, *layout_gen, offset), &piece);
        }
    }

    /// A run has answered. If it has not everything that it should have, the first piece of that.
    pub(super) fn begin_replay(&self, state: &mut State, port: &dyn Port) -> Option<Message> {
        let ost = self.ost()?;
        let ended = |boot_epoch| self.ended.has(Unsynced { ost, boot_epoch });
        self.unstable.are_durable(ost, ended);
        state.claims = Claims::default();
        let first = self.next_piece(state, port.now().mono_ns);
        match &first {
            Some(_) => state.link = Link::Recovering,
            None => self.unstable.has_all(ost, state.boot_epoch),
        }
        first
    }

    fn next_piece(&self, state: &mut State, now_ns: u64) -> Option<Message> {
        let ost = self.ost()?;
        let (run, told) = (state.boot_epoch, state.claims.told);
        let (number, piece) = self.unstable.next_due(ost, run, told)?;
        state.claims.seq += 1;
        state.claims.told = number;
        state.asked_ns = now_ns;
        let header = self.header(state.me, (state.generation, CLAIM_SLOT), state.claims.seq);
        let (object, layout_gen, offset) = (piece.object, piece.layout_gen, piece.offset);
        let write = OstRequest::Write { object, layout_gen, offset, grant_used: 0 };
        let body = Body::Request(Request::Ost(write));
        let message = Message { header, body, bulk: Bulk::Data(piece.data) };
        state.claims.pending = Some(Box::new(Pending::claim(message.clone(), now_ns)));
        Some(message)
    }

    /// What comes next: another piece, or what waits for the connection, which is to be woken then.
    fn go_on(&self, state: &mut State, port: &dyn Port, out: &mut Vec<Message>) -> Woken {
        if let Some(next) = self.next_piece(state, port.now().mono_ns) {
            out.push(next);
            return Woken::default();
        }
        if let Some(ost) = self.ost() {
            self.unstable.has_all(ost, state.boot_epoch);
        }
        // Whatever was under way was asked of a run before this one.
        let (again, woken) = self.open(state, port, false, true);
        out.extend(again);
        woken.and(state.everybody())
    }

    /// What has waited too long for an answer, or was put off.
    pub(super) fn replay_again(
        &self,
        state: &mut State,
        port: &dyn Port,
        out: &mut Vec<Message>,
    ) -> Woken {
        if state.link != Link::Recovering || self.ost().is_none() {
            return Woken::default();
        }
        let now_ns = port.now().mono_ns;
        match &mut state.claims.pending {
            Some(pending) if pending.is_due(now_ns) => out.push(pending.patiently_again(now_ns)),
            Some(_) => {}
            None => return self.go_on(state, port, out),
        }
        Woken::default()
    }

    /// A piece was answered, on this connection.
    pub(super) fn on_told(&self, port: &dyn Port, header: &Header, reply: &Reply) -> Arrival {
        let mut out = Vec::new();
        let woken = {
            let mut state = lock(&self.state);
            let current = state.me == header.client && state.generation == header.generation;
            let Some(ost) = self.ost().filter(|_| state.link == Link::Recovering && current) else {
                return Arrival::Ignored;
            };
            let Some(pending) = &mut state.claims.pending else { return Arrival::Ignored };
            if pending.message.header.seq != header.seq || pending.was_not_delivered(reply) {
                return Arrival::Ignored;
            }
            let message = state.claims.pending.take().map(|pending| pending.message);
            if reply.error == Some(Errno::EAGAIN) {
                // Not executed, so nobody has to wait for it; it is told again with the next tick,
                // if it is there still.
                state.claims.told -= 1;
                drop(state);
                self.unstable.cut_off(ost).wake();
                return Arrival::Ignored;
            }
            let len = match message.map(|message| message.bulk) {
                Some(Bulk::Data(data)) => data.len(),
                _ => 0,
            };
            let done = matches!(
                reply.body,
                ReplyBody::Ost(OstReply::Written { len: done, .. }) if done as usize == len
            );
            let done = done && reply.error.is_none();
            if !done {
                tracing::warn!(ost, error = ?reply.error, "what it has lost cannot be written again");
            }
            let (run, number) = (state.boot_epoch, state.claims.told);
            let arrived = self.unstable.is_told((ost, run), number, done);
            arrived.and(self.go_on(&mut state, port, &mut out))
        };
        for message in out {
            port.send(message);
        }
        woken.wake();
        Arrival::Answer
    }

    /// The connection is gone, and with it what was on its way. Returns who is to be woken.
    pub(super) fn is_cut_off(&self) -> Woken {
        self.ost().map_or(Woken::default(), |ost| self.unstable.cut_off(ost))
    }

    /// The OST is taken out of use: what it may lose is not written again.
    pub(super) fn give_up_replay(&self) {
        if let Some(ost) = self.ost() {
            self.unstable.give_up(ost);
        }
    }
}
