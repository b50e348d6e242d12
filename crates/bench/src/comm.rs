//! Ranks and how they talk: the one seam between the engines and whatever started them.
//!
//! | implementation | is |
//! |---|---|
//! | [`Solo`] | one rank, this process |
//! | [`Local`] | processes of this host that [`launch`] started (`-np N`), over shared memory |
//! | MPI | in the program `sateen-bench`, with its feature `mpi` |
//!
//! Collective calls are made by all ranks in the same order. Each of them fails with
//! [`Error::Stopped`] once a rank has failed or vanished, so that nobody waits for the dead;
//! loops that make no such calls ask [`Communicator::is_stopped`], which costs a load.

mod board;
mod counts;
#[cfg(test)]
pub(crate) mod late;
mod launch;
pub(crate) mod local;
mod nodes;
mod solo;

use std::sync::atomic::{AtomicU64, Ordering};

pub use counts::Counts;
pub use launch::launch;
pub use local::Local;
pub use nodes::Nodes;
pub use solo::{Solo, stop_on_signals};

use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::io::ParallelFiles;

/// Most ranks on one host.
pub const RANKS_MAX: usize = 4096;

/// How values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// All together.
    Sum,
}

impl Reduce {
    /// Two values as one.
    pub fn f64(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Sum => a + b,
        }
    }

    /// Two values as one.
    pub fn u64(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Sum => a.saturating_add(b),
        }
    }
}

/// The ranks of a run as one of them sees them.
pub trait Communicator: Send + Sync {
    /// Which of them this is.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Returns when all ranks have called it.
    fn barrier(&self) -> Result<()>;

    /// What each rank has given, in their order, at all ranks.
    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Whether a rank has failed or vanished, or the run is to end. Cheap.
    fn is_stopped(&self) -> bool;

    /// Ends the run of all ranks, because of this one.
    fn abort(&self, why: &str);

    /// Says why this rank is about to end, where others can be told, before it takes away what
    /// they use: else they would fail first, of that. [`Communicator::abort`] follows.
    fn fails(&self, _why: &str) {}

    /// Operations that a rank has done in the current phase, if its count can be seen from
    /// here; shown while it runs.
    fn done(&self, rank: usize) -> Option<&AtomicU64>;

    /// Whether a rank has done all that it will do in the current phase (then it is not 0), if
    /// that can be seen from here. A count does not tell it: a stonewall ends a rank before.
    fn over(&self, _rank: usize) -> Option<&AtomicU64> {
        None
    }

    /// The file interface that these ranks bring with them (`-a MPIIO`), if they do.
    fn files(&self) -> Option<&dyn ParallelFiles> {
        None
    }

    /// What each rank has given, in their order, at the root; nothing at the others.
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = self.all_gather(mine)?;
        Ok(if self.is_root() { all } else { Vec::new() })
    }

    /// What the root has given, at all ranks.
    fn broadcast(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let root = if self.rank() == 0 { bytes } else { &[] };
        self.all_gather(root)?.into_iter().next().ok_or(Error::Stopped)
    }

    /// The same for a number.
    fn broadcast_u64(&self, value: u64) -> Result<u64> {
        number(&self.broadcast(&value.to_le_bytes())?)
    }

    /// A number of each rank, in their order.
    fn all_gather_u64(&self, value: u64) -> Result<Vec<u64>> {
        self.all_gather(&value.to_le_bytes())?.iter().map(|bytes| number(bytes)).collect()
    }

    /// A number of each rank, in their order.
    fn all_gather_f64(&self, value: f64) -> Result<Vec<f64>> {
        let all = self.all_gather_u64(value.to_bits())?;
        Ok(all.into_iter().map(f64::from_bits).collect())
    }

    /// All ranks' values as one, at all ranks.
    fn reduce_f64(&self, value: f64, how: Reduce) -> Result<f64> {
        let all = self.all_gather_f64(value)?;
        all.into_iter().reduce(|a, b| how.f64(a, b)).ok_or(Error::Stopped)
    }

    /// All ranks' values as one, at all ranks.
    fn reduce_u64(&self, value: u64, how: Reduce) -> Result<u64> {
        let all = self.all_gather_u64(value)?;
        all.into_iter().reduce(|a, b| how.u64(a, b)).ok_or(Error::Stopped)
    }

    /// Whether this rank reports for all.
    fn is_root(&self) -> bool {
        self.rank() == 0
    }

    /// An error if the run is to end.
    fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Notes that this rank begins a phase: it has done nothing yet.
    fn note_begin(&self) {
        if let Some(over) = self.over(self.rank()) {
            over.store(0, Ordering::Relaxed);
        }
        self.note_done(0);
    }

    /// Notes that this rank has done all that it will do in the current phase.
    fn note_over(&self) {
        if let Some(over) = self.over(self.rank()) {
            over.store(1, Ordering::Relaxed);
        }
    }

    /// Notes what this rank has done in the current phase.
    fn note_done(&self, operations: u64) {
        if let Some(done) = self.done(self.rank()) {
            done.store(operations, Ordering::Relaxed);
        }
    }
}

/// How the names of variables begin that tell a process which rank of MPI it is. What the user
/// sets for MPI (`OMPI_MCA_...`) is not among them.
const MPI_PREFIXES: [&str; 4] = ["OMPI_COMM_WORLD_", "PMIX_", "PMI_", "MPI_LOCAL"];

/// A command of the user's for the shell. It gets nothing of what makes this process a rank: not
/// the memory that is its standard input, and not the variables that tell which rank it is, ours
/// and those of MPI's launchers.
pub(crate) fn outside(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).env_remove(local::VARIABLE);
    for (name, _) in std::env::vars_os() {
        if MPI_PREFIXES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            shell.env_remove(name);
        }
    }
    shell
}

fn number(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes.try_into();
    bytes.map(u64::from_le_bytes).map_err(|_| Error::Failed("ranks differ in what they say".into()))
}
