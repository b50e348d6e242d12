//! A target's disk: what a running target sees, and what a crash leaves of it.
//!
//! Only what was synced survives, names included. Everything else may vanish, survive, or
//! survive in part, cut at any byte.

mod index;
mod journal;
mod objects;

use std::sync::Arc;

pub use index::SimIndex;
pub use journal::SimJournal;
pub use objects::SimObjects;

/// The disk of one target. It outlives the target's process.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The index.
    pub index: Arc<SimIndex>,
    /// The journal.
    pub journal: SimJournal,
    /// The objects; empty on anything but an OST.
    pub objects: Arc<SimObjects>,
}

impl Disk {
    /// An empty disk whose journal has this epoch.
    pub fn new(epoch: u64, bytes_max: u64) -> Disk {
        Disk {
            index: Arc::default(),
            journal: SimJournal::new(epoch),
            objects: Arc::new(SimObjects::new(bytes_max)),
        }
    }
}
