//! A target's folder: its lock, its label, and how names are made durable.
//!
//! | name | what |
//! |---|---|
//! | `lock` | held by the server that has the target open |
//! | `label` | what the target is, read before anything else |
//! | `index/` | the metadata index |
//! | `journal/` | the journal's segments |
//! | `objects/` | one file per object |
//! | `given`, `given.new` | which objects a kernel was given: [`crate::objects`] |
//! | `runs`, `runs.new` | under which mount it was served last: [`crate::runs`] |

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Longest label that is read.
const LABEL_BYTES_MAX: u64 = 64 << 10;

/// Why a target's folder was not opened.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another server has it.
    #[error("{folder} is in use by another server{holder}: stop that one first")]
    InUse {
        /// The target's folder.
        folder: PathBuf,
        /// ` (process 123)`, or nothing.
        holder: String,
    },
    /// The file system below.
    #[error("{folder}: {error}")]
    Io {
        /// The target's folder.
        folder: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
}

/// A target's folder, locked for this process until dropped.
#[derive(Debug)]
pub struct TargetFolder {
    path: PathBuf,
    _lock: File,
}

impl TargetFolder {
    /// Locks the folder of a target, creating it if it does not exist.
    ///
    /// # Errors
    /// Another server has it, or the file system's.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Io { folder: path.to_path_buf(), error };
        create_folder(path).map_err(failed)?;
        keep_others_out(path).map_err(failed)?;
        // Also if it exists: whoever created it may have died before its name was durable.
        sync_parent(path).map_err(failed)?;
        let name = path.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&name).map_err(failed)?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            let mut pid = String::new();
            let known = lock.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
            let holder = if known { format!(" (process {})", pid.trim()) } else { String::new() };
            return Err(FolderError::InUse { folder: path.to_path_buf(), holder });
        }
        // For the message above only: the lock is the kernel's, and ends with the process.
        let pid = format!("{}\n", std::process::id());
        lock.set_len(0).and_then(|()| lock.write_all(pid.as_bytes())).map_err(failed)?;
        Ok(Self { path: path.to_path_buf(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folder of the metadata index.
    pub fn index(&self) -> PathBuf {
        self.path.join("index")
    }

    /// Folder of the journal.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Folder of the objects.
    pub fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    /// The label; `None` if the target was never made, or not to the end.
    ///
    /// # Errors
    /// The file system's.
    pub fn label(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join("label")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(LABEL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Writes the label, whole or not at all, durably. Making a target ends with it.
    ///
    /// # Errors
    /// The file system's.
    pub fn set_label(&self, label: &[u8]) -> io::Result<()> {
        let new = self.path.join("label.new");
        let mut file = File::create(&new)?;
        file.write_all(label)?;
        file.sync_all()?;
        std::fs::rename(&new, self.path.join("label"))?;
        sync_folder(&self.path)
    }
}

/// Lets nobody but the owner of a target's folder enter it: what is below has modes of its own,
/// and they are not those of the files whose data it is.
fn keep_others_out(path: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

/// Creates a folder with its parents, all names durable.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_folder(parent)?;
    }
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    sync_parent(path)
}

/// Makes the name of a folder durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_folder(parent),
        None => sync_folder(Path::new(".")),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_second_server_is_refused_and_told_by_whom() {
        let scratch = Scratch::new("folder-lock");
        let folder = TargetFolder::open(&scratch.path().join("a/b")).unwrap();
        let second = TargetFolder::open(folder.path()).unwrap_err().to_string();
        assert!(second.contains(&format!("process {}", std::process::id())), "{second}");
        let path = folder.path().to_path_buf();
        drop(folder);
        TargetFolder::open(&path).unwrap();
    }

    #[test]
    fn others_are_kept_out_also_of_an_old_folder() {
        let scratch = Scratch::new("folder-mode");
        let path = scratch.path().join("a");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(TargetFolder::open(&path).unwrap());
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        drop(TargetFolder::open(&path).unwrap());
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn labels_are_replaced_whole() {
        let scratch = Scratch::new("folder-label");
        let folder = TargetFolder::open(scratch.path()).unwrap();
        assert_eq!(folder.label().unwrap(), None);
        folder.set_label(b"one").unwrap();
        folder.set_label(b"another").unwrap();
        assert_eq!(folder.label().unwrap().as_deref(), Some(&b"another"[..]));
    }
}
