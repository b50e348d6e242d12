//! The words of the FUSE kernel protocol 7.45: structures and numbers as in the
//! kernel's `include/uapi/linux/fuse.h`, in host byte order.
//!
//! Used by the decoder, the encoders and the transports; nothing here has
//! behaviour. Padding is explicit, so that every byte sent is initialised.
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version spoken.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version understood.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version served: INIT with 64 flags (Linux 5.17).
pub(crate) const MINOR_MIN: u32 = 36;
/// Longest name the kernel sends, with room to spare.
pub(crate) const NAME_MAX: usize = 4096;
/// Room for the headers in front of a WRITE's data on /dev/fuse.
pub(crate) const HEADER_ROOM: usize = 4096;

pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

pub(crate) mod notify_code {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const DELETE: i32 = 6;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const INC_EPOCH: i32 = 8;
    pub(crate) const PRUNE: i32 = 9;
}

/// Flag of GETATTR: the handle is valid.
pub(crate) const GETATTR_FH: u32 = 1;
/// Flag of the lock requests: BSD lock.
pub(crate) const LK_FLOCK: u32 = 1;
/// Flag of FSYNC: data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// Flags of RELEASE: a flush is asked for; the BSD lock goes.
pub(crate) const RELEASE_FLUSH: u32 = 1;
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 2;
/// Extension with the caller's supplementary groups.
pub(crate) const EXT_GROUPS: u32 = 32;

macro_rules! wire {
    ($($(#[$m:meta])* $name:ident = $size:literal { $($field:ident : $ty:ty),* $(,)? })*) => { $(
        $(#[$m])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

wire! {
    /// In front of every request.
    InHeader = 40 { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16 }
    /// In front of every answer and notification.
    OutHeader = 16 { len: u32, error: i32, unique: u64 }
    AttrWire = 88 { ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32 }
    EntryWire = 128 { nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: AttrWire }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrWire }
    SxTime = 16 { sec: i64, nsec: u32, reserved: i32 }
    StatxOut = 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime,
        btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14] }
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: i32 }
    WriteOut = 8 { size: u32, padding: u32 }
    GetxattrOut = 8 { size: u32, padding: u32 }
    LseekOut = 8 { offset: u64 }
    CopyOut = 8 { bytes: u64 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    StatfsWire = 80 { blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32,
        namelen: u32, frsize: u32, padding: u32, spare: [u32; 6] }
    LockWire = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    DirentWire = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }

    InitIn = 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32,
        unused: [u32; 11] }
    InitOut = 64 { major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11] }
    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    GetattrIn = 16 { flags: u32, dummy: u32, fh: u64 }
    StatxIn = 24 { flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SetattrWire = 88 { valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64,
        mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32,
        unused4: u32, uid: u32, gid: u32, unused5: u32 }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    OpenIn = 8 { flags: u32, open_flags: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn = 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32 }
    WriteIn = 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32 }
    FsyncIn = 16 { fh: u64, flags: u32, padding: u32 }
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn = 8 { size: u32, padding: u32 }
    LkIn = 48 { fh: u64, owner: u64, lk: LockWire, lk_flags: u32, padding: u32 }
    AccessIn = 8 { mask: u32, padding: u32 }
    InterruptIn = 8 { unique: u64 }
    IoctlWire = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn = 56 { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64,
        len: u64, flags: u64 }
    SyncfsIn = 8 { padding: u64 }
    ExtHeader = 8 { size: u32, kind: u32 }

    /// What io_uring adds to a request: `commit_id` names it in the answer.
    EntInOut = 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// The command area of a submission.
    UringCmdReq = 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }

    /// Asks for a backing file: FUSE_DEV_IOC_BACKING_OPEN.
    BackingMap = 16 { fd: i32, flags: u32, padding: u64 }

    NotifyInvalInode = 24 { ino: u64, off: i64, len: i64 }
    NotifyInvalEntry = 16 { parent: u64, namelen: u32, flags: u32 }
    NotifyDelete = 24 { parent: u64, child: u64, namelen: u32, padding: u32 }
    NotifyStore = 24 { nodeid: u64, offset: u64, size: u32, padding: u32 }
    NotifyPrune = 16 { count: u32, padding: u32, spare: u64 }
}

/// The header of an io_uring entry: header of the request or the answer, header
/// of the operation, and what io_uring adds.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct UringHeader {
    pub(crate) in_out: [u8; 128],
    pub(crate) op_in: [u8; 128],
    pub(crate) ent: EntInOut,
}

impl Default for UringHeader {
    fn default() -> UringHeader {
        UringHeader { in_out: [0; 128], op_in: [0; 128], ent: EntInOut::default() }
    }
}
