//! Servers under fire from the wire: requests that are well formed and make no sense, and such
//! as were damaged, from a peer that is connected as it should be. No server may crash, hang
//! or grow, and afterwards an honest mount works.
//!
//! `MESSAGES` damaged ones for each server; `SEED` repeats them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

#[path = "../../../wire/tests/common/mod.rs"]
mod common;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sateen_testkit::cluster::{Cluster, PATIENCE, resident_mib};
use sateen_testkit::{can_mount, env_number};
use sateen_types::{ClientId, Endpoint, Fid, Name, Nid, ObjectId, Seq, seq};
use sateen_wire::codec::Wire;
use sateen_wire::{
    BULK_MAX, Body, Bulk, HEADER_BYTES, Header, MdtReply, MdtRequest, Message, MgsRequest,
    OstReply, OstRequest, Reply, ReplyBody, Request, Span, spans,
};

use crate::BINARY;
use common::{Any, Entropy, Random, mutate};

const MESSAGES: u64 = 10_000;
/// Requests between a `Connect` and its `Disconnect`, if the server does not end it before.
const LIFE_REQUESTS: u64 = 4000;
const SLOTS: usize = 32;
/// A request that is not answered for so long may never be: its slot is used again.
const SLOT_PATIENCE: Duration = Duration::from_millis(2);
/// A server that answers nothing for so long has nothing more to answer.
const ANSWERS_PAUSE: Duration = Duration::from_millis(200);
/// Files that requests are about, in the peer's own sequence.
const FILES: usize = 60;
/// Space that one request may take.
const ALLOCATE_MAX: u64 = 1 << 20;
/// How much larger a server may be at the end than after the first tenth: what its allocator
/// and its caches keep, but nothing for each message.
const GROWTH_MIB_MAX: u64 = 48;
/// The same against the middle: by then the caches are full, unless there are few messages.
const GROWTH_FROM_HALF_MIB_MAX: u64 = 10;

/// By then a server has done what it was asked for, and has let go of what it took for that.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// Reads one message, and drops its bulk.
fn receive(stream: &mut impl Read) -> io::Result<Message> {
    let (message, len) = receive_head(stream)?;
    io::copy(&mut stream.take(len), &mut io::sink())?;
    Ok(message)
}

/// Reads one message but for its bulk, of so many bytes.
fn receive_head(stream: &mut impl Read) -> io::Result<(Message, u64)> {
    let mut bytes = vec![0; HEADER_BYTES];
    stream.read_exact(&mut bytes)?;
    let rest = Message::rest_len(bytes.first_chunk().unwrap()).unwrap();
    bytes.resize(HEADER_BYTES + rest, 0);
    stream.read_exact(&mut bytes[HEADER_BYTES..])?;
    let (message, bulk) = Message::decode(&bytes).unwrap();
    Ok((message, u64::from(bulk.len)))
}

/// Somebody who is connected to one target.
struct Peer {
    address: SocketAddr,
    target: Endpoint,
    /// Its endpoint, and who it is at the moment.
    name: ClientId,
    client: ClientId,
    attempt: u64,
    random: Random,
    /// Where it may name new files.
    seq: Seq,
    answered: u64,
    sent: u64,
    /// Those among them that were damaged.
    damaged: u64,
}

/// One connection of a peer.
struct Connection {
    stream: TcpStream,
    header: Header,
    seqs: [u64; SLOTS],
    /// The last answer in each slot, and how many there were.
    answers: Arc<Answers>,
}

#[derive(Default)]
struct Answers {
    seqs: [AtomicU64; SLOTS],
    all: AtomicU64,
}

impl Answers {
    /// Notes answers until the connection ends.
    fn listen(&self, mut stream: TcpStream) {
        while let Ok(message) = receive(&mut stream) {
            if let Some(seq) = self.seqs.get(usize::from(message.header.slot)) {
                seq.store(message.header.seq, Ordering::Relaxed);
            }
            self.all.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Connection {
    /// A slot in which nothing is under way, if the server is not too slow.
    fn free_slot(&self, random: &mut Random) -> usize {
        let since = Instant::now();
        loop {
            let slot = random.below(SLOTS);
            let answered = self.answers.seqs[slot].load(Ordering::Relaxed);
            if answered >= self.seqs[slot] || since.elapsed() > SLOT_PATIENCE {
                return slot;
            }
            std::thread::yield_now();
        }
    }

    /// The next request's header, in its slot.
    fn header(&mut self, slot: usize) -> Header {
        self.seqs[slot] += 1;
        Header { slot: slot as u16, seq: self.seqs[slot], ..self.header }
    }

    fn ask(&mut self, request: Request) -> io::Result<Reply> {
        let header = self.header(0);
        let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
        self.stream.write_all(&message.encode())?;
        loop {
            let message = receive(&mut self.stream)?;
            if let (true, Body::Reply(reply)) = (message.header.seq == header.seq, message.body) {
                return Ok(reply);
            }
        }
    }
}

impl Peer {
    fn new(target: Endpoint, nid: &str, seed: u64) -> Peer {
        let Nid::Tcp { addr, port, .. } = nid.parse().unwrap() else { panic!("{nid}") };
        // None that a request which fences somebody hits by chance.
        let id = ClientId(Random::new(seed ^ 1).next() << 12);
        Peer {
            address: SocketAddr::from((addr, port)),
            target,
            name: id,
            client: id,
            attempt: 0,
            random: Random::new(seed),
            seq: seq::NORMAL_FIRST,
            answered: 0,
            sent: 0,
            damaged: 0,
        }
    }

    /// Connects as an honest client does. It must be answered, whatever came before.
    fn connect(&mut self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // As after an eviction: what the target still knows of the one before is over.
        self.client.0 += 1;
        let from = Endpoint::Client(self.name);
        let header = Header::between(from, self.target, self.client);
        let mut connection =
            Connection { stream, header, seqs: [0; SLOTS], answers: Arc::default() };
        // Above any that a damaged message may have named: a target ignores lower ones.
        self.attempt += 1 << 32;
        connection.seqs[0] = self.attempt - 1;
        let reply = connection.ask(Request::Connect { features: 0 }).expect("it answers");
        let ReplyBody::Connected { generation, .. } = reply.body else { panic!("{reply:?}") };
        connection.header.generation = generation;
        connection.seqs = [0; SLOTS];
        if matches!(self.target, Endpoint::Mdt(_)) {
            let reply = connection.ask(Request::Mdt(MdtRequest::GrantSeq)).expect("it answers");
            if let ReplyBody::Mdt(MdtReply::Sequence(seq)) = reply.body {
                self.seq = seq;
            }
        }
        connection
    }

    fn fid(&mut self) -> Fid {
        match self.random.below(8) {
            0 => Fid::any(&mut Entropy::new(&self.random.bytes(20))),
            1..=3 => Fid::ROOT,
            _ => Fid::new(self.seq, 1 + self.random.below(FILES) as u32),
        }
    }

    /// A request of the target's kind. Most are about things that can be there.
    fn request(&mut self) -> Request {
        let bytes = self.random.bytes(300);
        let mut e = Entropy::new(&bytes);
        match self.target {
            Endpoint::Mgs => Request::Mgs(Any::any(&mut e)),
            Endpoint::Mdt(_) => {
                let mut request = MdtRequest::any(&mut e);
                self.aim(&mut request);
                Request::Mdt(request)
            }
            Endpoint::Ost(_) | Endpoint::Client(_) => {
                let mut request = OstRequest::any(&mut e);
                let fid = self.fid();
                if let OstRequest::Write { object, offset, .. }
                | OstRequest::Read { object, offset, .. }
                | OstRequest::Seek { object, offset, .. }
                | OstRequest::Allocate { object, offset, .. } = &mut request
                {
                    object.fid = fid;
                    object.stripe %= 4;
                    if !self.random.next().is_multiple_of(16) {
                        *offset %= 1 << 30;
                    }
                }
                if let OstRequest::WriteMany { object, pieces, .. } = &mut request {
                    object.fid = fid;
                    object.stripe %= 4;
                    // Those that can be, in most cases.
                    if !self.random.next().is_multiple_of(8) {
                        let mut end = 0;
                        *pieces = (0..1 + self.random.below(5))
                            .map(|_| {
                                let offset = end + self.random.below(10_000) as u64;
                                let len = 1 + self.random.below(1000) as u32;
                                end = offset + u64::from(len);
                                Span { offset, len }
                            })
                            .collect();
                    }
                }
                if let OstRequest::Append { object, .. }
                | OstRequest::SetTimes { object, .. }
                | OstRequest::Alone { object }
                | OstRequest::SetSize { object, .. } = &mut request
                {
                    object.fid = fid;
                    object.stripe %= 4;
                }
                if let OstRequest::SetSize { size, .. } = &mut request
                    && !self.random.next().is_multiple_of(16)
                {
                    *size %= 1 << 30;
                }
                Request::Ost(request)
            }
        }
    }

    fn aim(&mut self, request: &mut MdtRequest) {
        let (one, two) = (self.fid(), self.fid());
        let names: [&[u8]; 5] = [b"a", b"b", b"c", b"user.d", b"system.posix_acl_access"];
        let some = Name::new(names[self.random.below(names.len())]).unwrap();
        use MdtRequest as R;
        match request {
            R::Create { parent, name, fid, .. } => {
                (*parent, *name, *fid) = (one, some, two);
            }
            R::Lookup { parent, name, .. } | R::Unlink { parent, name, .. } => {
                (*parent, *name) = (one, some);
            }
            R::Rename { parent, name, new_parent, .. } => {
                (*parent, *name, *new_parent) = (one, some, two);
            }
            R::Link { fid, parent, name } => (*fid, *parent, *name) = (one, two, some),
            R::GetXattr { fid, name }
            | R::SetXattr { fid, name, .. }
            | R::RemoveXattr { fid, name } => (*fid, *name) = (one, some),
            R::GetAttr { fid, .. }
            | R::Open { fid, .. }
            | R::Close { fid, .. }
            | R::SetAttr { fid, .. }
            | R::ReadDir { fid, .. }
            | R::ReadLink { fid }
            | R::ListXattr { fid }
            | R::SetStripe { fid, .. }
            | R::GetStripe { fid }
            | R::SetLayout { fid, .. }
            | R::GetLinks { fid, .. }
            | R::NoRoom { fid, .. }
            | R::Enqueue { fid, .. }
            | R::Cancel { fid, .. }
            | R::SetFileLock { fid, .. }
            | R::TestFileLock { fid, .. }
            | R::ReportSize { fid, .. } => *fid = one,
            // Those that are about no file, or about whichever comes.
            _ => {}
        }
    }

    /// Another body in most cases, and whether it is damaged: one that some bytes of were
    /// changed, or what no peer of a server says to it.
    fn damage(&mut self, body: Body) -> (Body, bool) {
        match self.random.below(50) {
            0 => {
                let any = Body::any(&mut Entropy::new(&self.random.bytes(300)));
                let damaged = !matches!(any, Body::Request(_));
                return (any, damaged);
            }
            1..=5 => return (body, false),
            _ => {}
        }
        let other = Body::Request(self.request()).to_vec();
        for _ in 0..20 {
            let mut bytes = body.to_vec();
            mutate(&mut self.random, &mut bytes, &other);
            if let Some(damaged) = Body::from_bytes(&bytes).ok().filter(|one| *one != body) {
                return (damaged, true);
            }
        }
        (body, false)
    }

    /// The bytes of the next message, and whether the server has to take them for one.
    fn message(&mut self, connection: &mut Connection) -> (Vec<u8>, bool) {
        let slot = connection.free_slot(&mut self.random);
        let body = Body::Request(self.request());
        let bulk = match &body {
            Body::Request(Request::Ost(OstRequest::Write { .. } | OstRequest::Append { .. })) => {
                let len = [0, 1, 100, 4096, 70_000][self.random.below(5)];
                Bulk::Data(Bytes::from(self.random.bytes(len)))
            }
            Body::Request(Request::Ost(OstRequest::WriteMany { pieces, .. })) => {
                let len = match (spans::extent_of(pieces), self.random.below(8)) {
                    (Ok((bytes, _)), 1..) if bytes <= 70_000 => bytes as usize,
                    _ => [0, 1, 100, 4096, 70_000][self.random.below(5)],
                };
                Bulk::Data(Bytes::from(self.random.bytes(len)))
            }
            _ => Bulk::None,
        };
        let (mut body, mut damaged) = self.damage(body);
        // What would leave the test's own network and disk, is not sent.
        if let Body::Request(Request::Mgs(MgsRequest::Replace { info, .. })) = &mut body {
            // It would be believed, and the OSTs of the test not any more.
            info.target = Endpoint::Mgs;
        }
        if let Body::Request(Request::Mgs(MgsRequest::Register { info, .. })) = &mut body {
            info.nids = Nid::Lo.into();
            info.target = [Endpoint::Mgs, Endpoint::Mdt(0), Endpoint::Ost(0), Endpoint::Ost(1)]
                [self.random.below(4)];
        }
        if let Body::Request(Request::Ost(
            OstRequest::Allocate { len, .. } | OstRequest::ZeroRange { len, .. },
        )) = &mut body
        {
            *len %= ALLOCATE_MAX;
        }
        let mut header = connection.header(slot);
        if !matches!(body, Body::Request(_)) {
            // Nobody will take its number.
            connection.seqs[slot] -= 1;
        }
        if self.random.below(200) == 0 {
            header = Header::any(&mut Entropy::new(&self.random.bytes(120)));
            (header.from, header.to) = (connection.header.from, self.target);
            header.seq %= 1 << 32;
            damaged = true;
        }
        let message = Message { header, body, bulk };
        let mut bytes = message.encode();
        if let Bulk::Data(data) = &message.bulk {
            bytes.extend_from_slice(data);
        }
        let whole = self.random.below(500) != 0;
        self.damaged += u64::from(damaged || !whole);
        if !whole {
            let other = self.random.bytes(200);
            mutate(&mut self.random, &mut bytes, &other);
        }
        (bytes, whole)
    }

    /// Connects, sends many requests, and goes, in good order if the server still listens.
    fn live(&mut self, messages: u64) {
        let mut connection = self.connect();
        let (reading, answers) =
            (connection.stream.try_clone().unwrap(), connection.answers.clone());
        let reader = std::thread::spawn(move || answers.listen(reading));
        let mut alive = true;
        for _ in 0..messages.min(LIFE_REQUESTS) {
            let (bytes, whole) = self.message(&mut connection);
            self.sent += 1;
            if connection.stream.write_all(&bytes).is_err() || !whole {
                alive = false;
                break;
            }
        }
        // A server that still listens works off what it was asked. Some of it is never answered.
        let (answers, mut before) = (connection.answers.clone(), u64::MAX);
        while alive && answers.all.load(Ordering::Relaxed) != before {
            before = answers.all.load(Ordering::Relaxed);
            std::thread::sleep(ANSWERS_PAUSE);
        }
        // Fails if the server has closed it.
        let _ = connection.stream.shutdown(Shutdown::Write);
        reader.join().unwrap();
        self.answered += answers.all.load(Ordering::Relaxed);
        if alive {
            self.connect().ask(Request::Disconnect).expect("it answers");
        }
    }
}

/// A write of an object of nobody's, as it goes over the wire.
fn write(connection: &mut Connection, data: &[u8]) -> Vec<u8> {
    let object = ObjectId { fid: Fid::new(seq::NORMAL_FIRST, 1), stripe: 0 };
    let write = OstRequest::Write { object, layout_gen: 1, offset: 0, grant_used: 0 };
    let (header, bulk) = (connection.header(0), Bulk::Data(Bytes::copy_from_slice(data)));
    let body = Body::Request(Request::Ost(write));
    let mut bytes = Message { header, body, bulk }.encode();
    bytes.extend_from_slice(data);
    bytes
}

/// All of that object.
fn read(connection: &mut Connection) -> Vec<u8> {
    let object = ObjectId { fid: Fid::new(seq::NORMAL_FIRST, 1), stripe: 0 };
    let read = OstRequest::Read { object, offset: 0, len: BULK_MAX as u32 };
    let (header, bulk) = (connection.header(0), Bulk::Buffer(BytesMut::with_capacity(BULK_MAX)));
    let body = Body::Request(Request::Ost(read));
    connection.stream.write_all(&Message { header, body, bulk }.encode()).unwrap();
    let (answer, len) = receive_head(&mut connection.stream).unwrap();
    let right = matches!(&answer.body, Body::Reply(reply) if reply.error.is_none());
    assert!(right, "{answer:?}");
    let mut bulk = vec![0; len as usize];
    connection.stream.read_exact(&mut bulk).unwrap();
    bulk
}

#[test]
fn the_largest_bulk_arrives_whole_or_not_at_all() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "bulk");
    let (mds, oss) = cluster.start();
    let mut peer = Peer::new(Endpoint::Ost(0), &cluster.nid(2), sateen_testkit::seed());
    let data = peer.random.bytes(BULK_MAX);
    let mut connection = peer.connect();
    let bytes = write(&mut connection, &data);
    connection.stream.write_all(&bytes).unwrap();
    let answer = receive(&mut connection.stream).unwrap();
    let Body::Reply(Reply { body: ReplyBody::Ost(OstReply::Written { len, .. }), .. }) =
        answer.body
    else {
        panic!("{answer:?}")
    };
    assert_eq!(len as usize, BULK_MAX);
    assert!(read(&mut connection) == data);

    // One byte of it is not what its checksum says, wherever it is: nothing of it is written.
    for at in [0, BULK_MAX / 2, BULK_MAX - 1] {
        let mut bytes = write(&mut connection, &vec![0; BULK_MAX]);
        let bulk = bytes.len() - BULK_MAX;
        bytes[bulk + at] = 1;
        // The server may close the connection before it has read all.
        let _ = connection.stream.write_all(&bytes);
        assert!(receive(&mut connection.stream).is_err(), "the connection ends");
        connection = peer.connect();
        assert!(read(&mut connection) == data, "{at}");
    }
    // It is the checksum that was wrong: the same is taken with the right one.
    let bytes = write(&mut connection, &vec![0; BULK_MAX]);
    connection.stream.write_all(&bytes).unwrap();
    receive(&mut connection.stream).unwrap();
    assert!(read(&mut connection) == vec![0; BULK_MAX]);
    // No fsck: there is an object of a file that never was.
    oss.end();
    mds.end();
}

#[test]
fn nonsense_does_no_harm() {
    if !can_mount() {
        return;
    }
    let messages = env_number("MESSAGES", MESSAGES);
    let seed = sateen_testkit::seed();
    let mut cluster = Cluster::new(BINARY, "fuzz");
    let (mds, oss) = cluster.start();
    let targets =
        [(Endpoint::Mgs, 1, &mds), (Endpoint::Mdt(0), 1, &mds), (Endpoint::Ost(0), 2, &oss)];
    for (number, (target, host, server)) in (0..).zip(targets) {
        // Another for each: OSTs hear from the MDT whom it has thrown out.
        let mut peer = Peer::new(target, &cluster.nid(host), seed + number);
        let pid = server.pid().as_raw_nonzero().get() as u32;
        let (mut early, mut half) = (None, None);
        while peer.damaged < messages {
            let next = if half.is_none() { messages.div_ceil(2) } else { messages };
            peer.live(next - peer.damaged);
            for (size, from) in [(&mut early, messages / 10), (&mut half, messages / 2)] {
                if size.is_none() && peer.damaged >= from {
                    *size = Some(resident_mib(pid));
                }
            }
        }
        let (early, half) = (early.unwrap(), half.unwrap());
        let full = half + GROWTH_FROM_HALF_MIB_MAX;
        // What waits for a disk that stands still is no growth.
        let begun = Instant::now();
        let mut late = resident_mib(pid);
        while late > full.min(early + GROWTH_MIB_MAX) && begun.elapsed() < SETTLED_WITHIN {
            std::thread::sleep(ANSWERS_PAUSE);
            late = resident_mib(pid);
        }
        let answered = peer.answered;
        println!(
            "shown: {target}: {} messages, {} of them damaged, {answered} answers, {early} MiB early, \
             {half} MiB in the middle, {late} MiB late",
            peer.sent, peer.damaged
        );
        assert!(answered > peer.sent / 4, "many are answered");
        assert!(late <= early + GROWTH_MIB_MAX, "{target} grows from {early} to {late} MiB");
        assert!(late <= full, "{target} grows from {half} MiB in the middle to {late} MiB");
    }
    let mount = cluster.mount("a");
    fs::write(mount.join("honest"), b"still served").unwrap();
    assert_eq!(fs::read(mount.join("honest")).unwrap(), b"still served");
    // No fsck: there are objects of files that never were.
    cluster.umount(&mount);
    oss.end();
    mds.end();
}
