//! What can end a run early, and the exit code that goes with it.

use std::io;
use std::path::Path;

use crate::comm::Communicator;

/// Exit code of a run that failed: a system call, a vanished rank, an interruption.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of options that make no sense; nothing was done.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a run that went through and read something else than was written.
pub const EXIT_WRONG_DATA: u8 = 3;

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options make no sense, or not together.
    #[error("{0}")]
    Usage(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// Anything else that no run survives.
    #[error("{0}")]
    Failed(String),
    /// Another rank failed, or a signal came: whoever knows more says it.
    #[error("the run was ended")]
    Stopped,
}

/// The outcome of everything that can end a run.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A system call on a path that failed.
    pub fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self::Io { what: format!("{what} {}", path.display()), source }
    }

    /// A system call that failed, on nothing that has a path.
    pub fn system(what: &str, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.to_owned(), source: source.into() }
    }

    /// Options that make no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Says it to the other ranks, before this one cleans up, if it is the one to know.
    pub fn tell(&self, comm: &dyn Communicator) {
        if let Self::Io { .. } | Self::Failed(_) = self {
            comm.fails(&self.to_string());
        }
    }

    /// The exit code that says it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            _ => EXIT_FAILED,
        }
    }
}
