//! Waiting in futures: a mutex whose guard is never held across an await, and conditions on
//! what it guards.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Locks a mutex, also after a panic elsewhere: every state here is changed in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those who wait for a state to change. One alone, as in most cases, takes no memory beside it.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl Waiters {
    pub(crate) fn add(&mut self, waker: &Waker) {
        let Some(first) = &self.first else {
            self.first = Some(waker.clone());
            return;
        };
        let known =
            first.will_wake(waker) || self.others.iter().any(|known| known.will_wake(waker));
        if !known {
            self.others.push(waker.clone());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// Takes everyone, to be woken after the state's mutex is released.
    pub(crate) fn take(&mut self) -> Woken {
        Woken { first: self.first.take(), others: core::mem::take(&mut self.others) }
    }
}

/// Tasks to be woken.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Woken {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl Woken {
    pub(crate) fn wake(self) {
        for waker in self.first.into_iter().chain(self.others) {
            waker.wake();
        }
    }

    /// All of both.
    pub(crate) fn and(mut self, more: Woken) -> Woken {
        if self.first.is_none() && self.others.is_empty() {
            return more;
        }
        self.others.extend(more.first.into_iter().chain(more.others));
        self
    }
}

impl FromIterator<Waker> for Woken {
    fn from_iter<I: IntoIterator<Item = Waker>>(wakers: I) -> Woken {
        let mut wakers = wakers.into_iter();
        Woken { first: wakers.next(), others: wakers.collect() }
    }
}

/// Waits until `ready` finds what it looks for. `waiters` says where to wait.
pub(crate) async fn until<S, T>(
    state: &Mutex<S>,
    waiters: impl Fn(&mut S) -> &mut Waiters,
    mut ready: impl FnMut(&mut S) -> Option<T>,
) -> T {
    poll_fn(|context| {
        let mut state = lock(state);
        match ready(&mut state) {
            Some(value) => Poll::Ready(value),
            None => {
                waiters(&mut state).add(context.waker());
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs futures side by side and collects what they give, in order.
pub(crate) async fn join_all<T>(
    futures: Vec<std::pin::Pin<Box<dyn Future<Output = T> + Send + '_>>>,
) -> Vec<T> {
    enum Slot<'a, T> {
        Running(std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>),
        Done(Option<T>),
    }
    impl<T> Unpin for Slot<'_, T> {}
    let mut slots: Vec<Slot<'_, T>> = futures.into_iter().map(Slot::Running).collect();
    poll_fn(|context| {
        let mut pending = false;
        for slot in &mut slots {
            if let Slot::Running(future) = slot {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *slot = Slot::Done(Some(value)),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let done = slots.into_iter().filter_map(|slot| match slot {
        Slot::Done(value) => value,
        Slot::Running(_) => None,
    });
    done.collect()
}

/// A future that somebody else drives.
pub(crate) type Side<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs futures side by side, `most` at once, each of which is made when its turn comes. The error that
/// came first, when all have ended. Each wake-up polls all that run: with hundreds at once that alone
/// takes longer than what they do.
pub(crate) async fn join_few<'a, E>(
    most: usize,
    mut futures: impl Iterator<Item = Side<'a, Result<(), E>>>,
) -> Option<E> {
    let mut running: Vec<Side<'a, Result<(), E>>> = Vec::with_capacity(most);
    let mut failed = None;
    poll_fn(|context| {
        let mut at = 0;
        loop {
            let Some(one) = running.get_mut(at) else {
                let next = if running.len() < most { futures.next() } else { None };
                let Some(next) = next else { break };
                running.push(next);
                continue;
            };
            match one.as_mut().poll(context) {
                Poll::Ready(ended) => {
                    drop(running.swap_remove(at));
                    failed = failed.take().or(ended.err());
                }
                Poll::Pending => at += 1,
            }
        }
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    failed
}
