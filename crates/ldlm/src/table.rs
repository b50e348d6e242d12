//! The table itself: granting, conflicts, callbacks, cancels, evictions.

mod glimpse;
mod groups;
mod parts;
mod progress;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sateen_types::{ClientId, Comb, Fid, FidMap};
use sateen_wire::{Grant, Ibits, LockId, LockMode};

use crate::bounds::{Bounds, TOLD_MAX};
use crate::slab::{List, Lock, NIL, Slab, State};
use crate::waiting::{Need, Ticket, Waiting};

use glimpse::Glimpses;
pub use glimpse::{Look, Question};
use groups::Groups;
pub use groups::Joined;
pub use parts::PARTS_PER_FILE_MAX;
use parts::Parts;
pub use progress::CALLBACK_MAX_NS;
use progress::Clock;

/// Most locks asked back at a time for nobody's sake, and most that are on their way so.
const ASK_AT_ONCE: usize = 64;
const ASKED_MAX: usize = 512;
/// Most locks of a client looked at for that: those that it was granted first may all be on their
/// way.
const LOOK_MAX: usize = 2 * (ASKED_MAX + ASK_AT_ONCE);
/// A callback that is not answered within this time evicts the client, unless it says that it goes on
/// ([`LockTable::goes_on`]): 20 s.
pub const CALLBACK_LIMIT_NS: u64 = 20_000_000_000;
/// A callback is sent again after this time: 1 s.
pub const CALLBACK_REPEAT_NS: u64 = 1_000_000_000;

/// The holder of the target's own locks.
const TARGET: ClientId = ClientId(u64::MAX);

/// A lock that is or was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The inode.
    pub fid: Fid,
    /// By whom.
    pub client: ClientId,
    /// How.
    pub mode: LockMode,
    /// Which parts.
    pub bits: Ibits,
}

/// A callback to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalledBack {
    /// To whom.
    pub client: ClientId,
    /// The inode.
    pub fid: Fid,
    /// The lock.
    pub id: LockId,
}

/// The locks of one client: the one that it was granted last, the one that it was granted first, and
/// how many.
#[derive(Debug)]
struct Client {
    head: u32,
    tail: u32,
    count: u32,
}

/// Whether a client that needs this has to wait for that lock to be gone. Its own locks are not in
/// its way, but for shared ones and parts: of what was written under them the target does not know
/// before, and under a part something may be kept, which must not come after what is written through.
fn is_in_way((lock, comb): (&Lock, Option<Comb>), client: ClientId, need: &Need) -> bool {
    // Who may write alone need not share, as long as nobody else wants that. A part has more than a
    // shared lock in some places alone.
    let has_more = || {
        lock.mode.covers(need.mode) && lock.state == State::Granted && lock.mode != LockMode::Part
    };
    need.conflicts(lock.mode, lock.bits, comb)
        && (lock.client != client || need.excludes_own(lock.mode) && !has_more())
}

/// The locks of one target.
#[derive(Debug, Default)]
pub struct LockTable {
    slab: Slab,
    inodes: FidMap<u32>,
    clients: BTreeMap<ClientId, Client>,
    waiting: Waiting,
    called: BTreeMap<LockId, Clock>,
    callbacks: Vec<CalledBack>,
    woken: VecDeque<Ticket>,
    /// Instead of [`CALLBACK_LIMIT_NS`].
    limit_ns: Option<u64>,
    bounds: Bounds,
    /// How many were asked back for nobody's sake.
    reclaimed: u64,
    glimpses: Glimpses,
    groups: Groups,
    parts: Parts,
    /// How often somebody who waits was looked at because something had gone.
    looks: u64,
}

impl LockTable {
    /// An empty table.
    pub fn new() -> LockTable {
        LockTable::default()
    }

    /// An empty table, whose lock ids are not those of other boots.
    pub fn of_boot(boot_epoch: u64) -> LockTable {
        let (slab, glimpses) = (Slab::of_boot(boot_epoch), Glimpses::of_boot(boot_epoch));
        LockTable { slab, glimpses, ..LockTable::default() }
    }

    /// Evicts who does not answer a callback within another time.
    pub fn set_callback_limit(&mut self, limit_ns: u64) {
        self.limit_ns = Some(limit_ns);
    }

    /// Keeps so many locks.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// How many are kept.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// How many were asked back because there were too many.
    pub fn reclaimed(&self) -> u64 {
        self.reclaimed
    }

    /// Whether some are to be asked back.
    pub fn is_crowded(&self) -> bool {
        self.slab.len() > self.bounds.reclaim
    }

    /// If there are too many locks, asks for some of those back that whoever has most was granted
    /// first. Nobody waits for them; who does not give them back is evicted like others.
    pub fn ask_back_surplus(&mut self, now_ns: u64) {
        let surplus = self.slab.len().saturating_sub(self.bounds.reclaim);
        let asked = self.called.len();
        let more = surplus.saturating_sub(asked).min(ASK_AT_ONCE);
        if more == 0 || asked >= ASKED_MAX {
            return;
        }
        let clients = self.clients.iter().filter(|(client, _)| **client != TARGET);
        let Some((_, greatest)) = clients.max_by_key(|(_, client)| client.count) else { return };
        let (mut at, mut found) = (greatest.tail, Vec::new());
        for _ in 0..LOOK_MAX {
            let Some(lock) = self.slab.get(at).filter(|_| found.len() < more) else { break };
            if lock.state == State::Granted && lock.mode != LockMode::Group {
                found.push(at);
            }
            at = self.slab.before(at, List::Client);
        }
        self.reclaimed += found.len() as u64;
        for slot in found {
            self.ask_back(now_ns, slot);
        }
    }

    /// Locks that exist.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no lock exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn locks_on(&self, fid: Fid) -> impl Iterator<Item = (u32, &Lock)> {
        let head = self.inodes.get(&fid).copied().unwrap_or(NIL);
        self.slab.list(head, List::Inode)
    }

    /// Whether a client that needs this has to wait for the lock in a slot to be gone.
    fn is_in_way(&self, (slot, lock): (u32, &Lock), client: ClientId, need: &Need) -> bool {
        is_in_way((lock, self.parts.comb((slot, lock))), client, need)
    }

    /// Whether a need cannot stand beside the lock in a slot, whosever that is.
    fn conflicts(&self, (slot, lock): (u32, &Lock), need: &Need) -> bool {
        need.conflicts(lock.mode, lock.bits, self.parts.comb((slot, lock)))
    }

    /// The locks on an inode, for whoever looks in from outside.
    pub fn holders(&self, fid: Fid) -> impl Iterator<Item = Held> + '_ {
        self.locks_on(fid).map(move |(_, lock)| Held {
            fid,
            client: lock.client,
            mode: lock.mode,
            bits: lock.bits,
        })
    }

    /// All locks, the target's own too, and what each is named, likewise.
    pub fn all(&self) -> impl Iterator<Item = (LockId, Held)> + '_ {
        self.slab.all().map(|(slot, lock)| {
            let Lock { fid, client, mode, bits, .. } = *lock;
            (self.slab.id(slot), Held { fid, client, mode, bits })
        })
    }

    /// Whether another client holds something in conflict, or this one a shared lock, or whatever
    /// a shared lock cannot stand beside.
    pub fn in_conflict(&self, client: ClientId, need: &Need) -> bool {
        self.locks_on(need.fid).any(|lock| self.is_in_way(lock, client, need))
    }

    /// Whether another client may write a file's data.
    pub fn has_other_writer(&self, client: ClientId, fid: Fid) -> bool {
        self.locks_on(fid).any(|(_, lock)| {
            lock.client != client
                && lock.bits.intersects(Ibits::DATA)
                && lock.mode.covers(LockMode::Cw)
        })
    }

    /// Whether the target itself holds something in conflict.
    pub fn is_held(&self, need: &Need) -> bool {
        self.locks_on(need.fid)
            .any(|(slot, lock)| lock.client == TARGET && self.conflicts((slot, lock), need))
    }

    /// Whether a client has this lock.
    pub fn has(&self, client: ClientId, fid: Fid, id: LockId) -> bool {
        let lock = self.slab.find(id).and_then(|slot| self.slab.get(slot));
        lock.is_some_and(|lock| lock.client == client && lock.fid == fid)
    }

    /// Whether `client` holds a lock that allows all this.
    pub fn covers(&self, client: ClientId, need: &Need) -> bool {
        self.locks_on(need.fid).any(|(_, lock)| {
            lock.client == client && lock.mode.covers(need.mode) && lock.bits.contains(need.bits)
        })
    }

    /// Grants a lock if nobody is in the way, nobody waits for the opposite, and there is
    /// room. What the client holds already is extended rather than doubled.
    pub fn try_grant(
        &mut self,
        client: ClientId,
        fid: Fid,
        mode: LockMode,
        bits: Ibits,
    ) -> Option<Grant> {
        let need = Need::of(fid, mode, bits);
        if bits.is_empty()
            || self.slab.len() >= self.bounds.limit
            || self.in_conflict(client, &need)
            || self.waiting.reserved(client, &need, None)
        {
            return None;
        }
        self.grant(client, &need)
    }

    fn grant(&mut self, client: ClientId, need: &Need) -> Option<Grant> {
        let own = self
            .locks_on(need.fid)
            .filter(|(_, lock)| lock.client == client && lock.state == State::Granted)
            .find(|(slot, lock)| {
                // A part serves nobody but who asks for the same one.
                if lock.mode == LockMode::Part {
                    return need.is_part() && self.parts.comb((*slot, *lock)) == need.comb();
                }
                let same = lock.mode == need.mode
                    && lock.bits.intersects(Ibits::DATA) == need.bits.intersects(Ibits::DATA);
                same || lock.mode.covers(need.mode) && lock.bits.contains(need.bits)
            })
            .map(|(slot, _)| slot);
        let slot = match own {
            Some(slot) => slot,
            None => self.insert(client, need, State::Granted)?,
        };
        let id = self.slab.id(slot);
        let lock = self.slab.get_mut(slot)?;
        // Data and the rest stay two locks, so that losing one does not cost the other.
        if lock.mode == need.mode {
            lock.bits = lock.bits.union(need.bits);
        }
        Some(Grant { id, fid: need.fid, mode: lock.mode, bits: lock.bits })
    }

    /// A client has this lock of the run before, and keeps it under the name that it had there.
    /// False if that cannot be: somebody else has the like of it, or another lock has the name, or
    /// there are too many. What is told once more is right.
    pub fn reclaim(&mut self, client: ClientId, need: &Need, id: LockId) -> bool {
        let known = self.slab.find(id).and_then(|slot| Some((slot, self.slab.get(slot)?)));
        if let Some((slot, lock)) = known {
            return (lock.client, lock.fid, lock.mode, lock.bits)
                == (client, need.fid, need.mode, need.bits)
                && self.parts.comb((slot, lock)) == need.comb();
        }
        // The target's own locks, of what the run before has not finished, are for its sake who had
        // this one then: they kept others away.
        let is_in_way = self.locks_on(need.fid).any(|(slot, lock)| {
            ![client, TARGET].contains(&lock.client) && self.conflicts((slot, lock), need)
        });
        if client == TARGET || need.bits.is_empty() || self.slab.len() >= TOLD_MAX || is_in_way {
            return false;
        }
        let slot = self.insert(client, need, State::Granted);
        slot.is_some_and(|slot| self.slab.rename(slot, id))
    }

    fn insert(&mut self, client: ClientId, need: &Need, state: State) -> Option<u32> {
        if need.is_part() && need.comb().is_none() {
            return None;
        }
        let none = Client { head: NIL, tail: NIL, count: 0 };
        let owner = self.clients.entry(client).or_insert(none);
        let head = self.inodes.entry(need.fid).or_insert(NIL);
        let what = (need.mode, need.bits, state);
        let slot = self.slab.insert(need.fid, client, what, [head, &mut owner.head])?;
        owner.count += 1;
        if owner.tail == NIL {
            owner.tail = slot;
        }
        self.parts.insert(slot, need);
        Some(slot)
    }

    /// Whether an operation of `client` may go on: no other client holds anything in
    /// conflict with `needs`. If not, the holders are called back, the needs are reserved
    /// under `ticket` (made here at first), and the ticket will be woken.
    pub fn require(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        needs: &[Need],
    ) -> bool {
        if !needs.iter().any(|need| self.must_go(client, need)) {
            return true;
        }
        for need in needs {
            self.call_back(now_ns, client, need);
        }
        *ticket = Some(self.waiting.wait(*ticket, client, needs, false));
        false
    }

    /// Grants a lock that a client waits for, in order of tickets; `None` if it has to wait
    /// (on), under `ticket`, or without one if there are too many locks. Granting does not end
    /// the ticket.
    pub fn enqueue(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        need: &Need,
    ) -> Option<Grant> {
        if self.slab.len() >= self.bounds.waited() && ticket.is_none() {
            return None;
        }
        let ahead = self.waiting.reserved(client, need, *ticket);
        if !ahead && !self.in_conflict(client, need) {
            return self.grant(client, need);
        }
        if !ahead {
            self.call_back(now_ns, client, need);
        }
        *ticket = Some(self.waiting.wait(*ticket, client, core::slice::from_ref(need), true));
        None
    }

    /// Ends a ticket: its operation is done, or given up.
    pub fn finish(&mut self, ticket: Ticket) {
        self.glimpses.leave(ticket);
        for need in self.waiting.remove(ticket) {
            self.wake_on(&need);
        }
    }

    fn call_back(&mut self, now_ns: u64, client: ClientId, need: &Need) {
        self.call_back_those(now_ns, need.fid, |lock, comb| is_in_way((lock, comb), client, need));
    }

    /// Asks for all shared locks on a file's data, for nobody's sake, but for parts: these hold nobody
    /// up who is content with one.
    pub fn call_back_shared(&mut self, now_ns: u64, fid: Fid) {
        self.call_back_those(now_ns, fid, |lock, _| {
            lock.mode.is_shared() && lock.mode != LockMode::Part
        });
    }

    fn call_back_those(
        &mut self,
        now_ns: u64,
        fid: Fid,
        which: impl Fn(&Lock, Option<Comb>) -> bool,
    ) {
        let mut at = self.inodes.get(&fid).copied().unwrap_or(NIL);
        while let Some(lock) = self.slab.get(at).copied() {
            let slot = at;
            at = self.slab.list(slot, List::Inode).nth(1).map_or(NIL, |(next, _)| next);
            // People decide when a group has done.
            let comb = self.parts.comb((slot, &lock));
            if !which(&lock, comb) || lock.state != State::Granted || lock.mode == LockMode::Group {
                continue;
            }
            self.ask_back(now_ns, slot);
        }
    }

    fn ask_back(&mut self, now_ns: u64, slot: u32) {
        let id = self.slab.id(slot);
        let Some(lock) = self.slab.get_mut(slot) else { return };
        lock.state = State::CalledBack;
        let (client, fid) = (lock.client, lock.fid);
        self.called.insert(id, Clock::new(now_ns));
        self.callbacks.push(CalledBack { client, fid, id });
    }

    /// A client gives a lock back, or says that it never had it. `None` for a lock that does
    /// not exist or is not its own.
    pub fn cancel(&mut self, client: ClientId, fid: Fid, id: LockId) -> Option<Held> {
        let slot = self.slab.find(id)?;
        let lock = self.slab.get(slot)?;
        if lock.client != client || lock.fid != fid {
            return None;
        }
        let gone = self.need_of(slot)?;
        let held = self.remove(slot)?;
        self.wake_on(&gone);
        Some(held)
    }

    /// What the lock in a slot keeps others from.
    fn need_of(&self, slot: u32) -> Option<Need> {
        let lock = self.slab.get(slot)?;
        Some(match self.parts.comb((slot, lock)) {
            Some(comb) => Need::part(lock.fid, comb),
            None => Need::of(lock.fid, lock.mode, lock.bits),
        })
    }

    fn remove(&mut self, slot: u32) -> Option<Held> {
        let id = self.slab.id(slot);
        let lock = *self.slab.get(slot)?;
        let owner = self.clients.get_mut(&lock.client)?;
        let head = self.inodes.get_mut(&lock.fid)?;
        if owner.tail == slot {
            owner.tail = self.slab.before(slot, List::Client);
        }
        self.slab.remove(slot, [head, &mut owner.head])?;
        if *head == NIL {
            self.inodes.remove(&lock.fid);
        }
        self.parts.remove(slot, lock.fid);
        owner.count -= 1;
        if owner.count == 0 {
            self.clients.remove(&lock.client);
        }
        if lock.mode == LockMode::Group {
            self.group_lock_gone(lock.fid);
        }
        if lock.state == State::CalledBack {
            self.called.remove(&id);
        }
        self.lock_goes(lock.fid, id, lock.state == State::Silent);
        Some(Held { fid: lock.fid, client: lock.client, mode: lock.mode, bits: lock.bits })
    }

    /// An inode is gone for good: so are all locks on it.
    pub fn forget(&mut self, fid: Fid) {
        while let Some(slot) = self.inodes.get(&fid).copied() {
            if self.remove(slot).is_none() {
                break;
            }
        }
        self.wake_on(&Need::all_gone(fid, Ibits::ALL));
    }

    /// The target itself takes a lock, whoever holds others: nobody else is granted anything
    /// in conflict until [`LockTable::release`].
    pub fn hold(&mut self, need: &Need) -> Option<LockId> {
        let slot = self.insert(TARGET, need, State::Silent)?;
        Some(self.slab.id(slot))
    }

    /// Whether anybody can tell when a [`LockTable::hold`] ends. If not, whoever waits for it is
    /// woken, to find that out by [`LockTable::is_stuck`], and who holds something in conflict
    /// since before is called back.
    pub fn set_stuck(&mut self, now_ns: u64, fid: Fid, id: LockId, stuck: bool) {
        let slot = self.slab.find(id);
        let Some(lock) = slot.and_then(|slot| self.slab.get_mut(slot)) else { return };
        if lock.client != TARGET || lock.fid != fid {
            return;
        }
        lock.state = if stuck { State::Stuck } else { State::Silent };
        if !stuck {
            return;
        }
        let Some(need) = slot.and_then(|slot| self.need_of(slot)) else { return };
        self.call_back(now_ns, TARGET, &need);
        let waiting: Vec<Ticket> = self.waiting.on(fid).collect();
        for ticket in waiting {
            if self.waiting.wake(ticket) {
                self.woken.push_back(ticket);
            }
        }
    }

    /// Whether something is in the way of which nobody knows when it ends.
    pub fn is_stuck(&self, need: &Need) -> bool {
        self.locks_on(need.fid)
            .any(|(slot, lock)| lock.state == State::Stuck && self.conflicts((slot, lock), need))
    }

    /// Ends a [`LockTable::hold`].
    pub fn release(&mut self, fid: Fid, id: LockId) {
        self.cancel(TARGET, fid, id);
    }

    /// A client is lost. Its locks go at once, all but those under which it could still be
    /// writing data: they stay, silent, until [`LockTable::release_client`]. Its tickets end,
    /// and are returned. `on_lost` sees every data lock that it could write under.
    pub fn drop_client(&mut self, client: ClientId, mut on_lost: impl FnMut(Fid)) -> Vec<Ticket> {
        let mut at = self.clients.get(&client).map_or(NIL, |client| client.head);
        while let Some(lock) = self.slab.get(at).copied() {
            let slot = at;
            at = self.slab.list(slot, List::Client).nth(1).map_or(NIL, |(next, _)| next);
            let writes = lock.bits.intersects(Ibits::DATA)
                && matches!(
                    lock.mode,
                    LockMode::Pw | LockMode::Ex | LockMode::Cw | LockMode::Group | LockMode::Part
                );
            let Some(gone) = self.need_of(slot) else { break };
            if !writes {
                self.remove(slot);
                self.wake_on(&gone);
                continue;
            }
            on_lost(lock.fid);
            let id = self.slab.id(slot);
            self.called.remove(&id);
            if let Some(lock) = self.slab.get_mut(slot) {
                lock.state = State::Silent;
                lock.bits = Ibits::DATA;
            }
            self.lock_goes(lock.fid, id, true);
            self.wake_on(&gone);
        }
        self.callbacks.retain(|callback| callback.client != client);
        let tickets = self.waiting.of(client);
        for ticket in &tickets {
            self.finish(*ticket);
        }
        self.woken.retain(|ticket| !tickets.contains(ticket));
        tickets
    }

    /// What a lost client could still write is refused everywhere: its last locks go.
    pub fn release_client(&mut self, client: ClientId) {
        while let Some(slot) = self.clients.get(&client).map(|client| client.head) {
            let Some(gone) = self.need_of(slot) else { break };
            if self.remove(slot).is_none() {
                break;
            }
            self.wake_on(&gone);
        }
    }

    /// A lock, or what an earlier ticket had reserved, is `gone`: who has waited for it is woken, if
    /// nothing else is in his way.
    fn wake_on(&mut self, gone: &Need) {
        if self.waiting.is_empty() {
            return;
        }
        let (mut free, mut looks) = (Vec::new(), 0);
        for ticket in self.waiting.held_up_by(gone) {
            looks += 1;
            if self.is_free(ticket) {
                free.push(ticket);
            }
        }
        self.looks += looks;
        for ticket in free {
            if self.waiting.wake(ticket) {
                self.woken.push_back(ticket);
            }
        }
    }

    /// Whether a ticket can get further: nothing is in its way, or only what was granted to an
    /// earlier ticket and has not been called back yet. One that wants a lock has to be first.
    fn is_free(&self, ticket: Ticket) -> bool {
        let Some(waiter) = self.waiting.get(ticket) else { return false };
        if waiter.woken {
            return false;
        }
        waiter.needs.iter().all(|need| {
            if waiter.lock && self.waiting.reserved(waiter.client, need, Some(ticket)) {
                return false;
            }
            !self.locks_on(need.fid).any(|(slot, lock)| {
                lock.state != State::Granted && self.is_in_way((slot, lock), waiter.client, need)
            })
        })
    }

    /// How often somebody who waits was looked at because something had gone: what waking costs.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Callbacks to be sent now.
    pub fn take_callbacks(&mut self) -> impl Iterator<Item = CalledBack> + '_ {
        self.callbacks.drain(..)
    }

    /// Whether anybody was asked to give back a lock, or what he knows, and has not yet.
    pub fn has_called(&self) -> bool {
        !self.called.is_empty() || !self.glimpses.is_empty()
    }

    /// Whether a client was asked to give back a lock on these bits, and has not yet.
    pub fn gives_back(&self, client: ClientId, fid: Fid, bits: Ibits) -> bool {
        let mut called = self.called.keys().filter_map(|id| self.slab.get(self.slab.find(*id)?));
        called.any(|lock| lock.client == client && lock.fid == fid && lock.bits.intersects(bits))
    }

    /// Inodes on which somebody is asked to give back a lock on these bits.
    pub fn called_on(&self, bits: Ibits) -> BTreeSet<Fid> {
        let called = self.called.keys().filter_map(|id| self.slab.get(self.slab.find(*id)?));
        called.filter(|lock| lock.bits.intersects(bits)).map(|lock| lock.fid).collect()
    }

    /// Whoever is asked to give back a lock on these bits of one of these inodes has all his time
    /// from now on: he could not do it until now.
    pub fn give_time(&mut self, now_ns: u64, fids: &BTreeSet<Fid>, bits: Ibits) {
        for (id, clock) in &mut self.called {
            let lock = self.slab.find(*id).and_then(|slot| self.slab.get(slot));
            if lock.is_some_and(|lock| lock.bits.intersects(bits) && fids.contains(&lock.fid)) {
                clock.begin_anew(now_ns);
            }
        }
    }

    /// The next ticket whose operation can start again.
    pub fn take_woken(&mut self) -> Option<Ticket> {
        self.woken.pop_front()
    }

    /// Queues callbacks and questions again that were not answered for [`CALLBACK_REPEAT_NS`], and
    /// names a client that did not answer one for [`CALLBACK_LIMIT_NS`], or the limit set, if there is
    /// one.
    pub fn overdue(&mut self, now_ns: u64) -> Option<ClientId> {
        let limit_ns = self.limit_ns.unwrap_or(CALLBACK_LIMIT_NS);
        let mut late = self.glimpses.overdue(now_ns, limit_ns);
        for (id, clock) in &mut self.called {
            let Some(lock) = self.slab.find(*id).and_then(|slot| self.slab.get(slot)) else {
                continue;
            };
            if clock.is_over(now_ns, limit_ns) {
                late = late.or(Some(lock.client));
            } else if now_ns.saturating_sub(clock.repeated_ns) >= CALLBACK_REPEAT_NS {
                clock.repeated_ns = now_ns;
                let (client, fid) = (lock.client, lock.fid);
                self.callbacks.push(CalledBack { client, fid, id: *id });
            }
        }
        late
    }
}
