//! Files of this mount that the kernel reads and writes itself (decision 0007): by which number it
//! knows each.
//!
//! An inode has one number, from before its first open is answered with it to after its last RELEASE:
//! the client counts opens, and takes the file back when it knows of none. An open that was answered
//! needs the number a while longer than its answer takes.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sateen_fuse::{Backing, Backings};
use sateen_types::{Errno, Ino};

/// See the module.
#[derive(Debug, Default)]
pub struct GivenFiles {
    /// Of the mount, when it is there.
    backings: OnceLock<Backings>,
    numbers: Mutex<HashMap<Ino, Arc<Backing>>>,
}

impl GivenFiles {
    /// The mount is there, and its kernel takes files.
    pub fn attach(&self, backings: Backings) {
        // Whoever comes first is the only one.
        let _ = self.backings.set(backings);
    }

    fn numbers(&self) -> MutexGuard<'_, HashMap<Ino, Arc<Backing>>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the kernel know this file as the one of an inode, which has none.
    ///
    /// # Errors
    /// `ENODEV` before [`GivenFiles::attach`], and the kernel's.
    pub fn give(&self, ino: Ino, file: impl AsFd) -> io::Result<()> {
        let no_mount = || io::Error::from_raw_os_error(Errno::ENODEV.raw());
        let backing = self.backings.get().ok_or_else(no_mount)?.open(file)?;
        self.numbers().insert(ino, Arc::new(backing));
        Ok(())
    }

    /// The kernel has no open of it any more.
    pub fn take_back(&self, ino: Ino) {
        let backing = self.numbers().remove(&ino);
        // It is a system call.
        drop(backing);
    }

    /// What an open of this inode is to be answered with.
    pub(crate) fn of(&self, ino: Ino) -> Option<Arc<Backing>> {
        self.numbers().get(&ino).cloned()
    }
}
