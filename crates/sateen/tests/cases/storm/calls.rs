//! The calls of a storm, and how each may end while others do the same.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags, chmod,
    fallocate, getxattr, link, lstat, mkdir, mknodat, openat, readlink, removexattr, rename,
    renameat_with, rmdir, setxattr, stat, symlink, unlinkat,
};
use rustix::io::Errno;
use sateen_testkit::random::Random;

/// The largest offset of a write, and the largest write.
const OFFSET_MAX: u64 = 100_000;
const BYTES_MAX: u64 = 20_000;
/// Descriptors that a program keeps open.
const HELD_MAX: usize = 5;
const FOLDERS: [&str; 3] = ["d0", "d1", "d2"];
const NAMES: [&str; 11] = ["f0", "f1", "f2", "f3", "f4", "f5", "d0", "d1", "d2", "l0", "l1"];
const TARGETS: [&str; 6] = ["f0", "d0", "d1/f1", "../f2", "l0", "nowhere/at/all"];
const ATTRIBUTES: [&str; 2] = ["user.a", "user.b"];

/// One that makes such calls.
pub(super) struct Program {
    root: PathBuf,
    pub(super) random: Random,
    held: Vec<File>,
}

type Done = Result<(), Errno>;

/// A kind of call.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) call: fn(&mut Program) -> Done,
    /// Beside what any way to a name may end with.
    ends: &'static [Errno],
}

/// Somebody has removed, moved or replaced what the way leads through.
const ON_THE_WAY: [Errno; 4] = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, STALE];

impl Kind {
    const fn new(
        name: &'static str,
        call: fn(&mut Program) -> Done,
        ends: &'static [Errno],
    ) -> Kind {
        Kind { name, call, ends }
    }

    pub(super) fn may_end_with(&self, errno: Errno) -> bool {
        ON_THE_WAY.contains(&errno) || self.ends.contains(&errno)
    }
}

/// A call by a path that others replace again and again may be told so, and a directory that
/// another mount has removed cannot be listed: docs/semantics.md.
const STALE: Errno = Errno::STALE;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("create", Program::create, &[Errno::ISDIR]),
    Kind::new("create new", Program::create_new, &[Errno::EXIST]),
    Kind::new("mknod", Program::mknod, &[Errno::EXIST]),
    Kind::new("mkdir", Program::mkdir, &[Errno::EXIST]),
    Kind::new("mkdir", Program::mkdir, &[Errno::EXIST]),
    Kind::new("symlink", Program::symlink, &[Errno::EXIST]),
    Kind::new("link", Program::link, &[Errno::EXIST, Errno::PERM]),
    Kind::new("unlink", Program::unlink, &[Errno::ISDIR]),
    Kind::new("rmdir", Program::rmdir, &[Errno::NOTEMPTY]),
    Kind::new("rename", Program::rename, &[Errno::ISDIR, Errno::NOTEMPTY, Errno::INVAL]),
    Kind::new("rename", Program::rename, &[Errno::ISDIR, Errno::NOTEMPTY, Errno::INVAL]),
    Kind::new("exchange", Program::exchange, &[Errno::INVAL]),
    Kind::new("rename new", Program::rename_new, &[Errno::EXIST, Errno::INVAL]),
    Kind::new("open", Program::open, &[Errno::ISDIR]),
    Kind::new("open", Program::open, &[Errno::ISDIR]),
    Kind::new("nameless", Program::nameless, &[Errno::EXIST]),
    Kind::new("truncate", Program::truncate, &[Errno::ISDIR]),
    Kind::new("append", Program::append, &[Errno::ISDIR]),
    Kind::new("read", Program::read, &[Errno::ISDIR]),
    Kind::new("list", Program::list, &[]),
    Kind::new("stat", Program::stat, &[]),
    Kind::new("lstat", Program::lstat, &[]),
    Kind::new("readlink", Program::readlink, &[Errno::INVAL]),
    Kind::new("chmod", Program::chmod, &[]),
    Kind::new("setxattr", Program::setxattr, &[]),
    Kind::new("getxattr", Program::getxattr, &[Errno::NODATA]),
    Kind::new("removexattr", Program::removexattr, &[Errno::NODATA]),
    Kind::new("held: write", Program::held_write, &[]),
    Kind::new("held: read", Program::held_read, &[]),
    Kind::new("held: truncate", Program::held_truncate, &[]),
    Kind::new("held: punch", Program::held_punch, &[]),
    Kind::new("held: sync", Program::held_sync, &[]),
    Kind::new("held: close", Program::held_close, &[]),
];

/// Of a file that is open nothing may fail, whatever has become of its name.
fn surely<T, E: Into<io::Error>>(what: &str, done: Result<T, E>) -> T {
    done.unwrap_or_else(|error| panic!("{what} of an open file: {}", error.into()))
}

impl Program {
    pub(super) fn new(root: &Path, random: Random) -> Program {
        Program { root: root.to_owned(), random, held: Vec::new() }
    }

    /// A name in one of a few directories.
    fn path(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..self.random.below(3) {
            path.push(FOLDERS[self.random.below(3) as usize]);
        }
        path.join(NAMES[self.random.below(NAMES.len() as u64) as usize])
    }

    fn folder(&mut self) -> PathBuf {
        let path = self.path();
        path.parent().unwrap_or(&self.root).to_owned()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.random.below(BYTES_MAX) as usize;
        vec![self.random.below(256) as u8; len]
    }

    fn offset(&mut self) -> u64 {
        self.random.below(OFFSET_MAX)
    }

    fn opened(&mut self, flags: OFlags) -> Result<File, Errno> {
        let path = self.path();
        openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).map(File::from)
    }

    /// Writes into what was just opened.
    fn write_into(&mut self, file: &File) {
        let (offset, bytes) = (self.offset(), self.bytes());
        surely("write", file.write_all_at(&bytes, offset));
    }

    fn create(&mut self) -> Done {
        let file = self.opened(OFlags::CREATE | OFlags::RDWR)?;
        self.write_into(&file);
        Ok(())
    }

    fn create_new(&mut self) -> Done {
        let file = self.opened(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
        self.write_into(&file);
        self.keep(file);
        Ok(())
    }

    fn keep(&mut self, file: File) {
        if self.held.len() == HELD_MAX {
            let one = self.random.below(HELD_MAX as u64) as usize;
            self.held.swap_remove(one);
        }
        self.held.push(file);
    }

    fn mknod(&mut self) -> Done {
        mknodat(CWD, self.path(), FileType::RegularFile, Mode::from_raw_mode(0o600), 0)
    }

    fn mkdir(&mut self) -> Done {
        mkdir(self.path(), Mode::from_raw_mode(0o755))
    }

    fn symlink(&mut self) -> Done {
        let target = TARGETS[self.random.below(TARGETS.len() as u64) as usize];
        symlink(target, self.path())
    }

    fn link(&mut self) -> Done {
        let (from, to) = (self.path(), self.path());
        link(from, to)
    }

    fn unlink(&mut self) -> Done {
        unlinkat(CWD, self.path(), AtFlags::empty())
    }

    fn rmdir(&mut self) -> Done {
        rmdir(self.path())
    }

    fn rename(&mut self) -> Done {
        let (from, to) = (self.path(), self.path());
        rename(from, to)
    }

    fn rename_as(&mut self, flags: RenameFlags) -> Done {
        let (from, to) = (self.path(), self.path());
        renameat_with(CWD, from, CWD, to, flags)
    }

    fn exchange(&mut self) -> Done {
        self.rename_as(RenameFlags::EXCHANGE)
    }

    fn rename_new(&mut self) -> Done {
        self.rename_as(RenameFlags::NOREPLACE)
    }

    fn open(&mut self) -> Done {
        let file = self.opened(OFlags::RDWR)?;
        self.keep(file);
        Ok(())
    }

    /// A file without a name, which gets one.
    fn nameless(&mut self) -> Done {
        let folder = self.folder();
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, folder, flags, Mode::from_raw_mode(0o600))?);
        self.write_into(&file);
        let to = self.path();
        let linked = rustix::fs::linkat(&file, "", CWD, to, AtFlags::EMPTY_PATH);
        self.keep(file);
        linked
    }

    fn truncate(&mut self) -> Done {
        let file = self.opened(OFlags::WRONLY | OFlags::TRUNC)?;
        let size = self.offset();
        surely("truncate", file.set_len(size));
        Ok(())
    }

    fn append(&mut self) -> Done {
        let path = self.path();
        let opened = OpenOptions::new().append(true).open(path);
        let mut file = opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // Files must not grow for ever.
        if surely("stat", file.metadata()).len() < OFFSET_MAX {
            let bytes = self.bytes();
            surely("append", io::Write::write_all(&mut file, &bytes));
        }
        Ok(())
    }

    fn read(&mut self) -> Done {
        let file = self.opened(OFlags::RDONLY)?;
        let mut bytes = vec![0; 2 * OFFSET_MAX as usize];
        // First: a directory is told apart by this, and one that the other mount has removed
        // cannot be looked at any more (docs/semantics.md).
        match file.read_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(Errno::ISDIR),
            read => surely("read", read),
        };
        surely("stat", file.metadata());
        Ok(())
    }

    fn list(&mut self) -> Done {
        let path = self.folder();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut seen = std::collections::BTreeSet::new();
        for entry in Dir::new(openat(CWD, path, flags, Mode::empty())?)? {
            let name = entry?.file_name().to_owned();
            assert!(seen.insert(name.clone()), "{name:?} is listed twice");
        }
        Ok(())
    }

    fn stat(&mut self) -> Done {
        stat(self.path()).map(drop)
    }

    fn lstat(&mut self) -> Done {
        lstat(self.path()).map(drop)
    }

    fn readlink(&mut self) -> Done {
        readlink(self.path(), Vec::new()).map(drop)
    }

    fn chmod(&mut self) -> Done {
        let mode = Mode::from_raw_mode(0o700 | self.random.below(0o100) as u32);
        chmod(self.path(), mode)
    }

    fn attribute(&mut self) -> &'static str {
        ATTRIBUTES[self.random.below(2) as usize]
    }

    fn setxattr(&mut self) -> Done {
        let (name, value) = (self.attribute(), vec![b'v'; self.random.below(100) as usize]);
        setxattr(self.path(), name, &value, XattrFlags::empty())
    }

    fn getxattr(&mut self) -> Done {
        let name = self.attribute();
        getxattr(self.path(), name, &mut [0; 100]).map(drop)
    }

    fn removexattr(&mut self) -> Done {
        let name = self.attribute();
        removexattr(self.path(), name)
    }

    /// One of the descriptors that are open; nothing to be done if there is none.
    fn held(&mut self) -> Result<File, Errno> {
        let file = self.random.pick(&self.held).ok_or(Errno::NOENT)?;
        Ok(surely("dup", file.try_clone()))
    }

    fn held_write(&mut self) -> Done {
        let file = self.held()?;
        self.write_into(&file);
        Ok(())
    }

    fn held_read(&mut self) -> Done {
        let file = self.held()?;
        let mut bytes = vec![0; BYTES_MAX as usize];
        let offset = self.offset();
        surely("read", file.read_at(&mut bytes, offset));
        surely("stat", file.metadata());
        Ok(())
    }

    fn held_truncate(&mut self) -> Done {
        let (file, size) = (self.held()?, self.offset());
        surely("truncate", file.set_len(size));
        Ok(())
    }

    fn held_punch(&mut self) -> Done {
        let (file, offset) = (self.held()?, self.offset());
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = 1 + self.random.below(BYTES_MAX);
        surely("fallocate", fallocate(&file, hole, offset, len));
        Ok(())
    }

    fn held_sync(&mut self) -> Done {
        surely("fsync", self.held()?.sync_all());
        Ok(())
    }

    fn held_close(&mut self) -> Done {
        self.held.pop().map(drop).ok_or(Errno::NOENT)
    }
}
