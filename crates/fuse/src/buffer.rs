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
//!
//! Data that the kernel puts there, or looks for there, begins at a page: an OST of this process may
//! hand it to a disk from where it is, past the page cache. So the allocation has some bytes more in
//! front ([`LoanBuffer::lead`]).
use std::ffi::c_void;
use std::mem::MaybeUninit;

use bytes::{Buf as _, BytesMut};
use rustix::mm::{Advice, madvise};
use sateen_types::{DIRECT_ALIGN, to_direct_align};

/// See the module.
#[derive(Debug)]
pub(crate) struct LoanBuffer {
    handle: BytesMut,
    base: *mut u8,
    /// Bytes of the allocation before `base`.
    lead: usize,
    /// All bytes of the allocation.
    allocated: usize,
    capacity: usize,
    whole: bool,
}

// SAFETY: `base` only repeats where `handle`'s allocation begins; `handle`
// itself is Send.
unsafe impl Send for LoanBuffer {}

impl LoanBuffer {
    /// A buffer of zeros that lends `capacity` bytes, of which the first begins a page.
    pub(crate) fn new(capacity: usize) -> LoanBuffer {
        LoanBuffer::behind(0, capacity)
    }

    /// The same where a page begins behind the first `header` bytes.
    pub(crate) fn behind(header: usize, capacity: usize) -> LoanBuffer {
        let mut handle = BytesMut::with_capacity(capacity + 1 + DIRECT_ALIGN);
        let allocated = handle.capacity();
        let memory = handle.spare_capacity_mut();
        let lead = to_direct_align(memory.as_mut_ptr().addr() + header);
        zero_untouched(memory);
        leave_out(&mut handle, lead);
        let base = handle.as_mut_ptr();
        LoanBuffer { handle, base, lead, allocated, capacity, whole: true }
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
            // All of it: less might be found behind where the handle is.
            if self.handle.try_reclaim(self.allocated) {
                leave_out(&mut self.handle, self.lead);
                self.whole = std::ptr::eq(self.handle.as_ptr(), self.base);
            }
        }
        self.whole
    }

    fn fill_len(&mut self) {
        debug_assert!(self.whole && self.handle.capacity() > self.capacity);
        // SAFETY: `whole` says that the handle spans the whole allocation of at least
        // capacity + 1 bytes, all of which were made zeros; bytes never become
        // uninitialised again.
        unsafe { self.handle.set_len(self.capacity + 1) };
    }
}

/// Goes so many bytes further into a handle that is at the beginning of its allocation, all of which
/// was made zeros.
fn leave_out(handle: &mut BytesMut, lead: usize) {
    debug_assert!(handle.is_empty() && handle.capacity() >= lead);
    // SAFETY: the allocation has at least so many bytes, by more than a page, and bytes that were made
    // zeros never become uninitialised again.
    unsafe { handle.set_len(lead) };
    handle.advance(lead);
}

/// Makes memory zero without touching more of it than its first and its last page: the kernel is to
/// have no pages for the others until somebody uses them, and to make small ones then. There are
/// many buffers, of most of which nobody ever uses more than the first page.
fn zero_untouched(memory: &mut [MaybeUninit<u8>]) {
    let page = rustix::param::page_size();
    let start = memory.as_mut_ptr().cast::<u8>();
    let (within, len) = (start.addr() % page, memory.len());
    // SAFETY: this advice changes how memory is mapped, and not what is in it; also what it does to
    // the neighbours in the first and the last page is harmless. Without it memory is larger, and
    // nothing else.
    let _ = unsafe {
        let outer = start.wrapping_sub(within).cast::<c_void>();
        madvise(outer, (within + len).next_multiple_of(page), Advice::LinuxNoHugepage)
    };
    let (before, rest) = memory.split_at_mut(start.align_offset(page).min(len));
    let (pages, behind) = rest.split_at_mut(rest.len() / page * page);
    let write = |part: &mut [MaybeUninit<u8>]| part.fill(MaybeUninit::new(0));
    if !pages.is_empty() && !drop_pages(pages) {
        write(pages);
    }
    // Last of all: until here the kernel might have found a huge page for a few bytes.
    write(before);
    write(behind);
}

/// Has the kernel drop pages, so that they are zeros; false if it does not.
fn drop_pages(pages: &mut [MaybeUninit<u8>]) -> bool {
    let (start, len) = (pages.as_mut_ptr().cast::<c_void>(), pages.len());
    // SAFETY: the range lies within memory that is borrowed, and it holds nothing: whoever lends it
    // lends it as uninitialised. It is of no file, as an allocator's memory is, and so all zeros
    // afterwards.
    unsafe { madvise(start, len, Advice::LinuxDontNeed) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_lies_behind_a_header_begins_a_page() {
        for capacity in [81, 200, 5000, 1 << 20] {
            for header in [0, 80] {
                let mut buffer = LoanBuffer::behind(header, capacity);
                for _ in 0..3 {
                    let data = buffer.lend().split_off(header);
                    assert!(data.as_ptr().addr().is_multiple_of(DIRECT_ALIGN));
                    assert!(!buffer.recover());
                    drop(data);
                    assert!(buffer.recover());
                }
            }
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

    /// Pages that the kernel has had to find for this thread so far.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn memory_that_was_another_s_is_zeros_and_nobody_has_it_before_it_is_used() {
        // What is freed comes again: an allocator keeps what is small, and may keep the rest.
        for capacity in [100, 5000, 100_000, 1 << 20] {
            let dirty: Vec<Vec<u8>> = (0..16).map(|_| vec![7; capacity + 1]).collect();
            drop(dirty);
            for used in [true, false, false, false] {
                let before = faults();
                let mut buffers: Vec<_> = (0..16).map(|_| LoanBuffer::new(capacity)).collect();
                let each = (faults() - before) / 16;
                assert!(each <= 8, "{each} pages for one of {capacity} bytes");
                for buffer in buffers.iter_mut().filter(|_| used) {
                    assert!(buffer.memory().iter().all(|byte| *byte == 0), "{capacity}");
                    assert_eq!(buffer.lend().len(), capacity);
                    assert!(buffer.recover());
                }
            }
        }
    }
}
