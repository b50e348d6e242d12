//! The target that does nothing (`-a DUMMY`): what is measured on it is the engine.

use std::io;
use std::path::Path;

use super::{FileInterface, Open, Space, Stat};

/// Nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

impl FileInterface for Null {
    type File = ();

    fn name(&self) -> &'static str {
        "DUMMY"
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn open(&self, _: &Path, _: Open) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn write_at(&self, (): &(), bytes: &[u8], _: u64) -> io::Result<usize> {
        Ok(std::hint::black_box(bytes).len())
    }

    #[inline]
    fn read_at(&self, (): &(), bytes: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(std::hint::black_box(bytes).len())
    }

    #[inline]
    fn seek(&self, (): &(), offset: u64) -> io::Result<()> {
        std::hint::black_box(offset);
        Ok(())
    }

    #[inline]
    fn write_next(&self, (): &(), bytes: &[u8]) -> io::Result<usize> {
        Ok(std::hint::black_box(bytes).len())
    }

    #[inline]
    fn read_next(&self, (): &(), bytes: &mut [u8]) -> io::Result<usize> {
        Ok(std::hint::black_box(bytes).len())
    }

    fn sync(&self, (): &()) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, (): ()) -> io::Result<()> {
        Ok(())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        std::hint::black_box(path);
        Ok(Stat::default())
    }

    fn make_node(&self, path: &Path) -> io::Result<()> {
        std::hint::black_box(path);
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        std::hint::black_box(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::hint::black_box(path);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::hint::black_box(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::hint::black_box((from, to));
        Ok(())
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        Ok(Space::default())
    }

    fn remove_tree(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }
}
