//! Who reads small files one after the other, and which come next.
//!
//! A program that goes through many small files mostly takes them in the order in which they were
//! made, and in that order a client numbers them. So whoever reads the beginnings of several
//! objects of one sequence, each behind the last, will want what lies behind them, and a disk can
//! be at that while he is busy with these.
//!
//! Life of a walk:
//! 1. *Begun* by a short read of an object's beginning, near which nobody walks.
//! 2. *Forward*: objects not far behind come, [`STEPS_MIN`] of them. Several programs that share
//!    a directory's files among them are one walk.
//! 3. *Cold*, once one of them has to wait for the disk: the next ones are asked for
//!    ([`super::ahead`]), twice as many each time, and again when half of them have been read.
//! 4. *Warm* again, when all that was asked for was in memory already, or there is no more; and
//!    *useless* if too few of them are wanted.
//! 5. *Forgotten* when others have walked since.

use std::collections::VecDeque;

use sateen_types::{ObjectId, Seq};

/// Walks that are told apart.
const WALKS_MAX: usize = 4;
/// An object belongs to a walk that has come within so many numbers of it: each of 32 OSTs may
/// have every 32nd file.
const REACH: u32 = 128;
/// Objects that must have come forward before anything is asked for.
const STEPS_MIN: u32 = 4;
/// Objects that are asked for: at first, and at most.
const WINDOW_FIRST: usize = 4;
const WINDOW_MAX: usize = 32;
/// Of so many that are asked for one must be wanted, but for the first ones.
const WANTED_PART: u64 = 4;
const WANTED_AFTER: u64 = 2 * WINDOW_MAX as u64;

/// What is to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    /// Objects of this sequence,
    pub(super) seq: Seq,
    /// behind this number,
    pub(super) behind: u32,
    /// so many.
    pub(super) count: usize,
}

/// What became of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The objects, in order.
    pub(super) oids: Vec<u32>,
    /// One of them was not in memory.
    pub(super) was_cold: bool,
}

/// Those who walk, the last one first.
#[derive(Debug)]
pub(super) struct Walks {
    walks: VecDeque<Walk>,
    window_max: usize,
}

#[derive(Debug)]
struct Walk {
    seq: Seq,
    /// The furthest object that was read.
    last: u32,
    /// So many were read, each behind all before.
    steps: u32,
    /// One of them had to wait for the disk.
    cold: bool,
    /// Asked for, and not read yet.
    ahead: VecDeque<u32>,
    window: usize,
    /// Something is being asked for.
    asking: bool,
    /// How many were asked for in all, and how many of them were read.
    asked: u64,
    wanted: u64,
}

impl Walk {
    fn new(object: ObjectId) -> Walk {
        Walk {
            seq: object.fid.seq,
            last: object.fid.oid,
            steps: 0,
            cold: false,
            ahead: VecDeque::new(),
            window: WINDOW_FIRST,
            asking: false,
            asked: 0,
            wanted: 0,
        }
    }

    fn takes(&self, object: ObjectId) -> bool {
        self.seq == object.fid.seq && self.last.abs_diff(object.fid.oid) <= REACH
    }

    fn read(&mut self, oid: u32) {
        if oid <= self.last {
            // Of who shares the walk, and comes later.
            self.wanted += u64::from(self.asked > 0);
            return;
        }
        self.last = oid;
        self.steps = self.steps.saturating_add(1);
        while let Some(first) = self.ahead.pop_front_if(|first| *first <= oid) {
            self.wanted += u64::from(first == oid);
        }
    }

    /// What is to be asked for now, if anything is.
    fn due(&mut self, window_max: usize) -> Option<Ask> {
        let useless = self.asked > WANTED_AFTER && self.asked > WANTED_PART * self.wanted;
        let enough = self.ahead.len() > self.window / 2;
        if !self.cold || self.steps < STEPS_MIN || self.asking || useless || enough {
            return None;
        }
        self.window = (2 * self.window).min(window_max);
        let behind = self.ahead.back().copied().unwrap_or(self.last);
        let count = self.window.saturating_sub(self.ahead.len());
        self.asking = count > 0;
        self.asking.then_some(Ask { seq: self.seq, behind, count })
    }
}

impl Walks {
    /// Of a store that keeps so many files open: what is read ahead must not take their places.
    pub(super) fn new(files_open_max: usize) -> Walks {
        let window_max = (files_open_max / 64).min(WINDOW_MAX);
        Walks { walks: VecDeque::with_capacity(WALKS_MAX), window_max }
    }

    /// The beginning of an object was read, and had to wait for the disk or not. What is to be
    /// asked for, if anything is.
    pub(super) fn read(&mut self, object: ObjectId, waited: bool) -> Option<Ask> {
        if object.stripe != 0 {
            return None;
        }
        match self.walks.iter().position(|walk| walk.takes(object)) {
            Some(0) => {}
            Some(at) => {
                let walk = self.walks.remove(at)?;
                self.walks.push_front(walk);
            }
            None => {
                self.walks.truncate(WALKS_MAX - 1);
                self.walks.push_front(Walk::new(object));
            }
        }
        let walk = self.walks.front_mut()?;
        walk.read(object.fid.oid);
        walk.cold |= waited;
        walk.due(self.window_max)
    }

    /// Something was asked for. What is to be asked for next, if it is due: he who walks may have
    /// read all of that meanwhile.
    pub(super) fn asked(&mut self, ask: Ask, asked: Asked) -> Option<Ask> {
        let near = |walk: &Walk| {
            let at = walk.ahead.back().copied().unwrap_or(walk.last);
            walk.seq == ask.seq && walk.asking && at.abs_diff(ask.behind) <= REACH
        };
        let walk = self.walks.iter_mut().find(|walk| near(walk))?;
        walk.asking = false;
        walk.cold &= asked.was_cold;
        walk.asked += asked.oids.len() as u64;
        let last = walk.last;
        for oid in asked.oids {
            match oid > last {
                true => walk.ahead.push_back(oid),
                false => walk.wanted += 1,
            }
        }
        walk.due(self.window_max)
    }
}

#[cfg(test)]
mod tests;
