//! What names there may be: those of one thread's folders at some moment between the last one
//! that it was promised and the last one that it began.
//!
//! Inodes are told apart by their numbers, which a restart does not change; a folder that is
//! renamed takes what is in it along without another entry changing.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

/// An inode number as programs see it.
pub(super) type Ino = u64;
/// An entry's place: its folder and its name.
pub(super) type Place = (Ino, String);

/// An inode made by a call that did not return.
const UNKNOWN: Ino = 0;

/// An entry that an operation changed, as it was before.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    place: Place,
    before: Option<Ino>,
}

/// Names that change with the operations of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// Now.
    entries: BTreeMap<Place, Ino>,
    /// Everything begun since the last restart, each operation whole.
    history: Vec<Vec<Edit>>,
    /// That many operations must have survived.
    promised: usize,
    /// The last operation that gave an inode a name or took one away.
    named: BTreeMap<Ino, usize>,
    /// The last operation that changed a folder's entries.
    changed: BTreeMap<Ino, usize>,
}

impl Names {
    pub(super) fn found(entries: BTreeMap<Place, Ino>) -> Names {
        Names { entries, ..Names::default() }
    }

    pub(super) fn entries(&self) -> &BTreeMap<Place, Ino> {
        &self.entries
    }

    /// The names of an inode.
    pub(super) fn places(&self, ino: Ino) -> impl Iterator<Item = &Place> {
        self.entries.iter().filter(move |entry| *entry.1 == ino).map(|entry| entry.0)
    }

    pub(super) fn is_empty_dir(&self, ino: Ino) -> bool {
        self.entries.range((ino, String::new())..).next().is_none_or(|entry| entry.0.0 != ino)
    }

    /// One operation: names that it sets or removes. It may fail and yet have happened.
    pub(super) fn apply(&mut self, sets: &[(Place, Option<Ino>)]) {
        let number = self.history.len() + 1;
        let mut edits = Vec::new();
        for (place, after) in sets {
            let before = match after {
                Some(ino) => self.entries.insert(place.clone(), *ino),
                None => self.entries.remove(place),
            };
            self.changed.insert(place.0, number);
            for ino in [before, *after].into_iter().flatten() {
                self.named.insert(ino, number);
            }
            edits.push(Edit { place: place.clone(), before });
        }
        self.history.push(edits);
    }

    /// An operation that makes an inode and did not return.
    pub(super) fn apply_unknown(&mut self, place: Place) {
        self.apply(&[(place, Some(UNKNOWN))]);
    }

    /// A file was synced: its names are safe, and those above them.
    pub(super) fn sync_inode(&mut self, ino: Ino) {
        let mut seen = BTreeSet::new();
        let mut todo = vec![ino];
        while let Some(ino) = todo.pop() {
            if seen.insert(ino) {
                self.promised = self.promised.max(self.named.get(&ino).copied().unwrap_or(0));
                todo.extend(self.places(ino).map(|place| place.0));
            }
        }
    }

    /// A folder was synced: its entries are safe, its names, and those above them.
    pub(super) fn sync_dir(&mut self, ino: Ino) {
        self.promised = self.promised.max(self.changed.get(&ino).copied().unwrap_or(0));
        self.sync_inode(ino);
    }

    /// Everything is safe.
    pub(super) fn sync_all(&mut self) {
        self.promised = self.history.len();
    }

    /// Finds the moment that was left. Returns how many operations after it are lost.
    pub(super) fn check(&self, found: &BTreeMap<Place, Ino>) -> Result<usize> {
        // From now on back; `differing` counts places that are not as found.
        let mut state: BTreeMap<&Place, Ino> =
            self.entries.iter().map(|(place, ino)| (place, *ino)).collect();
        let same = |place: &Place, is: Option<Ino>| match (found.get(place), is) {
            (Some(_), Some(UNKNOWN)) => true,
            (found, is) => found.copied() == is,
        };
        let mut differing: BTreeSet<&Place> = self
            .entries
            .keys()
            .chain(found.keys())
            .filter(|place| !same(place, self.entries.get(*place).copied()))
            .collect();
        let mut closest = (usize::MAX, String::new());
        for (at, edits) in self.history.iter().enumerate().rev().map(|(at, e)| (at + 1, e)) {
            if differing.is_empty() {
                return Ok(self.history.len() - at);
            }
            if differing.len() < closest.0 {
                closest = (differing.len(), describe(at, &differing, &state, found));
            }
            if at <= self.promised {
                bail!(
                    "no moment fits: {} operations, {} of them promised; {}",
                    self.history.len(),
                    self.promised,
                    closest.1
                );
            }
            for edit in edits.iter().rev() {
                match edit.before {
                    Some(ino) => drop(state.insert(&edit.place, ino)),
                    None => drop(state.remove(&edit.place)),
                }
                if same(&edit.place, edit.before) {
                    differing.remove(&edit.place);
                } else {
                    differing.insert(&edit.place);
                }
            }
        }
        if differing.is_empty() {
            return Ok(self.history.len());
        }
        bail!("no moment fits; at first {}", describe(0, &differing, &state, found))
    }
}

fn describe(
    at: usize,
    differing: &BTreeSet<&Place>,
    state: &BTreeMap<&Place, Ino>,
    found: &BTreeMap<Place, Ino>,
) -> String {
    let some: Vec<String> = differing
        .iter()
        .take(8)
        .map(|place| format!("{place:?} is {:?}, was {:?}", found.get(*place), state.get(*place)))
        .collect();
    format!("after operation {at} {} differ: {}", differing.len(), some.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        (1, name.to_owned())
    }

    fn three() -> Names {
        let mut names = Names::default();
        names.apply(&[(place("a"), Some(10))]);
        names.apply(&[(place("a"), None), (place("b"), Some(10))]);
        names.apply(&[(place("c"), Some(11))]);
        names
    }

    fn found(all: &[(&str, Ino)]) -> BTreeMap<Place, Ino> {
        all.iter().map(|(name, ino)| (place(name), *ino)).collect()
    }

    #[test]
    fn every_moment_is_good_and_no_mixture() {
        let names = three();
        assert_eq!(names.check(&found(&[("b", 10), ("c", 11)])).unwrap(), 0);
        assert_eq!(names.check(&found(&[("b", 10)])).unwrap(), 1);
        assert_eq!(names.check(&found(&[("a", 10)])).unwrap(), 2);
        assert_eq!(names.check(&found(&[])).unwrap(), 3);
        assert!(names.check(&found(&[("a", 10), ("b", 10)])).is_err(), "half a rename");
        assert!(names.check(&found(&[("c", 11)])).is_err(), "a later one without an earlier");
        assert!(names.check(&found(&[("b", 12)])).is_err(), "another file");
    }

    #[test]
    fn what_was_promised_must_be_there() {
        let mut names = three();
        names.sync_inode(10);
        assert!(names.check(&found(&[("a", 10)])).is_err());
        assert_eq!(names.check(&found(&[("b", 10)])).unwrap(), 1);
        names.sync_dir(1);
        assert!(names.check(&found(&[("b", 10)])).is_err());
        assert_eq!(names.check(&found(&[("b", 10), ("c", 11)])).unwrap(), 0);
    }

    #[test]
    fn an_unknown_inode_is_there_or_not() {
        let mut names = three();
        names.sync_all();
        names.apply_unknown(place("d"));
        assert_eq!(names.check(&found(&[("b", 10), ("c", 11)])).unwrap(), 1);
        assert_eq!(names.check(&found(&[("b", 10), ("c", 11), ("d", 99)])).unwrap(), 0);
        assert!(names.check(&found(&[("b", 10), ("d", 99)])).is_err());
    }
}
