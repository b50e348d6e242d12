//! Makes names durable beside the data.
//!
//! A sync has two things to wait for: an object's data, and the folder that holds its name.
//! Each is a flush of the disk, and neither needs the other to be first. So a thread of the
//! store's own does the folders' ([`Namer::ask`]) while whoever syncs does the data's, and
//! then waits for it ([`Namer::wait`]). All who ask while it is at one turn are served by the
//! next: of many files born in one folder it is synced once for all.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sateen_types::Errno;

use super::files::{Files, out_of_files};
use super::names::Group;
use super::unsynced::Unsynced;
use crate::lock;

/// What the thread and its askers share.
#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    unsynced: Arc<Unsynced>,
    files: Arc<Files>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: BTreeSet<Group>,
    /// Turns that have begun, and that have ended.
    begun: u64,
    ended: u64,
    /// The error of the first turn that failed. It is that of all later ones, too: the file
    /// system below may report it only once.
    failed: Option<i32>,
    /// The last turn that could not open a folder because no more files may be open, and what the
    /// kernel said: nothing was done, and nothing is lost.
    lacked: Option<(u64, i32)>,
    stop: bool,
}

/// The turn that will have synced what was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn(u64);

/// The thread. See the module.
#[derive(Debug)]
pub(super) struct Namer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Namer {
    /// Starts the thread of the store in `folder`.
    pub(super) fn start(
        folder: PathBuf,
        unsynced: Arc<Unsynced>,
        files: Arc<Files>,
    ) -> io::Result<Namer> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { folder, unsynced, files, state, changed });
        let thread = std::thread::Builder::new().name("names".into());
        let thread = thread.spawn({
            let shared = shared.clone();
            move || shared.serve()
        })?;
        Ok(Namer { shared, thread: Some(thread) })
    }

    /// Asks for the names in these groups, as they are now. `None` if all are durable.
    pub(super) fn ask(&self, groups: impl Iterator<Item = Group> + Clone) -> Option<Turn> {
        if self.shared.unsynced.of(groups.clone()).is_empty() {
            return None;
        }
        let mut state = lock(&self.shared.state);
        state.wanted.extend(groups);
        self.shared.changed.notify_all();
        Some(Turn(state.begun + 1))
    }

    /// Waits until what was asked for is durable.
    pub(super) fn wait(&self, turn: Option<Turn>) -> io::Result<()> {
        let Some(Turn(turn)) = turn else { return Ok(()) };
        let mut state = lock(&self.shared.state);
        while state.ended < turn {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Later turns did not do what this one was asked for.
        let lacked = state.lacked.filter(|(lacked, _)| *lacked >= turn).map(|(_, raw)| raw);
        match state.failed.or(lacked) {
            Some(raw) => Err(io::Error::from_raw_os_error(raw)),
            None => Ok(()),
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if !state.wanted.is_empty() {
                state = self.turn(state);
            } else if state.stop {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let groups = std::mem::take(&mut state.wanted);
        state.begun += 1;
        drop(state);
        let synced = self.sync(&groups);
        let mut state = lock(&self.state);
        state.ended = state.begun;
        if let Err(error) = synced {
            let raw = error.raw_os_error().unwrap_or(Errno::EIO.raw());
            if out_of_files(&error) {
                state.lacked = Some((state.ended, raw));
            } else {
                state.failed.get_or_insert(raw);
            }
        }
        self.changed.notify_all();
        state
    }

    /// Makes the names in the folders of these groups durable, from below to above. A folder
    /// that is gone has nothing to keep; that it is gone is the folder above's matter.
    fn sync(&self, groups: &BTreeSet<Group>) -> io::Result<()> {
        let marks = self.unsynced.of(groups.iter().copied());
        for (place, _) in &marks {
            let path = place.path(&self.folder);
            // That no more files may be open says nothing of the disk.
            let folder = self.files.make_room(|| File::open(&path));
            match folder.and_then(|folder| folder.sync_all()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        self.unsynced.synced(&marks);
        Ok(())
    }
}

impl Drop for Namer {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that syncs names panicked");
        }
    }
}
