//! One import by itself: what it sends when, and what it makes of answers that others would not be
//! told apart from.

mod line;

use std::pin::Pin;

use sateen_types::{Ino, Timestamp};
use sateen_wire::{Cred, MdtReply, MdtRequest, OstReply, OstRequest, SetAttr, Span};

use super::*;
use crate::port::{KernelInval, Task};

const ME: ClientId = ClientId(7);
const AT: Endpoint = Endpoint::Client(ME);
const SECOND_NS: u64 = 1_000_000_000;

/// Keeps what is sent, and stands still until the test sets the clock.
#[derive(Default)]
struct Still {
    sent: Mutex<Vec<Message>>,
    now_ns: AtomicU64,
}

impl Still {
    fn take(&self) -> Vec<Message> {
        core::mem::take(&mut *lock(&self.sent))
    }

    /// The only message that was sent.
    fn one(&self) -> Message {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    fn at(&self, now_ns: u64) -> &Still {
        self.now_ns.store(now_ns, Ordering::Relaxed);
        self
    }
}

impl Port for Still {
    fn now(&self) -> Timestamp {
        let mono_ns = self.now_ns.load(Ordering::Relaxed);
        Timestamp { mono_ns, wall_ns: mono_ns as i64 }
    }
    fn send(&self, message: Message) {
        lock(&self.sent).push(message);
    }
    fn spawn(&self, _: Task) {}
    fn sleep(&self, _: u64) -> Task {
        Box::pin(async {})
    }
    fn invalidate(&self, _: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async { true })
    }
    fn can_prune(&self) -> bool {
        false
    }
    fn prune(&self, _: Vec<Ino>) {}
}

fn import(target: Endpoint) -> Import {
    Import::new(AT, (target, 3), (ME, 1), (Arc::default(), Arc::default()))
}

fn connected(boot_epoch: u64, follows: u64, durable: u64) -> Reply {
    let (features, generation) = (5, 9);
    Reply::ok(ReplyBody::Connected { features, boot_epoch, generation, follows, durable })
}

fn reply(import: &Import, port: &Still, to: &Header, reply: Reply) -> Arrival {
    import.on_reply(port, &to.reply(), (reply, Bulk::None), |_, _, _| {})
}

/// An import that is connected since 1 s, and has nothing to say.
fn open(target: Endpoint, port: &Still) -> (Import, Header) {
    let import = import(target);
    import.connect(port.at(SECOND_NS));
    let connect = port.one().header;
    let arrival = reply(&import, port, &connect, connected(5, 0, 0));
    assert!(matches!(arrival, Arrival::Connected { restarted: false, follows: false }));
    (import, connect)
}

/// An MDT asks of a lock whose grant waits until its client is on record: what it is told then it
/// answers at once, and has noted nobody by that.
#[test]
fn who_has_only_answered_a_question_was_given_nothing() {
    let port = Still::default();
    let (import, _) = open(Endpoint::Mdt(0), &port);
    let ask = |request| {
        let request = (Request::Mdt(request), Bulk::None);
        import.call(&port, request, WAITED_FOR, (|| 0, false), None)
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut opens = std::pin::pin!(ask(MdtRequest::GrantSeq));
    assert!(opens.as_mut().poll(&mut context).is_pending());
    let opening = port.one();
    let answer = MdtRequest::AnswerGlimpse { fid: Fid::ROOT, question: 1, told: None };
    let mut answers = std::pin::pin!(ask(answer));
    assert!(answers.as_mut().poll(&mut context).is_pending());
    let answered = port.one().header;
    let done = Reply { last_committed: 1, ..Reply::ok(ReplyBody::Mdt(MdtReply::Done)) };
    reply(&import, &port, &answered, done);
    assert!(answers.as_mut().poll(&mut context).is_ready());
    // It crashes, and the next run knows nobody.
    let unknown = reply(&import, &port, &opening.header, Reply::error(Errno::ESTALE));
    assert!(matches!(unknown, Arrival::Unknown), "{unknown:?}");
    import.connect(&port);
    let connect = port.one().header;
    let arrival = reply(&import, &port, &connect, connected(6, 0, 0));
    assert!(matches!(arrival, Arrival::Connected { restarted: true, .. }), "{arrival:?}");
    assert_eq!(port.one().body, opening.body, "it is asked again");
    assert!(opens.as_mut().poll(&mut context).is_pending());
}

#[test]
fn who_does_not_promise_to_speak_has_all_other_features() {
    for (speaks, wanted) in [(false, FEATURES & !SPEAKS), (true, FEATURES)] {
        let (import, port) = (import(Endpoint::Mdt(0)), Still::default());
        import.promise_to_speak(speaks);
        import.connect(&port);
        let Body::Request(Request::Connect { features }) = port.one().body else {
            panic!("it connects")
        };
        assert_eq!(features, wanted);
    }
}

#[test]
fn a_connection_is_asked_for_each_second_and_after_a_refusal_at_once() {
    let (import, port) = (import(Endpoint::Ost(0)), Still::default());
    import.tick(&port, 0);
    assert!(port.take().is_empty(), "nobody wants one");
    import.connect(port.at(SECOND_NS));
    let first = port.one().header;
    import.tick(port.at(2 * SECOND_NS - 1), 0);
    assert!(port.take().is_empty());
    import.tick(port.at(2 * SECOND_NS), 0);
    assert_eq!(port.one().header, first, "the same attempt");
    import.tick(port.at(3 * SECOND_NS - 1), 0);
    assert!(port.take().is_empty());
    // What is answered to another attempt says nothing, nor what is said to another client.
    let other = Header { seq: first.seq + 1, ..first };
    let stranger = Header { client: ClientId(8), ..first };
    for to in [other, stranger] {
        let arrival = reply(&import, &port, &to, Reply::error(Errno::ESTALE));
        assert!(matches!(arrival, Arrival::Ignored), "{arrival:?}");
        let arrival = reply(&import, &port, &to, connected(5, 0, 0));
        assert!(matches!(arrival, Arrival::Ignored) && !import.is_open(), "{arrival:?}");
    }
    assert!(matches!(reply(&import, &port, &first, Reply::error(Errno::EAGAIN)), Arrival::Ignored));
    import.tick(&port, 0);
    let second = port.one().header;
    assert_eq!(second.seq, first.seq + 1);
    let refused = reply(&import, &port, &second, Reply::error(Errno::ESTALE));
    assert!(matches!(refused, Arrival::Refused(ME)), "{refused:?}");
    assert_eq!(import.info().state, ImportState::Evicted);
}

#[test]
fn a_target_that_has_failed_or_is_foreign_is_told_of_once_and_asked_each_second() {
    for (errno, stands) in [(Errno::EIO, Connection::Failed), (Errno::EXDEV, Connection::Foreign)] {
        let (import, port) = (import(Endpoint::Ost(0)), Still::default());
        assert_eq!(import.stands(), Connection::Waiting);
        import.connect(port.at(SECOND_NS));
        let news = reply(&import, &port, &port.one().header, Reply::error(errno));
        assert!(matches!(news, Arrival::Failed | Arrival::Foreign), "{news:?}");
        assert_eq!(import.stands(), stands);
        import.tick(port.at(2 * SECOND_NS - 1), 0);
        assert!(port.take().is_empty());
        import.tick(port.at(2 * SECOND_NS), 0);
        let again = reply(&import, &port, &port.one().header, Reply::error(errno));
        assert!(matches!(again, Arrival::Ignored), "{again:?}");
        import.tick(port.at(3 * SECOND_NS), 0);
        let connect = port.one().header;
        assert!(matches!(
            reply(&import, &port, &connect, connected(5, 0, 0)),
            Arrival::Connected { .. }
        ));
        assert_eq!(import.stands(), Connection::Open);
    }
}

/// What waits for the next connection would wait for ever where there will be none.
#[test]
fn who_waits_for_a_target_that_has_failed_is_told() {
    #[derive(Default)]
    struct Woken(AtomicU64);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = Arc::<Woken>::default();
    let waker = std::task::Waker::from(woken.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let port = Still::default();
    let (import, _) = open(Endpoint::Ost(0), &port);
    let request = (Request::Ost(OstRequest::StatFs), Bulk::None);
    let mut asked = std::pin::pin!(import.call(&port, request, WAITED_FOR, (|| 0, false), None));
    assert!(asked.as_mut().poll(&mut context).is_pending());
    assert!(import.lost(&port.one().header));
    woken.0.store(0, Ordering::Relaxed);
    // It is busy starting, and then it says that it cannot.
    for (errno, told) in [(Errno::EAGAIN, false), (Errno::EIO, true)] {
        import.connect(&port);
        reply(&import, &port, &port.one().header, Reply::error(errno));
        assert_eq!(woken.0.load(Ordering::Relaxed) > 0, told, "{errno:?}");
        let answer = asked.as_mut().poll(&mut context);
        let failed = matches!(&answer, std::task::Poll::Ready(Err(Errno::EIO)));
        assert_eq!((failed, answer.is_pending()), (told, !told), "{answer:?}");
        assert_eq!(import.info().state, ImportState::Disconnected);
    }
    assert_eq!(import.info().in_flight, 0, "its slot is free");
}

#[test]
fn an_idle_target_is_asked_once_whether_it_is_there() {
    let port = Still::default();
    let (import, _) = open(Endpoint::Ost(0), &port);
    import.tick(port.at(100 * SECOND_NS), 0);
    assert!(port.take().is_empty(), "nobody wants to know");
    // Asked last when it was connected to, or never.
    import.tick(port.at(4 * SECOND_NS - 1), 4 * SECOND_NS);
    assert!(port.take().is_empty());
    import.tick(port.at(6 * SECOND_NS), 4 * SECOND_NS);
    let ping = port.one();
    assert!(matches!(ping.body, Body::Request(Request::Ping)));
    assert!(import.info().asked && import.info().in_flight == 1);
    import.tick(port.at(7 * SECOND_NS - 1), 1);
    import.probe(&port);
    assert!(port.take().is_empty(), "one is under way");
    import.tick(port.at(7 * SECOND_NS), 0);
    assert_eq!(port.one().header, ping.header, "it is sent again");
    assert_eq!(import.info().state, ImportState::Disconnected);
    reply(&import, &port, &ping.header, Reply { last_committed: 4, ..Reply::ok(ReplyBody::Empty) });
    assert!(!import.info().asked && import.info().in_flight == 0);
    assert_eq!((import.info().state, import.last_committed()), (ImportState::Full, 4));
    import.probe(&port);
    assert_eq!(port.one().header.seq, ping.header.seq + 1);
    let next = import.info();
    assert!(next.asked && next.active && next.generation == 9 && next.features == 5);
}

#[test]
fn only_what_is_of_this_connection_is_current() {
    let port = Still::default();
    let (import, connect) = open(Endpoint::Mdt(0), &port);
    let now = Header { generation: 9, ..connect };
    assert!(import.is_current(&now));
    assert!(!import.is_current(&Header { generation: 8, ..now }));
    assert!(!import.is_current(&Header { client: ClientId(8), ..now }));
    assert!(import.is_active() && import.is_open() && import.generation() == 9);
    import.set_active(true);
    assert!(import.is_open(), "it was");
    import.set_active(false);
    assert!(!import.is_active() && !import.is_current(&now));
    import.connect(&port);
    assert!(port.take().is_empty(), "it is out of use");
}

#[test]
fn limits_are_kept_within_theirs() {
    let import = import(Endpoint::Ost(0));
    assert_eq!(import.rpc_bytes_max(), u64::from(RPC_PAGES_MAX) * PAGE_BYTES);
    assert_eq!(u64::from(RPC_PAGES_MAX) * PAGE_BYTES, BULK_MAX as u64);
    assert_eq!(import.set_rpc_pages_max(0), Err(Errno::ERANGE));
    assert_eq!(import.set_rpc_pages_max(RPC_PAGES_MAX + 1), Err(Errno::ERANGE));
    assert_eq!(import.set_rpc_pages_max(3), Ok(()));
    assert_eq!(import.rpc_bytes_max(), 3 * PAGE_BYTES);
    assert_eq!(import.set_rpcs_max(0), Err(Errno::ERANGE));
    assert_eq!(import.set_rpcs_max(RPCS_IN_FLIGHT_MAX + 1), Err(Errno::ERANGE));
    assert_eq!(import.writes_at_once(), 32);
    for (max, at_once) in [(RPCS_IN_FLIGHT_MAX, RPCS_IN_FLIGHT_MAX / 2), (40, 32), (8, 8), (1, 1)] {
        assert_eq!(import.set_rpcs_max(max), Ok(()));
        assert_eq!(import.writes_at_once(), at_once);
        let mut state = lock(&import.state);
        let mut taken = Vec::new();
        while state.has_slot(Rank::Looks, 0) {
            taken.extend(state.take_slot());
        }
        assert_eq!((taken.len(), state.in_flight()), (max, max));
        while state.has_slot(Rank::GivesBack, 0) {
            taken.extend(state.take_slot());
        }
        assert_eq!(taken.len(), max + 2 * SLOTS_KEPT, "those that are kept");
        state.free.extend(taken);
    }
}

#[test]
fn an_answer_refuses_the_connection_only_if_it_carries_nothing() {
    let nothing = Reply::error(Errno::ESTALE);
    assert!(is_unknown(&nothing));
    assert!(!is_unknown(&Reply { transno: 1, ..nothing.clone() }));
    assert!(!is_unknown(&Reply { last_committed: 1, ..nothing.clone() }));
    let body = ReplyBody::Mdt(MdtReply::Done);
    assert!(!is_unknown(&Reply { body, ..nothing }));
}

#[test]
fn what_an_mdt_that_was_started_again_has_of_this_client() {
    let port = Still::default();
    let (import, _) = open(Endpoint::Mdt(0), &port);
    let run = |boot_epoch, follows, durable| Run { boot_epoch, follows, durable };
    let mut state = lock(&import.state);
    use claims::Standing::{Forgotten, GoesOn, New, Refused};
    assert!(state.stands(run(6, 0, 0)) == New, "it has given nothing");
    state.given = true;
    assert!(state.stands(run(6, 0, 0)) == Forgotten);
    assert!(state.stands(run(6, 5, 0)) == GoesOn);
    assert!(state.stands(run(5, 4, 0)) == Refused, "it was told");
    state.runs.clear();
    assert!(state.stands(run(6, 0, 0)) == New);
    // What is there for sure.
    assert_eq!(state.answered_by, 5);
    state.last_committed = 10;
    assert_eq!(state.surely_there(run(6, 5, 30)), 30);
    assert_eq!(state.surely_there(run(6, 5, 3)), 10);
    assert_eq!(state.surely_there(run(7, 6, 30)), 10, "of a run that it has missed");
    assert_eq!(state.surely_there(run(7, 6, u64::MAX)), u64::MAX, "that ended in good order");
    assert!(state.can_tell(run(6, 5, 30)) && state.can_tell(run(7, 6, 30)), "nothing is missing");
    let set = MdtRequest::SetAttr {
        fid: Fid::ROOT,
        set: SetAttr::default(),
        cred: Cred { uid: 0, gid: 0, umask: 0 },
    };
    let body = ReplyBody::Mdt(MdtReply::Done);
    let done = Reply { transno: 12, last_committed: 10, ..Reply::ok(body) };
    state.uncommitted.answered(&Body::Request(Request::Mdt(set)), &done);
    assert!(state.uncommitted.has_upto(10));
    assert!(state.can_tell(run(6, 5, 30)) && !state.can_tell(run(7, 6, 30)));
}

/// An OST does not know the connection any more, and may have done an append before: whether the
/// answer was lost nobody knows. If it cannot have done it, it is asked again.
#[test]
fn an_append_that_may_have_been_done_fails_and_is_not_sent_again() {
    let object = sateen_types::ObjectId { fid: Fid::ROOT, stripe: 0 };
    let run = |copies: usize, refused: bool, boot_epoch: u64| {
        let port = Still::default();
        let (import, _) = open(Endpoint::Ost(0), &port);
        let append = OstRequest::Append { object, layout_gen: 1, grant_used: 0 };
        let bulk = Bulk::Data(bytes::Bytes::from_static(b"once"));
        let stamp = (|| 0, false);
        let asked = import.call(&port, (Request::Ost(append), bulk), WAITED_FOR, stamp, None);
        let mut asked = std::pin::pin!(asked);
        let mut poll = || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            asked.as_mut().poll(&mut context)
        };
        assert!(poll().is_pending());
        let sent = port.one();
        for copy in 1..copies {
            import.tick(port.at(SECOND_NS + copy as u64 * RESEND_NS), 0);
            assert_eq!(port.one(), sent);
        }
        if refused {
            let arrival = reply(&import, &port, &sent.header, Reply::error(Errno::ESTALE));
            assert!(matches!(arrival, Arrival::Lost), "{arrival:?}");
        }
        assert!(import.lost(&sent.header));
        import.connect(&port);
        let connect = port.one().header;
        reply(&import, &port, &connect, connected(boot_epoch, 0, 0));
        let again = port.one();
        assert_eq!((again.header.slot, again.header.seq), (sent.header.slot, 1));
        let is_append = matches!(again.body, Body::Request(Request::Ost(_)));
        let answer = if is_append {
            assert!(poll().is_pending());
            let body = OstReply::Appended { offset: 70, len: 4, boot_epoch, granted: 0 };
            Reply::ok(ReplyBody::Ost(body))
        } else {
            assert!(matches!(again.body, Body::Request(Request::Ping)) && again.bulk == Bulk::None);
            let std::task::Poll::Ready(failed) = poll() else { panic!("nobody waits for it") };
            assert_eq!(failed.unwrap_err(), Errno::EIO);
            Reply::ok(ReplyBody::Empty)
        };
        reply(&import, &port, &again.header, Reply { last_committed: 1, ..answer });
        if is_append {
            assert!(matches!(poll(), std::task::Poll::Ready(Ok(_))));
        }
        assert_eq!(import.info().in_flight, 0, "its slot is free");
        is_append
    };
    assert!(run(1, true, 5), "the only copy was refused by the run that it was sent to");
    assert!(!run(1, false, 5) && !run(1, true, 6) && !run(1, false, 6));
    assert!(!run(2, true, 5), "the other copy may have been done before that");
}

/// An OST that has too much to do when it is asked again has not answered whether it was done before.
#[test]
fn a_write_that_may_have_been_done_is_doubtful_after_a_busy_ost_too() {
    let object = sateen_types::ObjectId { fid: Fid::ROOT, stripe: 0 };
    let port = Still::default();
    let (import, _) = open(Endpoint::Ost(0), &port);
    let write = OstRequest::Write { object, layout_gen: 1, offset: 0, grant_used: 0 };
    let request = (Request::Ost(write), Bulk::Data(bytes::Bytes::from_static(b"once")));
    let mut asked = std::pin::pin!(import.call(&port, request, WAITED_FOR, (|| 0, false), None));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let first = port.one();
    assert!(import.lost(&first.header));
    import.connect(&port);
    reply(&import, &port, &port.one().header, connected(5, 0, 0));
    let second = port.one();
    reply(&import, &port, &second.header, Reply::error(Errno::EAGAIN));
    assert!(asked.as_mut().poll(&mut context).is_pending() && port.take().is_empty());
    // It is in no hurry.
    import.tick(port.at(SECOND_NS), 0);
    assert!(port.take().is_empty());
    import.tick(port.at(2 * SECOND_NS), 0);
    let third = port.one();
    assert_eq!((third.header.slot, third.header.seq), (second.header.slot, 2));
    assert_eq!((&third.body, &third.bulk), (&second.body, &second.bulk));
    reply(&import, &port, &third.header, Reply::error(Errno::ENOSPC));
    let std::task::Poll::Ready(Ok(answer)) = asked.as_mut().poll(&mut context) else {
        panic!("it was answered")
    };
    assert_eq!(answer.reply.error, Some(Errno::EIO), "some of it may be there");
    assert_eq!(import.info().in_flight, 0, "its slot is free");
}

/// What is told to an OST that has lost its power comes first, and what was under way is neither told nor
/// asked; what is asked meanwhile waits for that.
#[test]
fn an_append_beside_what_is_written_again_is_not_sent_again() {
    let object = sateen_types::ObjectId { fid: Fid::ROOT, stripe: 0 };
    let append = |data: &'static [u8]| {
        let append = OstRequest::Append { object, layout_gen: 1, grant_used: 0 };
        (Request::Ost(append), Bulk::Data(bytes::Bytes::from_static(data)))
    };
    let unstable = Arc::<Unstable>::default();
    unstable.set_max(1 << 20, 1 << 20);
    let of = (Arc::default(), unstable.clone());
    let (import, port) = (Import::new(AT, (Endpoint::Ost(0), 3), (ME, 1), of), Still::default());
    import.connect(port.at(SECOND_NS));
    reply(&import, &port, &port.one().header, connected(5, 0, 0));
    let admitted = unstable.admit(Fid::ROOT, 0, true);
    unstable.wrote((0, 5), (object, 1, 0), &bytes::Bytes::from_static(b"before"));
    drop(admitted);
    let ask = |request| import.call(&port, request, WAITED_FOR, (|| 0, false), None);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut before = std::pin::pin!(ask(append(b"under way")));
    assert!(before.as_mut().poll(&mut context).is_pending());
    assert!(import.lost(&port.one().header));
    import.connect(&port);
    reply(&import, &port, &port.one().header, connected(6, 0, 0));
    let piece = port.one();
    assert!(matches!(piece.body, Body::Request(Request::Ost(OstRequest::Write { offset: 0, .. }))));
    let mut during = std::pin::pin!(ask(append(b"during")));
    assert!(during.as_mut().poll(&mut context).is_pending() && port.take().is_empty());
    let written = OstReply::Written { len: 6, boot_epoch: 6, granted: 0 };
    reply(&import, &port, &piece.header, Reply::ok(ReplyBody::Ost(written)));
    assert!(matches!(port.one().body, Body::Request(Request::Ping)), "in the place of the first");
    let std::task::Poll::Ready(failed) = before.as_mut().poll(&mut context) else {
        panic!("nobody knows what has become of it")
    };
    assert_eq!(failed.unwrap_err(), Errno::EIO);
    assert!(during.as_mut().poll(&mut context).is_pending());
    assert_eq!(port.one().bulk, append(b"during").1);
}

#[test]
fn an_append_to_an_ost_that_is_taken_out_of_use_fails_and_is_not_sent_again() {
    let object = sateen_types::ObjectId { fid: Fid::ROOT, stripe: 0 };
    let port = Still::default();
    let (import, _) = open(Endpoint::Ost(0), &port);
    let append = OstRequest::Append { object, layout_gen: 1, grant_used: 0 };
    let request = (Request::Ost(append), Bulk::Data(bytes::Bytes::from_static(b"once")));
    let mut asked = std::pin::pin!(import.call(&port, request, WAITED_FOR, (|| 0, false), None));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    let sent = port.one();
    import.set_active(false);
    let std::task::Poll::Ready(failed) = asked.as_mut().poll(&mut context) else {
        panic!("nobody answers")
    };
    assert_eq!(failed.unwrap_err(), Errno::EIO);
    import.set_active(true);
    import.connect(&port);
    reply(&import, &port, &port.one().header, connected(5, 0, 0));
    for message in port.take() {
        assert!(matches!(message.body, Body::Request(Request::Ping)), "{message:?}");
        let to = (message.header.slot, sent.header.slot);
        reply(&import, &port, &message.header, Reply::ok(ReplyBody::Empty));
        assert_eq!(to.0, to.1, "it holds the slot");
    }
    assert_eq!(import.info().in_flight, 0);
}

/// Of two writes of the same bytes that were under way together nobody knows which the OST did last: to
/// write the younger answer again could bring back what the other one has overwritten.
#[test]
fn what_was_written_beside_the_same_bytes_is_not_kept() {
    let [object, other] = [0, 1].map(|stripe| sateen_types::ObjectId { fid: Fid::ROOT, stripe });
    let write = |object, offset| OstRequest::Write { object, layout_gen: 1, offset, grant_used: 0 };
    let append = |object| OstRequest::Append { object, layout_gen: 1, grant_used: 0 };
    let many = |object, pieces: &[(u64, u32)]| {
        let span = |(offset, len): &(u64, u32)| Span { offset: *offset, len: *len };
        let pieces = pieces.iter().map(span).collect();
        OstRequest::WriteMany { object, layout_gen: 1, pieces, grant_used: 0 }
    };
    let is_kept = |beside: Option<OstRequest>| {
        let (unstable, port) = (Arc::<Unstable>::default(), Still::default());
        unstable.set_max(1 << 20, 1 << 20);
        let import =
            Import::new(AT, (Endpoint::Ost(0), 3), (ME, 1), (Arc::default(), unstable.clone()));
        import.connect(port.at(SECOND_NS));
        reply(&import, &port, &port.one().header, connected(5, 0, 0));
        let _admitted = unstable.admit(Fid::ROOT, 0, true);
        let ask = |request| {
            let request = (Request::Ost(request), Bulk::Data(bytes::Bytes::from_static(b"four")));
            Box::pin(import.call(&port, request, WAITED_FOR, (|| 0, false), None))
        };
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // Bytes 10 to 13.
        let mut first = ask(write(object, 10));
        assert!(first.as_mut().poll(&mut context).is_pending());
        let sent = port.one().header;
        let mut second = beside.map(ask);
        if let Some(second) = &mut second {
            assert!(second.as_mut().poll(&mut context).is_pending());
        }
        let written = OstReply::Written { len: 4, boot_epoch: 5, granted: 0 };
        reply(&import, &port, &sent, Reply::ok(ReplyBody::Ost(written)));
        unstable.next_due(0, 6, 0).is_some()
    };
    assert!(is_kept(None), "nothing else is under way");
    for rival in [
        write(object, 7),
        write(object, 10),
        write(object, 13),
        many(object, &[(0, 2), (13, 2)]),
        append(object),
    ] {
        assert!(!is_kept(Some(rival.clone())), "{rival:?}");
    }
    for beside in [
        write(object, 6),
        write(object, 14),
        write(other, 10),
        many(object, &[(8, 2), (14, 2)]),
        many(other, &[(10, 4)]),
        append(other),
        OstRequest::Read { object, offset: 10, len: 4 },
    ] {
        assert!(is_kept(Some(beside.clone())), "{beside:?}");
    }
}

/// What was appended is kept against a crash of its OST as what was written there.
#[test]
fn an_append_is_written_again_where_it_was() {
    let object = sateen_types::ObjectId { fid: Fid::ROOT, stripe: 0 };
    let append = OstRequest::Append { object, layout_gen: 3, grant_used: 0 };
    let header = Header::between(AT, Endpoint::Ost(0), ME);
    let bulk = Bulk::Data(bytes::Bytes::from_static(b"append"));
    let message = Message { header, body: Body::Request(Request::Ost(append)), bulk };
    let body = OstReply::Appended { offset: 70, len: 4, boot_epoch: 9, granted: 0 };
    let written = replay::written(&message, &Reply::ok(ReplyBody::Ost(body))).unwrap();
    assert_eq!(written.place(), (9, object, 3, vec![(70, 4)], &b"appe"[..]));
    let other = OstReply::Written { len: 4, boot_epoch: 9, granted: 0 };
    assert!(replay::written(&message, &Reply::ok(ReplyBody::Ost(other))).is_none());
    // What an OST says is not believed if it cannot be.
    let says = |offset, len| {
        let body = OstReply::Appended { offset, len, boot_epoch: 9, granted: 0 };
        replay::written(&message, &Reply::ok(ReplyBody::Ost(body))).unwrap().is_wrong()
    };
    assert!(!says(70, 6) && says(70, 7) && !says(i64::MAX as u64 - 6, 6));
    assert!(says(i64::MAX as u64 - 5, 6) && says(u64::MAX - 2, 6));
}
