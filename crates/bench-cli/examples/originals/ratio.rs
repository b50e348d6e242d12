//! What pairs of measurements say of a ratio: its mean and the 95 % interval around it.
//!
//! Each pair was measured close together, so that what slows the machine for a while slows both
//! of a pair, and leaves their ratio. Logarithms of ratios are symmetric: exchanging both sides
//! gives the reciprocal.

/// Pairs without which the interval would not be exact to a thousandth.
pub(crate) const PAIRS_MIN: usize = 5;

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A ratio and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    /// The geometric mean of the pairs' ratios.
    pub(crate) mean: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
}

impl Ratio {
    /// Of pairs (one, other) that of the other to the one; none of too few pairs, or of values
    /// that have no ratio.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        if pairs.len() < PAIRS_MIN || !pairs.iter().all(|pair| positive(pair.0) && positive(pair.1))
        {
            return None;
        }
        let logs: Vec<f64> = pairs.iter().map(|(one, other)| (other / one).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let half = student(count - 1.0) * error;
        Some(Self { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
    }

    /// Whether the whole interval lies between two ratios.
    pub(crate) fn within(&self, (low, high): (f64, f64)) -> bool {
        low <= self.low && self.high <= high
    }
}

/// The 97.5 % point of Student's distribution with so many degrees of freedom, from the normal
/// distribution's by the expansion in powers of their reciprocal (Abramowitz and Stegun 26.7.5).
fn student(degrees: f64) -> f64 {
    let polynomial = |terms: &[(f64, i32)], over: f64| {
        terms.iter().map(|(factor, power)| factor * Z.powi(*power)).sum::<f64>() / over
    };
    let corrections = [
        polynomial(&[(1.0, 3), (1.0, 1)], 4.0),
        polynomial(&[(5.0, 5), (16.0, 3), (3.0, 1)], 96.0),
        polynomial(&[(3.0, 7), (19.0, 5), (17.0, 3), (-15.0, 1)], 384.0),
        polynomial(&[(79.0, 9), (776.0, 7), (1482.0, 5), (-1920.0, 3), (-945.0, 1)], 92_160.0),
    ];
    let each = (1..).zip(corrections).map(|(power, term)| term / degrees.powi(power));
    Z + each.sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_bench::pattern::mix;

    #[test]
    fn students_points_are_those_of_the_tables() {
        let table = [(4.0, 2.776_445), (9.0, 2.262_157), (19.0, 2.093_024), (99.0, 1.984_217)];
        for (degrees, wanted) in table {
            let found = student(degrees);
            assert!((found / wanted - 1.0).abs() < 1e-3, "{degrees}: {found}, not {wanted}");
        }
        assert!((student(9.0) - 2.262_157).abs() < 1e-4, "{}", student(9.0));
    }

    #[test]
    fn an_interval_is_what_can_be_computed_by_hand() {
        let logs = [-0.02_f64, -0.01, 0.0, 0.01, 0.02];
        let pairs: Vec<_> = logs.iter().map(|log| (100.0, 100.0 * log.exp())).collect();
        let found = Ratio::of(&pairs).unwrap();
        // The deviation is sqrt(0.00025), the error of the mean sqrt(0.00005).
        let half = 2.776_445 * 0.00005_f64.sqrt();
        assert!((found.mean - 1.0).abs() < 1e-12);
        assert!((found.high - half.exp()).abs() < 2e-5 && (found.low - (-half).exp()).abs() < 2e-5);
        assert!(found.within((0.9, 1.1)) && !found.within((0.9, 1.01)), "{found:?}");
    }

    #[test]
    fn exchanged_sides_give_the_reciprocal() {
        let pairs: Vec<_> = (1..9).map(|at| (f64::from(at), 2.0 + f64::from(at * at))).collect();
        let exchanged: Vec<_> = pairs.iter().map(|(one, other)| (*other, *one)).collect();
        let (found, back) = (Ratio::of(&pairs).unwrap(), Ratio::of(&exchanged).unwrap());
        assert!((found.mean * back.mean - 1.0).abs() < 1e-12);
        assert!((found.low * back.high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_is_said_of_too_few_pairs_or_of_nothing() {
        assert_eq!(Ratio::of(&[(1.0, 1.0); PAIRS_MIN - 1]), None);
        assert_eq!(Ratio::of(&[(1.0, 0.0); PAIRS_MIN]), None);
        assert_eq!(Ratio::of(&[(f64::NAN, 1.0); PAIRS_MIN]), None);
        let same = Ratio::of(&[(3.0, 3.0); PAIRS_MIN]).unwrap();
        assert_eq!((same.mean, same.low, same.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut state = 7;
        let mut normal = || {
            // A sum of twelve has the variance 1.
            (0..12).map(|_| mix(&mut state) as f64 / u64::MAX as f64).sum::<f64>() - 6.0
        };
        for count in [PAIRS_MIN, 10, 20] {
            let rounds = 4000;
            let holds = |found: Ratio| found.low <= 1.2 && 1.2 <= found.high;
            let held = (0..rounds)
                .filter(|_| {
                    let pair = |_| (50.0, 60.0 * (0.1 * normal()).exp());
                    holds(Ratio::of(&(0..count).map(pair).collect::<Vec<_>>()).unwrap())
                })
                .count();
            let share = held as f64 / f64::from(rounds);
            assert!((share - 0.95).abs() < 0.015, "{count} pairs: {share}");
        }
    }
}
