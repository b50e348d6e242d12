//! Where locks live: slots in one vector, each on two lists, by inode and by client. Nothing
//! is allocated or freed per lock. Used by the table only.
//!
//! A lock that its client had of the run before keeps the name it had, which names no slot here:
//! such names are kept beside, and looked for only when a name is not of this boot.

use std::collections::BTreeMap;

use sateen_types::{ClientId, Fid};
use sateen_wire::{Ibits, LockId, LockMode};

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;
/// Bits of a lock id that name the slot; the others count the slot's lives.
const SLOT_BITS: u32 = 26;
/// Slots that exist at most, whatever the limits say.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// Where a lock is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its holder may use it.
    Granted,
    /// Its holder was called back.
    CalledBack,
    /// Nobody will answer a callback: an evicted writer's, or the target's own.
    Silent,
    /// The target's own, and nobody knows when it ends.
    Stuck,
}

/// Which of its two lists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    /// The locks of one inode.
    Inode = 0,
    /// The locks of one client.
    Client = 1,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

/// One lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lock {
    pub(crate) fid: Fid,
    pub(crate) client: ClientId,
    pub(crate) mode: LockMode,
    pub(crate) bits: Ibits,
    pub(crate) state: State,
    live: bool,
    life: u64,
    links: [Link; 2],
}

/// All locks.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    /// Lives of new slots begin here.
    first_life: u64,
    locks: Vec<Lock>,
    free: Vec<u32>,
    /// Locks with names of another boot, by name and by slot.
    foreign: BTreeMap<LockId, u32>,
    names: BTreeMap<u32, LockId>,
}

impl Slab {
    /// Lock ids of different boots are different, but for one chance in many: a client that
    /// still has one in its hands must not take it for another.
    pub(crate) fn of_boot(boot_epoch: u64) -> Slab {
        // Fibonacci hashing; half of the lives are left to be lived.
        let first_life = boot_epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (SLOT_BITS + 1);
        Slab { first_life, ..Slab::default() }
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Lock> {
        self.locks.get(slot as usize)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Lock> {
        self.locks.get_mut(slot as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.locks.len() - self.free.len()
    }

    /// The slot of a lock that is still alive.
    pub(crate) fn find(&self, id: LockId) -> Option<u32> {
        let slot = (id.0 & (SLOTS_MAX as u64 - 1)) as u32;
        let own = |lock: &&Lock| lock.live && lock.life == id.0 >> SLOT_BITS;
        if self.get(slot).filter(own).is_some() && !self.names.contains_key(&slot) {
            return Some(slot);
        }
        self.foreign.get(&id).copied()
    }

    /// Names the lock in a slot as another boot did; false if there is one of that name.
    pub(crate) fn rename(&mut self, slot: u32, id: LockId) -> bool {
        if self.find(id).is_some() {
            return false;
        }
        self.foreign.insert(id, slot);
        self.names.insert(slot, id);
        true
    }

    /// The slot before one on a list.
    pub(crate) fn before(&self, slot: u32, list: List) -> u32 {
        let link = self.get(slot).and_then(|lock| lock.links.get(list as usize));
        link.map_or(NIL, |link| link.prev)
    }

    /// The id of the lock in a slot.
    pub(crate) fn id(&self, slot: u32) -> LockId {
        if let Some(id) = self.names.get(&slot) {
            return *id;
        }
        let life = self.get(slot).map_or(0, |lock| lock.life);
        LockId(life << SLOT_BITS | u64::from(slot))
    }

    /// A new lock in front of both lists; `None` if there are too many. The heads are the
    /// caller's, and updated.
    pub(crate) fn insert(
        &mut self,
        fid: Fid,
        client: ClientId,
        (mode, bits, state): (LockMode, Ibits, State),
        heads: [&mut u32; 2],
    ) -> Option<u32> {
        let [by_inode, by_client] = heads;
        let links = [Link { prev: NIL, next: *by_inode }, Link { prev: NIL, next: *by_client }];
        let mut lock =
            Lock { fid, client, mode, bits, state, live: true, life: self.first_life + 1, links };
        let slot = match self.free.pop() {
            Some(slot) => {
                let place = self.locks.get_mut(slot as usize)?;
                lock.life = place.life + 1;
                *place = lock;
                slot
            }
            None if self.locks.len() < SLOTS_MAX => {
                self.locks.push(lock);
                self.locks.len() as u32 - 1
            }
            None => return None,
        };
        for (list, head) in [by_inode, by_client].into_iter().enumerate() {
            if let Some(next) = self.get_mut(*head).and_then(|next| next.links.get_mut(list)) {
                next.prev = slot;
            }
            *head = slot;
        }
        Some(slot)
    }

    /// Takes a lock off both lists and frees its slot.
    pub(crate) fn remove(&mut self, slot: u32, heads: [&mut u32; 2]) -> Option<Lock> {
        let lock = *self.get(slot)?;
        for (list, (head, link)) in heads.into_iter().zip(lock.links).enumerate() {
            match self.get_mut(link.prev).and_then(|prev| prev.links.get_mut(list)) {
                Some(prev) => prev.next = link.next,
                None => *head = link.next,
            }
            if let Some(next) = self.get_mut(link.next).and_then(|next| next.links.get_mut(list)) {
                next.prev = link.prev;
            }
        }
        self.get_mut(slot)?.live = false;
        if let Some(id) = self.names.remove(&slot) {
            self.foreign.remove(&id);
        }
        self.free.push(slot);
        Some(lock)
    }

    /// All locks, and where each lives.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Lock)> {
        let slots = (0..).zip(&self.locks);
        slots.filter(|(_, lock)| lock.live)
    }

    /// Slots of a list from its head on.
    pub(crate) fn list(&self, head: u32, list: List) -> impl Iterator<Item = (u32, &Lock)> {
        let mut at = head;
        core::iter::from_fn(move || {
            let slot = at;
            let lock = self.get(slot)?;
            at = lock.links.get(list as usize).map_or(NIL, |link| link.next);
            Some((slot, lock))
        })
    }
}
