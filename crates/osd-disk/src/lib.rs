//! Targets on a local disk, below the storage ports of `osd`.
//!
//! A target is a folder ([`folder`]): locked for one server, with a label, the metadata index
//! ([`index`]), the journal ([`journal`]) and, on an OST, the objects ([`objects`]) and a note of
//! its runs ([`runs`]). What all of them promise: nothing is reported as durable before the bytes
//! are, and the names they are found by; and after the first error that leaves this in doubt nothing is reported as
//! durable any more. A full disk is not such an error, except to the journal, which therefore
//! makes its files ahead of their use.

#![allow(
    unsafe_code,
    reason = "reads into uninitialized buffers, and a system call without a wrapper"
)]

pub mod folder;
pub mod index;
pub mod journal;
pub mod objects;
pub mod runs;
mod space;
#[cfg(test)]
mod testing;
mod writeback;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what stays whole even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
