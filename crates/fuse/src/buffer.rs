//! A fixed piece of memory that is lent out and taken back, never copied.
//!
//! Both transports receive into such a buffer and lend it to the file system as
//! `Bytes` or `BytesMut`. The life of one:
//!
//! 1. *whole*: only this handle exists; the kernel may write at [`LoanBuffer::base`].
//! 2. [`LoanBuffer::lend`]: all but the last byte goes out as a `BytesMut`; the
//!    handle keeps that last byte, and with it the allocation.
//! 3. [`LoanBuffer::recover`]: whole again once nothing that was lent is held by
//!    anybody; until then the memory must not be written to.
use std::ffi::c_void;

use bytes::BytesMut;
use rustix::mm::{Advice, madvise};

/// See the module.
#[derive(Debug)]
pub(crate) struct LoanBuffer {
    handle: BytesMut,
    base: *mut u8,
    capacity: usize,
    whole: bool,
}

// SAFETY: `base` only repeats where `handle`'s allocation begins; `handle`
// itself is Send.
unsafe impl Send for LoanBuffer {}

impl LoanBuffer {
    /// A zeroed buffer that lends `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> LoanBuffer {
        let mut handle = BytesMut::zeroed(capacity + 1);
        let base = handle.as_mut_ptr();
        give_pages_back(base, capacity);
        LoanBuffer { handle, base, capacity, whole: true }
    }

    /// Where the memory is; the same for the buffer's whole life.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// How many bytes it lends.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The memory, while nobody else has it; empty otherwise.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        if !self.whole {
            return &mut [];
        }
        self.fill_len();
        self.handle.get_mut(..self.capacity).unwrap_or_default()
    }

    /// Lends the memory; its content is what was last written there. Empty if
    /// it is lent already.
    pub(crate) fn lend(&mut self) -> BytesMut {
        if !self.whole {
            return BytesMut::new();
        }
        self.fill_len();
        let last = self.handle.split_off(self.capacity);
        self.whole = false;
        std::mem::replace(&mut self.handle, last)
    }

    /// Takes the memory back; false while somebody still holds a part of it.
    pub(crate) fn recover(&mut self) -> bool {
        if !self.whole {
            self.handle.clear();
            self.whole = self.handle.try_reclaim(self.capacity + 1)
                && std::ptr::eq(self.handle.as_ptr(), self.base);
        }
        self.whole
    }

    fn fill_len(&mut self) {
        debug_assert!(self.whole && self.handle.capacity() > self.capacity);
        // SAFETY: `whole` says that the handle spans the whole allocation of
        // capacity + 1 bytes, all of which were zeroed when it was made; bytes
        // never become uninitialised again.
        unsafe { self.handle.set_len(self.capacity + 1) };
    }
}

/// Has the kernel take the pages of this memory, which are all zeros, until somebody uses them, and
/// make small ones then. There are many buffers, of most of which nobody ever uses more than the
/// first page; the allocator may have written each zero, and lets the kernel make huge pages.
fn give_pages_back(base: *mut u8, len: usize) {
    let page = rustix::param::page_size();
    let skipped = base.align_offset(page);
    let pages = len.saturating_sub(skipped) / page;
    if pages > 0 {
        let start = base.wrapping_add(skipped).cast::<c_void>();
        // SAFETY: the range lies within an allocation of ours, and this advice changes how its
        // memory is mapped, not what is in it.
        let _ = unsafe { madvise(start, pages * page, Advice::LinuxNoHugepage) };
        // SAFETY: as above, and nobody else has the range yet. Its pages are of no file, as an
        // allocator's are, and so are zeros afterwards, which they are now.
        let _ = unsafe { madvise(start, pages * page, Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;

    #[test]
    fn lends_and_recovers_the_same_memory() {
        let mut buffer = LoanBuffer::new(100);
        let base = buffer.base();
        for round in 0..4u8 {
            buffer.memory().fill(round);
            let mut lent = buffer.lend();
            assert_eq!((lent.as_ptr(), lent.len()), (base.cast_const(), 100));
            assert!(!buffer.recover() && buffer.memory().is_empty() && buffer.lend().is_empty());
            let mut data = lent.split_to(60).freeze();
            data.advance(1);
            let clone = data.clone();
            drop((lent, data));
            assert!(!buffer.recover());
            assert_eq!(clone.as_ref(), &[round; 59]);
            drop(clone);
            assert!(buffer.recover());
            assert_eq!(buffer.base(), base);
            assert_eq!(buffer.memory(), &[round; 100]);
        }
    }

    #[test]
    fn a_borrower_that_grows_takes_no_memory_along() {
        let mut buffer = LoanBuffer::new(64);
        let mut lent = buffer.lend();
        lent.resize(1000, 7);
        assert!(buffer.recover());
        assert_eq!(buffer.memory(), &[0; 64]);
    }
}
