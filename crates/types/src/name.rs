//! A file name: opaque bytes, kept inline so that naming a file allocates nothing.

use core::fmt;

use crate::{Errno, Result};

/// Longest name in bytes, as on every Linux file system.
pub const NAME_MAX: usize = 255;

/// One component of a path: 1 to 255 bytes without `/` and NUL, not `.` or `..`.
#[derive(Clone)]
pub struct Name {
    len: u8,
    bytes: [u8; NAME_MAX],
}

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes; `EINVAL` for an empty name, `.`, `..`, or a name with
    /// a slash or a NUL.
    pub fn new(name: &[u8]) -> Result<Name> {
        let len = u8::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG)?;
        if name.is_empty() || name == b"." || name == b".." {
            return Err(Errno::EINVAL);
        }
        if name.iter().any(|&b| b == 0 || b == b'/') {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; NAME_MAX];
        if let Some(to) = bytes.get_mut(..name.len()) {
            to.copy_from_slice(name);
        }
        Ok(Name { len, bytes })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl core::hash::Hash for Name {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
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
        assert_eq!(Name::new(&[b'x'; 255]).unwrap().as_bytes().len(), 255);
        assert_eq!(Name::new(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(Errno::EINVAL));
        }
    }
}
