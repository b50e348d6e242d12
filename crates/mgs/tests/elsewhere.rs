//! The seam for a store that several hosts share: an MGS knows its state only by the storage
//! ports, so that another run of it, on another host, goes on where the first one was, and the
//! first one stops at the store's first refusal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use sateen_journal::{Decoded, decode_frame};
use sateen_mgs::{FileSystem, Mgs};
use sateen_osd::memory::MemoryIndex;
use sateen_osd::{Flush, Index, IndexError, JournalDevice, Key, Memtable, Prefetched, StoreLimits};
use sateen_target::{CoreConfig, Effect, Outbox, Recovery, Service};
use sateen_types::{ClientId, Endpoint, Errno, Name, Nid, Timestamp};
use sateen_wire::{
    Body, Bulk, FsName, Header, Message, MgsReply, MgsRequest, Reply, ReplyBody, Request,
    TargetInfo,
};

/// Of the file system's MGS, wherever it runs.
const JOURNAL_EPOCH: u64 = 7;

/// A store on the network, as etcd is one: it has a revision of its owner, and refuses whoever is
/// not the last.
#[derive(Debug, Default)]
struct Shared {
    owner: u64,
    /// What the group commits were, by the last transno of each.
    frames: BTreeMap<u64, Vec<u8>>,
    pairs: MemoryIndex,
}

/// The store as one of its owners sees it.
#[derive(Debug, Clone)]
struct Session {
    store: Arc<Mutex<Shared>>,
    owner: u64,
}

impl Session {
    /// From now on nobody else may write.
    fn begin(store: &Arc<Mutex<Shared>>) -> Session {
        let mut shared = store.lock().unwrap();
        shared.owner += 1;
        Session { store: store.clone(), owner: shared.owner }
    }

    fn write<T>(&self, work: impl FnOnce(&mut Shared) -> T) -> io::Result<T> {
        let mut shared = self.store.lock().unwrap();
        if shared.owner != self.owner {
            return Err(io::Error::other("another MGS has the lease"));
        }
        Ok(work(&mut shared))
    }
}

impl JournalDevice for Session {
    fn write(&mut self, flush: &Flush) -> io::Result<()> {
        let (last, frame) = (flush.upto, flush.frame.clone());
        Session::write(self, |shared| shared.frames.insert(last, frame)).map(drop)
    }

    fn trim(&mut self, upto: u64) -> io::Result<()> {
        Session::write(self, |shared| shared.frames.retain(|last, _| *last > upto))
    }
}

impl Index for Session {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, IndexError> {
        self.store.lock().unwrap().pairs.get(key)
    }

    fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, IndexError> {
        self.store.lock().unwrap().pairs.scan(prefix, after, limit)
    }

    fn checkpoint(&self, table: &Memtable, upto: u64) -> Result<(), IndexError> {
        Session::write(self, |shared| shared.pairs.checkpoint(table, upto))?
    }

    fn checkpointed(&self) -> u64 {
        self.store.lock().unwrap().pairs.checkpointed()
    }
}

/// An MGS on some host, and one client of it.
struct Host {
    mgs: Mgs,
    session: Session,
    generation: u32,
    seq: u64,
}

impl Host {
    fn start(store: &Arc<Mutex<Shared>>, boot_epoch: u64) -> Host {
        let session = Session::begin(store);
        let limits = StoreLimits::default();
        let mut recovery = Recovery::new(JOURNAL_EPOCH, session.checkpointed(), limits);
        for frame in store.lock().unwrap().frames.values() {
            let Decoded::Frame { payload, .. } = decode_frame(JOURNAL_EPOCH, frame) else {
                panic!("a frame is kept whole")
            };
            recovery.frame(payload).unwrap();
        }
        let config = CoreConfig { me: Endpoint::Mgs, boot_epoch, hash_key: 0 };
        let fsname = FsName::new("scratch").unwrap();
        let mgs = Mgs::new(config, recovery.finish().0);
        let mgs = mgs.of(FileSystem { fsname, uuid: 3, hash_key: 0 });
        let mut host = Host { mgs, session, generation: 0, seq: 0 };
        match host.call(Request::Connect { features: 0 }).body {
            ReplyBody::Connected { generation, .. } => host.generation = generation,
            other => panic!("{other:?}"),
        }
        host.seq = 0;
        host
    }

    fn call(&mut self, request: Request) -> Reply {
        self.seq += 1;
        let (from, client) = (Endpoint::Ost(0), ClientId(5));
        let header = Header::between(from, Endpoint::Mgs, client);
        let header = Header { generation: self.generation, seq: self.seq, ..header };
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
                        let view = Prefetched::read(&self.session, &wants, generation).unwrap();
                        self.mgs.on_prefetched(now, id, view, &mut out);
                    }
                    Effect::Flush => self.flush(&mut out),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// As a driver does it.
    fn flush(&mut self, out: &mut Outbox) {
        let Some(flush) = self.mgs.store().begin_flush() else { return };
        match JournalDevice::write(&mut self.session, &flush) {
            Ok(()) => {
                self.mgs.store().flush_done(flush);
                self.mgs.on_flushed(Timestamp::default(), out);
            }
            Err(_) => self.mgs.on_poisoned(Timestamp::default(), out),
        }
    }

    fn checkpoint(&mut self) {
        let checkpoint = self.mgs.store().begin_checkpoint().unwrap();
        self.session.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
        self.mgs.store().checkpoint_done();
        self.session.trim(checkpoint.upto).unwrap();
    }

    fn register(&mut self, target: Endpoint) -> Result<u64, Errno> {
        let info = TargetInfo { target, nids: Nid::Lo.into(), inactive: false };
        let reply = self.call(Request::Mgs(MgsRequest::Register { info, uuid: 1 }));
        match (reply.error, reply.body) {
            (None, ReplyBody::Mgs(MgsReply::Config { version, .. })) => Ok(version),
            (error, _) => Err(error.unwrap()),
        }
    }

    fn params(&mut self) -> Vec<String> {
        let reply = self.call(Request::Mgs(MgsRequest::GetParams));
        let ReplyBody::Mgs(MgsReply::Params { params, .. }) = reply.body else {
            panic!("{reply:?}")
        };
        params.iter().map(|p| String::from_utf8_lossy(p.name.as_bytes()).into_owned()).collect()
    }
}

#[test]
fn another_host_goes_on_and_the_first_one_stops() {
    let store = Arc::<Mutex<Shared>>::default();
    let mut first = Host::start(&store, 4);
    assert_eq!(first.register(Endpoint::Ost(1)), Ok(1));
    first.checkpoint();
    let (name, value) = (Name::new(b"osc.*.active").unwrap(), Name::new(b"0").unwrap());
    let set = MgsRequest::SetParam { name, value: Some(value) };
    assert_eq!(first.call(Request::Mgs(set)).error, None);

    // What was answered is there, from the index and from the journal.
    let mut second = Host::start(&store, 5);
    assert_eq!(second.params(), ["osc.*.active"]);
    assert_eq!(second.register(Endpoint::Mdt(0)), Ok(3));
    // The first one does not know yet. It answers nothing that is not durable, and no more.
    assert_eq!(first.register(Endpoint::Ost(2)), Err(Errno::EIO));
    let refused = first.call(Request::Mgs(MgsRequest::GetConfig));
    assert_eq!(refused.error, Some(Errno::EIO), "it has stopped");
    assert_eq!(second.register(Endpoint::Ost(2)), Ok(4));
    let mut third = Host::start(&store, 6);
    assert_eq!(third.register(Endpoint::Ost(2)), Ok(4), "it was there");
}
