//! A target's process: the service, and what its disk is doing for it.
//!
//! The driver of the simulator: effects become events at random times, in any order that a
//! disk with many queues could bring about. A crash takes the process; the disk stays.

use std::collections::BTreeMap;

use sateen_mdt::{Mdt, MdtConfig};
use sateen_mgs::{FileSystem, Mgs};
use sateen_osd::{Checkpoint, Flush, ObjectOp, Prefetched, StoreLimits, Wants};
use sateen_osd::{Index, ObjectStore};
use sateen_ost::Ost;
use sateen_target::{
    COMMIT_AGE_NS, CoreConfig, Effect, Ending, IoId, Outbox, Pace, ParkId, Recovery, Service,
};
use sateen_types::{ClientId, Endpoint, ObjectId, Timestamp};
use sateen_wire::Message;

use crate::disk::Disk;
use crate::random::Random;
use crate::report::Report;

/// Memtables are small, so that checkpoints happen in every run, and scans short, so that whoever
/// scans has to go on where one stopped.
const LIMITS: StoreLimits =
    StoreLimits { memtable_bytes_max: 48 << 10, cache_bytes_max: 16 << 10, scan_removed_max: 16 };

/// At one tick in so many there is a checkpoint, whether there is a need for one or not.
const CHECKPOINT_ONE_IN: u64 = 2000;

/// Ranges are allocated in pieces so small that most take several.
const PIECE_BYTES: u64 = 16 << 10;

/// How long a device is at a write that stalls, as those are that try again or tidy up: 20 to
/// 200 ms.
const STALL_NS: (u64, u64) = (20_000_000, 200_000_000);

/// So many times as patient as MDTs are OSTs, as in the field: there a client may have nothing to
/// ask for long; and the MGS, which whoever mounts may not reach at once.
const OST_PATIENCE: u64 = 5;
const MGS_PATIENCE: u64 = 2;

/// The service of a target.
#[derive(Debug)]
pub enum Served {
    /// The MGS.
    Mgs(Box<Mgs>),
    /// An MDT.
    Mdt(Box<Mdt>),
    /// An OST.
    Ost(Box<Ost>),
}

impl Served {
    fn service(&mut self) -> &mut dyn Service {
        match self {
            Served::Mgs(service) => service.as_mut(),
            Served::Mdt(service) => service.as_mut(),
            Served::Ost(service) => service.as_mut(),
        }
    }
}

/// Something the disk is at.
#[derive(Debug)]
enum Pending {
    Object(IoId, ObjectOp),
    Fetch(ParkId, Wants, u64),
    Flush(Flush, Vec<ObjectId>),
    Checkpoint(Checkpoint),
}

impl Pending {
    /// Whether it writes an object.
    fn writes(&self) -> bool {
        matches!(self, Pending::Object(_, ObjectOp::Write { .. } | ObjectOp::WriteMany { .. }))
    }
}

/// A running target.
#[derive(Debug)]
pub struct Process {
    /// Its service.
    pub served: Served,
    pending: BTreeMap<u64, Pending>,
    flushing: bool,
    flush_again: bool,
    /// When it was told last that time went by.
    ticked_ns: u64,
    /// Until then no tick does anything, if nothing else happens: see [`Host::rests`].
    rests_until_ns: u64,
    /// Since when there is a change that no group commit has taken, and what the last one took.
    aging_ns: Option<u64>,
    taken: u64,
    out: Outbox,
}

/// A target: its disk, and its process while it has one.
#[derive(Debug)]
pub struct Host {
    /// Which target.
    pub me: Endpoint,
    /// How often it was started.
    pub boots: u64,
    /// Its current incarnation, as clients are told.
    pub boot_epoch: u64,
    /// Its disk.
    pub disk: Disk,
    /// Its process; `None` while it is down.
    pub process: Option<Process>,
    next_token: u64,
    /// How long clients may be silent, if not for as long as in the field.
    patience_ns: Option<u64>,
    /// How many OSTs there are.
    osts: u32,
    /// The next write of an object takes long.
    pub(crate) is_stalling: bool,
    /// How long its disk is at each write of an object, one after the other; 0 for as long as it comes.
    pub(crate) slow_ns: u64,
    /// Programs write files in turns, and its MDT is to find that soon.
    pub(crate) has_rowers: bool,
}

/// Beyond so many locks an MDT asks for some back, in one run of four.
const LOCKS_FEW: u64 = 12;

/// What a process wants the world to do.
pub(crate) enum Want {
    Send(Box<Message>),
    /// Call [`Host::finish`] with this token after so many nanoseconds.
    Disk(u64, u64),
}

fn delay(pending: &Pending, random: &mut Random) -> u64 {
    // A device is busy with something else now and then.
    let is_busy = matches!(pending, Pending::Object(..)) && random.one_in(40);
    let (low, high) = match pending {
        _ if is_busy => (1_000_000, 30_000_000),
        Pending::Object(_, ObjectOp::Sync { .. } | ObjectOp::Remove { .. }) => (50_000, 3_000_000),
        Pending::Object(..) => (2_000, 300_000),
        Pending::Fetch(..) => (5_000, 400_000),
        Pending::Flush(..) => (50_000, 4_000_000),
        Pending::Checkpoint(_) => (1_000_000, 40_000_000),
    };
    random.within(low, high)
}

impl Host {
    pub(crate) fn new(me: Endpoint, osts: u32, disk: Disk, patience_ns: Option<u64>) -> Host {
        Host {
            me,
            boots: 0,
            boot_epoch: 0,
            disk,
            process: None,
            next_token: 0,
            patience_ns,
            osts,
            is_stalling: false,
            slow_ns: 0,
            has_rowers: false,
        }
    }

    /// Starts the target over what its disk holds. Returns how many transactions were
    /// replayed, and what its start wants.
    ///
    /// # Errors
    /// If what the disk holds cannot be recovered from, which no crash may bring about.
    pub(crate) fn start(
        &mut self,
        now: Timestamp,
        random: &mut Random,
    ) -> Result<(u64, Vec<Want>), String> {
        self.disk.objects.open();
        let epoch = self.disk.journal.epoch;
        let mut recovery = Recovery::new(epoch, self.disk.index.checkpointed(), LIMITS);
        for payload in self.disk.journal.recover() {
            recovery
                .frame(&payload)
                .map_err(|error| format!("{} cannot start: {error}", self.me))?;
        }
        let (store, replayed) = recovery.finish();
        self.boots += 1;
        self.boot_epoch = random.any() | 1;
        let config = CoreConfig { me: self.me, boot_epoch: self.boot_epoch, hash_key: 42 };
        let mut out = Outbox::new();
        let served = match self.me {
            Endpoint::Mdt(index) => {
                let mut mdt = MdtConfig::new(index, 0..self.osts);
                mdt.recovery_time_soft_ns = crate::world::WINDOW_NS;
                (mdt.contended_locks, mdt.contention_ns) = contention(self.boot_epoch);
                mdt.parts = self.boot_epoch >> 24 & 7 != 0;
                if self.has_rowers {
                    // Whoever hears that there are no parts asks for none for a minute.
                    mdt.parts = self.boot_epoch >> 24 & 31 != 0;
                    if self.boot_epoch >> 32 & 7 != 0 {
                        let locks = 1 + (self.boot_epoch >> 8 & 1) as u32;
                        (mdt.contended_locks, mdt.contention_ns) = (locks, SHARED_NS);
                    }
                }
                // In one run of two the objects of removed files wait for others; clients here work for
                // seconds alone.
                let waits = self.boot_epoch >> 40 & 1 == 1;
                mdt.destroy_delay_ns = if waits { 300_000_000 } else { 0 };
                if self.boot_epoch >> 8 & 3 == 0 {
                    mdt.lock_reclaim_bytes = LOCKS_FEW * sateen_ldlm::LOCK_BYTES;
                    mdt.lock_limit_bytes = 4 * mdt.lock_reclaim_bytes;
                }
                if let Some(ns) = self.patience_ns {
                    (mdt.patience.min_ns, mdt.patience.max_ns) = (ns, ns);
                }
                Served::Mdt(Box::new(Mdt::new(config, store, mdt, now, &mut out)))
            }
            Endpoint::Ost(_) => {
                let ost = Ost::new(config, store).in_pieces_of(PIECE_BYTES);
                Served::Ost(Box::new(match self.patience_ns {
                    Some(ns) => ost.patient_for(OST_PATIENCE * ns),
                    None => ost,
                }))
            }
            Endpoint::Mgs | Endpoint::Client(_) => {
                let (fsname, uuid) = (crate::mgc::fsname(), crate::mgc::UUID);
                let file_system = FileSystem { fsname, uuid, hash_key: config.hash_key };
                let mgs = Mgs::new(config, store).of(file_system);
                Served::Mgs(Box::new(match self.patience_ns {
                    Some(ns) => mgs.patient_for(MGS_PATIENCE * ns),
                    None => mgs,
                }))
            }
        };
        self.process = Some(Process {
            served,
            pending: BTreeMap::new(),
            flushing: false,
            flush_again: false,
            ticked_ns: now.mono_ns,
            rests_until_ns: 0,
            aging_ns: None,
            taken: 0,
            out,
        });
        Ok((replayed, self.effects(random)))
    }

    /// The process dies. What was under way may have reached the disk, in part; what was not
    /// synced may be lost, if its machine has lost its power.
    pub(crate) fn crash(&mut self, power: bool, random: &mut Random, report: &mut Report) {
        let Some(mut process) = self.process.take() else { return };
        // A checkpoint waits until all of it is in the journal, as the process has heard: what this
        // crash leaves there of a frame, torn or whole, has none begun.
        let committed = process.served.service().store().committed();
        for pending in process.pending.into_values() {
            match pending {
                Pending::Object(_, ObjectOp::WriteMany { object, pieces, data }) => {
                    // Any of them may be done, in their order.
                    let done = random.index(pieces.len() + 1);
                    let some = pieces.get(..done).unwrap_or_default();
                    let _ = self.disk.objects.write_many(object, some, &data);
                    let is_between = 0 < done && done < pieces.len();
                    report.count("crash between two pieces", u64::from(is_between));
                }
                Pending::Object(_, op)
                    if random.one_in(2) && !matches!(op, ObjectOp::Read { .. }) =>
                {
                    op.run(self.disk.objects.as_ref());
                }
                Pending::Flush(flush, before) if random.permille(750) => {
                    // The objects come first; the frame is written when they are synced.
                    let _ = self.disk.objects.sync(&before);
                    let torn = self.disk.journal.tear(&flush.frame, flush.upto, random);
                    report.count("frame torn", u64::from(torn));
                }
                Pending::Checkpoint(checkpoint) if committed >= checkpoint.upto => {
                    self.disk.index.tear(&checkpoint.table, random);
                    report.count("checkpoint cut off", 1);
                }
                _ => {}
            }
        }
        if !power {
            return;
        }
        let (objects, damage) = self.disk.objects.crash(random);
        report.count("object write torn", damage.torn);
        report.count("object change lost", damage.lost);
        report.count("object name lost", damage.names);
        self.disk.objects = std::sync::Arc::new(objects);
    }

    fn journaled(&self) -> u64 {
        self.disk.journal.last().max(self.disk.index.checkpointed())
    }

    /// An event of the service.
    pub(crate) fn event(
        &mut self,
        random: &mut Random,
        run: impl FnOnce(&mut dyn Service, &mut Outbox),
    ) -> Vec<Want> {
        let Some(process) = &mut self.process else { return Vec::new() };
        run(process.served.service(), &mut process.out);
        self.effects(random)
    }

    /// Whether it runs, and serves whoever comes.
    pub(crate) fn serves(&self) -> bool {
        let Some(process) = &self.process else { return false };
        match &process.served {
            Served::Mdt(mdt) => mdt.is_serving(),
            Served::Ost(_) | Served::Mgs(_) => true,
        }
    }

    /// It is to end in good order.
    pub(crate) fn stop(&mut self, now: Timestamp, random: &mut Random) -> Vec<Want> {
        self.event(random, |service, out| service.on_stop(now, out))
    }

    /// How far it is with that; it ends when its disk is done with everything.
    pub(crate) fn ending(&mut self) -> Ending {
        let Some(process) = &mut self.process else { return Ending::Lost };
        match process.served.service().ending() {
            Ending::Clean if process.flushing || !process.pending.is_empty() => Ending::Working,
            ending => ending,
        }
    }

    /// Whether nothing comes of a tick now. If so chance has been asked whether there is to be a
    /// checkpoint, as every tick does.
    pub(crate) fn rests(&self, now_ns: u64, random: &mut Random) -> bool {
        let Some(process) = &self.process else { return false };
        if now_ns >= process.rests_until_ns {
            return false;
        }
        let mut asked = random.clone();
        let rests = !asked.one_in(CHECKPOINT_ONE_IN);
        if rests {
            *random = asked;
        }
        rests
    }

    /// Time goes by in small steps. The service is told as often as it wants; changes are made
    /// durable when they are old enough; and now and then there is a checkpoint.
    ///
    /// What it wants; `None` if nothing was done.
    pub(crate) fn tick(&mut self, now: Timestamp, random: &mut Random) -> Option<Vec<Want>> {
        if self.rests(now.mono_ns, random) {
            return None;
        }
        let process = self.process.as_mut()?;
        let service = process.served.service();
        let waits = service.store().must_wait();
        let pace = if waits { Pace::Soon } else { service.pace() };
        let mut wants = Vec::new();
        let is_told = now.mono_ns >= process.ticked_ns + pace.ns();
        if is_told {
            process.ticked_ns = now.mono_ns;
            wants = self.event(random, |service, out| service.on_tick(now, out));
        }
        let process = self.process.as_mut()?;
        let store = process.served.service().store();
        let (transno, dirty) = (store.transno(), store.dirty());
        let wanted = store.wants_checkpoint();
        if (wanted || random.one_in(CHECKPOINT_ONE_IN))
            && let Some(checkpoint) = store.begin_checkpoint()
        {
            wants.extend(self.begin(Pending::Checkpoint(checkpoint), random));
        }
        let process = self.process.as_mut()?;
        let is_aging = dirty && transno > process.taken;
        process.rests_until_ns = 0;
        if !is_told && wants.is_empty() && !wanted && !is_aging {
            process.rests_until_ns = process.ticked_ns + pace.ns();
        }
        if is_aging {
            let since_ns = *process.aging_ns.get_or_insert(now.mono_ns);
            if pace == Pace::Soon || now.mono_ns >= since_ns + COMMIT_AGE_NS {
                wants.extend(self.start_flush(random));
            }
        }
        (is_told || !wants.is_empty()).then_some(wants)
    }

    fn begin(&mut self, pending: Pending, random: &mut Random) -> Option<Want> {
        let process = self.process.as_mut()?;
        let token = self.next_token;
        self.next_token += 1;
        let mut after = delay(&pending, random);
        let writes = pending.writes();
        if writes && self.slow_ns > 0 {
            let before = process.pending.values().filter(|pending| pending.writes()).count();
            after = self.slow_ns * (before as u64 + 1);
        }
        if writes && self.is_stalling {
            self.is_stalling = false;
            after = random.within(STALL_NS.0, STALL_NS.1);
        }
        process.pending.insert(token, pending);
        Some(Want::Disk(token, after))
    }

    fn start_flush(&mut self, random: &mut Random) -> Option<Want> {
        let process = self.process.as_mut()?;
        if process.flushing {
            process.flush_again = true;
            return None;
        }
        let service = process.served.service();
        let flush = service.store().begin_flush()?;
        (process.aging_ns, process.taken) = (None, flush.upto);
        process.flush_again = service.store().transno() > flush.upto;
        let before = service.sync_before_flush();
        process.flushing = true;
        self.begin(Pending::Flush(flush, before), random)
    }

    fn effects(&mut self, random: &mut Random) -> Vec<Want> {
        let mut wants = Vec::new();
        let mut flush = false;
        let Some(process) = &mut self.process else { return wants };
        process.rests_until_ns = 0;
        let effects: Vec<Effect> = process.out.drain().collect();
        for effect in effects {
            match effect {
                Effect::Send(message) => wants.push(Want::Send(Box::new(message))),
                Effect::Object { id, op } => {
                    wants.extend(self.begin(Pending::Object(id, op), random));
                }
                Effect::Prefetch { id, wants: keys, generation } => {
                    wants.extend(self.begin(Pending::Fetch(id, keys, generation), random));
                }
                Effect::Flush => flush = true,
            }
        }
        if flush {
            wants.extend(self.start_flush(random));
        }
        wants
    }

    /// The disk is done with something. A token of an earlier process means nothing.
    pub(crate) fn finish(&mut self, token: u64, now: Timestamp, random: &mut Random) -> Vec<Want> {
        let Some(process) = &mut self.process else { return Vec::new() };
        let Some(pending) = process.pending.remove(&token) else { return Vec::new() };
        process.rests_until_ns = 0;
        let service = process.served.service();
        match pending {
            Pending::Object(id, op) => {
                self.disk.objects.set_time(now);
                let done = op.run(self.disk.objects.as_ref());
                service.on_object_done(now, id, done, &mut process.out);
            }
            Pending::Fetch(id, keys, generation) => {
                // The index in memory does not fail.
                let Ok(view) = Prefetched::read(self.disk.index.as_ref(), &keys, generation) else {
                    return Vec::new();
                };
                service.on_prefetched(now, id, view, &mut process.out);
            }
            Pending::Flush(flush, before) => {
                // As above.
                let _ = self.disk.objects.sync(&before);
                self.disk.journal.write(&flush.frame, flush.upto);
                service.store().flush_done(flush);
                service.on_flushed(now, &mut process.out);
                process.flushing = false;
                let again = core::mem::take(&mut process.flush_again);
                let mut wants = self.effects(random);
                if again {
                    wants.extend(self.start_flush(random));
                }
                return wants;
            }
            Pending::Checkpoint(checkpoint) => {
                if service.store().committed() < checkpoint.upto {
                    let mut wants: Vec<Want> = self.start_flush(random).into_iter().collect();
                    wants.extend(self.begin(Pending::Checkpoint(checkpoint), random));
                    return wants;
                }
                let index = self.disk.index.as_ref();
                // As above.
                let _ = index.checkpoint(&checkpoint.table, checkpoint.upto);
                service.store().checkpoint_done();
                self.disk.journal.trim(checkpoint.upto);
            }
        }
        self.effects(random)
    }

    /// An MDT throws a client out.
    pub(crate) fn evict(
        &mut self,
        client: ClientId,
        now: Timestamp,
        random: &mut Random,
    ) -> Vec<Want> {
        if let Some(Process { served: Served::Mdt(mdt), out, .. }) = &mut self.process {
            mdt.evict_client(now, client, out);
        }
        self.effects(random)
    }

    /// Transno up to which everything lies on the disk.
    pub fn disk_transno(&self) -> u64 {
        self.journaled()
    }

    /// Transno up to which everything is durable now.
    pub fn durable(&mut self) -> u64 {
        match &mut self.process {
            Some(process) => process.served.service().store().committed(),
            None => self.journaled(),
        }
    }

    /// Transno of the last transaction.
    pub(crate) fn transno(&mut self) -> u64 {
        self.process.as_mut().map_or(0, |process| process.served.service().store().transno())
    }

    /// The MDT, if it is one and runs.
    pub fn mdt(&mut self) -> Option<&mut Mdt> {
        match &mut self.process.as_mut()?.served {
            Served::Mdt(mdt) => Some(mdt),
            _ => None,
        }
    }

    /// The same, to look at.
    pub(crate) fn running_mdt(&self) -> Option<&Mdt> {
        match &self.process.as_ref()?.served {
            Served::Mdt(mdt) => Some(mdt),
            _ => None,
        }
    }

    /// An MDT hears of somebody, as it would from the network if there were anybody else: else it
    /// would neither end the wait for clients of its last run nor miss those that have died.
    pub(crate) fn hears_somebody(&mut self) {
        let is_mdt = self.running_mdt().is_some();
        if let Some(process) = self.process.as_mut().filter(|_| is_mdt) {
            process.served.service().on_heard(&[Endpoint::Client(ClientId(0))]);
        }
    }

    /// The incarnations of clients that are connected, and where each is reached.
    pub(crate) fn clients(&self) -> Vec<(ClientId, Endpoint)> {
        let Some(process) = &self.process else { return Vec::new() };
        let all: Vec<(ClientId, Endpoint)> = match &process.served {
            Served::Mgs(mgs) => mgs.exports().map(|(client, at, _)| (client, at)).collect(),
            Served::Mdt(mdt) => mdt.exports().map(|(client, at, _)| (client, at)).collect(),
            Served::Ost(ost) => ost.exports().map(|(client, at, ..)| (client, at)).collect(),
        };
        all.into_iter().filter(|(_, at)| matches!(at, Endpoint::Client(_))).collect()
    }

    /// Whom an OST has promised space.
    pub(crate) fn granted_to(&self) -> Vec<ClientId> {
        match self.process.as_ref().map(|process| &process.served) {
            Some(Served::Ost(ost)) => ost.granted_to().collect(),
            _ => Vec::new(),
        }
    }

    /// All pairs with keys of this tag, as the running target sees them.
    pub fn records(&mut self, tag: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut out = Vec::new();
        let Some(process) = &mut self.process else { return out };
        let store = process.served.service().store();
        let prefix = sateen_osd::Key::tag(tag);
        let mut after = sateen_osd::Key::EMPTY;
        let mut fetched = Prefetched::default();
        loop {
            let mut page = Vec::new();
            let scanned = store.scan(&prefix, &after, 1024, &fetched, |key, value| {
                page.push((key.as_bytes().to_vec(), value.to_vec()));
            });
            match scanned {
                Ok(more) => {
                    out.extend(page);
                    match more {
                        Some(key) => after = key,
                        None => return out,
                    }
                }
                Err(sateen_osd::Miss) => {
                    let (wants, generation) = store.take_wants();
                    match Prefetched::read(self.disk.index.as_ref(), &wants, generation) {
                        Ok(view) => fetched = view,
                        Err(_) => return out,
                    }
                }
            }
        }
    }
}

/// For so long a file stays contended where programs write one in turns, with crashes in between: 30 s.
const SHARED_NS: u64 = 30_000_000_000;

/// When a run of an MDT takes a file for contended, and for how long: at once, after some time, or
/// never.
const fn contention(boot_epoch: u64) -> (u32, u64) {
    let locks = match (boot_epoch >> 8) % 8 {
        0 => 0,
        1..=3 => 1,
        4 | 5 => 2,
        6 => 4,
        _ => 8,
    };
    let ns = match (boot_epoch >> 16) % 4 {
        0 => 5_000_000,
        1 => 50_000_000,
        2 => 500_000_000,
        _ => 2_000_000_000,
    };
    (locks, ns)
}
