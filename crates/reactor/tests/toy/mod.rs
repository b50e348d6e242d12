//! A toy target and a toy client, for driving the driver. The target is built like a real
//! one, on `Core`; the client is one slot per task.

#![allow(unreachable_pub, reason = "each test uses its part")]
#![allow(dead_code, reason = "each test uses its part")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use sateen_osd::memory::MemoryIndex;
use sateen_osd::{
    Batch, Flush, Index, JournalDevice, Key, ObjectDone, ObjectOp, Prefetched, Store, StoreLimits,
};
use sateen_target::{
    Connection, Core, CoreConfig, Effect, Fault, IoId, Outbox, Pace, ParkId, Service,
};
use sateen_types::{ClientId, Endpoint, Errno, Fid, ObjectId, Seq, Timestamp};
use sateen_wire::{
    Body, Bulk, Header, Message, MgsReply, MgsRequest, OstReply, OstRequest, Reply, ReplyBody,
    Request, TargetInfo,
};

use crate::api::{Receiver, Router};
use crate::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, lock, yield_now};

pub fn key(n: u64) -> Key {
    Key::tag(b'k').with(&n.to_be_bytes())
}

pub fn object(n: u64) -> ObjectId {
    ObjectId { fid: Fid { seq: Seq(0x200000400), oid: n as u32, ver: 0 }, stripe: 0 }
}

/// `Register` puts a key durably, `GetConfig` reads the key named by the trace id, `Write`
/// writes an object (with a grant: one that is to be synced before the journal says so), `Read` says
/// how much there was to read, `Sync` makes objects and everything before it durable. With a peer,
/// `Register` first syncs at the peer.
pub struct Toy {
    pub core: Core,
    pub peer: Option<Endpoint>,
    pub busy: Arc<AtomicUsize>,
    pub ticks: u64,
    cut: Vec<ObjectId>,
    io: BTreeMap<IoId, Message>,
    next_io: u64,
    at_peer: BTreeMap<u64, Message>,
    /// Last sequence of each slot at the peer.
    peer_seqs: BTreeMap<u64, u64>,
}

/// Targets are clients of each other under this id.
pub const PEER_CLIENT: ClientId = ClientId(1);

impl Toy {
    pub fn new(me: Endpoint, peer: Option<Endpoint>, limits: StoreLimits) -> Toy {
        let config = CoreConfig { me, boot_epoch: 0, hash_key: 2 };
        Toy {
            core: Core::new(config, Store::new(1, 0, limits)),
            peer,
            busy: Arc::default(),
            ticks: 0,
            cut: Vec::new(),
            io: BTreeMap::new(),
            next_io: 1,
            at_peer: BTreeMap::new(),
            peer_seqs: BTreeMap::new(),
        }
    }

    fn put(&mut self, message: &Message, n: u64, out: &mut Outbox) {
        let mut batch = Batch::new();
        batch.put(&key(n), &(n + 1));
        let transno = self.core.commit(&batch);
        let reply = Reply { transno, ..Reply::ok(ReplyBody::Empty) };
        self.core.answer_durable(&message.header, reply, transno, out);
    }

    fn execute(&mut self, message: Message, fetched: Prefetched, out: &mut Outbox) {
        match self.try_execute(&message, &fetched, out) {
            Ok(()) => {}
            Err(Fault::Miss) => {
                self.core.park_for_index(message, fetched, out);
            }
            Err(fault) => panic!("{fault:?}"),
        }
    }

    fn try_execute(
        &mut self,
        message: &Message,
        fetched: &Prefetched,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        let Body::Request(request) = &message.body else { panic!("a request") };
        match request {
            Request::Mgs(MgsRequest::Register { uuid, .. }) => match self.peer {
                None => self.put(message, *uuid, out),
                Some(peer) => {
                    let slot = (0..).find(|slot| !self.at_peer.contains_key(slot)).unwrap();
                    let seq = self.peer_seqs.entry(slot).or_default();
                    *seq += 1;
                    let sync = OstRequest::Sync { objects: vec![object(*uuid)], boot_epoch: 1 };
                    let from = (self.core.config.me, PEER_CLIENT, peer);
                    let mut sync = request_to(from, slot as u16, *seq, Request::Ost(sync));
                    sync.header.trace = slot;
                    self.at_peer.insert(slot, message.clone());
                    out.send(sync);
                }
            },
            Request::Mgs(MgsRequest::GetConfig) => {
                let value = self.core.store.get(&key(message.header.trace), fetched)?;
                let version = value.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                let config = MgsReply::Config { version, targets: Vec::new() };
                let reply = Reply::ok(ReplyBody::Mgs(config));
                self.core.answer(&message.header, reply, Bulk::None, out);
            }
            Request::Ost(OstRequest::Write { object, offset, .. }) => {
                let Bulk::Data(data) = &message.bulk else { panic!("data") };
                let (object, offset, data) = (*object, *offset, data.clone());
                let op = ObjectOp::Write { object, offset, data, direct: false };
                self.object(message, op, out);
            }
            Request::Ost(OstRequest::Read { object, offset, len }) => {
                let (len, buffer) = (*len as usize, bytes::BytesMut::new());
                let (object, offset) = (*object, *offset);
                let op = ObjectOp::Read { object, offset, len, buffer, direct: false };
                self.object(message, op, out);
            }
            Request::Ost(OstRequest::Sync { objects, .. }) => {
                self.object(message, ObjectOp::Sync { objects: objects.clone() }, out);
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn object(&mut self, message: &Message, op: ObjectOp, out: &mut Outbox) {
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.io.insert(id, message.clone());
        out.push(Effect::Object { id, op });
    }

    /// Proves that the host calls the service under a lock, one at a time.
    fn alone<T>(&mut self, body: impl FnOnce(&mut Toy) -> T) -> T {
        assert_eq!(self.busy.fetch_add(1, Ordering::SeqCst), 0, "one caller at a time");
        let result = body(self);
        self.busy.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Service for Toy {
    fn store(&mut self) -> &mut Store {
        &mut self.core.store
    }

    fn sync_before_flush(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.cut)
    }

    fn on_message(&mut self, _now: Timestamp, message: Message, out: &mut Outbox) {
        self.alone(|this| {
            if let Body::Reply(_) = message.body {
                let request = this.at_peer.remove(&message.header.trace).expect("asked");
                let Body::Request(Request::Mgs(MgsRequest::Register { uuid, .. })) = request.body
                else {
                    panic!("only these go to a peer")
                };
                this.put(&request, uuid, out);
            } else if let Some(message) = this.core.admit(message, out) {
                this.execute(message, Prefetched::default(), out);
            }
        });
    }

    fn on_object_done(&mut self, _now: Timestamp, id: IoId, done: ObjectDone, out: &mut Outbox) {
        self.alone(|this| {
            let message = this.io.remove(&id).expect("started");
            if let ObjectDone::Failed(error) = &done {
                let reply = Reply::error(error.errno());
                this.core.answer(&message.header, reply, Bulk::None, out);
                return;
            }
            match &message.body {
                Body::Request(Request::Ost(OstRequest::Write { object, grant_used, .. })) => {
                    if *grant_used > 0 {
                        this.cut.push(*object);
                    }
                    let mut batch = Batch::new();
                    batch.put(&key(message.header.trace), &message.header.seq);
                    let transno = this.core.commit(&batch);
                    let reply = Reply { transno, ..Reply::ok(ReplyBody::Ost(OstReply::Done)) };
                    this.core.answer(&message.header, reply, Bulk::None, out);
                }
                Body::Request(Request::Ost(OstRequest::Read { .. })) => {
                    let ObjectDone::Read { len, .. } = done else { panic!("{done:?}") };
                    let read = OstReply::Read { len: len as u32 };
                    this.core.answer(
                        &message.header,
                        Reply::ok(ReplyBody::Ost(read)),
                        Bulk::None,
                        out,
                    );
                }
                _ => {
                    let upto = this.core.store.transno();
                    let reply = Reply::ok(ReplyBody::Empty);
                    this.core.answer_durable(&message.header, reply, upto, out);
                }
            }
        });
    }

    fn on_prefetched(&mut self, _now: Timestamp, id: ParkId, view: Prefetched, out: &mut Outbox) {
        self.alone(|this| {
            let Some((message, fetched)) = this.core.unpark(id, view) else { return };
            this.execute(message, fetched, out);
        });
    }

    fn on_flushed(&mut self, _now: Timestamp, out: &mut Outbox) {
        // Without the wish that `Core` repeats for those still waiting: the host must
        // remember by itself who asked while it was writing.
        self.alone(|this| {
            let mut all = Outbox::new();
            this.core.flushed(&mut all);
            all.drain().filter(|effect| !matches!(effect, Effect::Flush)).for_each(|e| out.push(e));
        });
    }

    fn pace(&mut self) -> Pace {
        Pace::Rest
    }

    fn on_tick(&mut self, _now: Timestamp, _out: &mut Outbox) {
        self.ticks += 1;
    }

    fn on_poisoned(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.core.poison(out);
    }
}

/// A journal that knows what is durable, and can be made to fail.
#[derive(Clone, Default)]
pub struct ToyJournal {
    pub durable: Arc<AtomicU64>,
    pub writes: Arc<AtomicU64>,
    pub writing: Arc<AtomicUsize>,
    pub trimmed: Arc<AtomicU64>,
    /// What fails: 1 is a write, 2 to forget what was checkpointed.
    pub fail: Arc<AtomicUsize>,
}

impl JournalDevice for ToyJournal {
    fn write(&mut self, flush: &Flush) -> std::io::Result<()> {
        assert_eq!(self.writing.fetch_add(1, Ordering::SeqCst), 0, "one write at a time");
        assert_eq!(flush.first, self.durable.load(Ordering::SeqCst) + 1, "no gap");
        yield_now();
        if self.fail.load(Ordering::SeqCst) == 1 {
            return Err(std::io::Error::from_raw_os_error(Errno::EIO.raw()));
        }
        self.durable.store(flush.upto, Ordering::SeqCst);
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.writing.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn trim(&mut self, upto: u64) -> std::io::Result<()> {
        assert!(upto <= self.durable.load(Ordering::SeqCst));
        if self.fail.load(Ordering::SeqCst) == 2 {
            return Err(std::io::Error::from_raw_os_error(Errno::EIO.raw()));
        }
        self.trimmed.store(upto, Ordering::SeqCst);
        Ok(())
    }
}

/// An index that holds the journal to its promise: nothing is checkpointed before it is
/// durable.
pub struct ToyIndex {
    pub inner: MemoryIndex,
    pub durable: Arc<AtomicU64>,
}

impl Index for ToyIndex {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, sateen_osd::IndexError> {
        yield_now();
        self.inner.get(key)
    }

    fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, sateen_osd::IndexError> {
        self.inner.scan(prefix, after, limit)
    }

    fn checkpoint(
        &self,
        table: &sateen_osd::Memtable,
        upto: u64,
    ) -> Result<(), sateen_osd::IndexError> {
        assert!(upto <= self.durable.load(Ordering::SeqCst), "journal before index");
        yield_now();
        self.inner.checkpoint(table, upto)
    }

    fn checkpointed(&self) -> u64 {
        self.inner.checkpointed()
    }
}

pub fn request_to(
    (from, client, to): (Endpoint, ClientId, Endpoint),
    slot: u16,
    seq: u64,
    request: Request,
) -> Message {
    let header =
        Header { generation: client.0 as u32, slot, seq, ..Header::between(from, to, client) };
    Message { header, body: Body::Request(request), bulk: Bulk::None }
}

pub fn register(n: u64) -> Request {
    let nids = sateen_types::Nid::Lo.into();
    let info = TargetInfo { target: Endpoint::Ost(0), nids, inactive: false };
    Request::Mgs(MgsRequest::Register { info, uuid: n })
}

/// A write of [`some_data`] whose object is to be synced before the next frame.
pub fn cut(n: u64) -> Request {
    let object = object(n);
    Request::Ost(OstRequest::Write { object, layout_gen: 0, offset: 0, grant_used: 1 })
}

pub fn some_data() -> Bulk {
    Bulk::Data(bytes::Bytes::from_static(b"some data"))
}

/// The answers a client waits for, by (target, slot).
pub struct Client {
    pub id: ClientId,
    router: Arc<Router>,
    waiting: Mutex<BTreeMap<(Endpoint, u16), Waiting>>,
}

#[derive(Default)]
struct Waiting {
    reply: Option<Reply>,
    waker: Option<Waker>,
}

impl Receiver for Client {
    fn receive(self: Arc<Self>, message: Message) {
        let Body::Reply(reply) = message.body else { return };
        let waker = {
            let mut waiting = lock(&self.waiting);
            let entry = waiting.entry((message.header.from, message.header.slot)).or_default();
            entry.reply = Some(reply);
            entry.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Client {
    pub fn new(id: u64, router: Arc<Router>) -> Arc<Client> {
        let client = Arc::new(Client {
            id: ClientId(id),
            router: router.clone(),
            waiting: Mutex::default(),
        });
        assert!(router.add(Endpoint::Client(client.id), client.clone()));
        client
    }

    pub fn message(&self, to: Endpoint, slot: u16, seq: u64, request: Request) -> Message {
        request_to((Endpoint::Client(self.id), self.id, to), slot, seq, request)
    }

    pub async fn call(self: &Arc<Client>, message: Message) -> Reply {
        let place = (message.header.to, message.header.slot);
        self.router.send(message);
        Answer { client: self.clone(), place }.await
    }
}

struct Answer {
    client: Arc<Client>,
    place: (Endpoint, u16),
}

impl Future for Answer {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let mut waiting = lock(&self.client.waiting);
        let entry = waiting.entry(self.place).or_default();
        match entry.reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => {
                entry.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Opens the exports of clients 1 to `count`, whose generations are their ids then.
pub fn connect(toy: &mut Toy, count: u64) {
    for client in 1..=count {
        let connection =
            toy.core.exports.connect(ClientId(client), Endpoint::Client(ClientId(client)), 0);
        assert_eq!(connection, Connection::Open(client as u32));
    }
}
