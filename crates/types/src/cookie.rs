//! Directory cookies: where a reader of a directory stands.
//!
//! An entry's place is a 48-bit keyed hash of its name and a 15-bit collision index that is
//! stored with the entry. It depends on nothing else, so a cookie stays right while others
//! create and unlink, and will survive the splitting of a directory.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Entries of one directory that may share a hash: indices 0 to this value.
pub const COLLISION_MAX: u16 = (1 << 15) - 1;

/// Cookies below this belong to `.` and `..`.
const RESERVED: u64 = 2;

/// The 48-bit hash of a name in a file system whose key is `key`. Never 0, so that no entry
/// meets the cookies of `.` and `..`.
pub fn name_hash(key: u64, name: &[u8]) -> u64 {
    let hash = xxh3_64_with_seed(name, key) >> 16;
    if hash == 0 { 1 } else { hash }
}

/// The position of an entry: 48 bits of hash and 15 of collision index, 63 bits in all, so
/// that it survives programs that treat `d_off` as signed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DirCookie(u64);

impl DirCookie {
    /// Before the first entry.
    pub const START: DirCookie = DirCookie(0);
    /// The cookie of `.`: what comes after it is `..`.
    pub const DOT: DirCookie = DirCookie(1);
    /// The cookie of `..`.
    pub const DOT_DOT: DirCookie = DirCookie(RESERVED);

    /// The cookie of an entry.
    pub const fn new(hash: u64, collision: u16) -> DirCookie {
        DirCookie((hash & 0xffff_ffff_ffff) << 15 | (collision & COLLISION_MAX) as u64)
    }

    /// From a value that a program or a peer handed in; any 63-bit value is a position.
    pub const fn from_raw(raw: u64) -> DirCookie {
        DirCookie(raw & i64::MAX as u64)
    }

    /// The number.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The hash part.
    pub const fn hash(self) -> u64 {
        self.0 >> 15
    }

    /// The collision index.
    pub const fn collision(self) -> u16 {
        (self.0 & COLLISION_MAX as u64) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_keep_their_parts_and_stay_positive() {
        let hash = name_hash(7, b"hello");
        assert!(hash > 0 && hash < 1 << 48);
        let cookie = DirCookie::new(hash, 5);
        assert_eq!((cookie.hash(), cookie.collision()), (hash, 5));
        assert!(i64::try_from(DirCookie::new((1 << 48) - 1, COLLISION_MAX).raw()).is_ok());
        assert!(DirCookie::new(1, 0) > DirCookie::DOT_DOT);
        assert_ne!(name_hash(7, b"hello"), name_hash(8, b"hello"));
    }
}
