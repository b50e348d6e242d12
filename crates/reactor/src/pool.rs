//! Workers for what comes from no transport: due timers. They sleep in no disk, or timers would
//! come late.

use std::collections::VecDeque;
use std::io;

use crate::run_loop::{self, Sleeps, Work};
use crate::sync::{Arc, Condvar, Mutex, PoisonError, lock, thread};

/// Workers of one pool. Reading objects and indexes they may wait for a disk for a moment, so
/// there may be more of them than cores.
pub const POOL_THREADS: usize = 4;

/// A queue of work and the threads that do it. The queue is bounded by the timers that there are.
#[derive(Default)]
pub struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    stopped: bool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("waiting", &lock(&self.state).queue.len()).finish()
    }
}

impl Pool {
    /// Starts the workers.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(self: &Arc<Pool>, threads: usize) -> io::Result<Vec<thread::JoinHandle<()>>> {
        let worker = |index| {
            let pool = self.clone();
            thread::Builder::new().name(format!("worker-{index}")).spawn(move || pool.serve())
        };
        (0..threads).map(worker).collect()
    }

    pub(crate) fn push(&self, work: Work) {
        lock(&self.state).queue.push_back(work);
        self.changed.notify_one();
    }

    /// Ends the workers once the queue is empty.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    fn serve(&self) {
        run_loop::may_sleep(Sleeps::Nothing);
        let mut state = lock(&self.state);
        loop {
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                run_loop::run(work);
                state = lock(&self.state);
            } else if state.stopped {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
