//! A driver over an index in memory, with OSTs that only know names and sizes of objects,
//! and clients that answer callbacks when told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sateen_mdt::{Mdt, MdtConfig};
use sateen_osd::memory::MemoryIndex;
use sateen_osd::{Index, Prefetched, Store, StoreLimits, Wants};
use sateen_target::{Core, CoreConfig, Effect, Ending, Outbox, ParkId, Recovery, Service};
use sateen_types::{ClientId, Endpoint, Errno, Fid, Name, ObjectId, Seq, Timestamp};
use sateen_wire::codec::Wire;
use sateen_wire::*;

pub const A: ClientId = ClientId(1);
pub const B: ClientId = ClientId(2);
pub const ROOT: Fid = Fid::ROOT;
pub const EPOCH: u64 = 7;
/// An MDT that has nothing to do is called so often.
const TICK_MS_MAX: u64 = 50;
/// What the OSTs say of the largest object.
pub const OBJECT_BYTES_MAX: u64 = 1 << 44;

/// An OST that knows names and sizes.
pub struct FakeOst {
    core: Core,
    pub objects: BTreeMap<ObjectId, u64>,
    pub versions: BTreeMap<ObjectId, u64>,
    pub tombstones: BTreeSet<ObjectId>,
    pub fenced: Vec<ClientId>,
    pub seen: Vec<OstRequest>,
}

impl FakeOst {
    fn new(index: u32, boot_epoch: u64) -> FakeOst {
        let config = CoreConfig { me: Endpoint::Ost(index), boot_epoch, hash_key: 0 };
        FakeOst {
            core: Core::new(config, Store::new(1, 0, StoreLimits::default())),
            objects: BTreeMap::new(),
            versions: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            fenced: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn receive(&mut self, message: Message, out: &mut Outbox) {
        let Some(message) = self.core.admit(message, out) else { return };
        let Body::Request(Request::Ost(request)) = message.body else { panic!("an OST request") };
        self.seen.push(request.clone());
        let body = self.execute(request);
        let reply = Reply::ok(ReplyBody::Ost(body));
        self.core.answer(&message.header, reply, Bulk::None, out);
    }

    fn execute(&mut self, request: OstRequest) -> OstReply {
        match request {
            OstRequest::Punch { object, size, version } => {
                let newest = self.versions.entry(object).or_default();
                if version > *newest {
                    *newest = version;
                    if let Some(old) = self.objects.get_mut(&object) {
                        *old = (*old).min(size);
                    }
                }
                OstReply::Done
            }
            OstRequest::Destroy { objects, late_writers } => {
                for object in objects {
                    self.objects.remove(&object);
                    if late_writers {
                        self.tombstones.insert(object);
                    }
                }
                OstReply::Done
            }
            OstRequest::List { seq, from_oid, count } => {
                let from = ObjectId { fid: Fid { seq, oid: from_oid, ver: 0 }, stripe: 0 };
                let all = self.objects.range(from..).take_while(|(o, _)| o.fid.seq == seq);
                let all = all.take(count as usize);
                OstReply::Objects(
                    all.map(|(o, s)| ObjectAttr { object: *o, size: *s, ..ObjectAttr::default() })
                        .collect(),
                )
            }
            OstRequest::Fence { client } => {
                self.fenced.push(client);
                OstReply::Done
            }
            OstRequest::StatFs => OstReply::StatFs(StatFs {
                bytes_total: 1 << 40,
                bytes_free: 1 << 39,
                bytes_avail: 1 << 39,
                files_total: 1000,
                files_free: 900,
                object_bytes_max: OBJECT_BYTES_MAX,
            }),
            other => panic!("an MDT never sends {other:?}"),
        }
    }
}

/// One client.
#[derive(Clone, Default)]
pub struct FakeClient {
    /// Its incarnation.
    pub id: u64,
    pub generation: u32,
    /// What it was told of the run before.
    pub follows: u64,
    pub durable: u64,
    pub seqs: BTreeMap<u16, u64>,
    pub replies: BTreeMap<(u16, u64), Reply>,
    pub callbacks: VecDeque<Callback>,
    pub fids: Option<(Seq, u32)>,
    pub opens: u64,
    /// Cancel as soon as called back.
    pub obliging: bool,
}

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub client: ClientId,
    pub slot: u16,
    pub seq: u64,
}

pub struct World {
    pub mdt: Mdt,
    pub index: MemoryIndex,
    /// Every group commit: (frame, upto).
    pub frames: Vec<(Vec<u8>, u64)>,
    pub osts: BTreeMap<u32, FakeOst>,
    pub clients: BTreeMap<ClientId, FakeClient>,
    pub now: Timestamp,
    /// After every event everything in memory is checkpointed and dropped.
    pub cold: bool,
    /// What the OSTs held when each group commit began.
    snapshots: Vec<Vec<BTreeMap<ObjectId, u64>>>,
    /// Reads of the index that are kept back, while there is a list.
    pub held_prefetches: Option<Vec<(ParkId, Wants, u64)>>,
    /// No group commit is made that the MDT asks for.
    pub keeps_flushes: bool,
    /// It has asked for one meanwhile.
    pub wants_flush: bool,
    /// OSTs do not hear anything.
    pub cut_off: bool,
    /// These OSTs do not hear anything.
    pub gone: BTreeSet<u32>,
    /// These OSTs do not hear what is to be destroyed.
    pub deaf: BTreeSet<u32>,
    pub boots: u64,
    /// A client that is thrown out at the next start, before anything is known.
    pub evicted_at_start: Option<ClientId>,
    /// What clients can do that connect.
    pub features: u64,
    out: Outbox,
    config: MdtConfig,
}

/// A change that a client asks to have made again.
pub fn replayed(request: &MdtRequest, reply: &Reply) -> Replayed {
    let Reply { transno, time, .. } = *reply;
    let ReplyBody::Mdt(answer) = &reply.body else { panic!("{reply:?}") };
    let (request, answer) = (request.to_vec().into(), answer.to_vec().into());
    Replayed { transno, time, request, answer }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn core_config(boots: u64) -> CoreConfig {
    CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 100 + boots, hash_key: 42 }
}

/// Objects of removed files are destroyed as soon as that is durable.
fn config(osts: std::ops::Range<u32>) -> MdtConfig {
    MdtConfig { destroy_delay_ns: 0, ..MdtConfig::new(0, osts) }
}

impl World {
    pub fn new(osts: u32) -> World {
        let config = config(0..osts);
        let mut out = Outbox::new();
        let now = Timestamp { mono_ns: 1_000, wall_ns: 1_000_000_000 };
        let store = Store::new(EPOCH, 0, StoreLimits::default());
        let mdt = Mdt::new(core_config(1), store, config.clone(), now, &mut out);
        let mut world = World {
            mdt,
            index: MemoryIndex::default(),
            frames: Vec::new(),
            snapshots: Vec::new(),
            held_prefetches: None,
            osts: (0..osts).map(|index| (index, FakeOst::new(index, 1))).collect(),
            clients: BTreeMap::new(),
            now,
            cold: false,
            keeps_flushes: false,
            wants_flush: false,
            cut_off: false,
            gone: BTreeSet::new(),
            deaf: BTreeSet::new(),
            boots: 1,
            evicted_at_start: None,
            features: 0,
            out,
            config,
        };
        world.settle();
        world
    }

    /// From now on objects of removed files are gathered for so long, also in later runs.
    pub fn gather_removals(&mut self, ms: u64) {
        self.config.destroy_delay_ns = ms * 1_000_000;
        self.mdt.set_destroy_delay_ns(self.config.destroy_delay_ns);
    }

    /// Two obliging clients with a sequence each.
    pub fn with_clients(osts: u32) -> World {
        let mut world = World::new(osts);
        world.connect(A);
        world.connect(B);
        world
    }

    /// The file system has one more OST.
    pub fn add_ost(&mut self, index: u32) {
        self.osts.insert(index, FakeOst::new(index, 1));
        self.mdt.add_ost(index);
        self.config = config(0..index + 1);
        self.rest();
    }

    pub fn connect(&mut self, client: ClientId) {
        let fake = self.clients.entry(client).or_default();
        // Whoever comes after a restart is somebody new.
        let id = client.0 + 100 * (self.boots - 1);
        *fake = FakeClient { id, obliging: true, ..FakeClient::default() };
        let header = self.header(Call { client, slot: 0, seq: 0 });
        self.deliver(header, Request::Connect { features: self.features });
        let MdtReply::Sequence(seq) = self.ok(client, MdtRequest::GrantSeq) else { panic!() };
        self.clients.get_mut(&client).unwrap().fids = Some((seq, 0));
    }

    pub fn fid(&mut self, client: ClientId) -> Fid {
        let (seq, oid) = self.clients.get_mut(&client).unwrap().fids.as_mut().unwrap();
        *oid += 1;
        Fid::new(*seq, *oid)
    }

    pub fn open_id(&mut self, client: ClientId) -> OpenId {
        let opens = &mut self.clients.get_mut(&client).unwrap().opens;
        *opens += 1;
        OpenId { id: *opens }
    }

    pub fn header(&self, call: Call) -> Header {
        Header {
            generation: self.clients[&call.client].generation,
            slot: call.slot,
            seq: call.seq,
            ..Header::between(
                Endpoint::Client(call.client),
                Endpoint::Mdt(0),
                ClientId(self.clients[&call.client].id),
            )
        }
    }

    pub fn deliver(&mut self, header: Header, request: Request) {
        let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
        self.mdt.on_message(self.now, message, &mut self.out);
        self.settle();
    }

    /// Sends a request in a slot of its own.
    pub fn start(&mut self, client: ClientId, request: MdtRequest) -> Call {
        let fake = self.clients.get_mut(&client).unwrap();
        let busy = |slot: &u16| {
            fake.seqs.get(slot).is_some_and(|seq| !fake.replies.contains_key(&(*slot, *seq)))
        };
        let slot = (0..).find(|slot| !busy(slot)).unwrap();
        let seq = fake.seqs.entry(slot).or_default();
        *seq += 1;
        let call = Call { client, slot, seq: *seq };
        self.deliver(self.header(call), Request::Mdt(request));
        call
    }

    pub fn reply(&self, call: Call) -> Option<Reply> {
        self.clients[&call.client].replies.get(&(call.slot, call.seq)).cloned()
    }

    /// Sends a request and drives the world until it is answered.
    pub fn call(&mut self, client: ClientId, request: MdtRequest) -> Reply {
        let call = self.start(client, request);
        for _ in 0..20 {
            if let Some(reply) = self.reply(call) {
                return reply;
            }
            self.flush();
            self.tick(5);
        }
        panic!("no answer to {call:?}");
    }

    pub fn ok(&mut self, client: ClientId, request: MdtRequest) -> MdtReply {
        let shown = format!("{request:?}");
        let reply = self.call(client, request);
        assert_eq!(reply.error, None, "{shown}");
        let ReplyBody::Mdt(body) = reply.body else { panic!("{shown}: {reply:?}") };
        body
    }

    pub fn err(&mut self, client: ClientId, request: MdtRequest) -> Errno {
        let shown = format!("{request:?}");
        self.call(client, request).error.unwrap_or_else(|| panic!("{shown} succeeded"))
    }

    pub fn flush(&mut self) {
        while let Some(flush) = self.mdt.store().begin_flush() {
            self.frames.push((flush.frame.clone(), flush.upto));
            self.snapshots.push(self.osts.values().map(|ost| ost.objects.clone()).collect());
            self.mdt.store().flush_done(flush);
            self.mdt.on_flushed(self.now, &mut self.out);
            self.effects();
        }
    }

    /// Time goes by, as the MDT lives it: it is called all the while.
    pub fn tick(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(TICK_MS_MAX);
            left -= step;
            self.stand_still(step);
        }
    }

    /// Time goes by, and it is called once, in the end.
    pub fn stand_still(&mut self, ms: u64) {
        self.now.mono_ns += ms * 1_000_000;
        self.now.wall_ns += ms as i64 * 1_000_000;
        self.mdt.on_tick(self.now, &mut self.out);
        self.settle();
    }

    /// Lets everything in the background happen.
    pub fn rest(&mut self) {
        for _ in 0..6 {
            self.flush();
            self.tick(5);
        }
        self.flush();
    }

    pub fn settle(&mut self) {
        loop {
            self.effects();
            if self.cold {
                self.checkpoint();
            }
            if !self.oblige() {
                break;
            }
        }
    }

    pub fn checkpoint(&mut self) {
        self.flush();
        if let Some(checkpoint) = self.mdt.store().begin_checkpoint() {
            self.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
            self.mdt.store().checkpoint_done();
            self.mdt.store().drop_cache();
        }
    }

    /// Forgets what nobody but the harness remembers of what has been; there is no [`World::crash`]
    /// after it.
    #[allow(dead_code, reason = "for the test of what is kept")]
    pub fn forget(&mut self) {
        self.frames = Vec::new();
        self.snapshots = Vec::new();
        for fake in self.clients.values_mut() {
            let FakeClient { seqs, replies, .. } = fake;
            replies.retain(|(slot, seq), _| seqs.get(slot) == Some(seq));
        }
        for ost in self.osts.values_mut() {
            (ost.seen, ost.versions, ost.tombstones) = Default::default();
        }
    }

    fn oblige(&mut self) -> bool {
        let called =
            self.clients.iter_mut().filter(|(_, fake)| fake.obliging).find_map(|(client, fake)| {
                fake.callbacks.pop_front().map(|callback| (*client, callback))
            });
        let Some((client, callback)) = called else { return false };
        if let Callback::Blocking { fid, id } = callback {
            self.start(client, MdtRequest::Cancel { fid, id, report: None, more: vec![] });
        }
        if let Callback::Glimpse { fid, question, .. } = callback {
            self.start(client, MdtRequest::AnswerGlimpse { fid, question, told: None });
        }
        true
    }

    fn effects(&mut self) {
        loop {
            let effects: Vec<Effect> = self.out.drain().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.effect(effect);
            }
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Send(message) => self.route(message),
            Effect::Prefetch { id, wants, generation } => {
                assert!(!wants.is_empty(), "a miss wants something");
                if let Some(held) = &mut self.held_prefetches {
                    held.push((id, wants, generation));
                    return;
                }
                let view = Prefetched::read(&self.index, &wants, generation).unwrap();
                self.mdt.on_prefetched(self.now, id, view, &mut self.out);
            }
            Effect::Flush if self.keeps_flushes => self.wants_flush = true,
            Effect::Flush => self.flush(),
            Effect::Object { .. } => panic!("an MDT has no objects"),
        }
    }

    fn route(&mut self, message: Message) {
        // Whatever is sent has an encoding that comes back the same.
        let (decoded, _) = Message::decode(&message.encode()).unwrap();
        assert_eq!(decoded.header, message.header);
        assert_eq!(decoded.body, message.body);
        match message.header.to {
            Endpoint::Ost(index) => {
                let destroys = matches!(
                    &message.body,
                    Body::Request(Request::Ost(OstRequest::Destroy { .. }))
                );
                if self.cut_off
                    || self.gone.contains(&index)
                    || destroys && self.deaf.contains(&index)
                {
                    return;
                }
                let mut answers = Outbox::new();
                self.osts.get_mut(&index).unwrap().receive(message, &mut answers);
                for effect in answers.drain() {
                    let Effect::Send(reply) = effect else { panic!("a reply") };
                    self.mdt.on_message(self.now, reply, &mut self.out);
                }
            }
            Endpoint::Client(client) => {
                let Some(fake) = self.clients.get_mut(&client) else { return };
                match message.body {
                    Body::Reply(reply) => {
                        if let ReplyBody::Connected { generation, follows, durable, .. } =
                            reply.body
                        {
                            (fake.generation, fake.follows) = (generation, follows);
                            fake.durable = durable;
                        } else {
                            fake.replies.insert((message.header.slot, message.header.seq), reply);
                        }
                    }
                    Body::Callback(callback) => fake.callbacks.push_back(callback),
                    Body::Request(_) => panic!("nobody asks clients"),
                }
            }
            other => panic!("a message to {other}"),
        }
    }

    /// The reads kept back happen.
    pub fn release_prefetches(&mut self) {
        for (id, wants, generation) in self.held_prefetches.take().unwrap_or_default() {
            self.effect(Effect::Prefetch { id, wants, generation });
        }
        self.settle();
    }

    /// OSTs lose their connections, not their objects.
    pub fn restart_osts(&mut self) {
        self.boots += 1;
        for (index, ost) in &mut self.osts {
            let objects = std::mem::take(&mut ost.objects);
            *ost = FakeOst { objects, ..FakeOst::new(*index, self.boots) };
        }
    }

    /// The MDT dies, and comes back with what was durable after the first `frames` commits;
    /// the OSTs have what they had just before the next one. Clients are gone.
    pub fn crash(&mut self, frames: usize) {
        if let Some(snapshot) = self.snapshots.get(frames) {
            for (ost, objects) in self.osts.values_mut().zip(snapshot) {
                ost.objects = objects.clone();
            }
        }
        self.frames.truncate(frames);
        self.snapshots.truncate(frames);
        let checkpointed = self.index.checkpointed();
        let mut recovery = Recovery::new(EPOCH, checkpointed, StoreLimits::default());
        for (frame, _) in &self.frames {
            let sateen_journal::Decoded::Frame { payload, .. } =
                sateen_journal::decode_frame(EPOCH, frame)
            else {
                panic!("a frame");
            };
            recovery.frame(payload).unwrap();
        }
        let (store, _) = recovery.finish();
        self.boots += 1;
        self.clients.clear();
        self.out = Outbox::new();
        let config = self.config.clone();
        let core = core_config(self.boots);
        self.mdt = Mdt::new(core, store, config, self.now, &mut self.out);
        if let Some(client) = self.evicted_at_start.take() {
            let found = self.mdt.store().transno();
            self.mdt.evict_client(self.now, client, &mut self.out);
            // If it crashed now, the next start would find it, and take it for one of the last run.
            assert_eq!(self.mdt.store().transno(), found, "a transaction before anything is known");
        }
        self.settle();
    }

    /// The MDT is told to stop.
    pub fn begin_stop(&mut self) {
        self.mdt.on_stop(self.now, &mut self.out);
        self.settle();
    }

    /// It stops, in good order or not.
    pub fn stop(&mut self) -> Ending {
        self.begin_stop();
        for _ in 0..200 {
            if self.mdt.ending() != Ending::Working {
                break;
            }
            self.flush();
            self.tick(50);
        }
        self.mdt.ending()
    }

    /// It starts again with all that was durable; the clients are still there.
    pub fn restart(&mut self) {
        let clients = std::mem::take(&mut self.clients);
        self.crash(self.frames.len());
        self.clients = clients;
    }

    /// It crashes with all that is not durable, and starts again; the clients are still there.
    pub fn crash_under_clients(&mut self) {
        assert_eq!(self.mdt.ending(), Ending::Working);
        self.restart();
    }

    /// A client connects as itself. Returns which run this one follows; `None` if it is refused.
    pub fn reconnect(&mut self, client: ClientId) -> Option<u64> {
        let fake = self.clients.get_mut(&client).unwrap();
        let before = std::mem::take(&mut fake.generation);
        fake.replies.remove(&(0, 0));
        let header = self.header(Call { client, slot: 0, seq: 0 });
        self.deliver(header, Request::Connect { features: self.features });
        let fake = &self.clients[&client];
        assert_ne!(fake.generation, before);
        (fake.generation != 0).then_some(fake.follows)
    }

    /// A write that a client did behind the MDT's back, as clients do.
    pub fn write(&mut self, layout: &sateen_types::Layout, fid: Fid, size: u64) {
        for chunk in layout.chunks(0, size) {
            let object = ObjectId { fid, stripe: chunk.stripe };
            let old = self.osts.get_mut(&chunk.ost).unwrap().objects.entry(object).or_default();
            *old = (*old).max(chunk.object_offset + chunk.len);
        }
    }

    pub fn objects(&self) -> usize {
        self.osts.values().map(|ost| ost.objects.len()).sum()
    }
}

/// Requests in short.
impl World {
    pub fn create_request(
        &mut self,
        client: ClientId,
        parent: Fid,
        text: &str,
        mode: u32,
    ) -> MdtRequest {
        MdtRequest::Create {
            parent,
            name: name(text),
            fid: self.fid(client),
            mode,
            rdev: 0,
            cred: Cred { uid: 1000, gid: 1000, umask: 0 },
            symlink: Bytes::new(),
            policy: None,
            open: None,
            open_id: OpenId { id: 0 },
            exclusive: true,
            want: Ibits::NONE,
        }
    }

    pub fn mknod(&mut self, client: ClientId, parent: Fid, text: &str) -> Fid {
        self.make(client, parent, text, 0o100_644)
    }

    pub fn mkdir(&mut self, client: ClientId, parent: Fid, text: &str) -> Fid {
        self.make(client, parent, text, 0o040_755)
    }

    pub fn make(&mut self, client: ClientId, parent: Fid, text: &str, mode: u32) -> Fid {
        let request = self.create_request(client, parent, text, mode);
        let MdtReply::Created { attr, existed, .. } = self.ok(client, request) else { panic!() };
        assert!(!existed);
        attr.fid
    }

    /// `open(O_CREAT | O_RDWR)`.
    pub fn creat(
        &mut self,
        client: ClientId,
        parent: Fid,
        text: &str,
        want: Ibits,
    ) -> (Reply, OpenId) {
        let open_id = self.open_id(client);
        let mut request = self.create_request(client, parent, text, 0o100_644);
        if let MdtRequest::Create { open, open_id: id, exclusive, want: wanted, .. } = &mut request
        {
            *open = Some(OpenFlags { write: true, truncate: false, exec: false });
            *id = open_id;
            *exclusive = false;
            *wanted = want;
        }
        (self.call(client, request), open_id)
    }

    pub fn lookup(
        &mut self,
        client: ClientId,
        parent: Fid,
        text: &str,
    ) -> Result<sateen_types::Attr, Errno> {
        let request = MdtRequest::Lookup {
            parent,
            name: name(text),
            want_parent: Ibits::NONE,
            want: Ibits::NONE,
        };
        let reply = self.call(client, request);
        match (reply.error, reply.body) {
            (None, ReplyBody::Mdt(MdtReply::Inode { attr })) => Ok(attr),
            (Some(error), _) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub fn stat(&mut self, client: ClientId, fid: Fid) -> sateen_types::Attr {
        let MdtReply::Inode { attr } =
            self.ok(client, MdtRequest::GetAttr { fid, want: Ibits::NONE })
        else {
            panic!()
        };
        attr
    }

    pub fn unlink_request(parent: Fid, text: &str, directory: bool) -> MdtRequest {
        MdtRequest::Unlink { parent, name: name(text), directory }
    }

    pub fn rename_request(from: (Fid, &str), to: (Fid, &str)) -> MdtRequest {
        Self::rename2(from, to, RenameFlags::default())
    }

    pub fn rename2(from: (Fid, &str), to: (Fid, &str), flags: RenameFlags) -> MdtRequest {
        MdtRequest::Rename {
            parent: from.0,
            name: name(from.1),
            new_parent: to.0,
            new_name: name(to.1),
            flags,
        }
    }

    pub fn close(
        &mut self,
        client: ClientId,
        fid: Fid,
        open_id: OpenId,
        report: Option<SizeReport>,
    ) {
        self.ok(client, MdtRequest::Close { fid, open_id, report });
    }

    /// All names of a directory, in pages of `count`.
    pub fn list(&mut self, client: ClientId, fid: Fid, count: u32) -> Vec<(String, Fid)> {
        let mut after = sateen_types::DirCookie::START;
        let mut all = Vec::new();
        loop {
            let request = MdtRequest::ReadDir { fid, after, count, plus: true };
            let MdtReply::Entries { entries, end, .. } = self.ok(client, request) else { panic!() };
            for entry in entries {
                assert!(entry.cookie > after, "cookies rise");
                after = entry.cookie;
                assert!(entry.attr.is_none_or(|attr| attr.fid == entry.fid));
                all.push((entry.name.to_string(), entry.fid));
            }
            if end {
                return all;
            }
        }
    }
}

pub fn report(size: u64, wrote: bool) -> SizeReport {
    let mtime = wrote.then(|| sateen_types::Timespec::from_ns(5_000_000_000));
    SizeReport { size, blocks: size.div_ceil(512), mtime, atime: None }
}
