//! How alike the ranks were: whether they started together, who lagged behind, and what adding
//! up their rates would claim.
//!
//! The rate of a phase is all that was done over the time from the first rank's beginning to
//! the last one's end. Each rank's own rate counts its own time only, so that their sum counts
//! ranks as if they had always been busy together: the later they start and the more unlike
//! they end, the more it promises. It is shown beside the rate, and never instead of it.

use serde::Serialize;

use super::{Code, Pitfall, Placement};
use crate::size::MIB;
use crate::stats::median;

/// Ranks start together if no more than this share of the phase lies between them,
const SKEW_SHARE_MAX: f64 = 0.01;
/// or no more than this.
const SKEW_S_MAX: f64 = 0.001;
/// A rank lags if its rate is below this share of the median rank's.
const STRAGGLER_SHARE: f64 = 0.67;
/// Shorter differences are chance.
const STRAGGLER_S_MIN: f64 = 0.01;
/// The sum of the ranks' rates may exceed what was reached by this.
const SUM_SHARE_MAX: f64 = 1.1;
/// Stragglers that are named.
const NAMED_MAX: usize = 5;

/// What a rank has done in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Which rank.
    pub rank: usize,
    /// When it began and ended, in seconds of the common clock.
    pub begin_s: f64,
    /// The end.
    pub end_s: f64,
    /// Bytes or operations.
    pub amount: u64,
}

impl Work {
    fn seconds(&self) -> f64 {
        (self.end_s - self.begin_s).max(1e-9)
    }

    fn rate(&self) -> f64 {
        self.amount as f64 / self.seconds()
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Operations.
    Operations,
}

impl Unit {
    /// A rate in words.
    pub(super) fn rate(self, rate: f64) -> String {
        match self {
            Self::Bytes => format!("{:.1} MiB/s", rate / MIB as f64),
            Self::Operations => format!("{rate:.0} ops/s"),
        }
    }

    /// An amount in words.
    pub(super) fn amount(self, amount: u64) -> String {
        match self {
            Self::Bytes => crate::size::human(amount),
            Self::Operations => format!("{amount} operations"),
        }
    }
}

/// A phase's ranks beside each other; rates in bytes or operations a second.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Spread {
    /// From the first beginning to the last end.
    pub seconds: f64,
    /// The result: all that was done over that time, or what the workload's rule makes of it.
    pub rate: f64,
    /// The rates of the ranks added up, which is no rate of anything.
    pub sum_of_ranks: f64,
    /// Between the first beginning and the last.
    pub start_skew_s: f64,
    /// Between the first end and the last.
    pub end_skew_s: f64,
    /// The rate of each rank.
    pub ranks: Vec<f64>,
}

impl Spread {
    /// Of what the ranks have done.
    pub fn of(works: &[Work]) -> Self {
        if works.is_empty() {
            return Self::default();
        }
        let least = |of: fn(&Work) -> f64| works.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = |of: fn(&Work) -> f64| works.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        let (begin, end) = (|one: &Work| one.begin_s, |one: &Work| one.end_s);
        let seconds = (most(end) - least(begin)).max(1e-9);
        let ranks: Vec<f64> = works.iter().map(Work::rate).collect();
        Self {
            seconds,
            rate: works.iter().map(|one| one.amount as f64).sum::<f64>() / seconds,
            sum_of_ranks: ranks.iter().sum(),
            start_skew_s: most(begin) - least(begin),
            end_skew_s: most(end) - least(end),
            ranks,
        }
    }

    /// The rates of the slowest, the middle and the fastest rank.
    pub fn slowest_median_fastest(&self) -> (f64, f64, f64) {
        let all = || self.ranks.iter().copied();
        (
            if self.ranks.is_empty() { 0.0 } else { all().fold(f64::INFINITY, f64::min) },
            median(all()),
            all().fold(0.0, f64::max),
        )
    }

    /// Whether the sum of the ranks' rates is far above what was reached.
    pub fn is_sum_too_much(&self) -> bool {
        self.sum_of_ranks > self.rate * SUM_SHARE_MAX
    }

    pub(super) fn pitfalls(
        &self,
        phase: &'static str,
        unit: Unit,
        works: &[Work],
        placement: &Placement,
    ) -> Vec<Pitfall> {
        let mut found = Vec::new();
        let share = self.start_skew_s / self.seconds.max(1e-9);
        if share > SKEW_SHARE_MAX && self.start_skew_s > SKEW_S_MAX {
            let latest = works.iter().max_by(|a, b| a.begin_s.total_cmp(&b.begin_s));
            let latest = latest.map_or(0, |one| one.rank);
            found.push(Pitfall::new(
                Code::Skew,
                Some(phase),
                share,
                format!(
                    "ranks started up to {:.3} s apart, {:.1} % of the phase; rank {latest} on {} \
                     was the last",
                    self.start_skew_s,
                    share * 100.0,
                    placement.name(placement.of(latest))
                ),
            ));
        }
        found.extend(self.stragglers(phase, unit, works, placement));
        if self.is_sum_too_much() {
            let over = self.sum_of_ranks / self.rate.max(1e-9);
            found.push(Pitfall::new(
                Code::Sum,
                Some(phase),
                over,
                format!(
                    "the result is {}, what all ranks reached together; their own rates add up \
                     to {}, {:.0} % more, which is for comparison only: they were not busy at the \
                     same time",
                    unit.rate(self.rate),
                    unit.rate(self.sum_of_ranks),
                    (over - 1.0) * 100.0
                ),
            ));
        }
        found
    }

    fn stragglers(
        &self,
        phase: &'static str,
        unit: Unit,
        works: &[Work],
        placement: &Placement,
    ) -> Option<Pitfall> {
        let middle = median(self.ranks.iter().copied());
        let middle_s = median(works.iter().map(Work::seconds));
        let lags = |one: &&Work| {
            let less = one.seconds() <= middle_s + STRAGGLER_S_MIN
                && one.amount as f64 >= middle * middle_s * STRAGGLER_SHARE;
            one.rate() < middle * STRAGGLER_SHARE && !less
        };
        let mut late: Vec<&Work> = works.iter().filter(lags).collect();
        late.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        let worst = late.first()?.rate();
        let named: Vec<String> = late
            .iter()
            .take(NAMED_MAX)
            .map(|one| {
                let node = placement.name(placement.of(one.rank));
                format!("rank {} on {node} {}", one.rank, unit.rate(one.rate()))
            })
            .collect();
        let more = late.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(Pitfall::new(
            Code::Straggler,
            Some(phase),
            middle / worst.max(1e-9),
            format!(
                "far slower than the median of {}: {}{more}",
                unit.rate(middle),
                named.join(", ")
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn works(all: &[(f64, f64, u64)]) -> Vec<Work> {
        let one = |(rank, &(begin_s, end_s, amount))| Work { rank, begin_s, end_s, amount };
        all.iter().enumerate().map(one).collect()
    }

    fn codes(all: &[(f64, f64, u64)]) -> Vec<(Code, String)> {
        let works = works(all);
        let placement = Placement::said(2, 2, works.len());
        let found = Spread::of(&works).pitfalls("write", Unit::Bytes, &works, &placement);
        found.into_iter().map(|one| (one.code, one.message)).collect()
    }

    #[test]
    fn ranks_that_work_together_are_not_flagged() {
        assert_eq!(codes(&[(0.0, 10.0, 100 << 20), (0.01, 10.1, 100 << 20)]), []);
        assert_eq!(codes(&[(0.0, 10.0, 1 << 20)]), []);
        assert_eq!(codes(&[]), []);
    }

    #[test]
    fn the_rate_is_all_over_the_longest_time_and_the_sum_of_ranks_is_flagged() {
        let all = [(0.0, 1.0, 100 << 20), (1.0, 2.0, 100 << 20)];
        let spread = Spread::of(&works(&all));
        assert_eq!((spread.rate, spread.sum_of_ranks), (104_857_600.0, 209_715_200.0));
        assert_eq!((spread.start_skew_s, spread.end_skew_s, spread.seconds), (1.0, 1.0, 2.0));
        let found = codes(&all);
        assert_eq!(found[0].0, Code::Skew);
        assert!(found[0].1.contains("1.000 s apart, 50.0 %") && found[0].1.contains("rank 1 on"));
        assert_eq!(found[1].0, Code::Sum);
        let wanted = "the result is 100.0 MiB/s, what all ranks reached together; their own rates \
                      add up to 200.0 MiB/s, 100 % more, which is for comparison only: ";
        assert!(found[1].1.starts_with(wanted), "{found:?}");
        assert!(spread.is_sum_too_much());
    }

    #[test]
    fn ranks_that_lag_are_named_with_their_node() {
        let all = [
            (0.0, 1.0, 10 << 20),
            (0.0, 1.1, 10 << 20),
            (0.0, 4.0, 10 << 20),
            (0.0, 1.0, 10 << 20),
        ];
        let found = codes(&all);
        let late = found.iter().find(|one| one.0 == Code::Straggler).unwrap();
        assert!(late.1.ends_with("rank 2 on node1 2.5 MiB/s"), "{late:?}");
        // Stopped at the same time, but with less done.
        let all = [(0.0, 1.0, 10 << 20), (0.0, 1.0, 10 << 20), (0.0, 1.0, 1 << 20)];
        assert!(codes(&all).iter().any(|one| one.0 == Code::Straggler));
        // A few milliseconds are chance.
        let all = [(0.0, 0.001, 10 << 20), (0.0, 0.005, 10 << 20), (0.0, 0.001, 10 << 20)];
        assert!(!codes(&all).iter().any(|one| one.0 == Code::Straggler));
    }
}
