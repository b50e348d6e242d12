//! Connections between networks in one process, over TCP and over shared memory: what is sent
//! arrives, whole and in order, and what cannot be sent is told.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod over;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use over::{LONG, Over, Peer};
use sateen_lnd::{Limits, QUEUE_BYTES_MAX, SPEAKS_FOR_MAX, Tcp, Ways};
use sateen_types::{ClientId, Endpoint, Errno, Fid, ObjectId};
use sateen_wire::{
    BULK_MAX, Body, Bulk, HEADER_BYTES, Header, Kind, Lengths, Message, OstReply, OstRequest,
    PROTOCOL_VERSION, Reply, ReplyBody, Request,
};

both! {
    requests_are_answered_in_order_with_their_bulk
    a_request_to_nobody_is_answered
    the_next_address_is_tried_and_a_server_that_returns_is_found
    another_address_is_tried_on_demand
    who_waits_for_an_answer_is_told_that_the_connection_broke
    an_answer_of_another_generation_takes_nothing_from_a_request
    no_answer_comes_behind_the_news_that_there_will_be_none
    no_more_bulk_comes_in_than_somebody_gets_rid_of
    garbage_closes_the_connection_and_nothing_else
    a_peer_that_does_not_read_is_given_up
    a_slow_peer_that_reads_is_kept
    of_who_takes_no_answers_no_more_is_read
    a_peer_cannot_speak_for_endlessly_many
    answers_go_to_the_youngest_connection_that_is_open
    what_waits_for_all_peers_is_bounded
    a_peer_that_stops_in_the_middle_holds_nobody_up_for_long
    a_peer_that_is_too_slow_holds_nobody_up_for_long
    a_peer_that_is_too_slow_for_its_bulk_holds_nobody_up_for_long
    a_peer_of_another_version_is_told_so_on_both_sides
    who_could_not_be_read_from_is_not_silent
}

const CLIENT: Endpoint = Endpoint::Client(ClientId(7));
const OST: Endpoint = Endpoint::Ost(0);

/// Where nobody listens: a port that is given to nobody who asks for any, as other tests do.
fn nobodys_port() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

fn header(seq: u64) -> Header {
    Header { generation: 1, slot: 3, seq, ..Header::between(CLIENT, OST, ClientId(7)) }
}

fn request(seq: u64, request: OstRequest, bulk: Bulk) -> Message {
    Message { header: header(seq), body: Body::Request(Request::Ost(request)), bulk }
}

fn object() -> ObjectId {
    ObjectId { fid: Fid::ROOT, stripe: 0 }
}

fn write(seq: u64, data: Bytes) -> Message {
    let write = OstRequest::Write { object: object(), layout_gen: 1, offset: 0, grant_used: 0 };
    request(seq, write, Bulk::Data(data))
}

fn read(seq: u64, len: usize) -> Message {
    let read = OstRequest::Read { object: object(), offset: 0, len: len as u32 };
    request(seq, read, Bulk::Buffer(BytesMut::with_capacity(len)))
}

/// What is no data.
fn stat(seq: u64) -> Message {
    request(seq, OstRequest::StatFs, Bulk::None)
}

/// Reads the next message, which is without bulk; its sequence, or none if there is none yet.
fn message_on(stream: &mut Peer, patience: Duration) -> Option<u64> {
    stream.waits_for(patience);
    let mut message = vec![0; HEADER_BYTES];
    stream.read_exact(&mut message).ok()?;
    let rest = Message::rest_len(message.first_chunk().unwrap()).unwrap();
    message.resize(HEADER_BYTES + rest, 0);
    stream.read_exact(&mut message[HEADER_BYTES..]).unwrap();
    Some(Message::decode(&message).unwrap().0.header.seq)
}

/// A client's network, and what arrives there.
fn client(over: Over) -> (Tcp, Receiver<Message>) {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| drop(sender.lock().unwrap().send(message));
    (over.client(Box::new(deliver)), arrived)
}

/// A network that answers as an OST would, with every byte the low byte of the sequence.
fn server(over: Over) -> Arc<Tcp> {
    counting_server(over).0
}

/// The same, and how many requests it has taken.
fn counting_server(over: Over) -> (Arc<Tcp>, Arc<AtomicU64>) {
    server_with(over, Limits::default())
}

/// The same with other limits.
fn server_with(over: Over, limits: Limits) -> (Arc<Tcp>, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let counter = taken.clone();
    let me: Arc<OnceLock<std::sync::Weak<Tcp>>> = Arc::default();
    let answering = me.clone();
    let deliver = move |message: Message| {
        let Some(tcp) = answering.get().and_then(std::sync::Weak::upgrade) else { return };
        counter.fetch_add(1, Ordering::Relaxed);
        let (body, bulk) = match (&message.body, &message.bulk) {
            (Body::Request(Request::Ost(OstRequest::Write { .. })), Bulk::Data(data)) => {
                let right = data.iter().all(|byte| *byte == message.header.seq as u8);
                assert!(right, "{:?} came damaged", message.header);
                let len = data.len() as u32;
                (OstReply::Written { len, boot_epoch: 1, granted: 0 }, Bulk::None)
            }
            (Body::Request(Request::Ost(OstRequest::Read { len, .. })), Bulk::None) => {
                let data = vec![message.header.seq as u8; *len as usize];
                (OstReply::Read { len: *len }, Bulk::Data(data.into()))
            }
            (Body::Request(Request::Ost(OstRequest::StatFs)), Bulk::None) => {
                let reply = Reply::ok(ReplyBody::Empty);
                return tcp.send(Message::reply_to(&message.header, reply, Bulk::None));
            }
            other => panic!("{other:?}"),
        };
        tcp.send(Message::reply_to(&message.header, Reply::ok(ReplyBody::Ost(body)), bulk));
    };
    let tcp = Arc::new(over.server(Box::new(deliver), limits));
    me.set(Arc::downgrade(&tcp)).unwrap();
    (tcp, taken)
}

fn error_of(message: &Message) -> Option<Errno> {
    match &message.body {
        Body::Reply(reply) => reply.error,
        other => panic!("{other:?}"),
    }
}

fn requests_are_answered_in_order_with_their_bulk(over: Over) {
    let (server, (client, arrived)) = (server(over), client(over));
    client.set_route(OST, server.listening().to_vec());
    // The largest bulk does not fit into any socket: the writer has to help.
    let sizes = [1, 4096, BULK_MAX, 100, BULK_MAX, 5, 0];
    for (seq, len) in (1..).zip(sizes) {
        client.send(write(seq, vec![seq as u8; len.max(1)].into()));
        client.send(read(seq + 100, len));
    }
    for (seq, len) in (1..).zip(sizes) {
        let written = arrived.recv_timeout(LONG).unwrap();
        assert_eq!(written.header.seq, seq);
        let Body::Reply(reply) = &written.body else { panic!("{written:?}") };
        let ReplyBody::Ost(OstReply::Written { len: done, .. }) = reply.body else {
            panic!("{reply:?}")
        };
        assert_eq!(done as usize, len.max(1));
        let answer = arrived.recv_timeout(LONG).unwrap();
        assert_eq!(answer.header.seq, seq + 100);
        let Bulk::Buffer(buffer) = answer.bulk else { panic!("the buffer stayed at home") };
        assert_eq!(buffer.len(), len);
        assert!(buffer.iter().all(|byte| *byte == (seq + 100) as u8));
    }
}

fn a_request_to_nobody_is_answered(over: Over) {
    let (client, arrived) = client(over);
    client.send(write(1, Bytes::from_static(&[1])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), Some(Errno::ESHUTDOWN));
    client.set_route(OST, vec![nobodys_port()]);
    client.send(write(2, Bytes::from_static(&[2])));
    let answer = arrived.recv_timeout(LONG).unwrap();
    assert_eq!((answer.header.seq, error_of(&answer)), (2, Some(Errno::ESHUTDOWN)));
}

fn the_next_address_is_tried_and_a_server_that_returns_is_found(over: Over) {
    let (client, arrived) = client(over);
    let first = server(over);
    client.set_route(OST, vec![nobodys_port(), first.listening()[0]]);
    client.send(write(1, Bytes::from_static(&[1])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), Some(Errno::ESHUTDOWN));
    client.send(write(2, Bytes::from_static(&[2])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None, "the second address");
    drop(first);
    let second = server(over);
    client.set_route(OST, second.listening().to_vec());
    client.send(write(3, Bytes::from_static(&[3])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
}

fn another_address_is_tried_on_demand(over: Over) {
    let (client, arrived) = client(over);
    let deaf = over.listen();
    let server = server(over);
    client.set_route(OST, vec![deaf.local_addr().unwrap(), server.listening()[0]]);
    client.send(write(1, Bytes::from_static(&[1])));
    assert!(arrived.recv_timeout(Duration::from_millis(200)).is_err(), "nobody reads it");
    client.try_next(OST);
    client.send(write(2, Bytes::from_static(&[2])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None, "the second address");
    // The same addresses told again do not change which is in use.
    client.set_route(OST, vec![deaf.local_addr().unwrap(), server.listening()[0]]);
    client.send(write(3, Bytes::from_static(&[3])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
}

fn who_waits_for_an_answer_is_told_that_the_connection_broke(over: Over) {
    let (client, arrived) = client(over);
    let deaf = over.listen();
    client.set_route(OST, vec![deaf.local_addr().unwrap()]);
    // One to a connection: another might still be queued when it breaks.
    for request in [write(1, Bytes::from_static(&[1])), read(2, 8)] {
        client.send(request);
        let mut stream = deaf.accept();
        stream.read_exact(&mut [0; 1]).unwrap();
        drop(stream);
        // It may have been executed.
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), Some(Errno::ECONNRESET));
    }
    // Half an answer is none: also if it breaks in the middle of the data.
    client.send(read(3, 8));
    let mut stream = deaf.accept();
    stream.read_exact(&mut [0; 1]).unwrap();
    let body = ReplyBody::Ost(OstReply::Read { len: 8 });
    let data = Bulk::Data(Bytes::from_static(&[3; 8]));
    let answer = Message::reply_to(&header(3), Reply::ok(body), data);
    stream.write_all(&answer.encode()).unwrap();
    stream.write_all(&[3; 4]).unwrap();
    drop(stream);
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), Some(Errno::ECONNRESET));
    // What was answered is not waited for any more.
    let server = server(over);
    client.set_route(OST, server.listening().to_vec());
    client.send(write(3, Bytes::from_static(&[3])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    drop(server);
    drop(client);
    assert!(arrived.recv_timeout(LONG).is_err(), "nothing more comes");
}

/// An answer of eight bytes, all the same, and how it stands on the stream.
fn answer_to(header: &Header, byte: u8) -> Vec<u8> {
    let body = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 8 }));
    let data = vec![byte; 8];
    let mut bytes = Message::reply_to(header, body, Bulk::Data(data.clone().into())).encode();
    bytes.extend(data);
    bytes
}

/// Slots begin anew with each generation of a connection of the client's, and TCP's may be the same.
fn an_answer_of_another_generation_takes_nothing_from_a_request(over: Over) {
    let (client, arrived) = client(over);
    let deaf = over.listen();
    client.set_route(OST, vec![deaf.local_addr().unwrap()]);
    let generations = [1, 2].map(|generation| Header { generation, ..header(1) });
    for header in generations {
        client.send(Message { header, ..read(1, 8) });
    }
    // What is answered has been sent: the client's writer may be slower than an answer.
    let mut stream = deaf.accept();
    assert_eq!([(); 2].map(|()| message_on(&mut stream, LONG)), [Some(1); 2]);
    for (byte, header) in (1..).zip(&generations) {
        stream.write_all(&answer_to(header, byte)).unwrap();
        let answer = arrived.recv_timeout(LONG).unwrap();
        assert_eq!(answer.header.generation, header.generation);
        let Bulk::Buffer(buffer) = answer.bulk else { panic!("the buffer was another's") };
        assert_eq!(*buffer, [byte; 8]);
    }
    // Nor is one that is not answered forgotten.
    for header in generations {
        client.send(Message { header: Header { seq: 2, ..header }, ..read(2, 8) });
    }
    assert_eq!([(); 2].map(|()| message_on(&mut stream, LONG)), [Some(2); 2]);
    stream.write_all(&answer_to(&Header { seq: 2, ..generations[0] }, 1)).unwrap();
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    drop(stream);
    let broken = arrived.recv_timeout(LONG).unwrap();
    assert_eq!((broken.header.generation, error_of(&broken)), (2, Some(Errno::ECONNRESET)));
}

/// The connection is found broken by who sends, while an answer that has come in waits behind
/// another to be delivered.
fn no_answer_comes_behind_the_news_that_there_will_be_none(over: Over) {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let held_up = barrier.clone();
    let deliver = move |message: Message| {
        let seq = message.header.seq;
        sender.lock().unwrap().send((seq, error_of(&message))).unwrap();
        if seq == 1 {
            held_up.wait();
            held_up.wait();
        }
    };
    let client = over.client(Box::new(deliver));
    let deaf = over.listen();
    client.set_route(OST, vec![deaf.local_addr().unwrap()]);
    client.send(read(1, 8));
    client.send(read(2, 8));
    // Both have left the queue.
    let mut stream = deaf.accept();
    assert_eq!(message_on(&mut stream, LONG), Some(1));
    stream.read_exact(&mut [0; 1]).unwrap();
    let answers: Vec<u8> = [1, 2].into_iter().flat_map(|n| answer_to(&header(n), 1)).collect();
    stream.write_all(&answers).unwrap();
    barrier.wait();
    assert_eq!(arrived.recv_timeout(LONG).unwrap(), (1, None));
    // With requests that it has not read, which resets the connection.
    drop(stream);
    drop(deaf);
    let mut heard = None;
    for seq in 3..10_000 {
        client.send(write(seq, Bytes::from_static(&[1])));
        let told = std::iter::from_fn(|| arrived.recv_timeout(Duration::from_millis(10)).ok());
        heard = told.filter(|(seq, _)| *seq == 2).last();
        if heard.is_some() {
            break;
        }
    }
    assert_eq!(heard, Some((2, Some(Errno::ECONNRESET))));
    barrier.wait();
    drop(client);
    let rest: Vec<_> = std::iter::from_fn(|| arrived.recv_timeout(LONG).ok()).collect();
    assert!(rest.iter().all(|(seq, _)| *seq > 2), "{rest:?}");
}

fn no_more_bulk_comes_in_than_somebody_gets_rid_of(over: Over) {
    const LIMIT: usize = 4 << 20;
    let (sender, held) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| drop(sender.lock().unwrap().send(message));
    let limits = Limits { bulk_bytes: LIMIT, ..Limits::default() };
    let server = over.server(Box::new(deliver), limits);
    let (client, _arrived) = client(over);
    client.set_route(OST, server.listening().to_vec());
    let data = Bytes::from(vec![1; 1 << 20]);
    for seq in 1..=16 {
        client.send(write(seq, data.clone()));
    }
    let mut holding: Vec<Message> = (0..4).map(|_| held.recv_timeout(LONG).unwrap()).collect();
    let more = held.recv_timeout(Duration::from_millis(300));
    assert!(more.is_err(), "the fifth megabyte has to wait");
    for _ in 4..16 {
        holding.remove(0);
        holding.push(held.recv_timeout(LONG).unwrap());
    }
    // A piece of it is all of it.
    let Bulk::Data(last) = &holding[3].bulk else { panic!("{holding:?}") };
    let piece = last.slice(..1);
    holding.clear();
    client.send(write(17, Bytes::from(vec![1; LIMIT])));
    let more = held.recv_timeout(Duration::from_millis(300));
    assert!(more.is_err(), "a megabyte is held");
    drop(piece);
    assert!(held.recv_timeout(LONG).is_ok());
}

fn garbage_closes_the_connection_and_nothing_else(over: Over) {
    let (server, (client, arrived)) = (server(over), client(over));
    let address = server.listening()[0];
    client.set_route(OST, vec![address]);
    client.send(write(1, Bytes::from_static(&[1])));
    arrived.recv_timeout(LONG).unwrap();
    let good = read(2, 8).encode();
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    // A write whose bulk is not what its checksum says.
    let mut damaged = write(1, Bytes::from_static(&[1; 64])).encode();
    damaged.extend([2; 64]);
    let bad: [&[u8]; 5] = [b"GET / HTTP/1.0\r\n\r\n", &[0; 4096], &flipped, &good[..50], &damaged];
    for bytes in bad {
        let mut stream = over.connect(address);
        stream.write_all(bytes).unwrap();
        if bytes.len() < 128 {
            stream.finish();
        }
        // Closed without an answer; a reset if there was something unread.
        let mut rest = Vec::new();
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert!(rest.is_empty());
    }
    client.send(write(2, Bytes::from_static(&[2])));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
}

fn a_peer_that_does_not_read_is_given_up(over: Over) {
    let (client, arrived) = client(over);
    let deaf = over.listen();
    client.set_route(OST, vec![deaf.local_addr().unwrap()]);
    let deaf = std::thread::spawn(move || deaf.accept());
    let data = Bytes::from(vec![1; BULK_MAX]);
    // More than the queue takes, beside what the sockets and the writer have.
    let all = (QUEUE_BYTES_MAX / BULK_MAX) as u64 + 3;
    for seq in 1..=all {
        client.send(write(seq, data.clone()));
    }
    let answer = arrived.recv_timeout(LONG).unwrap();
    assert_eq!(error_of(&answer), Some(Errno::ECONNRESET), "whoever waited in the queue is told");
    drop(deaf.join().unwrap());
    // It comes back elsewhere.
    let server = server(over);
    client.set_route(OST, server.listening().to_vec());
    client.send(write(200, Bytes::from_static(&[200])));
    let found = |message: Message| message.header.seq == 200 && error_of(&message).is_none();
    assert!(arrived.iter().any(found));
}

fn a_slow_peer_that_reads_is_kept(over: Over) {
    let (client, arrived) = client(over);
    let slow = over.listen();
    client.set_route(OST, vec![slow.local_addr().unwrap()]);
    let all = (QUEUE_BYTES_MAX / BULK_MAX) as u64 + 4;
    let data = Bytes::from(vec![1; BULK_MAX]);
    let one = write(1, data.clone()).encode().len() + BULK_MAX;
    for seq in 1..=all {
        client.send(write(seq, data.clone()));
    }
    // One at once: the writer has waited since it began, and a busy machine takes its time to
    // hand in the rest. Then all of it, in pieces with pauses in which nothing leaves.
    let mut stream = slow.accept();
    let mut piece = vec![0; one];
    for seq in 1..=all {
        stream.read_exact(&mut piece).unwrap_or_else(|error| panic!("message {seq}: {error}"));
        let pause_ms = match seq {
            1 => 2000,
            2..5 => 500,
            _ => 0,
        };
        std::thread::sleep(Duration::from_millis(pause_ms));
    }
    assert!(arrived.try_recv().is_err(), "nobody was told of an end");
}

fn of_who_takes_no_answers_no_more_is_read(over: Over) {
    let (server, taken) = counting_server(over);
    let mut stream = over.connect(server.listening()[0]);
    let all = 2 * (QUEUE_BYTES_MAX / BULK_MAX) as u64;
    for seq in 1..=all {
        stream.write_all(&read(seq, BULK_MAX).encode()).unwrap();
    }
    let body = OstReply::Read { len: BULK_MAX as u32 };
    let answer = Reply::ok(ReplyBody::Ost(body));
    let bulk = Bulk::Data(vec![0; BULK_MAX].into());
    let mut piece = vec![0; Message::reply_to(&header(1), answer, bulk).encode().len() + BULK_MAX];
    let mut take_answer = |seq: u64| {
        stream.read_exact(&mut piece).unwrap_or_else(|error| panic!("answer {seq}: {error}"));
        assert_eq!(piece.last(), Some(&(seq as u8)));
    };
    let queued = (QUEUE_BYTES_MAX / BULK_MAX) as u64;
    let begun = Instant::now();
    while taken.load(Ordering::Relaxed) < queued {
        assert!(begun.elapsed() < LONG, "fewer are read than the queue takes");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Who takes nothing for long is given up, and that counts from before the queue was full.
    take_answer(1);
    // Long enough for all of them to be answered, if nothing held them back.
    std::thread::sleep(Duration::from_secs(2));
    // The one that was taken, what the queue takes, what the writer is at, and one that tips it
    // over; and two that the kernel has room for where its buffers may grow to 32 MiB.
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken <= queued + 5, "{taken} of {all}");
    (2..=all).for_each(take_answer);
}

fn a_peer_cannot_speak_for_endlessly_many(over: Over) {
    let (server, taken) = counting_server(over);
    let mut stream = over.connect(server.listening()[0]);
    let mut reading = stream.clone();
    let drain = std::thread::spawn(move || {
        let mut sink = [0; 1 << 16];
        while reading.read(&mut sink).is_ok_and(|read| read > 0) {}
    });
    for client in 0..2 * SPEAKS_FOR_MAX as u64 {
        let mut message = read(1, 0);
        message.header.from = Endpoint::Client(ClientId(client));
        if stream.write_all(&message.encode()).is_err() {
            break;
        }
    }
    // The reader ends when the server closes the connection, at the end of it at last.
    stream.finish();
    drain.join().unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), SPEAKS_FOR_MAX as u64);
}

/// What is still read of a connection that its client has left does not turn its answers there.
fn answers_go_to_the_youngest_connection_that_is_open(over: Over) {
    let (server, taken) = counting_server(over);
    let open = || {
        let mut stream = over.connect(server.listening()[0]);
        let seq = taken.load(Ordering::Relaxed) + 1;
        stream.write_all(&stat(seq).encode()).unwrap();
        assert_eq!(message_on(&mut stream, LONG), Some(seq));
        stream
    };
    let (mut old, mut young) = (open(), open());
    old.write_all(&stat(3).encode()).unwrap();
    assert_eq!(message_on(&mut young, LONG), Some(3));
    drop(young);
    // It may take a moment until the server has seen the end.
    let heard = (4..600).find_map(|seq| {
        old.write_all(&stat(seq).encode()).unwrap();
        message_on(&mut old, Duration::from_millis(200))
    });
    assert!(heard.is_some(), "the other is gone");
}

/// Many who ask and read nothing are stopped together, long before each is by itself; who reads
/// gets all.
fn what_waits_for_all_peers_is_bounded(over: Over) {
    const LEN: usize = 1 << 20;
    const EACH: u64 = 64;
    let (server, taken) = server_with(over, Limits { waiting_bytes: 8 << 20, ..Limits::default() });
    let mut peers: Vec<Peer> = (0..8u64)
        .map(|client| {
            let mut stream = over.connect(server.listening()[0]);
            for seq in 1..=EACH {
                let mut message = read(seq, LEN);
                message.header.from = Endpoint::Client(ClientId(client));
                stream.write_all(&message.encode()).unwrap();
            }
            stream
        })
        .collect();
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = taken.load(Ordering::Relaxed);
        if now == before && now > 0 {
            break;
        }
        before = now;
    }
    // Some lie in sockets.
    assert!(before < 8 * EACH / 2, "{before} were answered");
    let answer = Reply::ok(ReplyBody::Ost(OstReply::Read { len: LEN as u32 }));
    let bulk = Bulk::Data(vec![0; LEN].into());
    let mut piece = vec![0; Message::reply_to(&header(1), answer, bulk).encode().len() + LEN];
    for seq in 1..=EACH {
        peers[0].read_exact(&mut piece).unwrap_or_else(|error| panic!("answer {seq}: {error}"));
        assert_eq!(piece.last(), Some(&(seq as u8)));
    }
}

/// Who begins a message and stops, or sends a byte now and then, is given up, and what he had
/// taken others may have. He sends so many bytes twice a second.
fn holds_nobody_up(over: Over, drop: usize) {
    const LIMIT: usize = 4 << 20;
    let (sender, came) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| std::mem::drop(sender.lock().unwrap().send(message));
    let limits = Limits { bulk_bytes: LIMIT, ..Limits::default() };
    let server = over.server(Box::new(deliver), limits);
    let mut slow = over.connect(server.listening()[0]);
    let begun = write(1, Bytes::from(vec![1; LIMIT])).encode();
    slow.write_all(&begun).unwrap();
    slow.write_all(&[1; 1000]).unwrap();
    let mut drops = slow.clone();
    let trickle = std::thread::spawn(move || {
        while drop > 0 && drops.write_all(&vec![1; drop]).is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    // It has its room by the time that the other comes.
    std::thread::sleep(Duration::from_millis(200));
    let (client, _arrived) = client(over);
    client.set_route(OST, server.listening().to_vec());
    client.send(write(2, Bytes::from(vec![2; LIMIT])));
    let message = came.recv_timeout(LONG).unwrap();
    assert_eq!(message.header.seq, 2);
    // Also where the other came first the slow one gets its room now.
    std::mem::drop(message);
    let mut rest = Vec::new();
    assert_eq!(slow.read_to_end(&mut rest).unwrap_or(0), 0, "the connection is closed");
    trickle.join().unwrap();
}

fn a_peer_that_stops_in_the_middle_holds_nobody_up_for_long(over: Over) {
    holds_nobody_up(over, 0);
}

fn a_peer_that_is_too_slow_holds_nobody_up_for_long(over: Over) {
    holds_nobody_up(over, 1);
}

/// 200 KiB/s would do for less.
fn a_peer_that_is_too_slow_for_its_bulk_holds_nobody_up_for_long(over: Over) {
    holds_nobody_up(over, 100 << 10);
}

/// A message as a peer of another version sends it: what follows the header is its own.
fn of_version(version: u16, kind: Kind, header: Header) -> Vec<u8> {
    let rest = [0xa5; 77];
    let lengths = Lengths { extensions: 7, body: 50, bulk: 20, body_crc: 5 };
    let mut bytes = header.encode(kind, lengths);
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    let (fields, crc) = bytes.split_last_chunk_mut::<4>().unwrap();
    *crc = sateen_wire::disk::crc32c(fields).to_le_bytes();
    [&bytes[..], &rest].concat()
}

fn a_peer_of_another_version_is_told_so_on_both_sides(over: Over) {
    // As a server: every request is refused, and what comes behind it is still understood.
    let server = server(over);
    let mut stream = over.connect(server.listening()[0]);
    for seq in 1..=2 {
        stream.write_all(&of_version(PROTOCOL_VERSION + 1, Kind::Request, header(seq))).unwrap();
        let mut answer = vec![0; HEADER_BYTES];
        stream.read_exact(&mut answer).unwrap();
        let head: &[u8; HEADER_BYTES] = answer.first_chunk().unwrap();
        let (version, kind, to, _) = Header::decode_any(head).unwrap();
        assert_eq!((version, kind, to), (PROTOCOL_VERSION, Kind::Reply, header(seq).reply()));
        let rest = Message::rest_len(head).unwrap();
        answer.resize(HEADER_BYTES + rest, 0);
        stream.read_exact(&mut answer[HEADER_BYTES..]).unwrap();
        let (message, _) = Message::decode(&answer).unwrap();
        assert_eq!(error_of(&message), Some(Errno::EPROTONOSUPPORT));
    }
    let write = write(3, Bytes::from_static(&[3]));
    stream.write_all(&write.encode()).unwrap();
    stream.write_all(&[3]).unwrap();
    let mut answer = [0; HEADER_BYTES];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(Header::decode(&answer).unwrap().1, header(3).reply());

    // As a client: whoever waits for the answer hears it.
    let other = over.listen();
    let (client, arrived) = client(over);
    client.set_route(OST, vec![other.local_addr().unwrap()]);
    client.send(request(4, OstRequest::StatFs, Bulk::None));
    let mut stream = other.accept();
    stream.write_all(&of_version(PROTOCOL_VERSION + 1, Kind::Callback, header(4).reply())).unwrap();
    stream.write_all(&of_version(PROTOCOL_VERSION + 1, Kind::Reply, header(4).reply())).unwrap();
    let answer = arrived.recv_timeout(LONG).unwrap();
    assert_eq!(answer.header, header(4).reply());
    assert_eq!(error_of(&answer), Some(Errno::EPROTONOSUPPORT));
}

/// A server that takes what comes, and hangs in it while its gate is closed.
fn hanging_server(over: Over) -> (Tcp, Arc<(Mutex<bool>, Condvar)>) {
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let taken = gate.clone();
    let deliver = move |_: Message| {
        let closed = taken.0.lock().unwrap();
        drop(taken.1.wait_while(closed, |closed| *closed).unwrap());
    };
    (over.server(Box::new(deliver), Limits::default()), gate)
}

fn who_could_not_be_read_from_is_not_silent(over: Over) {
    let within = Duration::from_millis(500);
    let (server, gate) = hanging_server(over);
    let (hanging, quiet) = (client(over).0, client(over).0);
    let other = Endpoint::Client(ClientId(8));
    let from = |from, mut message: Message| {
        message.header.from = from;
        message
    };
    for tcp in [&hanging, &quiet] {
        tcp.set_route(OST, server.listening().to_vec());
    }
    assert!(server.heard(within).is_empty() && hanging.heard(within).is_empty());
    quiet.send(from(other, write(1, Bytes::from_static(&[1]))));
    until("it is heard", || server.heard(LONG) == [other]);
    *gate.0.lock().unwrap() = true;
    hanging.send(write(1, Bytes::from_static(&[1])));
    // Behind it lies what would tell that the client is there.
    hanging.send(write(2, Bytes::from_static(&[2])));
    until("the one is silent", || server.heard(within) == [CLIENT]);
    std::thread::sleep(2 * within);
    assert_eq!(
        server.heard(within),
        [CLIENT],
        "the other was silent, and this one cannot be heard"
    );
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    until("all was read, and nothing more came", || server.heard(within).is_empty());
    // Of whom it has opened a connection to it is known, too, once that answers.
    assert!(hanging.heard(LONG).is_empty());
    server.send(Message::reply_to(&header(2), Reply::ok(ReplyBody::Empty), Bulk::None));
    until("the answer is heard", || hanging.heard(LONG) == [OST]);
}

/// Waits until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connections over shared memory are bounded by themselves; whoever comes then goes over TCP.
#[test]
fn who_finds_no_room_for_shared_memory_goes_over_tcp() {
    let limits = Limits { shm_connections: 2, ..Limits::default() };
    let (server, _) = server_with(Over::Shm, limits);
    let come = |seq: u64| {
        let (sender, arrived) = channel();
        let sender = Mutex::new(sender);
        let deliver = Box::new(move |message| drop(sender.lock().unwrap().send(message)));
        let ways = Ways { folder: Some(over::folder()), tcp: true };
        let client = Tcp::start_over(&[], deliver, Limits::default(), ways).unwrap();
        client.set_route(OST, server.listening().to_vec());
        client.send(write(seq, Bytes::from(vec![seq as u8])));
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
        client
    };
    let clients: Vec<Tcp> = (1..=4).map(come).collect();
    let over_shm = |client: &Tcp| client.route(OST).unwrap().shm;
    assert!(clients.iter().map(over_shm).eq([true, true, false, false]));
    drop(clients);
    // It may take a moment until the server has seen the ends.
    until("there is room again", || over_shm(&come(5)));
}

/// One over shared memory counts as much as the descriptors that it has.
#[test]
fn there_are_no_more_connections_than_descriptors_for_them() {
    let (server, _) = server_with(Over::Shm, Limits { connections: 8, ..Limits::default() });
    let at = server.listening()[0];
    let came: Vec<Peer> = (0..3).map(|_| Over::Shm.connect(at)).collect();
    until("they are full", || sateen_lnd::shm::dial(&over::folder(), at).is_err());
    let mut refused = Over::Tcp.connect(at);
    assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0, "nor is there room for one of TCP");
    drop(came);
}
