//! Objects whose files others have open: a kernel that was given them, and what an earlier process
//! has left behind. They open them anew, as a kernel does.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use super::*;

fn path(store: &DiskObjects, object: ObjectId) -> PathBuf {
    names::path(&store.folder, object)
}

fn another(store: &DiskObjects, object: ObjectId) -> File {
    File::options().read(true).write(true).open(path(store, object)).unwrap()
}

/// A mapping that outlives its descriptor.
struct Mapping(*mut libc::c_void);

impl Mapping {
    fn of(file: &File) -> Mapping {
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a mapping of its own, of which nothing is touched.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping(at)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, to which nothing points.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

/// Whether nobody has it, once those are through who only come by.
fn alone(store: &DiskObjects, object: ObjectId) -> bool {
    (0..50).any(|_| {
        let alone = store.alone(object).unwrap();
        if !alone {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        alone
    })
}

#[test]
fn a_given_objects_file_stays_open_among_many() {
    let scratch = Scratch::new("given-stays");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    assert!(store.give(one).unwrap().is_none(), "it is not born by that");
    store.write(one, 0, b"x").unwrap();
    store.sync(&[one]).unwrap();
    let given = store.give(one).unwrap().unwrap().file.unwrap().downcast::<GivenFile>().unwrap();
    let fd = given.as_fd().as_raw_fd();
    drop(given);
    store.give(one).unwrap().unwrap();
    let others = |first: u32| {
        for oid in first..first + 20 {
            store.write(object(0, oid, 0), 0, b"y").unwrap();
            store.sync(&[object(0, oid, 0)]).unwrap();
        }
    };
    let known = || store.files.known(one).map(|file| file.as_raw_fd());
    others(100);
    assert_eq!(known(), Some(fd));
    store.take_back(one);
    others(200);
    assert_eq!(known(), Some(fd), "it was given twice");
    store.take_back(one);
    store.sync(&[one]).unwrap();
    others(300);
    assert_eq!(known(), None, "one like others");
    store.take_back(one);
    assert_eq!(read(&store, one, 0, 1), b"x");
}

#[test]
fn so_many_are_given_that_the_others_have_as_many_files() {
    let scratch = Scratch::new("given-bound");
    // Five files may be open.
    let store = store(&scratch);
    for oid in 1..4 {
        store.write(object(0, oid, 0), 0, b"x").unwrap();
    }
    let is_given = |oid| store.give(object(0, oid, 0)).unwrap().is_some();
    assert!(is_given(1) && is_given(2));
    assert!(!is_given(3), "one too many");
    assert!(is_given(1), "it is given already");
    store.take_back(object(0, 2, 0));
    assert!(is_given(3));
}

#[test]
fn what_is_given_may_be_removed() {
    let scratch = Scratch::new("given-removed");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    store.give(one).unwrap().unwrap();
    let mut theirs = another(&store, one);
    assert!(store.remove(one).unwrap());
    theirs.write_all(b"still theirs").unwrap();
    assert!(alone(&store, one), "there is no such object");
    assert!(store.give(one).unwrap().is_none());
    store.take_back(one);
    store.sync_given().unwrap();
    assert!(!store.stat(&[one]).unwrap()[0].exists);
    assert!(store.files.known(one).is_none());
}

#[test]
fn a_lease_finds_descriptors_and_mappings() {
    let scratch = Scratch::new("given-lease");
    let ext4 = SmallDisk::ext4(&scratch, 16);
    let tmpfs = Scratch::new("given-lease-2");
    let tmpfs = SmallDisk::new(&tmpfs, "4m").map(|disk| (disk, tmpfs));
    let folders = [ext4.as_ref(), tmpfs.as_ref().map(|(disk, _)| disk)];
    for folder in folders.into_iter().flatten() {
        let store = open_in(&folder.0, ObjectOptions::default());
        let one = object(0, 1, 0);
        assert!(alone(&store, one), "nobody has what is not there");
        store.write(one, 0, &[1; 4096]).unwrap();
        assert!(alone(&store, one));
        let theirs = another(&store, one);
        assert!(!store.alone(one).unwrap());
        let mapping = Mapping::of(&theirs);
        drop(theirs);
        assert!(!store.alone(one).unwrap(), "a mapping alone");
        let only_reads = File::open(path(&store, one)).unwrap();
        drop(mapping);
        assert!(!store.alone(one).unwrap(), "who only reads");
        drop(only_reads);
        assert!(alone(&store, one));
        // The lease is given back, or this would wait for 45 s.
        drop(another(&store, one));
    }
}

/// Whoever opens a file while it is asked about breaks the lease, which is told by a signal that must
/// end nobody; and many may ask.
#[test]
fn who_comes_by_while_a_lease_is_asked_harms_nobody() {
    let scratch = Scratch::new("given-break");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..2000).for_each(|_| assert!(store.alone(one).is_ok())));
        }
        scope.spawn(|| (0..2000).for_each(|_| drop(another(&store, one))));
    });
    assert!(alone(&store, one));
}

/// The process is started again; somebody goes on with what it had given away.
#[test]
fn who_is_left_of_a_dead_process_is_found() {
    let scratch = Scratch::new("given-ghost");
    let one = object(0, 1, 0);
    let (mut ghost, mapping) = {
        let store = store(&scratch);
        store.write(one, 0, &[1; 4096]).unwrap();
        store.give(one).unwrap().unwrap();
        let ghost = another(&store, one);
        let mapping = Mapping::of(&ghost);
        (ghost, mapping)
    };
    let store = store(&scratch);
    assert!(!store.alone(one).unwrap());
    ghost.write_all(b"boo").unwrap();
    assert_eq!(read(&store, one, 0, 4), b"boo\x01", "it has the same bytes");
    drop(ghost);
    assert!(!store.alone(one).unwrap());
    drop(mapping);
    assert!(alone(&store, one));
}

#[test]
fn what_was_given_is_synced_and_forgotten_when_it_is_back() {
    let scratch = Scratch::new("given-sync");
    let store = store(&scratch);
    let (one, two) = (object(0, 1, 0), object(0, 2, 0));
    for object in [one, two] {
        store.write(object, 0, b"x").unwrap();
        store.sync(&[object]).unwrap();
        store.give(object).unwrap().unwrap();
    }
    store.sync_given().unwrap();
    assert_eq!(store.unseen.all(&[]), Some(vec![one, two]), "they are written to yet");
    store.take_back(one);
    store.sync(&[two]).unwrap();
    assert_eq!(store.unseen.all(&[]), Some(vec![one, two]));
    store.sync_given().unwrap();
    assert_eq!(store.unseen.all(&[]), Some(vec![two]));
    store.take_back(two);
    store.sync(&[one, two]).unwrap();
    assert_eq!(store.unseen.all(&[]), Some(Vec::new()));
}

/// A kernel writes, and hears nothing of what becomes of it; the disk refuses it. Whoever syncs the
/// object is told, and after that nobody is told that anything is well. Also when it was taken back,
/// and its file closed, before.
#[test]
fn what_the_disk_refuses_of_a_given_object_is_told() {
    for is_back in [false, true] {
        let scratch = Scratch::new("given-refused");
        let Some(disk) = BrokenDisk::new(&scratch) else { return };
        let options = ObjectOptions { files_open_max: 1, ..ObjectOptions::default() };
        let store = open_in(&disk.ext4.0, options);
        let (one, two) = (object(0, 1, 0), object(0, 2, 0));
        for object in [one, two] {
            store.write(object, 0, &[1; 4096]).unwrap();
            store.sync(&[object]).unwrap();
        }
        store.give(one).unwrap().unwrap();
        disk.breaks_below(&path(&store, one));
        let mut theirs = another(&store, one);
        theirs.write_all(&[2; 4096]).unwrap();
        drop(theirs);
        if is_back {
            store.take_back(one);
        }
        assert_eq!(read(&store, two, 0, 1), [1], "which takes the only file that may be open");
        let _ = rustix::fs::syncfs(File::open(&disk.ext4.0).unwrap());
        disk.is_mended();
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "2");
        // Whatever the error is: that there was no room below is as bad as any other.
        assert!(store.sync_given().is_err(), "{is_back}");
        assert_eq!(
            store.sync(&[one]).unwrap_err().errno(),
            Errno::EIO,
            "it is told no other thing"
        );
        assert_eq!(store.append(two, b"x").unwrap_err().errno(), Errno::EIO, "it has stopped");
        assert_eq!(store.grow(two, 1).unwrap_err().errno(), Errno::EIO);
        assert!(store.give(two).is_err());
    }
}

#[test]
fn an_object_grows_by_a_hole_and_is_never_cut() {
    let scratch = Scratch::new("given-size");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    let stat = || store.stat(&[one]).unwrap()[0];
    store.grow(one, 0).unwrap();
    assert!(stat().exists && stat().size == 0);
    store.grow(one, 1_000_000).unwrap();
    assert_eq!((stat().exists, stat().size), (true, 1_000_000));
    assert!(stat().blocks * 512 < 100_000, "a hole, but for the last block");
    store.write(one, 0, &[7; 5000]).unwrap();
    store.grow(one, 4000).unwrap();
    assert_eq!(stat().size, 1_000_000);
    store.punch(one, 4000).unwrap();
    store.grow(one, 4500).unwrap();
    assert_eq!(stat().size, 4500);
    assert_eq!(read(&store, one, 3999, 1000), [&[7; 1][..], &[0; 500]].concat());
    let known = store.files.known(one).unwrap();
    store.sync(&[one]).unwrap();
    store.grow(one, 4501).unwrap();
    assert!(known.is_changed(), "a sync has something to do");
    store.sync(&[one]).unwrap();
    assert!(!known.is_changed());
    store.append(one, b"x").unwrap();
    assert!(known.is_changed());
}

/// Two append here and one to the file itself, while somebody looks for holes, by the position that
/// appends go by as well.
#[test]
fn appends_never_overlap() {
    const RECORD: usize = 100;
    const RECORDS: usize = 500;
    let scratch = Scratch::new("given-append");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"").unwrap();
    let mut theirs = File::options().append(true).open(path(&store, one)).unwrap();
    let told = Mutex::new(Vec::new());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                store.seek(one, 0, true).unwrap();
            }
        });
        let store = &store;
        let told = &told;
        let ours = [1, 2].map(|who: u8| {
            scope.spawn(move || {
                for _ in 0..RECORDS {
                    let (offset, len) = store.append(one, &[who; RECORD]).unwrap();
                    assert_eq!(len, RECORD);
                    lock(told).push((offset, who));
                }
            })
        });
        for _ in 0..RECORDS {
            theirs.write_all(&[3; RECORD]).unwrap();
        }
        for thread in ours {
            thread.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let bytes = read(&store, one, 0, 4 * RECORD * RECORDS);
    assert_eq!(bytes.len(), 3 * RECORD * RECORDS);
    let records: Vec<u8> = bytes.chunks(RECORD).map(|record| record[0]).collect();
    assert!(bytes.chunks(RECORD).all(|record| record.iter().all(|byte| *byte == record[0])));
    for who in 1..=3 {
        assert_eq!(records.iter().filter(|found| **found == who).count(), RECORDS);
    }
    for (offset, who) in lock(&told).iter() {
        assert_eq!(records[*offset as usize / RECORD], *who, "at {offset}");
    }
}

#[test]
fn of_an_append_what_fits_is_written() {
    let scratch = Scratch::new("given-full");
    let Some(disk) = SmallDisk::new(&scratch, "1m") else { return };
    let store = open_in(&disk.0, ObjectOptions::default());
    let one = object(0, 1, 0);
    store.append(one, &[1; 600 << 10]).unwrap();
    let (offset, len) = store.append(one, &[2; 600 << 10]).unwrap();
    assert_eq!(offset, 600 << 10);
    assert!(len > 0 && len < 600 << 10, "{len}");
    assert_eq!(store.append(one, &[3; 4096]).unwrap_err().errno(), Errno::ENOSPC);
    assert_eq!(store.stat(&[one]).unwrap()[0].size, offset + len as u64);
}

#[test]
fn times_are_set_and_own_reads_leave_them() {
    let scratch = Scratch::new("given-times");
    let mut store = store(&scratch);
    let one = object(0, 1, 0);
    let stat = |store: &DiskObjects| store.stat(&[one]).unwrap()[0];
    assert_eq!(stat(&store), ObjectStat::absent(one));
    let (atime, mtime) =
        (Timespec { sec: 1000, nsec: 5 }, Timespec { sec: 2000, nsec: 999_999_999 });
    store.set_times(one, Some(atime), Some(mtime)).unwrap();
    assert!(!stat(&store).exists);
    store.write(one, 0, b"x").unwrap();
    let born = stat(&store);
    assert!(born.mtime.sec > 1_700_000_000 && born.ctime >= born.mtime);
    store.set_times(one, Some(atime), None).unwrap();
    assert_eq!((stat(&store).atime, stat(&store).mtime), (atime, born.mtime));
    store.set_times(one, None, Some(mtime)).unwrap();
    assert_eq!((stat(&store).atime, stat(&store).mtime), (atime, mtime));
    assert!(stat(&store).ctime >= born.ctime);
    // By the descriptor that made it, by one that was opened, and by one that finds it in memory.
    for _ in 0..3 {
        assert_eq!(read(&store, one, 0, 1), b"x");
        assert_eq!(stat(&store).atime, atime);
        drop(store);
        store = super::store(&scratch);
        assert_eq!(read(&store, one, 0, 1), b"x");
        assert_eq!(stat(&store).atime, atime);
        store.write(one, 1, b"y").unwrap();
    }
    let mut byte = [0];
    another(&store, one).read_exact(&mut byte).unwrap();
    assert!(stat(&store).atime > atime, "others' reads count");
}

/// A sync that comes along while an object is given away does not take the note of it.
#[test]
fn what_is_given_is_noted_whoever_syncs_beside() {
    let scratch = Scratch::new("given-beside");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                store.unseen.seen(&[one], |object| store.files.is_pinned(object));
            }
        });
        let missing = (0..20_000).find(|_| {
            store.give(one).unwrap().unwrap();
            let is_noted = store.unseen.all(&[]) == Some(vec![one]);
            store.take_back(one);
            !is_noted
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(missing, None, "it was written to, and a stop would not sync it");
    });
    store.give(one).unwrap().unwrap();
    another(&store, one).write_all(b"y").unwrap();
    store.take_back(one);
    store.sync_given().unwrap();
    assert_eq!(store.unseen.all(&[]), Some(Vec::new()));
}

#[test]
fn an_object_that_is_given_often_is_one_file_among_others() {
    let scratch = Scratch::new("given-often");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    let file = store.files.known(one).unwrap();
    for _ in 0..10_000 {
        store.give(one).unwrap().unwrap();
        store.take_back(one);
    }
    assert!(store.files.places() <= 2, "{}", store.files.places());
    assert!(Arc::ptr_eq(&file, &store.files.known(one).unwrap()));
}

/// What was found open was removed, and made anew, before it was given away.
#[test]
fn an_object_is_given_with_its_own_file() {
    let scratch = Scratch::new("given-other");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"x").unwrap();
    let old = store.files.known(one).unwrap();
    store.remove(one).unwrap();
    store.write(one, 0, b"y").unwrap();
    assert!(store.files.pin(one, &old).is_none());
    store.give(one).unwrap().unwrap();
    assert!(store.files.pin(one, &old).is_none());
}

/// A sync that fails before it has begun leaves what it was to sync noted.
#[test]
fn a_sync_that_cannot_begin_forgets_nothing() {
    let scratch = Scratch::new("given-closed");
    let store =
        open_in(scratch.path(), ObjectOptions { files_open_max: 1, ..ObjectOptions::default() });
    let (one, two) = (object(0, 1, 0), object(0, 2, 0));
    for object in [one, two] {
        store.write(object, 0, b"x").unwrap();
        store.sync(&[object]).unwrap();
    }
    store.give(one).unwrap().unwrap();
    store.take_back(one);
    store.sync(&[two]).unwrap();
    store.files.forget(one);
    // A folder in its place cannot be opened for writing.
    std::fs::rename(path(&store, one), scratch.path().join("away")).unwrap();
    std::fs::create_dir(path(&store, one)).unwrap();
    assert!(store.sync(&[one]).is_err());
    assert_eq!(store.unseen.all(&[]), Some(vec![one]));
}

#[test]
fn everything_is_synced_where_too_many_were_given() {
    let scratch = Scratch::new("given-many");
    let store = store(&scratch);
    let (one, two) = (object(0, 1, 0), object(0, 2, 0));
    for object in [one, two] {
        store.write(object, 0, b"x").unwrap();
        store.give(object).unwrap().unwrap();
    }
    store.take_back(two);
    for oid in 10..10_000 {
        store.unseen.note(object(0, oid, 0));
    }
    assert_eq!(store.unseen.all(&[]), None);
    store.sync_given().unwrap();
    assert_eq!(store.unseen.all(&[]), Some(vec![one]), "it is given yet");
}

/// One grows an object step by step while a kernel appends to its file: nothing of that is cut off.
#[test]
fn nobody_is_cut_off_by_who_lets_an_object_grow() {
    let scratch = Scratch::new("given-grow");
    let store = store(&scratch);
    let one = object(0, 1, 0);
    store.write(one, 0, b"").unwrap();
    let mut theirs = File::options().append(true).open(path(&store, one)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for size in (0..400_000).step_by(40) {
                store.grow(one, size).unwrap();
            }
        });
        for _ in 0..2000 {
            theirs.write_all(&[1; 100]).unwrap();
        }
    });
    let size = store.stat(&[one]).unwrap()[0].size as usize;
    let all = read(&store, one, 0, size);
    assert_eq!(all.iter().filter(|byte| **byte == 1).count(), 200_000);
}

/// Of times nothing is promised: a kernel that refuses them harms nothing else.
#[test]
fn times_that_are_refused_stop_nothing() {
    let scratch = Scratch::new("given-times");
    let Some(disk) = SmallDisk::ext4(&scratch, 16) else { return };
    let store = open_in(&disk.0, ObjectOptions::default());
    let (one, two) = (object(0, 1, 0), object(0, 2, 0));
    store.write(one, 0, b"x").unwrap();
    let file = store.files.known(one).unwrap();
    let was = rustix::fs::ioctl_getflags(&**file).unwrap();
    let set = |flags| rustix::fs::ioctl_setflags(&**file, flags).unwrap();
    set(was | rustix::fs::IFlags::IMMUTABLE);
    let time = Some(Timespec { sec: 1, nsec: 2 });
    let refused = store.set_times(one, time, time);
    set(was);
    assert_eq!(refused.unwrap_err().errno(), Errno::EPERM);
    store.write(two, 0, b"y").unwrap();
    store.sync(&[one, two]).unwrap();
}
