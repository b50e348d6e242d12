//! Open files of objects, so that a write costs one system call. Bounded: beyond the limit
//! files that were not used lately are closed.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rustix::io::Errno;
use sateen_types::ObjectId;

#[derive(Debug)]
struct Slot {
    file: Arc<File>,
    used: bool,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<ObjectId, Slot>,
    /// In the order of the second-chance clock; may name files that were forgotten.
    clock: VecDeque<ObjectId>,
    /// Counts calls of `forget`: what was opened before one may be the wrong file after it.
    forgotten: u64,
}

/// The open files. Shared by all threads.
#[derive(Debug)]
pub(super) struct Files {
    state: Mutex<State>,
    max: usize,
}

impl Files {
    pub(super) fn new(max: usize) -> Self {
        Self { state: Mutex::default(), max: max.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of an object, opened if need be.
    pub(super) fn get(
        &self,
        object: ObjectId,
        open: impl Fn() -> io::Result<File>,
    ) -> io::Result<Arc<File>> {
        let before = {
            let mut state = self.lock();
            if let Some(slot) = state.slots.get_mut(&object) {
                slot.used = true;
                return Ok(slot.file.clone());
            }
            state.forgotten
        };
        let file = Arc::new(self.make_room(open)?);
        let mut state = self.lock();
        if state.forgotten == before {
            let slot = Slot { file: file.clone(), used: false };
            if state.slots.insert(object, slot).is_none() {
                state.clock.push_back(object);
            }
        }
        drop(state);
        self.close_down_to(self.max);
        Ok(file)
    }

    /// Opens something; if no more files may be open, these make room for it.
    pub(super) fn make_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if out_of_files(&error) => {
                self.close_down_to(0);
                open()
            }
            other => other,
        }
    }

    /// Closes an object's file: its name means nothing, or another file, from now on.
    pub(super) fn forget(&self, object: ObjectId) {
        let mut state = self.lock();
        state.forgotten += 1;
        let slot = state.slots.remove(&object);
        drop(state);
        drop(slot);
    }

    fn close_down_to(&self, max: usize) {
        let mut closing = Vec::new();
        let mut state = self.lock();
        while state.slots.len() > max || state.clock.len() > 2 * self.max {
            let Some(object) = state.clock.pop_front() else { break };
            match state.slots.get_mut(&object) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    state.clock.push_back(object);
                }
                Some(_) => closing.extend(state.slots.remove(&object)),
                None => {}
            }
        }
        // Closing can take long, and nobody shall wait for it with the lock.
        drop(state);
        drop(closing);
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
    use super::*;
    use sateen_types::{Fid, Seq};

    fn object(oid: u32) -> ObjectId {
        ObjectId { fid: Fid::new(Seq(0x2_0000_0400), oid), stripe: 0 }
    }

    #[test]
    fn no_more_files_than_allowed_and_used_ones_stay() {
        let files = Files::new(4);
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
        let files = Files::new(4);
        let slow = || {
            let file = File::open("/dev/null");
            files.forget(object(1));
            file
        };
        files.get(object(1), slow).unwrap();
        assert!(files.lock().slots.is_empty());
    }

    #[test]
    fn forgetting_leaves_nothing_behind_that_grows() {
        let files = Files::new(4);
        for n in 0..1000 {
            files.get(object(n), || File::open("/dev/null")).unwrap();
            files.forget(object(n));
        }
        assert!(files.lock().clock.len() <= 9);
    }
}
