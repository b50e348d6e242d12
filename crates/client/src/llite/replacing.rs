//! Files that replace others: what is kept of one is written out before it gets the other's name.
//!
//! Programs change a file by writing a new one beside it and renaming that over it, and many of
//! them sync nothing in between. With the rename the old content is gone: an MDT may have it
//! durable before a mount has sent what it keeps of the new one, and one that dies then leaves
//! neither. So the rename waits until the OSTs have it, as local file systems write such a file
//! out first: it is as safe as where nothing is kept, and what could not be written out leaves the
//! old one where it is, whether that is found now or was before, by a close perhaps that nobody
//! waited for.
//!
//! Which file it is a kernel does not say. The MDT is asked for that, if anything is kept of any
//! file, or was lost of one, and if there may be something under the new name.

use std::sync::Arc;

use sateen_types::{Errno, Fid, Name, Result};
use sateen_wire::{Ibits, MdtReply, MdtRequest};

use crate::client::Client;
use crate::loss::Loss;
use crate::sync::lock;

impl Client {
    /// Writes out what is kept of the file of the first name, which is about to get the second.
    ///
    /// # Errors
    /// The OSTs', once, of what no program has heard of; `EINTR` if nobody waits any more; the
    /// MDT's.
    pub(super) async fn write_out_what_replaces(
        self: &Arc<Client>,
        (parent, name): (Fid, &Name),
        (new_parent, new_name): (Fid, &Name),
    ) -> Result<()> {
        if !self.keeps_or_lost_any() || self.is_absent(new_parent, new_name) {
            return Ok(());
        }
        let (want_parent, want) = (Ibits::NONE, Ibits::NONE);
        let request = MdtRequest::Lookup { parent, name: name.clone(), want_parent, want };
        let MdtReply::Inode { attr } = self.mdt(parent, request).await?.body else {
            return Err(Errno::EPROTO);
        };
        let known = self.inodes.find(attr.fid);
        let Some(inode) = known else { return self.lost_before(attr.fid, Loss::None) };
        let settled = self.settle(&inode).await.map(drop);
        let told = settled.and_then(|()| {
            let (late, loss) = {
                let mut state = lock(&inode.state);
                (state.late.rename(), state.loss)
            };
            // One error tells of both.
            let before = self.lost_before(inode.fid, loss);
            late.and(before)
        });
        self.retire(inode);
        told
    }

    /// What an earlier life of a file's inode could not write out, and no fsync has told of; in
    /// its present one it may have inherited that. A rename tells of it once.
    fn lost_before(&self, fid: Fid, inherited: Loss) -> Result<()> {
        let failed = self.dirty.take_failed(fid);
        let untold = inherited != Loss::None || self.unsynced.has_lost(fid);
        failed.filter(|_| untold).map_or(Ok(()), Err)
    }
}
