//! What is off costs nothing: nothing is allocated and nothing is counted, and what is on allocates a
//! table, once. In a process of its own, whose allocations are counted.
#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sateen_meter::{NOBODY_ASKS, Part, begin, clear, named, read, switch_off, switch_on, timed};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const OPS: u64 = 1000;
/// The test's own process may do something beside it: the best of a few rounds counts.
const ROUNDS: usize = 5;

fn code_name(code: u32) -> &'static str {
    if code == 7 { "seven" } else { "other" }
}

/// An operation, in every part in each of the ways there are.
fn operation() {
    for part in Part::ALL {
        begin(part).end(part, || "ended");
        let (first, second) = begin(part).lap();
        first.count(part, || "first");
        second.stop().count(part, || "second");
        let name = named(part, || "named");
        begin(part).end(part, || name);
    }
    let mut context = Context::from_waker(Waker::noop());
    let verb = pin!(timed(7, code_name, ready(5)));
    assert_eq!(verb.poll(&mut context), Poll::Ready(5));
}

/// Allocations of so many operations, in the round that has fewest.
fn allocations() -> u64 {
    let count = |_| {
        let before = HEAP.stats().allocations;
        (0..OPS).for_each(|_| operation());
        (HEAP.stats().allocations - before) as u64
    };
    (0..ROUNDS).map(count).min().unwrap()
}

fn samples() -> u64 {
    Part::ALL.into_iter().flat_map(read).map(|(_, measured)| measured.samples).sum()
}

#[test]
fn what_is_off_allocates_nothing_and_is_not_counted() {
    assert_eq!((allocations(), samples()), (0, 0), "nobody has ever measured");

    // The same operations are counted when somebody does, and there is something to allocate.
    Part::ALL.into_iter().for_each(switch_on);
    let before = HEAP.stats().allocations;
    operation();
    assert!(HEAP.stats().allocations > before, "a table was made");
    let (parts, each, verb) = (Part::ALL.len() as u64, 4, 2);
    assert_eq!(samples(), parts * each + verb);
    assert_eq!(allocations(), 0, "there is a table");
    assert_eq!(samples(), (parts * each + verb) * (1 + OPS * ROUNDS as u64));

    Part::ALL.into_iter().for_each(switch_off);
    Part::ALL.into_iter().for_each(clear);
    assert_eq!((allocations(), samples()), (0, 0), "nobody measures any more");
    assert_eq!(named(Part::Fuse, || "fuse"), NOBODY_ASKS);
}
