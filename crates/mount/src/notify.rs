//! The notifier thread: what the kernel is told to forget, one after the other.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use sateen_client::KernelInval;
use sateen_fuse::Notifier;

/// Threads that talk to the kernel: one invalidation of pages may wait for a READ, and must
/// not keep another inode's waiting.
const THREADS: usize = 4;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    notifier: Option<Notifier>,
    stopped: bool,
}

struct Job {
    what: KernelInval,
    done: Arc<Mutex<Outcome>>,
}

#[derive(Default)]
struct Outcome {
    known: Option<bool>,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The threads and their queue.
pub(crate) struct Notifiers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Notifiers {
    pub(crate) fn start() -> io::Result<Notifiers> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("notify".to_owned());
            threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(Notifiers { shared, threads: Mutex::new(threads) })
    }

    /// The mount exists: from now on there is somebody to tell.
    pub(crate) fn attach(&self, notifier: Notifier) {
        lock(&self.shared.state).notifier = Some(notifier);
    }

    pub(crate) fn stop(&self) {
        lock(&self.shared.state).stopped = true;
        self.shared.changed.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }

    /// Ends when the kernel was told, with whether it knew the inode.
    pub(crate) fn tell(&self, what: KernelInval) -> Told {
        let done = Arc::new(Mutex::new(Outcome::default()));
        let mut state = lock(&self.shared.state);
        if state.notifier.is_none() || state.stopped {
            // No kernel, no cache.
            lock(&done).known = Some(true);
        } else {
            state.queue.push_back(Job { what, done: done.clone() });
            drop(state);
            self.shared.changed.notify_one();
        }
        Told { done }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            let Some(job) = state.queue.pop_front() else {
                if state.stopped {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let notifier = state.notifier.clone();
            drop(state);
            let known = notifier.is_none_or(|notifier| tell(&notifier, job.what));
            let waker = {
                let mut done = lock(&job.done);
                done.known = Some(known);
                done.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
            state = lock(&self.state);
        }
    }
}

fn tell(notifier: &Notifier, what: KernelInval) -> bool {
    let told = match what {
        KernelInval::Names => notifier.inc_epoch(),
        KernelInval::Attr(ino) => notifier.inval_inode(ino, -1, 0),
        KernelInval::Data(ino) => notifier.inval_inode(ino, 0, 0),
    };
    // The session is gone, and its caches with it.
    told.unwrap_or_else(|error| {
        tracing::debug!(?what, %error, "the kernel could not be told");
        true
    })
}

/// See [`Notifiers::tell`].
pub(crate) struct Told {
    done: Arc<Mutex<Outcome>>,
}

impl Future for Told {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut done = lock(&self.done);
        match done.known {
            Some(known) => Poll::Ready(known),
            None => {
                done.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
