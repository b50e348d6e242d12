//! The management target: which targets a file system has, and where they are reached.
//!
//! Pure: an [`Mgs`] is a [`sateen_target::Service`]. Targets register with it when they
//! start; clients ask it for the configuration when they mount. The configuration is small
//! and kept in memory; every change is journaled before it is told to anybody, so that the
//! version a client has seen never comes back with another meaning.

use std::collections::BTreeMap;

use sateen_osd::{Batch, Key, ObjectDone, Prefetched, Store};
use sateen_target::{Core, CoreConfig, Fault, IoId, Outbox, ParkId, Service};
use sateen_types::{Endpoint, Errno, OST_INDEX_MAX, Timestamp, seq};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mgs::{ConfigRecord, TargetRecord};
use sateen_wire::{
    Body, Bulk, Message, MgsReply, MgsRequest, Reply, ReplyBody, Request, TARGETS_MAX, TargetInfo,
};

const TARGETS: Key = Key::tag(b't');
const CONFIG: Key = Key::tag(b'c');

/// The management target.
#[derive(Debug)]
pub struct Mgs {
    core: Core,
    /// `None` until it was read from the store.
    config: Option<Config>,
    batch: Batch,
}

#[derive(Debug, Default)]
struct Config {
    version: u64,
    targets: BTreeMap<Endpoint, TargetRecord>,
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
        Mgs { core: Core::new(config, store), config: None, batch: Batch::new() }
    }

    fn handle(&mut self, message: Message, fetched: Prefetched, out: &mut Outbox) {
        let header = message.header;
        match self.execute(&message, &fetched) {
            Ok((reply, upto)) => self.core.answer_durable(&header, reply, upto, out),
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

    /// The answer, and how far the journal has to be durable before it is given.
    fn execute(&mut self, message: &Message, fetched: &Prefetched) -> Result<(Reply, u64), Fault> {
        let Body::Request(request) = &message.body else { return Err(Errno::EPROTO.into()) };
        if self.config.is_none() {
            self.config = Some(self.load(fetched)?);
        }
        let transno = match request {
            Request::Mgs(MgsRequest::GetConfig) => 0,
            Request::Mgs(MgsRequest::Register { info, uuid }) => self.register(*info, *uuid)?,
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        let (version, targets) = match &self.config {
            Some(config) => (config.version, config.targets.values().map(|t| t.info).collect()),
            None => (0, Vec::new()),
        };
        let body = ReplyBody::Mgs(MgsReply::Config { version, targets });
        Ok((Reply { transno, ..Reply::ok(body) }, self.core.store.transno()))
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
        Ok(config)
    }

    /// Enters a target; the transno, or 0 if nothing had to be changed.
    fn register(&mut self, info: TargetInfo, uuid: u64) -> Result<u64, Fault> {
        let Some(key) = target_key(info.target) else { return Err(Errno::EINVAL.into()) };
        if self.core.store.must_wait() {
            return Err(Fault::Blocked);
        }
        let Some(config) = &mut self.config else { return Err(Errno::EIO.into()) };
        let mut record = TargetRecord { info, uuid };
        if let Some(old) = config.targets.get(&info.target) {
            if old.uuid != uuid {
                return Err(Errno::EEXIST.into());
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

    fn on_message(&mut self, _now: Timestamp, message: Message, out: &mut Outbox) {
        let header = message.header;
        let admitted = self.core.admit(message, out);
        while let Some(old) = self.core.exports.predecessor(header.client, header.from) {
            self.core.exports.disconnect(old);
        }
        let Some(message) = admitted else { return };
        if !matches!(message.body, Body::Request(Request::Disconnect)) {
            self.handle(message, Prefetched::default(), out);
        }
    }

    fn on_object_done(&mut self, _: Timestamp, _: IoId, _: ObjectDone, _: &mut Outbox) {}

    fn on_prefetched(&mut self, _now: Timestamp, id: ParkId, view: Prefetched, out: &mut Outbox) {
        if let Some((message, fetched)) = self.core.unpark(id, view) {
            self.handle(message, fetched, out);
        }
    }

    fn on_flushed(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.core.flushed(out);
    }

    fn on_tick(&mut self, _now: Timestamp, _out: &mut Outbox) {}

    fn on_poisoned(&mut self, _now: Timestamp, out: &mut Outbox) {
        self.core.poison(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_osd::memory::MemoryIndex;
    use sateen_osd::{Index, StoreLimits};
    use sateen_target::Effect;
    use sateen_types::{ClientId, Nid};
    use sateen_wire::Header;

    /// An MGS whose driver does everything at once.
    struct World {
        mgs: Mgs,
        index: MemoryIndex,
        generation: u32,
        seq: u64,
        flushes: u32,
    }

    fn world(index: MemoryIndex) -> World {
        let config = CoreConfig { me: Endpoint::Mgs, boot_epoch: 4, hash_key: 0 };
        let store = Store::new(1, index.checkpointed(), StoreLimits::default());
        let mut world =
            World { mgs: Mgs::new(config, store), index, generation: 0, seq: 0, flushes: 0 };
        match world.call(Request::Connect { features: 0 }).body {
            ReplyBody::Connected { generation, .. } => world.generation = generation,
            other => panic!("{other:?}"),
        }
        world.seq = 0;
        world
    }

    impl World {
        fn call(&mut self, request: Request) -> Reply {
            self.seq += 1;
            let header = Header {
                generation: self.generation,
                seq: self.seq,
                ..Header::between(Endpoint::Ost(0), Endpoint::Mgs, ClientId(5))
            };
            let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
            let now = Timestamp::default();
            let mut out = Outbox::new();
            self.mgs.on_message(now, message, &mut out);
            loop {
                let effects: Vec<Effect> = out.drain().collect();
                assert!(!effects.is_empty(), "an answer comes");
                for effect in effects {
                    match effect {
                        Effect::Send(Message { body: Body::Reply(reply), .. }) => return reply,
                        Effect::Prefetch { id, wants, generation } => {
                            let view = Prefetched::read(&self.index, &wants, generation).unwrap();
                            self.mgs.on_prefetched(now, id, view, &mut out);
                        }
                        Effect::Flush => {
                            self.flushes += 1;
                            let flush = self.mgs.store().begin_flush().unwrap();
                            self.mgs.store().flush_done(flush);
                            self.mgs.on_flushed(now, &mut out);
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
        TargetInfo { target, nid: Nid::Lo, inactive: false }
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
            nid: Nid::Tcp { addr: [10, 0, 0, 1].into(), net: 0 },
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
