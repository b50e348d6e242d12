//! A case, and the two sides of it: a folder of its own as one mount shows it, and as the other
//! does, with the words that cases are written in. What is not as it should be panics, and says
//! where in the case.

use std::ffi::{CString, OsString};
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, Mode, OFlags, RenameFlags, Timespec, XattrFlags, lgetxattr, llistxattr, lremovexattr,
    lsetxattr, mknodat, openat, renameat_with,
};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Something that one side does, and what the other must see of it at once.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What to do in a folder that is empty. It is done a second time with the sides changed.
    pub(crate) run: fn(&Side, &Side),
}

/// Declares these functions as the cases of a module.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[$crate::side::Case] =
            &[$($crate::side::Case { name: stringify!($name), run: $name }),*];
    };
}
pub(crate) use cases;

/// What several cases write.
pub(crate) const PAGE: usize = 4096;

/// The folder of a case on one of the mounts.
pub(crate) struct Side {
    pub(crate) mount: PathBuf,
    root: PathBuf,
}

impl Side {
    pub(crate) fn new(mount: &Path, folder: &str) -> Side {
        Side { mount: mount.to_owned(), root: mount.join(folder) }
    }

    /// The path of a name; `.` is the case's folder.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        if name == Path::new(".") { self.root.clone() } else { self.root.join(name) }
    }

    #[track_caller]
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        fs::write(self.at(name), content).unwrap();
    }

    /// Writes into a file that is there.
    #[track_caller]
    pub(crate) fn put(&self, name: &str, offset: usize, content: impl AsRef<[u8]>) {
        let file = File::options().write(true).open(self.at(name)).unwrap();
        file.write_all_at(content.as_ref(), offset as u64).unwrap();
    }

    #[track_caller]
    pub(crate) fn append(&self, name: &str, content: impl AsRef<[u8]>) {
        self.opened(name, OFlags::WRONLY | OFlags::APPEND).write_all(content.as_ref()).unwrap();
    }

    #[track_caller]
    pub(crate) fn cut(&self, name: &str, size: usize) {
        self.opened(name, OFlags::WRONLY).set_len(size as u64).unwrap();
    }

    #[track_caller]
    pub(crate) fn mkdir(&self, name: impl AsRef<Path>) {
        fs::create_dir(self.at(name)).unwrap();
    }

    #[track_caller]
    pub(crate) fn rmdir(&self, name: impl AsRef<Path>) {
        fs::remove_dir(self.at(name)).unwrap();
    }

    #[track_caller]
    pub(crate) fn unlink(&self, name: impl AsRef<Path>) {
        fs::remove_file(self.at(name)).unwrap();
    }

    #[track_caller]
    pub(crate) fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    pub(crate) fn rename_with(
        &self,
        from: &str,
        to: &str,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        renameat_with(CWD, self.at(from), CWD, self.at(to), flags)
    }

    #[track_caller]
    pub(crate) fn exchange(&self, one: &str, other: &str) {
        self.rename_with(one, other, RenameFlags::EXCHANGE).unwrap();
    }

    #[track_caller]
    pub(crate) fn link(&self, from: &str, to: &str) {
        fs::hard_link(self.at(from), self.at(to)).unwrap();
    }

    #[track_caller]
    pub(crate) fn symlink(&self, what: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(what, self.at(name)).unwrap();
    }

    #[track_caller]
    pub(crate) fn mknod(&self, name: &str, kind: rustix::fs::FileType, device: u64) {
        mknodat(CWD, self.at(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    }

    #[track_caller]
    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[track_caller]
    pub(crate) fn chown(&self, name: &str, uid: u32, gid: u32) {
        std::os::unix::fs::lchown(self.at(name), Some(uid), Some(gid)).unwrap();
    }

    #[track_caller]
    pub(crate) fn opened(&self, name: impl AsRef<Path>, flags: OFlags) -> File {
        File::from(self.open_with(name, flags).unwrap())
    }

    pub(crate) fn open_with(
        &self,
        name: impl AsRef<Path>,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        openat(CWD, self.at(name), flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
    }

    /// Opens for reading.
    #[track_caller]
    pub(crate) fn open(&self, name: impl AsRef<Path>) -> File {
        self.opened(name, OFlags::RDONLY)
    }

    /// Opens for reading and writing.
    #[track_caller]
    pub(crate) fn open_rw(&self, name: &str) -> File {
        self.opened(name, OFlags::RDWR)
    }

    #[track_caller]
    pub(crate) fn stat(&self, name: impl AsRef<Path>) -> Metadata {
        fs::symlink_metadata(self.at(name)).unwrap()
    }

    #[track_caller]
    pub(crate) fn kind(&self, name: &str) -> FileType {
        self.stat(name).file_type()
    }

    #[track_caller]
    pub(crate) fn mode(&self, name: &str) -> u32 {
        self.stat(name).mode() & 0o7777
    }

    #[track_caller]
    pub(crate) fn size(&self, name: &str) -> u64 {
        self.stat(name).len()
    }

    #[track_caller]
    pub(crate) fn nlink(&self, name: &str) -> u64 {
        self.stat(name).nlink()
    }

    #[track_caller]
    pub(crate) fn ino(&self, name: impl AsRef<Path>) -> u64 {
        self.stat(name).ino()
    }

    /// Nothing has this name, twice: the second time the kernel may know it.
    #[track_caller]
    pub(crate) fn missing(&self, name: impl AsRef<Path>) {
        let path = self.at(name);
        for _ in 0..2 {
            fails(fs::symlink_metadata(&path), Errno::NOENT);
        }
        fails(File::open(&path), Errno::NOENT);
    }

    /// A file of this content, twice: the second time from pages that the kernel has kept.
    #[track_caller]
    pub(crate) fn holds(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let (path, content) = (self.at(name), content.as_ref());
        assert_eq!(fs::metadata(&path).unwrap().len(), content.len() as u64, "its size");
        for _ in 0..2 {
            same_bytes(&fs::read(&path).unwrap(), content);
        }
    }

    /// A symbolic link to this.
    #[track_caller]
    pub(crate) fn points(&self, name: &str, to: impl AsRef<Path>) {
        assert_eq!(fs::read_link(self.at(name)).unwrap(), to.as_ref());
    }

    /// These names are in a folder, each once, and no others.
    #[track_caller]
    pub(crate) fn lists(&self, name: &str, names: &[&str]) {
        assert_eq!(names_in(&self.at(name)), names);
    }

    #[track_caller]
    pub(crate) fn set(&self, name: &str, attribute: &str, value: impl AsRef<[u8]>) {
        lsetxattr(self.at(name), attribute, value.as_ref(), XattrFlags::empty()).unwrap();
    }

    #[track_caller]
    pub(crate) fn unset(&self, name: &str, attribute: &str) {
        lremovexattr(self.at(name), attribute).unwrap();
    }

    /// The value of an extended attribute; nothing if it is not there.
    #[track_caller]
    pub(crate) fn get(&self, name: &str, attribute: &str) -> Option<Vec<u8>> {
        let mut value = vec![0; 64 << 10];
        match lgetxattr(self.at(name), attribute, &mut value) {
            Ok(len) => {
                value.truncate(len);
                Some(value)
            }
            Err(Errno::NODATA) => None,
            Err(error) => panic!("{attribute} of {name}: {error}"),
        }
    }

    /// The names of extended attributes.
    #[track_caller]
    pub(crate) fn attributes(&self, name: impl AsRef<Path>) -> Vec<String> {
        let mut names = vec![0; 64 << 10];
        let len = llistxattr(self.at(name), &mut names).unwrap();
        let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<_> =
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        names
    }

    /// Everything below the folder that can be seen, a line each. What takes the time of a reading
    /// or of an answer is not among it.
    #[track_caller]
    pub(crate) fn all(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut folders = vec![PathBuf::from(".")];
        while let Some(folder) = folders.pop() {
            lines.push(self.look(&folder));
            let entries = fs::read_dir(self.at(&folder)).unwrap().map(Result::unwrap);
            for entry in entries {
                let path = folder.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else {
                    lines.push(self.look(&path));
                }
            }
        }
        lines.sort();
        lines
    }

    #[track_caller]
    fn look(&self, path: &Path) -> String {
        let meta = self.stat(path);
        let kind = meta.file_type();
        let inside = if kind.is_symlink() {
            format!("-> {:?}", fs::read_link(self.at(path)).unwrap())
        } else if kind.is_file() {
            // Too much of nothing would take too long.
            let mut content = Vec::new();
            File::open(self.at(path)).unwrap().take(16 << 20).read_to_end(&mut content).unwrap();
            let sum = content
                .iter()
                .fold(7_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
            format!("{} bytes, sum {sum:x}", meta.len())
        } else {
            String::new()
        };
        format!(
            "{path:?} {} {:o} x{} {}:{} {:x} {:?} {:?} {inside}",
            meta.ino(),
            meta.mode(),
            meta.nlink(),
            meta.uid(),
            meta.gid(),
            meta.rdev(),
            modified(&meta),
            self.attributes(path),
        )
    }
}

/// Has both mounts know everything below the case's folder: names, attributes, pages, lists; and
/// descriptors that stay open as long as what this gives.
#[track_caller]
pub(crate) fn warm(a: &Side, b: &Side) -> Vec<File> {
    let mut open = Vec::new();
    for side in [a, b] {
        side.all();
        for line in side.all() {
            let path = line.split('"').nth(1).unwrap();
            // Only what can be opened without an effect, and whose name this gives as it is.
            let plain = |meta: Metadata| meta.is_file() || meta.is_dir();
            if fs::symlink_metadata(side.at(path)).is_ok_and(plain) {
                open.push(side.open(path));
            }
        }
    }
    open
}

/// Both sides show the same.
#[track_caller]
pub(crate) fn same(a: &Side, b: &Side) {
    assert_eq!(a.all(), b.all(), "in the end the mounts differ");
}

/// This does not work, for this reason.
#[track_caller]
pub(crate) fn fails<T, E: Into<io::Error>>(done: Result<T, E>, errno: Errno) {
    let failed = done.map(drop).map_err(|error| error.into().raw_os_error());
    assert_eq!(failed, Err(Some(errno.raw_os_error())), "it has to fail with {errno}");
}

/// These bytes are those, which nobody wants to see if there are many.
#[track_caller]
pub(crate) fn same_bytes(seen: &[u8], want: &[u8]) {
    assert_eq!(seen.len(), want.len(), "so many bytes");
    if let Some(at) = (0..want.len()).find(|at| seen[*at] != want[*at]) {
        let until =
            |all: &[u8]| String::from_utf8_lossy(&all[at..all.len().min(at + 20)]).into_owned();
        panic!("from byte {at} on it is {:?}, not {:?}", until(seen), until(want));
    }
}

/// An open file has this content, twice.
#[track_caller]
pub(crate) fn shows(file: &File, content: impl AsRef<[u8]>) {
    let content = content.as_ref();
    assert_eq!(file.metadata().unwrap().len(), content.len() as u64, "its size");
    for _ in 0..2 {
        same_bytes(&piece(file, 0, content.len() + 1), content);
    }
}

/// At most so many bytes of an open file.
#[track_caller]
pub(crate) fn piece(file: &File, offset: usize, at_most: usize) -> Vec<u8> {
    let mut bytes = vec![0; at_most];
    let mut len = 0;
    while len < at_most {
        match file.read_at(&mut bytes[len..], (offset + len) as u64).unwrap() {
            0 => break,
            read => len += read,
        }
    }
    bytes.truncate(len);
    bytes
}

/// So many bytes, which are others with another number.
pub(crate) fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 7 + at * 31 + number * 101) % 251) as u8).collect()
}

/// The names in a folder, without `.` and `..`, in order.
#[track_caller]
pub(crate) fn names_in(path: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

pub(crate) fn modified(meta: &Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

pub(crate) fn changed(meta: &Metadata) -> (i64, i64) {
    (meta.ctime(), meta.ctime_nsec())
}

pub(crate) fn time(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

/// Opens below a folder that is open, as who may not find the way to it has to.
pub(crate) fn open_in(folder: impl AsFd, name: &str, flags: OFlags) -> Result<File, Errno> {
    openat(folder, name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666)).map(File::from)
}

/// Does something as another user, with one group of the same number.
#[track_caller]
pub(crate) fn as_user<T: Send>(number: u32, what: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (user, group) =
                (rustix::fs::Uid::from_raw(number), rustix::fs::Gid::from_raw(number));
            set_thread_groups(&[group]).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
            what()
        });
        other.join()
    });
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes a file that must not be there.
pub(crate) fn make_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)
}

/// A name as the kernel takes it.
pub(crate) fn as_c(name: &Path) -> CString {
    CString::new(name.as_os_str().as_bytes()).unwrap()
}
