//! Single numbers as they are measured and kept, and what is made of those of all rounds.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::parts::Part;

/// Microseconds of processors for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Processor {
    /// Of the servers, or of the whole file system where it is one process.
    pub(crate) servers: Option<f64>,
    /// Of the process behind the mount.
    pub(crate) client: Option<f64>,
    /// Of the programs that ask, their system calls included.
    pub(crate) programs: f64,
}

/// One number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Single {
    pub(crate) round: u32,
    pub(crate) row: String,
    pub(crate) processes: u32,
    pub(crate) system: String,
    pub(crate) unit: String,
    /// Nothing if it failed.
    pub(crate) value: Option<f64>,
    pub(crate) operations: u64,
    pub(crate) processor_us: Option<Processor>,
    /// Why there is no number, or why it is not to be believed.
    pub(crate) failed: Option<String>,
    /// Where the time goes, if that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<Vec<Part>>,
}

/// What a round leaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) round: u32,
    /// Percent of a processor that others used while no file system had anything to do.
    pub(crate) others_percent: Option<f64>,
    /// Files of which every byte was compared, and folders of such.
    pub(crate) verified: u32,
    pub(crate) singles: Vec<Single>,
}

/// Reads rounds.
pub(crate) fn read(paths: &[impl AsRef<Path>]) -> Result<Vec<Round>> {
    let one = |path: &Path| -> Result<Round> {
        let text = std::fs::read_to_string(path)?;
        Ok(serde_json::from_str(&text)?)
    };
    let read = |path: &Path| one(path).with_context(|| path.display().to_string());
    paths.iter().map(|path| read(path.as_ref())).collect()
}

/// All rounds' numbers of a row on a file system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    pub(crate) unit: String,
    pub(crate) values: Vec<f64>,
    pub(crate) processors: Vec<Processor>,
    pub(crate) failures: Vec<String>,
}

impl Cell {
    /// The median of its values.
    pub(crate) fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// Half of what lies between the smallest and the largest value, in percent of the median.
    pub(crate) fn spread_percent(&self) -> Option<f64> {
        let low = self.values.iter().copied().reduce(f64::min)?;
        let high = self.values.iter().copied().reduce(f64::max)?;
        self.median().filter(|median| *median > 0.0).map(|median| (high - low) * 50.0 / median)
    }

    /// The median of a part of processor time.
    pub(crate) fn processor_us(&self, part: impl Fn(&Processor) -> Option<f64>) -> Option<f64> {
        median(&self.processors.iter().filter_map(part).collect::<Vec<f64>>())
    }
}

/// The median; of an even number the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let high = sorted.get(middle).copied()?;
    if sorted.len() % 2 == 1 {
        return Some(high);
    }
    sorted.get(middle - 1).map(|low| f64::midpoint(*low, high))
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) rounds: Vec<Round>,
}

impl Numbers {
    /// A row on a file system, if it was tried.
    pub(crate) fn cell(&self, row: &str, processes: u32, system: &str) -> Option<Cell> {
        let mut singles = self
            .singles()
            .filter(|one| one.row == row && one.processes == processes && one.system == system);
        let first = singles.clone().next()?;
        let mut cell = Cell {
            unit: first.unit.clone(),
            values: Vec::new(),
            processors: Vec::new(),
            failures: Vec::new(),
        };
        singles.by_ref().for_each(|one| {
            cell.values.extend(one.value);
            cell.processors.extend(one.processor_us);
            cell.failures.extend(one.failed.clone());
        });
        Some(cell)
    }

    /// The first number of a row on a file system that was recorded.
    pub(crate) fn recorded(&self, row: &str, processes: u32, system: &str) -> Option<&Single> {
        let is_it =
            |one: &&Single| one.row == row && one.processes == processes && one.system == system;
        self.singles().filter(is_it).find(|one| one.parts.is_some())
    }

    fn singles(&self) -> impl Iterator<Item = &Single> + Clone {
        self.rounds.iter().flat_map(|round| &round.singles)
    }

    /// Numbers of processes that were measured.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.singles().map(|one| one.processes).collect();
        all.retain(|count| *count > 0);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether any number is of this file system.
    pub(crate) fn has(&self, system: &str) -> bool {
        self.singles().any(|one| one.system == system)
    }

    /// What failed, in words.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self.singles().filter_map(|one| one.failed.as_ref().map(|why| (one, why)));
        let said = failed.map(|(one, why)| {
            format!("round {}, {}, {}: {why}", one.round, one.system, crate::rows::title(&one.row))
        });
        said.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
