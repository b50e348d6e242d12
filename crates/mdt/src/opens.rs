//! Open files and write sessions, in memory: what survives a restart of them is the mark
//! `size_stale` in the inode, and the orphan records.
//!
//! A write session begins with the first write-open of a file and ends with the last close
//! of a writer. In between it is noted whether the MDT knows the size (as of the last lock
//! given up), and whether anything was written at all.

use std::collections::BTreeMap;

use sateen_types::{Attr, ClientId, Fid, FidMap};

/// What an open is for, beside reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// For writing.
    pub(crate) write: bool,
    /// To execute it.
    pub(crate) exec: bool,
}

/// One inode that somebody has open.
#[derive(Debug, Default)]
pub(crate) struct OpenFile {
    pub(crate) opens: u32,
    pub(crate) writers: u32,
    /// Who executes it, and how often.
    execs: BTreeMap<ClientId, u32>,
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

    /// Whether another client executes it: nobody may write to a program that runs. Its own
    /// programs a client's kernel watches itself, and knows sooner when they have ended.
    pub(crate) fn runs_elsewhere(&self, fid: Fid, client: ClientId) -> bool {
        let file = self.files.get(&fid);
        file.is_some_and(|file| file.execs.keys().any(|other| *other != client))
    }

    /// One more open. `before` is the inode as it was before this open changed it.
    pub(crate) fn open(&mut self, before: &Attr, client: ClientId, purpose: Purpose) {
        let file = self.files.entry(before.fid).or_default();
        file.opens += 1;
        file.orphan = before.nlink == 0;
        if purpose.exec {
            *file.execs.entry(client).or_default() += 1;
        }
        if purpose.write {
            if file.writers == 0 {
                file.known = !before.size_stale;
                file.wrote = false;
                file.fresh = !before.maybe_objects;
            }
            file.writers += 1;
        }
    }

    /// An open of the run before. What was written in its session, and by whom, nobody knows.
    pub(crate) fn reopen(
        &mut self,
        attr: &Attr,
        client: ClientId,
        purpose: Purpose,
        linkable: bool,
    ) {
        self.open(attr, client, purpose);
        if let Some(file) = self.files.get_mut(&attr.fid) {
            file.linkable = linkable;
            if file.writers > 0 {
                (file.known, file.wrote, file.fresh) = (false, true, false);
            }
        }
    }

    /// Files without a name that may be given one.
    pub(crate) fn linkable(&self) -> Vec<Fid> {
        let all = self.files.iter().filter(|(_, file)| file.orphan && file.linkable);
        let mut all: Vec<Fid> = all.map(|(fid, _)| *fid).collect();
        all.sort_unstable();
        all
    }

    /// Files with a write session, and how many have each open for writing.
    pub(crate) fn sessions(&self) -> Vec<(Fid, u32)> {
        let all = self.files.iter().filter(|(_, file)| file.writers > 0);
        let mut all: Vec<(Fid, u32)> = all.map(|(fid, file)| (*fid, file.writers)).collect();
        all.sort_unstable();
        all
    }

    /// One less. Returns whether it was the last of an orphan.
    pub(crate) fn close(&mut self, fid: Fid, client: ClientId, purpose: Purpose) -> bool {
        let Some(file) = self.files.get_mut(&fid) else { return false };
        file.opens -= 1;
        file.writers -= u32::from(purpose.write);
        if purpose.exec
            && let Some(count) = file.execs.get_mut(&client)
        {
            *count -= 1;
            if *count == 0 {
                file.execs.remove(&client);
            }
        }
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

    /// A holder of a shared lock has told what he wrote. That is all of his, and of others nothing.
    pub(crate) fn shared_wrote(&mut self, fid: Fid) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.wrote = true;
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
