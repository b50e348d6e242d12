//! What is known of programs' locks: those that somebody has for certain, since he was told and
//! has not begun to give them back; and those that somebody may have. No two exclude each other of
//! the former, and whoever is refused a lock must have met one of the latter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sateen_client::Patience;
use sateen_types::{ClientId, Fid};
use sateen_wire::{FILE_LOCK_END_MAX, FileLock, FileLockMode};

/// Ranges begin and end where these do.
pub(crate) const UNITS: u64 = 6;
/// Bytes of one, but for the last, which has no end.
const UNIT_BYTES: u64 = 1000;
/// What a client that was lost has locked is free after this time: 100 s.
const LOST_NS: u64 = 100_000_000_000;
/// As long a close waits for locks to be given back; one that took longer may have gone without.
const CLOSE_NS: u64 = 1_000_000_000;

/// A signal that ends a program's waiting.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung: AtomicBool,
    patience: Arc<Patience>,
}

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.patience.end();
    }

    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    pub(crate) fn patience(&self) -> Arc<Patience> {
        self.patience.clone()
    }
}

/// From the beginning of one unit to the end of another.
pub(crate) fn range(first: u64, last: u64) -> (u64, u64) {
    let end = if last + 1 >= UNITS { FILE_LOCK_END_MAX } else { (last + 1) * UNIT_BYTES - 1 };
    (first * UNIT_BYTES, end)
}

fn units(lock: &FileLock) -> core::ops::RangeInclusive<u64> {
    (lock.start / UNIT_BYTES).min(UNITS - 1)..=(lock.end / UNIT_BYTES).min(UNITS - 1)
}

fn overlap(a: &FileLock, b: &FileLock) -> bool {
    a.flock == b.flock && a.start <= b.end && b.start <= a.end
}

type Owner = (ClientId, u64);
/// Who has a unit locked, and how; each with a number of its own.
type Held = BTreeMap<Owner, (FileLockMode, u64)>;

/// A lock that somebody may have.
#[derive(Debug)]
struct Possible {
    fid: Fid,
    owner: Owner,
    lock: FileLock,
    /// The operation that asked for it.
    op: u64,
    until_ns: Option<u64>,
    /// It ends then only if its client has lost what it had in a crash of the MDT.
    unless_kept: bool,
}

impl Possible {
    /// It ends then, if it does not end sooner, whatever becomes of its client.
    fn ends(&mut self, until_ns: u64) {
        self.until_ns.get_or_insert(until_ns);
        self.unless_kept = false;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    /// By file, kind and unit.
    certain: BTreeMap<(Fid, bool, u64), Held>,
    possible: Vec<Possible>,
    /// What was certain when a test began.
    tested: BTreeMap<u64, Vec<(u64, Owner, u64)>>,
    next: u64,
}

impl FileLocks {
    /// A program asks for a lock, or gives one back.
    pub(crate) fn begins(&mut self, client: ClientId, fid: Fid, lock: &FileLock, op: u64) {
        let owner = (client, lock.owner);
        for unit in units(lock) {
            let Some(held) = self.certain.get_mut(&(fid, lock.flock, unit)) else { continue };
            match (lock.mode, held.get_mut(&owner)) {
                // One of flock(2) that is changed goes first.
                (FileLockMode::Unlock, _) => drop(held.remove(&owner)),
                _ if lock.flock => drop(held.remove(&owner)),
                (FileLockMode::Read, Some((mode, _))) => *mode = FileLockMode::Read,
                _ => {}
            }
        }
        if lock.mode != FileLockMode::Unlock {
            let (lock, until_ns, unless_kept) = (*lock, None, false);
            self.possible.push(Possible { fid, owner, lock, op, until_ns, unless_kept });
        }
    }

    /// A lock was granted, and its program knows.
    pub(crate) fn granted(
        &mut self,
        client: ClientId,
        fid: Fid,
        lock: &FileLock,
    ) -> Result<(), String> {
        let owner = (client, lock.owner);
        for unit in units(lock) {
            let held = self.certain.entry((fid, lock.flock, unit)).or_default();
            let other = held
                .iter()
                .find(|(other, (mode, _))| **other != owner && !mode.compatible(lock.mode));
            if let Some(((client, id), (mode, _))) = other {
                return Err(format!(
                    "unit {unit} is locked by client-{:x}.{id}: {mode:?}",
                    client.0
                ));
            }
            self.next += 1;
            held.insert(owner, (lock.mode, self.next));
        }
        Ok(())
    }

    /// A program has given a lock back.
    pub(crate) fn given_back(&mut self, client: ClientId, fid: Fid, lock: &FileLock, now_ns: u64) {
        let owner = (client, lock.owner);
        for one in &mut self.possible {
            let same = one.fid == fid && one.owner == owner && one.lock.flock == lock.flock;
            if same && lock.start <= one.lock.start && one.lock.end <= lock.end {
                one.ends(now_ns);
            }
        }
    }

    /// A request has ended without its lock. Nobody may have it any more, unless the MDT was lost.
    pub(crate) fn failed(&mut self, op: u64, lost: bool, now_ns: u64) {
        let until_ns = if lost { now_ns + LOST_NS } else { now_ns };
        self.possible.iter_mut().filter(|one| one.op == op).for_each(|one| one.ends(until_ns));
    }

    /// Whether somebody else may have had a lock in the way of this, since then. So may who this
    /// client was before it was thrown out: what that had it keeps until the OSTs refuse it.
    pub(crate) fn may_be_in_way(
        &self,
        client: ClientId,
        fid: Fid,
        lock: &FileLock,
        since_ns: u64,
    ) -> bool {
        let owner = (client, lock.owner);
        self.possible.iter().any(|one| {
            one.fid == fid
                && (one.owner != owner || one.until_ns.is_some())
                && overlap(&one.lock, lock)
                && !one.lock.mode.compatible(lock.mode)
                && one.until_ns.is_none_or(|until_ns| until_ns >= since_ns)
        })
    }

    /// Whether an owner may have a lock of fcntl(2) beside the one that this operation asks for.
    pub(crate) fn may_have_another(&self, client: ClientId, owner: u64, op: u64) -> bool {
        let has = |one: &Possible| one.owner == (client, owner) && !one.lock.flock && one.op != op;
        self.possible.iter().any(has)
    }

    /// A program asks whether it could have a lock.
    pub(crate) fn begins_test(&mut self, client: ClientId, fid: Fid, lock: &FileLock, op: u64) {
        let in_way = self.certain_in_way(client, fid, lock);
        self.tested.insert(op, in_way);
    }

    /// It could, it was told. True if somebody had one in the way all the time.
    pub(crate) fn missed(&mut self, client: ClientId, fid: Fid, lock: &FileLock, op: u64) -> bool {
        let before = self.tested.remove(&op).unwrap_or_default();
        let now = self.certain_in_way(client, fid, lock);
        before.iter().any(|one| now.contains(one))
    }

    fn certain_in_way(
        &self,
        client: ClientId,
        fid: Fid,
        lock: &FileLock,
    ) -> Vec<(u64, Owner, u64)> {
        let owner = (client, lock.owner);
        let mut in_way = Vec::new();
        for unit in units(lock) {
            let held = self.certain.get(&(fid, lock.flock, unit)).into_iter().flatten();
            let others =
                held.filter(|(other, (mode, _))| **other != owner && !mode.compatible(lock.mode));
            in_way.extend(others.map(|(other, (_, number))| (unit, *other, *number)));
        }
        in_way
    }

    /// A program closes a file: the owners that lose their locks are those of the open and of the
    /// program, for flock(2) and fcntl(2).
    pub(crate) fn closes(&mut self, client: ClientId, fid: Fid, (open, program): (u64, u64)) {
        for ((of, flock, _), held) in &mut self.certain {
            if *of == fid {
                held.remove(&(client, if *flock { open } else { program }));
            }
        }
    }

    /// It has closed it, after so long. Where a daemon `hears_late` of that an open has its lock of
    /// flock(2) until then.
    pub(crate) fn closed(
        &mut self,
        client: ClientId,
        fid: Fid,
        (open, program): (u64, u64),
        (took_ns, now_ns): (u64, u64),
        hears_late: bool,
    ) {
        for one in &mut self.possible {
            let owner = if one.lock.flock { open } else { program };
            if one.fid == fid && one.owner == (client, owner) {
                let at_once = took_ns < CLOSE_NS && !(hears_late && one.lock.flock);
                one.ends(if at_once { now_ns } else { now_ns + LOST_NS });
            }
        }
    }

    /// A client may have lost all that it had.
    pub(crate) fn lost(&mut self, client: ClientId, now_ns: u64) {
        for held in self.certain.values_mut() {
            held.retain(|(of, _), _| *of != client);
        }
        let kept = self.possible.iter_mut().filter(|one| one.until_ns.is_none());
        for one in kept.filter(|one| one.owner.0 == client) {
            (one.until_ns, one.unless_kept) = (Some(now_ns + LOST_NS), true);
        }
    }

    /// It has gone on as itself and told the MDT of its locks: it has them as long as ever. Or as
    /// another, and what it had is lost.
    pub(crate) fn is_back(&mut self, client: ClientId, as_itself: bool) {
        for one in self.possible.iter_mut().filter(|one| one.owner.0 == client) {
            if core::mem::take(&mut one.unless_kept) && as_itself {
                one.until_ns = None;
            }
        }
    }

    /// Nothing that began before this is still to be judged.
    pub(crate) fn tidy(&mut self, since_ns: u64) {
        self.possible.retain(|one| one.until_ns.is_none_or(|until_ns| until_ns >= since_ns));
        self.certain.retain(|_, held| !held.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);
    const LATER_NS: u64 = 3 * LOST_NS;

    fn lock(owner: u64, mode: FileLockMode) -> FileLock {
        let (start, end) = range(0, UNITS - 1);
        FileLock { owner, flock: false, mode, start, end, pid: 0 }
    }

    /// One that a program had when the MDT crashed.
    fn after_a_crash() -> FileLocks {
        let mut locks = FileLocks::default();
        let held = lock(1, FileLockMode::Write);
        locks.begins(HOLDER, Fid::ROOT, &held, 7);
        assert_eq!(locks.granted(HOLDER, Fid::ROOT, &held), Ok(()));
        locks.lost(HOLDER, 0);
        locks
    }

    fn may_be_in_way(locks: &FileLocks, since_ns: u64) -> bool {
        locks.may_be_in_way(OTHER, Fid::ROOT, &lock(1, FileLockMode::Write), since_ns)
    }

    #[test]
    fn who_goes_on_after_a_crash_has_its_locks_as_long_as_ever() {
        let mut locks = after_a_crash();
        locks.is_back(HOLDER, true);
        locks.tidy(LATER_NS);
        assert!(may_be_in_way(&locks, LATER_NS));
        locks.given_back(HOLDER, Fid::ROOT, &lock(1, FileLockMode::Unlock), LATER_NS);
        assert!(!may_be_in_way(&locks, LATER_NS + 1));
    }

    #[test]
    fn who_goes_on_as_another_has_them_no_more() {
        let mut locks = after_a_crash();
        locks.is_back(HOLDER, false);
        assert!(may_be_in_way(&locks, LOST_NS) && !may_be_in_way(&locks, LATER_NS));
        // After the next crash it goes on as what it is by then.
        locks.lost(HOLDER, LOST_NS);
        locks.is_back(HOLDER, true);
        assert!(!may_be_in_way(&locks, LATER_NS));
    }

    #[test]
    fn what_ended_while_the_mdt_was_away_does_not_come_back() {
        let mut locks = after_a_crash();
        locks.given_back(HOLDER, Fid::ROOT, &lock(1, FileLockMode::Unlock), 1);
        locks.is_back(HOLDER, true);
        assert!(!may_be_in_way(&locks, LATER_NS));
    }
}
