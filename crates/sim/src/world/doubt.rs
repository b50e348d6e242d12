//! Writes of which nobody can tell whether they were done: those that were under way to an OST that
//! has ended the connection, having heard nothing of the client for so long, and were sent again over
//! the next one. Any copy but a single one that it has refused, and the client has heard that, may
//! have been executed before. So if there is no room for the write now, or only for some of it, it has
//! failed (`EIO`) and not simply not happened, as `ENOSPC` would say.

use std::collections::BTreeMap;

use sateen_types::{ClientId, Endpoint, Errno, ObjectId};
use sateen_wire::{Body, Bulk, Header, Message, OstReply, OstRequest, Reply, ReplyBody, Request};

use super::World;
use crate::work::Op;

/// The write that is under way to an OST in a slot.
#[derive(Debug)]
struct Sent {
    generation: u32,
    seq: u64,
    copies: u32,
    /// The client has heard that the only copy was refused with the connection.
    refused: bool,
    /// It may have been done on a connection before this one.
    asked_before: bool,
    /// Which start of the OST it was sent to last.
    boots: u64,
    /// When it was sent first.
    first_ns: u64,
    object: ObjectId,
    len: usize,
}

impl Sent {
    /// Whether this answers it, for good, with less than all.
    fn falls_short(&self, reply: &Reply) -> bool {
        match (reply.error, &reply.body) {
            (Some(errno), _) => errno != Errno::EAGAIN,
            (None, ReplyBody::Ost(OstReply::Written { len, .. })) => (*len as usize) < self.len,
            _ => false,
        }
    }
}

/// Those of all clients, in worlds short of space.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    sent: BTreeMap<(ClientId, Endpoint, u16), Sent>,
}

impl Doubt {
    /// A write of these bytes is sent, to this start of an OST: once more, or over another connection, or
    /// it is the first in this slot since the last was answered.
    fn sends(
        &mut self,
        header: &Header,
        (object, len): (ObjectId, usize),
        (boots, now_ns): (u64, u64),
    ) {
        let Header { client, to, generation, slot, seq, .. } = *header;
        let place = (client, to, slot);
        let (mut asked_before, mut first_ns) = (false, now_ns);
        if let Some(before) = self.sent.get_mut(&place) {
            let is_it = (before.object, before.len) == (object, len);
            if is_it && (before.generation, before.seq) == (generation, seq) {
                (before.copies, before.boots) = (before.copies + 1, boots);
                return;
            }
            if is_it && before.generation != generation {
                first_ns = before.first_ns;
                asked_before = before.asked_before || !before.refused || before.boots != boots;
            }
        }
        let (copies, refused) = (1, false);
        let sent =
            Sent { generation, seq, copies, refused, asked_before, boots, first_ns, object, len };
        self.sent.insert(place, sent);
    }

    /// A client hears an answer of an OST, or that its message could not be delivered. If it is to a write
    /// that may have been done before, and is not done now: which.
    fn hears(&mut self, header: &Header, reply: &Reply) -> Option<Sent> {
        let Header { client, from, generation, slot, seq, .. } = *header;
        let place = (client, from, slot);
        let sent = self.sent.get_mut(&place)?;
        if (sent.generation, sent.seq) != (generation, seq) {
            return None;
        }
        let carries_nothing =
            reply.last_committed == 0 && reply.transno == 0 && reply.body == ReplyBody::Empty;
        match reply.error {
            Some(Errno::ESTALE) if carries_nothing => sent.refused = sent.copies == 1,
            Some(Errno::ESHUTDOWN | Errno::ENODEV | Errno::ECONNRESET) if carries_nothing => {}
            // It is asked once more, as the next of the slot.
            Some(Errno::EAGAIN) if sent.asked_before => (sent.seq, sent.copies) = (seq + 1, 0),
            _ => {
                let sent = self.sent.remove(&place)?;
                return (sent.asked_before && sent.falls_short(reply)).then_some(sent);
            }
        }
        None
    }
}

impl World {
    /// A client sends something.
    pub(super) fn may_be_in_doubt(&mut self, message: &Message) {
        let Body::Request(Request::Ost(
            OstRequest::Write { object, .. } | OstRequest::WriteMany { object, .. },
        )) = &message.body
        else {
            return;
        };
        let (true, Bulk::Data(data)) = (self.is_small, &message.bulk) else { return };
        let boots = self.hosts.get(&message.header.to).map_or(0, |host| host.boots);
        self.doubt.sends(&message.header, (*object, data.len()), (boots, self.now_ns));
    }

    /// A client hears something. Who has had written what may have been done before, and is refused now,
    /// cannot know whether it was.
    pub(super) fn puts_in_doubt(&mut self, message: &Message) {
        let Body::Reply(reply) = &message.body else { return };
        let Some(sent) = self.doubt.hears(&message.header, reply) else { return };
        let fid = sent.object.fid;
        for running in self.running.values_mut() {
            let writes = matches!(&running.op, Op::Write { handle, .. } if handle.fid == fid);
            let is_of = running.incarnation == message.header.client;
            if writes && is_of && running.began_ns <= sent.first_ns {
                running.in_doubt = true;
                self.report.count("write refused over another connection, and in doubt", 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sateen_types::ClientId;

    use super::*;

    const CLIENT: ClientId = ClientId(1);
    const WRITE: (ObjectId, usize) = (ObjectId { fid: sateen_types::Fid::ROOT, stripe: 0 }, 10);

    fn asked(generation: u32, seq: u64) -> Header {
        let between = Header::between(Endpoint::Client(CLIENT), Endpoint::Ost(0), CLIENT);
        Header { generation, seq, ..between }
    }

    fn answered(generation: u32, seq: u64) -> Header {
        let Header { from, to, .. } = asked(generation, seq);
        Header { from: to, to: from, ..asked(generation, seq) }
    }

    /// What is answered over the second connection, if the first saw so many copies, and its OST refused
    /// the connection to one of them or to something else; whether it is in doubt.
    fn is_in_doubt(copies: u32, is_refused: bool, boots: u64, reply: &Reply) -> bool {
        let mut doubt = Doubt::default();
        for _ in 0..copies {
            doubt.sends(&asked(7, 5), WRITE, (1, 100));
        }
        let header = if is_refused { answered(7, 5) } else { answered(7, 6) };
        assert!(doubt.hears(&header, &Reply::error(Errno::ESTALE)).is_none());
        doubt.sends(&asked(8, 1), WRITE, (boots, 200));
        let short = doubt.hears(&answered(8, 1), reply);
        assert!(doubt.sent.is_empty(), "it is answered");
        assert!(short.as_ref().is_none_or(|sent| sent.first_ns == 100), "since the first copy");
        short.is_some()
    }

    fn written(len: u32) -> Reply {
        Reply::ok(ReplyBody::Ost(OstReply::Written { len, boot_epoch: 1, granted: 0 }))
    }

    #[test]
    fn a_write_that_may_have_been_done_before_and_is_refused_is_in_doubt() {
        let no_room = Reply::error(Errno::ENOSPC);
        assert!(is_in_doubt(1, false, 1, &no_room), "it was lost, or was done: nobody has heard");
        assert!(!is_in_doubt(1, true, 1, &no_room), "the only copy was refused");
        assert!(is_in_doubt(2, true, 1, &no_room), "the other copy may have been done");
        assert!(is_in_doubt(1, true, 2, &no_room), "by the run before");
        assert!(is_in_doubt(1, false, 1, &written(9)) && !is_in_doubt(1, false, 1, &written(10)));
    }

    #[test]
    fn one_that_is_asked_once_more_stays_in_doubt() {
        let mut doubt = Doubt::default();
        doubt.sends(&asked(7, 5), WRITE, (1, 100));
        doubt.sends(&asked(8, 1), WRITE, (1, 200));
        assert!(doubt.hears(&answered(8, 1), &Reply::error(Errno::EAGAIN)).is_none());
        doubt.sends(&asked(8, 2), WRITE, (1, 300));
        let short = doubt.hears(&answered(8, 2), &Reply::error(Errno::ENOSPC));
        assert!(short.is_some_and(|sent| sent.first_ns == 100));
    }

    #[test]
    fn one_that_was_answered_is_not_that_which_comes_next_in_its_slot() {
        let mut doubt = Doubt::default();
        doubt.sends(&asked(7, 5), WRITE, (1, 100));
        assert!(doubt.hears(&answered(7, 5), &written(10)).is_none());
        doubt.sends(&asked(8, 1), WRITE, (1, 200));
        assert!(doubt.hears(&answered(8, 1), &Reply::error(Errno::ENOSPC)).is_none());
        // What is refused on the connection on which it was sent first has not been done.
        doubt.sends(&asked(8, 2), WRITE, (1, 300));
        assert!(doubt.hears(&answered(8, 2), &Reply::error(Errno::ENOSPC)).is_none());
    }
}
