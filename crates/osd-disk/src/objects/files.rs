//! Open files of objects, so that a write costs one system call. Bounded: beyond the limit
//! files that were not used lately are closed.
//!
//! That the kernel could not write out what it held in memory is told once to each descriptor that
//! was there when that failed; to a later one only if nobody has been told yet, and only while the
//! kernel remembers the file, which it need not when nobody has it open. So a file with unsynced
//! changes is closed only when they are written out, which its own descriptor is asked about; an
//! error stops the store, as one of a sync does. The sync that follows may then open the file anew:
//! what is left to it is to have the disk keep what it was given, and that fails in its own hands.
//!
//! Life of an open file:
//! 1. *Known*: found by whoever needs the object, all through this one descriptor.
//! 2. *Leaving*, if it has unsynced changes and was not used lately: they are being written out.
//!    Whoever needs the object gets it back.
//! 3. *Closed*: without unsynced changes, or when they are written out, or when the object is
//!    removed.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rustix::io::Errno;
use sateen_types::ObjectId;

use crate::{lock, writeback};

/// Of so many files that may be open, one may be leaving: those that are were asked for their data
/// so long ago that few have to be waited for.
const LEAVING_PART: usize = 8;
/// Tries at opening an object that is removed each time.
const OPEN_TRIES_MAX: u32 = 4;

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    file: File,
    /// It may have changes that no sync has seen.
    changed: AtomicBool,
    /// Held by whoever is told what became of its data. See [`Open::vouch`].
    vouching: Mutex<()>,
}

impl Open {
    fn new(file: File) -> Arc<Open> {
        Arc::new(Open { file, changed: AtomicBool::new(false), vouching: Mutex::default() })
    }

    /// Runs a step that may change what is in the file.
    pub(super) fn change<T>(&self, step: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let done = step(&self.file);
        // Not before: a sync that comes in between takes the note, and not the change.
        self.changed.store(true, Ordering::SeqCst);
        done
    }

    /// Makes its data durable.
    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.changed.store(false, Ordering::SeqCst);
        let synced = self.file.sync_data();
        if synced.is_err() {
            self.changed.store(true, Ordering::SeqCst);
        }
        synced
    }

    /// Waits until its data is written out.
    pub(super) fn wait(&self) -> io::Result<()> {
        writeback::wait(&self.file, writeback::ALL)
    }

    /// Runs a step that waits until the data is written out. Linux reports that it was not only
    /// once per open file: whoever comes second would hear that all is well. So they come one
    /// after the other, and behind a failure nobody comes.
    pub(super) fn vouch(
        &self,
        poisoned: &AtomicBool,
        step: impl FnOnce(&Open) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = lock(&self.vouching);
        if poisoned.load(Ordering::Acquire) {
            return Err(io::Error::from_raw_os_error(sateen_types::Errno::EIO.raw()));
        }
        let result = step(self);
        if result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            // Also for want of space: it was promised, and what was written is lost.
            poisoned.store(true, Ordering::Release);
        }
        result
    }
}

impl std::ops::Deref for Open {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

#[derive(Debug)]
struct Slot {
    file: Arc<Open>,
    used: bool,
}

#[derive(Debug)]
struct Leaving {
    object: ObjectId,
    file: Arc<Open>,
    /// Somebody waits for its data.
    awaited: bool,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<ObjectId, Slot>,
    /// In the order of the second-chance clock; may name files that were forgotten.
    clock: VecDeque<ObjectId>,
    /// In the order in which they were asked to write their data out.
    leaving: VecDeque<Leaving>,
}

/// The open files. Shared by all threads.
#[derive(Debug)]
pub(super) struct Files {
    state: Mutex<State>,
    /// Most that are known, and most that are leaving.
    known_max: usize,
    leaving_max: usize,
    /// The store's: nothing is written or acknowledged any more.
    poisoned: Arc<AtomicBool>,
}

/// What is no longer known.
#[derive(Debug, Default)]
struct Gone {
    closing: Vec<Slot>,
    leaving: Vec<Arc<Open>>,
}

impl State {
    /// The open file of an object, if it is known, or known again.
    fn find(&mut self, object: ObjectId) -> Option<Arc<Open>> {
        if let Some(slot) = self.slots.get_mut(&object) {
            slot.used = true;
            return Some(slot.file.clone());
        }
        let at = self.leaving.iter().position(|leaving| leaving.object == object)?;
        let Leaving { file, .. } = self.leaving.remove(at)?;
        self.know(object, file.clone());
        Some(file)
    }

    fn know(&mut self, object: ObjectId, file: Arc<Open>) {
        if self.slots.insert(object, Slot { file, used: false }).is_none() {
            self.clock.push_back(object);
        }
    }

    /// Takes out the files beyond a limit, but not those that somebody uses.
    fn take_beyond(&mut self, known_max: usize, clock_max: usize) -> Gone {
        let mut gone = Gone::default();
        // Twice, because the first look takes a second chance away.
        for _ in 0..2 * self.clock.len() {
            if self.slots.len() <= known_max && self.clock.len() <= clock_max {
                break;
            }
            let Some(object) = self.clock.pop_front() else { break };
            match self.slots.get_mut(&object) {
                // Only who has the lock takes one more.
                Some(slot) if slot.used || Arc::strong_count(&slot.file) > 1 => {
                    slot.used = false;
                    self.clock.push_back(object);
                }
                Some(_) => {
                    let Some(slot) = self.slots.remove(&object) else { continue };
                    if slot.file.changed.load(Ordering::SeqCst) {
                        gone.leaving.push(slot.file.clone());
                        let file = slot.file;
                        self.leaving.push_back(Leaving { object, file, awaited: false });
                    } else {
                        gone.closing.push(slot);
                    }
                }
                None => {}
            }
        }
        gone
    }

    /// One that is leaving and for which nobody waits, if there are more than so many.
    fn next_to_wait_for(&mut self, leaving_max: usize) -> Option<Arc<Open>> {
        if self.leaving.len() <= leaving_max {
            return None;
        }
        let next = self.leaving.iter_mut().find(|leaving| !leaving.awaited)?;
        next.awaited = true;
        Some(next.file.clone())
    }
}

impl Files {
    pub(super) fn new(max: usize, poisoned: Arc<AtomicBool>) -> Self {
        let leaving_max = max / LEAVING_PART;
        let known_max = (max - leaving_max).max(1);
        Self { state: Mutex::default(), known_max, leaving_max, poisoned }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of an object, opened if need be.
    pub(super) fn get(
        &self,
        object: ObjectId,
        open: impl Fn() -> io::Result<File>,
    ) -> io::Result<Arc<Open>> {
        let known = self.lock().find(object);
        if let Some(file) = known {
            return Ok(file);
        }
        let mut tries = 0;
        loop {
            let file = Open::new(self.make_room(&open)?);
            tries += 1;
            let mut state = self.lock();
            // Whoever was faster has the one that all have.
            if let Some(known) = state.find(object) {
                return Ok(known);
            }
            // One without a name was removed since. If it is removed after this, it is forgotten
            // after this, too.
            if file.metadata()?.nlink() > 0 {
                state.know(object, file.clone());
                drop(state);
                self.close_down_to(self.known_max, self.leaving_max);
                return Ok(file);
            }
            if tries == OPEN_TRIES_MAX {
                return Ok(file);
            }
        }
    }

    /// Opens something; if no more files may be open, these make room for it.
    pub(super) fn make_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        for leaving_max in [self.leaving_max, 0] {
            match open() {
                Err(error) if out_of_files(&error) => self.close_down_to(0, leaving_max),
                other => return other,
            }
        }
        open()
    }

    /// Closes an object's file: its name means nothing, or another file, from now on.
    pub(super) fn forget(&self, object: ObjectId) {
        let mut state = self.lock();
        let slot = state.slots.remove(&object);
        let at = state.leaving.iter().position(|leaving| leaving.object == object);
        let leaving = at.and_then(|at| state.leaving.remove(at));
        drop(state);
        drop((slot, leaving));
    }

    fn close_down_to(&self, known_max: usize, leaving_max: usize) {
        let mut state = self.lock();
        let gone = state.take_beyond(known_max, 2 * self.known_max);
        // Closing can take long, and nobody shall wait for it with the lock.
        drop(state);
        drop(gone.closing);
        for file in gone.leaving {
            writeback::start(&file, writeback::ALL);
        }
        loop {
            let next = self.lock().next_to_wait_for(leaving_max);
            let Some(file) = next else { break };
            self.wait_for(&file);
            let mut state = self.lock();
            // It need not be there: somebody may use it again.
            let at = state.leaving.iter().position(|leaving| Arc::ptr_eq(&leaving.file, &file));
            let closed = at.and_then(|at| state.leaving.remove(at));
            drop(state);
            drop((closed, file));
        }
    }

    /// Waits until the data of a file that is to be closed is written out.
    fn wait_for(&self, file: &Open) {
        while let Err(error) = file.vouch(&self.poisoned, Open::wait) {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::error!(%error, "what was written to an object is lost");
                return;
            }
        }
    }
}

fn out_of_files(error: &io::Error) -> bool {
    let none_left = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
    error.raw_os_error().is_some_and(|raw| none_left.contains(&raw))
}

/// Reads up to `len` bytes at `offset` behind what the buffer holds, which has room for them.
pub(super) fn read_behind(
    file: &File,
    offset: u64,
    len: usize,
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    let room = room.get_mut(..len).unwrap_or_default();
    let (read, _) = rustix::io::pread(file, room, offset)?;
    let read = read.len();
    // SAFETY: pread initialized the first `read` bytes of the spare capacity.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}

#[cfg(test)]
mod tests {
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
        let first = files.get(object(0), null).unwrap();
        for n in 1..100 {
            files.get(object(n), null).unwrap();
            let again = files.get(object(0), || panic!("it is open")).unwrap();
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
        files.get(object(1), slow).unwrap();
        assert!(files.lock().slots.is_empty());
    }

    #[test]
    fn forgetting_leaves_nothing_behind_that_grows() {
        let files = files(4);
        for n in 0..1000 {
            files.get(object(n), || File::open("/dev/null")).unwrap();
            files.forget(object(n));
        }
        assert!(files.lock().clock.len() <= 9);
    }

    #[test]
    fn what_has_changed_leaves_slowly_and_can_be_had_back() {
        let scratch = Scratch::new("files-leaving");
        let files = files(16);
        let open = |n: u32| File::create(scratch.path().join(n.to_string()));
        let get = |n| files.get(object(n), || open(n)).unwrap();
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
        assert_eq!(sizes(), (14, 0), "the rest has not changed, and somebody uses the first");
        drop(first);
        for n in 100..200 {
            get(n);
        }
        assert_eq!(sizes(), (14, 1));
        assert!(Arc::ptr_eq(&get(0), &held.upgrade().unwrap()), "it is the same one");
        get(0).sync_data().unwrap();
        for n in 200..300 {
            get(n);
        }
        assert_eq!(sizes(), (14, 0));
        assert!(held.upgrade().is_none(), "there was nothing to wait for");
        for n in 300..400 {
            get(n).change(|mut file| file.write_all(b"x")).unwrap();
            let (known, leaving) = sizes();
            assert!(known <= 14 && leaving <= 2, "{known} {leaving}");
        }
        files.close_down_to(0, 0);
        assert_eq!(sizes(), (0, 0));
    }
}
