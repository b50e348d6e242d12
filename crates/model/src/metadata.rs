//! Metadata rates: exact mean-value analysis of processes that wait for MDTs.
//!
//! N processes each have one operation under way. An operation spends Z where nobody waits for anybody
//! (client, network, the OST's part) and D at the MDT that owns the file, where one is served after the
//! other. With M MDTs the work falls on them evenly. The rate of N processes follows from that of N - 1:
//! who arrives finds the queue that the others make.

use serde::Serialize;

use crate::fit::{Form, at, fit};
use crate::table::MdtestRow;

/// What one operation costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds outside of the MDT (Z).
    pub delay: f64,
    /// Seconds at the MDT, one operation at a time (D).
    pub service: f64,
}

impl Cost {
    /// From what was measured where it was, and otherwise from what a profile knows: one process
    /// shows delay and service together, one MDT with many of them its service alone.
    pub fn measured(process: Option<f64>, mdt: Option<f64>, known: Option<Self>) -> Option<Self> {
        let service = mdt.map(|rate| 1.0 / rate).or(known.map(|cost| cost.service))?;
        let delay = match process {
            Some(rate) => (1.0 / rate - service).max(0.0),
            None => known?.delay,
        };
        Some(Self { delay, service })
    }

    /// Operations a second of `processes` on `mdts` (X).
    pub fn rate(&self, processes: u32, mdts: u32) -> f64 {
        let (mut queue, mut rate) = (0.0, 0.0);
        for n in 1..=processes {
            let response = self.service * (1.0 + queue / f64::from(mdts));
            rate = f64::from(n) / (self.delay + response);
            queue = rate * response;
        }
        rate
    }

    /// What no number of processes exceeds.
    pub fn ceiling(&self, mdts: u32) -> f64 {
        f64::from(mdts) / self.service
    }
}

/// The form of LFS12's mdtest tables. Parameters: delay, service.
pub struct MdtestForm;

impl Form<MdtestRow> for MdtestForm {
    fn measured(&self, row: &MdtestRow) -> f64 {
        row.ops_s
    }

    fn predicted(&self, parameters: &[f64], row: &MdtestRow) -> f64 {
        let cost = Cost { delay: at(parameters, 0), service: at(parameters, 1) };
        cost.rate(row.processes, row.mdts)
    }

    fn start(&self) -> Vec<f64> {
        vec![500e-6, 15e-6]
    }
}

/// Fits one operation on one number of MDTs.
pub fn fit_mdtest(rows: &[MdtestRow]) -> anyhow::Result<Cost> {
    let parameters = fit(&MdtestForm, rows)?;
    Ok(Cost { delay: at(&parameters, 0), service: at(&parameters, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { delay: 700e-6, service: 20e-6 };

    #[test]
    fn one_process_never_waits() {
        for mdts in [1, 8] {
            assert!((COST.rate(1, mdts) - 1.0 / 720e-6).abs() < 1e-9);
        }
    }

    #[test]
    fn very_many_processes_reach_the_mdts_limit() {
        for mdts in [1, 2, 8] {
            let rate = COST.rate(100_000, mdts);
            assert!(
                rate <= COST.ceiling(mdts) && rate > 0.99 * COST.ceiling(mdts),
                "{mdts}: {rate}"
            );
        }
    }

    #[test]
    fn what_was_measured_is_met_at_both_ends() {
        let cost = Cost::measured(Some(1250.0), Some(40_000.0), None).unwrap();
        assert!((cost.rate(1, 8) / 1250.0 - 1.0).abs() < 1e-9);
        assert!((cost.ceiling(2) / 80_000.0 - 1.0).abs() < 1e-9);
        assert_eq!(Cost::measured(Some(1250.0), None, None), None, "half of it is nothing");
        assert_eq!(Cost::measured(None, Some(40_000.0), None), None);
        let half = Cost::measured(None, Some(40_000.0), Some(COST)).unwrap();
        assert_eq!((half.delay, half.service), (COST.delay, 25e-6));
        assert_eq!(Cost::measured(None, None, Some(COST)), Some(COST));
    }

    #[test]
    fn two_processes_as_computed_by_hand() {
        // One alone leaves 20/720 of itself in the queue; the second waits for that.
        let response = 20e-6 * (1.0 + 20.0 / 720.0);
        assert!((COST.rate(2, 1) - 2.0 / (700e-6 + response)).abs() < 1e-9);
    }

    #[test]
    fn more_processes_or_mdts_never_give_less() {
        let mut before = 0.0;
        for processes in 1..500 {
            let rate = COST.rate(processes, 1);
            // Near the ceiling what another process adds is less than a rounding.
            assert!(rate > before * (1.0 - 1e-12), "{processes} processes");
            assert!(COST.rate(processes, 2) >= rate);
            before = rate;
        }
    }
}
