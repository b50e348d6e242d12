//! The names of a directory that this client knows all of: it has made the directory, or has read it
//! from one end to the other.
//!
//! As long as it holds the directory's names locked, only this client can have added any since: a
//! name that it has neither read nor asked for is not there, and a create there needs no lookup
//! before it. What was removed since counts as perhaps there; so do names of the same hash.
//!
//! A directory of others is read after some names that were looked up in vain, by one request that
//! nobody waits for, if that tells all its names. What this client adds meanwhile counts too. What
//! it had asked for before must have been answered, or the listing may lack it.

use std::hash::Hasher;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sateen_types::{FastHasher, FastMap};

/// Most names of one directory, some 8 bytes each; what has more is looked up.
const NAMES_MAX: usize = 1 << 18;
/// Most names of all directories.
const ALL_NAMES_MAX: usize = 1 << 21;

/// Names that are looked up in vain before a directory is read; more for one that was read before
/// and is used by others, too, by its names.
const MISSES: u32 = 2;
const NAMES_PER_MISS: usize = 64;
/// At most so many, for a directory with more names than a request tells.
const MISSES_MAX: u32 = 1 << 20;

/// Names that may be there.
#[derive(Debug)]
struct Names {
    hashes: FastMap<u32, ()>,
    /// Those of all directories.
    all: Arc<AtomicUsize>,
}

fn hash(name: &[u8]) -> u32 {
    let mut hasher = FastHasher::default();
    hasher.write(name);
    hasher.finish() as u32
}

impl Names {
    /// Of a directory that is empty. `all` counts the names of all directories.
    fn new(all: Arc<AtomicUsize>) -> Names {
        Names { hashes: FastMap::default(), all }
    }

    /// A name is about to be asked for; false if that would be too many to remember.
    #[must_use]
    fn add(&mut self, name: &[u8]) -> bool {
        if self.hashes.insert(hash(name), ()).is_some() {
            return true;
        }
        let all = self.all.fetch_add(1, Ordering::Relaxed);
        self.hashes.len() <= NAMES_MAX && all < ALL_NAMES_MAX
    }

    /// Whether a name may be there.
    fn may_have(&self, name: &[u8]) -> bool {
        self.hashes.contains_key(&hash(name))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.all.fetch_sub(self.hashes.len(), Ordering::Relaxed);
    }
}

/// What is known of a directory's names. Its owner sees to the lock.
#[derive(Debug)]
pub(crate) struct KnownNames {
    known: Option<Names>,
    /// What was asked for since the directory is being read.
    learning: Option<Names>,
    /// Calls under way that may add a name, and whether there has been any.
    adding: u32,
    has_been_added_to: bool,
    /// Names that were looked up in vain under this lock, and how many it takes.
    misses: u32,
    misses_to_learn: u32,
}

impl Default for KnownNames {
    fn default() -> KnownNames {
        KnownNames {
            known: None,
            learning: None,
            adding: 0,
            has_been_added_to: false,
            misses: 0,
            misses_to_learn: MISSES,
        }
    }
}

impl KnownNames {
    /// There were none when the directory was made. `all` counts the names of all directories.
    pub(crate) fn are_none(&mut self, all: &Arc<AtomicUsize>) {
        // A program that found it before its maker had the answer may have gone on in it.
        if !self.has_been_added_to {
            self.known = Some(Names::new(all.clone()));
        }
    }

    /// Whether a name may be there, as far as this tells.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        self.known.as_ref().is_none_or(|names| names.may_have(name))
    }

    /// A call begins that may add a name.
    pub(crate) fn adds(&mut self, name: &[u8]) {
        self.adding += 1;
        self.has_been_added_to = true;
        for names in [&mut self.known, &mut self.learning] {
            if names.as_mut().is_some_and(|names| !names.add(name)) {
                *names = None;
            }
        }
    }

    /// It has ended, or nobody waits for its end any more.
    pub(crate) fn has_added(&mut self) {
        self.adding -= 1;
    }

    /// A name is not there, as the MDT has said. Whether the directory is to be read now.
    pub(crate) fn missed(&mut self, all: &Arc<AtomicUsize>) -> bool {
        self.misses = self.misses.saturating_add(1);
        let enough = self.misses >= self.misses_to_learn;
        if !enough || self.adding > 0 || self.known.is_some() || self.learning.is_some() {
            return false;
        }
        self.learning = Some(Names::new(all.clone()));
        true
    }

    /// The directory was not read, or not to its end.
    pub(crate) fn are_not_learned(&mut self) {
        self.learning = None;
        self.misses = 0;
        self.misses_to_learn = self.misses_to_learn.saturating_mul(4).min(MISSES_MAX);
    }

    /// It was read, under a lock that has been there since it was asked for.
    pub(crate) fn are<'a>(&mut self, names: impl ExactSizeIterator<Item = &'a [u8]>) {
        let more = u32::try_from(names.len() / NAMES_PER_MISS).unwrap_or(MISSES_MAX);
        self.misses_to_learn = MISSES.saturating_add(more).min(MISSES_MAX);
        let Some(mut known) = mem::take(&mut self.learning) else { return };
        let mut names = names;
        self.known = names.all(|name| known.add(name)).then_some(known);
    }

    /// Whether nothing is known, and nothing to be forgotten with the lock.
    pub(crate) fn is_unknown(&self) -> bool {
        self.known.is_none() && self.learning.is_none() && self.misses == 0
    }

    /// Whether it is as if the directory had never been met.
    pub(crate) fn is_new(&self) -> bool {
        self.is_unknown()
            && self.adding == 0
            && !self.has_been_added_to
            && self.misses_to_learn == MISSES
    }

    /// Others may add some from now on.
    pub(crate) fn are_unknown(&mut self) {
        (self.known, self.learning, self.misses) = (None, None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_added_is_not_there() {
        let all = Arc::new(AtomicUsize::new(0));
        let mut names = Names::new(all.clone());
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
        let mut names = Names::new(all.clone());
        assert!(!names.add(b"a"));
        drop(names);
        assert_eq!(all.load(Ordering::Relaxed), ALL_NAMES_MAX);
    }

    #[test]
    fn hashes_of_names_are_spread() {
        let mut names = Names::new(Arc::default());
        for n in 0..100_000 {
            assert!(names.add(format!("file.{n:08}").as_bytes()));
        }
        // Of 10 000 others 0.2 should meet one of them by chance.
        let met = (0..10_000).filter(|n| names.may_have(format!("other{n}").as_bytes())).count();
        assert!(met < 100, "{met}");
    }

    fn learned(names: &mut KnownNames, there: &[&[u8]]) {
        names.are(there.iter().copied());
    }

    #[test]
    fn a_directory_is_learned_after_some_misses_and_forgotten_with_its_lock() {
        let all = Arc::new(AtomicUsize::new(0));
        let mut names = KnownNames::default();
        assert!(names.may_have(b"a"));
        assert!(!names.missed(&all) && names.missed(&all) && !names.missed(&all));
        names.adds(b"added meanwhile");
        assert!(names.may_have(b"a"), "nothing is known yet");
        learned(&mut names, &[b"read"]);
        assert!(names.may_have(b"read") && names.may_have(b"added meanwhile"));
        assert!(!names.may_have(b"a"));
        names.adds(b"a");
        assert!(names.may_have(b"a"));
        names.are_unknown();
        assert!(names.may_have(b"b"));
        assert_eq!(all.load(Ordering::Relaxed), 0);
        assert!(!names.missed(&all) && !names.missed(&all), "two calls are under way");
        names.has_added();
        names.has_added();
        assert!(names.missed(&all));
    }

    #[test]
    fn a_new_directory_has_what_was_added_before_its_maker_knew() {
        let all = Arc::default();
        let mut names = KnownNames::default();
        names.adds(b"a");
        names.has_added();
        names.are_none(&all);
        assert!(names.may_have(b"a"));
        let mut names = KnownNames::default();
        names.are_none(&all);
        assert!(!names.may_have(b"a"));
    }

    #[test]
    fn what_was_read_under_another_lock_is_not_believed() {
        let all = Arc::default();
        let mut names = KnownNames::default();
        assert!(!names.missed(&all) && names.missed(&all));
        names.are_unknown();
        learned(&mut names, &[]);
        assert!(names.may_have(b"a"));
    }

    #[test]
    fn what_cannot_be_read_at_once_is_seldom_tried() {
        let all = Arc::default();
        let mut names = KnownNames::default();
        let tries = (0..1000).filter(|_| {
            names.missed(&all) && {
                names.are_not_learned();
                true
            }
        });
        assert!((3..10).contains(&tries.count()));
    }
}
