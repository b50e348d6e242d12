//! A file system whose files lie in a folder of another one, by the same names: what reading and
//! writing through it costs, by the kernel itself (passthrough) or by asking.
//!
//! Used by an example. No folders; every request is answered on the thread it came on.
use sateen_fuse::{
    Attr, Backing, Backings, Caps, EntryOut, Filesystem, KernelOffer, Op, ROOT_INO, Reply, Request,
    open_flags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// One file, as long as it is open.
struct Opened {
    opens: u32,
    file: File,
    /// The name that it is to have, if it has none yet.
    name: Option<PathBuf>,
    /// One for all opens: the kernel takes no other.
    backing: Option<Backing>,
}

/// See the module.
pub(crate) struct ThroughFs {
    ground: PathBuf,
    /// Whether the kernel is given the files.
    through: bool,
    backings: OnceLock<Backings>,
    names: Mutex<HashMap<u64, PathBuf>>,
    opened: Mutex<HashMap<u64, Opened>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attr_of(ino: u64, stat: &Metadata) -> Attr {
    Attr { ino, mode: stat.mode(), nlink: 1, size: stat.size(), blksize: 4096, ..Attr::default() }
}

impl ThroughFs {
    pub(crate) fn new(ground: &Path, through: bool) -> ThroughFs {
        ThroughFs {
            ground: ground.to_path_buf(),
            through,
            backings: OnceLock::new(),
            names: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    /// To be told once, when it is mounted.
    pub(crate) fn mounted(&self, backings: Backings) {
        let _ = self.backings.set(backings);
    }

    fn lookup(&self, name: &[u8]) -> Option<EntryOut> {
        let path = self.ground.join(OsStr::from_bytes(name));
        let stat = std::fs::metadata(&path).ok()?;
        let ino = stat.ino();
        lock(&self.names).insert(ino, path);
        let attr = attr_of(ino, &stat);
        Some(EntryOut { ino, generation: 0, entry_valid: LONG, attr_valid: LONG, attr })
    }

    fn open(&self, ino: u64, reply: Reply) -> std::io::Result<()> {
        let mut all = lock(&self.opened);
        let opened = match all.entry(ino) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let path = lock(&self.names).get(&ino).cloned().unwrap_or_default();
                let file = File::options().read(true).write(true).open(path)?;
                let backings = self.backings.get().filter(|_| self.through);
                let backing = backings.map(|backings| backings.open(&file)).transpose()?;
                new.insert(Opened { opens: 0, file, name: None, backing })
            }
        };
        opened.opens += 1;
        let direct = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        match &opened.backing {
            Some(backing) => reply.opened_backed(0, open_flags::NOFLUSH, backing),
            None => reply.opened(0, direct | open_flags::NOFLUSH),
        }
        Ok(())
    }

    /// A new file: named at once where it is asked for, and only with its release where the kernel
    /// has it, as a spare one would be.
    fn create(&self, name: &[u8], reply: Reply) -> std::io::Result<()> {
        let path = self.ground.join(OsStr::from_bytes(name));
        let mut options = File::options();
        options.read(true).write(true);
        let file = match self.through {
            true => options.custom_flags(libc::O_TMPFILE).open(&self.ground)?,
            false => options.create_new(true).open(&path)?,
        };
        let stat = file.metadata()?;
        let (ino, attr) = (stat.ino(), attr_of(stat.ino(), &stat));
        let entry = EntryOut { ino, generation: 0, entry_valid: LONG, attr_valid: LONG, attr };
        lock(&self.names).insert(ino, path.clone());
        let backings = self.backings.get().filter(|_| self.through);
        let backing = backings.map(|backings| backings.open(&file)).transpose()?;
        let mut all = lock(&self.opened);
        let name = self.through.then_some(path);
        let opened = all.entry(ino).insert_entry(Opened { opens: 1, file, name, backing });
        let direct = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        match &opened.get().backing {
            Some(backing) => reply.created_backed(&entry, 0, open_flags::NOFLUSH, backing),
            None => reply.created(&entry, 0, direct | open_flags::NOFLUSH),
        }
        Ok(())
    }

    fn release(&self, ino: u64) {
        let mut all = lock(&self.opened);
        let Some(opened) = all.get_mut(&ino) else { return };
        opened.opens -= 1;
        if opened.opens == 0
            && let Some(Opened { file, name: Some(name), .. }) = all.remove(&ino)
        {
            let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
            let (here, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
            // A name that is taken is the benchmark's mistake, and shows in what it finds.
            let _ = rustix::fs::linkat(here, nameless, here, name, follow);
        }
    }

    fn with<T>(&self, ino: u64, body: impl FnOnce(&File) -> std::io::Result<T>) -> Option<T> {
        lock(&self.opened).get(&ino).and_then(|opened| body(&opened.file).ok())
    }
}

impl Filesystem for ThroughFs {
    fn init(&self, offer: &KernelOffer) -> Caps {
        let more = Caps::PASSTHROUGH | Caps::HANDLE_KILLPRIV_V2;
        (offer.recommended() | more & offer.caps) - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }

    fn dispatch(&self, request: Request, mut reply: Reply) {
        match request.op {
            Op::Lookup { name, .. } => match self.lookup(&name) {
                Some(entry) => reply.entry(&entry),
                None => reply.error(libc::ENOENT),
            },
            Op::Getattr { ino: ROOT_INO, .. } => {
                let attr = Attr { ino: ROOT_INO, mode: 0o40755, nlink: 2, ..Attr::default() };
                reply.attr(&attr, LONG);
            }
            Op::Getattr { ino, .. } => {
                let stat = lock(&self.names).get(&ino).and_then(|path| path.metadata().ok());
                match stat {
                    Some(stat) => reply.attr(&attr_of(ino, &stat), LONG),
                    None => reply.error(libc::ESTALE),
                }
            }
            // The reply is gone with a failure, and answers EIO.
            Op::Open { ino, .. } => self.open(ino, reply).unwrap_or_default(),
            Op::Create { name, .. } => self.create(&name, reply).unwrap_or_default(),
            Op::Unlink { name, .. } => {
                let path = self.ground.join(OsStr::from_bytes(&name));
                match std::fs::remove_file(path) {
                    Ok(()) => reply.ok(),
                    Err(_) => reply.error(libc::ENOENT),
                }
            }
            Op::Read { ino, offset, size, .. } => {
                let mut buffer = reply.take_buffer(size as usize);
                match self.with(ino, |file| file.read_at(&mut buffer, offset)) {
                    Some(len) => {
                        buffer.truncate(len);
                        reply.data(buffer);
                    }
                    None => reply.error(libc::EIO),
                }
            }
            Op::Write { ino, offset, data, .. } => {
                let written = self.with(ino, |file| file.write_at(&data, offset));
                drop(data);
                match written {
                    Some(len) => reply.written(len as u32),
                    None => reply.error(libc::EIO),
                }
            }
            Op::Release { ino, .. } => {
                self.release(ino);
                reply.ok();
            }
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Forget { .. } | Op::BatchForget { .. } | Op::Interrupt { .. } => reply.ok(),
            Op::Flush { .. } | Op::Releasedir { .. } => reply.ok(),
            _ => reply.error(libc::ENOSYS),
        }
    }
}
