//! The state that every target has, and the steps that every request goes through.
//!
//! A request is admitted (exports), executed against the store, and then either answered,
//! or parked: for the index ([`Fault::Miss`]), for durability, or by the service for a lock
//! or another target. A parked request is executed again from its start.

use std::collections::{BTreeMap, BTreeSet};

use sateen_osd::{Batch, Miss, Prefetched, Store};
use sateen_types::{ClientId, Endpoint, Errno, Timestamp};
use sateen_wire::Body;
use sateen_wire::{
    Bulk, Callback, FEATURES, Header, MdtReply, MdtRequest, Message, MgsReply, MgsRequest,
    OstReply, OstRequest, Reply, ReplyBody, Request,
};

use crate::exports::{Admission, Connection, Exports, Patience};
use crate::hearing::Hearing;
use crate::{Effect, Outbox, Pace, ParkId};

/// How often it is looked who is silent: 1 s.
const LOOK_NS: u64 = 1_000_000_000;
/// So many silent clients are told of at each such look; the others at the next.
const SILENT_MAX: usize = 64;

/// Why an operation stopped before it changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller gets this.
    Errno(Errno),
    /// Something is not in memory; fetch it and start again.
    Miss,
    /// It waits for a lock that somebody else holds; the service has parked it.
    Blocked,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Errno(errno)
    }
}

impl From<Miss> for Fault {
    fn from(_: Miss) -> Fault {
        Fault::Miss
    }
}

/// What a target is started with.
#[derive(Debug, Clone, Copy)]
pub struct CoreConfig {
    /// Which target.
    pub me: Endpoint,
    /// Different at every start: part of what connections are told, so that clients notice
    /// a restart.
    pub boot_epoch: u64,
    /// Key of the directory hash.
    pub hash_key: u64,
}

/// The shared state of a target.
#[derive(Debug)]
pub struct Core {
    /// What it was started with.
    pub config: CoreConfig,
    /// Id of the file system that it belongs to; 0 takes messages about any.
    pub file_system: u64,
    /// The boot epoch of the run before, if clients that come back may go on with what they had of
    /// it; 0 otherwise.
    pub follows: u64,
    /// Its transactions up to this one are there; all of them if it ended in good order.
    pub durable: u64,
    /// All clients may, and not only those whose exports were taken up.
    pub follows_all: bool,
    /// Features that it can do; a connection has those of them that its client can do, too.
    pub features: u64,
    /// Metadata.
    pub store: Store,
    /// Connections.
    pub exports: Exports,
    hearing: Hearing,
    /// Peers that the network has heard of lately.
    spoken: BTreeSet<Endpoint>,
    /// Behind whom the look for the silent goes on; when it began, in lived time.
    looked_at: Option<ClientId>,
    looked_ns: u64,
    parked: BTreeMap<ParkId, (Message, Prefetched)>,
    waiting: Vec<(u64, Header, Reply)>,
    next_park: u64,
    /// A failed write: nothing is executed any more.
    poisoned: bool,
}

impl Core {
    /// A target's state over a recovered store.
    pub fn new(config: CoreConfig, store: Store) -> Core {
        Core {
            config,
            file_system: 0,
            follows: 0,
            durable: u64::MAX,
            follows_all: false,
            features: FEATURES,
            store,
            exports: Exports::new(config.boot_epoch),
            hearing: Hearing::default(),
            spoken: BTreeSet::new(),
            looked_at: None,
            looked_ns: 0,
            parked: BTreeMap::new(),
            waiting: Vec::new(),
            next_park: 1,
            poisoned: false,
        }
    }

    /// What every event begins with. Returns its time as the target lives it: see [`Hearing`].
    pub fn live(&mut self, now: Timestamp) -> Timestamp {
        let lived = self.hearing.live(now);
        self.exports.set_clock(self.hearing.clock_ns());
        lived
    }

    /// The answer to [`crate::Service::pace`]: notes that ticks come so often from now on.
    pub const fn paced(&mut self, pace: Pace) -> Pace {
        self.hearing.paced(pace);
        pace
    }

    /// See [`crate::Service::on_heard`].
    pub fn network_heard(&mut self, peers: &[Endpoint]) {
        self.spoken = peers.iter().copied().collect();
        if !peers.is_empty() {
            self.hearing.heard();
        }
    }

    /// Who has been silent for longer than the service has patience. To be called at each tick:
    /// once a second it begins anew to look at everybody, at some at a time.
    pub fn silent(&mut self, patience: &Patience) -> Vec<ClientId> {
        let mut silent = Vec::new();
        if self.looked_at.is_none() {
            let now_ns = self.hearing.lived_ns();
            if now_ns < self.looked_ns.saturating_add(LOOK_NS) {
                return silent;
            }
            self.looked_ns = now_ns;
        }
        self.looked_at =
            self.exports.silent(self.looked_at, patience, &self.spoken, SILENT_MAX, &mut silent);
        silent
    }

    /// First step of a request: answers `Connect`, `Ping` and duplicates itself, and returns
    /// what is left to execute. `Disconnect` is returned too, after the export is closed, for
    /// the service to clean up behind the client.
    pub fn admit(&mut self, message: Message, out: &mut Outbox) -> Option<Message> {
        let Body::Request(request) = &message.body else { return None };
        let header = message.header;
        if self.poisoned {
            self.send_reply(&header, Reply::error(Errno::EIO), Bulk::None, out);
            return None;
        }
        let about = header.file_system;
        if about != 0 && self.file_system != 0 && about != self.file_system {
            // The address was another's. Nothing of theirs may be done here. Whoever believes to
            // be connected hears that this is over, and why when it connects.
            tracing::debug!(from = %header.from, "a message about another file system");
            let connects = matches!(request, Request::Connect { .. });
            let errno = if connects { Errno::EXDEV } else { Errno::ESTALE };
            self.send_reply(&header, Reply::error(errno), Bulk::None, out);
            return None;
        }
        self.hearing.heard();
        if let Request::Connect { features } = *request {
            let reply = match self.exports.connect(header.client, header.from, header.seq) {
                Connection::Overtaken => return None,
                Connection::Open(generation) => {
                    let features = features & self.features;
                    self.exports.agree(header.client, features);
                    let boot_epoch = self.config.boot_epoch;
                    let goes_on = self.follows_all || self.exports.follows(header.client);
                    let follows = if goes_on { self.follows } else { 0 };
                    let durable = self.durable;
                    Reply::ok(ReplyBody::Connected {
                        features,
                        boot_epoch,
                        generation,
                        follows,
                        durable,
                    })
                }
                Connection::Fenced => Reply::error(Errno::ESTALE),
                Connection::Full => Reply::error(Errno::EAGAIN),
            };
            self.send_reply(&header, reply, Bulk::None, out);
            return None;
        }
        let repeatable = is_repeatable(request);
        match self.exports.admit(&header, repeatable) {
            Admission::New => {}
            Admission::Again(again) => {
                out.send(again);
                return None;
            }
            Admission::Drop => return None,
            Admission::Refuse => {
                self.send_reply(&header, Reply::error(Errno::ESTALE), Bulk::None, out);
                return None;
            }
        }
        match request {
            Request::Ping => {
                self.answer(&header, Reply::ok(ReplyBody::Empty), Bulk::None, out);
                None
            }
            Request::Disconnect => {
                self.answer(&header, Reply::ok(ReplyBody::Empty), Bulk::None, out);
                self.exports.disconnect(header.client);
                Some(message)
            }
            _ => Some(message),
        }
    }

    /// Last step of a request: notes the answer for duplicates and sends it. Fills in
    /// `last_committed`. A `Connect`, which belongs to no connection yet, is in no slot.
    pub fn answer(&mut self, header: &Header, mut reply: Reply, bulk: Bulk, out: &mut Outbox) {
        reply.last_committed = self.store.committed();
        // Pages are large, and cheaper made again than kept for a duplicate.
        let large = matches!(
            reply.body,
            ReplyBody::Mdt(MdtReply::Entries { .. } | MdtReply::Bytes { .. })
                | ReplyBody::Ost(OstReply::Objects(_))
                | ReplyBody::Mgs(MgsReply::Config { .. } | MgsReply::Params { .. })
        );
        if header.generation != 0 && large {
            // Whoever is no longer interested asks something harmless in its place, and is to be
            // answered.
            let last_committed = reply.last_committed;
            let done = Reply { last_committed, ..Reply::ok(ReplyBody::Empty) };
            self.exports.answered(header, &done);
        } else if header.generation != 0 {
            self.exports.answered(header, &reply);
        }
        self.send_reply(header, reply, bulk, out);
    }

    fn send_reply(&self, header: &Header, reply: Reply, bulk: Bulk, out: &mut Outbox) {
        out.send(Message::reply_to(header, reply, bulk));
    }

    /// Answers once everything up to `upto` is durable, which starts a group commit if it is
    /// not yet.
    pub fn answer_durable(&mut self, header: &Header, reply: Reply, upto: u64, out: &mut Outbox) {
        if upto <= self.store.committed() {
            self.answer(header, reply, Bulk::None, out);
            return;
        }
        if self.poisoned {
            // No group commit will come any more.
            self.answer(header, Reply::error(Errno::EIO), Bulk::None, out);
            return;
        }
        self.waiting.push((upto, *header, reply));
        out.push(Effect::Flush);
    }

    /// Whether somebody is to be answered once something is durable.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The time as the target lives it.
    pub const fn lived_ns(&self) -> u64 {
        self.hearing.lived_ns()
    }

    /// By which clock silence is measured: it stands while nobody is heard.
    pub const fn clock_ns(&self) -> u64 {
        self.hearing.clock_ns()
    }

    /// A flush ended: answers those who waited for it.
    pub fn flushed(&mut self, out: &mut Outbox) {
        let committed = self.store.committed();
        let mut waiting = core::mem::take(&mut self.waiting);
        let mut left = Vec::new();
        for (upto, header, reply) in waiting.drain(..) {
            if upto <= committed {
                self.answer(&header, reply, Bulk::None, out);
            } else {
                left.push((upto, header, reply));
            }
        }
        if !left.is_empty() {
            out.push(Effect::Flush);
        }
        self.waiting = left;
    }

    /// Parks a request that met [`Fault::Miss`], and has the driver fetch what it wants.
    /// `fetched` is what earlier rounds brought.
    pub fn park_for_index(
        &mut self,
        message: Message,
        fetched: Prefetched,
        out: &mut Outbox,
    ) -> ParkId {
        let id = self.fetch_wanted(out);
        self.parked.insert(id, (message, fetched));
        id
    }

    /// Has the driver fetch what the last [`Fault::Miss`] wants, for work that no request
    /// stands behind: the service itself remembers what the id means.
    pub fn fetch_wanted(&mut self, out: &mut Outbox) -> ParkId {
        let (wants, generation) = self.store.take_wants();
        let id = ParkId(self.next_park);
        self.next_park += 1;
        out.push(Effect::Prefetch { id, wants, generation });
        id
    }

    /// Takes a parked request back, with everything that was fetched for it. Whether its client
    /// is still there is for [`Core::is_current`] to say.
    pub fn unpark(&mut self, id: ParkId, view: Prefetched) -> Option<(Message, Prefetched)> {
        self.store.keep(&view);
        let (message, mut fetched) = self.parked.remove(&id)?;
        fetched.extend(view);
        Some((message, fetched))
    }

    /// Drops all parked requests: nothing is executed any more, and their clients send them again.
    pub fn drop_parked(&mut self) {
        self.parked.clear();
    }

    /// Whether a request that was admitted earlier may still be executed. One whose client has
    /// gone, or has connected anew since, may not: the client has given it up, and may have
    /// asked for the same again.
    pub fn is_current(&self, header: &Header) -> bool {
        self.exports.generation(header.client) == Some(header.generation)
    }

    /// Commits a batch and returns its transno.
    pub fn commit(&mut self, batch: &Batch) -> u64 {
        self.store.commit(batch)
    }

    /// A callback to a client, or `None` if it is not connected any more.
    pub fn callback(&self, client: ClientId, callback: Callback) -> Option<Message> {
        let generation = self.exports.generation(client)?;
        let header = Header {
            generation,
            ..Header::between(self.config.me, self.exports.peer(client)?, client)
        };
        Some(Message { header, body: Body::Callback(callback), bulk: Bulk::None })
    }

    /// A read or write of the journal, the index or the objects failed: refuse everything
    /// from now on, because what was promised can no longer be kept, and tell those who wait
    /// here.
    pub fn poison(&mut self, out: &mut Outbox) {
        self.poisoned = true;
        for (_, header, _) in core::mem::take(&mut self.waiting) {
            self.answer(&header, Reply::error(Errno::EIO), Bulk::None, out);
        }
        for (message, _) in core::mem::take(&mut self.parked).into_values() {
            self.answer(&message.header, Reply::error(Errno::EIO), Bulk::None, out);
        }
    }

    /// Whether the target was poisoned.
    pub const fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

/// Requests that may be answered with much data, and that change nothing when they are executed
/// again, as a duplicate is.
fn is_repeatable(request: &Request) -> bool {
    matches!(
        request,
        Request::Mdt(
            MdtRequest::ReadDir { .. }
                | MdtRequest::ReadLink { .. }
                | MdtRequest::GetXattr { .. }
                | MdtRequest::ListXattr { .. }
                | MdtRequest::GetLinks { .. }
        ) | Request::Ost(
            OstRequest::Read { .. } | OstRequest::GetAttr { .. } | OstRequest::List { .. }
        ) | Request::Mgs(
            MgsRequest::GetConfig
                | MgsRequest::GetParams
                | MgsRequest::WaitConfig { .. }
                | MgsRequest::Register { .. }
                | MgsRequest::Replace { .. }
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_osd::{Key, StoreLimits};

    fn header(slot: u16) -> Header {
        let client = ClientId(1);
        Header {
            generation: 1,
            slot,
            seq: 1,
            ..Header::between(Endpoint::Client(client), Endpoint::Mdt(0), client)
        }
    }

    fn request(slot: u16) -> Message {
        Message { header: header(slot), body: Body::Request(Request::Ping), bulk: Bulk::None }
    }

    #[test]
    fn messages_about_another_file_system_are_refused() {
        let config = CoreConfig { me: Endpoint::Ost(0), boot_epoch: 1, hash_key: 2 };
        let mut core = Core::new(config, Store::new(1, 0, StoreLimits::default()));
        core.file_system = 7;
        let mut out = Outbox::new();
        for (about, right) in [(0, true), (7, true), (8, false)] {
            let header = Header { file_system: about, generation: 0, ..header(0) };
            let body = Body::Request(Request::Connect { features: 0 });
            assert!(core.admit(Message { header, body, bulk: Bulk::None }, &mut out).is_none());
            let Some(Effect::Send(Message { body: Body::Reply(reply), .. })) = out.drain().next()
            else {
                panic!("it is answered")
            };
            assert_eq!(reply.error, (!right).then_some(Errno::EXDEV));
            let ping = Message { header, ..request(0) };
            if !right {
                assert!(core.admit(ping, &mut out).is_none());
                let Some(Effect::Send(Message { body: Body::Reply(reply), .. })) =
                    out.drain().next()
                else {
                    panic!("it is answered")
                };
                assert_eq!(reply.error, Some(Errno::ESTALE));
            }
        }
    }

    #[test]
    fn a_connection_has_the_features_of_both() {
        let config = CoreConfig { me: Endpoint::Ost(0), boot_epoch: 1, hash_key: 2 };
        let mut core = Core::new(config, Store::new(1, 0, StoreLimits::default()));
        core.features = 0b0110;
        let mut out = Outbox::new();
        // The last is a client that was updated meanwhile.
        for (attempt, offered, agreed) in [(1, 0b0011, 0b0010), (2, 0b1001, 0), (3, !0, 0b0110)] {
            let header = Header { seq: attempt, generation: 0, ..header(0) };
            let body = Body::Request(Request::Connect { features: offered });
            assert!(core.admit(Message { header, body, bulk: Bulk::None }, &mut out).is_none());
            let Some(Effect::Send(Message { body: Body::Reply(reply), .. })) = out.drain().next()
            else {
                panic!("it is answered")
            };
            let ReplyBody::Connected { features, .. } = reply.body else { panic!("{reply:?}") };
            assert_eq!(features, agreed);
            assert_eq!(core.exports.features(ClientId(1)), Some(agreed));
        }
    }

    #[test]
    fn a_goodbye_ends_the_export_and_is_left_to_the_service() {
        let (mut core, mut out) = (core(), Outbox::new());
        let connection = core.exports.connect(ClientId(1), Endpoint::Client(ClientId(1)), 1);
        let Connection::Open(generation) = connection else { panic!("{connection:?}") };
        let header = Header { generation, ..header(0) };
        let body = Body::Request(Request::Disconnect);
        let goodbye = Message { header, body, bulk: Bulk::None };
        let mut answers = |message: &Message| {
            let left = core.admit(message.clone(), &mut out);
            let sent: Vec<Effect> = out.drain().collect();
            let [Effect::Send(Message { body: Body::Reply(reply), .. })] = &sent[..] else {
                panic!("it is answered once: {sent:?}")
            };
            (left, reply.error, core.is_current(&header))
        };
        // A service that did not see it would keep what the client had.
        assert_eq!(answers(&goodbye), (Some(goodbye.clone()), None, false));
        // Whoever said it is nobody from then on, and there is nothing left to clean up.
        assert_eq!(answers(&goodbye), (None, Some(Errno::ESTALE), false));
        assert!(
            core.exports.clients().next().is_none() && core.exports.peer(ClientId(1)).is_none()
        );
    }

    #[test]
    fn a_value_is_read_again_rather_than_kept_for_a_duplicate() {
        let config = CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 1, hash_key: 2 };
        let mut core = Core::new(config, Store::new(1, 0, StoreLimits::default()));
        let mut out = Outbox::new();
        let connection = core.exports.connect(ClientId(1), Endpoint::Client(ClientId(1)), 1);
        let Connection::Open(generation) = connection else { panic!("{connection:?}") };
        let header = Header { generation, ..header(0) };
        let list = MdtRequest::ListXattr { fid: sateen_types::Fid::ROOT };
        let message = || Message {
            header,
            body: Body::Request(Request::Mdt(list.clone())),
            bulk: Bulk::None,
        };
        assert!(core.admit(message(), &mut out).is_some());
        let bytes = MdtReply::Bytes(vec![7; 60_000].into());
        core.answer(&header, Reply::ok(ReplyBody::Mdt(bytes)), Bulk::None, &mut out);
        let Admission::Again(kept) = core.exports.admit(&header, false) else {
            panic!("forgotten")
        };
        assert!(matches!(kept.body, Body::Reply(Reply { body: ReplyBody::Empty, .. })));
        assert!(core.admit(message(), &mut out).is_some(), "it is executed again");
    }

    #[test]
    fn poison_answers_all_who_wait_and_all_who_come() {
        let config = CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 1, hash_key: 2 };
        let mut core = Core::new(config, Store::new(1, 0, StoreLimits::default()));
        let mut out = Outbox::new();
        core.exports.connect(ClientId(1), Endpoint::Client(ClientId(1)), 1);
        let mut batch = Batch::new();
        batch.put(&Key::tag(b'k'), &1u32);
        let transno = core.commit(&batch);
        core.answer_durable(&header(0), Reply::ok(ReplyBody::Empty), transno, &mut out);
        core.park_for_index(request(1), Prefetched::default(), &mut out);
        out.drain().for_each(drop);

        core.poison(&mut out);
        core.answer_durable(&header(3), Reply::ok(ReplyBody::Empty), transno, &mut out);
        assert!(core.admit(request(2), &mut out).is_none());
        let slots: Vec<u16> = out
            .drain()
            .map(|effect| match effect {
                Effect::Send(Message { header, body: Body::Reply(reply), .. }) => {
                    assert_eq!(reply.error, Some(Errno::EIO));
                    header.slot
                }
                other => panic!("a reply, not {other:?}"),
            })
            .collect();
        assert_eq!(slots, [0, 1, 3, 2]);
    }

    fn core() -> Core {
        let config = CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 1, hash_key: 2 };
        Core::new(config, Store::new(1, 0, StoreLimits::default()))
    }

    fn change(value: u32) -> Batch {
        let mut batch = Batch::new();
        batch.put(&Key::tag(b'k'), &value);
        batch
    }

    #[test]
    fn who_waits_for_durability_is_answered_by_the_flush_that_brings_it() {
        let (mut core, mut out) = (core(), Outbox::new());
        core.exports.connect(ClientId(1), Endpoint::Client(ClientId(1)), 1);
        assert_eq!((core.commit(&change(1)), core.commit(&change(2))), (1, 2));
        assert!(!core.has_waiting());
        let reply = || Reply::ok(ReplyBody::Empty);
        core.answer_durable(&header(0), reply(), 2, &mut out);
        assert!(matches!(out.drain().collect::<Vec<_>>()[..], [Effect::Flush]));
        assert!(core.has_waiting());
        let flush = core.store.begin_flush().unwrap();
        // This one comes too late for it.
        let third = core.commit(&change(3));
        core.answer_durable(&header(1), reply(), third, &mut out);
        out.drain().for_each(drop);
        core.store.flush_done(flush);
        core.flushed(&mut out);
        let effects: Vec<Effect> = out.drain().collect();
        let [Effect::Send(Message { header: to, body: Body::Reply(answer), .. }), Effect::Flush] =
            &effects[..]
        else {
            panic!("one answer, and another flush: {effects:?}")
        };
        assert_eq!((to.slot, answer.error, answer.last_committed), (0, None, 2));
        assert!(core.has_waiting());
        // What is durable already waits for nothing.
        core.answer_durable(&header(2), reply(), 2, &mut out);
        assert!(matches!(out.drain().collect::<Vec<_>>()[..], [Effect::Send(_)]));
    }

    #[test]
    fn what_was_parked_comes_back_once_under_its_own_number() {
        let (mut core, mut out) = (core(), Outbox::new());
        let ids = [0, 1, 2]
            .map(|slot| core.park_for_index(request(slot), Prefetched::default(), &mut out));
        let asked: Vec<ParkId> = out
            .drain()
            .map(|effect| match effect {
                Effect::Prefetch { id, .. } => id,
                other => panic!("a look into the index, not {other:?}"),
            })
            .collect();
        assert_eq!(asked, ids);
        for (slot, id) in (0..).zip(ids) {
            let (message, _) = core.unpark(id, Prefetched::default()).unwrap();
            assert_eq!(message.header.slot, slot);
            assert!(core.unpark(id, Prefetched::default()).is_none());
        }
        core.park_for_index(request(3), Prefetched::default(), &mut out);
        core.drop_parked();
        assert!(core.unpark(ParkId(4), Prefetched::default()).is_none());
    }

    #[test]
    fn the_clocks_go_on_while_somebody_is_heard() {
        let mut core = core();
        assert_eq!(core.paced(Pace::Rest), Pace::Rest);
        let at = |mono_ns| Timestamp { mono_ns, wall_ns: 7 };
        core.live(at(10));
        core.network_heard(&[Endpoint::Mdt(1)]);
        let lived = core.live(at(10 + Pace::Rest.ns()));
        assert_eq!(lived, at(10 + Pace::Rest.ns()), "a tick of one that rests");
        assert_eq!((core.lived_ns(), core.clock_ns()), (lived.mono_ns, Pace::Rest.ns()));
    }

    #[test]
    fn a_target_that_is_of_no_file_system_yet_takes_what_is_about_any() {
        let (mut core, mut out) = (core(), Outbox::new());
        let header = Header { file_system: 8, generation: 0, ..header(0) };
        let body = Body::Request(Request::Connect { features: 0 });
        assert!(core.admit(Message { header, body, bulk: Bulk::None }, &mut out).is_none());
        let Some(Effect::Send(Message { body: Body::Reply(reply), .. })) = out.drain().next()
        else {
            panic!("it is answered")
        };
        assert!(matches!(reply.body, ReplyBody::Connected { .. }), "{reply:?}");
    }
}
