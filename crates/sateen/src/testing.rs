//! For unit tests: a folder that goes away.

use std::path::{Path, PathBuf};

/// A fresh folder, removed when dropped.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let unique = format!("sateen-{name}-{}-{:x}", std::process::id(), sateen_reactor::random());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        Scratch { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
