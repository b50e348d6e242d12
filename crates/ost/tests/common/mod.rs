//! A driver for one OST whose disk, network and clock are the test's: completions come in
//! random order, and a crash forgets what was not synced.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use sateen_journal::{Decoded, decode_frame};
use sateen_osd::memory::{MemoryIndex, MemoryObjects};
use sateen_osd::{
    Checkpoint, Flush, Index, ObjectError, ObjectOp, ObjectStat, ObjectStore, Prefetched,
    StoreLimits,
};
use sateen_ost::Ost;
use sateen_target::{CoreConfig, Effect, Ending, IoId, Outbox, Recovery, Service};
use sateen_types::{ClientId, Endpoint, Errno, Falloc, Fid, ObjectId, Seq, Timespec, Timestamp};
use sateen_wire::{
    Body, Bulk, Header, Message, OstReply, OstRequest, Reply, ReplyBody, Request, Span, StatFs,
};

/// A small generator; the seed is all of a run's randomness.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

type Image = Option<Vec<u8>>;

/// Objects of which only what was synced survives a crash for sure; of the rest, any state
/// on the way does.
pub struct Disk {
    now: MemoryObjects,
    durable: Mutex<BTreeMap<ObjectId, Vec<u8>>>,
    /// States since the last sync.
    since: Mutex<BTreeMap<ObjectId, Vec<Image>>>,
    /// What somebody else has, and how often it was told to sync what was given away.
    had: Mutex<Option<ObjectId>>,
    given_synced: Mutex<u32>,
    /// It refuses to set times.
    pub refuses_times: std::sync::atomic::AtomicBool,
    pub bytes_max: u64,
}

impl Disk {
    pub fn new(bytes_max: u64) -> Disk {
        Disk {
            now: MemoryObjects::new(bytes_max),
            durable: Mutex::default(),
            since: Mutex::default(),
            had: Mutex::default(),
            given_synced: Mutex::default(),
            refuses_times: Default::default(),
            bytes_max,
        }
    }

    /// Somebody else has this object.
    pub fn somebody_has(&self, object: Option<ObjectId>) {
        *self.had.lock().unwrap() = object;
    }

    /// How often it was told to sync what was given away.
    pub fn given_synced(&self) -> u32 {
        *self.given_synced.lock().unwrap()
    }

    pub fn image(&self, object: ObjectId) -> Image {
        if !self.now.stat(&[object]).unwrap()[0].exists {
            return None;
        }
        let mut buffer = BytesMut::new();
        self.now.read(object, 0, 1 << 20, &mut buffer).unwrap();
        Some(buffer.to_vec())
    }

    fn note(&self, object: ObjectId) {
        let image = self.image(object);
        self.since.lock().unwrap().entry(object).or_default().push(image);
    }

    fn crash(&self, random: &mut Random) -> Disk {
        let mut images = self.durable.lock().unwrap().clone();
        for (object, states) in self.since.lock().unwrap().iter() {
            let at = random.index(states.len() + 1);
            match states.get(at) {
                Some(Some(image)) => {
                    images.insert(*object, image.clone());
                }
                Some(None) => {
                    images.remove(object);
                }
                None => {}
            }
        }
        let disk = Disk::new(self.bytes_max);
        for (object, image) in &images {
            disk.now.write(*object, 0, image).unwrap();
        }
        *disk.durable.lock().unwrap() = images;
        disk
    }
}

impl ObjectStore for Disk {
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize, ObjectError> {
        let written = self.now.write(object, offset, data);
        self.note(object);
        written
    }
    fn read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        self.now.read(object, offset, len, buffer)
    }
    fn append(&self, object: ObjectId, data: &[u8]) -> Result<(u64, usize), ObjectError> {
        let appended = self.now.append(object, data);
        self.note(object);
        appended
    }
    fn grow(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        self.now.grow(object, size)?;
        self.note(object);
        Ok(())
    }
    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<(), ObjectError> {
        if self.refuses_times.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(ObjectError(std::io::Error::from_raw_os_error(Errno::EPERM.raw())));
        }
        self.now.set_times(object, atime, mtime)
    }
    fn alone(&self, object: ObjectId) -> Result<bool, ObjectError> {
        Ok(*self.had.lock().unwrap() != Some(object))
    }
    fn sync_given(&self) -> Result<(), ObjectError> {
        *self.given_synced.lock().unwrap() += 1;
        Ok(())
    }
    fn punch(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        self.now.punch(object, size)?;
        self.note(object);
        Ok(())
    }
    fn allocate(
        &self,
        object: ObjectId,
        range: (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<(), ObjectError> {
        self.now.allocate(object, range, how, keep_size)?;
        self.note(object);
        Ok(())
    }
    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, ObjectError> {
        self.now.seek(object, offset, hole)
    }
    fn remove(&self, object: ObjectId) -> Result<bool, ObjectError> {
        let was_there = self.now.remove(object)?;
        self.note(object);
        Ok(was_there)
    }
    fn sync(&self, objects: &[ObjectId]) -> Result<(), ObjectError> {
        for object in objects {
            let mut durable = self.durable.lock().unwrap();
            match self.image(*object) {
                Some(image) => durable.insert(*object, image),
                None => durable.remove(object),
            };
            self.since.lock().unwrap().remove(object);
        }
        Ok(())
    }
    fn stat(&self, objects: &[ObjectId]) -> Result<Vec<ObjectStat>, ObjectError> {
        self.now.stat(objects)
    }
    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Result<Vec<ObjectStat>, ObjectError> {
        self.now.list(seq, from_oid, count)
    }
    fn sequences(&self) -> Result<Vec<Seq>, ObjectError> {
        self.now.sequences()
    }
    fn statfs(&self) -> Result<StatFs, ObjectError> {
        self.now.statfs()
    }
}

enum Pending {
    Object(IoId, ObjectOp),
    Fetch(sateen_target::ParkId, sateen_osd::Wants, u64),
    Flush(Flush, Vec<ObjectId>),
    Checkpoint(Checkpoint),
}

/// One party's connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub from: Endpoint,
    pub client: ClientId,
    pub generation: u32,
    pub attempt: u64,
    pub next: u64,
}

/// Names a request: the client, its slot and its sequence.
pub type Ticket = (ClientId, u16, u64);

/// An OST with everything around it.
pub struct World {
    pub ost: Ost,
    pub disk: Disk,
    index: MemoryIndex,
    frames: Vec<Vec<u8>>,
    pending: Vec<Pending>,
    held: Vec<Pending>,
    out: Outbox,
    pub random: Random,
    pub now: Timestamp,
    pub boot_epoch: u64,
    /// Answers that came and were not yet taken.
    pub answers: BTreeMap<Ticket, (Reply, Bulk)>,
    connected: VecDeque<(ClientId, Reply)>,
    pub flushes: u64,
    /// Which run this one follows, as was told last.
    pub follows: u64,
}

const JOURNAL_EPOCH: u64 = 77;
/// Ranges are allocated in such pieces.
pub const PIECE_BYTES: u64 = 1 << 20;

fn config(boot_epoch: u64) -> CoreConfig {
    CoreConfig { me: Endpoint::Ost(0), boot_epoch, hash_key: 0 }
}

impl World {
    pub fn new(seed: u64, bytes_max: u64) -> World {
        let (store, _) = Recovery::new(JOURNAL_EPOCH, 0, StoreLimits::default()).finish();
        World {
            ost: Ost::new(config(1), store).in_pieces_of(PIECE_BYTES),
            disk: Disk::new(bytes_max),
            index: MemoryIndex::default(),
            frames: Vec::new(),
            pending: Vec::new(),
            held: Vec::new(),
            out: Outbox::new(),
            random: Random::new(seed),
            now: Timestamp { mono_ns: 1, wall_ns: 1 },
            boot_epoch: 1,
            answers: BTreeMap::new(),
            connected: VecDeque::new(),
            flushes: 0,
            follows: 0,
        }
    }

    /// The machine stops and starts: what was not durable may be lost, whatever is under way
    /// is.
    pub fn crash(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                // Bytes on their way to the disk may still reach it.
                Pending::Object(_, op) if self.random.one_in(2) => drop(op.run(&self.disk)),
                Pending::Flush(flush, before) if self.random.one_in(2) => {
                    self.disk.sync(&before).unwrap();
                    self.frames.push(flush.frame);
                }
                _ => {}
            }
        }
        self.disk = self.disk.crash(&mut self.random);
        self.start_again();
    }

    /// The process alone dies, with nothing under way: what the disk had taken stays, what was
    /// only in memory is lost.
    pub fn kill(&mut self) {
        self.pending.clear();
        self.start_again();
    }

    /// The same, and the next run knows that the disk has all that these were answered for.
    pub fn kill_known(&mut self, runs: Vec<u64>) {
        self.pending.clear();
        self.start_after(runs);
    }

    /// The OST is told to stop.
    pub fn begin_stop(&mut self) {
        self.ost.on_stop(self.now, &mut self.out);
        self.take_effects();
    }

    /// It stops, in good order or not.
    pub fn stop(&mut self) -> Ending {
        self.begin_stop();
        for _ in 0..100 {
            if self.ost.ending() != Ending::Working {
                break;
            }
            self.settle();
            self.now.mono_ns += 95_000_000;
            self.tick();
        }
        self.ost.ending()
    }

    fn start_again(&mut self) {
        self.start_after(Vec::new());
    }

    fn start_after(&mut self, survived: Vec<u64>) {
        self.boot_epoch += 1;
        let mut recovery =
            Recovery::new(JOURNAL_EPOCH, self.index.checkpointed(), StoreLimits::default());
        for frame in &self.frames {
            let Decoded::Frame { payload, .. } = decode_frame(JOURNAL_EPOCH, frame) else {
                panic!("a whole frame");
            };
            recovery.frame(payload).unwrap();
        }
        let ost = Ost::new(config(self.boot_epoch), recovery.finish().0);
        self.ost = ost.in_pieces_of(PIECE_BYTES).nothing_lost_of(survived);
        self.out = Outbox::new();
        self.answers.clear();
        self.connected.clear();
    }

    fn take_effects(&mut self) {
        let mut flush = false;
        let effects: Vec<Effect> = self.out.drain().collect();
        for effect in effects {
            match effect {
                Effect::Send(Message { header, body: Body::Reply(reply), bulk }) => {
                    if header.generation == 0 {
                        self.connected.push_back((header.client, reply));
                    } else {
                        self.answers
                            .insert((header.client, header.slot, header.seq), (reply, bulk));
                    }
                }
                Effect::Send(other) => panic!("an OST only answers: {other:?}"),
                Effect::Object { id, op } => self.pending.push(Pending::Object(id, op)),
                Effect::Prefetch { id, wants, generation } => {
                    self.pending.push(Pending::Fetch(id, wants, generation));
                }
                Effect::Flush => flush = true,
            }
        }
        if flush {
            self.start_flush();
        }
    }

    fn start_flush(&mut self) {
        if let Some(flush) = self.ost.store().begin_flush() {
            let before = self.ost.sync_before_flush();
            self.pending.push(Pending::Flush(flush, before));
        }
    }

    /// Ranges that are being allocated now: offset, length, and whether the object stays as long
    /// as it is.
    pub fn allocations(&self) -> Vec<(u64, u64, bool)> {
        let of = |pending: &Pending| match *pending {
            Pending::Object(_, ObjectOp::Allocate { offset, len, keep_size, .. }) => {
                Some((offset, len, keep_size))
            }
            _ => None,
        };
        self.pending.iter().filter_map(of).collect()
    }

    pub fn start_checkpoint(&mut self) {
        if let Some(checkpoint) = self.ost.store().begin_checkpoint() {
            self.pending.push(Pending::Checkpoint(checkpoint));
        }
    }

    /// Ends one thing that is under way; false if there was none.
    pub fn step(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let at = self.random.index(self.pending.len());
        self.finish(at);
        true
    }

    fn finish(&mut self, at: usize) {
        match self.pending.swap_remove(at) {
            Pending::Object(id, op) => {
                let done = op.run(&self.disk);
                self.ost.on_object_done(self.now, id, done, &mut self.out);
            }
            Pending::Fetch(id, wants, generation) => {
                let view = Prefetched::read(&self.index, &wants, generation).unwrap();
                self.ost.on_prefetched(self.now, id, view, &mut self.out);
            }
            Pending::Flush(flush, before) => {
                self.disk.sync(&before).unwrap();
                self.frames.push(flush.frame.clone());
                self.flushes += 1;
                self.ost.store().flush_done(flush);
                self.ost.on_flushed(self.now, &mut self.out);
            }
            Pending::Checkpoint(checkpoint) => {
                if checkpoint.upto > self.ost.store().committed() {
                    self.start_flush();
                    self.pending.push(Pending::Checkpoint(checkpoint));
                } else {
                    self.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
                    self.ost.store().checkpoint_done();
                }
            }
        }
        self.take_effects();
    }

    /// Object I/O that is under way does not end until it is released; how many there are.
    pub fn hold_objects(&mut self) -> usize {
        let is_object = |pending: &mut Pending| matches!(pending, Pending::Object(..));
        self.held.extend(self.pending.extract_if(.., is_object));
        self.held.len()
    }

    pub fn release(&mut self) {
        self.pending.append(&mut self.held);
    }

    /// Ends all object I/O and fetches, but no group commit.
    pub fn settle_objects(&mut self) {
        let is_object =
            |pending: &Pending| matches!(pending, Pending::Object(..) | Pending::Fetch(..));
        while let Some(at) = self.pending.iter().position(is_object) {
            let last = self.pending.len() - 1;
            self.pending.swap(at, last);
            self.finish(last);
        }
    }

    pub fn tick(&mut self) {
        self.now.mono_ns += 5_000_000;
        self.now.wall_ns += 5_000_000;
        self.ost.on_tick(self.now, &mut self.out);
        self.take_effects();
        self.start_flush();
    }

    /// Runs until nothing is under way.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                self.start_flush();
                if self.pending.is_empty() {
                    return;
                }
            }
        }
        panic!("something never ends");
    }

    pub fn deliver(&mut self, message: Message) {
        self.ost.on_message(self.now, message, &mut self.out);
        self.take_effects();
    }

    pub fn poison(&mut self) {
        self.ost.on_poisoned(self.now, &mut self.out);
        self.take_effects();
    }

    pub fn client(&mut self, number: u64) -> Peer {
        let client = ClientId(number);
        let mut peer =
            Peer { from: Endpoint::Client(client), client, generation: 0, attempt: 0, next: 0 };
        assert_eq!(self.connect(&mut peer), None);
        peer
    }

    pub fn mdt(&mut self) -> Peer {
        let client = ClientId(1 << 40);
        let mut peer = Peer { from: Endpoint::Mdt(0), client, generation: 0, attempt: 0, next: 0 };
        assert_eq!(self.connect(&mut peer), None);
        peer
    }

    /// Connects; the error if it was refused.
    pub fn connect(&mut self, peer: &mut Peer) -> Option<Errno> {
        peer.attempt += 1;
        peer.generation = 0;
        let mut message = message(peer, 0, 0, Request::Connect { features: 0 }, Bulk::None);
        message.header.seq = peer.attempt;
        self.deliver(message);
        for _ in 0..10_000 {
            if let Some(at) = self.connected.iter().position(|(client, _)| *client == peer.client) {
                let (_, reply) = self.connected.remove(at).unwrap();
                if let ReplyBody::Connected { generation, boot_epoch, follows, .. } = reply.body {
                    assert_eq!(boot_epoch, self.boot_epoch);
                    self.follows = follows;
                    peer.generation = generation;
                    peer.next = 0;
                }
                return reply.error;
            }
            assert!(self.step(), "the connect is answered");
        }
        panic!("the connect is answered in time");
    }

    /// Sends a request in a slot of its own.
    pub fn send(&mut self, peer: &mut Peer, request: OstRequest, bulk: Bulk) -> Ticket {
        let slot = peer.next as u16;
        peer.next += 1;
        let message = message(peer, slot, 1, Request::Ost(request), bulk);
        self.deliver(message);
        (peer.client, slot, 1)
    }

    pub fn has(&self, ticket: Ticket) -> bool {
        self.answers.contains_key(&ticket)
    }

    pub fn wait(&mut self, ticket: Ticket) -> (Reply, Bulk) {
        for _ in 0..10_000 {
            if let Some(answer) = self.answers.remove(&ticket) {
                return answer;
            }
            if !self.step() {
                self.tick();
            }
        }
        panic!("no answer to {ticket:?}");
    }

    /// Sends and waits.
    pub fn call(&mut self, peer: &mut Peer, request: OstRequest) -> Result<OstReply, Errno> {
        let ticket = self.send(peer, request, Bulk::None);
        unpack(self.wait(ticket).0)
    }

    pub fn write(
        &mut self,
        peer: &mut Peer,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<OstReply, Errno> {
        let (request, bulk) = write(object, 1, offset, data);
        let ticket = self.send(peer, request, bulk);
        unpack(self.wait(ticket).0)
    }

    pub fn sync(&mut self, peer: &mut Peer, objects: Vec<ObjectId>) -> Result<OstReply, Errno> {
        self.call(peer, OstRequest::Sync { objects, boot_epoch: 0 })
    }
}

pub fn unpack(reply: Reply) -> Result<OstReply, Errno> {
    match (reply.error, reply.body) {
        (Some(errno), _) => Err(errno),
        (None, ReplyBody::Ost(reply)) => Ok(reply),
        (None, other) => panic!("an OST's answer, not {other:?}"),
    }
}

pub fn write(object: ObjectId, layout_gen: u32, offset: u64, data: &[u8]) -> (OstRequest, Bulk) {
    let request = OstRequest::Write { object, layout_gen, offset, grant_used: 0 };
    (request, Bulk::Data(Bytes::copy_from_slice(data)))
}

/// Pieces of an object: where each goes, and what it is.
pub fn write_many(
    object: ObjectId,
    layout_gen: u32,
    pieces: &[(u64, &[u8])],
) -> (OstRequest, Bulk) {
    let spans =
        pieces.iter().map(|(offset, data)| Span { offset: *offset, len: data.len() as u32 });
    let data: Vec<u8> = pieces.iter().flat_map(|(_, data)| data.iter().copied()).collect();
    let request =
        OstRequest::WriteMany { object, layout_gen, pieces: spans.collect(), grant_used: 0 };
    (request, Bulk::Data(data.into()))
}

pub fn append(object: ObjectId, layout_gen: u32, data: &[u8]) -> (OstRequest, Bulk) {
    let request = OstRequest::Append { object, layout_gen, grant_used: 0 };
    (request, Bulk::Data(Bytes::copy_from_slice(data)))
}

pub fn message(peer: &Peer, slot: u16, seq: u64, request: Request, bulk: Bulk) -> Message {
    let header = Header {
        generation: peer.generation,
        slot,
        seq,
        project: 7,
        ..Header::between(peer.from, Endpoint::Ost(0), peer.client)
    };
    Message { header, body: Body::Request(request), bulk }
}

pub fn object(oid: u32, stripe: u32) -> ObjectId {
    ObjectId { fid: Fid::new(Seq(0x2_0000_0400), oid), stripe }
}
