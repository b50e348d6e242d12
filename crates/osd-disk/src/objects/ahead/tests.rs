//! What is read ahead is in memory when it is wanted; what is removed meanwhile stays removed.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::fs::{Advice, fadvise};
use sateen_osd::ObjectStore;

use super::super::{DiskObjects, ObjectOptions, dense, watch};
use super::*;
use crate::testing::{Scratch, SmallDisk, pages_in_memory};

/// More than a folder holds.
const OBJECTS: u32 = 600;

fn object(oid: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: Seq(0x2_0000_0400), oid, ver: 0 }, stripe: 0 }
}

fn bytes_of(oid: u32) -> Vec<u8> {
    (0..3901_u32).map(|at| (oid * 31 + at) as u8).collect()
}

/// A store with small objects, which only the disk has.
fn cold(scratch: &Scratch) -> Option<(DiskObjects, SmallDisk)> {
    let disk = SmallDisk::ext4(scratch, 64)?;
    let folder = disk.0.join("objects");
    DiskObjects::create(&folder).unwrap();
    let store = DiskObjects::open(&folder, ObjectOptions::default()).unwrap();
    for oid in 0..OBJECTS {
        store.write(object(oid), 0, &bytes_of(oid)).unwrap();
    }
    let all: Vec<ObjectId> = (0..OBJECTS).map(object).collect();
    store.sync(&all).unwrap();
    for object in all {
        let file = store.existing(object, Need::Look).unwrap().unwrap();
        fadvise(&**file, 0, None, Advice::DontNeed).unwrap();
    }
    Some((store, disk))
}

/// Reads as a target does.
fn read(store: &DiskObjects, oid: u32) -> Vec<u8> {
    let mut buffer = BytesMut::new();
    let now = store.read_now(object(oid), 0, 4096, &mut buffer).unwrap();
    if now.is_none() {
        store.read(object(oid), 0, 4096, &mut buffer).unwrap();
    }
    buffer.to_vec()
}

/// Waits until one is in memory.
fn is_brought(store: &DiskObjects, oid: u32) -> bool {
    let file = store.existing(object(oid), Need::Look).unwrap().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if pages_in_memory(&file, 0..4096) > 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn who_reads_small_files_in_order_finds_the_next_ones_in_memory() {
    let scratch = Scratch::new("ahead");
    let Some((store, _disk)) = cold(&scratch) else { return };
    for oid in 0..8 {
        assert_eq!(read(&store, oid), bytes_of(oid));
    }
    assert!(is_brought(&store, 8), "the next one");
    // A walk does not end with a folder.
    for oid in 8..OBJECTS {
        assert!(is_brought(&store, oid), "{oid} {:?}", lock(&store.ahead.shared.walks));
        assert_eq!(read(&store, oid), bytes_of(oid));
    }
}

#[test]
fn what_is_not_near_is_left_on_the_disk() {
    let scratch = Scratch::new("ahead-far");
    let Some((store, _disk)) = cold(&scratch) else { return };
    for oid in 0..8 {
        read(&store, oid);
    }
    assert!(is_brought(&store, 8));
    std::thread::sleep(Duration::from_millis(50));
    let far = store.existing(object(200), Need::Look).unwrap().unwrap();
    assert_eq!(pages_in_memory(&far, 0..4096), 0);
}

#[test]
fn what_was_removed_is_not_brought_back() {
    let scratch = Scratch::new("ahead-removed");
    let Some((store, _disk)) = cold(&scratch) else { return };
    for oid in (0..OBJECTS).step_by(2) {
        assert_eq!(read(&store, oid), bytes_of(oid));
        // Right where it is being read ahead.
        for near in [oid + 5, oid + 9] {
            if near < OBJECTS {
                store.remove(object(near)).unwrap();
            }
        }
    }
    for oid in (5..OBJECTS).step_by(2) {
        assert_eq!(read(&store, oid), b"");
        assert!(!store.stat(&[object(oid)]).unwrap()[0].exists);
    }
}

#[test]
fn whoever_reads_ahead_is_told_that_the_store_is_closed() {
    let scratch = Scratch::new("ahead-ends");
    let Some((store, _disk)) = cold(&scratch) else { return };
    let shared = store.ahead.shared.clone();
    assert!(!shared.ends.load(Ordering::Relaxed));
    drop(store);
    assert!(shared.ends.load(Ordering::Relaxed), "what is left is not asked for");
}

const PART: u64 = dense::PART_BYTES;
const PARTS: u64 = 6;

/// A store with a large object, which only the disk has.
fn large_and_cold(scratch: &Scratch) -> Option<(DiskObjects, SmallDisk)> {
    let (store, disk) = cold(scratch)?;
    let bytes: Vec<u8> = (0..PARTS * PART).map(|at| (at / 4096) as u8).collect();
    store.write(object(OBJECTS), 0, &bytes).unwrap();
    store.sync(&[object(OBJECTS)]).unwrap();
    let file = store.existing(object(OBJECTS), Need::Look).unwrap().unwrap();
    fadvise(&**file, 0, None, Advice::DontNeed).unwrap();
    Some((store, disk))
}

/// Pages in memory of a part of the large object.
fn pages_of(store: &DiskObjects, part: u64) -> usize {
    let file = store.existing(object(OBJECTS), Need::Look).unwrap().unwrap();
    pages_in_memory(&file, part * PART..(part + 1) * PART)
}

/// Goes on with pages of a part, one here and one there, until all of it is in memory; how many pages
/// that took.
fn until_whole(store: &DiskObjects, part: u64, mut read: impl FnMut(u64)) -> u64 {
    for at in 0..PART / 4096 {
        // Neighbours are not read one after the other, in neither direction.
        read(part * PART + (at * 97 + 13) * 4096 % PART);
        let end = Instant::now() + Duration::from_millis(20);
        while at + 1 >= dense::WAITS_MAX.into() && Instant::now() < end {
            if pages_of(store, part) as u64 == PART / 4096 {
                return at + 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    PART / 4096
}

#[test]
fn a_part_that_is_read_here_and_there_is_read_whole() {
    let scratch = Scratch::new("ahead-dense");
    let Some((mut store, _disk)) = large_and_cold(&scratch) else { return };
    // A disk may be as quick as memory: what the first look finds missing, and has brought, may be there
    // at the second. Here all that is not there at once is waited for.
    store.reads.memory_ns = |_| 0;
    let read = |offset: u64| {
        let mut buffer = BytesMut::new();
        if store.read_now(object(OBJECTS), offset, 4096, &mut buffer).unwrap().is_none() {
            store.read(object(OBJECTS), offset, 4096, &mut buffer).unwrap();
        }
        assert_eq!(buffer, vec![(offset / 4096) as u8; 4096]);
    };
    let took = until_whole(&store, 3, read);
    // It takes its time until it is there.
    assert!(took <= 3 * u64::from(dense::WAITS_MAX), "{took} pages");
    assert_eq!(pages_of(&store, 1) + pages_of(&store, 4), 0, "and no more than it");
    // So do those that come where one may sleep.
    let took = until_whole(&store, 1, |offset| {
        let mut buffer = BytesMut::new();
        store.read(object(OBJECTS), offset, 4096, &mut buffer).unwrap();
    });
    assert!(took <= 3 * u64::from(dense::WAITS_MAX), "{took} pages");
}

#[test]
fn so_is_one_that_the_kernel_reads_itself() {
    let scratch = Scratch::new("ahead-watched");
    let Some((store, _disk)) = large_and_cold(&scratch) else { return };
    let path = names::path(&store.folder, object(OBJECTS));
    let file = File::open(path).unwrap();
    if watch::cached(&file, 0..1).is_err() {
        // Before Linux 6.5 nobody can tell.
        return;
    }
    store.give(object(OBJECTS)).unwrap().unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let read = |offset: u64| {
        let mut buffer = BytesMut::with_capacity(4096);
        super::super::reads::read_behind(&file, (offset, 4096), &mut buffer).unwrap();
        assert_eq!(buffer, vec![(offset / 4096) as u8; 4096]);
    };
    // The first look says what was there before.
    std::thread::sleep(Duration::from_millis(50));
    let took = until_whole(&store, 3, read);
    assert!(took < PART / 4096 / 2, "{took} pages");
    assert!(took >= 48, "{took} pages");
    assert_eq!(pages_of(&store, 0) + pages_of(&store, 1), 0, "and no more than it");
    store.take_back(object(OBJECTS));
}
