//! Processor time of processes, as the kernel counts it: by their own clocks, to the nanosecond.

use std::fs;
use std::time::Duration;

use sateen_bench::processor;

/// Ticks of /proc in a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// What these processes have used so far, in seconds; none of one that is gone.
pub(crate) fn used(pids: &[u32]) -> f64 {
    pids.iter().filter_map(|pid| processor::used(*pid)).map(|used| used.as_secs_f64()).sum()
}

/// What ended children of this process, and theirs, have used, in seconds.
pub(crate) fn used_by_children() -> f64 {
    processor::used_by_children().as_secs_f64()
}

/// What the threads of these processes have used, to the nanosecond, without those that ended.
pub(crate) fn used_by_threads(pids: &[u32]) -> Duration {
    let mut nanoseconds = 0;
    for pid in pids {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
            nanoseconds += first.unwrap_or(0_u64);
        }
    }
    Duration::from_nanos(nanoseconds)
}

/// What all processors have done so far but wait, in seconds.
pub(crate) fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
    // user, nice, system; not idle and iowait; irq, softirq, steal. Guests are in user.
    let busy = [0, 1, 2, 5, 6, 7].map(|at| ticks.get(at).copied().unwrap_or(0));
    busy.iter().sum::<u64>() as f64 / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let own = [std::process::id()];
        let begun = (used(&own), used_by_threads(&own), busy());
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while used(&own) - begun.0 < 0.05 && std::time::Instant::now() < until {
            std::hint::black_box(busy());
        }
        assert!(used(&own) > begun.0 && used_by_threads(&own) > begun.1 && busy() > begun.2);
        assert_eq!(used(&[u32::MAX]), 0.0);
    }
}
