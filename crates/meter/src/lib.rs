//! How long operations are in each part of the program, if somebody wants to know.
//!
//! Called where effects happen (the kernel's queues, the network, the hosts of targets), never by
//! the deterministic core, which has no clock. Each [`Part`] has a switch of its own. One that is
//! off costs a relaxed load of the switches: no clock is read, no name is looked for, nothing is
//! allocated, nothing is locked. One that is on costs two readings of the clock and a few counters
//! ([`table`]) for each operation, which threads that run at the same time do not share.
//!
//! Life of a measurement: [`begin`], which reads the clock if the part is on; [`Begun::end`], which
//! counts what has gone by since under the name of the operation. What was begun while the part
//! was off is not counted, nor is what ends when it is off again, or is dropped without an end.
//! Whoever holds a lock at the end only reads the clock ([`Begun::stop`]), and counts when nobody
//! waits any more ([`Took::count`]).
//!
//! Parts lie within each other: what an operation waits for in one of them it spends in another.
//! So they are read beside each other, and what one has more than the next was spent between.

mod table;
mod timed;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use table::Measured;
pub use timed::{Timed, timed};

/// A part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Part {
    /// From when a thread of ours takes a request of the kernel to when it gives the answer back:
    /// all others of a mount lie within it.
    Fuse,
    /// A verb of a mount, from its begin to its end, with all that it waits for.
    Llite,
    /// What of that the verb's own code ran, in the mount and in the client, on whatever thread.
    Client,
    /// A client's request to a target, from when it is sent to its answer.
    Rpc,
    /// A request on a connection, from when it is handed in to when its answer has come.
    Lnd,
    /// A target's code at one message, or at what else happens to it; and waiting for its lock.
    Target,
    /// A target's object store and index at one operation.
    Osd,
    /// A target's journal at one write.
    Journal,
}

impl Part {
    /// All of them, from the outermost to the innermost.
    pub const ALL: [Part; 8] = [
        Part::Fuse,
        Part::Llite,
        Part::Client,
        Part::Rpc,
        Part::Lnd,
        Part::Target,
        Part::Osd,
        Part::Journal,
    ];

    /// As people know it.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Fuse => "fuse",
            Part::Llite => "llite",
            Part::Client => "client",
            Part::Rpc => "rpc",
            Part::Lnd => "lnd",
            Part::Target => "target",
            Part::Osd => "osd",
            Part::Journal => "journal",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// The name of what nobody measures.
pub const NOBODY_ASKS: &str = "";

/// On lines of its own, which come in pairs: what others write beside it would have to be fetched
/// again by all who read it.
#[repr(align(128))]
struct Apart<T>(T);

/// The parts that are on.
static ON: Apart<AtomicU32> = Apart(AtomicU32::new(0));

/// Whether a part is measured.
#[inline]
pub fn is_on(part: Part) -> bool {
    ON.0.load(Ordering::Relaxed) & part.bit() != 0
}

/// Measures a part from now on. What was counted of it before stays.
pub fn switch_on(part: Part) {
    ON.0.fetch_or(part.bit(), Ordering::Relaxed);
}

/// Measures it no more. What was counted stays.
pub fn switch_off(part: Part) {
    ON.0.fetch_and(!part.bit(), Ordering::Relaxed);
}

/// Forgets what was counted of a part. Of what is counted at this moment some may stay.
pub fn clear(part: Part) {
    table::clear(part);
}

/// What was counted of a part, by the names of the operations.
pub fn read(part: Part) -> Vec<(&'static str, Measured)> {
    table::read(part)
}

/// The name of an operation, where it has to be taken before the end: [`NOBODY_ASKS`] if nobody
/// measures.
#[inline]
pub fn named(part: Part, name: impl FnOnce() -> &'static str) -> &'static str {
    if is_on(part) { name() } else { NOBODY_ASKS }
}

/// Something that was begun, and when, if it is measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Begun(Option<Instant>);

/// Something begins in a part.
#[inline]
pub fn begin(part: Part) -> Begun {
    Begun(is_on(part).then(Instant::now))
}

impl Begun {
    /// What nobody measures.
    pub const NEVER: Begun = Begun(None);

    /// It has ended: it is counted. Not for who holds a lock.
    #[inline]
    pub fn end(self, part: Part, name: impl FnOnce() -> &'static str) {
        self.stop().count(part, name);
    }

    /// It has ended, and is counted later.
    #[inline]
    pub fn stop(self) -> Took {
        Took(self.0.map(|since| nanoseconds(since.elapsed())))
    }

    /// It has ended, and the next begins.
    #[inline]
    pub fn lap(self) -> (Took, Begun) {
        let Some(since) = self.0 else { return (Took::NEVER, Begun::NEVER) };
        let now = Instant::now();
        (Took(Some(nanoseconds(now.duration_since(since)))), Begun(Some(now)))
    }
}

/// How long something took, if it was measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took(Option<u64>);

impl Took {
    /// What nobody measures.
    pub const NEVER: Took = Took(None);

    /// Of who has measured it himself, by another clock or in pieces.
    pub const fn of_ns(ns: u64) -> Took {
        Took(Some(ns))
    }

    /// Counts it, if its part is on still and it has a name.
    #[inline]
    pub fn count(self, part: Part, name: impl FnOnce() -> &'static str) {
        if let Some(ns) = self.0
            && is_on(part)
        {
            note(part, name(), ns);
        }
    }

    /// In nanoseconds.
    #[inline]
    pub(crate) const fn ns(self) -> Option<u64> {
        self.0
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cold]
#[inline(never)]
fn note(part: Part, name: &'static str, ns: u64) {
    // It was to be named when the part was off, and is counted when it is on.
    if name != NOBODY_ASKS {
        table::note(part, name, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_not_counted_and_each_part_has_its_own_switch() {
        let name = || "some";
        begin(Part::Rpc).end(Part::Rpc, name);
        Took::of_ns(7).count(Part::Rpc, name);
        let before = begin(Part::Rpc);
        switch_on(Part::Rpc);
        assert!(is_on(Part::Rpc) && !is_on(Part::Lnd));
        before.end(Part::Rpc, name);
        let (took, next) = before.lap();
        took.count(Part::Rpc, name);
        next.end(Part::Rpc, name);
        Begun::NEVER.end(Part::Rpc, name);
        Took::NEVER.count(Part::Rpc, name);
        assert!(read(Part::Rpc).is_empty(), "it was begun while nobody measured");
        begin(Part::Rpc).end(Part::Rpc, || NOBODY_ASKS);
        assert!(read(Part::Rpc).is_empty(), "it has no name");
        begin(Part::Rpc).end(Part::Rpc, name);
        Took::of_ns(7).count(Part::Rpc, name);
        begin(Part::Lnd).end(Part::Lnd, name);
        let (late, stopped) = (begin(Part::Rpc), begin(Part::Rpc).stop());
        switch_off(Part::Rpc);
        late.end(Part::Rpc, name);
        stopped.count(Part::Rpc, name);
        Took::of_ns(7).count(Part::Rpc, name);
        begin(Part::Rpc).end(Part::Rpc, name);
        let [(called, counted)] = read(Part::Rpc).try_into().unwrap();
        assert_eq!((called, counted.samples), ("some", 2), "what was counted stays");
        assert!(read(Part::Lnd).is_empty());
        clear(Part::Rpc);
        assert!(read(Part::Rpc).is_empty());
    }

    #[test]
    fn the_name_of_what_nobody_measures_is_not_asked_for() {
        let never = || -> &'static str { panic!("nobody measures") };
        assert_eq!(named(Part::Journal, never), NOBODY_ASKS);
        begin(Part::Journal).end(Part::Journal, never);
        Took::of_ns(1).count(Part::Journal, never);
    }

    #[test]
    fn parts_have_switches_and_names_of_their_own() {
        let bits = Part::ALL.iter().fold(0, |bits, part| bits | part.bit());
        assert_eq!(bits.count_ones() as usize, Part::ALL.len());
        let names: std::collections::BTreeSet<_> = Part::ALL.iter().map(|p| p.name()).collect();
        assert_eq!(names.len(), Part::ALL.len());
    }
}
