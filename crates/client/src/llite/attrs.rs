//! `getattr`, `setattr`, and when attributes may be cached.

use std::sync::Arc;

use sateen_types::{Attr, Errno, Fid, FileKind, Result};
use sateen_wire::{Cred, Ibits, LockMode, MdtReply, MdtRequest, SetAttr};

use super::Known;
use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::sync::lock;

/// For so long after a client's own change are a directory's attributes not cached: an answer
/// that overtakes another in the kernel could otherwise stay. 100 ms.
const SETTLE_NS: u64 = 100_000_000;

impl InodeState {
    fn cached(&self) -> Option<Attr> {
        let attr = self.attr?;
        let unknown_size = attr.size_stale && !self.is_writer();
        (self.covers(wanted(&attr)) && !unknown_size).then_some(attr)
    }

    /// Whether the kernel may keep what it is told now.
    pub(crate) fn may_cache(&self, now_ns: u64) -> bool {
        let settled = now_ns > self.changed_ns.saturating_add(SETTLE_NS);
        self.cached().is_some_and(|attr| !attr.is_dir() || settled)
    }
}

fn wanted(attr: &Attr) -> Ibits {
    if attr.kind() == FileKind::Regular { Ibits::META.union(Ibits::DATA) } else { Ibits::META }
}

impl Client {
    /// Attributes of an inode.
    ///
    /// # Errors
    /// `ENOENT` or `ESTALE` if it is gone; the OSTs' if its size has to be asked for.
    pub async fn getattr(self: &Arc<Client>, fid: Fid) -> Result<Known> {
        let inode = self.inode(fid);
        let changes = {
            let state = lock(&inode.state);
            if let Some(attr) = state.cached() {
                return Ok(Known { attr, held: state.may_cache(self.port.now().mono_ns) });
            }
            state.changes
        };
        let want = Ibits::META.union(Ibits::DATA);
        let answer = self.mdt(fid, MdtRequest::GetAttr { fid, want }).await?;
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        self.know(&inode, attr, changes).await
    }

    /// The attributes as the MDT has them now, uncached.
    pub(crate) async fn fetch_attr(&self, fid: Fid) -> Result<Attr> {
        let request = MdtRequest::GetAttr { fid, want: Ibits::NONE };
        match self.mdt(fid, request).await?.body {
            MdtReply::Inode { attr } => Ok(attr),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Takes over attributes from an answer to a request sent when the inode had seen
    /// `changes`, and says whether they may be cached.
    pub(crate) async fn know(&self, inode: &Arc<Inode>, attr: Attr, changes: u64) -> Result<Known> {
        let writing = lock(&inode.state).is_writer();
        let attr = if writing { attr } else { self.settle_size(inode, attr).await? };
        let mut state = lock(&inode.state);
        if state.changes != changes {
            // Of this client's own making, and perhaps older than that.
            let newer = state.attr.filter(|known| known.version > attr.version);
            return Ok(Client::unheld(newer.unwrap_or(attr)));
        }
        state.learn(attr);
        let attr = state.attr.unwrap_or(attr);
        let held = state.may_cache(self.port.now().mono_ns);
        if !state.covers(wanted(&attr)) && !state.is_writer() {
            state.attr = None;
        }
        Ok(Known { attr, held })
    }

    /// What the MDT answered about an inode that this client just changed.
    pub(crate) fn own_change(&self, inode: &Inode, attr: Option<Attr>) {
        let now = self.port.now().mono_ns;
        inode.update(|state| {
            state.changed(now);
            let writing = state.is_writer();
            match attr {
                Some(attr) => state.learn(attr),
                None if writing => {}
                None => state.attr = None,
            }
        });
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As `chmod`, `chown`, `truncate` and `utimensat`.
    pub async fn setattr(self: &Arc<Client>, fid: Fid, set: SetAttr, cred: Cred) -> Result<Known> {
        let inode = self.inode(fid);
        // The size, and times that a writer would otherwise report over, are changed under
        // the data lock.
        let data = set.size.is_some() || set.mtime.is_some() || set.atime.is_some();
        let kind = lock(&inode.state).attr.map(|attr| attr.kind());
        let kind = match kind {
            Some(kind) => kind,
            None => self.fetch_attr(fid).await?.kind(),
        };
        let used = if data && kind == FileKind::Regular {
            let used = self.use_data(&inode, LockMode::Pw).await?;
            self.tell_size(&inode).await?;
            Some(used)
        } else {
            None
        };
        let answer = self.mdt(fid, MdtRequest::SetAttr { fid, set, cred }).await?;
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        self.own_change(&inode, Some(attr));
        drop(used);
        let changes = lock(&inode.state).changes;
        self.know(&inode, attr, changes).await
    }

    /// Tells the MDT what this client has written, keeping the lock.
    pub(crate) async fn tell_size(&self, inode: &Inode) -> Result<()> {
        let fid = inode.fid;
        let report = inode.update(InodeState::begin_report);
        let Some(report) = report else { return Ok(()) };
        let tell = MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
        let told = self.mdt(fid, tell).await;
        inode.update(|state| state.reported(report, told.is_ok()));
        told.map(|_| ())
    }
}
