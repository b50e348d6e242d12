//! Programs' locks of a metadata target's files, those of flock(2) and of fcntl(2): who has which,
//! and who waits for one. Pure, as the other table is.
//!
//! Life of a wait: a lock that is asked for and is not free is queued, if its client names the wait
//! ([`FileLocks::set`]); the request is answered at once. When nobody is in its way any more it is
//! *offered*: it counts as held against all others, and its client is told that it is its turn
//! ([`FileLocks::take_turns`]). The client asks the same again, which is granted, or leaves
//! ([`FileLocks::leave`]); if it does neither for long it is evicted ([`FileLocks::overdue`]).
//!
//! A lock is granted if nobody's *lock* is in the way, whoever waits: as on Linux, and because one
//! who has a lock and wants another would else wait behind those who wait for him. Each wait
//! remembers one who is in its way, and where. When something goes, those who wait behind that are
//! looked at, in their order; the others are where they were.
//!
//! Two who wait for each other: whoever would close a ring of waits for fcntl(2) locks is told
//! `EDEADLK`. Edges come about when somebody is queued, where they are looked at, and when somebody
//! is granted a lock who does not wait himself, which closes nothing; so none is missed, as long as
//! each owner does one thing at a time.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::{ClientId, Errno, Fid, FidMap};
use sateen_wire::{FileLock, FileLockMode, OpenId, WaitId};

use crate::ranges::{Owner, Range, Ranges};
use crate::table::{CALLBACK_LIMIT_NS, CALLBACK_REPEAT_NS};

/// Most locked ranges of one file.
pub const RANGES_PER_FILE_MAX: usize = 1 << 16;
/// Each change of one looks at all of its file: tests come to an end with fewer.
const RANGES_MAX: usize = if cfg!(test) { 64 } else { RANGES_PER_FILE_MAX };
/// Most waits for locks of one file.
pub const WAITS_PER_FILE_MAX: usize = 1 << 14;
/// Most locked ranges and waits of one client together.
pub const FILE_LOCKS_PER_CLIENT_MAX: usize = 1 << 18;
/// Most steps of a search for a ring of waits; what takes more is taken for none.
const DEADLOCK_STEPS_MAX: usize = 4096;
/// Most locks and waits that are looked at in it, some milliseconds; and so what it remembers.
const DEADLOCK_LOOKS_MAX: usize = 1 << 20;

/// What became of a lock that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileLockAnswer {
    /// It is there, or gone if it was to go.
    Granted,
    /// This is in its way.
    Busy(Range),
    /// Something is, and the wait is queued.
    Queued,
}

/// Somebody is to be told that it is his turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLockTurn {
    /// The client.
    pub client: ClientId,
    /// The file.
    pub fid: Fid,
    /// The wait.
    pub wait: WaitId,
}

/// When somebody was first told that it is his turn, and last; 0 if that is still to be done.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    called_ns: u64,
    repeated_ns: u64,
}

#[derive(Debug)]
struct Waiter {
    wait: WaitId,
    want: Range,
    flock: bool,
    state: Waits,
}

/// How a wait stands.
#[derive(Debug, Clone, Copy)]
enum Waits {
    /// For whoever has this byte, as one whose lock is in the way, or was offered.
    Behind(Owner, u64),
    /// Offered: since then it counts as held.
    Offered(Clock),
}

impl Waits {
    fn behind(want: &Range, in_way: &Range) -> Waits {
        Waits::Behind(in_way.owner, in_way.start.max(want.start))
    }
}

impl Waiter {
    fn is_offered(&self) -> bool {
        matches!(self.state, Waits::Offered(_))
    }
}

/// What an owner has from now on, or nothing any more.
#[derive(Debug, Clone, Copy)]
struct Change {
    flock: bool,
    new: Range,
}

impl Change {
    /// What is no longer his.
    fn gone(flock: bool, range: Range) -> Change {
        Change { flock, new: Range { mode: FileLockMode::Unlock, ..range } }
    }

    /// Whether a wait was for one who has this byte, which changes.
    fn concerns(&self, waiter: &Waiter) -> bool {
        let Waits::Behind(owner, byte) = waiter.state else { return false };
        self.flock == waiter.flock
            && self.new.owner == owner
            && (self.new.start..=self.new.end).contains(&byte)
    }

    /// Whether the wait may be over.
    fn frees(&self, waiter: &Waiter) -> bool {
        self.new.mode.compatible(waiter.want.mode)
    }
}

/// The locks of one file. Those of flock(2) and of fcntl(2) do not see each other.
#[derive(Debug, Default)]
struct OfFile {
    flock: Ranges,
    posix: Ranges,
    /// In order.
    waiting: Vec<Waiter>,
}

impl OfFile {
    fn ranges(&self, flock: bool) -> &Ranges {
        if flock { &self.flock } else { &self.posix }
    }

    fn ranges_mut(&mut self, flock: bool) -> &mut Ranges {
        if flock { &mut self.flock } else { &mut self.posix }
    }

    fn is_empty(&self) -> bool {
        self.flock.is_empty() && self.posix.is_empty() && self.waiting.is_empty()
    }

    /// What is in the way: held by somebody else, or offered to him.
    fn in_way(&self, want: &Range, flock: bool) -> Option<&Range> {
        let offered = || {
            let mut offered = self.waiting.iter().filter(|w| w.flock == flock);
            offered.find(|w| w.is_offered() && want.conflicts(&w.want)).map(|w| &w.want)
        };
        self.ranges(flock).in_way(want).or_else(offered)
    }

    /// All who are in the way.
    fn owners_in_way(&self, want: &Range) -> Vec<Owner> {
        let offered = self.waiting.iter().filter(|w| !w.flock && w.is_offered());
        let all = self.posix.iter().chain(offered.map(|w| &w.want));
        all.filter(|held| want.conflicts(held)).map(|held| held.owner).collect()
    }

    fn waiter(&self, client: ClientId, wait: WaitId) -> Option<usize> {
        self.waiting.iter().position(|w| w.wait == wait && w.want.owner.client == client)
    }
}

/// What a client has to do with locks.
#[derive(Debug, Default)]
struct Client {
    /// The files on which it has locks or waits; some may have none left.
    files: BTreeSet<Fid>,
    /// How many of both there are.
    count: usize,
}

/// The programs' locks of one target.
#[derive(Debug, Default)]
pub struct FileLocks {
    files: FidMap<OfFile>,
    clients: BTreeMap<ClientId, Client>,
    /// On which files each owner waits for a lock of fcntl(2), not counting what was offered.
    waiting: BTreeMap<Owner, Vec<Fid>>,
    /// Files with a wait that was offered.
    offered: BTreeSet<Fid>,
    turns: Vec<FileLockTurn>,
    /// Instead of [`CALLBACK_LIMIT_NS`].
    limit_ns: Option<u64>,
    /// Waits that were looked at so far because something went.
    #[cfg(test)]
    looked_at: usize,
}

impl FileLocks {
    /// Evicts who does not take his turn within another time.
    pub fn set_callback_limit(&mut self, limit_ns: u64) {
        self.limit_ns = Some(limit_ns);
    }

    /// Takes a lock, changes it or gives it back. The wait, if it is named, is over once the lock
    /// is granted.
    ///
    /// One of flock(2) that is changed goes before the new one is looked for, as on Linux: of two
    /// who share a lock and both want it alone one would have to let go first.
    ///
    /// # Errors
    /// `EDEADLK`, and `ENOLCK` if there are too many.
    pub fn set(
        &mut self,
        (client, open): (ClientId, OpenId),
        fid: Fid,
        lock: &FileLock,
        wait: Option<WaitId>,
    ) -> Result<FileLockAnswer, Errno> {
        let want = Range::of(client, open, lock);
        let flock = lock.flock;
        if want.mode == FileLockMode::Unlock {
            self.check_split(fid, &want, flock)?;
            self.change(fid, flock, want);
            self.changed(fid, &[Change { flock, new: want }]);
            return Ok(FileLockAnswer::Granted);
        }
        self.check_room(client, fid, wait)?;
        let in_way = self.files.get(&fid).and_then(|file| file.in_way(&want, flock)).copied();
        let Some(in_way) = in_way else {
            self.change(fid, flock, want);
            // The last word is that of the lock, which is most often what was offered.
            let gone = wait.and_then(|wait| self.remove_wait(client, fid, wait));
            let changes = gone.into_iter().chain([Change { flock, new: want }]);
            self.changed(fid, &changes.collect::<Vec<_>>());
            return Ok(FileLockAnswer::Granted);
        };
        let gone = Change::gone(flock, want);
        if flock {
            self.change(fid, flock, gone.new);
        }
        let queued = |wait| self.files.get(&fid).is_some_and(|f| f.waiter(client, wait).is_some());
        let answer = match wait {
            None => Ok(FileLockAnswer::Busy(in_way)),
            Some(wait) if queued(wait) => Ok(FileLockAnswer::Queued),
            Some(_) if !flock && self.is_ring(fid, &want) => Err(Errno::EDEADLK),
            Some(wait) => {
                let state = Waits::behind(&want, &in_way);
                self.queue(fid, Waiter { wait, want, flock, state });
                Ok(FileLockAnswer::Queued)
            }
        };
        if flock {
            self.changed(fid, &[gone]);
        }
        answer
    }

    /// What an owner has becomes what this says, within its range.
    fn change(&mut self, fid: Fid, flock: bool, new: Range) {
        if new.mode == FileLockMode::Unlock && !self.files.contains_key(&fid) {
            return;
        }
        let ranges = self.files.entry(fid).or_default().ranges_mut(flock);
        let before = ranges.len();
        ranges.set(new);
        let after = ranges.len();
        let client = self.clients.entry(new.owner.client).or_default();
        client.files.insert(fid);
        client.count = (client.count + after).saturating_sub(before);
    }

    /// As [`FileLocks::check_room`], of what is given back in the middle of a range and makes two of
    /// it. There may be twice as many, so that a lock of which nobody has heard can be undone.
    fn check_split(&self, fid: Fid, gone: &Range, flock: bool) -> Result<(), Errno> {
        let Some(file) = self.files.get(&fid) else { return Ok(()) };
        let count = self.clients.get(&gone.owner.client).map_or(0, |client| client.count);
        let full = file.flock.len() + file.posix.len() >= 2 * RANGES_MAX
            || count >= 2 * FILE_LOCKS_PER_CLIENT_MAX;
        if full && file.ranges(flock).splits(gone) { Err(Errno::ENOLCK) } else { Ok(()) }
    }

    fn check_room(&self, client: ClientId, fid: Fid, wait: Option<WaitId>) -> Result<(), Errno> {
        // Each lock can split one that is there in two, and so make two more.
        let full = self.files.get(&fid).is_some_and(|file| {
            file.flock.len() + file.posix.len() + 2 > RANGES_MAX
                || wait.is_some_and(|wait| file.waiter(client, wait).is_none())
                    && file.waiting.len() >= WAITS_PER_FILE_MAX
        });
        let count = self.clients.get(&client).map_or(0, |client| client.count);
        if full || count >= FILE_LOCKS_PER_CLIENT_MAX { Err(Errno::ENOLCK) } else { Ok(()) }
    }

    fn queue(&mut self, fid: Fid, waiter: Waiter) {
        let owner = waiter.want.owner;
        let client = self.clients.entry(owner.client).or_default();
        client.files.insert(fid);
        client.count += 1;
        if !waiter.flock {
            self.waiting.entry(owner).or_default().push(fid);
        }
        self.files.entry(fid).or_default().waiting.push(waiter);
    }

    /// An owner waits for one thing less on this file.
    fn waits_less(waiting: &mut BTreeMap<Owner, Vec<Fid>>, owner: Owner, fid: Fid) {
        let Some(files) = waiting.get_mut(&owner) else { return };
        if let Some(at) = files.iter().position(|other| *other == fid) {
            files.swap_remove(at);
        }
        if files.is_empty() {
            waiting.remove(&owner);
        }
    }

    /// What is free now, if it was offered.
    fn remove_wait(&mut self, client: ClientId, fid: Fid, wait: WaitId) -> Option<Change> {
        let file = self.files.get_mut(&fid)?;
        let waiter = file.waiting.remove(file.waiter(client, wait)?);
        self.turns.retain(|turn| turn.client != client || turn.wait != wait);
        self.removed(fid, &waiter);
        waiter.is_offered().then(|| Change::gone(waiter.flock, waiter.want))
    }

    fn removed(&mut self, fid: Fid, waiter: &Waiter) {
        let owner = waiter.want.owner;
        if !waiter.flock && !waiter.is_offered() {
            FileLocks::waits_less(&mut self.waiting, owner, fid);
        }
        if let Some(client) = self.clients.get_mut(&owner.client) {
            client.count = client.count.saturating_sub(1);
        }
    }

    /// Whether a wait for this would close a ring: somebody whom it waits for waits, over whomever,
    /// for its owner.
    fn is_ring(&self, fid: Fid, want: &Range) -> bool {
        let Some(file) = self.files.get(&fid) else { return false };
        let mut next = file.owners_in_way(want);
        let (mut seen, mut looks) = (BTreeSet::new(), 0);
        while let Some(owner) = next.pop() {
            if owner == want.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            if seen.len() > DEADLOCK_STEPS_MAX {
                return false;
            }
            let files: BTreeSet<Fid> =
                self.waiting.get(&owner).into_iter().flatten().copied().collect();
            for file in files.iter().filter_map(|fid| self.files.get(fid)) {
                looks += file.waiting.len();
                let wants = file.waiting.iter().filter(|w| !w.flock && !w.is_offered());
                for waiter in wants.filter(|w| w.want.owner == owner) {
                    looks += file.posix.len() + file.waiting.len();
                    if looks > DEADLOCK_LOOKS_MAX {
                        return false;
                    }
                    next.extend(file.owners_in_way(&waiter.want));
                }
            }
        }
        false
    }

    /// These changes were made, one after the other.
    fn changed(&mut self, fid: Fid, changes: &[Change]) {
        self.offer(fid, |waiter| {
            // The last word on a byte.
            let last = changes.iter().rev().find(|change| change.concerns(waiter));
            last.is_some_and(|change| change.frees(waiter))
        });
    }

    /// Something may have become free: those for whom that `may` be so are looked at in their order.
    fn offer(&mut self, fid: Fid, may: impl Fn(&Waiter) -> bool) {
        let Some(file) = self.files.get_mut(&fid) else { return };
        // Few at a time: that many wait must not cost each of them a look at all.
        let offered = file.waiting.iter().filter(|w| w.is_offered());
        let mut offered: Vec<(bool, Range)> = offered.map(|w| (w.flock, w.want)).collect();
        for at in 0..file.waiting.len() {
            let Some(waiter) = file.waiting.get(at).filter(|waiter| may(waiter)) else { continue };
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let (want, flock, wait) = (waiter.want, waiter.flock, waiter.wait);
            let is_in_way = |(of, held): &&(bool, Range)| *of == flock && want.conflicts(held);
            let in_way = offered.iter().find(is_in_way).map(|(_, held)| *held);
            let in_way = in_way.or_else(|| file.ranges(flock).in_way(&want).copied());
            let state = match in_way {
                Some(in_way) => Waits::behind(&want, &in_way),
                None => Waits::Offered(Clock::default()),
            };
            if let Some(waiter) = file.waiting.get_mut(at) {
                waiter.state = state;
            }
            if in_way.is_some() {
                continue;
            }
            offered.push((flock, want));
            if !flock {
                FileLocks::waits_less(&mut self.waiting, want.owner, fid);
            }
            self.turns.push(FileLockTurn { client: want.owner.client, fid, wait });
        }
        if offered.is_empty() {
            self.offered.remove(&fid);
        } else {
            self.offered.insert(fid);
        }
        if file.is_empty() {
            self.files.remove(&fid);
        }
    }

    /// What is in the way of a lock, if anything.
    pub fn test(&self, client: ClientId, fid: Fid, lock: &FileLock) -> Option<Range> {
        let want = Range::of(client, OpenId { id: 0 }, lock);
        self.files.get(&fid)?.in_way(&want, lock.flock).copied()
    }

    /// Nobody waits for this any more.
    pub fn leave(&mut self, client: ClientId, fid: Fid, wait: WaitId) {
        let gone = self.remove_wait(client, fid, wait);
        self.changed(fid, gone.as_slice());
    }

    /// An open is closed: what was locked through it is not any more.
    pub fn closed(&mut self, client: ClientId, fid: Fid, open: OpenId) {
        if !self.clients.get(&client).is_some_and(|client| client.files.contains(&fid)) {
            return;
        }
        self.drop_those(client, fid, |held| held.open == open);
        let left = self.files.get(&fid).is_some_and(|file| {
            let held = file.flock.iter().chain(file.posix.iter());
            held.chain(file.waiting.iter().map(|w| &w.want)).any(|r| r.owner.client == client)
        });
        if let (false, Some(of)) = (left, self.clients.get_mut(&client)) {
            of.files.remove(&fid);
            if of.files.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// Drops those locks and waits of a client on a file that are `gone`.
    fn drop_those(&mut self, client: ClientId, fid: Fid, gone: impl Fn(&Range) -> bool) {
        let gone = |held: &Range| held.owner.client == client && gone(held);
        self.drop_waits_on(fid, gone);
        let Some(file) = self.files.get_mut(&fid) else { return };
        let before = file.flock.len() + file.posix.len();
        file.flock.drop_those(gone);
        file.posix.drop_those(gone);
        let after = file.flock.len() + file.posix.len();
        if let Some(client) = self.clients.get_mut(&client) {
            client.count = (client.count + after).saturating_sub(before);
        }
        self.offer_behind(client, fid);
    }

    /// A client has less than it had on a file.
    fn offer_behind(&mut self, client: ClientId, fid: Fid) {
        let is_his = |owner: Owner| owner.client == client;
        self.offer(fid, |w| matches!(w.state, Waits::Behind(owner, _) if is_his(owner)));
    }

    fn drop_waits_on(&mut self, fid: Fid, gone: impl Fn(&Range) -> bool) {
        let Some(file) = self.files.get_mut(&fid) else { return };
        let waits: Vec<Waiter> = file.waiting.extract_if(.., |w| gone(&w.want)).collect();
        let turn = |w: &Waiter| (w.want.owner.client, w.wait);
        let turns: BTreeSet<_> = waits.iter().filter(|w| w.is_offered()).map(turn).collect();
        self.turns.retain(|turn| turn.fid != fid || !turns.contains(&(turn.client, turn.wait)));
        for waiter in &waits {
            self.removed(fid, waiter);
        }
    }

    /// A client is lost: it waits for nothing any more. What it has stays.
    pub fn drop_waits(&mut self, client: ClientId) {
        for fid in self.files_of(client) {
            self.drop_waits_on(fid, |want| want.owner.client == client);
            self.offer_behind(client, fid);
        }
    }

    /// A client has gone, or can do nothing any more: what it had is free.
    pub fn drop_client(&mut self, client: ClientId) {
        for fid in self.files_of(client) {
            self.drop_those(client, fid, |_| true);
        }
        self.clients.remove(&client);
    }

    fn files_of(&self, client: ClientId) -> Vec<Fid> {
        let files = self.clients.get(&client).map(|client| &client.files);
        files.into_iter().flatten().copied().collect()
    }

    /// Who is to be told now that it is his turn.
    pub fn take_turns(&mut self, now_ns: u64) -> Vec<FileLockTurn> {
        let turns = core::mem::take(&mut self.turns);
        for turn in &turns {
            let Some(file) = self.files.get_mut(&turn.fid) else { continue };
            let Some(at) = file.waiter(turn.client, turn.wait) else { continue };
            let state = file.waiting.get_mut(at).map(|waiter| &mut waiter.state);
            if let Some(Waits::Offered(clock)) = state
                && clock.called_ns == 0
            {
                *clock = Clock { called_ns: now_ns, repeated_ns: now_ns };
            }
        }
        turns
    }

    /// Whether it is anybody's turn who has not taken it yet.
    pub fn has_offered(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Tells those once more who did not take their turn for [`CALLBACK_REPEAT_NS`], and names a
    /// client that did not for [`CALLBACK_LIMIT_NS`], or the limit set, if there is one.
    pub fn overdue(&mut self, now_ns: u64) -> Option<ClientId> {
        let limit_ns = self.limit_ns.unwrap_or(CALLBACK_LIMIT_NS);
        let mut late = None;
        for fid in &self.offered {
            let Some(file) = self.files.get_mut(fid) else { continue };
            for waiter in &mut file.waiting {
                let Waits::Offered(clock) = &mut waiter.state else { continue };
                if clock.called_ns == 0 {
                    continue;
                }
                let client = waiter.want.owner.client;
                if now_ns.saturating_sub(clock.called_ns) >= limit_ns {
                    late = late.or(Some(client));
                } else if now_ns.saturating_sub(clock.repeated_ns) >= CALLBACK_REPEAT_NS {
                    clock.repeated_ns = now_ns;
                    self.turns.push(FileLockTurn { client, fid: *fid, wait: waiter.wait });
                }
            }
        }
        late
    }

    /// The files on which somebody has a lock, or waits for one, for whoever looks in from outside.
    pub fn files(&self) -> BTreeSet<Fid> {
        let all = self.clients.values().flat_map(|client| &client.files);
        all.filter(|fid| self.files.contains_key(fid)).copied().collect()
    }

    /// The locks on a file, those of flock(2) first, for whoever looks in from outside.
    pub fn holders(&self, fid: Fid) -> impl Iterator<Item = (bool, Range)> + '_ {
        let file = self.files.get(&fid);
        let of = move |flock: bool| {
            let ranges = file.into_iter().flat_map(move |file| file.ranges(flock).iter());
            ranges.map(move |held| (flock, *held))
        };
        of(true).chain(of(false))
    }

    /// The waits for locks on a file, in their order, and whether each was offered.
    pub fn waits(&self, fid: Fid) -> impl Iterator<Item = (bool, Range, bool)> + '_ {
        let waiting = self.files.get(&fid).into_iter().flat_map(|file| &file.waiting);
        waiting.map(|w| (w.flock, w.want, w.is_offered()))
    }

    /// How many locked ranges and waits there are.
    pub fn len(&self) -> usize {
        self.clients.values().map(|client| client.count).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a client has a lock, or waits for one.
    pub fn knows(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_wire::FILE_LOCK_END_MAX;
    use sateen_wire::FileLockMode::{Unlock, Write};

    #[test]
    fn who_gives_back_the_middle_again_and_again_meets_a_limit() {
        let mut table = FileLocks::default();
        let mut set = |mode, (start, end)| {
            let lock = FileLock { owner: 1, flock: false, mode, start, end, pid: 7 };
            table.set((ClientId(1), OpenId { id: 1 }), Fid::ROOT, &lock, None)
        };
        let all = (0, FILE_LOCK_END_MAX);
        assert_eq!(set(Write, all), Ok(FileLockAnswer::Granted));
        let mut given_back = (1..).step_by(2).map(|byte| set(Unlock, (byte, byte)));
        let refused = given_back.position(|answer| answer != Ok(FileLockAnswer::Granted));
        assert_eq!(refused, Some(2 * RANGES_MAX - 1));
        drop(given_back);
        // What splits nothing goes, and with it there is room.
        assert_eq!(set(Write, (1, 1)), Err(Errno::ENOLCK));
        assert_eq!(set(Unlock, (0, 0)), Ok(FileLockAnswer::Granted));
        assert_eq!(set(Unlock, all), Ok(FileLockAnswer::Granted));
        assert_eq!(set(Write, (1, 1)), Ok(FileLockAnswer::Granted));
    }

    /// Ten thousand waits, behind as many owners as there may be, of whom one after the other goes.
    #[test]
    fn what_goes_concerns_those_who_wait_for_it() {
        const WAITS: u64 = 10_000;
        const OWNERS: u64 = RANGES_MAX as u64 - 4;
        let mut table = FileLocks::default();
        let set = |table: &mut FileLocks, (client, owner), mode, byte, wait: u64| {
            let lock = FileLock { owner, flock: false, mode, start: byte, end: byte, pid: 7 };
            let wait = (wait > 0).then_some(WaitId { id: wait });
            table.set((ClientId(client), OpenId { id: 1 }), Fid::ROOT, &lock, wait)
        };
        for byte in 0..OWNERS {
            assert_eq!(set(&mut table, (1, byte), Write, byte, 0), Ok(FileLockAnswer::Granted));
        }
        for wait in 1..=WAITS {
            let answer = set(&mut table, (2, wait), Write, wait % OWNERS, wait);
            assert_eq!(answer, Ok(FileLockAnswer::Queued));
        }
        assert_eq!(table.looked_at, 0, "nothing goes");
        let behind = |byte| (1..=WAITS).filter(move |wait| wait % OWNERS == byte);
        assert_eq!(set(&mut table, (1, 7), Unlock, 7, 0), Ok(FileLockAnswer::Granted));
        assert_eq!(table.looked_at, behind(7).count());
        let turns: Vec<u64> = table.take_turns(1).iter().map(|turn| turn.wait.id).collect();
        assert_eq!(turns, [7]);
        // Nothing becomes free by a turn that is taken.
        assert_eq!(set(&mut table, (2, 7), Write, 7, 7), Ok(FileLockAnswer::Granted));
        assert_eq!(table.looked_at, behind(7).count());
        // A lock that others can share does: for all who want no more.
        assert_eq!(set(&mut table, (2, 7), FileLockMode::Read, 7, 0), Ok(FileLockAnswer::Granted));
        assert_eq!(table.looked_at, behind(7).count(), "they want it alone");
        assert_eq!(set(&mut table, (2, 7), Unlock, 7, 0), Ok(FileLockAnswer::Granted));
        assert_eq!(table.looked_at, behind(7).count() * 2 - 1);
        table.drop_client(ClientId(2));
        assert_eq!((table.len(), table.waits(Fid::ROOT).count()), (OWNERS as usize - 1, 0));
        assert!(table.take_turns(1).is_empty());
    }

    #[test]
    fn the_search_for_rings_ends() {
        for (waits, found) in [(3, true), (2000, false)] {
            let mut table = FileLocks::default();
            let ask = |table: &mut FileLocks, owner, oid, mode, wait| {
                let lock = FileLock { owner, flock: false, mode, start: 0, end: 0, pid: 7 };
                let wait = (wait > 0).then_some(WaitId { id: wait });
                let fid = Fid { oid, ..Fid::ROOT };
                table.set((ClientId(1), OpenId { id: 1 }), fid, &lock, wait)
            };
            for reader in 3..40 {
                ask(&mut table, reader, 1, FileLockMode::Read, 0).unwrap();
            }
            assert_eq!(ask(&mut table, 2, 2, Write, 0), Ok(FileLockAnswer::Granted));
            // No honest owner waits for the same so often at a time.
            for wait in 1..=waits {
                assert_eq!(ask(&mut table, 2, 1, Write, wait), Ok(FileLockAnswer::Queued));
            }
            let asked = ask(&mut table, 3, 2, Write, 1 << 20);
            let ring = asked == Err(Errno::EDEADLK);
            assert_eq!(ring, found, "{waits} waits: {asked:?}");
        }
    }
}
