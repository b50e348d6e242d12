//! Reads and writes past the page cache, for who asks for them (`O_DIRECT`): large ones, if they lie as
//! a disk wants it, in memory as in the file ([`sateen_types::suits_direct`]).
//!
//! Each opens the file of the object anew. That costs a hundredth of what the smallest of them takes,
//! and a descriptor that stays would count among those that may be open. What cannot be done in this
//! way is done as ever: on a file system without `O_DIRECT`, with no descriptors left, and what is left
//! of a write that met the end of the space, or of a read that met the end of the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::BytesMut;
use rustix::io::Errno;
use sateen_types::{DIRECT_ALIGN, suits_direct};

use super::{how_to_open, lacks_room, reads};

/// The way past the page cache of one file system.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// There is none, or the disk wants more than is known here.
    refused: AtomicBool,
    /// How much is under way. The kernel keeps who writes to such a file waiting until it is over.
    busy: AtomicUsize,
}

/// Something goes past the page cache, until this is dropped.
pub(super) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Direct {
    /// Something begins to go past the page cache.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        UnderWay(&self.busy)
    }

    /// Whether anything goes past the page cache now.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    fn open(&self, path: &Path) -> Option<File> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let flags = libc::O_DIRECT | libc::O_NOATIME;
        match how_to_open().custom_flags(flags).open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                self.is_refused(&error);
                None
            }
        }
    }

    /// Takes note of an error that says that it cannot be done so.
    fn is_refused(&self, error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let refused = matches!(errno, Some(Errno::INVAL | Errno::OPNOTSUPP));
        if refused {
            self.refused.store(true, Ordering::Relaxed);
        }
        refused
    }

    /// Writes as much of the beginning of `data` as one call takes; 0 if it is to be written as ever.
    ///
    /// # Errors
    /// The disk's, but none for want of room: that is for who writes the rest to hear.
    pub(super) fn write(&self, path: &Path, data: &[u8], offset: u64) -> io::Result<usize> {
        if !lies_well(data.as_ptr()) || !suits_direct(offset, data.len()) {
            return Ok(0);
        }
        let Some(file) = self.open(path) else { return Ok(0) };
        let _busy = self.begin();
        match file.write_at(data, offset) {
            Err(error) if self.is_refused(&error) || lacks_room(&error) => Ok(0),
            Err(error) if is_for_now(&error) => Ok(0),
            written => written,
        }
    }

    /// Reads with one call behind what the buffer holds; how much, or nothing if it is to be read as
    /// ever.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn read(
        &self,
        path: &Path,
        (offset, len): (u64, usize),
        buffer: &mut BytesMut,
    ) -> io::Result<usize> {
        buffer.reserve(len);
        if !lies_well(buffer.spare_capacity_mut().as_ptr().cast()) || !suits_direct(offset, len) {
            return Ok(0);
        }
        let Some(file) = self.open(path) else { return Ok(0) };
        let _busy = self.begin();
        match reads::read_behind(&file, (offset, len), buffer) {
            Err(error) if self.is_refused(&error) => Ok(0),
            Err(error) if is_for_now(&error) => Ok(0),
            read => read,
        }
    }
}

/// Whether it cannot be done so now, which says nothing of the disk.
fn is_for_now(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::NOMEM | Errno::AGAIN))
}

fn lies_well(data: *const u8) -> bool {
    data.addr().is_multiple_of(DIRECT_ALIGN)
}

#[cfg(test)]
mod tests;
