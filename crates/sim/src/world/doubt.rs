//! Writes of which nobody can tell whether they were done: those that were sent to an OST several
//! times over a connection that it had ended, having heard nothing of the client for so long. Any
//! copy but the one that it refused may have been executed before. So if there is no room for the
//! write when it is sent over the next connection, it has failed (`EIO`) and not simply not happened.

use std::collections::BTreeMap;

use sateen_types::{ClientId, Endpoint, Errno, Fid};
use sateen_wire::{Body, Header, Message, OstRequest, Request};

use super::World;
use crate::work::Op;

/// The last write that was sent to an OST in a slot.
#[derive(Debug)]
struct Sent {
    generation: u32,
    seq: u64,
    copies: u32,
    fid: Fid,
}

/// Those of all clients, in worlds short of space.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    sent: BTreeMap<(ClientId, Endpoint, u16), Sent>,
}

impl Doubt {
    fn sends(&mut self, header: &Header, fid: Fid) {
        let Header { client, to, generation, slot, seq, .. } = *header;
        let place = self.sent.entry((client, to, slot));
        let sent = place.or_insert(Sent { generation, seq, copies: 0, fid });
        if (sent.generation, sent.seq) != (generation, seq) {
            *sent = Sent { generation, seq, copies: 0, fid };
        }
        sent.copies += 1;
    }

    /// The file of a write that an OST refuses with its connection, if there are other copies.
    fn refused(&self, header: &Header) -> Option<Fid> {
        let Header { client, from, generation, slot, seq, .. } = *header;
        let sent = self.sent.get(&(client, from, slot))?;
        let is_it = (sent.generation, sent.seq) == (generation, seq);
        (is_it && sent.copies > 1).then_some(sent.fid)
    }
}

impl World {
    /// A client sends something.
    pub(super) fn may_be_in_doubt(&mut self, message: &Message) {
        if let (
            true,
            Endpoint::Ost(_),
            Body::Request(Request::Ost(
                OstRequest::Write { object, .. } | OstRequest::WriteMany { object, .. },
            )),
        ) = (self.is_small, message.header.to, &message.body)
        {
            self.doubt.sends(&message.header, object.fid);
        }
    }

    /// An OST answers with an error.
    pub(super) fn puts_in_doubt(&mut self, header: &Header, errno: Errno) {
        let by_ost = matches!(header.from, Endpoint::Ost(_)) && errno == Errno::ESTALE;
        let Some(fid) = self.doubt.refused(header).filter(|_| by_ost) else { return };
        for running in self.running.values_mut() {
            let writes = matches!(&running.op, Op::Write { handle, .. } if handle.fid == fid);
            if writes && running.incarnation == header.client {
                running.in_doubt = true;
                self.report.count("write refused with its connection, and in doubt", 1);
            }
        }
    }
}
