//! Whether the disk has failed to write something: nothing is written or acknowledged any more,
//! and the next run is not to take what this one wrote for kept ([`crate::runs`]).

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::runs;

/// Shared by all parts of a store.
#[derive(Debug, Default)]
pub(super) struct Poison {
    set: AtomicBool,
    /// The file that says that nothing of this run is lost.
    runs: OnceLock<PathBuf>,
}

impl Poison {
    /// The file that is to go.
    pub(super) fn removes(&self, runs: PathBuf) {
        let _ = self.runs.set(runs);
    }

    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Before anybody hears of the error.
    pub(super) fn set(&self) {
        self.set.store(true, Ordering::Release);
        let Some(path) = self.runs.get() else { return };
        if let Err(error) = runs::forget(path) {
            tracing::error!(
                %error,
                "cannot remove {}: remove it before this target is started again, or what it has \
                 lost is not told",
                path.display()
            );
        }
    }
}
