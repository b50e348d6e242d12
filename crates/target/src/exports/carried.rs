//! Exports over a restart in good order: what is written down of each, and how it is taken up.
//!
//! A client that comes back as itself counts on in its slots. What was answered, and the answer
//! lost, is answered once more; what was not executed runs now.

use sateen_types::{ClientId, Endpoint};
use sateen_wire::Reply;

use super::{Export, Exports, Slot};

/// A slot of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Which.
    pub slot: u16,
    /// Its last request that was executed.
    pub seq: u64,
    /// The answer to it.
    pub reply: Reply,
}

impl Exports {
    /// The next incarnation of a client, none of a target, with where it is reached and the attempt
    /// by which it connected.
    pub fn next_user(&self, after: Option<ClientId>) -> Option<(ClientId, Endpoint, u64)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut all = self.all.range((after.map_or(Unbounded, Excluded), Unbounded));
        // Also one that has used no slot: what it has asked first may be on its way.
        let (client, export) =
            all.find(|(_, export)| matches!(export.peer, Endpoint::Client(_)))?;
        Some((*client, export.peer, export.attempt))
    }

    /// The slots of a client in which something was answered. Where the last request was not, it
    /// counts as not executed, and any that comes is the first of its slot.
    pub fn carried(&self, client: ClientId) -> impl Iterator<Item = Carried> + '_ {
        let slots = self.all.get(&client).into_iter().flat_map(|export| &export.slots);
        slots.filter_map(|(slot, last)| {
            let reply = last.reply.clone()?;
            Some(Carried { slot: *slot, seq: last.seq, reply })
        })
    }

    /// The export of a client of the run before, as it was: under a generation that the client
    /// does not know, so that it has to connect first. False if there are too many.
    pub fn take_up(
        &mut self,
        (client, peer, attempt): (ClientId, Endpoint, u64),
        slots: impl IntoIterator<Item = Carried>,
    ) -> bool {
        if self.all.contains_key(&client) || self.all.len() >= super::EXPORTS_MAX {
            return false;
        }
        let generation = self.next_generation();
        let slot = |of: Carried| (of.slot, Slot { seq: of.seq, reply: Some(of.reply), generation });
        let slots = slots.into_iter().filter(|of| of.slot < super::SLOTS_MAX).map(slot).collect();
        let mut export = Export::new(peer, generation, attempt, self.clock_ns);
        (export.slots, export.follows) = (slots, true);
        self.all.insert(client, export);
        true
    }

    /// Whether a client's export is one of the run before.
    pub fn follows(&self, client: ClientId) -> bool {
        self.all.get(&client).is_some_and(|export| export.follows)
    }
}

#[cfg(test)]
mod tests {
    use sateen_types::Errno;
    use sateen_wire::Header;

    use super::super::{Admission, Connection};
    use super::*;

    const AT: Endpoint = Endpoint::Client(ClientId(1));

    fn header(slot: u16, seq: u64, generation: u32) -> Header {
        let client = ClientId(1);
        Header { generation, slot, seq, ..Header::between(AT, Endpoint::Mdt(0), client) }
    }

    #[test]
    fn who_comes_back_counts_on_and_is_answered_from_memory() {
        let mut before = Exports::new(1);
        let Connection::Open(g) = before.connect(ClientId(1), AT, 4) else { panic!() };
        for (slot, seq) in [(0, 1), (0, 2), (1, 1), (2, 7)] {
            assert!(matches!(before.admit(&header(slot, seq, g), false), Admission::New));
            if slot < 2 {
                before.answered(&header(slot, seq, g), &Reply::error(Errno::from_raw(seq as i32)));
            }
        }
        before.connect(ClientId(2), Endpoint::Mdt(1), 1);
        before.connect(ClientId(3), Endpoint::Client(ClientId(3)), 1);
        let user = before.next_user(None).unwrap();
        assert_eq!(user, (ClientId(1), AT, 4));
        let (last, ..) = before.next_user(Some(user.0)).unwrap();
        assert_eq!((last, before.next_user(Some(last))), (ClientId(3), None), "and no target");

        let mut after = Exports::new(2);
        assert!(after.take_up(user, before.carried(ClientId(1))));
        assert!(!after.take_up(user, []), "once");
        assert!(matches!(after.admit(&header(0, 3, g), false), Admission::Refuse));
        assert_eq!(after.connect(ClientId(1), AT, 3), Connection::Overtaken);
        let Connection::Open(g) = after.connect(ClientId(1), AT, 5) else { panic!() };
        assert!(after.follows(ClientId(1)));
        let Admission::Again(again) = after.admit(&header(0, 2, g), false) else { panic!() };
        assert_eq!(again.header, header(0, 2, g).reply());
        assert!(matches!(after.admit(&header(0, 1, g), false), Admission::Drop));
        assert!(matches!(after.admit(&header(0, 3, g), false), Admission::New));
        // That was not executed.
        assert!(matches!(after.admit(&header(2, 7, g), false), Admission::New));
        assert!(matches!(after.admit(&header(2, 7, g), false), Admission::Drop));
        after.connect(ClientId(3), Endpoint::Client(ClientId(3)), 1);
        assert!(!after.follows(ClientId(3)));
    }
}
