//! What the MDT keeps per client incarnation, and what becomes of it when the client goes.

use std::collections::BTreeMap;

use sateen_target::Outbox;
use sateen_types::{ClientId, Errno, Fid, Seq};
use sateen_wire::{Callback, OpenId};

use crate::keys;
use crate::mdt::Mdt;
use crate::work::Work;

/// Most files that one client has open.
pub const OPENS_PER_CLIENT_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
struct Client {
    opens: BTreeMap<OpenId, (Fid, bool)>,
    seqs: Vec<Seq>,
    /// One past the highest slot used.
    slots: u16,
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: BTreeMap<ClientId, Client>,
    /// Evicted clients, and how many OSTs have yet to refuse them.
    fencing: BTreeMap<ClientId, usize>,
}

impl Clients {
    /// A request came in a slot.
    pub(crate) fn used_slot(&mut self, client: ClientId, slot: u16) {
        let client = self.all.entry(client).or_default();
        client.slots = client.slots.max(slot.saturating_add(1));
    }

    /// Whether a client may open a file under this name.
    pub(crate) fn may_open(&self, client: ClientId, id: OpenId) -> Result<(), Errno> {
        let Some(client) = self.all.get(&client) else { return Ok(()) };
        if client.opens.contains_key(&id) {
            return Err(Errno::EINVAL);
        }
        if client.opens.len() >= OPENS_PER_CLIENT_MAX { Err(Errno::ENFILE) } else { Ok(()) }
    }

    pub(crate) fn open(&mut self, client: ClientId, id: OpenId, file: (Fid, bool)) {
        self.all.entry(client).or_default().opens.insert(id, file);
    }

    /// The file of an open, and whether it writes.
    pub(crate) fn opened(&self, client: ClientId, id: OpenId) -> Option<(Fid, bool)> {
        self.all.get(&client)?.opens.get(&id).copied()
    }

    pub(crate) fn close(&mut self, client: ClientId, id: OpenId) {
        if let Some(client) = self.all.get_mut(&client) {
            client.opens.remove(&id);
        }
    }

    pub(crate) fn seqs(&self, client: ClientId) -> usize {
        self.all.get(&client).map_or(0, |client| client.seqs.len())
    }

    pub(crate) fn granted(&mut self, client: ClientId, seq: Seq) {
        self.all.entry(client).or_default().seqs.push(seq);
    }
}

impl Mdt {
    /// A client did not answer: it loses everything here, and the OSTs refuse it from now on.
    pub(crate) fn evict(&mut self, client: ClientId, out: &mut Outbox) {
        tracing::warn!(
            client = format_args!("{:x}", client.0),
            "evicting a client that does not answer"
        );
        if let Some(message) = self.core.callback(client, Callback::Evicted) {
            out.send(message);
        }
        self.core.exports.fence(client);
        let osts = self.osp.fence(client);
        self.gone(client);
        if osts == 0 {
            self.locks.release_client(client);
        } else {
            self.clients.fencing.insert(client, osts);
        }
    }

    /// An OST refuses an evicted client from now on.
    pub(crate) fn fenced(&mut self, client: ClientId) {
        let Some(left) = self.clients.fencing.get_mut(&client) else { return };
        *left -= 1;
        if *left == 0 {
            self.clients.fencing.remove(&client);
            self.locks.release_client(client);
        }
    }

    /// A client said good-bye.
    pub(crate) fn disconnected(&mut self, client: ClientId) {
        self.gone(client);
        self.locks.release_client(client);
    }

    fn gone(&mut self, client: ClientId) {
        let opens = &mut self.opens;
        for ticket in self.locks.drop_client(client, |fid| opens.lost(fid)) {
            self.parked.remove(&ticket);
            self.tickets.retain(|_, other| *other != ticket);
        }
        self.held.retain(|message| message.header.client != client);
        let Some(gone) = self.clients.all.remove(&client) else { return };
        for (fid, write) in gone.opens.into_values() {
            if self.opens.close(fid, write) {
                self.works.push_back(Work::Orphan(fid));
            }
        }
        // Whatever the client created is in earlier transactions, so once the removal of the
        // grant is durable no object can be without its inode.
        self.batch.clear();
        for seq in &gone.seqs {
            self.seqs.forget(*seq);
            self.batch.remove(&keys::grant(*seq));
        }
        for slot in 0..gone.slots {
            self.batch.remove(&keys::slot(client, slot));
        }
        if !self.batch.is_empty() {
            self.core.commit(&self.batch);
        }
    }
}
