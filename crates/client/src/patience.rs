//! Verbs that nobody waits for any more.
//!
//! What such a verb has asked of a target goes on: it may have been executed, and its answer may
//! bring locks and opens that somebody has to care for. But it asks nothing new that would have
//! to wait for a connection or a slot: such a request fails with `EINTR`, and the verb ends as
//! after any other failure. So there are never more of them than there are slots.
//!
//! Work that must not be left half done is [`to_the_end`].

use std::cell::Cell;
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
    pub fn run<T>(self: Arc<Patience>, verbs: impl Future<Output = T>) -> impl Future<Output = T> {
        Waited { patience: Some(self), verbs }
    }

    /// Whether it is over; whoever ends it later wakes this.
    fn is_over_for(&self, context: &Context<'_>) -> bool {
        // Noted before it is looked at: whoever ends it sees this or is seen.
        *lock(&self.waker) = Some(context.waker().clone());
        self.over.load(Ordering::SeqCst)
    }
}

pin_project_lite::pin_project! {
    /// Verbs, and whose patience they go by; of nobody's, they run to their end. They are held in
    /// place: as an argument of an `async fn` they would be there twice, and futures of verbs are
    /// kilobytes.
    struct Waited<F> {
        patience: Option<Arc<Patience>>,
        #[pin]
        verbs: F,
    }
}

impl<F: Future> Future for Waited<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let over = this.patience.as_ref().is_some_and(|patience| patience.is_over_for(context));
        let before = GIVEN_UP.replace(over);
        let polled = this.verbs.poll(context);
        GIVEN_UP.set(before);
        polled
    }
}

/// Whether nobody waits for the verb that is being polled.
pub(crate) fn is_over() -> bool {
    GIVEN_UP.get()
}

/// Runs something to its end, whether or not anybody waits for it.
pub(crate) fn to_the_end<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    Waited { patience: None, verbs: work }
}
