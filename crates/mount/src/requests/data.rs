//! Reads, writes, seeks, and the space there is.

use std::sync::atomic::Ordering;

use sateen_fuse::{Op, Reply, StatfsOut};
use sateen_types::{Errno, Result};
use sateen_wire::{Cred, SetAttr};

use super::Call;
use super::words::{O_APPEND, O_DSYNC, O_NONBLOCK};
use crate::convert;

/// Units that statfs counts in, in bytes.
const FRAGMENT_BYTES: u64 = 4096;
// Linux's lseek.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// The bytes come from pages (`FUSE_WRITE_CACHE`).
pub(crate) const WRITE_CACHE: u32 = 1;
/// The WRITE must take set-id bits away (`FUSE_WRITE_KILL_SUIDGID`).
const WRITE_KILL_SUIDGID: u32 = 4;

impl Call {
    pub(super) async fn read(&self, op: Op, mut reply: Reply) {
        let Op::Read { fh, offset, size, flags, lock_owner, .. } = op else {
            return reply.error(Errno::ENOSYS.raw());
        };
        self.note_flags(fh, flags);
        let buffer = reply.take_room(size as usize);
        // What goes into a program's buffer comes with its owner, also beside mappings of the same
        // descriptor; what fills pages does not.
        let read = match lock_owner {
            Some(_) => self.client.read_past_cache(fh, offset, size, buffer).await,
            None => self.client.read(fh, offset, size, buffer).await,
        };
        match read {
            Ok(data) => reply.data(data),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    pub(super) async fn write(&self, op: Op, cred: Cred, reply: Reply) {
        let Op::Write { ino, fh, offset, data, flags, write_flags, .. } = op else {
            return reply.error(Errno::ENOSYS.raw());
        };
        self.note_flags(fh, flags);
        if write_flags & WRITE_KILL_SUIDGID != 0
            && let Ok(fid) = convert::fid_of(ino)
            && self.client.has_set_id(fid)
        {
            let set = SetAttr { kill_suid: true, ..SetAttr::default() };
            if let Err(errno) = Box::pin(self.client.setattr(fid, set, cred)).await {
                return reply.error(errno.raw());
            }
        }
        let mut written = if write_flags & WRITE_CACHE != 0 {
            self.client.write_pages(fh, offset, data).await
        } else {
            self.client.write(fh, offset, data, flags & O_APPEND != 0).await
        };
        let durable = flags & O_DSYNC != 0 || self.durable.files;
        if durable && written.is_ok() {
            written = Box::pin(self.client.sync_written(fh)).await.and(written);
        }
        let inode = [Some(ino).filter(|_| durable), None];
        let Some(reply) = self.heard(inode, &written, reply) else { return };
        match written {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    /// A descriptor's flags as they are now: of a change the kernel does not tell, nor of those of an
    /// ioctl. Where nobody has ever had this one nothing is looked up.
    fn note_flags(&self, fh: u64, flags: u32) {
        let nonblock = flags & O_NONBLOCK != 0;
        if nonblock {
            self.nonblock.store(true, Ordering::Relaxed);
        }
        if nonblock || self.nonblock.load(Ordering::Relaxed) {
            self.client.set_nonblock(fh, nonblock);
        }
    }

    /// The flags that a file is opened with.
    pub(super) fn note_open(&self, flags: u32) {
        if flags & O_NONBLOCK != 0 {
            self.nonblock.store(true, Ordering::Relaxed);
        }
    }

    pub(super) async fn seek(&self, fh: u64, offset: u64, whence: u32) -> Result<u64> {
        match whence {
            SEEK_DATA => self.client.seek(fh, offset, false).await,
            SEEK_HOLE => self.client.seek(fh, offset, true).await,
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) async fn statfs(&self, reply: Reply) {
        match self.client.statfs().await {
            Ok(space) => reply.statfs(&StatfsOut {
                blocks: space.bytes_total / FRAGMENT_BYTES,
                bfree: space.bytes_free / FRAGMENT_BYTES,
                bavail: space.bytes_avail / FRAGMENT_BYTES,
                files: space.files_total,
                ffree: space.files_free,
                bsize: 1 << 20,
                namelen: sateen_types::NAME_MAX as u32,
                frsize: FRAGMENT_BYTES as u32,
            }),
            Err(errno) => reply.error(errno.raw()),
        }
    }
}
