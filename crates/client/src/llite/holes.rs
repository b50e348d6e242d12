//! Where a file has data and where it has holes: `lseek`, and `fallocate`, which makes both.

use std::sync::Arc;

use sateen_types::{Errno, Falloc, Layout, ObjectId, Result};
use sateen_wire::{OstReply, OstRequest};

use super::data::{FILE_BYTES_MAX, Writing};
use super::files::File;
use super::space::ANSWER_NS;
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
        let used = self.data_for(&file, Access::Read, None).await?;
        let size = self.size_now(inode, &used).await?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let looking = self.settle(inode).await?;
        let mut found = self.seek_objects(inode, (offset, size), hole).await?;
        // What was stored through a mapping may lie in the kernel alone, where the objects have
        // a hole. Only this client can have such pages, and only while it may write the file.
        let is_sure = found == Some(if hole { size } else { offset });
        if !is_sure && lock(&inode.state).write_opens > 0 {
            self.port.invalidate(KernelInval::Data(inode.fid.ino())).await;
            found = self.seek_objects(inode, (offset, size), hole).await?;
        }
        drop(looking);
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

    /// Allocates, frees or empties a range, as `fallocate` does. With `keep_size` the file does
    /// not grow.
    ///
    /// # Errors
    /// `EINVAL` for an empty range, `EFBIG`, and the OSTs'.
    pub async fn allocate(
        self: &Arc<Client>,
        handle: u64,
        (offset, len): (u64, u64),
        how: Falloc,
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
        let used = self.data_for(&file, Access::Write, Some((offset, len))).await?;
        let writing = Writing::begin(self, &file).await?;
        self.size_now(inode, &used).await?;
        self.recorded(inode).await?;
        let layout = self.layout_of(inode).await?.ok_or(Errno::EIO)?;
        self.changes(inode, (0, u64::MAX));
        let looking = self.settle(inode).await?;
        let barred = self.bar(inode).await?;
        let change = self.change_range(inode, &layout, (offset, end), (how, keep_size), era);
        let changed = change.await;
        drop(barred);
        if matches!(changed, Err(Errno::EOPNOTSUPP | Errno::EFBIG)) {
            return changed;
        }
        // As a write that fails: what may have happened counts, also for the size. If one OST has
        // no room, others have set theirs aside: the MDT has to know that there are objects.
        let mtime = self.port.now().wall();
        // The file grows with the last object alone: if that was not asked, it is as long as before.
        let not_done = matches!(changed, Err(Errno::ENOSPC | Errno::EINTR));
        let as_long = keep_size || how == Falloc::PunchHole || not_done;
        let grown = if as_long { 0 } else { end };
        if era == self.era() {
            inode.update(|state| {
                if used.is_group() {
                    state.wrote_shared(grown, 0, mtime);
                    return;
                }
                state.wrote(grown, 0, mtime);
                state.blocks_doubtful |= changed.is_err();
            });
        }
        changed?;
        // How much space came or went, only the OSTs know; also those that had no part in it.
        let glimpse = self.not_longer_than(ANSWER_NS, self.glimpse(inode.fid, &layout));
        match glimpse.await {
            Some(Ok((_, blocks))) => inode.update(|state| state.takes_up(blocks)),
            _ => lock(&inode.state).blocks_doubtful = true,
        }
        drop(looking);
        drop(writing);
        drop(used);
        Ok(())
    }

    /// Of a contiguous range each object has a contiguous part. Only the object with the last byte
    /// says that the file has grown, and it comes last: if there is no room in another, the file
    /// is as long as it was.
    async fn change_range(
        &self,
        inode: &Inode,
        layout: &Layout,
        (start, end): (u64, u64),
        (how, keep_size): (Falloc, bool),
        era: u64,
    ) -> Result<()> {
        let last = layout.chunks(end.saturating_sub(1), 1).next().map(|chunk| chunk.stripe);
        let is_last = |stripe| Some(stripe) == last;
        let others = layout.objects().filter(|(stripe, _)| !is_last(*stripe));
        let at_the_end = layout.objects().filter(|(stripe, _)| is_last(*stripe));
        for (stripe, ost) in others.chain(at_the_end) {
            let from = layout.object_size(stripe, start);
            let to = layout.object_size(stripe, end);
            if from == to {
                continue;
            }
            let object = ObjectId { fid: inode.fid, stripe };
            let range = (from, to - from);
            let keep_size = keep_size || !is_last(stripe);
            let request = range_request(object, layout.generation, range, how, keep_size);
            self.room_for(ost).await?;
            // Of the run that answers: one that the OST's restart catches in the middle is asked
            // for again.
            let (OstReply::Done, boot_epoch) = self.ost_call_in(Some(era), ost, request).await?
            else {
                return Err(Errno::EPROTO);
            };
            self.changed_object(inode, stripe, Unsynced { ost, boot_epoch });
        }
        Ok(())
    }
}

fn range_request(
    object: ObjectId,
    layout_gen: u32,
    (offset, len): (u64, u64),
    how: Falloc,
    keep_size: bool,
) -> OstRequest {
    if how == Falloc::ZeroRange {
        return OstRequest::ZeroRange { object, layout_gen, offset, len, keep_size };
    }
    let punch_hole = how == Falloc::PunchHole;
    OstRequest::Allocate { object, layout_gen, offset, len, punch_hole, keep_size }
}
