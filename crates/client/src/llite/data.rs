//! Reading and writing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use sateen_types::{Errno, Fid, Result};
use sateen_wire::{Ibits, MdtReply, MdtRequest};

use crate::client::Client;
use crate::dirty::Write;
use crate::inode::{Inode, InodeState};
use crate::llite::files::File;
use crate::locks::{Access, DataUse, Range, Wanted};
use crate::osc::Passage;
use crate::outsiders::Pauses;
use crate::patience::{self, to_the_end};
use crate::stats::Verb;
use crate::sync::{lock, until};
use crate::unstable::Barred;

/// Largest file: what fits into an `off_t`.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// To so many other places a file goes at most while its first write finds no room.
const MOVES_MAX: u32 = 8;
/// That an OST is full is told so often at most, where it moves no file: once a second.
const TELL_AGAIN_NS: u64 = 1_000_000_000;

/// What has come of a write under a shared lock.
enum Shared {
    Done(usize),
    /// The file is being cut: once more when it is.
    Later,
    /// It has to be done under a lock that nobody else has.
    Alone,
}

/// A write that did not happen.
struct Refused {
    errno: Errno,
    /// The OST that had no room for it, and the generation of the layout that it went by, if nothing
    /// was done anywhere.
    full: Option<(u32, u32)>,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused { errno, full: None }
    }
}

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

    /// The same for one who must not wait; `None` if the file is being emptied.
    ///
    /// # Errors
    /// `EINTR` because the file is being closed.
    fn begin_now(file: &'a File) -> Result<Option<Writing<'a>>> {
        let mut state = lock(&file.inode.state);
        if state.emptying {
            return Ok(None);
        }
        if !file.writes.begin() {
            return Err(Errno::EINTR);
        }
        state.writing += 1;
        Ok(Some(Writing(file)))
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
    /// One has ended.
    const WROTE: u32 = 1 << 30;

    /// False if no more may begin.
    fn begin(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        if now & Writes::CLOSED == 0 {
            self.0.store(now + 1, Ordering::Relaxed);
        }
        now & Writes::CLOSED == 0
    }

    fn end(&self) {
        self.0.store((self.0.load(Ordering::Relaxed) - 1) | Writes::WROTE, Ordering::Relaxed);
    }

    fn has_any_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Writes::WROTE != 0
    }

    /// None begins from now on; whether all have ended.
    fn close(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed) | Writes::CLOSED;
        self.0.store(now, Ordering::Relaxed);
        now & !Writes::WROTE == Writes::CLOSED
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
pub(crate) struct Cutting<'a> {
    inode: &'a Inode,
    /// Nothing is written again behind the cut.
    barred: Option<Barred<'a>>,
}

impl<'a> Cutting<'a> {
    /// Waits until nobody else is cutting it, and for the writes under way.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn begin(client: &'a Client, inode: &'a Inode) -> Result<Cutting<'a>> {
        let begin = |state: &mut InodeState| {
            state.emptying = true;
            state.drop_ahead();
        };
        unless_emptying(client, inode, begin).await?;
        let mut cutting = Cutting { inode, barred: None };
        writes_ended(inode).await?;
        // As long as nobody begins to write nothing is kept, either.
        drop(client.settle(inode).await?);
        cutting.barred = client.bar(inode).await?;
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
        drop(self.barred.take());
        self.inode.update(|state| state.emptying = false);
    }
}

/// What of these bytes may lie in a file, from here on.
///
/// # Errors
/// `EFBIG` if none of them may.
fn within_a_file(offset: u64, data: Bytes) -> Result<Bytes> {
    let room = FILE_BYTES_MAX.saturating_sub(offset);
    if room == 0 && !data.is_empty() {
        return Err(Errno::EFBIG);
    }
    Ok(data.slice(..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))))
}

/// The right to append to an inode; given back on drop.
struct Turn<'a>(&'a Inode);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.appending = false);
    }
}

impl Client {
    /// Reads up to `len` bytes at `offset` into `buffer`; short at the end of the file. The kernel may
    /// keep them as pages.
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
        let range = Some((offset, u64::from(len)));
        let used = self.data_for(&file, Access::Read, range).await?;
        self.read_under(&file, used, (offset, len), buffer).await
    }

    /// The same for a reader of whose bytes nothing is kept anywhere: they go past the kernel's pages.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn read_past_cache(
        self: &Arc<Client>,
        handle: u64,
        offset: u64,
        len: u32,
        mut buffer: BytesMut,
    ) -> Result<BytesMut> {
        let file = self.file(handle)?;
        let inode = &file.inode;
        let range = (offset, u64::from(len));
        let access = match self.access_for(&file, Some(range)) {
            Access::Share => Access::Look,
            _ => Access::Read,
        };
        let used = self.data_for(&file, access, Some(range)).await?;
        if !used.is_shared() || used.is_group() {
            return self.read_under(&file, used, (offset, len), buffer).await;
        }
        let is_whole;
        (buffer, is_whole) = self.look_at(&file, &used, range, buffer).await?;
        drop(used);
        if is_whole {
            self.verbs.moved(Verb::Read, range.1);
            return Ok(buffer);
        }
        // Where the file ends only those know who write it.
        let used = self.use_data(inode, Access::Read, Some(range)).await?;
        self.read_under(&file, used, (offset, len), buffer).await
    }

    /// Reads one piece under a shared lock that is in use, if all of it is there. The OST does that in
    /// order with what others write there, so that nothing else needs to be known.
    async fn look_at(
        &self,
        file: &File,
        used: &DataUse,
        range: (u64, u64),
        buffer: BytesMut,
    ) -> Result<(BytesMut, bool)> {
        let inode = &file.inode;
        let Some(layout) = self.layout_of(inode).await? else { return Ok((buffer, false)) };
        if !self.is_one_piece(&layout, range) {
            return Ok((buffer, false));
        }
        let into = (buffer, file.how.direct);
        let (buffer, is_whole) = self.read_piece(inode.fid, &layout, range, into).await?;
        let now = self.port.now().wall();
        let mut state = lock(&inode.state);
        if !used.is_there(&state) {
            // The MDT has forgotten this client, and others may have written meanwhile.
            return Err(Errno::EIO);
        }
        if is_whole {
            state.looked_at(file.how.atime, now);
        }
        drop(state);
        Ok((buffer, is_whole))
    }

    /// The lock for one read or write through an open file: its group's, if it is a member of one.
    pub(crate) async fn data_for(
        self: &Arc<Client>,
        file: &File,
        access: Access,
        range: Range,
    ) -> Result<DataUse> {
        self.data_after(file, Wanted::of(access, range), &mut Pauses::default()).await
    }

    /// The same, with these pauses while a group has the file.
    async fn data_after(
        self: &Arc<Client>,
        file: &File,
        wanted: Wanted,
        pauses: &mut Pauses,
    ) -> Result<DataUse> {
        match file.group.use_lock(&file.inode)? {
            Some(used) => Ok(used),
            None => self.use_data_after(&file.inode, wanted, pauses).await,
        }
    }

    /// Reads under a group's lock that is in use: only the objects know what is there.
    async fn read_in_group(
        &self,
        file: &File,
        used: DataUse,
        (offset, len): (u64, u64),
        mut buffer: BytesMut,
    ) -> Result<BytesMut> {
        let inode = &file.inode;
        let layout = self.layout_of(inode).await?;
        let mut is_whole = false;
        if let Some(layout) = &layout {
            let into = (buffer, file.how.direct);
            (buffer, is_whole) = self.read_pieces(inode.fid, layout, (offset, len), into).await?;
        }
        let mut found = len;
        if !is_whole {
            let size = self.size_in_group(inode).await?;
            found = len.min(size.saturating_sub(offset));
            match &layout {
                Some(layout) if found > 0 => {
                    let into = (buffer, file.how.direct);
                    buffer = self.read_stripes(inode.fid, layout, (offset, found), into).await?;
                }
                _ => buffer.resize(buffer.len() + found as usize, 0),
            }
        }
        let now = self.port.now().wall();
        {
            let mut state = lock(&inode.state);
            if !used.is_there(&state) {
                // The MDT has forgotten this client, and others may have written meanwhile.
                return Err(Errno::EIO);
            }
            state.looked_at(file.how.atime, now);
        }
        drop(used);
        self.verbs.moved(Verb::Read, found);
        Ok(buffer)
    }

    /// Reads under a lock that is in use and keeps writers away.
    async fn read_under(
        self: &Arc<Client>,
        file: &File,
        used: DataUse,
        (offset, len): (u64, u32),
        mut buffer: BytesMut,
    ) -> Result<BytesMut> {
        let inode = &file.inode;
        if used.is_group() {
            let range = (offset, u64::from(len));
            return Box::pin(self.read_in_group(file, used, range, buffer)).await;
        }
        let size = self.size_now(inode, &used).await?;
        // Also at the end of the file: it was asked for.
        let now = self.port.now().wall();
        // Nobody waits for that.
        lock(&inode.state).accessed(file.how.atime, now);
        let len = u64::from(len).min(size.saturating_sub(offset));
        if len > 0 && self.read_kept(inode, (offset, len), &mut buffer) {
            self.verbs.moved(Verb::Read, len);
            return Ok(buffer);
        }
        if len == 0 {
            return Ok(buffer);
        }
        if self.read_ahead(file, &used, ((offset, len), size), &mut buffer).await {
            self.verbs.moved(Verb::Read, len);
            return Ok(buffer);
        }
        let looking = self.settle_range(inode, (offset, len)).await?;
        let buffer = match self.layout_of(inode).await? {
            Some(layout) => {
                let begun = self.reads_ahead(file).then(|| self.port.now());
                let keeping = self.keep_clean(file, &used, ((offset, len), size));
                let into = (buffer, file.how.direct);
                let read = self.read_stripes(inode.fid, &layout, (offset, len), into).await?;
                if let Some(begun) = begun {
                    self.read_ahead
                        .took(self.port.now().mono_ns.saturating_sub(begun.mono_ns), len);
                }
                if let Some(keeping) = keeping {
                    let at = read.len().checked_sub(len as usize);
                    if let Some(bytes) = at.and_then(|at| read.get(at..)) {
                        keeping.came(bytes);
                    }
                }
                read
            }
            None => {
                buffer.resize(len as usize, 0);
                buffer
            }
        };
        drop(looking);
        drop(used);
        self.verbs.moved(Verb::Read, len);
        Ok(buffer)
    }

    /// The size, while a data lock is in use.
    pub(crate) async fn size_now(&self, inode: &Inode, used: &DataUse) -> Result<u64> {
        if used.is_group() {
            return Box::pin(self.size_in_group(inode)).await;
        }
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
            if let Some(size) = self.given_size(inode).await? {
                return Ok(size);
            }
            // Nobody else writes.
            let asked = Box::pin(self.attr_after_cancels(inode, Ibits::NONE)).await?;
            let (attr, stamp) = self.settle_size(inode, asked, Ibits::NONE).await?;
            lock(&inode.state).learn(attr, stamp);
        }
    }

    /// Writes all of `data`, or as much as there was room for. With `O_APPEND` the offset is
    /// not looked at. If there is no room for the first write of a file, and nobody said where it
    /// is to lie, it goes where there is some.
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
        self.write_for(handle, (offset, data), (append, false)).await
    }

    /// Writes what was stored through a mapping, of which the kernel has the pages.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn write_pages(
        self: &Arc<Client>,
        handle: u64,
        offset: u64,
        data: Bytes,
    ) -> Result<usize> {
        self.write_for(handle, (offset, data), (false, true)).await
    }

    async fn write_for(
        self: &Arc<Client>,
        handle: u64,
        (offset, data): (u64, Bytes),
        (append, pages): (bool, bool),
    ) -> Result<usize> {
        let era = self.era();
        let file = self.file(handle)?;
        // Where an append will lie is not known before there is a lock.
        let range = (!append).then_some((offset, data.len() as u64));
        let mut wanted = self.wanted_for(&file, range, pages);
        // What the kernel writes of its pages would be lost if it were refused.
        let mut pauses = if pages { Pauses::uncounted() } else { Pauses::default() };
        let mut used = self.data_after(&file, wanted, &mut pauses).await?;
        let at = (!append).then_some(offset);
        let mut moves = 0;
        let done = loop {
            if used.is_group() {
                let write = self.write_in_group(&file, &used, (at, data.clone()), era);
                if let Some(done) = Box::pin(write).await? {
                    break done;
                }
                drop(used);
                unless_emptying(self, &file.inode, |_| ()).await?;
                used = self.data_after(&file, wanted, &mut pauses).await?;
                continue;
            }
            if used.is_shared() {
                match self.write_shared(&file, &used, (offset, data.clone()), era).await? {
                    Shared::Done(done) => break done,
                    Shared::Later => {}
                    Shared::Alone => wanted = Wanted::of(Access::Write, range),
                }
                // Whoever cuts the file may wait for this lock.
                drop(used);
                unless_emptying(self, &file.inode, |_| ()).await?;
                used = self.data_after(&file, wanted, &mut pauses).await?;
                continue;
            }
            let written = self.write_once(&file, &used, (at, data.clone()), era).await;
            let Refused { errno, full } = match written {
                Ok(done) => break done,
                Err(refused) => refused,
            };
            let full = full.filter(|_| moves < MOVES_MAX);
            let moved = match full {
                Some(full) => Box::pin(self.move_file(&file.inode, full, era)).await?,
                None => false,
            };
            if !moved {
                return Err(errno);
            }
            moves += 1;
        };
        drop(used);
        if done == 0 {
            return Ok(0);
        }
        self.verbs.moved(Verb::Write, done as u64);
        if file.how.sync {
            Box::pin(self.sync_file(&file)).await?;
        }
        Ok(done)
    }

    /// What a write needs of a lock. One that is a record among others at the same distance would best have
    /// one for all of them, and one that goes on from the last one a range that is free. What the kernel
    /// writes of its pages says nothing of that.
    fn wanted_for(&self, file: &File, range: Range, pages: bool) -> Wanted {
        let access = self.access_for(file, range);
        let whole = Wanted::of(access, range);
        let Some((offset, len)) = range.filter(|_| !pages) else { return whole };
        let strides = {
            let mut strides = lock(&file.strides);
            strides.write(offset, len);
            *strides
        };
        let comb = strides.part((offset, len), false);
        if access == Access::Write || comb.is_none() {
            return whole;
        }
        let inode = &file.inode;
        let gives_back = {
            let state = lock(&inode.state);
            // Who may write there, and beside nobody, asks for nothing.
            if state.allows(&Wanted { apart: true, ..whole }) {
                return whole;
            }
            // What lies in several objects is asked for apart from a shared lock, which goes for it.
            access == Access::Put && state.is_sharing()
        };
        if !self.may_ask_for_parts(inode, gives_back) {
            return whole;
        }
        let apart = strides.part((offset, len), true).is_some();
        let apart = apart && self.may_ask_for_parts(inode, true);
        Wanted { comb, apart, ..whole }
    }

    /// How a write has to be allowed. What goes to several objects would be torn by another such write:
    /// each OST would put the two in an order of its own. So would a read of several objects. Within a part
    /// nobody else writes or reads.
    fn access_for(&self, file: &File, range: Range) -> Access {
        let Some((offset, len)) = range.filter(|(_, len)| *len > 0) else { return Access::Write };
        if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Access::Write;
        }
        let layout = {
            let state = lock(&file.inode.state);
            if state.is_given() {
                return Access::Write;
            }
            state.layout.clone()
        };
        let shares = layout.is_some_and(|layout| self.is_one_piece(&layout, (offset, len)));
        if shares { Access::Share } else { Access::Put }
    }

    /// Writes under a shared lock that is in use: one piece, which the OST does in order with what others
    /// write there, or within a part, where nobody else writes. So nothing else needs to be known, and what
    /// is written within a part may be kept.
    async fn write_shared(
        self: &Arc<Client>,
        file: &File,
        used: &DataUse,
        (offset, data): (u64, Bytes),
        era: u64,
    ) -> Result<Shared> {
        let inode = &file.inode;
        let Some(writing) = Writing::begin_now(file)? else { return Ok(Shared::Later) };
        if lock(&inode.state).is_given() {
            return Ok(Shared::Alone);
        }
        self.recorded(inode).await?;
        let len = data.len() as u64;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        let in_part = used.is_part();
        if !in_part && !self.is_one_piece(&layout, (offset, len)) {
            return Ok(Shared::Alone);
        }
        self.changes(inode, (offset, len));
        let mut looking = None;
        if in_part {
            let mtime = self.port.now().wall();
            let write = Write { offset, data: &data, layout: &layout, era, mtime, in_part };
            if self.is_worth_keeping(file) && self.kept(inode, |s| used.is_there(s), write).await? {
                return Ok(Shared::Done(data.len()));
            }
            looking = self.settle_for_write(inode).await?;
        }
        let by = Passage { era, direct: file.how.direct };
        let (done, end) = self.write_stripes(inode, &layout, offset, data, by).await;
        drop(looking);
        if let Some(end) = end.filter(|_| era == self.era()) {
            let mtime = self.port.now().wall();
            writing.end(|state| {
                if !in_part || used.is_there(state) {
                    state.wrote_shared(end, end.saturating_sub(offset), mtime);
                }
            });
        } else {
            drop(writing);
        }
        match done {
            // Nothing was done: perhaps the file can go where there is room, if nobody shares it.
            Err(Errno::ENOSPC) if end.is_none() => Ok(Shared::Alone),
            done => done.map(Shared::Done),
        }
    }

    /// Whether writes through an open are to be kept, if they can be.
    fn is_worth_keeping(&self, file: &File) -> bool {
        let is_worth_it =
            || !self.osts_are_here.load(Ordering::Relaxed) || file.writes.has_any_ended();
        file.keeps && is_worth_it()
    }

    /// Writes under a group's lock that is in use, in however many pieces: members see to it that theirs
    /// do not overlap. At the end of the file, as the objects have it, if no offset is named. `None` if
    /// the file is being cut: once more when it is.
    async fn write_in_group(
        &self,
        file: &File,
        used: &DataUse,
        (at, data): (Option<u64>, Bytes),
        era: u64,
    ) -> Result<Option<usize>> {
        let inode = &file.inode;
        let Some(writing) = Writing::begin_now(file)? else { return Ok(None) };
        let turn = if at.is_none() { Some(self.turn(inode).await?) } else { None };
        let offset = match at {
            Some(offset) => offset,
            None => self.size_in_group(inode).await?,
        };
        let data = within_a_file(offset, data)?;
        if data.is_empty() {
            return Ok(Some(0));
        }
        self.recorded(inode).await?;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        self.changes(inode, (offset, data.len() as u64));
        let by = Passage { era, direct: file.how.direct };
        let (done, end) = self.write_stripes(inode, &layout, offset, data, by).await;
        drop(turn);
        if let Some(end) = end.filter(|_| era == self.era()) {
            let mtime = self.port.now().wall();
            writing.end(|state| {
                if used.is_there(state) {
                    state.wrote_shared(end, end.saturating_sub(offset), mtime);
                }
            });
        } else {
            drop(writing);
        }
        done.map(Some)
    }

    /// The same under a lock that is in use, by the layout that the file has now; at the end of the
    /// file if no offset is named.
    async fn write_once(
        self: &Arc<Client>,
        file: &File,
        used: &DataUse,
        (at, data): (Option<u64>, Bytes),
        era: u64,
    ) -> core::result::Result<usize, Refused> {
        let inode = &file.inode;
        let writing = Writing::begin(self, file).await?;
        if lock(&inode.state).is_given() {
            return Box::pin(self.write_given(inode, (at, data), era)).await;
        }
        let size = self.size_now(inode, used).await?;
        let turn = if at.is_none() { Some(self.turn(inode).await?) } else { None };
        let now = || lock(&inode.state).attr.map_or(size, |attr| attr.size);
        let offset = at.unwrap_or_else(now);
        let data = within_a_file(offset, data)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.recorded(inode).await?;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        self.changes(inode, (offset, data.len() as u64));
        if self.is_worth_keeping(file) {
            let mtime = self.port.now().wall();
            let in_part = false;
            let write = Write { offset, data: &data, layout: &layout, era, mtime, in_part };
            if self.kept(inode, |state| used.is_there(state), write).await? {
                return Ok(data.len());
            }
        }
        let looking = self.settle_for_write(inode).await?;
        let by = Passage { era, direct: file.how.direct };
        let (done, end) = self.write_stripes(inode, &layout, offset, data, by).await;
        drop(looking);
        drop(turn);
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
        done.map_err(|errno| {
            let first = layout.chunks(offset, 1).next().filter(|_| errno == Errno::ENOSPC);
            let full = first.filter(|_| end.is_none()).map(|chunk| (chunk.ost, layout.generation));
            Refused { errno, full }
        })
    }

    /// The same to a file that the kernel has. Where it ends, only the object knows, and also when it was
    /// written.
    async fn write_given(
        &self,
        inode: &Inode,
        (at, data): (Option<u64>, Bytes),
        era: u64,
    ) -> core::result::Result<usize, Refused> {
        let data = within_a_file(at.unwrap_or_default(), data)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.recorded(inode).await?;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        let Some(offset) = at else {
            return Ok(self.append_given(inode, &layout, data, era).await?);
        };
        // The kernel has pages of it.
        let by = Passage { era, direct: false };
        Ok(self.write_stripes(inode, &layout, offset, data, by).await.0?)
    }

    /// A write found no room on this OST, by a layout of this generation: tells the MDT, and asks for
    /// another layout if the file was never written. Whether it has another now.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    async fn move_file(&self, inode: &Inode, (ost, old): (u32, u32), era: u64) -> Result<bool> {
        // Nobody writes by the old one meanwhile.
        let cutting = Cutting::begin(self, inode).await?;
        let unwritten = {
            let state = lock(&inode.state);
            if state.layout.as_ref().is_some_and(|layout| layout.generation > old) {
                return Ok(true);
            }
            // What the MDT is about to hear it may not know yet.
            let told = state.size_known && state.cancels.is_empty() && !state.reporting;
            told && !state.is_unsaved() && !self.unsynced.has(inode.fid)
        };
        if !unwritten && !self.may_tell_of_full(ost) {
            return Ok(false);
        }
        // If it were given up, it could be executed while others write by the old one.
        let request = MdtRequest::NoRoom { fid: inode.fid, ost, unwritten };
        let answer = to_the_end(self.mdt_in(era, inode.fid, request)).await;
        let moved = match answer {
            Ok(answer) => {
                let MdtReply::Opened { attr, layout: Some(layout) } = answer.body else {
                    return Err(Errno::EPROTO);
                };
                let moved = layout.generation > old;
                inode.update(|state| {
                    state.layout = Some(layout);
                    if moved {
                        state.will_write(attr.version);
                    }
                });
                moved
            }
            Err(_) => {
                // It may have been executed.
                lock(&inode.state).layout = None;
                false
            }
        };
        drop(cutting);
        Ok(moved)
    }

    /// Whether it is time to tell the MDT again that an OST is full, for nothing but that.
    fn may_tell_of_full(&self, ost: u32) -> bool {
        let now_ns = self.port.now().mono_ns;
        let mut told = lock(&self.told_full);
        let may = told.get(&ost).is_none_or(|last| now_ns.saturating_sub(*last) >= TELL_AGAIN_NS);
        if may {
            told.insert(ost, now_ns);
        }
        may
    }

    /// Says that an OST had no room for a write to an open file, as a write does that finds none.
    /// Whether the file lies elsewhere now.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn found_no_room(self: &Arc<Client>, handle: u64, ost: u32) -> Result<bool> {
        let era = self.era();
        let file = self.file(handle)?;
        let used = self.use_data(&file.inode, Access::Write, None).await?;
        if used.is_group() {
            // Others write it, too.
            return Ok(false);
        }
        self.size_now(&file.inode, &used).await?;
        let layout = self.layout_of(&file.inode).await?.ok_or(Errno::EIO)?;
        let moved = self.move_file(&file.inode, (ost, layout.generation), era).await;
        drop(used);
        moved
    }

    /// Waits until the MDT has durably noted that the file may have objects.
    pub(crate) async fn recorded(&self, inode: &Inode) -> Result<()> {
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
        let inode = self.inodes.find(fid);
        inode.is_some_and(|inode| {
            let state = lock(&inode.state);
            let known = state.attr.filter(|_| state.meta_known);
            known.is_none_or(|attr| attr.mode & 0o6000 != 0)
        })
    }
}
