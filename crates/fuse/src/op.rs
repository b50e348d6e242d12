//! Requests as file systems see them: typed, owned, already checked.
//!
//! Made by the decoder, consumed by [`crate::Filesystem::dispatch`]. Names are
//! opaque bytes.
use crate::attr::Time;
use bytes::Bytes;
use std::fmt;
use std::ops::Deref;

/// Names up to this many bytes are kept without allocation.
const NAME_INLINE: usize = 46;

/// A name (or symbolic link's target, or attribute's name): opaque bytes
/// without NUL. Short ones need no allocation.
#[derive(Clone)]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; NAME_INLINE] },
    Heap(Box<[u8]>),
}

impl Name {
    /// Copies `bytes`.
    pub fn new(bytes: &[u8]) -> Name {
        let mut inline = [0; NAME_INLINE];
        match inline.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Name(Repr::Inline { len: bytes.len() as u8, bytes: inline })
            }
            None => Name(Repr::Heap(bytes.into())),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kernel's number of the request; INTERRUPT names it.
    pub unique: u64,
    /// The caller's effective user (fsuid); 0 where there is no caller.
    pub uid: u32,
    /// The caller's effective group (fsgid).
    pub gid: u32,
    /// The caller's thread id in the mount's pid name space; 0 for the kernel.
    pub pid: u32,
    /// A supplementary group of the caller equal to the parent's group; sent
    /// with requests that create, if [`crate::Caps::CREATE_SUPP_GROUP`] is on.
    pub supp_group: Option<u32>,
    /// What is asked.
    pub op: Op,
}

/// The changes of a SETATTR: what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetattrIn {
    /// New permissions (with type bits as the kernel has them).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New access time; ignored when `atime_now`.
    pub atime: Option<Time>,
    /// New modification time; ignored when `mtime_now`.
    pub mtime: Option<Time>,
    /// New change time (only with write-back caching).
    pub ctime: Option<Time>,
    /// The access time becomes the server's now.
    pub atime_now: bool,
    /// The modification time becomes the server's now.
    pub mtime_now: bool,
    /// The open file the change came through.
    pub fh: Option<u64>,
    /// Who truncates, for mandatory locking.
    pub lock_owner: Option<u64>,
    /// Set-uid and set-gid bits are to be cleared.
    pub kill_suidgid: bool,
}

/// A byte-range or BSD lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for the end of the file.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: u32,
    /// Process that holds it.
    pub pid: u32,
}

/// The arguments of an ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoctlIn {
    /// The open file.
    pub fh: u64,
    /// FUSE_IOCTL_* bits.
    pub flags: u32,
    /// The command.
    pub cmd: u32,
    /// The caller's argument, as a number.
    pub arg: u64,
    /// The bytes the argument points at, for commands that write.
    pub data: Bytes,
    /// Room for the answer, in bytes.
    pub out_size: u32,
}

/// What is asked. Inode numbers are the kernel's node ids; sizes and offsets
/// are bytes; `flags` of opens are the O_* bits of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields carry the system calls' own argument names")]
pub enum Op {
    /// Finds a name. Answer: entry.
    Lookup { parent: u64, name: Name },
    /// The kernel forgets `nlookup` references. No answer.
    Forget { ino: u64, nlookup: u64 },
    /// Several FORGETs: (inode, nlookup). No answer.
    BatchForget { items: Vec<(u64, u64)> },
    /// Attributes. Answer: attr.
    Getattr { ino: u64, fh: Option<u64> },
    /// Attributes with creation time. Answer: statx.
    Statx { ino: u64, fh: Option<u64>, flags: u32, mask: u32 },
    /// Changes attributes. Answer: attr.
    Setattr { ino: u64, attr: SetattrIn },
    /// Answer: bytes.
    Readlink { ino: u64 },
    /// Answer: entry.
    Symlink { parent: u64, name: Name, target: Name },
    /// Answer: entry.
    Mknod { parent: u64, name: Name, mode: u32, rdev: u32, umask: u32 },
    /// Answer: entry.
    Mkdir { parent: u64, name: Name, mode: u32, umask: u32 },
    /// Answer: ok.
    Unlink { parent: u64, name: Name },
    /// Answer: ok.
    Rmdir { parent: u64, name: Name },
    /// RENAME and RENAME2; `flags` as in renameat2(2). Answer: ok.
    Rename { parent: u64, name: Name, new_parent: u64, new_name: Name, flags: u32 },
    /// Answer: entry.
    Link { ino: u64, new_parent: u64, new_name: Name },
    /// Answer: opened.
    Open { ino: u64, flags: u32, kill_suidgid: bool },
    /// Answer: data; shorter than `size` means end of file.
    Read { ino: u64, fh: u64, offset: u64, size: u32, flags: u32, lock_owner: Option<u64> },
    /// `data` lies in the transport's own buffer: drop every clone before the
    /// reply is completed, or the answer waits for it. Answer: written.
    Write {
        ino: u64,
        fh: u64,
        offset: u64,
        data: Bytes,
        flags: u32,
        write_flags: u32,
        lock_owner: Option<u64>,
    },
    /// Answer: statfs.
    Statfs { ino: u64 },
    /// The last descriptor of an open file is gone. Answer: ok.
    Release { ino: u64, fh: u64, flags: u32, lock_owner: u64, flush: bool, flock_unlock: bool },
    /// Answer: ok.
    Fsync { ino: u64, fh: u64, datasync: bool },
    /// `flags`: XATTR_CREATE, XATTR_REPLACE. Answer: ok.
    Setxattr { ino: u64, name: Name, value: Bytes, flags: u32, acl_kill_sgid: bool },
    /// `size` 0 asks for the length. Answer: xattr_size or bytes.
    Getxattr { ino: u64, name: Name, size: u32 },
    /// `size` 0 asks for the length. Answer: xattr_size or bytes (names, each
    /// ended by NUL).
    Listxattr { ino: u64, size: u32 },
    /// Answer: ok.
    Removexattr { ino: u64, name: Name },
    /// A descriptor was closed. Answer: ok.
    Flush { ino: u64, fh: u64, lock_owner: u64 },
    /// Answer: opened.
    Opendir { ino: u64, flags: u32 },
    /// Entries after the cookie `offset`. Answer: directory.
    Readdir { ino: u64, fh: u64, offset: u64, size: u32 },
    /// Entries with attributes after the cookie `offset`. Answer: directory.
    Readdirplus { ino: u64, fh: u64, offset: u64, size: u32 },
    /// Answer: ok.
    Releasedir { ino: u64, fh: u64, flags: u32 },
    /// Answer: ok.
    Fsyncdir { ino: u64, fh: u64, datasync: bool },
    /// Who would be in the way? Answer: lk.
    Getlk { ino: u64, fh: u64, owner: u64, lock: FileLock, flock: bool },
    /// Takes or gives back a lock; with `wait` the answer comes when it is
    /// granted, or EINTR after INTERRUPT. Answer: ok.
    Setlk { ino: u64, fh: u64, owner: u64, lock: FileLock, flock: bool, wait: bool },
    /// Only without default permissions. Answer: ok.
    Access { ino: u64, mask: u32 },
    /// Creates and opens. Answer: created.
    Create { parent: u64, name: Name, mode: u32, flags: u32, umask: u32 },
    /// The caller of request `unique` got a signal. No answer.
    Interrupt { unique: u64 },
    /// Answer: ioctl.
    Ioctl { ino: u64, arg: IoctlIn },
    /// `mode` as in fallocate(2). Answer: ok.
    Fallocate { ino: u64, fh: u64, offset: u64, length: u64, mode: u32 },
    /// SEEK_DATA and SEEK_HOLE. Answer: lseek.
    Lseek { ino: u64, fh: u64, offset: u64, whence: u32 },
    /// Copies inside the file system. Answer: copied.
    CopyFileRange {
        ino_in: u64,
        fh_in: u64,
        off_in: u64,
        ino_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    },
    /// Creates a nameless file in the directory and opens it. Answer: created.
    Tmpfile { parent: u64, mode: u32, flags: u32, umask: u32 },
    /// syncfs(2). Answer: ok.
    Syncfs { ino: u64 },
}

impl Op {
    /// Puts one inode in the place of another, wherever it is named but in FORGETs.
    pub fn replace_ino(&mut self, from: u64, to: u64) {
        let replace = |ino: &mut u64| {
            if *ino == from {
                *ino = to;
            }
        };
        match self {
            Op::Lookup { parent, .. }
            | Op::Symlink { parent, .. }
            | Op::Mknod { parent, .. }
            | Op::Mkdir { parent, .. }
            | Op::Unlink { parent, .. }
            | Op::Rmdir { parent, .. }
            | Op::Create { parent, .. }
            | Op::Tmpfile { parent, .. } => replace(parent),
            Op::Rename { parent, new_parent, .. } => {
                replace(parent);
                replace(new_parent);
            }
            Op::Link { ino, new_parent, .. } => {
                replace(ino);
                replace(new_parent);
            }
            Op::CopyFileRange { ino_in, ino_out, .. } => {
                replace(ino_in);
                replace(ino_out);
            }
            Op::Getattr { ino, .. }
            | Op::Statx { ino, .. }
            | Op::Setattr { ino, .. }
            | Op::Readlink { ino }
            | Op::Open { ino, .. }
            | Op::Read { ino, .. }
            | Op::Write { ino, .. }
            | Op::Statfs { ino }
            | Op::Release { ino, .. }
            | Op::Fsync { ino, .. }
            | Op::Setxattr { ino, .. }
            | Op::Getxattr { ino, .. }
            | Op::Listxattr { ino, .. }
            | Op::Removexattr { ino, .. }
            | Op::Flush { ino, .. }
            | Op::Opendir { ino, .. }
            | Op::Readdir { ino, .. }
            | Op::Readdirplus { ino, .. }
            | Op::Releasedir { ino, .. }
            | Op::Fsyncdir { ino, .. }
            | Op::Getlk { ino, .. }
            | Op::Setlk { ino, .. }
            | Op::Access { ino, .. }
            | Op::Ioctl { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::Lseek { ino, .. }
            | Op::Syncfs { ino } => replace(ino),
            Op::Forget { .. } | Op::BatchForget { .. } | Op::Interrupt { .. } => {}
        }
    }
}
