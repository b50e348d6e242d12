//! Verbs that nobody waits for any more.
//!
//! What such a verb has asked of a target goes on: it may have been executed, and its answer may
//! bring locks and opens that somebody has to care for. But it asks nothing new that would have
//! to wait for a connection or a slot: such a request fails with `EINTR`, and the verb ends as
//! after any other failure. So there are never more of them than there are slots.
//!
//! Work that must not be left half done is [`to_the_end`].

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::sync::lock;

thread_local! {
    /// Nobody waits for the verb that is being polled.
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
}

/// Says that nobody waits for a verb any more.
#[derive(Debug, Default)]
pub struct Patience {
    over: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Patience {
    /// Nobody waits any more.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Runs verbs of a client that somebody waits for with this patience.
    pub async fn run<T>(self: Arc<Patience>, verbs: impl Future<Output = T>) -> T {
        let mut verbs = core::pin::pin!(verbs);
        poll_fn(|context| {
            // Noted before it is looked at: whoever ends it sees this or is seen.
            *lock(&self.waker) = Some(context.waker().clone());
            poll_as(self.over.load(Ordering::SeqCst), verbs.as_mut(), context)
        })
        .await
    }
}

fn poll_as<T>(
    given_up: bool,
    future: Pin<&mut impl Future<Output = T>>,
    context: &mut Context<'_>,
) -> Poll<T> {
    let before = GIVEN_UP.replace(given_up);
    let polled = future.poll(context);
    GIVEN_UP.set(before);
    polled
}

/// Whether nobody waits for the verb that is being polled.
pub(crate) fn is_over() -> bool {
    GIVEN_UP.get()
}

/// Runs something to its end, whether or not anybody waits for it.
pub(crate) async fn to_the_end<T>(work: impl Future<Output = T>) -> T {
    let mut work = core::pin::pin!(work);
    poll_fn(|context| poll_as(false, work.as_mut(), context)).await
}
