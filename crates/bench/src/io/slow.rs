//! Nothing, but some calls of it take their time: for tests.

use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::{FileInterface, Null, Open, Space, Stat};

/// How long calls take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slow {
    /// Writing.
    pub(crate) write: Duration,
    /// Making a file durable.
    pub(crate) sync: Duration,
    /// Closing.
    pub(crate) close: Duration,
    /// Making a node.
    pub(crate) node: Duration,
}

impl FileInterface for Slow {
    type File = ();

    fn name(&self) -> &'static str {
        "SLOW"
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn open(&self, _: &Path, _: Open) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&self, (): &(), bytes: &[u8], _: u64) -> io::Result<usize> {
        sleep(self.write);
        Ok(bytes.len())
    }

    fn read_at(&self, file: &(), bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Null.read_at(file, bytes, offset)
    }

    fn seek(&self, file: &(), offset: u64) -> io::Result<()> {
        Null.seek(file, offset)
    }

    fn write_next(&self, file: &(), bytes: &[u8]) -> io::Result<usize> {
        self.write_at(file, bytes, 0)
    }

    fn read_next(&self, file: &(), bytes: &mut [u8]) -> io::Result<usize> {
        Null.read_next(file, bytes)
    }

    fn sync(&self, (): &()) -> io::Result<()> {
        sleep(self.sync);
        Ok(())
    }

    fn close(&self, file: ()) -> io::Result<()> {
        sleep(self.close);
        Null.close(file)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Null.stat(path)
    }

    fn make_node(&self, path: &Path) -> io::Result<()> {
        sleep(self.node);
        Null.make_node(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        Null.make_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Null.remove_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Null.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Null.rename(from, to)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        Null.space(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        Null.remove_tree(path)
    }
}
