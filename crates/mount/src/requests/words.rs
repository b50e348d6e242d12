//! The kernel's flags and operations in the client's words, and the client's in the kernel's.

use std::sync::atomic::Ordering;

use sateen_client::{AtimePolicy, LLITE_STATS, OpenHow, Opened, Verb};
use sateen_fuse::{Op, SetattrIn, opcode_name, open_flags};
use sateen_wire::{SetAttr, TimeSet};

use super::Call;
use crate::convert;
use crate::fs::Locking;

// Linux's open flags.
const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
pub(super) const O_APPEND: u32 = 0o2000;
pub(super) const O_DSYNC: u32 = 0o10000;
/// Only the kernel itself sets it: the file is to be executed.
const FMODE_EXEC: u32 = 0o40;
const O_DIRECT: u32 = 0o40000;
pub(super) const O_NONBLOCK: u32 = 0o4000;
const O_NOATIME: u32 = 0o1_000_000;

pub(super) fn how(flags: u32, atime: AtimePolicy) -> OpenHow {
    let access = flags & O_ACCMODE;
    OpenHow {
        read: access != O_WRONLY,
        write: access == O_WRONLY || access == O_RDWR,
        append: flags & O_APPEND != 0,
        truncate: flags & O_TRUNC != 0,
        exclusive: flags & O_EXCL != 0,
        sync: flags & O_DSYNC != 0,
        direct: flags & O_DIRECT != 0,
        exec: flags & FMODE_EXEC != 0,
        nonblock: flags & O_NONBLOCK != 0,
        atime: if flags & O_NOATIME != 0 { AtimePolicy::Never } else { atime },
    }
}

/// Flags of an open, however its bytes are read.
pub(super) fn flags_of_all(call: &Call, handle: u64) -> u32 {
    // What was stored through mappings is written when they go. Only locks of fcntl(2) have to hear
    // of each close, because that ends them, and writers whose writes may be kept, because only a
    // close can tell then that one was lost on its way to another process.
    let hears_of_closes = match call.locking {
        Locking::Exact => true,
        Locking::Cluster => call.fcntl_locks.load(Ordering::Relaxed),
        Locking::Local | Locking::Refused => false,
    };
    let hears_of_closes = hears_of_closes || call.client.tells_closes(handle);
    if hears_of_closes { 0 } else { open_flags::NOFLUSH }
}

pub(super) fn kernel_flags(call: &Call, how: OpenHow, flags: u32, opened: &Opened) -> u32 {
    let always = flags_of_all(call, opened.handle);
    if how.write || call.direct_io || flags & O_DIRECT != 0 {
        // Writers go past the page cache: no copy, and appends find their place under the
        // data lock. Mappings still work.
        return always | open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
    }
    if how.atime.is_unread(&opened.known.attr) {
        // Pages from before the file was changed, by a chmod perhaps, would be read without a
        // call, and the atime would stay as it is.
        return always;
    }
    always | open_flags::KEEP_CACHE
}

/// The kernel leaves the umask to us, because a default ACL takes its place.
pub(super) fn umask_of(op: &Op) -> u32 {
    match op {
        Op::Mkdir { umask, .. }
        | Op::Mknod { umask, .. }
        | Op::Create { umask, .. }
        | Op::Tmpfile { umask, .. } => *umask & 0o777,
        _ => 0,
    }
}

/// The directories in which a request makes or removes names.
pub(super) fn directories_of(op: &Op) -> [Option<u64>; 2] {
    match op {
        Op::Mkdir { parent, .. }
        | Op::Mknod { parent, .. }
        | Op::Symlink { parent, .. }
        | Op::Create { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. } => [Some(*parent), None],
        Op::Link { new_parent, .. } => [Some(*new_parent), None],
        Op::Rename { parent, new_parent, .. } => {
            [Some(*parent), Some(*new_parent).filter(|new| new != parent)]
        }
        _ => [None, None],
    }
}

/// The inode whose attributes or extended attributes a request changes.
pub(super) fn changed_by(op: &Op) -> Option<u64> {
    match op {
        Op::Setattr { ino, .. } | Op::Setxattr { ino, .. } | Op::Removexattr { ino, .. } => {
            Some(*ino)
        }
        Op::Fallocate { ino, .. } => Some(*ino),
        Op::Open { ino, flags, .. } => (flags & O_TRUNC != 0).then_some(*ino),
        _ => None,
    }
}

/// What a request counts as; bytes are counted by whoever moves them.
pub(super) fn verb_of(op: &Op) -> Option<Verb> {
    Some(match op {
        Op::Open { .. } => Verb::Open,
        Op::Release { .. } => Verb::Close,
        Op::Lseek { .. } => Verb::Seek,
        Op::Fsync { .. } | Op::Fsyncdir { .. } => Verb::Fsync,
        Op::Readdir { .. } => Verb::Readdir,
        Op::Setattr { .. } => Verb::Setattr,
        Op::Fallocate { .. } => Verb::Fallocate,
        Op::Getattr { .. } => Verb::Getattr,
        Op::Lookup { .. } => Verb::Lookup,
        Op::Create { .. } => Verb::Create,
        Op::Link { .. } => Verb::Link,
        Op::Unlink { .. } => Verb::Unlink,
        Op::Symlink { .. } => Verb::Symlink,
        Op::Mkdir { .. } => Verb::Mkdir,
        Op::Rmdir { .. } => Verb::Rmdir,
        Op::Mknod { .. } => Verb::Mknod,
        Op::Rename { .. } => Verb::Rename,
        Op::Statfs { .. } => Verb::Statfs,
        Op::Setxattr { .. } => Verb::Setxattr,
        Op::Getxattr { .. } => Verb::Getxattr,
        Op::Listxattr { .. } => Verb::Listxattr,
        Op::Removexattr { .. } => Verb::Removexattr,
        Op::Getlk { .. } | Op::Setlk { .. } => Verb::Flock,
        _ => return None,
    })
}

/// Whether statistics and timers call a request by one word. One that is not the kernel's has none.
pub(super) fn is_one_word(verb: Verb, opcode: u32) -> bool {
    let (timed, counted) = (opcode_name(opcode), LLITE_STATS.get(verb as usize));
    timed == "other" || counted.is_some_and(|stat| stat.name == timed)
}

pub(super) fn set_attr(from: &SetattrIn) -> SetAttr {
    let time = |now: bool, at: Option<sateen_fuse::Time>| match (now, at) {
        (true, _) => Some(TimeSet::Now),
        (false, at) => at.map(|at| TimeSet::At(convert::timespec(at))),
    };
    let set = SetAttr {
        mode: from.mode.map(|mode| mode & 0o7777),
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        atime: time(from.atime_now, from.atime),
        mtime: time(from.mtime_now, from.mtime),
        kill_suid: from.kill_suidgid,
    };
    // A request that changes nothing is what is left of `chown` to nobody, and of an `fallocate`
    // that takes the set-id bits away: these the kernel leaves to us.
    let nothing = set == SetAttr::default();
    SetAttr { kill_suid: set.kill_suid || nothing, ..set }
}
