//! The reactor: what all hosts and clients of a process share, and its few threads.
//!
//! | threads | do |
//! |---|---|
//! | 1 timer | waits for the earliest timer and the next tick, and passes them on |
//! | [`POOL_THREADS`] workers | due timers |
//! | up to 32 and 32 for each target | syncs of objects; their removals, cuts and allocations. Also ticks, and group commits that nobody waits for or that sync objects first. They come when they are needed, and go |
//! | 1 checkpointer | writes memtables into indexes, one after the other |
//!
//! Everything else happens on the threads of the transports.

use std::collections::VecDeque;
use std::io;

use sateen_target::{COMMIT_AGE_NS, REST_NS, TICK_NS};

use crate::clock::Clock;
use crate::executor::Executor;
use crate::pool::{POOL_THREADS, Pool};
use crate::router::Router;
use crate::run_loop::Driven;
use crate::sleepers::Sleepers;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, PoisonError, lock, thread,
};
use crate::timer::Timers;

/// How much less often than others the checkpointer gets a busy processor. Not by much: it
/// must keep up with the changes, or they are slowed down.
const CHECKPOINT_NICE: i32 = 5;

/// Most targets in one process.
pub const HOSTS_MAX: usize = 1 << 12;

/// Shared by everything in a process that serves one file system.
#[derive(Debug)]
pub struct Reactor {
    /// Time.
    pub clock: Clock,
    /// The in-process network.
    pub router: Arc<Router>,
    /// Tasks.
    pub executor: Executor,
    /// Timers.
    pub timers: Arc<Timers>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Default for Reactor {
    fn default() -> Reactor {
        let clock = Clock::default();
        let pool = Arc::new(Pool::default());
        let timers = Arc::new(Timers::new(clock));
        Reactor {
            clock,
            router: Arc::default(),
            executor: Executor::default(),
            hosts: Arc::new(Hosts::new(timers.clone())),
            timers,
            pool,
            sleepers: Arc::default(),
            checkpoints: Arc::default(),
            threads: Mutex::default(),
        }
    }
}

impl Reactor {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread cannot be started; those that were are ended again.
    pub fn start(&self) -> io::Result<()> {
        let started = self.try_start();
        if started.is_err() {
            self.stop();
        }
        started
    }

    fn try_start(&self) -> io::Result<()> {
        let mut threads = lock(&self.threads);
        threads.extend(self.pool.start(POOL_THREADS)?);
        let (timers, pool) = (self.timers.clone(), self.pool.clone());
        let (router, hosts) = (self.router.clone(), self.hosts.clone());
        let sleepers = self.sleepers.clone();
        threads.push(named("timer", move || timers.serve(&pool, &sleepers, &router, &hosts))?);
        let checkpoints = self.checkpoints.clone();
        let checkpointer = move || {
            if let Err(error) = rustix::process::nice(CHECKPOINT_NICE) {
                tracing::debug!(%error, "checkpoints keep their priority");
            }
            checkpoints.serve();
        };
        threads.push(named("checkpoint", checkpointer)?);
        Ok(())
    }

    /// Ends the threads and lets go of all hosts. Call it after the hosts were closed.
    pub fn stop(&self) {
        self.timers.stop();
        self.checkpoints.stop();
        self.pool.stop();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
        self.sleepers.stop();
        let gone = std::mem::take(&mut *lock(&self.hosts.all));
        drop(gone);
    }
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// The hosts, and when they tick: each says after each event how soon it wants to.
pub(crate) struct Hosts {
    all: Mutex<Vec<Arc<dyn Driven>>>,
    ticking: AtomicBool,
    /// When the next turn is due, in monotonic nanoseconds.
    next_tick_ns: AtomicU64,
    /// The last turn had something to make durable: so may the next.
    busy: AtomicBool,
    timers: Arc<Timers>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts").field("len", &lock(&self.all).len()).finish()
    }
}

impl Hosts {
    fn new(timers: Arc<Timers>) -> Hosts {
        Hosts {
            all: Mutex::default(),
            ticking: AtomicBool::new(false),
            // There is nobody to be told.
            next_tick_ns: AtomicU64::new(u64::MAX),
            busy: AtomicBool::new(false),
            timers,
        }
    }

    /// When the next turn is due.
    pub(crate) fn next_tick_ns(&self) -> u64 {
        self.next_tick_ns.load(Ordering::SeqCst)
    }

    /// A target wants a tick by then.
    pub(crate) fn tick_by(&self, due_ns: u64) {
        let earlier = |next: u64| (due_ns < next).then_some(due_ns);
        if due_ns < self.next_tick_ns.load(Ordering::SeqCst)
            && self.next_tick_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, earlier).is_ok()
        {
            self.timers.nudge();
        }
    }

    /// Adds one; false if there is no room.
    pub(crate) fn add(&self, host: Arc<dyn Driven>) -> bool {
        let mut all = lock(&self.all);
        let room = all.len() < HOSTS_MAX;
        if room {
            all.push(host);
            drop(all);
            self.tick_by(0);
        }
        room
    }

    /// Whether a turn is due and is to be run by the caller, the timers' thread. What a target
    /// wanted until now it says again in that turn.
    pub(crate) fn begin_tick(&self, now_ns: u64) -> bool {
        if now_ns < self.next_tick_ns() {
            return false;
        }
        if self.ticking.swap(true, Ordering::AcqRel) {
            // The last one has not ended.
            self.next_tick_ns.store(now_ns + TICK_NS, Ordering::SeqCst);
            return false;
        }
        // Nobody has to say so at each turn while changes go on.
        let busy = self.busy.load(Ordering::Relaxed);
        let next_ns = if busy { COMMIT_AGE_NS } else { REST_NS };
        self.next_tick_ns.store(now_ns + next_ns, Ordering::SeqCst);
        true
    }

    /// One turn: tells all hosts, and has group commits run where changes wait for long.
    pub(crate) fn tick(&self) {
        let mut busy = false;
        for at in 0.. {
            let Some(host) = lock(&self.all).get(at).cloned() else { break };
            busy |= host.tick();
        }
        self.busy.store(busy, Ordering::Relaxed);
        self.ticking.store(false, Ordering::Release);
    }
}

/// Hosts that want a checkpoint, in the order they asked; each stands here once at most.
#[derive(Default)]
pub(crate) struct Checkpoints {
    state: Mutex<(VecDeque<Arc<dyn Driven>>, bool)>,
    changed: Condvar,
}

impl std::fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoints").field("waiting", &lock(&self.state).0.len()).finish()
    }
}

impl Checkpoints {
    pub(crate) fn push(&self, host: Arc<dyn Driven>) {
        lock(&self.state).0.push_back(host);
        self.changed.notify_one();
    }

    fn stop(&self) {
        lock(&self.state).1 = true;
        self.changed.notify_all();
    }

    pub(crate) fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.1 {
                return;
            }
            if let Some(host) = state.0.pop_front() {
                drop(state);
                host.checkpoint();
                state = lock(&self.state);
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
