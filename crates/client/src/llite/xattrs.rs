//! Symbolic links, extended attributes and striping.

use std::sync::Arc;

use bytes::Bytes;
use sateen_types::{Errno, Fid, Layout, Name, Result, StripePolicy};
use sateen_wire::{MdtReply, MdtRequest, XattrMode};

use crate::client::Client;
use crate::kept_xattrs::{CAPABILITY, Question};
use crate::mdc::MdtAnswer;
use crate::stats::Verb;
use crate::sync::lock;

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
    /// What was answered before, and still stands, or the MDT's answer, which is kept.
    async fn bytes(&self, fid: Fid, question: Question<'_>, request: MdtRequest) -> Result<Bytes> {
        // First: one that ends meanwhile has noted what it did.
        let inode =
            if self.statahead.is_changing_xattrs(fid) { None } else { self.known_inode(fid) };
        let kept = inode.as_ref().and_then(|inode| lock(&inode.state).kept_answer(question));
        if let Some(answer) = kept {
            self.count(Verb::LockHit);
            return answer;
        }
        let (answer, stamp) = match self.mdt_stamped(fid, request).await {
            Ok(MdtAnswer { body: MdtReply::Bytes(bytes), stamp, .. }) => (Ok(bytes), stamp),
            Ok(_) => return Err(Errno::EPROTO),
            Err((errno, stamp)) => (Err(errno), stamp),
        };
        if let Some(inode) = &inode {
            self.xattr_cache.keep(inode, (question, &answer), stamp);
        }
        answer
    }

    /// A request to change extended attributes failed, and may have been executed, or be yet.
    fn xattrs_are_doubtful(&self, fid: Fid) {
        let Some(inode) = self.known_inode(fid) else { return };
        let now = self.stamp();
        let mut state = lock(&inode.state);
        state.no_xattrs = false;
        state.drop_xattrs();
        state.changed_at = now;
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub async fn readlink(self: &Arc<Client>, fid: Fid) -> Result<Bytes> {
        self.bytes(fid, Question::Target, MdtRequest::ReadLink { fid }).await
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
        let request = MdtRequest::GetXattr { fid, name: name.clone() };
        self.bytes(fid, Question::Value(name.as_bytes()), request).await
    }

    /// Names of all extended attributes, each ended by a NUL.
    ///
    /// # Errors
    /// The MDT's.
    pub async fn listxattr(self: &Arc<Client>, fid: Fid) -> Result<Bytes> {
        if self.has_no_xattrs(fid) {
            return Ok(Bytes::new());
        }
        self.bytes(fid, Question::Names, MdtRequest::ListXattr { fid }).await
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
        if answer.is_err() {
            self.xattrs_are_doubtful(fid);
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
        let _changing = self.statahead.changes_xattrs(fid);
        let answer = self.mdt(fid, MdtRequest::RemoveXattr { fid, name }).await;
        if answer.is_err() {
            self.xattrs_are_doubtful(fid);
        }
        self.own_change(&self.inode(fid), None, answer?.stamp).await;
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
