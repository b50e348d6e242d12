//! The metadata index: one ordered key-value store per target, on tables that are written
//! once, sorted, and merged in the background.
//!
//! Who calls it: foreground operations read it ([`Index::get`], [`Index::scan`]) below the
//! memtables, from any thread, never under a target's lock; one background thread writes
//! frozen memtables into it ([`Index::checkpoint`]). A thread of its own merges, and a
//! checkpoint waits while that one is far behind.
//!
//! What it must never do: make a read wait for the disk's write side, or show half a
//! checkpoint. A checkpoint's tables and its transno become visible, and durable, by the
//! replacement of one small file; after power loss the store holds exactly the last
//! checkpoint that returned, or one that was about to. Why this engine and this use of it:
//! `docs/decisions/0003-metadata-index.md`.

mod pace;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;
mod trash;

use std::fs::File;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use lsm_tree::Slice;
use sateen_osd::{Index, IndexError, Key, Memtable};
use sateen_wire::StatFs;

use crate::folder::{create_folder, sync_folder, sync_parent};
use crate::{lock, space};
use tables::{Tables, out_of_space};

/// How much less often than others the merging thread gets the processor.
const MERGE_NICE: i32 = 10;

/// Sizes, per index.
#[derive(Debug, Clone, Copy)]
pub struct IndexOptions {
    /// Memory for blocks read from tables, in bytes.
    pub cache_bytes: u64,
    /// Size at which a table is closed and the next begun, in bytes.
    pub table_bytes: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { cache_bytes: 128 << 20, table_bytes: 32 << 20 }
    }
}

/// What the merging thread and checkpoints tell each other.
#[derive(Debug, Default)]
struct Merging {
    /// There may be something to merge.
    wanted: bool,
    /// A merge is running, or about to.
    busy: bool,
    stop: bool,
}

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<Merging>,
    changed: Condvar,
}

/// The metadata index of one target. See the module for its life.
#[derive(Debug)]
pub struct DiskIndex {
    tables: Arc<Tables>,
    signal: Arc<Signal>,
    merger: Option<JoinHandle<()>>,
    /// Asked for the space around it.
    folder: File,
}

impl DiskIndex {
    /// Opens the index in `folder`, creating it if there is none, and starts to merge.
    ///
    /// # Errors
    /// The device's, or damage.
    pub fn open(folder: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        // The engine does not sync what is above its folder; and whoever made it may have died
        // before that was done.
        create_folder(folder)?;
        sync_parent(folder)?;
        let tables = Arc::new(Tables::open(folder, options)?);
        // The journal before the checkpoint found here is about to be given up, and whoever
        // wrote the checkpoint may have died before its name was durable.
        sync_folder(folder)?;
        let state = Mutex::new(Merging { wanted: true, busy: true, stop: false });
        let signal = Arc::new(Signal { state, changed: Condvar::new() });
        let thread = std::thread::Builder::new().name("index-merge".into());
        let merger = thread.spawn({
            let (tables, signal) = (tables.clone(), signal.clone());
            move || signal.merge(&tables)
        })?;
        Ok(Self { tables, signal, merger: Some(merger), folder: File::open(folder)? })
    }

    /// Opens the index in `folder`, which must exist, to be read only: nothing is merged.
    /// Tables that a crash left unfinished go, as at any opening.
    ///
    /// # Errors
    /// The device's, or damage.
    pub fn open_at_rest(folder: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        std::fs::metadata(folder)?;
        let tables = Arc::new(Tables::open(folder, options)?);
        Ok(Self { tables, signal: Arc::default(), merger: None, folder: File::open(folder)? })
    }

    /// The value of a key of any form; [`Index::get`] for keys of the store.
    ///
    /// # Errors
    /// The device's, or damage.
    pub fn get_bytes(&self, key: &[u8]) -> Result<Option<Slice>, IndexError> {
        self.tables.get_bytes(key)
    }

    /// Calls `each` for the pairs between the bounds in key order until it says `false`.
    ///
    /// # Errors
    /// The device's, or damage.
    pub fn scan_bytes(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), IndexError> {
        self.tables.scan_bytes(from, to, each)
    }

    /// Writes puts (`Some`) and deletes (`None`) in strictly ascending key order together
    /// with `upto`, and returns once all of it is durable. On an error nothing of it is
    /// visible; after one that says the disk is full it may be tried again.
    ///
    /// # Errors
    /// The device's.
    pub fn write<'a>(
        &self,
        upto: u64,
        changes: impl Iterator<Item = (Slice, Option<&'a [u8]>)>,
    ) -> Result<(), IndexError> {
        self.signal.wait_for_merges(&self.tables);
        self.tables.write(upto, changes)?;
        let mut state = lock(&self.signal.state);
        state.wanted = true;
        state.busy = true;
        self.signal.changed.notify_all();
        Ok(())
    }

    /// Waits until nothing is left to merge; for measuring.
    pub fn settle(&self) {
        let mut state = lock(&self.signal.state);
        while state.busy {
            state = self.signal.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a merge is running, or about to; for tests.
    pub fn is_merging(&self) -> bool {
        lock(&self.signal.state).busy
    }

    /// Bytes of all tables in use.
    pub fn disk_bytes(&self) -> u64 {
        self.tables.disk_bytes()
    }
}

impl Drop for DiskIndex {
    fn drop(&mut self) {
        self.tables.stop();
        lock(&self.signal.state).stop = true;
        self.signal.changed.notify_all();
        if let Some(merger) = self.merger.take()
            && merger.join().is_err()
        {
            tracing::error!("the index's merging thread panicked");
        }
    }
}

impl Signal {
    /// The merging thread.
    fn merge(&self, tables: &Tables) {
        if let Err(error) = rustix::process::nice(MERGE_NICE) {
            tracing::debug!(%error, "merging keeps its priority");
        }
        loop {
            let mut state = lock(&self.state);
            while !state.wanted && !state.stop {
                state.busy = false;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stop {
                state.busy = false;
                self.changed.notify_all();
                return;
            }
            // Whoever writes from now on sets it again.
            state.wanted = false;
            drop(state);
            match tables.compact() {
                Ok(true) => lock(&self.state).wanted = true,
                Ok(false) => {}
                // Reads still work, and the next checkpoint meets the same error or, if the
                // disk was full, tries again.
                Err(error) => tracing::error!(%error, "merging tables"),
            }
            self.changed.notify_all();
        }
    }

    fn wait_for_merges(&self, tables: &Tables) {
        let mut state = lock(&self.state);
        while state.busy && tables.needs_compaction() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Index for DiskIndex {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(self.tables.get_bytes(key.as_bytes())?.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, IndexError> {
        let mut out = Vec::new();
        if limit == 0 {
            return Ok(out);
        }
        let from = if after < prefix {
            Bound::Included(prefix.as_bytes())
        } else {
            Bound::Excluded(after.as_bytes())
        };
        let end = prefix_end(prefix.as_bytes());
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut too_long = None;
        self.tables.scan_bytes(from, to, |key, value| {
            match Key::from_bytes(key) {
                Some(key) => out.push((key, value.to_vec())),
                None => too_long = Some(key.len()),
            }
            out.len() < limit && too_long.is_none()
        })?;
        match too_long {
            Some(len) => Err(IndexError::Corrupt(format!("it holds a key of {len} bytes"))),
            None => Ok(out),
        }
    }

    fn checkpoint(&self, table: &Memtable, upto: u64) -> Result<(), IndexError> {
        let write = || {
            let changes = table.range(Bound::Unbounded);
            self.write(upto, changes.map(|(key, value)| (Slice::from(key.as_bytes()), value)))
        };
        match write() {
            Err(error) if out_of_space(&error) => {
                // What it left is gone. Who asked gives the target up if this fails, too.
                tracing::warn!(%error, "a checkpoint needs what old tables still occupy");
                self.tables.empty_trash();
                write()
            }
            other => other,
        }
    }

    fn checkpointed(&self) -> u64 {
        self.tables.upto()
    }

    fn space(&self) -> Option<StatFs> {
        space::of(&self.folder, 1).ok()
    }
}

/// The first key behind all keys with this prefix.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}
