//! What a client knows of one inode: its locks, what stands under them, and what it has
//! written.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

use sateen_types::{Attr, Errno, Fid, Layout, Result, Timespec};
use sateen_wire::{Ibits, LockMode, SizeReport};

use crate::atime::AtimePolicy;
use crate::by_stripe::ByStripe;
use crate::ended::EndedWell;
use crate::held::{Held, Locks};
use crate::llite::OpenHow;
use crate::locks::Access;
use crate::loss::Loss;
use crate::lru::Namespace;
use crate::open_cache::KeptOpens;
use crate::patience;
use crate::rare::Rare;
use crate::sync::{lock, until};

/// What local file systems give space in.
const BLOCK_BYTES: u64 = 4096;

/// Writes of one object that no sync has covered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsynced {
    pub(crate) ost: u32,
    pub(crate) boot_epoch: u64,
}

/// What was written under a shared lock, and the MDT has not heard of: that others wrote more, and
/// what the size is, only the MDT finds out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedWrites {
    end: u64,
    blocks: u64,
    mtime: Timespec,
}

#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// The attributes last heard of, or as this client's own writes have made them. Which of
    /// them are the truth is said by the next two.
    pub(crate) attr: Option<Attr>,
    /// All but what `size_known` speaks of was learned under a `META` lock that is still held.
    pub(crate) meta_known: bool,
    /// Size, blocks, mtime and atime were learned under a `DATA` lock that is still held.
    pub(crate) size_known: bool,
    pub(crate) layout: Option<Arc<Layout>>,
    pub(crate) locks: Locks,
    /// Stamp of the last cancel: grants of requests sent earlier are not believed.
    pub(crate) cancelled_at: u64,
    /// Stamp of this client's last own change of the inode, or report of its size: an answer
    /// to a request sent earlier may not know of it.
    pub(crate) changed_at: u64,
    /// The kernel was given its attributes to keep, and has not been told to forget
    /// them since.
    pub(crate) told: bool,
    /// Open files, and those among them that may write.
    pub(crate) opens: u32,
    pub(crate) write_opens: u32,
    /// A program of this client has closed it before.
    pub(crate) was_open: bool,
    /// By which name it was found last ([`crate::open_cache::name_hash`]); 0 if by none.
    pub(crate) named: u32,
    /// References of the kernel.
    pub(crate) lookups: u64,
    /// The transno that must be durable before the first write.
    pub(crate) commit_before_write: u64,
    /// How much space the file takes up was guessed, because something in it was overwritten.
    pub(crate) blocks_doubtful: bool,
    /// A report is on its way to the MDT. The lock it stands under must not be given back
    /// before it has arrived: nobody else may see the size that it corrects. Nor must another
    /// report overtake it.
    pub(crate) reporting: bool,
    /// What it tells is when something was read, and nothing of the size.
    pub(crate) reporting_atime: bool,
    /// Other clients may have written what no sync from here has covered.
    pub(crate) others_wrote: bool,
    /// Writes that were acknowledged may be lost.
    pub(crate) loss: Loss,
    /// It has no name any more: once it is closed nobody can ask whether it was synced.
    pub(crate) nameless: bool,
    /// The MDT has forgotten this client since: a restart may have taken the inode with it.
    pub(crate) doubtful: bool,
    /// An append is choosing its place.
    pub(crate) appending: bool,
    /// The file is being cut to nothing by an open, or its size is being set: nobody begins to
    /// write.
    pub(crate) emptying: bool,
    /// It was found to have no extended attributes under an `XATTR` lock that is still held.
    pub(crate) no_xattrs: bool,
    /// The objects are being synced: see [`RareState::sync_round`].
    pub(crate) syncing: bool,
    /// What only some inodes need: see [`crate::rare`].
    pub(crate) rare: Rare,
}

const _: () = assert!(size_of::<Inode>() <= 360, "there are millions of them");

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) fid: Fid,
    /// Somebody has asked for it since [`Client::prune`](crate::Client) came by.
    pub(crate) used: AtomicBool,
    /// In which tick that was.
    pub(crate) used_at: AtomicU32,
    pub(crate) state: Mutex<InodeState>,
}

impl Inode {
    /// An inode of which nothing is known; what was asked before `stamp` may be of an earlier
    /// life of it here.
    pub(crate) fn new(fid: Fid, stamp: u64, of: Arc<Namespace>) -> Inode {
        let state = InodeState {
            locks: Locks::of(of),
            cancelled_at: stamp,
            others_wrote: true,
            ..InodeState::default()
        };
        let (used, used_at) = (AtomicBool::new(true), AtomicU32::default());
        Inode { fid, used, used_at, state: Mutex::new(state) }
    }

    /// Wakes everyone who waits for this inode after `change`.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut InodeState) -> T) -> T {
        let (value, woken) = {
            let mut state = lock(&self.state);
            let value = change(&mut state);
            (value, state.take_waiters())
        };
        woken.wake();
        value
    }
}

impl Inode {
    /// What the MDT is to be told of the size, once no other report is on its way any more:
    /// an fsync or a close that comes first would speak for data that the MDT has not heard of.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn next_report(&self) -> Result<Option<SizeReport>> {
        until(
            &self.state,
            |state| &mut state.waiters,
            // A cancel on its way may be a report, too.
            |state| {
                if state.reporting || !state.cancels.is_empty() {
                    return patience::is_over().then_some(Err(Errno::EINTR));
                }
                Some(Ok(state.begin_report()))
            },
        )
        .await
    }
}

impl InodeState {
    /// Whether data was written of which the MDT may not know.
    pub(crate) fn is_untold(&self) -> bool {
        self.unreported_mtime.is_some() || self.shared.is_some() || self.reporting
    }

    /// Whether data was written that may not be durable, or of which the MDT may not know.
    pub(crate) fn is_unsaved(&self) -> bool {
        let lost = self.loss != Loss::None || !self.late.is_shown();
        self.is_untold() || !self.unsynced.is_empty() || lost || self.syncing
    }

    /// The MDT has forgotten this client.
    pub(crate) fn forgotten(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            rare.kept_opens = KeptOpens::default();
            (rare.unreported_mtime, rare.unreported_atime) = (None, None);
            rare.shared = None;
            rare.group.forgotten();
        }
        self.forgotten_given();
        self.commit_before_write = 0;
        self.doubtful = true;
        // The MDT's new run may give its generation to another.
        self.layout = None;
    }

    /// The MDT has lost its transactions above `sure`. What may have been learned from one of them is
    /// forgotten, with the locks on names and attributes, as is known from `stamp` on. Whether that
    /// is the case.
    pub(crate) fn doubt(&mut self, sure: u64, stamp: u64) -> bool {
        // What is made again is durable before the MDT answers anything.
        if self.commit_before_write <= sure {
            self.commit_before_write = 0;
        }
        let unchanged = self.attr.as_ref().is_some_and(|attr| attr.version <= sure);
        if self.meta_known && unchanged {
            return false;
        }
        let known = !self.locks.is_empty();
        self.locks.retain_mut(|held| {
            let on_data = held.bits.contains(Ibits::DATA);
            if on_data {
                held.bits = Ibits::DATA;
            }
            on_data
        });
        self.cancelled_at = stamp;
        // That was read by the layout.
        self.drop_ahead();
        self.layout = None;
        self.lost_locks();
        self.size_known &= self.is_writer();
        if let Some(attr) = &mut self.attr {
            // The next that is heard is newer.
            attr.version = 0;
        }
        known
    }

    /// Takes over what an earlier life of this inode has left to be synced.
    pub(crate) fn inherit(&mut self, (left, loss): (ByStripe<Unsynced>, Loss), ended: &EndedWell) {
        self.loss.add(loss);
        for (stripe, at) in left {
            self.not_synced(stripe, at, ended);
        }
    }

    /// A sync was cut short: it has to be made again.
    pub(crate) fn not_synced(&mut self, stripe: u32, at: Unsynced, ended: &EndedWell) {
        if ended.has(at) {
            return;
        }
        match self.unsynced.get(stripe).filter(|now| !ended.has(*now)) {
            Some(now) => self.loss.add(Loss::found(now.boot_epoch != at.boot_epoch)),
            None => {
                self.unsynced.insert(stripe, at);
            }
        }
    }

    /// Whether locks that are not being given back cover these bits for reading.
    pub(crate) fn covers(&self, bits: Ibits) -> bool {
        let held = self.locks.iter().filter(|held| !held.cancelling && !held.is_shared());
        let all = held.fold(Ibits::NONE, |all, held| all.union(held.bits));
        all.contains(bits)
    }

    /// The mode to ask for. Once this client may write a file, all its pages stand under a lock
    /// for writing, because stores through mappings make no call.
    pub(crate) fn mode_for(&self, access: Access) -> LockMode {
        match access {
            Access::Share => LockMode::Cw,
            Access::Put => LockMode::Pw,
            // Who looks at what he writes would have to share it for writing next.
            Access::Look if self.write_opens > 0 => LockMode::Cw,
            Access::Look => LockMode::Cr,
            Access::Write => LockMode::Pw,
            Access::Read if self.write_opens > 0 => LockMode::Pw,
            Access::Read => LockMode::Pr,
        }
    }

    /// No page may be read any more under locks for reading that have none yet.
    pub(crate) fn forbid_pages(&mut self) {
        for held in self.locks.iter_mut().filter(|held| !held.pages && !held.cancelling) {
            held.readable = false;
        }
    }

    /// Locks for reading under which there may be pages.
    pub(crate) fn read_locks(&self) -> impl Iterator<Item = &Held> {
        let data = self.locks.iter().filter(|held| held.bits.intersects(Ibits::DATA));
        data.filter(|held| held.readable && !held.mode.covers(LockMode::Pw))
    }

    /// Whether this client holds the data for writing, perhaps not for long any more: its
    /// size is then the truth.
    pub(crate) fn owns_size(&self) -> bool {
        self.locks.iter().any(Held::owns_data)
    }

    /// Whether it holds a shared lock for writing, a group's, or parts, perhaps not for long any more. Then
    /// it has no other on the data, but for shared ones for reading.
    pub(crate) fn is_sharing(&self) -> bool {
        self.locks.iter().any(Held::shares_writes)
    }

    /// Whether it holds any lock under which it may write.
    pub(crate) fn may_write(&self) -> bool {
        self.owns_size() || self.is_sharing()
    }

    /// Whether this client has written under its lock what the MDT may not have heard of: it
    /// alone knows the size then. A report on its way counts, because answers that the MDT
    /// gave before it arrived may still come.
    pub(crate) fn is_writer(&self) -> bool {
        let telling = self.reporting && !self.reporting_atime;
        (self.unreported_mtime.is_some() || telling) && self.owns_size()
    }

    /// Whether an answer to a request sent at `stamp` tells how things are now, so far as locks
    /// keep them so. Otherwise it may have been on its way while a lock was given back and
    /// taken again, or while this client changed something itself.
    pub(crate) fn is_news(&self, stamp: u64) -> bool {
        self.cancels.is_empty() && stamp >= self.cancelled_at && stamp >= self.changed_at
    }

    /// Whether locks, also those being given back, hold these bits.
    pub(crate) fn holds(&self, bits: Ibits) -> bool {
        let held = self.locks.iter().filter(|held| !held.is_shared());
        held.fold(Ibits::NONE, |all, held| all.union(held.bits)).contains(bits)
    }

    /// Whether all of these bits were held when a request that was sent at `stamp` was answered.
    pub(crate) fn held(&self, bits: Ibits, stamp: u64) -> bool {
        let then = |held: &&Held| !held.is_shared() && held.granted.covers(stamp);
        let all =
            self.locks.iter().filter(then).fold(Ibits::NONE, |all, held| all.union(held.bits));
        all.contains(bits)
    }

    /// Whether what a request sent at `stamp` found stands under a lock for these bits that has
    /// been there ever since.
    pub(crate) fn stands(&self, bits: Ibits, stamp: u64) -> bool {
        let ever_since = self.cancels.is_empty() && stamp >= self.cancelled_at;
        self.covers(bits) && self.held(bits, stamp) && ever_since
    }

    /// Takes over attributes from an answer to a request sent at `stamp`.
    pub(crate) fn learn(&mut self, attr: Attr, stamp: u64) {
        if self.is_news(stamp) {
            self.take_over(attr, stamp);
        }
    }

    fn take_over(&mut self, mut attr: Attr, stamp: u64) {
        if let Some(old) = &self.attr {
            // What a lock covers is known already, and better: an answer that took longer than it
            // took to get the lock is older.
            if (self.meta_known || self.size_known) && attr.version < old.version {
                return;
            }
            // While a holder tells and keeps his lock one version has several sizes. What is known
            // under a lock of our own is the last of them.
            if self.size_known && attr.version == old.version && !self.held(Ibits::DATA, stamp) {
                attr.atime = old.atime;
                attr.ctime = old.ctime;
                attr.size_stale = true;
            }
            if self.size_known && (self.is_writer() || attr.size_stale) {
                attr.size = old.size;
                attr.blocks = old.blocks;
                attr.mtime = old.mtime;
                attr.size_stale = false;
            }
        }
        attr.atime = attr.atime.max(self.unreported_atime.unwrap_or(attr.atime));
        // Known is what was answered under a lock. What was known stays so: this is no older.
        self.size_known = !attr.size_stale
            && !self.is_given()
            && if self.size_known {
                self.holds(Ibits::DATA)
            } else {
                self.held(Ibits::DATA, stamp)
            };
        self.meta_known =
            if self.meta_known { self.holds(Ibits::META) } else { self.held(Ibits::META, stamp) };
        self.attr = Some(attr);
    }

    /// This client changed the inode at the MDT, with a request sent at `sent`, as is known
    /// from `now` on: what was heard before is old. `attr` is what the MDT made of it; of the
    /// data, too, if `data`.
    pub(crate) fn changed(&mut self, attr: Option<Attr>, (sent, now): (u64, u64), data: bool) {
        let changed_at = core::mem::replace(&mut self.changed_at, now);
        self.no_xattrs = false;
        self.drop_xattrs();
        // Where it is may be what was changed.
        if self.attr.as_ref().is_none_or(Attr::is_dir) {
            self.dir_pages.void(now);
        }
        // A report of the size may have overtaken it.
        let older = !data && sent < changed_at;
        let attr = attr.map(|attr| if older { self.with_size(attr) } else { attr });
        match attr {
            // It may have been on its way while others changed more, or this client itself: of
            // one directory it may change several names at once.
            Some(attr)
                if self.cancels.is_empty()
                    && sent >= self.cancelled_at
                    && (!attr.is_dir() || sent >= changed_at) =>
            {
                self.take_over(attr, sent);
                // Also while the MDT does not know the size: that it was set now it does know.
                let own = self.attr.as_mut().filter(|own| data && own.version == attr.version);
                if let Some(own) = own {
                    own.mtime = attr.mtime;
                }
            }
            Some(_) => {
                self.meta_known = false;
                self.size_known &= self.is_writer();
            }
            None => self.meta_known = false,
        }
    }

    /// The size as it is known now, in attributes that may be older.
    pub(crate) fn with_size(&self, attr: Attr) -> Attr {
        match &self.attr {
            Some(own) if self.size_known => Attr {
                size: own.size,
                blocks: own.blocks,
                mtime: own.mtime,
                atime: own.atime,
                size_stale: false,
                ..attr
            },
            _ => attr,
        }
    }

    /// A lock is gone, and with it what stood under it alone.
    pub(crate) fn lost_locks(&mut self) {
        assert!(
            self.dirty.is_none() || self.locks.iter().any(Held::keeps),
            "nothing outlives the lock under which it is kept"
        );
        self.meta_known &= self.holds(Ibits::META);
        self.size_known &= self.holds(Ibits::DATA);
        self.no_xattrs &= self.holds(Ibits::XATTR);
        if self.xattrs.is_some() && !self.holds(Ibits::META) {
            self.drop_xattrs();
        }
        self.drop_dir_pages_without_lock();
        self.others_wrote |= !self.holds(Ibits::DATA);
        if self.shared.is_some() && !self.is_sharing() {
            self.shared = None;
        }
        if !self.names.is_unknown() && !self.holds(Ibits::UPDATE) {
            self.names.are_unknown();
        }
        self.drop_ahead_without_lock();
    }

    /// A request sent at `stamp` has found no extended attributes.
    pub(crate) fn have_no_xattrs(&mut self, stamp: u64) {
        self.no_xattrs |= self.is_news(stamp) && self.stands(Ibits::XATTR, stamp);
    }

    /// Whether there are surely none.
    pub(crate) fn has_no_xattrs(&self) -> bool {
        self.no_xattrs && self.covers(Ibits::XATTR)
    }

    /// It is a directory that this client has made with a request sent at `stamp`. `all` counts
    /// the names of all such.
    pub(crate) fn is_empty_dir(&mut self, stamp: u64, all: &Arc<AtomicUsize>) {
        let covered = self.covers(Ibits::UPDATE) && self.held(Ibits::UPDATE, stamp);
        if self.is_news(stamp) && covered {
            self.names.are_none(all);
        }
    }

    /// Whether a name can be in this directory.
    pub(crate) fn may_have_name(&self, name: &[u8]) -> bool {
        !self.covers(Ibits::UPDATE) || self.names.may_have(name)
    }

    /// It was read to its end by a request sent at `stamp`, after [`KnownNames::missed`] said so.
    pub(crate) fn has_names<'a>(
        &mut self,
        stamp: u64,
        names: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        if self.stands(Ibits::UPDATE, stamp) {
            self.names.are(names);
        } else {
            self.names.are_not_learned();
        }
    }

    /// The file was created a moment ago: nobody else has written if nobody else could.
    pub(crate) fn is_new(&mut self) {
        self.others_wrote = !self.holds(Ibits::DATA);
    }

    /// Whether a sync that begins now must look at all objects, and not only at those written
    /// from here.
    pub(crate) fn sync_all_objects(&mut self) -> bool {
        let alone = self.holds(Ibits::DATA);
        core::mem::replace(&mut self.others_wrote, !alone)
    }

    /// An object was changed.
    pub(crate) fn changed_object(&mut self, stripe: u32, now: Unsynced, ended: &EndedWell) {
        if ended.has(now) {
            return;
        }
        let before = self.unsynced.insert(stripe, now).filter(|before| !ended.has(*before));
        // Changed before and after a restart: the earlier bytes may be gone.
        let lost = before.is_some_and(|before| before.boot_epoch != now.boot_epoch);
        self.loss.add(Loss::found(lost));
    }

    /// An existing file, last changed by transaction `version`, was opened for writing. That
    /// it may have objects is in this transaction or an older one, perhaps of another client
    /// that has it open: that must be durable before anything is written.
    pub(crate) fn will_write(&mut self, version: u64) {
        self.commit_before_write = self.commit_before_write.max(version);
    }

    /// Data of `len` bytes up to `end` was written.
    pub(crate) fn wrote(&mut self, end: u64, len: u64, mtime: Timespec) {
        // The lock is lost, and the MDT knows that it does not know the size.
        let Some(attr) = self.attr.as_mut().filter(|_| self.size_known) else { return };
        let (start, all) = (end.saturating_sub(len), attr.size.max(end).div_ceil(BLOCK_BYTES) * 8);
        // Where there may have been a hole, only the OSTs know.
        self.blocks_doubtful |= start < attr.size && attr.blocks < all;
        let touched = end.div_ceil(BLOCK_BYTES) - start / BLOCK_BYTES;
        attr.size = attr.size.max(end);
        attr.blocks = attr.blocks.saturating_add(touched * 8).min(all);
        // Also if somebody had set one that is yet to come: it is what the MDT will be told.
        attr.mtime = mtime;
        attr.ctime = attr.ctime.max(mtime);
        attr.maybe_objects = true;
        self.unreported_mtime = Some(mtime);
    }

    /// The same under a shared lock, of which the size is not known.
    pub(crate) fn wrote_shared(&mut self, end: u64, len: u64, mtime: Timespec) {
        // If the lock is lost the MDT knows that it does not know the size.
        if !self.is_sharing() {
            return;
        }
        let touched = end.div_ceil(BLOCK_BYTES) - end.saturating_sub(len) / BLOCK_BYTES;
        self.add_shared(SharedWrites { end, blocks: touched * 8, mtime });
    }

    fn add_shared(&mut self, more: SharedWrites) {
        let before =
            self.shared.get_or_insert_with(|| Box::new(SharedWrites { blocks: 0, ..more }));
        before.end = before.end.max(more.end);
        before.blocks = before.blocks.saturating_add(more.blocks);
        before.mtime = before.mtime.max(more.mtime);
    }

    /// It is read under a shared lock. Others write it, so that what was heard of its times is old, and
    /// whatever sets an atime at all sets it.
    pub(crate) fn looked_at(&mut self, policy: AtimePolicy, now: Timespec) {
        if policy != AtimePolicy::Never {
            self.unreported_atime = self.unreported_atime.max(Some(now));
        }
    }

    /// It is read, under a data lock.
    pub(crate) fn accessed(&mut self, policy: AtimePolicy, now: Timespec) {
        if self.size_known {
            self.listed(policy, now);
        } else {
            self.read_given(policy, now);
        }
    }

    /// The same for a directory, of which the last that was heard has to do. Whether that sets
    /// the atime.
    pub(crate) fn listed(&mut self, policy: AtimePolicy, now: Timespec) -> bool {
        let Some(attr) = self.attr.as_mut().filter(|attr| policy.sets(attr, now)) else {
            return false;
        };
        attr.atime = now;
        self.unreported_atime = Some(now);
        true
    }

    /// The OSTs say how many blocks it has.
    pub(crate) fn takes_up(&mut self, blocks: u64) {
        if let Some(attr) = self.attr.as_mut().filter(|_| self.size_known) {
            attr.blocks = blocks;
            self.blocks_doubtful = false;
        }
    }

    /// Whether neither the kernel nor an open file refers to it, and nothing is under way. What
    /// is then still to be told goes with the lock; what is to be synced is kept elsewhere
    /// ([`crate::unsynced`]).
    pub(crate) fn is_idle(&self) -> bool {
        self.lookups == 0
            && self.opens == 0
            && !self.reporting
            && !self.syncing
            && self.dirty.is_none()
            && self.given.is_none()
            && self.kept_opens.is_empty()
            && !self.locks.iter().any(|held| held.users > 0 || held.cancelling)
    }

    /// A program has it open.
    pub(crate) fn begin_open(&mut self, how: OpenHow) {
        self.opens += 1;
        self.write_opens += u32::from(how.write);
        if how.write && how.read {
            self.map_opens += 1;
        }
        if how.exec {
            self.exec_opens += 1;
        }
    }

    /// It has it open no more.
    pub(crate) fn end_open(&mut self, how: OpenHow) {
        self.opens -= 1;
        self.write_opens -= u32::from(how.write);
        if how.write && how.read {
            self.map_opens -= 1;
        }
        if how.exec {
            self.exec_opens -= 1;
        }
        if self.opens == 0 {
            self.drop_unread();
        }
    }

    /// Whether others who want one of its locks have to wait for somebody here.
    pub(crate) fn is_in_use(&self) -> bool {
        self.locks.iter().any(|held| held.users > 0)
    }

    /// Like [`InodeState::report`], for a report that leaves the lock where it is. To be
    /// followed by [`InodeState::reported`].
    fn begin_report(&mut self) -> Option<SizeReport> {
        let report = self.report();
        self.reporting = report.is_some();
        self.reporting_atime = report.is_some_and(|report| report.mtime.is_none());
        report
    }

    /// The report has arrived, as is known from `now` on, or is to be made again.
    pub(crate) fn reported(&mut self, report: SizeReport, arrived: bool, now: u64) {
        (self.reporting, self.reporting_atime) = (false, false);
        // What was asked before it arrived says nothing of it.
        self.changed_at = now;
        if !arrived && self.unreported_mtime.is_none() && self.size_known {
            self.unreported_mtime = report.mtime;
        }
        let may_tell = self.size_known || self.locks.iter().any(Held::is_shared);
        if !arrived && self.unreported_atime.is_none() && may_tell {
            self.unreported_atime = report.atime;
        }
        if let Some(mtime) = report.mtime.filter(|_| !arrived && self.is_sharing()) {
            self.add_shared(SharedWrites { end: report.size, blocks: report.blocks, mtime });
        }
    }

    /// What the MDT is to be told of the size and of the times of reading and writing, if there
    /// is anything to tell.
    pub(crate) fn report(&mut self) -> Option<SizeReport> {
        assert!(self.dirty.is_none(), "the size that is told is that of what is there");
        let rare = self.rare_if_any()?;
        if let Some(shared) = rare.shared.take() {
            let SharedWrites { end, blocks, mtime } = *shared;
            let atime = rare.unreported_atime.take();
            return Some(SizeReport { size: end, blocks, mtime: Some(mtime), atime });
        }
        let (mtime, atime) = (rare.unreported_mtime.take(), rare.unreported_atime.take());
        let Some(attr) = self.attr.as_ref().filter(|_| self.size_known) else {
            // It was read under a shared lock. The size is not looked at where nothing was written.
            return atime.map(|_| SizeReport { size: 0, blocks: 0, mtime: None, atime });
        };
        let report = SizeReport { size: attr.size, blocks: attr.blocks, mtime, atime };
        (mtime.is_some() || atime.is_some()).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use sateen_wire::LockId;

    use super::*;
    use crate::held::Granted;
    use crate::testing::attr;

    /// After a crash the MDT does not know the size of what is open for writing before that is closed,
    /// though the client does.
    #[test]
    fn a_time_that_was_set_is_shown_where_only_the_client_knows_the_size() {
        let mut state = InodeState::default();
        let bits = Ibits::META.union(Ibits::DATA);
        state.locks.push(Held::new(LockId(1), (LockMode::Pw, bits), Granted::new(1, 1)));
        state.learn(Attr { size: 70, ..attr(Fid::ROOT, 5) }, 2);
        assert!(state.size_known && state.meta_known);
        let mtime = Timespec { sec: -7, nsec: 3 };
        let answer = Attr { size: 9, size_stale: true, mtime, ..attr(Fid::ROOT, 6) };
        state.changed(Some(answer), (3, 4), true);
        let now = state.attr.map(|attr| (attr.size, attr.mtime));
        assert_eq!(now, Some((70, mtime)));
    }
}
