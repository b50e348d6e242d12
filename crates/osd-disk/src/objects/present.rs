//! Which objects there are in the folders from which many are being removed.
//!
//! A file has a place on more OSTs than it has objects, mostly, and each of them is told to remove
//! what it has of it. To look for what is not there in a large folder costs as much as a removal,
//! and so does the attempt to remove a folder that is not empty. So a folder from which several
//! objects were to be removed is listed once, and what comes and goes is noted from then on.
//!
//! What must hold: what a known folder does not name is not on the disk. So a birth is noted
//! when the file is there, a removal when it is gone, and what is born while a folder is being
//! listed counts as listed. That a name is noted proves nothing: the file may have gone meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard};

use sateen_types::ObjectId;

use super::names::Group;
use crate::lock;

/// Folders that are known or counted.
const FOLDERS_MAX: usize = 32;
/// Removals from a folder before it is listed.
const REMOVALS_MIN: u32 = 8;
/// A folder with more names is not kept in memory, some 0.6 MiB: files with many stripes have as
/// many objects. Nor is it listed again before so many more removals.
const NAMES_MAX: usize = 1 << 14;
const REMOVALS_MANY: u32 = 1 << 13;

/// The folders. Shared by all threads.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// Those used last first.
    folders: Mutex<VecDeque<(Group, Folder)>>,
}

#[derive(Debug)]
enum Folder {
    /// So many more are to be removed from it before it is listed.
    Counted(u32),
    /// It is being listed, and these were born, or went, since that began.
    Listed(BTreeMap<ObjectId, bool>),
    /// These are there at most.
    Known(BTreeSet<ObjectId>),
}

/// What is known of an object that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It is not there.
    Absent,
    /// It may be there.
    Perhaps,
    /// It may be there, and whoever asks is to list its folder: [`Present::listed`].
    List,
}

impl Present {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Group, Folder)>> {
        lock(&self.folders)
    }

    /// An object is to be removed.
    pub(super) fn removes(&self, object: ObjectId) -> Known {
        let group = Group::of(object);
        let mut folders = self.lock();
        match folders.iter().position(|(other, _)| *other == group) {
            Some(at) => {
                if let Some(known) = folders.remove(at) {
                    folders.push_front(known);
                }
            }
            None => {
                // One that is being listed stays until it is.
                let last =
                    folders.iter().rposition(|(_, folder)| !matches!(folder, Folder::Listed(_)));
                if folders.len() >= FOLDERS_MAX && last.and_then(|at| folders.remove(at)).is_none()
                {
                    return Known::Perhaps;
                }
                folders.push_front((group, Folder::Counted(REMOVALS_MIN)));
            }
        }
        let Some((_, folder)) = folders.front_mut() else { return Known::Perhaps };
        match folder {
            Folder::Counted(removals) => {
                *removals = removals.saturating_sub(1);
                if *removals > 0 {
                    return Known::Perhaps;
                }
                *folder = Folder::Listed(BTreeMap::new());
                Known::List
            }
            Folder::Listed(_) => Known::Perhaps,
            Folder::Known(there) if there.contains(&object) => Known::Perhaps,
            Folder::Known(_) => Known::Absent,
        }
    }

    /// Whether an object is known not to be there: most of those that are synced to make their removal
    /// durable.
    pub(super) fn lacks(&self, object: ObjectId) -> bool {
        let group = Group::of(object);
        let folders = self.lock();
        let found = folders.iter().find(|(other, _)| *other == group);
        matches!(found, Some((_, Folder::Known(there))) if !there.contains(&object))
    }

    /// What a folder was found to hold by whoever was to list it.
    pub(super) fn listed(&self, group: Group, found: io::Result<Vec<ObjectId>>) {
        let mut folders = self.lock();
        let Some((_, folder)) = folders.iter_mut().find(|(other, _)| *other == group) else {
            return;
        };
        let Folder::Listed(since) = folder else { return };
        *folder = match found {
            Ok(found) if found.len() <= NAMES_MAX => {
                let mut there: BTreeSet<ObjectId> = found.into_iter().collect();
                for (object, born) in std::mem::take(since) {
                    match born {
                        true => there.insert(object),
                        false => there.remove(&object),
                    };
                }
                Folder::Known(there)
            }
            // Whoever removes from it finds out what is there.
            _ => Folder::Counted(REMOVALS_MANY),
        };
    }

    /// The file of an object has appeared.
    pub(super) fn born(&self, object: ObjectId) {
        let group = Group::of(object);
        let mut folders = self.lock();
        let Some(at) = folders.iter().position(|(other, _)| *other == group) else { return };
        let Some((_, folder)) = folders.get_mut(at) else { return };
        match folder {
            Folder::Counted(_) => {}
            Folder::Listed(since) => drop(since.insert(object, true)),
            Folder::Known(there) if there.len() < NAMES_MAX => drop(there.insert(object)),
            Folder::Known(_) => *folder = Folder::Counted(REMOVALS_MANY),
        }
    }

    /// The file of an object is gone. Whether its folder may be empty now.
    pub(super) fn removed(&self, object: ObjectId) -> bool {
        let group = Group::of(object);
        let mut folders = self.lock();
        match folders.iter_mut().find(|(other, _)| *other == group) {
            Some((_, Folder::Known(there))) => {
                there.remove(&object);
                there.is_empty()
            }
            Some((_, Folder::Listed(since))) => {
                since.insert(object, false);
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
