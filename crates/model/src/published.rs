//! What each published table has become here, and what of it is not reproduced: for want of which input.
//!
//! Tables are called by the names of the files into which they were taken from their documents.

use serde::Serialize;

/// A published table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Its file.
    pub table: &'static str,
    /// What here is made of it: the name of a fit, of runs that are predicted, of an example, or `plan`.
    pub used: &'static [&'static str],
    /// What of it is not reproduced.
    pub not: Option<NotReproduced>,
}

/// What is not reproduced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotReproduced {
    /// Which part.
    pub what: &'static str,
    /// Why.
    pub why: &'static str,
    /// What would have to be known.
    pub missing: &'static str,
}

const fn whole(table: &'static str, used: &'static [&'static str]) -> Published {
    Published { table, used, not: None }
}

const fn but(
    table: &'static str,
    used: &'static [&'static str],
    [what, why, missing]: [&'static str; 3],
) -> Published {
    Published { table, used, not: Some(NotReproduced { what, why, missing }) }
}

/// Runs of the Data Accelerator that are predicted, as `used` calls them.
pub const RUNS: &str = "runs of the Data Accelerator";
/// Metadata rates that are predicted.
pub const ELSEWHERE: &str = "metadata rates elsewhere";
/// Test sizing.
pub const PLAN: &str = "plan";

const MDTEST: [&str; 3] = ["LFS12 mdtest create", "LFS12 mdtest stat", "LFS12 mdtest remove"];

const CACHED: [&str; 3] = [
    "12 points: POSIX on a single node",
    "the client's cache answered, one of them faster than the node's port",
    "what of a file the client had in memory when it was read",
];

const ALONE: [&str; 3] = [
    "flash with one node (8 points)",
    "a node alone does more than each of four, and no curve that only bends down follows both",
    "threads of a node, and what one was limited by",
];

/// All of them.
pub const PUBLISHED: [Published; 17] = [
    but("seed000_table1_ior_wide.csv", &["LFS12 IOR"], CACHED),
    but("seed000_table1_ior_long.csv", &["LFS12 IOR"], CACHED),
    whole("seed000_table2_mdtest_1mdt.csv", &MDTEST),
    whole("seed000_table3_mdtest_8mdt.csv", &MDTEST),
    whole("seed000_hardware_and_claims.csv", &["lfs12"]),
    whole("seed001_ior.csv", &["VxFlex IOR"]),
    but(
        "seed001_mdtest.csv",
        &[ELSEWHERE],
        [
            "the peaks, 262,144 files per process, and reading",
            "rates fall with the number of files (stat from 491 to 266 thousand a second)",
            "memory of the MDSs and of an inode in it, bytes of the peaks' files, what opening and reading costs an MDT",
        ],
    ),
    whole("seed001_hardware_and_tuning.csv", &["vxflex"]),
    but(
        "seed001_scaling_claims.csv",
        &["VxFlex IOR"],
        [
            "metadata with half of the servers and with one MDS instead of two; the rates quoted from elsewhere",
            "directories were striped over two MDTs, and such costs are known for one and for eight",
            "what operations cost with directories over two MDTs; hardware of the system that is quoted",
        ],
    ),
    but(
        "seed002_io500_runs.csv",
        &["Data Accelerator", RUNS, ELSEWHERE],
        [
            "ior_hard, mdtest_hard, find, and mdtest_easy of June 2019",
            "unaligned writes to one file are limited by locks; files were 3901 bytes in one directory over 24 \
             MDTs; stat was answered by the clients' caches",
            "what a lock's way between clients costs, costs with directories over 24 MDTs, rate of a directory's reading",
        ],
    ),
    whole("seed002_config.csv", &["data-accelerator"]),
    whole("seed002_hardware_and_tuning.csv", &["data-accelerator"]),
    but(
        "seed003_claims.csv",
        &[],
        [
            "all: rates of one client, and random operations a second",
            "there is no table, only sentences, and disks that seek",
            "disks of an OST and their seeks a second, cache of the arrays, the rates of more than one client",
        ],
    ),
    but(
        "seed004_iozone.csv",
        &["lfs09 IOzone", "Disks IOzone, reading", "Disks IOzone, writing"],
        ALONE,
    ),
    but(
        "seed004_iozone_long.csv",
        &["lfs09 IOzone", "Disks IOzone, reading", "Disks IOzone, writing"],
        ALONE,
    ),
    whole("seed004_sizing.csv", &[PLAN, "lfs09"]),
    but(
        "normalized_headlines.csv",
        &["LFS12 IOR", "VxFlex IOR", "Data Accelerator", RUNS, ELSEWHERE],
        [
            "what it has of ior_hard, mdtest_hard and of the array's disks",
            "it is quotients of the other tables",
            "see there",
        ],
    ),
];
