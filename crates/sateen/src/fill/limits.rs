//! What a run of `sateen fill` must have been like, for scripts that have to know.

use std::time::Duration;

use crate::cli::FillLimits;

/// What a run was like.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// How long the start took.
    pub start: Duration,
    /// Longest operation.
    pub longest_ns: u64,
    /// Creates while it filled, and the nanoseconds they took, by quarter.
    pub quarters: [(u64, u64); 4],
}

impl Found {
    /// How much longer creates of the last quarter took than those of the first.
    fn slowdown(&self) -> Option<f64> {
        let average = |(count, ns): (u64, u64)| (count > 0).then(|| ns as f64 / count as f64);
        let [first, .., last] = self.quarters;
        Some(average(last)? / average(first)?)
    }

    /// The limits that do not hold. What could not be measured does not, either.
    pub(super) fn broken(&self, limits: &FillLimits) -> Vec<String> {
        let mut broken = Vec::new();
        if let Some(most) = limits.max_ms {
            let ms = self.longest_ns as f64 / 1e6;
            if ms > most {
                broken.push(format!("an operation took {ms:.1} ms, of {most} at most"));
            }
        }
        if let Some(most) = limits.max_slowdown {
            match self.slowdown() {
                Some(ratio) if ratio <= most => {}
                Some(ratio) => broken.push(format!(
                    "a create of the last quarter took {ratio:.2} times one of the first, of {most} at most"
                )),
                None => broken.push("too few files to tell whether creates slow down".to_owned()),
            }
        }
        let start = self.start.as_secs_f64();
        if let Some(most) = limits.max_start.filter(|most| start > *most) {
            broken.push(format!("the start took {start:.2} s, of {most} at most"));
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_can_be_broken() {
        let good = Found {
            start: Duration::from_millis(400),
            longest_ns: 30_000_000,
            quarters: [(10, 1000), (10, 900), (10, 1100), (10, 1900)],
        };
        let limits =
            FillLimits { max_ms: Some(50.0), max_slowdown: Some(2.0), max_start: Some(10.0) };
        assert!(good.broken(&limits).is_empty());
        for bad in [
            Found { start: Duration::from_secs(11), ..good },
            Found { longest_ns: 50_100_000, ..good },
            Found { quarters: [(10, 1000), (10, 900), (10, 1100), (10, 2100)], ..good },
            Found { quarters: [(0, 0); 4], ..good },
        ] {
            assert_eq!(bad.broken(&limits).len(), 1, "{bad:?}");
            assert!(bad.broken(&FillLimits::default()).is_empty());
        }
    }
}
