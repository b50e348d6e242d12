//! Symbolic links, extended attributes and striping.

use std::sync::Arc;

use bytes::Bytes;
use sateen_types::{Errno, Fid, Layout, Name, Result, StripePolicy};
use sateen_wire::{MdtReply, MdtRequest, XattrMode};

use crate::client::Client;
use crate::sync::lock;

/// What a program may do whoever runs it: the next write takes it away.
const CAPABILITY: &[u8] = b"security.capability";

/// Where a file lies, or new ones of a directory will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Striping {
    /// The layout of a file; of a directory the OSTs that it names, if it does.
    pub layout: Option<Arc<Layout>>,
    /// What a directory says of its own.
    pub policy: Option<StripePolicy>,
    /// What the file system says where neither a file nor its directory does.
    pub default: StripePolicy,
}

/// A name of an xattr: too long is `ERANGE` here, as in Linux.
fn xattr_name(name: &[u8]) -> Result<Name> {
    Name::new(name).map_err(|_| Errno::ERANGE)
}

impl Client {
    async fn bytes(&self, fid: Fid, request: MdtRequest) -> Result<Bytes> {
        match self.mdt(fid, request).await?.body {
            MdtReply::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub async fn readlink(self: &Arc<Client>, fid: Fid) -> Result<Bytes> {
        self.bytes(fid, MdtRequest::ReadLink { fid }).await
    }

    /// Value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if it has none.
    pub async fn getxattr(self: &Arc<Client>, fid: Fid, name: &[u8]) -> Result<Bytes> {
        let name = xattr_name(name)?;
        if self.has_no_xattrs(fid) {
            return Err(Errno::ENODATA);
        }
        self.bytes(fid, MdtRequest::GetXattr { fid, name }).await
    }

    /// Names of all extended attributes, each ended by a NUL.
    ///
    /// # Errors
    /// The MDT's.
    pub async fn listxattr(self: &Arc<Client>, fid: Fid) -> Result<Bytes> {
        if self.has_no_xattrs(fid) {
            return Ok(Bytes::new());
        }
        self.bytes(fid, MdtRequest::ListXattr { fid }).await
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As `setxattr`.
    pub async fn setxattr(
        self: &Arc<Client>,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<()> {
        let name = xattr_name(name)?;
        if name.as_bytes() == CAPABILITY {
            // What the MDT hears later of a write from before would take it away again.
            self.tell_size(&self.inode(fid)).await?;
        }
        let _changing = self.statahead.changes_xattrs(fid);
        let answer = self.mdt(fid, MdtRequest::SetXattr { fid, name, value, mode }).await;
        if let (Err(_), Some(inode)) = (&answer, self.known_inode(fid)) {
            // It may have been executed, or be yet.
            lock(&inode.state).no_xattrs = false;
        }
        self.own_change(&self.inode(fid), None, answer?.stamp).await;
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub async fn removexattr(self: &Arc<Client>, fid: Fid, name: &[u8]) -> Result<()> {
        let name = xattr_name(name)?;
        let answer = self.mdt(fid, MdtRequest::RemoveXattr { fid, name }).await?;
        self.own_change(&self.inode(fid), None, answer.stamp).await;
        Ok(())
    }

    /// Chooses the striping of a directory's new files, or of a file without objects.
    ///
    /// # Errors
    /// `EEXIST` if the file has objects; `EINVAL` if the policy cannot be.
    pub async fn setstripe(self: &Arc<Client>, fid: Fid, policy: StripePolicy) -> Result<()> {
        let answer = self.mdt(fid, MdtRequest::SetStripe { fid, policy }).await?;
        let inode = self.inode(fid);
        lock(&inode.state).layout = None;
        self.own_change(&inode, None, answer.stamp).await;
        Ok(())
    }

    /// Puts a file that has no objects yet, or the new files of a directory, on these OSTs.
    ///
    /// # Errors
    /// `EEXIST` for a file that may have objects, `EINVAL` for an OST that is not there; the MDT's.
    pub async fn setlayout(
        self: &Arc<Client>,
        fid: Fid,
        stripe_size: u32,
        osts: Vec<u32>,
    ) -> Result<()> {
        let answer = self.mdt(fid, MdtRequest::SetLayout { fid, stripe_size, osts }).await?;
        let inode = self.inode(fid);
        lock(&inode.state).layout = None;
        self.own_change(&inode, None, answer.stamp).await;
        Ok(())
    }

    /// The names of an inode, as a link-EA.
    ///
    /// # Errors
    /// `ENOENT` if it has none; the MDT's.
    pub async fn links(&self, fid: Fid) -> Result<Bytes> {
        match self.mdt(fid, MdtRequest::GetLinks { fid }).await?.body {
            MdtReply::Bytes(links) => Ok(links),
            _ => Err(Errno::EPROTO),
        }
    }

    /// The layout of a file; the policy of a directory, and the OSTs that it names, if it does;
    /// and what the file system says where neither does.
    ///
    /// # Errors
    /// The MDT's.
    pub async fn getstripe(self: &Arc<Client>, fid: Fid) -> Result<Striping> {
        match self.mdt(fid, MdtRequest::GetStripe { fid }).await?.body {
            MdtReply::Striped { layout, policy, default } => {
                Ok(Striping { layout, policy, default })
            }
            _ => Err(Errno::EPROTO),
        }
    }
}
