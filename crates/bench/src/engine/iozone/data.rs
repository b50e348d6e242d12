//! What files hold: it follows from the rank and the place in the file alone, not from the
//! records, so that a run compares what another has written in other records.
//!
//! Words of 64 bits with the rank above. Below there is, at the beginning of each 4 KiB of the
//! file, their number, and else a signature that grows from word to word of each KiB.

use crate::pattern::Wrong;

/// The unit of records.
const KIB: usize = 1 << 10;
/// Bytes of the file that have a mark.
const MARKED: u64 = 4 << 10;
/// The first word of a KiB without mark.
const SIGNATURE: u64 = 0x1020e;

/// The data of a rank.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    rank: u64,
}

impl Data {
    /// Of a rank.
    pub fn of(rank: usize) -> Self {
        Self { rank: (rank as u64) << 32 }
    }

    /// The first word of the KiB at an offset.
    fn first(self, offset: u64) -> u64 {
        let low = if offset.is_multiple_of(MARKED) { offset / MARKED } else { SIGNATURE };
        self.rank | (low & u64::from(u32::MAX))
    }

    fn word(self, offset: u64, at: usize) -> u64 {
        if at == 0 { self.first(offset) } else { self.rank | (SIGNATURE + at as u64) }
    }

    /// Fills a record for the first time.
    pub fn fill(self, record: &mut [u8]) {
        for (block, from) in record.chunks_mut(KIB).zip((0..).step_by(KIB)) {
            for (at, word) in block.chunks_mut(8).enumerate() {
                put(word, self.word(from, at));
            }
        }
    }

    /// Changes a filled record into that of another offset.
    #[inline]
    pub(super) fn place(self, record: &mut [u8], offset: u64) {
        let step = step(record, offset);
        for (block, place) in record.chunks_mut(step).zip((offset..).step_by(step)) {
            put(block, self.first(place));
        }
    }

    /// Looks whether a record's marks are those of an offset.
    #[inline]
    pub(super) fn check_marks(self, record: &[u8], offset: u64) -> Result<(), Wrong> {
        let step = step(record, offset);
        for (block, place) in record.chunks(step).zip((offset..).step_by(step)) {
            let expected = self.first(place);
            let found = block.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            if found != expected {
                return Err(Wrong { at: (place - offset) as usize, expected, found });
            }
        }
        Ok(())
    }

    /// Looks whether a record is that of an offset.
    pub(super) fn check(self, record: &[u8], offset: u64) -> Result<(), Wrong> {
        for (block, from) in record.chunks(KIB).zip((0..).step_by(KIB)) {
            for (at, word) in block.chunks(8).enumerate() {
                let expected = self.word(offset + from as u64, at);
                let found = word.try_into().map_or(0, u64::from_le_bytes);
                if found != expected {
                    return Err(Wrong { at: from + at * 8, expected, found });
                }
            }
        }
        Ok(())
    }
}

/// Bytes from one word of a record that tells its place to the next.
#[inline]
fn step(record: &[u8], offset: u64) -> usize {
    if (offset | record.len() as u64).is_multiple_of(MARKED) { MARKED as usize } else { KIB }
}

#[inline]
fn put(into: &mut [u8], word: u64) {
    if let Some(whole) = into.first_chunk_mut() {
        *whole = word.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as records of a size write it, in reverse order.
    fn file(rank: usize, record: usize) -> Vec<u8> {
        let data = Data::of(rank);
        let mut file = vec![0; 192 * KIB];
        let mut bytes = vec![0; record];
        data.fill(&mut bytes);
        for at in (0..file.len() / record).rev() {
            data.place(&mut bytes, (at * record) as u64);
            file[at * record..(at + 1) * record].copy_from_slice(&bytes);
        }
        file
    }

    #[test]
    fn a_file_is_the_same_whatever_its_records() {
        let wanted = file(3, KIB);
        for kib in [2, 3, 4, 6, 8, 64, 192] {
            assert!(file(3, kib * KIB) == wanted, "records of {kib} KiB");
        }
        let data = Data::of(3);
        for kib in [1, 3, 4, 16] {
            for (at, record) in wanted.chunks(kib * KIB).enumerate() {
                let offset = (at * kib * KIB) as u64;
                assert_eq!(data.check(record, offset), Ok(()));
                assert_eq!(data.check_marks(record, offset), Ok(()));
            }
        }
    }

    #[test]
    fn other_data_is_found() {
        let mut record = vec![0; 8 * KIB];
        let data = Data::of(3);
        data.fill(&mut record);
        data.place(&mut record, 0);
        for check in [Data::check, Data::check_marks] {
            assert_eq!(check(data, &record, 0), Ok(()));
            assert!(check(data, &record, 4096).is_err(), "of another place");
            assert!(check(Data::of(2), &record, 0).is_err(), "of another rank");
        }
        record[7000] ^= 1;
        assert_eq!(data.check(&record, 0).unwrap_err().at, 7000);
        assert_eq!(data.check_marks(&record, 0), Ok(()), "that is nobody's mark");
        record[4097] ^= 1;
        assert_eq!(data.check_marks(&record, 0).unwrap_err().at, 4096);
    }
}
