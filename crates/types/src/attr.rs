//! Attributes of a file, as the MDT keeps them and `stat` shows them.

use crate::{Fid, Timespec};

/// What kind of file an inode is; the values are `S_IFMT >> 12`, which is also `d_type`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    /// FIFO.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// From the type bits of a mode, or `None` for an impossible pattern.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_dtype((mode >> 12 & 0xf) as u8)
    }

    /// From a `d_type`.
    pub const fn from_dtype(dtype: u8) -> Option<FileKind> {
        Some(match dtype {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// The attributes of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The file.
    pub fid: Fid,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Hard links; for a directory 2 plus its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project, for quota.
    pub projid: u32,
    /// Device number of a device node, in Linux's encoding.
    pub rdev: u32,
    /// Bytes. Not to be trusted while `size_stale`.
    pub size: u64,
    /// 512-byte blocks, as last reported.
    pub blocks: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the data.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Birth.
    pub btime: Timespec,
    /// Counts changes; grows with every transaction on the inode.
    pub version: u64,
    /// The layout's generation: 0 until the file has one.
    pub layout_gen: u32,
    /// A writer may have changed the size without having told the MDT: ask the OSTs.
    pub size_stale: bool,
    /// Objects may exist on the OSTs.
    pub maybe_objects: bool,
}

impl Attr {
    /// The file's kind. A mode that fits none counts as a regular file; decoders refuse
    /// such modes before they get here.
    pub const fn kind(&self) -> FileKind {
        match FileKind::from_mode(self.mode) {
            Some(kind) => kind,
            None => FileKind::Regular,
        }
    }

    /// Whether this is a directory.
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind(), FileKind::Directory)
    }
}
