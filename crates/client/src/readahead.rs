//! Read-ahead: programs that read a file in steps, backward, or forward from servers that are far,
//! find what they read next in this client already.
//!
//! Life of a chunk: asked for when the reads of an open file have shown a pattern ([`Pattern`]); put
//! beside its inode when its OSTs have answered; gone when all of it was read, or something of it was
//! written, when the file is cut, or closed, when nobody has read it for a while, and with the lock
//! under which it was asked for, as soon as that is called back. The step that begins or ends any of
//! these takes it out of the inode's table, also one that is on its way: what comes for a chunk that
//! is not in the table is dropped. So a chunk is what the OSTs have for as long as it is there:
//! - nobody else writes under the lock, which has been held since before the question was sent;
//! - nothing is asked for while a write of this client is under way, or of what it keeps of writes, and
//!   a write takes out what it touches before it is sent or kept. So nothing is to be laid over it.
//!
//! A chunk on its way does not keep the lock from being given back, and what fails is silent: whoever
//! needs the bytes asks for himself.
//!
//! Here is only what is to be asked and what has come of it; who asks is [`crate::llite`].

mod clean;
mod pattern;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use sateen_types::{Errno, Result};
use sateen_wire::LockId;

use crate::inode::{Inode, InodeState};
use crate::sync::lock;

pub(crate) use clean::Keeping;
pub use clean::{CLEAN_MAX, CleanStats};
pub(crate) use pattern::{Next, Pattern};

/// So much is asked for with one request, and begins where a multiple of it lies: 1 MiB.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// What the bounds can be set to, at most: 1 TiB.
pub const READ_AHEAD_MAX: u64 = 1 << 40;
/// Bytes of all files together, 256 MiB, unless it is set otherwise.
const MAX_DEFAULT: u64 = 256 << 20;
/// Bytes of one file: 64 MiB.
const PER_FILE_DEFAULT: u64 = 64 << 20;
/// Files up to this are read whole: 2 MiB.
const WHOLE_DEFAULT: u64 = 2 << 20;
/// Ticks for which a chunk is not pushed out by others, 1 s: many readers would read for nothing.
const GRACE_TICKS: u32 = 4;
/// Ticks after which it goes that nobody has read: 10 s.
const IDLE_TICKS: u32 = 40;
/// Where a read takes less than this beyond its bytes, 250 µs, nothing is gained by reading ahead.
const SLOW_NS_DEFAULT: u64 = 250_000;
/// The longest that can be asked for: 10 s.
const SLOW_NS_MAX: u64 = 10_000_000_000;
/// Of so many reads the last one counts as one in the mean.
const READS_MEANT: u64 = 8;
/// In this unit the field counts what was read ahead.
const PAGE_BYTES: u64 = 4096;

/// What reading ahead was good for, in pages of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadAheadStats {
    /// Read by programs that were there already.
    pub hits: u64,
    /// Read by programs with a pattern that were not.
    pub misses: u64,
    /// Read ahead and never by a program.
    pub discarded: u64,
    /// Not read ahead because there was no room for more.
    pub refused: u64,
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES)
}

/// A chunk of any file.
#[derive(Debug)]
struct Listed {
    inode: Weak<Inode>,
    /// In which tick it was asked for.
    at: u32,
}

#[derive(Debug, Default)]
struct All {
    /// Those that are in a table, in the order in which they were asked for.
    listed: BTreeMap<u64, Listed>,
    /// The number of the next.
    next: u64,
    /// What all take that have memory, also those that nobody waits for any more.
    bytes: u64,
    /// Those on their way, by OST.
    asked: BTreeMap<u32, usize>,
}

/// All chunks of a client. Locked after inodes and before nothing.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    all: Mutex<All>,
    /// How many are listed.
    count: AtomicUsize,
    discarded: AtomicU64,
}

/// Memory of a chunk, which its request needs as long as it is on its way.
#[derive(Debug)]
struct Room {
    of: Arc<Chunks>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&self.of.all).bytes -= self.bytes;
    }
}

/// A chunk in its inode's table.
#[derive(Debug)]
struct Chunk {
    number: u64,
    end: u64,
    /// `None` while it is on its way.
    data: Option<Bytes>,
    /// How many bytes programs have read, and how many they will not read.
    read: u64,
    slack: u64,
    /// It was read by a program, and stays for the next: see [`clean`].
    stays: bool,
    /// One has found it since somebody looked whether it is to go.
    used: bool,
    room: Arc<Room>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let chunks = &self.room.of;
        if let Some(data) = self.data.as_ref().filter(|_| !self.stays) {
            let left = (data.len() as u64).saturating_sub(self.read);
            chunks.discarded.fetch_add(pages(left), Ordering::Relaxed);
        }
        if lock(&chunks.all).listed.remove(&self.number).is_some() {
            chunks.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A chunk that is to be asked for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) ost: u32,
    number: u64,
    /// For as long as there is a buffer for the answer.
    room: Arc<Room>,
}

impl Drop for Ask {
    fn drop(&mut self) {
        if let Some(asked) = lock(&self.room.of.all).asked.get_mut(&self.ost) {
            *asked = asked.saturating_sub(1);
        }
    }
}

/// What is read ahead of one file.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Under this lock, and by a layout of this generation.
    lock: LockId,
    layout_gen: u32,
    /// By where they begin. No two of them overlap.
    chunks: BTreeMap<u64, Chunk>,
}

/// What whoever reads finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Not all of it.
    No,
    /// Some of it is on its way.
    Waits,
    Yes,
}

impl Ahead {
    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|(start, chunk)| chunk.end - start).sum()
    }

    /// The chunk that has this byte.
    fn at(&self, offset: u64) -> Option<(u64, &Chunk)> {
        let (start, chunk) = self.chunks.range(..=offset).next_back()?;
        (chunk.end > offset).then_some((*start, chunk))
    }

    /// What of a range is not there, in the pieces that are to be asked for.
    fn missing(&self, (offset, len): (u64, u64), out: &mut Vec<(u64, u64)>) {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            if let Some((_, chunk)) = self.at(at) {
                at = chunk.end;
                continue;
            }
            let next = self.chunks.range(at..end).next().map_or(end, |(start, _)| *start);
            out.push((at, next - at));
            at = next;
        }
    }

    fn ready(&self, (offset, len): (u64, u64)) -> Ready {
        let (mut at, end) = (offset, offset + len);
        let mut ready = Ready::Yes;
        while at < end {
            let Some((_, chunk)) = self.at(at) else { return Ready::No };
            match (&chunk.data, chunk.stays) {
                (Some(_), _) => {}
                (None, false) => ready = Ready::Waits,
                // Its reader may be given up: who comes now reads himself.
                (None, true) => return Ready::No,
            }
            at = chunk.end;
        }
        ready
    }

    /// The bytes of a range that is all there, to be copied by whoever holds no lock. What was read
    /// goes, and its memory with the last of these.
    /// Also whether all of it was read before.
    fn take(&mut self, (offset, len): (u64, u64)) -> (Vec<Bytes>, bool) {
        let (mut pieces, mut again) = (Vec::new(), true);
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let Some((start, chunk)) = self.chunks.range_mut(..=at).next_back() else { break };
            let (start, to) = (*start, chunk.end.min(end));
            let place = (at - start) as usize..(to - start) as usize;
            let data = chunk.data.as_ref().filter(|data| place.end <= data.len());
            let Some(data) = data else { break };
            pieces.push(data.slice(place));
            chunk.read += to - at;
            chunk.used = true;
            again &= chunk.stays;
            if !chunk.stays && chunk.read.saturating_add(chunk.slack) >= chunk.end - start {
                self.chunks.remove(&start);
            }
            at = to;
        }
        (pieces, again)
    }

    /// Something of a range is changed.
    fn changed(&mut self, (offset, end): (u64, u64)) {
        self.chunks.retain(|start, chunk| chunk.end <= offset || *start >= end);
    }
}

impl InodeState {
    /// Nothing that was read ahead is true any more, or needed.
    pub(crate) fn drop_ahead(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            rare.ahead = None;
        }
    }

    /// The same if that was read under this lock.
    pub(crate) fn drop_ahead_of(&mut self, id: LockId) {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.lock == id) {
            self.drop_ahead();
        }
    }

    /// The same if that lock is not there any more.
    pub(crate) fn drop_ahead_without_lock(&mut self) {
        let Some(ahead) = &self.ahead else { return };
        if !self.locks.iter().any(|held| held.id == ahead.lock && !held.cancelling) {
            self.drop_ahead();
        }
    }

    /// This client changes a range of the file: offset and length.
    pub(crate) fn changes_ahead(&mut self, (offset, len): (u64, u64)) {
        let Some(ahead) = self.rare_if_any().and_then(|rare| rare.ahead.as_mut()) else { return };
        ahead.changed((offset, offset.saturating_add(len)));
    }

    /// What there is for whoever reads a range under a lock.
    pub(crate) fn ahead_ready(&self, id: LockId, range: (u64, u64)) -> Ready {
        let generation = self.layout.as_ref().map(|layout| layout.generation);
        let ahead = self.ahead.as_ref().filter(|ahead| {
            ahead.lock == id && Some(ahead.layout_gen) == generation && !self.is_given()
        });
        ahead.map_or(Ready::No, |ahead| ahead.ready(range))
    }

    /// The bytes of a range that is ready, one piece behind the other.
    /// And whether programs have read all of it before.
    pub(crate) fn take_ahead(&mut self, range: (u64, u64)) -> (Vec<Bytes>, bool) {
        let ahead = self.rare_if_any().and_then(|rare| rare.ahead.as_mut());
        ahead.map_or((Vec::new(), false), |ahead| ahead.take(range))
    }

    /// Nobody has the file open any more: what nobody has read nobody will.
    pub(crate) fn drop_unread(&mut self) {
        let Some(rare) = self.rare_if_any() else { return };
        let Some(ahead) = &mut rare.ahead else { return };
        ahead.chunks.retain(|_, chunk| chunk.stays);
        if ahead.chunks.is_empty() {
            rare.ahead = None;
        }
    }

    /// What has come of a chunk that was asked for; `None` if it failed.
    pub(crate) fn came_ahead(&mut self, ask: &Ask, data: Option<Bytes>) {
        let Some(ahead) = self.rare_if_any().and_then(|rare| rare.ahead.as_mut()) else { return };
        let there = ahead.chunks.get_mut(&ask.offset).filter(|chunk| chunk.number == ask.number);
        match (there, data) {
            (Some(chunk), Some(data)) => chunk.data = Some(data),
            (Some(_), None) => drop(ahead.chunks.remove(&ask.offset)),
            // It was taken out meanwhile.
            (None, _) => {}
        }
    }

    /// A chunk has to go, if it is there yet.
    fn pushes_out(&mut self, number: u64) {
        if let Some(ahead) = self.rare_if_any().and_then(|rare| rare.ahead.as_mut()) {
            ahead.chunks.retain(|_, chunk| chunk.number != number);
        }
    }

    /// Under this lock something may be read ahead.
    fn may_read_ahead(&self, id: LockId) -> bool {
        let is_held =
            |held: &crate::held::Held| held.id == id && !held.cancelling && !held.is_shared();
        self.locks.iter().any(is_held)
            && self.size_known
            && self.given.is_none()
            && self.writing == 0
            && !self.emptying
    }
}

/// Why nothing more is asked for.
#[derive(Debug)]
pub(crate) enum Full {
    /// There has to be room for so much, or for the first of it.
    NoRoom(u64),
    /// It may not be, or nothing is missing.
    Enough,
}

/// What is to be asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Nearest first.
    pub(crate) ranges: &'a [(u64, u64)],
    /// How much of each may be left unread by who reads all that he wants of it.
    pub(crate) slack: u64,
    /// What there is room for, if there is not for all.
    pub(crate) in_part: bool,
}

/// Read-ahead of a client.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    max: AtomicU64,
    per_file: AtomicU64,
    whole: AtomicU64,
    /// Who reads forward is not left to the kernel.
    forward: AtomicBool,
    /// From which mean on reads count as slow, and the mean: nanoseconds beyond one for each byte.
    slow_ns: AtomicU64,
    mean_ns: AtomicU64,
    chunks: Arc<Chunks>,
    /// What was read and stays.
    clean: clean::Clean,
    hits: AtomicU64,
    misses: AtomicU64,
    refused: AtomicU64,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead {
            max: AtomicU64::new(MAX_DEFAULT),
            per_file: AtomicU64::new(PER_FILE_DEFAULT),
            whole: AtomicU64::new(WHOLE_DEFAULT),
            forward: AtomicBool::new(false),
            slow_ns: AtomicU64::new(SLOW_NS_DEFAULT),
            mean_ns: AtomicU64::new(0),
            chunks: Arc::default(),
            clean: clean::Clean::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

fn set_bytes(of: &AtomicU64, bytes: u64) -> Result<()> {
    if bytes > READ_AHEAD_MAX {
        return Err(Errno::ERANGE);
    }
    of.store(bytes, Ordering::Relaxed);
    Ok(())
}

impl ReadAhead {
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, bytes: u64) -> Result<()> {
        set_bytes(&self.max, bytes)
    }

    pub(crate) fn per_file(&self) -> u64 {
        self.per_file.load(Ordering::Relaxed)
    }

    pub(crate) fn set_per_file(&self, bytes: u64) -> Result<()> {
        set_bytes(&self.per_file, bytes)
    }

    pub(crate) fn whole(&self) -> u64 {
        self.whole.load(Ordering::Relaxed)
    }

    pub(crate) fn set_whole(&self, bytes: u64) -> Result<()> {
        set_bytes(&self.whole, bytes)
    }

    pub(crate) fn forward(&self) -> bool {
        self.forward.load(Ordering::Relaxed)
    }

    pub(crate) fn set_forward(&self, forward: bool) {
        self.forward.store(forward, Ordering::Relaxed);
    }

    pub(crate) fn slow_ns(&self) -> u64 {
        self.slow_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow_ns(&self, ns: u64) -> Result<()> {
        if ns > SLOW_NS_MAX {
            return Err(Errno::ERANGE);
        }
        self.slow_ns.store(ns, Ordering::Relaxed);
        Ok(())
    }

    /// A program's read of so many bytes from OSTs took so long: beyond what bytes take where a server is
    /// near, 1 ns each. Of two at once one may not count.
    pub(crate) fn took(&self, ns: u64, bytes: u64) {
        let mean = self.mean_ns.load(Ordering::Relaxed);
        let beyond = ns.saturating_sub(bytes).min(SLOW_NS_MAX);
        let mean = mean - mean / READS_MEANT + beyond / READS_MEANT;
        self.mean_ns.store(mean, Ordering::Relaxed);
    }

    /// Whether reading ahead gains something: where a server answers at once, it costs more than it
    /// brings.
    pub(crate) fn is_worth_it(&self) -> bool {
        self.mean_ns.load(Ordering::Relaxed) >= self.slow_ns()
    }

    /// Bytes of one file, at most.
    pub(crate) fn of_file(&self) -> u64 {
        self.per_file().min(self.max())
    }

    /// Whether nothing is there, or on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.chunks.count.load(Ordering::SeqCst) == 0 && self.clean.is_idle()
    }

    /// What was read and stays.
    pub(crate) fn clean(&self) -> &clean::Clean {
        &self.clean
    }

    pub(crate) fn hit(&self, bytes: u64) {
        self.hits.fetch_add(pages(bytes), Ordering::Relaxed);
    }

    pub(crate) fn miss(&self, bytes: u64) {
        self.misses.fetch_add(pages(bytes), Ordering::Relaxed);
    }

    pub(crate) fn refuse(&self, bytes: u64) {
        self.refused.fetch_add(pages(bytes), Ordering::Relaxed);
    }

    fn counters(&self) -> [&AtomicU64; 4] {
        [&self.hits, &self.misses, &self.chunks.discarded, &self.refused]
    }

    pub(crate) fn stats(&self) -> ReadAheadStats {
        let [hits, misses, discarded, refused] =
            self.counters().map(|counter| counter.load(Ordering::Relaxed));
        ReadAheadStats { hits, misses, discarded, refused }
    }

    pub(crate) fn clear_stats(&self) {
        self.counters().into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// How many chunks are on their way from an OST.
    pub(crate) fn asked(&self, ost: u32) -> usize {
        lock(&self.chunks.all).asked.get(&ost).copied().unwrap_or_default()
    }

    /// Of what is wanted what is to be asked for of a file that is read under a lock, in tick `now`.
    /// `spare` says on which OST a byte lies, and how many requests that one takes. If there is not room
    /// for all nothing is, unless it is taken in part.
    pub(crate) fn ask(
        &self,
        (inode, state): (&Arc<Inode>, &mut InodeState),
        id: LockId,
        want: Wanted<'_>,
        now: u32,
        spare: &mut dyn FnMut(u64) -> Option<(u32, usize)>,
    ) -> core::result::Result<Vec<Ask>, Full> {
        if !state.may_read_ahead(id) {
            return Err(Full::Enough);
        }
        let Some(layout_gen) = state.layout.as_ref().map(|layout| layout.generation) else {
            return Err(Full::Enough);
        };
        let fits = |ahead: &Ahead| ahead.lock == id && ahead.layout_gen == layout_gen;
        if state.ahead.as_ref().is_some_and(|ahead| !fits(ahead)) {
            state.drop_ahead();
        }
        let mut missing = Vec::new();
        let mut left = self.of_file();
        match &state.ahead {
            Some(ahead) => {
                left = left.saturating_sub(ahead.bytes());
                want.ranges.iter().for_each(|range| ahead.missing(*range, &mut missing));
            }
            None => missing.extend_from_slice(want.ranges),
        }
        // What is kept of writes is not at the OSTs yet.
        missing.retain(|(offset, len)| !state.keeps(*offset, *len));
        let mut wanted = Vec::new();
        let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
        for (offset, len) in missing {
            let Some((ost, spare)) = spare(offset).filter(|_| len <= left) else { break };
            let taken = taken.entry(ost).or_default();
            if *taken >= spare {
                break;
            }
            *taken += 1;
            left -= len;
            wanted.push((offset, len, ost));
        }
        if wanted.is_empty() {
            return Err(Full::Enough);
        }
        let rooms = self.rooms(inode, (&wanted, want.in_part), now);
        if rooms.is_empty() {
            return Err(Full::NoRoom(wanted.iter().map(|(_, len, _)| len).sum()));
        }
        let new = || Box::new(Ahead { lock: id, layout_gen, chunks: BTreeMap::new() });
        let ahead = state.ahead.get_or_insert_with(new);
        let asks = wanted.into_iter().zip(rooms).map(|((offset, len, ost), (number, room))| {
            let chunk = Chunk {
                number,
                end: offset + len,
                data: None,
                read: 0,
                slack: want.slack,
                stays: false,
                used: false,
                room: room.clone(),
            };
            ahead.chunks.insert(offset, chunk);
            Ask { offset, len, ost, number, room }
        });
        Ok(asks.collect())
    }

    /// Room for chunks, and their numbers, if there is for all of them; if `in_part` for the first.
    fn rooms(
        &self,
        inode: &Arc<Inode>,
        (wanted, in_part): (&[(u64, u64, u32)], bool),
        now: u32,
    ) -> Vec<(u64, Arc<Room>)> {
        let mut all = lock(&self.chunks.all);
        let mut free = self.max().saturating_sub(all.bytes);
        let fit = wanted.iter().take_while(|(_, len, _)| {
            let left = free.checked_sub(*len);
            free = left.unwrap_or_default();
            left.is_some()
        });
        let fit = fit.count();
        if fit < wanted.len() && !in_part {
            return Vec::new();
        }
        let rooms = wanted.iter().take(fit).map(|(_, len, ost)| {
            let number = all.next;
            all.next += 1;
            all.bytes += len;
            all.listed.insert(number, Listed { inode: Arc::downgrade(inode), at: now });
            *all.asked.entry(*ost).or_default() += 1;
            (number, Arc::new(Room { of: self.chunks.clone(), bytes: *len }))
        });
        let rooms: Vec<_> = rooms.collect();
        self.chunks.count.fetch_add(rooms.len(), Ordering::SeqCst);
        rooms
    }

    /// Pushes the oldest chunks out until there is room for so much, so far as they have been there for
    /// a while in tick `now`. To be called while no inode is locked. Whether there is room.
    pub(crate) fn make_room(&self, bytes: u64, now: u32) -> bool {
        loop {
            {
                let all = lock(&self.chunks.all);
                if all.bytes.saturating_add(bytes) <= self.max() {
                    return true;
                }
            }
            if !self.push_out(now, GRACE_TICKS) {
                return false;
            }
        }
    }

    /// Pushes out what is more than there may be since that was set.
    pub(crate) fn fit(&self) {
        loop {
            let over = lock(&self.chunks.all).bytes > self.max();
            if !over || !self.push_out(0, 0) {
                return;
            }
        }
    }

    /// Drops what nobody has read for a while in tick `now`.
    pub(crate) fn drop_old(&self, now: u32) {
        while !self.is_idle() && self.push_out(now, IDLE_TICKS) {}
        self.clean.drop_old(now);
    }

    /// Pushes the oldest chunk out, if it was asked for so many ticks ago. False if it was not.
    fn push_out(&self, now: u32, ticks: u32) -> bool {
        let (number, inode) = {
            let mut all = lock(&self.chunks.all);
            let Some((number, oldest)) = all.listed.first_key_value() else { return false };
            if ticks > 0 && now.saturating_sub(oldest.at) < ticks {
                return false;
            }
            let (number, inode) = (*number, oldest.inode.clone());
            all.listed.remove(&number);
            (number, inode)
        };
        if let Some(inode) = inode.upgrade() {
            // Whoever waits for it asks for himself.
            inode.update(|state| state.pushes_out(number));
        }
        // Not before: who writes takes nothing out of a table if there are no chunks.
        self.chunks.count.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

#[cfg(test)]
mod tests {
    use sateen_types::{Fid, Layout};
    use sateen_wire::{Ibits, LockMode};

    use super::*;
    use crate::held::{Granted, Held};

    pub(super) const ID: LockId = LockId(4);

    pub(super) fn inode() -> Arc<Inode> {
        let inode = Arc::new(Inode::new(Fid::ROOT, 0, Arc::default()));
        let mut state = lock(&inode.state);
        state.locks.push(Held::new(ID, (LockMode::Pr, Ibits::DATA), Granted::new(0, 0)));
        state.layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
        state.size_known = true;
        drop(state);
        inode
    }

    fn asks(ahead: &ReadAhead, inode: &Arc<Inode>, ranges: &[(u64, u64)], now: u32) -> Vec<Ask> {
        let mut state = lock(&inode.state);
        let asked = ahead.ask((inode, &mut state), ID, whole(ranges), now, &mut |_| Some((0, 8)));
        asked.unwrap_or_default()
    }

    fn come(inode: &Inode, asks: Vec<Ask>) {
        for ask in asks {
            let bytes: Vec<u8> = (ask.offset..ask.offset + ask.len).map(|at| at as u8).collect();
            lock(&inode.state).came_ahead(&ask, Some(Bytes::from(bytes)));
        }
    }

    fn places(asks: &[Ask]) -> Vec<(u64, u64)> {
        asks.iter().map(|ask| (ask.offset, ask.len)).collect()
    }

    fn whole(ranges: &[(u64, u64)]) -> Wanted<'_> {
        Wanted { ranges, slack: 0, in_part: false }
    }

    #[test]
    fn what_is_there_is_not_asked_for_and_what_was_read_goes() {
        let (ahead, inode) = (ReadAhead::default(), inode());
        let first = asks(&ahead, &inode, &[(100, 50)], 0);
        let second = asks(&ahead, &inode, &[(0, 300)], 0);
        assert_eq!(places(&second), [(0, 100), (150, 150)]);
        assert_eq!(lock(&inode.state).ahead_ready(ID, (90, 20)), Ready::Waits);
        come(&inode, first);
        come(&inode, second);
        let mut state = lock(&inode.state);
        assert_eq!(state.ahead_ready(ID, (90, 20)), Ready::Yes);
        assert_eq!(state.ahead_ready(ID, (290, 11)), Ready::No);
        assert_eq!(state.ahead_ready(LockId(5), (90, 20)), Ready::No);
        let (pieces, again) = state.take_ahead((90, 70));
        assert!(!again);
        assert_eq!(state.ahead_ready(ID, (120, 1)), Ready::No, "it is gone");
        assert_eq!(state.ahead_ready(ID, (160, 1)), Ready::Yes);
        drop(state);
        // Who copies them holds no lock, whatever has become of their chunks.
        let read = pieces.concat();
        assert_eq!((pieces.len(), read.len(), read[0], read[69]), (3, 70, 90, 159));
        assert_eq!(lock(&ahead.chunks.all).bytes, 250);
    }

    #[test]
    fn what_is_written_goes_also_on_its_way_and_nothing_is_asked_meanwhile() {
        let (ahead, inode) = (ReadAhead::default(), inode());
        let asked = asks(&ahead, &inode, &[(0, 100), (100, 100), (200, 100)], 0);
        lock(&inode.state).writing = 1;
        lock(&inode.state).changes_ahead((150, 1));
        assert!(asks(&ahead, &inode, &[(100, 100)], 0).is_empty());
        lock(&inode.state).writing = 0;
        let again = asks(&ahead, &inode, &[(100, 100)], 0);
        // The older answer is not that to the younger question.
        come(&inode, asked);
        assert_eq!(lock(&inode.state).ahead_ready(ID, (0, 100)), Ready::Yes);
        assert_eq!(lock(&inode.state).ahead_ready(ID, (100, 100)), Ready::Waits);
        come(&inode, again);
        assert_eq!(lock(&inode.state).ahead_ready(ID, (0, 300)), Ready::Yes);
    }

    #[test]
    fn it_goes_with_its_lock_and_all_memory_with_it() {
        let (ahead, inode) = (ReadAhead::default(), inode());
        let asked = asks(&ahead, &inode, &[(0, 100), (100, 100)], 0);
        let mut asked = asked.into_iter();
        come(&inode, vec![asked.next().unwrap()]);
        lock(&inode.state).locks[0].cancelling = true;
        lock(&inode.state).drop_ahead_without_lock();
        assert!(ahead.is_idle() && lock(&inode.state).ahead.is_none());
        assert_eq!(lock(&ahead.chunks.all).bytes, 100, "its answer has a buffer yet");
        assert_eq!(ahead.asked(0), 1);
        assert!(asks(&ahead, &inode, &[(0, 100)], 0).is_empty());
        lock(&inode.state).locks[0].cancelling = false;
        come(&inode, asked.collect());
        assert_eq!(ahead.asked(0), 0);
        assert_eq!(lock(&ahead.chunks.all).bytes, 0);
        assert_eq!(lock(&inode.state).ahead_ready(ID, (100, 1)), Ready::No);
        assert_eq!(ahead.stats().discarded, 1);
    }

    #[test]
    fn it_goes_with_the_layout_that_it_was_read_by_though_the_lock_stays() {
        let (ahead, inode) = (ReadAhead::default(), inode());
        let asked = asks(&ahead, &inode, &[(0, 100)], 0);
        let layout = lock(&inode.state).layout.clone();
        assert!(lock(&inode.state).doubt(0, 1));
        lock(&inode.state).layout = layout;
        come(&inode, asked);
        assert_eq!(lock(&inode.state).ahead_ready(ID, (0, 100)), Ready::No);
        assert!(ahead.is_idle() && lock(&inode.state).locks.len() == 1);
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room_but_not_at_once() {
        let (ahead, one, other) = (ReadAhead::default(), inode(), inode());
        ahead.set_max(300).unwrap();
        ahead.set_per_file(200).unwrap();
        let asked = asks(&ahead, &one, &[(0, 100), (100, 100), (200, 100)], 0);
        assert_eq!(asked.len(), 2, "of one file");
        come(&one, asked);
        let none = asks(&ahead, &other, &[(0, 100), (100, 100)], 1);
        assert!(none.is_empty() && !ahead.make_room(200, 1));
        assert!(ahead.make_room(200, GRACE_TICKS));
        let asked = asks(&ahead, &other, &[(0, 100), (100, 100)], 5);
        assert_eq!(asked.len(), 2);
        come(&other, asked);
        assert_eq!(lock(&one.state).ahead_ready(ID, (0, 1)), Ready::No);
        assert_eq!(lock(&one.state).ahead_ready(ID, (100, 1)), Ready::Yes);
        // Less than there is.
        ahead.set_max(200).unwrap();
        ahead.fit();
        assert_eq!(lock(&one.state).ahead_ready(ID, (100, 1)), Ready::No);
        assert_eq!(lock(&other.state).ahead_ready(ID, (0, 200)), Ready::Yes);
        ahead.drop_old(5 + IDLE_TICKS - 1);
        assert!(!ahead.is_idle());
        ahead.drop_old(5 + IDLE_TICKS);
        assert!(ahead.is_idle() && lock(&ahead.chunks.all).bytes == 0);
        assert_eq!(ahead.set_max(READ_AHEAD_MAX + 1), Err(Errno::ERANGE));
    }

    #[test]
    fn an_ost_is_asked_for_no_more_than_it_takes() {
        let (ahead, inode) = (ReadAhead::default(), inode());
        let mut state = lock(&inode.state);
        let ranges = [(0, 10), (10, 10), (20, 10), (30, 10)];
        let mut spare = |offset: u64| Some(if offset < 20 { (0, 2) } else { (1, 1) });
        let asked = ahead.ask((&inode, &mut state), ID, whole(&ranges), 0, &mut spare);
        assert_eq!(places(&asked.unwrap_or_default()), ranges[..3]);
        state.locks[0].mode = LockMode::Cr;
        let shared = ahead.ask((&inode, &mut state), ID, whole(&[(90, 1)]), 0, &mut spare);
        assert!(shared.is_err());
    }

    #[test]
    fn where_there_is_not_room_for_all_the_nearest_is_asked_for() {
        let (ahead, other, inode) = (ReadAhead::default(), inode(), inode());
        ahead.set_max(350).unwrap();
        drop(asks(&ahead, &other, &[(0, 100)], 0));
        let mut state = lock(&inode.state);
        let mut spare = |_| Some((0, 8));
        let ranges = [(0, 100), (100, 100), (200, 100), (300, 10)];
        let mut ask = |state: &mut InodeState, in_part: bool| {
            ahead.ask((&inode, state), ID, Wanted { in_part, ..whole(&ranges) }, 0, &mut spare)
        };
        assert!(matches!(ask(&mut state, false), Err(Full::NoRoom(310))));
        let asked = ask(&mut state, true).unwrap();
        assert_eq!(places(&asked), ranges[..2], "what is further is not, though it would fit");
        assert!(matches!(ask(&mut state, true), Err(Full::NoRoom(110))));
        drop(state);
        drop(asked);
        assert_eq!((ahead.asked(0), lock(&ahead.chunks.all).bytes), (0, 300));
    }
}
