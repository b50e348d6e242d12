//! How many pages a request of FUSE may have, as a test needs it: the host has one such limit, so tests of
//! several runs take turns, and put it back.

use std::fs::{self, File};
use std::io;

use rustix::fs::{FlockOperation, flock};

/// Where root says it.
const LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// Held while it is not what it was.
const LOCK: &str = "/run/lock/sateen-test-fuse-limit";

/// The limit, and what it was; put back on drop. Whoever mounts meanwhile asks for no more than he gets
/// with either.
#[derive(Debug)]
pub struct FuseLimit {
    before: String,
    _turn: File,
}

impl FuseLimit {
    /// Waits for the turn of this process, and sets it. `None` where the kernel has none (before Linux 6.13).
    ///
    /// # Errors
    /// For want of being root.
    ///
    /// # Panics
    /// As [`crate::skipped`], where there is none.
    pub fn set(pages: u32) -> io::Result<Option<FuseLimit>> {
        if !fs::exists(LIMIT)? {
            crate::skipped(format_args!("there is no {LIMIT}: it needs Linux 6.13"));
            return Ok(None);
        }
        let turn = File::options().create(true).truncate(false).write(true).open(LOCK)?;
        flock(&turn, FlockOperation::LockExclusive)?;
        let before = fs::read_to_string(LIMIT)?;
        fs::write(LIMIT, pages.to_string())?;
        Ok(Some(FuseLimit { before, _turn: turn }))
    }

    /// Another one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn change(&self, pages: u32) -> io::Result<()> {
        fs::write(LIMIT, pages.to_string())
    }
}

impl Drop for FuseLimit {
    fn drop(&mut self) {
        if let Err(error) = fs::write(LIMIT, &self.before) {
            eprintln!("{LIMIT} is not again what it was, {}: {error}", self.before.trim());
        }
    }
}
