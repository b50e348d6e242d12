//! Scaling of IOzone's patterns over nodes: `c n / (1 + s (n - 1))`, the universal scalability law without
//! its term for rates that fall again.
//!
//! lfs09's rows have six points each and no named limit but the network's, which most patterns never see:
//! two parameters a row are what they can carry. The point of a single node is left out. A node alone
//! does more than each of four (four give 2.0 to 3.4 times its rate), and from there to 16 nodes the rows
//! grow almost in proportion (3.3 to 5.3 times): no curve that only bends down follows both.

use serde::Serialize;

use crate::fit::{Form, at};
use crate::table::IozoneRow;

/// The least number of nodes that is fitted.
pub const NODES_MIN: u32 = 4;

/// How a pattern scales.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaling {
    /// IOzone's name of it.
    pub test: String,
    /// Bytes a second of a node among few (c).
    pub node_rate: f64,
    /// The share of a node's rate that each further one costs (s).
    pub contention: f64,
}

/// The form of one row. Parameters: a node's rate, contention.
pub struct ScalingForm;

impl Form<IozoneRow> for ScalingForm {
    fn measured(&self, row: &IozoneRow) -> f64 {
        row.rate()
    }

    fn predicted(&self, parameters: &[f64], row: &IozoneRow) -> f64 {
        let nodes = f64::from(row.nodes);
        at(parameters, 0) * nodes / (1.0 + at(parameters, 1) * (nodes - 1.0))
    }

    fn start(&self) -> Vec<f64> {
        vec![4e8, 0.005]
    }
}

/// The rows of each pattern that are fitted, in the table's order.
pub fn patterns(rows: &[IozoneRow]) -> Vec<(String, Vec<IozoneRow>)> {
    let mut patterns: Vec<(String, Vec<IozoneRow>)> = Vec::new();
    for row in rows.iter().filter(|row| row.nodes >= NODES_MIN) {
        match patterns.iter_mut().find(|(test, _)| *test == row.test) {
            Some((_, found)) => found.push(row.clone()),
            None => patterns.push((row.test.clone(), vec![row.clone()])),
        }
    }
    patterns
}
