//! IOzone's options, and what makes no sense. Letters and meanings are those of its throughput
//! mode (`-t`), in which alone ranks make sense.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::pattern::Test;
use super::work::Compare;
use crate::engine::{Api, ONLY_IOR};
use crate::error::{Error, Result};
use crate::size::{self, KIB};

/// Record sizes.
const RECORD: std::ops::RangeInclusive<u64> = 1 << 10..=16 << 20;
/// Tests by their numbers; the others are for what POSIX directories do not have in common.
const NUMBERS: [u8; 10] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10];

/// Throughput of access patterns, as IOzone measures it with many processes.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct Iozone {
    /// Tests, several times: 0 write and rewrite, 1 read and re-read, 2 random read and write,
    /// 3 reverse read, 5 stride read, 6 fwrite, 7 fread, 8 mixed, 9 pwrite, 10 pread
    /// [default: all].
    #[arg(short = 'i', value_name = "N", action = ArgAction::Append)]
    pub tests: Vec<u8>,
    /// Record size, 1k to 16m; several times, or with commas between. A number alone is in KiB.
    #[arg(short = 'r', value_name = "SIZE", default_value = "4k", value_delimiter = ',', value_parser = kib)]
    pub records: Vec<u64>,
    /// Size of each rank's file. A number alone is in KiB.
    #[arg(short = 's', value_name = "SIZE", default_value = "512k", value_parser = kib)]
    pub file_bytes: u64,
    /// Size of all files together, dealt out equally, instead of -s.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub total: Option<u64>,
    /// How many ranks work; with commas between, one after the other [default: all].
    #[arg(short = 't', value_name = "N", value_delimiter = ',')]
    pub ranks: Vec<usize>,
    /// Beginning of the files' names: PATH.DUMMY.RANK.
    #[arg(short = 'f', value_name = "PATH", default_value = "iozone")]
    pub base: String,
    /// The files, one for each rank, instead of -f.
    #[arg(short = 'F', value_name = "FILE", num_args = 1..)]
    pub files: Vec<String>,
    /// Making data durable (fsync) is part of the time.
    #[arg(short = 'e')]
    pub fsync: bool,
    /// Closing is part of the time.
    #[arg(short = 'c')]
    pub close: bool,
    /// Past the page cache (O_DIRECT).
    #[arg(short = 'I')]
    pub direct: bool,
    /// Operations per second instead of kB per second.
    #[arg(short = 'O')]
    pub operations: bool,
    /// Leave the files.
    #[arg(short = 'w')]
    pub keep: bool,
    /// Show what each rank has moved.
    #[arg(short = 'C')]
    pub each: bool,
    /// Records from one read to the next of the stride test.
    #[arg(short = 'j', value_name = "N", default_value_t = 17)]
    pub stride: u64,
    /// No stonewall: each rank goes through all of its file. It is always so.
    #[arg(short = 'x')]
    pub no_stonewall: bool,
    /// Typed `-+n`. No retests: neither rewrite nor re-read.
    #[arg(long = "+n")]
    pub no_retest: bool,
    /// Typed `-+d`. Compare every byte that is read with what was written, instead of one word of each 4 KiB.
    #[arg(long = "+d")]
    pub verify: bool,
    /// Typed `-+E`. The files are somebody else's: they are read and left, and nothing is compared.
    #[arg(long = "+E")]
    pub foreign: bool,
    /// How often all is done.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repetitions: usize,
    /// Percentage of the ranks that read in the mixed test [default: every second].
    #[arg(long = "+p", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub readers: Option<u8>,
    /// IOzone's list of the hosts: refused, MPI places the ranks.
    #[arg(long = "+m", value_name = "FILE", hide = true)]
    pub hosts: Option<PathBuf>,
    /// What is measured: a directory (POSIX), or nothing (DUMMY).
    #[arg(
        long = "api",
        value_name = "API",
        default_value = "POSIX",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub api: Api,
}

/// A size; without a unit in KiB.
fn kib(text: &str) -> std::result::Result<u64, String> {
    let number = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    let bytes = size::parse(text)?;
    if !number {
        return Ok(bytes);
    }
    bytes.checked_mul(KIB).ok_or_else(|| format!("{text} is too large"))
}

impl Iozone {
    /// The tests in the order of a run.
    pub(super) fn chosen(&self) -> Vec<Test> {
        let wanted = |test: &Test| {
            (self.tests.is_empty() || self.tests.contains(&test.number()))
                && !(self.no_retest && test.is_retest())
                && (!self.foreign || test.only_reads())
        };
        Test::ALL.into_iter().filter(wanted).collect()
    }

    /// What is compared of what is read.
    pub(super) fn compare(&self) -> Compare {
        match (self.api == Api::Dummy || self.foreign, self.verify) {
            (true, _) => Compare::Nothing,
            (false, true) => Compare::All,
            (false, false) => Compare::Marks,
        }
    }

    /// Whether the files stay.
    pub(super) fn keeps_files(&self) -> bool {
        self.keep || self.foreign
    }

    /// How many ranks work, one after the other.
    pub(super) fn rounds(&self, ranks: usize) -> Vec<usize> {
        if self.ranks.is_empty() { vec![ranks] } else { self.ranks.clone() }
    }

    /// Records of a file, when so many ranks work.
    pub(super) fn count(&self, record: u64, ranks: usize) -> u64 {
        let bytes = self.total.map_or(self.file_bytes, |total| total / ranks.max(1) as u64);
        bytes / record.max(1)
    }

    /// Refuses what makes no sense for so many ranks.
    pub(super) fn check(&self, ranks: usize) -> Result<()> {
        if self.hosts.is_some() {
            return Err(Error::usage(
                "-+m: there is no list of hosts, MPI places the ranks: start this under mpirun or \
                 srun (mpirun --hostfile FILE), or with -np N on this host",
            ));
        }
        let rounds = self.rounds(ranks);
        let most = rounds.iter().copied().max().unwrap_or(0);
        let strange = self.tests.iter().find(|test| !NUMBERS.contains(test));
        if let Some(test) = strange {
            let instead = match test {
                4 => {
                    "IOzone writes one record over and over (-i 4); here that is ior -b SIZE -t SIZE \
                      -O minTimeDuration=SECONDS"
                }
                11 | 12 => {
                    "IOzone has pwritev and preadv (-i 11, -i 12), here are pwrite and pread \
                            (-i 9, -i 10)"
                }
                _ => "there is no such test; there are 0, 1, 2, 3 and 5 to 10",
            };
            return Err(Error::usage(format!("-i {test}: {instead}")));
        }
        if most > ranks {
            let there = if ranks == 1 { "there is 1".into() } else { format!("there are {ranks}") };
            return Err(Error::usage(format!(
                "-t {most}: {most} ranks are to work, and {there}: start as many (sateen-bench -np \
                 {most} iozone ..., or mpirun -n {most})"
            )));
        }
        let records = || self.records.iter().copied();
        let counts =
            || records().flat_map(|record| rounds.iter().map(move |ranks| (record, *ranks)));
        let count = |(record, ranks)| self.count(record, ranks);
        let writes = self.chosen().contains(&Test::InitialWrite);
        let refusals = [
            (self.repetitions == 0, "--repetitions: at least one is needed"),
            (rounds.contains(&0), "-t: at least one rank has to work"),
            (
                records().any(|record| !RECORD.contains(&record) || !record.is_multiple_of(KIB)),
                "-r: records have whole KiB, 1k to 16m",
            ),
            (
                counts().any(|one| count(one) == 0),
                "-s, -r: a file must not be smaller than a record",
            ),
            (
                self.total.is_none()
                    && records().any(|record| !self.file_bytes.is_multiple_of(record.max(1))),
                "-s: the file size must be a multiple of the record size (-r)",
            ),
            // With -I a record is a whole number of sectors, as each KiB is.
            (
                counts().any(|one| u32::try_from(count(one)).is_err()),
                "-s, -r: a file has at most 4294967295 records",
            ),
            (self.stride == 0, "-j: a stride of 0 records goes nowhere"),
            (
                !self.files.is_empty() && self.files.len() < most,
                "-F: there are fewer files than ranks that work",
            ),
            (self.base.ends_with('/'), "-f: it is the beginning of a name, not a directory"),
            (self.api == Api::Mpiio, ONLY_IOR),
            (self.verify && self.api == Api::Dummy, "-+d: DUMMY keeps no data"),
            (
                self.verify && self.foreign,
                "-+d, -+E: what somebody else has written cannot be compared",
            ),
            (
                self.foreign && self.chosen().is_empty(),
                "-+E: somebody else's files are only read (-i 1, 2, 3, 5, 7, 10)",
            ),
            (
                !writes && rounds.len() > 1 && self.total.is_some(),
                "-t, --total: files of several sizes have to be written (-i 0)",
            ),
        ];
        let found = refusals.into_iter().find(|(holds, _)| *holds);
        found.map_or(Ok(()), |(_, why)| Err(Error::usage(why)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        iozone: Iozone,
    }

    /// Options from a command line.
    pub(in super::super) fn iozone(line: &str) -> Iozone {
        let words = std::iter::once("iozone").chain(line.split_whitespace());
        let words = crate::cli::arguments(words.map(Into::into));
        Alone::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).iozone
    }

    #[test]
    fn options_are_read_as_iozone_reads_them() {
        let test = iozone("-i 2 -w -c -O -I -r 4K -s 1g -t 48 -+n");
        assert_eq!(
            (test.tests.as_slice(), test.ranks.as_slice()),
            ([2].as_slice(), [48].as_slice())
        );
        assert!(test.keep && test.close && test.operations && test.direct && test.no_retest);
        assert_eq!((test.records.as_slice(), test.file_bytes), ([4096].as_slice(), 1 << 30));
        let plain = iozone("-i0 -i1 -r 64 -r 1m -s 1024 -F a b c -e");
        assert_eq!((plain.records, plain.file_bytes), (vec![64 << 10, 1 << 20], 1 << 20));
        assert_eq!((plain.tests, plain.files.len(), plain.fsync), (vec![0, 1], 3, true));
        assert_eq!(iozone("-+p 30").readers, Some(30));
        assert_eq!(iozone("").chosen().len(), 13);
        assert_eq!(iozone("-i 0 -i 1 -+n").chosen(), [Test::InitialWrite, Test::Read]);
        let reads = [Test::ReverseRead, Test::RandomRead];
        assert_eq!(iozone("-+E -i 0 -i 2 -i 3 -i 8").chosen(), reads);
        assert_eq!(iozone("--total 1g").count(4096, 3), (1 << 30) / 3 / 4096);
    }

    #[test]
    fn senseless_combinations_are_refused_with_the_option_at_fault() {
        for line in [
            "-i 4",
            "-i 11",
            "-t 5",
            "-t 0",
            "-r 512b",
            "-r 32m -s 64m",
            "-r 1m",
            "-r 4k -s 6k",
            "-r 1536b -s 1536b",
            "-j 0",
            "--repetitions 0",
            "-F a b",
            "-f dir/",
            "-+d --api DUMMY",
            "-+d -+E",
            "-+E -i 0 -i 8",
            "--total 4k",
            "-i 1 -t 1,2 --total 1m",
            "-s 64t",
        ] {
            let error = iozone(line).check(4).err();
            let error = error.unwrap_or_else(|| panic!("{line} was let through"));
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().starts_with('-'), "{line}: {error}");
        }
        for line in ["", "-t 1,2,4", "-F a b c d", "-r 1k,16m -s 32m", "--total 1g -t 1,3 -i 0"] {
            iozone(line).check(4).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
