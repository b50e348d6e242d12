//! Writing out what files hold in memory, before a sync has to do all of it at once.
//!
//! None of this makes anything durable: the sync that follows does.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

/// Starts writing out a part of a file, without waiting. A hint: errors are left to the sync
/// that follows.
pub(crate) fn start(file: &File, bytes: Range<u64>) {
    let _ = sync_file_range(file, bytes, libc::SYNC_FILE_RANGE_WRITE);
}

/// Waits until a part of a file is written out. Its error counts, because no later call on
/// this descriptor reports it again.
pub(crate) fn wait(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(file, bytes, wait | libc::SYNC_FILE_RANGE_WRITE)
}

/// The whole of a file.
pub(crate) const ALL: Range<u64> = 0..0;

fn sync_file_range(file: &File, bytes: Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    let range = |at: u64| libc::off64_t::try_from(at).unwrap_or(libc::off64_t::MAX);
    // A length of 0 is the rest of the file.
    let (offset, len) = (range(bytes.start), range(bytes.end.saturating_sub(bytes.start)));
    // SAFETY: a system call on an open descriptor, without memory of ours.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
