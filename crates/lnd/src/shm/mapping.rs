//! Memory that two processes share: words that both read and write, and bytes that are copied in
//! and out. The only `unsafe` of networks.
//!
//! The other process may be anything, and may write anything anywhere at any time. So no reference
//! to the bytes ever exists, only to words that are atomic; bytes are copied out before anybody
//! looks at them. The memory cannot go away below us: whoever has made it has sealed it against
//! being made smaller, and whoever is handed it refuses it without that seal.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// What nobody can undo: its size stays, and so do these seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory shared with another process.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned, and bound to no thread.
unsafe impl Send for Mapping {}
// SAFETY: words are atomic; bytes are copied by raw pointers, which another process may do at the
// same time anyhow, and of which each is used by one end of a ring alone (`ring.rs`).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New memory of so many bytes, all zero and all there, and what another process maps it by.
    ///
    /// # Errors
    /// There is not as much memory, or no descriptor for it.
    pub(super) fn make(len: usize) -> io::Result<(Mapping, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("sateen-shm", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        // A page that cannot be had later would be a signal.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Mapping::map(&file, len)?, file))
    }

    /// Memory that another process has made.
    ///
    /// # Errors
    /// It is not what it should be: of another size, or one that may become smaller.
    pub(super) fn of(file: &OwnedFd, len: usize) -> io::Result<Mapping> {
        let sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS));
        if !sealed || rustix::fs::fstat(file)?.st_size != len as i64 {
            let what = "the shared memory is not as large as agreed, for good";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Mapping::map(file, len)
    }

    fn map(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the place, so nothing that is there is replaced.
        let start = unsafe { rustix::mm::mmap(null_mut(), len, access, shared, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    /// The place of so many bytes, which lie within.
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        // SAFETY: `at` lies within the mapping, or at its end.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// A word, at a multiple of its size.
    pub(super) fn word64(&self, at: usize) -> &AtomicU64 {
        let place = self.place(at, size_of::<u64>());
        assert!(at.is_multiple_of(size_of::<u64>()));
        // SAFETY: it lies within the mapping, which is there as long as the reference, at a multiple
        // of its size behind the begin of a page; and is only ever used as an atomic word.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    /// A word, at a multiple of its size.
    pub(super) fn word32(&self, at: usize) -> &AtomicU32 {
        let place = self.place(at, size_of::<u32>());
        assert!(at.is_multiple_of(size_of::<u32>()));
        // SAFETY: as of the longer one.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    /// Copies bytes into the memory, where nothing else of this process is at these.
    pub(super) fn copy_in(&self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: the place lies within the mapping, which can be written and never gets smaller;
        // `bytes` is private memory, since nobody has a reference to bytes of a mapping.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Copies bytes out of the memory. What the other process writes meanwhile may be in them or
    /// not: any byte is one.
    pub(super) fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: as of copying in, the other way.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(place, bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more, for those live no longer than it does.
        // It could fail only for what is no mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_ends_see_the_same_and_nothing_else_is_taken_for_it() {
        let (ours, file) = Mapping::make(8192).unwrap();
        let theirs = Mapping::of(&file, 8192).unwrap();
        ours.copy_in(4090, b"across pages");
        let mut bytes = [0; 12];
        theirs.copy_out(4090, &mut bytes);
        assert_eq!(&bytes, b"across pages");
        theirs.word64(8).store(7, Ordering::Relaxed);
        theirs.word32(4).store(3, Ordering::Relaxed);
        assert_eq!((ours.word64(8), ours.word32(4)).0.load(Ordering::Relaxed), 7);
        assert_eq!(ours.word64(0).load(Ordering::Relaxed), 3 << 32);

        assert!(Mapping::of(&file, 4096).is_err(), "another size");
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "it stays as large as it is");
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        assert!(Mapping::of(&unsealed, 8192).is_err(), "it might become smaller");
        let plain = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(Mapping::of(&plain, 0).is_err());
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn nothing_is_touched_beyond_the_end() {
        Mapping::make(4096).unwrap().0.copy_in(4095, b"ab");
    }
}
