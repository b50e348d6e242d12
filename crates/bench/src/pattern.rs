//! The data that is written, and how it proves on reading who wrote it where.
//!
//! As IOR: words of 64 bits, little endian, the writer's rank in the upper half and in the
//! lower one a signature that grows from word to word (`timestamp`). With `offset` the first
//! word of each 4 KiB tells the transfer's offset instead, so that data of another place is
//! found, too. `incompressible` and `random` fill with chance that follows from signature,
//! rank and, for `random`, offset.

/// Words after which `offset` marks again: 4 KiB.
const MARK_WORDS: usize = 512;

/// Kinds of data, `-l`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Packet {
    /// Rank and growing signature; the default.
    #[value(alias = "t")]
    Timestamp,
    /// The same, and the offset in each 4 KiB.
    #[value(alias = "o")]
    Offset,
    /// Chance, the same in each transfer, with the offset in each 4 KiB.
    #[value(alias = "i")]
    Incompressible,
    /// Chance, other in each transfer.
    #[value(alias = "r")]
    Random,
}

impl Packet {
    /// As `-l` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "timestamp",
            Self::Offset => "offset",
            Self::Incompressible => "incompressible",
            Self::Random => "random",
        }
    }
}

/// Whose data it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Its kind.
    pub packet: Packet,
    /// Tells runs apart.
    pub signature: u32,
    /// The rank that writes it.
    pub rank: u32,
}

/// The first word that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong {
    /// Where it is in the transfer.
    pub at: usize,
    /// What should be there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

/// A step of a generator that never repeats for 2^64 steps (splitmix64).
pub fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Pattern {
    /// The mark of a transfer's `k`th 4 KiB, counted from 1.
    fn mark(&self, offset: u64, k: u64) -> u64 {
        (offset.wrapping_mul(k) & u64::from(u32::MAX)) | (u64::from(self.rank) << 32)
    }

    fn seed(&self, offset: u64) -> u64 {
        let place = if self.packet == Packet::Random { offset } else { 0 };
        (u64::from(self.rank) << 32 | u64::from(self.signature)) ^ place.rotate_left(17)
    }

    /// The word at a place, before marks.
    #[inline]
    fn word(&self, i: usize, state: &mut u64) -> u64 {
        match self.packet {
            Packet::Timestamp | Packet::Offset => self.plain(i),
            Packet::Incompressible | Packet::Random => mix(state),
        }
    }

    /// Fills a buffer for the first time.
    pub fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.seed(0);
        for (i, word) in bytes.chunks_mut(8).enumerate() {
            put(word, self.word(i, &mut state));
        }
        self.place(bytes, 0);
    }

    #[inline]
    fn plain(&self, i: usize) -> u64 {
        u64::from(self.rank) << 32 | (u64::from(self.signature)).wrapping_add(i as u64)
    }

    /// Changes a filled buffer into that of another offset. Of `timestamp` there is nothing to
    /// change.
    #[inline]
    pub fn place(&self, bytes: &mut [u8], offset: u64) {
        match self.packet {
            Packet::Timestamp => {}
            Packet::Offset | Packet::Incompressible => {
                for (k, block) in (1..).zip(bytes.chunks_mut(MARK_WORDS * 8)) {
                    put(block, self.mark(offset, k));
                }
            }
            Packet::Random => {
                let mut state = self.seed(offset);
                for word in bytes.chunks_mut(8) {
                    put(word, mix(&mut state));
                }
            }
        }
    }

    /// Makes sure that a buffer does not hold the right data already.
    pub fn spoil(bytes: &mut [u8]) {
        for block in bytes.chunks_mut(MARK_WORDS * 8) {
            if let Some(byte) = block.first_mut() {
                *byte = !*byte;
            }
        }
    }

    /// Looks whether a buffer holds what this pattern writes at an offset.
    pub fn check(&self, bytes: &[u8], offset: u64) -> Result<(), Wrong> {
        let mut state = self.seed(offset);
        let marks = !matches!(self.packet, Packet::Timestamp | Packet::Random);
        for (i, word) in bytes.chunks(8).enumerate() {
            let expected = self.word(i, &mut state);
            let marked = marks && i.is_multiple_of(MARK_WORDS);
            let expected =
                if marked { self.mark(offset, (i / MARK_WORDS) as u64 + 1) } else { expected };
            let found = word.try_into().map(u64::from_le_bytes);
            // The last word may be cut.
            let (found, expected) = found.map_or_else(
                |_| (cut(word, word.len()), cut(&expected.to_le_bytes(), word.len())),
                |found| (found, expected),
            );
            if found != expected {
                return Err(Wrong { at: i * 8, expected, found });
            }
        }
        Ok(())
    }
}

/// Writes a word, or as much of it as there is room for.
#[inline]
fn put(into: &mut [u8], word: u64) {
    match into.first_chunk_mut() {
        Some(whole) => *whole = word.to_le_bytes(),
        None => into.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from),
    }
}

/// The first bytes of a word as a number.
fn cut(bytes: &[u8], len: usize) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).take(len).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}

impl Wrong {
    /// The rank that wrote what is there, if a rank of so many did by this kind of data.
    pub fn writer(&self, packet: Packet, ranks: usize) -> Option<u64> {
        let rank = self.found >> 32;
        let tells = matches!(packet, Packet::Timestamp | Packet::Offset) && self.found != 0;
        (tells && rank < ranks as u64).then_some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Packet; 4] =
        [Packet::Timestamp, Packet::Offset, Packet::Incompressible, Packet::Random];

    fn written(packet: Packet, rank: u32, offset: u64, len: usize) -> Vec<u8> {
        let pattern = Pattern { packet, signature: 99, rank };
        let mut bytes = vec![0; len];
        pattern.fill(&mut bytes);
        pattern.place(&mut bytes, offset);
        bytes
    }

    #[test]
    fn every_kind_knows_its_own_and_no_other_rank() {
        for packet in ALL {
            for len in [8, 4096, 47008, 65536, 13] {
                let bytes = written(packet, 3, 1 << 20, len);
                let mine = Pattern { packet, signature: 99, rank: 3 };
                assert_eq!(mine.check(&bytes, 1 << 20), Ok(()), "{packet:?} {len}");
                let other = Pattern { rank: 2, ..mine };
                assert!(other.check(&bytes, 1 << 20).is_err(), "{packet:?} {len}");
                // A mark alone does not tell runs apart.
                let told = matches!(packet, Packet::Timestamp | Packet::Random) || len > 8;
                let later = Pattern { signature: 100, ..mine };
                assert_eq!(later.check(&bytes, 1 << 20).is_err(), told, "{packet:?} {len}");
            }
        }
    }

    #[test]
    fn a_single_changed_bit_is_found_where_it_is() {
        for packet in ALL {
            let pattern = Pattern { packet, signature: 99, rank: 1 };
            let good = written(packet, 1, 8192, 8196);
            for at in [0, 7, 8, 4095, 4096, 8191, 8195] {
                let mut bytes = good.clone();
                bytes[at] ^= 1;
                let wrong = pattern.check(&bytes, 8192).unwrap_err();
                assert!(wrong.at <= at && at < wrong.at + 8, "{packet:?} {at}: {wrong:?}");
            }
            let mut spoilt = good.clone();
            Pattern::spoil(&mut spoilt);
            assert_eq!(pattern.check(&spoilt, 8192).unwrap_err().at, 0);
        }
    }

    #[test]
    fn the_beginning_of_data_is_right_by_itself() {
        for packet in ALL {
            let bytes = written(packet, 2, 4096, 9000);
            let pattern = Pattern { packet, signature: 99, rank: 2 };
            for len in [1, 7, 8, 13, 3901, 4096, 4100, 8999] {
                assert_eq!(pattern.check(&bytes[..len], 4096), Ok(()), "{packet:?} {len}");
            }
        }
    }

    #[test]
    fn data_of_another_place_is_found_where_the_kind_tells_places() {
        for packet in ALL {
            let bytes = written(packet, 1, 4096, 4096);
            let pattern = Pattern { packet, signature: 99, rank: 1 };
            let found = pattern.check(&bytes, 8192).is_err();
            assert_eq!(found, packet != Packet::Timestamp, "{packet:?}");
        }
    }

    #[test]
    fn wrong_data_names_its_writer() {
        let bytes = written(Packet::Timestamp, 5, 0, 64);
        let pattern = Pattern { packet: Packet::Timestamp, signature: 99, rank: 1 };
        let wrong = pattern.check(&bytes, 0).unwrap_err();
        assert_eq!(wrong.writer(Packet::Timestamp, 8), Some(5));
        assert_eq!(wrong.writer(Packet::Timestamp, 4), None, "there is no such rank");
        assert_eq!(wrong.writer(Packet::Random, 8), None);
        // As IOR writes it: rank above, signature and index below.
        assert_eq!(wrong.found, 5 << 32 | 99);
    }
}
