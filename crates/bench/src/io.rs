//! What is measured, behind one interface: files and names as the engines use them.
//!
//! Engines are generic over it, so that a call of theirs is a call of the target's and nothing
//! between. [`Posix`] is any directory; [`Parallel`] the same through an interface that the ranks
//! bring with them (MPI-IO); [`Null`] does nothing, and so shows what the engines themselves
//! cost.

mod null;
mod parallel;
mod posix;
#[cfg(test)]
pub(crate) mod slow;

use std::io;
use std::path::Path;

pub use null::Null;
pub use parallel::{Parallel, ParallelFile, ParallelFiles, Usage, View};
pub use posix::Posix;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Open {
    /// Writing, too, rather than reading alone.
    pub write: bool,
    /// Make it if it is not there.
    pub create: bool,
    /// Take away what is in it, of a file that one rank has for itself.
    pub empty: bool,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Of a file that all ranks share: the rank whose part is used.
    pub part: u64,
}

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Bytes of a file.
    pub size: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its number in its file system; 0 where there are none.
    pub inode: u64,
}

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes of all.
    pub bytes: u64,
    /// Bytes that are free.
    pub bytes_free: u64,
    /// Inodes of all.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}

/// A file system, or what stands in for one.
pub trait FileInterface: Sync {
    /// An open file.
    type File;

    /// Its name, as `-a` takes it.
    fn name(&self) -> &'static str;

    /// Its version, if it has one.
    fn version(&self) -> String {
        String::new()
    }

    /// What it is told about files, in its own words: names and values with commas between.
    fn hints(&self) -> String {
        String::new()
    }

    /// Whether what is written can be read again.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Whether the original tools seek before each transfer of this interface and then move the
    /// next bytes, rather than say the offset in the same call. Their rates include the seek.
    fn seeks(&self) -> bool {
        false
    }

    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Self::File>;

    /// Writes bytes; how many.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reads bytes; how many, 0 at the end.
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Moves to where the next bytes are written or read without an offset.
    fn seek(&self, file: &Self::File, offset: u64) -> io::Result<()>;

    /// Writes the next bytes; how many.
    fn write_next(&self, file: &Self::File, bytes: &[u8]) -> io::Result<usize>;

    /// Reads the next bytes; how many, 0 at the end.
    fn read_next(&self, file: &Self::File, bytes: &mut [u8]) -> io::Result<usize>;

    /// Makes a file's data durable.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Closes a file, and says what that says.
    fn close(&self, file: Self::File) -> io::Result<()>;

    /// Looks at a name.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Makes an empty file without opening it.
    fn make_node(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Gives another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The room of the file system below a path.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Removes a directory with everything below it; for what a broken run leaves.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Whether there is such a name.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
