//! A target's host: a service with its lock, its disk and its group commits.
//!
//! An event goes like this: lock the service, let it execute, unlock, perform the effects on
//! this very thread, which may bring the next events. No effect is performed under the lock.
//! In steady state none of it allocates: outboxes are kept per thread.
//!
//! After each event the host has the ticker know when its target is to be told of time, or a change
//! becomes too old: `host/age.rs`. Group commits and checkpoints: `host/flush.rs`. How changes are slowed down when they
//! outrun the disk: `host/pressure.rs`.

// With paths, so that the model-checking test can compile this file from elsewhere.
#[path = "host/age.rs"]
mod age;
#[path = "host/flush.rs"]
mod flush;
#[path = "host/measured.rs"]
mod measured;
#[path = "host/pressure.rs"]
mod pressure;

use std::cell::RefCell;
use std::fmt::Display;
use std::time::Duration;

use sateen_meter::{Part, begin, named};
use sateen_osd::{Index, JournalDevice, ObjectDone, ObjectOp, ObjectStore, Prefetched};
use sateen_target::{COMMIT_AGE_NS, Effect, Ending, IoId, Outbox, ParkId, Service, TICK_NS};
use sateen_types::{Endpoint, Timestamp};
use sateen_wire::Message;

use self::age::{Age, Space};
use crate::clock::Clock;
use crate::reactor::{Checkpoints, Hosts, Reactor};
use crate::router::{Receiver, Router};
use crate::run_loop::{self, Begun, Driven, Work};
use crate::sleepers::{MANY_PIECES, Sleepers};
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, lock, thread_local};
use crate::timer::Timers;

/// Most outboxes kept by one thread: one for the event and one for what it brings, for each
/// level that can be under way at once.
const OUTBOXES_MAX: usize = 4;

/// How often the network is asked whom it has heard of: with each tick of a target that rests, of
/// which none is to be missed for having come a little early.
const LISTEN_NS: u64 = 900_000_000;
/// So long ago that may be.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

thread_local! {
    static OUTBOXES: RefCell<Vec<Outbox>> = RefCell::default();
}

fn take_outbox() -> Outbox {
    OUTBOXES.with(|kept| kept.borrow_mut().pop()).unwrap_or_default()
}

fn keep_outbox(outbox: Outbox) {
    debug_assert!(outbox.is_empty(), "all effects are performed");
    OUTBOXES.with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < OUTBOXES_MAX {
            kept.push(outbox);
        }
    });
}

/// What a target is made of.
pub struct HostParts<S> {
    /// Which target.
    pub me: Endpoint,
    /// The service, over a recovered store.
    pub service: S,
    /// Its index.
    pub index: Arc<dyn Index>,
    /// Its objects, if it has any.
    pub objects: Option<Arc<dyn ObjectStore>>,
    /// Its journal.
    pub journal: Box<dyn JournalDevice>,
    /// Bytes that it takes on the disk already: a server that dies again and again would else
    /// never have written enough to make a checkpoint.
    pub journal_bytes: u64,
    /// What the service wants done first: the effects of its making.
    pub first: Outbox,
}

/// Why a host could not do what its owner asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostError {
    /// The process has too many targets.
    TooMany,
    /// A disk failed earlier; the log says what.
    Poisoned,
}

impl Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HostError::TooMany => "too many targets in one process",
            HostError::Poisoned => "the target stopped after a disk error",
        })
    }
}

impl std::error::Error for HostError {}

/// A target in production.
pub struct TargetHost<S> {
    me: Endpoint,
    state: Mutex<State<S>>,
    /// Told after each group commit and when the target is poisoned.
    flushed: Condvar,
    index: Arc<dyn Index>,
    objects: Option<Arc<dyn ObjectStore>>,
    journal: Mutex<Box<dyn JournalDevice>>,
    checkpoint_asked: AtomicBool,
    /// How old a change may get that nobody waits for.
    commit_age_ns: AtomicU64,
    clock: Clock,
    router: Arc<Router>,
    timers: Arc<Timers>,
    sleepers: Arc<Sleepers>,
    hosts: Arc<Hosts>,
    checkpoints: Arc<Checkpoints>,
}

/// What the target's lock guards.
struct State<S> {
    service: S,
    /// A group commit is being written.
    flushing: bool,
    /// Somebody asked for a group commit while one was being written.
    flush_again: bool,
    /// A worker was asked for a group commit that nobody waits for.
    flush_soon: bool,
    /// How old the oldest change is that no group commit has taken.
    age: Age,
    space: Space,
    /// When the service was told whom the network has heard of.
    listened_ns: u64,
    /// Bytes in the journal since the last checkpoint began, and how many bring on the next.
    journal_bytes: u64,
    journal_bytes_max: u64,
    poisoned: bool,
}

impl<S> std::fmt::Debug for TargetHost<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetHost").field("me", &self.me).finish_non_exhaustive()
    }
}

impl<S: Service + 'static> TargetHost<S> {
    /// Puts a target to work: it receives messages and ticks from now on, and its first
    /// effects are performed.
    ///
    /// # Errors
    /// [`HostError::TooMany`].
    pub fn start(reactor: &Reactor, parts: HostParts<S>) -> Result<Arc<TargetHost<S>>, HostError> {
        let host = Arc::new(TargetHost {
            me: parts.me,
            state: Mutex::new(State {
                service: parts.service,
                flushing: false,
                flush_again: false,
                flush_soon: false,
                age: Age::default(),
                space: Space::default(),
                listened_ns: 0,
                journal_bytes: parts.journal_bytes,
                journal_bytes_max: flush::JOURNAL_BYTES_MAX,
                poisoned: false,
            }),
            flushed: Condvar::new(),
            index: parts.index,
            objects: parts.objects,
            journal: Mutex::new(parts.journal),
            checkpoint_asked: AtomicBool::new(false),
            commit_age_ns: AtomicU64::new(COMMIT_AGE_NS),
            clock: reactor.clock,
            router: reactor.router.clone(),
            timers: reactor.timers.clone(),
            sleepers: reactor.sleepers.clone(),
            hosts: reactor.hosts.clone(),
            checkpoints: reactor.checkpoints.clone(),
        });
        if !reactor.router.add(host.me, host.clone()) || !reactor.hosts.add(host.clone()) {
            return Err(HostError::TooMany);
        }
        host.look_at_space();
        run_loop::enter(|| host.perform(parts.first, 0));
        Ok(host)
    }

    /// Tells the service how much room its metadata has, if it is time to look.
    fn look_at_space(&self) {
        if let Some(space) = self.space_now() {
            self.learn_space(&mut lock(&self.state), space);
        }
    }

    /// Tells the service whom the network has heard of, now and then.
    fn listen(&self) {
        let now_ns = self.clock.mono_ns();
        {
            let mut state = lock(&self.state);
            if now_ns < state.listened_ns + LISTEN_NS {
                return;
            }
            state.listened_ns = now_ns;
        }
        let heard = self.router.heard(HEARD_WITHIN);
        lock(&self.state).service.on_heard(&heard);
    }

    /// Which target it is.
    pub const fn me(&self) -> Endpoint {
        self.me
    }

    /// Looks at the service under its lock, for status displays and tests. Effects are not
    /// possible.
    pub fn inspect<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        let mut state = lock(&self.state);
        let seen = look(&mut state.service);
        // What was set may be something to be done.
        let due_ns = self.due_ns(&mut state, self.clock.mono_ns());
        drop(state);
        self.hosts.tick_by(due_ns);
        seen
    }

    /// How old a change may get that nobody waits for, before it is made durable.
    pub fn commit_age_ns(&self) -> u64 {
        self.commit_age_ns.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_commit_age_ns(&self, age_ns: u64) {
        self.commit_age_ns.store(age_ns, Ordering::Relaxed);
        // A change may be old enough now.
        self.inspect(|_| ());
    }

    /// Whether a disk error stopped the target.
    pub fn is_poisoned(&self) -> bool {
        lock(&self.state).poisoned
    }

    /// Takes a message; what follows from it is done when this returns, unless this thread
    /// is inside a run loop already.
    pub fn deliver(self: &Arc<Self>, message: Message) {
        run_loop::run(Work::Deliver(self.clone(), message));
    }

    /// Tells the service to end in good order; [`TargetHost::ending`] says how far it is. Not for
    /// threads of a transport, nor inside a run loop.
    pub fn begin_end(self: &Arc<Self>) {
        run_loop::enter(|| self.event(measured::STOP, Service::on_stop));
    }

    /// How far the service is with its end; asked now and then it gets on.
    pub fn ending(&self) -> Ending {
        self.hosts.tick_by(self.clock.mono_ns() + TICK_NS);
        let state = lock(&self.state);
        if state.poisoned { Ending::Lost } else { state.service.ending() }
    }

    /// One event and everything that follows from it on this target.
    fn event(
        self: &Arc<Self>,
        what: &'static str,
        execute: impl FnOnce(&mut S, Timestamp, &mut Outbox),
    ) {
        let mut out = take_outbox();
        let delay_ns = self.step(what, &mut out, execute);
        self.perform(out, delay_ns);
    }

    /// One event under the lock. Returns by how much its answers are to be delayed.
    fn step(
        self: &Arc<Self>,
        what: &'static str,
        out: &mut Outbox,
        execute: impl FnOnce(&mut S, Timestamp, &mut Outbox),
    ) -> u64 {
        // Before the lock is taken, so that it is counted when it is not held any more.
        let mut event = measured::Event::waits(what);
        let mut state = lock(&self.state);
        event.runs();
        // Taken under the lock, so that a target never sees time go backwards.
        let now = self.clock.now();
        let before = state.service.store().transno();
        execute(&mut state.service, now, out);
        event.ran();
        if state.poisoned {
            return 0;
        }
        let due_ns = self.due_ns(&mut state, now.mono_ns);
        let long = state.journal_bytes > state.journal_bytes_max;
        let store = state.service.store();
        if store.transno() == before {
            drop(state);
            self.hosts.tick_by(due_ns);
            return 0;
        }
        let delay_ns = pressure::delay_ns(store.fill_permille(), store.pending_bytes());
        let checkpoint = store.wants_checkpoint() || long;
        let full = store.pending_bytes() > flush::PENDING_BYTES_SOON;
        let flush = full && !state.flushing && !std::mem::replace(&mut state.flush_soon, full);
        drop(state);
        self.hosts.tick_by(due_ns);
        if checkpoint {
            self.ask_checkpoint();
        }
        if flush {
            // Nobody waits for this one, and whoever is on this thread shall not either.
            self.sleepers.push(self.me, Work::Flush(self.clone()));
        }
        delay_ns
    }

    /// Performs effects, and those of the events that they bring, until there are none.
    fn perform(self: &Arc<Self>, mut out: Outbox, mut delay_ns: u64) {
        let mut current = take_outbox();
        let mut flush = false;
        while !out.is_empty() {
            std::mem::swap(&mut out, &mut current);
            for effect in current.drain() {
                match effect {
                    Effect::Send(message) if delay_ns > 0 => {
                        self.timers.send_after(delay_ns, message);
                    }
                    Effect::Send(message) => self.router.send(message),
                    Effect::Flush => flush = true,
                    Effect::Object { id, op } if is_slow(&op) => {
                        self.slow(Work::Object(self.clone(), id, op));
                    }
                    Effect::Object { id, op } => {
                        self.router.before_disk();
                        let promises_nothing = op.promises_nothing();
                        let objects = self.objects.as_deref();
                        let (name, begun) = (named(Part::Osd, || op.name()), begin(Part::Osd));
                        match objects.map_or_else(|| Ok(no_objects()), |at| op.run_now(at)) {
                            Ok(done) => {
                                begun.end(Part::Osd, || name);
                                let done_ns =
                                    self.object_done(id, (done, promises_nothing), &mut out);
                                delay_ns = delay_ns.max(done_ns);
                            }
                            // A read of what is not in memory, or it may meet others.
                            Err(op) => self.slow(Work::Object(self.clone(), id, op)),
                        }
                    }
                    Effect::Prefetch { id, wants, generation } => {
                        self.router.before_disk();
                        let begun = begin(Part::Osd);
                        let view = Prefetched::read(self.index.as_ref(), &wants, generation);
                        begun.end(Part::Osd, || measured::PREFETCH);
                        delay_ns = delay_ns.max(self.prefetched_step(id, view, &mut out));
                    }
                }
            }
        }
        keep_outbox(out);
        keep_outbox(current);
        if flush {
            // This thread may write it out itself, and what it has gathered shall not wait for that.
            self.router.before_disk();
            self.slow(Work::Flush(self.clone()));
        }
    }

    fn slow(&self, work: Work) {
        run_loop::run_slow(&self.sleepers, self.me, work);
    }

    fn object_step(self: &Arc<Self>, id: IoId, op: ObjectOp, out: &mut Outbox) -> u64 {
        let promises_nothing = op.promises_nothing();
        let (name, begun) = (named(Part::Osd, || op.name()), begin(Part::Osd));
        let done = self.objects.as_deref().map_or_else(no_objects, |objects| op.run(objects));
        begun.end(Part::Osd, || name);
        self.object_done(id, (done, promises_nothing), out)
    }

    /// What became of an operation, and whether nothing was promised by it.
    fn object_done(
        self: &Arc<Self>,
        id: IoId,
        (done, promises_nothing): (ObjectDone, bool),
        out: &mut Outbox,
    ) -> u64 {
        if let ObjectDone::Failed(error) = &done
            && error.poisons()
            && !promises_nothing
        {
            self.poison("object I/O", error, out);
        }
        let what = measured::OBJECT_DONE;
        self.step(what, out, |service, now, out| service.on_object_done(now, id, done, out))
    }

    fn prefetched_step(
        self: &Arc<Self>,
        id: ParkId,
        view: Result<Prefetched, sateen_osd::IndexError>,
        out: &mut Outbox,
    ) -> u64 {
        match view {
            Ok(view) => {
                let what = measured::PREFETCHED;
                self.step(what, out, |service, now, out| service.on_prefetched(now, id, view, out))
            }
            Err(error) => {
                self.poison("reading the index", &error, out);
                0
            }
        }
    }

    /// Stops the target for good after a disk error, loudly.
    fn poison(&self, doing: &str, error: &dyn Display, out: &mut Outbox) {
        let mut state = lock(&self.state);
        if state.poisoned {
            return;
        }
        state.poisoned = true;
        tracing::error!(
            target_name = %self.me,
            %error,
            "{doing} failed: {} refuses all work from now on, because it could not keep what it \
             promises. What was synced before is safe. Look at the disk (space, dmesg), then \
             restart the file system; it recovers from its journal.",
            self.me
        );
        let now = self.clock.now();
        state.service.on_poisoned(now, out);
        drop(state);
        self.flushed.notify_all();
    }

    fn ask_checkpoint(self: &Arc<Self>) {
        if !self.checkpoint_asked.swap(true, Ordering::AcqRel) {
            self.checkpoints.push(self.clone());
        }
    }
}

/// What a target without objects says.
fn no_objects() -> ObjectDone {
    ObjectDone::Failed(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
}

/// Whether an operation sleeps in the disk below rather than in its page cache: until data is
/// written out, or extents are freed, found or filled with zeros; or until others have written to a
/// file that they were given. (How much space there is the file system below knows by heart. Of a
/// read it is seen when it is tried, and of a write whether others have the object.) Or whether it takes
/// so long without sleeping that who has brought it does better meanwhile: a write of many pieces.
fn is_slow(op: &ObjectOp) -> bool {
    match op {
        ObjectOp::WriteMany { pieces, .. } => pieces.len() >= MANY_PIECES,
        ObjectOp::Sync { .. }
        | ObjectOp::SyncGiven
        | ObjectOp::Remove { .. }
        | ObjectOp::Punch { .. }
        | ObjectOp::Allocate { .. }
        | ObjectOp::Append { .. }
        | ObjectOp::Grow { .. }
        | ObjectOp::SetTimes { .. } => true,
        _ => false,
    }
}

impl<S: Service + 'static> Receiver for TargetHost<S> {
    fn receive(self: Arc<Self>, message: Message) {
        let what = measured::of_message(&message);
        self.event(what, |service, now, out| service.on_message(now, message, out));
    }
}

impl<S: Service + 'static> Driven for TargetHost<S> {
    fn flush(self: Arc<Self>) {
        self.group_commit();
    }

    fn commit(self: Arc<Self>, begun: Begun) {
        self.end_of_group_commit(begun);
    }

    fn object(self: Arc<Self>, id: IoId, op: ObjectOp) {
        let mut out = take_outbox();
        let delay_ns = self.object_step(id, op, &mut out);
        self.perform(out, delay_ns);
    }

    fn tick(self: Arc<Self>) -> bool {
        // Others may have freed or filled the disk.
        self.look_at_space();
        self.listen();
        self.event(measured::TICK, Service::on_tick);
        let due = self.wants_commit();
        if due {
            self.slow(Work::Flush(self.clone()));
        }
        due
    }

    fn checkpoint(self: Arc<Self>) {
        // If it failed, the target has stopped: the log has the story, and whoever asks for its
        // health hears so.
        let _ = self.write_checkpoint();
    }
}
