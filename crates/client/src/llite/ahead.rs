//! Looking names up before anybody asks: see [`crate::statahead`].
//!
//! What is found ahead is kept as any lookup keeps it: attributes in their inode, under the locks
//! that the answer brought. A program that then looks the name up is told so much of it as stands at
//! that moment; if a lock has gone meanwhile, or this client itself has changed the name since, he
//! asks the MDT as ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sateen_types::{DirCookie, Fid, Name, Result};
use sateen_wire::{DirEntry, Ibits, MdtReply, MdtRequest};

use super::{Entry, Known, Listing};
use crate::client::Client;
use crate::inode::Inode;
use crate::patience;
use crate::statahead::{Found, Left, Looked, Next, StataheadStats};
use crate::stats::Verb;
use crate::sync::{lock, until};

/// Names that are read of a directory at a time.
const PAGE: usize = 512;

impl Client {
    /// Most names that are looked up ahead in one directory; 0 for none.
    pub fn statahead_max(&self) -> usize {
        self.statahead.max()
    }

    /// Sets that.
    ///
    /// # Errors
    /// `ERANGE` beyond [`STATAHEAD_MAX`](crate::STATAHEAD_MAX).
    pub fn set_statahead_max(self: &Arc<Client>, max: usize) -> Result<()> {
        self.statahead.set_max(max)?;
        self.end_old_listings();
        Ok(())
    }

    /// Whether sizes that only OSTs know are asked for ahead.
    pub fn statahead_agl(&self) -> bool {
        self.statahead.agl()
    }

    /// Sets that.
    pub fn set_statahead_agl(&self, agl: bool) {
        self.statahead.set_agl(agl);
    }

    /// What looking ahead was good for.
    pub fn statahead_stats(&self) -> StataheadStats {
        self.statahead.stats()
    }

    /// Counts that anew.
    pub fn clear_statahead_stats(&self) {
        self.statahead.clear_stats();
    }

    /// A program has closed a directory.
    pub fn close_dir(self: &Arc<Client>, dir: Fid) {
        if !self.statahead.is_idle() && self.statahead.closes(dir) {
            self.end_listing(dir);
        }
    }

    fn end_listing(self: &Arc<Client>, dir: Fid) {
        let (left, woken) = self.statahead.end(dir);
        woken.wake();
        left.into_iter().for_each(|inode| self.retire(inode));
    }

    fn let_listing_go(self: &Arc<Client>, left: Left) {
        left.woken.wake();
        left.inodes.into_iter().for_each(|inode| self.retire(inode));
    }

    /// Ends the listings that nobody goes on with.
    pub(crate) fn end_old_listings(self: &Arc<Client>) {
        let now = self.ticks.load(Ordering::Relaxed);
        self.statahead.old(now).into_iter().for_each(|dir| self.end_listing(dir));
    }

    /// A directory was read from its beginning.
    pub(super) fn may_look_ahead(self: &Arc<Client>, dir: Fid, entries: &[DirEntry], end: bool) {
        let Some(inode) = self.inodes.find(dir) else { return };
        let now = self.ticks.load(Ordering::Relaxed);
        let names = entries.iter().map(|entry| (entry.cookie, &entry.name));
        let left = self.statahead.listed(&inode, now, names, end);
        self.let_listing_go(left);
    }

    /// A name that was looked up ahead, if what was found stands.
    pub(super) async fn looked_up_ahead(
        self: &Arc<Client>,
        dir: Fid,
        name: &[u8],
    ) -> Option<Entry> {
        if self.statahead.is_idle() {
            return None;
        }
        let now = self.ticks.load(Ordering::Relaxed);
        let mut left = Left::default();
        let found = until(
            &self.statahead.state,
            |state| &mut state.waiters,
            |state| match self.statahead.look(state, (dir, name), now, &mut left) {
                Looked::Elsewhere => Some(None),
                Looked::Nothing => Some(Some(None)),
                Looked::Found(dir, found) => Some(Some(Some((dir, found)))),
                Looked::Waits => patience::is_over().then_some(Some(None)),
            },
        )
        .await;
        self.let_listing_go(left);
        // Lookups elsewhere are most of all, and cost nothing more.
        let entry = found?.and_then(|(inode, found)| {
            // If it is of no use its inode stays: it is about to be asked for.
            let entry = self.entry_ahead((&inode, name), &found);
            self.statahead.taken(dir, entry.is_some());
            entry
        });
        self.look_ahead(dir);
        entry
    }

    /// What was found ahead, if all of it stands.
    fn entry_ahead(&self, (dir, name): (&Arc<Inode>, &[u8]), found: &Found) -> Option<Entry> {
        let Found { inode, stamp, void, changes } = found;
        // This client's own locks do not keep it from changing the name, nor from having done so since
        // it was taken.
        let statahead = &self.statahead;
        if *void
            || statahead.is_changing_name(dir.fid, name)
            || statahead.changes_begun(dir.fid, name) != *changes
        {
            return None;
        }
        let by_dir = lock(&dir.state).stands(Ibits::UPDATE, *stamp);
        let known = {
            let mut state = lock(&inode.state);
            if !by_dir && !state.stands(Ibits::LOOKUP, *stamp) {
                return None;
            }
            state.named = self.hash_of_name(dir.fid, name);
            Known { attr: state.tell()?, held: true }
        };
        self.is_used(inode);
        self.is_used(dir);
        self.count(Verb::LockHit);
        Some(Entry { inode: Some(known), held: true, since: (!by_dir).then_some(*stamp) })
    }

    /// Asks for what is next in a directory. Half of the slots of its MDT are left to others.
    fn look_ahead(self: &Arc<Client>, dir: Fid) {
        if self.is_stopped() {
            return;
        }
        let asked = self.statahead.asked.load(Ordering::Relaxed);
        let Next { dir: Some((inode, number)), names, read, xattrs } =
            self.statahead.next(dir, self.slots_to_spare(dir, asked))
        else {
            return;
        };
        if let Some(after) = read {
            let (client, inode) = (self.clone(), inode.clone());
            self.port.spawn(Box::pin(async move {
                client.read_ahead_names(&inode, number, after).await;
                client.look_ahead(inode.fid);
                client.retire(inode);
            }));
        }
        for name in names {
            let (client, inode) = (self.clone(), inode.clone());
            self.port.spawn(Box::pin(async move {
                let listing = (inode.fid, number);
                let found = client.find_ahead(listing, &name, xattrs).await;
                let left = client.statahead.answered(listing, &name, found);
                if let Some(left) = left {
                    client.retire(left.inode);
                }
                client.look_ahead(inode.fid);
                client.retire(inode);
            }));
        }
    }

    async fn read_ahead_names(&self, dir: &Inode, number: u64, after: DirCookie) {
        let (entries, end) = match self.list(dir.fid, after, PAGE).await {
            Ok(Listing { entries, end, .. }) => (entries, end),
            Err(_) => (Vec::new(), true),
        };
        let names = entries.into_iter().map(|entry| (entry.cookie, entry.name));
        self.statahead.read((dir.fid, number), names, end);
    }

    /// Looks a name up, as a program would; `None` if that was in vain. No locks come with an answer
    /// for which others had to give theirs back, and without any it is of no use: then it is asked
    /// once more, unless the program is there already and had better ask for itself.
    async fn find_ahead(
        self: &Arc<Client>,
        listing: (Fid, u64),
        name: &Name,
        xattrs: bool,
    ) -> Option<Found> {
        let dir = listing.0;
        let mut found = self.find_once(dir, name).await?;
        if !lock(&found.inode.state).covers(Ibits::LOOKUP) {
            self.retire(found.inode);
            if self.statahead.is_awaited(listing, name) {
                return None;
            }
            found = self.find_once(dir, name).await?;
        }
        if xattrs {
            self.learn_xattrs(&found.inode).await;
        }
        Some(found)
    }

    async fn find_once(self: &Arc<Client>, dir: Fid, name: &Name) -> Option<Found> {
        let answer = self.mdt(dir, self.lookup_request(dir, name.clone())).await.ok()?;
        let MdtReply::Inode { attr } = answer.body else { return None };
        let (inode, stamp) = (self.inode(attr.fid), answer.stamp);
        if attr.size_stale && !lock(&inode.state).size_known {
            if !self.statahead.agl() {
                self.retire(inode);
                return None;
            }
            self.statahead.asks_size();
        }
        if self.know(&inode, attr, stamp).await.is_err() {
            self.retire(inode);
            return None;
        }
        Some(Found { inode, stamp, void: false, changes: 0 })
    }

    /// Learns whether an inode has extended attributes at all: most have none, and programs ask for
    /// several.
    async fn learn_xattrs(&self, inode: &Inode) {
        let fid = inode.fid;
        if lock(&inode.state).has_no_xattrs() {
            return;
        }
        let Ok(answer) = self.mdt(fid, MdtRequest::ListXattr { fid }).await else { return };
        if matches!(&answer.body, MdtReply::Bytes(names) if names.is_empty()) {
            lock(&inode.state).have_no_xattrs(answer.stamp);
        }
    }

    /// Whether an inode is known to have no extended attributes.
    pub(super) fn has_no_xattrs(&self, fid: Fid) -> bool {
        self.statahead.wants_xattrs(fid);
        // First: one that ends meanwhile has noted what it did.
        let known = !self.statahead.is_changing_xattrs(fid)
            && self.known_inode(fid).is_some_and(|inode| lock(&inode.state).has_no_xattrs());
        if known {
            self.count(Verb::LockHit);
        }
        known
    }
}
