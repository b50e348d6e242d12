//! One request of the kernel, from its arguments to its answer.

use std::sync::Arc;

use sateen_client::{AtimePolicy, Client, Entry, Known, OpenHow, Opened, Verb};
use sateen_fuse::{FileKind, Op, Reply, Request, SetattrIn, StatfsOut, open_flags};
use sateen_types::{Attr, DirCookie, Errno, Falloc, Fid, Result};
use sateen_wire::{Cred, RenameFlags, SetAttr, TimeSet, XattrMode};

use crate::convert;
use crate::fs::{Atime, Durable};
use crate::virtual_xattr;
use crate::xattr_names;

/// Units that statfs counts in, in bytes.
const FRAGMENT_BYTES: u64 = 4096;
/// Bytes of an average entry in a READDIR answer; decides how many are asked for.
const DIRENT_BYTES: usize = 40;

// Linux's open, rename and fallocate flags.
const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DSYNC: u32 = 0o10000;
/// Only the kernel itself sets it: the file is to be executed.
const FMODE_EXEC: u32 = 0o40;
const O_DIRECT: u32 = 0o40000;
const O_NOATIME: u32 = 0o1_000_000;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;
/// The WRITE must take set-id bits away (`FUSE_WRITE_KILL_SUIDGID`).
const WRITE_KILL_SUIDGID: u32 = 4;

/// A request being served.
pub(crate) struct Call {
    pub(crate) client: Arc<Client>,
    /// What is mounted: it is its own `..`.
    pub(crate) root: Fid,
    pub(crate) direct_io: bool,
    pub(crate) keeps_names: bool,
    pub(crate) atime: Atime,
    pub(crate) durable: Durable,
}

fn how(flags: u32, atime: AtimePolicy) -> OpenHow {
    let access = flags & O_ACCMODE;
    OpenHow {
        read: access != O_WRONLY,
        write: access == O_WRONLY || access == O_RDWR,
        append: flags & O_APPEND != 0,
        truncate: flags & O_TRUNC != 0,
        exclusive: flags & O_EXCL != 0,
        sync: flags & O_DSYNC != 0,
        exec: flags & FMODE_EXEC != 0,
        atime: if flags & O_NOATIME != 0 { AtimePolicy::Never } else { atime },
    }
}

fn kernel_flags(how: OpenHow, flags: u32, direct_io: bool, attr: &Attr) -> u32 {
    // A close has nothing to wait for, and what was stored through mappings is written when
    // they go.
    let always = open_flags::NOFLUSH;
    if how.write || direct_io || flags & O_DIRECT != 0 {
        // Writers go past the page cache: no copy, and appends find their place under the
        // data lock. Mappings still work.
        return always | open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
    }
    if how.atime.is_unread(attr) {
        // Pages from before the file was changed, by a chmod perhaps, would be read without a
        // call, and the atime would stay as it is.
        return always;
    }
    always | open_flags::KEEP_CACHE
}

/// The kernel leaves the umask to us, because a default ACL takes its place.
fn umask_of(op: &Op) -> u32 {
    match op {
        Op::Mkdir { umask, .. }
        | Op::Mknod { umask, .. }
        | Op::Create { umask, .. }
        | Op::Tmpfile { umask, .. } => *umask & 0o777,
        _ => 0,
    }
}

/// The directories in which a request makes or removes names.
fn directories_of(op: &Op) -> [Option<u64>; 2] {
    match op {
        Op::Mkdir { parent, .. }
        | Op::Mknod { parent, .. }
        | Op::Symlink { parent, .. }
        | Op::Create { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. } => [Some(*parent), None],
        Op::Link { new_parent, .. } => [Some(*new_parent), None],
        Op::Rename { parent, new_parent, .. } => {
            [Some(*parent), Some(*new_parent).filter(|new| new != parent)]
        }
        _ => [None, None],
    }
}

/// The inode whose attributes or extended attributes a request changes.
fn changed_by(op: &Op) -> Option<u64> {
    match op {
        Op::Setattr { ino, .. } | Op::Setxattr { ino, .. } | Op::Removexattr { ino, .. } => {
            Some(*ino)
        }
        Op::Fallocate { ino, .. } => Some(*ino),
        Op::Open { ino, flags, .. } => (flags & O_TRUNC != 0).then_some(*ino),
        _ => None,
    }
}

/// What a request counts as; bytes are counted by whoever moves them.
fn verb_of(op: &Op) -> Option<Verb> {
    Some(match op {
        Op::Open { .. } => Verb::Open,
        Op::Release { .. } => Verb::Close,
        Op::Lseek { .. } => Verb::Seek,
        Op::Fsync { .. } | Op::Fsyncdir { .. } => Verb::Fsync,
        Op::Readdir { .. } => Verb::Readdir,
        Op::Setattr { .. } => Verb::Setattr,
        Op::Fallocate { .. } => Verb::Fallocate,
        Op::Getattr { .. } => Verb::Getattr,
        Op::Lookup { .. } => Verb::Lookup,
        Op::Create { .. } => Verb::Create,
        Op::Link { .. } => Verb::Link,
        Op::Unlink { .. } => Verb::Unlink,
        Op::Symlink { .. } => Verb::Symlink,
        Op::Mkdir { .. } => Verb::Mkdir,
        Op::Rmdir { .. } => Verb::Rmdir,
        Op::Mknod { .. } => Verb::Mknod,
        Op::Rename { .. } => Verb::Rename,
        Op::Statfs { .. } => Verb::Statfs,
        Op::Setxattr { .. } | Op::Removexattr { .. } => Verb::Setxattr,
        Op::Getxattr { .. } | Op::Listxattr { .. } => Verb::Getxattr,
        _ => return None,
    })
}

fn set_attr(from: &SetattrIn) -> SetAttr {
    let time = |now: bool, at: Option<sateen_fuse::Time>| match (now, at) {
        (true, _) => Some(TimeSet::Now),
        (false, at) => at.map(|at| TimeSet::At(convert::timespec(at))),
    };
    let set = SetAttr {
        mode: from.mode.map(|mode| mode & 0o7777),
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        atime: time(from.atime_now, from.atime),
        mtime: time(from.mtime_now, from.mtime),
        kill_suid: from.kill_suidgid,
    };
    // A request that changes nothing is what is left of `chown` to nobody, and of an `fallocate`
    // that takes the set-id bits away: these the kernel leaves to us.
    let nothing = set == SetAttr::default();
    SetAttr { kill_suid: set.kill_suid || nothing, ..set }
}

impl Call {
    pub(crate) async fn run(self, request: Request, reply: Reply) {
        if let Some(verb) = verb_of(&request.op) {
            self.client.count(verb);
        }
        let umask = umask_of(&request.op);
        let cred = Cred { uid: request.uid, gid: request.gid, umask };
        let changed = self.to_settle(&request.op);
        match request.op {
            Op::Lookup { .. }
            | Op::Mkdir { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Link { .. } => {
                let entry = self.settled(changed, self.entry(request.op, cred).await).await;
                let Some(reply) = self.heard(changed, &entry, reply) else { return };
                match entry {
                    Ok(entry) => self.answer_entry(entry, reply),
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Getattr { ino, .. } => match self.getattr(ino).await {
                Ok(known) => reply.attr(&convert::attr(&known.attr), convert::validity(known.held)),
                Err(errno) => reply.error(errno.raw()),
            },
            Op::Statx { ino, .. } => match self.getattr(ino).await {
                Ok(known) => {
                    let (attr, btime) = (convert::attr(&known.attr), convert::btime(&known.attr));
                    reply.statx(&attr, Some(btime), convert::validity(known.held));
                }
                Err(errno) => reply.error(errno.raw()),
            },
            Op::Setattr { ino, attr } => {
                let set = self.settled(changed, self.setattr(ino, &attr, cred).await).await;
                let Some(reply) = self.heard(changed, &set, reply) else { return };
                match set {
                    // Older kernels believe this answer even if an invalidation overtook it.
                    Ok(known) => reply.attr(&convert::attr(&known.attr), convert::validity(false)),
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Open { .. } | Op::Create { .. } | Op::Tmpfile { .. } => {
                self.open(request.op, cred, changed, reply).await;
            }
            Op::Read { fh, offset, size, .. } => self.read(fh, offset, size, reply).await,
            Op::Write { .. } => self.write(request.op, cred, reply).await,
            Op::Lseek { fh, offset, whence, .. } => match self.seek(fh, offset, whence).await {
                Ok(found) => reply.lseek(found),
                Err(errno) => reply.error(errno.raw()),
            },
            // Without an answer of our own the kernel would keep listings, and give them out again
            // after another client has changed the directory: no invalidation drops them.
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Readdir { ino, offset, .. } => self.readdir(ino, offset, reply).await,
            Op::Statfs { .. } => self.statfs(reply).await,
            Op::Readlink { ino } => {
                let target = match convert::fid_of(ino) {
                    Ok(fid) => self.client.readlink(fid).await,
                    Err(errno) => Err(errno),
                };
                match target {
                    Ok(target) => reply.bytes(&target),
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Getxattr { .. } | Op::Listxattr { .. } => {
                self.xattr(request.op, request.uid, reply).await;
            }
            Op::Fsync { ino, .. } | Op::Fsyncdir { ino, .. } => {
                match (self.plain(request.op, cred).await, reply.claim()) {
                    (Ok(()), Some(reply)) => reply.ok(),
                    (Err(errno), Some(reply)) => reply.error(errno.raw()),
                    (Err(Errno::EIO), None) => self.not_told(ino),
                    (_, None) => {}
                }
            }
            op => {
                let done = self.settled(changed, self.plain(op, cred).await).await;
                let Some(reply) = self.heard(changed, &done, reply) else { return };
                match done {
                    Ok(()) => reply.ok(),
                    Err(errno) => reply.error(errno.raw()),
                }
            }
        }
    }

    /// The inodes that are to be durable before a request is answered that has changed them.
    fn to_settle(&self, op: &Op) -> [Option<u64>; 2] {
        let directories = if self.durable.names { directories_of(op) } else { [None; 2] };
        match changed_by(op) {
            Some(ino) if self.durable.files => [Some(ino), None],
            _ => directories,
        }
    }

    /// Waits until inodes are durable that something has changed, if that went well.
    async fn settled<T>(&self, inodes: [Option<u64>; 2], done: Result<T>) -> Result<T> {
        let done = done?;
        for ino in inodes.into_iter().flatten() {
            self.client.fsync(convert::fid_of(ino)?).await?;
        }
        Ok(done)
    }

    /// The same of an open, which is undone if it is not to be.
    async fn settled_open<T>(
        &self,
        inodes: [Option<u64>; 2],
        opened: Result<T>,
        handle: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let opened = opened?;
        match self.settled(inodes, Ok(())).await {
            Ok(()) => Ok(opened),
            Err(errno) => {
                // It has failed already.
                let _ = self.client.close(handle(&opened)).await;
                Err(errno)
            }
        }
    }

    /// Who is to be answered; `None` if nobody waits any more. If these inodes should have become
    /// durable, and it is `EIO` that nobody hears, the next fsync of each says so.
    fn heard<T>(&self, inodes: [Option<u64>; 2], done: &Result<T>, reply: Reply) -> Option<Reply> {
        if inodes == [None; 2] {
            return Some(reply);
        }
        let reply = reply.claim();
        if reply.is_none() && matches!(done, Err(Errno::EIO)) {
            inodes.into_iter().flatten().for_each(|ino| self.not_told(ino));
        }
        reply
    }

    /// A program was not told of an `EIO` that it did not wait for.
    fn not_told(&self, ino: u64) {
        if let Ok(fid) = convert::fid_of(ino) {
            self.client.not_told(fid);
        }
    }

    fn answer_entry(&self, entry: Entry, reply: Reply) {
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

    async fn entry(&self, op: Op, cred: Cred) -> Result<Entry> {
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

    async fn getattr(&self, ino: u64) -> Result<Known> {
        self.client.getattr(convert::fid_of(ino)?).await
    }

    async fn setattr(&self, ino: u64, attr: &SetattrIn, cred: Cred) -> Result<Known> {
        // By a descriptor that an eviction has taken, others' data is not cut.
        if let (Some(fh), Some(_)) = (attr.fh, attr.size) {
            self.client.still_open(fh)?;
        }
        self.client.setattr(convert::fid_of(ino)?, set_attr(attr), cred).await
    }

    async fn open(&self, op: Op, cred: Cred, changed: [Option<u64>; 2], reply: Reply) {
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
                        let attr = &opened.known.attr;
                        reply.opened(opened.handle, kernel_flags(how, flags, self.direct_io, attr));
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
                        let flags = kernel_flags(how, flags, self.direct_io, &known.attr);
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
                        let flags = kernel_flags(how, flags, self.direct_io, &known.attr);
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

    async fn read(&self, fh: u64, offset: u64, size: u32, mut reply: Reply) {
        let buffer = reply.take_room(size as usize);
        match self.client.read(fh, offset, size, buffer).await {
            Ok(data) => reply.data(data),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    async fn write(&self, op: Op, cred: Cred, reply: Reply) {
        let Op::Write { ino, fh, offset, data, flags, write_flags, .. } = op else {
            return reply.error(Errno::ENOSYS.raw());
        };
        if write_flags & WRITE_KILL_SUIDGID != 0
            && let Ok(fid) = convert::fid_of(ino)
            && self.client.has_set_id(fid)
        {
            let set = SetAttr { kill_suid: true, ..SetAttr::default() };
            if let Err(errno) = self.client.setattr(fid, set, cred).await {
                return reply.error(errno.raw());
            }
        }
        let mut written = self.client.write(fh, offset, data, flags & O_APPEND != 0).await;
        let durable = flags & O_DSYNC != 0 || self.durable.files;
        if durable && written.is_ok() {
            written = self.client.sync_written(fh).await.and(written);
        }
        let inode = [Some(ino).filter(|_| durable), None];
        let Some(reply) = self.heard(inode, &written, reply) else { return };
        match written {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    async fn seek(&self, fh: u64, offset: u64, whence: u32) -> Result<u64> {
        match whence {
            SEEK_DATA => self.client.seek(fh, offset, false).await,
            SEEK_HOLE => self.client.seek(fh, offset, true).await,
            _ => Err(Errno::EINVAL),
        }
    }

    async fn readdir(&self, ino: u64, offset: u64, mut reply: Reply) {
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

    async fn statfs(&self, reply: Reply) {
        match self.client.statfs().await {
            Ok(space) => reply.statfs(&StatfsOut {
                blocks: space.bytes_total / FRAGMENT_BYTES,
                bfree: space.bytes_free / FRAGMENT_BYTES,
                bavail: space.bytes_avail / FRAGMENT_BYTES,
                files: space.files_total,
                ffree: space.files_free,
                bsize: 1 << 20,
                namelen: sateen_types::NAME_MAX as u32,
                frsize: FRAGMENT_BYTES as u32,
            }),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    async fn xattr(&self, op: Op, uid: u32, reply: Reply) {
        let (value, size) = match op {
            Op::Getxattr { ino, name, size } => {
                (self.get_xattr(ino, (name.as_bytes(), uid)).await, size)
            }
            Op::Listxattr { ino, size } => {
                let names = match convert::fid_of(ino) {
                    Ok(fid) => {
                        let names = self.client.listxattr(fid).await;
                        names.map(|names| xattr_names::visible(&names, uid))
                    }
                    Err(errno) => Err(errno),
                };
                (names, size)
            }
            _ => (Err(Errno::ENOSYS), 0),
        };
        match value {
            Ok(value) if size == 0 => reply.xattr_size(value.len() as u32),
            Ok(value) => reply.bytes(&value),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    async fn get_xattr(&self, ino: u64, named: (&[u8], u32)) -> Result<Vec<u8>> {
        let fid = convert::fid_of(ino)?;
        if let Some(value) = virtual_xattr::get(&self.client, fid, named).await {
            return value;
        }
        xattr_names::check(named.0)?;
        Ok(self.client.getxattr(fid, named.0).await?.to_vec())
    }

    /// An ACL set by somebody outside the file's group takes the set-group-id bit away.
    async fn kill_sgid(&self, fid: Fid) -> Result<()> {
        let mode = self.client.getattr(fid).await?.attr.mode & 0o7777;
        if mode & 0o2000 != 0 {
            let set = SetAttr { mode: Some(mode & !0o2000), ..SetAttr::default() };
            self.client.setattr(fid, set, Cred::default()).await?;
        }
        Ok(())
    }

    /// Requests whose answer is only whether they went well.
    async fn plain(&self, op: Op, cred: Cred) -> Result<()> {
        let client = &self.client;
        match op {
            Op::Unlink { parent, name } => {
                client.unlink(convert::fid_of(parent)?, name.as_bytes(), false).await
            }
            Op::Rmdir { parent, name } => {
                client.unlink(convert::fid_of(parent)?, name.as_bytes(), true).await
            }
            Op::Rename { parent, name, new_parent, new_name, flags } => {
                if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0 {
                    return Err(Errno::EINVAL);
                }
                let no_replace = flags & RENAME_NOREPLACE != 0;
                let exchange = flags & RENAME_EXCHANGE != 0;
                let from = (convert::fid_of(parent)?, name.as_bytes());
                let to = (convert::fid_of(new_parent)?, new_name.as_bytes());
                match flags & RENAME_WHITEOUT != 0 {
                    true if exchange => Err(Errno::EINVAL),
                    true => client.rename_whiteout(from, to, no_replace, cred).await,
                    false => client.rename(from, to, RenameFlags { no_replace, exchange }).await,
                }
            }
            Op::Release { fh, .. } => client.close(fh).await,
            Op::Fsync { fh, .. } => client.fsync_file(fh).await,
            Op::Fsyncdir { ino, .. } => client.fsync(convert::fid_of(ino)?).await,
            Op::Syncfs { .. } => client.sync_all().await,
            Op::Flush { .. } | Op::Releasedir { .. } => Ok(()),
            Op::Setxattr { ino, name, value, flags, acl_kill_sgid } => {
                let fid = convert::fid_of(ino)?;
                let name = name.as_bytes();
                if let Some(result) = virtual_xattr::set(client, fid, name, &value).await {
                    return result;
                }
                xattr_names::check(name)?;
                let mode = match flags {
                    0 => XattrMode::Any,
                    1 => XattrMode::Create,
                    2 => XattrMode::Replace,
                    // It must not be there, and it must.
                    3 => return client.getxattr(fid, name).await.and(Err(Errno::EEXIST)),
                    _ => return Err(Errno::EINVAL),
                };
                if acl_kill_sgid {
                    self.kill_sgid(fid).await?;
                }
                client.setxattr(fid, name, value, mode).await
            }
            Op::Removexattr { ino, name } => {
                xattr_names::check(name.as_bytes())?;
                client.removexattr(convert::fid_of(ino)?, name.as_bytes()).await
            }
            Op::Fallocate { fh, offset, length, mode, .. } => {
                let keep = mode & FALLOC_KEEP_SIZE != 0;
                let how = match mode & !FALLOC_KEEP_SIZE {
                    0 => Falloc::Allocate,
                    FALLOC_PUNCH_HOLE if keep => Falloc::PunchHole,
                    FALLOC_ZERO_RANGE => Falloc::ZeroRange,
                    _ => return Err(Errno::EOPNOTSUPP),
                };
                client.allocate(fh, (offset, length), how, keep).await
            }
            // The kernel then does it itself, or says so to the program.
            _ => Err(Errno::ENOSYS),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::future::{pending, ready};
    use std::pin::Pin;

    use sateen_client::{ClientConfig, KernelInval, Port, Task};
    use sateen_fuse::MountFlags;
    use sateen_types::{ClientId, Ino, Seq, Timestamp};
    use sateen_wire::Message;

    use super::*;

    /// Nobody answers.
    struct Alone;

    impl Port for Alone {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }
        fn send(&self, _: Message) {}
        fn spawn(&self, _: Task) {}
        fn sleep(&self, _: u64) -> Task {
            Box::pin(pending())
        }
        fn invalidate(&self, _: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>> {
            Box::pin(ready(true))
        }
        fn can_prune(&self) -> bool {
            false
        }
        fn prune(&self, _: Vec<Ino>) {}
    }

    #[test]
    fn only_lost_data_that_nobody_heard_of_is_told_again() {
        let ino = Fid::new(Seq(0x2_0000_0400), 1).ino();
        let durable = [Some(ino), None];
        for (inodes, errno, waits, noted) in [
            (durable, Errno::EIO, false, true),
            (durable, Errno::EIO, true, false),
            (durable, Errno::EINTR, false, false),
            ([None; 2], Errno::EIO, false, false),
        ] {
            let config = ClientConfig { id: ClientId(1), file_system: 0 };
            let client = Client::new(config, Arc::new(Alone));
            let call = Call {
                client: client.clone(),
                root: Fid::ROOT,
                direct_io: false,
                keeps_names: true,
                atime: Atime::of(&MountFlags::default()),
                durable: Durable { names: true, files: true },
            };
            let (reply, revoker) = Reply::capture(0).0.revocable();
            assert!(waits || revoker.revoke(Errno::EINTR.raw()));
            let heard = call.heard(inodes, &Err::<(), _>(errno), reply);
            assert_eq!(heard.is_some(), waits || inodes == [None; 2]);
            assert_eq!(client.census().inodes, usize::from(noted), "{errno:?}, waits: {waits}");
        }
    }
}
