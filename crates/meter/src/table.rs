//! What was counted: a table for each of a few groups of threads, so that those who run at the same
//! time mostly write to memory of their own; whoever reads adds them up.
//!
//! A table is made when a thread of its group measures something for the first time, and stays: none
//! is there as long as nobody measures. An operation has the place in it that its name hashes to, or
//! the next that is free, for good.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::Part;

/// Tables: more threads than that seldom run at a time.
const TABLES: usize = 16;
/// Operations of all parts together: there are some three hundred. A table takes 192 KiB.
const PLACES: usize = 512;
/// Classes of times: the first has those below 1 ns, each of the others twice as long ones, and the
/// last whatever took longer than half a second.
const CLASSES: usize = 32;

/// Times of one operation in one part, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// How often.
    pub samples: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// All together.
    pub sum: u64,
    /// Their squares together; may wrap around.
    pub sumsq: u64,
    classes: [u64; CLASSES],
}

impl Measured {
    const NONE: Measured =
        Measured { samples: 0, min: u64::MAX, max: 0, sum: 0, sumsq: 0, classes: [0; CLASSES] };

    fn add(&mut self, other: &Measured) {
        self.samples += other.samples;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.wrapping_add(other.sum);
        self.sumsq = self.sumsq.wrapping_add(other.sumsq);
        for (own, others) in self.classes.iter_mut().zip(&other.classes) {
            *own += others;
        }
    }

    /// A time that so many of a hundred did not exceed: a power of two, or the longest there was.
    pub fn percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.classes.iter().sum();
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen * 100 >= all * percent {
                let end = if class + 1 < CLASSES { 1 << class } else { u64::MAX };
                return self.max.min(end);
            }
        }
        self.max
    }
}

fn class_of(ns: u64) -> usize {
    ((u64::BITS - ns.leading_zeros()) as usize).min(CLASSES - 1)
}

type Key = (Part, &'static str);

/// On lines of its own, of which processors fetch two at a time: there are more threads than tables
/// on large machines, and those that share one shall at least not share what they do not count
/// together.
#[repr(align(128))]
struct Place {
    key: OnceLock<Key>,
    samples: AtomicU64,
    /// `u64::MAX` less the shortest, so that it begins with 0 as all memory does.
    short: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    sumsq: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

impl Place {
    fn new() -> Place {
        Place {
            key: OnceLock::new(),
            samples: AtomicU64::new(0),
            short: AtomicU64::new(0),
            max: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            sumsq: AtomicU64::new(0),
            classes: [const { AtomicU64::new(0) }; CLASSES],
        }
    }

    fn add(&self, ns: u64) {
        let short = u64::MAX - ns;
        if short > self.short.load(Ordering::Relaxed) {
            self.short.fetch_max(short, Ordering::Relaxed);
        }
        if ns > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(ns, Ordering::Relaxed);
        }
        self.sum.fetch_add(ns, Ordering::Relaxed);
        self.sumsq.fetch_add(ns.wrapping_mul(ns), Ordering::Relaxed);
        if let Some(class) = self.classes.get(class_of(ns)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    fn measured(&self) -> Measured {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut classes = [0; CLASSES];
        for (shown, class) in classes.iter_mut().zip(&self.classes) {
            *shown = of(class);
        }
        let max = of(&self.max);
        Measured {
            samples: of(&self.samples),
            // Of one that is just being counted the one may be there and the other not.
            min: (u64::MAX - of(&self.short)).min(max),
            max,
            sum: of(&self.sum),
            sumsq: of(&self.sumsq),
            classes,
        }
    }

    fn clear(&self) {
        for counter in [&self.samples, &self.short, &self.max, &self.sum, &self.sumsq] {
            counter.store(0, Ordering::Relaxed);
        }
        self.classes.iter().for_each(|class| class.store(0, Ordering::Relaxed));
    }
}

type Table = Box<[Place]>;

static ALL: [OnceLock<Table>; TABLES] = [const { OnceLock::new() }; TABLES];
/// Threads that have measured something.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Which of the tables is this thread's, from 1.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

fn mine() -> &'static [Place] {
    let number = match MINE.get() {
        0 => {
            let number = 1 + THREADS.fetch_add(1, Ordering::Relaxed) % TABLES;
            MINE.set(number);
            number
        }
        number => number,
    };
    let [first, ..] = &ALL;
    let table = ALL.get(number - 1).unwrap_or(first);
    table.get_or_init(|| (0..PLACES).map(|_| Place::new()).collect())
}

/// Where the search for a place begins: FNV-1a of the name.
fn hash((part, name): &Key) -> usize {
    let bytes = name.bytes().chain([*part as u8]);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize
}

/// Counts one. If there were ever more names than places it is left out.
pub(crate) fn note(part: Part, name: &'static str, ns: u64) {
    let (places, key) = (mine(), (part, name));
    let begin = hash(&key);
    for at in 0..PLACES {
        let Some(place) = places.get((begin + at) % PLACES) else { return };
        if *place.key.get_or_init(|| key) == key {
            return place.add(ns);
        }
    }
}

fn of_part(part: Part) -> impl Iterator<Item = (&'static str, &'static Place)> {
    let places = ALL.iter().filter_map(OnceLock::get).flatten();
    places.filter_map(move |place| {
        let (of, name) = place.key.get()?;
        (*of == part).then_some((*name, place))
    })
}

pub(crate) fn read(part: Part) -> Vec<(&'static str, Measured)> {
    let mut all = BTreeMap::new();
    for (name, place) in of_part(part) {
        let measured = place.measured();
        if measured.samples > 0 {
            all.entry(name).or_insert(Measured::NONE).add(&measured);
        }
    }
    all.into_iter().collect()
}

pub(crate) fn clear(part: Part) {
    of_part(part).for_each(|(_, place)| place.clear());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_is_added_up_by_name() {
        std::thread::scope(|scope| {
            for _ in 0..2 * TABLES {
                scope.spawn(|| {
                    note(Part::Osd, "read", 10);
                    note(Part::Osd, "read", 1000);
                    note(Part::Osd, "write", 7);
                });
            }
        });
        let all = read(Part::Osd);
        let [(a, reads), (b, writes)] = all.try_into().unwrap();
        assert_eq!((a, b), ("read", "write"));
        let threads = 2 * TABLES as u64;
        assert_eq!((reads.samples, reads.min, reads.max), (2 * threads, 10, 1000));
        assert_eq!((reads.sum, reads.sumsq), (1010 * threads, 1_000_100 * threads));
        assert_eq!((writes.samples, writes.min, writes.max), (threads, 7, 7));
        assert_eq!((reads.percentile(50), reads.percentile(99)), (16, 1000));
        assert_eq!(writes.percentile(50), 7, "no more than the longest");
        assert!(read(Part::Target).is_empty(), "another part's");
        clear(Part::Osd);
        assert!(read(Part::Osd).is_empty());
        note(Part::Osd, "write", 9);
        let [(_, anew)] = read(Part::Osd).try_into().unwrap();
        assert_eq!((anew.samples, anew.min, anew.max), (1, 9, 9));
    }

    #[test]
    fn places_lie_on_lines_of_their_own() {
        assert_eq!(align_of::<Place>(), 128);
        assert_eq!(size_of::<Place>() % 128, 0);
    }

    #[test]
    fn times_of_every_length_have_a_class() {
        assert_eq!([0, 1, 2, 3, 4].map(class_of), [0, 1, 2, 2, 3]);
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }
}
