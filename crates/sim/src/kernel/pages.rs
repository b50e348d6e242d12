//! The page cache. A page is locked while a READ fills it: whoever wants to read it meanwhile waits, and
//! so does whoever wants it dropped, be it the client (`fuse_reverse_inval_inode`) or a call of this
//! kernel that changes the bytes or opens the file past the cache (`invalidate_inode_pages2_range`). Of
//! those in flight when an invalidation begins it waits for all that meet what it drops; of pages that
//! are read behind its back it knows nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::BytesMut;
use sateen_client::Way;
use sateen_types::{Fid, Result};

use super::locks::INVALIDATION;
use super::{Handle, Kernel, Lock};
use crate::executor::{Raised, Signal, lock};

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Pages that one READ brings: it reads ahead a little, as a kernel does.
const READ_PAGES: u64 = 8;
/// All pages of a file.
pub(super) const ALL: RangeInclusive<u64> = 0..=u64::MAX;

/// The pages that hold bytes of a range that is not empty.
pub(super) fn holding(offset: u64, len: u64) -> RangeInclusive<u64> {
    offset / PAGE_BYTES..=offset.saturating_add(len - 1) / PAGE_BYTES
}

fn meet(a: &RangeInclusive<u64>, b: &RangeInclusive<u64>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

/// Somebody who waits for READs in flight.
#[derive(Debug)]
struct Waiting {
    fid: Fid,
    pages: RangeInclusive<u64>,
    reads: BTreeSet<u64>,
    who: &'static str,
    /// What these READs bring is to go, with all else that is there.
    drops: bool,
    signal: Arc<Signal<()>>,
}

/// What becomes of somebody who wants to read a page.
enum Turn {
    Here(Vec<u8>),
    /// Another READ has it locked.
    Locked(Arc<Signal<()>>),
    /// He reads so many from there on.
    Reads(u64, u64),
}

/// All pages of a kernel.
#[derive(Debug, Default)]
pub(super) struct Pages {
    kept: BTreeMap<Fid, BTreeMap<u64, Vec<u8>>>,
    next_read: u64,
    /// READs in flight, and what each has locked.
    reads: BTreeMap<u64, (Fid, RangeInclusive<u64>)>,
    /// READs whose answers may be older than what the kernel has passed on since.
    overtaken: BTreeSet<u64>,
    waiting: Vec<Waiting>,
    /// Calls and invalidations that had to wait.
    waited: (u64, u64),
}

impl Pages {
    /// This kernel has changed the bytes: pages go, and those of READs in flight are not kept.
    pub(super) fn changed(&mut self, fid: Fid) {
        self.kept.remove(&fid);
        let reads = self.reads.iter().filter(|(_, read)| read.0 == fid).map(|(id, _)| *id);
        self.overtaken.extend(reads);
    }

    pub(super) fn forget(&mut self, fid: Fid) {
        self.kept.remove(&fid);
    }

    pub(super) fn waited(&self) -> (u64, u64) {
        self.waited
    }

    pub(super) fn waits(&self) -> Vec<(&'static str, String)> {
        let one = |waiting: &Waiting| {
            let (from, to) = (waiting.pages.start(), waiting.pages.end());
            (waiting.who, format!("pages {from} to {to} of {}, held by READs", waiting.fid))
        };
        self.waiting.iter().map(one).collect()
    }

    fn drop_range(&mut self, fid: Fid, range: &RangeInclusive<u64>) {
        if let Some(pages) = self.kept.get_mut(&fid) {
            pages.retain(|page, _| !range.contains(page));
        }
    }

    /// The client wants these gone. What is to be waited for, if anything is.
    pub(super) fn invalidate(
        &mut self,
        fid: Fid,
        pages: RangeInclusive<u64>,
    ) -> Option<Arc<Signal<()>>> {
        self.drop_range(fid, &pages);
        let waits = self.wait(fid, pages, INVALIDATION, true);
        self.waited.1 += u64::from(waits.is_some());
        waits
    }

    fn wait(
        &mut self,
        fid: Fid,
        pages: RangeInclusive<u64>,
        who: &'static str,
        drops: bool,
    ) -> Option<Arc<Signal<()>>> {
        let met = |read: &(Fid, RangeInclusive<u64>)| read.0 == fid && meet(&read.1, &pages);
        let met = self.reads.iter().filter(|(_, read)| met(read));
        let reads: BTreeSet<u64> = met.map(|(id, _)| *id).collect();
        if reads.is_empty() {
            return None;
        }
        let signal = Signal::new();
        self.waiting.push(Waiting { fid, pages, reads, who, drops, signal: signal.clone() });
        Some(signal)
    }

    fn turn(&mut self, fid: Fid, page: u64) -> Turn {
        if let Some(bytes) = self.kept.get(&fid).and_then(|pages| pages.get(&page)).cloned() {
            return Turn::Here(bytes);
        }
        if let Some(signal) = self.wait(fid, page..=page, "a read", false) {
            self.waited.0 += 1;
            return Turn::Locked(signal);
        }
        let kept = self.kept.get(&fid);
        let is_there = |page: &u64| {
            let locked = |read: &(Fid, RangeInclusive<u64>)| read.0 == fid && read.1.contains(page);
            kept.is_some_and(|pages| pages.contains_key(page)) || self.reads.values().any(locked)
        };
        let count = (1..READ_PAGES).find(|more| is_there(&(page + more))).unwrap_or(READ_PAGES);
        let read = self.next_read;
        self.next_read += 1;
        self.reads.insert(read, (fid, page..=page + count - 1));
        Turn::Reads(read, count)
    }

    /// A READ was answered: the pages that it has brought, or none, are unlocked.
    fn answered(&mut self, read: u64, data: &[u8]) {
        let Some((fid, pages)) = self.reads.remove(&read) else { return };
        if !self.overtaken.remove(&read) {
            let kept = self.kept.entry(fid).or_default();
            kept.extend(pages.zip(data.chunks(PAGE_BYTES as usize).map(<[u8]>::to_vec)));
        }
        let mut caught = Vec::new();
        for waiting in &mut self.waiting {
            if waiting.reads.remove(&read) && waiting.drops {
                caught.push((waiting.fid, waiting.pages.clone()));
            }
            if waiting.reads.is_empty() {
                waiting.signal.raise(());
            }
        }
        self.waiting.retain(|waiting| !waiting.reads.is_empty());
        for (fid, pages) in caught {
            self.drop_range(fid, &pages);
        }
    }
}

impl Kernel {
    /// A call drops pages, once READs of them are answered.
    pub(super) async fn drop_pages(&self, fid: Fid, pages: RangeInclusive<u64>, who: &'static str) {
        let waits = {
            let state = &mut lock(&self.state).pages;
            state.drop_range(fid, &pages);
            let waits = state.wait(fid, pages, who, true);
            state.waited.0 += u64::from(waits.is_some());
            waits
        };
        if let Some(signal) = waits {
            Raised(signal).await;
        }
    }

    /// From now on the file is open through the cache as well, once more: who writes past it has it for
    /// himself.
    pub(super) async fn begin_caching(&self, fid: Fid) {
        *lock(&self.state).cached.entry(fid).or_default() += 1;
        drop(self.locks.alone(Lock::Uncached(fid), "open").await);
    }

    /// A descriptor has gone.
    pub(super) fn end_caching(&self, handle: Handle) {
        let mut state = lock(&self.state);
        let was_mapped = state.mapped.remove(&handle.id);
        if !was_mapped && (handle.how.direct || handle.way != Way::Ordinary) {
            return;
        }
        if let Some(count) = state.cached.get_mut(&handle.fid) {
            *count -= 1;
            if *count == 0 {
                state.cached.remove(&handle.fid);
            }
        }
    }

    /// Reads from pages, as all do through mappings.
    pub(crate) async fn read_mapped(
        &self,
        handle: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>> {
        if handle.way != Way::Ordinary {
            // A mapping is of the object itself.
            return self.read_given(handle, offset, len).await;
        }
        if handle.how.direct && lock(&self.state).mapped.insert(handle.id) {
            self.begin_caching(handle.fid).await;
        }
        let size = self.getattr(handle.fid).await?.size;
        let end = (offset + len).min(size);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let page = at / PAGE_BYTES;
            let bytes = self.page(handle, page).await?;
            let from = (at % PAGE_BYTES) as usize;
            let to = (end - page * PAGE_BYTES).min(PAGE_BYTES) as usize;
            let mut bytes = bytes.get(..to.min(bytes.len())).unwrap_or_default().to_vec();
            bytes.resize(to, 0);
            out.extend_from_slice(bytes.get(from..).unwrap_or_default());
            at = page * PAGE_BYTES + to as u64;
        }
        Ok(out)
    }

    pub(super) async fn page(&self, handle: Handle, page: u64) -> Result<Vec<u8>> {
        let fid = handle.fid;
        let (read, count, _mapping) = loop {
            if let Some(bytes) = self.page_that_is_here(fid, page) {
                return Ok(bytes);
            }
            let mapping = self.locks.shared(Lock::Mapping(fid), "read").await;
            let turn = lock(&self.state).pages.turn(fid, page);
            match turn {
                Turn::Here(bytes) => return Ok(bytes),
                Turn::Reads(read, count) => break (read, count, mapping),
                Turn::Locked(signal) => {
                    drop(mapping);
                    Raised(signal).await;
                }
            }
        };
        let (offset, len) = (page * PAGE_BYTES, count * PAGE_BYTES);
        let got = self.client.read(handle.id, offset, len as u32, BytesMut::new()).await;
        let data = got.as_deref().unwrap_or_default();
        lock(&self.state).pages.answered(read, data);
        got.map(|data| data.get(..data.len().min(PAGE_BYTES as usize)).unwrap_or_default().to_vec())
    }

    fn page_that_is_here(&self, fid: Fid, page: u64) -> Option<Vec<u8>> {
        let mut state = lock(&self.state);
        let bytes = state.pages.kept.get(&fid).and_then(|pages| pages.get(&page)).cloned();
        state.hits += u64::from(bytes.is_some());
        bytes
    }
}
