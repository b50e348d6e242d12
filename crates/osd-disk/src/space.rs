//! Space of the file system below, as `statvfs` tells it.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstatvfs;
use sateen_wire::StatFs;

/// The share that one of `sharers` has in the space of the file system that a folder is on.
pub(crate) fn of(folder: impl AsFd, sharers: u32) -> io::Result<StatFs> {
    let all = fstatvfs(folder)?;
    let sharers = u64::from(sharers.max(1));
    let share = |blocks: u64| blocks.saturating_mul(all.f_frsize) / sharers;
    Ok(StatFs {
        bytes_total: share(all.f_blocks),
        bytes_free: share(all.f_bfree),
        bytes_avail: share(all.f_bavail),
        files_total: all.f_files / sharers,
        files_free: all.f_ffree / sharers,
    })
}
