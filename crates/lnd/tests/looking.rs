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

const CLIENT: Endpoint = Endpoint::Client(ClientId(7));

fn ping(seq: u64) -> Message {
    let header = Header {
        generation: 1,
        slot: 3,
        seq,
        ..Header::between(CLIENT, Endpoint::Mgs, ClientId(7))
    };
    Message { header, body: Body::Request(Request::Ping), bulk: Bulk::None }
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
    arrived.recv_timeout(LONG).unwrap();
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
fn look(looker: &Looker, arrived: &Receiver<(Message, ThreadId)>) -> (u64, bool) {
    let since = Instant::now();
    loop {
        looker.look();
        if let Ok((message, on)) = arrived.try_recv() {
            return (message.header.seq, on == thread::current().id());
        }
        assert!(since.elapsed() < LONG, "nothing comes");
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
        let (came, here) = look(&looker, &arrived);
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
    let (message, on) = arrived.recv_timeout(LONG).unwrap();
    assert_eq!(message.header.seq, 2);
    assert_ne!(on, thread::current().id());
    // What came before the end of looking: of that nobody else was told.
    let mut here = 0;
    for seq in 3..100 {
        client.send(ping(seq));
        assert!(looker.begin());
        answer(&mut peer);
        looker.end();
        let (message, on) = arrived.recv_timeout(LONG).unwrap();
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
            assert_eq!(arrived.recv_timeout(LONG).unwrap().0.header.seq, seq);
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
                let (message, _) = arrived.recv_timeout(LONG).expect("an answer was slept over");
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
        let (message, on) = arrived.recv_timeout(LONG).unwrap();
        assert_eq!(message.header.seq, seq);
        assert_ne!(on, thread::current().id(), "who looks does not wait");
        looker.end();
    }
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
        assert!(since.elapsed() < LONG, "nobody is told");
    };
    assert_eq!(error, Some(Errno::ECONNRESET));
    assert!(!looker.end() && !looker.begin(), "there is nothing to look at");
}
