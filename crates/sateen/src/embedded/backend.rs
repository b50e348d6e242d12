//! Opens a target's store: index, journal, objects, and the metadata recovered from them.

use std::sync::Arc;

use sateen_osd::memory::{MemoryIndex, MemoryJournal, MemoryObjects};
use sateen_osd::{Index, JournalDevice, ObjectStore, Store, StoreLimits};
use sateen_target::Recovery;
use sateen_types::Endpoint;

use crate::refusal::Outcome;
use crate::targets::Target;

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
}

/// Space of an OST in memory.
const MEMORY_OST_BYTES: u64 = 1 << 30;

/// Opens a target.
pub(crate) fn open(target: &Target) -> Outcome<Opened> {
    let epoch = target.label.journal_epoch;
    let index = Arc::new(MemoryIndex::default());
    let recovery = Recovery::new(epoch, index.checkpointed(), StoreLimits::default());
    let (store, _) = recovery.finish();
    let objects: Option<Arc<dyn ObjectStore>> = match target.label.target {
        Endpoint::Ost(_) => Some(Arc::new(MemoryObjects::new(MEMORY_OST_BYTES))),
        _ => None,
    };
    Ok(Opened { store, index, journal: Box::new(MemoryJournal::default()), objects })
}
