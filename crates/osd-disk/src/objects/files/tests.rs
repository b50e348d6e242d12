//! What stays open, what leaves, and who waits for it.

use std::io::Write as _;

use super::*;
use crate::testing::Scratch;
use sateen_types::{Fid, Seq};

fn files(max: usize) -> Files {
    Files::new(max, Arc::default())
}

fn object(oid: u32) -> ObjectId {
    ObjectId { fid: Fid::new(Seq(0x2_0000_0400), oid), stripe: 0 }
}

#[test]
fn no_more_files_than_allowed_and_used_ones_stay() {
    let files = files(4);
    let null = || File::open("/dev/null");
    let first = files.get(object(0), Need::Look, null).unwrap();
    for n in 1..100 {
        files.get(object(n), Need::Look, null).unwrap();
        let again = files
            .get(object(0), Need::Look, || -> io::Result<File> { panic!("it is open") })
            .unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let state = files.lock();
        assert!(state.slots.len() <= 4 && state.clock.len() <= 8);
    }
}

#[test]
fn a_forgotten_file_is_not_brought_back_by_a_slow_opener() {
    let scratch = Scratch::new("files-forgotten");
    let (files, path) = (files(4), scratch.path().join("object"));
    let slow = || {
        let file = File::create(&path);
        std::fs::remove_file(&path).unwrap();
        files.forget(object(1));
        file
    };
    files.get(object(1), Need::Look, slow).unwrap();
    assert!(files.lock().slots.is_empty());
}

#[test]
fn forgetting_leaves_nothing_behind_that_grows() {
    let files = files(4);
    for n in 0..1000 {
        files.get(object(n), Need::Look, || File::open("/dev/null")).unwrap();
        files.forget(object(n));
    }
    assert!(files.lock().clock.len() <= 9);
}

#[test]
fn what_has_changed_leaves_slowly_and_can_be_had_back() {
    let scratch = Scratch::new("files-leaving");
    let files = files(16);
    let open = |n: u32| File::create(scratch.path().join(n.to_string()));
    let get = |n| files.get(object(n), Need::Change, || open(n)).unwrap();
    let sizes = || {
        let state = files.lock();
        (state.slots.len(), state.leaving.len())
    };
    let first = get(0);
    first.change(|mut file| file.write_all(b"x")).unwrap();
    let held = Arc::downgrade(&first);
    for n in 1..100 {
        get(n);
    }
    assert_eq!(sizes(), (12, 0), "the rest has not changed, and somebody uses the first");
    drop(first);
    for n in 100..200 {
        get(n);
    }
    assert_eq!(sizes(), (12, 1));
    assert!(Arc::ptr_eq(&get(0), &held.upgrade().unwrap()), "it is the same one");
    get(0).sync_data().unwrap();
    for n in 200..300 {
        get(n);
    }
    assert_eq!(sizes(), (12, 0));
    assert!(held.upgrade().is_none(), "there was nothing to wait for");
    for n in 300..400 {
        get(n).change(|mut file| file.write_all(b"x")).unwrap();
        let (known, leaving) = sizes();
        assert!(known <= 12 && leaving <= 2, "{known} {leaving}");
    }
    files.close_down_to(0);
    files.wait_down_to(0);
    assert_eq!(sizes(), (0, 0));
}
/// So many files that have changed, of which the first are leaving.
fn changed(files: &Files, scratch: &Scratch, count: u32) {
    for n in 0..count {
        let path = scratch.path().join(n.to_string());
        let file = files.get(object(n), Need::Change, || File::create(&path)).unwrap();
        file.change(|mut file| file.write_all(b"x")).unwrap();
    }
}

#[test]
fn who_finds_no_file_to_open_waits_for_those_that_others_wait_for() {
    let scratch = Scratch::new("files-awaited");
    let files = files(16);
    changed(&files, &scratch, 14);
    files.close_down_to(0);
    let others: Vec<_> = std::iter::from_fn(|| files.lock().next_to_wait_for(0)).collect();
    assert_eq!(others.len(), 14, "somebody waits for each");
    let closed = AtomicBool::new(false);
    let open = || match closed.load(Ordering::SeqCst) {
        false => Err(io::Error::from(Errno::MFILE)),
        true => Ok(()),
    };
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| files.make_room(open));
        // Time for it to give up, if it does.
        std::thread::sleep(std::time::Duration::from_millis(50));
        closed.store(true, Ordering::SeqCst);
        for file in others {
            files.see_off(file);
        }
        opener.join().unwrap().unwrap();
    });
    // With nothing left to close it says so.
    closed.store(false, Ordering::SeqCst);
    assert!(out_of_files(&files.make_room(open).unwrap_err()));
}

#[test]
fn who_reads_does_not_wait_for_what_others_have_written() {
    let scratch = Scratch::new("files-readers");
    let files = files(16);
    changed(&files, &scratch, 14);
    // Nobody can have it written out now.
    let leaving: Vec<_> = {
        let state = files.lock();
        state.leaving.iter().map(|leaving| leaving.file.clone()).collect()
    };
    assert_eq!(leaving.len(), 2);
    let held: Vec<_> = leaving.iter().map(|file| lock(&file.vouching)).collect();
    let (done, read) = std::sync::mpsc::channel();
    let read = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 100..102 {
                let open = || File::create(scratch.path().join(n.to_string()));
                files.get(object(n), Need::Look, open).unwrap();
            }
            done.send(()).unwrap();
        });
        let read = read.recv_timeout(std::time::Duration::from_secs(120));
        drop(held);
        read
    });
    read.unwrap();
    let state = files.lock();
    assert_eq!((state.slots.len(), state.leaving.len()), (12, 4));
}

/// Closes when it is told to.
struct Slowly<'a>(&'a std::sync::Barrier, &'a AtomicBool);

impl Drop for Slowly<'_> {
    fn drop(&mut self) {
        self.0.wait();
        // Time for the other one to give up, if it does.
        std::thread::sleep(std::time::Duration::from_millis(50));
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test]
fn who_finds_no_file_to_open_waits_for_those_that_others_are_closing() {
    let files = files(16);
    let (began, closed) = (std::sync::Barrier::new(2), AtomicBool::new(false));
    let open = || match closed.load(Ordering::SeqCst) {
        false => Err(io::Error::from(Errno::MFILE)),
        true => Ok(()),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| files.close(files.lock(), Slowly(&began, &closed), 1));
        began.wait();
        files.make_room(open).unwrap();
    });
}
