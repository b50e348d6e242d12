//! Clients that come back after a crash, as themselves: what they tell, and how they ask once more.

use sateen_types::ClientId;
use sateen_wire::*;

use crate::harness::*;

/// What a client has when its MDT crashes.
#[derive(Clone, Default)]
pub struct Had {
    pub locks: Vec<HeldLock>,
    pub opens: Vec<HeldOpen>,
}

impl Had {
    pub fn new(grants: &Grants, opens: Vec<HeldOpen>) -> Had {
        let held = |grant: &Grant| {
            let Grant { id, fid, mode, bits } = *grant;
            HeldLock { fid, id, mode, bits }
        };
        Had { locks: grants.iter().map(held).collect(), opens }
    }

    pub fn opens(opens: Vec<HeldOpen>) -> Had {
        Had { opens, ..Had::default() }
    }
}

impl World {
    /// Two clients that speak.
    pub fn of_speakers(osts: u32) -> World {
        let mut world = World::new(osts);
        world.features = SPEAKS;
        world.connect(A);
        world.connect(B);
        world
    }

    /// What a client tells that has this, and its sequence.
    pub fn claim(&self, client: ClientId, had: Had) -> MdtRequest {
        let Had { locks, opens } = had;
        let seqs = vec![self.clients[&client].fids.unwrap().0];
        MdtRequest::Reclaim { locks, opens, seqs, file_locks: Vec::new(), last: true }
    }

    /// The MDT crashes; these clients connect as themselves and tell what they had.
    pub fn crash_under(&mut self, had: impl IntoIterator<Item = (ClientId, Had)>) {
        self.crash_under_clients();
        let mut told = Vec::new();
        for (client, had) in had {
            assert!(self.reconnect(client).is_some_and(|run| run != 0));
            let claim = self.claim(client, had);
            told.push(self.start(client, claim));
        }
        self.rest();
        for call in told {
            assert_eq!(self.reply(call).unwrap().error, None, "{call:?}");
        }
    }

    /// The first client sends a request in a slot, and is answered; nothing need be durable yet.
    pub fn ask_in(&mut self, slot: u16, request: &MdtRequest) -> (Call, Reply) {
        let seq = self.clients.get_mut(&A).unwrap().seqs.entry(slot).or_default();
        *seq += 1;
        let call = Call { client: A, slot, seq: *seq };
        self.deliver(self.header(call), Request::Mdt(request.clone()));
        let reply = self.reply(call).unwrap();
        assert_eq!(reply.error, None, "{request:?}");
        (call, reply)
    }

    /// Sends it once more, as one whose answer got lost.
    pub fn send_again(&mut self, call: Call, request: &MdtRequest) {
        self.clients.get_mut(&A).unwrap().replies.remove(&(call.slot, call.seq));
        self.deliver(self.header(call), Request::Mdt(request.clone()));
    }

    pub fn ask_again(&mut self, call: Call, request: &MdtRequest) -> Reply {
        self.send_again(call, request);
        self.rest();
        self.reply(call).expect("an answer")
    }
}
