//! What something cost: time, processor time of the whole process, heap allocations.

use std::alloc::System;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Of one operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) wall_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) allocations: f64,
}

/// Processor time of all threads so far.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a create may cost outside FUSE (decision 0002), in microseconds of a processor.
const CPU_US_MAX: f64 = 5.0;
/// Allocations of it: none but blocks and buffers that grow, for a thousand creates at once.
const ALLOCATIONS_MAX: f64 = 0.01;

impl Cost {
    /// Whether it is what a create may cost; prints which.
    pub(crate) fn passes(&self) -> bool {
        let Cost { cpu_us, allocations, .. } = self;
        let passes = *cpu_us < CPU_US_MAX && *allocations < ALLOCATIONS_MAX;
        let verdict = if passes { "PASS" } else { "FAIL" };
        println!(
            "{verdict}: {cpu_us:.2} us CPU of {CPU_US_MAX}, {allocations:.3} allocations of {ALLOCATIONS_MAX}"
        );
        passes
    }

    /// Of each of `count` operations that `work` does.
    pub(crate) fn of(count: u64, work: impl FnOnce()) -> Cost {
        let heap = Region::new(HEAP);
        let (start, cpu_start) = (Instant::now(), cpu());
        work();
        let (wall, cpu) = (start.elapsed(), cpu() - cpu_start);
        let allocations = heap.change().allocations as f64 / count as f64;
        let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        Cost { wall_us: per(wall), cpu_us: per(cpu), allocations }
    }

    /// The run with the median wall time.
    pub(crate) fn median(mut all: Vec<Cost>) -> Cost {
        all.sort_by(|a, b| a.wall_us.total_cmp(&b.wall_us));
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}
