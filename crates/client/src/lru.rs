//! Limits to what a client keeps: of inodes that only the kernel's cache still refers to, those
//! not used for longest are to go, and their locks with them. By number: of inodes, or, for an MDT for
//! which `lru_size` is set, of locks there; by age; and all, when that is asked for.
//!
//! The client cannot drop an inode that the kernel refers to. It asks the kernel to forget some,
//! and drops them when that says that it has. "Not used" is what a hand that goes round finds
//! not used since it came by the last time; what the kernel answers from its own cache counts
//! as no use, because the client does not hear of it. A kernel that cannot be asked keeps its inodes
//! as long as it likes: there only locks are given back, for their age or because that is asked for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use sateen_types::{Endpoint, Errno, Fid, Result, seq};

use crate::client::{Client, TICK_NS};
use crate::inode::Inode;
use crate::inodes::Hand;
use crate::stats::Verb;
use crate::sync::lock;

/// Inodes that a client keeps for MDTs for which no number of locks is set: 200 000 of them, empty
/// files, take some 85 MiB with their locks.
pub const INODES_DEFAULT: usize = 200_000;
/// How long a lock is kept that nobody uses, unless it is set otherwise: 65 minutes.
pub const LRU_MAX_AGE_MS: u64 = 3_900_000;
/// Most inodes that the kernel is asked to forget in one tick: it answers each with a FORGET,
/// and each costs a cancel.
const PRUNE_MAX: usize = 8192;
/// Most inodes looked at in one tick, and without letting others at them.
const LOOK_MAX: usize = 4 * PRUNE_MAX;
const LOOK_AT_ONCE: usize = 1024;
/// All inodes are looked at so often within the age at which they go.
const LOOKS_PER_AGE: u64 = 8;
/// How often, tick by tick, all that is unused is asked to go: directories can only when what is in
/// them has gone.
const SWEEPS: u32 = 16;
const TICK_MS: u64 = TICK_NS / 1_000_000;

/// Tasks that cancel the locks of inodes that nobody needs. A kernel that is short of memory
/// forgets a million inodes at once; each with a task of its own would wait for a slot of the
/// MDT's import, and all be woken whenever one is free.
const CANCELLERS_MAX: usize = 32;
/// Inodes whose locks one of them takes from the line, and cancels together: those that tell of a size or
/// an atime need a request each.
const RETIRED_AT_ONCE: usize = 32;

/// Inodes whose locks nobody needs, for each MDT in order, and how many tasks are at them: one MDT that
/// is away keeps nobody from giving back those of another. Until its turn has come an inode keeps its
/// locks: a callback for one of them does not wait.
#[derive(Debug, Default)]
pub(crate) struct Retiring(BTreeMap<u32, Line>);

#[derive(Debug, Default)]
struct Line {
    inodes: VecDeque<Arc<Inode>>,
    cancellers: usize,
}

impl Retiring {
    /// Puts one into the line of its MDT. That, if it takes one more task to work it off.
    pub(crate) fn begin(&mut self, inode: Arc<Inode>) -> Option<u32> {
        let mdt = seq::mdt_of(inode.fid.seq);
        let line = self.0.entry(mdt).or_default();
        line.inodes.push_back(inode);
        let more = line.cancellers < CANCELLERS_MAX;
        line.cancellers += usize::from(more);
        more.then_some(mdt)
    }

    /// The next of an MDT; without any, the task that asks ends.
    pub(crate) fn next(&mut self, mdt: u32) -> Vec<Arc<Inode>> {
        let Some(line) = self.0.get_mut(&mdt) else { return Vec::new() };
        let some = line.inodes.len().min(RETIRED_AT_ONCE);
        line.cancellers -= usize::from(some == 0);
        line.inodes.drain(..some).collect()
    }
}

/// The locks of one MDT that a client holds.
#[derive(Debug)]
pub(crate) struct Namespace {
    locks: AtomicUsize,
    /// So many are kept; 0: as many as belong to the inodes that are kept.
    lru_size: AtomicUsize,
    max_age_ms: AtomicU64,
    /// How often all that is unused is still to be asked to go, and since when it must not have
    /// been used.
    sweeps: AtomicU32,
    swept_at: AtomicU32,
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace {
            locks: AtomicUsize::default(),
            lru_size: AtomicUsize::default(),
            max_age_ms: AtomicU64::new(LRU_MAX_AGE_MS),
            sweeps: AtomicU32::default(),
            swept_at: AtomicU32::default(),
        }
    }
}

impl Namespace {
    /// So many locks more, and so many less.
    pub(crate) fn counts(&self, more: usize, less: usize) {
        if more > 0 {
            self.locks.fetch_add(more, Ordering::Relaxed);
        }
        if less > 0 {
            self.locks.fetch_sub(less, Ordering::Relaxed);
        }
    }

    pub(crate) fn lock_count(&self) -> usize {
        self.locks.load(Ordering::Relaxed)
    }

    fn lru_size(&self) -> usize {
        self.lru_size.load(Ordering::Relaxed)
    }

    /// Ticks after which what is not used goes.
    fn age(&self) -> u64 {
        self.max_age_ms.load(Ordering::Relaxed).div_ceil(TICK_MS)
    }
}

/// The locks that a client holds of one MDT, and how many it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LruInfo {
    /// Locks.
    pub locks: usize,
    /// How many are kept; 0 for as many as belong to the inodes that are kept.
    pub lru_size: usize,
    /// How long those are kept that nobody uses.
    pub max_age_ms: u64,
}

/// Where the hands stand, and how much is allowed.
#[derive(Debug)]
pub(crate) struct Lru {
    pub(crate) inodes_max: usize,
    hand: Hand,
    /// The one that looks for what is old.
    aging: Hand,
    /// And for what nobody needs.
    pub(crate) scrubbing: Hand,
}

impl Default for Lru {
    fn default() -> Lru {
        let [hand, aging, scrubbing] = [Hand::default(); 3];
        Lru { inodes_max: INODES_DEFAULT, hand, aging, scrubbing }
    }
}

/// What is too much.
struct Surplus {
    /// Locks of MDTs that have a limit of their own.
    locks: BTreeMap<u32, usize>,
    /// Inodes, for the others.
    inodes: usize,
}

impl Surplus {
    fn is_over(&self) -> bool {
        self.inodes == 0 && self.locks.values().all(|locks| *locks == 0)
    }

    /// Whether this inode is to go, if it can.
    fn takes(&mut self, inode: &Arc<Inode>) -> bool {
        let Some(locks) = self.locks.get_mut(&seq::mdt_of(inode.fid.seq)) else {
            let takes = self.inodes > 0 && is_unused(inode);
            self.inodes -= usize::from(takes);
            return takes;
        };
        if *locks == 0 || !is_unused(inode) {
            return false;
        }
        let held = lock(&inode.state).locks.len();
        *locks = locks.saturating_sub(held);
        held > 0
    }
}

impl Client {
    /// How many inodes the client keeps at most, apart from those in use, and from those of MDTs for
    /// which a number of locks is set.
    pub fn set_inodes_max(&self, inodes: usize) {
        lock(&self.lru).inodes_max = inodes;
    }

    fn namespace(&self, target: Endpoint) -> Result<Arc<Namespace>> {
        let Endpoint::Mdt(mdt) = target else { return Err(Errno::EOPNOTSUPP) };
        Ok(self.inodes.namespace(mdt))
    }

    /// The locks of an MDT that this client holds.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a target that gives no locks.
    pub fn lru_info(&self, target: Endpoint) -> Result<LruInfo> {
        let of = self.namespace(target)?;
        let max_age_ms = of.max_age_ms.load(Ordering::Relaxed);
        Ok(LruInfo { locks: of.lock_count(), lru_size: of.lru_size(), max_age_ms })
    }

    /// How many locks of an MDT nobody uses: neither a program that has the file open nor a call
    /// under way.
    pub fn unused_locks(&self, mdt: u32) -> usize {
        let mut unused = 0;
        self.walk(|inode| {
            let state = lock(&inode.state);
            if seq::mdt_of(inode.fid.seq) == mdt && state.opens == 0 {
                let of_nobody = |held: &&crate::held::Held| held.users == 0 && !held.cancelling;
                unused += state.locks.iter().filter(of_nobody).count();
            }
        });
        unused
    }

    /// Keeps so many locks of an MDT; 0: as many as belong to the inodes that are kept.
    ///
    /// # Errors
    /// As [`Client::lru_info`].
    pub fn set_lru_size(&self, target: Endpoint, locks: usize) -> Result<()> {
        self.namespace(target)?.lru_size.store(locks, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps locks of an MDT that nobody uses for so long.
    ///
    /// # Errors
    /// As [`Client::lru_info`].
    pub fn set_lru_max_age(&self, target: Endpoint, ms: u64) -> Result<()> {
        self.namespace(target)?.max_age_ms.store(ms, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back all locks of an MDT that nobody uses.
    ///
    /// # Errors
    /// As [`Client::lru_info`].
    pub fn drop_unused(self: &Arc<Client>, target: Endpoint) -> Result<()> {
        let of = self.namespace(target)?;
        let now = self.ticks.load(Ordering::Relaxed);
        of.swept_at.store(now, Ordering::Relaxed);
        of.sweeps.store(SWEEPS, Ordering::Relaxed);
        self.sweep();
        Ok(())
    }

    /// If there is too much, or something is too old, has it go.
    pub(crate) fn prune(self: &Arc<Client>) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        if self.port.can_prune() {
            let unused = self.surplus();
            self.let_go(unused);
        }
        let old = self.old();
        self.let_go(old);
        self.sweep();
    }

    /// Has these go: the kernel is asked to forget them, or, if it cannot be, their locks are given
    /// back.
    fn let_go(self: &Arc<Client>, unused: Vec<Arc<Inode>>) {
        if unused.is_empty() {
            return;
        }
        let locks: usize = unused.iter().map(|inode| lock(&inode.state).locks.len()).sum();
        self.verbs.count_many(Verb::LockUnused, locks as u64);
        if self.port.can_prune() {
            return self.port.prune(unused.iter().map(|inode| inode.fid.ino()).collect());
        }
        let client = self.clone();
        self.port.spawn(Box::pin(async move {
            for inode in unused {
                let ids: Vec<_> = {
                    let state = lock(&inode.state);
                    let idle = |held: &&crate::held::Held| held.users == 0 && !held.cancelling;
                    let unused = state.opens == 0;
                    state.locks.iter().filter(|_| unused).filter(idle).map(|held| held.id).collect()
                };
                for id in ids {
                    client.give_back(&inode, id).await;
                }
                client.retire(inode);
            }
        }));
    }

    /// Looks at all inodes, some at a time.
    fn walk(&self, mut look: impl FnMut(&Arc<Inode>)) {
        let mut hand = Hand::default();
        let mut some = || {
            self.inodes.look(&mut hand, LOOK_AT_ONCE, |inode| {
                look(inode);
                true
            })
        };
        while !some().is_round {}
    }

    fn surplus(&self) -> Vec<Arc<Inode>> {
        let mut lru = lock(&self.lru);
        let mut unused = Vec::new();
        let mut surplus = {
            let mut more = lru.inodes_max;
            let mut locks = BTreeMap::new();
            for (mdt, of) in self.inodes.namespaces().iter() {
                let limit = of.lru_size();
                if limit > 0 {
                    more = more.saturating_add(limit);
                    locks.insert(*mdt, of.lock_count().saturating_sub(limit));
                }
            }
            Surplus { locks, inodes: self.inodes.len().saturating_sub(more) }
        };
        for _ in 0..LOOK_MAX / LOOK_AT_ONCE {
            if surplus.is_over() || unused.len() >= PRUNE_MAX {
                break;
            }
            let looked = self.inodes.look(&mut lru.hand, LOOK_AT_ONCE, |inode| {
                if surplus.takes(inode) {
                    unused.push(inode.clone());
                }
                !surplus.is_over() && unused.len() < PRUNE_MAX
            });
            if looked.is_round {
                // Once round, and no further: what was passed over has been used.
                break;
            }
        }
        unused
    }

    /// Some that were not used for as long as their MDT's locks are kept.
    fn old(&self) -> Vec<Arc<Inode>> {
        let mut lru = lock(&self.lru);
        let now = self.ticks.load(Ordering::Relaxed);
        let mut old = Vec::new();
        let mut left = {
            let ages = self.inodes.namespaces().values().map(|of| of.age()).min();
            let soonest = ages.unwrap_or(u64::MAX);
            let often = self.inodes.len() as u64 * LOOKS_PER_AGE / soonest.max(1);
            usize::try_from(often).unwrap_or(LOOK_MAX).clamp(LOOK_AT_ONCE, LOOK_MAX)
        };
        while left > 0 && old.len() < PRUNE_MAX {
            let looked = self.inodes.look(&mut lru.aging, left.min(LOOK_AT_ONCE), |inode| {
                let unused_for = u64::from(now.wrapping_sub(inode.used_at.load(Ordering::Relaxed)));
                let mut state = lock(&inode.state);
                // What is only needed now and then need not be kept by one that is idle.
                if Arc::strong_count(inode) == 1 {
                    state.slim();
                }
                let is_old = unused_for >= state.locks.namespace().age();
                if is_old && !state.locks.is_empty() && is_of_kernel(inode, &state) {
                    // If it stays all the same it is asked again when as much time has gone by.
                    inode.used_at.store(now, Ordering::Relaxed);
                    old.push(inode.clone());
                }
                true
            });
            if looked.is_round {
                break;
            }
            left -= looked.count;
        }
        old
    }

    /// Has everything go that was not used since that was asked for.
    fn sweep(self: &Arc<Client>) {
        let all: Vec<_> = self.inodes.namespaces().values().cloned().collect();
        for of in all {
            let left = of.sweeps.load(Ordering::Relaxed);
            if left == 0 {
                continue;
            }
            of.sweeps.store(left - 1, Ordering::Relaxed);
            let swept_at = of.swept_at.load(Ordering::Relaxed);
            let mut found: Vec<Vec<Arc<Inode>>> = Vec::new();
            self.walk(|inode| {
                let state = lock(&inode.state);
                let used_at = inode.used_at.load(Ordering::Relaxed);
                let is_unused = swept_at.wrapping_sub(used_at) < u32::MAX / 2;
                let is_his = core::ptr::eq(state.locks.namespace(), &*of);
                if !is_his || !is_unused || state.locks.is_empty() || !is_of_kernel(inode, &state) {
                    return;
                }
                match found.last_mut().filter(|batch| batch.len() < PRUNE_MAX) {
                    Some(batch) => batch.push(inode.clone()),
                    None => found.push(vec![inode.clone()]),
                }
            });
            if found.is_empty() {
                of.sweeps.store(0, Ordering::Relaxed);
            }
            found.into_iter().for_each(|batch| self.let_go(batch));
        }
    }
}

/// Whether nothing but the kernel's cache refers to it.
fn is_of_kernel(inode: &Inode, state: &crate::inode::InodeState) -> bool {
    inode.fid != Fid::ROOT && state.lookups > 0 && state.opens == 0 && !state.is_in_use()
}

/// Whether only the kernel refers to it, and has not asked for it since the hand came by. From
/// now on it counts as not used.
fn is_unused(inode: &Arc<Inode>) -> bool {
    if inode.used.swap(false, Ordering::Relaxed) || inode.fid == Fid::ROOT {
        return false;
    }
    let state = lock(&inode.state);
    state.lookups > 0 && state.opens == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first inode of an MDT.
    fn inode_of(mdt: u32) -> Arc<Inode> {
        crate::inodes::Inodes::default().get(Fid {
            seq: seq::super_first(mdt, 0).unwrap(),
            oid: 1,
            ver: 0,
        })
    }

    #[test]
    fn each_mdt_has_a_line_and_tasks_of_its_own() {
        let mut retiring = Retiring::default();
        for _ in 0..CANCELLERS_MAX {
            assert_eq!(retiring.begin(inode_of(0)), Some(0));
        }
        assert_eq!(retiring.begin(inode_of(0)), None, "enough are at it");
        // All of them may wait for an MDT that is away.
        assert_eq!(retiring.begin(inode_of(1)), Some(1));
        let some = retiring.next(1);
        assert_eq!(some.iter().map(|inode| seq::mdt_of(inode.fid.seq)).collect::<Vec<_>>(), [1]);
        assert!(retiring.next(1).is_empty());
        assert_eq!(retiring.begin(inode_of(1)), Some(1), "the task before has ended");
        let mut left = CANCELLERS_MAX + 1;
        while let some @ 1.. = retiring.next(0).len() {
            left -= some;
        }
        assert_eq!(left, 0);
    }
}
