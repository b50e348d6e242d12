//! Where a file has data and where it has holes: `lseek`, and `fallocate`, which makes both.

use std::sync::Arc;

use sateen_types::{Errno, Result};
use sateen_wire::{OstReply, OstRequest};

use super::data::FILE_BYTES_MAX;
use super::files::File;
use crate::client::Client;
use crate::inode::{Inode, Unsynced};
use crate::locks::Access;
use crate::port::KernelInval;
use crate::sync::lock;

impl Client {
    /// Where the next data, or with `hole` the next hole, begins at or after `offset`. The end
    /// of the file counts as a hole.
    ///
    /// # Errors
    /// `ENXIO` if nothing follows, and the OSTs'.
    pub async fn seek(self: &Arc<Client>, handle: u64, offset: u64, hole: bool) -> Result<u64> {
        let file = self.file(handle)?;
        let inode = &file.inode;
        let used = self.use_data(inode, Access::Read).await?;
        let size = self.size_now(inode, &used).await?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let mut found = self.seek_objects(inode, (offset, size), hole).await?;
        // What was stored through a mapping may lie in the kernel alone, where the objects have
        // a hole. Only this client can have such pages, and only while it may write the file.
        let is_sure = found == Some(if hole { size } else { offset });
        if !is_sure && lock(&inode.state).write_opens > 0 {
            self.port.invalidate(KernelInval::Data(inode.fid.ino())).await;
            found = self.seek_objects(inode, (offset, size), hole).await?;
        }
        drop(used);
        found.ok_or(Errno::ENXIO)
    }

    async fn seek_objects(
        &self,
        inode: &Inode,
        (offset, size): (u64, u64),
        hole: bool,
    ) -> Result<Option<u64>> {
        match self.layout_of(inode).await? {
            Some(layout) => self.seek_stripes(inode.fid, &layout, (offset, size), hole).await,
            // Nothing was ever written.
            None => Ok(hole.then_some(offset)),
        }
    }

    /// Allocates or frees a range, as `fallocate` does.
    ///
    /// # Errors
    /// `EINVAL` for an empty range, `EFBIG`, and the OSTs'.
    pub async fn allocate(
        self: &Arc<Client>,
        handle: u64,
        offset: u64,
        len: u64,
        punch_hole: bool,
        keep_size: bool,
    ) -> Result<()> {
        let era = self.era();
        let file: Arc<File> = self.file(handle)?;
        let inode = &file.inode;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        let used = self.use_data(inode, Access::Write).await?;
        self.size_now(inode, &used).await?;
        self.recorded(inode).await?;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        for (stripe, ost) in layout.objects() {
            // Of a contiguous range each object has a contiguous part.
            let from = layout.object_size(stripe, offset);
            let to = layout.object_size(stripe, end);
            if from == to {
                continue;
            }
            let object = sateen_types::ObjectId { fid: inode.fid, stripe };
            let request = OstRequest::Allocate {
                object,
                layout_gen: layout.generation,
                offset: from,
                len: to - from,
                punch_hole,
                keep_size,
            };
            self.unsynced.room(ost).await;
            // A request that a restart catches in the middle fails, so that this is the epoch
            // of the answer, too.
            let boot_epoch = self.ost_epoch(ost).await?;
            let OstReply::Done = self.ost_call_in(Some(era), ost, request).await? else {
                return Err(Errno::EPROTO);
            };
            lock(&inode.state).changed_object(stripe, Unsynced { ost, boot_epoch });
        }
        let mtime = self.port.now().wall();
        let grown = if keep_size || punch_hole { 0 } else { end };
        inode.update(|state| state.wrote(grown, 0, mtime));
        drop(used);
        Ok(())
    }
}
