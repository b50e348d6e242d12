//! Any directory, through the C library's calls: what intercepts those (a preloaded library)
//! is measured like a mount. That is why system calls are not made past it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FileType, Mode};

use super::{FileInterface, Open, Space, Stat};
use crate::sys;

/// Mode of files, as the original tools make them.
const FILE_MODE: u32 = 0o664;
/// Mode of directories.
const DIR_MODE: u32 = 0o775;

/// System calls on files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Posix;

impl FileInterface for Posix {
    type File = File;

    fn name(&self) -> &'static str {
        "POSIX"
    }

    #[inline]
    fn seeks(&self) -> bool {
        true
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<File> {
        let flags = if how.direct { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(how.write).create(how.create).truncate(how.empty).mode(FILE_MODE);
        options.custom_flags(flags).open(path)
    }

    #[inline]
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    #[inline]
    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(bytes, offset)
    }

    #[inline]
    fn seek(&self, mut file: &File, offset: u64) -> io::Result<()> {
        file.seek(io::SeekFrom::Start(offset)).map(drop)
    }

    #[inline]
    fn write_next(&self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    #[inline]
    fn read_next(&self, mut file: &File, bytes: &mut [u8]) -> io::Result<usize> {
        file.read(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn close(&self, file: File) -> io::Result<()> {
        sys::close_checked(file.into())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = sys::lstat(path)?;
        let is_dir = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(Stat { size: found.st_size.unsigned_abs(), is_dir, inode: found.st_ino })
    }

    fn make_node(&self, path: &Path) -> io::Result<()> {
        let mode = Mode::from_raw_mode(FILE_MODE);
        Ok(rustix::fs::mknodat(rustix::fs::CWD, path, FileType::RegularFile, mode, 0)?)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(DIR_MODE).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let found = rustix::fs::statvfs(path)?;
        Ok(Space {
            bytes: found.f_blocks * found.f_frsize,
            bytes_free: found.f_bfree * found.f_frsize,
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        })
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}
