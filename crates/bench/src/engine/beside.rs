//! What stands beside the rate of a phase: its ranks, its course, the latencies of its
//! operations. Workloads that are made of others get it from these.

use crate::guard::Spread;
use crate::progress::Series;
use crate::stats::Quantiles;

/// The ranks of a phase beside each other, its rates while it lasted, its latencies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Beside {
    /// The ranks, in bytes or operations a second.
    pub spread: Spread,
    /// Rates over time, in the same unit.
    pub series: Series,
    /// Latencies of all repetitions; at the root alone, and where something was done.
    pub latency: Option<Quantiles>,
}

impl Beside {
    /// The same in another unit.
    pub fn scaled(&self, by: f64) -> Self {
        let spread = &self.spread;
        Self {
            spread: Spread {
                rate: spread.rate * by,
                sum_of_ranks: spread.sum_of_ranks * by,
                ranks: spread.ranks.iter().map(|rate| rate * by).collect(),
                ..spread.clone()
            },
            series: self.series.scaled(by),
            latency: self.latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_unit_changes_rates_alone() {
        let spread = Spread {
            seconds: 2.0,
            rate: 3000.0,
            sum_of_ranks: 4000.0,
            start_skew_s: 0.5,
            end_skew_s: 0.25,
            ranks: vec![1000.0, 3000.0],
        };
        let series = Series { seconds: vec![1.0, 2.0], rates: vec![2000.0, 4000.0] };
        let latency = Some(Quantiles { count: 7, p50_us: 9.0, ..Quantiles::default() });
        let found = Beside { spread: spread.clone(), series, latency }.scaled(1e-3);
        let wanted = Spread { rate: 3.0, sum_of_ranks: 4.0, ranks: vec![1.0, 3.0], ..spread };
        assert_eq!(found.spread, wanted);
        assert_eq!(found.series, Series { seconds: vec![1.0, 2.0], rates: vec![2.0, 4.0] });
        assert_eq!(found.latency, latency, "in microseconds as before");
    }
}
