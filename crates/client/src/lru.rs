//! A limit to what a client keeps: of inodes that only the kernel's cache still refers to, those
//! not used for longest are to go, and their locks with them.
//!
//! The client cannot drop an inode that the kernel refers to. It asks the kernel to forget some,
//! and drops them when that says that it has. "Not used" is what a hand that goes round finds
//! not used since it came by the last time; what the kernel answers from its own cache counts
//! as no use, because the client does not hear of it.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sateen_types::{Fid, Ino};

use crate::client::Client;
use crate::inode::Inode;
use crate::sync::lock;

/// Inodes that a client keeps: 200 000 of them, empty files, take some 200 MiB with their locks.
pub const INODES_DEFAULT: usize = 200_000;
/// Most inodes that the kernel is asked to forget in one tick: it answers each with a FORGET,
/// and each costs a cancel.
const PRUNE_MAX: usize = 8192;
/// Most inodes looked at in one tick, and without letting others at them.
const LOOK_MAX: usize = 4 * PRUNE_MAX;
const LOOK_AT_ONCE: usize = 1024;

/// Tasks that cancel the locks of inodes that nobody needs. A kernel that is short of memory
/// forgets a million inodes at once; each with a task of its own would wait for a slot of the
/// MDT's import, and all be woken whenever one is free.
const CANCELLERS_MAX: usize = 32;

/// Inodes whose locks nobody needs, in order, and how many tasks are at them. Until its turn has
/// come an inode keeps its locks: a callback for one of them does not wait.
#[derive(Debug, Default)]
pub(crate) struct Retiring {
    line: VecDeque<Arc<Inode>>,
    cancellers: usize,
}

impl Retiring {
    /// Puts one into the line. True if it takes one more task to work it off.
    pub(crate) fn begin(&mut self, inode: Arc<Inode>) -> bool {
        self.line.push_back(inode);
        let more = self.cancellers < CANCELLERS_MAX;
        self.cancellers += usize::from(more);
        more
    }

    /// The next of them; without one, the task that asks ends.
    pub(crate) fn next(&mut self) -> Option<Arc<Inode>> {
        let next = self.line.pop_front();
        self.cancellers -= usize::from(next.is_none());
        next
    }
}

/// Where the hand stands, and how much is allowed.
#[derive(Debug)]
pub(crate) struct Lru {
    pub(crate) inodes_max: usize,
    hand: Fid,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru { inodes_max: INODES_DEFAULT, hand: Fid::default() }
    }
}

impl Client {
    /// How many inodes the client keeps at most, apart from those in use.
    pub fn set_inodes_max(&self, inodes: usize) {
        lock(&self.lru).inodes_max = inodes;
    }

    /// If there are too many inodes, asks the kernel to forget some.
    pub(crate) fn prune(&self) {
        if !self.port.can_prune() {
            return;
        }
        let unused = self.unused();
        if !unused.is_empty() {
            self.port.prune(unused);
        }
    }

    fn unused(&self) -> Vec<Ino> {
        let mut lru = lock(&self.lru);
        let mut unused = Vec::new();
        for _ in 0..LOOK_MAX / LOOK_AT_ONCE {
            let inodes = lock(&self.inodes);
            let surplus = inodes.all.len().saturating_sub(lru.inodes_max).min(PRUNE_MAX);
            let mut looked = 0;
            for (fid, inode) in inodes.all.range((Bound::Excluded(lru.hand), Bound::Unbounded)) {
                if looked == LOOK_AT_ONCE || unused.len() >= surplus {
                    break;
                }
                looked += 1;
                lru.hand = *fid;
                if is_unused(inode) {
                    unused.push(fid.ino());
                }
            }
            if unused.len() >= surplus {
                break;
            }
            if looked < LOOK_AT_ONCE {
                // Once round, and no further: what was passed over has been used.
                lru.hand = Fid::default();
                break;
            }
        }
        unused
    }
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
