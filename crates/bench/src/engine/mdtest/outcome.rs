//! What a run has measured, for a workload that is made of several.

use crate::engine::Beside;
use crate::error::EXIT_WRONG_DATA;
use crate::guard::Pitfall;

/// The last iteration's phases of files.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Creation.
    pub create: Option<Rate>,
    /// Stat.
    pub stat: Option<Rate>,
    /// Reading.
    pub read: Option<Rate>,
    /// Removal.
    pub remove: Option<Rate>,
    /// Seconds and files of all ranks until the stonewall, if it was hit.
    pub stonewall: Option<(f64, u64)>,
    /// Files with wrong data, of all ranks and iterations.
    pub wrong: u64,
    /// Pitfalls that were met.
    pub pitfalls: Vec<Pitfall>,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rate {
    /// Of the slowest rank times the ranks.
    pub per_second: f64,
    /// Of the slowest rank.
    pub seconds: f64,
    /// Ranks, course and latencies; rates in items a second.
    pub beside: Beside,
}

impl Outcome {
    /// The exit code that it deserves.
    pub fn exit_code(&self) -> u8 {
        if self.wrong > 0 { EXIT_WRONG_DATA } else { 0 }
    }
}
