//! What goes past the page cache is as right as what goes through it, and is not kept there.

use bytes::{Buf as _, BytesMut};
use sateen_osd::memory::MemoryObjects;
use sateen_osd::{ObjectOp, ObjectStore};
use sateen_types::{Fid, ObjectId, Seq, to_direct_align};

use super::super::files::Need;
use super::super::{DiskObjects, ObjectOptions};
use super::*;
use crate::testing::{Random, Scratch, SmallDisk, pages_in_memory};

const OBJECT: ObjectId =
    ObjectId { fid: Fid { seq: Seq(0x2_0000_0400), oid: 1, ver: 0 }, stripe: 0 };
const MIB: usize = 1 << 20;

fn open_in(folder: &Path) -> DiskObjects {
    let folder = folder.join("objects");
    DiskObjects::create(&folder).unwrap();
    DiskObjects::open(&folder, ObjectOptions::default()).unwrap()
}

/// Room for so much, from an address on that suits a disk but for `off` bytes.
fn room(len: usize, off: usize) -> BytesMut {
    let mut room = BytesMut::with_capacity(len + 2 * DIRECT_ALIGN);
    let skip = to_direct_align(room.as_ptr().addr()) + off;
    room.resize(skip, 0);
    room.advance(skip);
    room
}

fn data(len: usize, byte: u8, off: usize) -> BytesMut {
    let mut data = room(len, off);
    data.resize(len, byte);
    data
}

fn read(store: &dyn ObjectStore, (offset, len): (u64, usize), off: usize) -> BytesMut {
    let mut buffer = room(len, off);
    let read = store.read_direct(OBJECT, offset, len, &mut buffer).unwrap();
    assert_eq!(read, buffer.len());
    buffer
}

fn pages(store: &DiskObjects) -> usize {
    let file = store.existing(OBJECT, Need::Look).unwrap().unwrap();
    pages_in_memory(&file, 0..file.metadata().unwrap().len())
}

#[test]
fn what_goes_past_the_page_cache_is_not_kept_there() {
    let scratch = Scratch::new("direct-pages");
    let Some(disk) = SmallDisk::ext4(&scratch, 64) else { return };
    let store = open_in(&disk.0);
    assert_eq!(store.write_direct(OBJECT, 0, &data(MIB, 7, 0)).unwrap(), MIB);
    assert_eq!(pages(&store), 0, "written past it");
    assert_eq!(read(&store, (0, MIB), 0), data(MIB, 7, 0));
    assert_eq!(pages(&store), 0, "read past it");
    // What lies otherwise in memory, or in the object, goes as ever, and is as right.
    let odd = u64::try_from(DIRECT_ALIGN / 2).unwrap();
    for (at, off) in [(0, 1), (odd, 0)] {
        assert_eq!(store.write_direct(OBJECT, at, &data(MIB, 9, off)).unwrap(), MIB);
        assert!(pages(&store) > 0, "at {at}, {off} bytes off");
        assert_eq!(read(&store, (at, MIB), off), data(MIB, 9, 0));
    }
    // What is in the cache, and not on the disk yet, is read all the same.
    store.write(OBJECT, 4096, &[3; 4096]).unwrap();
    let all = read(&store, (0, MIB), 0);
    assert!(all[4096..8192].iter().all(|byte| *byte == 3) && all[8192..].iter().all(|b| *b == 9));
}

#[test]
fn who_writes_beside_it_is_not_to_wait_where_others_wait_for_the_thread() {
    let scratch = Scratch::new("direct-beside");
    let Some(disk) = SmallDisk::ext4(&scratch, 64) else { return };
    let store = open_in(&disk.0);
    let write = || {
        let data = bytes::Bytes::from_static(&[1; 4096]);
        ObjectOp::Write { object: OBJECT, offset: 0, data, direct: false }
    };
    assert!(write().run_now(&store).is_ok());
    let busy = store.direct.begin();
    assert!(write().run_now(&store).is_err(), "it is handed over");
    drop(busy);
    assert!(write().run_now(&store).is_ok());
    assert_eq!(store.write_direct(OBJECT, 0, &data(MIB, 7, 0)).unwrap(), MIB);
    assert!(!store.direct.is_busy());
}

#[test]
fn what_an_earlier_run_has_left_with_others_goes_through_the_page_cache() {
    let scratch = Scratch::new("direct-left");
    let Some(disk) = SmallDisk::ext4(&scratch, 64) else { return };
    let store = open_in(&disk.0);
    store.write_direct(OBJECT, 0, &data(MIB, 7, 0)).unwrap();
    assert!(store.give(OBJECT).unwrap().is_some());
    // A program has it, and the run ends without having it back.
    let path = super::super::names::path(&disk.0.join("objects"), OBJECT);
    let program = File::options().read(true).write(true).open(path).unwrap();
    drop(store);
    let store = open_in(&disk.0);
    assert_eq!(store.left_open().unwrap(), [OBJECT]);
    store.write_direct(OBJECT, 0, &data(MIB, 9, 0)).unwrap();
    assert!(pages(&store) > 0, "written through it");
    assert_eq!(read(&store, (0, MIB), 0), data(MIB, 9, 0));
    drop(program);
    assert_eq!(store.left_open().unwrap(), []);
    store.sync(&[OBJECT]).unwrap();
    store.write_direct(OBJECT, 0, &data(MIB, 11, 0)).unwrap();
    assert_eq!(pages(&store), 0, "nobody has it any more");
}

#[test]
fn both_ways_agree() {
    let mut random = Random::seeded(5);
    let scratch = Scratch::new("direct-model");
    let Some(disk) = SmallDisk::ext4(&scratch, 64) else { return };
    let (store, memory) = (open_in(&disk.0), MemoryObjects::new(1 << 30));
    for round in 0..600 {
        let aligned = random.below(3) > 0;
        let mut any = |limit: usize| {
            let number = random.below(limit as u64) as usize;
            if aligned { number / DIRECT_ALIGN * DIRECT_ALIGN } else { number }
        };
        let (offset, len, off) = (any(2 * MIB) as u64, any(MIB), any(8));
        match random.below(6) {
            0 | 1 => {
                let data = data(len, round as u8 | 1, off);
                assert_eq!(store.write_direct(OBJECT, offset, &data).unwrap(), len);
                memory.write(OBJECT, offset, &data).unwrap();
            }
            2 => {
                let data = data(len, round as u8 | 1, off);
                assert_eq!(store.write(OBJECT, offset, &data).unwrap(), len);
                memory.write(OBJECT, offset, &data).unwrap();
            }
            3 if random.below(4) == 0 => {
                store.punch(OBJECT, offset).unwrap();
                memory.punch(OBJECT, offset).unwrap();
            }
            4 => {
                let mut now = BytesMut::new();
                store.read(OBJECT, offset, len, &mut now).unwrap();
                let mut model = BytesMut::new();
                memory.read(OBJECT, offset, len, &mut model).unwrap();
                assert!(now == model, "round {round}");
            }
            _ => {
                let mut model = BytesMut::new();
                memory.read(OBJECT, offset, len, &mut model).unwrap();
                assert!(read(&store, (offset, len), off) == model, "round {round}");
            }
        }
    }
    store.sync(&[OBJECT]).unwrap();
}

#[test]
fn a_disk_that_is_full_says_so_and_keeps_what_was_written() {
    let scratch = Scratch::new("direct-full");
    let Some(disk) = SmallDisk::ext4(&scratch, 16) else { return };
    let store = open_in(&disk.0);
    let mut end = 0;
    let error = loop {
        assert!(end < 64 * MIB, "it has no end");
        match store.write_direct(OBJECT, end as u64, &data(MIB, 1 + (end / MIB) as u8, 0)) {
            Ok(0) => panic!("nothing, and no error"),
            Ok(written) => end += written,
            Err(error) => break error,
        }
        // Behind a short write comes one that does not lie as a disk wants it.
    };
    assert_eq!(error.errno(), sateen_types::Errno::ENOSPC);
    assert!(end > 4 * MIB, "{end}");
    for at in (0..end).step_by(MIB) {
        let some = read(&store, (at as u64, MIB), 0);
        assert_eq!(some.len(), MIB.min(end - at));
        assert!(some.iter().all(|byte| *byte == 1 + (at / MIB) as u8), "at {at}");
    }
    // It is not poisoned: what is there can be written over.
    assert_eq!(store.write_direct(OBJECT, 0, &data(MIB, 99, 0)).unwrap(), MIB);
}

#[test]
fn a_file_system_that_knows_of_no_such_thing_is_as_right() {
    let scratch = Scratch::new("direct-tmpfs");
    let Some(disk) = SmallDisk::new(&scratch, "8m") else { return };
    let mut store = open_in(&disk.0);
    // Later ones have it.
    store.direct.refused = AtomicBool::new(true);
    assert_eq!(store.write_direct(OBJECT, 0, &data(MIB, 7, 0)).unwrap(), MIB);
    assert_eq!(read(&store, (0, 2 * MIB), 0), data(MIB, 7, 0));
}
