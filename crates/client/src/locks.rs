//! Which lock covers what, and how one is given back.
//!
//! Giving back (a callback asked for it, or the client does so itself): the lock is marked,
//! so that nothing new is cached under it; the kernel drops what stands under it; then it is
//! removed and cancelled at the MDT. The kernel's invalidation of pages waits for READs and
//! WRITEs that hold the pages' locks, so those are still served under the lock; if any was,
//! the invalidation is repeated. From the second round on such requests are held back for a
//! moment, so that it ends; and for longer between the rounds, while the kernel waits for none
//! of them, until those that came before have ended. `crates/fuse/tests/coherence/locks.rs` tries
//! just these rules on a kernel (decision 0001): who changes them here changes them there.
//!
//! A part ([`crate::comb`]) has no pages, and goes like another shared lock, but for what is kept under it:
//! before any part goes all that is kept of the inode is written out, so that nothing outlives its lock.
//!
//! A grant can meet a cancel on its way. Every request carries the client's stamp, every
//! cancel sets the inode's; a grant whose request is older than the inode's last cancel is
//! not believed, and a callback for a lock that is not known is answered at once.

mod progress;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use sateen_types::{Comb, Errno, Fid, FileKind, Result, seq};
use sateen_wire::{
    GIVEN_BACK_MAX, GivenBack, Grant, Grants, Ibits, LockId, LockMode, MdtReply, MdtRequest,
    SizeReport,
};

use crate::client::Client;
use crate::comb::NO_PARTS_NS;
use crate::held::{Granted, Held, Leaving, Served};
use crate::inode::{Inode, InodeState};
use crate::outsiders::Pauses;
use crate::patience::{self, Patience, to_the_end};
use crate::port::KernelInval;
use crate::stats::Verb;
use crate::sync::{lock, until};

/// From the second round of an invalidation on, reads and writes wait this long at most.
const HOLD_NS: u64 = 1_000_000;
/// Those that come between two rounds wait this long at most for those before them: 2 s. What can
/// make it last is a seek, which has the kernel drop pages while it uses the lock, and an OST that
/// does not answer.
const DRAIN_NS: u64 = 2_000_000_000;
/// Between two looks whether the kernel has heard of an inode: 100 µs.
const INTRODUCE_NS: u64 = 100_000;

/// Parts of one file that a client has at most; beyond that it asks for the whole.
const PARTS_MAX: usize = 256;

/// A lock that is given back, with what the MDT is to be told of the size.
pub(crate) type Given = (Arc<Inode>, LockId, Option<SizeReport>);

/// A data lock in use; given back on drop.
#[derive(Debug)]
pub(crate) struct DataUse {
    inode: Arc<Inode>,
    id: LockId,
    kind: Kind,
}

/// What a lock in use is, which it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    Group,
    Part,
}

impl Kind {
    fn of(held: &Held) -> Kind {
        match held.mode {
            LockMode::Group => Kind::Group,
            LockMode::Part => Kind::Part,
            _ => Kind::Whole,
        }
    }
}

impl DataUse {
    /// Whether the lock is there yet: it goes under its users if the MDT forgets this client.
    pub(crate) fn is_there(&self, state: &InodeState) -> bool {
        state.locks.iter().any(|held| held.id == self.id)
    }

    /// Whether it is one that others may have, too.
    pub(crate) fn is_shared(&self) -> bool {
        let state = lock(&self.inode.state);
        state.locks.iter().any(|held| held.id == self.id && held.is_shared())
    }

    /// Whether it is a group's.
    pub(crate) fn is_group(&self) -> bool {
        self.kind == Kind::Group
    }

    /// Whether it is for some records alone.
    pub(crate) fn is_part(&self) -> bool {
        self.kind == Kind::Part
    }

    /// Which one.
    pub(crate) fn id(&self) -> LockId {
        self.id
    }

    /// Of a lock that was just counted as used once more.
    pub(crate) fn new(inode: &Arc<Inode>, id: LockId) -> DataUse {
        DataUse { inode: inode.clone(), id, kind: Kind::Whole }
    }

    /// The same of a group's.
    pub(crate) fn of_group(inode: &Arc<Inode>, id: LockId) -> DataUse {
        DataUse { inode: inode.clone(), id, kind: Kind::Group }
    }

    /// The same of one that was found.
    fn found(inode: &Arc<Inode>, FoundLock { id, kind }: FoundLock) -> DataUse {
        DataUse { inode: inode.clone(), id, kind }
    }
}

impl InodeState {
    /// Whether there is a lock for this that stays.
    pub(crate) fn allows(&self, wanted: &Wanted) -> bool {
        self.locks.iter().any(|held| !held.cancelling && wanted.fits(held))
    }

    /// How it goes on with a lock that is to be asked for; `None` for waiting.
    fn asks(&self, wanted: &Wanted) -> Option<Ask> {
        if self.allows(wanted) {
            return Some(Ask::Nothing);
        }
        // Who is about to join a group has given back all there was, and would have to do so again.
        if !self.cancels.is_empty() || self.group.is_coming() {
            return None;
        }
        let parts = || self.locks.iter().filter(|held| held.is_part()).count();
        let Some(comb) = wanted.comb.filter(|_| parts() < PARTS_MAX) else {
            return Some(Ask::Whole(self.mode_for(wanted.access)));
        };
        // The MDT would call that back, and the part come too early to be believed. The other way round
        // it is to see that parts are not what is wanted.
        match self.locks.iter().find(|held| held.is_common()) {
            Some(held) if held.cancelling => None,
            Some(held) => Some(Ask::Back(held.id)),
            None => Some(Ask::Part(comb)),
        }
    }

    /// Puts the lock for writing data to use, if there is one: `Some(None)` if there is none,
    /// and `None` while it is being given back.
    pub(crate) fn use_quietly(&mut self) -> Option<Option<LockId>> {
        let writes =
            |held: &&mut Held| held.bits.contains(Ibits::DATA) && held.mode.covers(LockMode::Pw);
        let Some(held) = self.locks.iter_mut().find(writes) else { return Some(None) };
        if held.cancelling {
            return None;
        }
        held.users += 1;
        Some(Some(held.id))
    }
}

/// What became of a lock that is given back.
enum LetGo {
    /// Data was served under it once more: these bits are to be dropped from the kernel again.
    Served(Ibits),
    /// It is gone, and this is what the MDT is to be told of the size.
    Gone(Option<SizeReport>),
}

impl InodeState {
    /// Removes a lock that is given back, unless a report of the size is on its way or somebody
    /// uses it: `None`, wait. Looking and removing are one step, or a write could begin under
    /// the lock in between, and end when it is somebody else's.
    fn let_go(&mut self, id: LockId) -> Option<LetGo> {
        let at = self.locks.iter().position(|held| held.id == id);
        // Only what says something of the data: the MDT may ask for the rest before it takes a
        // report of the atime.
        let data = at.and_then(|at| self.locks.get(at));
        // One report at a time: a cancel that is overtaken, or sent again after a restart, would make of
        // the size what it was.
        let reporting = self.reporting || self.cancels.iter().any(|leaving| leaving.tells);
        let reported = reporting && data.is_none_or(|held| held.bits.intersects(Ibits::DATA));
        let held = at.and_then(|at| self.locks.get_mut(at));
        if reported || held.as_ref().is_some_and(|held| held.users > 0) {
            // Those who come wait for this: there would always be somebody.
            if let Some(held) = held {
                held.busy().draining = true;
            }
            return None;
        }
        if let Some(held) = held {
            // A lock without pages may still have come for a request that found no use for it.
            // The kernel must not be asked for pages then: it would wait for reads that wait
            // for this lock to be gone.
            if !held.served_nothing() && held.may_have_pages() {
                return Some(LetGo::Served(held.bits));
            }
        }
        // What was written under it is to be written out first.
        let keeps = at.and_then(|at| self.locks.get(at)).is_some_and(Held::keeps);
        if keeps && self.dirty.is_some() {
            return None;
        }
        let held = self.locks.remove(id);
        let mut leaving = Leaving::new(id, held.as_ref());
        let tells = held.as_ref().is_some_and(|held| {
            // A reader tells the atime. Who may write as well tells all of it under that lock.
            held.owns_data() || held.bits.intersects(Ibits::DATA) && !self.may_write()
        });
        let report = if tells { self.report() } else { None };
        leaving.tells = report.is_some();
        self.cancels.push(leaving);
        self.lost_locks();
        Some(LetGo::Gone(report))
    }

    /// Removes all locks of an inode that nobody needs. Each is to be cancelled with what the
    /// MDT is still to be told of the size: a report that failed is made again by this.
    pub(crate) fn let_all_go(&mut self) -> Vec<(LockId, Option<SizeReport>)> {
        let (writer, mut report) = (self.may_write(), self.report());
        let mut gone = Vec::new();
        while let Some(held) = self.locks.pop() {
            let mut leaving = Leaving::new(held.id, Some(&held));
            let writes = held.owns_data() || held.shares_writes();
            let tells = if writer { writes } else { held.bits.intersects(Ibits::DATA) };
            let told = if tells { report.take() } else { None };
            leaving.tells = told.is_some();
            self.cancels.push(leaving);
            gone.push((held.id, told));
        }
        self.lost_locks();
        gone
    }
}

impl Drop for DataUse {
    fn drop(&mut self) {
        self.inode.update(|state| {
            if let Some(held) = state.locks.iter_mut().find(|held| held.id == self.id) {
                held.users = held.users.saturating_sub(1);
                held.call_ended();
            }
        });
    }
}

/// What a data lock is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// To write in one piece at one OST: others may do so at the same time, if the file is contended.
    Share,
    /// To write in pieces at several OSTs, which a part of the file is as good for as all of it.
    Put,
    /// To read in one piece at one OST, for a reader who keeps nothing of it: others may write at the
    /// same time, if the file is contended.
    Look,
}

/// Bytes that are read or written: offset and length, or all of the file.
pub(crate) type Range = Option<(u64, u64)>;

/// What a data lock is wanted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) access: Access,
    pub(crate) range: Range,
    /// If none is there, one for all these records would be best.
    pub(crate) comb: Option<Comb>,
    /// Nor does a lock do that others share as it is, before that was asked for.
    pub(crate) apart: bool,
}

impl Wanted {
    /// For the whole file, if there is none.
    pub(crate) fn of(access: Access, range: Range) -> Wanted {
        Wanted { access, range, comb: None, apart: false }
    }

    /// Whether a lock does.
    fn fits(&self, held: &Held) -> bool {
        held.bits.contains(Ibits::DATA)
            && held.allows(self.access, self.range)
            && !(self.apart && held.is_common())
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// There is a lock by now.
    Nothing,
    Whole(LockMode),
    Part(Comb),
    /// First this one is to be given back.
    Back(LockId),
}

/// A lock that is put to use.
#[derive(Debug, Clone, Copy)]
struct FoundLock {
    id: LockId,
    kind: Kind,
}

impl FoundLock {
    /// It is used once more.
    fn of(held: &mut Held) -> FoundLock {
        held.users += 1;
        held.pages = true;
        FoundLock { id: held.id, kind: Kind::of(held) }
    }
}

enum Found {
    Use(FoundLock),
    /// For those before to end.
    Drains,
    /// For the kernel to drop pages that others have brought.
    Wait,
    None,
}

/// What somebody who needs a lock has waited for long enough.
#[derive(Debug, Clone, Copy, Default)]
struct Tired {
    drains: bool,
    waits: bool,
}

impl Tired {
    const OF_ALL: Tired = Tired { drains: true, waits: true };
}

fn find_data(state: &mut InodeState, wanted: &Wanted, tired: Tired) -> Found {
    let fits = |held: &&mut Held| wanted.fits(held);
    // One that is given back is the last choice.
    // So is one that others have, too, under which less is known.
    let last = |held: &&mut Held| (held.cancelling, held.is_shared());
    match state.locks.iter_mut().filter(fits).min_by_key(last) {
        Some(held) if !held.cancelling => Found::Use(FoundLock::of(held)),
        // The kernel waits for nobody who reads or writes under it: it is as good as gone.
        Some(held) if !held.may_have_pages() && held.is_shared() && tired.drains => Found::None,
        Some(held) if !held.may_have_pages() && held.is_shared() => Found::Drains,
        Some(held) if held.is_draining() && !tired.drains => Found::Drains,
        Some(held) if held.rounds() > 1 && !held.is_draining() && !tired.waits => Found::Wait,
        Some(held) => {
            held.busy().served.add(wanted.range);
            Found::Use(FoundLock::of(held))
        }
        None => Found::None,
    }
}

/// What a question for a lock has brought.
#[derive(Debug)]
enum Got {
    /// The lock, in use.
    Lock(DataUse),
    /// One that was not to be kept.
    Nothing,
    /// A group has the file.
    Grouped,
}

/// A lock that was asked for, and what came of it.
#[derive(Debug, Default)]
enum Asked {
    #[default]
    Waiting,
    Answered(Result<Got>),
    /// Another lock came first.
    Abandoned,
}

/// Somebody waits for a lock that was asked for.
struct Asking(Arc<Patience>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Client {
    /// Takes over a lock that a reply brought. With `pin` a data lock is in use from now on,
    /// so that a callback right behind it cannot take it away unused. A part comes with its records, or
    /// it is not believed.
    pub(crate) fn install(&self, grant: &Grant, comb: Option<Comb>, (stamp, pin): (u64, bool)) {
        if (grant.mode == LockMode::Part) != comb.is_some() {
            return;
        }
        let inode = {
            let mut part = self.inodes.part(grant.fid);
            match part.find(grant.fid) {
                Some(inode) => inode,
                None if stamp < part.dropped_at(grant.fid) => return,
                None => self.inodes.get_in(&mut part, grant.fid),
            }
        };
        self.is_used(&inode);
        let now = self.stamp();
        inode.update(|state| {
            if !state.cancels.is_empty() || stamp < state.cancelled_at {
                return;
            }
            let pin = pin && grant.bits.contains(Ibits::DATA);
            if let Some(held) = state.locks.iter_mut().find(|held| held.id == grant.id) {
                if held.comb() != comb {
                    return;
                }
                if !held.bits.contains(grant.bits) {
                    held.granted = Granted::new(stamp, now);
                }
                held.bits = held.bits.union(grant.bits);
                held.mode = if grant.mode.covers(held.mode) { grant.mode } else { held.mode };
                if pin {
                    held.users += 1;
                    held.busy().served.add(None);
                    held.busy().pins.push(stamp);
                }
                held.readable |= state.write_opens == 0 && !held.cancelling && !held.is_shared();
                return;
            }
            let granted = Granted::new(stamp, now);
            let mut held = match comb {
                Some(comb) => Held::part(grant.id, comb, granted),
                None => Held::new(grant.id, (grant.mode, grant.bits), granted),
            };
            held.readable = state.write_opens == 0 && !held.is_shared();
            if pin {
                held.users = 1;
                held.busy().pins.push(stamp);
            }
            state.locks.push(held);
        });
    }

    /// A data lock for one read or write, of this range. While one is asked for, any other that comes along is
    /// as good, also if it is about to be given back: that may wait in the kernel for this
    /// very read, and the MDT with the lock asked for on that.
    ///
    /// # Errors
    /// The MDT's, or `EIO` if the connection was lost.
    pub(crate) async fn use_data(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        access: Access,
        range: Range,
    ) -> Result<DataUse> {
        self.use_data_after(inode, Wanted::of(access, range), &mut Pauses::default()).await
    }

    /// The same, with these pauses while a group has the file.
    ///
    /// # Errors
    /// As [`Client::use_data`].
    pub(crate) async fn use_data_after(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        mut wanted: Wanted,
        pauses: &mut Pauses,
    ) -> Result<DataUse> {
        loop {
            if let Some(found) = self.find_data(inode, &wanted).await {
                self.count(Verb::LockHit);
                return Ok(DataUse::found(inode, found));
            }
            let asked = Arc::new(Mutex::new(Asked::Waiting));
            let asking = self.ask_data(inode, wanted, asked.clone());
            let got = until(
                &inode.state,
                |state| &mut state.waiters,
                |state| {
                    let mut asked = lock(&asked);
                    if let Asked::Answered(_) = *asked {
                        let Asked::Answered(answer) = core::mem::take(&mut *asked) else {
                            return None;
                        };
                        return Some(answer);
                    }
                    let Found::Use(found) = find_data(state, &wanted, Tired::OF_ALL) else {
                        if !patience::is_over() {
                            return None;
                        }
                        *asked = Asked::Abandoned;
                        return Some(Err(Errno::EINTR));
                    };
                    *asked = Asked::Abandoned;
                    Some(Ok(Got::Lock(DataUse::found(inode, found))))
                },
            )
            .await;
            drop(asking);
            match got? {
                Got::Lock(used) => return Ok(used),
                Got::Nothing => {}
                Got::Grouped => self.pause_for_data(inode, &wanted, pauses).await?,
            }
            // Once is enough.
            wanted.apart = false;
            wanted.comb = wanted.comb.filter(|_| self.may_ask_for_parts(inode, false));
        }
    }

    /// Puts a lock to use that is there, if there is one.
    async fn find_data(&self, inode: &Inode, wanted: &Wanted) -> Option<FoundLock> {
        let (mut drains, mut waits) = (None, None);
        let mut tired = Tired::default();
        poll_fn(|context| {
            let mut state = lock(&inode.state);
            loop {
                let (patience, tired_of) = match find_data(&mut state, wanted, tired) {
                    Found::Use(found) => return Poll::Ready(Some(found)),
                    Found::None => return Poll::Ready(None),
                    Found::Drains => {
                        // In the next round it waits anew, or all who have waited here would be
                        // in its way at once.
                        (tired.waits, waits) = (false, None);
                        let patience = drains.get_or_insert_with(|| self.port.sleep(DRAIN_NS));
                        (patience, &mut tired.drains)
                    }
                    Found::Wait => {
                        let patience = waits.get_or_insert_with(|| self.port.sleep(HOLD_NS));
                        (patience, &mut tired.waits)
                    }
                };
                state.waiters.add(context.waker());
                match patience.as_mut().poll(context) {
                    Poll::Ready(()) => *tired_of = true,
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Asks the MDT for a data lock, and puts what comes of it into `asked`. Whoever asks waits no
    /// longer than he has what is returned: what was not sent by then is not sent any more, or
    /// programs that are gone would take locks from others, and there could be ever more of them.
    fn ask_data(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        wanted: Wanted,
        asked: Arc<Mutex<Asked>>,
    ) -> Asking {
        let (client, inode) = (self.clone(), inode.clone());
        let patience = Arc::<Patience>::default();
        self.port.spawn(Box::pin(patience.clone().run(async move {
            let answer = client.enqueue_data(&inode, &wanted).await;
            let unwanted = {
                let mut asked = lock(&asked);
                match *asked {
                    Asked::Waiting => {
                        *asked = Asked::Answered(answer);
                        None
                    }
                    _ => Some(answer),
                }
            };
            inode.update(|_| ());
            // Who asked may have let go of it before: then nobody has it in use any more.
            drop((unwanted, asked));
            client.retire(inode);
        })));
        Asking(patience)
    }

    /// Whether a part of a file may be asked for: its MDT knows what that is, and none was asked for in
    /// vain of late; with `shared` by one who gives back a lock for it.
    pub(crate) fn may_ask_for_parts(&self, inode: &Inode, shared: bool) -> bool {
        let now_ns = self.port.now().mono_ns;
        now_ns >= self.no_parts_until_ns.load(Ordering::Relaxed)
            && lock(&inode.state).no_parts.is_over(now_ns, shared)
            && self.has_combs(inode.fid)
    }

    /// Asks the MDT for a data lock, once. Whoever asks has none of this file in use.
    async fn enqueue_data(self: &Arc<Client>, inode: &Arc<Inode>, wanted: &Wanted) -> Result<Got> {
        let fid = inode.fid;
        let request = loop {
            let ask = until(
                &inode.state,
                |state| &mut state.waiters,
                |state| match state.asks(wanted) {
                    Some(ask) => Some(Ok(ask)),
                    None => patience::is_over().then_some(Err(Errno::EINTR)),
                },
            );
            match ask.await? {
                Ask::Nothing => return Ok(Got::Nothing),
                Ask::Back(id) => self.give_back(inode, id).await,
                Ask::Part(comb) => break MdtRequest::EnqueuePart { fid, comb },
                Ask::Whole(mode) => break MdtRequest::Enqueue { fid, mode, bits: Ibits::DATA },
            }
        };
        let of_part = matches!(request, MdtRequest::EnqueuePart { .. });
        let reply = match self.mdt_pinned(fid, request).await {
            Err(Errno::EOPNOTSUPP) if of_part => {
                let until_ns = self.port.now().mono_ns.saturating_add(NO_PARTS_NS);
                self.no_parts_until_ns.store(until_ns, Ordering::Relaxed);
                return Ok(Got::Nothing);
            }
            reply => reply?,
        };
        // A range may have been cut in the middle of what is wanted.
        let is_good_for = |comb: Comb| wanted.range.is_some_and(|(at, len)| comb.has(at, len));
        let (attr, parted, good) = match reply.body {
            MdtReply::Inode { attr } => (attr, false, false),
            MdtReply::Parted { attr, comb } if of_part => (attr, true, is_good_for(comb)),
            MdtReply::Grouped => return Ok(Got::Grouped),
            _ => return Err(Errno::EPROTO),
        };
        if reply.grants.iter().any(|grant| (grant.mode == LockMode::Part) != parted) {
            return Err(Errno::EPROTO);
        }
        let (stamp, now_ns) = (reply.stamp, self.port.now().mono_ns);
        let ours = {
            let mut state = lock(&inode.state);
            let shared = reply.grants.iter().any(|grant| grant.mode == LockMode::Cw);
            if of_part && (parted || shared) {
                // Who got the whole file for himself was not refused.
                state.no_parts.answered(now_ns, good);
            }
            state.learn(attr, stamp);
            if state.layout.as_ref().is_some_and(|own| own.generation < attr.layout_gen) {
                // Also if the rest is no news: under a shared lock nothing else would ask for it.
                state.layout = None;
            }
            state.locks.iter_mut().find(|held| held.is_pinned_by(stamp)).map(|held| {
                held.unpin(stamp);
                held.pages = true;
                let found = FoundLock { id: held.id, kind: Kind::of(held) };
                (found, held.allows(wanted.access, wanted.range))
            })
        };
        let Some((found, allowed)) = ours else {
            self.hand_back(inode, &reply.grants).await;
            return Ok(Got::Nothing);
        };
        let used = DataUse::found(inode, found);
        Ok(if allowed { Got::Lock(used) } else { Got::Nothing })
    }

    /// Gives back what came too late to be believed, before another is asked for: the MDT takes
    /// this client for the holder, and if others want it, the answer to their callback would be
    /// younger than the next request and make its grant come too late as well, and so on for ever.
    pub(crate) async fn hand_back(self: &Arc<Client>, inode: &Arc<Inode>, grants: &Grants) {
        for grant in grants.iter().filter(|grant| grant.fid == inode.fid) {
            let is_held = lock(&inode.state).locks.iter().any(|held| held.id == grant.id);
            if !is_held {
                self.give_back(inode, grant.id).await;
            }
        }
    }

    /// A callback asked for a lock.
    pub(crate) fn on_blocking(self: &Arc<Client>, fid: Fid, id: LockId) {
        self.count(Verb::LockCallback);
        let inode = self.inode(fid);
        let client = self.clone();
        self.port.spawn(Box::pin(async move {
            // After a word somebody is at it, or it has gone meanwhile.
            if !client.tell_progress(&inode, id).await {
                client.give_back(&inode, id).await;
            }
            client.retire(inode);
        }));
    }

    /// Gives one lock back: kernel first, then the MDT.
    pub(crate) async fn give_back(self: &Arc<Client>, inode: &Arc<Inode>, id: LockId) {
        let era = self.era();
        let mut keeps_opens = false;
        let begun = inode.update(|state| {
            keeps_opens = !state.kept_opens.is_empty();
            if state.cancels.iter().any(|leaving| leaving.id == id) {
                // The callback was repeated: the cancel that is on its way answers it, with
                // what it says of the size.
                return Some(None);
            }
            let Some(held) = state.locks.iter_mut().find(|held| held.id == id) else {
                state.cancels.push(Leaving::new(id, None));
                return None;
            };
            if held.cancelling {
                return Some(None);
            }
            held.cancelling = true;
            let keeps = held.keeps();
            let bits =
                if held.may_have_pages() { held.bits } else { held.bits.without(Ibits::DATA) };
            let dir = state.attr.as_ref().is_some_and(|a| a.kind() == FileKind::Directory);
            state.drop_ahead_of(id);
            if bits.intersects(Ibits::META) {
                state.drop_dir_pages();
            }
            Some(Some((bits, dir, keeps)))
        });
        let (bits, dir, keeps) = match begun {
            None => return self.cancel_at_mdt(inode, (id, era), None).await,
            // Somebody else is at it.
            Some(None) => return,
            Some(Some(begun)) => begun,
        };
        let mut bits = bits;
        if keeps_opens {
            // Before the lock: who wants it perhaps removes the file.
            self.close_useless(inode);
        }
        // From here on nothing is kept under it; what was is written out beside what the kernel
        // does, and may come from there.
        let looking = (keeps || bits.intersects(Ibits::DATA)).then(|| self.look(inode));
        let report = loop {
            self.drop_from_kernel(inode, id, bits, dir).await;
            if let Some(looking) = &looking {
                // Without patience it is waited for in the next step.
                looking.settled().await.unwrap_or_default();
            }
            let let_go = |state: &mut InodeState| {
                let gone = state.let_go(id);
                if gone.is_none() && state.reporting {
                    // Perhaps by a close, for which nobody waited so far.
                    self.port.hurry();
                }
                gone
            };
            match until(&inode.state, |state| &mut state.waiters, let_go).await {
                LetGo::Served(all) => bits = all,
                LetGo::Gone(report) => break report,
            }
        };
        // Whoever waited for the lock asks for another.
        inode.update(|_| ());
        drop(looking);
        self.cancel_at_mdt(inode, (id, era), report).await;
    }

    async fn drop_from_kernel(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        id: LockId,
        bits: Ibits,
        dir: bool,
    ) {
        let ino = inode.fid.ino();
        let names = bits.intersects(Ibits::LOOKUP) || dir && bits.intersects(Ibits::UPDATE);
        if names {
            self.port.invalidate(KernelInval::Names).await;
        }
        if !bits.intersects(Ibits::DATA) || dir {
            return self.invalidate_known(inode, KernelInval::Attr(ino)).await;
        }
        loop {
            let begun = inode.update(|state| {
                let held = state.locks.iter_mut().find(|held| held.id == id)?;
                let busy = held.busy();
                busy.rounds += 1;
                busy.draining = false;
                let served = core::mem::take(&mut busy.served);
                Some(if busy.rounds == 1 { Served::All } else { served })
            });
            // After the first round only what was served since: the kernel waits for all who read
            // or write within what it is to drop, and for those alone.
            match begun {
                None => return,
                Some(Served::Nothing) => {}
                Some(Served::Ranges(ranges)) => {
                    for (offset, len) in ranges {
                        self.invalidate_known(inode, KernelInval::Pages(ino, offset, len)).await;
                    }
                }
                Some(Served::All) => {
                    self.invalidate_known(inode, KernelInval::Data(ino)).await;
                }
            }
            let clean = until(
                &inode.state,
                |state| &mut state.waiters,
                |state| match state.locks.iter_mut().find(|held| held.id == id) {
                    Some(held) if held.users > 0 => {
                        held.busy().draining = true;
                        None
                    }
                    Some(held) => Some(held.served_nothing()),
                    None => Some(true),
                },
            )
            .await;
            if clean {
                return;
            }
        }
    }

    /// Invalidates an inode. One that was introduced but that the kernel does not know yet is
    /// on its way there in an answer, which would be believed afterwards: try again until it
    /// has arrived or was forgotten.
    async fn invalidate_known(&self, inode: &Inode, what: KernelInval) {
        self.invalidate_unless(what, || lock(&inode.state).lookups == 0).await;
    }

    /// The same, unless the kernel has forgotten it, or never heard of it.
    pub(crate) async fn invalidate_unless(&self, what: KernelInval, gone: impl Fn() -> bool) {
        while !self.port.invalidate(what).await {
            if gone() {
                return;
            }
            self.port.sleep(INTRODUCE_NS).await;
        }
    }

    /// Cancels locks that stand in `cancels`, nobody needs, and were given in this era: many with one
    /// request.
    pub(crate) async fn cancel_together(self: &Arc<Client>, era: u64, given: Vec<Given>) {
        let mut by_mdt: BTreeMap<u32, [Vec<Given>; 2]> = BTreeMap::new();
        for given in given {
            let [telling, quiet] = by_mdt.entry(seq::mdt_of(given.0.fid.seq)).or_default();
            if given.2.is_some() { telling.push(given) } else { quiet.push(given) }
        }
        for [telling, quiet] in by_mdt.into_values() {
            // One of a request may tell of a size.
            let (mut telling, mut quiet) = (telling.into_iter(), quiet.into_iter());
            while let Some((inode, id, report)) = telling.next().or_else(|| quiet.next()) {
                let more: Vec<_> =
                    quiet.by_ref().take(GIVEN_BACK_MAX).map(|(inode, id, _)| (inode, id)).collect();
                self.cancel_with(&inode, (id, era), report, more).await;
            }
        }
    }

    /// Cancels a lock that stands in `cancels`, and was given in this era.
    pub(crate) async fn cancel_at_mdt(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        (id, era): (LockId, u64),
        report: Option<SizeReport>,
    ) {
        self.cancel_with(inode, (id, era), report, Vec::new()).await;
    }

    async fn cancel_with(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        (id, era): (LockId, u64),
        report: Option<SizeReport>,
        others: Vec<(Arc<Inode>, LockId)>,
    ) {
        let (fid, mut report) = (inode.fid, report);
        self.lets_others_write(inode).await;
        for (other, _) in &others {
            self.lets_others_write(other).await;
        }
        let more: Vec<GivenBack> =
            others.iter().map(|(other, id)| GivenBack { fid: other.fid, id: *id }).collect();
        loop {
            let taken_up = self.taken_up(fid);
            let more = more.clone();
            let cancel = self.mdt_in(era, fid, MdtRequest::Cancel { fid, id, report, more });
            let cancelled = to_the_end(cancel).await;
            // A lost connection has voided the lock, so there is nobody to tell then.
            if let Err(error) = &cancelled {
                tracing::debug!(%fid, %error, "a cancel did not reach the MDT");
            }
            if cancelled.is_err() || taken_up == self.taken_up(fid) {
                break;
            }
            // The lock was among those that the MDT was told of as held, though an earlier run of it
            // may have executed this very cancel: see `crate::recover`.
            report = None;
        }
        let all = others.iter().map(|(other, id)| (other, *id));
        for (inode, id) in core::iter::once((inode, id)).chain(all) {
            inode.update(|state| {
                state.cancels.retain(|other| other.id != id);
                state.cancelled_at = self.stamp();
                state.group_may_be_over();
            });
        }
    }
}

#[cfg(test)]
mod tests;
