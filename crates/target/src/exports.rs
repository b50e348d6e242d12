//! Exports: a target's side of its connections, and exactly-once execution.
//!
//! Life of an export: a `Connect` opens it (or, from an incarnation that is known, gives it a
//! new generation); requests run in slots; `Disconnect` or an eviction ends it. An
//! incarnation that was evicted is fenced: it is refused for ever.
//!
//! In a slot a client has one request at a time. The reply of the last one is kept; when the
//! same sequence comes again its reply is sent again, an older one is dropped, the next is
//! new. Messages of an older connection generation are dropped, because a delayed duplicate
//! could undo a newer write.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::ClientId;
use sateen_wire::{Bulk, Header, Message, Reply};

/// Most clients of one target.
pub const EXPORTS_MAX: usize = 1 << 16;
/// Most slots of one client, hence most of its requests in flight at one target.
pub const SLOTS_MAX: u16 = 1024;

#[derive(Debug, Default)]
struct Slot {
    seq: u64,
    /// The answer to `seq`; `None` while it is being worked on.
    reply: Option<Reply>,
}

#[derive(Debug)]
struct Export {
    generation: u32,
    slots: BTreeMap<u16, Slot>,
}

/// All exports of one target.
#[derive(Debug, Default)]
pub struct Exports {
    all: BTreeMap<ClientId, Export>,
    fenced: BTreeSet<ClientId>,
}

/// What to do with a request that came in.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "returned by value once per request, never stored")]
pub enum Admission {
    /// Execute it.
    New,
    /// It was executed before: send this again.
    Again(Message),
    /// A duplicate of something being worked on or long answered, or of an older generation.
    Drop,
    /// The sender has no export here: it must connect (`ESTALE`), or is fenced for ever.
    Refuse,
}

impl Exports {
    /// Opens or renews an export; its new generation, or `None` if the incarnation is fenced
    /// or there are too many.
    pub fn connect(&mut self, client: ClientId) -> Option<u32> {
        if self.fenced.contains(&client) {
            return None;
        }
        if let Some(export) = self.all.get_mut(&client) {
            export.generation += 1;
            return Some(export.generation);
        }
        if self.all.len() >= EXPORTS_MAX {
            return None;
        }
        self.all.insert(client, Export { generation: 1, slots: BTreeMap::new() });
        Some(1)
    }

    /// Ends an export; false if there was none.
    pub fn disconnect(&mut self, client: ClientId) -> bool {
        self.all.remove(&client).is_some()
    }

    /// Ends an export for ever.
    pub fn fence(&mut self, client: ClientId) {
        self.all.remove(&client);
        self.fenced.insert(client);
    }

    /// Whether an incarnation is refused for ever.
    pub fn is_fenced(&self, client: ClientId) -> bool {
        self.fenced.contains(&client)
    }

    /// Whether an incarnation is connected.
    pub fn is_connected(&self, client: ClientId) -> bool {
        self.all.contains_key(&client)
    }

    /// The connected incarnations, in order.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.all.keys().copied()
    }

    /// The generation of a client's connection, for callbacks to it.
    pub fn generation(&self, client: ClientId) -> Option<u32> {
        self.all.get(&client).map(|export| export.generation)
    }

    /// Judges a request other than `Connect`. One that only reads and answers with bulk data
    /// is executed again rather than answered from memory.
    pub fn admit(&mut self, header: &Header, repeatable: bool) -> Admission {
        let Some(export) = self.all.get_mut(&header.client) else { return Admission::Refuse };
        if header.generation != export.generation || header.slot >= SLOTS_MAX {
            return Admission::Drop;
        }
        let slot = export.slots.entry(header.slot).or_default();
        if header.seq == slot.seq + 1 {
            *slot = Slot { seq: header.seq, reply: None };
            return Admission::New;
        }
        if repeatable && header.seq == slot.seq {
            return Admission::New;
        }
        match &slot.reply {
            Some(reply) if header.seq == slot.seq => {
                Admission::Again(Message::reply_to(header, reply.clone(), Bulk::None))
            }
            _ => Admission::Drop,
        }
    }

    /// Notes the answer to a request, for its duplicates. Replies that granted locks are
    /// kept as they are: a repeated grant names the same lock.
    pub fn answered(&mut self, header: &Header, reply: &Reply) {
        let Some(export) = self.all.get_mut(&header.client) else { return };
        if let Some(slot) = export.slots.get_mut(&header.slot)
            && slot.seq == header.seq
        {
            slot.reply = Some(reply.clone());
        }
    }

    /// Forgets a request that was admitted but not executed, so that it may come again.
    pub fn forget(&mut self, header: &Header) {
        let Some(export) = self.all.get_mut(&header.client) else { return };
        if let Some(slot) = export.slots.get_mut(&header.slot)
            && slot.seq == header.seq
            && slot.reply.is_none()
        {
            slot.seq -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::Endpoint;
    use sateen_wire::ReplyBody;

    fn header(seq: u64, generation: u32) -> Header {
        let client = ClientId(1);
        Header {
            from: Endpoint::Client(client),
            to: Endpoint::Mdt(0),
            client,
            generation,
            slot: 0,
            seq,
            deadline_ms: 0,
            project: 0,
            credential: 0,
            trace: 0,
            job: [0; 16],
        }
    }

    #[test]
    fn requests_run_once() {
        let mut exports = Exports::default();
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::Refuse));
        assert_eq!(exports.connect(ClientId(1)), Some(1));
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::New));
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::Drop));
        exports.answered(&header(1, 1), &Reply::ok(ReplyBody::Empty));
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::Again(_)));
        assert!(matches!(exports.admit(&header(2, 1), false), Admission::New));
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::Drop));
        assert!(matches!(exports.admit(&header(9, 1), false), Admission::Drop));
    }

    #[test]
    fn older_generations_and_fenced_clients_are_refused() {
        let mut exports = Exports::default();
        exports.connect(ClientId(1));
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::New));
        assert_eq!(exports.connect(ClientId(1)), Some(2));
        assert!(matches!(exports.admit(&header(2, 1), false), Admission::Drop));
        exports.fence(ClientId(1));
        assert_eq!(exports.connect(ClientId(1)), None);
        assert!(matches!(exports.admit(&header(2, 2), false), Admission::Refuse));
    }
}
