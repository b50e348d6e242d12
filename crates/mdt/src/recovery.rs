//! Clients of the run before come back as themselves.
//!
//! 1. The start finds the mark of a stop in good order, and removes it before anything else; or none,
//!    and the run has crashed. Clients on record that were not lost are *expected*; their exports are
//!    there again, after a stop with what was answered in each slot.
//! 2. A window opens. An expected client connects, hears that this run follows the one it knows,
//!    and tells what it had ([`crate::ops`]' `Reclaim`). All other requests are held, whoever sends
//!    them: nobody is granted anything, nobody called back, nobody evicted for being late.
//! 3. The window ends when each expected client has told everything or has gone, or when it has
//!    been open for long. Who has not told everything by then is lost like any other, and those
//!    who have are answered. Orphans that nobody has open and sequences that nobody has go then.
//!
//! A claim that cannot be costs its client everything: it goes on as one that was evicted.
//!
//! After a crash what the clients were answered for and is not there is made again before anybody tells
//! what he had ([`crate::replays`]). What they had not been answered for they ask again. The slots'
//! records say what of that was executed, and is there: it is answered from what there is
//! ([`crate::ops`]' `reconstruct`); all else is executed.
//!
//! The run that is followed is the last that has answered anybody: one that crashes while clients are
//! waited for leaves them to the next.

use std::collections::{BTreeMap, BTreeSet};

use sateen_target::{Carried, Outbox};
use sateen_types::{ClientId, Endpoint, Errno, Seq, Timestamp};
use sateen_wire::disk::mdt::{ClientRecord, ReplySlot, RunRecord};
use sateen_wire::disk::stopped::{StoppedClient, StoppedSlot};
use sateen_wire::{
    FileLock, Grants, Header, HeldFileLock, HeldOpen, LockId, MdtReply, OpenId, ReplyBody,
};

use crate::keys;
use crate::mdt::Mdt;
use crate::op::reply;
use crate::replays::Replays;
use crate::stats::Why;
use crate::stop::Trace;
use crate::work::Work;

/// What is known of a client that is expected.
#[derive(Debug, Default)]
struct Expected {
    /// Where it is reached, and its last attempt to connect; `None` if that was not written down.
    peer: Option<(Endpoint, u64)>,
    slots: Vec<Carried>,
    /// What must be known of the requests in them.
    traces: Vec<((u16, u64), Trace)>,
    /// What it may not know of, because the answer was lost: files that are open, or closed, and
    /// sequences.
    opens: Vec<HeldOpen>,
    closed: BTreeSet<OpenId>,
    /// Locks that it has given back, and ranges in which programs' locks are these.
    cancelled: BTreeSet<LockId>,
    file_locks: Vec<(HeldFileLock, Vec<HeldFileLock>)>,
    seqs: Vec<Seq>,
    /// It has told everything.
    told: bool,
    /// It was connected and had been given nothing: there is no other record of it.
    had_nothing: bool,
}

/// How a client stands to the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It was no client of it, or is not taken for one.
    Stranger,
    /// It may tell what it had.
    Expected,
    /// It has.
    Back,
}

/// How taking up the run before went, for whoever looks in from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryStatus {
    /// Clients are waited for.
    pub recovering: bool,
    /// There was something to be taken up.
    pub happened: bool,
    /// The run before has crashed.
    pub crashed: bool,
    /// Clients that were expected.
    pub expected: u64,
    /// Those that came back.
    pub completed: u64,
    /// Changes that the crash had taken, and that were made again.
    pub replayed: u64,
    /// How long it took, or has taken yet, as the target has heard others.
    pub duration_ns: u64,
}

/// The state of it.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The boot epoch of the run before, if clients of it may go on.
    follows: Option<u64>,
    /// The last transaction that there is of it, if it has crashed.
    durable: Option<u64>,
    /// The transaction that took its mark away.
    unmarked: u64,
    expected: BTreeMap<ClientId, Expected>,
    back: BTreeSet<ClientId>,
    /// Those whose claims cannot be.
    refused: Vec<ClientId>,
    /// Whom to answer when the window ends.
    answers: Vec<Header>,
    /// What those that are back have asked last in each slot, and it is there: its number, and the
    /// transaction that it became.
    executed: BTreeMap<(ClientId, u16), ReplySlot>,
    /// Opens that were closed, though their clients have not heard of it.
    closed: BTreeSet<(ClientId, OpenId)>,
    /// Changes that are made again first.
    pub(crate) replays: Replays,
    opened_ns: u64,
    status: RecoveryStatus,
}

impl Recovery {
    /// The mark of this run was found, and is removed by a transaction.
    pub(crate) fn follow(&mut self, boot_epoch: u64, unmarked: u64) {
        (self.follows, self.unmarked) = (Some(boot_epoch), unmarked);
    }

    /// There is no mark: of a run that has crashed there is everything up to a transaction.
    pub(crate) fn follow_crash(&mut self, boot_epoch: u64, durable: u64) {
        (self.follows, self.durable) = (Some(boot_epoch), Some(durable));
    }

    /// Whether the run before has crashed.
    pub(crate) const fn follows_crash(&self) -> bool {
        self.durable.is_some()
    }

    /// The run before.
    pub(crate) fn run_followed(&self) -> u64 {
        self.follows.unwrap_or(0)
    }

    /// Whether a transaction of that is there.
    pub(crate) fn is_there(&self, transno: u64) -> bool {
        self.durable.is_none_or(|durable| transno <= durable)
    }

    /// Whether a client tells what it had before all changes are made again.
    pub(crate) fn comes_early(&self, client: ClientId) -> bool {
        let makes = self.follows_crash() && self.replays.made().is_none();
        makes && self.place(client) == Place::Expected
    }

    /// Those that are expected.
    pub(crate) fn expected_clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.expected.keys().copied()
    }

    /// Whether what a client claims cannot be.
    pub(crate) fn is_refused(&self, client: ClientId) -> bool {
        self.refused.contains(&client)
    }

    /// A change was made again.
    pub(crate) fn count_replayed(&mut self) {
        self.status.replayed += 1;
    }

    /// Clients have all of their time once more.
    pub(crate) fn opens_anew(&mut self, now_ns: u64) {
        self.opened_ns = now_ns;
    }

    /// Nobody is answered before this transaction is durable.
    pub(crate) fn begins_with(&mut self, transno: u64) {
        self.unmarked = self.unmarked.max(transno);
    }

    /// Whether there is a run to be taken up.
    pub(crate) const fn follows(&self) -> bool {
        self.follows.is_some()
    }

    /// Before that is durable nothing is done for anybody: with the mark there, a crash would let
    /// the run before be taken up once more.
    pub(crate) const fn unmarked(&self) -> u64 {
        self.unmarked
    }

    /// A client is on record. Whether it may come back.
    pub(crate) fn expect(&mut self, client: ClientId, record: &ClientRecord) -> bool {
        let crashed = self.follows_crash();
        let may = self.follows() && !record.refused && !record.lost && (record.speaks || !crashed);
        if may {
            let known = self.expected.entry(client).or_default();
            if crashed {
                known.peer = Some((record.peer, record.attempt));
            }
        }
        may
    }

    /// What a slot's record says. Whether its client is back, and may ask that again.
    pub(crate) fn executed(&mut self, at: (ClientId, u16), done: ReplySlot) -> bool {
        let is_back = self.back.contains(&at.0);
        if is_back {
            self.executed.insert(at, done);
        }
        is_back
    }

    /// The transaction that a request has become in an earlier run, if it has.
    pub(crate) fn became(&self, header: &Header) -> Option<u64> {
        let done = self.executed.get(&(header.client, header.slot))?;
        (done.seq == header.seq).then_some(done.transno)
    }

    /// A client tells of an open as not closed, and the file is gone with it.
    pub(crate) fn was_closed(&mut self, client: ClientId, id: OpenId) {
        self.closed.insert((client, id));
    }

    /// Whether that is so of an open.
    pub(crate) fn is_closed(&self, client: ClientId, id: OpenId) -> bool {
        self.closed.contains(&(client, id))
    }

    /// One record of what was written down at the stop.
    pub(crate) fn found(&mut self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        use sateen_wire::codec::Wire;
        let damaged = |_| Errno::EIO;
        let (client, slot) = key.split_first_chunk::<8>().ok_or(Errno::EIO)?;
        let client = ClientId(u64::from_be_bytes(*client));
        if slot.is_empty() {
            let StoppedClient { peer, attempt } = Wire::from_bytes(value).map_err(damaged)?;
            let new = || Expected { had_nothing: true, ..Expected::default() };
            self.expected.entry(client).or_insert_with(new).peer = Some((peer, attempt));
            return Ok(());
        }
        let known = self.expected.get_mut(&client);
        let slot = u16::from_be_bytes(slot.try_into().map_err(|_| Errno::EIO)?);
        let StoppedSlot { seq, reply, open, closed, cancelled, file_lock, has } =
            Wire::from_bytes(value).map_err(damaged)?;
        let Some(known) = known else { return Ok(()) };
        if let ReplyBody::Mdt(MdtReply::Sequence(seq)) = &reply.body {
            known.seqs.push(*seq);
        }
        // Should this run end in good order before it is asked again.
        let trace = match (&open, closed, cancelled, &file_lock) {
            (Some(open), ..) => Trace::Opens(open.open_id),
            (None, Some(id), ..) => Trace::Closes(id),
            (None, None, Some(id), _) => Trace::Cancels(id),
            (None, None, None, Some(asked)) => Trace::Locks(*asked),
            (None, None, None, None) => Trace::Answer,
        };
        known.traces.push(((slot, seq), trace));
        known.opens.extend(open);
        known.closed.extend(closed);
        known.cancelled.extend(cancelled);
        known.file_locks.extend(file_lock.map(|asked| (asked, has)));
        known.slots.push(Carried { slot, seq, reply });
        Ok(())
    }

    /// How a client stands to the run before.
    pub(crate) fn place(&self, client: ClientId) -> Place {
        match self.expected.get(&client) {
            Some(_) => Place::Expected,
            None if self.back.contains(&client) => Place::Back,
            None => Place::Stranger,
        }
    }

    /// Whether a client is expected that had been given nothing.
    pub(crate) fn had_nothing(&self, client: ClientId) -> bool {
        self.expected.get(&client).is_some_and(|known| known.had_nothing)
    }

    /// Files that a client has open, and sequences that it has, whether or not it knows.
    pub(crate) fn of_slots(&self, client: ClientId) -> (&[HeldOpen], &[Seq]) {
        self.expected.get(&client).map_or((&[], &[]), |known| (&known.opens, &known.seqs))
    }

    /// Whether a client has closed this, whether or not it knows.
    pub(crate) fn has_closed(&self, client: ClientId, id: OpenId) -> bool {
        self.expected.get(&client).is_some_and(|known| known.closed.contains(&id))
    }

    /// Whether a client has given this lock back, whether or not it knows.
    pub(crate) fn has_cancelled(&self, client: ClientId, id: LockId) -> bool {
        self.expected.get(&client).is_some_and(|known| known.cancelled.contains(&id))
    }

    /// What a client tells of its programs' locks, but where it may not know.
    pub(crate) fn known_file_locks(
        &self,
        client: ClientId,
        told: &[HeldFileLock],
        last: bool,
    ) -> Vec<HeldFileLock> {
        let asked = self.expected.get(&client).map_or(&[][..], |known| &known.file_locks);
        let mut all = told.to_vec();
        for (range, _) in asked {
            all = all.iter().flat_map(|held| outside(held, range)).collect();
        }
        // Ranges may meet: what there is within them was looked up when all was done.
        let more = asked.iter().filter(|_| last).flat_map(|(_, has)| has);
        all.extend(more);
        all
    }

    /// A client has told everything, and waits.
    pub(crate) fn told(&mut self, header: Header) {
        if let Some(known) = self.expected.get_mut(&header.client) {
            self.status.completed += u64::from(!known.told);
            known.told = true;
            // Who asks again under another number does not wait for the first answer.
            self.answers.retain(|other| other.client != header.client);
            self.answers.push(header);
        }
    }

    /// What a client claims cannot be.
    pub(crate) fn refuse(&mut self, client: ClientId) {
        self.refused.push(client);
    }

    /// A client is gone. Returns whether it was expected.
    pub(crate) fn forget(&mut self, client: ClientId) -> bool {
        self.answers.retain(|header| header.client != client);
        self.replays.forget(client);
        self.back.remove(&client);
        self.executed.retain(|(of, _), _| *of != client);
        self.closed.retain(|(of, _)| *of != client);
        self.expected.remove(&client).is_some()
    }

    /// Everybody who waits for the end of the window.
    pub(crate) fn take_answers(&mut self) -> Vec<Header> {
        core::mem::take(&mut self.answers)
    }
}

/// What of a lock lies outside of a range of its owner.
fn outside(held: &HeldFileLock, range: &HeldFileLock) -> Vec<HeldFileLock> {
    let (lock, cut) = (held.lock, range.lock);
    let concerned = held.fid == range.fid && (lock.flock, lock.owner) == (cut.flock, cut.owner);
    if !concerned || cut.end < lock.start || lock.end < cut.start {
        return vec![*held];
    }
    let piece = |start, end| HeldFileLock { lock: FileLock { start, end, ..lock }, ..*held };
    let before = (lock.start < cut.start).then(|| piece(lock.start, cut.start - 1));
    let after = (cut.end < lock.end).then(|| piece(cut.end + 1, lock.end));
    before.into_iter().chain(after).collect()
}

impl Mdt {
    /// Everything that was written down is read: the exports of expected clients are there again.
    /// One of which too little was written down is lost.
    pub(crate) fn take_up(&mut self) {
        let mut lost = Vec::new();
        for (client, known) in &mut self.recovery.expected {
            let slots = core::mem::take(&mut known.slots);
            let used = slots.iter().map(|of| of.slot.saturating_add(1)).max().unwrap_or(0);
            let taken = known.peer.is_some_and(|(peer, attempt)| {
                self.core.exports.take_up((*client, peer, attempt), slots)
            });
            if !taken {
                lost.push(*client);
            } else if !known.had_nothing {
                self.clients.take_up(*client, used);
                for (at, trace) in core::mem::take(&mut known.traces) {
                    self.clients.leave_trace(*client, at, trace);
                }
            }
        }
        for client in lost {
            let known = self.recovery.expected.remove(&client);
            if known.is_some_and(|known| !known.had_nothing) {
                let (peer, attempt) = (Endpoint::Client(client), 0);
                let (refused, lost, speaks) = (false, true, false);
                let record = ClientRecord { refused, lost, speaks, peer, attempt };
                self.fence_old(client, record);
            }
        }
        self.core.follows = self.recovery.follows.unwrap_or(0);
        self.core.durable = self.recovery.durable.unwrap_or(u64::MAX);
        self.recovery.status.expected = self.recovery.expected.len() as u64;
    }

    /// The window opens; false if nobody is expected.
    pub(crate) fn open_window(&mut self) -> bool {
        if self.recovery.expected.is_empty() {
            return false;
        }
        self.recovery.opened_ns = self.core.clock_ns();
        let crashed = self.recovery.follows_crash();
        let status = &mut self.recovery.status;
        (status.recovering, status.happened, status.crashed) = (true, true, crashed);
        let clients = self.recovery.expected.len();
        let how = if crashed { "has crashed" } else { "ended in good order" };
        tracing::info!(clients, "the last run {how}: waiting for its clients");
        true
    }

    /// Whether the window has to end, and what follows from that.
    pub(crate) fn look_at_window(&mut self, now: Timestamp, out: &mut Outbox) {
        self.evict_refused(out);
        if !self.startup.in_window() {
            return;
        }
        let open_ns = self.core.clock_ns().saturating_sub(self.recovery.opened_ns);
        self.recovery.status.duration_ns = open_ns;
        let is_late = open_ns >= self.config.recovery_time_soft_ns;
        if self.recovery.follows_crash() && !self.look_at_replays(now, is_late, out) {
            return;
        }
        self.evict_refused(out);
        let open_ns = self.core.clock_ns().saturating_sub(self.recovery.opened_ns);
        let absent = self.recovery.expected.iter().filter(|(_, known)| !known.told);
        let absent: Vec<ClientId> = absent.map(|(client, _)| *client).collect();
        if !absent.is_empty() && open_ns < self.config.recovery_time_soft_ns {
            return;
        }
        for client in absent {
            if self.recovery.had_nothing(client) {
                // It loses nothing, and starts anew when it comes.
                self.recovery.forget(client);
                self.core.exports.disconnect(client);
            } else {
                self.evict(client, Why::Absent, out);
            }
        }
        self.close_window(out);
        self.run_works(now, out);
    }

    pub(crate) fn evict_refused(&mut self, out: &mut Outbox) {
        for client in core::mem::take(&mut self.recovery.refused) {
            if self.recovery.place(client) == Place::Expected {
                self.evict(client, Why::Claims, out);
            }
        }
    }

    /// From here on this run answers, and what it answers for is followed by the next.
    pub(crate) fn begin_run(&mut self) {
        let boot_epoch = self.core.config.boot_epoch;
        self.batch.clear();
        self.batch.put(&keys::run(), &RunRecord { boot_epoch, durable: u64::MAX });
        let first = self.core.commit(&self.batch);
        self.recovery.begins_with(first);
    }

    fn close_window(&mut self, out: &mut Outbox) {
        let back: BTreeSet<ClientId> =
            core::mem::take(&mut self.recovery.expected).into_keys().collect();
        self.recovery.status.recovering = false;
        self.recovery.status.completed = back.len() as u64;
        let RecoveryStatus { completed, expected, replayed, .. } = self.recovery.status;
        tracing::info!(completed, expected, replayed, "clients of the last run are back");
        self.begin_run();
        self.recovery.back = back;
        self.core.follows = 0;
        for header in self.recovery.take_answers() {
            let done = reply(MdtReply::Done, 0, Grants::NONE);
            let upto = self.recovery.unmarked;
            self.core.answer_durable(&header, done, upto, out);
        }
        self.startup.window_ended();
        self.works.push_front(Work::Startup);
    }

    /// How taking up the run before goes, or went.
    pub fn recovery_status(&self) -> RecoveryStatus {
        self.recovery.status
    }

    /// Whether clients of the run before are not waited for any more, and this one answers. If it crashed
    /// before that is durable, the next one would wait for them again.
    pub fn has_begun(&self) -> bool {
        self.startup.knows_opens() && self.recovery.unmarked() <= self.core.store.committed()
    }

    /// How long clients of the run before are waited for.
    pub fn recovery_time_soft_ns(&self) -> u64 {
        self.config.recovery_time_soft_ns
    }

    /// Has them waited for as long as this.
    pub fn set_recovery_time_soft_ns(&mut self, ns: u64) {
        self.config.recovery_time_soft_ns = ns;
    }

    /// A client has this open of the run before, and of the file's size nobody knows anything:
    /// whoever holds its data tells that later. Told once more it changes nothing.
    pub(crate) fn reopen(
        &mut self,
        client: ClientId,
        open: &HeldOpen,
        (attr, linkable): (&sateen_types::Attr, bool),
    ) -> Result<(), Errno> {
        let regular = crate::ops::is_regular(attr);
        let write = open.flags.write && regular;
        let purpose = crate::opens::Purpose { write, exec: open.flags.exec && regular };
        if let Some(known) = self.clients.opened(client, open.open_id) {
            return if known == (open.fid, purpose) { Ok(()) } else { Err(Errno::ESTALE) };
        }
        self.clients.may_open(client, open.open_id)?;
        self.opens.reopen(attr, client, purpose, linkable);
        self.clients.open(client, open.open_id, (open.fid, purpose));
        Ok(())
    }

    /// A client has this sequence of the run before.
    pub(crate) fn regrant(&mut self, client: ClientId, seq: Seq) -> Result<(), Errno> {
        if self.seqs.is_granted(seq) {
            return if self.seqs.is_of(seq, client) { Ok(()) } else { Err(Errno::ESTALE) };
        }
        if self.clients.seqs(client) >= crate::seqs::SEQS_PER_CLIENT_MAX as usize {
            return Err(Errno::ENOSPC);
        }
        self.seqs.grant_again(seq, client);
        self.clients.granted(client, seq);
        Ok(())
    }

    /// The key of what was written down behind the tag.
    pub(crate) fn stopped_key(key: &sateen_osd::Key) -> Result<&[u8], Errno> {
        key.as_bytes().get(keys::stopped().as_bytes().len()..).ok_or(Errno::EIO)
    }
}
