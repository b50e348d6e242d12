//! The names of a directory that this client has made.
//!
//! As long as it holds the directory's names locked, only this client can have added any: a name
//! that it has not asked for is not there, and a create there needs no lookup before it. What was
//! removed since counts as perhaps there; so do names of the same hash.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sateen_types::{FastHasher, FastMap};

/// Most names of one directory, some 8 bytes each; what has more is looked up.
const NAMES_MAX: usize = 1 << 18;
/// Most names of all directories.
const ALL_NAMES_MAX: usize = 1 << 21;

/// Names that this client has asked for.
#[derive(Debug)]
pub(crate) struct OwnNames {
    hashes: FastMap<u32, ()>,
    /// Those of all directories.
    all: Arc<AtomicUsize>,
}

fn hash(name: &[u8]) -> u32 {
    let mut hasher = FastHasher::default();
    hasher.write(name);
    hasher.finish() as u32
}

impl OwnNames {
    /// Of a directory that is empty. `all` counts the names of all directories.
    pub(crate) fn new(all: Arc<AtomicUsize>) -> OwnNames {
        OwnNames { hashes: FastMap::default(), all }
    }

    /// A name is about to be asked for; false if that would be too many to remember.
    #[must_use]
    pub(crate) fn add(&mut self, name: &[u8]) -> bool {
        if self.hashes.insert(hash(name), ()).is_some() {
            return true;
        }
        let all = self.all.fetch_add(1, Ordering::Relaxed);
        self.hashes.len() <= NAMES_MAX && all < ALL_NAMES_MAX
    }

    /// Whether a name may be there.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        self.hashes.contains_key(&hash(name))
    }
}

impl Drop for OwnNames {
    fn drop(&mut self) {
        self.all.fetch_sub(self.hashes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_added_is_not_there() {
        let all = Arc::new(AtomicUsize::new(0));
        let mut names = OwnNames::new(all.clone());
        assert!(!names.may_have(b"a"));
        assert!(names.add(b"a") && names.add(b"a") && names.add(b"b"));
        assert!(names.may_have(b"a") && names.may_have(b"b") && !names.may_have(b"c"));
        assert_eq!(all.load(Ordering::Relaxed), 2);
        drop(names);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn there_is_a_limit_to_all() {
        let all = Arc::new(AtomicUsize::new(ALL_NAMES_MAX));
        let mut names = OwnNames::new(all.clone());
        assert!(!names.add(b"a"));
        drop(names);
        assert_eq!(all.load(Ordering::Relaxed), ALL_NAMES_MAX);
    }

    #[test]
    fn hashes_of_names_are_spread() {
        let mut names = OwnNames::new(Arc::default());
        for n in 0..100_000 {
            assert!(names.add(format!("file.{n:08}").as_bytes()));
        }
        // Of 10 000 others 0.2 should meet one of them by chance.
        let met = (0..10_000).filter(|n| names.may_have(format!("other{n}").as_bytes())).count();
        assert!(met < 100, "{met}");
    }
}
