//! Exports: a target's side of its connections, and exactly-once execution.
//!
//! Life of an export: a `Connect` opens it (or, from an incarnation that is known, gives it a
//! new generation); requests run in slots; `Disconnect` or an eviction ends it. An
//! incarnation that was evicted is fenced: it is refused for ever.
//!
//! In a slot a client has one request at a time. The reply of the last one is kept; when the
//! same sequence comes again its reply is sent again, an older one is dropped, the next is
//! new. Messages of another connection generation are refused, because a delayed duplicate
//! could undo a newer write. Generations are therefore never used twice: they are counted
//! over all clients of a target, from a start that differs with every boot, so that neither
//! a disconnect nor a restart in between gives an old message a second life.
//!
//! A `Connect` carries the number of the attempt in its sequence, rising with each. One that
//! the network repeats is answered with the generation it got before, and one that was
//! overtaken is dropped; neither takes the connection away from its owner.
//!
//! A client that was evicted goes on as a new incarnation at the address it had, counting its
//! attempts on. So whoever connects from the address of an older incarnation has succeeded
//! it: see [`Exports::predecessor`].
//!
//! When each client was heard of last is noted on the target's hearing clock, and how long it was
//! silent before: see [`Exports::silent`] and [`crate::Hearing`].

mod carried;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use sateen_types::{ClientId, Endpoint};
use sateen_wire::{Bulk, Header, Message, Reply};

pub use carried::Carried;

/// Most clients of one target.
pub const EXPORTS_MAX: usize = 1 << 16;
/// Most slots of one client, hence most of its requests in flight at one target.
pub const SLOTS_MAX: u16 = 1024;
/// The slot in which an MDT notes how far a client has come with changes that are made again, beside
/// the run that had answered them: no request has it.
pub const REPLAY_SLOT: u16 = SLOTS_MAX - 2;

/// A client's longest silence counts half after this: 600 s.
const GAP_HALVED_NS: u64 = 600_000_000_000;
/// What a client may be late beyond several of its longest silences: 20 s.
const LATE_NS: u64 = 20_000_000_000;
/// So many exports are looked at at once whether they are silent.
const LOOKED_AT_MAX: usize = 1024;

#[derive(Debug)]
struct Slot {
    seq: u64,
    /// The answer to `seq`; `None` while it is being worked on.
    reply: Option<Reply>,
    /// The connection on which it was last executed.
    generation: u32,
}

#[derive(Debug)]
struct Export {
    /// Where its client is reached.
    peer: Endpoint,
    generation: u32,
    /// The generation it was opened with: requests of older ones were made in an earlier life
    /// of the incarnation, with other slots.
    born: u32,
    /// The attempt that gave it its generation.
    attempt: u64,
    /// What both sides can do.
    features: u64,
    slots: BTreeMap<u16, Slot>,
    /// When it was heard of last, on the hearing clock.
    heard_ns: u64,
    /// Its longest silence that has ended, and when that was.
    gap_ns: u64,
    gap_at_ns: u64,
    /// Its client had it in the run before, which ended in good order.
    follows: bool,
}

impl Export {
    const fn new(peer: Endpoint, generation: u32, attempt: u64, clock_ns: u64) -> Export {
        Export {
            peer,
            generation,
            born: generation,
            attempt,
            features: 0,
            slots: BTreeMap::new(),
            heard_ns: clock_ns,
            gap_ns: 0,
            gap_at_ns: clock_ns,
            follows: false,
        }
    }

    fn hear(&mut self, clock_ns: u64) {
        let silence_ns = clock_ns.saturating_sub(self.heard_ns);
        if silence_ns >= self.gap_ns(clock_ns) {
            (self.gap_ns, self.gap_at_ns) = (silence_ns, clock_ns);
        }
        self.heard_ns = clock_ns;
    }

    /// What its longest silence counts by now.
    fn gap_ns(&self, clock_ns: u64) -> u64 {
        let halved = clock_ns.saturating_sub(self.gap_at_ns) / GAP_HALVED_NS;
        self.gap_ns >> halved.min(63)
    }
}

/// How long whoever may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// At least.
    pub min_ns: u64,
    /// At most. A client that was silent for long before, and came back, has more time than others.
    pub max_ns: u64,
    /// Whose connection has these features; others may be silent for ever.
    pub features: u64,
}

impl Patience {
    /// For everybody as long.
    pub const fn of(ns: u64) -> Patience {
        Patience { min_ns: ns, max_ns: ns, features: 0 }
    }

    /// What a client has whose longest silence was this.
    fn limit_ns(&self, gap_ns: u64) -> u64 {
        let late = gap_ns.saturating_mul(4).saturating_add(LATE_NS);
        late.min(self.max_ns).max(self.min_ns)
    }
}

/// When a client was heard of, for whoever looks in from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// So long ago, for all the target knows.
    pub ago_ns: u64,
    /// Its longest silence; one that is long ago counts less.
    pub gap_ns: u64,
}

/// All exports of one target.
#[derive(Debug, Default)]
pub struct Exports {
    all: BTreeMap<ClientId, Export>,
    fenced: BTreeSet<ClientId>,
    /// The last generation that was given out.
    last: u32,
    /// The hearing clock, as it stands.
    clock_ns: u64,
}

/// What becomes of a `Connect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// The connection has this generation.
    Open(u32),
    /// The incarnation is fenced.
    Fenced,
    /// There are too many clients.
    Full,
    /// A later attempt has overtaken it: it deserves no answer.
    Overtaken,
}

/// What to do with a request that came in.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "returned by value once per request, never stored")]
pub enum Admission {
    /// Execute it.
    New,
    /// It was executed before: send this again.
    Again(Message),
    /// A duplicate of something being worked on or long answered.
    Drop,
    /// The sender has no export here, or one of another generation: it must connect
    /// (`ESTALE`), or is fenced for ever.
    Refuse,
}

impl Exports {
    /// No exports yet. Generations start at a number made from the boot epoch.
    pub fn new(boot_epoch: u64) -> Exports {
        // Fibonacci hashing spreads epochs that are near each other over all 32 bits, so that
        // the ranges of two boots practically never meet.
        let start = (boot_epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        Exports { last: start, ..Exports::default() }
    }

    /// Opens or renews an export of a client that is reached at `peer`. `attempt` is the
    /// sequence of the `Connect`; 0 is from a client that does not count, and always a new
    /// attempt.
    pub fn connect(&mut self, client: ClientId, peer: Endpoint, attempt: u64) -> Connection {
        if self.fenced.contains(&client) {
            return Connection::Fenced;
        }
        let clock_ns = self.clock_ns;
        let succeeded = |export: &Export| export.peer == peer && attempt < export.attempt;
        if attempt != 0
            && matches!(peer, Endpoint::Client(_))
            && self.all.iter().any(|(other, export)| *other != client && succeeded(export))
        {
            return Connection::Overtaken;
        }
        if let Some(export) = self.all.get_mut(&client)
            && attempt != 0
            && attempt <= export.attempt
        {
            export.hear(clock_ns);
            return if attempt == export.attempt {
                Connection::Open(export.generation)
            } else {
                Connection::Overtaken
            };
        }
        if !self.all.contains_key(&client) && self.all.len() >= EXPORTS_MAX {
            return Connection::Full;
        }
        let generation = self.next_generation();
        let new = Export::new(peer, generation, attempt, clock_ns);
        let export = self.all.entry(client).or_insert(new);
        export.hear(clock_ns);
        export.generation = generation;
        export.attempt = export.attempt.max(attempt);
        Connection::Open(generation)
    }

    fn next_generation(&mut self) -> u32 {
        // 0 stands in the headers of those who have no connection.
        self.last = self.last.wrapping_add(1).max(1);
        self.last
    }

    /// An earlier incarnation of the client at `peer` that still has an export: it is over,
    /// because the client goes on as `client`.
    pub fn predecessor(&self, client: ClientId, peer: Endpoint) -> Option<ClientId> {
        let attempt = self.all.get(&client).filter(|export| export.peer == peer)?.attempt;
        let before =
            |export: &Export| export.peer == peer && attempt != 0 && export.attempt < attempt;
        let mut others = self.all.iter().filter(|(other, _)| **other != client);
        others.find(|(_, export)| before(export)).map(|(other, _)| *other)
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

    /// The generation of a client's connection.
    pub fn generation(&self, client: ClientId) -> Option<u32> {
        self.all.get(&client).map(|export| export.generation)
    }

    /// Notes the features of a client's connection.
    pub fn agree(&mut self, client: ClientId, features: u64) {
        if let Some(export) = self.all.get_mut(&client) {
            export.features = features;
        }
    }

    /// The features of a client's connection.
    pub fn features(&self, client: ClientId) -> Option<u64> {
        self.all.get(&client).map(|export| export.features)
    }

    /// Where a connected client is reached.
    pub fn peer(&self, client: ClientId) -> Option<Endpoint> {
        self.all.get(&client).map(|export| export.peer)
    }

    /// The hearing clock has got so far.
    pub(crate) const fn set_clock(&mut self, clock_ns: u64) {
        self.clock_ns = clock_ns;
    }

    /// Where a connected client is reached, and the attempt by which it is connected.
    pub fn reached(&self, client: ClientId) -> Option<(Endpoint, u64)> {
        self.all.get(&client).map(|export| (export.peer, export.attempt))
    }

    /// When a client was heard of.
    pub fn heard(&self, client: ClientId) -> Option<Heard> {
        let export = self.all.get(&client)?;
        let ago_ns = self.clock_ns.saturating_sub(export.heard_ns);
        Some(Heard { ago_ns, gap_ns: export.gap_ns(self.clock_ns) })
    }

    /// Looks at the exports behind `after`, some of them, which of their clients have been silent
    /// for longer than they may: `silent` is told of `most` of them. Those that the network has
    /// `spoken` of are not; nor are targets, which never are for good. Returns behind whom to go
    /// on; `None` if that was all, or as many as wanted.
    pub(crate) fn silent(
        &mut self,
        after: Option<ClientId>,
        patience: &Patience,
        spoken: &BTreeSet<Endpoint>,
        most: usize,
        silent: &mut Vec<ClientId>,
    ) -> Option<ClientId> {
        let clock_ns = self.clock_ns;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked_at = 0;
        for (client, export) in self.all.range_mut((from, Bound::Unbounded)) {
            if spoken.contains(&export.peer) {
                // It is not known to have been silent, nor for how long.
                export.heard_ns = clock_ns;
            }
            let silence_ns = clock_ns.saturating_sub(export.heard_ns);
            if silence_ns > patience.limit_ns(export.gap_ns(clock_ns))
                && export.features & patience.features == patience.features
                && matches!(export.peer, Endpoint::Client(_))
            {
                silent.push(*client);
                if silent.len() >= most {
                    return None;
                }
            }
            looked_at += 1;
            if looked_at >= LOOKED_AT_MAX {
                return Some(*client);
            }
        }
        None
    }

    /// Judges a request other than `Connect`. One that only reads and answers with bulk data
    /// is executed again rather than answered from memory; but not while it is being executed
    /// for the same connection: a target that is slow would have more to do.
    pub fn admit(&mut self, header: &Header, repeatable: bool) -> Admission {
        let clock_ns = self.clock_ns;
        let Some(export) = self.all.get_mut(&header.client) else { return Admission::Refuse };
        if header.generation != export.generation {
            // Answered rather than dropped: a `Connect` to an earlier boot that arrives late has
            // made an export that its client knows nothing of. Who has left the generation
            // behind does not listen.
            return Admission::Refuse;
        }
        export.hear(clock_ns);
        if header.slot >= SLOTS_MAX {
            return Admission::Drop;
        }
        let slot = match export.slots.entry(header.slot) {
            // The first in this slot since the export was opened. A client that has not heard that
            // the one before was let go counts on from there: what it sent to that has another
            // generation, and the next number it sends when this one is answered.
            Entry::Vacant(_) if header.seq == 0 => return Admission::Drop,
            Entry::Vacant(place) => {
                let (seq, generation) = (header.seq, header.generation);
                place.insert(Slot { seq, reply: None, generation });
                return Admission::New;
            }
            Entry::Occupied(place) => place.into_mut(),
        };
        if header.seq == slot.seq + 1 {
            *slot = Slot { seq: header.seq, reply: None, generation: header.generation };
            return Admission::New;
        }
        if repeatable && header.seq == slot.seq {
            if slot.reply.take().is_none() && slot.generation == header.generation {
                return Admission::Drop;
            }
            slot.generation = header.generation;
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
            && in_this_life(export.born, export.generation, header.generation)
        {
            slot.reply = Some(reply.clone());
        }
    }
}

/// Whether a request of generation `then` was admitted by an export opened with generation
/// `born` that is at `now`. Numbers may wrap around.
fn in_this_life(born: u32, now: u32, then: u32) -> bool {
    then.wrapping_sub(born) <= now.wrapping_sub(born)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_wire::ReplyBody;

    const AT: Endpoint = Endpoint::Client(ClientId(1));

    fn header(seq: u64, generation: u32) -> Header {
        let client = ClientId(1);
        Header {
            generation,
            seq,
            ..Header::between(Endpoint::Client(client), Endpoint::Mdt(0), client)
        }
    }

    fn open(exports: &mut Exports, attempt: u64) -> u32 {
        match exports.connect(ClientId(1), AT, attempt) {
            Connection::Open(generation) => generation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_read_runs_again_when_it_was_answered_and_not_before() {
        let mut exports = Exports::new(7);
        let g = open(&mut exports, 1);
        assert!(matches!(exports.admit(&header(1, g), true), Admission::New));
        assert!(matches!(exports.admit(&header(1, g), true), Admission::Drop), "it is at it");
        exports.answered(&header(1, g), &Reply::ok(ReplyBody::Empty));
        assert!(matches!(exports.admit(&header(1, g), true), Admission::New), "it got lost");
        assert!(matches!(exports.admit(&header(1, g), true), Admission::Drop));
        // Over a new connection: what runs yet is answered on the one before.
        let next = open(&mut exports, 2);
        assert!(matches!(exports.admit(&header(1, next), true), Admission::New));
        assert!(matches!(exports.admit(&header(1, next), true), Admission::Drop));
    }

    #[test]
    fn who_counts_on_after_it_was_let_go_is_served() {
        let mut exports = Exports::new(7);
        let g = open(&mut exports, 1);
        assert!(matches!(exports.admit(&header(1, g), false), Admission::New));
        exports.disconnect(ClientId(1));
        let again = open(&mut exports, 2);
        assert!(matches!(exports.admit(&header(2, g), false), Admission::Refuse));
        assert!(matches!(exports.admit(&header(2, again), false), Admission::New));
        assert!(matches!(exports.admit(&header(2, again), false), Admission::Drop));
        assert!(matches!(exports.admit(&header(3, again), false), Admission::New));
        assert!(matches!(exports.admit(&header(2, again), false), Admission::Drop));
    }

    const SECOND_NS: u64 = 1_000_000_000;

    /// Who is silent, looked for as often as that takes.
    fn all_silent(exports: &mut Exports, patience: &Patience, spoken: &[Endpoint]) -> Vec<u64> {
        let (mut all, mut after) = (Vec::new(), None);
        let spoken = spoken.iter().copied().collect();
        loop {
            after = exports.silent(after, patience, &spoken, usize::MAX, &mut all);
            if after.is_none() {
                return all.into_iter().map(|client| client.0).collect();
            }
        }
    }

    #[test]
    fn who_is_silent_is_found_among_many() {
        let mut exports = Exports::new(7);
        // Each that connects looks at all others, which takes long with so many.
        let connect = |exports: &mut Exports, client: u64| {
            let client = ClientId(client);
            exports.all.insert(client, Export::new(Endpoint::Client(client), 1, 1, 0));
        };
        for client in 1..=EXPORTS_MAX as u64 - 1 {
            connect(&mut exports, client);
        }
        exports.connect(ClientId(1 << 63), Endpoint::Mdt(0), 1);
        let patience = Patience::of(60 * SECOND_NS);
        exports.set_clock(60 * SECOND_NS);
        assert!(all_silent(&mut exports, &patience, &[]).is_empty());
        let speak = [3, 5000, EXPORTS_MAX as u64 - 2];
        for client in 1..=EXPORTS_MAX as u64 - 1 {
            if !speak.contains(&client) {
                exports.all.get_mut(&ClientId(client)).unwrap().hear(60 * SECOND_NS);
            }
        }
        exports.set_clock(60 * SECOND_NS + 1);
        assert_eq!(all_silent(&mut exports, &patience, &[]), speak, "and no MDT");
        let (mut two, mut after) = (Vec::new(), None);
        while two.len() < 2 {
            after = exports.silent(after, &patience, &BTreeSet::new(), 2, &mut two);
        }
        assert_eq!((two.len(), after), (2, None), "no more than is wanted");
        // The network has heard of one of them, and of somebody who is not here.
        let spoken = [Endpoint::Client(ClientId(5000)), Endpoint::Client(ClientId(0))];
        assert_eq!(all_silent(&mut exports, &patience, &spoken), [3, EXPORTS_MAX as u64 - 2]);
        assert_eq!(all_silent(&mut exports, &patience, &[]), [3, EXPORTS_MAX as u64 - 2]);
        let speaking = Patience { features: 1, ..patience };
        assert!(all_silent(&mut exports, &speaking, &[]).is_empty(), "none of them promised to");
        exports.agree(ClientId(3), 3);
        assert_eq!(all_silent(&mut exports, &speaking, &[]), [3]);
    }

    #[test]
    fn who_came_back_from_a_long_silence_has_more_time() {
        let mut exports = Exports::new(7);
        let g = open(&mut exports, 1);
        let (min_ns, max_ns) = (60 * SECOND_NS, 200 * SECOND_NS);
        let patience = Patience { min_ns, max_ns, features: 0 };
        let mut now_ns = 0;
        let mut is_silent_after = |exports: &mut Exports, ns: u64| {
            now_ns += ns;
            exports.set_clock(now_ns);
            !all_silent(exports, &patience, &[]).is_empty()
        };
        let repeated = header(1, g);
        assert!(!is_silent_after(&mut exports, 2 * SECOND_NS));
        exports.admit(&repeated, false);
        assert!(!is_silent_after(&mut exports, 60 * SECOND_NS));
        assert!(is_silent_after(&mut exports, 1), "28 s would have done, 60 are the least");
        // A duplicate is a sign of life as well; and so is a repeated attempt to connect.
        exports.admit(&repeated, false);
        assert_eq!(
            exports.heard(ClientId(1)),
            Some(Heard { ago_ns: 0, gap_ns: 60 * SECOND_NS + 1 })
        );
        assert!(!is_silent_after(&mut exports, 200 * SECOND_NS), "260 s, but for the most");
        assert!(is_silent_after(&mut exports, 1));
        assert_eq!(open(&mut exports, 1), g);
        assert!(!is_silent_after(&mut exports, 1));
        // Others have no right to speak for it.
        exports.admit(&header(1, g + 1), false);
        assert_eq!(exports.heard(ClientId(1)).unwrap().ago_ns, 1);
        // In time it is as others are.
        for _ in 0..200 {
            exports.admit(&repeated, false);
            assert!(!is_silent_after(&mut exports, 30 * SECOND_NS));
        }
        exports.admit(&repeated, false);
        assert_eq!(exports.heard(ClientId(1)).unwrap().gap_ns, 30 * SECOND_NS);
        assert!(!is_silent_after(&mut exports, 140 * SECOND_NS));
        assert!(is_silent_after(&mut exports, 1));
    }

    #[test]
    fn requests_run_once() {
        let mut exports = Exports::new(7);
        assert!(matches!(exports.admit(&header(1, 1), false), Admission::Refuse));
        let g = open(&mut exports, 1);
        assert!(matches!(exports.admit(&header(1, g), false), Admission::New));
        assert!(matches!(exports.admit(&header(1, g), false), Admission::Drop));
        exports.answered(&header(1, g), &Reply::ok(ReplyBody::Empty));
        assert!(matches!(exports.admit(&header(1, g), false), Admission::Again(_)));
        assert!(matches!(exports.admit(&header(2, g), false), Admission::New));
        assert!(matches!(exports.admit(&header(1, g), false), Admission::Drop));
        assert!(matches!(exports.admit(&header(9, g), false), Admission::Drop));
    }

    #[test]
    fn older_generations_and_fenced_clients_are_refused() {
        let mut exports = Exports::new(7);
        let first = open(&mut exports, 1);
        assert!(matches!(exports.admit(&header(1, first), false), Admission::New));
        let second = open(&mut exports, 2);
        assert_ne!(first, second);
        assert!(matches!(exports.admit(&header(2, first), false), Admission::Refuse));
        exports.fence(ClientId(1));
        assert_eq!(exports.connect(ClientId(1), AT, 3), Connection::Fenced);
        assert!(matches!(exports.admit(&header(2, second), false), Admission::Refuse));
    }

    #[test]
    fn a_connect_that_comes_after_a_restart_leaves_nobody_without_an_answer() {
        let mut before = Exports::new(1);
        let g = open(&mut before, 1);
        let mut rebooted = Exports::new(2);
        // Sent before the client got its answer from the earlier boot, twice.
        open(&mut rebooted, 1);
        assert!(matches!(rebooted.admit(&header(1, g), false), Admission::Refuse));
        let after = open(&mut rebooted, 2);
        assert!(matches!(rebooted.admit(&header(1, after), false), Admission::New));
    }

    #[test]
    fn a_repeated_or_overtaken_connect_takes_nothing_away() {
        let mut exports = Exports::new(7);
        open(&mut exports, 4);
        let g = open(&mut exports, 5);
        assert_eq!(exports.connect(ClientId(1), AT, 5), Connection::Open(g));
        assert_eq!(exports.connect(ClientId(1), AT, 4), Connection::Overtaken);
        assert!(matches!(exports.admit(&header(1, g), false), Admission::New));
        assert_ne!(open(&mut exports, 0), g, "one that does not count is always new");
    }

    #[test]
    fn messages_of_an_earlier_life_do_not_come_back() {
        let mut exports = Exports::new(1);
        let g = open(&mut exports, 1);
        assert!(matches!(exports.admit(&header(1, g), false), Admission::New));
        exports.disconnect(ClientId(1));
        let again = open(&mut exports, 1);
        assert!(matches!(exports.admit(&header(1, g), false), Admission::Refuse));
        assert!(matches!(exports.admit(&header(1, again), false), Admission::New));
        exports.answered(&header(1, g), &Reply::ok(ReplyBody::Empty));
        assert!(matches!(exports.admit(&header(1, again), false), Admission::Drop), "not done");
        let mut rebooted = Exports::new(2);
        let after = open(&mut rebooted, 1);
        assert!(after != g && after != again, "boots do not share generations");
    }

    #[test]
    fn a_new_incarnation_succeeds_the_old_one_at_its_address() {
        let mut exports = Exports::new(1);
        let (old, new) = (ClientId(1), ClientId(9));
        open(&mut exports, 3);
        let elsewhere = Endpoint::Client(ClientId(2));
        assert!(matches!(exports.connect(ClientId(2), elsewhere, 1), Connection::Open(_)));
        assert!(matches!(exports.connect(new, AT, 4), Connection::Open(_)));
        assert_eq!(exports.peer(new), Some(AT));
        assert_eq!(exports.predecessor(new, AT), Some(old));
        assert_eq!(exports.predecessor(old, AT), None, "nobody succeeds who came before");
        exports.disconnect(old);
        assert_eq!(exports.predecessor(new, AT), None);
        // Sent before, and late.
        assert_eq!(exports.connect(old, AT, 3), Connection::Overtaken);
    }
}
