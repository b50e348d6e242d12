//! The IOR workload: each rank moves blocks of its own in transfers, into one file or into
//! files of their own, for writing and then for reading.
//!
//! | file | is |
//! |---|---|
//! | `options` | the options with IOR 4's letters and meaning |
//! | `directives` | `-O name=value` |
//! | `mpiio` | what is special about files of MPI: hints, and what they cannot do |
//! | `validate` | what makes no sense, alone or together |
//! | `files` | which file a rank uses, and which of the others' |
//! | `order` | which offsets, in which order |
//! | `transfer` | the measuring loop |
//! | `phases` | open, transfer, close; write, check, read, remove; repetitions |
//! | `results` | the numbers that follow from the measured times |
//! | `outcome` | the same for workloads that are made of several |
//! | `report` | IOR's text, JSON and CSV |
//!
//! A segment of the file holds one block of each rank; a block is a whole number of transfers:
//! `offset = (segment * ranks + rank) * block + transfer * i`, or with a file for each rank
//! `segment * block + transfer * i`.

mod directives;
mod files;
mod mpiio;
mod options;
mod order;
mod outcome;
mod phases;
mod report;
mod results;
mod transfer;
mod validate;

pub use options::{Ior, SummaryFormat};
pub use order::{Order, Plan};
pub use outcome::{Moving, Outcome};
pub use transfer::{Access, Limits, Moved, Transfer};

use super::{Api, Engine, Setting};
use crate::comm::Communicator;
use crate::error::Result;
use crate::io::{Null, Posix};

impl Engine for Ior {
    fn validate(&self, ranks: usize) -> Result<()> {
        let test = self.resolved()?;
        validate::check(&test, ranks)
    }

    fn needs_mpi(&self) -> bool {
        self.resolved().is_ok_and(|test| test.api == Api::Mpiio)
    }

    fn run(&self, comm: &dyn Communicator, setting: &Setting) -> Result<u8> {
        self.measure(comm, setting).map(|outcome| outcome.exit_code())
    }
}

impl Ior {
    /// Runs it, reports at the root, and gives all ranks what was measured.
    pub fn measure(&self, comm: &dyn Communicator, setting: &Setting) -> Result<Outcome> {
        let test = self.resolved()?;
        validate::check(&test, comm.size())?;
        match test.api {
            Api::Posix => phases::run(&test, &Posix, comm, setting),
            Api::Mpiio => phases::run(&test, &mpiio::files(&test, comm)?, comm, setting),
            Api::Dummy => phases::run(&test, &Null, comm, setting),
        }
    }
}
