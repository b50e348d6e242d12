//! Reading directories.

use std::sync::Arc;

use sateen_types::{DirCookie, Errno, Fid, Result};
use sateen_wire::{DIR_ENTRIES_MAX, DirEntry, MdtReply, MdtRequest};

use crate::client::Client;

/// A part of a directory.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The entries, without `.` and `..`.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
    /// What `..` is.
    pub parent: Fid,
}

impl Client {
    /// Up to `count` entries after a position.
    ///
    /// # Errors
    /// `ENOTDIR`, and the MDT's.
    pub async fn readdir(
        self: &Arc<Client>,
        fid: Fid,
        after: DirCookie,
        count: usize,
    ) -> Result<Listing> {
        let count = count.clamp(1, DIR_ENTRIES_MAX) as u32;
        let request = MdtRequest::ReadDir { fid, after, count, plus: false };
        match self.mdt(fid, request).await?.body {
            MdtReply::Entries { entries, end, parent } => Ok(Listing { entries, end, parent }),
            _ => Err(Errno::EPROTO),
        }
    }
}
