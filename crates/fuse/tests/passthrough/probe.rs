//! A file system of one file, whose bytes lie in a file of another file system, and whose opens are
//! answered as a test says.
use crate::patience::comes;
use sateen_fuse::{
    Attr, Backing, Backings, Caps, EntryOut, Filesystem, KernelOffer, MountOptions, Notifier, Op,
    ROOT_INO, Reply, Request, Session, SetattrIn, StatfsOut, Time, TransportChoice, open_flags,
};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(3600);
/// The inode of "file".
pub const INO: u64 = 2;

/// How an open is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// Through the page cache, which is emptied first.
    Cached,
    /// Through the page cache as it is.
    Kept,
    Direct,
    /// Direct, and writes may run side by side.
    DirectParallel,
    /// The kernel has the backing file.
    #[default]
    Through,
    /// It has it for mappings alone; reads and writes are asked for.
    ThroughDirect,
    /// An answer that the kernel does not allow.
    ThroughKept,
    /// The same with other flags beside it.
    ThroughWith(u32),
    /// The same backing file, registered once more.
    ThroughAgain,
}

/// What a test may choose about the mount.
#[derive(Clone)]
pub struct Choices {
    pub transport: TransportChoice,
    /// Where the backing file lies.
    pub ground: PathBuf,
    pub stack_depth: u32,
    /// How long attributes are believed.
    pub valid: Duration,
    /// Whether set-uid bits are the file system's to clear.
    pub killpriv: bool,
    pub mode: u32,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            transport: TransportChoice::Classic,
            ground: std::env::temp_dir(),
            stack_depth: 1,
            valid: LONG,
            killpriv: true,
            mode: 0o100644,
        }
    }
}

struct State {
    how: How,
    /// Registered, in the order of [`How`]'s two ways.
    backing: [Option<Arc<Backing>>; 2],
    /// Registered anew for each open, and gone as soon as that is answered.
    hasty: bool,
    log: Vec<&'static str>,
    changes: Vec<SetattrIn>,
    /// Of each READ, whether it named an owner.
    owned: Vec<bool>,
    mode: u32,
}

/// See the module.
pub struct Probe {
    state: Mutex<State>,
    backings: Mutex<Option<Backings>>,
    /// The daemon's own, as an OST has it.
    file: File,
    valid: Duration,
    killpriv: bool,
}

pub struct Mounted {
    pub probe: Arc<Probe>,
    pub dir: PathBuf,
    /// The backing file.
    pub under: PathBuf,
    pub session: Option<Session>,
}

impl Mounted {
    pub fn new(name: &str) -> Mounted {
        Mounted::with(name, Choices::default())
    }

    pub fn with(name: &str, choices: Choices) -> Mounted {
        let name = format!("sateen-through-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        Mounted::at(dir, choices.ground.join(format!("{name}.under")), choices)
    }

    pub fn at(dir: PathBuf, under: PathBuf, choices: Choices) -> Mounted {
        fs::create_dir_all(&dir).unwrap();
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&under);
        let probe = Arc::new(Probe {
            state: Mutex::new(State {
                how: How::default(),
                backing: [None, None],
                hasty: false,
                log: Vec::new(),
                changes: Vec::new(),
                owned: Vec::new(),
                mode: choices.mode,
            }),
            backings: Mutex::default(),
            file: file.unwrap(),
            valid: choices.valid,
            killpriv: choices.killpriv,
        });
        let (transport, stack_depth) = (choices.transport, choices.stack_depth);
        let asked = crate::transport::asked(transport);
        let options = MountOptions { transport: asked, stack_depth, ..MountOptions::new(&dir) };
        let session = Session::mount(options, probe.clone()).unwrap();
        crate::transport::check(&session, transport);
        *probe.backings.lock().unwrap() = Some(session.backings());
        Mounted { probe, dir, under, session: Some(session) }
    }

    /// Whether the kernel has passthrough at all, which a test that needs it has to ask.
    pub fn can(&self) -> bool {
        let can = self.session.as_ref().unwrap().caps().contains(Caps::PASSTHROUGH);
        if !can {
            sateen_testkit::skipped("this kernel has no FUSE passthrough (6.9)");
        }
        can
    }

    pub fn notifier(&self) -> Notifier {
        self.session.as_ref().unwrap().notifier()
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("file")
    }

    /// Opens the file for reading and writing.
    pub fn open(&self, how: How) -> io::Result<File> {
        self.open_with(how, File::options().read(true).write(true))
    }

    pub fn open_with(&self, how: How, options: &OpenOptions) -> io::Result<File> {
        self.probe.answer_opens(how);
        options.open(self.path())
    }

    /// Runs `body`, and says what the daemon was asked meanwhile.
    pub fn asked<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<&'static str>) {
        self.probe.state.lock().unwrap().log.clear();
        let result = body();
        (result, self.probe.state.lock().unwrap().log.clone())
    }

    /// Closes a file, and waits until the daemon knows.
    pub fn close(&self, file: File) {
        let before = self.probe.count("release");
        drop(file);
        assert!(comes(|| self.probe.count("release") > before), "no RELEASE came");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut state = self.probe.state.lock().unwrap();
        let held = std::mem::take(&mut state.backing);
        drop(state);
        drop(held);
        self.session = None;
        let _ = fs::remove_dir(&self.dir);
        let _ = fs::remove_file(&self.under);
    }
}

impl Probe {
    pub fn answer_opens(&self, how: How) {
        self.state.lock().unwrap().how = how;
    }

    pub fn be_hasty(&self) {
        self.state.lock().unwrap().hasty = true;
    }

    pub fn count(&self, op: &str) -> usize {
        self.state.lock().unwrap().log.iter().filter(|logged| **logged == op).count()
    }

    /// The changes of attributes that were asked for.
    pub fn changes(&self) -> Vec<SetattrIn> {
        self.state.lock().unwrap().changes.clone()
    }

    /// Of each READ since the last such question, whether it named an owner.
    pub fn take_owned(&self) -> Vec<bool> {
        std::mem::take(&mut self.state.lock().unwrap().owned)
    }

    /// Registers any file with the mount.
    pub fn register(&self, file: &File) -> io::Result<Backing> {
        let backings = self.backings.lock().unwrap().clone();
        backings.unwrap().open(file)
    }

    /// Gives the registered files up, as if their last open had been released.
    pub fn forget_backings(&self) {
        let held = std::mem::take(&mut self.state.lock().unwrap().backing);
        drop(held);
    }

    /// The backing file, as the daemon has it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Registers a descriptor of the backing file with the rights of nobody in particular.
    pub fn register_as_nobody(&self, file: &File) {
        let backing = std::thread::scope(|scope| {
            let nobody = scope.spawn(|| {
                // SAFETY: takes a number; for this thread alone, which ends here.
                unsafe { libc::setfsuid(65534) };
                self.register(file).unwrap()
            });
            nobody.join().unwrap()
        });
        self.state.lock().unwrap().backing[0] = Some(Arc::new(backing));
    }

    fn backing(&self, index: usize) -> Arc<Backing> {
        let mut state = self.state.lock().unwrap();
        if state.hasty {
            return Arc::new(self.register(&self.file).unwrap());
        }
        let slot = &mut state.backing[index];
        slot.get_or_insert_with(|| Arc::new(self.register(&self.file).unwrap())).clone()
    }

    fn attr(&self, ino: u64) -> Attr {
        if ino == ROOT_INO {
            return Attr { ino, mode: 0o40755, nlink: 2, ..Attr::default() };
        }
        let stat = self.file.metadata().unwrap();
        let time = |sec, nsec: i64| Time { sec, nsec: nsec as u32 };
        Attr {
            ino,
            mode: self.state.lock().unwrap().mode,
            size: stat.size(),
            blocks: stat.blocks(),
            mtime: time(stat.mtime(), stat.mtime_nsec()),
            ctime: time(stat.ctime(), stat.ctime_nsec()),
            nlink: 1,
            ..Attr::default()
        }
    }

    fn entry(&self) -> EntryOut {
        let attr = self.attr(INO);
        EntryOut { ino: INO, generation: 0, entry_valid: LONG, attr_valid: self.valid, attr }
    }

    fn answer_open(&self, reply: Reply, truncate: bool) {
        if truncate {
            self.file.set_len(0).unwrap();
        }
        let how = self.state.lock().unwrap().how;
        match how {
            How::Cached => reply.opened(0, 0),
            How::Kept => reply.opened(0, open_flags::KEEP_CACHE),
            How::Direct => reply.opened(0, open_flags::DIRECT_IO),
            How::DirectParallel => {
                reply.opened(0, open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES);
            }
            How::Through => reply.opened_backed(0, 0, &self.backing(0)),
            How::ThroughDirect => reply.opened_backed(0, open_flags::DIRECT_IO, &self.backing(0)),
            How::ThroughKept => reply.opened_backed(0, open_flags::KEEP_CACHE, &self.backing(0)),
            How::ThroughWith(flags) => reply.opened_backed(0, flags, &self.backing(0)),
            How::ThroughAgain => reply.opened_backed(0, 0, &self.backing(1)),
        }
    }

    fn write(&self, append: bool, offset: u64, data: &[u8]) -> u64 {
        let offset = if append { self.file.metadata().unwrap().len() } else { offset };
        self.file.write_all_at(data, offset).unwrap();
        data.len() as u64
    }

    fn answer(&self, request: Request, mut reply: Reply) {
        match request.op {
            Op::Lookup { name, .. } if &*name == b"file" => reply.entry(&self.entry()),
            Op::Lookup { .. } => reply.error(libc::ENOENT),
            Op::Create { .. } => reply.created_backed(&self.entry(), 0, 0, &self.backing(0)),
            Op::Getattr { ino, .. } => reply.attr(&self.attr(ino), self.valid),
            Op::Statx { ino, .. } => reply.statx(&self.attr(ino), None, self.valid),
            Op::Setattr { ino, attr } => {
                let mut state = self.state.lock().unwrap();
                state.mode = attr.mode.unwrap_or(state.mode);
                if attr.kill_suidgid || self.killpriv && attr == SetattrIn::default() {
                    state.mode &= !0o6000;
                }
                state.changes.push(attr);
                drop(state);
                if let Some(size) = attr.size {
                    self.file.set_len(size).unwrap();
                }
                reply.attr(&self.attr(ino), self.valid);
            }
            Op::Open { flags, .. } => {
                self.answer_open(reply, flags as i32 & libc::O_TRUNC != 0);
            }
            Op::Read { offset, size, lock_owner, .. } => {
                self.state.lock().unwrap().owned.push(lock_owner.is_some());
                let mut buffer = reply.take_buffer(size as usize);
                let len = self.file.read_at(&mut buffer, offset).unwrap();
                buffer.truncate(len);
                reply.data(buffer);
            }
            Op::Write { offset, data, flags, .. } => {
                let append = flags as i32 & libc::O_APPEND != 0;
                let len = self.write(append, offset, &data);
                drop(data);
                reply.written(len as u32);
            }
            Op::Fallocate { offset, length, .. } => {
                let len = self.file.metadata().unwrap().len().max(offset + length);
                self.file.set_len(len).unwrap();
                reply.ok();
            }
            Op::Lseek { offset, .. } => reply.lseek(offset),
            Op::CopyFileRange { off_in, off_out, len, .. } => {
                let mut data = vec![0; len as usize];
                self.file.read_exact_at(&mut data, off_in).unwrap();
                reply.copied(self.write(false, off_out, &data));
            }
            Op::Fsync { .. } => {
                self.file.sync_all().unwrap();
                reply.ok();
            }
            Op::Getxattr { .. } => reply.error(libc::ENODATA),
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Forget { .. } | Op::BatchForget { .. } => {}
            Op::Flush { .. } | Op::Release { .. } | Op::Releasedir { .. } | Op::Setlk { .. } => {
                reply.ok();
            }
            Op::Statfs { .. } => reply.statfs(&StatfsOut { namelen: 255, ..StatfsOut::default() }),
            _ => reply.error(libc::ENOSYS),
        }
    }
}

fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Lookup { .. } => "lookup",
        Op::Getattr { .. } | Op::Statx { .. } => "getattr",
        Op::Setattr { .. } => "setattr",
        Op::Open { .. } => "open",
        Op::Create { .. } => "create",
        Op::Read { .. } => "read",
        Op::Write { .. } => "write",
        Op::Flush { .. } => "flush",
        Op::Fsync { .. } => "fsync",
        Op::Release { .. } => "release",
        Op::Fallocate { .. } => "fallocate",
        Op::Lseek { .. } => "lseek",
        Op::CopyFileRange { .. } => "copy_file_range",
        Op::Setlk { .. } => "setlk",
        Op::Getxattr { .. } => "getxattr",
        Op::Ioctl { .. } => "ioctl",
        Op::Forget { .. } | Op::BatchForget { .. } => "forget",
        _ => "other",
    }
}

impl Filesystem for Probe {
    fn init(&self, offer: &KernelOffer) -> Caps {
        let plus = Caps::DO_READDIRPLUS | Caps::READDIRPLUS_AUTO;
        let more = Caps::PASSTHROUGH | Caps::POSIX_LOCKS | Caps::FLOCK_LOCKS;
        let more = if self.killpriv { more | Caps::HANDLE_KILLPRIV_V2 } else { more };
        (offer.recommended() | more & offer.caps) - plus
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        self.state.lock().unwrap().log.push(name_of(&request.op));
        self.answer(request, reply);
    }
}

/// A mapping of a file's first page.
pub struct Mapping(*mut u8);

impl Mapping {
    const LEN: usize = 4096;

    /// `Err` has the errno of mmap(2).
    pub fn new(file: &File, shared: bool, writable: bool) -> io::Result<Mapping> {
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let rights = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address the kernel chooses.
        let at = unsafe { libc::mmap(none, Self::LEN, rights, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping(at.cast()))
    }

    /// The first byte, as it is in memory now.
    pub fn byte(&self) -> u8 {
        // SAFETY: within the mapping, which lives until `drop`; tests keep the file that long.
        unsafe { self.0.read_volatile() }
    }

    pub fn sync(&self) {
        // SAFETY: the mapping made in `new`.
        assert_eq!(unsafe { libc::msync(self.0.cast(), Self::LEN, libc::MS_SYNC) }, 0);
    }

    pub fn store(&self, byte: u8) {
        // SAFETY: within the mapping; only tests that mapped it writable call this.
        unsafe { self.0.write_volatile(byte) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once.
        unsafe { libc::munmap(self.0.cast(), Self::LEN) };
    }
}

/// Whether anybody else has the file open or mapped: a lease for writing is refused then. Who holds
/// one gets a signal when somebody opens the file, so it is given back at once.
pub fn has_others(file: &File) -> bool {
    // SAFETY: the command takes a number.
    let lease =
        |kind: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if lease(libc::F_WRLCK) == 0 {
        assert_eq!(lease(libc::F_UNLCK), 0);
        return false;
    }
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN), "F_SETLEASE");
    true
}

/// Counts by name, for messages.
pub fn counted(asked: &[&'static str]) -> Vec<(&'static str, usize)> {
    let mut all: HashMap<&'static str, usize> = HashMap::new();
    asked.iter().for_each(|name| *all.entry(name).or_default() += 1);
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable();
    all
}
