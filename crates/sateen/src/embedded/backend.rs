//! Opens a target's store: index, journal, objects, and the metadata recovered from them.

use std::sync::Arc;

use sateen_osd::{Index, JournalDevice, ObjectStore, Store, StoreLimits};
use sateen_osd_disk::folder::TargetFolder;
use sateen_osd_disk::index::{DiskIndex, IndexOptions};
use sateen_osd_disk::journal::{DiskJournal, JournalError};
use sateen_osd_disk::objects::{DiskObjects, ObjectOptions};
use sateen_target::{Recovery, RecoveryError};
use sateen_types::Endpoint;

use crate::refusal::{Outcome, Refusal};
use crate::targets::{Target, journal_options};

/// An open store.
pub(crate) struct Opened {
    /// Its metadata, recovered.
    pub store: Store,
    /// Its index.
    pub index: Arc<dyn Index>,
    /// Its journal.
    pub journal: Box<dyn JournalDevice>,
    /// Its objects, on an OST.
    pub objects: Option<Arc<dyn ObjectStore>>,
    /// Its folder, locked against a second server.
    pub folder: TargetFolder,
}

enum ReplayError {
    Journal(JournalError),
    Records(RecoveryError),
}

impl From<JournalError> for ReplayError {
    fn from(error: JournalError) -> ReplayError {
        ReplayError::Journal(error)
    }
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Journal(error) => error.fmt(f),
            ReplayError::Records(error) => error.fmt(f),
        }
    }
}

/// Memory that a target may use: the MGT and OSTs keep little, an MDT its working set.
fn limits(target: Endpoint) -> (StoreLimits, IndexOptions) {
    let mut index = IndexOptions::default();
    let mut store = StoreLimits::default();
    if !matches!(target, Endpoint::Mdt(_)) {
        index.cache_bytes = 8 << 20;
        store = StoreLimits { memtable_bytes_max: 8 << 20, cache_bytes_max: 8 << 20 };
    }
    (store, index)
}

/// Opens a target and replays its journal.
pub(crate) fn open(target: &Target) -> Outcome<Opened> {
    let me = target.label.target;
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(format!("cannot start {me}: {error}"), "look at the disk, and at the log")
    };
    let folder = TargetFolder::open(&target.path).map_err(|error| failed(&error))?;
    let (store_limits, index_options) = limits(me);
    let index = DiskIndex::open(&folder.index(), index_options).map_err(|error| failed(&error))?;
    let (epoch, checkpointed) = (target.label.journal_epoch, index.checkpointed());
    let mut recovery = Recovery::new(epoch, checkpointed, store_limits);
    let journal =
        DiskJournal::open(&folder.journal(), epoch, checkpointed, journal_options(), |payload| {
            recovery.frame(payload).map_err(ReplayError::Records)
        })
        .map_err(|error| failed(&error))?;
    let (store, replayed) = recovery.finish();
    if replayed > 0 {
        tracing::info!(target_name = %me, replayed, "replayed the journal");
    }
    let objects: Option<Arc<dyn ObjectStore>> = match me {
        Endpoint::Ost(_) => {
            let opened = DiskObjects::open(&folder.objects(), ObjectOptions::default());
            Some(Arc::new(opened.map_err(|error| failed(&error))?))
        }
        _ => None,
    };
    Ok(Opened { store, index: Arc::new(index), journal: Box::new(journal), objects, folder })
}
