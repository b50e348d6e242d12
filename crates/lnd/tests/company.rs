//! Messages that travel together: what nobody waits for waits for others, for a moment; it goes at
//! once where somebody waits after all, and nothing of it is lost when a connection breaks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod over;

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use over::{LONG, Over, Peer};
use sateen_lnd::{Limits, Tcp};
use sateen_types::{ClientId, Endpoint, Errno, Fid};
use sateen_wire::{
    Body, Bulk, Callback, HEADER_BYTES, Header, MdtReply, MdtRequest, Message, OpenId, Reply,
    ReplyBody, Request,
};

both! {
    what_nobody_waits_for_waits_for_others_or_goes_alone
    it_goes_at_once_for_whoever_waits_in_the_end_and_before_a_callback_is_heard
    each_is_answered_once_when_the_connection_breaks
    answers_to_what_was_read_together_travel_together_and_wait_for_nothing
}

const CLIENT: Endpoint = Endpoint::Client(ClientId(7));
const MDT: Endpoint = Endpoint::Mdt(0);
const ROUNDS: u64 = 300;

fn message(seq: u64, request: Request) -> Message {
    let header = Header { generation: 1, seq, ..Header::between(CLIENT, MDT, ClientId(7)) };
    Message { header, body: Body::Request(request), bulk: Bulk::None }
}

/// Nobody waits for its answer.
fn close(seq: u64) -> Message {
    let close = MdtRequest::Close { fid: Fid::ROOT, open_id: OpenId { id: seq }, report: None };
    message(seq, Request::Mdt(close))
}

/// Somebody waits for its answer.
fn ping(seq: u64) -> Message {
    message(seq, Request::Ping)
}

/// A client's network, and what arrives there.
fn client(over: Over) -> (Tcp, Receiver<Message>) {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| drop(sender.lock().unwrap().send(message));
    (over.client(Box::new(deliver)), arrived)
}

/// A client's network that is connected to a peer, which is played by the test.
fn connected(over: Over) -> (Tcp, Receiver<Message>, Peer) {
    let listener = over.listen();
    let (client, arrived) = client(over);
    client.set_route(MDT, vec![listener.local_addr().unwrap()]);
    client.send(ping(1));
    let mut stream = listener.accept();
    assert_eq!(next(&mut stream).header.seq, 1);
    (client, arrived, stream)
}

/// The next message on a stream.
fn next(stream: &mut Peer) -> Message {
    let mut bytes = vec![0; HEADER_BYTES];
    stream.read_exact(&mut bytes).unwrap();
    let rest = Message::rest_len(bytes.first_chunk().unwrap()).unwrap();
    bytes.resize(HEADER_BYTES + rest, 0);
    stream.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
    Message::decode(&bytes).unwrap().0
}

fn what_nobody_waits_for_waits_for_others_or_goes_alone(over: Over) {
    let (client, _arrived, mut stream) = connected(over);
    let (mut kept, mut at_once, mut seq) = (0, 0, 1);
    for _ in 0..ROUNDS {
        // It goes in any case.
        client.send(close(seq + 1));
        kept += u64::from(!stream.has_something());
        assert_eq!(next(&mut stream).header.seq, seq + 1);
        // In order, with more of them than are ever kept back.
        (2..=40).for_each(|at| client.send(close(seq + at)));
        client.send(ping(seq + 41));
        at_once += u64::from(stream.has_something());
        for at in 2..=41 {
            assert_eq!(next(&mut stream).header.seq, seq + at);
        }
        seq += 41;
    }
    // Over loopback what is sent is there at once, unless the kernel has much else to do.
    assert!(kept > ROUNDS / 2, "{kept} of {ROUNDS} were kept back");
    assert!(at_once > ROUNDS / 2, "{at_once} of {ROUNDS} that somebody waits for came at once");
}

fn it_goes_at_once_for_whoever_waits_in_the_end_and_before_a_callback_is_heard(over: Over) {
    let (client, arrived, mut stream) = connected(over);
    let (mut hurried, mut called, mut seq) = (0, 0, 1);
    for _ in 0..ROUNDS {
        client.send(close(seq + 1));
        client.hurry();
        hurried += u64::from(stream.has_something());
        assert_eq!(next(&mut stream).header.seq, seq + 1);

        client.send(close(seq + 2));
        let body =
            Body::Callback(Callback::Blocking { id: sateen_wire::LockId(1), fid: Fid::ROOT });
        let header = Header::between(MDT, CLIENT, ClientId(7));
        stream.write_all(&Message { header, body, bulk: Bulk::None }.encode()).unwrap();
        assert!(matches!(arrived.recv_timeout(LONG).unwrap().body, Body::Callback(_)));
        called += u64::from(stream.has_something());
        assert_eq!(next(&mut stream).header.seq, seq + 2);
        seq += 2;
    }
    assert!(hurried > ROUNDS / 2, "{hurried} of {ROUNDS} came at once");
    assert!(called > ROUNDS / 2, "{called} of {ROUNDS} came before the callback was heard");
}

fn each_is_answered_once_when_the_connection_breaks(over: Over) {
    for round in 0..ROUNDS {
        let (client, arrived, stream) = connected(over);
        let last = 2 + round % 8;
        (2..last).for_each(|seq| client.send(close(seq)));
        // Before or after they have gone.
        if round % 3 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(stream);
        // What it is told on a connection that it dials anew is that nobody is there.
        let mut answered: Vec<u64> = (1..last)
            .map(|_| {
                let answer = arrived.recv_timeout(LONG).unwrap();
                let Body::Reply(reply) = answer.body else { panic!("{:?}", answer.body) };
                assert!(matches!(reply.error, Some(Errno::ECONNRESET | Errno::ESHUTDOWN)));
                answer.header.seq
            })
            .collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(1..last), "{answered:?}");
        drop(client);
        assert!(arrived.recv_timeout(LONG).is_err(), "nothing is answered twice");
    }
}

/// A server that answers everything, and `before` does something with each request first.
fn server(over: Over, before: impl Fn(&Tcp, &Message) + Send + Sync + 'static) -> Arc<Tcp> {
    let me: Arc<OnceLock<Weak<Tcp>>> = Arc::default();
    let answering = me.clone();
    let deliver = move |message: Message| {
        let Some(tcp) = answering.get().and_then(Weak::upgrade) else { return };
        before(&tcp, &message);
        let reply = Reply::ok(ReplyBody::Mdt(MdtReply::Done));
        tcp.send(Message::reply_to(&message.header, reply, Bulk::None));
    };
    let tcp = Arc::new(over.server(Box::new(deliver), Limits::default()));
    me.set(Arc::downgrade(&tcp)).unwrap();
    tcp
}

fn answers_to_what_was_read_together_travel_together_and_wait_for_nothing(over: Over) {
    let (sender, begun) = channel();
    let (gate, opened) = channel();
    let (sender, opened) = (Mutex::new(sender), Mutex::new(opened));
    // At a ping it hangs, as in a disk: what was gathered goes before.
    let server = server(over, move |tcp, message| {
        if matches!(message.body, Body::Request(Request::Ping)) {
            sender.lock().unwrap().send(()).unwrap();
            opened.lock().unwrap().recv_timeout(LONG).unwrap();
            tcp.send_gathered();
            sender.lock().unwrap().send(()).unwrap();
            opened.lock().unwrap().recv_timeout(LONG).unwrap();
        }
    });
    let mut stream = over.connect(server.listening()[0]);
    let (mut gathered, mut seq) = (0, 0);
    for _ in 0..ROUNDS {
        let bytes = |message: Message| message.encode();
        let all = [close(seq + 1), close(seq + 2), ping(seq + 3)].map(bytes).concat();
        stream.write_all(&all).unwrap();
        begun.recv_timeout(LONG).unwrap();
        // They wait for the ping's, which has begun; for a millisecond at least.
        gathered += u64::from(!stream.has_something());
        gate.send(()).unwrap();
        begun.recv_timeout(LONG).unwrap();
        // But for no disk: it hangs still.
        assert_eq!(next(&mut stream).header.seq, seq + 1);
        assert_eq!(next(&mut stream).header.seq, seq + 2);
        gate.send(()).unwrap();
        assert_eq!(next(&mut stream).header.seq, seq + 3);
        // Half a message is waited for by nobody.
        let half = bytes(close(seq + 5));
        stream
            .write_all(&[bytes(close(seq + 4)), half[..half.len() / 2].to_vec()].concat())
            .unwrap();
        assert_eq!(next(&mut stream).header.seq, seq + 4);
        stream.write_all(&half[half.len() / 2..]).unwrap();
        assert_eq!(next(&mut stream).header.seq, seq + 5);
        seq += 5;
    }
    assert!(gathered > ROUNDS / 2, "{gathered} of {ROUNDS} were gathered");
}
