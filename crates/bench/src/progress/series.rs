//! How much was done when: samples that are taken beside the measuring loop, a few a second,
//! by whoever can see the counts, and what all ranks' samples say together.

use serde::Serialize;

use crate::comm::Communicator;
use crate::error::Result;

/// Samples of a phase at most: when there are as many, every other one is given up, and from
/// then on half as many are taken.
pub(super) const SAMPLES_MAX: usize = 512;

/// What was done until a moment of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// Seconds since the phase was begun.
    pub seconds: f64,
    /// Operations of all ranks that are seen.
    pub done: u64,
}

/// Samples as they come.
#[derive(Debug, Default)]
pub(super) struct Samples {
    all: Vec<Sample>,
    /// One of so many looks is kept, as a power of two.
    thinned: u32,
    looks: u32,
}

impl Samples {
    pub(super) fn clear(&mut self) {
        self.all.clear();
        (self.thinned, self.looks) = (0, 0);
    }

    pub(super) fn look(&mut self, sample: Sample) {
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(1 << self.thinned) {
            return;
        }
        if self.all.len() >= SAMPLES_MAX {
            let mut odd = false;
            self.all.retain(|_| {
                odd = !odd;
                !odd
            });
            self.thinned = (self.thinned + 1).min(20);
        }
        self.all.push(sample);
    }

    /// All of them, with the last moment of the phase.
    pub(super) fn until(&self, end: Sample) -> Vec<Sample> {
        let mut all: Vec<Sample> = self.all.clone();
        all.retain(|sample| sample.seconds < end.seconds);
        all.push(end);
        all
    }
}

/// Rates during a phase, each of the time from the one before.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Series {
    /// Until when, in seconds since the phase was begun.
    pub seconds: Vec<f64>,
    /// Operations a second.
    pub rates: Vec<f64>,
}

impl Series {
    /// Of what all ranks have seen, at all ranks.
    pub fn gather(comm: &dyn Communicator, mine: &[Sample]) -> Result<Self> {
        let words = mine.iter().flat_map(|one| [one.seconds.to_bits(), one.done]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let sample = |pair: &[u8]| {
            let (seconds, done) = pair.split_at_checked(8).unwrap_or_default();
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            Sample { seconds: f64::from_bits(word(seconds)), done: word(done) }
        };
        let all = comm.all_gather(&bytes)?;
        let all = all.iter().map(|bytes| bytes.chunks_exact(16).map(sample).collect());
        Ok(Self::of(&all.collect::<Vec<Vec<Sample>>>()))
    }

    /// The same in another unit.
    pub fn scaled(&self, by: f64) -> Self {
        Self {
            seconds: self.seconds.clone(),
            rates: self.rates.iter().map(|rate| rate * by).collect(),
        }
    }

    /// At the moments of whoever has looked most often; others' counts in between are taken to
    /// have grown evenly.
    fn of(seen: &[Vec<Sample>]) -> Self {
        let moments = seen.iter().max_by_key(|one| one.len());
        let mut series = Self::default();
        let mut before = (0.0, 0.0);
        for moment in moments.into_iter().flatten() {
            let done: f64 = seen.iter().map(|one| at(one, moment.seconds)).sum();
            let passed = moment.seconds - before.0;
            if passed > 0.0 {
                series.seconds.push(moment.seconds);
                series.rates.push((done - before.1).max(0.0) / passed);
                before = (moment.seconds, done);
            }
        }
        series
    }
}

/// What was done at a moment.
fn at(samples: &[Sample], seconds: f64) -> f64 {
    let after = samples.partition_point(|one| one.seconds < seconds);
    let before = after.checked_sub(1).and_then(|at| samples.get(at)).copied().unwrap_or_default();
    let Some(next) = samples.get(after) else { return before.done as f64 };
    let share = (seconds - before.seconds) / (next.seconds - before.seconds).max(1e-9);
    before.done as f64 + (next.done as f64 - before.done as f64) * share.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(all: &[(f64, u64)]) -> Vec<Sample> {
        all.iter().map(|&(seconds, done)| Sample { seconds, done }).collect()
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let series = Series::of(&[samples(&[(1.0, 100), (2.0, 150), (4.0, 150)]), Vec::new()]);
        assert_eq!((series.seconds, series.rates), (vec![1.0, 2.0, 4.0], vec![100.0, 50.0, 0.0]));
        assert_eq!(Series::of(&[]), Series::default());
    }

    #[test]
    fn ranks_that_each_see_themselves_are_added_up() {
        let one = samples(&[(1.0, 10), (2.0, 20), (3.0, 30)]);
        let other = samples(&[(1.5, 30), (3.0, 60)]);
        let series = Series::of(&[one, other]);
        assert_eq!(series.seconds, [1.0, 2.0, 3.0]);
        assert_eq!(series.rates, [30.0, 30.0, 30.0]);
    }

    #[test]
    fn a_long_phase_has_as_many_samples_as_a_short_one() {
        let mut kept = Samples::default();
        for look in 1..=20_000_u32 {
            kept.look(Sample { seconds: f64::from(look), done: u64::from(look) * 7 });
        }
        let all = kept.until(Sample { seconds: 20_001.0, done: 140_007 });
        assert!(all.len() > SAMPLES_MAX / 4 && all.len() <= SAMPLES_MAX + 1, "{}", all.len());
        let series = Series::of(&[all]);
        assert!(series.rates.iter().all(|rate| (rate - 7.0).abs() < 1e-9));
        kept.clear();
        assert_eq!(kept.until(Sample { seconds: 1.0, done: 2 }).len(), 1);
    }
}
