//! What is read ahead is in memory when it is wanted; what is removed meanwhile stays removed.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::fs::{Advice, fadvise};
use sateen_osd::ObjectStore;

use super::super::{DiskObjects, ObjectOptions};
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
