//! What a client knows of one inode: its locks, what stands under them, and what it has
//! written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sateen_types::{Attr, Fid, Layout, Timespec};
use sateen_wire::{Ibits, LockId, LockMode, SizeReport};

use crate::sync::{Waiters, lock};

/// One lock that the client holds.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) id: LockId,
    pub(crate) mode: LockMode,
    pub(crate) bits: Ibits,
    /// It is being given back: only reads and writes of data may still go by it, because the
    /// kernel's invalidation waits for those in flight.
    pub(crate) cancelling: bool,
    /// Data was served since the invalidation that is running began.
    pub(crate) served: bool,
    /// Rounds of invalidation so far.
    pub(crate) rounds: u32,
    /// Reads and writes that go by it now.
    pub(crate) users: u32,
}

/// Writes of one object that no sync has covered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsynced {
    pub(crate) ost: u32,
    pub(crate) boot_epoch: u64,
}

#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// The attributes last heard of. Valid while a `META` lock is held; size, blocks, mtime
    /// and atime while a `DATA` lock is.
    pub(crate) attr: Option<Attr>,
    pub(crate) layout: Option<Arc<Layout>>,
    pub(crate) locks: Vec<Held>,
    /// Stamp of the last cancel: grants of requests sent earlier are not believed.
    pub(crate) cancelled_at: u64,
    /// Cancels that the MDT has not answered: it may meanwhile have granted the same lock once
    /// more, and is about to take it back, so that no grant is believed.
    pub(crate) cancels: u32,
    /// Counts this client's own changes of the inode, so that an answer that was on its way
    /// meanwhile is not cached.
    pub(crate) changes: u64,
    /// When this client last changed it, on the monotonic clock.
    pub(crate) changed_ns: u64,
    /// Open files, and those among them that may write.
    pub(crate) opens: u32,
    pub(crate) write_opens: u32,
    /// References of the kernel.
    pub(crate) lookups: u64,
    /// The transno that must be durable before the first write.
    pub(crate) commit_before_write: u64,
    /// When the data was last written, if the MDT has not heard of it.
    pub(crate) unreported_mtime: Option<Timespec>,
    /// Reports that are on their way to the MDT. The lock they stand under must not be given
    /// back before they have arrived: nobody else may see the size that they correct.
    pub(crate) reporting: u32,
    pub(crate) unsynced: BTreeMap<u32, Unsynced>,
    /// Writes that were acknowledged may be lost: the next fsync says so.
    pub(crate) lost_writes: bool,
    /// An append is choosing its place.
    pub(crate) appending: bool,
    pub(crate) waiters: Waiters,
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) fid: Fid,
    pub(crate) state: Mutex<InodeState>,
}

impl Inode {
    pub(crate) fn new(fid: Fid) -> Inode {
        Inode { fid, state: Mutex::default() }
    }

    /// Wakes everyone who waits for this inode after `change`.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut InodeState) -> T) -> T {
        let (value, woken) = {
            let mut state = lock(&self.state);
            let value = change(&mut state);
            (value, state.waiters.take())
        };
        woken.wake();
        value
    }
}

impl InodeState {
    /// Whether locks that are not being given back cover these bits for reading.
    pub(crate) fn covers(&self, bits: Ibits) -> bool {
        let held = self.locks.iter().filter(|held| !held.cancelling);
        let all = held.fold(Ibits::NONE, |all, held| all.union(held.bits));
        all.contains(bits)
    }

    /// Whether this client holds the data for writing, perhaps not for long any more: its
    /// size is then the truth.
    pub(crate) fn owns_size(&self) -> bool {
        self.locks
            .iter()
            .any(|held| held.bits.contains(Ibits::DATA) && held.mode.covers(LockMode::Pw))
    }

    /// Whether this client has written under its lock what the MDT may not have heard of: it
    /// alone knows the size then. A report on its way counts, because answers that the MDT
    /// gave before it arrived may still come.
    pub(crate) fn is_writer(&self) -> bool {
        (self.unreported_mtime.is_some() || self.reporting > 0) && self.owns_size()
    }

    /// Takes over attributes that were just received.
    pub(crate) fn learn(&mut self, mut attr: Attr) {
        if let Some(old) = &self.attr {
            if self.is_writer() {
                attr.size = old.size;
                attr.blocks = old.blocks;
                attr.mtime = old.mtime;
                attr.size_stale = false;
            }
            if attr.version < old.version {
                return;
            }
        }
        self.attr = Some(attr);
    }

    /// This client changed the inode at the MDT: what was heard before is old.
    pub(crate) fn changed(&mut self, now_ns: u64) {
        self.changes += 1;
        self.changed_ns = now_ns;
    }

    /// Data of `len` bytes up to `end` was written.
    pub(crate) fn wrote(&mut self, end: u64, len: u64, mtime: Timespec) {
        if let Some(attr) = &mut self.attr {
            attr.size = attr.size.max(end);
            attr.blocks = (attr.blocks + len.div_ceil(512)).min(attr.size.div_ceil(4096) * 8);
            attr.mtime = attr.mtime.max(mtime);
            attr.ctime = attr.ctime.max(mtime);
            attr.maybe_objects = true;
        }
        self.unreported_mtime = Some(mtime);
    }

    /// Whether neither the kernel nor an open file refers to it, and nothing is to be told.
    pub(crate) fn is_idle(&self) -> bool {
        self.lookups == 0
            && self.opens == 0
            && self.unreported_mtime.is_none()
            && self.reporting == 0
            && self.unsynced.is_empty()
            && !self.locks.iter().any(|held| held.users > 0 || held.cancelling)
    }

    /// Like [`InodeState::report`], for a report that leaves the lock where it is. To be
    /// followed by [`InodeState::reported`].
    pub(crate) fn begin_report(&mut self) -> Option<SizeReport> {
        let report = self.report();
        self.reporting += u32::from(report.is_some());
        report
    }

    /// The report has arrived, or is to be made again.
    pub(crate) fn reported(&mut self, report: SizeReport, arrived: bool) {
        self.reporting -= 1;
        // What was asked before it arrived says nothing of it.
        self.changes += 1;
        if !arrived && self.unreported_mtime.is_none() {
            self.unreported_mtime = report.mtime;
        }
    }

    /// What the MDT is to be told of the size, if there is anything to tell.
    pub(crate) fn report(&mut self) -> Option<SizeReport> {
        let attr = self.attr.as_ref()?;
        let mtime = self.unreported_mtime.take()?;
        Some(SizeReport { size: attr.size, blocks: attr.blocks, mtime: Some(mtime), atime: None })
    }
}
