//! Who waits for a slot: who is woken for one, and that nobody is forgotten.

use std::sync::atomic::AtomicUsize;
use std::task::{Context, Wake, Waker};

use sateen_types::Name;

use super::*;

/// How often somebody was woken, and whether since he looked last.
#[derive(Debug, Default)]
struct Woken {
    times: AtomicUsize,
    now: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.now.store(true, Ordering::Relaxed);
    }
}

/// A call that goes on only if it is woken.
struct Caller<'a> {
    call: Option<Pin<Box<dyn Future<Output = Result<Answer>> + 'a>>>,
    woken: Arc<Woken>,
}

impl Caller<'_> {
    fn times(&self) -> usize {
        self.woken.times.load(Ordering::Relaxed)
    }

    /// Looks, if it was woken; its answer.
    fn go_on(&mut self) -> Option<Result<Answer>> {
        let call = self.call.as_mut().filter(|_| self.woken.now.swap(false, Ordering::Relaxed))?;
        let waker = Waker::from(self.woken.clone());
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            std::task::Poll::Ready(answer) => {
                self.call = None;
                Some(answer)
            }
            std::task::Poll::Pending => None,
        }
    }
}

/// Asks, and looks once.
fn ask<'a>(import: &'a Import, port: &'a Still, request: MdtRequest) -> Caller<'a> {
    let request = (Request::Mdt(request), Bulk::None);
    let call = import.call(port, request, WAITED_FOR, (|| 0, false), None);
    let mut caller = Caller { call: Some(Box::pin(call)), woken: Arc::default() };
    caller.woken.now.store(true, Ordering::Relaxed);
    assert!(caller.go_on().is_none());
    caller
}

fn looks<'a>(import: &'a Import, port: &'a Still) -> Caller<'a> {
    ask(import, port, MdtRequest::StatFs)
}

fn changes<'a>(import: &'a Import, port: &'a Still) -> Caller<'a> {
    let name = Name::new(b"name").unwrap();
    ask(import, port, MdtRequest::Unlink { parent: Fid::ROOT, name, directory: false })
}

/// A close, for example.
fn waited_for<'a>(import: &'a Import, port: &'a Still) -> Caller<'a> {
    ask(import, port, MdtRequest::Sync { upto: 1 })
}

/// An MDT with so many slots.
fn narrow(port: &Still, slots: usize) -> Import {
    let (import, _) = open(Endpoint::Mdt(0), port);
    import.set_rpcs_max(slots).unwrap();
    import
}

/// It is answered; who asked has not looked yet.
fn answer(import: &Import, port: &Still, to: &Message) {
    let done = Reply::ok(ReplyBody::Mdt(MdtReply::Done));
    reply(import, port, &to.header, done);
}

#[test]
fn thousands_who_wait_are_woken_once_for_a_slot_and_once_for_the_answer() {
    let port = Still::default();
    let import = narrow(&port, 4);
    let mut callers: Vec<_> = (0..2000).map(|_| looks(&import, &port)).collect();
    let mut ended = Vec::new();
    while ended.len() < callers.len() {
        let sent = port.take();
        assert!((1..=4).contains(&sent.len()), "{} of {}", sent.len(), ended.len());
        sent.iter().for_each(|message| answer(&import, &port, message));
        // Whoever is woken by others who go on has his turn at once.
        for _ in 0..2 {
            for (number, caller) in callers.iter_mut().enumerate() {
                if let Some(answer) = caller.go_on() {
                    assert_eq!(answer.unwrap().reply.body, ReplyBody::Mdt(MdtReply::Done));
                    ended.push(number);
                }
            }
        }
    }
    assert!(ended.is_sorted(), "in the order in which they came");
    let times = callers.iter().map(Caller::times);
    assert!(times.clone().all(|times| times <= 2), "{:?}", times.max());
    assert_eq!(lock(&import.state).in_flight(), 0);
}

#[test]
fn who_comes_does_not_take_the_slot_of_one_who_was_called() {
    let port = Still::default();
    let import = narrow(&port, 1);
    let mut first = looks(&import, &port);
    let mut second = looks(&import, &port);
    answer(&import, &port, &port.one());
    assert!(first.go_on().is_some() && second.times() == 1);
    let mut third = looks(&import, &port);
    assert!(port.take().is_empty(), "it is put by");
    assert!(second.go_on().is_none());
    answer(&import, &port, &port.one());
    assert!(second.go_on().is_some() && third.go_on().is_none());
    assert_eq!(port.take().len(), 1);
}

#[test]
fn who_gives_up_leaves_his_slot_to_the_next() {
    let port = Still::default();
    let import = narrow(&port, 1);
    let mut first = looks(&import, &port);
    let (waits, called, mut next) =
        (looks(&import, &port), looks(&import, &port), looks(&import, &port));
    drop(waits);
    answer(&import, &port, &port.one());
    assert!(first.go_on().is_some());
    assert_eq!((called.times(), next.times()), (1, 0), "nobody waits before it any more");
    drop(called);
    assert_eq!(next.times(), 1);
    assert!(next.go_on().is_none());
    assert_eq!(port.take().len(), 1);
}

#[test]
fn slots_that_are_kept_are_for_those_alone_who_find_them() {
    let port = Still::default();
    let import = narrow(&port, 2);
    let mut both = [looks(&import, &port), changes(&import, &port)];
    let mut closes: Vec<_> = (0..SLOTS_KEPT).map(|_| waited_for(&import, &port)).collect();
    let sent = port.take();
    assert_eq!(sent.len(), 2 + SLOTS_KEPT);
    let (mut look, mut change) = (looks(&import, &port), changes(&import, &port));
    let mut close = waited_for(&import, &port);
    assert!(port.take().is_empty());
    // One that was kept becomes free, and then one of those for everybody.
    answer(&import, &port, &sent[2]);
    assert!(closes[0].go_on().is_some());
    assert_eq!([look.times(), change.times(), close.times()], [0, 0, 1]);
    assert!(close.go_on().is_none());
    let closing = port.one();
    for message in &sent[3..] {
        answer(&import, &port, message);
    }
    answer(&import, &port, &closing);
    assert!(closes.iter_mut().skip(1).all(|close| close.go_on().is_some()));
    assert!(close.go_on().is_some());
    assert_eq!([look.times(), change.times()], [0, 0], "all for everybody are taken");
    // One change at once: a slot that becomes free is nothing for a second.
    import.set_mod_rpcs_max(1).unwrap();
    assert!(look.go_on().is_none() && change.go_on().is_none());
    let woken = [look.times(), change.times()];
    answer(&import, &port, &sent[0]);
    assert!(both[0].go_on().is_some());
    assert_eq!([look.times(), change.times()], [woken[0] + 1, woken[1]]);
    assert!(look.go_on().is_none());
    assert_eq!(port.take().len(), 1);
    answer(&import, &port, &sent[1]);
    assert!(both[1].go_on().is_some() && change.go_on().is_none());
    assert_eq!(port.take().len(), 1);
}

#[test]
fn all_who_wait_hear_of_a_connection_that_is_lost_and_of_the_next() {
    let port = Still::default();
    let import = narrow(&port, 1);
    let mut first = looks(&import, &port);
    let mut others: Vec<_> = (0..10).map(|_| looks(&import, &port)).collect();
    let asked = port.one();
    let unknown = reply(&import, &port, &asked.header, Reply::error(Errno::ESTALE));
    assert!(matches!(unknown, Arrival::Unknown), "{unknown:?}");
    import.connect(&port);
    let connect = port.one().header;
    reply(&import, &port, &connect, connected(6, 0, 0));
    assert!(others.iter().all(|caller| caller.times() > 0));
    assert!(others.iter_mut().all(|caller| caller.go_on().is_none()));
    let again = port.one();
    assert_eq!(again.body, asked.body, "the only slot has what was asked before");
    let mut ended = 0;
    let mut sent = vec![again];
    while ended < 11 {
        sent.iter().for_each(|message| answer(&import, &port, message));
        ended += usize::from(first.go_on().is_some());
        for _ in 0..2 {
            ended += others.iter_mut().filter_map(Caller::go_on).count();
        }
        sent = port.take();
        assert!(ended == 11 || sent.len() == 1);
    }
}

#[test]
fn one_that_was_called_in_vain_is_called_again() {
    let port = Still::default();
    let import = narrow(&port, 1);
    let mut first = looks(&import, &port);
    let mut waits = looks(&import, &port);
    answer(&import, &port, &port.one());
    assert!(first.go_on().is_some() && waits.times() == 1);
    // Who finds more slots is quicker.
    let mut close = waited_for(&import, &port);
    let closing = port.one();
    assert!(waits.go_on().is_none() && port.take().is_empty());
    answer(&import, &port, &closing);
    assert!(close.go_on().is_some());
    assert_eq!(waits.times(), 2);
    assert!(waits.go_on().is_none());
    assert_eq!(port.take().len(), 1);
}

#[test]
fn whoever_came_first_is_called_whether_he_changes_something_or_not() {
    let port = Still::default();
    let import = narrow(&port, 1);
    let mut first = looks(&import, &port);
    let (mut change, look, close) =
        (changes(&import, &port), looks(&import, &port), waited_for(&import, &port));
    let [asked, closing] = &port.take()[..] else { panic!() };
    answer(&import, &port, asked);
    assert!(first.go_on().is_some());
    assert_eq!([change.times(), look.times()], [0, 0], "one that was kept is taken");
    answer(&import, &port, closing);
    drop(close);
    assert_eq!([change.times(), look.times()], [1, 0]);
    assert!(change.go_on().is_none());
    assert_eq!(port.take().len(), 1);
}

/// Nobody fetches its answer.
#[test]
fn a_slot_is_free_when_who_has_asked_is_gone() {
    for answered in [false, true] {
        let port = Still::default();
        let import = narrow(&port, 1);
        let first = looks(&import, &port);
        let mut waits = looks(&import, &port);
        let asked = port.one();
        if answered {
            answer(&import, &port, &asked);
            drop(first);
        } else {
            drop(first);
            assert_eq!(waits.times(), 0, "its answer is to come");
            answer(&import, &port, &asked);
        }
        assert_eq!(waits.times(), 1);
        assert!(waits.go_on().is_none());
        assert_eq!(port.take().len(), 1);
    }
}

#[test]
fn more_slots_are_found_at_once_and_by_who_waits_elsewhere_now() {
    let port = Still::default();
    let import = narrow(&port, 1);
    let _first = looks(&import, &port);
    let mut waits = looks(&import, &port);
    assert_eq!(port.take().len(), 1);
    // It is looked at by another.
    let elsewhere = Arc::new(Woken::default());
    let waker = Waker::from(elsewhere.clone());
    let call = waits.call.as_mut().unwrap();
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    import.set_rpcs_max(2).unwrap();
    assert_eq!(waits.times(), 0);
    assert!(elsewhere.now.load(Ordering::Relaxed));
    waits.woken = elsewhere;
    assert!(waits.go_on().is_none());
    assert_eq!(port.take().len(), 1);
}
