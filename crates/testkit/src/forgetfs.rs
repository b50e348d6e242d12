//! A file system that forgets, on demand, everything that was not synced, names included.
//!
//! Killing a process leaves the kernel's page cache and its unwritten names as they are, and
//! would not notice a missing fsync. This file system keeps two states of its tree ([`Image`])
//! in memory, serves one of them through FUSE, and a power cut leaves the other: what was
//! covered by `fsync`, `fdatasync` or `O_DSYNC`, and of names what the directory's own `fsync`
//! covered. `sync_file_range` promises nothing, and neither does `syncfs`, of which the kernel
//! does not tell FUSE.
//!
//! It is harsher than file systems with a journal: each directory is on its own, and a file
//! moved between two of them is lost if only the one it left was synced.
//!
//! It can also fail ([`ForgetFs::fail_after`]): from some change on, whatever is asked of it is
//! answered with `EIO`. To programs that end then, this is the moment of a power cut; to those
//! that go on, a broken disk. And it can lie ([`ForgetFs::lie_about`]), to see whether a test
//! notices that a sync is missing.

mod image;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use sateen_fuse::{
    Caps, EntryOut, FileKind, Filesystem, KernelOffer, MountOptions, Op, Reply, Request, Session,
    SetattrIn, StatfsOut, UnmountMode, open_flags,
};

use image::{Body, DirData, FileData, Image, PAGE};

pub use image::Loss;

/// How long the kernel may believe anything: nobody else changes the tree.
const LONG: Duration = Duration::from_secs(3600);
/// Bytes that fit.
const CAPACITY_BYTES: u64 = 64 << 30;
/// How long a cut waits for those who have files open, and for the end: also on a machine that
/// stands still for a while.
const BUSY_WAIT: Duration = Duration::from_secs(120);

/// A mounted file system that forgets. Dropping it unmounts.
#[derive(Debug)]
pub struct ForgetFs {
    path: PathBuf,
    server: Arc<Server>,
    session: Option<Session>,
}

#[derive(Debug)]
struct Server {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    image: Image,
    /// Directories as they were when they were read from their beginning.
    listings: BTreeMap<u64, Vec<(u64, FileKind, Vec<u8>)>>,
    next_handle: u64,
    /// Changes that still succeed; without a number, all do.
    left: Option<u64>,
    /// Renames that still succeed; nothing does after the last of them.
    renames_left: Option<u64>,
    /// By their name: what is not synced, whoever asks.
    unsynced: Option<fn(&str) -> bool>,
}

impl ForgetFs {
    /// Mounts an empty one on an existing folder.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn mount(path: &Path) -> Result<ForgetFs> {
        let (image, listings) = (Image::new(), BTreeMap::new());
        let state = State {
            image,
            listings,
            next_handle: 1,
            left: None,
            renames_left: None,
            unsynced: None,
        };
        let server = Arc::new(Server { state: Mutex::new(state) });
        let mut fs = ForgetFs { path: path.to_owned(), server, session: None };
        fs.attach()?;
        Ok(fs)
    }

    fn attach(&mut self) -> Result<()> {
        let mut options = MountOptions::new(&self.path);
        options.fsname = "forgetfs".to_owned();
        self.session = Some(Session::mount(options, self.server.clone())?);
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let deadline = std::time::Instant::now() + BUSY_WAIT;
        while session.unmount(UnmountMode::Clean).is_err() {
            if std::time::Instant::now() > deadline {
                session.unmount(UnmountMode::Force).context("unmount forgetfs")?;
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        session.join_timeout(BUSY_WAIT).context("forgetfs does not end")?;
        Ok(())
    }

    /// Cuts the power and brings it back: what was not synced is forgotten. Whoever has files
    /// open must have been killed before. It does not fail any more.
    ///
    /// # Errors
    /// It cannot be unmounted or mounted.
    pub fn cut(&mut self, loss: Loss) -> Result<()> {
        self.again(|image| image.cut(loss))
    }

    /// Whoever used it has ended, and nothing is lost: the page cache has what was not synced. It
    /// does not fail any more.
    ///
    /// # Errors
    /// It cannot be unmounted or mounted.
    pub fn remount(&mut self) -> Result<()> {
        self.again(|_| {})
    }

    fn again(&mut self, change: impl FnOnce(&mut Image)) -> Result<()> {
        self.detach()?;
        let mut state = self.server.lock();
        change(&mut state.image);
        state.listings.clear();
        (state.left, state.renames_left) = (None, None);
        drop(state);
        self.attach()
    }

    /// So many changes and syncs still succeed, then everything fails with `EIO`.
    pub fn fail_after(&self, changes: u64) {
        self.server.lock().left = Some(changes);
    }

    /// So many renames still succeed, and with the last of them all else ends: the moment at which
    /// what was replaced is there under its name, and that is not durable.
    pub fn fail_after_renames(&self, renames: u64) {
        self.server.lock().renames_left = Some(renames);
    }

    /// Whether it fails by now.
    pub fn fails(&self) -> bool {
        self.server.lock().left == Some(0)
    }

    /// Calls a sync of what is named like that a success, and does nothing.
    pub fn lie_about(&self, named: fn(&str) -> bool) {
        self.server.lock().unsynced = Some(named);
    }
}

impl Drop for ForgetFs {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            eprintln!("{}: {error:#}", self.path.display());
        }
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request changes or syncs something. None: it only lets go, and always succeeds.
fn changes(op: &Op) -> Option<bool> {
    match op {
        Op::Forget { .. }
        | Op::BatchForget { .. }
        | Op::Interrupt { .. }
        | Op::Flush { .. }
        | Op::Release { .. }
        | Op::Releasedir { .. } => None,
        Op::Lookup { .. }
        | Op::Getattr { .. }
        | Op::Open { .. }
        | Op::Opendir { .. }
        | Op::Read { .. }
        | Op::Readdir { .. }
        | Op::Readlink { .. }
        | Op::Statfs { .. } => Some(false),
        _ => Some(true),
    }
}

impl State {
    /// Whether a request fails because the disk does.
    fn fails(&mut self, op: &Op) -> bool {
        let Some((left, changes)) = self.left.as_mut().zip(changes(op)) else { return false };
        let fails = *left == 0;
        *left -= u64::from(changes && !fails);
        fails
    }

    fn renamed(&mut self) {
        if let Some(left) = &mut self.renames_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.left = Some(0);
            }
        }
    }

    fn sync(&mut self, ino: u64) -> image::Result<()> {
        match self.unsynced {
            Some(named) if self.image.is_named(ino, named) => Ok(()),
            _ => self.image.sync(ino),
        }
    }

    fn entry(&mut self, ino: u64) -> image::Result<EntryOut> {
        let attr = self.image.attr(ino)?;
        self.image.get_mut(ino)?.lookups += 1;
        Ok(EntryOut { ino, generation: 0, entry_valid: LONG, attr_valid: LONG, attr })
    }

    fn forget(&mut self, ino: u64, count: u64) {
        if let Some(inode) = self.image.inodes.get_mut(&ino) {
            inode.lookups = inode.lookups.saturating_sub(count);
        }
    }

    fn opened(&mut self, ino: u64, flags: u32) -> image::Result<()> {
        if flags & libc::O_TRUNC as u32 != 0 {
            self.image.file(ino)?.resize(0);
            self.image.touch(ino);
        }
        self.image.get_mut(ino)?.opens += 1;
        Ok(())
    }

    fn make(&mut self, op: &Op, owner: (u32, u32)) -> image::Result<EntryOut> {
        let ino = match op {
            Op::Lookup { parent, name } => self.image.find(*parent, name)?,
            Op::Mkdir { parent, name, mode, .. } => {
                let what = (Body::Dir(DirData::default()), libc::S_IFDIR | mode & 0o7777, 0);
                self.image.make(*parent, name, what, owner)?
            }
            Op::Mknod { parent, name, mode, rdev, .. } => {
                let file = mode & libc::S_IFMT == libc::S_IFREG;
                let body = if file { Body::File(FileData::default()) } else { Body::Other };
                self.image.make(*parent, name, (body, *mode, *rdev), owner)?
            }
            Op::Symlink { parent, name, target } => {
                let what = (Body::Symlink(target.to_vec()), libc::S_IFLNK | 0o777, 0);
                self.image.make(*parent, name, what, owner)?
            }
            Op::Link { ino, new_parent, new_name } => {
                self.image.link(*ino, *new_parent, new_name)?;
                *ino
            }
            Op::Create { parent, name, mode, flags, .. } => {
                let what = (Body::File(FileData::default()), libc::S_IFREG | mode & 0o7777, 0);
                let ino = match self.image.find(*parent, name) {
                    Ok(_) if flags & libc::O_EXCL as u32 != 0 => return Err(libc::EEXIST),
                    Ok(ino) => ino,
                    Err(_) => self.image.make(*parent, name, what, owner)?,
                };
                self.opened(ino, *flags)?;
                ino
            }
            _ => return Err(libc::ENOSYS),
        };
        self.entry(ino)
    }

    fn setattr(&mut self, ino: u64, set: &SetattrIn) -> image::Result<()> {
        if let Some(size) = set.size {
            self.image.file(ino)?.resize(size);
            self.image.touch(ino);
        }
        let attr = &mut self.image.get_mut(ino)?.attr;
        if let Some(mode) = set.mode {
            attr.mode = attr.mode & libc::S_IFMT | mode & 0o7777;
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.mtime = set.mtime.unwrap_or(attr.mtime);
        attr.atime = set.atime.unwrap_or(attr.atime);
        Ok(())
    }

    fn allocate(&mut self, ino: u64, range: (u64, u64), mode: u32) -> image::Result<()> {
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE as u32 != 0;
        let punch = mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0;
        if mode & !(libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE) as u32 != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let file = self.image.file(ino)?;
        let end = range.0.saturating_add(range.1);
        if punch {
            file.zero(range.0, end);
        } else if !keep && end > file.size() {
            file.resize(end);
        }
        Ok(())
    }

    fn write(&mut self, op: &Op) -> image::Result<u32> {
        let Op::Write { ino, offset, data, flags, .. } = op else { return Err(libc::ENOSYS) };
        let file = self.image.file(*ino)?;
        file.write(*offset, data);
        if flags & libc::O_DSYNC as u32 != 0 {
            file.sync();
        }
        self.image.touch(*ino);
        Ok(data.len() as u32)
    }

    fn listing(&mut self, ino: u64, fh: u64) -> image::Result<()> {
        let names = self.image.dir(ino)?.now.clone();
        let kind = |ino: u64| {
            let mode = self.image.get(ino).map_or(0, |inode| inode.attr.mode);
            FileKind::of_mode(mode).unwrap_or(FileKind::Regular)
        };
        let mut all = vec![
            (ino, FileKind::Directory, b".".to_vec()),
            (ino, FileKind::Directory, b"..".to_vec()),
        ];
        all.extend(names.into_iter().map(|(name, ino)| (ino, kind(ino), name)));
        self.listings.insert(fh, all);
        Ok(())
    }

    /// Requests that are answered with nothing.
    fn plain(&mut self, op: &Op) -> image::Result<()> {
        match op {
            Op::Unlink { parent, name } => self.image.remove(*parent, name, false),
            Op::Rmdir { parent, name } => self.image.remove(*parent, name, true),
            Op::Rename { parent, name, new_parent, new_name, flags } => {
                self.image.rename((*parent, name), (*new_parent, new_name), *flags)?;
                self.renamed();
                Ok(())
            }
            Op::Fsync { ino, .. } | Op::Fsyncdir { ino, .. } => self.sync(*ino),
            Op::Fallocate { ino, offset, length, mode, .. } => {
                self.allocate(*ino, (*offset, *length), *mode)
            }
            Op::Release { ino, .. } => {
                let inode = self.image.get_mut(*ino)?;
                inode.opens = inode.opens.saturating_sub(1);
                Ok(())
            }
            Op::Releasedir { fh, .. } => {
                self.listings.remove(fh);
                Ok(())
            }
            Op::Flush { .. } | Op::Syncfs { .. } => Ok(()),
            Op::Forget { ino, nlookup } => {
                self.forget(*ino, *nlookup);
                Ok(())
            }
            Op::BatchForget { items } => {
                items.iter().for_each(|(ino, count)| self.forget(*ino, *count));
                Ok(())
            }
            Op::Interrupt { .. } => Ok(()),
            _ => Err(libc::ENOSYS),
        }
    }
}

impl Server {
    fn readdir(&self, op: &Op, mut reply: Reply) {
        let Op::Readdir { ino, fh, offset, .. } = *op else { return reply.error(libc::ENOSYS) };
        let mut state = self.lock();
        if offset == 0
            && let Err(errno) = state.listing(ino, fh)
        {
            return reply.error(errno);
        }
        let mut out = reply.dir_buffer();
        let all = state.listings.get(&fh).map(Vec::as_slice).unwrap_or_default();
        for (at, (ino, kind, name)) in all.iter().enumerate().skip(offset as usize) {
            if !out.push(*ino, at as u64 + 1, *kind, name) {
                break;
            }
        }
        drop(state);
        reply.directory(out);
    }

    fn read(&self, op: &Op, mut reply: Reply) {
        let Op::Read { ino, offset, size, .. } = *op else { return reply.error(libc::ENOSYS) };
        let mut buffer = reply.take_buffer(size as usize);
        let read = self.lock().image.file(ino).map(|file| file.read(offset, &mut buffer));
        match read {
            Ok(len) => {
                buffer.truncate(len);
                reply.data(buffer);
            }
            Err(errno) => {
                drop(buffer);
                reply.error(errno);
            }
        }
    }

    fn statfs(&self, reply: Reply) {
        let free = CAPACITY_BYTES.saturating_sub(self.lock().image.used()) / PAGE;
        reply.statfs(&StatfsOut {
            blocks: CAPACITY_BYTES / PAGE,
            bfree: free,
            bavail: free,
            files: 1 << 24,
            ffree: 1 << 23,
            bsize: PAGE as u32,
            namelen: 255,
            frsize: PAGE as u32,
        });
    }

    fn open(&self, op: &Op, reply: Reply) {
        let mut state = self.lock();
        let (opened, flags) = match op {
            Op::Open { ino, flags, .. } => (state.opened(*ino, *flags), open_flags::KEEP_CACHE),
            _ => (Ok(()), 0),
        };
        let handle = state.next_handle;
        state.next_handle += 1;
        drop(state);
        match opened {
            Ok(()) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }
}

impl Filesystem for Server {
    fn init(&self, offer: &KernelOffer) -> Caps {
        offer.recommended() - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        let owner = (request.uid, request.gid);
        let op = request.op;
        if self.lock().fails(&op) {
            return reply.error(libc::EIO);
        }
        match &op {
            Op::Lookup { .. }
            | Op::Mkdir { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Link { .. } => {
                let made = self.lock().make(&op, owner);
                match made {
                    Ok(entry) => reply.entry(&entry),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Create { .. } => {
                let made = self.lock().make(&op, owner);
                match made {
                    Ok(entry) => reply.created(&entry, 0, open_flags::KEEP_CACHE),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Getattr { ino, .. } => {
                let attr = self.lock().image.attr(*ino);
                match attr {
                    Ok(attr) => reply.attr(&attr, LONG),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Setattr { ino, attr } => {
                let mut state = self.lock();
                let attr = state.setattr(*ino, attr).and_then(|()| state.image.attr(*ino));
                drop(state);
                match attr {
                    Ok(attr) => reply.attr(&attr, LONG),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Open { .. } | Op::Opendir { .. } => self.open(&op, reply),
            Op::Read { .. } => self.read(&op, reply),
            Op::Write { .. } => {
                let written = self.lock().write(&op);
                drop(op);
                match written {
                    Ok(len) => reply.written(len),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Readdir { .. } => self.readdir(&op, reply),
            Op::Readlink { ino } => {
                let target = self.lock().image.get(*ino).map(|inode| match &inode.body {
                    Body::Symlink(target) => target.clone(),
                    _ => Vec::new(),
                });
                match target {
                    Ok(target) => reply.bytes(&target),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Statfs { .. } => self.statfs(reply),
            _ => {
                let done = self.lock().plain(&op);
                match done {
                    Ok(()) => reply.ok(),
                    Err(errno) => reply.error(errno),
                }
            }
        }
    }
}
