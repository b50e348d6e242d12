//! Attributes, directory entries and file system statistics as file systems
//! state them, and their encoding for the kernel.
//!
//! Used by the replies and the directory buffer; pure.
use crate::abi;
use std::time::Duration;

/// A moment, as seconds since 1970 and nanoseconds (below 10^9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z; negative before.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

/// The type of a file, as in the upper bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileKind {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    Char = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    Block = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// The type named by `mode & S_IFMT`; none if the bits name no type.
    pub fn of_mode(mode: u32) -> Option<FileKind> {
        Some(match (mode >> 12) & 0xf {
            1 => FileKind::Fifo,
            2 => FileKind::Char,
            4 => FileKind::Directory,
            6 => FileKind::Block,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type's bits in a mode.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// What stat(2) tells of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number shown to programs.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Preferred size of reads and writes, in bytes.
    pub blksize: u32,
}

/// A name's inode and how long the kernel may believe in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryOut {
    /// The node the kernel will use in requests; 0 says that the name does not
    /// exist (and may be cached as such for `entry_valid`).
    pub ino: u64,
    /// Distinguishes uses of the same inode number.
    pub generation: u64,
    /// How long the name may be cached.
    pub entry_valid: Duration,
    /// How long the attributes may be cached.
    pub attr_valid: Duration,
    /// The attributes.
    pub attr: Attr,
}

/// What statfs(2) tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatfsOut {
    /// Size in units of `frsize`.
    pub blocks: u64,
    /// Free units.
    pub bfree: u64,
    /// Units free to ordinary users.
    pub bavail: u64,
    /// Number of inodes there can be.
    pub files: u64,
    /// Number of inodes still free.
    pub ffree: u64,
    /// Preferred size of reads and writes, in bytes.
    pub bsize: u32,
    /// Longest name, in bytes.
    pub namelen: u32,
    /// Size of a unit, in bytes.
    pub frsize: u32,
}

impl Attr {
    pub(crate) fn wire(&self) -> abi::AttrWire {
        abi::AttrWire {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            // The kernel takes these 64 bits as signed.
            atime: self.atime.sec.cast_unsigned(),
            mtime: self.mtime.sec.cast_unsigned(),
            ctime: self.ctime.sec.cast_unsigned(),
            atimensec: self.atime.nsec,
            mtimensec: self.mtime.nsec,
            ctimensec: self.ctime.nsec,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }

    pub(crate) fn wire_out(&self, valid: Duration) -> abi::AttrOut {
        abi::AttrOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            dummy: 0,
            attr: self.wire(),
        }
    }

    pub(crate) fn wire_statx(&self, valid: Duration, btime: Option<Time>) -> abi::StatxOut {
        let time = |t: Time| abi::SxTime { sec: t.sec, nsec: t.nsec, reserved: 0 };
        let basic = libc::STATX_BASIC_STATS;
        abi::StatxOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            mask: if btime.is_some() { basic | libc::STATX_BTIME } else { basic },
            blksize: self.blksize,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            mode: self.mode as u16,
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: time(self.atime),
            btime: time(btime.unwrap_or_default()),
            ctime: time(self.ctime),
            mtime: time(self.mtime),
            rdev_major: (self.rdev >> 8) & 0xfff,
            rdev_minor: (self.rdev & 0xff) | ((self.rdev >> 12) & 0xfff00),
            ..abi::StatxOut::default()
        }
    }
}

impl EntryOut {
    pub(crate) fn wire(&self) -> abi::EntryWire {
        abi::EntryWire {
            nodeid: self.ino,
            generation: self.generation,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.entry_valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: self.attr.wire(),
        }
    }
}

impl StatfsOut {
    pub(crate) fn wire(&self) -> abi::StatfsWire {
        abi::StatfsWire {
            blocks: self.blocks,
            bfree: self.bfree,
            bavail: self.bavail,
            files: self.files,
            ffree: self.ffree,
            bsize: self.bsize,
            namelen: self.namelen,
            frsize: self.frsize,
            ..abi::StatfsWire::default()
        }
    }
}
