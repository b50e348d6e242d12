//! Between the kernel's words and ours.

use std::time::Duration;

use sateen_fuse::{Attr as KernelAttr, EntryOut, Time};
use sateen_types::{Attr, Errno, Fid, Ino, Result, Timespec};

/// How long the kernel may believe what a lock covers: until it is told otherwise.
pub(crate) const HELD: Duration = Duration::from_secs(86_400);
/// What programs are told to read and write in: one stripe.
const BLOCK_BYTES: u32 = 1 << 20;

pub(crate) fn fid_of(ino: Ino) -> Result<Fid> {
    Fid::from_ino(ino).ok_or(Errno::ESTALE)
}

pub(crate) fn validity(held: bool) -> Duration {
    if held { HELD } else { Duration::ZERO }
}

fn time(from: Timespec) -> Time {
    Time { sec: from.sec, nsec: from.nsec }
}

pub(crate) fn timespec(from: Time) -> Timespec {
    Timespec { sec: from.sec, nsec: from.nsec.min(999_999_999) }
}

pub(crate) fn attr(from: &Attr) -> KernelAttr {
    KernelAttr {
        ino: from.fid.ino(),
        size: from.size,
        blocks: from.blocks,
        atime: time(from.atime),
        mtime: time(from.mtime),
        ctime: time(from.ctime),
        mode: from.mode,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: BLOCK_BYTES,
    }
}

pub(crate) fn btime(from: &Attr) -> Time {
    time(from.btime)
}

pub(crate) fn entry(from: &Attr, name_held: bool, attr_held: bool) -> EntryOut {
    EntryOut {
        ino: from.fid.ino(),
        generation: 0,
        entry_valid: validity(name_held),
        attr_valid: validity(attr_held),
        attr: attr(from),
    }
}
