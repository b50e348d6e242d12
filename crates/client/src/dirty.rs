//! Write-behind: what programs have written, and were answered for, that OSTs do not have yet.
//!
//! A write of a file that this client holds for writing, or of a record in a part that it has
//! ([`crate::comb`]), is kept if the OSTs have promised room for it: copied, counted in what is told of the
//! size, and answered. Life of what is kept, per inode:
//! 1. It is put among the inode's [`Extents`], with the grants that it took.
//! 2. A task writes it out in rounds: full runs as soon as there are any, and everything when
//!    somebody wants that, or it is a second old. What a round has taken is on its way.
//! 3. When the answers to a round have come, the next one begins. Two rounds of an inode are never
//!    on their way at once, so no older bytes come after younger ones.
//! 4. Without anything left there is no [`Dirty`] any more.
//!
//! Whoever wants the OSTs to have what was written, or the MDT to hear of the size, holds a
//! [`Looking`] for as long as it matters: nothing is kept of the inode then, and
//! [`Client::settle`] waits until what was is written out. So a size is never told, a lock never
//! given back, and an object never looked at or cut, that something kept would have to be added
//! to: for all others this client is one whose writes take a little longer. Writing out waits for
//! OSTs and for nothing else (rule 4 of decision 0001).
//!
//! Only a read of bytes that are all kept is served from here.
//!
//! What could not be written out is gone, and every descriptor of the file hears of it once.

mod extents;
mod late;
mod overhead;
mod pace;
mod requests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::{Bytes, BytesMut};
use sateen_types::{Endpoint, Errno, Fid, Layout, Result, Timespec};
use sateen_wire::MANY;
use smallvec::SmallVec;

use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::osc::{Passage, Places};
use crate::patience::{self, to_the_end};
use crate::sync::{Side, Waiters, Woken, join_all, join_few, lock, until};
use extents::Extents;
pub(crate) use late::LateErrors;
use overhead::Overhead;
use pace::Pace;
use requests::{Pieces, Sorted};

/// What is kept is written out after this time at the latest, unless it is being already: 1 s.
const AGE_NS: u64 = 1_000_000_000;
/// With more pieces than this an inode's are written out: each takes a place among the others, and a
/// request of its own if it meets none of its object.
const EXTENTS_MAX: usize = 256;
/// Runs are not cut to less than this where little can be kept: 64 KiB.
const RUN_BYTES_MIN: u64 = 64 << 10;
/// Nor to more than this, 1 MiB: the memory of longer ones is fresh each time, at both ends, and
/// costs more than their requests.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// As long writes are not kept, 256 KiB: nothing is gained by putting them together, and many on
/// their way at once cost more memory, and more processor for it, than one after the other.
const WRITE_BYTES_MAX: u64 = 256 << 10;
/// What lies further behind in an object is not kept: its OST may say that it is too far, which the
/// write is to say. So far, 1 TiB, any disk goes that objects lie on.
const OBJECT_BYTES_MAX: u64 = 1 << 40;
/// Most bytes that can be kept for one OST: 64 GiB.
pub(crate) const DIRTY_MAX: u64 = 1 << 36;

/// How many bytes of each OST. Most writes lie on one, and take no memory for that.
type ByOst = SmallVec<[(u32, u64); 2]>;
/// The OST, and the epoch of a grant and bytes of it.
type Taken = SmallVec<[(u32, u64, u64); 2]>;

/// What is kept of one inode. See the module.
#[derive(Debug)]
pub(crate) struct Dirty {
    fid: Fid,
    /// Tells it from what is kept of the same inode later.
    id: u64,
    extents: Extents,
    /// Ranges that are on their way: offset and length.
    in_flight: Vec<(u64, u64)>,
    layout: Arc<Layout>,
    /// The era of the lock under which it was written.
    era: u64,
    granted: Granted,
    overhead: Overhead,
    /// When the first of it was kept that is not on its way.
    since_ns: u64,
    /// A task writes it out.
    is_running: bool,
    /// All of it is to be written out, and not only what is full.
    all: bool,
    client: Weak<Client>,
    inode: Weak<Inode>,
}

/// Grants that were taken for what is kept: by OST their epoch, and how many bytes.
#[derive(Debug, Default, Clone)]
struct Granted(BTreeMap<u32, (u64, u64)>);

impl Granted {
    fn add(&mut self, ost: u32, epoch: u64, bytes: u64) {
        let held = self.0.entry(ost).or_default();
        *held = if held.0 == epoch { (epoch, held.1 + bytes) } else { (epoch, bytes) };
    }

    /// So much of it as there is, if it is of this epoch.
    fn take(&mut self, ost: u32, epoch: u64, bytes: u64) -> u64 {
        let Some(held) = self.0.get_mut(&ost).filter(|held| held.0 == epoch) else { return 0 };
        let taken = bytes.min(held.1);
        held.1 -= taken;
        taken
    }
}

/// Pieces that are to be written at once.
struct Round {
    id: u64,
    pieces: Vec<(u64, BytesMut)>,
    layout: Arc<Layout>,
    era: u64,
}

/// The bytes of one OST.
#[derive(Debug, Default)]
struct OfOst {
    /// How many there may be, if that was set for this one.
    bytes_max: Option<u64>,
    bytes: u64,
    /// What they take of memory beside that.
    overhead: u64,
    pace: Pace,
}

impl OfOst {
    fn in_all(&self) -> u64 {
        self.bytes + self.overhead
    }
}

#[derive(Debug, Default)]
struct Table {
    /// How many bytes may be kept for an OST for which nothing else is set.
    bytes_max: u64,
    /// And for all those OSTs together, and how many are.
    in_all_max: u64,
    in_all: u64,
    osts: BTreeMap<u32, OfOst>,
    /// Inodes of which something is kept.
    inodes: BTreeMap<Fid, Weak<Inode>>,
    /// Files of which something could not be written out, for whoever renames one. Programs may
    /// have heard of it since.
    failed: BTreeMap<Fid, Errno>,
    /// Those who wait for room, or that all is written out.
    waiters: Waiters,
}

impl Table {
    fn bytes_max(&self, ost: u32) -> u64 {
        self.osts.get(&ost).and_then(|of_ost| of_ost.bytes_max).unwrap_or(self.bytes_max)
    }

    /// How much there may be now: no more than it takes soon.
    fn limit(&self, ost: u32) -> u64 {
        let paced = self.osts.get(&ost).and_then(|of_ost| of_ost.pace.limit());
        self.bytes_max(ost).min(paced.unwrap_or(u64::MAX))
    }

    fn come(&mut self, ost: u32, bytes: u64, overhead: u64) {
        let of_ost = self.osts.entry(ost).or_default();
        of_ost.bytes += bytes;
        of_ost.overhead += overhead;
        if of_ost.bytes_max.is_none() {
            self.in_all += bytes + overhead;
        }
    }

    fn gone(&mut self, ost: u32, bytes: u64, overhead: u64) {
        let of_ost = self.osts.entry(ost).or_default();
        let is_kept = of_ost.bytes >= bytes && of_ost.overhead >= overhead;
        assert!(is_kept, "only what is kept goes");
        of_ost.bytes -= bytes;
        of_ost.overhead -= overhead;
        if of_ost.bytes_max.is_none() {
            self.in_all -= bytes + overhead;
        }
    }

    /// Nothing is kept of an inode any more.
    fn end(&mut self, fid: Fid, overhead: Overhead) {
        overhead.end().for_each(|(ost, bytes)| self.gone(ost, 0, bytes));
        self.inodes.remove(&fid);
    }

    /// An OST has a bound of its own from now on.
    fn set_bytes_max(&mut self, ost: u32, bytes_max: u64) {
        let of_ost = self.osts.entry(ost).or_default();
        if of_ost.bytes_max.replace(bytes_max).is_none() {
            self.in_all -= of_ost.in_all();
        }
    }

    /// Whether only the bound for all counts for an OST.
    fn is_common(&self, ost: u32) -> bool {
        self.osts.get(&ost).is_none_or(|of_ost| of_ost.bytes_max.is_none())
    }

    /// So much of what is wanted is for OSTs that have one bound together.
    fn wanted_in_all(&self, wanted: &[(u32, u64)]) -> u64 {
        let common = wanted.iter().filter(|(ost, _)| self.is_common(*ost));
        common.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Whether there is room for it now, or will be.
    fn room(&self, wanted: &[(u32, u64)]) -> Room {
        let in_all = self.wanted_in_all(wanted);
        if wanted.iter().any(|(ost, bytes)| *bytes > self.limit(*ost)) || in_all > self.in_all_max {
            return Room::Never;
        }
        // What is kept for an OST goes while that takes anything; what it takes beside that may
        // wait for another one that has a part of the same file.
        let goes = |ost: &u32| self.osts.get(ost).is_some_and(|of_ost| of_ost.bytes > 0);
        let kept = |ost: &u32| self.osts.get(ost).map_or(0, OfOst::in_all);
        let mut full =
            wanted.iter().filter(|(ost, bytes)| kept(ost) + bytes > self.limit(*ost)).peekable();
        if full.peek().is_some() {
            return if full.all(|(ost, _)| goes(ost)) { Room::Later } else { Room::Never };
        }
        if in_all == 0 || self.in_all + in_all <= self.in_all_max {
            return Room::Now;
        }
        // Only what is kept for the same OSTs is sure to go while they take anything: others, of
        // which nothing is heard, may have filled what is for all.
        let comes = wanted.iter().any(|(ost, _)| self.is_common(*ost) && goes(ost));
        if comes { Room::Later } else { Room::Never }
    }
}

/// Room for a write among what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Now,
    /// When what is kept for its OSTs has been written out.
    Later,
    /// Nothing that its OSTs do makes any: it has to go to them.
    Never,
}

/// What is kept, by OST. Locked after inodes and before nothing.
#[derive(Debug, Default)]
pub(crate) struct DirtyTable {
    table: Mutex<Table>,
    /// Something may be kept, or was once.
    is_used: AtomicBool,
    /// How many writes were kept under parts.
    in_parts: AtomicU64,
}

impl DirtyTable {
    /// Changes the table; those who wait for that are to be woken when nothing is locked any more.
    fn change(&self, change: impl FnOnce(&mut Table)) -> Woken {
        let mut table = lock(&self.table);
        change(&mut table);
        table.waiters.take()
    }

    /// How many writes were kept under parts.
    pub(crate) fn kept_in_parts(&self) -> u64 {
        self.in_parts.load(Ordering::Relaxed)
    }

    /// Whether anything can be kept.
    fn is_on(&self) -> bool {
        let table = lock(&self.table);
        let mut set = table.osts.values().filter_map(|of_ost| of_ost.bytes_max);
        table.bytes_max > 0 || set.any(|bytes_max| bytes_max > 0)
    }

    fn set(&self, change: impl FnOnce(&mut Table)) {
        self.change(change).wake();
        self.is_used.fetch_or(self.is_on(), Ordering::Relaxed);
    }

    /// So many bytes are not kept any more, or so much beside them.
    fn gone(&self, ost: u32, bytes: u64, overhead: u64) {
        self.change(|table| table.gone(ost, bytes, overhead)).wake();
    }

    /// Bytes of one OST.
    pub(crate) fn bytes(&self, ost: u32) -> u64 {
        lock(&self.table).osts.get(&ost).map_or(0, |of_ost| of_ost.bytes)
    }

    /// Bytes of all OSTs.
    pub(crate) fn bytes_in_all(&self) -> u64 {
        lock(&self.table).osts.values().map(|of_ost| of_ost.bytes).sum()
    }

    pub(crate) fn bytes_max(&self, ost: u32) -> u64 {
        lock(&self.table).bytes_max(ost)
    }

    /// How many may be kept of one OST now: what is set, or what it takes soon if that is less.
    pub(crate) fn limit(&self, ost: u32) -> u64 {
        lock(&self.table).limit(ost)
    }

    /// What is written out sets out for an OST.
    fn sets_out(&self, ost: u32, now_ns: u64) {
        lock(&self.table).osts.entry(ost).or_default().pace.begins(now_ns);
    }

    /// So much of it was answered.
    fn arrived(&self, ost: u32, bytes: u64, now_ns: u64) {
        lock(&self.table).osts.entry(ost).or_default().pace.ends(bytes, now_ns);
    }

    /// Something of a file could not be written out.
    fn failed(&self, fid: Fid, errno: Errno) {
        lock(&self.table).failed.insert(fid, errno);
    }

    /// What a rename is to know of that, if it is the first to ask; or nobody needs it any more.
    pub(crate) fn take_failed(&self, fid: Fid) -> Option<Errno> {
        if self.is_used.load(Ordering::Relaxed) {
            lock(&self.table).failed.remove(&fid)
        } else {
            None
        }
    }

    fn inodes(&self) -> Vec<Arc<Inode>> {
        lock(&self.table).inodes.values().filter_map(Weak::upgrade).collect()
    }
}

/// Nothing is kept of an inode meanwhile, also of what is written; over on drop.
#[derive(Debug)]
pub(crate) struct Looking<'a>(&'a Inode);

impl Looking<'_> {
    /// Waits until what was kept is written out.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn settled(&self) -> Result<()> {
        let settled = |state: &mut InodeState| match state.dirty {
            None => Some(Ok(())),
            Some(_) => patience::is_over().then_some(Err(Errno::EINTR)),
        };
        until(&self.0.state, |state| &mut state.waiters, settled).await
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).looking -= 1;
    }
}

/// Who writes out what is kept of an inode, to be started when nothing is locked any more.
#[must_use]
struct Start(Arc<Client>, Arc<Inode>, u64);

impl Start {
    fn go(self) {
        let Start(client, inode, id) = self;
        let port = client.port.clone();
        // Whoever starts it may not be waited for any more.
        let rounds = async move { client.write_rounds(&inode, id).await };
        port.spawn(Box::pin(to_the_end(rounds)));
    }
}

impl InodeState {
    /// What is kept is to be written out: all of it, or what is full.
    fn write_out(&mut self, all: bool) -> Option<Start> {
        let dirty = self.dirty.as_mut()?;
        dirty.all |= all;
        if dirty.is_running {
            return None;
        }
        let start = Start(dirty.client.upgrade()?, dirty.inode.upgrade()?, dirty.id);
        dirty.is_running = true;
        Some(start)
    }

    /// What was on its way has been answered: what comes next, if anything does; otherwise those
    /// who wait for that, to be woken when nothing is locked any more.
    fn next_round(
        &mut self,
        id: u64,
        table: &DirtyTable,
        now_ns: u64,
    ) -> core::result::Result<Round, Woken> {
        let Some(dirty) = self.dirty.as_mut().filter(|dirty| dirty.id == id) else {
            return Err(Woken::default());
        };
        dirty.in_flight.clear();
        let pieces = if dirty.all {
            (dirty.all, dirty.since_ns) = (false, now_ns);
            dirty.overhead.leave();
            dirty.extents.take_all()
        } else {
            dirty.extents.take_full()
        };
        if !pieces.is_empty() {
            let ranges = pieces.iter().map(|(offset, bytes)| (*offset, bytes.len() as u64));
            dirty.in_flight.extend(ranges);
            return Ok(Round { id, pieces, layout: dirty.layout.clone(), era: dirty.era });
        }
        dirty.is_running = false;
        if !dirty.extents.is_empty() {
            return Err(Woken::default());
        }
        let (fid, overhead) = (dirty.fid, core::mem::take(&mut dirty.overhead));
        self.dirty = None;
        Err(table.change(|table| table.end(fid, overhead)))
    }

    /// The locks are lost, and with them what was kept under them. What is on its way fails.
    /// Those who wait for room are to be woken when nothing is locked any more.
    pub(crate) fn lose_dirty(&mut self, table: &DirtyTable) -> Woken {
        let dirty = self.rare_if_any().and_then(|rare| rare.dirty.take());
        let Some(mut dirty) = dirty else { return Woken::default() };
        self.late.add(Errno::EIO);
        table.change(|table| {
            for (offset, bytes) in dirty.extents.take_all() {
                for chunk in dirty.layout.chunks(offset, bytes.len() as u64) {
                    table.gone(chunk.ost, chunk.len, 0);
                }
            }
            table.end(dirty.fid, dirty.overhead);
            table.failed.insert(dirty.fid, Errno::EIO);
        })
    }

    /// Whether bytes of this range are kept.
    pub(crate) fn keeps(&self, offset: u64, len: u64) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| {
            let meets = |(at, bytes): &(u64, u64)| *at < offset + len && offset < at + bytes;
            dirty.extents.touches(offset, len) || dirty.in_flight.iter().any(meets)
        })
    }
}

/// What became of a write that is to be kept.
enum Keep {
    /// It is, and this is to be started.
    Kept(Option<Start>),
    /// It has to go to the OSTs.
    Through,
    /// It has to wait until something was written out.
    Full(ByOst),
    /// There is no promise that there will be room for it.
    NoGrant,
}

/// A write that may be kept.
pub(crate) struct Write<'a> {
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    pub(crate) layout: &'a Arc<Layout>,
    /// The era of the lock that it goes by.
    pub(crate) era: u64,
    pub(crate) mtime: Timespec,
    /// It goes by a part: others write elsewhere, so that the size is not known.
    pub(crate) in_part: bool,
}

impl Client {
    /// How many bytes may be kept for each OST for which nothing else was set, and for all those
    /// together.
    pub fn set_dirty_max(&self, bytes: u64, in_all: u64) {
        self.dirty.set(|table| {
            table.bytes_max = bytes.min(DIRTY_MAX);
            table.in_all_max = in_all;
        });
    }

    /// How many bytes may be kept for one OST, whatever is kept for others.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target, `ERANGE` for a number that cannot be.
    pub fn set_dirty_max_of(&self, target: Endpoint, bytes: u64) -> Result<()> {
        let Endpoint::Ost(ost) = target else { return Err(Errno::EOPNOTSUPP) };
        self.import(target).ok_or(Errno::ENOENT)?;
        if bytes > DIRTY_MAX {
            return Err(Errno::ERANGE);
        }
        self.dirty.set(|table| table.set_bytes_max(ost, bytes));
        self.write_out_all();
        Ok(())
    }

    /// Whether writes through an open of now may be kept: what holds for OSTs for which nothing else
    /// was set counts only if there is such a one. A kernel is not to ask for closes for nothing.
    pub(crate) fn may_keep_writes(&self) -> bool {
        let keeps = |ost: u32| self.dirty.bytes_max(ost) > 0;
        self.dirty.is_used.load(Ordering::Relaxed) && self.any_ost(keeps)
    }

    /// Whether anything is kept now, or was and could not be written out.
    pub(crate) fn keeps_or_lost_any(&self) -> bool {
        if !self.dirty.is_used.load(Ordering::Relaxed) {
            return false;
        }
        let table = lock(&self.dirty.table);
        !table.inodes.is_empty() || !table.failed.is_empty()
    }

    /// Nothing is kept of an inode from now on, and what is kept begins to be written out.
    pub(crate) fn look<'a>(&self, inode: &'a Inode) -> Looking<'a> {
        let start = {
            let mut state = lock(&inode.state);
            state.looking += 1;
            state.write_out(true)
        };
        let looking = Looking(inode);
        if let Some(start) = start {
            start.go();
        }
        looking
    }

    /// The same, when what was kept is written out.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn settle<'a>(&self, inode: &'a Inode) -> Result<Looking<'a>> {
        let looking = self.look(inode);
        looking.settled().await?;
        Ok(looking)
    }

    /// Reads a range behind what the buffer holds, if all of it is kept; whether it is.
    pub(crate) fn read_kept(
        &self,
        inode: &Inode,
        (offset, len): (u64, u64),
        buffer: &mut BytesMut,
    ) -> bool {
        let state = lock(&inode.state);
        let kept = state.dirty.as_ref();
        kept.is_some_and(|dirty| dirty.extents.copy_to(offset, len, buffer))
    }

    /// Settles an inode if anything is kept of this range, before it is read.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn settle_range<'a>(
        &self,
        inode: &'a Inode,
        (offset, len): (u64, u64),
    ) -> Result<Option<Looking<'a>>> {
        let keeps = lock(&inode.state).keeps(offset, len);
        if keeps { self.settle(inode).await.map(Some) } else { Ok(None) }
    }

    /// The same for a write that goes past what is kept.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn settle_for_write<'a>(
        &self,
        inode: &'a Inode,
    ) -> Result<Option<Looking<'a>>> {
        let is_used = self.dirty.is_used.load(Ordering::Relaxed);
        if is_used { self.settle(inode).await.map(Some) } else { Ok(None) }
    }

    /// Keeps a write under a lock in use, if it can be; false if it has to go to the OSTs.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn kept(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        is_there: impl Fn(&InodeState) -> bool,
        write: Write<'_>,
    ) -> Result<bool> {
        let mut asked = false;
        loop {
            match self.keep(inode, &is_there, &write) {
                Keep::Kept(start) => {
                    if let Some(start) = start {
                        start.go();
                    }
                    return Ok(true);
                }
                Keep::Through => return Ok(false),
                Keep::Full(wanted) => {
                    self.write_out_all();
                    self.dirty_room(&wanted).await?;
                }
                // The answers to what is on its way bring more.
                Keep::NoGrant if !asked => {
                    asked = true;
                    drop(self.settle(inode).await?);
                }
                Keep::NoGrant => return Ok(false),
            }
        }
    }

    /// Waits as long as there will be room to keep so much.
    async fn dirty_room(&self, wanted: &[(u32, u64)]) -> Result<()> {
        let has_room = |table: &mut Table| {
            if table.room(wanted) != Room::Later {
                return Some(Ok(()));
            }
            patience::is_over().then_some(Err(Errno::EINTR))
        };
        until(&self.dirty.table, |table| &mut table.waiters, has_room).await
    }

    fn keep(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        is_there: impl Fn(&InodeState) -> bool,
        write: &Write<'_>,
    ) -> Keep {
        let (offset, len) = (write.offset, write.data.len() as u64);
        let mut guard = lock(&inode.state);
        let state = &mut *guard;
        // One whose lock is lost would keep what nobody may write any more. After an error the OST is to
        // say at once what it says, until a program has heard.
        let known = state.size_known || write.in_part;
        let may = len < WRITE_BYTES_MAX && state.looking == 0 && known;
        let may = may && !state.late.is_unheard();
        let may = may && is_there(state);
        let fits = state.dirty.as_ref().is_none_or(|dirty| {
            dirty.era == write.era && dirty.layout.generation == write.layout.generation
        });
        if !may || !fits || write.era != self.era() {
            return Keep::Through;
        }
        let mut fresh = None;
        let dirty = match &state.dirty {
            Some(dirty) => dirty,
            None => fresh.get_or_insert(self.new_dirty(inode, write)),
        };
        let gaps = dirty.extents.gaps(offset, len);
        let pieces = dirty.extents.count_with(offset, len);
        // What was there already makes no piece more.
        let overhead = if gaps.is_empty() { 0 } else { dirty.overhead.of_more(pieces) };
        let mut wanted = ByOst::new();
        for (from, to) in &gaps {
            let mut at = *from;
            for chunk in write.layout.chunks(*from, to - from) {
                at += chunk.len;
                if chunk.object_offset + chunk.len > OBJECT_BYTES_MAX {
                    return Keep::Through;
                }
                match wanted.iter_mut().find(|(ost, _)| *ost == chunk.ost) {
                    Some((_, bytes)) => *bytes += chunk.len,
                    None => wanted.push((chunk.ost, chunk.len)),
                }
            }
            if at < *to {
                return Keep::Through;
            }
        }
        let first = wanted.first().map(|(ost, _)| *ost);
        match self.take_room_and_grants(inode, wanted, overhead) {
            Ok(taken) => {
                let dirty = state
                    .dirty
                    .get_or_insert_with(|| fresh.unwrap_or_else(|| self.new_dirty(inode, write)));
                if let Some(ost) = first {
                    dirty.overhead.add(ost, pieces);
                }
                taken.into_iter().for_each(|(ost, epoch, len)| dirty.granted.add(ost, epoch, len));
                let is_full = dirty.extents.put(offset, write.data);
                let all = dirty.extents.count() > EXTENTS_MAX;
                if write.in_part {
                    self.dirty.in_parts.fetch_add(1, Ordering::Relaxed);
                    state.wrote_shared(offset + len, len, write.mtime);
                } else {
                    state.wrote(offset + len, len, write.mtime);
                }
                Keep::Kept(if all || is_full { state.write_out(all) } else { None })
            }
            Err(keep) => keep,
        }
    }

    fn new_dirty(self: &Arc<Client>, inode: &Arc<Inode>, write: &Write<'_>) -> Box<Dirty> {
        let ost = write.layout.chunks(write.offset, 1).next().map_or(0, |chunk| chunk.ost);
        // Some are written out while others come.
        let run_bytes = (self.dirty.bytes_max(ost) / 4).max(RUN_BYTES_MIN);
        let run_bytes = run_bytes.min(RUN_BYTES_MAX).min(self.rpc_bytes_max(ost));
        Box::new(Dirty {
            fid: inode.fid,
            id: self.stamp(),
            extents: Extents::new(run_bytes),
            in_flight: Vec::new(),
            layout: write.layout.clone(),
            era: write.era,
            granted: Granted::default(),
            overhead: Overhead::default(),
            since_ns: self.port.now().mono_ns,
            is_running: false,
            all: false,
            client: Arc::downgrade(self),
            inode: Arc::downgrade(inode),
        })
    }

    /// Room for so many bytes of these OSTs, and for what they take beside, which is the first
    /// one's; and grants for the bytes, with the grants' epochs.
    fn take_room_and_grants(
        &self,
        inode: &Arc<Inode>,
        wanted: ByOst,
        overhead: u64,
    ) -> core::result::Result<Taken, Keep> {
        let mut table = lock(&self.dirty.table);
        let mut with_overhead = wanted.clone();
        if let Some((_, bytes)) = with_overhead.first_mut() {
            *bytes += overhead;
        }
        match table.room(&with_overhead) {
            Room::Now => {}
            Room::Later => return Err(Keep::Full(with_overhead)),
            Room::Never => return Err(Keep::Through),
        }
        let mut grants = lock(&self.grants);
        if !grants.take_all(wanted.iter().copied()) {
            return Err(Keep::NoGrant);
        }
        for ((ost, bytes), (_, in_all)) in wanted.iter().zip(&with_overhead) {
            table.come(*ost, *bytes, in_all - bytes);
        }
        table.inodes.entry(inode.fid).or_insert_with(|| Arc::downgrade(inode));
        Ok(wanted.into_iter().map(|(ost, bytes)| (ost, grants.epoch(ost), bytes)).collect())
    }

    /// Writes out what is kept of an inode, until nothing is left to be, or all that is left may
    /// wait.
    async fn write_rounds(self: &Arc<Client>, inode: &Arc<Inode>, id: u64) {
        loop {
            let now_ns = self.port.now().mono_ns;
            match inode.update(|state| state.next_round(id, &self.dirty, now_ns)) {
                Ok(round) => self.write_round(inode, round).await,
                Err(woken) => return woken.wake(),
            }
        }
    }

    async fn write_round(&self, inode: &Inode, round: Round) {
        let Round { id, pieces, layout, era } = round;
        let generation = layout.generation;
        let by = Passage { era, direct: false };
        let write = |ost: u32, (stripe, pieces): (u32, Pieces)| -> Side<'_, Result<()>> {
            Box::pin(async move {
                let bytes = pieces.bytes();
                let grant = self.granted_for(inode, (ost, bytes), id);
                let (places, data) = pieces.joined();
                let write = (places.clone(), (data.clone(), grant));
                self.dirty.sets_out(ost, self.port.now().mono_ns);
                let written = self.write_object(inode, generation, (ost, stripe), write, by).await;
                let arrived = written.unwrap_or_default();
                self.dirty.arrived(ost, arrived, self.port.now().mono_ns);
                let done = match written {
                    Ok(len) if len == bytes => Ok(()),
                    // What there was room for is written, and all before it.
                    Ok(len) => {
                        self.write_rest(inode, generation, (ost, stripe), (places, data, len), by)
                            .await
                    }
                    Err(Errno::ENOSPC) => {
                        self.write_rest(inode, generation, (ost, stripe), (places, data, 0), by)
                            .await
                    }
                    Err(errno) => Err(errno),
                };
                self.dirty.gone(ost, bytes, 0);
                lock(&inode.state).went_out(bytes);
                done
            })
        };
        let mut sorted = Sorted::default();
        for (offset, mut rest) in pieces {
            for chunk in self.long_pieces(&layout, (offset, rest.len() as u64)) {
                let piece = rest.split_to(chunk.len as usize);
                sorted.add(&chunk, piece);
            }
        }
        // By OST: one that does not answer keeps nothing from the others.
        let of_osts = sorted.requests(|ost| self.many_bytes_max(ost));
        let of_ost = |(ost, requests): (u32, Vec<(u32, Pieces)>)| -> Side<'_, Option<Errno>> {
            let write = &write;
            let writes = requests.into_iter().map(move |request| write(ost, request));
            let most = self.import(Endpoint::Ost(ost)).map_or(1, |import| import.writes_at_once());
            Box::pin(join_few(most, writes))
        };
        let failed = join_all(of_osts.into_iter().map(of_ost).collect()).await;
        let failed = failed.into_iter().flatten().next();
        let arrived = {
            let mut state = lock(&inode.state);
            let dirty = state.dirty.as_mut().filter(|dirty| dirty.id == id);
            dirty.map(|dirty| dirty.overhead.arrive()).unwrap_or_default()
        };
        arrived.into_iter().for_each(|(ost, bytes)| self.dirty.gone(ost, 0, bytes));
        if let Some(errno) = failed {
            let fid = inode.fid;
            tracing::warn!(%fid, error = %errno, "what was written could not be written out");
            let mut state = lock(&inode.state);
            // Of what is lost with its lock everybody has heard.
            if state.dirty.as_ref().is_some_and(|dirty| dirty.id == id) {
                state.late.add(errno);
                self.dirty.failed(fid, errno);
            }
        }
    }

    /// Writes each piece by itself that is not whole among the first so many bytes: one for which there is
    /// no room takes no other with it, which may overwrite what is there.
    async fn write_rest(
        &self,
        inode: &Inode,
        layout_gen: u32,
        object: (u32, u32),
        (places, data, written): (Places, Bytes, u64),
        by: Passage,
    ) -> Result<()> {
        let Places::Pieces(_) = &places else { return Err(Errno::ENOSPC) };
        let mut result = Ok(());
        let mut end = 0;
        for (offset, len) in places.ranges(data.len() as u64) {
            let from = end as usize;
            end += len;
            if end <= written {
                continue;
            }
            let piece = data.slice(from..end as usize);
            let write = (Places::At(offset), (piece, 0));
            match self.write_object(inode, layout_gen, object, write, by).await {
                Ok(done) if done == len => {}
                Ok(_) => result = Err(Errno::ENOSPC),
                Err(errno) => result = Err(errno),
            }
        }
        result
    }

    /// How many bytes pieces of an object may have that go to an OST together; `None` if it takes each by
    /// itself.
    fn many_bytes_max(&self, ost: u32) -> Option<u64> {
        let import = self.import(Endpoint::Ost(ost)).filter(|import| import.agrees(MANY))?;
        Some(import.rpc_bytes_max().min(RUN_BYTES_MAX))
    }

    /// What is left of the grants for so many bytes.
    fn granted_for(&self, inode: &Inode, (ost, bytes): (u32, u64), id: u64) -> u64 {
        let mut state = lock(&inode.state);
        let Some(dirty) = state.dirty.as_mut().filter(|dirty| dirty.id == id) else { return 0 };
        let epoch = lock(&self.grants).epoch(ost);
        dirty.granted.take(ost, epoch, bytes)
    }

    /// Everything that is kept begins to be written out.
    pub(crate) fn write_out_all(&self) {
        self.write_out_those(|_| true);
    }

    /// What was kept for long enough begins to be written out.
    pub(crate) fn write_out_old(&self) {
        if !self.dirty.is_used.load(Ordering::Relaxed) {
            return;
        }
        let now_ns = self.port.now().mono_ns;
        self.write_out_those(|dirty| now_ns.saturating_sub(dirty.since_ns) >= AGE_NS);
    }

    fn write_out_those(&self, which: impl Fn(&Dirty) -> bool) {
        for inode in self.dirty.inodes() {
            let start = {
                let mut state = lock(&inode.state);
                let is_one = state.dirty.as_ref().is_some_and(|dirty| which(dirty));
                if is_one { state.write_out(true) } else { None }
            };
            if let Some(start) = start {
                start.go();
            }
        }
    }

    /// Waits until everything is written out, as long as OSTs take some of it within this time.
    pub(crate) async fn write_out_for_good(&self, patience_ns: u64) {
        let mut left = self.dirty.bytes_in_all();
        while self.not_longer_than(patience_ns, self.all_written_out()).await.is_none() {
            let bytes = self.dirty.bytes_in_all();
            if bytes >= left {
                tracing::warn!(bytes, "what was written is lost: its OSTs do not take it");
                return;
            }
            left = bytes;
        }
    }

    /// Waits until everything is written out.
    async fn all_written_out(&self) {
        self.write_out_all();
        let done = |table: &mut Table| table.inodes.is_empty().then_some(());
        until(&self.dirty.table, |table| &mut table.waiters, done).await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
