//! Tasks: the client's operations, as futures.
//!
//! A task is polled on whatever thread wakes it: first by whoever spawns it, then by the
//! thread that brings what it waits for. Life of a task: scheduled (in some run loop),
//! running, idle; woken while running, it is scheduled again when the poll returns; done. Then its
//! memory is kept for the next task of its kind, on this thread or, as tasks of a mount begin where the
//! kernel asks and end where servers answer, on another; if nobody can wake it any more: a wake-up is
//! never for another task than the one that asked for it.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use crate::run_loop::{self, Work};
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, Ordering, lock, thread_local};

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;
const RUNNING: u8 = 2;
const WOKEN: u8 = 3;
const DONE: u8 = 4;

/// Tasks that have ended, of which a thread keeps the memory at most. One of a request of a kernel
/// has some 6 KiB.
const ENDED_MAX: usize = 16;
/// The same of an executor, of those that are too many for their threads.
const ENDED_SHARED_MAX: usize = 64;

/// Tasks that have ended, oldest first.
type Ended = Vec<Arc<dyn Any + Send + Sync>>;

thread_local! {
    /// Those that have ended here: the next of their kind are made of them.
    static ENDED: RefCell<Ended> = RefCell::default();
}

/// Runs tasks. Clones share one count of them.
#[derive(Debug, Clone, Default)]
pub struct Executor {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    live: AtomicUsize,
    /// Of threads on which more end than begin.
    ended: Mutex<Ended>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("live", &self.live).finish_non_exhaustive()
    }
}

impl Executor {
    /// Starts a task. It is polled on this thread, at once or, inside a run loop, when the
    /// caller has returned there. It takes the memory of one of its kind that has ended, so
    /// that whoever starts many need not box them.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, future: F) {
        self.spawn_made(move || future);
    }

    /// The same of a future that is made where the task has it: of one that takes kilobytes each move
    /// costs as much as a system call.
    pub fn spawn_made<F: Future<Output = ()> + Send + 'static>(&self, make: impl FnOnce() -> F) {
        self.shared.live.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.clone();
        let task = match self.take_ended::<F>() {
            Some(task) => {
                task.begin_anew(make, shared);
                task
            }
            None => Arc::new(Task::new(make, shared)),
        };
        run_loop::run(Work::Poll(task));
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// One that has ended and that nobody can wake any more.
    fn take_ended<F: Send + 'static>(&self) -> Option<Arc<Task<F>>> {
        // A thread that ends has none any more.
        let own = ENDED.try_with(|ended| take::<F>(&mut ended.borrow_mut())).ok().flatten();
        own.or_else(|| take::<F>(&mut lock(&self.shared.ended)))?.downcast().ok()
    }
}

fn take<F: Send + 'static>(ended: &mut Ended) -> Option<Arc<dyn Any + Send + Sync>> {
    let at = ended.iter().rposition(|task| task.is::<Task<F>>())?;
    Some(ended.remove(at))
}

impl Shared {
    /// Keeps one that is too many for its thread; what is too many here is returned.
    fn keep(&self, task: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut ended = lock(&self.ended);
        let oldest = (ended.len() >= ENDED_SHARED_MAX).then(|| ended.remove(0));
        ended.push(task);
        oldest
    }
}

/// A task as the run loop has it.
pub(crate) trait Pollable: Send + Sync {
    /// Polls it once.
    fn poll(self: Arc<Self>);
}

struct Task<F> {
    state: AtomicU8,
    /// Contended by nobody: only the one who moved the state to `RUNNING` locks it.
    life: Mutex<Life<F>>,
}

/// What one task has after the other of those that have the same memory.
struct Life<F> {
    /// Where the future lies; nothing lies there when it has ended, and the place itself goes if
    /// somebody may wake the task yet.
    place: Option<Pin<Box<Option<F>>>>,
    /// Of its executor, which may keep it when it has ended, and then it has nothing of that.
    shared: Option<Arc<Shared>>,
}

/// Keeps the memory of one that has ended. If somebody may wake it yet, who may do so as late as he
/// likes, only that stays which is needed to find out that it has ended.
fn keep_ended<F: Send + 'static>(mut task: Arc<Task<F>>, shared: &Shared) {
    if Arc::get_mut(&mut task).is_none() {
        lock(&task.life).place = None;
        return;
    }
    let oldest = ENDED.try_with(|ended| {
        let mut ended = ended.borrow_mut();
        let oldest = (ended.len() >= ENDED_MAX).then(|| ended.remove(0));
        ended.push(task);
        oldest
    });
    let too_many = oldest.ok().flatten().and_then(|oldest| shared.keep(oldest));
    drop(too_many);
}

impl<F> Task<F> {
    fn new(make: impl FnOnce() -> F, shared: Arc<Shared>) -> Task<F> {
        let life = Life { place: Some(Box::pin(Some(make()))), shared: Some(shared) };
        Task { state: AtomicU8::new(SCHEDULED), life: Mutex::new(life) }
    }

    /// The same in the place of one that has ended.
    fn begin_anew(&self, make: impl FnOnce() -> F, shared: Arc<Shared>) {
        let mut life = lock(&self.life);
        match &mut life.place {
            Some(place) => place.set(Some(make())),
            None => life.place = Some(Box::pin(Some(make()))),
        }
        life.shared = Some(shared);
        self.state.store(SCHEDULED, Ordering::Release);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Wake for Task<F> {
    fn wake(self: Arc<Task<F>>) {
        let change = |state| match state {
            IDLE => Some(SCHEDULED),
            RUNNING => Some(WOKEN),
            _ => None,
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        if before == Ok(IDLE) {
            run_loop::run(Work::Poll(self));
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Pollable for Task<F> {
    fn poll(self: Arc<Task<F>>) {
        self.state.store(RUNNING, Ordering::Release);
        let waker = Waker::from(self.clone());
        {
            let mut life = lock(&self.life);
            let Life { place: Some(place), shared } = &mut *life else { return };
            let Some(future) = place.as_mut().as_pin_mut() else { return };
            if future.poll(&mut Context::from_waker(&waker)).is_ready() {
                self.state.store(DONE, Ordering::Release);
                // What it held goes with it, and may wake others, but asks nothing of this task.
                place.set(None);
                let shared = shared.take();
                drop(life);
                drop(waker);
                if let Some(shared) = shared {
                    shared.live.fetch_sub(1, Ordering::Relaxed);
                    keep_ended(self, &shared);
                }
                return;
            }
        }
        let idle = self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if idle.is_err() {
            self.state.store(SCHEDULED, Ordering::Release);
            run_loop::run(Work::Poll(self));
        }
    }
}
