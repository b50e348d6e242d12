//! The object store on a real folder, against the memory backend where both can say it.

mod given;

use super::*;
use crate::testing::{BrokenDisk, Random, Scratch, SmallDisk};
use sateen_osd::memory::MemoryObjects;

fn object(seq: u64, oid: u32, stripe: u32) -> ObjectId {
    ObjectId { fid: Fid::new(Seq(0x2_0000_0400 + seq), oid), stripe }
}

fn open_in(folder: &Path, options: ObjectOptions) -> DiskObjects {
    let folder = folder.join("objects");
    DiskObjects::create(&folder).unwrap();
    DiskObjects::open(&folder, options).unwrap()
}

fn store(scratch: &Scratch) -> DiskObjects {
    let options = ObjectOptions { files_open_max: 5, ..ObjectOptions::default() };
    open_in(scratch.path(), options)
}

fn read(store: &dyn ObjectStore, object: ObjectId, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = BytesMut::from(&b"before"[..]);
    let read = store.read_now(object, offset, len, &mut buffer).unwrap().unwrap_or_else(|| {
        assert_eq!(&buffer[..], b"before");
        store.read(object, offset, len, &mut buffer).unwrap()
    });
    assert_eq!(&buffer[..6], b"before");
    assert_eq!(buffer.len(), 6 + read);
    buffer[6..].to_vec()
}

#[test]
fn the_removal_of_what_is_not_there_is_no_change() {
    let scratch = Scratch::new("objects-absent");
    let store = store(&scratch);
    let (there, absent) = (object(0, 1, 0), object(0, 1, 1));
    store.write(there, 0, b"x").unwrap();
    store.sync(&[there]).unwrap();
    let marks = || store.unsynced.of([Group::of(there)].into_iter());
    assert!(marks().is_empty());
    assert!(!store.remove(absent).unwrap());
    assert!(marks().is_empty(), "no folder has to be synced for it");
    assert!(store.remove(there).unwrap());
    assert!(!marks().is_empty());
    store.sync(&[there, absent]).unwrap();
    assert!(marks().is_empty());
    assert!(!store.remove(there).unwrap());
}

/// Random operations give the same answers as the memory backend does.
#[test]
fn agrees_with_the_memory_backend() {
    let mut random = Random::seeded(11);
    let scratch = Scratch::new("objects-model");
    let (mut disk, memory) = (store(&scratch), MemoryObjects::new(1 << 30));
    for round in 0..4000 {
        let oid = [1, 2, 511, 512, 513, 0x1_ffff][random.below(6) as usize];
        let object = object(random.below(2), oid, random.below(3) as u32);
        let (offset, len) = (random.below(9000), random.below(5000));
        match random.below(14) {
            0..4 => {
                let data = vec![round as u8 | 1; len as usize];
                disk.write(object, offset, &data).unwrap();
                memory.write(object, offset, &data).unwrap();
            }
            4..6 => {
                let (offset, len) = (random.below(12_000), random.below(20_000) as usize);
                assert_eq!(read(&disk, object, offset, len), read(&memory, object, offset, len));
            }
            6 => {
                disk.punch(object, offset).unwrap();
                memory.punch(object, offset).unwrap();
            }
            7 => {
                let ways = [Falloc::Allocate, Falloc::PunchHole, Falloc::ZeroRange];
                let how = ways[random.below(3) as usize];
                let keep = how == Falloc::PunchHole || random.below(2) == 0;
                disk.allocate(object, (offset, len + 1), how, keep).unwrap();
                memory.allocate(object, (offset, len + 1), how, keep).unwrap();
                // Memory has no object without bytes; the disk may.
                if keep && how != Falloc::PunchHole {
                    disk.write(object, 0, b"x").unwrap();
                    memory.write(object, 0, b"x").unwrap();
                }
            }
            8 => {
                assert_eq!(disk.remove(object).unwrap(), memory.remove(object).unwrap());
            }
            9 => disk.sync(&[object]).unwrap(),
            10 => {
                let (from, count) = (random.below(600) as u32, 1 + random.below(5) as usize);
                let seq = object.fid.seq;
                let brief = |all: Vec<ObjectStat>| -> Vec<_> {
                    all.into_iter().map(|stat| (stat.object, stat.exists, stat.size)).collect()
                };
                let (a, b) = (disk.list(seq, from, count), memory.list(seq, from, count));
                assert_eq!(brief(a.unwrap()), brief(b.unwrap()), "list {from} {count}");
                assert_eq!(disk.sequences().unwrap(), memory.sequences().unwrap());
            }
            11 => {
                let data = vec![round as u8 | 1; 1 + len as usize % 100];
                let (a, b) = (disk.append(object, &data), memory.append(object, &data));
                assert_eq!(a.unwrap(), b.unwrap());
            }
            12 => {
                disk.grow(object, offset).unwrap();
                memory.grow(object, offset).unwrap();
            }
            _ if random.below(20) == 0 => {
                drop(disk);
                disk = store(&scratch);
            }
            _ => {}
        }
        let sizes = |store: &dyn ObjectStore| -> Vec<_> {
            let stats = store.stat(&[object]).unwrap();
            stats.into_iter().map(|stat| (stat.exists, stat.size)).collect()
        };
        assert_eq!(sizes(&disk), sizes(&memory), "round {round}");
    }
}

#[test]
fn holes_are_found_and_take_no_space() {
    let scratch = Scratch::new("objects-holes");
    let store = store(&scratch);
    let object = object(0, 1, 0);
    assert_eq!(store.seek(object, 0, false).unwrap(), None);
    store.write(object, 8 << 20, &[1; 4096]).unwrap();
    assert_eq!(store.seek(object, 0, false).unwrap(), Some(8 << 20));
    assert_eq!(store.seek(object, 0, true).unwrap(), Some(0));
    assert_eq!(store.seek(object, 8 << 20, true).unwrap(), Some((8 << 20) + 4096));
    assert_eq!(store.seek(object, 9 << 20, true).unwrap(), None);
    store.sync(&[object]).unwrap();
    assert!(store.stat(&[object]).unwrap()[0].blocks < 1000);
    let range = (0, 4 << 20);
    store.allocate(object, range, Falloc::Allocate, false).unwrap();
    assert!(store.stat(&[object]).unwrap()[0].blocks >= 8192);
    store.allocate(object, range, Falloc::PunchHole, true).unwrap();
    assert!(store.stat(&[object]).unwrap()[0].blocks < 1000);
    store.write(object, 0, &[1; 8192]).unwrap();
    store.allocate(object, range, Falloc::ZeroRange, true).unwrap();
    assert!(store.stat(&[object]).unwrap()[0].blocks >= 8192);
    assert_eq!(read(&store, object, 0, 8192), [0; 8192]);
}

/// What must be synced for an object to be found after power loss: every folder in which a
/// name is new.
#[test]
fn new_names_are_synced_once_and_after_changes_again() {
    let scratch = Scratch::new("objects-names");
    let store = store(&scratch);
    let places = |object: ObjectId| -> Vec<Place> {
        let marks = store.unsynced.of([Group::of(object)].into_iter());
        marks.into_iter().map(|mark| mark.0).collect()
    };
    let (a, b, other) = (object(0, 1, 0), object(0, 2, 0), object(0, 700, 0));
    let group = Place::Group(Group::of(a));
    let all = [group, Place::Sequence(a.fid.seq), Place::Root];
    store.write(a, 0, b"x").unwrap();
    assert_eq!(places(a), all);
    store.sync(&[a]).unwrap();
    assert_eq!(places(a), []);
    store.write(a, 0, b"y").unwrap();
    assert_eq!(places(a), [], "an old name needs no sync");
    store.write(b, 0, b"x").unwrap();
    assert_eq!(places(b), [group]);
    store.write(other, 0, b"x").unwrap();
    store.sync(&[other]).unwrap();
    assert_eq!(places(b), [group], "the sync of another group is not this one's");
    store.sync(&[b]).unwrap();

    // The last object takes its folder along, and a sync of an absence covers that.
    for gone in [a, b] {
        store.remove(gone).unwrap();
    }
    assert!(!Group::of(a).path(&store.folder).exists());
    assert_eq!(places(a), all);
    store.sync(&[a, b]).unwrap();
    assert_eq!(places(a), []);
}

#[test]
fn objects_are_born_while_their_folder_comes_and_goes() {
    let scratch = Scratch::new("objects-race");
    let store = store(&scratch);
    let start = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..500u32 {
                    let object = object(0, 1 + thread * 600 + round % 3, 0);
                    store.write(object, 0, &round.to_le_bytes()).unwrap();
                    store.sync(&[object]).unwrap();
                    assert_eq!(read(store, object, 0, 9), round.to_le_bytes());
                    store.remove(object).unwrap();
                }
            });
        }
    });
    assert!(store.sequences().unwrap().is_empty());
}

#[test]
fn a_full_disk_is_survived_and_other_errors_are_not() {
    let scratch = Scratch::new("objects-errors");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    // A tmpfs has room for it, ext4 has not.
    let far = store.write(object(0, 2, 0), i64::MAX as u64 - 10, b"0123456789");
    if let Err(too_large) = far {
        assert_eq!(too_large.errno(), Errno::EFBIG);
        assert!(!too_large.poisons());
    }
    store.write(one, 0, b"still alive").unwrap();

    // A name that is in the way of a folder: no disk does this by itself.
    std::fs::write(names::sequence_path(&store.folder, Seq(0x2_0000_0401)), b"").unwrap();
    let broken = store.write(object(1, 1, 0), 0, b"x").unwrap_err();
    assert!(broken.poisons(), "{broken}");
    assert_eq!(store.write(one, 0, b"x").unwrap_err().errno(), Errno::EIO);
    assert_eq!(store.sync(&[one]).unwrap_err().errno(), Errno::EIO);
    assert_eq!(read(&store, one, 0, 99), b"still alive");
}

#[test]
fn a_store_that_is_not_there_is_not_opened() {
    let scratch = Scratch::new("objects-none");
    let folder = scratch.path().join("objects");
    let none = DiskObjects::open(&folder, ObjectOptions::default()).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::NotFound);
    assert!(!folder.exists());
}

/// The client takes an allocation that found no room for one that changed no size.
#[test]
fn an_allocation_without_room_does_not_grow_the_object() {
    let scratch = Scratch::new("objects-ext4");
    let Some(disk) = SmallDisk::ext4(&scratch, 16) else { return };
    let store = open_in(&disk.0, ObjectOptions::default());
    let one = object(0, 1, 0);
    let stat = || store.stat(&[one]).unwrap()[0];
    let size = || stat().size;
    store.write(one, 0, b"four").unwrap();
    store.sync(&[one]).unwrap();
    for how in [Falloc::Allocate, Falloc::ZeroRange] {
        let full = store.allocate(one, (4, 64 << 20), how, false).unwrap_err();
        assert_eq!(full.errno(), Errno::ENOSPC);
        assert_eq!((size(), stat().blocks), (4, 8), "{how:?} leaves nothing behind");
        // What it has goes, too.
        store.punch(one, 0).unwrap();
        store.write(one, 0, b"four").unwrap();
        store.allocate(one, (4, 10_000), how, true).unwrap();
        assert_eq!(size(), 4);
        store.allocate(one, (4, 10_000), how, false).unwrap();
        assert_eq!(size(), 10_004);
        store.punch(one, 4).unwrap();
        store.allocate(one, (4096, 64 << 20), Falloc::PunchHole, true).unwrap();
        store.sync(&[one]).unwrap();
    }
}

#[test]
fn what_fits_on_a_full_disk_is_written_and_counted() {
    let scratch = Scratch::new("objects-full");
    let Some(disk) = SmallDisk::new(&scratch, "1m") else { return };
    let store = open_in(&disk.0, ObjectOptions::default());
    let (one, two) = (object(0, 1, 0), object(0, 2, 0));
    let written = store.write(one, 0, &vec![7; 2 << 20]).unwrap();
    assert!(written > 0 && written < 2 << 20, "{written}");
    assert_eq!(read(&store, one, 0, 2 << 20), vec![7; written]);
    assert_eq!(store.stat(&[one]).unwrap()[0].size, written as u64);
    let full = store.write(one, written as u64, b"x").unwrap_err();
    assert!(full.errno() == Errno::ENOSPC && !full.poisons(), "{full}");
    // The name of an object needs no room there.
    assert_eq!(store.write(two, 0, b"x").unwrap_err().errno(), Errno::ENOSPC);
    assert!(store.stat(&[two]).unwrap()[0].exists);
    store.remove(one).unwrap();
    assert_eq!(store.write(two, 0, b"x").unwrap(), 1);
}

/// An object's file is closed before the kernel has written out what is in it, which the disk then
/// refuses; and the kernel forgets the file, and with it that there was an error.
#[test]
fn what_the_disk_refuses_behind_a_close_is_not_vouched_for() {
    let scratch = Scratch::new("objects-refused");
    let Some(disk) = BrokenDisk::new(&scratch) else { return };
    let options = ObjectOptions { files_open_max: 1, ..ObjectOptions::default() };
    let store = open_in(&disk.ext4.0, options);
    let (one, two) = (object(0, 1, 0), object(0, 2, 0));
    for object in [one, two] {
        store.write(object, 0, &[1; 4096]).unwrap();
        store.sync(&[object]).unwrap();
    }
    disk.breaks_below(&names::path(&store.folder, one));
    store.write(one, 0, &[2; 4096]).unwrap();
    assert_eq!(read(&store, two, 0, 1), [1], "which takes the only file that may be open");
    // It fails, or whoever was told of the broken block before has had the error.
    let _ = rustix::fs::syncfs(File::open(&disk.ext4.0).unwrap());
    disk.is_mended();
    if let Err(error) = std::fs::write("/proc/sys/vm/drop_caches", "2") {
        eprintln!("the kernel goes on knowing the file: {error}");
    }
    assert_eq!(store.sync(&[one]).unwrap_err().errno(), Errno::EIO);
    assert_eq!(store.write(two, 0, b"x").unwrap_err().errno(), Errno::EIO, "it has stopped");
}

/// Two sync the same object, and only the first is told that its data was not written out.
#[test]
fn who_syncs_beside_a_failure_fails_too() {
    let scratch = Scratch::new("objects-two-syncs");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    let told = std::sync::Barrier::new(2);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.vouch(one, |_| {
                told.wait();
                // Time for the other one to overtake, if it can.
                std::thread::sleep(std::time::Duration::from_millis(100));
                Err(io::Error::from_raw_os_error(Errno::EIO.raw()))
            })
        });
        let second = scope.spawn(|| {
            told.wait();
            store.vouch(one, |_| Ok(()))
        });
        (first.join().unwrap(), second.join().unwrap())
    });
    assert!(first.is_err() && second.is_err());
    assert_eq!(store.sync(&[one]).unwrap_err().errno(), Errno::EIO);
}

/// A folder that could not be synced may have lost names; a later sync does not tell.
#[test]
fn names_that_failed_once_are_not_vouched_for_later() {
    let scratch = Scratch::new("objects-names-fail");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    let group = Group::of(one);
    let (path, aside) = (group.path(&store.folder), store.folder.join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let sync = || store.namer.wait(store.namer.ask([group].into_iter()));
    assert!(sync().is_err());
    std::fs::remove_file(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert!(sync().is_err());
}

/// Nothing is lost when no more files may be open, and whoever asks later is served.
#[test]
fn names_that_no_file_was_left_to_sync_are_synced_later() {
    const INSIDE: &str = "SATEEN_TEST_FEW_FILES";
    let name = "objects::tests::names_that_no_file_was_left_to_sync_are_synced_later";
    if std::env::var_os(INSIDE).is_none() {
        // The limit is one of the process, which other tests share.
        let mut inside = std::process::Command::new("prlimit");
        inside.arg("--nofile=64:64").arg(std::env::current_exe().unwrap());
        let status = inside.args(["--exact", name]).env(INSIDE, "1").status().unwrap();
        assert!(status.success());
        return;
    }
    let scratch = Scratch::new("objects-few-files");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    // Somebody uses it, so that it is not closed to make room.
    let used = store.existing(one, Need::Look).unwrap();
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = store.sync(&[one]).unwrap_err();
    assert!(error.errno() == Errno::ENFILE && !error.poisons(), "{error}");
    let refused = store.write(object(0, 2, 0), 0, b"x").unwrap_err();
    assert!(refused.errno() == Errno::ENFILE && !refused.poisons(), "{refused}");
    drop((all, used));
    store.sync(&[one]).unwrap();
    store.write(one, 0, b"y").unwrap();
}

/// A target on a disk that will break, with a store for a run, and an object whose last bytes
/// cannot be written.
fn on_a_broken_disk(
    scratch: &Scratch,
    run: u64,
) -> Option<(BrokenDisk, TargetFolder, DiskObjects)> {
    let disk = BrokenDisk::new(scratch)?;
    let target = TargetFolder::open(&disk.ext4.0.join("ost0")).unwrap();
    DiskObjects::create(&target.objects()).unwrap();
    let (store, runs) = DiskObjects::begin(&target, ObjectOptions::default(), run).unwrap();
    assert_eq!(runs, [0_u64; 0]);
    let one = object(0, 1, 0);
    store.write(one, 0, &[1; 4096]).unwrap();
    store.sync(&[one]).unwrap();
    disk.breaks_below(&names::path(&store.folder, one));
    store.write(one, 0, &[2; 4096]).unwrap();
    Some((disk, target, store))
}

fn begin(target: &TargetFolder, run: u64) -> io::Result<Vec<u64>> {
    DiskObjects::begin(target, ObjectOptions::default(), run).map(|(_, runs)| runs)
}

/// The kernel tells of it once, so who has heard it must not leave a next run in the dark.
#[test]
fn what_a_run_could_not_write_no_later_run_takes_for_kept() {
    let scratch = Scratch::new("objects-run-failed");
    let Some((disk, target, store)) = on_a_broken_disk(&scratch, 1) else { return };
    assert!(store.sync(&[object(0, 1, 0)]).is_err());
    assert_eq!(Runs::of(&target).survived(), [0_u64; 0]);
    drop(store);
    disk.is_mended();
    // Who starts may hear of it, too.
    let begun = begin(&target, 2).or_else(|_| begin(&target, 2));
    assert_eq!(begun.unwrap(), [0_u64; 0]);
    assert_eq!(begin(&target, 3).unwrap(), [2]);
}

#[test]
fn what_cannot_be_written_after_a_run_is_not_taken_for_kept() {
    let scratch = Scratch::new("objects-run-broken");
    let Some((disk, target, store)) = on_a_broken_disk(&scratch, 1) else { return };
    // It is killed.
    drop(store);
    assert!(begin(&target, 2).is_err(), "the start is told");
    disk.is_mended();
    assert_eq!(begin(&target, 3).unwrap(), [0_u64; 0]);
    assert_eq!(begin(&target, 4).unwrap(), [3]);
}

/// The kernel tells the first who asks, and all others that all is well.
#[test]
fn who_hears_of_what_was_lost_forgets_the_runs_of_all_beside_it() {
    let scratch = Scratch::new("objects-run-beside");
    let Some(disk) = BrokenDisk::new(&scratch) else { return };
    let [target, other] = ["ost0", "ost1"].map(|name| {
        let target = TargetFolder::open(&disk.ext4.0.join(name)).unwrap();
        DiskObjects::create(&target.objects()).unwrap();
        target
    });
    assert_eq!(begin(&other, 11).unwrap(), [0_u64; 0]);
    let (store, _) = DiskObjects::begin(&target, ObjectOptions::default(), 1).unwrap();
    let one = object(0, 1, 0);
    store.write(one, 0, &[1; 4096]).unwrap();
    store.sync(&[one]).unwrap();
    disk.breaks_below(&names::path(&store.folder, one));
    store.write(one, 0, &[2; 4096]).unwrap();
    // Both are killed, and the other one is started first.
    drop(store);
    assert!(begin(&other, 12).is_err());
    disk.is_mended();
    assert_eq!(begin(&target, 2).unwrap(), [0_u64; 0]);
    // Whoever else opens them, or stops, hears it no less.
    let started = Runs::of(&target);
    assert_eq!(started.survived(), [2]);
    runs::forget_beside(other.path()).unwrap();
    assert_eq!(Runs::of(&target).survived(), [0_u64; 0]);
}
