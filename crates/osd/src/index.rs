//! The index as a port: ordered, larger than memory, durable only at checkpoints.

use core::fmt;
use std::io;

use sateen_wire::StatFs;

use crate::{Key, Memtable};

/// Why an index call failed.
#[derive(Debug)]
pub enum IndexError {
    /// The device or the file system below failed.
    Io(io::Error),
    /// What is stored makes no sense: a checksum or a format is wrong.
    Corrupt(String),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Io(error) => write!(f, "index: {error}"),
            IndexError::Corrupt(what) => write!(f, "index is damaged: {what}"),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<io::Error> for IndexError {
    fn from(error: io::Error) -> IndexError {
        IndexError::Io(error)
    }
}

/// An ordered map on a disk. Reads may run at any time from several threads, also during a
/// checkpoint; there is at most one checkpoint at a time.
pub trait Index: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// The device's, or damage.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, IndexError>;

    /// Up to `limit` pairs with keys above `after` that start with `prefix`, in key order.
    ///
    /// # Errors
    /// The device's, or damage.
    fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, IndexError>;

    /// Writes a frozen memtable and makes it durable together with `upto`. A crash on the
    /// way may leave any part of it applied, with the old `upto`; the journal then replays
    /// all of it.
    ///
    /// # Errors
    /// The device's; the target is poisoned then.
    fn checkpoint(&self, table: &Memtable, upto: u64) -> Result<(), IndexError>;

    /// The transno of the last checkpoint; 0 for a new index.
    fn checkpointed(&self) -> u64;

    /// Space where the index and the journal lie; `None` if that is no concern or not known.
    /// Quick: asked after each group commit.
    fn space(&self) -> Option<StatFs> {
        None
    }
}
