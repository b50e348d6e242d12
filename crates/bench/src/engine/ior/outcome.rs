//! What a run has measured, for a workload that is made of several.

use super::report::Kind;
use super::results::Point;
use crate::engine::beside::Beside;
use crate::error::EXIT_WRONG_DATA;
use crate::guard::Pitfall;
use crate::stats::Quantiles;

/// The last repetition's phases.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Writing.
    pub write: Option<Moving>,
    /// Reading.
    pub read: Option<Moving>,
    /// Transfers with wrong data, of all ranks and repetitions.
    pub wrong: u64,
    /// Pitfalls that were met.
    pub pitfalls: Vec<Pitfall>,
}

/// A phase.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moving {
    /// Bytes that all ranks moved.
    pub bytes: u64,
    /// From the first open to the last close.
    pub seconds: f64,
    /// Seconds and bytes of all ranks until the stonewall.
    pub stonewall: Option<(f64, u64)>,
    /// Ranks, course and latencies; rates in bytes a second.
    pub beside: Beside,
}

impl Outcome {
    pub(super) fn note(&mut self, kind: Kind, point: &Point, beside: Beside, transfer: u64) {
        let until = |wall: super::transfer::Stonewall| (wall.seconds, wall.count_sum * transfer);
        let stonewall = point.stonewall.map(until);
        let moving = Moving { bytes: point.bytes, seconds: point.total_s, stonewall, beside };
        *self.of(kind) = Some(moving);
    }

    /// How long single transfers took, in all repetitions.
    pub(super) fn note_latency(&mut self, kind: Kind, all: Quantiles) {
        if let Some(moving) = self.of(kind) {
            moving.beside.latency = Some(all);
        }
    }

    fn of(&mut self, kind: Kind) -> &mut Option<Moving> {
        match kind {
            Kind::Write => &mut self.write,
            Kind::Read => &mut self.read,
        }
    }

    /// The exit code that it deserves.
    pub fn exit_code(&self) -> u8 {
        if self.wrong > 0 { EXIT_WRONG_DATA } else { 0 }
    }
}
