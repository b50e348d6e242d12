//! Space: per target, and summed up.

use std::sync::Arc;

use sateen_types::{Endpoint, Errno, Fid, Result};
use sateen_wire::{MdtReply, MdtRequest, OstReply, OstRequest, StatFs};

use crate::client::{Client, TargetSpace};

/// Space of the whole file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceTotal {
    /// Bytes in all OSTs.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Bytes available to users.
    pub bytes_avail: u64,
    /// Inodes there can be.
    pub files_total: u64,
    /// Inodes free.
    pub files_free: u64,
}

impl Client {
    /// The space of each target, MDTs first.
    pub async fn target_spaces(self: &Arc<Client>) -> Vec<TargetSpace> {
        let mut out = Vec::new();
        for target in self.targets() {
            let space = match target {
                Endpoint::Mdt(index) => self.mdt_space(index).await,
                Endpoint::Ost(index) => self.ost_space(index).await,
                Endpoint::Mgs | Endpoint::Client(_) => continue,
            };
            out.push(TargetSpace { target, space: space.ok() });
        }
        out
    }

    async fn mdt_space(&self, index: u32) -> Result<StatFs> {
        // Any FID of the MDT leads there.
        let seq = sateen_types::seq::super_first(index, 0).ok_or(Errno::EINVAL)?;
        match self.mdt(Fid::new(seq, 1), MdtRequest::StatFs).await?.body {
            MdtReply::StatFs(space) => Ok(space),
            _ => Err(Errno::EPROTO),
        }
    }

    async fn ost_space(&self, index: u32) -> Result<StatFs> {
        match self.ost_call(index, OstRequest::StatFs).await? {
            OstReply::StatFs(space) => Ok(space),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Bytes of all OSTs, inodes of all MDTs.
    ///
    /// # Errors
    /// `EIO` if no target answers.
    pub async fn statfs(self: &Arc<Client>) -> Result<SpaceTotal> {
        let mut total = SpaceTotal::default();
        let spaces = self.target_spaces().await;
        if spaces.iter().all(|target| target.space.is_none()) {
            return Err(Errno::EIO);
        }
        for TargetSpace { target, space } in spaces {
            let Some(space) = space else { continue };
            if matches!(target, Endpoint::Ost(_)) {
                total.bytes_total += space.bytes_total;
                total.bytes_free += space.bytes_free;
                total.bytes_avail += space.bytes_avail;
            } else {
                total.files_total += space.files_total;
                total.files_free += space.files_free;
            }
        }
        Ok(total)
    }
}
