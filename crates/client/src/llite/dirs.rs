//! Reading directories.

use std::sync::Arc;

use sateen_types::{DirCookie, Errno, Fid, Result};
use sateen_wire::{DIR_ENTRIES_MAX, DirEntry, MdtReply, MdtRequest, SizeReport};

use crate::atime::AtimePolicy;
use crate::client::Client;
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
        let count = count.clamp(1, DIR_ENTRIES_MAX) as u32;
        let request = MdtRequest::ReadDir { fid, after, count, plus: false };
        let MdtReply::Entries { entries, end, parent } = self.mdt(fid, request).await?.body else {
            return Err(Errno::EPROTO);
        };
        if after == DirCookie::START {
            self.note_listing(fid, atime);
            self.may_look_ahead(fid, &entries, end);
        }
        Ok(Listing { entries, end, parent })
    }

    /// A directory was read from its start. There is no close that could tell the MDT; nobody
    /// waits until it has heard.
    fn note_listing(self: &Arc<Client>, fid: Fid, atime: AtimePolicy) {
        let Some(inode) = lock(&self.inodes).all.get(&fid).cloned() else { return };
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
