//! The thread that has the kernel read what nobody has asked for yet: small objects, of which
//! [`super::walks`] says which (it finds them in their folders, opens them, and asks for what is at
//! their beginning); parts of objects that [`super::dense`] names; and what [`super::watch`] finds of
//! objects that were given away. It is there from the first time that one of them wants something, and
//! only hints: of errors nobody is told.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use sateen_types::{Fid, ObjectId, Seq};

use super::files::{Files, Need, Open};
use super::names::{self, Group};
use super::open_old;
use super::reads::{SHORT_BYTES, ask_for, is_in_memory};
use super::walks::{Ask, Asked, Walks};
use super::watch::{Watched, is_cold};
use crate::lock;

/// Asks that wait for the thread; what is beyond is not asked for.
const LINE_MAX: usize = 64;
/// Of an object that is given away so much is asked for before it is looked whether it still is: 1 MiB.
const PIECE_BYTES: usize = 1 << 20;

/// Reads ahead for a store. See the module.
#[derive(Debug)]
pub(super) struct Ahead {
    shared: Arc<Shared>,
    thread: OnceLock<Option<Thread>>,
}

#[derive(Debug)]
struct Thread {
    line: Option<SyncSender<Want>>,
    thread: Option<JoinHandle<()>>,
}

/// What is wanted of the thread.
#[derive(Debug)]
enum Want {
    /// The next objects of a walk.
    Walk(Ask),
    /// This of an object.
    Part(ObjectId, Range<u64>),
    /// To look at an object that was given away.
    Watch(ObjectId),
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    files: Arc<Files>,
    walks: Mutex<Walks>,
    /// Whoever is at it stops.
    ends: AtomicBool,
}

impl Ahead {
    /// For the store in `folder`, which keeps so many files open.
    pub(super) fn new(folder: &Path, files: Arc<Files>, files_open_max: usize) -> Ahead {
        let (folder, walks) = (folder.to_path_buf(), Mutex::new(Walks::new(files_open_max)));
        let ends = AtomicBool::new(false);
        let shared = Arc::new(Shared { folder, files, walks, ends });
        Ahead { shared, thread: OnceLock::new() }
    }

    /// Somebody reads an object, and had to wait for the disk or not.
    pub(super) fn read(&self, object: ObjectId, (offset, len): (u64, usize), waited: bool) {
        if offset > 0 || len > SHORT_BYTES {
            return;
        }
        let Some(ask) = lock(&self.shared.walks).read(object, waited) else { return };
        if !self.want(Want::Walk(ask)) {
            // Nothing has come of it: his next wait for the disk asks again.
            let _ = lock(&self.shared.walks).asked(ask, Asked::default());
        }
    }

    /// A part of an object is to be read whole, if there is one.
    pub(super) fn dense(&self, object: ObjectId, part: Option<Range<u64>>) {
        let Some(part) = part else { return };
        if !self.want(Want::Part(object, part)) {
            tracing::trace!(?object, "not read whole now, but perhaps after as many waits");
        }
    }

    /// An object was given away: it is watched, if there is something to read of it.
    pub(super) fn watch(&self, object: ObjectId, file: &Open) {
        if is_cold(file) && !self.want(Want::Watch(object)) {
            tracing::trace!(?object, "not watched: it is read as the kernel does it");
        }
    }

    /// Whether the thread will do it.
    fn want(&self, want: Want) -> bool {
        let line = self.thread.get_or_init(|| Thread::start(self.shared.clone()));
        let line = line.as_ref().and_then(|thread| thread.line.as_ref());
        line.is_some_and(|line| line.try_send(want).is_ok())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Before the thread is waited for.
        self.shared.ends.store(true, Ordering::Relaxed);
    }
}

impl Thread {
    /// `None` if there can be none: then nothing is read ahead.
    fn start(shared: Arc<Shared>) -> Option<Thread> {
        let (line, wants) = sync_channel(LINE_MAX);
        let thread = std::thread::Builder::new().name("ahead".into());
        let thread = thread.spawn(move || shared.serve(&wants));
        let thread = thread.inspect_err(|error| {
            tracing::warn!(%error, "no thread to read ahead: what is read waits for the disk");
        });
        Some(Thread { line: Some(line), thread: Some(thread.ok()?) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.line = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reads ahead panicked");
        }
    }
}

impl Shared {
    fn serve(&self, wants: &Receiver<Want>) {
        // The objects of the folder that was looked through last.
        let mut listed: Option<(Group, Vec<ObjectId>)> = None;
        let mut watched = Watched::default();
        loop {
            let want = match watched.rest(Instant::now()) {
                None => wants.recv().map_err(RecvTimeoutError::from),
                Some(rest) => wants.recv_timeout(rest),
            };
            match want {
                Ok(Want::Walk(ask)) => self.walk(ask, &mut listed),
                Ok(Want::Part(object, part)) => {
                    if let Some(file) = self.files.known(object) {
                        ask_for(&file, part);
                    }
                }
                Ok(Want::Watch(object)) => watched.begin(object, Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            let wanted = watched.look(now, |object, parts| {
                let file = self.given(object)?;
                let begun = Instant::now();
                let looked = parts.look_at(&file).ok()?;
                Some((looked, begun.elapsed()))
            });
            for (object, range) in wanted {
                for from in range.clone().step_by(PIECE_BYTES) {
                    let piece = from..(from + PIECE_BYTES as u64).min(range.end);
                    match self.given(object).filter(|_| !self.ends.load(Ordering::Relaxed)) {
                        Some(file) => ask_for(&file, piece),
                        None => break,
                    }
                }
            }
        }
    }

    /// An object's file, if it is given away now.
    fn given(&self, object: ObjectId) -> Option<Arc<Open>> {
        self.files.known(object).filter(|_| self.files.is_pinned(object))
    }

    /// Asks for the next objects of a walk, for as long as it wants more.
    fn walk(&self, ask: Ask, listed: &mut Option<(Group, Vec<ObjectId>)>) {
        let mut next = Some(ask);
        while let Some(ask) = next {
            let asked = self.perform(ask, listed).unwrap_or_else(|error| {
                tracing::debug!(%error, "cannot read small files ahead");
                Asked::default()
            });
            next = lock(&self.walks).asked(ask, asked);
        }
    }

    fn perform(&self, ask: Ask, listed: &mut Option<(Group, Vec<ObjectId>)>) -> io::Result<Asked> {
        let mut asked = Asked::default();
        for object in self.next_ones(ask, listed)? {
            let known = self.files.known(object).map_or_else(|| self.open(object), Ok);
            match known {
                Ok(file) => asked.was_cold |= !bring(&file),
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            asked.oids.push(object.fid.oid);
        }
        Ok(asked)
    }

    /// Opens an object, unless that takes a place that others need.
    fn open(&self, object: ObjectId) -> io::Result<Arc<Open>> {
        let path = names::path(&self.folder, object);
        let file = Cell::new(Some(open_old(&path)?));
        self.files.get(object, Need::Look, || file.take().map_or_else(|| open_old(&path), Ok))
    }

    /// The objects that are to be asked for: first ones of their files, in order.
    fn next_ones(
        &self,
        ask: Ask,
        listed: &mut Option<(Group, Vec<ObjectId>)>,
    ) -> io::Result<Vec<ObjectId>> {
        let behind =
            ObjectId { fid: Fid { seq: ask.seq, oid: ask.behind, ver: 0 }, stripe: u32::MAX };
        let mut next: Vec<ObjectId> = Vec::with_capacity(ask.count);
        let mut group = Some(Group::of(behind));
        while let Some(at) = group.filter(|_| next.len() < ask.count) {
            let known = listed.take().filter(|(group, _)| *group == at);
            let (_, objects) = listed.insert(match known {
                Some(known) => known,
                None => (at, names::objects_in(&self.folder, at)?),
            });
            let from = objects.partition_point(|object| *object <= behind);
            let first_ones = objects.iter().skip(from).filter(|object| object.stripe == 0);
            next.extend(first_ones.take(ask.count - next.len()));
            if next.len() < ask.count {
                // It may have grown since it was looked through, and will be looked through again.
                *listed = None;
                group = self.group_behind(ask.seq, at)?;
            }
        }
        Ok(next)
    }

    fn group_behind(&self, seq: Seq, group: Group) -> io::Result<Option<Group>> {
        Ok(names::groups_in(&self.folder, seq)?.into_iter().find(|other| *other > group))
    }
}

/// Has the kernel read the beginning of a file. True if it is in memory already.
fn bring(file: &File) -> bool {
    let there = is_in_memory(file, 0);
    if !there {
        ask_for(file, 0..SHORT_BYTES as u64);
    }
    there
}

#[cfg(test)]
mod tests;
