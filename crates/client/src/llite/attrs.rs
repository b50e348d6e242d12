//! `getattr`, `setattr`, and when attributes may be cached.

use std::sync::Arc;

use sateen_types::{Attr, Errno, Fid, FileKind, Result};
use sateen_wire::{Cred, Ibits, MdtReply, MdtRequest, SetAttr, SizeReport};

use super::Known;
use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::locks::Access;
use crate::sync::{lock, until};

/// For so long after a client's own change are a directory's attributes not cached: an answer
/// that overtakes another in the kernel could otherwise stay. 100 ms.
const SETTLE_NS: u64 = 100_000_000;
/// How often attributes are asked for again that this client has changed meanwhile.
const ASKED_MAX: u32 = 8;

impl InodeState {
    fn cached(&self) -> Option<Attr> {
        let attr = self.attr.filter(|_| self.meta_known)?;
        let wanted = wanted(&attr);
        let size = !wanted.intersects(Ibits::DATA) || self.size_known;
        (size && self.covers(wanted)).then_some(attr)
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
        {
            let state = lock(&inode.state);
            if let Some(attr) = state.cached() {
                return Ok(Known { attr, held: state.may_cache(self.port.now().mono_ns) });
            }
        }
        let want = Ibits::META.union(Ibits::DATA);
        let answer = self.mdt(fid, MdtRequest::GetAttr { fid, want }).await?;
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        self.know(&inode, attr, answer.stamp).await
    }

    /// The attributes as the MDT has them now, uncached, with the stamp of the request.
    pub(crate) async fn fetch_attr(&self, fid: Fid) -> Result<(Attr, u64)> {
        let request = MdtRequest::GetAttr { fid, want: Ibits::NONE };
        let answer = self.mdt(fid, request).await?;
        match answer.body {
            MdtReply::Inode { attr } => Ok((attr, answer.stamp)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// The same, asked for once the MDT has heard the cancels that are on their way, with what
    /// they say of the size.
    pub(crate) async fn attr_after_cancels(&self, inode: &Inode) -> Result<(Attr, u64)> {
        until(
            &inode.state,
            |state| &mut state.waiters,
            |state| state.cancels.is_empty().then_some(()),
        )
        .await;
        self.fetch_attr(inode.fid).await
    }

    /// Takes over attributes from the answer to a request sent at `stamp`, and says whether
    /// they may be cached.
    pub(crate) async fn know(&self, inode: &Arc<Inode>, attr: Attr, stamp: u64) -> Result<Known> {
        let (mut attr, mut stamp) = (attr, stamp);
        for _ in 0..ASKED_MAX {
            (attr, stamp) = self.settle_size(inode, (attr, stamp)).await?;
            {
                let mut state = lock(&inode.state);
                if state.is_news(stamp) {
                    state.learn(attr, stamp);
                    let attr = state.attr.unwrap_or(attr);
                    return Ok(Known { attr, held: state.may_cache(self.port.now().mono_ns) });
                }
                let attr = state.with_size(attr);
                if state.size_known || attr.kind() != FileKind::Regular {
                    let newer =
                        state.attr.filter(|own| state.meta_known && own.version > attr.version);
                    return Ok(Client::unheld(newer.unwrap_or(attr)));
                }
            }
            // The MDT may have answered before it heard of what this client had written.
            (attr, stamp) = self.attr_after_cancels(inode).await?;
        }
        Ok(Client::unheld(attr))
    }

    /// What the MDT answered about an inode that this client just changed, with a request
    /// sent at `sent`.
    pub(crate) fn own_change(&self, inode: &Inode, attr: Option<Attr>, sent: u64) {
        let now_ns = self.port.now().mono_ns;
        let now = self.stamp();
        inode.update(|state| state.changed(attr, (sent, now), now_ns));
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
            None => self.fetch_attr(fid).await?.0.kind(),
        };
        let used = if data && kind == FileKind::Regular {
            let used = self.use_data(&inode, Access::Write).await?;
            self.tell_size(&inode).await?;
            Some(used)
        } else {
            None
        };
        let answer = self.mdt(fid, MdtRequest::SetAttr { fid, set, cred }).await?;
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        let sent = answer.stamp;
        self.own_change(&inode, Some(attr), sent);
        drop(used);
        {
            let state = lock(&inode.state);
            if let Some(attr) = state.cached() {
                return Ok(Known { attr, held: state.may_cache(self.port.now().mono_ns) });
            }
        }
        self.know(&inode, attr, sent).await
    }

    /// Tells the MDT what this client has written, keeping the lock.
    pub(crate) async fn tell_size(&self, inode: &Inode) -> Result<()> {
        let fid = inode.fid;
        let Some(report) = inode.next_report().await else { return Ok(()) };
        let tell = MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
        let told = self.mdt(fid, tell).await;
        self.reported(inode, report, told.is_ok());
        told.map(|_| ())
    }

    /// A report of the size has arrived, or is to be made again.
    pub(crate) fn reported(&self, inode: &Inode, report: SizeReport, arrived: bool) {
        let now = self.stamp();
        inode.update(|state| state.reported(report, arrived, now));
    }
}
