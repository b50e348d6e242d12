//! INIT: what the kernel offers and what of it is taken.
//!
//! Used once per mount, by the session; pure.
use crate::abi;
use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};
use zerocopy::{FromBytes, IntoBytes};

/// A set of the protocol's INIT flags.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps(pub u64);

macro_rules! caps {
    ($($(#[$m:meta])* $name:ident = $bit:literal;)*) => {
        impl Caps {
            $($(#[$m])* pub const $name: Caps = Caps(1 << $bit);)*
        }
        const NAMES: &[(&str, Caps)] = &[$((stringify!($name), Caps::$name)),*];
    };
}

caps! {
    /// Several READs of one file at once.
    ASYNC_READ = 0;
    /// The file system keeps POSIX locks.
    POSIX_LOCKS = 1;
    /// OPEN carries O_TRUNC; no separate SETATTR.
    ATOMIC_O_TRUNC = 3;
    /// LOOKUP of "." and ".." is served, for NFS handles.
    EXPORT_SUPPORT = 4;
    /// Writes above 4 KiB.
    BIG_WRITES = 5;
    /// The file system applies the umask itself.
    DONT_MASK = 6;
    /// The file system keeps BSD locks.
    FLOCK_LOCKS = 10;
    /// ioctl on directories.
    IOCTL_DIR = 11;
    /// The kernel drops pages when mtime or size change.
    AUTO_INVAL_DATA = 12;
    /// READDIRPLUS.
    DO_READDIRPLUS = 13;
    /// The kernel chooses between READDIR and READDIRPLUS.
    READDIRPLUS_AUTO = 14;
    /// Asynchronous direct I/O.
    ASYNC_DIO = 15;
    /// Write-back caching in the kernel; Sateen never asks for it.
    WRITEBACK_CACHE = 16;
    /// OPEN may be answered ENOSYS.
    NO_OPEN = 17;
    /// Lookups and readdirs of one directory at once.
    PARALLEL_DIROPS = 18;
    /// POSIX access control lists, checked by the kernel.
    POSIX_ACL = 20;
    /// An aborted connection says so (ECONNABORTED).
    ABORT_ERROR = 21;
    /// Requests of more than 32 pages.
    MAX_PAGES = 22;
    /// The kernel caches symbolic links' targets.
    CACHE_SYMLINKS = 23;
    /// OPENDIR may be answered ENOSYS.
    NO_OPENDIR = 24;
    /// Pages are dropped only when the file system says so.
    EXPLICIT_INVAL_DATA = 25;
    /// The file system clears set-uid, set-gid and capabilities on change.
    HANDLE_KILLPRIV_V2 = 28;
    /// SETXATTR with its longer header.
    SETXATTR_EXT = 29;
    /// 64 flags.
    INIT_EXT = 30;
    /// Requests that create carry the matching supplementary group.
    CREATE_SUPP_GROUP = 34;
    /// Entries can be expired rather than dropped.
    HAS_EXPIRE_ONLY = 35;
    /// Files open for direct I/O can be mapped shared.
    DIRECT_IO_ALLOW_MMAP = 36;
    /// Opens can be answered with a file that the kernel then reads and writes itself:
    /// [`crate::Backings`]. Not among the recommended: it makes the mount one level of a stack of
    /// file systems, of which the kernel allows two.
    PASSTHROUGH = 37;
    /// Requests can be asked for again.
    HAS_RESEND = 39;
    /// FUSE over io_uring.
    OVER_IO_URING = 41;
}

impl Caps {
    /// Whether all of `other` is in this set.
    pub fn contains(self, other: Caps) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Caps {
    type Output = Caps;
    fn bitor(self, other: Caps) -> Caps {
        Caps(self.0 | other.0)
    }
}

impl BitAnd for Caps {
    type Output = Caps;
    fn bitand(self, other: Caps) -> Caps {
        Caps(self.0 & other.0)
    }
}

impl Sub for Caps {
    type Output = Caps;
    fn sub(self, other: Caps) -> Caps {
        Caps(self.0 & !other.0)
    }
}

impl fmt::Debug for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut list = f.debug_list();
        for (name, cap) in NAMES {
            if self.contains(*cap) {
                list.entry(&format_args!("{name}"));
                rest = rest - *cap;
            }
        }
        if rest.0 != 0 {
            list.entry(&format_args!("{:#x}", rest.0));
        }
        list.finish()
    }
}

/// What the kernel said in INIT.
#[derive(Clone, Copy, Debug)]
pub struct KernelOffer {
    /// Minor version of the protocol (major is 7).
    pub minor: u32,
    /// Everything the kernel can do.
    pub caps: Caps,
    /// The read-ahead the kernel wishes, in bytes.
    pub max_readahead: u32,
}

impl KernelOffer {
    /// What suits a file system that tells the kernel itself when caches go
    /// stale and whose caller checks no permissions: the offered part of the
    /// capabilities that need nothing special from the file system.
    pub fn recommended(&self) -> Caps {
        self.caps
            & (Caps::ASYNC_READ
                | Caps::ATOMIC_O_TRUNC
                | Caps::EXPORT_SUPPORT
                | Caps::BIG_WRITES
                | Caps::DO_READDIRPLUS
                | Caps::READDIRPLUS_AUTO
                | Caps::ASYNC_DIO
                | Caps::PARALLEL_DIROPS
                | Caps::ABORT_ERROR
                | Caps::MAX_PAGES
                | Caps::EXPLICIT_INVAL_DATA
                | Caps::SETXATTR_EXT
                | Caps::INIT_EXT
                | Caps::CREATE_SUPP_GROUP
                | Caps::HAS_EXPIRE_ONLY
                | Caps::DIRECT_IO_ALLOW_MMAP
                | Caps::HAS_RESEND)
    }

    /// Whether FUSE_NOTIFY_INC_EPOCH is understood.
    pub fn has_inc_epoch(&self) -> bool {
        self.minor >= 44
    }

    /// Whether FUSE_NOTIFY_PRUNE is understood.
    pub fn has_prune(&self) -> bool {
        self.minor >= 45
    }

    pub(crate) fn decode(body: &[u8]) -> Option<(u32, KernelOffer)> {
        // Kernels before 7.36 send a shorter INIT; they are refused by version,
        // which the first words always carry.
        let mut whole = [0; size_of::<abi::InitIn>()];
        let len = body.len().min(whole.len());
        if len < 16 {
            return None;
        }
        whole.get_mut(..len)?.copy_from_slice(body.get(..len)?);
        let init = abi::InitIn::read_from_bytes(&whole).ok()?;
        let mut caps = u64::from(init.flags);
        if Caps(caps).contains(Caps::INIT_EXT) {
            caps |= u64::from(init.flags2) << 32;
        }
        let offer =
            KernelOffer { minor: init.minor, caps: Caps(caps), max_readahead: init.max_readahead };
        Some((init.major, offer))
    }
}

/// The mount's side of INIT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_write: u32,
    pub(crate) max_readahead: u32,
    pub(crate) max_background: u16,
    pub(crate) time_gran: u32,
    pub(crate) max_pages: u16,
    pub(crate) stack_depth: u32,
}

/// The answer to INIT.
pub(crate) fn init_out(limits: &Limits, caps: Caps) -> [u8; size_of::<abi::InitOut>()] {
    let out = abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: limits.max_readahead,
        flags: caps.0 as u32,
        max_background: limits.max_background,
        congestion_threshold: limits.max_background / 4 * 3,
        max_write: limits.max_write,
        time_gran: limits.time_gran,
        max_pages: limits.max_pages,
        flags2: (caps.0 >> 32) as u32,
        // Without the capability the kernel wants none.
        max_stack_depth: if caps.contains(Caps::PASSTHROUGH) { limits.stack_depth } else { 0 },
        ..abi::InitOut::default()
    };
    let mut bytes = [0; size_of::<abi::InitOut>()];
    bytes.copy_from_slice(out.as_bytes());
    bytes
}
