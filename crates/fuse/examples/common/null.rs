//! A file system that keeps names and sizes but no data: what it costs is what
//! the protocol and the transport cost.
//!
//! Used by the examples. Every request is answered on the thread it came on.
use sateen_fuse::{
    Attr, EntryOut, FileKind, Filesystem, Op, ROOT_INO, Reply, Request, StatfsOut, open_flags,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHARDS: usize = 16;
const LONG: Duration = Duration::from_secs(3600);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Names = HashMap<(u64, Vec<u8>), u64>;

/// Directories and attributes are cached, names of files are not: each stat of
/// a file is one LOOKUP.
fn entry_out(attr: Attr) -> EntryOut {
    let is_dir = FileKind::of_mode(attr.mode) == Some(FileKind::Directory);
    let entry_valid = if is_dir { LONG } else { Duration::ZERO };
    EntryOut { ino: attr.ino, generation: 0, entry_valid, attr_valid: LONG, attr }
}

#[expect(clippy::indexing_slicing, reason = "the index is taken modulo the length")]
fn shard<T>(shards: &[T; SHARDS], hash: u64) -> &T {
    &shards[hash as usize % SHARDS]
}

/// See the module.
pub(crate) struct NullFs {
    names: [Mutex<Names>; SHARDS],
    inodes: [Mutex<HashMap<u64, Attr>>; SHARDS],
    next: AtomicU64,
    /// Flags of every open.
    open_flags: u32,
}

impl NullFs {
    pub(crate) fn new(direct_io: bool) -> NullFs {
        let direct = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        let fs = NullFs {
            names: std::array::from_fn(|_| Mutex::default()),
            inodes: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU64::new(ROOT_INO + 1),
            open_flags: if direct_io { direct } else { 0 } | open_flags::NOFLUSH,
        };
        let root = Attr { ino: ROOT_INO, mode: 0o40755, nlink: 2, ..Attr::default() };
        fs.inodes(ROOT_INO).insert(ROOT_INO, root);
        fs
    }

    fn names(&self, parent: u64, name: &[u8]) -> MutexGuard<'_, Names> {
        let hash = name
            .iter()
            .fold(parent, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        lock(shard(&self.names, hash >> 20))
    }

    fn inodes(&self, ino: u64) -> MutexGuard<'_, HashMap<u64, Attr>> {
        lock(shard(&self.inodes, ino))
    }

    fn entry(&self, ino: u64) -> Option<EntryOut> {
        let attr = *self.inodes(ino).get(&ino)?;
        Some(entry_out(attr))
    }

    fn make(&self, parent: u64, name: &[u8], mode: u32, request: (u32, u32)) -> Option<EntryOut> {
        let mut names = self.names(parent, name);
        if names.contains_key(&(parent, name.to_vec())) {
            return None;
        }
        let ino = self.next.fetch_add(1, Ordering::Relaxed);
        let (uid, gid) = request;
        let nlink = if mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 };
        let attr = Attr { ino, mode, nlink, uid, gid, blksize: 1 << 20, ..Attr::default() };
        self.inodes(ino).insert(ino, attr);
        names.insert((parent, name.to_vec()), ino);
        Some(entry_out(attr))
    }

    fn remove(&self, parent: u64, name: &[u8], reply: Reply) {
        match self.names(parent, name).remove(&(parent, name.to_vec())) {
            Some(ino) => {
                self.inodes(ino).remove(&ino);
                reply.ok();
            }
            None => reply.error(libc::ENOENT),
        }
    }

    fn children(&self, parent: u64) -> Vec<(u64, Vec<u8>)> {
        let all = self.names.iter().flat_map(|shard| {
            let shard = lock(shard);
            let found = shard.iter().filter(|((dir, _), _)| *dir == parent);
            found.map(|((_, name), ino)| (*ino, name.clone())).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    }
}

impl NullFs {
    fn data(&self, op: Op, mut reply: Reply) {
        match op {
            Op::Read { size, .. } => {
                let buffer = reply.take_buffer(size as usize);
                reply.data(buffer);
            }
            Op::Write { ino, offset, data, .. } => {
                let (len, end) = (data.len() as u32, offset + data.len() as u64);
                drop(data);
                if let Some(attr) = self.inodes(ino).get_mut(&ino) {
                    attr.size = attr.size.max(end);
                }
                reply.written(len);
            }
            Op::Readdir { ino, offset, .. } => {
                let mut entries = reply.dir_buffer();
                for (at, (child, name)) in
                    self.children(ino).iter().enumerate().skip(offset as usize)
                {
                    if !entries.push(*child, at as u64 + 1, FileKind::Regular, name) {
                        break;
                    }
                }
                reply.directory(entries);
            }
            _ => reply.error(libc::ENOSYS),
        }
    }
}

impl Filesystem for NullFs {
    fn dispatch(&self, request: Request, reply: Reply) {
        let owner = (request.uid, request.gid);
        let answer = |reply: Reply, entry: Option<EntryOut>, errno| match entry {
            Some(entry) => reply.entry(&entry),
            None => reply.error(errno),
        };
        match request.op {
            Op::Lookup { parent, name } => {
                let found = self.names(parent, &name).get(&(parent, name.to_vec())).copied();
                answer(reply, found.and_then(|ino| self.entry(ino)), libc::ENOENT);
            }
            Op::Getattr { ino, .. } => match self.entry(ino) {
                Some(entry) => reply.attr(&entry.attr, LONG),
                None => {
                    reply.attr(&Attr { ino, mode: 0o100644, ..Attr::default() }, Duration::ZERO)
                }
            },
            Op::Setattr { ino, attr: set } => {
                let mut inodes = self.inodes(ino);
                let Some(attr) = inodes.get_mut(&ino) else { return reply.error(libc::ENOENT) };
                attr.size = set.size.unwrap_or(attr.size);
                attr.mode = set.mode.unwrap_or(attr.mode);
                reply.attr(attr, LONG);
            }
            Op::Create { parent, name, mode, .. } => match self.make(parent, &name, mode, owner) {
                Some(entry) => reply.created(&entry, 0, self.open_flags),
                None => reply.error(libc::EEXIST),
            },
            Op::Mknod { parent, name, mode, .. } => {
                answer(reply, self.make(parent, &name, mode, owner), libc::EEXIST);
            }
            Op::Mkdir { parent, name, mode, .. } => {
                let mode = mode | FileKind::Directory.mode_bits();
                answer(reply, self.make(parent, &name, mode, owner), libc::EEXIST);
            }
            Op::Unlink { parent, name } | Op::Rmdir { parent, name } => {
                self.remove(parent, &name, reply);
            }
            Op::Open { .. } => reply.opened(0, self.open_flags),
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Read { .. } | Op::Write { .. } | Op::Readdir { .. } => self.data(request.op, reply),
            Op::Statfs { .. } => reply.statfs(&StatfsOut {
                blocks: 1 << 30,
                bfree: 1 << 30,
                bavail: 1 << 30,
                files: 1 << 30,
                ffree: 1 << 30,
                bsize: 4096,
                namelen: 255,
                frsize: 4096,
            }),
            Op::Flush { .. }
            | Op::Release { .. }
            | Op::Releasedir { .. }
            | Op::Fsync { .. }
            | Op::Fsyncdir { .. }
            | Op::Syncfs { .. }
            | Op::Access { .. } => reply.ok(),
            Op::Forget { .. } | Op::BatchForget { .. } | Op::Interrupt { .. } => reply.ok(),
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn init(&self, offer: &sateen_fuse::KernelOffer) -> sateen_fuse::Caps {
        use sateen_fuse::Caps;
        offer.recommended() - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }
}
