//! Bandwidth: what the clients ask for against what the servers give.
//!
//! `B(n, p) = ((n c g(p))^-q + S^-q)^(-1/q)`: n client nodes of p processes each ask for `n c g(p)`, the
//! servers end at S, and q says how sharp the bend between both is. A second form is for transfer sizes:
//! a call costs as much time as moving x0 bytes does, so a server gives `b / (1 + x0/x)`.

use serde::Serialize;

use crate::fit::{Form, at, fit};
use crate::table::{Api, Direction, IorRow, VxflexRow};

/// The lesser of two rates, rounded where they are near: at most both, at least their half-power mean.
/// Without a softness, the plain lesser one.
pub fn soft_min(a: f64, b: f64, softness: Option<f64>) -> f64 {
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    match softness {
        // As a ratio at most 1, whose power cannot overflow whatever the softness.
        Some(q) => low * (1.0 + (low / high).powf(q)).powf(-1.0 / q),
        None => low,
    }
}

/// The share of its rate that a server keeps when a call moves `transfer` bytes.
pub fn call_share(transfer: f64, half_point: f64) -> f64 {
    1.0 / (1.0 + half_point / transfer)
}

/// One combination of interface and transfer size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Series {
    /// POSIX or MPI-IO.
    pub api: Api,
    /// Bytes a call.
    pub transfer: f64,
    /// Bytes a second of a client node with one process.
    pub node_rate: f64,
    /// Bytes a second at which all servers end.
    pub ceiling: f64,
}

/// What LFS12's table says of one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IorFit {
    /// Which way.
    pub direction: Direction,
    /// By interface and transfer size.
    pub series: Vec<Series>,
    /// How often more than one process two on a node move, and four.
    pub gains: Gains,
    /// How sharp the bend is.
    pub softness: f64,
}

/// How often more than one process several on a node move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gains {
    /// Two processes.
    pub two: f64,
    /// Four.
    pub four: f64,
}

impl Gains {
    /// For any number of processes: between those measured in proportion to the logarithm, beyond four
    /// as with four, since nothing is known there.
    pub fn of(&self, processes: u32) -> f64 {
        let between = |low: f64, high: f64, place: f64| low * (high / low).powf(place);
        match processes {
            0 | 1 => 1.0,
            2 => self.two,
            3 => between(self.two, self.four, 1.5_f64.log2()),
            _ => self.four,
        }
    }
}

const SERIES: [(Api, f64); 4] = [
    (Api::Mpiio, 1.0 * crate::units::MIB),
    (Api::Mpiio, 4.0 * crate::units::MIB),
    (Api::Posix, 1.0 * crate::units::MIB),
    (Api::Posix, 4.0 * crate::units::MIB),
];

/// The form of LFS12's table. Parameters: a node's rate of each series, the two gains, the servers'
/// ceiling of each series, the softness.
pub struct IorForm;

const GAINS_AT: usize = SERIES.len();
const CEILINGS_AT: usize = GAINS_AT + 2;
const SOFTNESS_AT: usize = CEILINGS_AT + SERIES.len();

impl IorForm {
    /// Whether a row's clients ask for more than all servers give.
    pub fn asks_too_much(parameters: &[f64], row: &IorRow) -> bool {
        let is_of = |series: &(Api, f64)| series.0 == row.api && series.1 == row.transfer();
        let Some(series) = SERIES.iter().position(is_of) else { return false };
        let gain = Self::gains(parameters).of(row.ppn);
        let asked = f64::from(row.nodes) * at(parameters, series) * gain;
        asked >= at(parameters, CEILINGS_AT + series)
    }

    fn gains(parameters: &[f64]) -> Gains {
        Gains { two: at(parameters, GAINS_AT), four: at(parameters, GAINS_AT + 1) }
    }
}

impl Form<IorRow> for IorForm {
    fn measured(&self, row: &IorRow) -> f64 {
        row.rate()
    }

    fn predicted(&self, parameters: &[f64], row: &IorRow) -> f64 {
        let is_of = |series: &(Api, f64)| series.0 == row.api && series.1 == row.transfer();
        let Some(series) = SERIES.iter().position(is_of) else { return f64::NAN };
        let gain = Self::gains(parameters).of(row.ppn);
        let asked = f64::from(row.nodes) * at(parameters, series) * gain;
        let ceiling = at(parameters, CEILINGS_AT + series);
        soft_min(asked, ceiling, Some(at(parameters, SOFTNESS_AT)))
    }

    fn start(&self) -> Vec<f64> {
        let mut start = vec![1.5e9; SERIES.len()];
        start.extend([1.5, 2.0]);
        start.extend([2e11; SERIES.len()]);
        start.push(2.0);
        start
    }
}

/// Fits one direction of LFS12's table.
pub fn fit_ior(direction: Direction, rows: &[IorRow]) -> anyhow::Result<(IorFit, Vec<f64>)> {
    let parameters = fit(&IorForm, rows)?;
    let series = SERIES.iter().enumerate().map(|(index, &(api, transfer))| Series {
        api,
        transfer,
        node_rate: at(&parameters, index),
        ceiling: at(&parameters, CEILINGS_AT + index),
    });
    let found = IorFit {
        direction,
        series: series.collect(),
        gains: IorForm::gains(&parameters),
        softness: at(&parameters, SOFTNESS_AT),
    };
    Ok((found, parameters))
}

/// The form of the transfer-size table. Parameters: a server's rate with large calls, the half point.
pub struct TransferForm;

impl Form<VxflexRow> for TransferForm {
    fn measured(&self, row: &VxflexRow) -> f64 {
        row.rate()
    }

    fn predicted(&self, parameters: &[f64], row: &VxflexRow) -> f64 {
        let server = at(parameters, 0) * call_share(row.transfer(), at(parameters, 1));
        f64::from(row.oss) * server
    }

    fn start(&self) -> Vec<f64> {
        vec![4e9, 64.0 * crate::units::KIB]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_minimum_is_within_its_bounds() {
        for q in [0.5, 1.0, 2.0, 10.0, 300.0] {
            for ratio in [1e-300, 1e-9, 0.5, 1.0, 2.0, 1e9, 1e300] {
                let rate = soft_min(ratio, 1.0, Some(q));
                let low = ratio.min(1.0);
                assert!(rate <= low, "q {q} ratio {ratio}: {rate}");
                assert!(
                    rate >= low * 2.0_f64.powf(-1.0 / q) * (1.0 - 1e-12),
                    "q {q} ratio {ratio}: {rate}"
                );
            }
        }
        assert_eq!(soft_min(3.0, 2.0, None), 2.0);
    }

    #[test]
    fn far_from_the_bend_the_lesser_counts() {
        assert!((soft_min(1.0, 1e6, Some(2.0)) - 1.0).abs() < 1e-11);
        assert!((soft_min(1e12, 5.0, Some(2.0)) - 5.0).abs() < 1e-11);
    }

    #[test]
    fn more_nodes_never_give_less() {
        let mut before = 0.0;
        for nodes in 1..2000 {
            let rate = soft_min(f64::from(nodes) * 1.5e9, 2e11, Some(1.9));
            assert!(rate > before && rate < 2e11, "{nodes} nodes");
            before = rate;
        }
    }

    #[test]
    fn a_call_of_the_half_point_gets_half() {
        assert_eq!(call_share(65536.0, 65536.0), 0.5);
        assert!(call_share(1e12, 65536.0) > 0.999_999);
    }

    #[test]
    fn gains_between_the_measured_lie_between_them() {
        let gains = Gains { two: 1.7, four: 2.4 };
        assert_eq!((gains.of(1), gains.of(2), gains.of(4)), (1.0, 1.7, 2.4));
        assert!(gains.of(3) > 1.7 && gains.of(3) < 2.4);
        assert_eq!(gains.of(64), 2.4);
    }
}
