//! What readers of the index see: the set of tables at one moment.
//!
//! The engine guards its set of tables with a lock that it holds while it writes and syncs
//! the file naming them, so a read through its public face can wait for three fsyncs (30 ms
//! on an idle disk, 800 ms on a busy one). A snapshot holds the tables themselves. It is
//! taken by the threads that change them, right after each change, and needs no lock to be
//! read. The engine exports what this needs without documenting it; hence its exact version
//! in Cargo.toml, and hence closures, because some of its types cannot be named.

use std::collections::BTreeSet;
use std::ops::Bound;

use lsm_tree::table::filter::standard_bloom::Builder as Bloom;
use lsm_tree::{AbstractTree, InternalValue, Result, SeqNo, Slice, Tree};

type Pairs = Box<dyn Iterator<Item = Result<InternalValue>>>;
type Get = Box<dyn Fn(&[u8]) -> Result<Option<Slice>> + Send + Sync>;
type Range = Box<dyn Fn(Bound<&[u8]>, Bound<&[u8]>) -> Pairs + Send + Sync>;

/// A set of tables, complete and unchanging.
pub(super) struct Snapshot {
    get: Get,
    range: Range,
    version: u64,
    ids: BTreeSet<u64>,
    unmerged_runs: usize,
    disk_bytes: u64,
}

impl Snapshot {
    /// The tables of `tree` now. Waits for the engine's lock, so no reader may call it.
    pub(super) fn of(tree: &Tree) -> Self {
        let version = tree.current_version();
        let all = tree.get_version_history_lock().latest_version();
        Self {
            version: version.id(),
            ids: version.iter_tables().map(|table| table.id()).collect(),
            unmerged_runs: version.l0().run_count(),
            disk_bytes: version.iter_levels().map(|level| level.size()).sum(),
            range: Box::new(move |from, to| {
                let bounds = (from, to);
                Box::new(Tree::create_internal_range::<&[u8], _>(
                    all.clone(),
                    &bounds,
                    SeqNo::MAX,
                    None,
                ))
            }),
            get: Box::new(move |key| {
                let hash = Bloom::get_hash(key);
                let runs = version.iter_levels().flat_map(|level| level.iter());
                for table in runs.filter_map(|run| run.get_for_key(key)) {
                    if let Some(found) = table.get(key, SeqNo::MAX, hash)? {
                        return Ok((!found.is_tombstone()).then_some(found.value));
                    }
                }
                Ok(None)
            }),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        (self.get)(key)
    }

    /// Pairs in key order; deleted keys do not appear.
    pub(super) fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        (self.range)(from, to).map(|pair| pair.map(|pair| (pair.key.user_key, pair.value)))
    }

    /// The number of this set of tables.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The numbers of the tables, which are their files' names.
    pub(super) fn table_ids(&self) -> &BTreeSet<u64> {
        &self.ids
    }

    pub(super) fn unmerged_runs(&self) -> usize {
        self.unmerged_runs
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }
}
