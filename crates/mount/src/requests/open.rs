//! Opens of all kinds.

use sateen_client::{Entry, Opened};
use sateen_fuse::{Op, Reply};
use sateen_types::{Errno, Result};
use sateen_wire::Cred;

use super::Call;
use super::words::{how, kernel_flags};
use crate::convert;

impl Call {
    pub(super) async fn open(&self, op: Op, cred: Cred, changed: [Option<u64>; 2], reply: Reply) {
        match op {
            Op::Open { ino, flags, .. } => {
                let how = how(flags, self.atime.files);
                let opened = match convert::fid_of(ino) {
                    Ok(fid) => self.client.open(fid, how, cred).await,
                    Err(errno) => Err(errno),
                };
                let opened = self.settled_open(changed, opened, |opened| opened.handle).await;
                let heard = self.heard(changed, &opened, reply).and_then(Reply::claim);
                let Some(reply) = heard else { return self.close_unheard(opened).await };
                match opened {
                    Ok(opened) => {
                        reply.opened(opened.handle, kernel_flags(self, how, flags, &opened));
                    }
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Create { parent, name, mode, flags, .. } => {
                let how = how(flags, self.atime.files);
                let created = match convert::fid_of(parent) {
                    Ok(parent) => {
                        self.client.create(parent, name.as_bytes(), mode, how, cred).await
                    }
                    Err(errno) => Err(errno),
                };
                let created =
                    self.settled_open(changed, created, |(_, opened)| opened.handle).await;
                let heard = self.heard(changed, &created, reply).and_then(Reply::claim);
                let Some(reply) = heard else {
                    return self.close_unheard(created.map(|(_, opened)| opened)).await;
                };
                match created {
                    Ok((entry, opened)) => {
                        let entry = self.client.introduce_entry(entry);
                        let known = entry.inode.unwrap_or(opened.known);
                        let name_held = entry.held && self.keeps_names;
                        let out = convert::entry(&known.attr, name_held, known.held);
                        let flags = kernel_flags(self, how, flags, &Opened { known, ..opened });
                        reply.created(&out, opened.handle, flags);
                    }
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Tmpfile { parent, mode, flags, .. } => {
                let how = how(flags, self.atime.files);
                let made = match convert::fid_of(parent) {
                    Ok(parent) => self.client.tmpfile(parent, mode, how, cred).await,
                    Err(errno) => Err(errno),
                };
                let Some(reply) = reply.claim() else { return self.close_unheard(made).await };
                match made {
                    Ok(opened) => {
                        let entry = self.client.introduce_entry(Entry::nameless(opened.known));
                        let known = entry.inode.unwrap_or(opened.known);
                        let flags = kernel_flags(self, how, flags, &Opened { known, ..opened });
                        let out = convert::entry(&known.attr, false, known.held);
                        reply.created(&out, opened.handle, flags);
                    }
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            _ => reply.error(Errno::ENOSYS.raw()),
        }
    }

    /// An open whose program did not wait for it.
    async fn close_unheard(&self, opened: Result<Opened>) {
        if let Ok(opened) = opened
            && let Err(error) = self.client.close(opened.handle).await
        {
            tracing::debug!(%error, "an open that nobody waited for was not closed well");
        }
    }
}
