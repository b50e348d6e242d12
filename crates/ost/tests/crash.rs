//! Random work on a few objects against a model of every byte, with completions in random
//! order and crashes: what was synced is there, what was cut and answered stays cut, a
//! repeated punch cuts nothing newer, readers see what was written.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use std::collections::BTreeMap;

use bytes::BytesMut;
use common::{Peer, Ticket, World, append, message, object, unpack, write, write_many};
use sateen_types::{Errno, ObjectId};
use sateen_wire::{Bulk, Message, OstReply, OstRequest, Request};

/// Bytes of an object that the model follows.
const BYTES: usize = 48;
const OBJECTS: u32 = 4;
/// Values of bytes tell which write they are from; 0 is a gap.
const WRITES_MAX: u8 = 250;

type Byte = Option<u8>;

/// What one object may look like.
#[derive(Clone)]
struct Model {
    /// If everything sent is executed in the order sent.
    current: Vec<Byte>,
    /// What a crash may leave of each byte: the numbers of changes, and the values.
    may_be: Vec<Vec<(u64, Byte)>>,
    changes: u64,
    writes: u8,
    version: u64,
    /// Punches that were not answered: version, size, number of the last write before.
    punches: Vec<(u64, u64, u8)>,
    /// Ranges of writes under way.
    writing: BTreeMap<Ticket, (usize, usize)>,
    syncing: bool,
    destroying: bool,
}

impl Model {
    fn new() -> Model {
        Model {
            current: vec![None; BYTES],
            may_be: vec![vec![(0, None)]; BYTES],
            changes: 0,
            writes: 0,
            version: 0,
            punches: Vec::new(),
            writing: BTreeMap::new(),
            syncing: false,
            destroying: false,
        }
    }

    fn size(&self) -> usize {
        self.current.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }

    fn set(&mut self, at: usize, value: Byte) {
        self.current[at] = value;
        self.may_be[at].push((self.changes, value));
    }

    fn wrote(&mut self, from: usize, to: usize) {
        self.changes += 1;
        for at in self.size()..from {
            self.set(at, Some(0));
        }
        // It may run before others under way, which then lie in its gap.
        for may_be in &mut self.may_be[..from] {
            if may_be.iter().any(|(_, value)| value.is_none()) {
                may_be.push((self.changes, Some(0)));
            }
        }
        for at in from..to {
            self.set(at, Some(self.writes));
        }
    }

    /// Nothing in it changes, but for what it grows by.
    fn grew(&mut self, size: usize) {
        self.changes += 1;
        for at in self.size()..size {
            self.set(at, Some(0));
        }
        for may_be in &mut self.may_be[..size] {
            if may_be.iter().any(|(_, value)| value.is_none()) {
                may_be.push((self.changes, Some(0)));
            }
        }
    }

    /// Cut to `size`; returns the number of the change.
    fn cut(&mut self, size: usize) -> u64 {
        self.changes += 1;
        for at in size..BYTES {
            self.set(at, None);
        }
        self.changes
    }

    /// From byte `from` on, nothing older than a change can be there any more.
    fn settled(&mut self, from: usize, change: u64) {
        for may_be in &mut self.may_be[from..] {
            may_be.retain(|(number, _)| *number >= change);
        }
    }

    fn synced(&mut self) {
        for (may_be, now) in self.may_be.iter_mut().zip(&self.current) {
            *may_be = vec![(self.changes, *now)];
        }
    }
}

enum Asked {
    Write(ObjectId),
    Append(ObjectId, u64, usize),
    Grow,
    Punch(ObjectId, u64, u64, u64),
    Destroy(ObjectId, u64),
    Sync(Vec<ObjectId>),
    Read(ObjectId, u64, Vec<Byte>),
}

struct Run {
    world: World,
    client: Peer,
    mdt: Peer,
    models: BTreeMap<ObjectId, Model>,
    asked: BTreeMap<Ticket, Asked>,
    /// Appends as they were sent.
    appends: BTreeMap<Ticket, Message>,
    checked: u64,
    appended: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut world = World::new(seed, 1 << 30);
        let (client, mdt) = (world.client(1), world.mdt());
        let models = (0..OBJECTS).map(|n| (object(1 + n / 2, n % 2), Model::new())).collect();
        let (asked, appends) = (BTreeMap::new(), BTreeMap::new());
        Run { world, client, mdt, models, asked, appends, checked: 0, appended: 0 }
    }

    fn one_step(&mut self) {
        let id = object(1 + self.world.random.below(2) as u32, self.world.random.below(2) as u32);
        match self.world.random.below(27) {
            0..4 => self.write(id),
            4 => self.write_many(id),
            24 => self.append(id),
            25 => self.grow(id),
            26 => self.append_again(),
            5..7 => self.read(id),
            7 => self.punch(id),
            8 => self.sync(),
            9 if self.world.random.one_in(4) => self.destroy(id),
            10 => self.world.tick(),
            11 if self.world.random.one_in(6) => self.world.start_checkpoint(),
            _ => {
                self.world.step();
            }
        }
        self.take_answers();
    }

    fn write(&mut self, id: ObjectId) {
        let from = self.world.random.index(BYTES - 1);
        let to = from + 1 + self.world.random.index((BYTES - from).min(12));
        let model = self.models.get_mut(&id).unwrap();
        let overlaps = model.writing.values().any(|(a, b)| from < *b && *a < to);
        if overlaps || model.syncing || model.destroying || model.writes == WRITES_MAX {
            return;
        }
        model.writes += 1;
        let data = vec![model.writes; to - from];
        model.wrote(from, to);
        let (request, bulk) = write(id, 1, from as u64, &data);
        let ticket = self.world.send(&mut self.client, request, bulk);
        self.models.get_mut(&id).unwrap().writing.insert(ticket, (from, to));
        self.asked.insert(ticket, Asked::Write(id));
    }

    /// Pieces with gaps between them.
    fn write_many(&mut self, id: ObjectId) {
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        let mut from = self.world.random.index(BYTES / 2);
        while from < BYTES && pieces.len() < 4 {
            let to = from + 1 + self.world.random.index((BYTES - from).min(5));
            pieces.push((from, to));
            from = to + self.world.random.index(5);
        }
        let model = self.models.get_mut(&id).unwrap();
        let hull = (pieces[0].0, pieces[pieces.len() - 1].1);
        let overlaps = model.writing.values().any(|(a, b)| hull.0 < *b && *a < hull.1);
        if overlaps || model.syncing || model.destroying || model.writes == WRITES_MAX {
            return;
        }
        model.writes += 1;
        let data = [model.writes; BYTES];
        pieces.iter().for_each(|(from, to)| model.wrote(*from, *to));
        let pieces: Vec<(u64, &[u8])> =
            pieces.iter().map(|(from, to)| (*from as u64, &data[..to - from])).collect();
        let (request, bulk) = write_many(id, 1, &pieces);
        let ticket = self.world.send(&mut self.client, request, bulk);
        self.models.get_mut(&id).unwrap().writing.insert(ticket, hull);
        self.asked.insert(ticket, Asked::Write(id));
    }

    /// Its place is behind whatever came before it, of which nothing need be done yet; and what
    /// comes after it finds it there.
    fn append(&mut self, id: ObjectId) {
        let model = self.models.get_mut(&id).unwrap();
        let from = model.size();
        let to = from + 1 + self.world.random.index(4);
        if to > BYTES || model.syncing || model.destroying || model.writes == WRITES_MAX {
            return;
        }
        model.writes += 1;
        let data = vec![model.writes; to - from];
        model.wrote(from, to);
        let (request, bulk) = append(id, 1, &data);
        let slot = self.client.next as u16;
        let again = message(&self.client, slot, 1, Request::Ost(request.clone()), bulk.clone());
        let ticket = self.world.send(&mut self.client, request, bulk);
        self.appends.insert(ticket, again);
        self.asked.insert(ticket, Asked::Append(id, from as u64, to - from));
    }

    /// Those that are not answered are sent again, in the same slots; it is one append.
    fn append_again(&mut self) {
        self.appends.retain(|ticket, _| self.asked.contains_key(ticket));
        for again in self.appends.values() {
            self.world.deliver(again.clone());
        }
    }

    fn grow(&mut self, id: ObjectId) {
        let size = 1 + self.world.random.index(BYTES);
        let model = self.models.get_mut(&id).unwrap();
        if model.syncing || model.destroying {
            return;
        }
        model.grew(size);
        let (size, version) = (size as u64, model.version);
        let request = OstRequest::SetSize { object: id, layout_gen: 1, size, version };
        let ticket = self.world.send(&mut self.client, request, Bulk::None);
        self.asked.insert(ticket, Asked::Grow);
    }

    fn punch(&mut self, id: ObjectId) {
        let size = self.world.random.index(BYTES);
        let model = self.models.get_mut(&id).unwrap();
        if model.syncing || model.destroying {
            return;
        }
        model.version += 1;
        let version = model.version;
        model.punches.push((version, size as u64, model.writes));
        let change = model.cut(size);
        let request = OstRequest::Punch { object: id, size: size as u64, version };
        let ticket = self.world.send(&mut self.mdt, request, Bulk::None);
        self.asked.insert(ticket, Asked::Punch(id, version, size as u64, change));
    }

    fn destroy(&mut self, id: ObjectId) {
        let model = self.models.get_mut(&id).unwrap();
        // Nobody destroys what is being truncated.
        if model.syncing || model.destroying || !model.punches.is_empty() {
            return;
        }
        model.destroying = true;
        let change = model.cut(0);
        let request = OstRequest::Destroy { objects: vec![id], late_writers: false };
        let ticket = self.world.send(&mut self.mdt, request, Bulk::None);
        self.asked.insert(ticket, Asked::Destroy(id, change));
    }

    fn sync(&mut self) {
        let mut objects = Vec::new();
        for (id, model) in &mut self.models {
            if !model.syncing && !model.destroying && self.world.random.one_in(2) {
                model.syncing = true;
                objects.push(*id);
            }
        }
        let boot_epoch = self.world.boot_epoch;
        let request = OstRequest::Sync { objects: objects.clone(), boot_epoch };
        let ticket = self.world.send(&mut self.client, request, Bulk::None);
        self.asked.insert(ticket, Asked::Sync(objects));
    }

    fn read(&mut self, id: ObjectId) {
        let model = &self.models[&id];
        if !model.writing.is_empty() {
            return;
        }
        let offset = self.world.random.index(BYTES);
        let expected = model.current[offset..model.size().max(offset)].to_vec();
        let asked = Asked::Read(id, model.changes, expected);
        let request = OstRequest::Read { object: id, offset: offset as u64, len: BYTES as u32 };
        let ticket = self.world.send(&mut self.client, request, Bulk::Buffer(BytesMut::new()));
        self.asked.insert(ticket, asked);
    }

    fn take_answers(&mut self) {
        for (ticket, (reply, bulk)) in std::mem::take(&mut self.world.answers) {
            let asked = self.asked.remove(&ticket).expect("one answer to each request");
            let answer = unpack(reply).unwrap();
            match asked {
                Asked::Write(id) => {
                    self.models.get_mut(&id).unwrap().writing.remove(&ticket);
                }
                Asked::Append(id, at, bytes) => {
                    let OstReply::Appended { offset, len, boot_epoch, .. } = answer else {
                        panic!("{answer:?}")
                    };
                    assert_eq!((offset, len as usize), (at, bytes), "{id}");
                    assert_eq!(boot_epoch, self.world.boot_epoch);
                    self.appended += 1;
                }
                Asked::Grow => assert_eq!(answer, OstReply::Done),
                Asked::Punch(id, version, size, change) => {
                    let model = self.models.get_mut(&id).unwrap();
                    model.punches.retain(|(theirs, _, _)| *theirs != version);
                    model.settled(size as usize, change);
                }
                Asked::Destroy(id, change) => {
                    let model = self.models.get_mut(&id).unwrap();
                    model.destroying = false;
                    model.settled(0, change);
                }
                Asked::Sync(objects) => {
                    for id in objects {
                        let model = self.models.get_mut(&id).unwrap();
                        model.syncing = false;
                        model.synced();
                    }
                }
                Asked::Read(id, changes, expected) => {
                    if self.models[&id].changes != changes {
                        continue;
                    }
                    let expected: Vec<u8> = expected.into_iter().map(Option::unwrap).collect();
                    assert_eq!(answer, OstReply::Read { len: expected.len() as u32 }, "{id}");
                    assert_eq!(bulk, Bulk::Buffer(BytesMut::from(&expected[..])), "{id}");
                    self.checked += 1;
                }
            }
        }
    }

    fn observe(&mut self, id: ObjectId) -> Vec<Byte> {
        let request = OstRequest::Read { object: id, offset: 0, len: BYTES as u32 };
        let ticket = self.world.send(&mut self.client, request, Bulk::None);
        let Bulk::Data(data) = self.world.wait(ticket).1 else { panic!("data") };
        let mut bytes: Vec<Byte> = data.iter().copied().map(Some).collect();
        bytes.resize(BYTES, None);
        bytes
    }

    fn crash(&mut self) {
        self.append_again();
        self.take_answers();
        self.world.crash();
        self.asked.clear();
        self.appends.clear();
        assert_eq!(self.world.connect(&mut self.client), None);
        assert_eq!(self.world.connect(&mut self.mdt), None);
        let ids: Vec<ObjectId> = self.models.keys().copied().collect();
        for id in ids {
            let model = self.models[&id].clone();
            let found = self.observe(id);
            for (at, (value, may_be)) in found.iter().zip(&model.may_be).enumerate() {
                let known = may_be.iter().any(|(_, may)| may == value);
                assert!(known, "{id} byte {at}: {value:?} of {may_be:?}");
            }
            let after = self.repeat_punches(id, &model, found);
            let destroyed = model.destroying;
            let model = self.models.get_mut(&id).unwrap();
            model.current = after;
            model.synced();
            model.punches.clear();
            model.writing.clear();
            model.syncing = false;
            model.destroying = false;
            if destroyed {
                // The MDT repeats that, too.
                let request = OstRequest::Destroy { objects: vec![id], late_writers: false };
                assert_eq!(self.world.call(&mut self.mdt, request), Ok(OstReply::Done));
                let model = self.models.get_mut(&id).unwrap();
                let change = model.cut(0);
                model.settled(0, change);
            }
        }
    }

    /// The MDT sends again whatever was not answered. Nothing that was certain to be there is
    /// cut, and nothing older than a punch is left behind it.
    fn repeat_punches(&mut self, id: ObjectId, model: &Model, before: Vec<Byte>) -> Vec<Byte> {
        for (version, size, _) in &model.punches {
            let request = OstRequest::Punch { object: id, size: *size, version: *version };
            assert_eq!(self.world.call(&mut self.mdt, request), Ok(OstReply::Done));
        }
        let after = self.observe(id);
        for at in 0..BYTES {
            let punched = model.punches.iter().filter(|(_, size, _)| at as u64 >= *size);
            let newest = punched.map(|(_, _, writes)| *writes).max();
            if after[at] != before[at] {
                assert!(newest.is_some(), "{id} byte {at} changed without a punch");
                assert!(model.may_be[at].len() > 1, "{id} byte {at}: synced, then cut again");
            }
            if let (Some(newest), Some(value)) = (newest, after[at]) {
                assert!(value == 0 || value > newest, "{id} byte {at}: {value} was cut");
            }
        }
        after
    }
}

#[test]
fn synced_bytes_survive_and_cuts_stay() {
    let seeds = sateen_testkit::seeds(100);
    let (mut checked, mut appended) = (0, 0);
    for &seed in &seeds {
        println!("SEED={seed}");
        let mut run = Run::new(seed);
        for _life in 0..12 {
            let steps = 10 + run.world.random.below(120);
            for _ in 0..steps {
                run.one_step();
            }
            run.crash();
        }
        run.world.settle();
        for (id, model) in run.models.clone() {
            let bytes: Vec<u8> = model.current[..model.size()].iter().flatten().copied().collect();
            assert_eq!(run.world.disk.image(id).unwrap_or_default(), bytes, "{id}");
        }
        println!("{} reads checked", run.checked);
        checked += run.checked;
        appended += run.appended;
    }
    println!("{checked} reads and {appended} appends checked");
    assert!(checked.min(appended) > seeds.len() as u64, "{} seeds", seeds.len());
}

#[test]
fn a_sync_that_was_answered_names_its_boot() {
    let mut run = Run::new(1);
    let id = object(1, 0);
    run.world.write(&mut run.client, id, 0, b"x").unwrap();
    run.world.crash();
    run.world.connect(&mut run.client);
    let sync = OstRequest::Sync { objects: vec![id], boot_epoch: 1 };
    assert_eq!(run.world.call(&mut run.client, sync), Err(Errno::EIO));
}
