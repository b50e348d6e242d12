//! The MDT as a client of the OSTs: connecting, slots, resending. What is to be done comes
//! from the llogs, from lost clients, and from the start; what was done is handed back as
//! [`Done`]. Everything sent may be repeated without harm. What is to be destroyed waits first
//! (`removals`).

mod removals;

use std::collections::{BTreeMap, VecDeque};

use sateen_target::Outbox;
use sateen_types::{ClientId, Endpoint, Errno, ObjectId, Seq, Timestamp};
use sateen_wire::{
    Body, Bulk, FEATURES, Header, Message, OBJECTS_PER_RPC_MAX, ObjectAttr, OstReply, OstRequest,
    Reply, ReplyBody, Request, SPEAKS, StatFs,
};

use removals::Removals;

pub(crate) use removals::Removal;

/// Requests in flight to one OST.
pub const OSP_QUEUE_SLOTS: u16 = 8;
/// One of the slots, for the question for its space alone. An OST that has stopped keeps what it
/// refuses in its slot for good: with all of them full nobody would hear that it has.
const STATFS_SLOT: u16 = 0;
/// Behind the first so many slots are those for everything; the one between is for fences, which
/// find it free whatever there is to cut and to remove.
const SLOTS_KEPT: u16 = 2;
/// A request without an answer is sent again after this time: 2 s.
pub const RESEND_NS: u64 = 2_000_000_000;
/// A request that failed at the OST is tried anew after this time: 1 s.
const RETRY_NS: u64 = 1_000_000_000;
/// Space is asked for this often: 2 s.
const STATFS_NS: u64 = 2_000_000_000;
/// An OST from which nothing was heard for this long gets no new files: 10 s.
const SILENT_NS: u64 = 10_000_000_000;

/// A request's work is done on an OST.
#[derive(Debug)]
pub(crate) enum Done {
    Destroyed(Vec<ObjectId>),
    Punched { ost: u32, transno: u64 },
    Fenced { ost: u32, client: ClientId },
    Listed { ost: u32, seq: Seq, objects: Vec<ObjectAttr> },
    StatFs { ost: u32, statfs: StatFs },
}

/// Something to be asked of one OST, besides destroying and fencing.
#[derive(Debug)]
pub(crate) enum Job {
    Punch { version: u64, object: ObjectId, size: u64 },
    List { seq: Seq, from_oid: u32 },
}

#[derive(Debug)]
struct Flight {
    request: OstRequest,
    sent_ns: u64,
    /// The OST answered with an error: to be sent as a new request, not before this.
    retry_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Slot {
    seq: u64,
    flight: Option<Flight>,
}

#[derive(Debug, Default)]
struct Ost {
    generation: Option<u32>,
    boot_epoch: u64,
    /// Number of the last attempt to connect.
    attempt: u64,
    /// The last of them that was answered. A second answer is from an earlier run of the OST, which
    /// had the same request: whoever believed it would begin its slots anew beside those that the
    /// run of now has.
    met: u64,
    connect_ns: Option<u64>,
    slots: Vec<Slot>,
    queue: VecDeque<Job>,
    removals: Removals,
    fences: VecDeque<ClientId>,
    heard_ns: Option<u64>,
    /// It last said that its disk has failed: one that has stopped for that says so to everything.
    failed: bool,
    /// It has little room, as it last said; or none for a write, and has not said since how much.
    is_tight: bool,
    statfs_ns: Option<u64>,
}

/// All OSTs.
#[derive(Debug)]
pub(crate) struct Osp {
    me: Endpoint,
    client: ClientId,
    /// Which file system it is, if that is known.
    pub(crate) file_system: u64,
    /// How long nothing more must have come before what is to be destroyed goes.
    destroy_delay_ns: u64,
    osts: BTreeMap<u32, Ost>,
    /// See [`Osp::asks`].
    asks: bool,
}

impl Osp {
    /// The MDT's incarnation as a client is made of its boot epoch; the highest bit keeps it
    /// apart from real clients.
    pub(crate) fn new(me: Endpoint, index: u32, boot_epoch: u64, osts: &[u32]) -> Osp {
        let id = 1 << 63 | u64::from(index & 0xff) << 55 | boot_epoch & ((1 << 55) - 1);
        let osts = osts.iter().map(|index| (*index, Ost::default())).collect();
        Osp { me, client: ClientId(id), file_system: 0, destroy_delay_ns: 0, osts, asks: true }
    }

    /// Whether something that is to be done by an OST is not sent yet, or not answered; perhaps
    /// not any more: [`Osp::pump`] looks.
    pub(crate) const fn asks(&self) -> bool {
        self.asks
    }

    /// An OST that was registered since the start; false if it is known.
    pub(crate) fn add(&mut self, ost: u32) -> bool {
        let new = !self.osts.contains_key(&ost);
        self.asks = true;
        self.osts.entry(ost).or_default();
        new
    }

    pub(crate) fn indices(&self) -> Vec<u32> {
        self.osts.keys().copied().collect()
    }

    /// Queues an object to be destroyed; false if there is no such OST.
    pub(crate) fn destroy(&mut self, ost: u32, removal: Removal) -> bool {
        let Some(ost) = self.osts.get_mut(&ost) else { return false };
        ost.removals.push(removal);
        self.asks = true;
        true
    }

    /// What is to be destroyed waits until nothing more has come for so long, from now on.
    pub(crate) fn set_destroy_delay(&mut self, delay_ns: u64) {
        self.destroy_delay_ns = delay_ns;
        self.asks = true;
    }

    /// An OST had no room for a write: what it is to destroy waits no longer, until it says how much
    /// it has.
    pub(crate) fn had_no_room(&mut self, ost: u32) {
        if let Some(ost) = self.osts.get_mut(&ost) {
            ost.is_tight = true;
            self.asks = true;
        }
    }

    /// Whether an OST that can be reached has still to destroy something.
    pub(crate) fn destroys(&self) -> bool {
        self.osts.values().any(Ost::destroys)
    }

    /// Queues a job; false if there is no such OST.
    pub(crate) fn push(&mut self, ost: u32, job: Job) -> bool {
        let Some(ost) = self.osts.get_mut(&ost) else { return false };
        ost.queue.push_back(job);
        self.asks = true;
        true
    }

    /// Has a client refused by all OSTs.
    pub(crate) fn fence(&mut self, client: ClientId) {
        for ost in self.osts.values_mut() {
            ost.fences.push_back(client);
        }
        self.asks = true;
    }

    /// Of each OST whether it is silent, and whether it has failed.
    pub(crate) fn health(&self, now_ns: u64) -> impl Iterator<Item = (u32, (bool, bool))> + '_ {
        self.osts.iter().map(move |(index, ost)| {
            let long = |heard: u64| now_ns.saturating_sub(heard) > SILENT_NS;
            (*index, (ost.heard_ns.is_some_and(long), ost.failed))
        })
    }

    /// Sends what can be sent, and again what was not answered in time.
    pub(crate) fn pump(&mut self, now: Timestamp, out: &mut Outbox) {
        let now_ns = now.mono_ns;
        self.asks = false;
        let (me, client, file_system) = (self.me, self.client, self.file_system);
        for (index, ost) in &mut self.osts {
            ost.heard_ns.get_or_insert(now_ns);
            ost.removals.look(now_ns, self.destroy_delay_ns, ost.is_tight);
            let mut send = |(generation, slot, seq), request| {
                let header = Header {
                    generation,
                    slot,
                    seq,
                    job: *b"mdt\0\0\0\0\0\0\0\0\0\0\0\0\0",
                    file_system,
                    ..Header::between(me, Endpoint::Ost(*index), client)
                };
                out.send(Message { header, body: Body::Request(request), bulk: Bulk::None });
            };
            match ost.generation {
                None => {
                    let due = |sent: u64| now_ns.saturating_sub(sent) >= RESEND_NS;
                    if ost.connect_ns.is_none_or(due) {
                        ost.connect_ns = Some(now_ns);
                        ost.attempt += 1;
                        // It need not speak: nobody throws an MDT out.
                        let request = Request::Connect { features: FEATURES & !SPEAKS };
                        send((0, 0, ost.attempt), request);
                    }
                }
                Some(generation) => {
                    ost.slots.resize_with(OSP_QUEUE_SLOTS.into(), Slot::default);
                    let nothing_new = !ost.has_new();
                    for slot in 0..OSP_QUEUE_SLOTS {
                        if nothing_new && slot != STATFS_SLOT && !ost.is_at_work(slot) {
                            continue;
                        }
                        if let Some((seq, request)) = ost.next(slot, now_ns) {
                            send((generation, slot, seq), Request::Ost(request));
                        }
                    }
                }
            }
            self.asks |= ost.asks();
        }
    }

    /// An answer. `None` for a duplicate, a failure, or a `Connect`.
    pub(crate) fn on_reply(
        &mut self,
        now: Timestamp,
        header: &Header,
        reply: Reply,
    ) -> Option<Done> {
        let Endpoint::Ost(index) = header.from else { return None };
        if header.client != self.client {
            return None;
        }
        let ost = self.osts.get_mut(&index)?;
        // From the network: the OST cannot be reached.
        if matches!(
            reply.error,
            Some(Errno::ESHUTDOWN | Errno::ENODEV | Errno::ECONNRESET | Errno::EPROTONOSUPPORT)
        ) {
            return None;
        }
        if reply.error == Some(Errno::EXDEV) {
            tracing::warn!(ost = index, "its address belongs to another file system now");
            return None;
        }
        ost.heard_ns = Some(now.mono_ns);
        match reply.error {
            None => ost.failed = false,
            // What it answers to other requests may be due to a single object.
            Some(Errno::EIO) if header.generation == 0 || ost.asked_for_space(header) => {
                ost.failed = true;
            }
            Some(_) => {}
        }
        if header.generation == 0 {
            if let ReplyBody::Connected { boot_epoch, generation, .. } = reply.body
                && header.seq == ost.attempt
                && ost.met != ost.attempt
            {
                ost.met = ost.attempt;
                ost.connected(boot_epoch, generation);
            }
            return None;
        }
        if ost.generation != Some(header.generation) {
            return None;
        }
        let slot = ost.slots.get_mut(usize::from(header.slot))?;
        if slot.seq != header.seq {
            return None;
        }
        match reply.error {
            None => ost.answered(header.slot, index, reply.body),
            Some(Errno::ESTALE) => {
                ost.generation = None;
                self.asks = true;
                None
            }
            Some(error) => {
                let flight = slot.flight.as_mut()?;
                tracing::warn!(ost = index, %error, request = ?flight.request, "an OST failed");
                flight.retry_ns = Some(now.mono_ns + RETRY_NS);
                None
            }
        }
    }
}

impl Ost {
    fn connected(&mut self, boot_epoch: u64, generation: u32) {
        if boot_epoch != self.boot_epoch {
            // It restarted: its slots are new, and an answer that asked for another try came
            // from the run before.
            for slot in &mut self.slots {
                slot.seq = u64::from(slot.flight.is_some());
                if let Some(flight) = &mut slot.flight {
                    flight.retry_ns = None;
                }
            }
        }
        for flight in self.slots.iter_mut().filter_map(|slot| slot.flight.as_mut()) {
            flight.sent_ns = 0;
        }
        self.boot_epoch = boot_epoch;
        self.generation = Some(generation);
        self.connect_ns = None;
    }

    /// Whether it is not connected, or is to do something. A question for its space may wait.
    fn asks(&self) -> bool {
        let work = |slot: &Slot| {
            slot.flight.as_ref().is_some_and(|f| !matches!(f.request, OstRequest::StatFs))
        };
        self.generation.is_none() || self.has_new() || self.slots.iter().any(work)
    }

    /// Whether there is something that was not sent yet and shall be.
    fn has_new(&self) -> bool {
        !self.fences.is_empty() || !self.queue.is_empty() || self.removals.are_due()
    }

    /// Whether it can be reached, and has still to destroy something.
    fn destroys(&self) -> bool {
        let is_asked = |slot: &Slot| {
            slot.flight.as_ref().is_some_and(|flight| {
                matches!(flight.request, OstRequest::Destroy { .. }) && flight.retry_ns.is_none()
            })
        };
        let any = !self.removals.is_empty() || self.slots.iter().any(is_asked);
        any && self.generation.is_some()
    }

    fn is_at_work(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|slot| slot.flight.is_some())
    }

    /// Whether an answer is one to the question for its space.
    fn asked_for_space(&self, answer: &Header) -> bool {
        let slot = self.slots.get(usize::from(answer.slot));
        let flight = slot.filter(|slot| slot.seq == answer.seq).and_then(|s| s.flight.as_ref());
        flight.is_some_and(|flight| matches!(flight.request, OstRequest::StatFs))
    }

    /// What is to be sent in a slot now: something due again, or something new.
    fn next(&mut self, slot: u16, now_ns: u64) -> Option<(u64, OstRequest)> {
        let fresh = match self.slots.get(usize::from(slot))?.flight {
            None if slot == STATFS_SLOT => Some(self.take_statfs(now_ns)?),
            None => Some(self.take(slot >= SLOTS_KEPT)?),
            Some(_) => None,
        };
        let slot = self.slots.get_mut(usize::from(slot))?;
        if let Some(request) = fresh {
            slot.seq += 1;
            slot.flight = Some(Flight { request, sent_ns: now_ns, retry_ns: None });
        } else {
            let flight = slot.flight.as_mut()?;
            match flight.retry_ns {
                Some(due) if now_ns >= due => slot.seq += 1,
                None if flight.sent_ns == 0 || now_ns - flight.sent_ns >= RESEND_NS => {}
                _ => return None,
            }
            flight.retry_ns = None;
            flight.sent_ns = now_ns;
        }
        Some((slot.seq, slot.flight.as_ref()?.request.clone()))
    }

    /// The next new request, in a slot that is for all or kept for fences. Whatever cuts, removes or
    /// looks at objects waits until the fences asked for before are in place, or a late write could
    /// undo it.
    fn take(&mut self, for_all: bool) -> Option<OstRequest> {
        if let Some(client) = self.fences.pop_front() {
            return Some(OstRequest::Fence { client });
        }
        let fencing = |slot: &Slot| {
            slot.flight.as_ref().is_some_and(|f| matches!(f.request, OstRequest::Fence { .. }))
        };
        if !for_all || self.slots.iter().any(fencing) { None } else { self.take_job() }
    }

    /// The question for its space, if it is time.
    fn take_statfs(&mut self, now_ns: u64) -> Option<OstRequest> {
        if self.statfs_ns.is_some_and(|asked| now_ns - asked < STATFS_NS) {
            return None;
        }
        self.statfs_ns = Some(now_ns);
        Some(OstRequest::StatFs)
    }

    fn take_job(&mut self) -> Option<OstRequest> {
        match self.queue.pop_front() {
            Some(Job::Punch { version, object, size }) => {
                return Some(OstRequest::Punch { object, size, version });
            }
            Some(Job::List { seq, from_oid }) => {
                let count = OBJECTS_PER_RPC_MAX as u32 / 2;
                return Some(OstRequest::List { seq, from_oid, count });
            }
            None => {}
        }
        self.removals.take()
    }

    fn answered(&mut self, slot: u16, ost: u32, body: ReplyBody) -> Option<Done> {
        let flight = self.slots.get_mut(usize::from(slot))?.flight.take()?;
        match (flight.request, body) {
            (OstRequest::Destroy { objects, .. }, _) => Some(Done::Destroyed(objects)),
            (OstRequest::Punch { version: transno, .. }, _) => Some(Done::Punched { ost, transno }),
            (OstRequest::Fence { client }, _) => Some(Done::Fenced { ost, client }),
            (OstRequest::List { seq, .. }, ReplyBody::Ost(OstReply::Objects(objects))) => {
                Some(Done::Listed { ost, seq, objects })
            }
            (OstRequest::StatFs, ReplyBody::Ost(OstReply::StatFs(statfs))) => {
                self.is_tight = removals::is_tight(&statfs);
                Some(Done::StatFs { ost, statfs })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_target::Effect;

    pub(super) const FENCED: ClientId = ClientId(9);

    pub(super) fn osp() -> Osp {
        Osp::new(Endpoint::Mdt(0), 0, 1, &[3])
    }

    /// What is sent now.
    pub(super) fn sent(osp: &mut Osp, mono_ns: u64) -> Vec<Message> {
        let mut out = Outbox::new();
        osp.pump(Timestamp { mono_ns, ..Timestamp::default() }, &mut out);
        let sent = out.drain().map(|effect| match effect {
            Effect::Send(message) => message,
            other => panic!("{other:?}"),
        });
        sent.collect()
    }

    pub(super) fn answer(osp: &mut Osp, to: &Header, body: ReplyBody) -> Option<Done> {
        osp.on_reply(Timestamp::default(), &to.reply(), Reply::ok(body))
    }

    pub(super) fn connected(boot_epoch: u64, generation: u32) -> ReplyBody {
        ReplyBody::Connected { features: FEATURES, boot_epoch, generation, follows: 0, durable: 0 }
    }

    /// The fence among what is sent.
    fn fence(sent: &[Message]) -> Header {
        let is_fence =
            |m: &&Message| matches!(&m.body, Body::Request(Request::Ost(OstRequest::Fence { .. })));
        sent.iter().find(is_fence).unwrap().header
    }

    #[test]
    fn an_answer_to_a_connect_is_believed_once() {
        let mut osp = osp();
        let connect = sent(&mut osp, 1)[0].header;
        // The run of now has got it, and the one before, whose answer is late.
        assert!(answer(&mut osp, &connect, connected(20, 200)).is_none());
        osp.fence(FENCED);
        let asked = fence(&sent(&mut osp, 2));
        assert_eq!((asked.generation, asked.seq), (200, 1));
        assert!(answer(&mut osp, &connect, connected(10, 100)).is_none());
        assert!(sent(&mut osp, 3).is_empty(), "nothing begins anew");
        let done = answer(&mut osp, &asked, ReplyBody::Empty);
        assert!(matches!(done, Some(Done::Fenced { ost: 3, client: FENCED })), "{done:?}");
    }

    #[test]
    fn a_restart_is_met_by_the_next_attempt() {
        let mut osp = osp();
        let connect = sent(&mut osp, 1)[0].header;
        // The run before was heard first.
        answer(&mut osp, &connect, connected(10, 100));
        osp.fence(FENCED);
        let asked = fence(&sent(&mut osp, 2));
        answer(&mut osp, &connect, connected(20, 200));
        let refused = Reply::error(Errno::ESTALE);
        assert!(osp.on_reply(Timestamp::default(), &asked.reply(), refused).is_none());
        let again = sent(&mut osp, 3)[0].header;
        assert_eq!((again.generation, again.seq), (0, connect.seq + 1));
        answer(&mut osp, &again, connected(20, 201));
        let asked = fence(&sent(&mut osp, 4));
        assert_eq!((asked.generation, asked.seq), (201, 1), "its slots are new");
        assert!(answer(&mut osp, &asked, ReplyBody::Empty).is_some());
    }

    /// Many large files are removed: the OST is busy with them, and still it can be asked.
    #[test]
    fn removals_leave_room_for_fences_and_for_questions() {
        let mut osp = osp();
        let connect = sent(&mut osp, 1)[0].header;
        answer(&mut osp, &connect, connected(10, 100));
        for oid in 0..10_000 {
            let fid = sateen_types::Fid { oid, ..sateen_types::Fid::ROOT };
            let object = ObjectId { fid, stripe: 0 };
            assert!(osp.destroy(3, Removal { object, late_writers: false, bytes: 0 }));
        }
        let begun = sent(&mut osp, 2);
        let removed = begun.iter().filter_map(|message| match &message.body {
            Body::Request(Request::Ost(OstRequest::Destroy { objects, .. })) => Some(objects.len()),
            _ => None,
        });
        assert_eq!(removed.collect::<Vec<_>>(), [removals::DESTROYED_MAX; 6]);
        assert_eq!(begun.len(), 7, "it is asked for its space");
        osp.fence(FENCED);
        fence(&sent(&mut osp, 3));
    }

    #[test]
    fn an_ost_that_answers_nothing_but_eio_has_failed() {
        let mut osp = osp();
        let refused = |osp: &mut Osp, to: &Header, errno| {
            osp.on_reply(Timestamp::default(), &to.reply(), Reply::error(errno));
        };
        let health = |osp: &Osp| osp.health(2).next();
        let connect = sent(&mut osp, 1)[0].header;
        assert_eq!(health(&osp), Some((3, (false, false))));
        refused(&mut osp, &connect, Errno::EIO);
        assert_eq!(health(&osp), Some((3, (false, true))), "and not silent");
        answer(&mut osp, &connect, connected(10, 100));
        assert_eq!(health(&osp), Some((3, (false, false))));
        osp.fence(FENCED);
        let all = sent(&mut osp, 2);
        refused(&mut osp, &fence(&all), Errno::EIO);
        assert_eq!(health(&osp), Some((3, (false, false))), "of one request it says nothing");
        let asks = |m: &&Message| matches!(m.body, Body::Request(Request::Ost(OstRequest::StatFs)));
        let statfs = all.iter().find(asks).unwrap().header;
        refused(&mut osp, &statfs, Errno::EIO);
        assert_eq!(health(&osp), Some((3, (false, true))));
        // Late answers to what was asked before are none to this.
        refused(&mut osp, &Header { seq: statfs.seq + 7, ..statfs }, Errno::EIO);
        let again = sent(&mut osp, RETRY_NS + 1);
        answer(&mut osp, &fence(&again), ReplyBody::Empty);
        assert_eq!(health(&osp), Some((3, (false, false))));
    }

    #[test]
    fn one_that_refuses_more_than_it_has_slots_for_has_failed() {
        let mut osp = osp();
        let connect = sent(&mut osp, 1)[0].header;
        answer(&mut osp, &connect, connected(10, 100));
        // It is well, and says so; then it stops, before it is asked again.
        let statfs = sent(&mut osp, 2)[0].header;
        let well = ReplyBody::Ost(OstReply::StatFs(StatFs::default()));
        assert!(matches!(answer(&mut osp, &statfs, well), Some(Done::StatFs { ost: 3, .. })));
        let object = ObjectId { fid: sateen_types::Fid::new(Seq(0x2_0000_0400), 1), stripe: 0 };
        for version in 0..2 * u64::from(OSP_QUEUE_SLOTS) {
            osp.push(3, Job::Punch { version, object, size: 0 });
        }
        for now in [3, RETRY_NS + 3, STATFS_NS + 2] {
            for message in sent(&mut osp, now) {
                let refused = Reply::error(Errno::EIO);
                osp.on_reply(Timestamp::default(), &message.header.reply(), refused);
            }
        }
        assert_eq!(osp.health(2).next(), Some((3, (false, true))));
    }

    #[test]
    fn what_the_run_before_refused_is_new_to_the_next() {
        let mut osp = osp();
        let connect = sent(&mut osp, 1)[0].header;
        answer(&mut osp, &connect, connected(10, 100));
        osp.fence(FENCED);
        let all = sent(&mut osp, 2);
        let (asked, other) = (fence(&all), all.iter().map(|m| m.header));
        let other = other.into_iter().find(|header| header.slot != asked.slot).unwrap();
        let refused = |errno| Reply::error(errno);
        // It is to be tried again, and before that another hears of the restart.
        osp.on_reply(Timestamp::default(), &asked.reply(), refused(Errno::EIO));
        osp.on_reply(Timestamp::default(), &other.reply(), refused(Errno::ESTALE));
        let again = sent(&mut osp, 3)[0].header;
        answer(&mut osp, &again, connected(20, 200));
        let asked = fence(&sent(&mut osp, RETRY_NS + 1));
        assert_eq!((asked.generation, asked.seq), (200, 1), "the first in its slot");
    }
}
