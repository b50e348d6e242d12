//! Open files that a process has from whoever started it. Those beyond the standard three are
//! there by accident as a rule, such as the lock of a script: whoever stays behind when that has
//! ended must not keep them.
#![allow(unsafe_code, reason = "a descriptor is known by its number only")]

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::{FdFlags, fcntl_setfd};

/// The first that is not standard input, output or error.
const FIRST: i32 = 3;

/// Keeps what is open now from programs that this process starts from now on. To be called before
/// anything else is open.
///
/// # Errors
/// It is not known what is open.
pub fn keep_from_programs() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if number < FIRST {
            continue;
        }
        // SAFETY: it was open a moment ago, and is borrowed for one call, which sets a flag. Had
        // somebody closed it meanwhile, that would fail, or set for another file what is set for
        // all files of ours anyway.
        let open = unsafe { BorrowedFd::borrow_raw(number) };
        match fcntl_setfd(open, FdFlags::CLOEXEC) {
            Ok(()) | Err(rustix::io::Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
