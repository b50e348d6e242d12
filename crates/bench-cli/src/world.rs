//! Ranks that MPI has started, on any number of hosts.
//!
//! A failed rank ends all of them with MPI_Abort; what the others were doing then is not
//! finished, and files that they make in the same moment may stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mpi::Count;
use mpi::datatype::PartitionMut;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives, Root};
use sateen_bench::cli::{self, Bench};
use sateen_bench::comm::{Communicator, Counts, stop_on_signals};
use sateen_bench::error::{EXIT_FAILED, Error, Result};
use sateen_bench::io::ParallelFiles;

use crate::mpiio::Mpiio;

/// Runs a command as one of the ranks; the exit code.
pub(crate) fn run(bench: &Bench) -> u8 {
    let Some(universe) = mpi::initialize() else {
        eprintln!("sateen-bench: MPI could not be initialized");
        return EXIT_FAILED;
    };
    let code = match World::new() {
        Ok(world) => cli::run(bench, Some(&world)),
        Err(error) => {
            eprintln!("sateen-bench: {error}");
            error.exit_code()
        }
    };
    // Only now: it finalizes MPI.
    drop(universe);
    code
}

/// All ranks.
#[derive(Debug)]
struct World {
    rank: usize,
    size: usize,
    stopped: Arc<AtomicBool>,
    counts: Counts,
    files: Mpiio,
}

impl World {
    fn new() -> Result<Self> {
        let world = SimpleCommunicator::world();
        let strange = |_| Error::Failed("MPI has no such ranks".into());
        let rank = usize::try_from(world.rank()).map_err(strange)?;
        let size = usize::try_from(world.size()).map_err(strange)?;
        let files = Mpiio { root: rank == 0, alone: size == 1 };
        let (stopped, counts) = (stop_on_signals()?, Counts::alone(rank));
        let mut world = Self { rank, size, stopped, counts, files };
        world.counts = Counts::share(&world)?;
        Ok(world)
    }
}

fn too_long<E>(_: E) -> Error {
    Error::Failed("ranks have too much to say".into())
}

/// Where each rank's part begins, and where the last one ends.
fn starts(counts: &[Count]) -> Result<(Vec<Count>, Count)> {
    let mut starts = Vec::with_capacity(counts.len());
    let mut end: Count = 0;
    for count in counts {
        starts.push(end);
        end = end.checked_add(*count).ok_or_else(|| too_long(()))?;
    }
    Ok((starts, end))
}

/// The ranks' parts, without the byte in front of each.
fn parted(all: &[u8], counts: &[Count]) -> Vec<Vec<u8>> {
    let mut rest = all;
    let split = counts.iter().map(|count| {
        let (part, after) = rest.split_at(usize::try_from(*count).unwrap_or(0));
        rest = after;
        part.get(1..).unwrap_or_default().to_vec()
    });
    split.collect()
}

/// Waits until what was said has been taken out of the pipe to the launcher, which may drop what
/// it has not read when it ends all; not for long, since it may not read at all.
fn until_read() {
    let begun = Instant::now();
    let is_left = || rustix::io::ioctl_fionread(std::io::stderr()).is_ok_and(|bytes| bytes > 0);
    while is_left() && begun.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Communicator for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn barrier(&self) -> Result<()> {
        self.check()?;
        SimpleCommunicator::world().barrier();
        Ok(())
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        let world = SimpleCommunicator::world();
        // An empty buffer's address may be what MPI_IN_PLACE is: each has a byte in front.
        let mine = [&[0], mine].concat();
        let count = Count::try_from(mine.len()).map_err(too_long)?;
        let mut counts: Vec<Count> = vec![0; self.size];
        world.all_gather_into(&count, &mut counts[..]);
        let (starts, end) = starts(&counts)?;
        let mut all = vec![0_u8; usize::try_from(end).map_err(too_long)?];
        let mut parts = PartitionMut::new(&mut all[..], &counts[..], &starts[..]);
        world.all_gather_varcount_into(&mine[..], &mut parts);
        Ok(parted(&all, &counts))
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        let world = SimpleCommunicator::world();
        let root = world.process_at_rank(0);
        // As in all_gather.
        let mine = [&[0], mine].concat();
        let count = Count::try_from(mine.len()).map_err(too_long)?;
        if self.rank > 0 {
            root.gather_into(&count);
            root.gather_varcount_into(&mine[..]);
            return Ok(Vec::new());
        }
        let mut counts: Vec<Count> = vec![0; self.size];
        root.gather_into_root(&count, &mut counts[..]);
        let (starts, end) = starts(&counts)?;
        let mut all = vec![0_u8; usize::try_from(end).map_err(too_long)?];
        let mut parts = PartitionMut::new(&mut all[..], &counts[..], &starts[..]);
        root.gather_varcount_into_root(&mine[..], &mut parts);
        Ok(parted(&all, &counts))
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn abort(&self, why: &str) {
        // In one piece: another rank may be ending all at this moment.
        let said = format!("sateen-bench: rank {}: {why}\n", self.rank);
        eprint!("{said}");
        until_read();
        SimpleCommunicator::world().abort(EXIT_FAILED.into());
    }

    fn done(&self, rank: usize) -> Option<&AtomicU64> {
        self.counts.done(rank)
    }

    fn over(&self, rank: usize) -> Option<&AtomicU64> {
        self.counts.over(rank)
    }

    fn files(&self) -> Option<&dyn ParallelFiles> {
        Some(&self.files)
    }
}
