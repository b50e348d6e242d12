//! An axis: which values it spans, where they are, and which of them are named.

use crate::markup::short;

/// Most ticks.
const TICKS_MAX: usize = 12;
/// The least and the largest value that has a place of its own among powers of ten.
const LOG_RANGE: (f64, f64) = (1e-300, 1e300);

/// How values are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm.
    Log,
}

/// An axis of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it is, with the unit.
    pub label: String,
    /// How values are spread.
    pub scale: Scale,
    /// Values that are named, with their names; else round ones.
    pub named: Vec<(f64, String)>,
}

/// An axis over the values that are there.
#[derive(Debug)]
pub(super) struct Placed {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
    /// Where names are.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// One with round names.
    pub fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.to_owned(), scale, named: Vec::new() }
    }

    /// Over values, drawn between two places; an upright one begins with 0 or a power of ten.
    pub(super) fn over(&self, values: &[f64], (from, to): (f64, f64), upright: bool) -> Placed {
        let log = self.scale == Scale::Log;
        let usable = |value: &&f64| value.is_finite() && (!log || **value > 0.0);
        let clamped = |value: f64| if log { value.clamp(LOG_RANGE.0, LOG_RANGE.1) } else { value };
        let all = || values.iter().filter(usable).copied().map(clamped);
        let (mut low, mut high) =
            (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        match (log, upright) {
            (true, true) => (low, high) = (decade(low, false), decade(high, true)),
            (true, false) => (low, high) = (low / 1.15, high * 1.15),
            (false, true) => {
                (low, high) = (low.min(0.0), if high > 0.0 { high * 1.06 } else { 1.0 })
            }
            (false, false) => {
                let room = ((high - low) * 0.03).max(high.abs().max(1.0) * 1e-6);
                // What has names of its own does not begin with 0, but with a name.
                let from_zero = low >= 0.0 && self.named.is_empty();
                let start = if from_zero { (low - room).max(0.0) } else { low - room };
                (low, high) = (start, high + room);
            }
        }
        if high <= low {
            high = low + low.abs().max(1.0);
        }
        let mut placed = Placed { low, high, log, from, to, ticks: Vec::new() };
        let ticks = if self.named.is_empty() { round(low, high, log) } else { self.thinned() };
        placed.ticks = ticks.into_iter().map(|(value, name)| (placed.place(value), name)).collect();
        placed
    }

    /// The named values, or every second, or every third of them.
    fn thinned(&self) -> Vec<(f64, String)> {
        let every = self.named.len().div_ceil(TICKS_MAX).max(1);
        self.named.iter().step_by(every).cloned().collect()
    }
}

impl Placed {
    /// Where a value is; those outside lie at the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let scaled =
            |value: f64| if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let (low, high) = (scaled(self.low), scaled(self.high));
        let share = (scaled(value) - low) / (high - low);
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.from + (self.to - self.from) * share
    }
}

fn decade(value: f64, up: bool) -> f64 {
    let exponent = value.log10();
    10_f64.powf(if up { exponent.ceil() } else { exponent.floor() })
}

/// Round values between two.
fn round(low: f64, high: f64, log: bool) -> Vec<(f64, String)> {
    let mut ticks = Vec::new();
    if log {
        let few = (high / low).log10() < 2.5;
        let steps: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        for exponent in first..=last {
            for step in steps {
                let value = step * 10_f64.powi(exponent);
                if value >= low * 0.999 && value <= high * 1.001 {
                    ticks.push((value, short(value)));
                }
            }
        }
        let every = ticks.len().div_ceil(TICKS_MAX).max(1);
        return ticks.into_iter().step_by(every).collect();
    }
    let rough = (high - low) / 6.0;
    let unit = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|by| by * unit).find(|step| *step >= rough);
    let step = step.unwrap_or(unit * 10.0);
    let first = (low / step).ceil();
    for number in 0..TICKS_MAX {
        let value = (first + number as f64) * step;
        if value > high {
            break;
        }
        ticks.push((value, short(value)));
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(values: &[f64], scale: Scale, upright: bool) -> Vec<String> {
        let placed = Axis::new("", scale).over(values, (0.0, 100.0), upright);
        placed.ticks.into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn round_values_are_named() {
        assert_eq!(names(&[3.0, 95.0], Scale::Linear, true), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(names(&[12.0, 9000.0], Scale::Log, true), ["10", "100", "1000", "10 k"]);
        assert_eq!(names(&[12.0, 90.0], Scale::Log, true), ["10", "20", "50", "100"]);
        assert!(!names(&[], Scale::Linear, true).is_empty());
        assert!(!names(&[], Scale::Log, false).is_empty());
    }

    #[test]
    fn places_follow_the_scale() {
        let axis = Axis::new("", Scale::Log).over(&[1.0, 100.0], (0.0, 100.0), true);
        assert!((axis.place(10.0) - 50.0).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 100.0));
        let one = Axis::new("", Scale::Linear).over(&[5.0], (0.0, 100.0), false);
        assert!(one.place(5.0).is_finite());
    }

    #[test]
    fn senseless_values_make_no_more_ticks_than_others() {
        for values in [[1.0, 5e-324], [1.0, f64::MAX], [5e-324, f64::MAX], [-f64::MAX, f64::MAX]] {
            for scale in [Scale::Linear, Scale::Log] {
                for upright in [false, true] {
                    assert!(names(&values, scale, upright).len() <= TICKS_MAX, "{values:?}");
                }
            }
        }
    }

    #[test]
    fn too_many_names_are_thinned() {
        let named = (0..100).map(|at| (f64::from(at), at.to_string())).collect();
        let axis = Axis { named, ..Axis::new("", Scale::Linear) };
        assert!(axis.over(&[0.0, 99.0], (0.0, 1.0), false).ticks.len() <= TICKS_MAX);
    }
}
