//! The published tables, as typed rows. Each file's head says where its numbers come from.

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::units::{GB, KIB, MIB};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the servers.
    Read,
    /// To the servers.
    Write,
}

/// Both, in the order of reports.
pub const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];

impl Direction {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// How IOR talks to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// System calls.
    Posix,
    /// MPI-IO.
    Mpiio,
}

impl Api {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mpiio => "MPIIO",
        }
    }
}

/// What mdtest does to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Creation, with what is written into the file.
    Create,
    /// Attributes by name.
    Stat,
    /// Removal of the name and the file.
    Remove,
}

/// All, in the order of reports.
pub const OPERATIONS: [Operation; 3] = [Operation::Create, Operation::Stat, Operation::Remove];

impl Operation {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Remove => "remove",
        }
    }
}

/// How directories lie on the MDTs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directories {
    /// One directory, on one MDT: the others idle.
    One,
    /// One directory, striped over all MDTs.
    Striped,
    /// A directory for each process, spread over the MDTs.
    Unique,
}

/// IOR on LFS12.
#[derive(Clone, Debug, Deserialize)]
pub struct IorRow {
    /// Which way.
    #[serde(rename = "op")]
    pub direction: Direction,
    /// POSIX or MPI-IO.
    pub api: Api,
    /// Bytes a call, as IOR's option says it.
    transfer: String,
    /// Processes per node.
    pub ppn: u32,
    /// Client nodes.
    pub nodes: u32,
    mib_s: f64,
    cached: u8,
}

impl IorRow {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.mib_s * MIB
    }

    /// Bytes a call; 0 where the table does not say.
    pub fn transfer(&self) -> f64 {
        self.transfer.strip_suffix('m').and_then(|n| n.parse().ok()).map_or(0.0, |n: f64| n * MIB)
    }

    /// Whether the client's cache answered, and not the file system.
    pub fn is_cached(&self) -> bool {
        self.cached != 0
    }
}

/// mdtest on LFS12; elsewhere beside where that was.
#[derive(Clone, Debug, Deserialize)]
pub struct MdtestRow {
    /// MDTs over which directories are spread; of LFS12, over which the one is striped.
    pub mdts: u32,
    /// Processes, over all nodes.
    pub processes: u32,
    /// What is done.
    #[serde(rename = "op")]
    pub operation: Operation,
    /// Operations a second.
    pub ops_s: f64,
}

/// mdtest elsewhere, never fitted.
#[derive(Clone, Debug, Deserialize)]
pub struct OtherMdtestRow {
    /// Where and when.
    pub run: String,
    /// How directories lie.
    pub directories: Directories,
    /// What was measured.
    #[serde(flatten)]
    pub measured: MdtestRow,
}

/// IOzone on lfs09.
#[derive(Clone, Debug, Deserialize)]
pub struct IozoneRow {
    /// IOzone's name of the pattern.
    pub test: String,
    /// Client nodes.
    pub nodes: u32,
    mb_s: f64,
}

impl IozoneRow {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.mb_s * 1e6
    }
}

/// IOR on Lustre over VxFlex OS.
#[derive(Clone, Debug, Deserialize)]
pub struct VxflexRow {
    /// Servers.
    pub oss: u32,
    /// Client nodes.
    pub nodes: u32,
    /// Processes, over all nodes.
    pub processes: u32,
    /// Which way.
    #[serde(rename = "op")]
    pub direction: Direction,
    transfer_kib: f64,
    gb_s: f64,
}

impl VxflexRow {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.gb_s * GB
    }

    /// Bytes a call.
    pub fn transfer(&self) -> f64 {
        self.transfer_kib * KIB
    }
}

/// ior_easy on the Data Accelerator.
#[derive(Clone, Debug, Deserialize)]
pub struct DacRow {
    /// Which run.
    pub run: String,
    /// The file system on the machine.
    pub software: String,
    /// Client nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// Which way.
    #[serde(rename = "op")]
    pub direction: Direction,
    gb_s: f64,
    fitted: u8,
}

impl DacRow {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.gb_s * GB
    }

    /// Whether the efficiency is fitted to it; the others are predicted.
    pub fn is_fitted(&self) -> bool {
        self.fitted != 0
    }
}

fn rows<T: DeserializeOwned>(name: &str, text: &str) -> anyhow::Result<Vec<T>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let rows: Result<Vec<T>, _> = reader.deserialize().collect();
    rows.with_context(|| format!("table {name}"))
}

/// LFS12's IOR table, without what clients' caches answered.
pub fn lfs12_ior() -> anyhow::Result<Vec<IorRow>> {
    let mut all: Vec<IorRow> = rows("lfs12_ior", include_str!("../tables/lfs12_ior.csv"))?;
    all.retain(|row| !row.is_cached());
    Ok(all)
}

/// LFS12's mdtest tables.
pub fn lfs12_mdtest() -> anyhow::Result<Vec<MdtestRow>> {
    rows("lfs12_mdtest", include_str!("../tables/lfs12_mdtest.csv"))
}

/// mdtest of other systems.
pub fn other_mdtest() -> anyhow::Result<Vec<OtherMdtestRow>> {
    rows("other_mdtest", include_str!("../tables/other_mdtest.csv"))
}

/// lfs09's IOzone table.
pub fn lfs09_iozone() -> anyhow::Result<Vec<IozoneRow>> {
    rows("lfs09_iozone", include_str!("../tables/lfs09_iozone.csv"))
}

/// The IOzone table of disks.
pub fn disks_iozone() -> anyhow::Result<Vec<IozoneRow>> {
    rows("disks_iozone", include_str!("../tables/disks_iozone.csv"))
}

/// Lustre over VxFlex OS.
pub fn vxflex_ior() -> anyhow::Result<Vec<VxflexRow>> {
    rows("vxflex_ior", include_str!("../tables/vxflex_ior.csv"))
}

/// The Data Accelerator's runs.
pub fn dac_ior_easy() -> anyhow::Result<Vec<DacRow>> {
    rows("dac_ior_easy", include_str!("../tables/dac_ior_easy.csv"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read_whole() {
        assert_eq!(lfs12_ior().unwrap().len(), 180, "192, 12 of them cached");
        assert_eq!(lfs12_mdtest().unwrap().len(), 42);
        assert_eq!(lfs09_iozone().unwrap().len(), 48);
        assert_eq!(disks_iozone().unwrap().len(), 54);
        assert_eq!(vxflex_ior().unwrap().len(), 6);
        assert_eq!(dac_ior_easy().unwrap().len(), 14);
        assert_eq!(other_mdtest().unwrap().len(), 9);
        assert!(lfs12_ior().unwrap().iter().all(|row| row.transfer() >= MIB));
    }

    #[test]
    fn no_row_beats_the_network_it_came_through() {
        // What does was answered by a cache, and must not be fitted.
        for row in lfs12_ior().unwrap() {
            assert!(row.rate() < f64::from(row.nodes) * 12e9, "{row:?}");
        }
        for row in lfs09_iozone().unwrap() {
            assert!(row.rate() < (f64::from(row.nodes) * 6e9).min(48e9), "{row:?}");
        }
    }

    #[test]
    fn a_bad_row_is_refused_by_table() {
        let refusal = rows::<IozoneRow>("lfs09", "test,nodes,mb_s\nreaders,x,1\n").unwrap_err();
        assert!(format!("{refusal:#}").contains("lfs09"), "{refusal:#}");
    }
}
