//! Model checking: the driver's own files compiled against shuttle's primitives, and run
//! under thousands of thread schedules. What is looked for: a group commit that somebody
//! waits for and nobody writes, an answer before its change is durable, two threads in one
//! service, a task that is woken and never polled.
//!
//! `SEED=n` repeats one run of schedules.
#![allow(dead_code, missing_docs, unreachable_pub, unused_imports)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/executor.rs"]
mod executor;
#[path = "../src/host.rs"]
mod host;
#[path = "../src/pool.rs"]
mod pool;
#[path = "../src/reactor.rs"]
mod reactor;
#[path = "../src/router.rs"]
mod router;
#[path = "../src/run_loop.rs"]
mod run_loop;
#[path = "../src/sleepers.rs"]
mod sleepers;
#[path = "../src/timer.rs"]
mod timer;
mod toy;

mod sync {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
    pub(crate) use shuttle::thread::{self, yield_now};
    pub(crate) use shuttle::thread_local;
    pub(crate) use std::sync::{Arc, PoisonError};

    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

mod api {
    pub use crate::executor::Executor;
    pub use crate::router::{Receiver, Router};
}

use sateen_osd::memory::{MemoryIndex, MemoryObjects};
use sateen_osd::{Index, Prefetched, StoreLimits};
use sateen_types::{ClientId, Endpoint};
use sateen_wire::{MgsReply, MgsRequest, OstRequest, ReplyBody, Request};
use shuttle::Runner;
use shuttle::scheduler::RandomScheduler;

use crate::host::{HostParts, TargetHost};
use crate::reactor::Reactor;
use crate::sync::{Arc, Ordering};
use crate::toy::{Client, Toy, ToyIndex, ToyJournal, connect, object, register};

fn check(schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let scheduler = RandomScheduler::new_from_seed(sateen_testkit::seed(), schedules);
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    Runner::new(scheduler, config).run(body);
}

struct World {
    reactor: Arc<Reactor>,
    hosts: Vec<Arc<TargetHost<Toy>>>,
    journals: Vec<ToyJournal>,
    client: Arc<Client>,
}

fn world(targets: u32, chained: bool, limits: StoreLimits) -> World {
    let reactor = Arc::new(Reactor::default());
    let client = Client::new(2, reactor.router.clone());
    let (mut hosts, mut journals) = (Vec::new(), Vec::new());
    for at in 0..targets {
        let peer = (chained && at + 1 < targets).then_some(Endpoint::Ost(at + 1));
        let mut service = Toy::new(Endpoint::Ost(at), peer, limits);
        connect(&mut service, 2);
        let journal = ToyJournal::default();
        let index = ToyIndex { inner: MemoryIndex::default(), durable: journal.durable.clone() };
        let parts = HostParts {
            me: Endpoint::Ost(at),
            service,
            index: Arc::new(index),
            objects: Some(Arc::new(MemoryObjects::new(1 << 20))),
            journal: Box::new(journal.clone()),
            journal_bytes: 0,
            first: sateen_target::Outbox::new(),
        };
        hosts.push(TargetHost::start(&reactor, parts).unwrap());
        journals.push(journal);
    }
    World { reactor, hosts, journals, client }
}

/// `tasks` tasks on as many threads, each making `rounds` durable changes; returns when the
/// threads have ended.
fn durable_changes(world: &World, tasks: u16, rounds: u64) {
    let threads: Vec<_> = (0..tasks)
        .map(|slot| {
            let (client, durable) = (world.client.clone(), world.journals[0].durable.clone());
            let executor = world.reactor.executor.clone();
            sync::thread::spawn(move || {
                executor.spawn(Box::pin(async move {
                    for seq in 1..=rounds {
                        let request = register(u64::from(slot) << 32 | seq);
                        let message = client.message(Endpoint::Ost(0), slot, seq, request);
                        let reply = client.call(message).await;
                        assert_eq!(reply.error, None);
                        let durable = durable.load(Ordering::SeqCst);
                        assert!(reply.transno != 0 && reply.transno <= durable, "too early");
                    }
                }));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Nobody ticks and no other thread helps: when all threads have returned, all tasks must
/// have ended.
#[test]
fn no_wish_for_durability_is_lost() {
    check(4000, || {
        let world = world(1, false, StoreLimits::default());
        durable_changes(&world, 3, 2);
        assert_eq!(world.reactor.executor.live(), 0, "a task waits for ever");
        world.reactor.stop();
    });
}

/// The same with a target that asks another one first, whose syncs are others' work.
#[test]
fn targets_that_ask_each_other_come_to_an_end() {
    check(1500, || {
        let world = world(2, true, StoreLimits::default());
        durable_changes(&world, 2, 2);
        world.reactor.sleepers.stop();
        assert_eq!(world.reactor.executor.live(), 0, "a task waits for ever");
        world.reactor.stop();
    });
}

/// Several syncs at once are all answered, and none on the thread that asked.
#[test]
fn syncs_in_parallel_are_all_answered() {
    check(1500, || {
        let world = world(3, false, StoreLimits::default());
        for slot in 0..3u16 {
            for target in 0..3 {
                let client = world.client.clone();
                let this = sync::thread::current().id();
                world.reactor.executor.spawn(Box::pin(async move {
                    let sync = OstRequest::Sync { objects: vec![object(1)], boot_epoch: 1 };
                    let to = Endpoint::Ost(target);
                    let reply = client.call(client.message(to, slot, 1, Request::Ost(sync))).await;
                    assert_eq!(reply.error, None);
                    assert_ne!(sync::thread::current().id(), this);
                }));
            }
        }
        world.reactor.sleepers.stop();
        assert_eq!(world.reactor.executor.live(), 0, "a task waits for ever");
        world.reactor.stop();
    });
}

/// A group commit that has an object to sync first is handed over; whoever asks meanwhile is heard.
#[test]
fn commits_that_wait_for_objects_are_all_written() {
    check(1500, || {
        let world = world(1, false, StoreLimits::default());
        let threads: Vec<_> = (0..2u16)
            .map(|slot| {
                let (client, executor) = (world.client.clone(), world.reactor.executor.clone());
                sync::thread::spawn(move || {
                    executor.spawn(Box::pin(async move {
                        let n = u64::from(slot);
                        let to = Endpoint::Ost(0);
                        let write = client.message(to, slot, 1, toy::cut(n));
                        let write = sateen_wire::Message { bulk: toy::some_data(), ..write };
                        assert_eq!(client.call(write).await.error, None);
                        let put = client.message(to, slot, 2, register(n));
                        assert_eq!(client.call(put).await.error, None);
                    }));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        world.reactor.sleepers.stop();
        assert_eq!(world.reactor.executor.live(), 0, "a task waits for ever");
        assert_eq!(world.journals[0].durable.load(Ordering::SeqCst), 4);
        world.reactor.stop();
    });
}

/// Checkpoints run beside changes and reads; what was answered is found again.
#[test]
fn checkpoints_disturb_nobody() {
    check(1500, || {
        let limits =
            StoreLimits { memtable_bytes_max: 60, cache_bytes_max: 200, ..StoreLimits::default() };
        let world = world(1, false, limits);
        let checkpoints = world.reactor.checkpoints.clone();
        let host = world.hosts[0].clone();
        let checkpointer = sync::thread::spawn(move || {
            for _ in 0..3 {
                host.write_checkpoint().unwrap();
            }
        });
        let reader = {
            let client = world.client.clone();
            let executor = world.reactor.executor.clone();
            sync::thread::spawn(move || {
                executor.spawn(Box::pin(async move {
                    for seq in 1..=2 {
                        let request = register(seq);
                        let put = client.message(Endpoint::Ost(0), 9, 2 * seq - 1, request);
                        assert_eq!(client.call(put).await.error, None);
                        let get = Request::Mgs(MgsRequest::GetConfig);
                        let mut get = client.message(Endpoint::Ost(0), 9, 2 * seq, get);
                        get.header.trace = seq;
                        let reply = client.call(get).await;
                        let ReplyBody::Mgs(MgsReply::Config { version, .. }) = reply.body else {
                            panic!("{reply:?}")
                        };
                        assert_eq!(version, seq + 1);
                    }
                }));
            })
        };
        reader.join().unwrap();
        checkpointer.join().unwrap();
        world.hosts[0].write_checkpoint().unwrap();
        assert_eq!(world.reactor.executor.live(), 0, "a task waits for ever");
        assert_eq!(world.journals[0].trimmed.load(Ordering::SeqCst), 2);
        drop(checkpoints);
        world.reactor.stop();
    });
}

/// A journal that fails: everybody gets an answer, and it is an error.
#[test]
fn a_failed_journal_answers_everybody() {
    check(1500, || {
        let world = world(1, false, StoreLimits::default());
        world.journals[0].fail.store(1, Ordering::SeqCst);
        let threads: Vec<_> = (0..3u16)
            .map(|slot| {
                let client = world.client.clone();
                let executor = world.reactor.executor.clone();
                sync::thread::spawn(move || {
                    executor.spawn(Box::pin(async move {
                        let put = client.message(Endpoint::Ost(0), slot, 1, register(1));
                        let reply = client.call(put).await;
                        assert_eq!(reply.error, Some(sateen_types::Errno::EIO));
                    }));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(world.hosts[0].is_poisoned());
        assert_eq!(world.reactor.executor.live(), 0, "a task waits for ever");
        world.reactor.stop();
    });
}

/// Ready once `events` reaches a number.
struct Events {
    wanted: u64,
    state: Arc<sync::Mutex<(u64, Option<std::task::Waker>)>>,
}

impl Future for Events {
    type Output = ();

    fn poll(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        let mut state = sync::lock(&self.state);
        if state.0 >= self.wanted {
            return std::task::Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        std::task::Poll::Pending
    }
}

/// A task that is woken while it is being polled is polled again, also one that lies where another
/// has ended.
#[test]
fn no_wake_is_lost() {
    check(4000, || {
        let executor = executor::Executor::default();
        let state = Arc::new(sync::Mutex::new((0, None)));
        executor.spawn(Events { wanted: 0, state: state.clone() });
        executor.spawn(Events { wanted: 3, state: state.clone() });
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let state = state.clone();
                sync::thread::spawn(move || {
                    let waker: Option<std::task::Waker> = {
                        let mut state = sync::lock(&state);
                        state.0 += 1;
                        state.1.clone()
                    };
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(executor.live(), 0, "the task waits for ever");
    });
}
