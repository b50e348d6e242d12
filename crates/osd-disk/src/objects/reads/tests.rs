//! What is in memory is read at once, what is not is not waited for, and all of it is right.

use std::time::{Duration, Instant};

use sateen_osd::ObjectStore;
use sateen_types::{Fid, ObjectId, Seq};

use super::super::files::Need;
use super::super::{DiskObjects, ObjectOptions};
use super::*;
use crate::testing::{Random, Scratch, SmallDisk, pages_in_memory};

const OBJECT: ObjectId =
    ObjectId { fid: Fid { seq: Seq(0x2_0000_0400), oid: 1, ver: 0 }, stripe: 0 };

fn open_in(folder: &Path) -> DiskObjects {
    let folder = folder.join("objects");
    DiskObjects::create(&folder).unwrap();
    DiskObjects::open(&folder, ObjectOptions::default()).unwrap()
}

/// A store with an object of these bytes, which only the disk has.
fn cold(scratch: &Scratch, bytes: &[u8]) -> Option<(DiskObjects, SmallDisk)> {
    let disk = SmallDisk::ext4(scratch, 64)?;
    let mut store = open_in(&disk.0);
    // However quick this one is.
    store.reads.quick_ns = 0;
    // Whatever other tests wait for.
    store.reads.waiting = Box::leak(Box::default());
    store.write(OBJECT, 0, bytes).unwrap();
    store.sync(&[OBJECT]).unwrap();
    cool(&store);
    Some((store, disk))
}

/// Has the kernel forget what is on the disk.
fn cool(store: &DiskObjects) {
    let file = store.existing(OBJECT, Need::Look).unwrap().unwrap();
    file.sync_data().unwrap();
    fadvise(&**file, 0, None, Advice::DontNeed).unwrap();
}

/// Reads as a target does: whether it had to wait, and what it got.
fn read(store: &DiskObjects, offset: u64, len: usize) -> (bool, Vec<u8>) {
    let mut buffer = BytesMut::from(&b"before"[..]);
    let now = store.read_now(OBJECT, offset, len, &mut buffer).unwrap();
    let read = now.unwrap_or_else(|| {
        assert_eq!(&buffer[..], b"before", "nothing of it is left behind");
        store.read(OBJECT, offset, len, &mut buffer).unwrap()
    });
    assert_eq!((&buffer[..6], buffer.len()), (&b"before"[..], 6 + read));
    (now.is_none(), buffer[6..].to_vec())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 4096) ^ at) as u8 | 1).collect()
}

/// A disk may be so quick that a read need not wait: that can spoil some attempts, not all.
#[test]
fn what_is_not_in_memory_is_not_waited_for() {
    let scratch = Scratch::new("reads-cold");
    let bytes = pattern(300_000);
    let Some((store, _disk)) = cold(&scratch, &bytes) else { return };
    let (mut waited, mut waited_for_some) = (0, 0);
    for _ in 0..200 {
        cool(&store);
        let (cold, got) = read(&store, 100_000, 1000);
        assert!(got == bytes[100_000..101_000]);
        waited += usize::from(cold);
        assert!(read(&store, 100_000, 1000) == (false, got), "it is there now");
        // Some of it is.
        let (cold, got) = read(&store, 0, bytes.len());
        assert!(got == bytes);
        waited_for_some += usize::from(cold);
    }
    assert!(waited > 100 && waited_for_some > 0, "{waited}, {waited_for_some} of 200");
    assert!(read(&store, 0, bytes.len() + 1) == (false, bytes));
    assert_eq!(read(&store, 300_000, 10), (false, Vec::new()));
    assert_eq!(read(&store, 1 << 60, 10), (false, Vec::new()));
}

/// Short reads of a quick disk are waited for; not long ones, and not when it is slow again.
#[test]
fn a_quick_disk_is_waited_for() {
    let scratch = Scratch::new("reads-quick");
    let bytes = pattern(300_000);
    let Some((mut store, _disk)) = cold(&scratch, &bytes) else { return };
    store.reads.quick_ns = QUICK_NS;
    let handed_over = |store: &DiskObjects, len: usize| {
        let cold = |_: &u32| {
            cool(store);
            let (waited, got) = read(store, 100_000, len);
            assert!(got == bytes[100_000..100_000 + len]);
            waited
        };
        (0..50).filter(cold).count()
    };
    let set = |ns| store.reads.short_ns.store(ns, Ordering::Relaxed);
    set(u64::MAX / 2);
    assert!(handed_over(&store, 1000) > 10, "it was thought slow");
    set(0);
    store.reads.quick_ns = u64::MAX;
    assert_eq!(handed_over(&store, 1000), 0);
    assert!(handed_over(&store, SHORT_BYTES + 1) > 10);
    store.reads.waiting.store(1, Ordering::Relaxed);
    assert!(handed_over(&store, 1000) > 10, "of a disk that hangs others do not get hold as well");
    store.reads.waiting.store(0, Ordering::Relaxed);
    let place = store.reads.take_place(1000);
    assert!(place.is_some() && store.reads.take_place(1000).is_none(), "one at a time");
    drop(place);
    assert!(store.reads.take_place(1000).is_some(), "and then the next");
    // What it takes is a mean of the last ones.
    set(0);
    (0..100).for_each(|_| store.reads.took(80_000));
    assert!((79_000..=80_000).contains(&store.reads.short_ns.load(Ordering::Relaxed)));
    store.reads.took(8_000_000);
    assert!(store.reads.short_ns.load(Ordering::Relaxed) > 1_000_000);
}

#[test]
fn ends_and_holes_are_right_cold_and_warm() {
    let scratch = Scratch::new("reads-holes");
    let Some((store, _disk)) = cold(&scratch, &pattern(5000)) else { return };
    let mut bytes = pattern(5000);
    // A hole of several pages, and an end within one.
    store.write(OBJECT, 1_000_001, b"behind the hole").unwrap();
    bytes.resize(1_000_001, 0);
    bytes.extend_from_slice(b"behind the hole");
    let mut random = Random::seeded(7);
    let mut waited = 0;
    for round in 0..3000 {
        if round % 3 == 0 {
            cool(&store);
        }
        let places = [0, 4000, 5000, 500_000, 995_000, 1_000_000, 1_000_016];
        let offset = places[random.below(7) as usize] + random.below(3000);
        let bits = random.below(18);
        let len = 1 + random.below(1 << bits) as usize;
        let start = (offset as usize).min(bytes.len());
        let expected = &bytes[start..(start + len).min(bytes.len())];
        let (had_to_wait, got) = read(&store, offset, len);
        assert!(got == expected, "{len} at {offset}");
        waited += usize::from(had_to_wait);
        if random.below(50) == 0 {
            let size = 900_000 + random.below(200_000);
            store.punch(OBJECT, size).unwrap();
            bytes.truncate(size as usize);
            let end = bytes.len();
            store.write(OBJECT, end as u64, b"more").unwrap();
            bytes.extend_from_slice(b"more");
        }
    }
    assert!(waited > 300, "{waited} of 3000");
}

/// What comes is read before it is asked for, up to the end; for who jumps it is not.
#[test]
fn what_comes_next_is_read_ahead() {
    const LEN: u64 = 256 << 10;
    const SIZE: u64 = 32 << 20;
    let scratch = Scratch::new("reads-ahead");
    let bytes = pattern(SIZE as usize);
    let Some((store, _disk)) = cold(&scratch, &bytes) else { return };
    let file = store.existing(OBJECT, Need::Look).unwrap().unwrap();
    let mut random = Random::seeded(3);
    for _ in 0..50 {
        let offset = random.below(SIZE / 4096) * 4096;
        assert!(read(&store, offset, 4096).1 == bytes[offset as usize..][..4096]);
    }
    let brought = pages_in_memory(&file, 0..SIZE);
    assert!(brought <= 200, "{brought} pages for 50");
    cool(&store);
    // Those that are on their way can stay.
    let left = pages_in_memory(&file, 0..SIZE / 2);
    assert!(left < 16, "{left}");

    // The kernel itself reads nothing ahead.
    fadvise(&**file, 0, None, Advice::Random).unwrap();
    let turns = (SIZE / 2 / LEN) as usize;
    let (mut waited, mut missed) = (0, 0);
    for turn in 0..turns as u64 {
        let offset = SIZE / 2 + turn * LEN;
        let (had_to_wait, got) = read(&store, offset, LEN as usize);
        assert!(got == bytes[offset as usize..][..LEN as usize], "at {offset}");
        waited += usize::from(had_to_wait);
        let next = offset + LEN;
        let began = Instant::now();
        while turn > 0 && next < SIZE && pages_in_memory(&file, next..next + LEN) < 64 {
            if began.elapsed() > Duration::from_secs(5) {
                // The kernel may have read a little beyond what it was asked for, so that this was
                // taken for there, too.
                println!("nothing was read at {next}");
                missed += 1;
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(missed <= 2, "{missed} of {turns} were not read ahead");
    assert!(waited <= turns / 2 + 4, "each second one brings on more: {waited} of {turns}");
    assert_eq!(pages_in_memory(&file, 0..SIZE / 2), left, "nothing of what is behind it");
    // What is in memory is not asked for again: the first time a slow disk may be at some of it still.
    let again = |turn: &usize| read(&store, SIZE / 2 + *turn as u64 * LEN, LEN as usize).0;
    let asked: Vec<usize> = (0..3).map(|_| (0..turns).filter(again).count()).collect();
    assert!(asked[0] <= 8 && asked.contains(&0), "{asked:?}");
}

#[test]
fn an_absent_object_is_not_waited_for_twice() {
    let scratch = Scratch::new("reads-absent");
    let store = open_in(scratch.path());
    let mut buffer = BytesMut::new();
    // It may have to be looked up.
    if store.read_now(OBJECT, 0, 10, &mut buffer).unwrap().is_none() {
        assert_eq!(store.read(OBJECT, 0, 10, &mut buffer).unwrap(), 0);
    }
    assert!(matches!(store.read_now(OBJECT, 0, 10, &mut buffer), Ok(None | Some(0))));
    assert!(buffer.is_empty());
    store.write(OBJECT, 0, b"there").unwrap();
    assert_eq!(read(&store, 0, 10), (false, b"there".to_vec()));
}

/// Where the file system cannot tell, reads are as they were.
#[test]
fn a_file_system_that_cannot_tell_is_read_all_the_same() {
    let scratch = Scratch::new("reads-blind");
    let Some(disk) = SmallDisk::new(&scratch, "1m") else { return };
    let store = open_in(&disk.0);
    store.write(OBJECT, 0, b"in memory").unwrap();
    for blind in [false, true] {
        store.reads.blind.fetch_or(blind, Ordering::Relaxed);
        assert_eq!(read(&store, 0, 100), (false, b"in memory".to_vec()));
        assert_eq!(read(&store, 3, 3), (false, b"mem".to_vec()));
        assert_eq!(read(&store, 100, 3), (false, Vec::new()));
    }
}
