//! Too little measuring: a value that was measured once or twice says nothing of its spread,
//! and a short one measures what buffers can take.

use super::{Code, Pitfall};

/// Repetitions that tell a value from a mishap.
const REPEATS_MIN: usize = 3;
/// Kernels may keep what was written for this long before they begin to write it out.
const SECONDS_MIN: f64 = 30.0;

/// Whether there are too few repetitions.
pub(super) fn few(repetitions: usize) -> Option<Pitfall> {
    (repetitions < REPEATS_MIN).then(|| {
        let times = if repetitions == 1 { "once".into() } else { format!("{repetitions} times") };
        let message =
            format!("measured {times}; {REPEATS_MIN} repetitions or more show how much it varies");
        Pitfall::new(Code::Repeats, None, 0.0, message)
    })
}

/// Whether a phase was short.
pub(super) fn short(phase: &'static str, seconds: f64) -> Option<Pitfall> {
    (seconds < SECONDS_MIN).then(|| {
        let message =
            format!("it took {seconds:.3} s; below {SECONDS_MIN:.0} s buffers decide the rate");
        Pitfall::new(Code::Short, Some(phase), -seconds, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_three_repetitions_are_too_few() {
        assert!(few(1).unwrap().message.starts_with("measured once"));
        assert!(few(2).unwrap().message.starts_with("measured 2 times"));
        assert_eq!(few(3), None);
    }

    #[test]
    fn short_phases_are_found() {
        assert_eq!(short("write", 30.0), None);
        let found = short("write", 1.5).unwrap();
        assert_eq!(
            found.line(),
            "warning W-SHORT: write: it took 1.500 s; below 30 s buffers decide the rate"
        );
        assert!(short("write", 1.0).unwrap().severity > found.severity, "shorter is worse");
    }
}
