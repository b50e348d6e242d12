//! Opens of all kinds.

use std::sync::Arc;

use sateen_client::{AtimePolicy, Entry, OpenHow, Opened, Way};
use sateen_fuse::{Backing, Op, Reply, open_flags};
use sateen_types::{Errno, Result};
use sateen_wire::Cred;

use super::Call;
use super::words::{flags_of_all, how, kernel_flags};
use crate::convert;

/// A file that the kernel has, and the flags with which it is answered an open of it.
type Backed = (Arc<Backing>, u32);

impl Call {
    pub(super) async fn open(&self, op: Op, cred: Cred, changed: [Option<u64>; 2], reply: Reply) {
        match op {
            Op::Open { ino, flags, .. } => {
                self.note_open(flags);
                let how = how(flags, self.atime.files);
                let opened = match convert::fid_of(ino) {
                    Ok(fid) => self.client.open(fid, how, cred).await,
                    Err(errno) => Err(errno),
                };
                let opened = self.settled_open(changed, opened, |opened| opened.handle).await;
                let opened = self.with_way(opened, |opened| opened).await;
                let heard = self.heard(changed, &opened, reply).and_then(Reply::claim);
                let Some(reply) = heard else {
                    let unheard = self.close_unheard(opened.map(|(opened, _)| opened));
                    return Box::pin(unheard).await;
                };
                match opened {
                    Ok((opened, Some((backing, flags)))) => {
                        reply.opened_backed(opened.handle, flags, &backing);
                    }
                    Ok((opened, None)) => {
                        reply.opened(opened.handle, kernel_flags(self, how, flags, &opened));
                    }
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Create { parent, name, mode, flags, .. } => {
                self.note_open(flags);
                let how = how(flags, self.atime.files);
                let created = match convert::fid_of(parent) {
                    Ok(parent) => {
                        self.client.create(parent, name.as_bytes(), mode, how, cred).await
                    }
                    Err(errno) => Err(errno),
                };
                let created =
                    self.settled_open(changed, created, |(_, opened)| opened.handle).await;
                // It may depend on locks, for which others may have to wait until this kernel has
                // dropped something: so it is asked before the inode is one that the kernel knows, which
                // it does by this answer alone.
                let created = self.with_way(created, |(_, opened)| opened).await;
                let heard = self.heard(changed, &created, reply).and_then(Reply::claim);
                let Some(reply) = heard else {
                    let unheard = self.close_unheard(created.map(|((_, opened), _)| opened));
                    return Box::pin(unheard).await;
                };
                match created {
                    Ok(((entry, opened), backed)) => {
                        self.answer_create(entry, (how, flags), (opened, backed), reply);
                    }
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Tmpfile { parent, mode, flags, .. } => {
                self.note_open(flags);
                let how = how(flags, self.atime.files);
                let made = match convert::fid_of(parent) {
                    Ok(parent) => Box::pin(self.client.tmpfile(parent, mode, how, cred)).await,
                    Err(errno) => Err(errno),
                };
                let Some(reply) = reply.claim() else {
                    return Box::pin(self.close_unheard(made)).await;
                };
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

    /// An open that has succeeded, with how the kernel is answered it. As long as that is not known a signal
    /// may end the waiting; and if it cannot be found out the open has failed.
    async fn with_way<T>(
        &self,
        opened: Result<T>,
        of: impl Fn(&T) -> &Opened,
    ) -> Result<(T, Option<Backed>)> {
        let opened = opened?;
        match self.way_of(of(&opened)).await {
            Ok(backed) => Ok((opened, backed)),
            Err(errno) => {
                tracing::debug!(%errno, "an open has failed because the file is given away");
                // It has failed already.
                let _ = Box::pin(self.client.close(of(&opened).handle)).await;
                Err(errno)
            }
        }
    }

    fn answer_create(
        &self,
        entry: Entry,
        (how, flags): (OpenHow, u32),
        (opened, backed): (Opened, Option<Backed>),
        reply: Reply,
    ) {
        let entry = self.client.introduce_entry(entry);
        let known = entry.inode.unwrap_or(opened.known);
        let name_held = entry.held && self.keeps_names;
        // Of a given inode nothing is known from one moment to the next.
        let out = convert::entry(&known.attr, name_held, known.held && backed.is_none());
        match backed {
            Some((backing, flags)) => reply.created_backed(&out, opened.handle, flags, &backing),
            None => {
                let opened = Opened { known, ..opened };
                let flags = kernel_flags(self, how, flags, &opened);
                reply.created(&out, opened.handle, flags);
            }
        }
    }

    /// With which file, and which flags, the kernel is answered an open of one that it is given;
    /// `None` if it is none. To be asked for each that has succeeded, once.
    async fn way_of(&self, opened: &Opened) -> Result<Option<Backed>> {
        let Some(given) = &self.given else { return Ok(None) };
        // What has to be durable with each write must be asked for; and the kernel sets atimes by the
        // rules of the file system below, which are taken to be those of `relatime`.
        let relative = self.atime.files == AtimePolicy::Relative;
        let begins = !self.durable.files && !self.direct_io && relative;
        let beside = match self.client.way_of(opened.handle, begins).await? {
            Way::Ordinary => return Ok(None),
            Way::Given => self.durable.files || self.direct_io,
            Way::Beside => true,
        };
        // The client has it given away, and the kernel would take no other answer.
        let backing = given.of(opened.known.attr.fid.ino()).ok_or(Errno::EIO)?;
        let always = flags_of_all(self, opened.handle);
        let flags = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        Ok(Some((backing, if beside { always | flags } else { always })))
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
