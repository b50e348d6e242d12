//! Disks: bandwidth that collapses when they seek, and bandwidth that ends at a plateau.
//!
//! The talk's second IOzone table is of a system of disks that it does not describe. Reading grows with the
//! nodes until disks seek between so many files that they do little else: each pattern has a rate of a node
//! and a number of nodes at which half of the plateau is lost; what seeking disks give, and how steep the
//! way there is, all patterns share. Writing ends at what the disks take, and stays there.
//!
//! The plateau of reading itself is seen by no row: at 16 nodes all are still in proportion to the nodes,
//! and at 32 all have begun to fall. It is given, not fitted.

use crate::fit::{Form, at};
use crate::table::IozoneRow;

/// Patterns that write; the others read, mixed ones for the greater part.
const WRITERS: [&str; 3] = ["initial_writers", "random_writers", "fwriters"];

/// Rows of a kind, and the names of their patterns.
#[derive(Clone, Debug)]
pub struct Rows {
    /// In the table's order.
    pub patterns: Vec<String>,
    /// Likewise.
    pub rows: Vec<IozoneRow>,
}

impl Rows {
    /// Those that write, or those that read.
    pub fn of(table: &[IozoneRow], write: bool) -> Self {
        let rows = table.iter().filter(|row| WRITERS.contains(&row.test.as_str()) == write);
        let rows: Vec<IozoneRow> = rows.cloned().collect();
        let mut patterns: Vec<String> = Vec::new();
        for row in &rows {
            if !patterns.contains(&row.test) {
                patterns.push(row.test.clone());
            }
        }
        Self { patterns, rows }
    }

    fn place(&self, row: &IozoneRow) -> usize {
        self.patterns.iter().position(|test| *test == row.test).unwrap_or(usize::MAX)
    }
}

/// Reading. Parameters: a node's rate of each pattern, the nodes at which each has lost half, what seeking
/// disks give, the steepness.
#[derive(Debug)]
pub struct CollapseForm<'a> {
    /// Whose patterns.
    pub of: &'a Rows,
    /// Bytes a second of disks that do not seek.
    pub plateau: f64,
}

impl CollapseForm<'_> {
    /// Where the number of nodes begins.
    pub fn halves_at(&self) -> usize {
        self.of.patterns.len()
    }

    /// Where what seeking disks give stands; the steepness is behind it.
    pub fn seeking_at(&self) -> usize {
        2 * self.of.patterns.len()
    }
}

impl Form<IozoneRow> for CollapseForm<'_> {
    fn measured(&self, row: &IozoneRow) -> f64 {
        row.rate()
    }

    fn predicted(&self, parameters: &[f64], row: &IozoneRow) -> f64 {
        let (nodes, place) = (f64::from(row.nodes), self.of.place(row));
        let half = at(parameters, self.halves_at().saturating_add(place));
        let seeking = at(parameters, self.seeking_at());
        let fallen = (nodes / half).powf(at(parameters, self.seeking_at() + 1));
        let disks = seeking + (self.plateau - seeking).max(0.0) / (1.0 + fallen);
        (nodes * at(parameters, place)).min(disks)
    }

    fn start(&self) -> Vec<f64> {
        let count = self.of.patterns.len();
        let mut start = vec![4e8; count];
        start.extend(vec![25.0; count]);
        start.extend([1.6e9, 4.0]);
        start
    }
}

/// Writing. Parameters: a node's rate of each pattern, what the disks take.
#[derive(Debug)]
pub struct PlateauForm<'a>(pub &'a Rows);

impl Form<IozoneRow> for PlateauForm<'_> {
    fn measured(&self, row: &IozoneRow) -> f64 {
        row.rate()
    }

    fn predicted(&self, parameters: &[f64], row: &IozoneRow) -> f64 {
        let asked = f64::from(row.nodes) * at(parameters, self.0.place(row));
        asked.min(at(parameters, self.0.patterns.len()))
    }

    fn start(&self) -> Vec<f64> {
        let mut start = vec![1.5e8; self.0.patterns.len()];
        start.push(4e9);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{Summary, errors, fit};
    use crate::table;

    #[test]
    fn the_plateau_of_reading_cannot_be_told_from_the_table() {
        let table = table::disks_iozone().unwrap();
        let reads = Rows::of(&table, false);
        assert_eq!((reads.patterns.len(), reads.rows.len()), (6, 36));
        for plateau in [15e9, 48e9, 400e9] {
            let form = CollapseForm { of: &reads, plateau };
            let found = fit(&form, &reads.rows).unwrap();
            let all = Summary::of(&errors(&form, &found, &reads.rows));
            assert!(all.median < 0.045 && all.p90 < 0.25 && all.worst < 0.75, "{plateau}: {all:?}");
        }
        // Far below what was measured it would be seen.
        let form = CollapseForm { of: &reads, plateau: 4e9 };
        let found = fit(&form, &reads.rows).unwrap();
        assert!(Summary::of(&errors(&form, &found, &reads.rows)).p90 > 0.3);
    }

    #[test]
    fn writing_ends_at_a_plateau() {
        let table = table::disks_iozone().unwrap();
        let writes = Rows::of(&table, true);
        assert_eq!((writes.patterns.len(), writes.rows.len()), (3, 18));
        let found = fit(&PlateauForm(&writes), &writes.rows).unwrap();
        assert!((found[3] / 3.85e9 - 1.0).abs() < 0.03, "{found:?}");
    }
}
