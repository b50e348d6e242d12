//! Files that ranks open and use together: an interface that whoever started the ranks brings
//! with them (MPI-IO), since this library links none.
//!
//! Names, directories and room are the file system's all the same, and are asked of it.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use super::{FileInterface, Open, Posix, Space, Stat};

/// How a run uses its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// All ranks open the same file, and do so together; else each opens one alone.
    pub shared: bool,
    /// Transfers are made by all ranks that have opened the file, together.
    pub collective: bool,
    /// Bytes that a file gets when it is opened for writing, before anything is written.
    pub preallocate: Option<u64>,
    /// What the interface is told about files, in its own words.
    pub hints: Vec<(String, String)>,
    /// Whether the root shows these, and what came of them.
    pub show_hints: bool,
    /// Each rank sees only its part of a file.
    pub view: Option<View>,
}

/// The parts of a file: it consists of segments, these of a block of each rank, and a block of
/// transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Bytes of a block.
    pub block: u64,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Ranks that have a part: 1 of a file that one has alone.
    pub ranks: u64,
}

impl View {
    /// Which transfer of its part an offset of the file is, for a rank that has it.
    pub fn transfer_at(&self, offset: u64) -> u64 {
        let (segment, inside) = (offset / (self.block * self.ranks), offset % self.block);
        (segment * self.block + inside) / self.transfer
    }
}

/// What opens them.
pub trait ParallelFiles: Sync {
    /// Its name, as `-a` takes it.
    fn name(&self) -> &'static str;

    /// Its version, as IOR prints it.
    fn version(&self) -> String;

    /// Opens a file: with [`Usage::shared`], all ranks do.
    fn open(&self, path: &Path, how: Open, usage: &Usage) -> io::Result<Box<dyn ParallelFile>>;

    /// Removes a file; one rank does.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub trait ParallelFile: Debug {
    /// Writes bytes; how many. With [`Usage::collective`] all ranks call it, and all is written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reads bytes; how many, 0 at the end. With [`Usage::collective`] likewise.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Makes its data durable; all ranks that have opened it call this.
    fn sync(&self) -> io::Result<()>;

    /// Closes it, and says what that says; all ranks that have opened it call this.
    fn close(self: Box<Self>) -> io::Result<()>;
}

/// The same as the engines use it.
#[derive(Clone)]
pub struct Parallel<'a> {
    files: &'a dyn ParallelFiles,
    usage: Usage,
}

impl<'a> Parallel<'a> {
    /// Files that are used in this way.
    pub fn new(files: &'a dyn ParallelFiles, usage: Usage) -> Self {
        Self { files, usage }
    }
}

/// What no engine asks of such files.
fn unknown() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl FileInterface for Parallel<'_> {
    type File = Box<dyn ParallelFile>;

    fn name(&self) -> &'static str {
        self.files.name()
    }

    fn version(&self) -> String {
        self.files.version()
    }

    fn hints(&self) -> String {
        let hints = self.usage.hints.iter().map(|(name, value)| format!("{name}={value}"));
        hints.collect::<Vec<_>>().join(",")
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Self::File> {
        self.files.open(path, how, &self.usage)
    }

    #[inline]
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    #[inline]
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(bytes, offset)
    }

    fn seek(&self, _: &Self::File, _: u64) -> io::Result<()> {
        Err(unknown())
    }

    fn write_next(&self, _: &Self::File, _: &[u8]) -> io::Result<usize> {
        Err(unknown())
    }

    fn read_next(&self, _: &Self::File, _: &mut [u8]) -> io::Result<usize> {
        Err(unknown())
    }

    fn sync(&self, file: &Self::File) -> io::Result<()> {
        file.sync()
    }

    fn close(&self, file: Self::File) -> io::Result<()> {
        file.close()
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Posix.stat(path)
    }

    fn make_node(&self, path: &Path) -> io::Result<()> {
        Posix.make_node(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        Posix.make_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Posix.remove_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Posix.rename(from, to)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        Posix.space(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        Posix.remove_tree(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_its_transfers_through_all_segments() {
        let view = View { block: 64, transfer: 16, ranks: 3 };
        // The second rank's part: bytes 64 to 127 of each 192.
        let offsets = [64, 80, 96, 112, 256, 272];
        assert_eq!(offsets.map(|offset| view.transfer_at(offset)), [0, 1, 2, 3, 4, 5]);
        let alone = View { ranks: 1, ..view };
        assert_eq!([0, 16, 64, 128].map(|offset| alone.transfer_at(offset)), [0, 1, 4, 8]);
    }
}
