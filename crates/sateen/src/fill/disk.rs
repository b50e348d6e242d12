//! How long the disk below makes everybody wait: a probe that knows nothing of the file system.
//!
//! A thread of its own reads 4 KiB past the page cache and writes and syncs 4 KiB, in a file
//! without a name on the disk where the data lies, some 20 times a second. Where an operation
//! was long and the probe beside it was, too, the disk stood still. That tells causes apart; it
//! excuses nothing, for the writes and discards that the disk is busy with may be ours.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

/// Bytes read, and bytes written.
const PIECE: usize = 4096;
/// Bytes of the file that is read in turn.
const FILE_BYTES: u64 = 1 << 20;
/// From one probe to the next.
pub(super) const EVERY: Duration = Duration::from_millis(50);

/// The file, and where it is read next.
#[derive(Debug)]
pub(super) struct DiskProbe {
    direct: File,
    file: File,
    buffer: Vec<u8>,
    turn: u64,
}

impl DiskProbe {
    /// A probe of the disk below a folder.
    ///
    /// # Errors
    /// The file system has no files without a name, or cannot read past the page cache.
    pub(super) fn new(folder: &Path) -> io::Result<DiskProbe> {
        let path = folder.join(format!(".probe.{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
        let direct = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        std::fs::remove_file(&path)?;
        let zeros = vec![1; PIECE];
        for at in 0..FILE_BYTES / PIECE as u64 {
            file.write_all_at(&zeros, at * PIECE as u64)?;
        }
        file.sync_all()?;
        Ok(DiskProbe { direct: direct?, file, buffer: vec![0; 2 * PIECE], turn: 0 })
    }

    /// Reads and writes once. Returns how long the longer of both took.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn probe(&mut self) -> io::Result<Duration> {
        self.turn += 1;
        let at = self.turn * PIECE as u64 % FILE_BYTES;
        // Reads past the page cache want memory that begins where a page could.
        let from = self.buffer.as_ptr().align_offset(PIECE);
        let page = self.buffer.get_mut(from..from + PIECE).unwrap_or_default();
        let begun = Instant::now();
        self.direct.read_exact_at(page, at)?;
        let read = begun.elapsed();
        let begun = Instant::now();
        self.file.write_all_at(&self.turn.to_le_bytes(), at)?;
        self.file.sync_data()?;
        Ok(read.max(begun.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::Errno;

    #[test]
    fn a_disk_answers_and_nothing_stays() {
        let folder = std::env::temp_dir().join(format!("sateen-probe-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let probe = DiskProbe::new(&folder);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
        let mut probe = match probe {
            // Not every file system can be read past the page cache.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL.raw()) => return,
            other => other.unwrap(),
        };
        assert!((0..300).all(|_| probe.probe().unwrap() > Duration::ZERO));
    }
}
