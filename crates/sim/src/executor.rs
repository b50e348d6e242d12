//! Runs the clients' tasks, one poll at a time, in an order that the seed decides.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use sateen_client::Task;

use crate::random::Random;

/// Locks a mutex that only this thread uses; it is there because futures must be `Send`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Ready {
    tasks: Mutex<Vec<u64>>,
    /// Whether there is one, for who looks all the time.
    any: AtomicBool,
}

struct Wakeup {
    task: u64,
    ready: Arc<Ready>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        let mut ready = lock(&self.ready.tasks);
        self.ready.any.store(true, Ordering::Relaxed);
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

struct Running {
    /// Whose it is: tasks of a killed client go together.
    owner: u64,
    future: Task,
    waker: Waker,
}

/// All tasks that have not ended.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<u64, Running>,
    ready: Arc<Ready>,
    next: u64,
}

impl Executor {
    pub(crate) fn spawn(&mut self, owner: u64, future: Task) -> u64 {
        let task = self.next;
        self.next += 1;
        let waker = Waker::from(Arc::new(Wakeup { task, ready: self.ready.clone() }));
        waker.wake_by_ref();
        self.tasks.insert(task, Running { owner, future, waker });
        task
    }

    /// The owner is gone, and all its tasks with it.
    pub(crate) fn kill(&mut self, owner: u64) {
        self.tasks.retain(|_, running| running.owner != owner);
    }

    /// Polls one task that was woken; its owner and its number, or `None` if all
    /// wait.
    pub(crate) fn step(&mut self, random: &mut Random) -> Option<(u64, u64)> {
        while self.ready.any.load(Ordering::Relaxed) {
            let task = {
                let mut ready = lock(&self.ready.tasks);
                self.ready.any.store(ready.len() > 1, Ordering::Relaxed);
                if ready.is_empty() {
                    return None;
                }
                let at = random.index(ready.len());
                ready.swap_remove(at)
            };
            let Some(running) = self.tasks.get_mut(&task) else { continue };
            let owner = running.owner;
            let waker = running.waker.clone();
            let mut context = Context::from_waker(&waker);
            if running.future.as_mut().poll(&mut context) == Poll::Ready(()) {
                self.tasks.remove(&task);
            }
            return Some((owner, task));
        }
        None
    }
}

#[derive(Debug)]
struct SignalState<T> {
    value: Option<T>,
    raised: bool,
    waker: Option<Waker>,
}

/// Something that happens once and that one task waits for.
#[derive(Debug)]
pub(crate) struct Signal<T>(Mutex<SignalState<T>>);

impl<T> Signal<T> {
    pub(crate) fn new() -> Arc<Signal<T>> {
        Arc::new(Signal(Mutex::new(SignalState { value: None, raised: false, waker: None })))
    }

    /// Whether it has happened.
    pub(crate) fn is_raised(&self) -> bool {
        lock(&self.0).raised
    }

    pub(crate) fn raise(&self, value: T) {
        let waker = {
            let mut state = lock(&self.0);
            state.value = Some(value);
            state.raised = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits for a [`Signal`].
pub(crate) struct Raised<T>(pub(crate) Arc<Signal<T>>);

impl<T> Future for Raised<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.0.0);
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
