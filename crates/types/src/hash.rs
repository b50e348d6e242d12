//! A fast hasher with a fixed start, for maps keyed by FIDs and index keys.
//!
//! Maps with it are deterministic, yet nobody may iterate them: the order means nothing.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use crate::Fid;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A multiplicative hash. The keys it serves are numbers the servers gave out themselves, so
/// it need not withstand chosen ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastHasher(u64);

impl FastHasher {
    const fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            self.mix(u64::from_le_bytes(last));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        // The map takes both ends of the word; multiplication only fills the upper one.
        self.0 ^ self.0 >> 32
    }
}

/// A hash map with [`FastHasher`]; never to be iterated.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A map by file; never to be iterated.
pub type FidMap<V> = FastMap<Fid, V>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seq;

    #[test]
    fn neighbouring_fids_spread() {
        let mut low = [0u32; 64];
        let mut high = [0u32; 64];
        for oid in 1..=6400 {
            let fid = Fid::new(Seq(0x2_0000_0400), oid);
            let hash = core::hash::BuildHasher::hash_one(
                &BuildHasherDefault::<FastHasher>::default(),
                fid,
            );
            low[(hash & 63) as usize] += 1;
            high[(hash >> 58) as usize] += 1;
        }
        assert!(low.iter().chain(&high).all(|&n| n > 40 && n < 200), "{low:?} {high:?}");
    }
}
