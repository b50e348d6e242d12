//! A disk on which syncs take long: whoever does not wait for them goes on. Needs root and
//! /dev/fuse.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sateen_fuse::UnmountMode;
use sateen_osd::{Given, ObjectError, ObjectStat, ObjectStore};
use sateen_testkit::can_mount;
use sateen_types::{Falloc, Nid, ObjectId, Seq, Timespec};
use sateen_wire::StatFs;

use crate::data_dir::DataDir;
use crate::node::mgc::Stop;
use crate::node::{How, Mounted, Node, Source};
use crate::targets;
use crate::testing::Scratch;

/// What is at once on a busy machine whose disk stands still, or never.
const SOON: Duration = Duration::from_secs(60);
/// Far above, in seconds: nobody is thrown out of the way.
const LIMIT: &str = "600";

/// Slow disks, by the folder of the target.
static SLOW: Mutex<BTreeMap<PathBuf, Arc<Gates>>> = Mutex::new(BTreeMap::new());

/// What a disk does not do for a while.
#[derive(Default)]
struct Gates {
    syncs: Gate,
    writes: Gate,
    /// How long it is at each write, one after the other.
    pace: Mutex<Duration>,
}

/// Whatever it is for waits in front of it while it is closed.
#[derive(Default)]
struct Gate {
    /// Whether it is closed, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        self.state.lock().unwrap().0 = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |state| state.0).unwrap();
        state.1 -= 1;
    }

    /// Waits until so many wait.
    fn wait_for(&self, waiting: usize) {
        let state = self.state.lock().unwrap();
        let fewer = |state: &mut (bool, usize)| state.1 < waiting;
        let (_state, late) = self.changed.wait_timeout_while(state, SOON, fewer).unwrap();
        assert!(!late.timed_out(), "it never reached the disk");
    }
}

/// The objects of the target in this folder as the test wants them.
pub(crate) fn over(target: &Path, objects: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    match SLOW.lock().unwrap().get(target) {
        Some(gates) => Arc::new(Slow { below: objects, gates: gates.clone() }),
        None => objects,
    }
}

struct Slow {
    below: Arc<dyn ObjectStore>,
    gates: Arc<Gates>,
}

type Result<T> = std::result::Result<T, ObjectError>;

impl ObjectStore for Slow {
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize> {
        self.gates.writes.pass();
        let pace = self.gates.pace.lock().unwrap();
        std::thread::sleep(*pace);
        drop(pace);
        self.below.write(object, offset, data)
    }
    fn read(&self, o: ObjectId, offset: u64, len: usize, into: &mut BytesMut) -> Result<usize> {
        self.below.read(o, offset, len, into)
    }
    fn read_now(
        &self,
        o: ObjectId,
        at: u64,
        len: usize,
        to: &mut BytesMut,
    ) -> Result<Option<usize>> {
        self.below.read_now(o, at, len, to)
    }
    fn append(&self, object: ObjectId, data: &[u8]) -> Result<(u64, usize)> {
        self.gates.writes.pass();
        self.below.append(object, data)
    }
    fn grow(&self, object: ObjectId, size: u64) -> Result<()> {
        self.below.grow(object, size)
    }
    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<()> {
        self.below.set_times(object, atime, mtime)
    }
    fn give(&self, object: ObjectId) -> Result<Option<Given>> {
        self.below.give(object)
    }
    fn is_held(&self, object: ObjectId) -> bool {
        self.below.is_held(object)
    }
    fn take_back(&self, object: ObjectId) {
        self.below.take_back(object);
    }
    fn alone(&self, object: ObjectId) -> Result<bool> {
        self.below.alone(object)
    }
    fn sync_given(&self) -> Result<()> {
        self.below.sync_given()
    }
    fn punch(&self, object: ObjectId, size: u64) -> Result<()> {
        self.below.punch(object, size)
    }
    fn allocate(&self, o: ObjectId, range: (u64, u64), how: Falloc, keep: bool) -> Result<()> {
        self.below.allocate(o, range, how, keep)
    }
    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.below.seek(object, offset, hole)
    }
    fn remove(&self, object: ObjectId) -> Result<bool> {
        self.below.remove(object)
    }
    fn sync(&self, objects: &[ObjectId]) -> Result<()> {
        self.gates.syncs.pass();
        self.below.sync(objects)
    }
    fn stat(&self, objects: &[ObjectId]) -> Result<Vec<ObjectStat>> {
        self.below.stat(objects)
    }
    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Result<Vec<ObjectStat>> {
        self.below.list(seq, from_oid, count)
    }
    fn sequences(&self) -> Result<Vec<Seq>> {
        self.below.sequences()
    }
    fn statfs(&self) -> Result<StatFs> {
        self.below.statfs()
    }
}

/// A NID on this host that nobody listens on. Its address is another each time: the port is free
/// for a moment, and at everybody's address others take what is free.
fn nid() -> Nid {
    let [b, c, d, ..] = sateen_reactor::random().to_le_bytes();
    // Neither the address of all nor the usual one.
    let addr = Ipv4Addr::new(127, 1 + b % 250, c, d);
    let port = TcpListener::bind((addr, 0)).unwrap().local_addr().unwrap().port();
    Nid::Tcp { addr, port, net: 0 }
}

/// Clients of the file system. Its servers have started, and may take their time.
fn remote(mgs: Nid) -> Node {
    let until = Instant::now() + 2 * SOON;
    loop {
        match Node::remote(&[mgs], "sateen", Source::all("sateen"), &Stop::default()) {
            Ok(node) => return node,
            Err(refusal) => assert!(refusal.may_pass && Instant::now() < until, "{refusal}"),
        }
    }
}

/// One program's sync takes very long. Another of the same mount goes on writing another file, by
/// the same connection, and gives it up when another mount wants it.
#[test]
fn a_sync_that_takes_long_keeps_nobody_else_waiting() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("slow");
    let data = DataDir::at(&scratch.path().join("data")).unwrap();
    let lock = data.open().unwrap();
    let targets = targets::open_or_make(&data, Some(1), Some(1)).unwrap();
    let gates = Arc::new(Gates::default());
    let gate = &gates.syncs;
    let (osts, others): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|target| target.ost_index().is_some());
    SLOW.lock().unwrap().insert(osts[0].path.clone(), gates.clone());
    // The servers are hosts of their own, each with its connections.
    let stop = Arc::new(AtomicBool::new(false));
    let mgs = nid();
    let meta = Node::serve(others, Vec::new(), &[mgs], &stop).unwrap();
    meta.devices().set("mdt.*.ldlm_timeout", LIMIT);
    let ost = Node::serve(osts, vec![mgs], &[nid()], &stop).unwrap();
    let [a, b] = ["a", "b"].map(|name| mount(mgs, &scratch.path().join(name)));

    let mut synced = File::create(a.2.join("synced")).unwrap();
    synced.write_all(b"to be made durable").unwrap();
    let log = File::create(a.2.join("log")).unwrap();
    log.write_all_at(b"first", 0).unwrap();
    gate.set(true);
    let syncing = std::thread::spawn(move || synced.sync_all());
    gate.wait_for(1);
    let (sender, receiver) = channel();
    let seen = b.2.join("log");
    let others = std::thread::spawn(move || {
        let told = |what: &str| sender.send(what.to_owned()).unwrap();
        log.write_all_at(b"while it syncs", 0).unwrap();
        told("written");
        let read = fs::read(&seen).unwrap();
        told(&String::from_utf8(read).unwrap());
        log.write_all_at(b"AFTER", 0).unwrap();
        told("written");
        log
    });
    let heard: Vec<_> = (0..3).map_while(|_| receiver.recv_timeout(SOON).ok()).collect();
    gate.set(false);
    assert_eq!(heard, ["written", "while it syncs", "written"]);
    syncing.join().unwrap().unwrap();
    others.join().unwrap().sync_all().unwrap();
    assert_eq!(fs::read(b.2.join("log")).unwrap(), b"AFTER it syncs");

    [a, b].into_iter().for_each(unmount);
    ost.close().unwrap();
    meta.close().unwrap();
    drop(lock);
}

/// A mount, on a node of its own.
type OnNode = (Node, Mounted, PathBuf);

fn mount(mgs: Nid, point: &Path) -> OnNode {
    fs::create_dir(point).unwrap();
    let node = remote(mgs);
    let tried_until = Some(Instant::now() + 2 * SOON);
    let mounted = node.mount(point, How { tried_until, ..How::new(false) }).unwrap();
    (node, mounted, point.to_owned())
}

fn unmount((node, mounted, _): OnNode) {
    mounted.session.unmount(UnmountMode::Clean).unwrap();
    mounted.session.join_timeout(SOON).unwrap();
    mounted.leave();
    node.close().unwrap();
}

/// A write hangs in the disk, and with it the thread that reads what its mount says, also to the
/// MDT of the same process. The mount is there, and is not thrown out.
#[test]
fn whose_server_hangs_in_a_disk_is_not_taken_for_dead() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("hung");
    let data = DataDir::at(&scratch.path().join("data")).unwrap();
    let lock = data.open().unwrap();
    let targets = targets::open_or_make(&data, Some(1), Some(1)).unwrap();
    let gates = Arc::new(Gates::default());
    let ost = targets.iter().find(|target| target.ost_index().is_some()).unwrap();
    SLOW.lock().unwrap().insert(ost.path.clone(), gates.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let mgs = nid();
    let all = Node::serve(targets, Vec::new(), &[mgs], &stop).unwrap();
    let value = |name: &str| {
        let params = all.devices().params();
        let param = params.iter().find(|param| param.name.ends_with(name)).unwrap();
        param.value()
    };
    let [a, b] = ["a", "b"].map(|name| mount(mgs, &scratch.path().join(name)));
    let file = File::create(a.2.join("file")).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    fs::write(b.2.join("of-the-other"), b"other").unwrap();
    gates.writes.set(true);
    let writing = std::thread::spawn(move || {
        file.write_all_at(b"hangs", 0)?;
        // What is kept of it comes now.
        file.sync_data().map(|()| file)
    });
    gates.writes.wait_for(1);
    for name in ["at_max", "at_min"] {
        all.devices().set(&format!("mdt.*.{name}"), "8");
    }
    // The other is heard all the while.
    std::thread::sleep(Duration::from_secs(24));
    assert!(!writing.is_finished(), "it hangs yet");
    assert!(!value("/md_stats").contains("evict"), "{}", value("/md_stats"));
    assert_eq!(value("-MDT0000/num_exports"), "2");
    for name in ["at_max", "at_min"] {
        all.devices().set(&format!("mdt.*.{name}"), LIMIT);
    }
    gates.writes.set(false);
    let file = writing.join().unwrap().unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(b.2.join("file")).unwrap(), b"hangs");
    drop(file);
    [a, b].into_iter().for_each(unmount);
    all.close().unwrap();
    drop(lock);
}

/// What a mount has kept takes a disk longer than a mount may take to give a lock back. Another mount reads
/// it, and nobody is thrown out.
#[test]
fn who_writes_out_slowly_what_another_wants_is_not_thrown_out() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("slowly");
    let data = DataDir::at(&scratch.path().join("data")).unwrap();
    let lock = data.open().unwrap();
    let targets = targets::open_or_make(&data, Some(1), Some(1)).unwrap();
    let gates = Arc::new(Gates::default());
    let (osts, others): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|target| target.ost_index().is_some());
    SLOW.lock().unwrap().insert(osts[0].path.clone(), gates.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let mgs = nid();
    let meta = Node::serve(others, Vec::new(), &[mgs], &stop).unwrap();
    let ost = Node::serve(osts, vec![mgs], &[nid()], &stop).unwrap();
    let [a, b] = ["a", "b"].map(|name| mount(mgs, &scratch.path().join(name)));
    let file = File::create(a.2.join("kept")).unwrap();
    // What is kept needs a promise of its OST.
    file.write_all_at(b"first", 0).unwrap();
    file.sync_all().unwrap();
    meta.devices().set("mdt.*.ldlm_timeout", "5");
    *gates.pace.lock().unwrap() = Duration::from_millis(500);
    // 12 s.
    let piece = vec![7; 64 << 10];
    for at in 0..24 * 16 {
        file.write_all_at(&piece, at << 16).unwrap();
    }
    let read = fs::read(b.2.join("kept")).unwrap();
    assert!(read.len() == 24 << 20 && read.iter().all(|byte| *byte == 7));
    file.sync_all().unwrap();
    *gates.pace.lock().unwrap() = Duration::ZERO;
    meta.devices().set("mdt.*.ldlm_timeout", LIMIT);
    let params = meta.devices().params();
    let stats = params.iter().find(|param| param.name.ends_with("/md_stats")).unwrap().value();
    assert!(!stats.contains("evict"), "{stats}");
    drop(file);
    [a, b].into_iter().for_each(unmount);
    ost.close().unwrap();
    meta.close().unwrap();
    drop(lock);
}
