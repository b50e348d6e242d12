//! What is answered with an entry, and listings.

use sateen_client::{AtimePolicy, Entry};
use sateen_fuse::{FileKind, Op, Reply};
use sateen_types::{DirCookie, Errno, Fid, Result};
use sateen_wire::Cred;

use super::Call;
use crate::convert;

/// Bytes of an average entry in a READDIR answer; decides how many are asked for.
const DIRENT_BYTES: usize = 40;

impl Call {
    pub(super) fn answer_entry(&self, entry: Entry, reply: Reply) {
        // What the kernel does not hear of it does not forget.
        let Some(reply) = reply.claim() else { return };
        // From here on an invalidation finds the inode or waits.
        let entry = self.client.introduce_entry(entry);
        let name_held = entry.held && self.keeps_names;
        match entry.inode {
            Some(known) => {
                reply.entry(&convert::entry(&known.attr, name_held, known.held));
            }
            None => reply.no_entry(convert::validity(name_held)),
        }
    }

    pub(super) async fn entry(&self, op: Op, cred: Cred) -> Result<Entry> {
        let client = &self.client;
        match op {
            Op::Lookup { parent, name } => {
                let parent = convert::fid_of(parent)?;
                match name.as_bytes() {
                    b"." => self.dot(parent).await,
                    b".." => self.dot_dot(parent).await,
                    name => client.lookup(parent, name).await,
                }
            }
            Op::Mkdir { parent, name, mode, .. } => {
                let mode = 0o40000 | mode & 0o7777;
                client.mknod(convert::fid_of(parent)?, name.as_bytes(), mode, 0, b"", cred).await
            }
            Op::Mknod { parent, name, mode, rdev, .. } => {
                client.mknod(convert::fid_of(parent)?, name.as_bytes(), mode, rdev, b"", cred).await
            }
            Op::Symlink { parent, name, target } => {
                let (parent, mode) = (convert::fid_of(parent)?, 0o120_777);
                client.mknod(parent, name.as_bytes(), mode, 0, target.as_bytes(), cred).await
            }
            Op::Link { ino, new_parent, new_name } => {
                let fid = convert::fid_of(ino)?;
                client.link(fid, convert::fid_of(new_parent)?, new_name.as_bytes()).await
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    async fn dot(&self, fid: Fid) -> Result<Entry> {
        Ok(Entry::nameless(self.client.getattr(fid).await?))
    }

    async fn dot_dot(&self, fid: Fid) -> Result<Entry> {
        let page = self.client.readdir(fid, DirCookie::START, 1, AtimePolicy::Never).await?;
        self.dot(self.parent(fid, page.parent)).await
    }

    /// What `..` is in a directory.
    fn parent(&self, fid: Fid, parent: Fid) -> Fid {
        if fid == self.root { fid } else { parent }
    }

    pub(super) async fn readdir(&self, ino: u64, offset: u64, mut reply: Reply) {
        let mut out = reply.dir_buffer();
        let filled = async {
            let fid = convert::fid_of(ino)?;
            let mut after = DirCookie::from_raw(offset);
            let count = out.room() / DIRENT_BYTES;
            let mut page = self.client.readdir(fid, after, count, self.atime.folders).await?;
            let parent = self.parent(fid, page.parent);
            let dots = [(DirCookie::DOT, fid, &b"."[..]), (DirCookie::DOT_DOT, parent, b"..")];
            for (cookie, fid, name) in dots {
                let kind = FileKind::Directory;
                if cookie > after && !out.push(fid.ino(), cookie.raw(), kind, name) {
                    return Ok(());
                }
            }
            loop {
                for entry in &page.entries {
                    let kind = FileKind::of_mode(entry.kind.mode_bits());
                    let kind = kind.unwrap_or(FileKind::Regular);
                    let (ino, name) = (entry.fid.ino(), entry.name.as_bytes());
                    if !out.push(ino, entry.cookie.raw(), kind, name) {
                        return Ok(());
                    }
                    after = entry.cookie;
                }
                if page.end || !out.is_empty() {
                    return Ok(());
                }
                // A page without entries that is not the last: nothing but removed ones.
                page = self.client.readdir(fid, after, count, self.atime.folders).await?;
            }
        };
        let result: Result<()> = filled.await;
        match result {
            Ok(()) => reply.directory(out),
            Err(errno) => reply.error(errno.raw()),
        }
    }
}
