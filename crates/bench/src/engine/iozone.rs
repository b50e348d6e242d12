//! The IOzone workload in its throughput mode: each rank has a file of its own and goes through
//! it in one pattern after the other, record by record.
//!
//! | file | is |
//! |---|---|
//! | `options` | the options with IOzone's letters and meaning, and what makes no sense |
//! | `pattern` | the tests: which call, and which record comes next |
//! | `data` | what files hold |
//! | `work` | the measuring loop |
//! | `phases` | open, measure, close; tests, record sizes, numbers of ranks |
//! | `report` | IOzone's lines, the table over numbers of ranks, JSON |

mod data;
mod options;
mod pattern;
mod phases;
mod report;
mod work;

pub use data::Data;
pub use options::Iozone;
pub use pattern::{Call, Order, Test};
pub use work::{Compare, Work};

use super::{Api, Engine, ONLY_IOR, Setting};
use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::io::{Null, Posix};

impl Engine for Iozone {
    fn validate(&self, ranks: usize) -> Result<()> {
        self.check(ranks)
    }

    fn run(&self, comm: &dyn Communicator, setting: &Setting) -> Result<u8> {
        self.check(comm.size())?;
        match self.api {
            Api::Posix => phases::run(self, &Posix, comm, setting),
            Api::Dummy => phases::run(self, &Null, comm, setting),
            Api::Mpiio => Err(Error::usage(ONLY_IOR)),
        }
    }
}
