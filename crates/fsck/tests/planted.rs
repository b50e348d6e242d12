//! A small file system made by the real MDT and OST on memory backends; then each kind of
//! damage is planted into it, and must be found.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sateen_fsck::{FileSystem, Finding, Image, Kind, OstAtRest, Sink, check};
use sateen_mdt::{Mdt, MdtConfig};
use sateen_osd::memory::{MemoryIndex, MemoryObjects};
use sateen_osd::{
    Batch, Index, IndexError, Key, Memtable, ObjectStore, Prefetched, Store, StoreLimits,
};
use sateen_ost::Ost;
use sateen_target::{CoreConfig, Effect, Outbox, Service};
use sateen_types::{
    ClientId, ERASURE_CODED, Endpoint, Fid, Layout, Name, ObjectId, Seq, Timestamp,
};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{Entry, Inode};
use sateen_wire::*;

const HASH_KEY: u64 = 42;
const CLIENT: ClientId = ClientId(1);

struct Host {
    service: Box<dyn Service>,
    index: Arc<MemoryIndex>,
    objects: Arc<MemoryObjects>,
}

/// One MDT, two OSTs and a client, each message delivered at once.
struct World {
    hosts: BTreeMap<Endpoint, Host>,
    now: Timestamp,
    replies: Vec<Reply>,
    generations: BTreeMap<Endpoint, u32>,
    seqs: BTreeMap<Endpoint, u64>,
    fids: (Seq, u32),
}

impl World {
    fn new() -> World {
        let now = Timestamp { mono_ns: 1, wall_ns: 1_000_000_000 };
        let config = |me| CoreConfig { me, boot_epoch: 1, hash_key: HASH_KEY };
        let store = || Store::new(1, 0, StoreLimits::default());
        let mut world = World {
            hosts: BTreeMap::new(),
            now,
            replies: Vec::new(),
            generations: BTreeMap::new(),
            seqs: BTreeMap::new(),
            fids: (Seq(0), 0),
        };
        for index in 0..2 {
            let me = Endpoint::Ost(index);
            world.add(me, Box::new(Ost::new(config(me), store())));
        }
        let (me, mut out) = (Endpoint::Mdt(0), Outbox::new());
        // What is removed is gone when there is nothing to be done any more: no time goes by here.
        let waits_for_nothing = MdtConfig { destroy_delay_ns: 0, ..MdtConfig::new(0, 0..2) };
        let mdt = Mdt::new(config(me), store(), waits_for_nothing, now, &mut out);
        world.add(me, Box::new(mdt));
        world.run(me, out);
        for to in [Endpoint::Mdt(0), Endpoint::Ost(0), Endpoint::Ost(1)] {
            let reply = world.ask(to, Request::Connect { features: 0 }, Bulk::None);
            let ReplyBody::Connected { generation, .. } = reply.body else { panic!("{reply:?}") };
            world.generations.insert(to, generation);
            world.seqs.clear();
        }
        let MdtReply::Sequence(seq) = world.mdt(MdtRequest::GrantSeq) else { panic!() };
        world.fids = (seq, 0);
        world
    }

    fn add(&mut self, me: Endpoint, service: Box<dyn Service>) {
        let (index, objects) = (Arc::default(), Arc::new(MemoryObjects::new(1 << 30)));
        self.hosts.insert(me, Host { service, index, objects });
    }

    /// Does what a target wants done, until nobody wants anything.
    fn run(&mut self, me: Endpoint, mut out: Outbox) {
        let mut todo: Vec<(Endpoint, Effect)> = out.drain().map(|effect| (me, effect)).collect();
        while !todo.is_empty() {
            let (me, effect) = todo.remove(0);
            let now = self.now;
            let mut out = Outbox::new();
            let mut at = me;
            match effect {
                Effect::Send(message) => match message.header.to {
                    Endpoint::Client(_) => match message.body {
                        Body::Reply(reply) => self.replies.push(reply),
                        other => panic!("{other:?}"),
                    },
                    to => {
                        at = to;
                        self.hosts.get_mut(&to).unwrap().service.on_message(now, message, &mut out);
                    }
                },
                Effect::Prefetch { id, wants, generation } => {
                    let host = self.hosts.get_mut(&me).unwrap();
                    let view = Prefetched::read(&*host.index, &wants, generation).unwrap();
                    host.service.on_prefetched(now, id, view, &mut out);
                }
                Effect::Object { id, op } => {
                    let host = self.hosts.get_mut(&me).unwrap();
                    let done = op.run(&*host.objects);
                    host.service.on_object_done(now, id, done, &mut out);
                }
                Effect::Flush => {
                    let host = self.hosts.get_mut(&me).unwrap();
                    while let Some(flush) = host.service.store().begin_flush() {
                        host.service.store().flush_done(flush);
                        host.service.on_flushed(now, &mut out);
                    }
                }
            }
            todo.extend(out.drain().map(|effect| (at, effect)));
        }
    }

    /// Time goes by, and everything becomes durable.
    fn rest(&mut self) {
        for _ in 0..8 {
            self.now.mono_ns += 10_000_000;
            for me in self.hosts.keys().copied().collect::<Vec<_>>() {
                let mut out = Outbox::new();
                let now = self.now;
                self.hosts.get_mut(&me).unwrap().service.on_tick(now, &mut out);
                self.run(me, out);
                let mut out = Outbox::new();
                out.push(Effect::Flush);
                self.run(me, out);
            }
        }
    }

    fn ask(&mut self, to: Endpoint, request: Request, bulk: Bulk) -> Reply {
        let seq = self.seqs.entry(to).or_default();
        *seq += 1;
        let seq = *seq;
        let header = Header {
            generation: self.generations.get(&to).copied().unwrap_or(0),
            seq,
            ..Header::between(Endpoint::Client(CLIENT), to, CLIENT)
        };
        let message = Message { header, body: Body::Request(request), bulk };
        let (now, mut out) = (self.now, Outbox::new());
        self.hosts.get_mut(&to).unwrap().service.on_message(now, message, &mut out);
        self.run(to, out);
        if self.replies.is_empty() {
            self.rest();
        }
        self.replies.remove(0)
    }

    fn mdt(&mut self, request: MdtRequest) -> MdtReply {
        let reply = self.ask(Endpoint::Mdt(0), Request::Mdt(request), Bulk::None);
        match (reply.error, reply.body) {
            (None, ReplyBody::Mdt(body)) => body,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, parent: Fid, name: &str, mode: u32, write: bool) -> (Fid, Option<Layout>) {
        self.fids.1 += 1;
        let fid = Fid::new(self.fids.0, self.fids.1);
        let MdtReply::Created { layout, .. } = self.mdt(MdtRequest::Create {
            parent,
            name: Name::new(name.as_bytes()).unwrap(),
            fid,
            mode,
            rdev: 0,
            cred: Cred::default(),
            symlink: Bytes::new(),
            policy: None,
            open: write.then_some(OpenFlags { write: true, truncate: false, exec: false }),
            open_id: OpenId { id: u64::from(self.fids.1) },
            exclusive: true,
            want: if write { Ibits::DATA } else { Ibits::NONE },
        }) else {
            panic!()
        };
        (fid, layout.map(|layout| (*layout).clone()))
    }

    /// A file with so many bytes, closed.
    fn file(&mut self, parent: Fid, name: &str, size: u64) -> Fid {
        let (fid, layout) = self.create(parent, name, 0o100_644, true);
        for chunk in layout.unwrap().chunks(0, size) {
            let object = ObjectId { fid, stripe: chunk.stripe };
            let request = OstRequest::Write {
                object,
                layout_gen: 1,
                offset: chunk.object_offset,
                grant_used: 0,
            };
            let data = Bulk::Data(Bytes::from(vec![7; chunk.len as usize]));
            let reply = self.ask(Endpoint::Ost(chunk.ost), Request::Ost(request), data);
            assert_eq!(reply.error, None);
        }
        let mtime = Some(sateen_types::Timespec::from_ns(5_000_000_000));
        let report = Some(SizeReport { size, blocks: size.div_ceil(512), mtime, atime: None });
        let open_id = OpenId { id: u64::from(fid.oid) };
        self.mdt(MdtRequest::Close { fid, open_id, report });
        fid
    }

    /// Everything at rest, all of it in the indexes.
    fn stop(mut self) -> Stopped {
        self.rest();
        let mut stopped = Stopped { images: BTreeMap::new() };
        for (me, mut host) in self.hosts {
            if let Some(checkpoint) = host.service.store().begin_checkpoint() {
                host.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
            }
            stopped.images.insert(me, (host.index, host.objects));
        }
        stopped
    }
}

struct Stopped {
    images: BTreeMap<Endpoint, (Arc<MemoryIndex>, Arc<MemoryObjects>)>,
}

#[derive(Default)]
struct Found(Vec<Finding>);

impl Sink for Found {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }
    fn progress(&mut self, _: Endpoint, _: &'static str, _: u64) {}
}

impl Stopped {
    fn check(&self) -> Vec<Finding> {
        self.check_with(|_, index| index)
    }

    fn check_with(
        &self,
        index: impl Fn(Endpoint, Arc<dyn Index>) -> Arc<dyn Index>,
    ) -> Vec<Finding> {
        let read = index;
        let mut fs = FileSystem {
            hash_key: HASH_KEY,
            mgs: None,
            mdts: BTreeMap::new(),
            osts: BTreeMap::new(),
        };
        for (me, (index, objects)) in &self.images {
            let image = Image::new(*me, read(*me, index.clone()));
            match me {
                Endpoint::Mdt(index) => drop(fs.mdts.insert(*index, image)),
                Endpoint::Ost(index) => {
                    fs.osts.insert(*index, OstAtRest { image, objects: objects.clone() });
                }
                Endpoint::Mgs => fs.mgs = Some(image),
                Endpoint::Client(_) => {}
            }
        }
        let mut found = Found::default();
        check(&fs, &mut found).unwrap();
        found.0
    }

    fn plant(&self, me: Endpoint, change: impl FnOnce(&mut Batch)) {
        let (mut batch, mut table) = (Batch::new(), Memtable::new());
        change(&mut batch);
        table.apply(batch.as_bytes()).unwrap();
        let index = &self.images[&me].0;
        index.checkpoint(&table, index.checkpointed()).unwrap();
    }

    fn get(&self, key: &Key) -> Vec<u8> {
        self.images[&MDT].0.get(key).unwrap().unwrap()
    }

    fn entry(&self, name: &str) -> (Key, Vec<u8>) {
        let all = self.images[&MDT].0.scan(&Key::tag(b'E'), &Key::EMPTY, 1000).unwrap();
        let named = |value: &[u8]| Entry::decode(value).unwrap().name == name.as_bytes();
        all.into_iter().find(|(_, value)| named(value)).unwrap()
    }

    fn edit(&self, fid: Fid, edit: impl FnOnce(&mut Inode<'_>)) {
        let key = inode(fid);
        let bytes = self.get(&key);
        let mut inode = Inode::decode(&bytes).unwrap();
        edit(&mut inode);
        self.plant(MDT, |tx| tx.put_with(&key, |out| inode.put(out)));
    }

    /// The only damage is one that says this.
    fn damaged(&self, says: &str) {
        let found = self.check();
        let damage: Vec<&Finding> = found.iter().filter(|f| f.kind == Kind::Damage).collect();
        assert!(damage.iter().any(|finding| finding.what.contains(says)), "{says}: {found:?}");
    }

    fn pending(&self, says: &str) {
        let found = self.check();
        assert!(found.iter().all(|finding| finding.kind == Kind::Pending), "{found:?}");
        assert!(found.iter().any(|finding| finding.what.contains(says)), "{says}: {found:?}");
    }
}

const MDT: Endpoint = Endpoint::Mdt(0);

fn inode(fid: Fid) -> Key {
    Key::tag(b'I').with(&fid.to_key())
}

#[test]
fn records_of_the_mgs_make_sense() {
    let target = |info| disk::mgs::TargetRecord { info, uuid: 7 };
    let info = TargetInfo {
        target: Endpoint::Ost(3),
        nids: sateen_types::Nid::Lo.into(),
        inactive: false,
    };
    let at = |index: u32| Key::tag(b't').with(&[2]).with(&index.to_be_bytes());
    let good = || {
        let (mut stopped, ..) = small();
        stopped.images.insert(
            Endpoint::Mgs,
            (Arc::new(MemoryIndex::default()), Arc::new(MemoryObjects::new(0))),
        );
        stopped.plant(Endpoint::Mgs, |tx| {
            tx.put(&at(3), &target(info));
            tx.put(&Key::tag(b'c'), &disk::mgs::ConfigRecord { version: 5 });
            tx.put(&Key::tag(b'p'), &disk::mgs::ParamsRecord::default());
        });
        stopped
    };
    assert_eq!(good().check(), []);
    let cases: [(Key, Option<u8>, &str); 5] = [
        (at(3), Some(1), "the target under"),
        (at(4), None, "OST0003 is in a wrong place"),
        (Key::tag(b'c'), Some(1), "version"),
        (Key::tag(b'p'), Some(1), "parameters"),
        (Key::tag(b'x'), Some(1), "unknown kind"),
    ];
    for (key, garbage, says) in cases {
        let stopped = good();
        stopped.plant(Endpoint::Mgs, |tx| match garbage {
            Some(byte) => tx.put_with(&key, |out| out.push(byte)),
            None => tx.put(&key, &target(info)),
        });
        stopped.damaged(says);
    }
}

/// A directory `d` with a file of three stripes' bytes `f`, and an empty directory `e`.
fn small() -> (Stopped, Fid, Fid, Fid) {
    let mut world = World::new();
    let (d, _) = world.create(Fid::ROOT, "d", 0o040_755, false);
    let f = world.file(d, "f", (2 << 20) + 5);
    let (e, _) = world.create(Fid::ROOT, "e", 0o040_755, false);
    let stopped = world.stop();
    assert_eq!(stopped.check(), []);
    (stopped, d, f, e)
}

#[test]
fn a_whole_file_system_is_clean_and_a_removed_file_too() {
    let mut world = World::new();
    let f = world.file(Fid::ROOT, "f", 3 << 20);
    let name = Name::new(b"g").unwrap();
    world.mdt(MdtRequest::Link { fid: f, parent: Fid::ROOT, name });
    let name = Name::new(b"f").unwrap();
    world.mdt(MdtRequest::Unlink { parent: Fid::ROOT, name, directory: false });
    world.file(Fid::ROOT, "h", 100);
    let name = Name::new(b"h").unwrap();
    world.mdt(MdtRequest::Unlink { parent: Fid::ROOT, name, directory: false });
    assert_eq!(world.stop().check(), []);
}

/// A slot's number is that of a transaction; but of the one in which it is noted what was made again
/// after a crash it is a run's, which is any.
#[test]
fn slots_name_transactions_that_there_are() {
    let slot = |slot: u16| Key::tag(b'S').with(&7_u64.to_be_bytes()).with(&slot.to_be_bytes());
    let value = disk::mdt::ReplySlot { seq: 3, transno: u64::MAX };
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.put(&slot(sateen_target::REPLAY_SLOT), &value));
    assert_eq!(fs.check(), []);
    fs.plant(MDT, |tx| tx.put(&slot(5), &value));
    fs.damaged("the reply slot");
}

#[test]
fn damage_to_names_is_found() {
    let (fs, _, f, _) = small();
    fs.plant(MDT, |tx| tx.remove(&inode(f)));
    fs.damaged("a lost file");
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.remove(&fs.entry("f").0));
    fs.damaged("its name \"f\"");
    fs.damaged("entries and link count");
    let (fs, d, ..) = small();
    fs.edit(d, |inode| inode.entries = 7);
    fs.damaged("counts 7 entries");
    let (fs, d, ..) = small();
    fs.edit(d, |inode| inode.attr.nlink = 3);
    fs.damaged("link count 3 where it must be 2");
    let (fs, _, f, _) = small();
    fs.edit(f, |inode| inode.attr.nlink = 2);
    fs.damaged("1 more than it has names");
    let (fs, _, f, _) = small();
    fs.edit(f, |inode| inode.links = &[]);
    fs.edit(f, |inode| inode.attr.mode = 0o020_644);
    fs.damaged("has mode 20644");
    let (fs, ..) = small();
    let (key, value) = fs.entry("f");
    let entry = Entry::decode(&value).unwrap();
    fs.plant(MDT, |tx| tx.put_with(&key, |out| Entry { name: b"x", ..entry }.put(out)));
    fs.damaged("in a wrong place");
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.put_with(&key_like(&fs, "f"), |out| out.push(9)));
    fs.damaged("an entry of directory");
    let (fs, _, _, e) = small();
    fs.edit(e, |inode| inode.attr.nlink = 0);
    fs.damaged("nobody will remove it");
}

/// What looked like the rest of a crash, or like nothing at all.
#[test]
fn damage_that_could_pass_for_something_else_is_found() {
    // The sequence is granted, as that of every mount that lived when the MDT stopped.
    let (fs, _, f, _) = small();
    fs.plant(MDT, |tx| tx.remove(&inode(f)));
    fs.damaged("is what a lost file held");
    let found = fs.check();
    assert!(found.iter().all(|finding| finding.kind != Kind::Pending), "{found:?}");
    let orphan = |fid: Fid| Key::tag(b'O').with(&fid.to_key());
    let removed = |fs: &Stopped, fid: Fid| {
        fs.edit(fid, |inode| (inode.attr.nlink, inode.links) = (0, &[]));
        fs.plant(MDT, |tx| tx.put_with(&orphan(fid), |_| {}));
    };
    let (fs, d, ..) = small();
    removed(&fs, d);
    fs.damaged("it was removed, and has 1 entries");
    let mut world = World::new();
    let (d, _) = world.create(Fid::ROOT, "d", 0o040_755, false);
    let (below, _) = world.create(d, "below", 0o040_755, false);
    let fs = world.stop();
    assert_eq!(fs.check(), []);
    removed(&fs, d);
    fs.damaged(&format!("directory {below}: it is not connected to the root"));
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.remove(&inode(Fid::ROOT)));
    fs.damaged("the root has no inode");
    let (fs, _, f, _) = small();
    fs.edit(f, |inode| inode.links = &[]);
    let found = fs.check();
    let [note] = &found[..] else { panic!("{found:?}") };
    assert!(note.kind == Kind::Note && note.what.contains("1 of its names are not"), "{note:?}");
}

fn key_like(fs: &Stopped, name: &str) -> Key {
    fs.entry(name).0
}

#[test]
fn damage_to_other_records_is_found() {
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.put(&Key::tag(b'C'), &99u64));
    fs.damaged("the counters say 99");
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.put(&Key::tag(b'Z'), &1u64));
    fs.damaged("unknown kind");
    let (fs, d, ..) = small();
    fs.plant(MDT, |tx| tx.put_with(&Key::tag(b'O').with(&d.to_key()), |_| {}));
    fs.damaged("is an orphan and has names");
    let (fs, d, ..) = small();
    let xattr = Key::tag(b'X').with(&d.to_key()).with(&[1; 8]);
    fs.plant(MDT, |tx| tx.put_with(&xattr, |out| out.extend([1, b'a', b'b'])));
    fs.damaged("in a wrong place");
    fs.damaged("counts 0 extended attributes, and has 1");
    let (fs, d, ..) = small();
    fs.plant(MDT, |tx| tx.put_with(&Key::tag(b'U').with(&d.to_key()), |out| out.push(1)));
    fs.damaged("the unlink llog");
    let (fs, ..) = small();
    fs.plant(MDT, |tx| tx.put_with(&Key::tag(b'P').with(&[0; 8]), |out| out.push(1)));
    fs.damaged("the punch llog");
    let (fs, _, f, _) = small();
    let stranger = Fid::new(Seq(f.seq.0 + 500), 1);
    let bytes = fs.get(&inode(f));
    fs.plant(MDT, |tx| tx.put_with(&inode(stranger), |out| out.extend(&bytes)));
    fs.damaged("was never granted");
}

/// An index whose disk has lost something.
struct Broken;

impl Index for Broken {
    fn get(&self, _: &Key) -> Result<Option<Vec<u8>>, IndexError> {
        Err(IndexError::Corrupt("a checksum".into()))
    }
    fn scan(&self, _: &Key, _: &Key, _: usize) -> Result<Vec<(Key, Vec<u8>)>, IndexError> {
        Err(IndexError::Corrupt("a checksum".into()))
    }
    fn checkpoint(&self, _: &Memtable, _: u64) -> Result<(), IndexError> {
        Ok(())
    }
    fn checkpointed(&self) -> u64 {
        9
    }
}

#[test]
fn a_damaged_index_is_its_own_targets_alone_and_told_once() {
    let fs = small().0;
    let found = fs.check_with(|me, index| if me == MDT { Arc::new(Broken) } else { index });
    let damaged: Vec<&str> = found.iter().map(|finding| finding.target.as_str()).collect();
    assert_eq!(damaged, ["MDT0000"], "{found:?}");
}

#[test]
fn objects_that_cannot_hold_what_was_noted_are_told_of() {
    let (fs, _, f, _) = small();
    let layout = Inode::decode(&fs.get(&inode(f))).unwrap().layout.to_vec();
    let layout = Layout::from_bytes(&layout).unwrap();
    let (stripe, ost) = layout.objects().next().unwrap();
    let object = ObjectId { fid: f, stripe };
    fs.images[&Endpoint::Ost(ost)].1.punch(object, 700).unwrap();
    let found = fs.check();
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.kind, finding.target.as_str()), (Kind::Note, "MDT0000"));
    assert!(finding.what.contains("too small for them"), "{}", finding.what);
    assert!(!finding.what.contains("without bytes"), "{}", finding.what);
    fs.images[&Endpoint::Ost(ost)].1.remove(object).unwrap();
    let found = fs.check();
    let says = format!("objects without bytes: {stripe} on OST{ost:04x}");
    assert!(found.len() == 1 && found[0].what.contains(&says), "{found:?}");
    // Of a size that is stale, the space is as old.
    fs.edit(f, |inode| inode.attr.size_stale = true);
    assert_eq!(fs.check(), []);
}

#[test]
fn damage_to_objects_is_found() {
    let (fs, _, f, _) = small();
    let place = |stripe| {
        let layout = Inode::decode(&fs.get(&inode(f))).unwrap().layout.to_vec();
        let layout = Layout::from_bytes(&layout).unwrap();
        Endpoint::Ost(layout.objects().find(|object| object.0 == stripe).unwrap().1)
    };
    let objects = |fs: &Stopped, me| fs.images[&me].1.clone();
    let first = ObjectId { fid: f, stripe: 0 };
    objects(&fs, place(0)).write(first, 50 << 20, b"x").unwrap();
    fs.damaged("it proves that its file has");
    fs.edit(f, |inode| inode.attr.size_stale = true);
    assert_eq!(fs.check(), [], "a size that is known to be stale");

    let other = small().0;
    objects(&other, place(1)).write(first, 0, b"x").unwrap();
    other.damaged("no such stripe here");
    let other = small().0;
    objects(&other, place(0)).write(ObjectId { fid: f, stripe: 9 }, 0, b"x").unwrap();
    other.damaged("no such stripe here");
    let other = small().0;
    other.edit(f, |inode| inode.attr.maybe_objects = false);
    other.damaged("having no objects");
    let other = small().0;
    other.edit(f, |inode| inode.attr.layout_gen = 0);
    other.damaged("layout generation 1");

    // Of a sequence that is granted, a crash may leave objects; of another, nothing may.
    let nobody = Fid::new(f.seq, 77);
    let other = small().0;
    objects(&other, place(0)).write(ObjectId { fid: nobody, stripe: 0 }, 0, b"x").unwrap();
    other.pending("never made for good");
    other.plant(MDT, |tx| tx.remove(&Key::tag(b'G').with(&f.seq.0.to_be_bytes())));
    other.damaged("belongs to no file");
}

#[test]
fn a_layout_of_a_newer_version_is_no_damage() {
    let (fs, _, f, _) = small();
    fs.edit(f, |inode| {
        let mut layout = inode.layout.to_vec();
        let whole = Layout::from_bytes(&layout).unwrap();
        // Where the number of the pattern stands.
        let at = layout.len() - whole.components[0].to_vec().len() + 4 + 4 + 8 + 8;
        layout[at] = ERASURE_CODED;
        inode.layout = layout.leak();
    });
    let found = fs.check();
    let [note] = &found[..] else { panic!("{found:?}") };
    assert!(note.kind == Kind::Note && note.what.contains("of a newer version"), "{note:?}");
}
