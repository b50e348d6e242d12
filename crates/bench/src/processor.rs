//! Processor time that processes have used, as their own clocks tell it.

use std::time::Duration;

use crate::sys;

/// What a process has used so far, threads that ended included; `None` if it is gone.
pub fn used(pid: u32) -> Option<Duration> {
    sys::process_time(pid).ok()
}

/// What ended children of this process, and theirs, have used.
pub fn used_by_children() -> Duration {
    sys::ended_children_time().unwrap_or_default()
}
