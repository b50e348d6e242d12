//! How much bulk there may be that came in and that somebody here still holds.
//!
//! A server that cannot write as fast as its clients send would otherwise hold all that they
//! have in flight. Beyond the limit its connections are read no further, which TCP tells the
//! senders. Whoever holds bulk must get rid of it without anything else from the network.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sateen_types::{DIRECT_ALIGN, DIRECT_BYTES_MIN, to_direct_align};

/// How often whoever waits looks whether its connection is still there.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// Who waits, in order, so that the large are not overtaken by the small for ever.
    line: VecDeque<Waiter>,
    last: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    len: usize,
    woken: Arc<Condvar>,
}

/// Some bulk, which counts until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    data: Vec<u8>,
    /// So much of it lies before the bulk, which may go to a disk from where it is.
    skip: usize,
    taken: usize,
    budget: Arc<Budget>,
}

impl State {
    /// If there is nothing, there may be anything.
    fn fits(&self, len: usize, bytes_max: usize) -> bool {
        self.held == 0 || self.held + len <= bytes_max
    }

    /// Only the first is woken, and only if there is room for it; it wakes the next.
    fn wake(&self, bytes_max: usize) {
        if let Some(first) = self.line.front()
            && self.fits(first.len, bytes_max)
        {
            first.woken.notify_one();
        }
    }
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be so much more; `None` if that is in vain, because the connection
    /// is `gone`.
    pub(super) fn take(self: &Arc<Budget>, len: usize, gone: impl Fn() -> bool) -> Option<Held> {
        let mut state = self.state();
        if !state.line.is_empty() || !state.fits(len, self.bytes_max) {
            state = self.wait(state, len, gone)?;
        }
        state.held += len;
        state.wake(self.bytes_max);
        drop(state);
        let (data, skip) = room(len);
        Some(Held { data, skip, taken: len, budget: self.clone() })
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        len: usize,
        gone: impl Fn() -> bool,
    ) -> Option<MutexGuard<'a, State>> {
        state.last += 1;
        let (number, woken) = (state.last, Arc::new(Condvar::new()));
        state.line.push_back(Waiter { number, len, woken: woken.clone() });
        loop {
            let first = state.line.front().is_some_and(|first| first.number == number);
            if first && state.fits(len, self.bytes_max) {
                state.line.pop_front();
                return Some(state);
            }
            if gone() {
                state.line.retain(|waiter| waiter.number != number);
                state.wake(self.bytes_max);
                return None;
            }
            state = woken.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Memory for so much, and what is to be left out at its front: large bulk lies as it has to for a
/// write past the page cache, without being copied once more.
fn room(len: usize) -> (Vec<u8>, usize) {
    if len < DIRECT_BYTES_MIN {
        return (Vec::with_capacity(len), 0);
    }
    let mut data: Vec<u8> = Vec::with_capacity(len + DIRECT_ALIGN);
    let skip = to_direct_align(data.as_ptr().addr());
    data.resize(skip, 0);
    (data, skip)
}

impl Held {
    /// What is to be filled, behind what it has.
    pub(super) fn data(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.data.get(self.skip..).unwrap_or_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.held -= self.taken;
        state.wake(self.budget.bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use super::*;

    #[test]
    fn large_bulk_lies_as_disks_want_it() {
        let budget = Budget::new(1 << 30);
        for len in [10, DIRECT_BYTES_MIN, 1 << 20, (1 << 20) + 1] {
            let mut held = budget.take(len, || false).unwrap();
            let before = held.data().as_ptr();
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            held.data().extend_from_slice(&bytes);
            assert_eq!(held.data().as_ptr(), before, "it had room");
            let held = held.into_bytes();
            assert_eq!(held, bytes);
            let is_aligned = held.as_ptr().addr().is_multiple_of(DIRECT_ALIGN);
            assert!(is_aligned || len < DIRECT_BYTES_MIN);
        }
    }

    #[test]
    fn the_large_are_not_overtaken_and_the_gone_are_passed_over() {
        let budget = Budget::new(100);
        let first = budget.take(90, || false).unwrap();
        let (sender, order) = channel();
        let begin = |len: usize, gone: bool| {
            let (budget, sender) = (budget.clone(), sender.clone());
            let before = budget.state().line.len();
            let taken = spawn({
                let budget = budget.clone();
                move || {
                    let held = budget.take(len, || gone);
                    sender.send((len, held.is_some())).unwrap();
                    held
                }
            });
            // It stands in the line, or has left it again.
            while !gone && budget.state().line.len() == before {
                std::thread::yield_now();
            }
            taken
        };
        let large = begin(95, false);
        let small = begin(5, false);
        assert!(begin(7, true).join().unwrap().is_none());
        assert_eq!(order.recv(), Ok((7, false)));
        assert!(order.try_recv().is_err(), "the small one would fit, and waits for its turn");
        drop(first);
        assert!(large.join().unwrap().is_some() && small.join().unwrap().is_some());
        let mut came = [order.recv().unwrap(), order.recv().unwrap()];
        came.sort_unstable();
        assert_eq!(came, [(5, true), (95, true)]);
        assert!(budget.state().held == 0 && budget.state().line.is_empty());
    }
}
