//! Reads of an object's file: at once, or with waiting for the disk.
//!
//! Life of a read:
//! 1. [`Reads::now`], on a thread that others want more of: what is in memory is copied. If not all
//!    of it is, nothing is; the kernel may have begun to read the rest.
//!    A short one waits here all the same if the disk has lately been hardly slower than handing it
//!    over, and no other read waits: of a disk that hangs all others are handed over. Whoever jumps
//!    is not even asked first whether it is in memory.
//! 2. Else [`Reads::wait`], where it may sleep. If it is one of a stream the kernel is asked for
//!    what comes next ([`super::streams`]), so that the disk works while that is sent and asked for.
//! 3. Where short reads that jump have waited often, what lies around is to be read ([`super::dense`]).
//!
//! File systems that cannot tell what is in memory (`RWF_NOWAIT`) are known after the first read:
//! whatever has no disk below (tmpfs), and what lies over others (overlayfs). There reads wait
//! where they come in.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::BytesMut;
use rustix::fs::{Advice, CWD, Mode, OFlags, ResolveFlags, fadvise, openat2};
use rustix::io::Errno;

use super::files::{Open, Opened};
use super::open_old;
use crate::lock;

/// So much the kernel is asked for at once: of more it forgets what is beyond the size of its own
/// read-ahead.
const ASK_BYTES: u64 = 128 << 10;

/// A read of at most so many bytes is short.
pub(super) const SHORT_BYTES: usize = 64 << 10;
/// Short reads that take less are waited for where they come in. To hand one over, and its answer
/// back, takes 20 to 30 µs more: a lot of 60 to 120, and little of 300.
const QUICK_NS: u64 = 150_000;
/// A read that takes less has not waited for the disk, or for one that is as good as memory; and for
/// each byte so much more: a fresh buffer is filled at 3 GB/s at least.
const MEMORY_NS: u64 = 20_000;
const MEMORY_BYTES_PER_NS: u64 = 3;
/// What a disk that nobody has read from is taken for.
const UNKNOWN_NS: u64 = 1_000_000;

/// What a read has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) bytes: usize,
    /// It had to wait for the disk, as far as that can be told.
    pub(super) waited: bool,
    /// This is to be read at once.
    pub(super) part: Option<Range<u64>>,
}

/// How the files of a store are read.
#[derive(Debug)]
pub(super) struct Reads {
    /// The file system below cannot tell what is in memory.
    blind: AtomicBool,
    /// What a short read has taken that had to wait, by the last ones: each counts for an eighth.
    short_ns: AtomicU64,
    /// Below that they are not handed over.
    quick_ns: u64,
    /// A read of so many bytes that takes less has not waited.
    pub(super) memory_ns: fn(usize) -> u64,
    /// Short reads that wait.
    waiting: &'static AtomicUsize,
}

/// Short reads that wait, of all stores: however many of them are on a disk that hangs, one thread
/// waits for it.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// One of the short reads that wait.
struct Place(&'static AtomicUsize);

impl Place {
    /// If there is no other.
    fn only(waiting: &'static AtomicUsize) -> Option<Place> {
        let taken = waiting.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok().then(|| Place(waiting))
    }

    fn another(waiting: &'static AtomicUsize) -> Place {
        waiting.fetch_add(1, Ordering::Relaxed);
        Place(waiting)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Reads {
    fn default() -> Self {
        let (blind, short_ns) = (AtomicBool::new(false), AtomicU64::new(UNKNOWN_NS));
        Self { blind, short_ns, quick_ns: QUICK_NS, memory_ns, waiting: &WAITING }
    }
}

/// What a read of so many bytes takes at most that are in memory.
fn memory_ns(bytes: usize) -> u64 {
    MEMORY_NS + bytes as u64 / MEMORY_BYTES_PER_NS
}

impl Reads {
    /// Whether what is in memory can be told from what is not.
    pub(super) fn can_tell(&self) -> bool {
        !self.blind.load(Ordering::Relaxed)
    }

    /// Reads behind what the buffer holds, up to the end of the file; `None`, and the buffer as it
    /// was, if not all of it is in memory, or what comes next is to be asked for.
    pub(super) fn now(
        &self,
        file: &Open,
        (offset, len): (u64, usize),
        buffer: &mut BytesMut,
    ) -> io::Result<Option<Got>> {
        let passed = lock(file.streams()).pass(offset, len as u64);
        if let Some(at) = passed.due {
            match is_in_memory(file, at) {
                false => return Ok(None),
                true => lock(file.streams()).is_there(at),
            }
        }
        // For who jumps nothing is asked ahead: one call for what is in memory and what is not.
        if !passed.forward
            && let Some(place) = self.take_place(len)
        {
            return self.short(place, file, (offset, len), buffer).map(Some);
        }
        let held = buffer.len();
        let error = match fill(read_at_once, file, (offset, len), buffer) {
            // Linux 5.9 and 5.10 may say 0 where there is more (readv(2), BUGS): the size tells.
            Ok(bytes) if bytes < len && offset + (bytes as u64) < file.metadata()?.len() => {
                Errno::AGAIN.into()
            }
            Ok(bytes) => return Ok(Some(Got { bytes, waited: false, part: None })),
            Err(error) => error,
        };
        buffer.truncate(held);
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AGAIN) => match self.take_place(len) {
                Some(place) => {
                    self.ahead(file, (offset, len))?;
                    self.short(place, file, (offset, len), buffer).map(Some)
                }
                None => Ok(None),
            },
            // Of the file system, of a kernel before 4.14, and of a container's.
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                self.blind.store(true, Ordering::Relaxed);
                self.wait(file, (offset, len), buffer).map(Some)
            }
            _ => Err(error),
        }
    }

    /// Reads behind what the buffer holds, up to the end of the file, and waits for the disk.
    pub(super) fn wait(
        &self,
        file: &Open,
        (offset, len): (u64, usize),
        buffer: &mut BytesMut,
    ) -> io::Result<Got> {
        let asks = self.can_tell() && self.ahead(file, (offset, len))?;
        // What is missing only for what is read next says nothing of the disk.
        if len > SHORT_BYTES || asks && is_in_memory(file, offset) {
            let bytes = fill(read_behind, file, (offset, len), buffer)?;
            return Ok(Got { bytes, waited: true, part: None });
        }
        self.short(Place::another(self.waiting), file, (offset, len), buffer)
    }

    /// Asks the kernel for what comes next, if this is one of a stream.
    fn ahead(&self, file: &Open, (offset, len): (u64, usize)) -> io::Result<bool> {
        let size = file.metadata()?.len();
        let ahead = lock(file.streams()).wait(offset, len as u64, size);
        let asks = ahead.is_some();
        if let Some(range) = ahead {
            ask_for(file, range);
        }
        Ok(asks)
    }

    /// A short read that may wait for the disk.
    fn short(
        &self,
        place: Place,
        file: &Open,
        (offset, len): (u64, usize),
        buffer: &mut BytesMut,
    ) -> io::Result<Got> {
        let begun = Instant::now();
        let bytes = fill(read_behind, file, (offset, len), buffer)?;
        drop(place);
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let waited = took >= (self.memory_ns)(bytes);
        if !waited {
            return Ok(Got { bytes, waited, part: None });
        }
        self.took(took);
        let part = lock(file.dense()).waited(offset, file.metadata()?.len());
        Ok(Got { bytes, waited, part })
    }

    /// The only place for a read that is waited for where it came in, if that is better than to
    /// hand it over.
    fn take_place(&self, len: usize) -> Option<Place> {
        let quick = len <= SHORT_BYTES && self.short_ns.load(Ordering::Relaxed) < self.quick_ns;
        quick.then(|| Place::only(self.waiting)).flatten()
    }

    /// A short read took so long. Of two at a time one may be lost: it is a mean.
    fn took(&self, ns: u64) {
        let before = self.short_ns.load(Ordering::Relaxed);
        self.short_ns.store(before - before / 8 + ns / 8, Ordering::Relaxed);
    }
}

/// Opens a file that is there, if the names that lead to it are in memory.
///
/// # Errors
/// `EAGAIN` if they are not.
pub(super) fn open_now(path: &Path) -> io::Result<Opened> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOATIME;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => Ok(Opened::from(File::from(file))),
        Err(error @ (Errno::AGAIN | Errno::NOENT)) => Err(error.into()),
        // A kernel before 5.12, or a container that does not let it through; others say it again.
        Err(_) => open_old(path),
    }
}

/// Has the kernel begin to read. A hint: errors are left to the read that follows.
pub(super) fn ask_for(file: &File, range: Range<u64>) {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(ASK_BYTES);
        let _ = fadvise(file, at, NonZeroU64::new(len), Advice::WillNeed);
        at += len;
    }
}

/// Whether a byte is in memory, or there is none. If it is not the kernel may begin to read it.
pub(super) fn is_in_memory(file: &File, at: u64) -> bool {
    read_what_is_there(file, at, &mut [MaybeUninit::uninit()]).is_ok()
}

/// Reads with one call behind what the buffer holds, which has room for it.
type ReadBehind = fn(&File, (u64, usize), &mut BytesMut) -> io::Result<usize>;

/// Reads up to the end of the file, or of what is asked for.
fn fill(
    read: ReadBehind,
    file: &File,
    (offset, len): (u64, usize),
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    buffer.reserve(len);
    let mut done = 0;
    while done < len {
        match read(file, (offset + done as u64, len - done), buffer) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Waits for the disk.
pub(super) fn read_behind(
    file: &File,
    (offset, len): (u64, usize),
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let room = room.get_mut(..len).unwrap_or_default();
    let (read, _) = rustix::io::pread(file, room, offset)?;
    let read = read.len();
    // SAFETY: pread initialized the first `read` bytes of the spare capacity.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}

/// Reads what is in memory. `EAGAIN` if nothing of it is.
fn read_at_once(
    file: &File,
    (offset, len): (u64, usize),
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let room = room.get_mut(..len).unwrap_or_default();
    let read = read_what_is_there(file, offset, room)?;
    // SAFETY: the first `read` bytes of the spare capacity are initialized.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}

/// Reads what is in memory; so many bytes at the beginning of the room are initialized then.
fn read_what_is_there(file: &File, offset: u64, room: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    let Ok(offset) = libc::off_t::try_from(offset) else { return Err(Errno::INVAL.into()) };
    let room = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let flags = libc::RWF_NOWAIT;
    // SAFETY: the kernel writes into the room, which nobody else has, and no more than there is of
    // it. (The wrapper that there is takes initialized memory only.)
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const room, 1, offset, flags) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests;
