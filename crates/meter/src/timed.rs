//! A verb of a mount, and how long it takes: from its begin to its end, and what of that its own
//! code ran.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::{Begun, Part, Took, begin, is_on};

pin_project! {
    /// A future that is measured: see [`timed`].
    #[derive(Debug)]
    pub struct Timed<F> {
        #[pin]
        future: F,
        // By its number, and who knows its name: nobody asks, if it is not measured.
        code: u32,
        names: fn(u32) -> &'static str,
        begun: Begun,
        // So far, if that is measured.
        ran_ns: Option<u64>,
    }
}

/// Measures what a future does under a name that is asked for when it has ended: as
/// [`Part::Llite`] from now until then, and as [`Part::Client`] the time that it ran.
pub fn timed<F: Future>(code: u32, names: fn(u32) -> &'static str, future: F) -> Timed<F> {
    let ran_ns = is_on(Part::Client).then_some(0);
    Timed { future, code, names, begun: begin(Part::Llite), ran_ns }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let runs = if this.ran_ns.is_some() { begin(Part::Client) } else { Begun::NEVER };
        let polled = this.future.poll(context);
        if let Some(before) = *this.ran_ns {
            // Of one that was not measured all the time nothing is counted.
            *this.ran_ns = runs.stop().ns().map(|ns| before.saturating_add(ns));
        }
        if polled.is_ready() {
            let (code, names) = (*this.code, *this.names);
            this.begun.end(Part::Llite, || names(code));
            this.ran_ns.map_or(Took::NEVER, Took::of_ns).count(Part::Client, || names(code));
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::{clear, read, switch_off, switch_on};

    /// Works for a while, waits for one, and works again.
    fn work() -> impl Future<Output = u32> {
        let mut polled = false;
        poll_fn(move |_| {
            std::thread::sleep(Duration::from_millis(2));
            if std::mem::replace(&mut polled, true) { Poll::Ready(7) } else { Poll::Pending }
        })
    }

    /// `meanwhile` happens while it waits.
    fn run(mut future: Pin<&mut impl Future<Output = u32>>, meanwhile: impl FnOnce()) {
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        std::thread::sleep(Duration::from_millis(20));
        meanwhile();
        assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(7));
    }

    fn three(code: u32) -> &'static str {
        if code == 3 { "three" } else { "other" }
    }

    #[test]
    fn a_verb_takes_as_long_as_it_waits_and_its_code_as_long_as_it_runs() {
        run(pin!(timed(1, |_| panic!("nobody measures"), work())), || ());
        assert!(read(Part::Llite).is_empty() && read(Part::Client).is_empty());
        switch_on(Part::Llite);
        switch_on(Part::Client);
        run(pin!(timed(3, three, work())), || ());
        let [(name, all)] = read(Part::Llite).try_into().unwrap();
        let [(same, ran)] = read(Part::Client).try_into().unwrap();
        assert_eq!((name, same), ("three", "three"));
        assert_eq!((all.samples, ran.samples), (1, 1), "however often it was polled");
        assert!(ran.sum >= 4_000_000, "{ran:?}");
        assert!(all.sum >= ran.sum + 20_000_000, "{all:?} {ran:?}");

        clear(Part::Client);
        run(pin!(timed(3, three, work())), || switch_off(Part::Client));
        run(pin!(timed(3, three, work())), || switch_on(Part::Client));
        assert!(read(Part::Client).is_empty(), "it was not measured all the time");
        switch_off(Part::Llite);
        switch_off(Part::Client);
    }
}
