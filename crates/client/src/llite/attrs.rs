//! `getattr`, `setattr`, and when attributes may be cached.

use std::sync::Arc;

use sateen_types::{Attr, Errno, Fid, FileKind, Result};
use sateen_wire::{Cred, Ibits, MdtReply, MdtRequest, SetAttr, SizeReport, TimeSet};

use super::Known;
use super::data::Cutting;
use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::locks::Access;
use crate::patience::{self, to_the_end};
use crate::port::KernelInval;
use crate::stats::Verb;
use crate::sync::{lock, until};

/// How often attributes are asked for again that this client has changed meanwhile.
const ASKED_MAX: u32 = 8;

impl InodeState {
    fn cached(&self) -> Option<Attr> {
        let attr = self.attr.filter(|_| self.meta_known && !self.is_given())?;
        let wanted = wanted(&attr);
        let size = !wanted.intersects(Ibits::DATA) || self.size_known;
        (size && self.covers(wanted)).then_some(attr)
    }

    /// What the kernel may keep of what it is told now.
    pub(crate) fn tell(&mut self) -> Option<Attr> {
        let attr = self.cached()?;
        self.told = true;
        Some(attr)
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
            let mut state = lock(&inode.state);
            if let Some(attr) = state.cached() {
                self.count(Verb::LockHit);
                return Ok(Known { attr, held: state.tell().is_some() });
            }
        }
        if let Some(attr) = self.known_given(&inode).await? {
            return Ok(Client::unheld(attr));
        }
        let want = Ibits::META.union(Ibits::DATA);
        let answer = match self.mdt(fid, MdtRequest::GetAttr { fid, want }).await {
            Ok(answer) => answer,
            // A working directory, or what was opened with `O_PATH`, may have been removed from
            // here: programs see the last of it.
            Err(errno @ (Errno::ESTALE | Errno::ENOENT)) => {
                let last = lock(&inode.state);
                let last = last.attr.filter(|attr| last.nameless && attr.nlink == 0);
                return last.map(Client::unheld).ok_or(errno);
            }
            Err(errno) => return Err(errno),
        };
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        self.know(&inode, attr, answer.stamp).await
    }

    /// The attributes as the MDT has them now, uncached, with the stamp of the request. Of what
    /// somebody writes they are as old as his last report, unless his lock is wanted as well.
    pub(crate) async fn fetch_attr(&self, fid: Fid, want: Ibits) -> Result<(Attr, u64)> {
        let request = MdtRequest::GetAttr { fid, want };
        let answer = self.mdt(fid, request).await?;
        match answer.body {
            MdtReply::Inode { attr } => Ok((attr, answer.stamp)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// The same, asked for once the MDT has heard the cancels that are on their way, with what
    /// they say of the size.
    pub(crate) async fn attr_after_cancels(
        &self,
        inode: &Inode,
        want: Ibits,
    ) -> Result<(Attr, u64)> {
        until(
            &inode.state,
            |state| &mut state.waiters,
            |state| state.cancels.is_empty().then_some(()),
        )
        .await;
        self.fetch_attr(inode.fid, want).await
    }

    /// Takes over attributes from the answer to a request sent at `stamp`, and says whether
    /// they may be cached.
    pub(crate) async fn know(&self, inode: &Arc<Inode>, attr: Attr, stamp: u64) -> Result<Known> {
        let (mut attr, mut stamp) = (attr, stamp);
        let is_given = lock(&inode.state).is_given();
        if is_given && let Some(attr) = Box::pin(self.know_given(inode, (attr, stamp))).await? {
            return Ok(Client::unheld(attr));
        }
        // Whoever writes is asked again, too: what the MDT has is older than what he said.
        let want = Ibits::META.union(Ibits::DATA);
        for _ in 0..ASKED_MAX {
            (attr, stamp) = self.settle_size(inode, (attr, stamp), want).await?;
            {
                let mut state = lock(&inode.state);
                if state.is_news(stamp) {
                    state.learn(attr, stamp);
                    let attr = state.attr.unwrap_or(attr);
                    return Ok(Known { attr, held: state.tell().is_some() });
                }
                let attr = state.with_size(attr);
                if state.size_known || attr.kind() != FileKind::Regular {
                    let newer =
                        state.attr.filter(|own| state.meta_known && own.version > attr.version);
                    return Ok(Client::unheld(newer.unwrap_or(attr)));
                }
            }
            // The MDT may have answered before it heard of what this client had written.
            (attr, stamp) = Box::pin(self.attr_after_cancels(inode, want)).await?;
        }
        Ok(Client::unheld(attr))
    }

    /// What the MDT answered about an inode that this client just changed, with a request
    /// sent at `sent`.
    ///
    /// The kernel drops an inode's attributes when the call that changed it returns, but an
    /// answer with older ones may still be on its way there. After it was told to forget them
    /// it does not believe that answer either (docs/decisions/0001-kernel-coherence.md). Nor does
    /// it once it got newer ones, as it does with the answer to any change of a file that says
    /// how it is now.
    pub(crate) async fn own_change(&self, inode: &Inode, attr: Option<Attr>, sent: u64) {
        self.note_change(inode, attr, sent, false).await;
    }

    /// The same of a change of size or times.
    pub(crate) async fn own_data_change(&self, inode: &Inode, attr: Attr, sent: u64) {
        self.note_change(inode, Some(attr), sent, true).await;
    }

    async fn note_change(&self, inode: &Inode, attr: Option<Attr>, sent: u64, data: bool) {
        let now = self.stamp();
        let told = inode.update(|state| {
            // It hears no answer that nobody waits for.
            let is_told = attr.is_some_and(|attr| !attr.is_dir()) && !patience::is_over();
            state.changed(attr, (sent, now), data);
            !is_told && core::mem::take(&mut state.told)
        });
        if told {
            // It waits for nothing, and the kernel knows the inode that it changes.
            self.port.invalidate(KernelInval::Attr(inode.fid.ino())).await;
        }
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As `chmod`, `chown`, `truncate` and `utimensat`.
    pub async fn setattr(self: &Arc<Client>, fid: Fid, set: SetAttr, cred: Cred) -> Result<Known> {
        self.setattr_through(fid, None, set, cred).await
    }

    /// The same through an open file, whose group it may belong to, if one is named.
    ///
    /// # Errors
    /// As [`Client::setattr`]; `EIO` if the MDT has forgotten that it is open.
    pub async fn setattr_through(
        self: &Arc<Client>,
        fid: Fid,
        handle: Option<u64>,
        set: SetAttr,
        cred: Cred,
    ) -> Result<Known> {
        let inode = self.inode(fid);
        let file = handle.map(|handle| self.file(handle)).transpose()?;
        let file = file.filter(|file| file.inode.fid == fid);
        // The size, and times that a writer would otherwise report over, are changed under
        // the data lock.
        let data = set.size.is_some() || set.mtime.is_some() || set.atime.is_some();
        let kind = lock(&inode.state).attr.map(|attr| attr.kind());
        let kind = match kind {
            Some(kind) => kind,
            None => self.fetch_attr(fid, Ibits::NONE).await?.0.kind(),
        };
        let (mut used, mut setting, mut cutting, mut looking) = (None, None, None, None);
        if data && kind == FileKind::Regular {
            if set.size.is_none() {
                // Before the lock is in use: what the kernel writes then wants it, too, and with
                // each page would meet that others wait for it.
                self.flush_for(&inode, set.mtime).await;
            }
            used = Some(match &file {
                Some(file) => self.data_for(file, Access::Write, None).await?,
                None => self.use_data(&inode, Access::Write, None).await?,
            });
            setting = self.setting(&inode);
            if set.size.is_some() {
                cutting = Some(Cutting::begin(self, &inode).await?);
            }
            // What is told of here is not changed by what was written before.
            looking = Some(self.settle(&inode).await?);
            self.tell_size_with(&inode, set.size.is_some()).await?;
        }
        // What the object had before must not be told behind what is set now.
        let turn = match used.is_some() && lock(&inode.state).is_given() {
            true => Some(self.turn_to_report(&inode, cutting.is_some()).await?),
            false => None,
        };
        let request = MdtRequest::SetAttr { fid, set, cred };
        let in_use = used.is_some();
        let answer = self.mdt_unless_it_runs(fid, request, &|| in_use).await?;
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        let sent = answer.stamp;
        if data {
            // The MDT has changed it, whatever becomes of the object.
            let done = to_the_end(self.changed_given(&inode, &set, &attr)).await;
            self.own_data_change(&inode, attr, sent).await;
            done?;
        } else {
            self.own_change(&inode, Some(attr), sent).await;
        }
        drop(turn);
        drop(looking);
        drop(cutting);
        drop(setting);
        drop(used);
        {
            let mut state = lock(&inode.state);
            if let Some(attr) = state.cached() {
                return Ok(Known { attr, held: state.tell().is_some() });
            }
        }
        self.know(&inode, attr, sent).await
    }

    /// What was stored through a mapping before the mtime is set must not set it afterwards.
    async fn flush_for(&self, inode: &Inode, mtime: Option<TimeSet>) {
        let stored = lock(&inode.state).map_opens > 0;
        if stored && matches!(mtime, Some(TimeSet::At(_))) {
            // The kernel writes what is dirty before it drops it.
            self.port.invalidate(KernelInval::Data(inode.fid.ino())).await;
        }
    }

    /// Tells the MDT what this client has written, keeping the lock.
    pub(crate) async fn tell_size(self: &Arc<Client>, inode: &Arc<Inode>) -> Result<()> {
        self.tell_size_with(inode, false).await
    }

    /// The same; with `cutting` by one who keeps others from cutting the file, and holds the lock.
    pub(crate) async fn tell_size_with(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        cutting: bool,
    ) -> Result<()> {
        let fid = inode.fid;
        let era = self.era();
        let looking = self.settle(inode).await?;
        if lock(&inode.state).reporting {
            // A close, perhaps, for which nobody waited so far.
            self.port.hurry();
        }
        let given = lock(&inode.state).is_given();
        let report = match given {
            true => self.given_report(inode, cutting).await?,
            false => inode.next_report().await?,
        };
        let Some(report) = report else { return Ok(()) };
        let tell = MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
        let told = self.mdt_in(era, fid, tell).await;
        self.reported(inode, report, told.is_ok());
        drop(looking);
        told.map(|_| ())
    }

    /// A report of the size has arrived, or is to be made again.
    pub(crate) fn reported(&self, inode: &Inode, report: SizeReport, arrived: bool) {
        let now = self.stamp();
        inode.update(|state| {
            state.reported(report, arrived, now);
            state.reported_given(arrived);
        });
    }
}
