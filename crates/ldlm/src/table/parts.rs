//! Parts of a file's data: the locks that have a comb.
//!
//! A part stands beside parts whose combs it does not meet, and beside those of its own client, wherever
//! they lie; and beside nothing else, not even its own client's other locks on the data. Combs lie beside
//! the locks, by slot, and go with them: a slot that is used again must not inherit one.

use std::collections::BTreeMap;

use sateen_types::{ClientId, Comb, Fid, FidMap};
use sateen_wire::{Grant, Ibits, LockId, LockMode};

use super::{LockTable, Ticket, is_in_way};
use crate::slab::Lock;
use crate::waiting::Need;

/// Most parts of one file; who asks for more gets no part. Whoever asks is held against all of them.
pub const PARTS_PER_FILE_MAX: u32 = 4096;

/// The combs of all parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    combs: BTreeMap<u32, Comb>,
    /// How many each file has that has any.
    counts: FidMap<u32>,
}

impl Parts {
    /// The comb of the lock in a slot, if that is a part.
    pub(super) fn comb(&self, (slot, lock): (u32, &Lock)) -> Option<Comb> {
        if lock.mode == LockMode::Part { self.combs.get(&slot).copied() } else { None }
    }

    /// There is a new lock.
    pub(super) fn insert(&mut self, slot: u32, need: &Need) {
        if let Some(comb) = need.comb().filter(|_| need.mode == LockMode::Part) {
            self.combs.insert(slot, comb);
            *self.counts.entry(need.fid).or_insert(0) += 1;
        }
    }

    /// A lock is gone.
    pub(super) fn remove(&mut self, slot: u32, fid: Fid) {
        if self.combs.remove(&slot).is_none() {
            return;
        }
        if let Some(count) = self.counts.get_mut(&fid) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&fid);
            }
        }
    }
}

impl LockTable {
    /// A client wants the records of a comb: as [`LockTable::enqueue`].
    pub fn enqueue_part(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        (fid, comb): (Fid, Comb),
    ) -> Option<Grant> {
        self.enqueue(now_ns, client, ticket, &Need::part(fid, comb))
    }

    /// A client has a part of the run before, as [`LockTable::reclaim`] has others.
    pub fn reclaim_part(&mut self, client: ClientId, (fid, comb): (Fid, Comb), id: LockId) -> bool {
        self.reclaim(client, &Need::part(fid, comb), id)
    }

    /// A range, or as much of it from its beginning on as no other client has of the file. Whoever has
    /// its first byte will have to give that back.
    pub fn fitted(&self, client: ClientId, (fid, range): (Fid, Comb)) -> Comb {
        let others = self.locks_on(fid).filter(|(_, lock)| lock.client != client);
        let combs = others.filter_map(|lock| self.parts.comb(lock));
        combs.fold(range, |range, comb| range.before(&comb).unwrap_or(range))
    }

    /// How many parts a file has.
    pub fn parts_of(&self, fid: Fid) -> u32 {
        self.parts.counts.get(&fid).copied().unwrap_or(0)
    }

    /// Parts there are, for whoever looks in from outside.
    pub fn parts(&self) -> usize {
        self.parts.combs.len()
    }

    /// Whether a part has to go for what a client needs, its own one, too. One that goes already counts as
    /// well: where only those counted that stay, some who ask for parts and some who ask for more could go
    /// on taking them from each other for ever, and nobody would have broken any.
    pub fn breaks_parts(&self, client: ClientId, need: &Need) -> bool {
        let data = need.bits.intersects(Ibits::DATA) && self.parts_of(need.fid) > 0;
        data && self.locks_on(need.fid).any(|(slot, lock)| {
            let comb = self.parts.comb((slot, lock));
            lock.mode == LockMode::Part && is_in_way((lock, comb), client, need)
        })
    }

    /// Whether a ticket waits for this, among others.
    pub fn waits_for(&self, ticket: Ticket, need: &Need) -> bool {
        self.waiting.get(ticket).is_some_and(|waiter| waiter.needs.contains(need))
    }

    /// The combs of an inode's locks with whose they are, for whoever looks in from outside.
    pub fn combs(&self, fid: Fid) -> impl Iterator<Item = (ClientId, Comb)> + '_ {
        self.locks_on(fid)
            .filter_map(|(slot, lock)| Some((lock.client, self.parts.comb((slot, lock))?)))
    }
}
