//! Reading and writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use sateen_types::{Errno, Fid, Result};

use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::llite::files::File;
use crate::locks::{Access, DataUse};
use crate::patience;
use crate::stats::Verb;
use crate::sync::{lock, until};

/// Largest file: what fits into an `off_t`.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Waits until nobody is cutting a file, and begins something at that moment.
///
/// # Errors
/// `EINTR` if nobody waits any more.
async fn unless_emptying(
    client: &Client,
    inode: &Inode,
    mut begin: impl FnMut(&mut InodeState),
) -> Result<()> {
    let emptying = lock(&inode.state).emptying;
    if emptying {
        // Whoever does it may wait for a slot, and has seen no lock in use: the one that is in use
        // here may have come since.
        client.look_for_slots(inode.fid);
    }
    until(
        &inode.state,
        |state| &mut state.waiters,
        |state| {
            if state.emptying {
                return patience::is_over().then_some(Err(Errno::EINTR));
            }
            begin(state);
            Some(Ok(()))
        },
    )
    .await
}

/// A write under way; over on drop.
pub(super) struct Writing<'a>(&'a File);

impl<'a> Writing<'a> {
    /// Waits until the file is not being emptied.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more, also because the file is being closed.
    pub(super) async fn begin(client: &Client, file: &'a File) -> Result<Writing<'a>> {
        let mut closed = false;
        let begin = |state: &mut InodeState| {
            closed = !file.writes.begin();
            state.writing += u32::from(!closed);
        };
        unless_emptying(client, &file.inode, begin).await?;
        if closed { Err(Errno::EINTR) } else { Ok(Writing(file)) }
    }

    /// It is over, and has changed this.
    fn end(self, change: impl FnOnce(&mut InodeState)) {
        self.over(change);
        // One lock does for both; the drop would count it twice.
        core::mem::forget(self);
    }

    fn over(&self, change: impl FnOnce(&mut InodeState)) {
        self.0.inode.update(|state| {
            change(state);
            state.writing = state.writing.saturating_sub(1);
            self.0.writes.end();
        });
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.over(|_| ());
    }
}

/// The writes through one open that are under way, until it is closed; changed under its inode's
/// lock. Calls that were given up go on all the same, also when the kernel has closed the file.
#[derive(Debug, Default)]
pub(crate) struct Writes(AtomicU32);

impl Writes {
    const CLOSED: u32 = 1 << 31;

    /// False if no more may begin.
    fn begin(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        if now & Writes::CLOSED == 0 {
            self.0.store(now + 1, Ordering::Relaxed);
        }
        now & Writes::CLOSED == 0
    }

    fn end(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// None begins from now on; whether all have ended.
    fn close(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed) | Writes::CLOSED;
        self.0.store(now, Ordering::Relaxed);
        now == Writes::CLOSED
    }
}

/// Waits for the writes through an open that is being closed: what the MDT takes for closed nobody
/// writes to any more, and so its objects can be removed for good.
pub(super) async fn file_writes_ended(file: &File) {
    let ended = |_: &mut InodeState| file.writes.close().then_some(());
    until(&file.inode.state, |state| &mut state.waiters, ended).await;
}

/// Nobody writes to a file while it is being cut; over on drop. A kernel lets a truncate wait for
/// writes and writes for a truncate, but for calls that were given up and go on all the same. What
/// a write that ends behind the cut says of the size would undo it.
pub(super) struct Cutting<'a>(&'a Inode);

impl<'a> Cutting<'a> {
    /// Waits until nobody else is cutting it, and for the writes under way.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(super) async fn begin(client: &Client, inode: &'a Inode) -> Result<Cutting<'a>> {
        unless_emptying(client, inode, |state| state.emptying = true).await?;
        let cutting = Cutting(inode);
        writes_ended(inode).await?;
        Ok(cutting)
    }
}

/// Waits for the writes under way, when nobody begins another.
///
/// # Errors
/// `EINTR` if nobody waits any more: what was to come behind them would come long after.
pub(super) async fn writes_ended(inode: &Inode) -> Result<()> {
    until(
        &inode.state,
        |state| &mut state.waiters,
        |state| match state.writing {
            _ if patience::is_over() => Some(Err(Errno::EINTR)),
            0 => Some(Ok(())),
            _ => None,
        },
    )
    .await
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.emptying = false);
    }
}

/// The right to append to an inode; given back on drop.
struct Turn<'a>(&'a Inode);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.appending = false);
    }
}

impl Client {
    /// Reads up to `len` bytes at `offset` into `buffer`; short at the end of the file.
    ///
    /// # Errors
    /// `EBADF` for a handle that is not open for reading; the OSTs'.
    pub async fn read(
        self: &Arc<Client>,
        handle: u64,
        offset: u64,
        len: u32,
        buffer: BytesMut,
    ) -> Result<BytesMut> {
        let file = self.file(handle)?;
        let inode = &file.inode;
        let used = self.use_data(inode, Access::Read, Some((offset, u64::from(len)))).await?;
        let size = self.size_now(inode, &used).await?;
        // Also at the end of the file: it was asked for.
        let now = self.port.now().wall();
        // Nobody waits for that.
        lock(&inode.state).accessed(file.how.atime, now);
        let len = u64::from(len).min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(buffer);
        }
        let buffer = match self.layout_of(inode).await? {
            Some(layout) => self.read_stripes(inode.fid, &layout, offset, len, buffer).await?,
            None => {
                let mut buffer = buffer;
                buffer.resize(len as usize, 0);
                buffer
            }
        };
        drop(used);
        self.verbs.moved(Verb::Read, len);
        Ok(buffer)
    }

    /// The size, while a data lock is in use.
    pub(super) async fn size_now(&self, inode: &Inode, used: &DataUse) -> Result<u64> {
        let mut tries = 0;
        loop {
            self.wait_to_ask_again(&mut tries).await?;
            {
                let state = lock(&inode.state);
                if !used.is_there(&state) {
                    // Nothing would be known under it any more, however often it is asked for.
                    return Err(Errno::EIO);
                }
                if let Some(attr) = state.attr.filter(|_| state.size_known) {
                    return Ok(attr.size);
                }
            }
            let asked = self.attr_after_cancels(inode).await?;
            let (attr, stamp) = self.settle_size(inode, asked).await?;
            lock(&inode.state).learn(attr, stamp);
        }
    }

    /// Writes all of `data`, or as much as there was room for. With `O_APPEND` the offset is
    /// not looked at.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, and the OSTs' if nothing was written.
    pub async fn write(
        self: &Arc<Client>,
        handle: u64,
        offset: u64,
        data: Bytes,
        append: bool,
    ) -> Result<usize> {
        let era = self.era();
        let file = self.file(handle)?;
        let inode = &file.inode;
        // Where an append will lie is not known before there is a lock.
        let range = (!append).then_some((offset, data.len() as u64));
        let used = self.use_data(inode, Access::Write, range).await?;
        let writing = Writing::begin(self, &file).await?;
        let size = self.size_now(inode, &used).await?;
        let turn = if append { Some(self.turn(inode).await?) } else { None };
        let offset = if append {
            let now = lock(&inode.state).attr.map(|attr| attr.size);
            now.unwrap_or(size)
        } else {
            offset
        };
        let room = FILE_BYTES_MAX.saturating_sub(offset);
        if room == 0 && !data.is_empty() {
            return Err(Errno::EFBIG);
        }
        let data = data.slice(..data.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        if data.is_empty() {
            return Ok(0);
        }
        self.recorded(inode).await?;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        let (done, end) = self.write_stripes(inode, &layout, offset, data, era).await;
        // Of what was written under a lock that is lost, the MDT knows that it does not know the
        // size.
        if let Some(end) = end.filter(|_| era == self.era()) {
            // Also what may have been written without an answer counts: no byte may lie beyond
            // the size, where it would come to light as the file grows. Where there was no room
            // for any, the MDT has to know that there may be objects.
            let mtime = self.port.now().wall();
            writing.end(|state| state.wrote(end, end.saturating_sub(offset), mtime));
        } else {
            drop(writing);
        }
        let done = done?;
        self.verbs.moved(Verb::Write, done as u64);
        drop(turn);
        drop(used);
        if file.how.sync {
            self.sync_file(&file).await?;
        }
        Ok(done)
    }

    /// Waits until the MDT has durably noted that the file may have objects.
    pub(super) async fn recorded(&self, inode: &Inode) -> Result<()> {
        let upto = lock(&inode.state).commit_before_write;
        if upto == 0 {
            return Ok(());
        }
        self.mdt_sync(inode.fid, upto).await?;
        inode.update(|state| {
            if state.commit_before_write == upto {
                state.commit_before_write = 0;
            }
        });
        Ok(())
    }

    /// Waits until nobody else appends.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    async fn turn<'a>(&self, inode: &'a Inode) -> Result<Turn<'a>> {
        until(
            &inode.state,
            |state| &mut state.waiters,
            |state| {
                if state.appending {
                    return patience::is_over().then_some(Err(Errno::EINTR));
                }
                state.appending = true;
                Some(Ok(()))
            },
        )
        .await?;
        Ok(Turn(inode))
    }

    /// Whether a write must take set-id bits away first.
    pub fn has_set_id(&self, fid: Fid) -> bool {
        let inode = lock(&self.inodes).all.get(&fid).cloned();
        inode.is_some_and(|inode| {
            let state = lock(&inode.state);
            let known = state.attr.filter(|_| state.meta_known);
            known.is_none_or(|attr| attr.mode & 0o6000 != 0)
        })
    }
}
