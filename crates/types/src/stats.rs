//! Statistics: how often something was done and, where it has a size, how large it was. Each
//! is counted by whoever owns it, without locks; who shows them knows the time.

use core::fmt::{self, Write};
use std::collections::BTreeMap;

use crate::ClientId;

/// What was counted of one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How often.
    pub samples: u64,
    /// Smallest size; 0 without samples.
    pub min: u64,
    /// Largest size.
    pub max: u64,
    /// Sum of the sizes.
    pub sum: u64,
    /// Sum of their squares; it may wrap around.
    pub sumsq: u64,
}

impl Tally {
    /// One more of this size.
    pub fn add(&mut self, size: u64) {
        self.min = if self.samples == 0 { size } else { self.min.min(size) };
        self.max = self.max.max(size);
        self.samples += 1;
        self.sum = self.sum.wrapping_add(size);
        self.sumsq = self.sumsq.wrapping_add(size.wrapping_mul(size));
    }

    /// One more of something without a size.
    pub fn count(&mut self) {
        self.samples += 1;
    }

    /// What two of them counted.
    pub fn merge(&mut self, other: &Tally) {
        if other.samples == 0 {
            return;
        }
        self.min = if self.samples == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.samples += other.samples;
        self.sum = self.sum.wrapping_add(other.sum);
        self.sumsq = self.sumsq.wrapping_add(other.sumsq);
    }
}

/// What is counted: its name, and the unit of its size (`reqs` for those without one).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatName {
    /// As users of the field know it.
    pub name: &'static str,
    /// `bytes`, `pieces`, or `reqs`.
    pub unit: &'static str,
}

impl StatName {
    /// Something counted by its bytes.
    pub const fn bytes(name: &'static str) -> StatName {
        StatName { name, unit: "bytes" }
    }

    /// Something counted by how many pieces it has.
    pub const fn pieces(name: &'static str) -> StatName {
        StatName { name, unit: "pieces" }
    }

    /// Something only counted.
    pub const fn reqs(name: &'static str) -> StatName {
        StatName { name, unit: "reqs" }
    }

    /// The line of what was counted of it, in the field's format; none without samples.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, tally: &Tally, out: &mut impl Write) -> fmt::Result {
        let (StatName { name, unit }, Tally { samples, min, max, sum, sumsq }) = (self, tally);
        match (samples, *unit) {
            (0, _) => Ok(()),
            (_, "reqs") => writeln!(out, "{name:<25} {samples} samples [{unit}]"),
            _ => writeln!(out, "{name:<25} {samples} samples [{unit}] {min} {max} {sum} {sumsq}"),
        }
    }
}

/// A set of statistics, each in the place that an enumeration of the owner gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats<const N: usize> {
    all: [Tally; N],
}

impl<const N: usize> Default for Stats<N> {
    fn default() -> Stats<N> {
        Stats { all: [Tally::default(); N] }
    }
}

impl<const N: usize> Stats<N> {
    /// Those that were counted elsewhere.
    pub const fn of(all: [Tally; N]) -> Stats<N> {
        Stats { all }
    }

    /// One more in this place.
    pub fn count(&mut self, place: usize) {
        if let Some(tally) = self.all.get_mut(place) {
            tally.count();
        }
    }

    /// One more of this size.
    pub fn add(&mut self, place: usize, size: u64) {
        if let Some(tally) = self.all.get_mut(place) {
            tally.add(size);
        }
    }

    /// How often in this place.
    pub fn samples(&self, place: usize) -> u64 {
        self.all.get(place).map_or(0, |tally| tally.samples)
    }

    /// What two sets counted.
    pub fn merge(&mut self, other: &Stats<N>) {
        for (mine, theirs) in self.all.iter_mut().zip(&other.all) {
            mine.merge(theirs);
        }
    }

    /// The lines of those that have samples, in the field's format.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, names: &[StatName; N], out: &mut impl Write) -> fmt::Result {
        names.iter().zip(&self.all).try_for_each(|(name, tally)| name.write(tally, out))
    }
}

/// What was counted of all clients together, and of each that is there.
#[derive(Clone, Debug, Default)]
pub struct ClientStats<const N: usize> {
    all: Stats<N>,
    clients: BTreeMap<ClientId, Stats<N>>,
}

impl<const N: usize> ClientStats<N> {
    /// One more of this client's, in this place.
    pub fn count(&mut self, client: ClientId, place: usize) {
        self.all.count(place);
        self.clients.entry(client).or_default().count(place);
    }

    /// One more of this client's, of this size.
    pub fn add(&mut self, client: ClientId, place: usize, size: u64) {
        self.all.add(place, size);
        self.clients.entry(client).or_default().add(place, size);
    }

    /// Of all, those that have gone among them.
    pub fn all(&self) -> &Stats<N> {
        &self.all
    }

    /// Of one.
    pub fn of(&self, client: ClientId) -> Stats<N> {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// A client has gone, and what it did counts among all only.
    pub fn gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        *self = ClientStats::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_gone_counts_among_all() {
        let mut stats = ClientStats::<2>::default();
        stats.count(ClientId(5), 0);
        stats.add(ClientId(6), 1, 100);
        stats.gone(ClientId(5));
        assert_eq!(stats.of(ClientId(5)), Stats::default());
        assert_eq!(stats.of(ClientId(6)).all[1].sum, 100);
        assert_eq!(stats.all().all.map(|tally| tally.samples), [1, 1]);
        stats.clear();
        assert_eq!(*stats.all(), Stats::default());
    }

    #[test]
    fn what_is_counted_is_shown_as_in_the_field() {
        const NAMES: [StatName; 3] =
            [StatName::bytes("read_bytes"), StatName::reqs("punch"), StatName::reqs("sync")];
        let (mut a, mut b) = (Stats::default(), Stats::default());
        for size in [4096, 10] {
            a.add(0, size);
        }
        b.add(0, 5000);
        b.count(2);
        a.merge(&b);
        let mut text = String::new();
        a.write(&NAMES, &mut text).unwrap();
        assert_eq!(
            text,
            "read_bytes                3 samples [bytes] 10 5000 9106 41777316\n\
             sync                      1 samples [reqs]\n"
        );
    }
}
