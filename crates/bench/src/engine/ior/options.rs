//! IOR's options. Letters, names and meanings are IOR 4's; defaults, too.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::directives;
use crate::engine::Api;
use crate::error::Result;
use crate::pattern::Packet;
use crate::size;

/// Form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SummaryFormat {
    /// IOR's text.
    Default,
    /// IOR's JSON.
    Json,
    /// IOR's CSV.
    Csv,
}

/// Bandwidth of reading and writing files in parallel, as IOR measures it.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct Ior {
    /// What is measured: files of a directory, through system calls (POSIX) or through MPI-IO
    /// (MPIIO: under mpirun only), or nothing (DUMMY).
    #[arg(short = 'a', value_name = "API", default_value = "POSIX", ignore_case = true)]
    pub api: Api,
    /// blockSize: contiguous bytes that a rank moves in each segment (4k, 1m, 2g).
    #[arg(short = 'b', value_name = "SIZE", default_value = "1m", value_parser = size::parse)]
    pub block: u64,
    /// transferSize: bytes of a single call.
    #[arg(short = 't', value_name = "SIZE", default_value = "256k", value_parser = size::parse)]
    pub transfer: u64,
    /// segmentCount: segments, each with a block of every rank.
    #[arg(short = 's', value_name = "N", default_value = "1", value_parser = size::parse)]
    pub segments: u64,
    /// filePerProc: a file for each rank.
    #[arg(short = 'F')]
    pub file_per_rank: bool,
    /// writeFile: write. Without -w, -r, -W and -R both -w and -r are done.
    #[arg(short = 'w')]
    pub write: bool,
    /// readFile: read.
    #[arg(short = 'r')]
    pub read: bool,
    /// checkWrite: read what was written and compare.
    #[arg(short = 'W')]
    pub check_write: bool,
    /// checkRead: compare what is read.
    #[arg(short = 'R')]
    pub check_read: bool,
    /// keepFile: leave the files.
    #[arg(short = 'k')]
    pub keep: bool,
    /// keepFileWithError: leave files in which wrong data was found.
    #[arg(short = 'K')]
    pub keep_wrong: bool,
    /// fsync: make what was written durable before closing; within the measured time.
    #[arg(short = 'e')]
    pub fsync: bool,
    /// fsyncPerWrite: after each single write.
    #[arg(short = 'Y')]
    pub fsync_per_write: bool,
    /// useExistingTestFile: do not remove files before writing.
    #[arg(short = 'E')]
    pub existing: bool,
    /// reorderTasks: read what another node has written.
    #[arg(short = 'C')]
    pub reorder: bool,
    /// taskPerNodeOffset: with -C, how many nodes further; with -Z, at least so many.
    #[arg(short = 'Q', value_name = "N", default_value_t = 1)]
    pub node_offset: usize,
    /// reorderTasksRandom: read what a rank chosen by chance has written; -ZZ: each exactly once.
    #[arg(short = 'Z', action = ArgAction::Count)]
    pub reorder_random: u8,
    /// reorderTasksRandomSeed: chance for -Z; if negative, other in each repetition.
    #[arg(short = 'X', value_name = "SEED", default_value_t = 0, allow_negative_numbers = true)]
    pub reorder_seed: i64,
    /// randomOffset: transfers in shuffled order; -zz: at offsets by chance, which may overlap.
    #[arg(short = 'z', action = ArgAction::Count)]
    pub random_offset: u8,
    /// Chance for -z [default: the time].
    #[arg(long, value_name = "SEED")]
    pub random_offset_seed: Option<u64>,
    /// intraTestBarriers: wait for all ranks between open, transfer and close.
    #[arg(short = 'g')]
    pub barriers: bool,
    /// repetitions: how often all is done.
    #[arg(short = 'i', value_name = "N", default_value_t = 1)]
    pub repetitions: usize,
    /// interTestDelay: seconds to wait before each writing and reading.
    #[arg(short = 'd', value_name = "SECONDS", default_value_t = 0)]
    pub delay: u64,
    /// multiFile: files of their own for each repetition.
    #[arg(short = 'm')]
    pub multi_file: bool,
    /// testFile: the file; several with @ between are used in turn by rank: files of their own with
    /// -F, else one file that is seen through several mounts.
    #[arg(short = 'o', value_name = "PATH[@PATH]", default_value = "testFile")]
    pub file: String,
    /// uniqueDir: a directory for each rank's file.
    #[arg(short = 'u')]
    pub unique_dir: bool,
    /// collective: with -a MPIIO ranks make their transfers together; ranks agree after each
    /// transfer whether the stonewall was reached.
    #[arg(short = 'c', long = "collective")]
    pub collective: bool,
    /// Past the page cache (O_DIRECT).
    #[arg(short = 'B', long = "posix.odirect")]
    pub direct: bool,
    /// -a MPIIO: allocate the file before it is written (MPI_File_preallocate).
    #[arg(short = 'p', long = "mpiio.preallocate")]
    pub preallocate: bool,
    /// -a MPIIO: a file of hints, lines of IOR_HINT__MPI__NAME=VALUE; the environment may have
    /// such, too.
    #[arg(short = 'U', long = "mpiio.hintsFileName", value_name = "FILE")]
    pub hints_file: Option<PathBuf>,
    /// -a MPIIO: show the hints that were given and those that are used, on standard error.
    #[arg(short = 'H', long = "mpiio.showHints")]
    pub show_hints: bool,
    /// -a MPIIO: each rank sees only its part of the file (MPI_File_set_view).
    #[arg(short = 'V', long = "mpiio.useFileView")]
    pub file_view: bool,
    /// IOR's strided accesses in a single call: refused, they are not here.
    #[arg(short = 'S', long = "mpiio.useStridedDatatype", hide = true)]
    pub strided: bool,
    /// deadlineForStonewalling: seconds after which writing or reading stops.
    #[arg(short = 'D', value_name = "SECONDS", default_value_t = 0)]
    pub deadline: u64,
    /// setTimeStampSignature: signature of the data [default: the time]; needed to check
    /// with -R what another run has written.
    #[arg(short = 'G', value_name = "N")]
    pub signature: Option<u32>,
    /// dataPacketType: what is written.
    #[arg(short = 'l', long = "dataPacketType", value_name = "KIND", default_value = "timestamp")]
    pub packet: Packet,
    /// refNum: a number of yours for the summary.
    #[arg(short = 'A', value_name = "N", default_value_t = 0)]
    pub reference: u64,
    /// Directives with commas between: stoneWallingWearOut=1, stoneWallingWearOutIterations=N,
    /// stoneWallingStatusFile=FILE, minTimeDuration=SECONDS, summaryFormat=default|JSON|CSV,
    /// summaryFile=FILE, saveRankPerformanceDetailsCSV=FILE, numNodes=N, numTasksOnNode0=N, and
    /// IOR's names of the options.
    #[arg(short = 'O', value_name = "NAME=VALUE")]
    pub directives: Vec<String>,
    /// verbose: more of what is done.
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// What directives alone can say.
    #[arg(skip)]
    pub more: More,
}

/// What directives alone can say.
#[derive(Debug, Clone, Default)]
pub struct More {
    /// After the stonewall all ranks go on until they have done as much as the fastest.
    pub wear_out: bool,
    /// Transfers after which a rank stops.
    pub wear_out_iterations: u64,
    /// Where the number of transfers is kept between a run that writes and one that reads.
    pub status_file: Option<PathBuf>,
    /// Seconds that a phase takes at least, beginning anew at the end of the file.
    pub time_min: u64,
    /// Form of the report.
    pub format: Option<SummaryFormat>,
    /// File of the report.
    pub summary_file: Option<PathBuf>,
    /// Where times and rates of each rank are written as CSV.
    pub ranks_file: Option<PathBuf>,
    /// Nodes, if they are not to be found by host names.
    pub nodes: Option<usize>,
    /// Ranks of the root's node, likewise.
    pub ranks_on_root: Option<usize>,
}

impl Ior {
    /// With directives followed, and what is done if nothing was asked for.
    pub(super) fn resolved(&self) -> Result<Self> {
        let mut test = self.clone();
        for list in &self.directives {
            directives::follow(&mut test, list)?;
        }
        if !(test.write || test.read || test.check_write || test.check_read) {
            test.write = true;
            test.read = true;
        }
        Ok(test)
    }

    /// Bytes that all ranks move if nothing stops them.
    pub(super) fn expected_bytes(&self, ranks: usize) -> u64 {
        self.block.saturating_mul(self.segments).saturating_mul(ranks as u64)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        ior: Ior,
    }

    /// Options from a command line.
    pub(in super::super) fn ior(line: &str) -> Ior {
        let words = std::iter::once("ior").chain(line.split_whitespace());
        Alone::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).ior
    }

    #[test]
    fn options_are_read_as_ior_reads_them() {
        let test =
            ior("-a POSIX -b16m -t 1m -s 4 -F -C -e -i 3 -o /x/f -k -w -r -Q 2 -X -1 -zz -Z");
        assert_eq!((test.block, test.transfer, test.segments), (16 << 20, 1 << 20, 4));
        assert!(test.file_per_rank && test.reorder && test.fsync && test.keep);
        assert_eq!((test.repetitions, test.node_offset, test.reorder_seed), (3, 2, -1));
        assert_eq!((test.random_offset, test.reorder_random), (2, 1));
        let joined = ior("-wrFCek -o a@b --posix.odirect");
        assert!(joined.write && joined.read && joined.file_per_rank && joined.direct);
        let nothing = ior("").resolved().unwrap();
        assert!(nothing.write && nothing.read && !nothing.check_read);
        assert_eq!((nothing.block, nothing.transfer), (1 << 20, 256 << 10));
        assert!(!ior("-R").resolved().unwrap().write);
    }
}
