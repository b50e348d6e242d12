//! Tasks: the client's operations, as futures.
//!
//! A task is polled on whatever thread wakes it: first by whoever spawns it, then by the
//! thread that brings what it waits for. Life of a task: scheduled (in some run loop),
//! running, idle; woken while running, it is scheduled again when the poll returns; done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use crate::run_loop::{self, Work};
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, Ordering, lock};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;
const RUNNING: u8 = 2;
const WOKEN: u8 = 3;
const DONE: u8 = 4;

/// Runs tasks. Clones share one count of them.
#[derive(Debug, Clone, Default)]
pub struct Executor {
    live: Arc<AtomicUsize>,
}

impl Executor {
    /// Starts a task. It is polled on this thread, at once or, inside a run loop, when the
    /// caller has returned there.
    pub fn spawn(&self, future: Boxed) {
        self.live.fetch_add(1, Ordering::Relaxed);
        let task = Task {
            state: AtomicU8::new(SCHEDULED),
            future: Mutex::new(Some(future)),
            live: self.live.clone(),
        };
        run_loop::run(Work::Poll(Arc::new(task)));
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

pub(crate) struct Task {
    state: AtomicU8,
    /// Contended by nobody: only the one who moved the state to `RUNNING` locks it.
    future: Mutex<Option<Boxed>>,
    live: Arc<AtomicUsize>,
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
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

impl Task {
    pub(crate) fn poll(self: Arc<Task>) {
        self.state.store(RUNNING, Ordering::Release);
        let waker = Waker::from(self.clone());
        let finished = {
            let mut slot = lock(&self.future);
            let Some(future) = slot.as_mut() else { return };
            let ready = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            if ready { slot.take() } else { None }
        };
        if let Some(future) = finished {
            self.state.store(DONE, Ordering::Release);
            drop(future);
            self.live.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let idle = self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if idle.is_err() {
            self.state.store(SCHEDULED, Ordering::Release);
            run_loop::run(Work::Poll(self));
        }
    }
}
