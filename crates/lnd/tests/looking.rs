//! Answers over shared memory are taken by whoever looks for them, on his thread; and by the
//! connection's own reader when nobody does, whenever he stopped.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod over;

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use over::{LONG, Over, Peer};
use sateen_lnd::{Looker, Tcp};
use sateen_types::{ClientId, Endpoint, Errno};
use sateen_wire::{Body, Bulk, HEADER_BYTES, Header, Message, Reply, ReplyBody, Request};

/// Within this an answer comes that nobody sleeps over: the reader looks by himself after 10 s.
const SOON: Duration = Duration::from_secs(8);
const CLIENT: Endpoint = Endpoint::Client(ClientId(7));

fn ping_to(target: Endpoint, seq: u64) -> Message {
    let between = Header::between(CLIENT, target, ClientId(7));
    let header = Header { generation: 1, slot: 3, seq, ..between };
    Message { header, body: Body::Request(Request::Ping), bulk: Bulk::None }
}

fn ping(seq: u64) -> Message {
    ping_to(Endpoint::Mgs, seq)
}

/// A client's network over shared memory, what arrives there and on which thread, and its peer.
fn connected() -> (Tcp, Receiver<(Message, ThreadId)>, Peer) {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| {
        drop(sender.lock().unwrap().send((message, thread::current().id())));
    };
    let client = Over::Shm.client(Box::new(deliver));
    let listener = Over::Shm.listen();
    client.set_route(Endpoint::Mgs, vec![listener.local_addr().unwrap()]);
    client.send(ping(1));
    let mut peer = listener.accept();
    answer(&mut peer);
    arrived.recv_timeout(SOON).unwrap();
    (client, arrived, peer)
}

/// Reads a request; the bytes of its answer.
fn asked(peer: &mut Peer) -> Option<Vec<u8>> {
    let mut message = vec![0; HEADER_BYTES];
    peer.read_exact(&mut message).ok()?;
    let rest = Message::rest_len(message.first_chunk().unwrap()).unwrap();
    message.resize(HEADER_BYTES + rest, 0);
    peer.read_exact(&mut message[HEADER_BYTES..]).unwrap();
    let header = Message::decode(&message).unwrap().0.header;
    Some(Message::reply_to(&header, Reply::ok(ReplyBody::Empty), Bulk::None).encode())
}

fn answer(peer: &mut Peer) {
    let bytes = asked(peer).unwrap();
    peer.write_all(&bytes).unwrap();
}

/// Looks until a message has come; its number, and whether it was taken on this thread.
fn look(looker: &mut Looker, arrived: &Receiver<(Message, ThreadId)>) -> (u64, bool) {
    let since = Instant::now();
    loop {
        looker.look();
        if let Ok((message, on)) = arrived.try_recv() {
            return (message.header.seq, on == thread::current().id());
        }
        assert!(since.elapsed() < SOON, "nothing comes");
    }
}

#[test]
fn who_looks_takes_the_answers_and_nobody_else_is_woken() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    assert!(!looker.begin(), "nothing is asked");
    let mut by_others = 0;
    for seq in 2..2000 {
        client.send(ping(seq));
        assert!(looker.begin());
        answer(&mut peer);
        let (came, here) = look(&mut looker, &arrived);
        assert_eq!(came, seq);
        by_others += u32::from(!here);
        assert!(!looker.look() && !looker.end());
    }
    assert!(!looker.begin(), "all is answered");
    // At the beginning the reader may not have gone to sleep yet.
    assert!(by_others < 10, "{by_others} answers were taken by the reader");
}

#[test]
fn what_comes_when_nobody_looks_any_more_is_read_all_the_same() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    client.send(ping(2));
    assert!(looker.begin() && !looker.look() && !looker.end());
    answer(&mut peer);
    let (message, on) = arrived.recv_timeout(SOON).unwrap();
    assert_eq!(message.header.seq, 2);
    assert_ne!(on, thread::current().id());
    // What came before the end of looking: of that nobody else was told.
    let mut here = 0;
    for seq in 3..100 {
        // So that the reader sleeps again.
        thread::sleep(Duration::from_millis(2));
        client.send(ping(seq));
        assert!(looker.begin());
        answer(&mut peer);
        looker.end();
        let (message, on) = arrived.recv_timeout(SOON).unwrap();
        assert_eq!(message.header.seq, seq);
        here += u32::from(on == thread::current().id());
    }
    assert!(here > 50, "only {here} answers were taken here");
}

/// What is read from the memory at once is more than one message.
#[test]
fn answers_that_come_together_are_all_taken() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    for seq in (2..200).step_by(2) {
        client.send(ping(seq));
        client.send(ping(seq + 1));
        let mut both = asked(&mut peer).unwrap();
        both.extend(asked(&mut peer).unwrap());
        assert!(looker.begin());
        if seq % 4 == 0 {
            peer.write_all(&both).unwrap();
        } else {
            // The first and a part of the second, which comes after the end of looking.
            let (most, rest) = both.split_at(both.len() - 3);
            peer.write_all(most).unwrap();
            looker.look();
            looker.end();
            peer.write_all(rest).unwrap();
        }
        // Once: what is read ahead is seen to at the end, if not before.
        looker.look();
        looker.end();
        for seq in [seq, seq + 1] {
            assert_eq!(arrived.recv_timeout(SOON).unwrap().0.header.seq, seq);
        }
    }
}

/// Two who look and stop at any moment, while answers come, alone and together: none is slept over.
#[test]
fn no_answer_is_slept_over_however_briefly_is_looked() {
    const ROUNDS: u64 = 10_000;
    let (client, arrived, mut peer) = connected();
    let echo = thread::spawn(move || {
        while let Some(mut bytes) = asked(&mut peer) {
            while peer.has_something() {
                bytes.extend(asked(&mut peer).unwrap());
            }
            if peer.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut looker = client.looker();
            let mut round = 0_u32;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                looker.begin();
                for _ in 0..round % 3 {
                    looker.look();
                }
                looker.end();
                round = round.wrapping_add(1);
                thread::yield_now();
            }
        });
        let mut looker = client.looker();
        for seq in 2..ROUNDS {
            let last = if seq % 5 == 0 { 3 } else { 1 } + seq * 4;
            (seq * 4..last).for_each(|seq| client.send(ping(seq)));
            if looker.begin() {
                for _ in 0..seq % 40 {
                    looker.look();
                }
                looker.end();
            }
            for seq in seq * 4..last {
                let (message, _) = arrived.recv_timeout(SOON).expect("an answer was slept over");
                assert_eq!(message.header.seq, seq);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        other.join().unwrap();
    });
    drop(client);
    echo.join().unwrap();
}

#[test]
fn what_comes_in_parts_is_left_to_the_reader() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    for (seq, cut) in [(2, 1), (3, HEADER_BYTES - 1), (4, HEADER_BYTES), (5, HEADER_BYTES + 1)] {
        client.send(ping(seq));
        let bytes = asked(&mut peer).unwrap();
        assert!(looker.begin());
        let (first, rest) = bytes.split_at(cut);
        peer.write_all(first).unwrap();
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(20) {
            assert!(!looker.look(), "half a message was taken");
        }
        peer.write_all(rest).unwrap();
        let (message, on) = arrived.recv_timeout(SOON).unwrap();
        assert_eq!(message.header.seq, seq);
        assert_ne!(on, thread::current().id(), "who looks does not wait");
        looker.end();
    }
}

/// The reader sleeps inside a message when somebody else begins to look, so that no bell is rung.
#[test]
fn the_rest_of_a_message_is_not_slept_over_because_somebody_looks() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    for seq in 2..30 {
        client.send(ping(seq));
        let bytes = asked(&mut peer).unwrap();
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        peer.write_all(first).unwrap();
        // Until he has taken what there is, and sleeps.
        thread::sleep(Duration::from_millis(10));
        assert!(looker.begin());
        peer.write_all(rest).unwrap();
        looker.look();
        looker.end();
        assert_eq!(arrived.recv_timeout(SOON).unwrap().0.header.seq, seq);
    }
}

/// Of whom an answer is delivered the others are not looked at meanwhile, however long that takes.
#[test]
fn who_is_at_an_answer_keeps_no_other_connection_waiting() {
    const OST: Endpoint = Endpoint::Ost(0);
    let (held, holds) = (Mutex::new(false), std::sync::Condvar::new());
    let gate = std::sync::Arc::new((held, holds));
    let (sender, arrived) = channel();
    let (sender, opens) = (Mutex::new(sender), gate.clone());
    let deliver = move |message: Message| {
        let first = message.header.from == Endpoint::Mgs && message.header.seq > 1;
        let _ = sender.lock().unwrap().send(message.header.from);
        if first {
            let (held, holds) = &*opens;
            let waits = |done: &mut bool| !*done;
            drop(holds.wait_timeout_while(held.lock().unwrap(), LONG, waits).unwrap());
        }
    };
    let client = Over::Shm.client(Box::new(deliver));
    let mut peers: Vec<Peer> = [Endpoint::Mgs, OST]
        .map(|target| {
            let listener = Over::Shm.listen();
            client.set_route(target, vec![listener.local_addr().unwrap()]);
            client.send(ping_to(target, 1));
            let mut peer = listener.accept();
            answer(&mut peer);
            assert_eq!(arrived.recv_timeout(SOON).unwrap(), target);
            peer
        })
        .into();
    // Both readers sleep.
    thread::sleep(Duration::from_millis(50));
    client.send(ping_to(Endpoint::Mgs, 2));
    client.send(ping_to(OST, 2));
    let mut looker = client.looker();
    thread::scope(|scope| {
        assert!(looker.begin());
        answer(&mut peers[0]);
        scope.spawn(|| {
            while !looker.look() {
                thread::yield_now();
            }
            looker.end();
        });
        assert_eq!(arrived.recv_timeout(SOON).unwrap(), Endpoint::Mgs);
        answer(&mut peers[1]);
        assert_eq!(arrived.recv_timeout(SOON).unwrap(), OST, "it waits for the other");
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
    });
}

/// They may have the kernel asked for something that waits for the thread that looks.
#[test]
fn callbacks_are_left_to_the_reader() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    for seq in 2..20 {
        client.send(ping(seq));
        let reply = asked(&mut peer).unwrap();
        let header = Header::between(Endpoint::Mgs, CLIENT, ClientId(7));
        let body = Body::Callback(sateen_wire::Callback::Evicted);
        let mut bytes = Message { header, body, bulk: Bulk::None }.encode();
        bytes.extend(reply);
        assert!(looker.begin());
        peer.write_all(&bytes).unwrap();
        looker.look();
        looker.end();
        let (callback, on) = arrived.recv_timeout(SOON).unwrap();
        assert!(matches!(callback.body, Body::Callback(_)));
        assert_ne!(on, thread::current().id());
        assert_eq!(arrived.recv_timeout(SOON).unwrap().0.header.seq, seq, "in their order");
    }
}

#[test]
fn a_connection_that_is_made_anew_is_looked_at_and_one_that_is_gone_is_not() {
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let deliver = move |message| {
        drop(sender.lock().unwrap().send((message, thread::current().id())));
    };
    let client = Over::Shm.client(Box::new(deliver));
    let mut looker = client.looker();
    let mut here = 0;
    for seq in (2..40).step_by(2) {
        let listener = Over::Shm.listen();
        client.set_route(Endpoint::Mgs, vec![listener.local_addr().unwrap()]);
        client.send(ping(seq));
        let mut peer = listener.accept();
        answer(&mut peer);
        assert_eq!(arrived.recv_timeout(SOON).unwrap().0.header.seq, seq);
        client.send(ping(seq + 1));
        assert!(looker.begin());
        let gone = seq % 4 == 0;
        let peer = if gone {
            // It is told that there will be no answer, while it looks.
            drop(peer);
            None
        } else {
            answer(&mut peer);
            Some(peer)
        };
        let (came, on) = look(&mut looker, &arrived);
        assert_eq!(came, seq + 1);
        here += u32::from(on && !gone);
        looker.end();
        drop(peer);
    }
    assert!(here > 0, "none was looked at");
}

#[test]
fn who_finds_nonsense_ends_the_connection() {
    let (client, arrived, mut peer) = connected();
    let mut looker = client.looker();
    client.send(ping(2));
    let mut bytes = asked(&mut peer).unwrap();
    assert!(looker.begin());
    // Its checksum is wrong then.
    bytes[HEADER_BYTES - 1] ^= 1;
    peer.write_all(&bytes).unwrap();
    let since = Instant::now();
    let error = loop {
        looker.look();
        if let Ok((message, _)) = arrived.try_recv() {
            let Body::Reply(reply) = message.body else { panic!("{message:?}") };
            break reply.error;
        }
        assert!(since.elapsed() < SOON, "nobody is told");
    };
    assert_eq!(error, Some(Errno::ECONNRESET));
    assert!(!looker.end() && !looker.begin(), "there is nothing to look at");
}
