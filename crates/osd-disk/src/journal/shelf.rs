//! Where segments lie: a folder of files named by numbers.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::folder::{create_folder, sync_folder};
use crate::writeback;

const NAME_END: &str = ".segment";
/// Writes begin on pages.
const PAGE: usize = super::PAGE as usize;
/// Zeros are written in pieces of this size.
const ZEROS: usize = 1 << 20;

/// Files of a fixed length each. Calls may come from two threads, for different files.
pub(super) trait Shelf: Send + Sync + 'static {
    /// All files there are.
    fn list(&self) -> io::Result<Vec<u64>>;
    /// A new file full of zeros, durable with its name.
    fn create(&self, file: u64, len: u64) -> io::Result<()>;
    fn remove(&self, file: u64) -> io::Result<()>;
    fn len(&self, file: u64) -> io::Result<u64>;
    /// Returns how many bytes there were, at most as many as the buffer takes.
    fn read(&self, file: u64, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// What lies behind the bytes in their last page need not be kept.
    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written to the file durable.
    fn sync(&self, file: u64) -> io::Result<()>;
    /// Makes the names of all files durable.
    fn sync_names(&self) -> io::Result<()>;
}

/// The shelf in a folder. Keeps its few files open.
#[derive(Debug)]
pub(super) struct DirShelf {
    folder: PathBuf,
    files: Mutex<BTreeMap<u64, Arc<File>>>,
}

impl DirShelf {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        create_folder(folder)?;
        Self::open(folder)
    }

    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::metadata(folder)?;
        Ok(Self { folder: folder.to_path_buf(), files: Mutex::default() })
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join(format!("{file:08}{NAME_END}"))
    }

    fn file(&self, file: u64) -> io::Result<Arc<File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = files.get(&file) {
            return Ok(open.clone());
        }
        let open = Arc::new(OpenOptions::new().read(true).write(true).open(self.path(file))?);
        files.insert(file, open.clone());
        Ok(open)
    }

    fn try_create(&self, file: u64, len: u64) -> io::Result<()> {
        let new = OpenOptions::new().write(true).create_new(true).open(self.path(file))?;
        let zeros = vec![0; ZEROS];
        // Piece by piece, so that the sync of a group commit never stands behind all of it.
        let (mut written, mut at) = (0..0, 0);
        while at < len {
            let piece = usize::try_from(len - at).unwrap_or(ZEROS).min(ZEROS);
            new.write_all_at(zeros.get(..piece).unwrap_or_default(), at)?;
            let range = at..at + piece as u64;
            writeback::start(&new, range.clone());
            if !written.is_empty() {
                writeback::wait(&new, written)?;
            }
            at = range.end;
            written = range;
        }
        new.sync_all()?;
        sync_folder(&self.folder)
    }
}

impl Shelf for DirShelf {
    fn list(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(NAME_END));
            match number.and_then(|number| number.parse().ok()) {
                Some(number) => all.push(number),
                None => tracing::warn!(?name, "not a journal segment"),
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    fn create(&self, file: u64, len: u64) -> io::Result<()> {
        let result = self.try_create(file, len);
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            // Opening removes what is left if this fails, too.
            let _ = std::fs::remove_file(self.path(file));
        }
        result
    }

    fn remove(&self, file: u64) -> io::Result<()> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&file);
        std::fs::remove_file(self.path(file))
    }

    fn len(&self, file: u64) -> io::Result<u64> {
        Ok(self.file(file)?.metadata()?.len())
    }

    fn read(&self, file: u64, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let open = self.file(file)?;
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match open.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write(&self, file: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
        let open = self.file(file)?;
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % PAGE);
        if !whole.is_empty() {
            open.write_all_at(whole, at)?;
        }
        // The kernel would read a page that is written in part, if it does not have it, from
        // a disk that may be busy.
        let mut last = [0; PAGE];
        match last.get_mut(..rest.len()) {
            Some(start) if !rest.is_empty() => start.copy_from_slice(rest),
            _ => return Ok(()),
        }
        open.write_all_at(&last, at + whole.len() as u64)
    }

    fn sync(&self, file: u64) -> io::Result<()> {
        self.file(file)?.sync_data()
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_folder(&self.folder)
    }
}
