//! The tables of an index: reading them, adding a checkpoint's, merging them.
//!
//! Called by [`super::Tables`] only. Reads come from any thread and never wait for the
//! write side; of the write side, one checkpoint and one merge may run at a time, beside
//! each other.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lsm_tree::compaction::filter::Context;
use lsm_tree::compaction::{CompactionFilter, Factory, ItemAccessor, Leveled, Verdict};
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy, PinningPolicy};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, SeqNo,
    SequenceNumberCounter, Slice,
};
use sateen_osd::IndexError;
use sateen_types::Errno;

use super::IndexOptions;
use super::pace::Pacer;
use super::snapshot::Snapshot;
use super::trash::Trash;
use crate::lock;

/// The index's own record sorts before every key of its users, whose first byte is a tag.
const UPTO_KEY: &[u8] = &[0];
/// A checkpoint should wait while this many runs lie unmerged on top: each of them costs
/// every read a look.
const UNMERGED_RUNS_MAX: usize = 12;
/// How many runs of the top level are merged at a time.
const MERGE_RUNS: u8 = 4;
/// Where the engine keeps its tables, in files named by numbers.
const TABLES: &str = "tables";
/// Bytes that a pair takes in a table beside key and value, roughly.
const PAIR_BYTES: usize = 12;
/// Open files per index.
const OPEN_TABLES_MAX: usize = 256;
/// How long a retired snapshot is kept for readers that still look at it.
const RETIRE_STEP: Duration = Duration::from_millis(1);

/// All tables of an index.
pub(super) struct Tables {
    folder: PathBuf,
    tree: lsm_tree::Tree,
    /// The same tree, in the form that takes sorted batches.
    ingest: AnyTree,
    seqno: SequenceNumberCounter,
    options: IndexOptions,
    upto: AtomicU64,
    stopping: Arc<AtomicBool>,
    /// What readers see. The engine's own lock is held over several fsyncs at a time.
    snapshot: RwLock<Arc<Snapshot>>,
    /// Held while the snapshot is replaced, so that the newest one stays.
    refreshing: Mutex<()>,
    /// Where tables go that readers see no more.
    trash: Trash,
    /// Shared by checkpoints and merges; exclusive while leftovers are swept out.
    working: RwLock<()>,
    poisoned: AtomicBool,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables")
            .field("folder", &self.folder)
            .field("upto", &self.upto)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn engine(error: lsm_tree::Error) -> IndexError {
    match error {
        lsm_tree::Error::Io(error) => IndexError::Io(error),
        other => IndexError::Corrupt(other.to_string()),
    }
}

/// Whether a step failed for want of space: then it may be tried again.
pub(super) fn out_of_space(error: &IndexError) -> bool {
    let full = [Errno::ENOSPC.raw(), Errno::EDQUOT.raw()];
    matches!(error, IndexError::Io(error) if error.raw_os_error().is_some_and(|e| full.contains(&e)))
}

impl Tables {
    /// Opens the index in `folder`, creating it if there is none.
    ///
    /// # Errors
    /// The device's, or damage.
    pub(super) fn open(folder: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        let stopping = Arc::new(AtomicBool::new(false));
        let seqno = SequenceNumberCounter::default();
        let visible = SequenceNumberCounter::default();
        // The upper levels are small: whole filters and block indexes stay in memory. Those
        // of the lower levels are read in pieces, so that memory does not bound the index.
        let upper = || PinningPolicy::new([true, true, false]);
        let lower = || PinningPolicy::new([false, false, true]);
        let mut tree = Config::new(folder, seqno.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(options.cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_TABLES_MAX))))
            .data_block_size_policy(BlockSizePolicy::all(4096))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            .filter_block_pinning_policy(upper())
            .filter_block_partitioning_policy(lower())
            .with_compaction_filter_factory(Some(Arc::new(Merges {
                stopping: stopping.clone(),
                tables: folder.join(TABLES),
            })));
        tree.index_block_pinning_policy = upper();
        tree.index_block_partitioning_policy = lower();
        let ingest = tree.open().map_err(engine)?;
        let AnyTree::Standard(tree) = ingest.clone() else {
            return Err(IndexError::Corrupt("it is a tree of blobs".into()));
        };
        let next = tree.get_highest_seqno().map_or(0, |highest| highest + 1);
        seqno.fetch_max(next);
        visible.fetch_max(next);
        let upto = match tree.get(UPTO_KEY, SeqNo::MAX).map_err(engine)? {
            None => 0,
            Some(bytes) => u64::from_le_bytes(bytes.as_ref().try_into().map_err(|_| {
                IndexError::Corrupt(format!("its checkpoint record has {} bytes", bytes.len()))
            })?),
        };
        Ok(Self {
            folder: folder.to_path_buf(),
            snapshot: RwLock::new(Arc::new(Snapshot::of(&tree))),
            tree,
            ingest,
            seqno,
            options,
            upto: AtomicU64::new(upto),
            stopping,
            refreshing: Mutex::default(),
            trash: Trash::start()?,
            working: RwLock::default(),
            poisoned: AtomicBool::new(false),
        })
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows readers the present tables, which are durable. Waits for the last reader of the
    /// tables before, so that files are deleted here and not by a reader.
    fn refresh(&self) {
        let _one = lock(&self.refreshing);
        let next = Arc::new(Snapshot::of(&self.tree));
        let before = self.snapshot();
        let gone = before.table_ids().difference(next.table_ids());
        let path = |id: &u64| self.folder.join(TABLES).join(id.to_string());
        // One that cannot be opened is deleted all the same, only not little by little.
        let gone: Vec<File> =
            gone.filter_map(|id| File::options().write(true).open(path(id)).ok()).collect();
        drop(before);
        let mut slot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *slot, next);
        drop(slot);
        while Arc::strong_count(&old) > 1 {
            std::thread::sleep(RETIRE_STEP);
        }
        // The engine has let go of them, too: its names go with this.
        drop(old);
        for table in gone {
            self.trash.put(table);
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The device's, or damage.
    pub(super) fn get_bytes(&self, key: &[u8]) -> Result<Option<Slice>, IndexError> {
        self.snapshot().get(key).map_err(engine)
    }

    /// Calls `each` for the pairs between the bounds in key order until it says `false`.
    ///
    /// # Errors
    /// The device's, or damage.
    pub(super) fn scan_bytes(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), IndexError> {
        for pair in self.snapshot().range(from, to) {
            let (key, value) = pair.map_err(engine)?;
            if *key != *UPTO_KEY && !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// Writes puts (`Some`) and deletes (`None`) in strictly ascending key order together
    /// with `upto`, and returns once all of it is durable. On an error nothing of it is
    /// visible; after one that says the disk is full it may be tried again.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write<'a>(
        &self,
        upto: u64,
        changes: impl Iterator<Item = (Slice, Option<&'a [u8]>)>,
    ) -> Result<(), IndexError> {
        self.guarded(|| {
            let mut pacer = Pacer::new(self.folder.join(TABLES));
            let mut ingestion = self.ingest.ingestion().map_err(engine)?;
            ingestion.write(UPTO_KEY, upto.to_le_bytes().as_slice()).map_err(engine)?;
            for (key, value) in changes {
                if *key <= *UPTO_KEY {
                    return Err(IndexError::Corrupt(format!("key {key:?} is the index's own")));
                }
                pacer.wrote(key.len() + value.map_or(0, <[u8]>::len) + PAIR_BYTES)?;
                match value {
                    Some(value) => ingestion.write(key, value),
                    None => ingestion.write_tombstone(key),
                }
                .map_err(engine)?;
            }
            ingestion.finish().map_err(engine)?;
            self.upto.store(upto, Ordering::Release);
            self.refresh();
            Ok(())
        })
    }

    /// Merges one step. `false`: there was nothing to merge.
    ///
    /// # Errors
    /// The device's, or damage.
    pub(super) fn compact(&self) -> Result<bool, IndexError> {
        let strategy = Arc::new(
            Leveled::default()
                .with_l0_threshold(MERGE_RUNS)
                .with_table_target_size(self.options.table_bytes),
        );
        // Every change of the set of tables draws a sequence number, so an unchanged counter
        // means that there was nothing to do.
        let before = self.seqno.get();
        let mut merged = false;
        self.guarded(|| {
            // Snapshots hold the tables they look at, so every shadowed value may go.
            match self.tree.compact(strategy, SeqNo::MAX) {
                Err(_) if self.stopping.load(Ordering::Acquire) => return Ok(()),
                other => other.map_err(engine)?,
            }
            merged = self.seqno.get() != before;
            if merged {
                self.refresh();
            }
            Ok(())
        })?;
        Ok(merged)
    }

    /// Makes a merge that is running give up soon, and later ones at once. What it had
    /// written is deleted at the next opening.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// The transno of the last checkpoint.
    pub(super) fn upto(&self) -> u64 {
        self.upto.load(Ordering::Acquire)
    }

    /// Whether so much lies unmerged that the next checkpoint should wait.
    pub(super) fn needs_compaction(&self) -> bool {
        self.snapshot().unmerged_runs() >= UNMERGED_RUNS_MAX
    }

    /// Bytes of all tables in use.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.snapshot().disk_bytes()
    }

    /// Runs a step of the write side. The first failure that cannot be repaired is the last
    /// step; a full disk can, once what the step left behind is swept out.
    fn guarded(&self, step: impl FnOnce() -> Result<(), IndexError>) -> Result<(), IndexError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(IndexError::Io(io::Error::from_raw_os_error(Errno::EIO.raw())));
        }
        let result = {
            let _working = self.working.read().unwrap_or_else(PoisonError::into_inner);
            step()
        };
        match &result {
            Err(error) if out_of_space(error) => self.sweep().map_err(IndexError::Io)?,
            Err(_) => self.poisoned.store(true, Ordering::Release),
            Ok(()) => {}
        }
        result
    }

    /// Frees at once what merged tables are freeing little by little.
    pub(super) fn empty_trash(&self) {
        self.trash.empty();
    }

    /// Puts a file into the trash.
    #[cfg(test)]
    pub(super) fn put_into_trash(&self, file: File) {
        self.trash.put(file);
    }

    /// Deletes tables that a failed step left, which otherwise only the next opening does.
    /// Steps hold `working` until readers see what they did, so the snapshot names all
    /// tables that anybody uses.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let _alone = self.working.write().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot();
        // The step may have failed after it had named its tables durably.
        let named = std::fs::read(self.folder.join("current"))?;
        if named.first_chunk() != Some(&snapshot.version().to_le_bytes()) {
            self.poisoned.store(true, Ordering::Release);
            return Err(io::Error::from_raw_os_error(Errno::EIO.raw()));
        }
        let used = snapshot.table_ids();
        for entry in std::fs::read_dir(self.folder.join(TABLES))? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if id.is_some_and(|id| !used.contains(&id)) {
                tracing::info!(table = ?entry.path(), "removing what a failed step left");
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Makes what looks on at each merge.
struct Merges {
    stopping: Arc<AtomicBool>,
    tables: PathBuf,
}

/// Asked by a merge about every pair; keeps all of them, unless the merge is to give up.
struct OneMerge {
    stopping: Arc<AtomicBool>,
    pacer: Pacer,
}

impl Factory for Merges {
    fn name(&self) -> &str {
        "pacer"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let pacer = Pacer::new(self.tables.clone());
        Box::new(OneMerge { stopping: self.stopping.clone(), pacer })
    }
}

impl CompactionFilter for OneMerge {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        self.pacer.wrote(item.key().len() + item.value()?.len() + PAIR_BYTES)?;
        Ok(Verdict::Keep)
    }
}
