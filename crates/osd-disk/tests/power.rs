//! The metadata backend on a disk whose power is cut: changes, group commits, checkpoints and
//! merges without end, as a target's driver makes them, only with tables and memtables so small
//! that a checkpoint or a merge is nearly always under way. At a random change or sync the disk
//! stops; then the process is gone, and perhaps the power with it. What is there afterwards must
//! be all that was acknowledged, in the index and in the journal behind it. Needs root and
//! /dev/fuse. `ROUNDS` and `SEED` say how long and which.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sateen_journal::records;
use sateen_osd::{
    Batch, Checkpoint, Index as _, JournalDevice as _, Key, Memtable, Store, StoreLimits,
};
use sateen_osd_disk::index::{DiskIndex, IndexOptions};
use sateen_osd_disk::journal::{DiskJournal, JournalError, JournalOptions, SEGMENT_BYTES_MIN};
use sateen_testkit::forgetfs::{ForgetFs, Loss};
use sateen_testkit::random::{Random, mix};
use sateen_testkit::{can_mount, env_number, seed};

/// Rounds, unless the environment (`ROUNDS`) says otherwise.
const ROUNDS: u64 = 60;
/// How often the disk stops at least at each kind of moment, and so many times the rounds are made
/// for that at most: threads that stand still on a busy machine meet other moments.
const MET_MIN: u64 = 5;
const TIMES_MAX: u64 = 5;
/// Rounds after which a sync that is missing must have been noticed.
const LIE_ROUNDS: u64 = 300;
const EPOCH: u64 = 7;
const KEYS: u64 = 300;
/// Of these the first have values by which the journal's segments fill up.
const LARGE_KEYS: u64 = 4;
const TABLES: IndexOptions = IndexOptions { cache_bytes: 1 << 20, table_bytes: 64 << 10 };
const SEGMENTS: JournalOptions =
    JournalOptions { segment_bytes: SEGMENT_BYTES_MIN, segments_min: 2 };
/// Changes and syncs of the disk from one start to its stop, at most: one in so many rounds ends
/// while it starts.
const CHANGES_MAX: u64 = 600;

fn limits() -> StoreLimits {
    StoreLimits { memtable_bytes_max: 30_000, ..StoreLimits::default() }
}

fn key(n: u64) -> Key {
    Key::tag(b'k').with(&n.to_be_bytes())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names whose syncs do nothing.
type Lie = fn(&str) -> bool;
/// What a key holds: as many of these bytes. None: it was removed.
type Value = Option<(u8, usize)>;
type Model = BTreeMap<u64, (u8, usize)>;

/// All changes, by transno.
#[derive(Default)]
struct History {
    all: Vec<Vec<(u64, Value)>>,
    /// The state after the first so many.
    base: (usize, Model),
}

impl History {
    fn model(&self, upto: u64) -> Model {
        let mut model = self.base.1.clone();
        for (key, value) in self.all[self.base.0..upto as usize].iter().flatten() {
            match value {
                Some(value) => drop(model.insert(*key, *value)),
                None => drop(model.remove(key)),
            }
        }
        model
    }

    /// What is durable up to here stays as it is; what came later never was.
    fn settle(&mut self, checkpointed: u64, last: u64) {
        self.all.truncate(last as usize);
        self.base = (checkpointed as usize, self.model(checkpointed));
    }
}

/// What the rounds have met.
#[derive(Debug, Default)]
struct Met {
    rounds: u64,
    transactions: u64,
    checkpoints: u64,
    in_start: u64,
    in_checkpoint: u64,
    in_merge: u64,
    lost: u64,
}

impl Met {
    /// Whether the disk has stopped often enough at every kind of moment.
    fn is_enough(&self) -> bool {
        let Met { checkpoints, in_start, in_checkpoint, in_merge, lost, .. } = *self;
        [checkpoints, in_start, in_checkpoint, in_merge, lost].into_iter().all(|n| n >= MET_MIN)
    }
}

/// What was promised so far.
#[derive(Default)]
struct Promised {
    history: History,
    /// The last transno that was acknowledged as durable.
    acknowledged: u64,
    /// The last one that the index said it holds.
    checkpointed: u64,
    /// The last round ended without a cut of the power.
    killed: bool,
}

/// A target as its driver sees it.
struct Target {
    store: Mutex<Store>,
    index: DiskIndex,
    journal: Mutex<DiskJournal>,
    stopped: AtomicBool,
}

struct Disk {
    fs: Option<ForgetFs>,
    path: PathBuf,
}

impl Disk {
    fn new(name: &str) -> Disk {
        let path = std::env::temp_dir().join(format!("sateen-power-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let fs = ForgetFs::mount(&path).unwrap();
        Disk { fs: Some(fs), path }
    }

    fn fs(&mut self) -> &mut ForgetFs {
        self.fs.as_mut().unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.fs = None;
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Opens a target and compares. If that fails, the disk knows whether it has stopped meanwhile.
fn start(disk: &Path, promised: &mut Promised) -> Result<Target, String> {
    let index = DiskIndex::open(&disk.join("index"), TABLES);
    let index = index.map_err(|error| format!("index: {error}"))?;
    let checkpointed = index.checkpointed();
    let mut store = Store::new(EPOCH, checkpointed, limits());
    let mut replayed = Memtable::new();
    let replay = |payload: &[u8]| {
        for record in records(payload) {
            let (transno, record) = record.unwrap();
            if transno > checkpointed {
                replayed.apply(record).unwrap();
            }
            store.replay(EPOCH, transno, record).unwrap();
        }
        Ok::<_, JournalError>(())
    };
    let journal = DiskJournal::open(&disk.join("journal"), EPOCH, checkpointed, SEGMENTS, replay)
        .map_err(|error| format!("journal: {error}, index at {checkpointed}"))?;
    let last = store.transno();
    let Promised { history, acknowledged, .. } = &promised;
    if checkpointed < promised.checkpointed {
        return Err(format!("index at {checkpointed}, was at {}", promised.checkpointed));
    }
    if last < *acknowledged || last > history.all.len() as u64 {
        return Err(format!("the log ends at {last}, acknowledged was {acknowledged}"));
    }
    let mut found = BTreeMap::new();
    let each = |key: &[u8], value: &[u8]| found.insert(key.to_vec(), value.to_vec()).is_none();
    index
        .scan_bytes(Bound::Unbounded, Bound::Unbounded, each)
        .map_err(|error| format!("reading the index: {error}"))?;
    compare(&found, &history.model(checkpointed))
        .map_err(|key| format!("the index at {checkpointed} has something else at key {key}"))?;
    for (key, value) in replayed.range(Bound::Unbounded) {
        match value {
            Some(value) => drop(found.insert(key.as_bytes().to_vec(), value.to_vec())),
            None => drop(found.remove(key.as_bytes())),
        }
    }
    compare(&found, &history.model(last))
        .map_err(|key| format!("at {last} there is something else at key {key}"))?;
    promised.checkpointed = checkpointed;
    promised.acknowledged = last;
    promised.history.settle(checkpointed, last);
    let (store, journal) = (Mutex::new(store), Mutex::new(journal));
    Ok(Target { store, index, journal, stopped: AtomicBool::new(false) })
}

fn compare(found: &BTreeMap<Vec<u8>, Vec<u8>>, model: &Model) -> Result<(), u64> {
    let is = |bytes: Option<&Vec<u8>>, value: Option<&(u8, usize)>| match (bytes, value) {
        (Some(bytes), Some((byte, len))) => {
            bytes.len() == *len && bytes.iter().all(|one| one == byte)
        }
        (bytes, value) => bytes.is_none() && value.is_none(),
    };
    let differs = |n: &u64| !is(found.get(key(*n).as_bytes()), model.get(n));
    (0..KEYS).find(differs).map_or(Ok(()), Err)
}

/// Ends the other thread.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Target {
    /// Changes and their group commits, until the disk stops. Returns what of the index was under
    /// way then: a checkpoint, a merge.
    fn change(&self, random: &mut Random, promised: &mut Promised) -> (bool, bool) {
        // Also if this panics.
        let _end = AtEnd(&self.stopped);
        while !self.stopped.load(Ordering::Acquire) {
            for _ in 0..=random.below(6) {
                let (batch, changes) = a_change(random);
                let mut store = lock(&self.store);
                if store.must_wait() {
                    drop(store);
                    std::thread::sleep(Duration::from_micros(200));
                    break;
                }
                store.commit(&batch);
                promised.history.all.push(changes);
            }
            let Some(flush) = lock(&self.store).begin_flush() else { continue };
            if lock(&self.journal).write(&flush).is_err() {
                break;
            }
            promised.acknowledged = flush.upto;
            lock(&self.store).flush_done(flush);
            // What the index says it holds, the journal need not.
            promised.checkpointed = self.index.checkpointed();
            lock(&self.journal).trim(promised.checkpointed).unwrap();
        }
        let merging = self.index.is_merging();
        self.stopped.store(true, Ordering::Release);
        let checkpointing = lock(&self.store).begin_checkpoint().is_none();
        (checkpointing, merging)
    }

    /// Writes checkpoints until the disk stops. Returns how many.
    fn write_checkpoints(&self) -> u64 {
        let mut written = 0;
        while !self.stopped.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(100));
            let mut store = lock(&self.store);
            if !store.wants_checkpoint() {
                continue;
            }
            let Some(Checkpoint { table, upto }) = store.begin_checkpoint() else { continue };
            drop(store);
            while lock(&self.store).committed() < upto {
                if self.stopped.load(Ordering::Acquire) {
                    return written;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            if self.index.checkpoint(&table, upto).is_err() {
                self.stopped.store(true, Ordering::Release);
                return written;
            }
            lock(&self.store).checkpoint_done();
            written += 1;
        }
        written
    }
}

fn a_change(random: &mut Random) -> (Batch, Vec<(u64, Value)>) {
    let (mut batch, mut changes) = (Batch::new(), Vec::new());
    for _ in 0..=random.below(4) {
        let n = if random.one_in(25) { random.below(LARGE_KEYS) } else { random.below(KEYS) };
        let value = if random.one_in(4) {
            batch.remove(&key(n));
            None
        } else {
            let len = if n < LARGE_KEYS { 120_000 } else { random.below(600) };
            let (byte, len) = (random.below(256) as u8, len as usize);
            batch.put_with(&key(n), |out| out.resize(out.len() + len, byte));
            Some((byte, len))
        };
        changes.push((n, value));
    }
    (batch, changes)
}

/// From a start to the disk's stop. Says what was wrong at the start.
fn one_round(
    disk: &mut Disk,
    promised: &mut Promised,
    random: &mut Random,
    met: &mut Met,
) -> Result<(), String> {
    // The process alone goes in one round of three, and in half of these right behind a rename,
    // when a new set of tables has its name in memory only; the power follows soon then.
    let (killed, renames) = (random.one_in(3), 1 + random.below(4));
    let changes = if promised.killed {
        random.below(60)
    } else {
        // As often a few as many, and of many more than a checkpoint takes.
        let scale = CHANGES_MAX >> random.below(4);
        random.below(scale)
    };
    disk.fs().fail_after(1 + changes);
    if killed && random.one_in(2) {
        disk.fs().fail_after(u64::MAX);
        disk.fs().fail_after_renames(renames);
    }
    promised.killed = killed;
    let path = disk.path.clone();
    let started = start(&path, promised);
    match started {
        Err(_) if disk.fs().fails() => met.in_start += 1,
        Err(wrong) => return Err(wrong),
        Ok(target) => {
            let before = promised.history.all.len() as u64;
            let ((checkpointing, merging), written) = std::thread::scope(|scope| {
                let checkpoints = scope.spawn(|| target.write_checkpoints());
                let under_way = target.change(random, promised);
                (under_way, checkpoints.join().unwrap())
            });
            let done = promised.history.all.len() as u64;
            met.transactions += done - before;
            met.lost += done - promised.acknowledged;
            met.checkpoints += written;
            met.in_checkpoint += u64::from(checkpointing);
            met.in_merge += u64::from(merging);
        }
    }
    let ended = if killed {
        disk.fs().remount()
    } else if random.one_in(3) {
        disk.fs().cut(Loss::All)
    } else {
        disk.fs().cut(Loss::Some { seed: random.number() })
    };
    ended.map_err(|error| format!("{error:#}"))
}

/// Rounds on a disk that may lie. Says in which round something was wrong, and what.
fn rounds(name: &str, rounds: u64, seed: u64, lie: Option<Lie>) -> Result<Met, (u64, String)> {
    let mut disk = Disk::new(name);
    let journal = disk.path.join("journal");
    DiskJournal::create(&journal, EPOCH, SEGMENTS).unwrap();
    drop(DiskIndex::open(&disk.path.join("index"), TABLES).unwrap());
    if let Some(lie) = lie {
        disk.fs().lie_about(lie);
    }
    let (mut promised, mut met) = (Promised::default(), Met::default());
    // Who asks for few rounds gets these, whatever they meet.
    let more = if lie.is_none() && rounds >= ROUNDS { TIMES_MAX } else { 1 };
    for round in 1..=rounds * more {
        if round > rounds && met.is_enough() {
            break;
        }
        met.rounds += 1;
        let mut random = Random::new(mix(seed ^ mix(round)));
        one_round(&mut disk, &mut promised, &mut random, &mut met).map_err(|wrong| {
            (round, format!("round {round} of SEED={seed}: {wrong}; so far {met:?}"))
        })?;
    }
    Ok(met)
}

#[test]
fn what_was_acknowledged_outlives_the_power() {
    if !can_mount() {
        return;
    }
    let count = env_number("ROUNDS", ROUNDS);
    let met = rounds("cut", count, seed(), None).unwrap_or_else(|(_, wrong)| panic!("{wrong}"));
    println!("shown: {met:?}");
    assert!(count < ROUNDS || met.is_enough(), "{met:?}");
}

/// The engine's own syncs, each of which is left out in turn: the rounds above notice it.
#[test]
fn a_sync_that_is_missing_is_noticed() {
    if !can_mount() {
        return;
    }
    let lies: [(&str, Lie); 4] = [
        ("a table", |name| name.parse::<u64>().is_ok()),
        ("the folder of tables", |name| name == "tables"),
        ("the folder of the file that names them", |name| name == "index"),
        ("a segment", |name| name.ends_with(".segment")),
    ];
    let seed = seed();
    for (number, (what, lie)) in lies.into_iter().enumerate() {
        match rounds(&format!("lie{number}"), LIE_ROUNDS, seed, Some(lie)) {
            Ok(met) => panic!("nobody missed the sync of {what}: {met:?}"),
            Err((round, wrong)) => println!("{what}: after {round} rounds: {wrong}"),
        }
    }
}
