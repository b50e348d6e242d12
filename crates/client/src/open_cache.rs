//! Opens that are kept: a file that programs open again and again is not closed at its MDT each time.
//!
//! The second close of an open for reading is kept back: the MDT has the file open for this client
//! still, and the next open takes that over, if its attributes are known under locks. It costs no
//! request then. Not from the first close on, because most files are read once, and a file that is
//! removed while it is open has to be removed twice, its name first.
//!
//! **It lives as long as the locks on the inode's names and attributes.** Whoever removes the last name
//! takes these back first: then it is closed, and the file goes. So it is also when the kernel forgets
//! the inode, and when the file has lost its last name here. Opens for writing are never kept, because
//! they keep a write session; nor are those to execute, which keep others from writing.
//!
//! What a restart of an MDT needs to know of opens lies elsewhere (`Client::at_mdts`), and these are
//! among it. After an eviction those from before are void, like all opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sateen_types::{Attr, FileKind};
use sateen_wire::{Ibits, OpenId};

use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::llite::{File, OpenHow};
use crate::patience::to_the_end;
use crate::stats::Verb;
use crate::sync::lock;

/// Most that a client keeps. An MDT has a record for each, and is told of each when it is started again.
const KEPT_MAX: usize = 4096;

/// How many there are, and how many were of use.
#[derive(Debug, Default)]
pub(crate) struct OpenCache {
    kept: Arc<AtomicUsize>,
    reused: AtomicU64,
}

impl OpenCache {
    /// How many are kept, and how many were taken over so far.
    pub(crate) fn census(&self) -> (usize, u64) {
        (self.kept.load(Ordering::Relaxed), self.reused.load(Ordering::Relaxed))
    }

    /// Room for one more, if there is any.
    fn room(&self) -> Option<Place> {
        let more = |count: usize| (count < KEPT_MAX).then_some(count + 1);
        let taken = self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place(self.kept.clone()))
    }
}

/// One of the places that there are.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open that no program has any more, and the MDT still has.
#[derive(Debug)]
pub(crate) struct KeptOpen {
    pub(crate) id: OpenId,
    /// When the MDT was asked for it: one from before an eviction is void.
    pub(crate) asked_at: u64,
    era: u64,
    _place: Place,
}

/// Whether the MDT has one such open for another.
fn is_plain(how: OpenHow) -> bool {
    how.read && !how.write && !how.truncate && !how.exec
}

impl InodeState {
    /// What is kept of it, if it cannot be of use any more, or must not stay.
    fn take_useless_open(&mut self) -> Option<KeptOpen> {
        let is_forgotten = self.lookups == 0 && self.opens == 0;
        let has_name = !self.nameless && self.attr.is_some_and(|attr| attr.nlink > 0);
        let stays = self.holds(Ibits::META) && has_name && !is_forgotten;
        if stays { None } else { self.rare_if_any()?.kept_open.take() }
    }
}

impl Client {
    /// Takes over an open that was kept, with the attributes that are known: the file counts as open
    /// from here on.
    pub(crate) fn take_kept_open(&self, inode: &Inode, how: OpenHow) -> Option<(KeptOpen, Attr)> {
        if !is_plain(how) {
            return None;
        }
        let lost_at = self.lost_at(inode.fid);
        let mut state = lock(&inode.state);
        state.kept_open.as_ref().filter(|kept| kept.asked_at >= lost_at)?;
        let attr = state.tell()?;
        let kept = state.kept_open.take()?;
        state.begin_open(how);
        self.open_cache.reused.fetch_add(1, Ordering::Relaxed);
        self.count(Verb::LockHit);
        Some((kept, attr))
    }

    /// The last descriptor of an open is gone: keeps the open, if that may be of use, and its close has
    /// nothing to report. It has ended for this client then, and not for the MDT.
    pub(crate) fn keep_open(&self, file: &File, era: u64, reports: bool) -> bool {
        if !is_plain(file.how) || self.has_file_locks(file.inode.fid, file.id) {
            return false;
        }
        let mut state = lock(&file.inode.state);
        let again = core::mem::replace(&mut state.was_open, true);
        let is_file = |attr: Attr| attr.kind() == FileKind::Regular && attr.nlink > 0;
        // A file without a name may go at its last close, and nobody takes a lock back for that.
        let is_file = !state.nameless && state.attr.is_some_and(is_file);
        let held = state.holds(Ibits::META) && state.lookups > 0;
        if reports || !again || !is_file || !held || state.kept_open.is_some() {
            return false;
        }
        let Some(place) = self.open_cache.room() else { return false };
        state.kept_open =
            Some(KeptOpen { id: file.id, asked_at: file.asked_at, era, _place: place });
        state.end_open(file.how);
        true
    }

    /// Closes what is kept of an inode, unless it is still of use. Whether there was anything.
    pub(crate) fn close_useless(self: &Arc<Client>, inode: &Arc<Inode>) -> bool {
        let Some(kept) = lock(&inode.state).take_useless_open() else { return false };
        if kept.asked_at < self.lost_at(inode.fid) {
            return false;
        }
        let (client, inode) = (self.clone(), inode.clone());
        self.port.spawn(Box::pin(async move {
            let closing = client.close_at_mdt(inode.fid, kept.id, None, Some(kept.era));
            if let Err(error) = to_the_end(closing).await {
                tracing::debug!(fid = %inode.fid, %error, "a kept open is not closed");
            }
            client.retire(inode);
        }));
        true
    }
}
