//! Pages of directories that were listed stay with their inode, so that who lists them again costs no
//! request.
//!
//! **They live as long as the locks on the directory's names and attributes**, all of them: names stand
//! under `UPDATE`, and where the directory itself is (`..`) under its `LOOKUP`. They go in the step that
//! begins to give one of these back. Own changes of its names take no lock back: each drops the pages when
//! it begins, and while one is under way, or one that was given up may yet be done, none come. What was
//! asked before a change has ended may be from before it, and does not stay either.
//!
//! A page is what follows one position up to another, without gaps, and positions are places in the
//! order of names that do not change. So whoever goes on from any position finds each name that stays
//! once, whether a page answers him or the MDT.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use sateen_types::{DirCookie, Errno, Fid, FileKind, Name, Result};
use sateen_wire::{DirEntry, Ibits};

use crate::inode::{Inode, InodeState};
use crate::rare::RareState;
use crate::sync::lock;

/// What can be set, at most: 1 TiB.
pub const DIR_PAGES_MAX: u64 = 1 << 40;
/// Bytes of all directories together, 64 MiB, unless it is set otherwise.
const MAX_DEFAULT: u64 = 64 << 20;
/// One directory has this part of it at most: what comes first stays, since who lists it once more begins
/// there.
const DIR_PART: u64 = 4;
/// Entries that are asked for at a time, at most, unless the program asks for more.
const ASKED_MAX: usize = 1024;
/// What a directory takes up of which there are pages, beside these: what its inode has for them, its place
/// among all, and the first node of their tree, which has room for 11.
const DIR_BYTES: u64 = (size_of::<RareState>()
    + size_of::<Kept>()
    + 2 * size_of::<(u64, Listed)>()
    + 11 * size_of::<(DirCookie, Page)>()) as u64;
const _: () = assert!(DIR_BYTES * 10 / 1024 == 12, "the documents say 1.2 KiB");
/// What a page takes up beside its entries: its place among the others, of which half may be empty.
const PAGE_BYTES: u64 = 128;
const _: () = assert!(PAGE_BYTES >= 2 * size_of::<(DirCookie, Page)>() as u64);
/// What an entry takes up beside its name.
const ENTRY_BYTES: u64 = size_of::<Packed>() as u64;
/// What a name is taken for before it has come.
const NAME_BYTES: u64 = 32;
/// Ticks after which pages go that nobody has read again: 10 min.
const IDLE_TICKS: u32 = 2400;

/// What there is, and what it was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirPagesStats {
    /// Bytes, with what they need beside them.
    pub bytes: u64,
    /// Listings, or parts of one, that were answered from it.
    pub hits: u64,
    /// How often the pages of a directory went because there was too much.
    pub reclaimed: u64,
}

/// An entry without its name, which ends there among those of its page.
#[derive(Debug)]
struct Packed {
    cookie: DirCookie,
    fid: Fid,
    kind: FileKind,
    name_end: u32,
}

/// What is to be kept of an answer.
#[derive(Debug)]
struct Part<'a> {
    entries: &'a [DirEntry],
    last: Option<DirCookie>,
}

impl<'a> Part<'a> {
    /// What follows `after`, but for what follows `next`, which is kept already. Nothing of what is not in
    /// order.
    fn of(
        entries: &'a [DirEntry],
        end: bool,
        after: DirCookie,
        next: Option<DirCookie>,
    ) -> Option<Part<'a>> {
        let ordered = entries.is_sorted_by(|entry, next| entry.cookie < next.cookie);
        if !ordered || entries.first().is_some_and(|first| first.cookie <= after) {
            return None;
        }
        let last = match entries.last() {
            _ if end => None,
            Some(entry) => Some(entry.cookie),
            None => return None,
        };
        let Some(next) = next.filter(|next| last.is_none_or(|last| *next < last)) else {
            return Some(Part { entries, last });
        };
        let (entries, _) = entries.split_at(entries.partition_point(|entry| entry.cookie <= next));
        Some(Part { entries, last: Some(next) })
    }

    fn name_bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.name.as_bytes().len()).sum()
    }

    /// What it takes up as a page.
    fn bytes(&self) -> u64 {
        PAGE_BYTES + self.entries.len() as u64 * ENTRY_BYTES + self.name_bytes() as u64
    }

    fn pack(&self) -> Page {
        let mut names = Vec::with_capacity(self.name_bytes());
        let entries = self.entries.iter().map(|entry| {
            names.extend_from_slice(entry.name.as_bytes());
            let DirEntry { cookie, fid, kind, .. } = *entry;
            Packed { cookie, fid, kind, name_end: names.len() as u32 }
        });
        let entries = entries.collect();
        Page { entries, names: names.into_boxed_slice(), last: self.last }
    }
}

/// What follows one position, up to the last.
#[derive(Debug)]
struct Page {
    entries: Box<[Packed]>,
    names: Box<[u8]>,
    /// Without it nothing follows.
    last: Option<DirCookie>,
}

impl Page {
    fn covers(&self, place: DirCookie) -> bool {
        self.last.is_none_or(|last| place < last)
    }

    /// Adds up to `count` entries that follow a place; whether these are all of the page.
    fn list(&self, place: DirCookie, count: usize, out: &mut Vec<DirEntry>) -> bool {
        let from = self.entries.partition_point(|entry| entry.cookie <= place);
        let mut name_begins = match from.checked_sub(1).and_then(|before| self.entries.get(before))
        {
            Some(before) => before.name_end as usize,
            None => 0,
        };
        let rest = self.entries.get(from..).unwrap_or_default();
        for entry in rest.iter().take(count) {
            let name_end = entry.name_end as usize;
            let name = self.names.get(name_begins..name_end).and_then(|name| Name::new(name).ok());
            let Packed { cookie, fid, kind, .. } = *entry;
            out.extend(name.map(|name| DirEntry { cookie, fid, kind, name, attr: None }));
            name_begins = name_end;
        }
        rest.len() <= count
    }
}

/// The pages of one directory, by what they follow. None is part of another.
#[derive(Debug)]
struct Kept {
    /// What `..` is.
    parent: Fid,
    pages: BTreeMap<DirCookie, Page>,
    bytes: u64,
    entries: usize,
    /// Its place among all.
    number: u64,
    /// Somebody has begun to list it since it was looked at last, and found it here: who lists it for
    /// the first time finds, as he goes on, what came for himself.
    used: bool,
    of: Arc<All>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        lock(&self.of.listed).all.remove(&self.number);
    }
}

impl Kept {
    /// The page that a position is in.
    fn page(&self, place: DirCookie) -> Option<&Page> {
        let (_, page) = self.pages.range(..=place).next_back()?;
        page.covers(place).then_some(page)
    }

    /// Up to `count` entries that follow a position, and whether nothing follows them.
    fn list(&self, after: DirCookie, count: usize) -> Option<(Vec<DirEntry>, bool)> {
        let (mut place, mut end, mut entries) = (after, false, Vec::new());
        while !end && entries.len() < count {
            let Some(page) = self.page(place) else { break };
            if !page.list(place, count - entries.len(), &mut entries) {
                break;
            }
            match page.last {
                Some(last) => place = last,
                None => end = true,
            }
        }
        (end || !entries.is_empty()).then_some((entries, end))
    }
}

/// What there is of a directory, and what keeps more from coming.
#[derive(Debug, Default)]
pub(crate) struct DirPages {
    /// Own calls under way that change its names.
    changing: u32,
    /// Stamp of the last own change: what was asked before may be from before it.
    void_at: u64,
    kept: Option<Box<Kept>>,
}

impl DirPages {
    /// An own change of a name begins.
    pub(crate) fn begin_change(&mut self) {
        self.changing += 1;
        self.kept = None;
    }

    /// It has ended, or nobody waits for its end any more, as is known from `now` on.
    pub(crate) fn end_change(&mut self, now: u64) {
        self.changing -= 1;
        self.void(now);
    }

    /// What is known from before `now` does not hold any more.
    pub(crate) fn void(&mut self, now: u64) {
        (self.kept, self.void_at) = (None, now);
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.changing == 0 && self.kept.is_none()
    }

    /// Whether what was asked for at `since`, and before that nobody had given up a change that may be
    /// done yet, is from after all own changes.
    fn is_news(&self, since: u64) -> bool {
        self.changing == 0 && since > self.void_at
    }
}

/// A part of a directory, as it was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) after: DirCookie,
    pub(crate) entries: &'a [DirEntry],
    pub(crate) end: bool,
    pub(crate) parent: Fid,
}

impl InodeState {
    /// The pages do not hold any more.
    pub(crate) fn drop_dir_pages(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            rare.dir_pages.kept = None;
        }
    }

    /// A lock is gone.
    pub(crate) fn drop_dir_pages_without_lock(&mut self) {
        if self.dir_pages.kept.is_some() && !self.holds(Ibits::META) {
            self.drop_dir_pages();
        }
    }

    /// Up to `count` entries that follow a position, whether nothing follows them, and what `..` is; if
    /// that is kept, and stands.
    pub(crate) fn kept_listing(
        &mut self,
        after: DirCookie,
        count: usize,
    ) -> Option<(Vec<DirEntry>, bool, Fid)> {
        if self.dir_pages.kept.is_none() || !self.covers(Ibits::META) {
            return None;
        }
        let kept = self.rare_if_any()?.dir_pages.kept.as_mut()?;
        let (entries, end) = kept.list(after, count)?;
        kept.used |= after == DirCookie::START;
        Some((entries, end, kept.parent))
    }
}

#[derive(Debug)]
struct Listed {
    inode: Weak<Inode>,
    /// In which tick that was.
    at: u32,
}

#[derive(Debug, Default)]
struct InOrder {
    next: u64,
    all: BTreeMap<u64, Listed>,
}

impl InOrder {
    /// One more; its number.
    fn list(&mut self, inode: Weak<Inode>, at: u32) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, Listed { inode, at });
        number
    }
}

/// All directories of which there are pages. Locked after an inode.
#[derive(Debug, Default)]
struct All {
    bytes: AtomicU64,
    listed: Mutex<InOrder>,
}

/// What has become of the directory that had been there for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Oldest {
    /// It went.
    Went,
    /// It begins anew, or was gone already.
    Passed,
    /// There is none that is as old as that.
    Missing,
}

/// All of a client.
#[derive(Debug)]
pub(crate) struct DirCache {
    max: AtomicU64,
    all: Arc<All>,
    hits: AtomicU64,
    reclaimed: AtomicU64,
}

impl Default for DirCache {
    fn default() -> DirCache {
        DirCache {
            max: AtomicU64::new(MAX_DEFAULT),
            all: Arc::default(),
            hits: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }
}

impl DirCache {
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets how much may stay, in tick `now`. With 0 nothing does.
    pub(crate) fn set_max(&self, bytes: u64, now: u32) -> Result<()> {
        if bytes > DIR_PAGES_MAX {
            return Err(Errno::ERANGE);
        }
        self.max.store(bytes, Ordering::Relaxed);
        self.fit(now);
        Ok(())
    }

    pub(crate) fn stats(&self) -> DirPagesStats {
        let [bytes, hits, reclaimed] = [&self.all.bytes, &self.hits, &self.reclaimed]
            .map(|counter| counter.load(Ordering::Relaxed));
        DirPagesStats { bytes, hits, reclaimed }
    }

    /// A listing was answered from a page.
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// How many entries are asked for by a program that wants `count`: as many again as are kept, since
    /// it goes on, if what comes can stay.
    pub(crate) fn asks(&self, state: &InodeState, count: usize) -> usize {
        let Some(kept) = &state.dir_pages.kept else { return count };
        let more = kept.entries.min(ASKED_MAX).max(count);
        let bytes = more as u64 * (ENTRY_BYTES + NAME_BYTES);
        if kept.bytes + bytes <= self.max() / DIR_PART { more } else { count }
    }

    /// What was asked for at `since`, by a request sent at `stamp`, was answered in tick `now`.
    pub(crate) fn keep(
        &self,
        inode: &Arc<Inode>,
        answer: Answer<'_>,
        (since, stamp): (u64, u64),
        now: u32,
    ) {
        let Answer { after, entries, end, parent } = answer;
        {
            let mut state = lock(&inode.state);
            if !state.dir_pages.is_news(since)
                || !state.stands(Ibits::META, stamp)
                || state.nameless
            {
                return;
            }
            let kept = state.dir_pages.kept.as_deref();
            let kept = kept.filter(|kept| kept.parent == parent);
            if kept.is_some_and(|kept| kept.page(after).is_some()) {
                return;
            }
            let follows = (Bound::Excluded(after), Bound::Unbounded);
            let next = kept.and_then(|kept| kept.pages.range(follows).next());
            let next = next.map(|(next, _)| *next);
            let Some(part) = Part::of(entries, end, after, next) else { return };
            let (before, more) = (kept.map_or(DIR_BYTES, |kept| kept.bytes), part.bytes());
            // Looked at first: of what does not fit each piece would be copied for nothing.
            if before + more > self.max() / DIR_PART {
                return;
            }
            if kept.is_none() {
                // What was there goes first: its place is another.
                state.dir_pages.kept = None;
                state.dir_pages.kept = Some(Box::new(self.new_kept(inode, parent, now)));
            }
            let Some(kept) = &mut state.dir_pages.kept else { return };
            kept.bytes += more;
            kept.entries += part.entries.len();
            self.all.bytes.fetch_add(more, Ordering::Relaxed);
            kept.pages.insert(after, part.pack());
        }
        self.fit(now);
    }

    fn new_kept(&self, inode: &Arc<Inode>, parent: Fid, now: u32) -> Kept {
        let number = lock(&self.all.listed).list(Arc::downgrade(inode), now);
        let (pages, of) = (BTreeMap::new(), self.all.clone());
        self.all.bytes.fetch_add(DIR_BYTES, Ordering::Relaxed);
        Kept { parent, pages, bytes: DIR_BYTES, entries: 0, number, used: false, of }
    }

    /// Those go that are too many by now.
    fn fit(&self, now: u32) {
        while self.all.bytes.load(Ordering::Relaxed) > self.max() {
            match self.push_out(now, 0) {
                Oldest::Went => {
                    self.reclaimed.fetch_add(1, Ordering::Relaxed);
                }
                Oldest::Passed => {}
                Oldest::Missing => return,
            }
        }
    }

    /// Those go that nobody has read for a while in tick `now`.
    pub(crate) fn drop_old(&self, now: u32) {
        while self.push_out(now, IDLE_TICKS) != Oldest::Missing {}
    }

    /// The directory that has been there for longest goes, if that is so many ticks, or begins anew, if
    /// somebody has read it since and anything may stay at all.
    fn push_out(&self, now: u32, ticks: u32) -> Oldest {
        let (number, inode) = {
            let mut listed = lock(&self.all.listed);
            let Some((number, oldest)) = listed.all.first_key_value() else {
                return Oldest::Missing;
            };
            if now.saturating_sub(oldest.at) < ticks {
                return Oldest::Missing;
            }
            let (number, inode) = (*number, oldest.inode.clone());
            listed.all.remove(&number);
            (number, inode)
        };
        let Some(inode) = inode.upgrade() else { return Oldest::Passed };
        let mut state = lock(&inode.state);
        let Some(rare) = state.rare_if_any() else { return Oldest::Passed };
        let kept = rare.dir_pages.kept.as_mut().filter(|kept| kept.number == number);
        let Some(kept) = kept else { return Oldest::Passed };
        if core::mem::take(&mut kept.used) && self.max() > 0 {
            kept.number = lock(&self.all.listed).list(Arc::downgrade(&inode), now);
            return Oldest::Passed;
        }
        rare.dir_pages.kept = None;
        Oldest::Went
    }
}

#[cfg(test)]
mod tests;
