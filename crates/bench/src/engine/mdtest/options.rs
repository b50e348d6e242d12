//! mdtest's options, and what makes no sense. Letters and meanings are those of the mdtest that
//! comes with IOR 4.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::shape::Shape;
use crate::engine::{Api, ONLY_IOR};
use crate::error::{Error, Result};
use crate::pattern::Packet;
use crate::size;

/// Longest data of a file: it is one buffer.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Rates of directories and files, as mdtest measures them.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct Mdtest {
    /// What is measured: a directory (POSIX), or nothing (DUMMY).
    #[arg(
        short = 'a',
        value_name = "API",
        default_value = "POSIX",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub api: Api,
    /// Items of each rank: so many directories and files.
    #[arg(short = 'n', value_name = "N", default_value = "0", value_parser = size::parse)]
    pub items: u64,
    /// Items in each directory of the tree.
    #[arg(short = 'I', value_name = "N", default_value = "0", value_parser = size::parse)]
    pub items_per_dir: u64,
    /// Depth of the tree of directories.
    #[arg(short = 'z', value_name = "N", default_value_t = 0)]
    pub depth: u32,
    /// Branches of each directory of the tree.
    #[arg(short = 'b', value_name = "N", default_value_t = 1)]
    pub branches: u64,
    /// Where; several with @ between are used in turn by rank (with -u).
    #[arg(short = 'd', value_name = "DIR[@DIR]", default_value = "./out")]
    pub dir: String,
    /// Files only.
    #[arg(short = 'F')]
    pub files_only: bool,
    /// Directories only.
    #[arg(short = 'D')]
    pub dirs_only: bool,
    /// Items only in the leaves of the tree.
    #[arg(short = 'L')]
    pub leaf_only: bool,
    /// A tree for each rank.
    #[arg(short = 'u')]
    pub unique: bool,
    /// Meeting before the ranks' own trees is part of the time.
    #[arg(short = 't')]
    pub time_unique: bool,
    /// Only create; likewise -T, -E, -U, -r, and together. Without any of them all are done.
    #[arg(short = 'C')]
    pub create: bool,
    /// Only stat.
    #[arg(short = 'T')]
    pub stat: bool,
    /// Only read.
    #[arg(short = 'E')]
    pub read: bool,
    /// Only rename directories.
    #[arg(short = 'U')]
    pub rename: bool,
    /// Only remove, also what an earlier run has left.
    #[arg(short = 'r')]
    pub remove: bool,
    /// Bytes to write into each file.
    #[arg(short = 'w', value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    pub write_bytes: u64,
    /// Bytes to read from each file.
    #[arg(short = 'e', value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    pub read_bytes: u64,
    /// Ranks further whose items are looked at: 1 keeps caches of clients out of it.
    #[arg(short = 'N', value_name = "N", default_value_t = 0)]
    pub stride: usize,
    /// All ranks use the same files.
    #[arg(short = 'S')]
    pub shared: bool,
    /// Iterations.
    #[arg(short = 'i', value_name = "N", default_value_t = 1)]
    pub iterations: usize,
    /// Seconds after which no more files are created; then all ranks make as many as the fastest.
    #[arg(short = 'W', value_name = "SECONDS", default_value_t = 0)]
    pub stonewall: u64,
    /// Where the number of files is kept between a run that creates and one that does not.
    #[arg(short = 'x', value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// Print rates and times.
    #[arg(short = 'P')]
    pub both: bool,
    /// Print times instead of rates.
    #[arg(short = 'Z')]
    pub times: bool,
    /// Compare what is read with what was written.
    #[arg(short = 'X', long = "verify-read")]
    pub verify: bool,
    /// Signature of the data [default: the time]; needed to compare what another run has written.
    #[arg(short = 'G', value_name = "N")]
    pub signature: Option<u32>,
    /// What is written into files; `offset` tells their numbers.
    #[arg(long = "dataPacketType", value_name = "KIND", default_value = "offset")]
    pub packet: Packet,
    /// Create files with mknod.
    #[arg(short = 'k')]
    pub mknod: bool,
    /// Make each file durable after writing.
    #[arg(short = 'y')]
    pub fsync: bool,
    /// sync after each phase, as part of the time.
    #[arg(short = 'Y')]
    pub sync: bool,
    /// Seconds to wait before the directories and before the files of each iteration.
    #[arg(short = 'p', value_name = "SECONDS", default_value_t = 0)]
    pub delay: u64,
    /// Where times and rates of each rank are written as CSV.
    #[arg(long = "saveRankPerformanceDetails", value_name = "FILE")]
    pub ranks_file: Option<PathBuf>,
    /// Seconds and rate of each phase of each iteration, before the tables.
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
}

impl Mdtest {
    /// What is done if nothing was chosen.
    pub(super) fn resolved(&self) -> Self {
        let mut test = self.clone();
        if !(test.create || test.stat || test.read || test.rename || test.remove) {
            test.create = true;
            test.stat = true;
            test.read = true;
            test.rename = true;
            test.remove = true;
        }
        if !(test.dirs_only || test.files_only) {
            test.dirs_only = true;
            test.files_only = true;
        }
        if test.shared {
            test.dirs_only = false;
        }
        test
    }

    /// The directories of -d.
    pub(super) fn dirs(&self) -> Vec<&str> {
        self.dir.split('@').collect()
    }

    /// Refuses what makes no sense for so many ranks; of resolved options.
    pub(super) fn check(&self, ranks: usize) -> Result<()> {
        let dirs = self.dirs();
        let refusals = [
            (dirs.iter().any(|dir| dir.is_empty()), "-d: a directory has no name"),
            (self.iterations == 0, "-i: at least one iteration is needed"),
            (self.items == 0 && self.items_per_dir == 0, "-n, -I: how many items?"),
            (self.unique && self.shared, "-u, -S: files of all cannot be in trees of their own"),
            (dirs.len() > 1 && self.stride > 0, "-d, -N: several directories (@) keep ranks apart"),
            (
                dirs.len() > 1 && !self.unique,
                "-d: several directories (@) need a tree for each rank (-u)",
            ),
            (dirs.len() > ranks, "-d: there are more directories (@) than ranks"),
            (self.branches == 0 && self.depth > 0, "-b: a tree has at least one branch"),
            (
                self.unique && self.items > 0 && self.items_per_dir > 0,
                "-n, -I: with -u only one of them",
            ),
            (
                self.items > 0
                    && self.items_per_dir > 0
                    && !self.items.is_multiple_of(self.items_per_dir),
                "-n: it must be a multiple of the items in each directory (-I)",
            ),
            (self.write_bytes > 0 && self.mknod, "-k, -w: mknod opens no file to write to"),
            (!self.dirs_only && !self.files_only, "-S, -D: directories are not shared"),
            (self.verify && !self.read, "-X: nothing is read (-E)"),
            (self.verify && self.read_bytes == 0, "-X: no bytes are read (-e)"),
            (
                self.verify && !self.create && self.signature.is_none(),
                "-X: what another run has written can be compared only with its signature (-G)",
            ),
            (self.api == Api::Mpiio, ONLY_IOR),
            (self.verify && self.api == Api::Dummy, "-X: -a DUMMY keeps no data"),
            (
                self.create && self.read && self.read_bytes > self.write_bytes,
                "-e: more cannot be read than is written (-w)",
            ),
            (
                self.write_bytes.max(self.read_bytes) > FILE_BYTES_MAX,
                "-w, -e: a file has at most 4 GiB",
            ),
            (
                self.stonewall > 0 && !self.files_only,
                "-W: it stops the creation of files, and there are none",
            ),
            (
                self.status_file.is_some() && self.create && self.stonewall == 0,
                "-x: there is nothing to keep without a stonewall (-W)",
            ),
            (self.shared && self.verify, "-S, -X: whoever wrote last is not known"),
            (self.both && self.times, "-P, -Z: rates and times, or only times?"),
        ];
        if let Some((_, why)) = refusals.into_iter().find(|(holds, _)| *holds) {
            return Err(Error::usage(why));
        }
        Shape::of(self).map(drop)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        mdtest: Mdtest,
    }

    /// Options from a command line, as they are run.
    pub(in super::super) fn mdtest(line: &str) -> Mdtest {
        let words = std::iter::once("mdtest").chain(line.split_whitespace());
        let parsed = Alone::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        parsed.mdtest.resolved()
    }

    #[test]
    fn options_are_read_as_mdtest_reads_them() {
        let test =
            mdtest("-n 1000 -F -C -T -r -u -L -z 2 -b 3 -N 1 -i 3 -d /x -w 3901 -e 3901 -X -E");
        assert_eq!((test.items, test.depth, test.branches, test.stride), (1000, 2, 3, 1));
        assert!(test.files_only && !test.dirs_only && !test.rename && test.leaf_only);
        assert_eq!((test.write_bytes, test.read_bytes, test.iterations), (3901, 3901, 3));
        let all = mdtest("-I 10");
        assert!(all.create && all.stat && all.read && all.rename && all.remove);
        assert!(all.dirs_only && all.files_only);
        assert!(!mdtest("-n 1 -S").dirs_only);
    }

    #[test]
    fn senseless_combinations_are_refused_with_the_option_at_fault() {
        for line in [
            "",
            "-n 1 -d a@@b",
            "-n 1 -i 0",
            "-n 1 -u -S",
            "-n 1 -u -d a@b -N 1",
            "-n 1 -d a@b",
            "-n 1 -u -d a@b@c@d@e",
            "-n 1 -z 1 -b 0",
            "-n 4 -I 2 -u",
            "-n 5 -I 2",
            "-n 5 -k -w 1",
            "-n 5 -S -D",
            "-n 5 -C -X -e 1 -w 1",
            "-n 5 -X",
            "-n 5 -E -X -e 1",
            "-n 5 -a DUMMY -X -e 1 -w 1",
            "-n 5 -e 2 -w 1",
            "-n 5 -w 8g",
            "-n 5 -D -W 1",
            "-n 5 -x f",
            "-n 5 -S -X -e 1 -w 1",
            "-n 5 -P -Z",
            "-n 5 -z 3 -b 2",
            "-n 5 -L -z 3 -b 2",
            "-I 5 -z 40 -b 10",
            "-I 1p -z 10 -b 10",
        ] {
            let error = mdtest(line).check(4).err();
            let error = error.unwrap_or_else(|| panic!("{line} was let through"));
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().starts_with('-'), "{line}: {error}");
        }
        for line in
            ["-n 1", "-I 3 -z 2 -b 2", "-n 4 -I 2", "-n 9 -u -d a@b@c@d -F", "-n 5 -W 1 -x f"]
        {
            mdtest(line).check(4).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
