//! The workloads. Each is a module with its options (as the original tool takes them), a check
//! of them that needs no ranks, and a run that all ranks make together; what they share is
//! here.
//!
//! A new engine implements [`Engine`] and gets a command in `cli`; ranks, files, statistics,
//! patterns and progress it finds in `comm`, `io`, `stats`, `pattern` and `progress`.

mod beside;
pub mod buffer;
pub mod io500;
pub mod ior;
pub mod iozone;
pub mod mdtest;
pub mod shown;
mod whole;

pub use beside::Beside;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::guard::{self, Pitfall};
use crate::progress::Progress;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// A directory, through system calls.
    #[value(name = "POSIX")]
    Posix,
    /// The same through MPI-IO, which ranks of MPI bring with them.
    #[value(name = "MPIIO")]
    Mpiio,
    /// Nothing: the engine's own cost.
    #[value(name = "DUMMY")]
    Dummy,
}

impl Api {
    /// As `-a` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mpiio => "MPIIO",
            Self::Dummy => "DUMMY",
        }
    }
}

/// Why there is no MPI-IO without MPI.
pub(crate) const NEEDS_MPI: &str = "-a MPIIO: files of MPI need ranks of MPI: build the program \
     sateen-bench with its feature mpi and start it under mpirun or srun, or use -a POSIX";

/// Why a workload takes no MPI-IO.
const ONLY_IOR: &str = "MPIIO: only ior measures files of MPI; use POSIX";

/// What a run is told beside its options.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// The command line, as it was given.
    pub command_line: Vec<String>,
    /// Shows how far it is.
    pub progress: &'a Progress,
    /// The result as JSON, for programs.
    pub json: bool,
    /// What is done about pitfalls.
    pub guard: &'a guard::Options,
    /// The file that the report is added to, instead of standard output.
    pub out: Option<&'a Path>,
}

impl Setting<'_> {
    /// Where the report goes.
    fn sink(&self) -> Result<Box<dyn Write>> {
        let Some(path) = self.out else { return Ok(Box::new(io::stdout())) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Box::new(file.map_err(|error| Error::io("write the report to", path, error))?))
    }

    /// Says what pitfalls were met: beside a report of its own, else in it.
    fn warn(&self, pitfalls: &[Pitfall]) -> Result<()> {
        match self.out {
            None => guard::say(pitfalls),
            Some(_) => self.print(
                &guard::lines(pitfalls).iter().map(|line| format!("{line}\n")).collect::<String>(),
            )?,
        }
        Ok(())
    }

    /// Adds to the report.
    fn print(&self, text: &str) -> Result<()> {
        let mut out = self.sink()?;
        let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        said.map_err(|error| Error::system("write the report", error))
    }
}

/// A workload.
pub trait Engine {
    /// Whether its options make sense for so many ranks.
    fn validate(&self, ranks: usize) -> Result<()>;

    /// Whether only ranks of MPI can run it.
    fn needs_mpi(&self) -> bool {
        false
    }

    /// Runs it and reports at the root; the exit code that it deserves.
    fn run(&self, comm: &dyn Communicator, setting: &Setting) -> Result<u8>;
}

/// The number in a file that an earlier run has kept, as the root reads it, at all ranks.
fn kept(comm: &dyn Communicator, file: &Path) -> Result<u64> {
    let text = if comm.is_root() {
        std::fs::read_to_string(file).map_err(|error| Error::io("read", file, error))?
    } else {
        String::new()
    };
    let text = comm.broadcast(text.as_bytes())?;
    let count = String::from_utf8_lossy(&text).trim().parse();
    count.map_err(|_| Error::Failed(format!("{} holds no number", file.display())))
}

/// Waits so many seconds, or until the run is to end.
fn pause(comm: &dyn Communicator, seconds: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        comm.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
