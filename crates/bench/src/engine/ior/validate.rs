//! Options that make no sense, alone or together; found before anything is done.

use super::mpiio;
use super::options::{Ior, SummaryFormat};
use crate::engine::Api;
use crate::error::{Error, Result};

/// Bytes of the words that data consists of.
const WORD: u64 = 8;
/// Sectors that O_DIRECT may want.
const SECTOR: u64 = 512;
/// Largest transfer: it is one buffer.
const TRANSFER_MAX: u64 = 4 << 30;

/// Conditions, each with what to say if it holds.
pub(super) type Refusals<const N: usize> = [(bool, &'static str); N];

pub(super) fn first<const N: usize>(refusals: Refusals<N>) -> Result<()> {
    let found = refusals.into_iter().find(|(holds, _)| *holds);
    found.map_or(Ok(()), |(_, why)| Err(Error::usage(why)))
}

/// Refuses what makes no sense for so many ranks.
pub(super) fn check(test: &Ior, ranks: usize) -> Result<()> {
    sizes(test, ranks)?;
    phases(test)?;
    ordering(test)?;
    stonewall(test)?;
    mpiio::check(test)
}

fn sizes(test: &Ior, ranks: usize) -> Result<()> {
    let all = test.block.checked_mul(test.segments).and_then(|one| one.checked_mul(ranks as u64));
    first([
        (test.repetitions == 0, "-i: at least one repetition is needed"),
        (test.segments == 0, "-s: at least one segment is needed"),
        (test.transfer == 0, "-t: a transfer of 0 bytes never ends"),
        (test.block == 0, "-b: a block has at least 8 bytes"),
        (!test.block.is_multiple_of(WORD), "-b: the block size must be a multiple of 8"),
        (!test.transfer.is_multiple_of(WORD), "-t: the transfer size must be a multiple of 8"),
        (test.block < test.transfer, "-b: the block must not be smaller than the transfer (-t)"),
        (
            test.transfer > 0 && !test.block.is_multiple_of(test.transfer),
            "-b: the block size must be a multiple of the transfer size (-t)",
        ),
        (test.transfer > TRANSFER_MAX, "-t: a transfer has at most 4 GiB"),
        (
            all.is_none_or(|all| i64::try_from(all).is_err()),
            "-b, -s: the files would be larger than any file system's",
        ),
        (
            test.direct && !test.transfer.is_multiple_of(SECTOR),
            "-B: with O_DIRECT the transfer size (-t) must be a multiple of 512",
        ),
    ])
}

fn phases(test: &Ior) -> Result<()> {
    let checks = test.check_read || test.check_write;
    let several = test.file.contains('@');
    first([
        (test.file.split('@').any(str::is_empty), "-o: the file has no name"),
        (
            test.file.split('@').any(|file| file.ends_with('/')),
            "-o: it names a file, not a directory",
        ),
        (
            several && test.unique_dir,
            "-o, -u: several files (@) cannot have directories of their own",
        ),
        (
            test.check_read && !test.write && test.signature.is_none(),
            "-R: what another run has written can be checked only with its signature (-G)",
        ),
        (
            test.check_write && !test.write && test.signature.is_none(),
            "-W: what another run has written can be checked only with its signature (-G)",
        ),
        (checks && test.api == Api::Dummy, "-R, -W: -a DUMMY keeps no data that could be checked"),
        (
            test.more.summary_file.is_some() && test.more.format.is_none(),
            "-O summaryFile: say its form with -O summaryFormat=default, JSON or CSV",
        ),
    ])
}

fn ordering(test: &Ior) -> Result<()> {
    let random = test.random_offset > 0;
    let shared = !test.file_per_rank;
    first([
        (
            test.reorder && test.reorder_random > 0,
            "-C, -Z: readers are moved by a constant or by chance, not both",
        ),
        (
            random && shared && test.reorder_random > 0,
            "-z, -Z: with one file for all, random offsets and random readers exclude each other",
        ),
        (
            random && shared && test.reorder,
            "-z, -C: with one file for all, random offsets and moved readers exclude each other",
        ),
        (
            test.random_offset == 1 && test.block == test.transfer,
            "-z: transfers are shuffled within a block, which must be larger than the transfer",
        ),
        (test.random_offset > 2, "-z: at most twice"),
        (test.reorder_random > 2, "-Z: at most twice"),
        (
            test.random_offset == 2 && (test.check_read || test.check_write),
            "-zz: offsets by chance leave holes that cannot be checked (-R, -W)",
        ),
        (
            random && test.check_read && !test.write && test.random_offset_seed.is_none(),
            "-z, -R: the order of the run that wrote is needed: give --random-offset-seed to both",
        ),
        (
            test.random_offset_seed.is_some() && !random,
            "--random-offset-seed: it needs random offsets (-z)",
        ),
        (test.more.nodes == Some(0), "-O numNodes: there is at least one"),
        (test.more.ranks_on_root == Some(0), "-O numTasksOnNode0: there is at least one"),
    ])
}

fn stonewall(test: &Ior) -> Result<()> {
    let more = &test.more;
    first([
        (more.wear_out && test.deadline == 0, "-O stoneWallingWearOut: it needs a stonewall (-D)"),
        (
            more.status_file.is_some() && !test.keep,
            "-O stoneWallingStatusFile: it is for a later run, which needs the files: give -k",
        ),
        (
            more.status_file.is_some() && test.write && !more.wear_out,
            "-O stoneWallingStatusFile: writing it needs -O stoneWallingWearOut=1",
        ),
        (
            more.time_min > 0 && test.deadline > 0 && more.time_min > test.deadline,
            "-O minTimeDuration: the stonewall (-D) ends before it",
        ),
        (
            test.collective && test.deadline > 0 && more.time_min > 0,
            "-c, -D, -O minTimeDuration: ranks that agree after each transfer must make equally many",
        ),
        (
            test.collective && test.deadline > 0 && test.random_offset == 1 && !test.file_per_rank,
            "-c, -D, -z: ranks that agree after each transfer must make equally many",
        ),
        (
            more.format == Some(SummaryFormat::Csv) && test.verbose > 1,
            "-v: in CSV there is no place for it",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ior::options::tests::ior;

    #[test]
    fn senseless_combinations_are_refused_with_the_option_at_fault() {
        for line in [
            "-i 0",
            "-s 0",
            "-t 0",
            "-b 0 -t 8",
            "-b 12 -t 4",
            "-b 1m -t 12",
            "-b 1m -t 2m",
            "-b 3m -t 2m",
            "-b 16g -t 8g",
            "-b 1p -s 1m",
            "-B -b 1000 -t 1000",
            "-o a@@b",
            "-o a@@b -F",
            "-o dir/",
            "-F -u -o a@b",
            "-R",
            "-W",
            "-r -R",
            "-a DUMMY -w -R",
            "-O summaryFile=x",
            "-C -Z",
            "-z -Z",
            "-z -C",
            "-z -b 1m -t 1m",
            "-zzz -b 1m -t 4k",
            "-ZZZ",
            "-zz -b 1m -t 4k -w -R",
            "-z -F -R -G 1 -b 1m -t 4k",
            "--random-offset-seed 4",
            "-O numNodes=0",
            "-O numTasksOnNode0=0",
            "-O stoneWallingWearOut=1",
            "-O stoneWallingStatusFile=x",
            "-k -D 1 -O stoneWallingStatusFile=x",
            "-D 1 -O minTimeDuration=2",
            "-c -D 2 -O minTimeDuration=1",
            "-c -D 2 -z -b 1m -t 4k",
        ] {
            let test = ior(line).resolved().unwrap();
            let error = check(&test, 4).err().unwrap_or_else(|| panic!("{line} was let through"));
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().starts_with('-'), "{line}: {error}");
        }
    }

    #[test]
    fn what_makes_sense_is_let_through() {
        for line in [
            "",
            "-w -F -b 1g -t 1m -e -k",
            "-r -R -G 7",
            "-z -F -C -b 1m -t 4k",
            "-z -b 1m -t 4k",
            "-w -r -Z -X -3",
            "-F -u -o d/f",
            "-F -o a/f@b/f",
            "-w -k -D 1 -O stoneWallingWearOut=1,stoneWallingStatusFile=x",
            "-a dummy -b 1g -t 8",
            "-r -e",
            "-r -Y",
            "-u",
        ] {
            let test = ior(line).resolved().unwrap();
            check(&test, 4).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
