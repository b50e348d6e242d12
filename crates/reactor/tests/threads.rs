//! The driver with real threads: stress, timers, delays, and what a request costs.
#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

mod toy;

mod sync {
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use std::thread::yield_now;

    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

mod api {
    pub(crate) use sateen_reactor::{Receiver, Router};
}

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sateen_osd::memory::{MemoryIndex, MemoryObjects};
use sateen_osd::{
    Given, Index, IndexError, Key, Memtable, ObjectError, ObjectStat, ObjectStore, StoreLimits,
};
use sateen_reactor::{HostParts, Reactor, Receiver, Router, TargetHost};
use sateen_target::COMMIT_AGE_NS;
use sateen_types::{Endpoint, Errno, Falloc, ObjectId, Seq, Timespec};
use sateen_wire::{
    Bulk, Message, MgsReply, MgsRequest, OstReply, OstRequest, Reply, ReplyBody, Request, StatFs,
};
use sync::{Arc, AtomicU64, Ordering};
use toy::{Client, Toy, ToyIndex, ToyJournal, connect, object, register};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct World {
    reactor: Arc<Reactor>,
    hosts: Vec<Arc<TargetHost<Toy>>>,
    journals: Vec<ToyJournal>,
}

const CLIENTS: u64 = 4;

fn world(targets: u32, chained: bool, limits: StoreLimits) -> World {
    let reactor = Arc::new(Reactor::default());
    let (mut hosts, mut journals) = (Vec::new(), Vec::new());
    for at in 0..targets {
        let peer = (chained && at + 1 < targets).then_some(Endpoint::Ost(at + 1));
        let journal = ToyJournal::default();
        let index = ToyIndex { inner: MemoryIndex::default(), durable: journal.durable.clone() };
        hosts.push(host(&reactor, at, peer, limits, Arc::new(index), (&journal, 0)));
        journals.push(journal);
    }
    reactor.start().unwrap();
    World { reactor, hosts, journals }
}

fn host(
    reactor: &Reactor,
    at: u32,
    peer: Option<Endpoint>,
    limits: StoreLimits,
    index: Arc<dyn Index>,
    (journal, journal_bytes): (&ToyJournal, u64),
) -> Arc<TargetHost<Toy>> {
    let objects = Arc::new(MemoryObjects::new(1 << 24));
    host_over(reactor, objects, (at, peer), limits, index, (journal, journal_bytes))
}

fn host_over(
    reactor: &Reactor,
    objects: Arc<dyn ObjectStore>,
    (at, peer): (u32, Option<Endpoint>),
    limits: StoreLimits,
    index: Arc<dyn Index>,
    (journal, journal_bytes): (&ToyJournal, u64),
) -> Arc<TargetHost<Toy>> {
    let mut service = Toy::new(Endpoint::Ost(at), peer, limits);
    connect(&mut service, CLIENTS + 1);
    let parts = HostParts {
        me: Endpoint::Ost(at),
        service,
        index,
        objects: Some(objects),
        journal: Box::new(journal.clone()),
        journal_bytes,
        first: sateen_target::Outbox::new(),
    };
    TargetHost::start(reactor, parts).unwrap()
}

fn version(reply: &Reply) -> u64 {
    match &reply.body {
        ReplyBody::Mgs(MgsReply::Config { version, .. }) => *version,
        other => panic!("{other:?}"),
    }
}

/// What is soon, or never.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_for_tasks(reactor: &Reactor) {
    let deadline = Instant::now() + PATIENCE;
    while reactor.executor.live() > 0 {
        assert!(Instant::now() < deadline, "tasks wait for ever: {reactor:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Durable changes, reads, writes and syncs from several threads, over targets that ask
/// each other, with a memtable so small that checkpoints never rest.
#[test]
fn stress() {
    const ROUNDS: u64 = 150;
    let limits =
        StoreLimits { memtable_bytes_max: 4000, cache_bytes_max: 4000, ..StoreLimits::default() };
    let world = world(2, true, limits);
    let threads: Vec<_> = (0..CLIENTS)
        .map(|thread| {
            let client = Client::new(thread + 2, world.reactor.router.clone());
            let reactor = world.reactor.clone();
            let journals = world.journals.clone();
            std::thread::spawn(move || {
                for slot in 0..4u16 {
                    let (client, journals) = (client.clone(), journals.clone());
                    reactor.executor.spawn(Box::pin(async move {
                        one_task(&client, slot, &journals).await;
                    }));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    wait_for_tasks(&world.reactor);
    for (host, journal) in world.hosts.iter().zip(&world.journals) {
        host.commit_all().unwrap();
        host.write_checkpoint().unwrap();
        let transno = host.inspect(|toy| toy.core.store.transno());
        assert!(transno >= CLIENTS * 4 * ROUNDS);
        assert_eq!(journal.durable.load(Ordering::SeqCst), transno);
        // The checkpoint thread may be at one of its own, and trims when that is written.
        let deadline = Instant::now() + PATIENCE;
        while journal.trimmed.load(Ordering::SeqCst) < transno {
            assert!(Instant::now() < deadline, "the journal is not trimmed");
            std::thread::sleep(Duration::from_millis(1));
            host.write_checkpoint().unwrap();
        }
    }
    world.reactor.stop();

    async fn one_task(client: &Arc<Client>, slot: u16, journals: &[ToyJournal]) {
        let (first, second) = (Endpoint::Ost(0), Endpoint::Ost(1));
        for seq in 1..=ROUNDS {
            let n = client.id.0 << 48 | u64::from(slot) << 32 | seq;
            let put = client.message(first, slot, 2 * seq - 1, register(n));
            let reply = client.call(put).await;
            assert_eq!(reply.error, None);
            assert!(reply.transno <= journals[0].durable.load(Ordering::SeqCst));
            let write = OstRequest::Write {
                object: object(n & 0xffff),
                layout_gen: 0,
                offset: 0,
                grant_used: u64::from(seq % 8 == 0),
            };
            let mut write = client.message(second, slot, seq, Request::Ost(write));
            write.bulk = Bulk::Data(Bytes::from_static(b"some data"));
            write.header.trace = 1 << 63 | n;
            assert_eq!(client.call(write).await.error, None);
            // An older key, which has to come from the index now and then.
            let old = client.id.0 << 48 | u64::from(slot) << 32 | seq.div_ceil(2);
            let mut get = client.message(first, slot, 2 * seq, Request::Mgs(MgsRequest::GetConfig));
            get.header.trace = old;
            assert_eq!(version(&client.call(get).await), old + 1);
        }
    }
}

/// A machine that stands still makes two of them one, or begins the longest long before the
/// others: that spoils one attempt; an order that is wrong spoils all.
#[test]
fn sleeps_end_in_order_and_can_be_given_up() {
    assert!((0..20).any(|_| ends_of_sleeps() == [100, 500, 900]), "never in order");
}

/// Three sleeps, in the order in which they ended.
fn ends_of_sleeps() -> Vec<u64> {
    let world = world(0, false, StoreLimits::default());
    let ended = Arc::new(sync::Mutex::new(Vec::new()));
    for ms in [900u64, 100, 500] {
        let (ended, timers) = (ended.clone(), world.reactor.timers.clone());
        world.reactor.executor.spawn(Box::pin(async move {
            let begun = Instant::now();
            drop(timers.sleep(1_000_000_000_000));
            timers.sleep(ms * 1_000_000).await;
            assert!(begun.elapsed() >= Duration::from_millis(ms));
            sync::lock(&ended).push(ms);
        }));
    }
    wait_for_tasks(&world.reactor);
    let ended = sync::lock(&ended).clone();
    println!("ended: {ended:?}");
    assert_eq!(ended.len(), 3);
    assert_eq!(format!("{:?}", world.reactor.timers), "Timers { waiting: 0 }");
    world.reactor.stop();
    ended
}

#[test]
fn a_request_to_nobody_is_refused() {
    let world = world(0, false, StoreLimits::default());
    let client = Client::new(2, world.reactor.router.clone());
    world.reactor.executor.spawn(Box::pin(async move {
        let reply = client.call(client.message(Endpoint::Ost(9), 0, 1, Request::Ping)).await;
        assert_eq!(reply.error, Some(Errno::ESHUTDOWN));
    }));
    assert_eq!(world.reactor.executor.live(), 0, "answered on this very thread");
    world.reactor.stop();
}

/// A server that is killed again and again writes little each time, and must not replay more
/// each time.
#[test]
fn what_was_replayed_counts_towards_the_next_checkpoint() {
    for (replayed, kept) in [(0, true), (u64::MAX / 2, false)] {
        let reactor = Arc::new(Reactor::default());
        let journal = ToyJournal::default();
        let durable = journal.durable.clone();
        let index = Arc::new(ToyIndex { inner: MemoryIndex::default(), durable });
        let limits = StoreLimits::default();
        let host = host(&reactor, 0, None, limits, index.clone(), (&journal, replayed));
        reactor.start().unwrap();
        let client = Client::new(2, reactor.router.clone());
        reactor.executor.spawn(Box::pin(async move {
            for seq in 1..=2 {
                let put = client.message(Endpoint::Ost(0), 0, seq, register(seq));
                assert_eq!(client.call(put).await.error, None);
            }
        }));
        wait_for_tasks(&reactor);
        let deadline = Instant::now() + PATIENCE;
        while !kept && index.checkpointed() == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        reactor.stop();
        assert_eq!(index.checkpointed() == 0, kept, "{replayed} bytes replayed");
        drop(host);
    }
}

/// An index whose checkpoints take so long.
struct SlowIndex(ToyIndex, Duration);

impl Index for SlowIndex {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, IndexError> {
        self.0.get(key)
    }
    fn scan(&self, p: &Key, a: &Key, limit: usize) -> Result<Vec<(Key, Vec<u8>)>, IndexError> {
        self.0.scan(p, a, limit)
    }
    fn checkpoint(&self, table: &Memtable, upto: u64) -> Result<(), IndexError> {
        std::thread::sleep(self.1);
        self.0.checkpoint(table, upto)
    }
    fn checkpointed(&self) -> u64 {
        self.0.checkpointed()
    }
}

/// Changes that outrun the checkpoints are slowed down before the memtable is twice full,
/// and none is stopped until the checkpoint ends. A machine that stands still for a moment spoils
/// one attempt; changes that are stopped spoil all. Each attempt gives a busy machine more time
/// than the one before: its checkpoints take longer, and its memtable holds as much more.
#[test]
fn changes_are_slowed_rather_than_stopped() {
    // The ceiling is 40 ms; the rest is for a busy machine. Who is stopped waits for 300 ms.
    let good = |scale: u32| {
        let (slowest_us, fullest) = outrun_checkpoints(scale);
        let outrun = (1001..2500).contains(&fullest);
        outrun && (1000..200_000 * u64::from(scale)).contains(&slowest_us)
    };
    assert!((1..=10).any(good), "never");
}

/// The slowest change, in microseconds, and how full the memtable was at most, per mille.
fn outrun_checkpoints(scale: u32) -> (u64, u64) {
    let reactor = Arc::new(Reactor::default());
    let journal = ToyJournal::default();
    let inner = MemoryIndex::default();
    let index = ToyIndex { inner, durable: journal.durable.clone() };
    let index = SlowIndex(index, scale * Duration::from_millis(300));
    let bytes_max = scale as usize * 8000;
    let limits = StoreLimits {
        memtable_bytes_max: bytes_max,
        cache_bytes_max: bytes_max,
        ..StoreLimits::default()
    };
    let host = host(&reactor, 0, None, limits, Arc::new(index), (&journal, 0));
    reactor.start().unwrap();
    let (slowest_us, fullest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + scale * Duration::from_millis(900);
    for thread in 0..CLIENTS {
        let client = Client::new(thread + 2, reactor.router.clone());
        let (host, slowest_us, fullest) = (host.clone(), slowest_us.clone(), fullest.clone());
        reactor.executor.spawn(Box::pin(async move {
            for seq in 1.. {
                let begun = Instant::now();
                if begun >= end {
                    break;
                }
                let write = OstRequest::Write {
                    object: object(thread),
                    layout_gen: 0,
                    offset: 0,
                    grant_used: 0,
                };
                let mut write = client.message(Endpoint::Ost(0), 0, seq, Request::Ost(write));
                write.bulk = Bulk::Data(Bytes::from_static(b"x"));
                write.header.trace = thread << 32 | seq;
                assert_eq!(client.call(write).await.error, None);
                slowest_us.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                let fill = host.inspect(|toy| toy.core.store.fill_permille());
                fullest.fetch_max(fill as u64, Ordering::Relaxed);
            }
        }));
    }
    wait_for_tasks(&reactor);
    let slowest_us = slowest_us.load(Ordering::Relaxed);
    let fullest = fullest.load(Ordering::Relaxed);
    println!("slowest change {slowest_us} us, memtable at most {fullest} per mille full");
    host.write_checkpoint().unwrap();
    reactor.stop();
    (slowest_us, fullest)
}

/// A journal that fails stops the target, loudly, and answers everybody.
#[test]
fn a_failed_disk_stops_the_target() {
    let world = world(1, false, StoreLimits::default());
    let client = Client::new(2, world.reactor.router.clone());
    world.journals[0].fail.store(1, Ordering::SeqCst);
    for slot in 0..8 {
        let client = client.clone();
        world.reactor.executor.spawn(Box::pin(async move {
            for seq in 1..=3 {
                let to = Endpoint::Ost(0);
                let reply = client.call(client.message(to, slot, seq, register(seq))).await;
                assert_eq!(reply.error, Some(Errno::EIO));
            }
        }));
    }
    wait_for_tasks(&world.reactor);
    assert!(world.hosts[0].is_poisoned());
    assert!(world.hosts[0].commit_all().is_err());
    world.reactor.stop();
}

/// A checkpoint that fails stops the target, too: whoever asks for its health sees that.
#[test]
fn a_failed_checkpoint_stops_the_target() {
    let world = world(1, false, StoreLimits::default());
    let client = Client::new(2, world.reactor.router.clone());
    let asking = client.clone();
    world.reactor.executor.spawn(Box::pin(async move {
        let message = asking.message(Endpoint::Ost(0), 0, 1, register(1));
        assert_eq!(asking.call(message).await.error, None);
    }));
    wait_for_tasks(&world.reactor);
    world.hosts[0].commit_all().unwrap();
    assert!(!world.hosts[0].is_poisoned());
    world.journals[0].fail.store(2, Ordering::SeqCst);
    assert!(world.hosts[0].write_checkpoint().is_err());
    assert!(world.hosts[0].is_poisoned());
    world.reactor.stop();
}

/// Counts what it receives.
#[derive(Default)]
struct Counts(AtomicU64);

impl Receiver for Counts {
    fn receive(self: Arc<Self>, _: Message) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Threads that have sent to somebody remember him no longer than he is there, and keep nobody.
#[test]
fn a_message_is_for_whoever_is_there_by_then() {
    let router = Arc::new(Router::default());
    let client = Client::new(2, router.clone());
    let [one, other, up]: [Arc<Counts>; 3] = Default::default();
    let to = Endpoint::Ost(7);
    let send = || router.send(client.message(to, 0, 1, Request::Ping));
    std::thread::scope(|scope| {
        let (ask, asked) = channel();
        let (done, is_done) = channel();
        scope.spawn(move || {
            for () in asked {
                send();
                done.send(()).unwrap();
            }
        });
        let sent_by_both = || {
            send();
            ask.send(()).unwrap();
            is_done.recv().unwrap();
            [&one, &other, &up].map(|counts| counts.0.load(Ordering::Relaxed))
        };
        assert_eq!(sent_by_both(), [0, 0, 0]);
        assert!(router.add(to, one.clone()));
        assert_eq!([sent_by_both(), sent_by_both()], [[2, 0, 0], [4, 0, 0]]);
        assert!(router.add(to, other.clone()));
        assert_eq!(sent_by_both(), [4, 2, 0]);
        router.remove(to);
        assert_eq!(sent_by_both(), [4, 2, 0]);
        router.set_uplink(Some(up.clone()));
        assert_eq!([sent_by_both(), sent_by_both()], [[4, 2, 2], [4, 2, 4]]);
        assert!(router.add(to, one.clone()));
        assert_eq!(sent_by_both(), [6, 2, 4]);
        router.set_uplink(None);
        router.remove(to);
        assert_eq!([&one, &other, &up].map(Arc::strong_count), [1; 3]);
        assert_eq!(sent_by_both(), [6, 2, 4]);
    });
}

/// A request that needs no disk costs no allocation in the driver, and no other thread.
#[test]
fn a_request_allocates_nothing() {
    const ROUNDS: u64 = 20_000;
    let world = world(1, false, StoreLimits::default());
    let client = Client::new(2, world.reactor.router.clone());
    world.reactor.executor.spawn(Box::pin(async move {
        let this = std::thread::current().id();
        let to = Endpoint::Ost(0);
        for seq in 1..=100 {
            client.call(client.message(to, 0, seq, Request::Ping)).await;
        }
        let (before, begun) = (ALLOCATIONS.with(Cell::get), Instant::now());
        for seq in 101..=100 + ROUNDS {
            let reply = client.call(client.message(to, 0, seq, Request::Ping)).await;
            assert_eq!(reply.error, None);
        }
        let took = begun.elapsed();
        let allocated = ALLOCATIONS.with(Cell::get) - before;
        assert_eq!(std::thread::current().id(), this);
        println!("{} ns a request, {allocated} allocations", took.as_nanos() as u64 / ROUNDS);
        assert_eq!(allocated, 0);
    }));
    assert_eq!(world.reactor.executor.live(), 0, "answered on this very thread");
    world.reactor.stop();
}

/// A task that is started when one of its kind has ended costs no allocation, unless somebody may
/// wake that one yet.
#[test]
fn tasks_take_the_memory_of_those_that_have_ended() {
    let reactor = Reactor::default();
    let wakers = Arc::new(sync::Mutex::new(Vec::with_capacity(8)));
    let start = |keeps_waker: bool| {
        let wakers = wakers.clone();
        let before = ALLOCATIONS.with(Cell::get);
        reactor.executor.spawn(std::future::poll_fn(move |context| {
            if keeps_waker {
                sync::lock(&wakers).push(context.waker().clone());
            }
            std::task::Poll::Ready(())
        }));
        assert_eq!(reactor.executor.live(), 0, "it has ended");
        ALLOCATIONS.with(Cell::get) - before
    };
    assert!(start(false) > 0, "the first");
    assert_eq!([start(false), start(false), start(true)], [0; 3]);
    assert!(start(false) > 0, "the last one may be woken");
    assert_eq!(start(false), 0);
    // It has ended all the same, and takes nothing from those that came after it.
    sync::lock(&wakers).drain(..).for_each(std::task::Waker::wake);
    assert_eq!((start(false), reactor.executor.live()), (0, 0));
}

/// Objects of which this one lies on a disk that stands still until it is told to go on.
struct Cold {
    below: MemoryObjects,
    cold: ObjectId,
    going: (std::sync::Mutex<bool>, std::sync::Condvar),
}

type Done<T> = Result<T, ObjectError>;

impl Cold {
    fn waits(&self, object: ObjectId) -> Done<()> {
        if object == self.cold {
            let going = self.going.0.lock().unwrap();
            let (_going, late) =
                self.going.1.wait_timeout_while(going, PATIENCE, |going| !*going).unwrap();
            if late.timed_out() {
                return Err(std::io::Error::from_raw_os_error(Errno::EIO.raw()).into());
            }
        }
        Ok(())
    }
}

impl ObjectStore for Cold {
    fn is_held(&self, object: ObjectId) -> bool {
        object == self.cold
    }
    fn read(&self, o: ObjectId, offset: u64, len: usize, into: &mut BytesMut) -> Done<usize> {
        self.waits(o)?;
        self.below.read(o, offset, len, into)
    }
    fn read_now(
        &self,
        o: ObjectId,
        at: u64,
        len: usize,
        into: &mut BytesMut,
    ) -> Done<Option<usize>> {
        if o == self.cold { Ok(None) } else { self.below.read_now(o, at, len, into) }
    }
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Done<usize> {
        self.waits(object)?;
        self.below.write(object, offset, data)
    }
    fn append(&self, object: ObjectId, data: &[u8]) -> Done<(u64, usize)> {
        self.waits(object)?;
        self.below.append(object, data)
    }
    fn grow(&self, object: ObjectId, size: u64) -> Done<()> {
        self.waits(object)?;
        self.below.grow(object, size)
    }
    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Done<()> {
        self.waits(object)?;
        self.below.set_times(object, atime, mtime)
    }
    fn give(&self, object: ObjectId) -> Done<Option<Given>> {
        self.below.give(object)
    }
    fn take_back(&self, object: ObjectId) {
        self.below.take_back(object);
    }
    fn alone(&self, object: ObjectId) -> Done<bool> {
        self.below.alone(object)
    }
    fn sync_given(&self) -> Done<()> {
        self.below.sync_given()
    }
    fn punch(&self, object: ObjectId, size: u64) -> Done<()> {
        self.below.punch(object, size)
    }
    fn allocate(&self, o: ObjectId, range: (u64, u64), how: Falloc, keep: bool) -> Done<()> {
        self.below.allocate(o, range, how, keep)
    }
    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Done<Option<u64>> {
        self.waits(object)?;
        self.below.seek(object, offset, hole)
    }
    fn remove(&self, object: ObjectId) -> Done<bool> {
        self.below.remove(object)
    }
    fn sync(&self, objects: &[ObjectId]) -> Done<()> {
        self.below.sync(objects)
    }
    fn stat(&self, objects: &[ObjectId]) -> Done<Vec<ObjectStat>> {
        self.below.stat(objects)
    }
    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Done<Vec<ObjectStat>> {
        self.below.list(seq, from_oid, count)
    }
    fn sequences(&self) -> Done<Vec<Seq>> {
        self.below.sequences()
    }
    fn statfs(&self) -> Done<StatFs> {
        self.below.statfs()
    }
}

/// A read that waits for the disk keeps no other request of the same thread waiting, be it of the
/// same client or of the same object's OST.
#[test]
fn a_read_from_the_disk_holds_up_nobody_else() {
    let reactor = Arc::new(Reactor::default());
    let journal = ToyJournal::default();
    let index = ToyIndex { inner: MemoryIndex::default(), durable: journal.durable.clone() };
    let (cold, warm) = (object(1), object(2));
    let below = MemoryObjects::new(1 << 20);
    for object in [cold, warm] {
        below.write(object, 0, b"twelve bytes").unwrap();
    }
    let objects = Arc::new(Cold { below, cold, going: Default::default() });
    let limits = StoreLimits::default();
    let over = objects.clone();
    let _host = host_over(&reactor, over, (0, None), limits, Arc::new(index), (&journal, 0));
    reactor.start().unwrap();
    let client = Client::new(2, reactor.router.clone());
    let answered = Arc::new(sync::Mutex::new(Vec::new()));
    let read = |slot: u16, object: ObjectId, offset: u64| {
        let (client, answered) = (client.clone(), answered.clone());
        reactor.executor.spawn(Box::pin(async move {
            let read = OstRequest::Read { object, offset, len: 100 };
            let to = Endpoint::Ost(0);
            let reply = client.call(client.message(to, slot, 1, Request::Ost(read))).await;
            let ReplyBody::Ost(OstReply::Read { len }) = reply.body else { panic!("{reply:?}") };
            sync::lock(&answered).push((object, len));
        }));
    };
    read(0, cold, 5);
    read(1, cold, 6);
    read(2, warm, 2);
    assert_eq!(*sync::lock(&answered), [(warm, 10)], "on this very thread, at once");
    assert_eq!(reactor.executor.live(), 2, "the others wait for the disk");
    *objects.going.0.lock().unwrap() = true;
    objects.going.1.notify_all();
    wait_for_tasks(&reactor);
    let mut answered = sync::lock(&answered).clone();
    answered.sort_unstable();
    assert_eq!(answered, [(cold, 6), (cold, 7), (warm, 10)]);
    reactor.stop();
}

/// Nor does what may have to wait for others who write to an object that was given to them.
#[test]
fn what_others_have_holds_up_nobody_else() {
    let reactor = Arc::new(Reactor::default());
    let journal = ToyJournal::default();
    let index = ToyIndex { inner: MemoryIndex::default(), durable: journal.durable.clone() };
    let (theirs, ours) = (object(1), object(2));
    let below = MemoryObjects::new(1 << 20);
    for object in [theirs, ours] {
        below.write(object, 0, b"twelve bytes").unwrap();
    }
    let objects = Arc::new(Cold { below, cold: theirs, going: Default::default() });
    let (limits, over) = (StoreLimits::default(), objects.clone());
    let _host = host_over(&reactor, over, (0, None), limits, Arc::new(index), (&journal, 0));
    reactor.start().unwrap();
    let client = Client::new(2, reactor.router.clone());
    let (to, answered) = (Endpoint::Ost(0), Arc::new(sync::Mutex::new(0)));
    let ask = |slot: u16, object: ObjectId| {
        let (client, answered) = (client.clone(), answered.clone());
        reactor.executor.spawn(Box::pin(async move {
            let write = OstRequest::Write { object, layout_gen: 0, offset: 0, grant_used: 0 };
            let mut write = client.message(to, slot, 1, Request::Ost(write));
            write.bulk = Bulk::Data(Bytes::from_static(b"x"));
            let reply = client.call(write).await;
            assert_eq!(reply.error, None);
            *sync::lock(&answered) += 1;
        }));
    };
    ask(0, theirs);
    ask(1, ours);
    assert_eq!((*sync::lock(&answered), reactor.executor.live()), (1, 1), "at once");
    *objects.going.0.lock().unwrap() = true;
    objects.going.1.notify_all();
    wait_for_tasks(&reactor);
    assert_eq!(*sync::lock(&answered), 2);
    reactor.stop();
}

/// While nothing happens ticks come rarely; a change that nobody waits for is durable all the same
/// when it is old enough, and not much before.
#[test]
fn idle_targets_tick_rarely_and_wake_up() {
    let world = world(1, false, StoreLimits::default());
    let client = Client::new(2, world.reactor.router.clone());
    let ticks = || world.hosts[0].inspect(|toy| toy.ticks);
    for seq in 1..=3 {
        std::thread::sleep(Duration::from_millis(100));
        // All that is counted lies between the two looks at the clock, however long they are.
        let (begun, before) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(400));
        while ticks() == before {
            assert!(begun.elapsed() < PATIENCE, "no more ticks");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (rare, slept) = (ticks() - before, begun.elapsed());
        assert!(rare <= 1 + slept.as_secs(), "{rare} ticks in {slept:?}");
        let write =
            OstRequest::Write { object: object(1), layout_gen: 0, offset: 0, grant_used: 0 };
        let mut write = client.message(Endpoint::Ost(0), 0, seq, Request::Ost(write));
        write.bulk = Bulk::Data(Bytes::from_static(b"x"));
        world.hosts[0].deliver(write);
        let begun = Instant::now();
        while world.journals[0].durable.load(Ordering::SeqCst) < seq {
            assert!(begun.elapsed() < PATIENCE, "never durable");
            std::thread::sleep(Duration::from_micros(200));
        }
        let age = begun.elapsed();
        assert!(age >= Duration::from_nanos(COMMIT_AGE_NS / 2), "durable after {age:?}");
    }
    world.reactor.stop();
}

/// Changes that come one after the other are written together, as often as they get old: that can
/// be set.
#[test]
fn changes_that_nobody_waits_for_are_written_together() {
    let world = world(1, false, StoreLimits::default());
    let client = Client::new(2, world.reactor.router.clone());
    let mut seq = 0;
    for age_ms in [200, 20] {
        let age = Duration::from_millis(age_ms);
        world.hosts[0].set_commit_age_ns(age.as_nanos() as u64);
        let (begun, before) = (Instant::now(), world.journals[0].writes.load(Ordering::SeqCst));
        while begun.elapsed() < Duration::from_secs(1) {
            seq += 1;
            let write =
                OstRequest::Write { object: object(1), layout_gen: 0, offset: 0, grant_used: 0 };
            let mut write = client.message(Endpoint::Ost(0), 0, seq, Request::Ost(write));
            write.bulk = Bulk::Data(Bytes::from_static(b"x"));
            world.hosts[0].deliver(write);
            std::thread::sleep(Duration::from_millis(2));
        }
        let (took, writes) = (begun.elapsed(), &world.journals[0].writes);
        let writes = writes.load(Ordering::SeqCst) - before;
        let most = took.as_millis() as u64 / (age_ms / 2) + 2;
        assert!((2..=most).contains(&writes), "{writes} of age {age_ms} ms in {took:?}");
    }
    world.reactor.stop();
}
