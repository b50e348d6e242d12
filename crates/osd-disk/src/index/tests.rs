//! The index against a plain map, across checkpoints, merges, restarts and power losses.

use std::collections::BTreeMap;

use sateen_osd::Batch;

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::testing::{Random, Scratch, SmallDisk};

const SMALL: IndexOptions = IndexOptions { cache_bytes: 1 << 20, table_bytes: 16 << 10 };

fn key(n: u64) -> Key {
    Key::tag(b'k').with(&n.to_be_bytes())
}

type Model = BTreeMap<Key, Vec<u8>>;

fn change(random: &mut Random, model: &mut Model, table: &mut Memtable, keys: u64) {
    let mut batch = Batch::new();
    let key = key(random.below(keys));
    if random.below(4) == 0 {
        batch.remove(&key);
        model.remove(&key);
    } else {
        let value = vec![random.below(256) as u8; random.below(300) as usize];
        batch.put_with(&key, |out| out.extend_from_slice(&value));
        model.insert(key, value);
    }
    table.apply(batch.as_bytes()).unwrap();
}

fn everything(index: &DiskIndex, limit: usize) -> Model {
    let (mut all, mut after) = (Model::new(), Key::EMPTY);
    loop {
        let page = index.scan(&Key::tag(b'k'), &after, limit).unwrap();
        let Some((last, _)) = page.last() else { return all };
        after = *last;
        all.extend(page);
    }
}

#[test]
fn is_a_map_across_checkpoints_merges_and_restarts() {
    let mut random = Random::seeded(5);
    let scratch = Scratch::new("index-model");
    let mut index = DiskIndex::open(scratch.path(), SMALL).unwrap();
    let mut model = Model::new();
    for upto in 1..60 {
        let mut table = Memtable::new();
        for _ in 0..random.below(300) {
            change(&mut random, &mut model, &mut table, 500);
        }
        index.checkpoint(&table, upto).unwrap();
        if random.below(3) == 0 {
            index.settle();
        }
        if random.below(4) == 0 {
            drop(index);
            index = DiskIndex::open(scratch.path(), SMALL).unwrap();
        }
        assert_eq!(index.checkpointed(), upto);
        for _ in 0..50 {
            let key = key(random.below(500));
            assert_eq!(index.get(&key).unwrap().as_ref(), model.get(&key), "{key:?}");
        }
        assert_eq!(everything(&index, 1 + random.below(200) as usize), model, "upto {upto}");
    }
    index.settle();
    assert!(!index.tables.needs_compaction());
    assert_eq!(everything(&index, 64), model);
}

#[test]
fn scans_keep_to_their_prefix() {
    let scratch = Scratch::new("index-prefix");
    let index = DiskIndex::open(scratch.path(), SMALL).unwrap();
    let mut table = Memtable::new();
    let mut batch = Batch::new();
    for bytes in [&[1u8, 255][..], &[1, 255, 255], &[1, 255, 255, 0], &[2], &[255, 255, 7]] {
        batch.put_with(&Key::from_bytes(bytes).unwrap(), |out| out.push(9));
    }
    table.apply(batch.as_bytes()).unwrap();
    index.checkpoint(&table, 1).unwrap();
    let count = |prefix: &[u8], after: &[u8]| {
        let (prefix, after) = (Key::from_bytes(prefix).unwrap(), Key::from_bytes(after).unwrap());
        index.scan(&prefix, &after, 100).unwrap().len()
    };
    assert_eq!(count(&[1, 255], &[]), 3);
    assert_eq!(count(&[1, 255], &[1, 255]), 2);
    assert_eq!(count(&[255, 255], &[]), 1);
    assert_eq!(count(&[], &[]), 5);
    assert_eq!(count(&[3], &[]), 0);
}

/// Ends other threads' loops, also if this one panics.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_see_whole_checkpoints_while_tables_are_replaced() {
    let scratch = Scratch::new("index-readers");
    let index = DiskIndex::open(scratch.path(), SMALL).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    // All keys hold the number of the same checkpoint.
                    let pairs = index.scan(&Key::tag(b'k'), &Key::EMPTY, 1000).unwrap();
                    let first = pairs.first().map(|pair| pair.1.clone());
                    assert!(pairs.iter().all(|pair| Some(&pair.1) == first.as_ref()));
                    assert!(pairs.is_empty() || pairs.len() == 100);
                    if let Some(found) = index.get(&key(50)).unwrap() {
                        let now = u64::from_le_bytes(found.try_into().unwrap());
                        assert!(now >= seen, "{now} after {seen}");
                        seen = now;
                    }
                }
            });
        }
        let _end = AtEnd(&done);
        for upto in 1..80u64 {
            let mut batch = Batch::new();
            (0..100).for_each(|n| batch.put_with(&key(n), |out| out.extend(upto.to_le_bytes())));
            let mut table = Memtable::new();
            table.apply(batch.as_bytes()).unwrap();
            index.checkpoint(&table, upto).unwrap();
        }
    });
}

/// A copy of the folder at any moment, also with the newest table cut short, opens with a
/// whole checkpoint.
#[test]
fn an_unfinished_checkpoint_is_as_if_it_had_not_begun() {
    let scratch = Scratch::new("index-crash");
    let home = scratch.path().join("home");
    let index = DiskIndex::open(&home, SMALL).unwrap();
    let mut random = Random::seeded(9);
    let mut model = Model::new();
    let mut table = Memtable::new();
    (0..400).for_each(|_| change(&mut random, &mut model, &mut table, 200));
    index.checkpoint(&table, 1).unwrap();

    // A checkpoint that stops halfway: its tables are there, and nothing names them.
    let changes = (0..2000u64).map(|n| (Slice::from(key(n).as_bytes()), Some(&b"new"[..])));
    let stopping = changes.chain([(Slice::from([0]), None)]);
    assert!(index.write(2, stopping).is_err());
    let copy = scratch.path().join("copy");
    // Merging removes tables, and a copy must not meet one that is going.
    index.settle();
    copy_folder(&home, &copy);
    let tables = || std::fs::read_dir(copy.join("tables")).unwrap().map(|entry| entry.unwrap());
    let newest = tables().max_by_key(|entry| entry.metadata().unwrap().len()).unwrap().path();
    for cut in [None, Some(0), Some(100)] {
        let orphan = copy.join("tables").join("999");
        std::fs::copy(&newest, &orphan).unwrap();
        if let Some(cut) = cut {
            File::options().write(true).open(&orphan).unwrap().set_len(cut).unwrap();
        }
        let reopened = DiskIndex::open(&copy, SMALL).unwrap();
        assert_eq!(reopened.checkpointed(), 1);
        assert_eq!(everything(&reopened, 99), model);
        assert!(!orphan.exists(), "what no checkpoint names is deleted");
    }
}

/// What happens after the disk was full, at every possible moment of a busy index.
#[test]
fn sweeping_takes_what_failed_steps_left_and_nothing_else() {
    let scratch = Scratch::new("index-sweep");
    let index = DiskIndex::open(scratch.path(), SMALL).unwrap();
    let mut random = Random::seeded(4);
    let mut model = Model::new();
    let left = scratch.path().join("tables").join("999999");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                index.tables.sweep().unwrap();
            }
        });
        let _end = AtEnd(&done);
        for upto in 1..60 {
            let mut table = Memtable::new();
            (0..200).for_each(|_| change(&mut random, &mut model, &mut table, 300));
            index.checkpoint(&table, upto).unwrap();
        }
        index.settle();
    });
    assert_eq!(everything(&index, 77), model);
    std::fs::write(&left, b"half a table").unwrap();
    index.tables.sweep().unwrap();
    assert!(!left.exists());
    drop(index);
    assert_eq!(everything(&DiskIndex::open(scratch.path(), SMALL).unwrap(), 77), model);
}

/// The disk is full of tables that were merged away: a checkpoint gets their space. It is full
/// of what is not the index's: the checkpoint fails, and can be repeated when there is room.
#[test]
fn a_full_disk_does_not_end_the_index() {
    let scratch = Scratch::new("index-full");
    let Some(disk) = SmallDisk::new(&scratch, "32m") else { return };
    let index = DiskIndex::open(&disk.0.join("index"), IndexOptions::default()).unwrap();
    let (mut model, mut table) = (Model::new(), Memtable::new());
    for n in 0..300 {
        let mut batch = Batch::new();
        batch.put_with(&key(n), |out| out.extend([n as u8; 50_000]));
        table.apply(batch.as_bytes()).unwrap();
        model.insert(key(n), vec![n as u8; 50_000]);
    }
    let filler = disk.0.join("filler");
    std::fs::write(&filler, vec![1; 24 << 20]).unwrap();
    let error = index.checkpoint(&table, 1).unwrap_err();
    assert!(out_of_space(&error), "{error}");
    assert_eq!(index.checkpointed(), 0);

    // The same data in the trash, at the front of a file so long that its turn never comes.
    let trash = File::options().write(true).open(&filler).unwrap();
    trash.set_len(1 << 40).unwrap();
    std::fs::remove_file(&filler).unwrap();
    index.tables.put_into_trash(trash);
    index.checkpoint(&table, 1).unwrap();
    assert_eq!(index.checkpointed(), 1);
    assert!(everything(&index, 99) == model);
    drop(index);
    let index = DiskIndex::open(&disk.0.join("index"), IndexOptions::default()).unwrap();
    assert!(everything(&index, 99) == model);
}

#[test]
fn tables_that_are_named_on_disk_only_stop_the_index() {
    let scratch = Scratch::new("index-named");
    let index = DiskIndex::open(scratch.path(), SMALL).unwrap();
    let mut batch = Batch::new();
    batch.put(&key(1), &1u32);
    let mut table = Memtable::new();
    table.apply(batch.as_bytes()).unwrap();
    index.checkpoint(&table, 1).unwrap();
    index.settle();
    let current = scratch.path().join("current");
    let mut named = std::fs::read(&current).unwrap();
    named[0] += 1;
    std::fs::write(&current, named).unwrap();
    assert!(index.tables.sweep().is_err());
    assert!(index.checkpoint(&table, 2).is_err());
    assert!(index.get(&key(1)).unwrap().is_some());
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_rotten_table_is_noticed_not_believed() {
    let scratch = Scratch::new("index-rot");
    let index = DiskIndex::open(scratch.path(), SMALL).unwrap();
    let mut random = Random::seeded(2);
    let (mut model, mut table) = (Model::new(), Memtable::new());
    (0..400).for_each(|_| change(&mut random, &mut model, &mut table, 200));
    index.checkpoint(&table, 1).unwrap();
    drop(index);
    let path = std::fs::read_dir(scratch.path().join("tables")).unwrap().next().unwrap();
    let path = path.unwrap().path();
    let whole = std::fs::read(&path).unwrap();
    let mut noticed = 0;
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let right = std::panic::catch_unwind(|| {
            let index = DiskIndex::open(scratch.path(), SMALL).ok()?;
            let mut found = (0..200).map(|n| Some((n, index.get(&key(n)).ok()?)));
            let all: Option<Vec<_>> = found.by_ref().collect();
            Some(all?.iter().all(|(n, found)| found.as_ref() == model.get(&key(*n))))
        });
        // The engine may also panic, but never answer wrongly.
        assert!(!matches!(right, Ok(Some(false))), "a wrong value, byte {at}");
        noticed += u32::from(!matches!(right, Ok(Some(true))));
    }
    assert!(noticed > 30, "{noticed}");
}
