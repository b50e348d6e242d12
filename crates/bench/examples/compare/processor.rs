//! Processor time of processes, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// Ticks of /proc in a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Fields of a process's stat behind its name, which may hold anything.
fn fields(pid: &str) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
}

/// The sum of two fields, by their numbers in proc(5), in seconds.
fn seconds(pid: &str, numbers: [usize; 2]) -> f64 {
    let fields = fields(pid);
    // The state, behind the name, is the third.
    let ticks = numbers.map(|number| fields.get(number - 3).copied().unwrap_or(0));
    ticks.iter().sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// What these processes have used so far; none of it if one of them is gone.
pub(crate) fn used(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| seconds(&pid.to_string(), [14, 15])).sum()
}

/// What ended children of this process, and theirs, have used.
pub(crate) fn used_by_children() -> f64 {
    seconds("self", [16, 17])
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
            std::hint::black_box(fields("self"));
        }
        assert!(used(&own) > begun.0 && used_by_threads(&own) > begun.1 && busy() > begun.2);
        assert_eq!(used(&[u32::MAX]), 0.0);
    }
}
