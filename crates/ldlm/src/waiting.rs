//! Tickets: operations that wait for locks to go, and what they have reserved meanwhile.
//! Used by the table only.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::{ClientId, Comb, Fid};
use sateen_wire::{Ibits, LockMode};

/// An operation's place among those that wait, by order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that an operation needs free of other clients' conflicting locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The inode.
    pub fid: Fid,
    /// As if it took a lock of this mode.
    pub mode: LockMode,
    /// On these parts.
    pub bits: Ibits,
    /// With these records, if it is for some of them alone.
    comb: Option<Comb>,
}

impl Need {
    /// As a lock of this mode on these parts would need it.
    pub const fn of(fid: Fid, mode: LockMode, bits: Ibits) -> Need {
        Need { fid, mode, bits, comb: None }
    }

    /// As a lock on the records of a comb would need it.
    pub const fn part(fid: Fid, comb: Comb) -> Need {
        Need { fid, mode: LockMode::Part, bits: Ibits::DATA, comb: Some(comb) }
    }

    /// The same in another mode, on the whole file.
    #[must_use]
    pub const fn in_mode(self, mode: LockMode) -> Need {
        Need::of(self.fid, mode, self.bits)
    }

    /// Its records, of a part.
    pub const fn comb(&self) -> Option<Comb> {
        self.comb
    }

    /// Nobody else may have cached these parts.
    pub const fn all_gone(fid: Fid, bits: Ibits) -> Need {
        Need::of(fid, LockMode::Ex, bits)
    }

    /// Whether it cannot stand beside a lock of this mode on these parts, with this comb if it has one.
    pub(crate) const fn conflicts(&self, mode: LockMode, bits: Ibits, comb: Option<Comb>) -> bool {
        self.bits.intersects(bits) && (!self.mode.compatible(mode) || self.meets(mode, comb))
    }

    /// Whether both are for parts, which meet.
    const fn meets(&self, mode: LockMode, comb: Option<Comb>) -> bool {
        if !self.is_part() || !matches!(mode, LockMode::Part) {
            return false;
        }
        match (self.comb, comb) {
            (Some(own), Some(other)) => own.meets(&other),
            _ => true,
        }
    }

    /// Whether a client's own lock of this mode is in its way like somebody else's, if it is in
    /// conflict: one of the two is shared, or a part, and does not come along with the other.
    pub(crate) const fn excludes_own(&self, mode: LockMode) -> bool {
        self.mode.is_shared() != mode.is_shared()
            || self.is_part() != matches!(mode, LockMode::Part)
    }

    pub(crate) const fn is_part(&self) -> bool {
        matches!(self.mode, LockMode::Part)
    }
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client: ClientId,
    pub(crate) needs: Vec<Need>,
    /// It wants a lock, not only the others' gone.
    pub(crate) lock: bool,
    /// It was woken, and has neither waited again nor finished.
    pub(crate) woken: bool,
}

/// All tickets.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    all: BTreeMap<Ticket, Waiter>,
    by_fid: BTreeSet<(Fid, Ticket)>,
    last: u64,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.all.get(&ticket)
    }

    /// Notes that `ticket` (or a new one) waits for `needs`, besides what it waited for
    /// before.
    pub(crate) fn wait(
        &mut self,
        ticket: Option<Ticket>,
        client: ClientId,
        needs: &[Need],
        lock: bool,
    ) -> Ticket {
        let ticket = ticket.filter(|ticket| self.all.contains_key(ticket)).unwrap_or_else(|| {
            self.last += 1;
            Ticket(self.last)
        });
        let waiter = self.all.entry(ticket).or_insert_with(|| Waiter {
            client,
            needs: Vec::new(),
            lock,
            woken: false,
        });
        waiter.woken = false;
        for need in needs {
            if !waiter.needs.contains(need) {
                waiter.needs.push(*need);
                self.by_fid.insert((need.fid, ticket));
            }
        }
        ticket
    }

    /// Ends a ticket; returns what it had reserved.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Vec<Need> {
        let Some(waiter) = self.all.remove(&ticket) else { return Vec::new() };
        for need in &waiter.needs {
            self.by_fid.remove(&(need.fid, ticket));
        }
        waiter.needs
    }

    /// Marks a ticket as woken; false if it was already.
    pub(crate) fn wake(&mut self, ticket: Ticket) -> bool {
        match self.all.get_mut(&ticket) {
            Some(waiter) => !core::mem::replace(&mut waiter.woken, true),
            None => false,
        }
    }

    /// Tickets with a reservation on an inode, in order.
    pub(crate) fn on(&self, fid: Fid) -> impl Iterator<Item = Ticket> + '_ {
        self.by_fid.range((fid, Ticket(0))..=(fid, Ticket(u64::MAX))).map(|(_, ticket)| *ticket)
    }

    /// Tickets that a lock may have held up, or a reservation, in order. One that wants a part is not
    /// looked at while something else on the data is reserved before it, which no part stands beside:
    /// else those who ask for parts anew, behind one who has all of them called back, would all be held
    /// against all of them for each that goes.
    pub(crate) fn held_up_by(&self, gone: &Need) -> impl Iterator<Item = Ticket> + '_ {
        let (gone, mut is_barred) = (*gone, false);
        self.on(gone.fid).filter(move |ticket| {
            let Some(waiter) = self.all.get(ticket) else { return false };
            let mut needs = waiter.needs.iter().filter(|need| need.fid == gone.fid);
            let waits_for = |need: &Need| need.conflicts(gone.mode, gone.bits, gone.comb);
            let may_be_free = !(is_barred && waiter.lock && waiter.needs.iter().any(Need::is_part));
            let whole = |need: &Need| need.bits.intersects(Ibits::DATA) && !need.is_part();
            is_barred |= needs.clone().any(whole);
            may_be_free && needs.any(waits_for)
        })
    }

    /// Whether another client has reserved something in conflict, under a ticket before
    /// `before`.
    pub(crate) fn reserved(&self, client: ClientId, need: &Need, before: Option<Ticket>) -> bool {
        if self.by_fid.is_empty() {
            return false;
        }
        self.on(need.fid)
            .take_while(|ticket| before.is_none_or(|before| *ticket < before))
            .filter_map(|ticket| self.all.get(&ticket))
            .flat_map(|waiter| waiter.needs.iter().map(move |other| (waiter.client, other)))
            .any(|(whose, other)| {
                other.fid == need.fid
                    && other.conflicts(need.mode, need.bits, need.comb)
                    && (whose != client || need.excludes_own(other.mode))
            })
    }

    /// The tickets of one client.
    pub(crate) fn of(&self, client: ClientId) -> Vec<Ticket> {
        let own = self.all.iter().filter(|(_, waiter)| waiter.client == client);
        own.map(|(ticket, _)| *ticket).collect()
    }
}
