//! A file name: opaque bytes, the usual ones inline, so that naming a file allocates nothing.

use core::fmt;

use smallvec::SmallVec;

use crate::{Errno, Result};

/// Longest name in bytes, as on every Linux file system.
pub const NAME_MAX: usize = 255;
/// Names of so many bytes are kept inline. Messages carry names, and are moved from queue to
/// queue: room for the longest in each would make every move of every message dear.
const INLINE: usize = 40;

/// One component of a path: 1 to 255 bytes without `/` and NUL, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(SmallVec<[u8; INLINE]>);

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes; `EINVAL` for an empty name, `.`, `..`, or a name with
    /// a slash or a NUL.
    pub fn new(name: &[u8]) -> Result<Name> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if name.is_empty() || name == b"." || name == b".." {
            return Err(Errno::EINVAL);
        }
        if name.iter().any(|&b| b == 0 || b == b'/') {
            return Err(Errno::EINVAL);
        }
        Ok(Name(SmallVec::from_slice(name)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(Name::new(b"a b").unwrap().as_bytes(), b"a b");
        for len in [1, INLINE, INLINE + 1, 255] {
            assert_eq!(Name::new(&vec![b'x'; len]).unwrap().as_bytes().len(), len);
        }
        assert_eq!(Name::new(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(Errno::EINVAL));
        }
    }
}
