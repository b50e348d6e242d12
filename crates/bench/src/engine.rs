//! The workloads. Each is a module with its options (as the original tool takes them), a check
//! of them that needs no ranks, and a run that all ranks make together; what they share is
//! here.
//!
//! A new engine implements [`Engine`] and gets a command in `cli`; ranks, files, statistics,
//! patterns and progress it finds in `comm`, `io`, `stats`, `pattern` and `progress`.

pub mod buffer;
pub mod ior;
pub mod iozone;
pub mod mdtest;
pub mod shown;
mod whole;

use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::comm::Communicator;
use crate::error::Result;
use crate::guard;
use crate::progress::Progress;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// A directory, through system calls.
    #[value(name = "POSIX")]
    Posix,
    /// Nothing: the engine's own cost.
    #[value(name = "DUMMY")]
    Dummy,
}

/// What a run is told beside its options.
#[derive(Debug)]
pub struct Setting<'a> {
    /// The command line, as it was given.
    pub command_line: Vec<String>,
    /// Shows how far it is.
    pub progress: &'a Progress,
    /// The result as JSON, for programs.
    pub json: bool,
    /// What is done about pitfalls.
    pub guard: &'a guard::Options,
}

/// A workload.
pub trait Engine {
    /// Whether its options make sense for so many ranks.
    fn validate(&self, ranks: usize) -> Result<()>;

    /// Runs it and reports at the root; the exit code that it deserves.
    fn run(&self, comm: &dyn Communicator, setting: &Setting) -> Result<u8>;
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
