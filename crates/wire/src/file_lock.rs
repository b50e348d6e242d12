//! Locks of programs as they appear in messages: flock(2) and fcntl(2).
//!
//! They say nothing of what may be cached, and nobody is asked to give one back; whoever waits
//! for one holds no request of its own meanwhile, but asks again when it is its turn.

use crate::codec::{DecodeError, Input, Wire};
use crate::wire_struct;

/// The last byte that a lock can cover, as on Linux: a lock to the end of the file covers it.
pub const FILE_LOCK_END_MAX: u64 = i64::MAX as u64;

/// How a program locks a range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FileLockMode {
    /// Shared with readers.
    Read = 1,
    /// Alone.
    Write = 2,
    /// Not any more.
    Unlock = 3,
}

impl FileLockMode {
    /// Whether two owners may have the same bytes locked so.
    pub const fn compatible(self, other: FileLockMode) -> bool {
        !matches!(
            (self, other),
            (FileLockMode::Write, FileLockMode::Read | FileLockMode::Write)
                | (FileLockMode::Read, FileLockMode::Write)
        )
    }
}

impl Wire for FileLockMode {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            1 => FileLockMode::Read,
            2 => FileLockMode::Write,
            3 => FileLockMode::Unlock,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

wire_struct! {
    /// A lock of a program on a range of a file.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FileLock {
        /// Whose it is: one owner within a client, as its kernel tells them apart.
        pub owner: u64,
        /// Of flock(2): it meets none of fcntl(2), and covers the whole file.
        pub flock: bool,
        /// How.
        pub mode: FileLockMode,
        /// First byte.
        pub start: u64,
        /// Last byte, at most [`FILE_LOCK_END_MAX`].
        pub end: u64,
        /// The process that asked for it, within its client; 0 if that is nobody's business.
        pub pid: u32,
    }
}

wire_struct! {
    /// A client's name of one wait for a lock, chosen by the client and unique within it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub struct WaitId {
        /// The number.
        pub id: u64,
    }
}

/// What became of a lock that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileLockState {
    /// It is there, or gone if it was to go; or nobody is in its way, if only that was asked.
    Granted = 1,
    /// Somebody is in its way.
    Busy = 2,
    /// The same, and the wait for it stands in the queue.
    Queued = 3,
}

impl Wire for FileLockState {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            1 => FileLockState::Granted,
            2 => FileLockState::Busy,
            3 => FileLockState::Queued,
            _ => return Err(DecodeError::Invalid),
        })
    }
}
