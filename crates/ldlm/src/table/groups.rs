//! Group locks: the data of a file for all who name the same group.
//!
//! Life of one: it is asked for ([`LockTable::join_group`]); whoever else has the data is called back
//! and waited for, as for any other lock, and who comes for the same group when it is there has it at
//! once, past all who wait. A member that waited for others would wait for an outsider who waits for a
//! member who waits for it. It is never asked back, because its end is up to people: who is in its way is
//! told so ([`LockTable::is_grouped`]), and is not to wait here. When its client gives it back, or can do
//! nothing any more, it goes; with the last of them the file has no group any more.

use std::collections::BTreeMap;

use sateen_types::{ClientId, Fid};
use sateen_wire::{Grant, Ibits, LockId, LockMode};

use super::{LockTable, Ticket};
use crate::bounds::TOLD_MAX;
use crate::slab::State;
use crate::waiting::Need;

/// Which group each file has that has one: all group locks on it are of that.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_fid: BTreeMap<Fid, u64>,
}

/// What has come of asking for a group lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// This.
    Granted(Grant),
    /// Others are called back, and the ticket will be woken.
    Wait,
    /// There are too many locks; nobody will be woken.
    Full,
    /// Another group has the file.
    Taken,
}

/// What a group lock is a lock on.
const fn data_of(fid: Fid) -> Need {
    Need::of(fid, LockMode::Group, Ibits::DATA)
}

impl LockTable {
    /// A client wants the data of a file for a group.
    pub fn join_group(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        (fid, gid): (Fid, u64),
    ) -> Joined {
        let need = data_of(fid);
        match self.groups.by_fid.get(&fid) {
            Some(other) if *other != gid => return Joined::Taken,
            // While objects are cut nobody begins to write.
            Some(_) if !self.is_held(&need) => {
                if self.len() >= self.bounds().waited() && !self.is_member(client, fid) {
                    return Joined::Full;
                }
                return self.grant(client, &need).map_or(Joined::Full, Joined::Granted);
            }
            _ => {}
        }
        match self.enqueue(now_ns, client, ticket, &need) {
            Some(grant) => {
                self.groups.by_fid.insert(fid, gid);
                Joined::Granted(grant)
            }
            None if ticket.is_none() => Joined::Full,
            None => Joined::Wait,
        }
    }

    /// A client has a group lock of the run before, as [`LockTable::reclaim`] has others.
    pub fn reclaim_group(&mut self, client: ClientId, (fid, gid): (Fid, u64), id: LockId) -> bool {
        let group = self.groups.by_fid.get(&fid).copied();
        if gid == 0 || group.is_some_and(|other| other != gid) || self.len() >= TOLD_MAX {
            return false;
        }
        let is_held = self.reclaim(client, &data_of(fid), id);
        if is_held {
            self.groups.by_fid.insert(fid, gid);
        }
        is_held
    }

    /// The group that has a file's data.
    pub fn group_of(&self, fid: Fid) -> Option<u64> {
        self.groups.by_fid.get(&fid).copied()
    }

    /// Whether a group is in the way of who wants this lock, whoever belongs to it: also one of the same
    /// client, whose other programs do not.
    pub fn is_grouped(&self, need: &Need) -> bool {
        let conflicts = need.mode != LockMode::Group && need.bits.intersects(Ibits::DATA);
        conflicts && self.groups.by_fid.contains_key(&need.fid)
    }

    /// Whether a group is in the way of what a client does, which belongs to none.
    pub fn is_outside(&self, client: ClientId, need: &Need) -> bool {
        self.is_grouped(need) && !self.is_member(client, need.fid)
    }

    /// Whether a client has a file's data for a group.
    pub fn is_member(&self, client: ClientId, fid: Fid) -> bool {
        let mine = |(_, lock): (u32, &crate::slab::Lock)| {
            lock.client == client && lock.mode == LockMode::Group && lock.state == State::Granted
        };
        self.groups.by_fid.contains_key(&fid) && self.locks_on(fid).any(mine)
    }

    /// As [`LockTable::require`] of one need, whatever group has the file.
    pub fn require_beside_groups(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        need: &Need,
    ) -> bool {
        let in_way = self
            .locks_on(need.fid)
            .any(|lock| lock.1.mode != LockMode::Group && self.is_in_way(lock, client, need));
        if in_way {
            self.call_back(now_ns, client, need);
            let needs = core::slice::from_ref(need);
            *ticket = Some(self.waiting.wait(*ticket, client, needs, false));
        }
        !in_way
    }

    /// Whether anything is in the way of what a client does, which takes no lock: members are in no
    /// member's way.
    pub(super) fn must_go(&self, client: ClientId, need: &Need) -> bool {
        let member = self.is_member(client, need.fid);
        self.locks_on(need.fid).any(|(slot, lock)| {
            !(member && lock.mode == LockMode::Group) && self.is_in_way((slot, lock), client, need)
        })
    }

    /// A group lock is gone.
    pub(super) fn group_lock_gone(&mut self, fid: Fid) {
        let left = self.locks_on(fid).any(|(_, lock)| lock.mode == LockMode::Group);
        if !left {
            self.groups.by_fid.remove(&fid);
        }
    }

    /// Files that a group has, for whoever looks in from outside.
    pub fn grouped(&self) -> usize {
        self.groups.by_fid.len()
    }
}
