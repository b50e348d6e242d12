//! Space of the file system below, as `statvfs` tells it.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, SeekFrom, fstatvfs, openat, seek};
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
        object_bytes_max: 0,
    })
}

/// The most bytes that a file below this folder can have; 0 if that cannot be found out. No call
/// tells, but a position beyond is refused, and taking one changes nothing.
pub(crate) fn file_bytes_max(folder: &Path) -> u64 {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) else { return 0 };
    let fits = |bytes: u64| seek(&file, SeekFrom::Start(bytes)).is_ok();
    let (mut low, mut high) = (0, i64::MAX as u64);
    if fits(high) {
        return high;
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn the_largest_file_is_as_large_as_can_be() {
        let scratch = Scratch::new("space-largest");
        let most = file_bytes_max(scratch.path());
        assert!(most > 1 << 40, "{most}");
        let file = std::fs::File::create(scratch.path().join("file")).unwrap();
        file.set_len(most).unwrap();
        if most < i64::MAX as u64 {
            assert!(file.set_len(most + 1).is_err(), "{most}");
        }
    }
}
