//! The journal against a disk that forgets, cuts writes off at any byte, and rots.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use sateen_journal::{Appender, records};

use super::DiskJournal;
use super::shelf::Shelf;
use super::{Journal, JournalDevice, JournalError, JournalOptions, PAGE, SEGMENT_BYTES_MIN};
use crate::lock;
use crate::testing::{Random, Scratch};

const EPOCH: u64 = 0x1122_3344_5566_7788;
/// Room for a header and four pages of frames.
const OPTIONS: JournalOptions = JournalOptions { segment_bytes: 5 * PAGE, segments_min: 2 };

/// What was done to the disk, in order.
#[derive(Debug, Clone)]
enum Step {
    Create(u64, u64),
    /// As `Create`, but the process died before the name was durable.
    CreateUnnamed(u64, u64),
    SyncNames,
    Remove(u64),
    Write(u64, u64, Vec<u8>),
    Sync(u64),
    /// Its bytes stay in the page cache, which takes them for written: no later sync tries again.
    SyncFails(u64),
}

type Disk = BTreeMap<u64, Vec<u8>>;

/// A shelf in memory that remembers every step.
#[derive(Debug, Clone, Default)]
struct MemoryShelf {
    state: Arc<Mutex<(Disk, Vec<Step>)>>,
    /// Syncs up to the one that fails, if any does.
    failing_sync: Arc<Mutex<Option<u32>>>,
}

impl MemoryShelf {
    fn of(disk: Disk) -> Self {
        Self { state: Arc::new(Mutex::new((disk, Vec::new()))), ..Self::default() }
    }

    fn steps(&self) -> Vec<Step> {
        lock(&self.state).1.clone()
    }

    fn disk(&self) -> Disk {
        lock(&self.state).0.clone()
    }
}

fn apply(disk: &mut Disk, file: u64, at: u64, bytes: &[u8]) {
    disk.get_mut(&file).unwrap()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

impl Shelf for MemoryShelf {
    fn list(&self) -> io::Result<Vec<u64>> {
        Ok(lock(&self.state).0.keys().copied().collect())
    }
    fn create(&self, file: u64, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        assert!(state.0.insert(file, vec![0; len as usize]).is_none());
        state.1.push(Step::Create(file, len));
        Ok(())
    }
    fn remove(&self, file: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.0.remove(&file).unwrap();
        state.1.push(Step::Remove(file));
        Ok(())
    }
    fn len(&self, file: u64) -> io::Result<u64> {
        Ok(lock(&self.state).0[&file].len() as u64)
    }
    fn read(&self, file: u64, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = lock(&self.state);
        let bytes = &state.0[&file];
        let from = (at as usize).min(bytes.len());
        let n = buffer.len().min(bytes.len() - from);
        buffer[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }
    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        apply(&mut state.0, file, at, bytes);
        state.1.push(Step::Write(file, at, bytes.to_vec()));
        Ok(())
    }
    fn sync(&self, file: u64) -> io::Result<()> {
        let left = &mut *lock(&self.failing_sync);
        let fails = left.take_if(|left| *left == 0).is_some();
        *left = left.map(|left| left - 1);
        lock(&self.state).1.push(if fails { Step::SyncFails(file) } else { Step::Sync(file) });
        if fails { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
    fn sync_names(&self) -> io::Result<()> {
        lock(&self.state).1.push(Step::SyncNames);
        Ok(())
    }
}

fn open(
    shelf: &MemoryShelf,
    checkpointed: u64,
) -> Result<(Journal<MemoryShelf>, Vec<u64>), JournalError> {
    let mut found = Vec::new();
    let replay = |payload: &[u8]| {
        for record in records(payload) {
            let (transno, bytes) = record.unwrap();
            assert!(bytes.iter().all(|byte| *byte == transno as u8), "content of {transno}");
            found.push(transno);
        }
        Ok::<_, JournalError>(())
    };
    let journal = Journal::open(shelf.clone(), EPOCH, checkpointed, OPTIONS, false, replay)?;
    Ok((journal, found))
}

/// Group commits of records whose bytes are their transno.
struct Writer {
    journal: Journal<MemoryShelf>,
    appender: Appender,
}

impl Writer {
    fn new(shelf: &MemoryShelf, checkpointed: u64) -> Self {
        let (journal, found) = open(shelf, checkpointed).unwrap();
        let last = found.last().copied().unwrap_or(checkpointed);
        Self { journal, appender: Appender::new(EPOCH, last) }
    }

    fn commit(&mut self, lengths: &[usize]) -> u64 {
        self.try_commit(lengths).unwrap()
    }

    fn try_commit(&mut self, lengths: &[usize]) -> io::Result<u64> {
        for len in lengths {
            let transno = self.appender.last() + 1;
            self.appender.append(&vec![transno as u8; *len]);
        }
        let frame = self.appender.take().unwrap();
        self.journal.write(frame.first, frame.last, &frame.bytes)?;
        Ok(frame.last)
    }
}

/// What a disk may hold when power goes at step `at`: all that was synced, and of the writes
/// since any part. `cut` bytes of the last one arrive, of earlier ones all or nothing.
fn after_power_loss(steps: &[Step], cut: usize, earlier_arrive: bool) -> Disk {
    let mut disk = Disk::new();
    let mut pending: Vec<(u64, u64, Vec<u8>)> = Vec::new();
    let mut unnamed = BTreeSet::new();
    for step in steps {
        match step {
            Step::CreateUnnamed(file, len) => {
                disk.insert(*file, vec![0; *len as usize]);
                unnamed.insert(*file);
            }
            Step::SyncNames => unnamed.clear(),
            Step::Create(file, len) => drop(disk.insert(*file, vec![0; *len as usize])),
            Step::Remove(file) => drop(disk.remove(file)),
            Step::Write(file, at, bytes) => pending.push((*file, *at, bytes.clone())),
            Step::Sync(synced) => pending.retain(|(file, at, bytes)| {
                let durable = file == synced;
                if durable {
                    apply(&mut disk, *file, *at, bytes);
                }
                !durable
            }),
            Step::SyncFails(failed) => pending.retain(|(file, ..)| file != failed),
        }
    }
    let last = pending.pop();
    for (file, at, bytes) in pending.iter().filter(|_| earlier_arrive) {
        apply(&mut disk, *file, *at, bytes);
    }
    if let Some((file, at, bytes)) = last {
        apply(&mut disk, file, at, &bytes[..cut.min(bytes.len())]);
    }
    disk.retain(|file, _| !unnamed.contains(file));
    disk
}

/// A run over several segments with trims and a restart. Returns the steps, and at each
/// number of steps what had been acknowledged and what the index held.
fn eventful_run() -> (Vec<Step>, BTreeMap<usize, (u64, u64)>) {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
    let mut told = BTreeMap::from([(shelf.steps().len(), (0, 0))]);
    let mut checkpointed = 0;
    for start in 0..2 {
        let mut writer = Writer::new(&shelf, checkpointed);
        let mut acked = writer.appender.last();
        told.insert(shelf.steps().len(), (acked, checkpointed));
        for round in 0..10 {
            acked = writer.commit(&[1 + round * 37, round % 3, 60 * (round % 4)]);
            told.insert(shelf.steps().len(), (acked, checkpointed));
            if round % 4 == 2 + start {
                checkpointed = acked - 2;
                writer.journal.trim(checkpointed);
                told.insert(shelf.steps().len(), (acked, checkpointed));
            }
        }
        assert!(writer.journal.used.len() <= 4, "trimmed segments are used again");
        assert_eq!(acked, writer.journal.last);
    }
    (shelf.steps(), told)
}

#[test]
fn power_may_go_at_any_byte_of_any_write() {
    let (steps, told) = eventful_run();
    let mut opened = 0;
    let made = *told.keys().next().unwrap();
    for at in made..=steps.len() {
        let (acked, checkpointed) = *told.range(..=at).next_back().unwrap().1;
        // The write under way is the one after the last acknowledgement, if any.
        let in_flight = match at.checked_sub(1).map(|last| &steps[last]) {
            Some(Step::Write(_, _, bytes)) => bytes.len(),
            _ => 0,
        };
        // Every byte of frames and headers; zeros behind a header are all alike.
        let cuts = (0..=in_flight).filter(|cut| *cut < 700 || *cut == in_flight);
        for cut in cuts {
            let disk = after_power_loss(&steps[..at], cut, cut % 2 == 0);
            let shelf = MemoryShelf::of(disk);
            let (mut journal, found) = open(&shelf, checkpointed)
                .unwrap_or_else(|error| panic!("step {at}, cut {cut}: {error}"));
            check_log(&found, acked, checkpointed, &format!("step {at}, cut {cut}"));

            // And it goes on from there, and the next start finds all of it.
            let last = journal.last;
            let mut appender = Appender::new(EPOCH, last);
            appender.append(&[(last + 1) as u8; 9]);
            let frame = appender.take().unwrap();
            journal.write(frame.first, frame.last, &frame.bytes).unwrap();
            let (_, again) = open(&shelf, checkpointed).unwrap();
            check_log(&again, last + 1, checkpointed, &format!("after step {at}, cut {cut}"));
            opened += 1;
        }
    }
    println!("{opened} crashes over {} steps", steps.len());
    assert!(opened > 2000, "{opened}");
}

/// A process that is killed between a write and its sync leaves a frame in the page cache.
/// The next one believes it, goes on behind it, and then the power goes.
#[test]
fn a_frame_that_only_the_page_cache_had_is_durable_once_it_is_believed() {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
    let mut writer = Writer::new(&shelf, 0);
    writer.commit(&[10, 20]);
    writer.appender.append(&[3; 30]);
    let frame = writer.appender.take().unwrap();
    shelf.write(writer.journal.used.back().unwrap().file, writer.journal.at, &frame.bytes).unwrap();
    drop(writer);

    let mut writer = Writer::new(&shelf, 0);
    assert_eq!(writer.appender.last(), 3);
    let acked = writer.commit(&[40]);
    let disk = after_power_loss(&shelf.steps(), 0, false);
    let (_, found) = open(&MemoryShelf::of(disk), 0).unwrap();
    check_log(&found, acked, 0, "after both");
}

/// A sync fails and the process ends; what it wrote can still be read, from the page cache
/// alone, which takes it for written. The next process goes on, and then the power goes.
#[test]
fn a_frame_whose_sync_failed_is_durable_once_it_is_believed() {
    let mut failures = 0;
    for good in 0..14 {
        let shelf = MemoryShelf::default();
        Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
        let mut writer = Writer::new(&shelf, 0);
        *lock(&shelf.failing_sync) = Some(good);
        let mut acked = 0;
        // A frame of two pages: each may be what is lost.
        while let Ok(last) = writer.try_commit(&[1000, 4000]) {
            acked = last;
        }
        drop(writer);
        assert_eq!(*lock(&shelf.failing_sync), None);
        failures += 1;

        let (_, believed) = open(&shelf, 0).unwrap();
        check_log(&believed, acked, 0, "the next start");
        let mut writer = Writer::new(&shelf, 0);
        acked = writer.commit(&[40]);
        drop(writer);
        let disk = after_power_loss(&shelf.steps(), 0, false);
        let (_, found) = open(&MemoryShelf::of(disk), 0)
            .unwrap_or_else(|error| panic!("sync {good} failed: {error}"));
        check_log(&found, acked, 0, "after the power went");
    }
    assert_eq!(failures, 14);
}

/// What a start makes durable anew it may fail to: then it does not start, and the next does.
#[test]
fn a_start_that_cannot_sync_builds_on_nothing() {
    for good in 0..4 {
        let shelf = MemoryShelf::default();
        Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
        let mut writer = Writer::new(&shelf, 0);
        writer.commit(&[10]);
        let acked = writer.commit(&[10]);
        drop(writer);
        *lock(&shelf.failing_sync) = Some(good);
        let failed = open(&shelf, 0).is_err();
        assert_eq!(failed, lock(&shelf.failing_sync).is_none(), "sync {good}");
        *lock(&shelf.failing_sync) = None;
        let mut writer = Writer::new(&shelf, 0);
        let acked = acked.max(writer.commit(&[10]));
        drop(writer);
        let disk = after_power_loss(&shelf.steps(), 0, false);
        let (_, found) = open(&MemoryShelf::of(disk), 0).unwrap();
        check_log(&found, acked, 0, "after the power went");
    }
}

/// A process that is killed while it makes a spare leaves it whole, but maybe without a
/// durable name.
#[test]
fn a_spare_without_a_durable_name_is_not_lost_with_what_it_is_used_for() {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, JournalOptions { segments_min: 1, ..OPTIONS }).unwrap();
    let len = OPTIONS.segment_bytes;
    {
        let mut state = lock(&shelf.state);
        state.0.insert(1, vec![0; len as usize]);
        state.1.push(Step::CreateUnnamed(1, len));
    }
    let mut writer = Writer::new(&shelf, 0);
    let acked = writer.commit(&[10]);
    assert_eq!(writer.journal.used.back().unwrap().file, 1);
    let disk = after_power_loss(&shelf.steps(), 0, false);
    let (_, found) = open(&MemoryShelf::of(disk), 0).unwrap();
    check_log(&found, acked, 0, "after power loss");
}

/// The found records follow each other, reach back to the checkpoint, and lack nothing that
/// was acknowledged.
fn check_log(found: &[u64], acked: u64, checkpointed: u64, what: &str) {
    for pair in found.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "{what}");
    }
    assert!(found.first().is_none_or(|first| *first <= checkpointed + 1), "{what}: {found:?}");
    let last = found.last().copied().unwrap_or(checkpointed);
    assert!(last >= acked, "{what}: ends at {last}, but {acked} was acknowledged");
}

/// A closed journal of several segments, and its last frame: (file, from, to).
fn quiet_log() -> (Disk, u64, (u64, usize, usize)) {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
    let mut writer = Writer::new(&shelf, 0);
    let mut acked = 0;
    for round in 0..10 {
        acked = writer.commit(&[10 + round, 5]);
    }
    let steps = shelf.steps();
    let last = steps.iter().rev().find_map(|step| match step {
        Step::Write(file, at, bytes) => Some((*file, *at as usize, *at as usize + bytes.len())),
        _ => None,
    });
    (shelf.disk(), acked, last.unwrap())
}

#[test]
fn damage_anywhere_is_refused_or_costs_the_last_frame_at_most() {
    let (disk, acked, (last_file, from, to)) = quiet_log();
    let (_, all) = open(&MemoryShelf::of(disk.clone()), 0).unwrap();
    assert_eq!(all, (1..=acked).collect::<Vec<_>>());
    let (mut refused, mut harmless, mut shorter) = (0, 0, 0);
    for (file, bytes) in &disk {
        for at in 0..bytes.len() {
            // Zeros that no frame or header covers are all alike.
            if at % PAGE as usize > 150 {
                continue;
            }
            let mut disk = disk.clone();
            disk.get_mut(file).unwrap()[at] ^= 0x10;
            match open(&MemoryShelf::of(disk), 0) {
                Err(_) => refused += 1,
                Ok((_, found)) if found == all => harmless += 1,
                Ok((_, found)) => {
                    let in_last = *file == last_file && (from..to).contains(&at);
                    assert!(in_last, "file {file} byte {at}: {found:?}");
                    assert_eq!(found, all[..all.len() - 2]);
                    shorter += 1;
                }
            }
        }
    }
    println!("refused {refused}, harmless {harmless}, only the last frame {shorter}");
    assert_eq!(shorter, to - from, "a torn last frame and a rotten one look the same");
    assert!(refused > 500 && harmless > 500, "{refused} {harmless}");
}

#[test]
fn a_start_with_many_segments_keeps_a_spare_for_a_full_disk() {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
    let mut writer = Writer::new(&shelf, 0);
    for _ in 0..9 {
        writer.commit(&[10]);
    }
    assert!(writer.journal.used.len() > 2 && writer.journal.free.len() == 1);
    drop(writer);
    for _ in 0..3 {
        let (journal, _) = open(&shelf, 0).unwrap();
        assert_eq!(journal.free.len(), 1, "{:?}", journal.used);
    }
}

/// A disk that loses a page may give zeros for it.
#[test]
fn a_segment_whose_header_is_lost_is_not_taken_for_a_spare() {
    let (disk, acked, (last_file, ..)) = quiet_log();
    for file in disk.keys() {
        let (_, all) = open(&MemoryShelf::of(disk.clone()), 0).unwrap();
        let mut disk = disk.clone();
        disk.get_mut(file).unwrap()[..PAGE as usize].fill(0);
        let has_frames = disk[file].iter().any(|byte| *byte != 0);
        assert!(has_frames || *file != last_file);
        match open(&MemoryShelf::of(disk), 0) {
            Ok((_, found)) => assert!(!has_frames && found == all, "file {file}"),
            Err(JournalError::Damaged { .. } | JournalError::Gap { .. }) => assert!(has_frames),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(all.len() as u64, acked);
    }
}

#[test]
fn files_cut_short_or_lost_are_refused_where_anything_is_missing() {
    let (disk, acked, (last_file, from, _)) = quiet_log();
    let all: Vec<u64> = (1..=acked).collect();
    for (file, bytes) in &disk {
        for len in (0..bytes.len()).step_by(13) {
            let mut disk = disk.clone();
            disk.get_mut(file).unwrap().truncate(len);
            if let Ok((_, found)) = open(&MemoryShelf::of(disk), 0) {
                let no_frames = bytes[PAGE as usize..].iter().all(|byte| *byte == 0);
                // An empty file is as good as none; see below.
                let as_if_lost = len == 0 && *file == last_file;
                let right = found == all && no_frames || as_if_lost;
                assert!(right, "file {file} cut to {len}: {found:?}");
            }
        }
        let mut disk = disk.clone();
        disk.remove(file);
        match open(&MemoryShelf::of(disk), 0) {
            Ok((_, found)) if *file == last_file => {
                // The newest segment leaves no trace in the others; the index may know.
                assert!(found.len() < all.len());
                assert!(from > 0);
            }
            Ok((_, found)) => assert_eq!(found, all, "file {file}"),
            Err(error) => assert!(!matches!(error, JournalError::Io(_)), "{error}"),
        }
    }
    let empty = open(&MemoryShelf::default(), 0).unwrap_err();
    assert!(matches!(empty, JournalError::Absent), "{empty}");
}

#[test]
fn a_journal_that_begins_behind_the_index_is_refused() {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
    let mut writer = Writer::new(&shelf, 0);
    for _ in 0..20 {
        let acked = writer.commit(&[3000]);
        writer.journal.trim(acked - 1);
    }
    drop(writer);
    let error = open(&shelf, 3).unwrap_err();
    assert!(matches!(error, JournalError::Gap { expected: 4, .. }), "{error}");
    open(&shelf, 19).unwrap();
}

#[test]
fn another_journals_segment_is_not_believed() {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH + 1, OPTIONS).unwrap();
    assert!(matches!(open(&shelf, 0).unwrap_err(), JournalError::Foreign(0)));
}

#[test]
fn what_does_not_follow_is_not_written() {
    let shelf = MemoryShelf::default();
    Journal::create(&shelf, EPOCH, OPTIONS).unwrap();
    let mut writer = Writer::new(&shelf, 0);
    writer.commit(&[1, 1]);
    for (first, upto) in [(2, 2), (4, 4), (3, 2)] {
        assert!(writer.journal.write(first, upto, &[0; 50]).is_err());
    }
    let too_long = vec![0; 5 * PAGE as usize];
    assert!(writer.journal.write(3, 3, &too_long).is_err());
    writer.commit(&[1]);
}

/// Fails every write and sync from a given one on.
#[derive(Debug)]
struct FailingShelf {
    inner: MemoryShelf,
    left: Mutex<u32>,
    failed: Mutex<BTreeSet<u64>>,
}

impl FailingShelf {
    fn tick(&self, file: u64) -> io::Result<()> {
        let mut left = lock(&self.left);
        if *left == 0 {
            assert!(lock(&self.failed).insert(file), "file {file} is used after it failed");
            return Err(io::Error::from_raw_os_error(5));
        }
        *left -= 1;
        Ok(())
    }
}

impl Shelf for FailingShelf {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.inner.list()
    }
    fn create(&self, file: u64, len: u64) -> io::Result<()> {
        self.inner.create(file, len)
    }
    fn remove(&self, file: u64) -> io::Result<()> {
        self.inner.remove(file)
    }
    fn len(&self, file: u64) -> io::Result<u64> {
        self.inner.len(file)
    }
    fn read(&self, file: u64, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(file, at, buffer)
    }
    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.tick(file)?;
        self.inner.write(file, at, bytes)
    }
    fn sync(&self, file: u64) -> io::Result<()> {
        self.tick(file)?;
        self.inner.sync(file)
    }
    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }
}

#[test]
fn the_first_failure_is_the_last_write() {
    for good in 0..12 {
        let inner = MemoryShelf::default();
        Journal::create(&inner, EPOCH, OPTIONS).unwrap();
        let shelf = FailingShelf { inner, left: Mutex::new(u32::MAX), failed: Mutex::default() };
        let replay = |_: &[u8]| Ok::<_, JournalError>(());
        let mut journal = Journal::open(shelf, EPOCH, 0, OPTIONS, false, replay).unwrap();
        *lock(&journal.shelf.left) = good;
        let mut appender = Appender::new(EPOCH, 0);
        let mut failed = false;
        for _ in 0..12 {
            appender.append(&[1; 20]);
            let frame = appender.take().unwrap();
            let result = journal.write(frame.first, frame.last, &frame.bytes);
            assert!(!(failed && result.is_ok()), "a write after a failure");
            failed |= result.is_err();
        }
        assert!(failed);
    }
}

#[test]
fn on_a_real_disk_with_restarts_at_random() {
    let mut random = Random::seeded(3);
    let scratch = Scratch::new("journal");
    let folder = scratch.path().join("journal");
    let options = JournalOptions { segment_bytes: SEGMENT_BYTES_MIN, ..JournalOptions::default() };
    DiskJournal::create(&folder, EPOCH, options).unwrap();
    let (mut acked, mut checkpointed) = (0, 0);
    for _ in 0..6 {
        let mut found = Vec::new();
        let replay = |payload: &[u8]| {
            found.extend(records(payload).map(|record| record.unwrap().0));
            Ok::<_, JournalError>(())
        };
        let mut journal = DiskJournal::open(&folder, EPOCH, checkpointed, options, replay).unwrap();
        check_log(&found, acked, checkpointed, "restart");
        let mut appender = Appender::new(EPOCH, acked);
        for _ in 0..random.below(9) {
            for _ in 0..=random.below(3) {
                appender.append(&vec![7; random.below(5 << 20) as usize]);
            }
            let frame = appender.take().unwrap();
            let flush =
                sateen_osd::Flush { frame: frame.bytes, first: frame.first, upto: frame.last };
            journal.write(&flush).unwrap();
            acked = flush.upto;
            if random.below(3) == 0 {
                checkpointed = acked - random.below(acked - checkpointed + 1);
                journal.trim(checkpointed).unwrap();
            }
        }
    }
    assert!(acked > 10);
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert!(files < 12, "{files} segments");
}
