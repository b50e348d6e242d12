//! Parts of an object that are read here and there so often that it takes less time to read them whole.
//!
//! A reader who jumps waits for the disk each time, and a disk that is asked for a part of [`PART_BYTES`] at
//! once has it in the time of [`WAITS_MAX`] such waits: 708 µs and 91 µs where 4 KiB one after the other are
//! 11 000 a second and MiBs 1412. So what was waited for so often is read whole. Whoever then wants nothing
//! more of it has paid twice what he had to, on such a disk (four times on one that reads 125 MB/s and has
//! 4 KiB in 0.3 ms); whoever goes on, as one does that reads a whole file in an order of his own, waits no
//! longer.
//!
//! Life of a part: *sparse*, with a count of the waits; *due* with the last of them; then it begins anew,
//! because a kernel that needs the memory drops it again without a word.

use std::ops::Range;

/// What is read at once: 1 MiB.
pub(super) const PART_BYTES: u64 = 1 << 20;
/// Waits that take as long as a part.
pub(super) const WAITS_MAX: u32 = 8;
/// Parts of an object that are told apart: those of 4 GiB. Those of a larger one share counts.
const COUNTS_MAX: u64 = 4096;

/// The waits for an object's parts.
#[derive(Debug, Default)]
pub(super) struct Dense(Vec<u8>);

impl Dense {
    /// A reader who jumps had to wait for what is here, in an object of so many bytes. The part that is
    /// due, if one is.
    pub(super) fn waited(&mut self, offset: u64, size: u64) -> Option<Range<u64>> {
        if offset >= size {
            return None;
        }
        let parts = size.div_ceil(PART_BYTES);
        let counts = usize::try_from(parts.min(COUNTS_MAX)).ok()?;
        if self.0.len() < counts {
            self.0.resize(counts, 0);
        }
        let part = offset / PART_BYTES;
        let count = self.0.get_mut(usize::try_from(part % COUNTS_MAX).ok()?)?;
        *count = count.saturating_add(1);
        let sharers = u32::try_from(parts.div_ceil(COUNTS_MAX)).unwrap_or(u32::MAX);
        if u32::from(*count) < WAITS_MAX.saturating_mul(sharers).min(u8::MAX.into()) {
            return None;
        }
        *count = 0;
        let from = part * PART_BYTES;
        Some(from..from.saturating_add(PART_BYTES).min(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    const SIZE: u64 = 10 * PART_BYTES + 4096;

    #[test]
    fn what_was_waited_for_often_is_due_whole() {
        let mut dense = Dense::default();
        for _ in 0..2 {
            assert_eq!(dense.waited(4 * PART_BYTES, SIZE), None, "each part by itself");
            for at in 1..WAITS_MAX.into() {
                assert_eq!(dense.waited(3 * PART_BYTES + at * 4096, SIZE), None);
            }
            let due = dense.waited(4 * PART_BYTES - 1, SIZE);
            assert_eq!(due, Some(3 * PART_BYTES..4 * PART_BYTES), "and again later");
        }
    }

    #[test]
    fn the_last_part_ends_where_the_object_does() {
        let mut dense = Dense::default();
        let due = (0..WAITS_MAX).filter_map(|_| dense.waited(SIZE - 1, SIZE)).next();
        assert_eq!(due, Some(10 * PART_BYTES..SIZE));
        assert_eq!(dense.waited(SIZE, SIZE), None, "behind its end there is nothing");
        assert_eq!(dense.waited(u64::MAX, SIZE), None);
    }

    #[test]
    fn an_object_that_grows_has_its_new_parts_counted() {
        let mut dense = Dense::default();
        assert_eq!(dense.waited(0, 4096), None);
        let due = (0..WAITS_MAX).filter_map(|_| dense.waited(SIZE - 1, SIZE)).next();
        assert!(due.is_some());
    }

    /// No more than [`PART_BYTES`] for [`WAITS_MAX`] waits, however large an object is and whatever is
    /// read, and no more memory than there are counts.
    #[test]
    fn no_more_is_read_than_was_paid_for() {
        let mut random = Random::seeded(7);
        for size in [4096, PART_BYTES, 300 * PART_BYTES, 100 << 30, u64::MAX] {
            let (mut dense, mut waits, mut brought) = (Dense::default(), 0_u64, 0);
            for _ in 0..20_000 {
                waits += 1;
                // Most in one corner.
                let corner = if random.below(4) == 0 { size } else { size.min(8 * PART_BYTES) };
                let due = dense.waited(random.below(corner), size);
                brought += due.map_or(0, |part| part.end - part.start);
            }
            assert!(brought <= waits / u64::from(WAITS_MAX) * PART_BYTES, "{size}: {brought}");
            assert!(brought > 0 || size > 1 << 30, "{size}");
            assert!(dense.0.len() as u64 <= COUNTS_MAX);
        }
    }
}
