//! Verbs that nobody waits for any more.
//!
//! What such a verb has asked of a target goes on: it may have been executed, and its answer may
//! bring locks and opens that somebody has to care for. But it asks nothing new that would have
//! to wait for a connection or a slot: such a request fails with `EINTR`, and the verb ends as
//! after any other failure. So there are never more of them than there are slots.
//!
//! Work that must not be left half done is [`to_the_end`].
//!
//! Some verbs wait for people, who may take for ever: a group may have a file for as long as it likes. Where
//! nobody would hear of the signals of who waits for a verb, somebody begins to when it
//! [`waits_for_people`]: [`hearing`].

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::sync::lock;

thread_local! {
    /// Nobody waits for the verb that is being polled.
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
    /// The verb that is being polled has begun to wait for people.
    static WAITS: Cell<bool> = const { Cell::new(false) };
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

pin_project_lite::pin_project! {
    /// Verbs that get a patience when they wait for people, and not before.
    struct Hearing<F, E, P> {
        enter: Option<E>,
        patience: Option<P>,
        #[pin]
        verbs: F,
    }
}

/// Runs verbs of a client. When they begin to wait for people, they are entered where signals are heard of,
/// and go by the patience that this gives from then on.
pub fn hearing<F, P>(verbs: F, enter: impl FnOnce() -> P) -> impl Future<Output = F::Output>
where
    F: Future,
    P: AsRef<Patience>,
{
    Hearing { enter: Some(enter), patience: None, verbs }
}

impl<F, E, P> Future for Hearing<F, E, P>
where
    F: Future,
    E: FnOnce() -> P,
    P: AsRef<Patience>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        loop {
            let patience: Option<&Patience> = this.patience.as_ref().map(AsRef::as_ref);
            let over = patience.is_some_and(|patience| patience.is_over_for(context));
            let before = GIVEN_UP.replace(over);
            WAITS.set(false);
            let polled = this.verbs.as_mut().poll(context);
            GIVEN_UP.set(before);
            if polled.is_ready() || !WAITS.take() {
                return polled;
            }
            let Some(enter) = this.enter.take() else { return polled };
            // It may be over already.
            *this.patience = Some(enter());
        }
    }
}

/// The verb that is being polled waits for people from now on.
pub(crate) fn waits_for_people() {
    WAITS.set(true);
}

/// Whether nobody waits for the verb that is being polled.
pub(crate) fn is_over() -> bool {
    GIVEN_UP.get()
}

/// Runs something to its end, whether or not anybody waits for it.
pub(crate) fn to_the_end<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    Waited { patience: None, verbs: work }
}

#[cfg(test)]
mod tests {
    use core::future::poll_fn;

    use super::*;

    #[test]
    fn a_verb_is_heard_from_when_it_waits_for_people() {
        let mut context = Context::from_waker(Waker::noop());
        let patience = Arc::<Patience>::default();
        let entered = Cell::new(0);
        let enter = || {
            entered.set(entered.get() + 1);
            Late(patience.clone())
        };
        let waits = Cell::new(false);
        let verb = poll_fn(|_| {
            if waits.get() {
                waits_for_people();
            }
            if is_over() { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut verb = Box::pin(hearing(verb, enter));
        assert!(verb.as_mut().poll(&mut context).is_pending() && entered.get() == 0);
        waits.set(true);
        for _ in 0..2 {
            assert!(verb.as_mut().poll(&mut context).is_pending() && entered.get() == 1);
        }
        patience.end();
        assert!(verb.as_mut().poll(&mut context).is_ready() && !is_over());
    }

    /// Somebody who hears of signals.
    struct Late(Arc<Patience>);

    impl AsRef<Patience> for Late {
        fn as_ref(&self) -> &Patience {
            &self.0
        }
    }
}
