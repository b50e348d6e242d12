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
//!    Whoever needs the object gets it back. Those who change objects wait when too many leave, so
//!    that they are no faster than the disk; those who read wait only when there are twice as many.
//! 3. *Closed*: without unsynced changes, or when they are written out, or when the object is
//!    removed.
//!
//! One that is *given* away ([`super::given`]) is known, and stays. At most every second file that may be
//! open is: of more the rest would be opened and closed for each read and write.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use sateen_types::ObjectId;

use super::dense::Dense;
use super::poison::Poison;
use super::streams::Streams;
use crate::{lock, writeback};

/// Of so many files that may be open, one may be leaving: those that are were asked for their data
/// so long ago that few have to be waited for.
const LEAVING_PART: usize = 8;
/// Of so many files that may be open, one may be given away.
const GIVEN_PART: usize = 2;
/// Tries at opening an object that is removed each time.
const OPEN_TRIES_MAX: u32 = 4;
/// Tries at opening something when no more files may be open, and others take each that is closed.
const ROOM_TRIES_MAX: u32 = 64;

/// What a file is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing will have changed in it.
    Look,
    /// To change it.
    Change,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    file: File,
    /// It may have changes that no sync has seen.
    changed: AtomicBool,
    /// Others change it at any moment.
    given: AtomicBool,
    /// Held by whoever goes by the position of the descriptor, which all have in common.
    position: Mutex<()>,
    /// Held by whoever is told what became of its data. See [`Open::vouch`].
    vouching: Mutex<()>,
    /// Who reads it. As many are remembered as files are known.
    streams: Mutex<Streams>,
    /// Where those had to wait who jump.
    dense: Mutex<Dense>,
}

impl Open {
    fn new(file: File) -> Arc<Open> {
        Arc::new(Open {
            file,
            changed: AtomicBool::new(false),
            given: AtomicBool::new(false),
            position: Mutex::default(),
            vouching: Mutex::default(),
            streams: Mutex::default(),
            dense: Mutex::default(),
        })
    }

    /// Who reads it.
    pub(super) fn streams(&self) -> &Mutex<Streams> {
        &self.streams
    }

    /// Where those had to wait who jump.
    pub(super) fn dense(&self) -> &Mutex<Dense> {
        &self.dense
    }

    /// Runs a step that may change what is in the file.
    pub(super) fn change<T>(&self, step: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let done = step(&self.file);
        // Not before: a sync that comes in between takes the note, and not the change.
        self.changed.store(true, Ordering::SeqCst);
        done
    }

    /// Runs a step that goes by the position of the descriptor.
    pub(super) fn positioned<T>(&self, step: impl FnOnce(&File) -> T) -> T {
        let _one = lock(&self.position);
        step(&self.file)
    }

    /// Whether it may have changes that no sync has seen.
    pub(super) fn is_changed(&self) -> bool {
        self.given.load(Ordering::SeqCst) || self.changed.load(Ordering::SeqCst)
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
        poison: &Poison,
        step: impl FnOnce(&Open) -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = lock(&self.vouching);
        if poison.is_set() {
            return Err(io::Error::from_raw_os_error(sateen_types::Errno::EIO.raw()));
        }
        let result = step(self);
        if result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            // Also for want of space: it was promised, and what was written is lost.
            poison.set();
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

#[derive(Debug)]
struct Pinned {
    file: Arc<Open>,
    /// How often it was given and not taken back.
    times: u32,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<ObjectId, Slot>,
    /// Those that are given away, which have their slots, too.
    pinned: HashMap<ObjectId, Pinned>,
    /// In the order of the second-chance clock; may name files that were forgotten.
    clock: VecDeque<ObjectId>,
    /// In the order in which they were asked to write their data out.
    leaving: VecDeque<Leaving>,
    /// How many are in nobody's hands but in those of who is just closing them.
    closing: usize,
    /// Who waits for one to leave.
    waiting: usize,
    /// How often some were closed, or one that was leaving was brought back.
    left: u64,
}

/// The open files. Shared by all threads.
#[derive(Debug)]
pub(super) struct Files {
    state: Mutex<State>,
    /// How many are given away.
    given: AtomicUsize,
    /// One has left.
    leaves: Condvar,
    /// Most that are known, and most that are leaving before somebody who changes objects waits.
    known_max: usize,
    leaving_max: usize,
    /// Most that are given away.
    given_max: usize,
    /// The store's: nothing is written or acknowledged any more.
    poison: Arc<Poison>,
}

/// What is no longer known.
#[derive(Debug, Default)]
struct Gone {
    closing: Vec<Slot>,
    leaving: Vec<Arc<Open>>,
}

/// A file that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    /// There was none: it was made.
    pub(super) is_new: bool,
}

impl From<File> for Opened {
    fn from(file: File) -> Opened {
        Opened { file, is_new: false }
    }
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
                    if slot.file.is_changed() {
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
    pub(super) fn new(max: usize, poison: Arc<Poison>) -> Self {
        let leaving_max = max / LEAVING_PART;
        let known_max = (max - 2 * leaving_max).max(1);
        let (state, leaves) = (Mutex::default(), Condvar::new());
        let (given, given_max) = (AtomicUsize::new(0), (max / GIVEN_PART).max(1));
        Self { state, given, leaves, known_max, leaving_max, given_max, poison }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of an object, if it is known.
    fn find(&self, state: &mut State, object: ObjectId) -> Option<Arc<Open>> {
        let leaving = state.leaving.len();
        let found = state.find(object);
        if state.leaving.len() < leaving {
            self.left(state, 0);
        }
        found
    }

    /// The open file of an object, if it is known.
    pub(super) fn known(&self, object: ObjectId) -> Option<Arc<Open>> {
        self.find(&mut self.lock(), object)
    }

    /// The open file of an object, opened if need be.
    pub(super) fn get<O: Into<Opened>>(
        &self,
        object: ObjectId,
        need: Need,
        open: impl Fn() -> io::Result<O>,
    ) -> io::Result<Arc<Open>> {
        if let Some(file) = self.known(object) {
            return Ok(file);
        }
        let mut tries = 0;
        loop {
            let Opened { file, is_new } = self.make_room(&open)?.into();
            let file = Open::new(file);
            tries += 1;
            let mut state = self.lock();
            // Whoever was faster has the one that all have.
            if let Some(known) = self.find(&mut state, object) {
                return Ok(known);
            }
            // One without a name was removed since. If it is removed after this, it is forgotten
            // after this, too. While one is made nobody removes it.
            if is_new || file.metadata()?.nlink() > 0 {
                state.know(object, file.clone());
                drop(state);
                self.close_down_to(self.known_max);
                self.wait_down_to(match need {
                    Need::Look => 2 * self.leaving_max,
                    Need::Change => self.leaving_max,
                });
                return Ok(file);
            }
            if tries == OPEN_TRIES_MAX {
                return Ok(file);
            }
        }
    }

    /// Opens something; if no more files may be open, these make room for it.
    pub(super) fn make_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..ROOM_TRIES_MAX {
            match open() {
                Err(error) if out_of_files(&error) => {}
                other => return other,
            }
            if !self.close_down_to(0) && !self.wait_for_one() {
                break;
            }
        }
        open()
    }

    /// The object is given away, with this file, which was just found, and which is returned; `None`
    /// if it was removed meanwhile, or as many are given away as may be.
    pub(super) fn pin(&self, object: ObjectId, file: &Arc<Open>) -> Option<Arc<Open>> {
        let mut state = self.lock();
        if let Some(pinned) = state.pinned.get_mut(&object) {
            // Not another one of the same name, if it was removed and made anew since.
            return Arc::ptr_eq(&pinned.file, file).then(|| {
                pinned.times += 1;
                pinned.file.clone()
            });
        }
        // Nobody closes a file that somebody has in use. It keeps its place in the clock, which is one
        // entry however often it is given.
        let slot = state.slots.get(&object)?;
        if !Arc::ptr_eq(&slot.file, file) || state.pinned.len() >= self.given_max {
            return None;
        }
        file.given.store(true, Ordering::SeqCst);
        state.pinned.insert(object, Pinned { file: file.clone(), times: 1 });
        self.given.store(state.pinned.len(), Ordering::SeqCst);
        Some(file.clone())
    }

    /// The object is taken back, once. Of one that was removed nothing is known.
    pub(super) fn unpin(&self, object: ObjectId) {
        let mut state = self.lock();
        let Some(pinned) = state.pinned.get_mut(&object) else { return };
        pinned.times -= 1;
        if pinned.times > 0 {
            return;
        }
        let Some(Pinned { file, .. }) = state.pinned.remove(&object) else { return };
        file.changed.store(true, Ordering::SeqCst);
        file.given.store(false, Ordering::SeqCst);
        self.given.store(state.pinned.len(), Ordering::SeqCst);
        drop(state);
        drop(file);
        self.close_down_to(self.known_max);
    }

    /// The objects that are given away.
    pub(super) fn pinned(&self) -> Vec<ObjectId> {
        self.lock().pinned.keys().copied().collect()
    }

    /// The files that may have changes that no sync has seen.
    pub(super) fn changed(&self) -> Vec<Arc<Open>> {
        let state = self.lock();
        let known = state.slots.values().map(|slot| &slot.file);
        let leaving = state.leaving.iter().map(|leaving| &leaving.file);
        known.filter(|file| file.is_changed()).chain(leaving).cloned().collect()
    }

    /// How many entries the clock has, for tests.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.lock().clock.len()
    }

    /// Whether the object is given away.
    pub(super) fn is_pinned(&self, object: ObjectId) -> bool {
        // Each write asks, and mostly there are none.
        self.given.load(Ordering::SeqCst) > 0 && self.lock().pinned.contains_key(&object)
    }

    /// Closes an object's file: its name means nothing, or another file, from now on.
    pub(super) fn forget(&self, object: ObjectId) {
        let mut state = self.lock();
        let pinned = state.pinned.remove(&object);
        self.given.store(state.pinned.len(), Ordering::SeqCst);
        let slot = state.slots.remove(&object);
        let at = state.leaving.iter().position(|leaving| leaving.object == object);
        let leaving = at.and_then(|at| state.leaving.remove(at));
        self.close(state, (slot, leaving, pinned), 1);
    }

    /// Closes the files beyond a limit, or has them leave; whether any was closed.
    fn close_down_to(&self, known_max: usize) -> bool {
        let mut state = self.lock();
        let gone = state.take_beyond(known_max, 2 * self.known_max);
        let count = gone.closing.len();
        if count > 0 {
            self.close(state, gone.closing, count);
        } else {
            drop(state);
        }
        for file in gone.leaving {
            writeback::start(&file, writeback::ALL);
        }
        count > 0
    }

    /// Waits until no more than so many are leaving, besides those for which others wait.
    fn wait_down_to(&self, leaving_max: usize) {
        loop {
            let next = self.lock().next_to_wait_for(leaving_max);
            let Some(file) = next else { break };
            self.see_off(file);
        }
    }

    /// Waits until one of those that are leaving, or that others are closing, is closed; false if
    /// there is none.
    fn wait_for_one(&self) -> bool {
        let mut state = self.lock();
        if state.leaving.is_empty() && state.closing == 0 {
            return false;
        }
        if let Some(file) = state.next_to_wait_for(0) {
            drop(state);
            self.see_off(file);
            return true;
        }
        let left = state.left;
        state.waiting += 1;
        let unchanged = |state: &mut State| state.left == left;
        let waited = self.leaves.wait_while(state, unchanged);
        waited.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
        true
    }

    /// Waits for the data of one that is leaving, and closes it.
    fn see_off(&self, file: Arc<Open>) {
        self.wait_for(&file);
        let mut state = self.lock();
        // It need not be there: somebody may use it again.
        let at = state.leaving.iter().position(|leaving| Arc::ptr_eq(&leaving.file, &file));
        let closed = at.and_then(|at| state.leaving.remove(at));
        self.close(state, (closed, file), 1);
    }

    /// Closes so many files, which can take long: nobody shall wait for it with the lock.
    fn close<T>(&self, mut state: MutexGuard<'_, State>, files: T, count: usize) {
        state.closing += count;
        drop(state);
        drop(files);
        self.left(&mut self.lock(), count);
    }

    /// So many are closed, or one is not leaving any more.
    fn left(&self, state: &mut State, closed: usize) {
        state.closing -= closed;
        state.left += 1;
        // A system call also if nobody is there.
        if state.waiting > 0 {
            self.leaves.notify_all();
        }
    }

    /// Waits until the data of a file that is to be closed is written out.
    fn wait_for(&self, file: &Open) {
        while let Err(error) = file.vouch(&self.poison, Open::wait) {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::error!(%error, "what was written to an object is lost");
                return;
            }
        }
    }
}

/// Whether an error says that no more files may be open: then nothing was done.
pub(super) fn out_of_files(error: &io::Error) -> bool {
    let none_left = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
    error.raw_os_error().is_some_and(|raw| none_left.contains(&raw))
}

#[cfg(test)]
mod tests;
