//! The management target: which targets a file system has, and where they are reached.
//!
//! Pure: an [`Mgs`] is a [`sateen_target::Service`]. Targets register with it when they
//! start; clients ask it for the configuration when they mount. The configuration is small
//! and kept in memory; every change is journaled before it is told to anybody, so that the
//! version a client has seen never comes back with another meaning. Whoever waits for a newer
//! one than it has is answered as soon as there is.
//!
//! Where it is kept is not for the MGS to know: it has a [`Store`], and whoever drives it gives
//! that an [`Index`](sateen_osd::Index) and a [`JournalDevice`](sateen_osd::JournalDevice). On a
//! disk these are the folder of the MGT. A store that several hosts share, such as etcd, takes
//! their place behind the same two traits: docs/decisions/0005-mgs-state.md says how.

mod stats;

use std::collections::BTreeMap;

use sateen_osd::{Batch, Key, ObjectDone, Prefetched, Store};
use sateen_target::{Core, CoreConfig, Fault, IoId, Outbox, Pace, ParkId, Patience, Service};
use sateen_types::{ClientId, Endpoint, Errno, Name, OST_INDEX_MAX, Timestamp, seq};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};
use sateen_wire::{
    Body, Bulk, FsName, Header, Message, MgsReply, MgsRequest, PARAMS_MAX, ParamInfo, Reply,
    ReplyBody, Request, TARGETS_MAX, TargetInfo,
};

use stats::Counters;
pub use stats::{MGS_STATS, MgsStats};

/// How long whoever asks may be silent: 60 s. Those who wait for a newer configuration ask for it
/// again every few seconds; those who have nothing to ask connect anew when they do.
const PATIENCE: Patience = Patience::of(60_000_000_000);

const TARGETS: Key = Key::tag(b't');
const CONFIG: Key = Key::tag(b'c');
const PARAMS: Key = Key::tag(b'p');

/// Which file system an MGS manages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name.
    pub fsname: FsName,
    /// Its id.
    pub uuid: u64,
    /// Key of the directory hash in its targets.
    pub hash_key: u64,
}

/// The management target.
#[derive(Debug)]
pub struct Mgs {
    core: Core,
    file_system: FileSystem,
    /// Whoever waits for a configuration newer than the one it has.
    waiting: Vec<(Header, u64)>,
    /// `None` until it was read from the store.
    config: Option<Config>,
    batch: Batch,
    patience: Patience,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Config {
    version: u64,
    targets: BTreeMap<Endpoint, TargetRecord>,
    /// By name.
    params: Vec<ParamInfo>,
}

fn target_key(target: Endpoint) -> Option<Key> {
    let (kind, index) = match target {
        Endpoint::Mdt(index) if index < seq::MDTS_MAX => (1u8, index),
        Endpoint::Ost(index) if index <= OST_INDEX_MAX => (2, index),
        _ => return None,
    };
    Some(TARGETS.with(&[kind]).with(&index.to_be_bytes()))
}

impl Mgs {
    /// An MGS over a recovered store.
    pub fn new(config: CoreConfig, store: Store) -> Mgs {
        Mgs {
            core: Core::new(config, store),
            file_system: FileSystem::default(),
            waiting: Vec::new(),
            config: None,
            batch: Batch::new(),
            patience: PATIENCE,
            counters: Counters::default(),
        }
    }

    /// The same, of this file system.
    #[must_use]
    pub fn of(mut self, file_system: FileSystem) -> Mgs {
        self.core.file_system = file_system.uuid;
        Mgs { file_system, ..self }
    }

    /// The same with so much patience for whoever is silent, for tests.
    #[must_use]
    pub fn patient_for(self, silence_ns: u64) -> Mgs {
        Mgs { patience: Patience::of(silence_ns), ..self }
    }

    fn handle(&mut self, message: Message, fetched: Prefetched, out: &mut Outbox) {
        let header = message.header;
        match self.execute(&message, &fetched) {
            Ok(Some((reply, upto))) => {
                if let Body::Request(request) = &message.body {
                    stats::done(&mut self.counters, header.client, request);
                }
                let changed = reply.transno != 0;
                self.core.answer_durable(&header, reply, upto, out);
                if changed {
                    self.tell_waiting(out);
                }
            }
            Ok(None) => {}
            Err(Fault::Miss) => {
                self.core.park_for_index(message, fetched, out);
            }
            Err(Fault::Errno(errno)) => {
                self.core.answer(&header, Reply::error(errno), Bulk::None, out);
            }
            // The memtables are full, which no number of registrations brings about soon.
            Err(Fault::Blocked) => {
                self.core.answer(&header, Reply::error(Errno::EAGAIN), Bulk::None, out);
            }
        }
    }

    /// The answer, and how far the journal has to be durable before it is given; `None` if it is
    /// given later.
    fn execute(
        &mut self,
        message: &Message,
        fetched: &Prefetched,
    ) -> Result<Option<(Reply, u64)>, Fault> {
        let Body::Request(request) = &message.body else { return Err(Errno::EPROTO.into()) };
        if self.config.is_none() {
            self.config = Some(self.load(fetched)?);
        }
        let transno = match request {
            Request::Mgs(MgsRequest::GetParams) => {
                return Ok(Some((Reply::ok(self.params()), self.core.store.transno())));
            }
            Request::Mgs(MgsRequest::SetParam { name, value }) => {
                let transno = self.set_param(name, value.as_ref())?;
                // It is executed once, and so its answer is kept for a duplicate: a small one.
                let reply = Reply { transno, ..Reply::ok(ReplyBody::Empty) };
                return Ok(Some((reply, self.core.store.transno())));
            }
            Request::Mgs(MgsRequest::GetConfig) => 0,
            Request::Mgs(MgsRequest::Register { info, uuid }) => {
                self.register(*info, *uuid, false)?
            }
            Request::Mgs(MgsRequest::Replace { info, uuid }) => {
                self.register(*info, *uuid, true)?
            }
            Request::Mgs(MgsRequest::GetFileSystem) => {
                let FileSystem { fsname, uuid, hash_key } = self.file_system;
                let body = ReplyBody::Mgs(MgsReply::FileSystem { fsname, uuid, hash_key });
                return Ok(Some((Reply::ok(body), 0)));
            }
            Request::Mgs(MgsRequest::WaitConfig { version }) => {
                if self.config.as_ref().is_none_or(|config| config.version <= *version) {
                    self.wait(message.header, *version);
                    return Ok(None);
                }
                0
            }
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        let reply = Reply { transno, ..Reply::ok(self.told()) };
        Ok(Some((reply, self.core.store.transno())))
    }

    /// Somebody waits, in a slot where nobody else does any more.
    fn wait(&mut self, header: Header, version: u64) {
        let slot = |header: &Header| (header.client, header.slot);
        self.waiting.retain(|(other, _)| slot(other) != slot(&header));
        self.waiting.push((header, version));
    }

    fn told(&self) -> ReplyBody {
        let (version, targets) = match &self.config {
            Some(config) => (config.version, config.targets.values().map(|t| t.info).collect()),
            None => (0, Vec::new()),
        };
        ReplyBody::Mgs(MgsReply::Config { version, targets })
    }

    fn params(&self) -> ReplyBody {
        let (version, params) = match &self.config {
            Some(config) => (config.version, config.params.clone()),
            None => (0, Vec::new()),
        };
        ReplyBody::Mgs(MgsReply::Params { version, params })
    }

    /// Keeps a parameter, or none any more; the transno, or 0 if nothing had to be changed.
    fn set_param(&mut self, name: &Name, value: Option<&Name>) -> Result<u64, Fault> {
        if self.core.store.must_wait() {
            return Err(Fault::Blocked);
        }
        let Some(config) = &mut self.config else { return Err(Errno::EIO.into()) };
        let key = |param: &ParamInfo| param.name.as_bytes().cmp(name.as_bytes());
        match (config.params.binary_search_by(key), value) {
            (Ok(at), Some(value)) => {
                let Some(param) = config.params.get_mut(at).filter(|p| p.value != *value) else {
                    return Ok(0);
                };
                param.value = value.clone();
            }
            (Ok(at), None) => drop(config.params.remove(at)),
            (Err(_), None) => return Ok(0),
            (Err(_), Some(_)) if config.params.len() >= PARAMS_MAX => {
                return Err(Errno::ENOSPC.into());
            }
            (Err(at), Some(value)) => {
                let param = ParamInfo { name: name.clone(), value: value.clone() };
                config.params.insert(at, param);
            }
        }
        config.version += 1;
        self.batch.clear();
        self.batch.put(&PARAMS, &ParamsRecord { params: config.params.clone() });
        self.batch.put(&CONFIG, &ConfigRecord { version: config.version });
        Ok(self.core.commit(&self.batch))
    }

    /// The clients and targets that are connected, and what each has asked, for whoever looks in
    /// from outside.
    pub fn exports(&self) -> impl Iterator<Item = (ClientId, Endpoint, MgsStats)> + '_ {
        let exports = &self.core.exports;
        exports.clients().filter_map(move |id| Some((id, exports.peer(id)?, self.counters.of(id))))
    }

    /// What all have asked.
    pub fn stats(&self) -> MgsStats {
        *self.counters.all()
    }

    /// Counts anew.
    pub fn clear_stats(&mut self) {
        self.counters.clear();
    }

    /// The configuration, if it has been read: its version, the targets, the parameters.
    pub fn live(&self) -> Option<(u64, Vec<TargetInfo>, Vec<ParamInfo>)> {
        let Config { version, targets, params } = self.config.as_ref()?;
        Some((*version, targets.values().map(|t| t.info).collect(), params.clone()))
    }

    /// The configuration has changed: those who wait for that are told, once it is durable.
    fn tell_waiting(&mut self, out: &mut Outbox) {
        let upto = self.core.store.transno();
        for (header, _) in core::mem::take(&mut self.waiting) {
            if self.core.is_current(&header) {
                stats::told(&mut self.counters, header.client);
                let told = Reply::ok(self.told());
                self.core.answer_durable(&header, told, upto, out);
            }
        }
    }

    /// A client is gone, or has connected anew: nobody listens for its answers.
    fn forget_waiting(&mut self) {
        let core = &self.core;
        self.waiting.retain(|(header, _)| core.is_current(header));
    }

    fn load(&self, fetched: &Prefetched) -> Result<Config, Fault> {
        let damaged = |error| {
            tracing::error!(%error, "damaged configuration record");
            Fault::Errno(Errno::EIO)
        };
        let mut config = Config::default();
        if let Some(bytes) = self.core.store.get(&CONFIG, fetched)? {
            config.version = ConfigRecord::from_bytes(bytes).map_err(damaged)?.version;
        }
        let mut all = Vec::new();
        let (after, limit) = (Key::EMPTY, TARGETS_MAX + 1);
        self.core.store.scan(&TARGETS, &after, limit, fetched, |_, value| {
            all.push(TargetRecord::from_bytes(value));
        })?;
        for record in all {
            let record = record.map_err(damaged)?;
            config.targets.insert(record.info.target, record);
        }
        if let Some(bytes) = self.core.store.get(&PARAMS, fetched)? {
            config.params = ParamsRecord::from_bytes(bytes).map_err(damaged)?.params;
        }
        Ok(config)
    }

    /// Enters a target; the transno, or 0 if nothing had to be changed. An OST `replaces` whatever
    /// had its index. An MDT cannot: nothing else knows what was in the one before.
    fn register(&mut self, info: TargetInfo, uuid: u64, replaces: bool) -> Result<u64, Fault> {
        let Some(key) = target_key(info.target) else { return Err(Errno::EINVAL.into()) };
        if replaces && !matches!(info.target, Endpoint::Ost(_)) {
            return Err(Errno::EINVAL.into());
        }
        if self.core.store.must_wait() {
            return Err(Fault::Blocked);
        }
        let Some(config) = &mut self.config else { return Err(Errno::EIO.into()) };
        let mut record = TargetRecord { info, uuid };
        if let Some(old) = config.targets.get(&info.target) {
            if old.uuid != uuid {
                if !replaces {
                    return Err(Errno::EEXIST.into());
                }
                tracing::warn!(target_name = %info.target, "another takes its place");
            }
            // Only the administrator takes a target out of use, or back into it.
            record.info.inactive = old.info.inactive;
            if *old == record {
                return Ok(0);
            }
        } else if config.targets.len() >= TARGETS_MAX {
            return Err(Errno::ENOSPC.into());
        }
        config.version += 1;
        config.targets.insert(info.target, record);
        self.batch.clear();
        self.batch.put(&key, &record);
        self.batch.put(&CONFIG, &ConfigRecord { version: config.version });
        Ok(self.core.commit(&self.batch))
    }
}

impl Service for Mgs {
    fn store(&mut self) -> &mut Store {
        &mut self.core.store
    }

    fn on_message(&mut self, now: Timestamp, message: Message, out: &mut Outbox) {
        self.core.live(now);
        let header = message.header;
        let comes_or_goes =
            matches!(message.body, Body::Request(Request::Connect { .. } | Request::Disconnect));
        let admitted = self.core.admit(message, out);
        if comes_or_goes {
            while let Some(old) = self.core.exports.predecessor(header.client, header.from) {
                self.core.exports.disconnect(old);
                self.counters.gone(old);
            }
            if self.core.exports.peer(header.client).is_none() {
                self.counters.gone(header.client);
            }
            self.forget_waiting();
        }
        let Some(message) = admitted else { return };
        if !matches!(message.body, Body::Request(Request::Disconnect)) {
            self.handle(message, Prefetched::default(), out);
        }
    }

    fn on_object_done(&mut self, _: Timestamp, _: IoId, _: ObjectDone, _: &mut Outbox) {}

    fn on_prefetched(&mut self, _now: Timestamp, id: ParkId, view: Prefetched, out: &mut Outbox) {
        // Of a connection that has ended meanwhile nobody waits for the answer, and who waits on
        // the next must not be forgotten for it.
        let unparked = self.core.unpark(id, view);
        if let Some((message, fetched)) = unparked.filter(|(m, _)| self.core.is_current(&m.header))
        {
            self.handle(message, fetched, out);
        }
    }

    fn on_flushed(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.core.flushed(out);
    }

    fn pace(&mut self) -> Pace {
        self.core.paced(Pace::Rest)
    }

    fn on_tick(&mut self, now: Timestamp, _out: &mut Outbox) {
        self.core.live(now);
        let silent = self.core.silent(&self.patience);
        if silent.is_empty() {
            return;
        }
        for client in silent {
            tracing::debug!(client = format_args!("{:x}", client.0), "nothing is heard of it");
            self.core.exports.disconnect(client);
            self.counters.gone(client);
        }
        self.forget_waiting();
    }

    fn on_heard(&mut self, peers: &[Endpoint]) {
        self.core.network_heard(peers);
    }

    fn on_poisoned(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.core.poison(out);
        for (header, _) in core::mem::take(&mut self.waiting) {
            self.core.answer(&header, Reply::error(Errno::EIO), Bulk::None, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_osd::memory::MemoryIndex;
    use sateen_osd::{Index, StoreLimits};
    use sateen_target::Effect;
    use sateen_types::Nid;

    /// An MGS whose driver does everything at once.
    struct World {
        mgs: Mgs,
        index: MemoryIndex,
        generation: u32,
        seq: u64,
        flushes: u32,
        /// What went out in other slots.
        told: Vec<(u16, Reply)>,
    }

    fn bare() -> Mgs {
        let config = CoreConfig { me: Endpoint::Mgs, boot_epoch: 4, hash_key: 0 };
        Mgs::new(config, Store::new(1, 0, StoreLimits::default()))
    }

    fn world(index: MemoryIndex) -> World {
        let config = CoreConfig { me: Endpoint::Mgs, boot_epoch: 4, hash_key: 0 };
        let store = Store::new(1, index.checkpointed(), StoreLimits::default());
        let mut world = World {
            mgs: Mgs::new(config, store),
            index,
            generation: 0,
            seq: 0,
            flushes: 0,
            told: Vec::new(),
        };
        match world.call(Request::Connect { features: 0 }).body {
            ReplyBody::Connected { generation, .. } => world.generation = generation,
            other => panic!("{other:?}"),
        }
        world.seq = 0;
        world
    }

    impl World {
        fn header(&self) -> Header {
            Header {
                generation: self.generation,
                seq: self.seq,
                ..Header::between(Endpoint::Ost(0), Endpoint::Mgs, ClientId(5))
            }
        }

        fn call(&mut self, request: Request) -> Reply {
            self.seq += 1;
            let header = self.header();
            let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
            let now = Timestamp::default();
            let mut out = Outbox::new();
            self.mgs.on_message(now, message, &mut out);
            let mut answer = None;
            loop {
                let effects: Vec<Effect> = out.drain().collect();
                if let (true, Some(reply)) = (effects.is_empty(), answer.take()) {
                    return reply;
                }
                assert!(!effects.is_empty(), "an answer comes");
                for effect in effects {
                    match effect {
                        Effect::Send(Message { header, body: Body::Reply(reply), .. }) => {
                            if header.slot == 0 {
                                answer = Some(reply);
                            } else {
                                self.told.push((header.slot, reply));
                            }
                        }
                        Effect::Prefetch { id, wants, generation } => {
                            let view = Prefetched::read(&self.index, &wants, generation).unwrap();
                            self.mgs.on_prefetched(now, id, view, &mut out);
                        }
                        Effect::Flush => {
                            self.flushes += 1;
                            if let Some(flush) = self.mgs.store().begin_flush() {
                                self.mgs.store().flush_done(flush);
                                self.mgs.on_flushed(now, &mut out);
                            }
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }

        fn config(&mut self, request: MgsRequest) -> Result<(u64, Vec<TargetInfo>), Errno> {
            let reply = self.call(Request::Mgs(request));
            match (reply.error, reply.body) {
                (Some(errno), _) => Err(errno),
                (None, ReplyBody::Mgs(MgsReply::Config { version, targets })) => {
                    Ok((version, targets))
                }
                (None, other) => panic!("{other:?}"),
            }
        }
    }

    fn info(target: Endpoint) -> TargetInfo {
        TargetInfo { target, nids: Nid::Lo.into(), inactive: false }
    }

    fn register(target: Endpoint, uuid: u64) -> MgsRequest {
        MgsRequest::Register { info: info(target), uuid }
    }

    #[test]
    fn an_index_belongs_to_its_first_target() {
        let mut world = world(MemoryIndex::default());
        assert_eq!(world.config(MgsRequest::GetConfig), Ok((0, Vec::new())));
        let (ost, mdt) = (Endpoint::Ost(1), Endpoint::Mdt(0));
        assert_eq!(world.config(register(ost, 7)), Ok((1, vec![info(ost)])));
        assert_eq!(world.flushes, 1, "told only when durable");
        assert_eq!(world.config(register(ost, 7)), Ok((1, vec![info(ost)])));
        assert_eq!(world.config(register(ost, 8)), Err(Errno::EEXIST));
        assert_eq!(world.config(register(mdt, 9)), Ok((2, vec![info(mdt), info(ost)])));
        let moved = TargetInfo {
            nids: Nid::Tcp { addr: [10, 0, 0, 1].into(), port: 7988, net: 0 }.into(),
            inactive: true,
            ..info(ost)
        };
        let expected = TargetInfo { inactive: false, ..moved };
        let request = MgsRequest::Register { info: moved, uuid: 7 };
        assert_eq!(world.config(request), Ok((3, vec![info(mdt), expected])));
        for bad in [Endpoint::Mgs, Endpoint::Client(ClientId(1)), Endpoint::Ost(u32::MAX)] {
            assert_eq!(world.config(register(bad, 1)), Err(Errno::EINVAL));
        }
        assert_eq!(world.call(Request::Ping).error, None);
    }

    #[test]
    fn it_says_which_file_system_it_manages() {
        let mut world = world(MemoryIndex::default());
        let fsname = FsName::new("scratch").unwrap();
        let file_system = FileSystem { fsname, uuid: 3, hash_key: 4 };
        world.mgs = core::mem::replace(&mut world.mgs, bare()).of(file_system);
        let reply = world.call(Request::Mgs(MgsRequest::GetFileSystem));
        assert_eq!(
            reply.body,
            ReplyBody::Mgs(MgsReply::FileSystem { fsname, uuid: 3, hash_key: 4 })
        );
    }

    #[test]
    fn who_waits_is_told_of_a_change_once_it_is_durable() {
        let mut world = world(MemoryIndex::default());
        let ost = Endpoint::Ost(1);
        // What is newer already is told at once.
        world.config(register(ost, 7)).unwrap();
        let newer = MgsRequest::WaitConfig { version: 0 };
        assert_eq!(world.config(newer), Ok((1, vec![info(ost)])));

        let mut out = Outbox::new();
        let header = Header { slot: 3, seq: 1, ..world.header() };
        let wait = Body::Request(Request::Mgs(MgsRequest::WaitConfig { version: 1 }));
        let message = Message { header, body: wait, bulk: Bulk::None };
        world.mgs.on_message(Timestamp::default(), message.clone(), &mut out);
        assert!(out.is_empty(), "nothing is newer");
        world.mgs.on_message(Timestamp::default(), message, &mut out);
        assert!(out.is_empty(), "it is not asked twice");
        world.config(register(ost, 7)).unwrap();
        assert!(world.told.is_empty(), "nothing has changed");
        world.config(register(Endpoint::Ost(2), 8)).unwrap();
        assert_eq!(world.told.len(), 1, "told once");
        let (slot, reply) = world.told.remove(0);
        let told =
            MgsReply::Config { version: 2, targets: vec![info(ost), info(Endpoint::Ost(2))] };
        assert_eq!((slot, reply.body), (3, ReplyBody::Mgs(told)));
        assert_eq!(world.mgs.waiting.len(), 0);
    }

    /// The parameters, after this was asked, if it is anything else than what they are.
    fn params(world: &mut World, request: MgsRequest) -> Result<(u64, Vec<ParamInfo>), Errno> {
        let reply = world.call(Request::Mgs(request));
        match (reply.error, reply.body) {
            (Some(errno), _) => Err(errno),
            (None, ReplyBody::Empty) => params(world, MgsRequest::GetParams),
            (None, ReplyBody::Mgs(MgsReply::Params { version, params })) => Ok((version, params)),
            (None, other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn parameters_are_kept_and_told_of() {
        let mut old = world(MemoryIndex::default());
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let set = |text: &str, value: Option<&str>| MgsRequest::SetParam {
            name: name(text),
            value: value.map(name),
        };
        let inactive = "osc.*-OST0001*.active";
        let kept = vec![ParamInfo { name: name(inactive), value: name("0") }];
        let mut out = Outbox::new();
        old.config(MgsRequest::GetConfig).unwrap();
        let header = Header { slot: 3, seq: 1, ..old.header() };
        let wait = Body::Request(Request::Mgs(MgsRequest::WaitConfig { version: 0 }));
        let message = Message { header, body: wait, bulk: Bulk::None };
        old.mgs.on_message(Timestamp::default(), message, &mut out);
        assert_eq!(params(&mut old, set(inactive, Some("0"))), Ok((1, kept.clone())));
        assert_eq!(old.told.len(), 1, "who waits is told that there is something new");
        assert_eq!(params(&mut old, set(inactive, Some("0"))), Ok((1, kept.clone())), "it was so");
        assert_eq!(params(&mut old, set("other", None)).unwrap().0, 1);
        // As long as they can be: all of them make one record.
        let long = |number: usize| format!("{number:0>255}");
        for number in 1..PARAMS_MAX {
            params(&mut old, set(&long(number), Some(&long(number)))).unwrap();
        }
        assert_eq!(params(&mut old, set("one.more", Some("1"))), Err(Errno::ENOSPC));
        for number in 1..PARAMS_MAX {
            params(&mut old, set(&long(number), None)).unwrap();
        }
        let checkpoint = old.mgs.store().begin_checkpoint().unwrap();
        old.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
        let mut new = world(old.index);
        assert_eq!(params(&mut new, MgsRequest::GetParams).unwrap().1, kept);
        assert!(params(&mut new, set(inactive, None)).unwrap().1.is_empty());
    }

    #[test]
    fn a_configuration_is_not_kept_for_duplicates_but_told_again() {
        let mut world = world(MemoryIndex::default());
        let ost = Endpoint::Ost(1);
        for request in [register(ost, 7), MgsRequest::GetConfig] {
            let first = world.config(request.clone());
            assert_eq!(first, Ok((1, vec![info(ost)])));
            // The same once more: its answer was lost.
            world.seq -= 1;
            assert_eq!(world.config(request), first);
            let mut header = world.header();
            header.seq -= 1;
            let before = world.mgs.core.exports.admit(&header, false);
            assert!(matches!(before, sateen_target::Admission::Drop), "{before:?}");
            let kept = world.mgs.core.exports.admit(&world.header(), false);
            let sateen_target::Admission::Again(kept) = kept else { panic!("{kept:?}") };
            assert!(matches!(kept.body, Body::Reply(Reply { body: ReplyBody::Empty, .. })));
        }
    }

    #[test]
    fn parameters_are_not_kept_for_duplicates_but_told_again() {
        let mut world = world(MemoryIndex::default());
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let set = |value| MgsRequest::SetParam { name: name("active"), value: Some(name(value)) };
        let first = params(&mut world, set("0")).unwrap();
        world.seq -= 1;
        assert_eq!(params(&mut world, MgsRequest::GetParams), Ok(first));
        let kept = world.mgs.core.exports.admit(&world.header(), false);
        let sateen_target::Admission::Again(kept) = kept else { panic!("{kept:?}") };
        assert!(matches!(kept.body, Body::Reply(Reply { body: ReplyBody::Empty, .. })));
        // One that sets is answered again, and not executed again: somebody else may have set it
        // meanwhile.
        let reply = world.call(Request::Mgs(set("1")));
        world.seq -= 1;
        assert_eq!(world.mgs.set_param(&name("active"), Some(&name("2"))), Ok(reply.transno + 1));
        assert_eq!(world.call(Request::Mgs(set("1"))).transno, reply.transno);
        let (_, all) = params(&mut world, MgsRequest::GetParams).unwrap();
        assert_eq!(all, [ParamInfo { name: name("active"), value: name("2") }]);
    }

    #[test]
    fn what_was_asked_is_counted_as_long_as_the_client_is_there() {
        let mut world = world(MemoryIndex::default());
        world.config(register(Endpoint::Ost(1), 7)).unwrap();
        world.config(register(Endpoint::Ost(1), 8)).unwrap_err();
        for _ in 0..2 {
            world.config(MgsRequest::GetConfig).unwrap();
        }
        world.config(MgsRequest::WaitConfig { version: 0 }).unwrap();
        let shown = |stats: &MgsStats| {
            let mut text = String::new();
            stats.write(&MGS_STATS, &mut text).unwrap();
            let words = text.lines().map(|line| line.split_whitespace().take(2));
            words.map(|words| words.collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let expected = ["mgs_target_reg 1", "mgs_config_read 2", "ldlm_enqueue 1"];
        assert_eq!(shown(&world.mgs.stats()), expected);
        let (_, _, own) = world.mgs.exports().next().unwrap();
        assert_eq!(shown(&own), expected);
        world.call(Request::Disconnect);
        assert_eq!(world.mgs.counters.of(ClientId(5)), MgsStats::default());
        assert_eq!(shown(&world.mgs.stats()), expected);
        world.mgs.clear_stats();
        assert!(shown(&world.mgs.stats()).is_empty());
    }

    #[test]
    fn who_asks_nothing_is_forgotten_and_may_ask_again() {
        let mut world = world(MemoryIndex::default());
        let target = ClientId(5);
        let header = |generation, slot| Header {
            generation,
            slot,
            seq: 1,
            ..Header::between(Endpoint::Client(ClientId(6)), Endpoint::Mgs, ClientId(6))
        };
        let mut out = Outbox::new();
        let mut send = |world: &mut World, header, request| {
            let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
            world.mgs.on_message(Timestamp::default(), message, &mut out);
            out.drain().for_each(drop);
        };
        send(&mut world, header(0, 0), Request::Connect { features: 0 });
        let generation = world.mgs.core.exports.generation(ClientId(6)).unwrap();
        world.config(MgsRequest::GetConfig).unwrap();
        let wait = || Request::Mgs(MgsRequest::WaitConfig { version: 0 });
        send(&mut world, header(generation, 3), wait());
        assert_eq!(world.mgs.waiting.len(), 1);
        let mut now = Timestamp::default();
        let mut live = |world: &mut World, seconds: u64, again: bool| {
            for step in 0..seconds * 10 {
                now.mono_ns += 100_000_000;
                world.mgs.on_tick(now, &mut Outbox::new());
                // A target never is forgotten; and somebody is heard.
                world.seq += 1;
                let (own, ping) = (world.header(), Body::Request(Request::Ping));
                let ping = Message { header: own, body: ping, bulk: Bulk::None };
                world.mgs.on_message(now, ping, &mut Outbox::new());
                if again && step % 40 == 0 {
                    let body = Body::Request(wait());
                    let header = header(generation, 3);
                    let repeated = Message { header, body, bulk: Bulk::None };
                    world.mgs.on_message(now, repeated, &mut Outbox::new());
                }
            }
        };
        live(&mut world, 120, true);
        assert_eq!(world.mgs.waiting.len(), 1, "it asks for it all the time");
        live(&mut world, 62, false);
        assert!(world.mgs.waiting.is_empty());
        let left: Vec<_> = world.mgs.exports().map(|(client, ..)| client).collect();
        assert_eq!(left, [target]);
        send(&mut world, Header { seq: 2, ..header(0, 0) }, Request::Connect { features: 0 });
        assert_eq!(world.mgs.exports().count(), 2);
    }

    #[test]
    fn a_lost_ost_is_replaced_and_an_mdt_is_not() {
        let mut world = world(MemoryIndex::default());
        let (ost, mdt) = (Endpoint::Ost(1), Endpoint::Mdt(0));
        let replace = |target, uuid| MgsRequest::Replace { info: info(target), uuid };
        world.config(register(ost, 7)).unwrap();
        world.config(register(mdt, 9)).unwrap();
        assert_eq!(world.config(register(ost, 8)), Err(Errno::EEXIST));
        assert_eq!(world.config(replace(ost, 8)), Ok((3, vec![info(mdt), info(ost)])));
        // Said again it changes nothing; the one before is not taken back.
        assert_eq!(world.config(replace(ost, 8)).unwrap().0, 3);
        assert_eq!(world.config(register(ost, 8)).unwrap().0, 3);
        assert_eq!(world.config(register(ost, 7)), Err(Errno::EEXIST));
        // One under an index that nobody had is simply entered.
        assert_eq!(world.config(replace(Endpoint::Ost(2), 5)).unwrap().0, 4);
        assert_eq!(world.config(replace(mdt, 10)), Err(Errno::EINVAL));
    }

    #[test]
    fn the_configuration_outlives_a_restart() {
        let mut old = world(MemoryIndex::default());
        let (ost, mdt) = (Endpoint::Ost(1), Endpoint::Mdt(0));
        old.config(register(ost, 7)).unwrap();
        old.config(register(mdt, 9)).unwrap();
        let checkpoint = old.mgs.store().begin_checkpoint().unwrap();
        old.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
        let mut new = world(old.index);
        assert_eq!(new.config(MgsRequest::GetConfig), Ok((2, vec![info(mdt), info(ost)])));
        assert_eq!(new.config(register(ost, 8)), Err(Errno::EEXIST));
        assert_eq!(new.config(register(Endpoint::Ost(2), 8)).unwrap().0, 3);
    }
}
