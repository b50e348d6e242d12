//! Peers with several addresses: data goes over all of them at once, each answer comes where it was
//! asked, and whoever loses one goes on with the others.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sateen_lnd::{Address, Counts, HEALTH_MAX, Peer, RailState, Tcp};
use sateen_types::{ClientId, Endpoint, Errno, Fid, ObjectId};
use sateen_wire::{
    Body, Bulk, Callback, Header, Message, OstReply, OstRequest, Reply, ReplyBody, Request,
};

const CLIENT: Endpoint = Endpoint::Client(ClientId(7));
const OST: Endpoint = Endpoint::Ost(0);
const LONG: Duration = Duration::from_secs(120);

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn request(slot: u16, seq: u64, request: OstRequest, bulk: Bulk) -> Message {
    let between = Header::between(CLIENT, OST, ClientId(7));
    let header = Header { generation: 1, slot, seq, ..between };
    Message { header, body: Body::Request(Request::Ost(request)), bulk }
}

fn object() -> ObjectId {
    ObjectId { fid: Fid::ROOT, stripe: 0 }
}

fn write(slot: u16, seq: u64, len: usize) -> Message {
    let write = OstRequest::Write { object: object(), layout_gen: 1, offset: 0, grant_used: 0 };
    request(slot, seq, write, Bulk::Data(Bytes::from(vec![seq as u8; len])))
}

fn read(slot: u16, seq: u64, len: usize) -> Message {
    let read = OstRequest::Read { object: object(), offset: 0, len: len as u32 };
    request(slot, seq, read, Bulk::Buffer(BytesMut::with_capacity(len)))
}

fn stat(seq: u64) -> Message {
    request(9, seq, OstRequest::StatFs, Bulk::None)
}

fn client() -> (Tcp, Receiver<Message>) {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| drop(sender.lock().unwrap().send(message));
    (Tcp::start(&[], Box::new(deliver)).unwrap(), arrived)
}

/// An OST at these addresses, and how many requests for data it has taken.
fn server(listen: &[SocketAddr]) -> (Arc<Tcp>, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let me: Arc<OnceLock<Weak<Tcp>>> = Arc::default();
    let (counter, answering) = (taken.clone(), me.clone());
    let deliver = move |message: Message| {
        let Some(tcp) = answering.get().and_then(Weak::upgrade) else { return };
        let (body, bulk) = match &message.body {
            Body::Request(Request::Ost(OstRequest::Write { .. })) => {
                let Bulk::Data(data) = &message.bulk else { panic!("{message:?}") };
                let len = data.len() as u32;
                let written = OstReply::Written { len, boot_epoch: 1, granted: 0 };
                (ReplyBody::Ost(written), Bulk::None)
            }
            Body::Request(Request::Ost(OstRequest::Read { len, .. })) => {
                let data = vec![message.header.seq as u8; *len as usize];
                (ReplyBody::Ost(OstReply::Read { len: *len }), Bulk::Data(data.into()))
            }
            _ => (ReplyBody::Empty, Bulk::None),
        };
        counter.fetch_add(u64::from(body != ReplyBody::Empty), Ordering::SeqCst);
        tcp.send(Message::reply_to(&message.header, Reply::ok(body), bulk));
    };
    let tcp = Arc::new(Tcp::start(listen, Box::new(deliver)).unwrap());
    me.set(Arc::downgrade(&tcp)).unwrap();
    (tcp, taken)
}

fn error_of(message: &Message) -> Option<Errno> {
    match &message.body {
        Body::Reply(reply) => reply.error,
        other => panic!("{other:?}"),
    }
}

/// Waits until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn peer(tcp: &Tcp, address: impl Into<Address>) -> Peer {
    let (all, address) = (tcp.peers(), address.into());
    all.iter().find(|peer| peer.address == address).unwrap_or_else(|| panic!("{all:?}")).clone()
}

/// Asks until both rails are there: they are dialled when there is something to be sent.
fn warm(client: &Tcp, arrived: &Receiver<Message>, rails: &[SocketAddr]) {
    client.send(stat(1));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    let mut seq = 100;
    until("all rails are up", || {
        seq += 1;
        client.send(write(100, seq, 1));
        arrived.recv_timeout(LONG).unwrap();
        rails.iter().all(|rail| peer(client, *rail).state == RailState::Up)
    });
}

#[test]
fn data_goes_over_all_rails_and_all_else_over_one() {
    let (server, taken) = server(&[any_port(), any_port()]);
    let rails = server.listening().to_vec();
    let (client, arrived) = client();
    client.set_route(OST, rails.clone());
    warm(&client, &arrived, &rails);
    let before = rails.clone().into_iter().map(|rail| peer(&client, rail).counts);
    let before: Vec<_> = before.collect();
    let (begun, requests) = (taken.load(Ordering::SeqCst), 40);
    for seq in 1..=requests {
        // Both directions, and more than a socket takes.
        client.send(write(seq as u16, seq, 1 << 20));
        client.send(read(200 + seq as u16, seq, 1 << 20));
        client.send(stat(seq));
    }
    for _ in 0..3 * requests {
        let answer = arrived.recv_timeout(LONG).unwrap();
        assert_eq!(error_of(&answer), None);
        if let (Bulk::Buffer(data), seq) = (&answer.bulk, answer.header.seq) {
            assert!(data.len() == 1 << 20 && data.iter().all(|byte| *byte == seq as u8));
        }
    }
    assert_eq!(taken.load(Ordering::SeqCst) - begun, 2 * requests, "each once");
    let mut all = Vec::new();
    for (rail, before) in rails.iter().zip(before) {
        let now = peer(&client, *rail);
        let (sent, received) = (now.counts.sent - before.sent, now.counts.received);
        assert_eq!(sent, received - before.received, "answers come where was asked: {now:?}");
        // Least bytes under way: about half of the data each.
        let bytes = |counts: Counts| counts.sent_bytes + counts.received_bytes;
        let bytes = bytes(now.counts) - bytes(before);
        assert!(bytes > (requests / 2) << 20, "{now:?}");
        all.push((now.is_first, sent));
    }
    all.sort_unstable();
    let [(false, others), (true, first)] = all[..] else { panic!("{all:?}") };
    assert_eq!(others + first, 3 * requests);
    assert!(first > requests, "what is no data goes over the first: {first}");
    // What the other side has of it: two connections of one peer, and where it is called back.
    let seen = server.peers();
    assert!(matches!(&seen[..], [one] if one.connections == 2 && one.who == [CLIENT]), "{seen:?}");
    assert_eq!(server.heard(LONG), [CLIENT]);
    assert_eq!(client.heard(LONG), [OST]);
    let first = client.peers().into_iter().find(|peer| peer.is_first).unwrap();
    let header = Header::between(OST, CLIENT, ClientId(7));
    let body = Body::Callback(Callback::Evicted);
    server.send(Message { header, body, bulk: Bulk::None });
    assert!(matches!(arrived.recv_timeout(LONG).unwrap().body, Body::Callback(_)));
    assert_eq!(peer(&client, first.address).counts.received, first.counts.received + 1);
}

#[test]
fn a_rail_that_breaks_leaves_its_peer_to_the_others_and_comes_back() {
    let (first, _) = server(&[any_port()]);
    // The second rail is taken by the test, which can break it.
    let (second, _) = server(&[any_port()]);
    let rails = vec![first.listening()[0], second.listening()[0]];
    let (client, arrived) = client();
    client.set_route(OST, rails.clone());
    warm(&client, &arrived, &rails);
    assert_eq!(peer(&client, rails[1]).health, HEALTH_MAX);
    drop(second);
    until("it is down", || peer(&client, rails[1]).state == RailState::Down);
    let health = peer(&client, rails[1]).health;
    assert!(health <= HEALTH_MAX / 2, "{health}");
    assert_eq!(peer(&client, rails[0]).state, RailState::Up, "the other stays");
    for seq in 1..=20 {
        client.send(write(1, seq, 100));
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None, "nobody notices");
    }
    until("it was tried again", || {
        client.send(write(2, 1, 100));
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
        peer(&client, rails[1]).failures > 1
    });
    assert!(peer(&client, rails[1]).health < health);
    let (_second, taken) = server(&[rails[1]]);
    let mut seq = 100;
    until("it is used again", || {
        seq += 1;
        client.send(write(3, seq, 100));
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
        taken.load(Ordering::SeqCst) > 0
    });
    until("it is well again", || peer(&client, rails[1]).health == HEALTH_MAX);
    assert_eq!(peer(&client, rails[1]).failures, 0);
}

/// Takes everything that comes on a connection, and says nothing.
fn swallow(listener: TcpListener, breaks: Receiver<()>) {
    std::thread::spawn(move || {
        let all: Vec<TcpStream> = listener.incoming().flatten().take(1).collect();
        let mut reader = all[0].try_clone().unwrap();
        std::thread::spawn(move || while reader.read(&mut [0; 1 << 16]).is_ok_and(|n| n > 0) {});
        let _ = breaks.recv();
        drop(listener);
        let _ = all[0].shutdown(std::net::Shutdown::Both);
    });
}

#[test]
fn what_a_silent_rail_does_not_answer_is_asked_over_another_once() {
    let (first, taken) = server(&[any_port()]);
    let silent = TcpListener::bind(any_port()).unwrap();
    let rails = vec![first.listening()[0], silent.local_addr().unwrap()];
    let (breaks, broken) = channel();
    swallow(silent, broken);
    let (client, arrived) = client();
    client.set_route(OST, rails.clone());
    client.send(stat(1));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    let lost = (0..).find(|slot| {
        client.send(write(*slot, 1, 100));
        arrived.recv_timeout(Duration::from_millis(200)).is_err()
    });
    let slot = lost.unwrap();
    let before = taken.load(Ordering::SeqCst);
    assert_eq!(peer(&client, rails[1]).state, RailState::Up, "nobody has asked twice yet");
    std::thread::sleep(Duration::from_secs(1));
    client.send(write(slot, 1, 100));
    let answer = arrived.recv_timeout(LONG).unwrap();
    assert_eq!((answer.header.slot, error_of(&answer)), (slot, None));
    assert_eq!(taken.load(Ordering::SeqCst), before + 1, "once");
    let suspect = peer(&client, rails[1]);
    assert_eq!((suspect.state, suspect.health), (RailState::Suspect, HEALTH_MAX / 2));
    let sent = suspect.counts.sent;
    for seq in 2..50 {
        client.send(write(0, seq, 1 << 16));
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    }
    assert_eq!(peer(&client, rails[1]).counts.sent, sent, "nothing else goes there");
    // Whoever asked it there first hears of the end, too, and has had its answer.
    breaks.send(()).unwrap();
    let told = arrived.recv_timeout(LONG).unwrap();
    assert_eq!((told.header, error_of(&told)), (answer.header, Some(Errno::ECONNRESET)));
    until("it is down", || peer(&client, rails[1]).state == RailState::Down);
}

#[test]
fn a_request_on_a_rail_that_breaks_is_told_so_and_asked_again() {
    let (first, taken) = server(&[any_port()]);
    let silent = TcpListener::bind(any_port()).unwrap();
    let rails = vec![first.listening()[0], silent.local_addr().unwrap()];
    let (breaks, broken) = channel();
    swallow(silent, broken);
    let (client, arrived) = client();
    client.set_route(OST, rails.clone());
    client.send(stat(1));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    let lost = (0..).find(|slot| {
        client.send(write(*slot, 1, 100));
        arrived.recv_timeout(Duration::from_millis(200)).is_err()
    });
    let (slot, before) = (lost.unwrap(), taken.load(Ordering::SeqCst));
    breaks.send(()).unwrap();
    let told = arrived.recv_timeout(LONG).unwrap();
    assert_eq!((told.header.slot, error_of(&told)), (slot, Some(Errno::ECONNRESET)));
    client.send(write(slot, 1, 100));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    assert_eq!(taken.load(Ordering::SeqCst), before + 1);
    assert!(arrived.recv_timeout(Duration::from_millis(300)).is_err(), "and nothing else");
    let dropped = peer(&client, rails[1]).counts.dropped;
    assert_eq!(dropped, 1);
}

/// An address that has got another owner: what is asked there is asked again where the target is, and
/// little else is tried there.
#[test]
fn an_address_of_somebody_else_is_no_rail() {
    let (first, taken) = server(&[any_port()]);
    let me: Arc<OnceLock<Weak<Tcp>>> = Arc::default();
    let (answering, asked) = (me.clone(), Arc::<AtomicU64>::default());
    let counter = asked.clone();
    let deliver = move |message: Message| {
        counter.fetch_add(1, Ordering::SeqCst);
        let Some(tcp) = answering.get().and_then(Weak::upgrade) else { return };
        tcp.send(Message::reply_to(&message.header, Reply::error(Errno::ESTALE), Bulk::None));
    };
    let other = Arc::new(Tcp::start(&[any_port()], Box::new(deliver)).unwrap());
    me.set(Arc::downgrade(&other)).unwrap();
    let rails = vec![first.listening()[0], other.listening()[0]];
    let (client, arrived) = client();
    client.set_route(OST, rails);
    client.send(stat(1));
    assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    let mut again = 0;
    let mut seq = 0;
    until("it was tried", || {
        seq += 1;
        client.send(write(1, seq, 100));
        match error_of(&arrived.recv_timeout(LONG).unwrap()) {
            None => {}
            Some(Errno::ECONNRESET) => {
                again += 1;
                client.send(write(1, seq, 100));
                assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
            }
            other => panic!("{other:?}"),
        }
        asked.load(Ordering::SeqCst) > 0
    });
    for seq in seq + 1..seq + 50 {
        client.send(write(1, seq, 100));
        assert_eq!(error_of(&arrived.recv_timeout(LONG).unwrap()), None);
    }
    assert_eq!((again, asked.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(taken.load(Ordering::SeqCst), seq + 49, "each once");
}

/// An OST that answers reads when it is told to; which have come.
fn holding(listen: &[SocketAddr]) -> (Arc<Tcp>, Receiver<Header>) {
    let (sender, held) = channel();
    let sender = Mutex::new(sender);
    let me: Arc<OnceLock<Weak<Tcp>>> = Arc::default();
    let answering = me.clone();
    let deliver = move |message: Message| {
        if let Body::Request(Request::Ost(OstRequest::Read { .. })) = &message.body {
            return sender.lock().unwrap().send(message.header).unwrap();
        }
        let Some(tcp) = answering.get().and_then(Weak::upgrade) else { return };
        tcp.send(Message::reply_to(&message.header, Reply::ok(ReplyBody::Empty), Bulk::None));
    };
    let tcp = Arc::new(Tcp::start(listen, Box::new(deliver)).unwrap());
    me.set(Arc::downgrade(&tcp)).unwrap();
    (tcp, held)
}

#[test]
fn a_late_copy_of_what_was_asked_before_turns_no_answer_away() {
    let (server, held) = holding(&[any_port(), any_port()]);
    let rails = server.listening().to_vec();
    let (client, arrived) = client();
    client.set_route(OST, rails.clone());
    warm(&client, &arrived, &rails);
    for round in 1..20 {
        // Each waits on another rail, in a buffer of its own.
        let reads = [(3, 2 * round), (4, 2 * round)];
        for (slot, seq) in reads {
            client.send(read(slot, seq, 4096));
        }
        let came = reads.map(|_| held.recv_timeout(LONG).unwrap());
        for (slot, seq) in reads {
            // Not spread: it comes where everything else does.
            client.send(request(slot, seq - 1, OstRequest::StatFs, Bulk::None));
            let answered = arrived.recv_timeout(LONG).unwrap().header;
            assert_eq!((answered.slot, answered.seq), (slot, seq - 1));
        }
        for header in came {
            let reply = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 4096 }));
            let data = Bulk::Data(vec![header.seq as u8; 4096].into());
            server.send(Message::reply_to(&header, reply, data));
        }
        for _ in reads {
            let answer = arrived.recv_timeout(LONG).unwrap();
            let Bulk::Buffer(buffer) = &answer.bulk else { panic!("{round}: {:?}", answer.bulk) };
            assert!(*buffer == vec![answer.header.seq as u8; 4096]);
        }
    }
}
