//! Clean data: what programs have read past their kernel's pages stays for the next reader.
//!
//! A kernel keeps the pages of files that are open for reading alone. Who has one open for writing, too,
//! reads past them, and asked an OST each time. What he has read of a small file lies in the table of
//! [what is read ahead](super) as a chunk that stays: there under the lock under which it was read, and
//! gone with that, with what is written or cut of it, and with the layout. Unlike what nobody has asked for
//! it stays when it is read, and when the file is closed; it goes by age, and the least used for others.
//!
//! Its place is taken before the OST is asked, and smaller ones that lie within it go for it. A write
//! that begins meanwhile takes it out of the table, and then what comes is not put there. Nobody waits
//! for it: who asked may be given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sateen_types::{Copied, Errno, Result, copied};
use sateen_wire::LockId;

use super::{Ahead, Ask, Chunk, Chunks, Listed, Room};
use crate::inode::{Inode, InodeState};
use crate::sync::lock;

use std::collections::BTreeMap;

/// What can be set, at most: 1 TiB.
pub const CLEAN_MAX: u64 = 1 << 40;
/// Bytes of all files together, 64 MiB, unless it is set otherwise.
const MAX_DEFAULT: u64 = 64 << 20;
/// Of a file that is larger than this part of it nothing stays: reading it once would push out all else,
/// and what is copied costs more than it brings.
const FILE_PART: u64 = 64;
/// What a chunk takes up beside its bytes, with what its inode needs for it.
const BESIDE_BYTES: u64 = 2048;
/// Ticks after which it goes that nobody has read again: 10 min.
const IDLE_TICKS: u32 = 2400;

/// What there is, and what it was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanStats {
    /// Bytes, with what they need beside them.
    pub bytes: u64,
    /// Reads that were answered from it.
    pub hits: u64,
    /// How often something went for others.
    pub reclaimed: u64,
}

/// All of a client.
#[derive(Debug)]
pub(crate) struct Clean {
    max: AtomicU64,
    chunks: Arc<Chunks>,
    hits: AtomicU64,
    reclaimed: AtomicU64,
}

impl Default for Clean {
    fn default() -> Clean {
        Clean {
            max: AtomicU64::new(MAX_DEFAULT),
            chunks: Arc::default(),
            hits: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }
}

/// A place for what is being read. Dropped without that it is gone.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    inode: &'a Inode,
    ask: Ask,
}

impl Keeping<'_> {
    /// It was read.
    pub(crate) fn came(self, bytes: &[u8]) {
        // Copied while nothing is locked.
        copied(Copied::ClientClean, bytes.len());
        let data = Bytes::copy_from_slice(bytes);
        lock(&self.inode.state).came_ahead(&self.ask, Some(data));
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        lock(&self.inode.state).not_kept(&self.ask);
    }
}

impl InodeState {
    /// What was to stay has not come.
    fn not_kept(&mut self, ask: &Ask) {
        let Some(ahead) = self.rare_if_any().and_then(|rare| rare.ahead.as_mut()) else { return };
        let is_it = |chunk: &Chunk| chunk.number == ask.number && chunk.data.is_none();
        if ahead.chunks.get(&ask.offset).is_some_and(is_it) {
            ahead.chunks.remove(&ask.offset);
        }
    }
}

impl Clean {
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets how much may stay. With 0 nothing does.
    pub(crate) fn set_max(&self, bytes: u64) -> Result<()> {
        if bytes > CLEAN_MAX {
            return Err(Errno::ERANGE);
        }
        self.max.store(bytes, Ordering::Relaxed);
        self.fit(0);
        Ok(())
    }

    pub(crate) fn stats(&self) -> CleanStats {
        let bytes = lock(&self.chunks.all).bytes;
        let [hits, reclaimed] =
            [&self.hits, &self.reclaimed].map(|counter| counter.load(Ordering::Relaxed));
        CleanStats { bytes, hits, reclaimed }
    }

    /// Whether there is nothing, and nothing on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.chunks.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether something of a file of this size stays.
    pub(crate) fn is_for(&self, size: u64) -> bool {
        size <= self.max() / FILE_PART
    }

    /// A place for a range that is to be read under a lock in use, in tick `now`, if it may stay.
    pub(crate) fn keep<'a>(
        &self,
        inode: &'a Arc<Inode>,
        id: LockId,
        (offset, len): (u64, u64),
        now: u32,
    ) -> Option<Keeping<'a>> {
        let ask = {
            let mut state = lock(&inode.state);
            if !state.may_read_ahead(id) || state.keeps(offset, len) {
                return None;
            }
            let layout_gen = state.layout.as_ref()?.generation;
            let fits = |ahead: &Ahead| ahead.lock == id && ahead.layout_gen == layout_gen;
            if state.ahead.as_ref().is_some_and(|ahead| !fits(ahead)) {
                state.drop_ahead();
            }
            let new = || Box::new(Ahead { lock: id, layout_gen, chunks: BTreeMap::new() });
            let ahead = state.ahead.get_or_insert_with(new);
            if !ahead.make_place((offset, len)) {
                return None;
            }
            let (number, room) = self.room(inode, len + BESIDE_BYTES, now);
            let chunk = Chunk {
                number,
                end: offset + len,
                data: None,
                read: 0,
                slack: 0,
                stays: true,
                used: false,
                room: room.clone(),
            };
            ahead.chunks.insert(offset, chunk);
            Ask { offset, len, ost: 0, number, room }
        };
        self.fit(now);
        Some(Keeping { inode, ask })
    }

    /// Room for a chunk of this inode, which is locked, and its number.
    fn room(&self, inode: &Arc<Inode>, bytes: u64, now: u32) -> (u64, Arc<Room>) {
        let mut all = lock(&self.chunks.all);
        let number = all.list(inode, now);
        all.bytes += bytes;
        self.chunks.count.fetch_add(1, Ordering::SeqCst);
        (number, Arc::new(Room { of: self.chunks.clone(), bytes }))
    }

    /// Those go that are too many by now.
    fn fit(&self, now: u32) {
        while lock(&self.chunks.all).bytes > self.max() && self.push_out(now, 0) {
            self.reclaimed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those go that nobody has read for a while in tick `now`.
    pub(super) fn drop_old(&self, now: u32) {
        while !self.is_idle() && self.push_out(now, IDLE_TICKS) {}
    }

    /// The oldest goes, if it has been there for so many ticks, or begins anew, if somebody has read it
    /// since. False if there is none.
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
        let stays = inode.upgrade().is_some_and(|inode| {
            let mut state = lock(&inode.state);
            let ahead = state.rare_if_any().and_then(|rare| rare.ahead.as_mut());
            ahead.is_some_and(|ahead| {
                let mut all = ahead.chunks.iter_mut();
                let Some((start, chunk)) = all.find(|(_, chunk)| chunk.is_clean(number)) else {
                    return false;
                };
                if core::mem::take(&mut chunk.used) {
                    chunk.number = lock(&self.chunks.all).list(&inode, now);
                    return true;
                }
                let start = *start;
                ahead.chunks.remove(&start);
                false
            })
        });
        if !stays {
            // Not before: who writes takes nothing out of a table if there are no chunks.
            self.chunks.count.fetch_sub(1, Ordering::SeqCst);
        }
        true
    }
}

impl Ahead {
    /// A place for a range, if something of it is not there, and nothing is in its way but what stays
    /// and lies within it. That goes: the range has its bytes as well, and otherwise who has read a
    /// piece of a file once would ask for all of it each time.
    fn make_place(&mut self, (offset, len): (u64, u64)) -> bool {
        let end = offset + len;
        let mut missing = Vec::new();
        self.missing((offset, len), &mut missing);
        let is_crossed = self.at(offset).is_some_and(|(start, _)| start < offset);
        let goes = |chunk: &Chunk| chunk.stays && chunk.data.is_some() && chunk.end <= end;
        let is_free = !is_crossed && self.chunks.range(offset..end).all(|(_, chunk)| goes(chunk));
        if missing.is_empty() || !is_free {
            return false;
        }
        self.changed((offset, end));
        true
    }
}

impl Chunk {
    fn is_clean(&self, number: u64) -> bool {
        self.stays && self.number == number
    }
}

impl super::All {
    /// One more of this inode; its number.
    fn list(&mut self, inode: &Arc<Inode>, at: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        self.listed.insert(number, Listed { inode: Arc::downgrade(inode), at });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ready;
    use super::super::tests::{ID, inode};
    use super::*;

    fn reads(clean: &Clean, inode: &Arc<Inode>, range: (u64, u64), now: u32) {
        if let Some(keeping) = clean.keep(inode, ID, range, now) {
            keeping.came(&vec![7; range.1 as usize]);
        }
    }

    fn ready(inode: &Inode, range: (u64, u64)) -> bool {
        let ready = lock(&inode.state).ahead_ready(ID, range);
        assert_ne!(ready, Ready::Waits, "nobody waits for it");
        ready == Ready::Yes
    }

    #[test]
    fn what_was_read_stays_until_it_is_written() {
        let (clean, inode) = (Clean::default(), inode());
        reads(&clean, &inode, (0, 100), 0);
        for _ in 0..3 {
            assert!(ready(&inode, (0, 100)) && !ready(&inode, (0, 101)));
            let (pieces, again) = lock(&inode.state).take_ahead((0, 100));
            assert!(pieces.concat() == [7; 100] && again);
        }
        lock(&inode.state).drop_unread();
        assert!(ready(&inode, (10, 20)), "though it is closed");
        lock(&inode.state).changes_ahead((99, 1));
        assert!(!ready(&inode, (10, 20)) && clean.is_idle());
        assert_eq!(clean.stats().bytes, 0);
    }

    #[test]
    fn what_is_written_while_it_is_read_does_not_stay() {
        let (clean, inode) = (Clean::default(), inode());
        let keeping = clean.keep(&inode, ID, (0, 100), 0).unwrap();
        assert!(!ready(&inode, (0, 100)) && !clean.is_idle());
        assert!(clean.keep(&inode, ID, (50, 100), 0).is_none(), "one reads it already");
        lock(&inode.state).changes_ahead((0, 1));
        keeping.came(&[7; 100]);
        assert!(!ready(&inode, (0, 100)) && clean.is_idle());
        lock(&inode.state).writing = 1;
        assert!(clean.keep(&inode, ID, (0, 100), 0).is_none());
        lock(&inode.state).writing = 0;
        // Who reads is given up, and another reads it.
        drop(clean.keep(&inode, ID, (0, 100), 0));
        assert!(clean.is_idle());
        reads(&clean, &inode, (0, 100), 0);
        lock(&inode.state).locks[0].cancelling = true;
        lock(&inode.state).drop_ahead_of(ID);
        assert!(clean.is_idle() && clean.keep(&inode, ID, (0, 100), 0).is_none());
    }

    #[test]
    fn what_lies_within_what_is_read_now_goes_for_it() {
        let (clean, inode) = (Clean::default(), inode());
        for range in [(10, 20), (50, 50), (100, 10)] {
            reads(&clean, &inode, range, 0);
        }
        reads(&clean, &inode, (0, 100), 0);
        assert!(ready(&inode, (0, 110)) && !ready(&inode, (0, 111)));
        assert_eq!(clean.stats().bytes, 110 + 2 * BESIDE_BYTES);
        // All of it is there, or something reaches beyond it: nothing goes.
        assert!(clean.keep(&inode, ID, (10, 90), 0).is_none());
        assert!(clean.keep(&inode, ID, (0, 110), 0).is_none());
        assert!(clean.keep(&inode, ID, (90, 100), 0).is_none());
        assert!(clean.keep(&inode, ID, (105, 100), 0).is_none());
        assert!(ready(&inode, (0, 110)));
        // Nor what is being read.
        let keeping = clean.keep(&inode, ID, (220, 10), 0).unwrap();
        assert!(clean.keep(&inode, ID, (200, 50), 0).is_none());
        keeping.came(&[7; 10]);
        assert!(ready(&inode, (220, 10)));
        reads(&clean, &inode, (200, 50), 0);
        assert!(ready(&inode, (200, 50)));
    }

    #[test]
    fn the_least_used_goes_for_others_and_all_by_age() {
        let (clean, one, other, third) = (Clean::default(), inode(), inode(), inode());
        clean.set_max(2 * (100 + BESIDE_BYTES)).unwrap();
        reads(&clean, &one, (0, 100), 0);
        reads(&clean, &other, (0, 100), 0);
        lock(&one.state).take_ahead((0, 100));
        reads(&clean, &third, (0, 100), 1);
        assert!(ready(&one, (0, 100)) && !ready(&other, (0, 100)) && ready(&third, (0, 100)));
        clean.drop_old(IDLE_TICKS);
        assert!(ready(&third, (0, 100)), "its time is not over");
        clean.drop_old(1 + IDLE_TICKS);
        assert!(!ready(&third, (0, 100)));
        clean.drop_old(2 + 2 * IDLE_TICKS);
        assert!(clean.is_idle() && clean.stats().bytes == 0);
        assert_eq!(clean.set_max(CLEAN_MAX + 1), Err(Errno::ERANGE));
    }
}
