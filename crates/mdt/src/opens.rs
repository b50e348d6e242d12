//! Open files and write sessions, in memory: what survives a restart of them is the mark
//! `size_stale` in the inode, and the orphan records.
//!
//! A write session begins with the first write-open of a file and ends with the last close
//! of a writer. In between it is noted whether the MDT knows the size (as of the last lock
//! given up), and whether anything was written at all.

use sateen_types::{Attr, Fid, FidMap};

/// One inode that somebody has open.
#[derive(Debug, Default)]
pub(crate) struct OpenFile {
    pub(crate) opens: u32,
    pub(crate) writers: u32,
    /// It has no name any more and goes with the last close.
    pub(crate) orphan: bool,
    /// It never had a name, and may be given one.
    pub(crate) linkable: bool,
    /// Nobody was lost who could have known the size better than the inode.
    pub(crate) known: bool,
    /// Somebody reported having written.
    pub(crate) wrote: bool,
    /// The file had no objects before this session.
    pub(crate) fresh: bool,
}

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    files: FidMap<OpenFile>,
}

impl Opens {
    pub(crate) fn get(&self, fid: Fid) -> Option<&OpenFile> {
        self.files.get(&fid)
    }

    pub(crate) fn get_mut(&mut self, fid: Fid) -> Option<&mut OpenFile> {
        self.files.get_mut(&fid)
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.files.contains_key(&fid)
    }

    pub(crate) fn writers(&self, fid: Fid) -> u32 {
        self.files.get(&fid).map_or(0, |file| file.writers)
    }

    /// One more open. `before` is the inode as it was before this open changed it.
    pub(crate) fn open(&mut self, before: &Attr, write: bool) {
        let file = self.files.entry(before.fid).or_default();
        file.opens += 1;
        file.orphan = before.nlink == 0;
        if write {
            if file.writers == 0 {
                file.known = !before.size_stale;
                file.wrote = false;
                file.fresh = !before.maybe_objects;
            }
            file.writers += 1;
        }
    }

    /// One less. Returns whether it was the last of an orphan.
    pub(crate) fn close(&mut self, fid: Fid, write: bool) -> bool {
        let Some(file) = self.files.get_mut(&fid) else { return false };
        file.opens -= 1;
        file.writers -= u32::from(write);
        let (last, orphan) = (file.opens == 0, file.orphan);
        if last {
            self.files.remove(&fid);
        }
        last && orphan
    }

    /// A report of the size was believed.
    pub(crate) fn reported(&mut self, fid: Fid, wrote: bool) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.known = true;
            file.wrote |= wrote;
        }
    }

    /// A client was lost that could have written.
    pub(crate) fn lost(&mut self, fid: Fid) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.known = false;
            file.wrote = true;
        }
    }
}
