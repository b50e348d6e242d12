//! The locks that Linux holds while it waits for the answer to a request, as far as other calls or the
//! client's own invalidations wait for them. Getting an order wrong there hangs processes for ever.
//!
//! What is modelled, of Linux 6.18 with `FUSE_PARALLEL_DIROPS` (read in published copies of these files,
//! not all of them of 6.18):
//! - `i_rwsem` of directories (fs/namei.c). A lookup of a name that is not cached (`lookup_slow`) and a
//!   READDIR (`iterate_dir`) have it shared; create, mkdir, mknod, symlink, link, unlink and rmdir have it
//!   for themselves, for their whole request (`lookup_open`, `filename_create`, `do_unlinkat`). A rename
//!   has both parents', an ancestor's first, if they differ under `s_vfs_rename_mutex` (`lock_rename`).
//!   What is removed, linked, moved or replaced is locked after its parent (`vfs_unlink`, `vfs_link`,
//!   `vfs_rename`).
//! - `i_rwsem` of files. Setattr, setxattr, fallocate, fsync, and lseek to data or a hole have it for
//!   themselves, a close for a moment before its FLUSH. Writes, too, but those past the page cache that
//!   stay within the file share it, as long as nobody has the file open through the cache
//!   (fs/fuse/file.c: `fuse_dio_lock`). Who opens it so waits for these first (fs/fuse/iomode.c).
//! - `invalidate_lock` of mappings: a READ that fills pages shares it, fallocate has it for itself while
//!   it makes a hole.
//! - Pages' locks, which READs have until they are answered, stand beside the pages ([`super::State`]).
//!
//! Of what a client asks for, a new epoch of names and the invalidation of attributes alone take no
//! lock; an invalidation of pages waits for the pages' locks (fs/fuse/inode.c:
//! `fuse_reverse_inval_inode`). One of an entry would have the parent's `i_rwsem` for itself
//! (fs/fuse/dir.c: `fuse_reverse_inval_entry`), and so no client of ours asks for that.
//!
//! Whoever waits for a semaphore has his turn in the order in which he came, and keeps those behind him
//! out (kernel/locking/rwsem.c).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use sateen_types::Fid;

use super::{Handle, Kernel, State};
use crate::executor::{Raised, Signal, lock};

/// Directories above one that are looked at, to see which of two is above the other.
const DEPTH_MAX: usize = 64;

/// As whom the client's invalidations wait.
pub(super) const INVALIDATION: &str = "an invalidation";

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lock {
    /// `s_vfs_rename_mutex`.
    Renames,
    /// An inode's `i_rwsem`.
    Inode(Fid),
    /// A mapping's `invalidate_lock`.
    Mapping(Fid),
    /// Shared by writes past the page cache that share the inode.
    Uncached(Fid),
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lock::Renames => write!(f, "s_vfs_rename_mutex"),
            Lock::Inode(fid) => write!(f, "i_rwsem of {fid}"),
            Lock::Mapping(fid) => write!(f, "invalidate_lock of {fid}"),
            Lock::Uncached(fid) => write!(f, "the writes past the cache of {fid}"),
        }
    }
}

/// Who has a lock, or waits for it.
#[derive(Debug)]
struct Turn {
    number: u64,
    alone: bool,
    who: &'static str,
}

#[derive(Debug, Default)]
struct Semaphore {
    held: Vec<Turn>,
    queue: VecDeque<(Turn, Arc<Signal<()>>)>,
}

impl Semaphore {
    fn lets_in(&self, alone: bool) -> bool {
        self.held.iter().all(|turn| !alone && !turn.alone)
    }

    /// Those whose turn it is now.
    fn grant(&mut self) -> Vec<(&'static str, Arc<Signal<()>>)> {
        let mut granted = Vec::new();
        while let Some((turn, signal)) = self.queue.pop_front() {
            if !self.lets_in(turn.alone) {
                self.queue.push_front((turn, signal));
                break;
            }
            granted.push((turn.who, signal));
            self.held.push(turn);
        }
        granted
    }

    fn holders(&self) -> String {
        self.held.iter().map(|turn| turn.who).collect::<Vec<_>>().join(" and ")
    }
}

#[derive(Debug, Default)]
struct Table {
    semaphores: BTreeMap<Lock, Semaphore>,
    next: u64,
    waited: u64,
    told: Vec<String>,
}

/// The locks of one kernel.
#[derive(Debug)]
pub(super) struct Locks {
    table: Mutex<Table>,
    /// Else everybody has every lock at once: there are clients without a kernel above, whose programs
    /// call them as they please.
    keeps_apart: bool,
    /// Whether anybody wants to hear who waits for whom.
    traced: bool,
}

/// A lock that somebody has, or waits for, until this is dropped.
pub(super) struct Held<'a>(Option<(&'a Locks, Lock, u64)>);

impl Locks {
    pub(super) fn new(keeps_apart: bool, traced: bool) -> Locks {
        Locks { table: Mutex::default(), keeps_apart, traced }
    }

    /// Takes it for himself.
    pub(super) async fn alone(&self, of: Lock, who: &'static str) -> Held<'_> {
        self.take(of, true, who).await
    }

    /// Takes it with others who do so.
    pub(super) async fn shared(&self, of: Lock, who: &'static str) -> Held<'_> {
        self.take(of, false, who).await
    }

    async fn take(&self, of: Lock, alone: bool, who: &'static str) -> Held<'_> {
        let (held, signal) = self.queue(of, alone, who);
        if let Some(signal) = signal {
            Raised(signal).await;
        }
        held
    }

    fn queue(
        &self,
        of: Lock,
        alone: bool,
        who: &'static str,
    ) -> (Held<'_>, Option<Arc<Signal<()>>>) {
        if !self.keeps_apart {
            return (Held(None), None);
        }
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        let held = Held(Some((self, of, number)));
        let turn = Turn { number, alone, who };
        let semaphore = table.semaphores.entry(of).or_default();
        if semaphore.queue.is_empty() && semaphore.lets_in(alone) {
            semaphore.held.push(turn);
            return (held, None);
        }
        let signal = Signal::new();
        semaphore.queue.push_back((turn, signal.clone()));
        let holders = semaphore.holders();
        table.waited += 1;
        self.tell(&mut table, || format!("{who} waits for {of}, held by {holders}"));
        (held, Some(signal))
    }

    fn give_back(&self, of: Lock, number: u64) {
        let mut table = lock(&self.table);
        let Some(semaphore) = table.semaphores.get_mut(&of) else { return };
        semaphore.held.retain(|turn| turn.number != number);
        semaphore.queue.retain(|(turn, _)| turn.number != number);
        let granted = semaphore.grant();
        if semaphore.held.is_empty() {
            table.semaphores.remove(&of);
        }
        for (who, signal) in granted {
            self.tell(&mut table, || format!("{who} has {of} now"));
            signal.raise(());
        }
    }

    fn tell(&self, table: &mut Table, what: impl FnOnce() -> String) {
        if self.traced {
            table.told.push(what());
        }
    }

    /// What has happened, if anybody wants to hear it.
    pub(super) fn told(&self) -> Vec<String> {
        core::mem::take(&mut lock(&self.table).told)
    }

    /// How often somebody had to wait.
    pub(super) fn waited(&self) -> u64 {
        lock(&self.table).waited
    }

    /// Who waits for what now, and who has it.
    pub(super) fn waits(&self) -> Vec<(&'static str, String)> {
        let table = lock(&self.table);
        let mut out = Vec::new();
        for (of, semaphore) in &table.semaphores {
            let what = format!("{of}, held by {}", semaphore.holders());
            out.extend(semaphore.queue.iter().map(|(turn, _)| (turn.who, what.clone())));
        }
        out
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some((locks, of, number)) = self.0 {
            locks.give_back(of, number);
        }
    }
}

impl State {
    /// Whether a directory is another, or above it.
    fn is_above(&self, dir: Fid, below: Fid) -> bool {
        let up = |at: &Fid| self.parents.get(at).copied();
        core::iter::successors(Some(below), up).take(DEPTH_MAX).any(|at| at == dir)
    }
}

impl Kernel {
    /// Where a kernel takes a write to go. It does not know better where the file ends.
    pub(super) fn place_of(&self, handle: Handle, offset: u64) -> u64 {
        match handle.how.append {
            true => lock(&self.state).sizes.get(&handle.fid).copied().unwrap_or_default(),
            false => offset,
        }
    }

    /// Locks a file for a write past the cache that ends there.
    pub(super) async fn lock_to_write(
        &self,
        handle: Handle,
        end: u64,
    ) -> (Held<'_>, Option<Held<'_>>) {
        let fid = handle.fid;
        let shares = || {
            let state = lock(&self.state);
            let is_within = state.sizes.get(&fid).is_some_and(|size| end <= *size);
            !handle.how.append && is_within && !state.cached.contains_key(&fid)
        };
        if shares() {
            let inode = self.locks.shared(Lock::Inode(fid), "write").await;
            if shares() {
                let uncached = self.locks.shared(Lock::Uncached(fid), "write").await;
                return (inode, Some(uncached));
            }
        }
        (self.locks.alone(Lock::Inode(fid), "write").await, None)
    }

    /// Locks the directories of a rename, one above the other first.
    pub(super) async fn lock_to_rename(&self, from: Fid, to: Fid) -> Vec<Held<'_>> {
        let who = "rename";
        if from == to {
            return vec![self.locks.alone(Lock::Inode(from), who).await];
        }
        let renames = self.locks.alone(Lock::Renames, who).await;
        let is_first = {
            let state = lock(&self.state);
            state.is_above(from, to) || !state.is_above(to, from) && from < to
        };
        let [first, second] = if is_first { [from, to] } else { [to, from] };
        let first = self.locks.alone(Lock::Inode(first), who).await;
        vec![renames, first, self.locks.alone(Lock::Inode(second), who).await]
    }

    /// Locks what is moved and what is there: files always, directories if their parent changes, and that
    /// which goes; directories first. What is above the other name cannot be moved, and is not asked for.
    pub(super) async fn lock_children(
        &self,
        (from, moved): (Fid, Fid),
        (to, replaced): (Fid, Option<Fid>),
        exchange: bool,
    ) -> Vec<Held<'_>> {
        let mut children = {
            let state = lock(&self.state);
            let is_locked = |fid: &Fid, goes: bool| {
                let is_dir = state.dirs.contains(fid);
                let stays_above = !state.is_above(*fid, from) && !state.is_above(*fid, to);
                (!is_dir || goes || from != to) && stays_above
            };
            let moved = Some(moved).filter(|fid| is_locked(fid, false));
            let replaced = replaced.filter(|fid| is_locked(fid, !exchange));
            let key = |fid: Fid| (!state.dirs.contains(&fid), fid);
            moved.into_iter().chain(replaced).map(key).collect::<BTreeSet<_>>()
        };
        let mut locked = Vec::new();
        while let Some((_, fid)) = children.pop_first() {
            locked.push(self.locks.alone(Lock::Inode(fid), "rename").await);
        }
        locked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(taken: &(Held<'_>, Option<Arc<Signal<()>>>)) -> bool {
        taken.1.as_ref().is_none_or(|signal| signal.is_raised())
    }

    #[test]
    fn who_waits_keeps_those_behind_him_out() {
        let locks = Locks::new(true, true);
        let first = locks.queue(Lock::Renames, false, "a");
        let second = locks.queue(Lock::Renames, false, "b");
        let alone = locks.queue(Lock::Renames, true, "c");
        let behind = [0, 1].map(|_| locks.queue(Lock::Renames, false, "d"));
        assert!(is_in(&first) && is_in(&second) && !is_in(&alone) && !is_in(&behind[0]));
        assert_eq!(locks.waited(), 3);
        assert_eq!(locks.waits()[0], ("c", "s_vfs_rename_mutex, held by a and b".to_owned()));
        drop(first);
        assert!(!is_in(&alone));
        drop(second);
        assert!(is_in(&alone) && !is_in(&behind[0]));
        drop(alone);
        assert!(behind.iter().all(is_in));
        assert_eq!(locks.told().len(), 6);
    }

    #[test]
    fn who_does_not_wait_to_the_end_is_in_nobodys_way() {
        let locks = Locks::new(true, false);
        let first = locks.queue(Lock::Inode(Fid::ROOT), false, "a");
        let alone = locks.queue(Lock::Inode(Fid::ROOT), true, "b");
        let behind = locks.queue(Lock::Inode(Fid::ROOT), false, "c");
        assert!(is_in(&first) && !is_in(&behind));
        drop(alone);
        assert!(is_in(&behind));
        drop((first, behind));
        assert!(locks.waits().is_empty() && locks.told().is_empty());
        assert!(lock(&locks.table).semaphores.is_empty());
    }
}
