//! Which folders hold names that appeared or went since they were last synced.
//!
//! A thread that changes names holds a [`Changing`] meanwhile. A sync takes the marks,
//! syncs the folders, and removes the marks, except those under which something changed
//! since, or was changing: the name may have come after the folder was written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sateen_types::Seq;

use super::names::{Group, sequence_path};

/// A folder of the store. Sorted from below to above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Holds objects.
    Group(Group),
    /// Holds groups.
    Sequence(Seq),
    /// Holds sequences.
    Root,
}

impl Place {
    pub(super) fn path(self, folder: &Path) -> PathBuf {
        match self {
            Self::Group(group) => group.path(folder),
            Self::Sequence(seq) => sequence_path(folder, seq),
            Self::Root => folder.to_path_buf(),
        }
    }
}

#[derive(Debug, Default)]
struct Mark {
    changing: u32,
    changes: u64,
}

/// A mark as a sync found it; `None` if something was changing.
pub(super) type Seen = (Place, Option<u64>);

/// The marks. Shared by all threads.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    marks: Mutex<BTreeMap<Place, Mark>>,
}

/// Names in a folder are changing until this is dropped.
#[derive(Debug)]
pub(super) struct Changing<'a> {
    unsynced: &'a Unsynced,
    place: Place,
}

impl Unsynced {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, place: Place) -> Changing<'_> {
        self.lock().entry(place).or_default().changing += 1;
        Changing { unsynced: self, place }
    }

    /// The marks of these groups and of the folders above them, from below to above.
    pub(super) fn of(&self, groups: impl Iterator<Item = Group>) -> Vec<Seen> {
        let mut places = BTreeSet::from([Place::Root]);
        for group in groups {
            places.extend([Place::Group(group), Place::Sequence(group.seq)]);
        }
        let marks = self.lock();
        let seen = |place| {
            let mark: &Mark = marks.get(&place)?;
            Some((place, (mark.changing == 0).then_some(mark.changes)))
        };
        places.into_iter().filter_map(seen).collect()
    }

    /// The folders of these marks are synced.
    pub(super) fn synced(&self, seen: &[Seen]) {
        let mut marks = self.lock();
        for (place, changes) in seen {
            let unchanged = marks
                .get(place)
                .is_some_and(|mark| mark.changing == 0 && Some(mark.changes) == *changes);
            if unchanged {
                marks.remove(place);
            }
        }
    }
}

impl Changing<'_> {
    /// No name came or went.
    pub(super) fn undo(self) {
        let mut marks = self.unsynced.lock();
        if let Some(mark) = marks.get_mut(&self.place) {
            mark.changing -= 1;
            if mark.changing == 0 && mark.changes == 0 {
                marks.remove(&self.place);
            }
        }
        drop(marks);
        core::mem::forget(self);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.unsynced.lock().get_mut(&self.place) {
            mark.changing -= 1;
            mark.changes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::{Fid, ObjectId};

    fn group(oid: u32) -> Group {
        Group::of(ObjectId { fid: Fid::new(Seq(0x2_0000_0400), oid), stripe: 0 })
    }

    #[test]
    fn marks_go_only_if_nothing_changed_meanwhile() {
        let unsynced = Unsynced::default();
        let place = Place::Group(group(1));
        let marks = || unsynced.of([group(1)].into_iter());
        drop(unsynced.change(place));
        let seen = marks();
        assert_eq!(seen.len(), 1);

        // A change that ended in between.
        drop(unsynced.change(place));
        unsynced.synced(&seen);
        assert_eq!(marks().len(), 1);

        // A change that began before the sync and goes on.
        let changing = unsynced.change(place);
        let seen = marks();
        unsynced.synced(&seen);
        drop(changing);
        unsynced.synced(&seen);
        assert_eq!(marks().len(), 1);

        unsynced.synced(&marks());
        assert!(marks().is_empty());

        // One that came to nothing leaves none, and takes none.
        unsynced.change(place).undo();
        assert!(marks().is_empty());
        let (changing, other) = (unsynced.change(place), unsynced.change(place));
        changing.undo();
        drop(other);
        unsynced.change(place).undo();
        assert_eq!(marks().len(), 1);
    }

    #[test]
    fn folders_come_from_below_to_above_and_others_are_left_alone() {
        let unsynced = Unsynced::default();
        let seq = group(1).seq;
        for place in
            [Place::Root, Place::Sequence(seq), Place::Group(group(1)), Place::Group(group(5000))]
        {
            drop(unsynced.change(place));
        }
        let places: Vec<Place> =
            unsynced.of([group(1)].into_iter()).into_iter().map(|seen| seen.0).collect();
        assert_eq!(places, [Place::Group(group(1)), Place::Sequence(seq), Place::Root]);
    }
}
