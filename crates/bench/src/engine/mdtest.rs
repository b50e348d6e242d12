//! The mdtest workload: rates of making, looking at, reading, renaming and removing very many
//! directories and files, by all ranks at once.
//!
//! | file | is |
//! |---|---|
//! | `options` | the options with mdtest's letters and meaning |
//! | `shape` | how many items there are, in which directories |
//! | `names` | the path of each item |
//! | `work` | the measuring loop |
//! | `phases` | trees, directories, files; iterations |
//! | `outcome` | what was measured, for workloads that are made of several |
//! | `report` | the SUMMARY tables, and JSON |

mod names;
mod options;
mod outcome;
mod phases;
mod report;
mod shape;
mod work;

pub use names::{Names, Paths};
pub use options::Mdtest;
pub use outcome::{Outcome, Rate};
pub use shape::Shape;
pub use work::{Kind, Operation, Work};

use super::{Api, Engine, ONLY_IOR, Setting};
use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::io::{Null, Posix};

impl Engine for Mdtest {
    fn validate(&self, ranks: usize) -> Result<()> {
        self.resolved().check(ranks)
    }

    fn run(&self, comm: &dyn Communicator, setting: &Setting) -> Result<u8> {
        self.measure(comm, setting).map(|outcome| outcome.exit_code())
    }
}

impl Mdtest {
    /// Runs it, reports at the root, and gives all ranks what was measured.
    pub fn measure(&self, comm: &dyn Communicator, setting: &Setting) -> Result<Outcome> {
        let test = self.resolved();
        test.check(comm.size())?;
        match test.api {
            Api::Posix => phases::run(&test, &Posix, comm, setting),
            Api::Dummy => phases::run(&test, &Null, comm, setting),
            Api::Mpiio => Err(Error::usage(ONLY_IOR)),
        }
    }
}
