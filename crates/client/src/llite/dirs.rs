//! Reading directories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sateen_types::{DirCookie, Errno, Fid, Result};
use sateen_wire::{DIR_ENTRIES_MAX, DirEntry, Ibits, MdtReply, MdtRequest, SizeReport};

use crate::atime::AtimePolicy;
use crate::client::Client;
use crate::dir_pages::{Answer, DirPagesStats};
use crate::inode::Inode;
use crate::stats::Verb;
use crate::sync::lock;

/// A part of a directory.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The entries, without `.` and `..`.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
    /// What `..` is.
    pub parent: Fid,
}

impl Client {
    /// Up to `count` entries after a position.
    ///
    /// # Errors
    /// `ENOTDIR`, and the MDT's.
    pub async fn readdir(
        self: &Arc<Client>,
        fid: Fid,
        after: DirCookie,
        count: usize,
        atime: AtimePolicy,
    ) -> Result<Listing> {
        let listing = self.list(fid, after, count).await?;
        if after == DirCookie::START {
            self.note_listing(fid, atime);
            self.may_look_ahead(fid, &listing.entries, listing.end);
        }
        Ok(listing)
    }

    /// The same for no program: what is kept, or what the MDT says, which is kept then.
    pub(super) async fn list(&self, fid: Fid, after: DirCookie, count: usize) -> Result<Listing> {
        let count = count.clamp(1, DIR_ENTRIES_MAX);
        let inode = self.known_inode(fid);
        let kept = inode.as_ref().and_then(|inode| lock(&inode.state).kept_listing(after, count));
        if let Some((entries, end, parent)) = kept {
            self.count(Verb::LockHit);
            self.dir_cache.hit();
            return Ok(Listing { entries, end, parent });
        }
        // `.` and `..` come before all names.
        let after = if after <= DirCookie::DOT_DOT { DirCookie::START } else { after };
        // First: whatever is begun after this has changed the directory since, also if it is given up.
        let since = self.stamp();
        let inode = inode.filter(|inode| self.may_keep_listing(inode));
        let asked = inode.as_ref().map(|inode| self.dir_cache.asks(&lock(&inode.state), count));
        let asked = asked.unwrap_or(count) as u32;
        let request = MdtRequest::ReadDir { fid, after, count: asked, plus: false };
        let answer = self.mdt(fid, request).await?;
        let MdtReply::Entries { mut entries, mut end, parent } = answer.body else {
            return Err(Errno::EPROTO);
        };
        if let Some(inode) = &inode {
            let now = self.ticks.load(Ordering::Relaxed);
            let page = Answer { after, entries: &entries, end, parent };
            self.dir_cache.keep(inode, page, (since, answer.stamp), now);
        }
        end &= entries.len() <= count;
        entries.truncate(count);
        Ok(Listing { entries, end, parent })
    }

    /// Whether what is asked now of a directory may stay.
    fn may_keep_listing(&self, dir: &Inode) -> bool {
        if self.dir_cache.max() == 0 {
            return false;
        }
        let is_locked = lock(&dir.state).covers(Ibits::META);
        // Looked at last, and while nothing is locked: it looks through all that is under way.
        is_locked && !self.may_change_names(dir.fid)
    }

    /// Bytes of what was listed of directories that stay for others, at most, with all that they take up
    /// beside it.
    pub fn dir_pages_max(&self) -> u64 {
        self.dir_cache.max()
    }

    /// Sets that. With 0 nothing stays.
    ///
    /// # Errors
    /// `ERANGE` beyond [`DIR_PAGES_MAX`](crate::DIR_PAGES_MAX).
    pub fn set_dir_pages_max(&self, bytes: u64) -> Result<()> {
        self.dir_cache.set_max(bytes, self.ticks.load(Ordering::Relaxed))
    }

    /// How much of it there is, and what it was good for.
    pub fn dir_pages_stats(&self) -> DirPagesStats {
        self.dir_cache.stats()
    }

    /// A directory was read from its start. There is no close that could tell the MDT; nobody
    /// waits until it has heard.
    fn note_listing(self: &Arc<Client>, fid: Fid, atime: AtimePolicy) {
        let Some(inode) = self.inodes.find(fid) else { return };
        let now = self.port.now().wall();
        if !inode.update(|state| state.listed(atime, now)) {
            return;
        }
        let client = self.clone();
        self.port.spawn(Box::pin(async move {
            let report = SizeReport { size: 0, blocks: 0, mtime: None, atime: Some(now) };
            let tell = MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
            if let Err(error) = client.mdt(fid, tell).await {
                tracing::debug!(%fid, %error, "the MDT has not heard of an atime");
            }
            let stamp = client.stamp();
            inode.update(|state| {
                state.unreported_atime.take_if(|told| *told <= now);
                // What was asked before says nothing of it.
                state.changed_at = stamp;
            });
            client.retire(inode);
        }));
    }
}
