//! Latencies of single operations in an HDR histogram: three digits from a nanosecond to an
//! hour, in memory of fixed size, so that noting one neither allocates nor locks.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::comm::Communicator;
use crate::error::{Error, Result};

/// Longest latency that is told from longer ones: an hour.
const NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits.
const DIGITS: u8 = 3;

/// Latencies of one kind of operation.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

/// What of them is shown.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Quantiles {
    /// Operations.
    pub count: u64,
    /// The mean, in microseconds.
    pub mean_us: f64,
    /// Half of them took no longer.
    pub p50_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latencies {
    /// None yet.
    pub fn new() -> Result<Self> {
        let made = Histogram::new_with_bounds(1, NS_MAX, DIGITS);
        made.map(Self).map_err(|error| Error::Failed(format!("no histogram: {error}")))
    }

    /// Notes one.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Those of all ranks, at the root; none at the others, who would have to take in what
    /// thousands have to say.
    pub fn gather(&self, comm: &dyn Communicator) -> Result<Self> {
        let mut bytes = Vec::new();
        for value in self.0.iter_recorded() {
            bytes.extend_from_slice(&value.value_iterated_to().to_le_bytes());
            bytes.extend_from_slice(&value.count_at_value().to_le_bytes());
        }
        let mut all = Self::new()?;
        for theirs in comm.gather(&bytes)? {
            for pair in theirs.chunks_exact(16) {
                let (value, count) = pair.split_at_checked(8).unwrap_or_default();
                let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
                all.0.saturating_record_n(number(value), number(count));
            }
        }
        Ok(all)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, which is all that can be wrong.
        let _ = self.0.add(&other.0);
    }

    /// What is shown.
    pub fn quantiles(&self) -> Quantiles {
        let at = |share: f64| self.0.value_at_quantile(share) as f64 / 1e3;
        Quantiles {
            count: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let mut latencies = Latencies::new().unwrap();
        (1..=1000).for_each(|us| latencies.note(us * 1000));
        latencies.note(u64::MAX);
        let found = latencies.gather(&Solo::new().unwrap()).unwrap().quantiles();
        assert_eq!(found.count, 1001);
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.002;
        assert!(near(found.p50_us, 501.0) && near(found.p90_us, 901.0), "{found:?}");
        assert!(near(found.max_us, 3.6e9), "an hour, or longer: {found:?}");
    }
}
