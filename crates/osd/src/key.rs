//! Keys of the metadata index: short, inline, sorted as bytes.

use core::fmt;

/// Longest key in bytes. Names never stand in keys (their hashes do), so this suffices.
pub const KEY_MAX: usize = 30;

/// An index key of 1 to [`KEY_MAX`] bytes; the first byte says what kind of record it names.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; KEY_MAX],
    len: u8,
}

impl Key {
    /// An empty key, which sorts before every other.
    pub const EMPTY: Key = Key { bytes: [0; KEY_MAX], len: 0 };

    /// A key of one tag byte, to be extended by [`Key::with`].
    pub const fn tag(tag: u8) -> Key {
        let mut bytes = [0; KEY_MAX];
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
        let Some(room) = self.bytes.get_mut(start..start + more.len()) else {
            panic!("key of {} bytes", start + more.len());
        };
        room.copy_from_slice(more);
        self.len += more.len() as u8;
        self
    }

    /// From bytes that came from a journal or an index.
    pub fn from_bytes(bytes: &[u8]) -> Option<Key> {
        let mut key = Key::EMPTY;
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        key.len = u8::try_from(bytes.len()).ok()?;
        Some(key)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether this key starts with `prefix`.
    pub fn starts_with(&self, prefix: &Key) -> bool {
        self.as_bytes().starts_with(prefix.as_bytes())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
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
