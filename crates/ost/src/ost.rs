//! The OST itself: takes events, moves operations along, gives effects.
//!
//! Called by the driver of the target, under its lock. What the single operations do stands
//! in `ops`; here is only what they have in common.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sateen_osd::{Batch, Key, ObjectDone, Prefetched, Store};
use sateen_target::{
    Core, CoreConfig, Effect, Ending, Fault, IoId, Outbox, Pace, ParkId, Patience, Service,
};
use sateen_types::units::MIB;
use sateen_types::{ClientId, Endpoint, Errno, ObjectId, Timestamp};
use sateen_wire::codec::Wire;
use sateen_wire::disk::ost::{ObjectRecord, ObjectState};
use sateen_wire::{Body, Bulk, Message, Reply, Request, StatFs};

use crate::ending::{Leaving, Unsynced};
use crate::op::{OPS_MAX, Op, State, Step, Work};
use crate::order::{Class, Order};
use crate::space::Space;
use crate::stats::{self, Counters, OstStats};
use crate::writers::{RECONNECT_NS, Writers};
use crate::{keys, ops};

/// How often the store is asked for its space while something is written: 1 s.
const STATFS_NS: u64 = 1_000_000_000;
/// The same while space is scarce, or something was freed: 50 ms.
const SCARCE_NS: u64 = 50_000_000;
/// Bytes waiting for the journal beyond which changes wait, too.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// So much of a range is allocated at once, and counts as taken meanwhile: 256 MiB.
const PIECE_BYTES: u64 = 256 * MIB;
/// Boxes of operations that are kept for others.
const SPARE_MAX: usize = 64;
/// Objects whose records' transnos are remembered one by one; beyond that a sync waits for
/// everything.
const DIRTY_MAX: usize = 1 << 16;

/// An object target.
#[derive(Debug)]
pub struct Ost {
    pub(crate) core: Core,
    pub(crate) now: Timestamp,
    pub(crate) space: Space,
    pub(crate) writers: Writers,
    /// How many tombstones there are.
    pub(crate) tombstones: u64,
    pub(crate) batch: Batch,
    order: Order,
    /// Boxed, because they are large and go in and out of the map at every step.
    ops: BTreeMap<u64, Box<Op>>,
    /// Boxes of those that are over, for the next ones.
    #[expect(clippy::vec_box, reason = "it is the boxes that are kept")]
    spare: Vec<Box<Op>>,
    next_op: u64,
    /// Operations whose turn has come.
    ready: VecDeque<u64>,
    /// Operations that wait for room in the memtables.
    stalled: Vec<u64>,
    fetching: BTreeMap<ParkId, u64>,
    /// Objects that were cut or removed by transactions of the next frame.
    cut: BTreeSet<ObjectId>,
    /// Transnos of records that are not durable yet.
    dirty: BTreeMap<ObjectId, u64>,
    /// Records up to here may be missing in `dirty`.
    dirty_rest: u64,
    /// The operation that reads what the last run left, and the time of the first event.
    starting: Option<u64>,
    started_ns: Option<u64>,
    gave_up_missing: bool,
    pub(crate) sweep_wanted: bool,
    /// Bytes of buffers for readers who brought none.
    pub(crate) buffered: usize,
    /// So much of a range is allocated at once.
    pub(crate) piece_bytes: u64,
    sweeping: bool,
    refreshing: bool,
    refreshed_ns: u64,
    /// How far the end of this run has come.
    pub(crate) leaving: Leaving,
    /// What is to be synced then.
    pub(crate) unsynced: Unsynced,
    /// Boot epochs of earlier runs of which nothing is lost.
    pub(crate) clean_runs: Vec<u64>,
    /// The same, of those that need not have ended in good order, until the start has come.
    pub(crate) survived: Vec<u64>,
    /// How long a client may be silent that has nothing under way.
    patience: Patience,
    counters: Counters,
}

impl Ost {
    /// An OST over a recovered store. It reads what the last run left with its first event.
    pub fn new(config: CoreConfig, store: Store) -> Ost {
        Ost {
            core: Core::new(config, store),
            now: Timestamp::default(),
            space: Space::default(),
            writers: Writers::default(),
            tombstones: 0,
            batch: Batch::new(),
            order: Order::default(),
            ops: BTreeMap::new(),
            spare: Vec::new(),
            next_op: 1,
            ready: VecDeque::new(),
            stalled: Vec::new(),
            fetching: BTreeMap::new(),
            cut: BTreeSet::new(),
            dirty: BTreeMap::new(),
            dirty_rest: 0,
            starting: None,
            started_ns: None,
            gave_up_missing: false,
            sweep_wanted: false,
            buffered: 0,
            piece_bytes: PIECE_BYTES,
            sweeping: false,
            refreshing: false,
            refreshed_ns: 0,
            leaving: Leaving::Not,
            unsynced: Unsynced::default(),
            clean_runs: Vec::new(),
            survived: Vec::new(),
            patience: Patience::of(RECONNECT_NS),
            counters: Counters::default(),
        }
    }

    /// The connected clients, for whoever looks in from outside: where each is reached, what it
    /// was promised, and what it has had done.
    pub fn exports(&self) -> impl Iterator<Item = (ClientId, Endpoint, u64, OstStats)> + '_ {
        let exports = &self.core.exports;
        let space = &self.space;
        exports.clients().filter_map(move |id| {
            Some((id, exports.peer(id)?, space.granted(id), self.counters.of(id)))
        })
    }

    /// Whom space is promised, for whoever looks in from outside.
    pub fn granted_to(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.space.clients()
    }

    /// What was done for all clients since the start, or since this was cleared.
    pub fn stats(&self) -> OstStats {
        *self.counters.all()
    }

    /// Counts anew.
    pub fn clear_stats(&mut self) {
        self.counters.clear();
    }

    /// The space as clients are told, if the store has said how much there is.
    pub fn statfs(&self) -> Option<StatFs> {
        self.space.shown()
    }

    /// The same, of a file system: messages about others are refused.
    #[must_use]
    pub fn of(mut self, file_system: u64) -> Ost {
        self.core.file_system = file_system;
        self
    }

    /// The same, whose store has all that was written in these runs, the last of which was the one
    /// before this, though they need not have ended in good order.
    #[must_use]
    pub fn nothing_lost_of(mut self, runs: Vec<u64>) -> Ost {
        self.survived = runs;
        self
    }

    /// The same with ranges allocated in such pieces, for tests.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: u64) -> Ost {
        self.piece_bytes = bytes;
        self
    }

    /// The same with so much patience for clients that are silent, for tests.
    #[must_use]
    pub fn patient_for(mut self, silence_ns: u64) -> Ost {
        self.patience = Patience::of(silence_ns);
        self
    }

    /// What every event begins with: the time, and at the first one the start.
    fn event(&mut self, now: Timestamp) {
        self.core.live(now);
        self.now = now;
        if self.started_ns.is_none() {
            self.started_ns = Some(now.mono_ns);
            self.starting = Some(self.enter(Op::new(Work::Start(ops::start::Start::new()))));
            self.refreshing = true;
            self.enter(Op::new(Work::Refresh));
        }
    }

    /// An operation arrives and takes its places. Returns its id.
    pub(crate) fn enter(&mut self, op: Op) -> u64 {
        let mut op = match self.spare.pop() {
            Some(mut spare) => {
                *spare = op;
                spare
            }
            None => Box::new(op),
        };
        let id = self.next_op;
        self.next_op += 1;
        let ranges = op.ranges();
        for object in &op.objects {
            let (ops, blockers) = (&mut self.ops, &mut op.blockers);
            self.order.enter(*object, id, (op.class, ranges.clone()), |earlier| {
                if let Some(earlier) = ops.get_mut(&earlier) {
                    earlier.followers.push(id);
                    *blockers += 1;
                }
            });
        }
        if let Some(start) = self.starting.and_then(|start| self.ops.get_mut(&start)) {
            start.followers.push(id);
            op.blockers += 1;
        }
        if op.blockers == 0 {
            self.ready.push_back(id);
        }
        self.ops.insert(id, op);
        id
    }

    /// Whether what the last run left is still being read.
    pub(crate) fn is_starting(&self) -> bool {
        self.starting.is_some() || self.started_ns.is_none()
    }

    /// Whether anybody waits for an answer.
    pub(crate) fn has_requests(&self) -> bool {
        let mut all = self.ops.values();
        all.any(|op| matches!(op.work, Work::Request { .. } | Work::Connect(_)) && !op.orphaned)
    }

    /// Runs whatever can run.
    fn pump(&mut self, out: &mut Outbox) {
        self.run_ready(out);
        if self.leaving != Leaving::Not && self.leave_on(out) {
            self.run_ready(out);
            self.leave_on(out);
        }
    }

    fn run_ready(&mut self, out: &mut Outbox) {
        while let Some(id) = self.ready.pop_front() {
            let Some(mut op) = self.ops.remove(&id) else { continue };
            op.state = State::Waiting;
            let step = if op.orphaned {
                Ok(Step::End)
            } else if self.core.is_poisoned() {
                if let Work::Connect(message) = &op.work {
                    self.core.admit(message.as_ref().clone(), out);
                }
                Err(Fault::Errno(Errno::EIO))
            } else {
                ops::begin(self, id, &mut op, out)
            };
            self.take_step(id, op, step, out);
        }
    }

    fn take_step(&mut self, id: u64, mut op: Box<Op>, step: Result<Step, Fault>, out: &mut Outbox) {
        match step {
            Ok(Step::Io(io)) => {
                self.unsynced.begins(&io);
                op.state = State::Io;
                out.push(Effect::Object { id: IoId(id), op: io });
                self.ops.insert(id, op);
            }
            Ok(Step::Again) => {
                if op.blockers == 0 {
                    self.ready.push_back(id);
                }
                self.ops.insert(id, op);
            }
            Err(Fault::Miss) => {
                op.state = State::Fetching;
                self.fetching.insert(self.core.fetch_wanted(out), id);
                self.ops.insert(id, op);
            }
            Err(Fault::Blocked) => {
                self.stalled.push(id);
                self.ops.insert(id, op);
            }
            Ok(Step::Answer(reply, bulk)) => self.finish(id, op, Some((reply, bulk, 0)), out),
            Ok(Step::Durable(reply, upto)) => {
                self.finish(id, op, Some((reply, Bulk::None, upto)), out);
            }
            Ok(Step::End) => self.finish(id, op, None, out),
            Err(Fault::Errno(errno)) => {
                if matches!(op.work, Work::Start(_)) && !self.core.is_poisoned() {
                    // Without what the last run left, a dead object could be raised.
                    self.core.poison(out);
                }
                self.finish(id, op, Some((Reply::error(errno), Bulk::None, 0)), out);
            }
        }
    }

    /// The operation is over: answers it, and lets those behind it run.
    fn finish(
        &mut self,
        id: u64,
        mut op: Box<Op>,
        answer: Option<(Reply, Bulk, u64)>,
        out: &mut Outbox,
    ) {
        self.space.finished(op.charged);
        self.space.comes(&mut op.to_come, 0);
        if op.buffered > 0 {
            self.buffered -= op.buffered;
            self.ready.extend(self.stalled.drain(..));
        }
        if let (Some((reply, bulk, upto)), Work::Request { header, request, .. }) =
            (answer, &op.work)
            && !op.orphaned
        {
            stats::done(&mut self.counters, header.client, request, &reply);
            if upto > self.core.store.committed() {
                self.core.answer_durable(header, reply, upto, out);
            } else {
                self.core.answer(header, reply, bulk, out);
            }
        }
        match &op.work {
            Work::Start(_) => self.starting = None,
            Work::Sweep(_) => self.sweeping = false,
            Work::Refresh => self.refreshing = false,
            Work::Settle if self.leaving == Leaving::Syncing => {
                self.leaving = Leaving::Ended(Ending::Lost);
            }
            Work::Settle => {}
            Work::Connect(_) | Work::Request { .. } => {}
        }
        for object in &op.objects {
            self.order.leave(*object, id);
        }
        for follower in &op.followers {
            let Some(later) = self.ops.get_mut(follower) else { continue };
            later.blockers -= 1;
            if later.blockers == 0 {
                self.ready.push_back(*follower);
            }
        }
        if self.spare.len() < SPARE_MAX {
            // What it had goes now: somebody may wait for its buffer.
            *op = Op::new(Work::Refresh);
            self.spare.push(op);
        }
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// [`Fault::Miss`], or `EIO` if the record is damaged.
    pub(crate) fn object(
        &self,
        object: ObjectId,
        fetched: &Prefetched,
    ) -> Result<Option<ObjectState>, Fault> {
        match self.core.store.get(&keys::object(object), fetched)? {
            None => Ok(None),
            Some(bytes) => ObjectState::from_bytes(bytes).map(Some).map_err(|error| {
                tracing::error!(%object, %error, "damaged object record");
                Fault::Errno(Errno::EIO)
            }),
        }
    }

    /// Whether there is room for a transaction; to be asked before anything is changed.
    ///
    /// # Errors
    /// [`Fault::Blocked`] while the memtables or the journal's buffer are full.
    pub(crate) fn room(&self) -> Result<(), Fault> {
        let store = &self.core.store;
        if store.must_wait() || store.pending_bytes() > PENDING_BYTES_MAX {
            return Err(Fault::Blocked);
        }
        Ok(())
    }

    /// Journals a new record of an object.
    pub(crate) fn put_record(&mut self, object: ObjectId, record: ObjectRecord) -> u64 {
        self.batch.clear();
        self.batch.put(&keys::object(object), &ObjectState::Live(record));
        let transno = self.commit();
        self.note_dirty(object, transno);
        transno
    }

    /// Journals what stands in the batch.
    pub(crate) fn commit(&mut self) -> u64 {
        self.core.commit(&self.batch)
    }

    /// The object's record changed in this transaction.
    pub(crate) fn note_dirty(&mut self, object: ObjectId, transno: u64) {
        if self.dirty.len() >= DIRTY_MAX {
            self.dirty.clear();
            self.dirty_rest = transno;
        }
        self.dirty.insert(object, transno);
    }

    /// The transaction that was just journaled says that the object was cut or removed, which
    /// has to be durable first.
    pub(crate) fn note_cut(&mut self, object: ObjectId) {
        self.cut.insert(object);
    }

    /// How far the journal must be durable before the records of these objects are.
    pub(crate) fn dirty_upto(&self, objects: &[ObjectId]) -> u64 {
        let each = objects.iter().filter_map(|object| self.dirty.get(object).copied());
        each.max().unwrap_or(0).max(self.dirty_rest)
    }

    /// Operation `id` waits for all I/O under way for a client that changes objects; whether there
    /// is any. What reads or syncs may end later: nobody is told of it, and a sync may take minutes.
    pub(crate) fn wait_for_client(&mut self, id: u64, op: &mut Op, client: ClientId) -> bool {
        for other in self.ops.values_mut() {
            let changes = matches!(other.class, Class::Write | Class::Exclusive);
            if changes && other.client() == Some(client) && other.state == State::Io {
                other.followers.push(id);
                op.blockers += 1;
            }
        }
        op.blockers > 0
    }

    /// A client has gone for good: nothing it left behind is begun, its grant and its number
    /// go back. Returns the transno, if that is a transaction.
    pub(crate) fn client_gone(&mut self, client: ClientId) -> Option<u64> {
        for op in self.ops.values_mut() {
            op.orphaned |= op.client() == Some(client);
        }
        self.space.release(client);
        self.counters.gone(client);
        if !self.writers.gone(client) {
            return None;
        }
        self.sweep_wanted = true;
        self.batch.clear();
        self.batch.remove(&keys::writer(client));
        Some(self.commit())
    }

    fn request(&mut self, message: Message, out: &mut Outbox) {
        let header = message.header;
        let full = self.ops.len() >= OPS_MAX;
        let op = match message.body {
            Body::Request(Request::Disconnect) => {
                self.client_gone(header.client);
                return;
            }
            // It comes again, and has used up no grant.
            Body::Request(_) if full => Err(Errno::EAGAIN),
            Body::Request(Request::Ost(request)) => Op::request(header, request, message.bulk),
            _ => Err(Errno::EOPNOTSUPP),
        };
        match op {
            Ok(op) => {
                self.enter(op);
            }
            Err(errno) => self.core.answer(&header, Reply::error(errno), Bulk::None, out),
        }
    }

    /// What ticks are for: see `on_tick`.
    fn pace_now(&self) -> Pace {
        let leaves = !matches!(self.leaving, Leaving::Not | Leaving::Ended(_));
        let sweeps = self.sweep_wanted && !self.sweeping && self.tombstones > 0;
        if leaves || sweeps || self.is_starting() || !self.stalled.is_empty() {
            Pace::Soon
        } else if self.space.is_scarce() || self.space.is_old() {
            Pace::Slow
        } else {
            Pace::Rest
        }
    }

    /// What is to be done from time to time.
    fn chores(&mut self) {
        let now = self.now.mono_ns;
        let wait = if self.space.is_scarce() { SCARCE_NS } else { STATFS_NS };
        let due = now.saturating_sub(self.refreshed_ns) >= wait;
        if !self.refreshing && due && (self.space.is_old() || self.space.is_scarce()) {
            self.refreshing = true;
            self.refreshed_ns = now;
            self.enter(Op::new(Work::Refresh));
        }
        if self.starting.is_some() {
            return;
        }
        let since_start = now.saturating_sub(self.started_ns.unwrap_or(now));
        if !self.gave_up_missing && since_start >= RECONNECT_NS {
            self.gave_up_missing = true;
            for client in self.writers.missing() {
                self.client_gone(client);
            }
        }
        self.let_the_silent_go();
        if self.sweep_wanted && !self.sweeping && self.tombstones > 0 {
            self.sweep_wanted = false;
            self.sweeping = true;
            self.enter(Op::new(Work::Sweep(Key::EMPTY)));
        }
    }
}

impl Ost {
    /// Ends the connections of clients of which nothing was heard for long: they may have died, with
    /// grants in hand, and without an MDT to know them (one evicts them, and has them fenced). They
    /// are not refused: one that only had nothing to ask connects anew. Tombstones need not wait for
    /// it either, because it does not write what its locks no longer are for: what it sent on the
    /// connection before is refused, and what it sends again it holds its locks for.
    ///
    /// Whoever has something under way, or waiting, is spared: he will ask for the answer.
    fn let_the_silent_go(&mut self) {
        if self.room().is_err() {
            return;
        }
        let mut silent = self.core.silent(&self.patience);
        if silent.is_empty() {
            return;
        }
        let busy: BTreeSet<ClientId> = self.ops.values().filter_map(|op| op.client()).collect();
        silent.retain(|client| !busy.contains(client));
        for client in silent {
            let client_id = format_args!("{:x}", client.0);
            tracing::info!(client = client_id, "nothing is heard of it: its connection ends");
            self.core.exports.disconnect(client);
            self.client_gone(client);
        }
    }
}

impl Service for Ost {
    fn store(&mut self) -> &mut Store {
        &mut self.core.store
    }

    fn sync_before_flush(&mut self) -> Vec<ObjectId> {
        core::mem::take(&mut self.cut).into_iter().collect()
    }

    fn on_message(&mut self, now: Timestamp, message: Message, out: &mut Outbox) {
        self.event(now);
        if self.leaving != Leaving::Not {
            // It is sent again, to the next run. A goodbye is heard as long as that can be noted.
            let answering = matches!(self.leaving, Leaving::Answering { .. });
            let goodbye = matches!(message.body, Body::Request(Request::Disconnect));
            if answering
                && goodbye
                && let Some(message) = self.core.admit(message, out)
            {
                self.request(message, out);
            }
        } else if matches!(message.body, Body::Request(Request::Connect { .. })) {
            if self.ops.len() < OPS_MAX {
                self.enter(Op::new(Work::Connect(Box::new(message))));
            }
        } else if let Some(message) = self.core.admit(message, out) {
            self.request(message, out);
        }
        self.pump(out);
    }

    fn on_object_done(&mut self, now: Timestamp, id: IoId, done: ObjectDone, out: &mut Outbox) {
        self.event(now);
        if let Some(mut op) = self.ops.remove(&id.0) {
            op.state = State::Waiting;
            let step = match done {
                ObjectDone::Failed(error) => {
                    if op.class == Class::Sync {
                        self.unsynced.failed(&op.objects);
                    }
                    ops::failed(self, &mut op, &error, out)
                }
                done => ops::done(self, &mut op, done),
            };
            self.take_step(id.0, op, step, out);
        }
        self.pump(out);
    }

    fn on_prefetched(&mut self, now: Timestamp, id: ParkId, view: Prefetched, out: &mut Outbox) {
        self.event(now);
        self.core.store.keep(&view);
        if let Some(id) = self.fetching.remove(&id)
            && let Some(op) = self.ops.get_mut(&id)
        {
            op.fetched.extend(view);
            self.ready.push_back(id);
        }
        self.pump(out);
    }

    fn on_flushed(&mut self, now: Timestamp, out: &mut Outbox) {
        self.event(now);
        let committed = self.core.store.committed();
        self.dirty.retain(|_, transno| *transno > committed);
        self.core.flushed(out);
        self.ready.extend(self.stalled.drain(..));
        self.pump(out);
    }

    fn pace(&mut self) -> Pace {
        let pace = self.pace_now();
        self.core.paced(pace)
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        self.event(now);
        self.ready.extend(self.stalled.drain(..));
        if self.leaving == Leaving::Not {
            self.chores();
        }
        self.pump(out);
    }

    fn on_heard(&mut self, peers: &[Endpoint]) {
        self.core.network_heard(peers);
    }

    fn on_stop(&mut self, now: Timestamp, out: &mut Outbox) {
        self.event(now);
        self.leave();
        self.pump(out);
    }

    fn ending(&self) -> Ending {
        match self.leaving {
            Leaving::Ended(ending) => ending,
            _ => Ending::Working,
        }
    }

    fn on_poisoned(&mut self, now: Timestamp, out: &mut Outbox) {
        self.now = now;
        self.core.poison(out);
        // Those with I/O under way are answered when it comes back; the index may not.
        self.ready.extend(core::mem::take(&mut self.fetching).into_values());
        self.ready.extend(self.stalled.drain(..));
        self.pump(out);
    }
}
