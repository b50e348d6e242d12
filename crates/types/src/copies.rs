//! How many bytes of files our own code copies, and where, if somebody wants to know: whoever copies
//! data says so ([`copied`]). What the kernel copies, between a program and us and in sockets and
//! files, is not counted, and neither is what is only looked at or set to zero.
//!
//! While nobody counts each costs a relaxed load. Nothing here goes back to whoever counts, so that
//! what the deterministic core does is the same either way.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{StatName, Tally};

/// Where data is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// A mount takes what is written out of memory that the kernel wants back with the answer.
    MountWrite,
    /// An answer that lies elsewhere goes into the memory in which the kernel wants it.
    FuseAnswer,
    /// Into memory that two processes share, messages with the data.
    ShmOut,
    /// Out of it.
    ShmIn,
    /// What was read before the bulk was looked for, out of a connection's buffer.
    LndAhead,
    /// A client keeps what is written, to write it together with others.
    ClientKeep,
    /// A client reads what it keeps.
    ClientRead,
    /// A client puts what it keeps together for one request.
    ClientJoin,
    /// A client keeps small writes to make them again after a crash of their OST.
    ClientAgain,
    /// A client keeps what it has read.
    ClientClean,
    /// A client gives what it has read ahead.
    ClientAhead,
    /// A client puts what it has read of several objects together.
    ClientStripes,
}

const PLACES: usize = 12;

/// Their names, in their order.
const NAMES: [&str; PLACES] = [
    "mount_write",
    "fuse_answer",
    "shm_out",
    "shm_in",
    "lnd_ahead",
    "client_keep",
    "client_read",
    "client_join",
    "client_again",
    "client_clean",
    "client_ahead",
    "client_stripes",
];

/// On lines of its own, which come in pairs: what others write beside it would have to be fetched
/// again by all who read it.
#[repr(align(128))]
struct Apart<T>(T);

static ON: Apart<AtomicBool> = Apart(AtomicBool::new(false));

/// Threads that copy in different places share none of these. Those that copy in the same one do: a
/// copy takes longer than that, and none is counted if nobody wants to know.
static COUNTERS: [Apart<Counter>; PLACES] = [const { Apart(Counter::new()) }; PLACES];

/// How often, and how many bytes.
struct Counter {
    samples: AtomicU64,
    /// `u64::MAX` less the smallest, so that it begins with 0.
    small: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    sumsq: AtomicU64,
}

impl Counter {
    const fn new() -> Counter {
        Counter {
            samples: AtomicU64::new(0),
            small: AtomicU64::new(0),
            max: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            sumsq: AtomicU64::new(0),
        }
    }

    fn add(&self, bytes: u64) {
        self.small.fetch_max(u64::MAX - bytes, Ordering::Relaxed);
        self.max.fetch_max(bytes, Ordering::Relaxed);
        self.sum.fetch_add(bytes, Ordering::Relaxed);
        self.sumsq.fetch_add(bytes.wrapping_mul(bytes), Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    fn tally(&self) -> Tally {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (samples, max) = (of(&self.samples), of(&self.max));
        let min = if samples == 0 { 0 } else { (u64::MAX - of(&self.small)).min(max) };
        Tally { samples, min, max, sum: of(&self.sum), sumsq: of(&self.sumsq) }
    }

    fn clear(&self) {
        for counter in [&self.samples, &self.small, &self.max, &self.sum, &self.sumsq] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Data was copied.
#[inline]
pub fn copied(place: Copied, bytes: usize) {
    if ON.0.load(Ordering::Relaxed) {
        count(place, bytes as u64);
    }
}

#[cold]
fn count(place: Copied, bytes: u64) {
    // What moves nothing is no copy.
    if let (Some(counter), true) = (COUNTERS.get(place as usize), bytes > 0) {
        counter.0.add(bytes);
    }
}

/// Counts copies from now on, or no more. What was counted stays.
pub fn count_copies(on: bool) {
    ON.0.store(on, Ordering::Relaxed);
}

/// Whether they are counted.
pub fn copies_are_counted() -> bool {
    ON.0.load(Ordering::Relaxed)
}

/// Begins anew. Of what is counted at this moment some may stay.
pub fn clear_copies() {
    COUNTERS.iter().for_each(|counter| counter.0.clear());
}

/// What was copied in each place, those with nothing among them: how often, and how many bytes.
pub fn copies() -> [(StatName, Tally); PLACES] {
    let mut all = NAMES.map(|name| (StatName::bytes(name), Tally::default()));
    for ((_, tally), counter) in all.iter_mut().zip(&COUNTERS) {
        *tally = counter.0.tally();
    }
    all
}

/// The places with copies, and all together, as other statistics.
///
/// # Errors
/// The writer's.
pub fn write_copies(out: &mut impl Write) -> fmt::Result {
    let mut all = Tally::default();
    for (name, tally) in copies() {
        name.write(&tally, out)?;
        all.merge(&tally);
    }
    StatName::bytes("all").write(&all, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_by_their_places_while_somebody_wants_to_know() {
        copied(Copied::ShmIn, 5);
        count_copies(true);
        assert!(copies_are_counted());
        copied(Copied::MountWrite, 100);
        copied(Copied::MountWrite, 11);
        copied(Copied::ClientAhead, 7);
        copied(Copied::ClientJoin, 0);
        count_copies(false);
        copied(Copied::ShmIn, 5);
        let some = copies().into_iter().filter(|(_, tally)| tally.samples > 0);
        let some: Vec<_> = some.map(|(name, tally)| (name.name, tally.sum)).collect();
        assert_eq!(some, [("mount_write", 111), ("client_ahead", 7)]);
        let mut text = String::new();
        write_copies(&mut text).unwrap();
        assert_eq!(
            text,
            "mount_write               2 samples [bytes] 11 100 111 10121\n\
             client_ahead              1 samples [bytes] 7 7 7 49\n\
             all                       3 samples [bytes] 7 100 118 10170\n"
        );
        clear_copies();
        assert!(copies().iter().all(|(_, tally)| *tally == Tally::default()));
    }

    #[test]
    fn who_counts_in_another_place_is_on_other_lines() {
        assert_eq!(align_of::<Apart<Counter>>(), 128);
        assert_eq!(size_of::<Apart<Counter>>(), 128);
    }
}
