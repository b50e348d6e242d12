//! The inodes that a client knows, by FID, in parts ([`crate::apart`]).
//!
//! Who looks at all of them does so part by part, so that some may come and go meanwhile. What has to be
//! one step is so for each inode: it is found, made and dropped under the lock of its part.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use sateen_types::{Fid, seq};

use crate::apart::{Apart, PARTS};
use crate::inode::Inode;
use crate::lru::Namespace;
use crate::sync::lock;

/// Stamps for inodes that were dropped, in each part.
const DROPPED_PLACES: usize = 4;

/// The locks of each MDT.
type Namespaces = BTreeMap<u32, Arc<Namespace>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    parts: Apart<Part>,
    /// Locked after a part.
    namespaces: Mutex<Namespaces>,
}

/// Those whose FIDs belong to one part.
#[derive(Debug, Default)]
pub(crate) struct Part {
    all: BTreeMap<Fid, Arc<Inode>>,
    /// Those that were asked for here: no lock that all parts share is needed for a new inode.
    namespaces: Namespaces,
    /// Stamps of the last time that an inode was dropped, each for all FIDs that share a place:
    /// what was asked before says nothing of an inode's next life here. With one stamp for all
    /// a busy client would believe no answer that another file's end overtook.
    dropped_at: [u64; DROPPED_PLACES],
}

/// How far somebody has come who looks at all inodes, some at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hand {
    part: usize,
    after: Fid,
}

/// What became of a look at some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looked {
    /// So many were looked at.
    pub(crate) count: usize,
    /// There are no more: the hand begins anew.
    pub(crate) is_round: bool,
}

fn number(fid: Fid) -> u64 {
    fid.seq.0 ^ u64::from(fid.oid)
}

impl Part {
    pub(crate) fn find(&self, fid: Fid) -> Option<Arc<Inode>> {
        self.all.get(&fid).cloned()
    }

    fn place(fid: Fid) -> usize {
        number(fid) as usize / PARTS % DROPPED_PLACES
    }

    /// Stamp of the last time that this inode may have been dropped.
    pub(crate) fn dropped_at(&self, fid: Fid) -> u64 {
        self.dropped_at.get(Part::place(fid)).copied().unwrap_or(u64::MAX)
    }

    /// Removes an inode, as is known from `stamp` on.
    pub(crate) fn remove(&mut self, fid: Fid, stamp: u64) {
        if let Some(at) = self.dropped_at.get_mut(Part::place(fid)) {
            *at = stamp;
        }
        self.all.remove(&fid);
    }
}

impl Inodes {
    /// The part that has this inode, or would have it, alone.
    pub(crate) fn part(&self, fid: Fid) -> MutexGuard<'_, Part> {
        self.parts.of(number(fid))
    }

    /// An inode, if it is known.
    pub(crate) fn find(&self, fid: Fid) -> Option<Arc<Inode>> {
        self.part(fid).find(fid)
    }

    /// An inode, which is known from now on.
    pub(crate) fn get(&self, fid: Fid) -> Arc<Inode> {
        self.get_in(&mut self.part(fid), fid)
    }

    /// The same of its part.
    pub(crate) fn get_in(&self, part: &mut Part, fid: Fid) -> Arc<Inode> {
        if let Some(inode) = part.find(fid) {
            return inode;
        }
        let mdt = seq::mdt_of(fid.seq);
        let of = part.namespaces.entry(mdt).or_insert_with(|| self.namespace(mdt)).clone();
        let inode = Arc::new(Inode::new(fid, part.dropped_at(fid), of));
        part.all.insert(fid, inode.clone());
        inode
    }

    /// The locks of an MDT.
    pub(crate) fn namespace(&self, mdt: u32) -> Arc<Namespace> {
        self.namespaces().entry(mdt).or_default().clone()
    }

    /// Those of all MDTs.
    pub(crate) fn namespaces(&self) -> MutexGuard<'_, Namespaces> {
        lock(&self.namespaces)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.all().map(|part| part.all.len()).sum()
    }

    /// All there are, by FID.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.those(|_| true)
    }

    /// Those of them for which this holds.
    pub(crate) fn those(&self, which: impl Fn(&Inode) -> bool) -> Vec<Arc<Inode>> {
        let mut those = Vec::new();
        for part in self.parts.all() {
            those.extend(part.all.values().filter(|inode| which(inode)).cloned());
        }
        those.sort_unstable_by_key(|inode| inode.fid);
        those
    }

    /// What was asked so far says nothing of the next life of any inode here: each part has a stamp for
    /// that, from which on it is so.
    pub(crate) fn begin_anew(&self, stamp: impl Fn() -> u64) {
        self.parts.all().for_each(|mut part| part.dropped_at.fill(stamp()));
    }

    /// Looks at what is behind a hand, which it moves: at so many at most, and no more when it is told
    /// to stop.
    pub(crate) fn look(
        &self,
        hand: &mut Hand,
        most: usize,
        mut look: impl FnMut(&Arc<Inode>) -> bool,
    ) -> Looked {
        let mut count = 0;
        while let Some(part) = self.parts.at(hand.part) {
            for (fid, inode) in part.all.range((Bound::Excluded(hand.after), Bound::Unbounded)) {
                if count == most {
                    return Looked { count, is_round: false };
                }
                (hand.after, count) = (*fid, count + 1);
                if !look(inode) {
                    return Looked { count, is_round: false };
                }
            }
            *hand = Hand { part: hand.part + 1, after: Fid::default() };
        }
        *hand = Hand::default();
        Looked { count, is_round: true }
    }
}

#[cfg(test)]
mod tests {
    use sateen_types::Seq;

    use super::*;

    fn fid(n: u32) -> Fid {
        Fid::new(Seq(0x2_0000_0400), n)
    }

    #[test]
    fn all_are_looked_at_once_some_at_a_time() {
        let inodes = Inodes::default();
        assert!(inodes.look(&mut Hand::default(), 10, |_| panic!("there is none")).is_round);
        (1..=1000).for_each(|n| drop(inodes.get(fid(n))));
        assert_eq!(inodes.len(), 1000);
        let (mut hand, mut seen, mut calls) = (Hand::default(), Vec::new(), 0);
        loop {
            calls += 1;
            let before = seen.len();
            let looked = inodes.look(&mut hand, 7, |inode| {
                seen.push(inode.fid);
                seen.len() != 500
            });
            assert_eq!(looked.count, seen.len() - before);
            assert!(looked.count == 7 || looked.is_round || seen.len() == 500, "{looked:?}");
            if looked.is_round {
                break;
            }
        }
        assert!((143..146).contains(&calls), "{calls}");
        seen.sort_unstable();
        assert_eq!(seen, (1..=1000).map(fid).collect::<Vec<_>>());
        assert_eq!(seen, inodes.all().iter().map(|inode| inode.fid).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_dropped_is_another_life_and_says_nothing_of_most_others() {
        let inodes = Inodes::default();
        let one = inodes.get(fid(1));
        assert!(Arc::ptr_eq(&one, &inodes.get(fid(1))));
        inodes.part(fid(1)).remove(fid(1), 77);
        assert!(inodes.find(fid(1)).is_none() && inodes.len() == 0);
        let stamped = (1..=1000).filter(|n| inodes.part(fid(*n)).dropped_at(fid(*n)) == 77);
        assert!((3..5).contains(&stamped.count()));
        assert!(!Arc::ptr_eq(&one, &inodes.get(fid(1))));
        inodes.begin_anew(|| 78);
        assert!((1..=1000).all(|n| inodes.part(fid(n)).dropped_at(fid(n)) == 78));
    }
}
