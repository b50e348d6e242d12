//! Keys of the metadata index: short, inline, sorted as bytes.

use core::fmt;

/// Longest key in bytes. Names never stand in keys (their hashes do), so this suffices.
pub const KEY_MAX: usize = 30;

/// The bytes of a key with the zeros behind them as big-endian words, the last byte its
/// length: in the order of keys.
pub(crate) type Words = [u128; 2];

/// An index key of 1 to [`KEY_MAX`] bytes; the first byte says what kind of record it names.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Key {
    bytes: [u8; KEY_MAX + 1],
    len: u8,
}

const _: () = assert!(size_of::<Key>() == size_of::<Words>());

impl Key {
    /// An empty key, which sorts before every other.
    pub const EMPTY: Key = Key { bytes: [0; KEY_MAX + 1], len: 0 };

    /// A key of one tag byte, to be extended by [`Key::with`].
    pub const fn tag(tag: u8) -> Key {
        let mut bytes = [0; KEY_MAX + 1];
        bytes[0] = tag;
        Key { bytes, len: 1 }
    }

    /// This key with more bytes behind it.
    ///
    /// # Panics
    /// If the key would become too long, which only a mistake in a record's definition can
    /// bring about.
    #[must_use]
    #[expect(clippy::panic, reason = "a key format that does not fit is a programming error")]
    pub fn with(mut self, more: &[u8]) -> Key {
        let start = usize::from(self.len);
        let room = self.bytes.get_mut(..KEY_MAX).and_then(|all| all.get_mut(start..));
        let Some(room) = room.and_then(|room| room.get_mut(..more.len())) else {
            panic!("key of {} bytes", start + more.len());
        };
        room.copy_from_slice(more);
        self.len += more.len() as u8;
        self
    }

    /// From bytes that came from a journal or an index.
    pub fn from_bytes(bytes: &[u8]) -> Option<Key> {
        let mut key = Key::EMPTY;
        key.bytes.get_mut(..KEY_MAX)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        key.len = u8::try_from(bytes.len()).ok()?;
        Some(key)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// This key as words, which compare as it does.
    pub(crate) fn words(&self) -> Words {
        let first = self.bytes.first_chunk::<16>().copied().unwrap_or_default();
        let rest = self.bytes.last_chunk::<15>().copied().unwrap_or_default();
        // The last word is the rest and the length.
        let mut last = [0; 16];
        if let Some((len, bytes)) = last.split_last_mut() {
            bytes.copy_from_slice(&rest);
            *len = self.len;
        }
        [u128::from_be_bytes(first), u128::from_be_bytes(last)]
    }

    /// The key that these are the words of.
    pub(crate) fn from_words(words: Words) -> Key {
        let mut key = Key::EMPTY;
        if let [bytes @ .., len] = words.map(u128::to_be_bytes).as_flattened() {
            key.bytes.copy_from_slice(bytes);
            key.len = *len;
        }
        key
    }

    /// Whether this key starts with `prefix`.
    pub fn starts_with(&self, prefix: &Key) -> bool {
        self.as_bytes().starts_with(prefix.as_bytes())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.len == other.len && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    /// As bytes. What lies behind the end is zero, so four words decide; every search in a
    /// memtable comes through here.
    fn cmp(&self, other: &Key) -> core::cmp::Ordering {
        self.words().cmp(&other.words())
    }
}

impl core::hash::Hash for Key {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_bytes() {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for len in [0, 1, 7, 8, 9, 15, 16, 17, 22, 23, 29, 30] {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                all.push(vec![byte; len]);
                for at in 0..len {
                    let mut other = vec![byte; len];
                    other[at] ^= 0x81;
                    all.push(other);
                }
            }
        }
        let key = |bytes: &Vec<u8>| Key::from_bytes(bytes).unwrap();
        for one in &all {
            for two in &all {
                assert_eq!(key(one).cmp(&key(two)), one.cmp(two), "{one:?} {two:?}");
                assert_eq!(key(one) == key(two), one == two);
                assert_eq!(Key::from_words(key(one).words()), key(one));
            }
        }
    }
}
