//! The MDT as a service: which event goes where, and how a request ends.

use std::collections::{BTreeMap, VecDeque};

use sateen_ldlm::{Contention, FileLocks, LockTable, Need, Ticket};
use sateen_osd::{Batch, ObjectDone, Prefetched, Store};
use sateen_target::{Core, CoreConfig, Effect, Ending, Fault, IoId, Outbox, Pace, ParkId, Service};
use sateen_types::{ClientId, Comb, Endpoint, Errno, Fid, Timestamp};
use sateen_wire::{
    Body, Bulk, Callback, GROUPS, Grants, Header, Ibits, LockId, MdtReply, MdtRequest, Message,
    Reply, Request, StatFs,
};

use crate::alloc::Allocator;
use crate::clients::Clients;
use crate::config::{MdtConfig, OstConfig};
use crate::layouts::LayoutCache;
use crate::llog::{Cutting, Llog};
use crate::op::{self, Op, Outcome, Punch};
use crate::opens::Opens;
use crate::ops;
use crate::osp::{Done, Osp};
use crate::recovery::Recovery;
use crate::room::Room;
use crate::seqs::Seqs;
use crate::sharing::Sharing;
use crate::startup::Startup;
use crate::stats::{self, Counters, Why};
use crate::stop::{Leaving, Trace};
use crate::work::Work;

/// Most requests held while the MDT starts or its memory is full.
pub const HELD_MAX: usize = 1 << 16;
/// How often it is looked whom an OST keeps waiting: 1 s.
const LOOK_NS: u64 = 1_000_000_000;
/// Bytes waiting for the journal beyond which changes are held.
const PENDING_BYTES_MAX: usize = 8 << 20;

/// Whether it tells what a client had of the run before.
const fn is_claim(request: &MdtRequest) -> bool {
    matches!(
        request,
        MdtRequest::Reclaim { .. }
            | MdtRequest::ReclaimGroups { .. }
            | MdtRequest::ReclaimParts { .. }
    )
}

/// A metadata target.
#[derive(Debug)]
pub struct Mdt {
    pub(crate) core: Core,
    pub(crate) config: MdtConfig,
    pub(crate) locks: LockTable,
    /// Which files several clients write at a time.
    pub(crate) contention: Contention,
    /// Those of programs.
    pub(crate) file_locks: FileLocks,
    pub(crate) opens: Opens,
    pub(crate) clients: Clients,
    pub(crate) seqs: Seqs,
    pub(crate) alloc: Allocator,
    pub(crate) room: Room,
    pub(crate) layouts: LayoutCache,
    pub(crate) osp: Osp,
    pub(crate) llog: Llog,
    /// What was found out about a size's objects under versions up to this one is not believed: it
    /// may be older than the last write of a client that was lost.
    pub(crate) glimpse_floor: u64,
    /// Inodes that exist.
    pub(crate) inodes: u64,
    /// The transaction being built; kept for its memory.
    pub(crate) batch: Batch,
    pub(crate) scratch: Vec<u8>,
    pub(crate) startup: Startup,
    /// Clients of the run before that come back.
    pub(crate) recovery: Recovery,
    /// What of all changes is not durable yet, and whose it is.
    pub(crate) sharing: Sharing,
    /// How far the end of this run has come.
    pub(crate) leaving: Leaving,
    pub(crate) works: VecDeque<Work>,
    /// Own work that waits for the index.
    pub(crate) working: BTreeMap<ParkId, (Work, Prefetched)>,
    /// Requests that wait for locks.
    pub(crate) parked: BTreeMap<Ticket, Message>,
    /// Tickets of requests that wait for the index.
    pub(crate) tickets: BTreeMap<ParkId, Ticket>,
    /// Requests that wait until the clients of the last run are fenced.
    pub(crate) unfenced: Vec<(Message, Option<Ticket>)>,
    /// An OST was taken out of use or back into it, or truncates of the last run were found.
    pub(crate) look_at_cuttings: bool,
    /// It is known who can be blamed for being late.
    pub(crate) may_evict: bool,
    /// When that was looked at last.
    looked_ns: u64,
    /// Requests that wait for the start, or for memory.
    pub(crate) held: VecDeque<Message>,
    pub(crate) counters: Counters,
}

impl Mdt {
    /// Starts an MDT over a recovered store.
    pub fn new(
        core: CoreConfig,
        store: Store,
        config: MdtConfig,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Mdt {
        let osts: Vec<u32> = config.osts.iter().map(|ost| ost.index).collect();
        let state = sateen_wire::disk::mdt::SeqState { round: 0, next: sateen_types::seq::END };
        let found = store.transno();
        let mut mdt = Mdt {
            core: Core::new(core, store),
            locks: LockTable::of_boot(core.boot_epoch),
            contention: Contention::default(),
            file_locks: FileLocks::default(),
            opens: Opens::default(),
            clients: Clients::default(),
            seqs: Seqs::new(config.index, state),
            alloc: Allocator::new(&config.osts, config.stripe),
            room: Room::default(),
            layouts: LayoutCache::default(),
            osp: Osp::new(core.me, config.index, core.boot_epoch, &osts),
            llog: Llog::default(),
            glimpse_floor: 0,
            inodes: 0,
            batch: Batch::new(),
            scratch: Vec::new(),
            startup: Startup::new(found),
            recovery: Recovery::default(),
            sharing: Sharing::default(),
            leaving: Leaving::Not,
            works: VecDeque::from([Work::Startup]),
            working: BTreeMap::new(),
            parked: BTreeMap::new(),
            tickets: BTreeMap::new(),
            unfenced: Vec::new(),
            look_at_cuttings: false,
            may_evict: false,
            looked_ns: 0,
            held: VecDeque::new(),
            counters: Counters::default(),
            config,
        };
        mdt.core.file_system = mdt.config.file_system;
        mdt.osp.file_system = mdt.config.file_system;
        mdt.osp.set_destroy_delay(mdt.config.destroy_delay_ns);
        mdt.locks.set_callback_limit(mdt.config.callback_limit_ns);
        let (limit, reclaim) = mdt.lock_bytes();
        mdt.set_lock_bytes(limit, reclaim);
        mdt.contention.set(mdt.config.contended_locks, mdt.config.contention_ns);
        mdt.file_locks.set_callback_limit(mdt.config.callback_limit_ns);
        let now = mdt.core.live(now);
        mdt.settle(now, out);
        mdt.osp.pump(now, out);
        mdt
    }

    /// Whether everything that the last run left is finished, and nothing waits for an OST.
    pub fn is_idle(&self) -> bool {
        self.startup.finished()
            && self.works.is_empty()
            && self.working.is_empty()
            && self.clients.all_are_fenced()
            && self.llog.is_idle()
    }

    /// An OST has been added to the file system: it is connected to at the next tick, and new
    /// files may lie on it. One that is known stays as it is.
    ///
    /// It needs no list of what the last run left, and no fences of it: no file had a stripe
    /// there. An MDT must be started with all OSTs that were ever registered.
    pub fn add_ost(&mut self, index: u32) {
        if self.osp.add(index) {
            let ost = OstConfig { index, statfs: None };
            self.alloc.add(&ost);
            self.config.osts.push(ost);
        }
    }

    /// The incarnations that hold locks on a file, for whoever looks in from outside.
    pub fn lock_holders(&self, fid: Fid) -> impl Iterator<Item = sateen_ldlm::Held> + '_ {
        self.locks.holders(fid)
    }

    /// All locks, its own too, and what each is named, likewise.
    pub fn all_locks(&self) -> impl Iterator<Item = (LockId, sateen_ldlm::Held)> + '_ {
        self.locks.all()
    }

    /// Those that have parts of its data, and which, likewise.
    pub fn lock_combs(&self, fid: Fid) -> impl Iterator<Item = (ClientId, Comb)> + '_ {
        self.locks.combs(fid)
    }

    /// The programs' locks, for whoever looks in from outside.
    pub fn file_locks(&self) -> &FileLocks {
        &self.file_locks
    }

    /// Whether a client is connected, for whoever looks in from outside.
    pub fn is_connected(&self, client: ClientId) -> bool {
        self.core.exports.is_connected(client)
    }

    /// Throws a client out, as an administrator does.
    pub fn evict_client(&mut self, now: Timestamp, client: ClientId, out: &mut Outbox) {
        if self.is_leaving() {
            return;
        }
        let now = self.core.live(now);
        self.clients.evict_soon(client);
        self.settle(now, out);
        self.osp.pump(now, out);
    }

    /// Whether a request has to wait before it is even looked at.
    pub(crate) fn must_hold(&self) -> bool {
        !self.startup.serving()
            || self.recovery.unmarked() > self.core.store.committed()
            || self.core.store.must_wait()
            || self.core.store.pending_bytes() > PENDING_BYTES_MAX
    }

    fn accept(&mut self, now: Timestamp, message: Message, out: &mut Outbox) {
        if self.held.is_empty() && !self.must_hold() || self.is_of_recovery(&message) {
            self.execute(now, (message, Prefetched::default()), None, out);
        } else if self.held.len() < HELD_MAX
            || matches!(message.body, Body::Request(Request::Disconnect))
        {
            // A good-bye has closed its export already: there is one of each client.
            out.push(Effect::Flush);
            self.held.push_back(message);
        } else {
            self.core.answer(&message.header, Reply::error(Errno::EAGAIN), Bulk::None, out);
        }
    }

    /// What clients of the run before say is heard at once, while they are waited for.
    fn is_of_recovery(&self, message: &Message) -> bool {
        self.startup.in_window()
            && matches!(
                message.body,
                Body::Request(
                    Request::Disconnect
                        | Request::Mdt(
                            MdtRequest::Reclaim { .. }
                                | MdtRequest::ReclaimGroups { .. }
                                | MdtRequest::ReclaimParts { .. }
                                | MdtRequest::Replay { .. }
                        )
                )
            )
    }

    fn run_held(&mut self, now: Timestamp, out: &mut Outbox) {
        while !self.must_hold()
            && let Some(message) = self.held.pop_front()
        {
            self.execute(now, (message, Prefetched::default()), None, out);
        }
        if self.startup.in_window() && self.held.iter().any(|held| self.is_of_recovery(held)) {
            let held = core::mem::take(&mut self.held);
            let (now_heard, held) = held.into_iter().partition(|held| self.is_of_recovery(held));
            self.held = held;
            let now_heard: VecDeque<Message> = now_heard;
            for message in now_heard {
                self.execute(now, (message, Prefetched::default()), None, out);
            }
        }
    }

    /// Executes a request from its start.
    pub(crate) fn execute(
        &mut self,
        now: Timestamp,
        (message, fetched): (Message, Prefetched),
        ticket: Option<Ticket>,
        out: &mut Outbox,
    ) {
        let header = message.header;
        let Body::Request(request) = &message.body else { return };
        let Request::Mdt(request) = request else {
            match request {
                Request::Connect { .. } => self.connect(message, out),
                Request::Disconnect => self.disconnected(header.client),
                _ => {
                    self.core.answer(&header, Reply::error(Errno::EOPNOTSUPP), Bulk::None, out);
                }
            }
            return;
        };
        if !self.core.is_current(&header) {
            if let Some(ticket) = ticket {
                self.locks.finish(ticket);
            }
            return;
        }
        let client = header.client;
        if is_claim(request) && self.recovery.comes_early(client) {
            self.recovery.replays.came_early(message);
            return;
        }
        let since = self.record_client(client, header.slot, request);
        self.clients.leave_trace(client, (header.slot, header.seq), Trace::of(request));
        let mut op = Op {
            now,
            header: &header,
            client,
            fetched: &fetched,
            ticket,
            fenced: self.clients.old_are_fenced(),
            waits_for_fences: false,
            moves_tree: false,
            told: false,
            asks_again: self.knows_groups(client),
            grouped: false,
            again: None,
        };
        let result = match self.recovery.became(&header) {
            None => ops::run(self, &mut op, request),
            Some(transno) => ops::reconstruct(self, &mut op, request, transno),
        };
        let Op { ticket, waits_for_fences, grouped, .. } = op;
        let shared = self.share(client, request, &result, op.moves_tree);
        match result {
            Err(Fault::Miss) => {
                let id = self.core.park_for_index(message, fetched, out);
                if let Some(ticket) = ticket {
                    self.tickets.insert(id, ticket);
                }
                return;
            }
            // Whoever waits for others begins anew then. What was read for it may be much, and many
            // may wait for long: it is read again.
            Err(Fault::Blocked) if waits_for_fences => {
                self.unfenced.push((message, ticket));
                return;
            }
            Err(Fault::Blocked) if grouped => {
                let reply = op::reply(MdtReply::Grouped, 0, Grants::NONE);
                self.core.answer_durable(&header, reply, since, out);
            }
            Err(Fault::Blocked) => {
                if let Some(ticket) = ticket {
                    self.parked.insert(ticket, message);
                }
                return;
            }
            Err(Fault::Errno(error)) => {
                self.core.answer_durable(&header, Reply::error(error), shared, out);
            }
            Ok(Outcome::Reply(mut reply)) => {
                if reply.transno > 0 {
                    reply.time = now.wall();
                }
                stats::done(&mut self.counters, client, request, &reply);
                self.core.answer_durable(&header, reply, since.max(shared), out);
            }
            Ok(Outcome::Durable(reply, upto)) => {
                stats::done(&mut self.counters, client, request, &reply);
                self.core.answer_durable(&header, reply, upto.max(since).max(shared), out);
            }
            Ok(Outcome::Punch(reply, punch)) => {
                stats::done(&mut self.counters, client, request, &reply);
                self.cut(punch, &header, reply, out);
            }
            Ok(Outcome::WhenCut(mut reply, transno)) => {
                if reply.transno > 0 {
                    reply.time = now.wall();
                }
                match self.llog.cutting_by(transno).filter(|cutting| !cutting.stuck) {
                    Some(cutting) => cutting.answer = Some((header, reply)),
                    None => self.core.answer_durable(&header, reply, since.max(shared), out),
                }
            }
        }
        if let Some(ticket) = ticket {
            self.locks.finish(ticket);
        }
    }

    /// Whether a client is to be told that a group is in its way.
    fn knows_groups(&self, client: ClientId) -> bool {
        self.core.exports.features(client).is_some_and(|all| all & GROUPS != 0)
    }

    /// A truncate is committed: nobody else gets at the file's data until its objects are cut.
    fn cut(&mut self, punch: Punch, header: &Header, reply: Reply, out: &mut Outbox) {
        let hold = self.locks.hold(&Need::all_gone(punch.fid, Ibits::DATA));
        self.llog.punch(reply.transno, punch, hold, Some((*header, reply)));
        out.push(Effect::Flush);
    }

    /// What an OST out of use has still to cut stays locked, because a late cut would take what
    /// was written since; but nobody waits for it. The size is what the truncate has made it, and
    /// that is answered; who wants the data is told `EIO` until the OST has cut.
    fn give_up_cuttings(&mut self, now: Timestamp, out: &mut Outbox) {
        let mut given_up = Vec::new();
        for cutting in self.llog.cuttings() {
            let stuck = cutting.osts().into_iter().any(|ost| !self.alloc.is_active(ost));
            if stuck == cutting.stuck {
                continue;
            }
            cutting.stuck = stuck;
            if let Some(hold) = cutting.hold {
                self.locks.set_stuck(now.mono_ns, cutting.punch.fid, hold, stuck);
            }
            if stuck {
                given_up.extend(cutting.answer.take());
            }
        }
        // Before the answers: who has truncated gives his lock back before he goes on.
        self.send_callbacks(now, out);
        for (header, mut reply) in given_up {
            let granted = core::mem::replace(&mut reply.grants, Grants::NONE);
            for grant in granted.iter().filter(|grant| !grant.bits.intersects(Ibits::DATA)) {
                let fits = reply.grants.push(*grant);
                debug_assert!(fits, "there were more");
            }
            let upto = reply.transno;
            self.core.answer_durable(&header, reply, upto, out);
        }
    }

    fn was_cut(&mut self, transno: u64, ost: Option<u32>, out: &mut Outbox) {
        let Some(Cutting { punch, hold, answer, .. }) = self.llog.punched(transno, ost) else {
            // Perhaps only OSTs are left that can be waited for.
            self.look_at_cuttings |= self.llog.is_stuck(transno);
            return;
        };
        if let Some(hold) = hold {
            self.locks.release(punch.fid, hold);
        }
        if let Some((header, reply)) = answer {
            self.core.answer(&header, reply, Bulk::None, out);
        }
    }

    fn send_callbacks(&mut self, now: Timestamp, out: &mut Outbox) {
        for called in self.locks.take_callbacks() {
            let callback = Callback::Blocking { fid: called.fid, id: called.id };
            if let Some(message) = self.core.callback(called.client, callback) {
                out.send(message);
            }
        }
        for asked in self.locks.take_questions() {
            let (fid, id, question) = (asked.fid, asked.id, asked.number);
            let callback = Callback::Glimpse { fid, id, question };
            if let Some(message) = self.core.callback(asked.client, callback) {
                out.send(message);
            }
        }
        for turn in self.file_locks.take_turns(now.mono_ns) {
            let callback = Callback::FileLockTurn { fid: turn.fid, wait: turn.wait };
            if let Some(message) = self.core.callback(turn.client, callback) {
                out.send(message);
            }
        }
    }

    /// After every event: own work, woken requests, callbacks.
    fn settle(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.is_leaving() {
            self.leave_on(now, out);
            return;
        }
        loop {
            self.let_go_of_lost();
            self.run_works(now, out);
            if self.startup.knows_clients() {
                self.evict_those(out);
            }
            self.look_at_window(now, out);
            // Who holds what is not known before.
            if self.startup.serving() && core::mem::take(&mut self.look_at_cuttings) {
                self.give_up_cuttings(now, out);
            }
            if self.clients.old_are_fenced() {
                for (message, ticket) in core::mem::take(&mut self.unfenced) {
                    self.execute(now, (message, Prefetched::default()), ticket, out);
                }
            }
            let Some(ticket) = self.locks.take_woken() else { break };
            if let Some(parked) = self.parked.remove(&ticket) {
                self.execute(now, (parked, Prefetched::default()), Some(ticket), out);
            }
        }
        if !self.held.is_empty() {
            self.run_held(now, out);
        }
        if self.locks.is_crowded() && self.startup.serving() {
            self.locks.ask_back_surplus(now.mono_ns);
        }
        self.send_callbacks(now, out);
    }

    fn ost_done(&mut self, done: Done, out: &mut Outbox) {
        match done {
            Done::Destroyed(objects) => {
                for seq in self.llog.destroyed(&objects) {
                    self.startup_done(seq);
                }
            }
            Done::Punched { ost, transno } => self.was_cut(transno, Some(ost), out),
            Done::Fenced { ost, client } => self.fenced(ost, client),
            Done::Listed { ost, seq, objects } => {
                self.works.push_back(Work::Reconcile { ost, seq, objects });
            }
            Done::StatFs { ost, statfs } => self.alloc.set_statfs(ost, statfs),
        }
    }

    /// Hands to the OSTs what has become durable, and drops records that are done with.
    pub(crate) fn run_llog(&mut self, now: Timestamp, out: &mut Outbox) {
        for transno in self.llog.durable(self.core.store.committed(), &mut self.osp) {
            self.was_cut(transno, None, out);
        }
        self.drop_done();
        self.osp.pump(now, out);
    }

    pub(crate) fn drop_done(&mut self) {
        while self.llog.has_done() && !self.core.store.must_wait() {
            self.batch.clear();
            for key in self.llog.take_done() {
                self.batch.remove(&key);
            }
            self.core.commit(&self.batch);
        }
    }
}

impl Service for Mdt {
    fn store(&mut self) -> &mut Store {
        &mut self.core.store
    }

    fn on_message(&mut self, now: Timestamp, message: Message, out: &mut Outbox) {
        let now = self.core.live(now);
        match message.body {
            Body::Reply(reply) => {
                if self.core.is_poisoned() {
                    return;
                }
                if let Some(done) = self.osp.on_reply(now, &message.header, reply) {
                    self.ost_done(done, out);
                }
                self.settle(now, out);
                self.osp.pump(now, out);
            }
            Body::Request(_) if self.is_leaving() => {
                self.hear_goodbye(message, out);
                self.settle(now, out);
            }
            Body::Request(Request::Connect { .. }) if !self.core.is_poisoned() => {
                if self.startup.knows_clients() {
                    self.connect(message, out);
                } else if self.held.len() < HELD_MAX {
                    self.held.push_back(message);
                }
                self.settle(now, out);
                self.osp.pump(now, out);
            }
            Body::Request(_) => {
                let Some(message) = self.core.admit(message, out) else { return };
                self.accept(now, message, out);
                self.settle(now, out);
            }
            Body::Callback(_) => {}
        }
    }

    fn on_object_done(&mut self, _: Timestamp, _: IoId, _: ObjectDone, _: &mut Outbox) {}

    fn on_prefetched(&mut self, now: Timestamp, id: ParkId, view: Prefetched, out: &mut Outbox) {
        if self.core.is_poisoned() || self.is_leaving() {
            return;
        }
        let now = self.core.live(now);
        if let Some((work, mut fetched)) = self.working.remove(&id) {
            self.core.store.keep(&view);
            fetched.extend(view);
            self.run_work(now, (work, fetched), out);
        } else if let Some((message, fetched)) = self.core.unpark(id, view) {
            let ticket = self.tickets.remove(&id);
            self.execute(now, (message, fetched), ticket, out);
        }
        self.settle(now, out);
        self.evict_overdue(now, out);
    }

    fn on_flushed(&mut self, now: Timestamp, out: &mut Outbox) {
        let now = self.core.live(now);
        self.core.flushed(out);
        self.sharing.durable(self.core.store.committed());
        if self.has_answers() {
            self.run_llog(now, out);
        }
        self.settle(now, out);
    }

    fn pace(&mut self) -> Pace {
        let pace = self.pace_now();
        self.core.paced(pace)
    }

    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.core.is_poisoned() {
            return;
        }
        let now = self.core.live(now);
        for (ost, health) in self.osp.health(now.mono_ns) {
            self.alloc.set_health(ost, health);
        }
        if self.has_answers() {
            self.run_llog(now, out);
        }
        for fid in self.contention.over(now.mono_ns) {
            self.locks.call_back_shared(now.mono_ns, fid);
        }
        self.settle(now, out);
        if self.is_leaving() {
            return;
        }
        // Whom an OST keeps waiting is looked up, which is not done at each tick.
        let soon = now.mono_ns < self.looked_ns.saturating_add(LOOK_NS);
        let looks = self.working.values().any(|(work, _)| matches!(work, Work::Overdue));
        let waits = soon && self.alloc.has_away();
        if !looks && !waits {
            self.looked_ns = now.mono_ns;
            self.run_work(now, (Work::Overdue, Prefetched::default()), out);
        }
        self.evict_overdue(now, out);
        if self.evict_silent(out) {
            self.run_llog(now, out);
            self.settle(now, out);
        }
    }

    fn on_heard(&mut self, peers: &[Endpoint]) {
        self.core.network_heard(peers);
    }

    fn on_space(&mut self, space: StatFs) {
        self.room.learn(space);
    }

    fn on_stop(&mut self, now: Timestamp, out: &mut Outbox) {
        let now = self.core.live(now);
        self.leave(now, out);
    }

    fn ending(&self) -> Ending {
        match self.leaving {
            Leaving::Ended(ending) => ending,
            _ => Ending::Working,
        }
    }

    fn on_poisoned(&mut self, _: Timestamp, out: &mut Outbox) {
        if self.is_leaving() {
            self.leaving = Leaving::Ended(Ending::Lost);
        }
        self.stop(out);
    }
}

impl Mdt {
    /// What ticks are for: see `on_tick`.
    fn pace_now(&self) -> Pace {
        if self.core.is_poisoned() || matches!(self.leaving, Leaving::Ended(_)) {
            return Pace::Rest;
        }
        let goes_on = self.is_leaving()
            || !self.startup.serving()
            || self.look_at_cuttings
            || self.clients.are_unwanted()
            || !self.works.is_empty()
            || !self.working.is_empty()
            || !self.held.is_empty()
            || !self.unfenced.is_empty()
            || !self.parked.is_empty();
        let asks = self.osp.asks()
            || self.llog.has_done()
            || self.locks.has_called()
            || self.locks.is_crowded()
            || !self.contention.is_empty()
            || self.file_locks.has_offered();
        match (goes_on, asks) {
            (true, _) => Pace::Soon,
            (false, true) => Pace::Slow,
            (false, false) => Pace::Rest,
        }
    }

    /// Throws out who has not given a lock back in time, if that was just looked at.
    fn evict_overdue(&mut self, now: Timestamp, out: &mut Outbox) {
        let looked = core::mem::take(&mut self.may_evict);
        // What is held may be the very lock that is asked back.
        if !looked || !self.held.is_empty() {
            return;
        }
        let mut any = false;
        let late = |mdt: &mut Mdt| {
            let now_ns = now.mono_ns;
            mdt.locks.overdue(now_ns).or_else(|| mdt.file_locks.overdue(now_ns))
        };
        while let Some(client) = late(self) {
            self.evict(client, Why::Late, out);
            any = true;
        }
        if any {
            self.run_llog(now, out);
            self.settle(now, out);
        }
    }

    /// Whether anything happens that somebody may be answered for.
    fn has_answers(&self) -> bool {
        matches!(self.leaving, Leaving::Not | Leaving::Answering { .. })
    }

    /// Nothing is executed any more; everybody who waits is told.
    pub(crate) fn stop(&mut self, out: &mut Outbox) {
        self.core.poison(out);
        let parked = core::mem::take(&mut self.parked).into_values().map(|m| m.header);
        let held = core::mem::take(&mut self.held).into_iter().map(|m| m.header);
        let unfenced = core::mem::take(&mut self.unfenced).into_iter().map(|(m, _)| m.header);
        let cutting = self.llog.take_answers();
        let back = self.recovery.take_answers();
        let waiting: Vec<Header> =
            parked.chain(held).chain(unfenced).chain(cutting).chain(back).collect();
        for header in waiting {
            self.core.answer(&header, Reply::error(Errno::EIO), Bulk::None, out);
        }
    }
}
