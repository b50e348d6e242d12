//! Memory that the machine really has before a row needs it.
//!
//! A virtual machine's host takes back what its guest has set free (free page reporting, balloons), and
//! each page of it costs many times as much when it is touched again: 2 ms of processor for a MiB were
//! seen, where writing it takes 0.3. Whoever came first in a round, with nothing in the page cache, paid
//! that for all who came after.

/// What is touched and set free again just before: pages of the file system and of the one below it.
const COPIES: u64 = 2;
const PAGE_BYTES: usize = 4096;
/// Never more, however large a visit is.
const BYTES_MAX: u64 = 4 << 30;

/// Has as much memory backed as a visit that moves so many bytes is about to fill.
pub(crate) fn back(bytes: u64) {
    let bytes = bytes.saturating_mul(COPIES).min(BYTES_MAX);
    let Ok(len) = usize::try_from(bytes) else { return };
    let mut memory: Vec<u8> = Vec::new();
    // With less room than that, what there is serves.
    if memory.try_reserve_exact(len).is_err() {
        return;
    }
    memory.resize(len, 0);
    for page in memory.chunks_mut(PAGE_BYTES) {
        if let Some(first) = page.first_mut() {
            *first = 1;
        }
    }
    std::hint::black_box(&memory);
}
