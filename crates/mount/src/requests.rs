//! One request of the kernel, from its arguments to its answer: here, which verb of the client it
//! becomes, and what is waited for before it is answered.
//!
//! | module | has |
//! |---|---|
//! | `words` | the kernel's flags and operations in the client's words |
//! | `names` | what is answered with an entry, and listings |
//! | `open` | opens of all kinds |
//! | `data` | reads, writes, seeks, and the space there is |
//! | `ioctl` | group locks |
//! | `locks` | flock and fcntl locks |
//! | `xattr` | extended attributes |

mod data;
mod ioctl;
mod locks;
mod names;
mod open;
mod words;
mod xattr;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sateen_client::{Client, Known};
use sateen_fuse::{LongWait, Op, Reply, Request, SetattrIn};
use sateen_types::{Errno, Falloc, Fid, Result};
use sateen_wire::{Cred, RenameFlags, XattrMode};

use crate::convert;
use crate::fs::{Atime, Durable, Locking};
use crate::given::GivenFiles;
use crate::virtual_xattr;
use crate::xattr_names;
pub(crate) use data::WRITE_CACHE;
pub(crate) use ioctl::waits_for_group;
pub(crate) use locks::F_UNLCK;
use words::{changed_by, directories_of, is_one_word, set_attr, umask_of, verb_of};

// Linux's rename and fallocate flags.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;

/// A request being served.
pub(crate) struct Call {
    pub(crate) client: Arc<Client>,
    /// What is mounted: it is its own `..`.
    pub(crate) root: Fid,
    pub(crate) direct_io: bool,
    pub(crate) locking: Locking,
    pub(crate) fcntl_locks: Arc<AtomicBool>,
    /// Some program has a file that does not wait for groups: reads and writes say which.
    pub(crate) nonblock: Arc<AtomicBool>,
    pub(crate) keeps_names: bool,
    pub(crate) atime: Atime,
    pub(crate) durable: Durable,
    pub(crate) given: Option<Arc<GivenFiles>>,
}

impl Call {
    /// `long` is given to those whose answer may take for ever.
    ///
    /// Each request takes as much room, and is moved as often, as the largest needs. So what is asked for
    /// seldom is boxed, here and in what the client does (`a_request_takes_little_room` holds it down).
    pub(crate) async fn run(self, request: Request, long: Option<LongWait>, reply: Reply) {
        if let Some(verb) = verb_of(&request.op) {
            debug_assert!(is_one_word(verb, reply.opcode()));
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
                let set = Box::pin(self.setattr(ino, &attr, cred)).await;
                let set = self.settled(changed, set).await;
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
            Op::Read { .. } => self.read(request.op, reply).await,
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
            Op::Getlk { .. } | Op::Setlk { .. } => {
                Box::pin(self.file_lock(request.op, long, reply)).await;
            }
            Op::Ioctl { .. } => Box::pin(self.ioctl(request.op, long, reply)).await,
            Op::Fsync { ino, .. } | Op::Fsyncdir { ino, .. } => {
                match (self.plain(request.op, cred).await, reply.claim()) {
                    (Ok(()), Some(reply)) => reply.ok(),
                    (Err(errno), Some(reply)) => reply.error(errno.raw()),
                    (Ok(()) | Err(Errno::EINTR), None) => {}
                    (Err(_), None) => self.not_told(ino),
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
            Box::pin(self.client.fsync(convert::fid_of(ino)?)).await?;
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
                let _ = Box::pin(self.client.close(handle(&opened))).await;
                Err(errno)
            }
        }
    }

    /// Who is to be answered; `None` if nobody waits any more. If these inodes should have become
    /// durable, and nobody hears that they have not, the next fsync of each says so.
    fn heard<T>(&self, inodes: [Option<u64>; 2], done: &Result<T>, reply: Reply) -> Option<Reply> {
        if inodes == [None; 2] {
            return Some(reply);
        }
        let reply = reply.claim();
        if reply.is_none() && matches!(done, Err(Errno::EIO | Errno::ENOSPC | Errno::EDQUOT)) {
            inodes.into_iter().flatten().for_each(|ino| self.not_told(ino));
        }
        reply
    }

    /// A program was not told of an error that it did not wait for.
    fn not_told(&self, ino: u64) {
        if let Ok(fid) = convert::fid_of(ino) {
            self.client.not_told(fid);
        }
    }

    async fn getattr(&self, ino: u64) -> Result<Known> {
        self.client.getattr(convert::fid_of(ino)?).await
    }

    async fn setattr(&self, ino: u64, attr: &SetattrIn, cred: Cred) -> Result<Known> {
        // By a descriptor that an eviction has taken, others' data is not cut.
        if let (Some(fh), Some(_)) = (attr.fh, attr.size) {
            self.client.still_open(fh)?;
        }
        // A member of a group cuts through its descriptor what others of it have open.
        let through = attr.fh.filter(|_| attr.size.is_some());
        self.client.setattr_through(convert::fid_of(ino)?, through, set_attr(attr), cred).await
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
            Op::Flush { fh, lock_owner, .. } => {
                // First: it may find what the close has to say.
                client.closed_by(fh, lock_owner).await;
                client.flush_file(fh)
            }
            Op::Releasedir { ino, .. } => {
                client.close_dir(convert::fid_of(ino)?);
                Ok(())
            }
            Op::Setxattr { ino, name, value, flags, acl_kill_sgid } => {
                let fid = convert::fid_of(ino)?;
                let name = name.as_bytes();
                let set = virtual_xattr::set(client, (fid, cred.uid), name, &value);
                if let Some(result) = Box::pin(set).await {
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
                    Box::pin(self.kill_sgid(fid)).await?;
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
                Box::pin(client.allocate(fh, (offset, length), how, keep)).await
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

    fn bytes<A, B, C, D, F: Future>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_request_takes_little_room() {
        let bytes = bytes(Call::run);
        println!("{bytes} bytes");
        assert!(bytes <= 6144, "{bytes} bytes");
    }

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
                locking: Locking::Cluster,
                fcntl_locks: Arc::default(),
                nonblock: Arc::default(),
                keeps_names: true,
                atime: Atime::of(&MountFlags::default()),
                durable: Durable { names: true, files: true },
                given: None,
            };
            let (reply, revoker) = Reply::capture(0).0.revocable(None);
            assert!(waits || revoker.revoke(Errno::EINTR.raw()));
            let heard = call.heard(inodes, &Err::<(), _>(errno), reply);
            assert_eq!(heard.is_some(), waits || inodes == [None; 2]);
            assert_eq!(client.census().inodes, usize::from(noted), "{errno:?}, waits: {waits}");
        }
    }
}
