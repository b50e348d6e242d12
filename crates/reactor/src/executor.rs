//! Tasks: the client's operations, as futures.
//!
//! A task is polled on whatever thread wakes it: first by whoever spawns it, then by the
//! thread that brings what it waits for. Life of a task: scheduled (in some run loop),
//! running, idle; woken while running, it is scheduled again when the poll returns; done. Then its
//! memory is kept for the next task of its kind on this thread, if nobody can wake it any more: a
//! wake-up is never for another task than the one that asked for it.

use std::any::Any;
use std::cell::RefCell;
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
const ENDED_MAX: usize = 64;

thread_local! {
    /// Tasks that have ended here, oldest first: the next of their kind are made of them.
    static ENDED: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = RefCell::default();
}

/// Runs tasks. Clones share one count of them.
#[derive(Debug, Clone, Default)]
pub struct Executor {
    live: Arc<AtomicUsize>,
}

impl Executor {
    /// Starts a task. It is polled on this thread, at once or, inside a run loop, when the
    /// caller has returned there. It takes the memory of one of its kind that has ended on this
    /// thread, so that whoever starts many need not box them.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, future: F) {
        self.spawn_made(move || future);
    }

    /// The same of a future that is made where the task has it: of one that takes kilobytes each move
    /// costs as much as a system call.
    pub fn spawn_made<F: Future<Output = ()> + Send + 'static>(&self, make: impl FnOnce() -> F) {
        self.live.fetch_add(1, Ordering::Relaxed);
        let live = self.live.clone();
        let task = match take_ended::<F>() {
            Some(task) => {
                task.begin_anew(make, live);
                task
            }
            None => Arc::new(Task::new(make, live)),
        };
        run_loop::run(Work::Poll(task));
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
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
    live: Arc<AtomicUsize>,
}

/// One that has ended here and that nobody can wake any more.
fn take_ended<F: Send + 'static>() -> Option<Arc<Task<F>>> {
    // A thread that ends has none any more.
    let task = ENDED.try_with(|ended| {
        let mut ended = ended.borrow_mut();
        let at = ended.iter().rposition(|task| task.is::<Task<F>>())?;
        Some(ended.remove(at))
    });
    task.ok()??.downcast().ok()
}

/// Keeps the memory of one that has ended. If somebody may wake it yet, who may do so as late as he
/// likes, only that stays which is needed to find out that it has ended.
fn keep_ended<F: Send + 'static>(mut task: Arc<Task<F>>) {
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
    drop(oldest);
}

impl<F> Task<F> {
    fn new(make: impl FnOnce() -> F, live: Arc<AtomicUsize>) -> Task<F> {
        let life = Life { place: Some(Box::pin(Some(make()))), live };
        Task { state: AtomicU8::new(SCHEDULED), life: Mutex::new(life) }
    }

    /// The same in the place of one that has ended.
    fn begin_anew(&self, make: impl FnOnce() -> F, live: Arc<AtomicUsize>) {
        let mut life = lock(&self.life);
        match &mut life.place {
            Some(place) => place.set(Some(make())),
            None => life.place = Some(Box::pin(Some(make()))),
        }
        life.live = live;
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
            let Life { place: Some(place), live } = &mut *life else { return };
            let Some(future) = place.as_mut().as_pin_mut() else { return };
            if future.poll(&mut Context::from_waker(&waker)).is_ready() {
                self.state.store(DONE, Ordering::Release);
                // What it held goes with it, and may wake others, but asks nothing of this task.
                place.set(None);
                live.fetch_sub(1, Ordering::Relaxed);
                drop(life);
                drop(waker);
                return keep_ended(self);
            }
        }
        let idle = self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if idle.is_err() {
            self.state.store(SCHEDULED, Ordering::Release);
            run_loop::run(Work::Poll(self));
        }
    }
}
