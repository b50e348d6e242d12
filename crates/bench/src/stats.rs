//! Numbers of repeated measurements, as the original tools sum them up.

mod latency;

pub use latency::{Latencies, Quantiles};

/// Largest, smallest, middle and mean value with their deviation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// The largest.
    pub max: f64,
    /// The smallest.
    pub min: f64,
    /// The middle one, or between the two.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// What the squares of a deviation are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// By their number: IOR.
    Population,
    /// By one less, and 0 for one value: mdtest.
    Sample,
}

/// The middle of some values, or between the two; 0 of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    let at = |at: usize| all.get(at).copied().unwrap_or(0.0);
    match all.len() {
        0 => 0.0,
        count if count % 2 == 1 => at(count / 2),
        count => f64::midpoint(at(count / 2 - 1), at(count / 2)),
    }
}

impl Summary {
    /// Sums values up; all zeros if there are none.
    pub fn of(values: &[f64], deviation: Deviation) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let divisor = match deviation {
            Deviation::Population => count,
            Deviation::Sample => (count - 1.0).max(1.0),
        };
        Self {
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(values.iter().copied()),
            mean,
            deviation: (squares / divisor).sqrt(),
        }
    }

    /// The same in another unit.
    pub fn scaled(&self, by: f64) -> Self {
        let Self { max, min, median, mean, deviation } = self;
        Self {
            max: max * by,
            min: min * by,
            median: median * by,
            mean: mean * by,
            deviation: deviation * by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_summed_up() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let summary = Summary::of(&values, Deviation::Population);
        let wanted = Summary { max: 9.0, min: 2.0, median: 4.5, mean: 5.0, deviation: 2.0 };
        assert_eq!(summary, wanted);
        let sample = Summary::of(&values, Deviation::Sample).deviation;
        assert!((sample - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Summary::of(&[3.0], Deviation::Sample).deviation, 0.0);
        assert_eq!(Summary::of(&[], Deviation::Sample), Summary::default());
    }
    #[test]
    fn the_middle_of_values_is_found() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median([].into_iter()), 0.0);
    }
}
