//! What keeps a report from being written.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run cannot be used.
    #[error("{}: {why}", file.display())]
    Input {
        /// Its file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The report cannot be written.
    #[error("write {}: {source}", file.display())]
    Output {
        /// Where to.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// The outcome of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn input(file: &Path, why: impl Into<String>) -> Self {
        Self::Input { file: file.to_owned(), why: why.into() }
    }

    pub(crate) fn output(file: &Path, source: io::Error) -> Self {
        Self::Output { file: file.to_owned(), source }
    }

    /// Whether the fault is in what was given, rather than in writing.
    pub fn is_of_input(&self) -> bool {
        !matches!(self, Self::Output { .. })
    }
}
