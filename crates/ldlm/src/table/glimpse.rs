//! Looks at a file whose data somebody writes: the holder of the lock is asked what he knows, and
//! keeps the lock.
//!
//! Life of a question: whoever looks makes it ([`LockTable::look`]) and waits under a ticket, which
//! reserves nothing; it is sent ([`LockTable::take_questions`]), and sent again like a callback;
//! the holder answers ([`LockTable::answered`]), or gives the lock back, and those who wait are
//! woken. An answer is good for those alone who came before the question was sent: who comes later
//! shares the next one with all who do, because the holder may have written since he answered.
//!
//! What was answered lives until the ticket ends. It belongs to one version of the inode: attributes
//! that are younger than it are not to be mixed with it, and he is asked once more.

use sateen_wire::SizeReport;

use super::{
    BTreeMap, CALLBACK_REPEAT_NS, ClientId, Clock, Fid, LockId, LockMode, LockTable, Need, State,
    Ticket,
};

/// A question to be sent to the holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// To whom.
    pub client: ClientId,
    /// The file.
    pub fid: Fid,
    /// The lock.
    pub id: LockId,
    /// The question's name: no other of this boot has it, and hardly one of another.
    pub number: u64,
}

/// What whoever looks at a file's size finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nobody knows better than the target.
    Free,
    /// The holder of the data, who keeps his lock, says this.
    Told(SizeReport),
    /// The holder who was asked has given his lock back, with all he knew; another has one now.
    Passed,
    /// He has to be waited for, under the ticket.
    Wait,
}

/// What has come of a question.
#[derive(Debug, Clone, Copy)]
enum Came {
    /// This, of that version of the inode.
    Told(SizeReport, u64),
    /// The lock was given back.
    Passed,
    /// The holder cannot say, or is lost: the lock has to go.
    Vain,
}

#[derive(Debug)]
struct Asked {
    question: Question,
    /// Who comes from now on is not answered by it.
    sent: bool,
    clock: Clock,
    waiters: Vec<Ticket>,
    next: Vec<Ticket>,
}

/// All questions.
#[derive(Debug, Default)]
pub(super) struct Glimpses {
    by_fid: BTreeMap<Fid, Asked>,
    waits: BTreeMap<Ticket, Fid>,
    /// Also of which inode: whoever comes by a name may find another one when he looks again.
    came: BTreeMap<Ticket, (Fid, Came)>,
    last: u64,
    unsent: Vec<Question>,
    asked: u64,
    told: u64,
}

impl Glimpses {
    pub(super) fn of_boot(boot_epoch: u64) -> Glimpses {
        // Like the names of locks.
        let last = boot_epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        Glimpses { last, ..Glimpses::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_fid.is_empty()
    }

    /// Nobody waits under this ticket any more.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.came.remove(&ticket);
        let Some(fid) = self.waits.remove(&ticket) else { return };
        let Some(asked) = self.by_fid.get_mut(&fid) else { return };
        asked.waiters.retain(|waiter| *waiter != ticket);
        asked.next.retain(|waiter| *waiter != ticket);
        if asked.waiters.is_empty() && asked.next.is_empty() {
            self.by_fid.remove(&fid);
            self.unsent.retain(|question| question.fid != fid);
        }
    }

    /// Ends a question. Those who came in time get what has come, and the others, too, if that is
    /// so of whenever they came; all of them are to look again.
    fn end(&mut self, fid: Fid, came: Came, for_all: bool) -> Vec<Ticket> {
        let Some(asked) = self.by_fid.remove(&fid) else { return Vec::new() };
        self.unsent.retain(|question| question.fid != fid);
        let late = if for_all { asked.next.len() } else { 0 };
        let told = asked.waiters.iter().chain(asked.next.iter().take(late));
        self.came.extend(told.map(|ticket| (*ticket, (fid, came))));
        let woken: Vec<Ticket> = asked.waiters.into_iter().chain(asked.next).collect();
        for ticket in &woken {
            self.waits.remove(ticket);
        }
        woken
    }

    /// Who has not answered for so long; questions that were not answered for
    /// [`CALLBACK_REPEAT_NS`] are sent again.
    pub(super) fn overdue(&mut self, now_ns: u64, limit_ns: u64) -> Option<ClientId> {
        let mut late = None;
        for asked in self.by_fid.values_mut().filter(|asked| asked.sent) {
            if asked.clock.is_over(now_ns, limit_ns) {
                late = late.or(Some(asked.question.client));
            } else if now_ns.saturating_sub(asked.clock.repeated_ns) >= CALLBACK_REPEAT_NS {
                asked.clock.repeated_ns = now_ns;
                self.unsent.push(asked.question);
            }
        }
        late
    }
}

impl LockTable {
    /// An operation of `client` wants to know the size and times of an inode of this version. If
    /// another holds `need`'s data for writing he is asked, and the ticket (made here at first) is
    /// woken when he has answered; whatever else is in the way is called back, as by
    /// [`LockTable::require`].
    pub fn look(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        (need, version): (&Need, u64),
    ) -> Look {
        let came = ticket.and_then(|ticket| self.glimpses.came.get(&ticket));
        let came = came.filter(|(fid, _)| *fid == need.fid).map(|(_, came)| *came);
        if ticket.is_some_and(|ticket| self.glimpses.waits.contains_key(&ticket)) {
            // It was woken for something else.
            *ticket = Some(self.waiting.wait(*ticket, client, &[], false));
            return Look::Wait;
        }
        let (mut holder, mut others) = (None, false);
        for (slot, lock) in self.locks_on(need.fid) {
            // A group keeps nothing: what is written is at the OSTs.
            if lock.mode == LockMode::Group || !self.is_in_way((slot, lock), client, need) {
                continue;
            }
            let can_say = lock.mode == LockMode::Pw
                && matches!(lock.state, State::Granted | State::CalledBack);
            match holder {
                None if can_say => holder = Some((lock.client, self.slab.id(slot))),
                _ => others = true,
            }
        }
        match (came, holder) {
            (Some(Came::Told(told, of)), _) if of == version => return Look::Told(told),
            (_, None) if !others => return Look::Free,
            (Some(Came::Passed), _) => return Look::Passed,
            (Some(Came::Vain), _) | (_, None) => {}
            (_, Some(_)) if others => {}
            (_, Some(holder)) => {
                self.ask(now_ns, client, ticket, (need.fid, holder));
                return Look::Wait;
            }
        }
        let free = self.require(now_ns, client, ticket, core::slice::from_ref(need));
        if free { Look::Free } else { Look::Wait }
    }

    fn ask(
        &mut self,
        now_ns: u64,
        client: ClientId,
        ticket: &mut Option<Ticket>,
        (fid, (holder, id)): (Fid, (ClientId, LockId)),
    ) {
        let waiter = self.waiting.wait(*ticket, client, &[], false);
        *ticket = Some(waiter);
        let glimpses = &mut self.glimpses;
        glimpses.came.remove(&waiter);
        glimpses.waits.insert(waiter, fid);
        if let Some(asked) = glimpses.by_fid.get_mut(&fid) {
            let list = if asked.sent { &mut asked.next } else { &mut asked.waiters };
            list.push(waiter);
            return;
        }
        glimpses.last = glimpses.last.wrapping_add(1);
        let question = Question { client: holder, fid, id, number: glimpses.last };
        let clock = Clock::new(now_ns);
        let (waiters, next) = (vec![waiter], Vec::new());
        glimpses.by_fid.insert(fid, Asked { question, sent: false, clock, waiters, next });
        glimpses.unsent.push(question);
        glimpses.asked += 1;
    }

    /// Questions to be sent now.
    pub fn take_questions(&mut self) -> Vec<Question> {
        let unsent = core::mem::take(&mut self.glimpses.unsent);
        for question in &unsent {
            if let Some(asked) = self.glimpses.by_fid.get_mut(&question.fid) {
                asked.sent = true;
            }
        }
        unsent
    }

    /// Whether this client was asked this, and has not answered yet.
    pub fn is_asked(&self, client: ClientId, fid: Fid, number: u64) -> bool {
        self.glimpses
            .by_fid
            .get(&fid)
            .is_some_and(|asked| asked.question.number == number && asked.question.client == client)
    }

    /// A holder has answered a question: with what he knows, of an inode that is of this version
    /// now, or with `None` if he cannot say.
    pub fn answered(
        &mut self,
        (client, fid, number): (ClientId, Fid, u64),
        told: Option<SizeReport>,
        version: u64,
    ) {
        if !self.is_asked(client, fid, number) {
            return;
        }
        let (came, for_all) = match told {
            Some(told) => (Came::Told(told, version), false),
            None => (Came::Vain, true),
        };
        self.glimpses.told += u64::from(!for_all);
        self.end_question(fid, came, for_all);
    }

    /// A lock goes, or is silent from now on if it is `lost`.
    pub(super) fn lock_goes(&mut self, fid: Fid, id: LockId, lost: bool) {
        if self.glimpses.by_fid.get(&fid).is_some_and(|asked| asked.question.id == id) {
            let came = if lost { Came::Vain } else { Came::Passed };
            self.end_question(fid, came, true);
        }
    }

    fn end_question(&mut self, fid: Fid, came: Came, for_all: bool) {
        for ticket in self.glimpses.end(fid, came, for_all) {
            if self.waiting.wake(ticket) {
                self.woken.push_back(ticket);
            }
        }
    }

    /// How many questions were put to holders, and how many of them were answered without giving
    /// the lock back.
    pub fn glimpses(&self) -> (u64, u64) {
        (self.glimpses.asked, self.glimpses.told)
    }
}
