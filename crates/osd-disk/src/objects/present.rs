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

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard};

use sateen_types::ObjectId;

use super::names::Group;
use crate::lock;

/// Folders that are known or counted.
const FOLDERS_MAX: usize = 32;
/// Removals from a folder before it is listed.
const REMOVALS_MIN: u32 = 8;
/// A folder with more names is not kept in memory: files with many stripes have as many objects.
const NAMES_MAX: usize = 1 << 14;

/// The folders. Shared by all threads.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// Those used last first.
    folders: Mutex<VecDeque<(Group, Folder)>>,
}

#[derive(Debug)]
enum Folder {
    /// So many were to be removed from it.
    Counted(u32),
    /// It is being listed, and these were born since that began.
    Listed(BTreeSet<ObjectId>),
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
                folders.push_front((group, Folder::Counted(0)));
            }
        }
        let Some((_, folder)) = folders.front_mut() else { return Known::Perhaps };
        match folder {
            Folder::Counted(removals) => {
                *removals += 1;
                if *removals < REMOVALS_MIN {
                    return Known::Perhaps;
                }
                *folder = Folder::Listed(BTreeSet::new());
                Known::List
            }
            Folder::Listed(_) => Known::Perhaps,
            Folder::Known(there) if there.contains(&object) => Known::Perhaps,
            Folder::Known(_) => Known::Absent,
        }
    }

    /// What a folder was found to hold by whoever was to list it.
    pub(super) fn listed(&self, group: Group, found: io::Result<Vec<ObjectId>>) {
        let mut folders = self.lock();
        let Some((_, folder)) = folders.iter_mut().find(|(other, _)| *other == group) else {
            return;
        };
        let Folder::Listed(born) = folder else { return };
        *folder = match found {
            Ok(found) if found.len() <= NAMES_MAX => {
                let mut there = std::mem::take(born);
                there.extend(found);
                Folder::Known(there)
            }
            // Whoever removes from it finds out what is there.
            _ => Folder::Counted(0),
        };
    }

    /// The file of an object has appeared.
    pub(super) fn born(&self, object: ObjectId) {
        let group = Group::of(object);
        let mut folders = self.lock();
        let Some(at) = folders.iter().position(|(other, _)| *other == group) else { return };
        let Some((_, folder)) = folders.get_mut(at) else { return };
        let (Folder::Listed(there) | Folder::Known(there)) = folder else { return };
        there.insert(object);
        if there.len() > NAMES_MAX && matches!(folder, Folder::Known(_)) {
            *folder = Folder::Counted(0);
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
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
