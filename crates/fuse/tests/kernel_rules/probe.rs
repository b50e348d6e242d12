//! A file system whose requests a test can hold back and answer by hand.
use crate::patience::comes;
use sateen_fuse::{
    Attr, Caps, EntryOut, FileKind, Filesystem, IoctlIn, KernelOffer, MountOptions, Notifier, Op,
    ROOT_INO, Reply, Request, Session, TransportChoice,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(3600);

/// What a test may choose about the answers.
#[derive(Default)]
pub struct Choices {
    /// Names of operations to hold back.
    pub hold: Vec<&'static str>,
    pub open_flags: u32,
    pub dir_flags: u32,
    /// Opens with O_DSYNC (a mark, here) get these flags instead.
    pub marked_flags: u32,
    pub entry_valid_plus: Duration,
    pub readdirplus: bool,
}

#[derive(Default)]
struct State {
    choices: Choices,
    held: Vec<(&'static str, Request, Reply)>,
    counts: HashMap<&'static str, u64>,
    names: Vec<(String, u64)>,
    data: HashMap<u64, Vec<u8>>,
    modes: HashMap<u64, u32>,
    last_write: Option<(u64, u32, usize)>,
    owned_reads: u64,
    ioctls: Vec<IoctlIn>,
    last_read_flags: u32,
}

#[derive(Default)]
pub struct Probe {
    state: Mutex<State>,
}

pub struct Mounted {
    pub probe: Arc<Probe>,
    pub dir: PathBuf,
    pub session: Option<Session>,
}

impl Mounted {
    pub fn new(name: &str, choices: Choices) -> Mounted {
        let dir = std::env::temp_dir().join(format!("sateen-{name}-{}", std::process::id()));
        Mounted::at(dir, TransportChoice::Classic, choices)
    }

    pub fn at(dir: PathBuf, transport: TransportChoice, choices: Choices) -> Mounted {
        std::fs::create_dir_all(&dir).unwrap();
        let probe = Arc::new(Probe::default());
        probe.state.lock().unwrap().choices = choices;
        probe.add("file", 2, 0o100644);
        probe.add("dir", 3, 0o40755);
        let asked = crate::transport::asked(transport);
        let options = MountOptions { transport: asked, ..MountOptions::new(&dir) };
        let session = Session::mount(options, probe.clone()).unwrap();
        crate::transport::check(&session, transport);
        Mounted { probe, dir, session: Some(session) }
    }

    pub fn notifier(&self) -> Notifier {
        self.session.as_ref().unwrap().notifier()
    }

    /// Runs `body` with the path of `name` on a thread of its own.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce(PathBuf) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let path = self.dir.join(name);
        std::thread::spawn(move || body(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.probe.hold(&[]);
        self.probe.answer_all();
        self.session = None;
        let _ = std::fs::remove_dir(&self.dir);
    }
}

impl Probe {
    pub fn add(&self, name: &str, ino: u64, mode: u32) {
        let mut state = self.state.lock().unwrap();
        state.names.push((name.to_owned(), ino));
        state.modes.insert(ino, mode);
        state.data.entry(ino).or_default();
    }

    pub fn hold(&self, ops: &[&'static str]) {
        self.state.lock().unwrap().choices.hold = ops.to_vec();
    }

    /// How many requests of a kind came so far.
    pub fn count(&self, op: &str) -> u64 {
        self.state.lock().unwrap().counts.get(op).copied().unwrap_or(0)
    }

    pub fn set_data(&self, ino: u64, data: &[u8]) {
        self.state.lock().unwrap().data.insert(ino, data.to_vec());
    }

    /// Offset and flags as the kernel stated them, and length.
    pub fn last_write(&self) -> (u64, u32, usize) {
        self.state.lock().unwrap().last_write.unwrap()
    }

    /// READs that came with the owner of the call.
    pub fn owned_reads(&self) -> u64 {
        self.state.lock().unwrap().owned_reads
    }

    /// The ioctls that came since this was asked last.
    pub fn ioctls(&self) -> Vec<IoctlIn> {
        std::mem::take(&mut self.state.lock().unwrap().ioctls)
    }

    /// The flags that the last READ came with.
    pub fn last_read_flags(&self) -> u32 {
        self.state.lock().unwrap().last_read_flags
    }

    /// Waits until a request of the kind is held back.
    pub fn wait_held(&self, op: &str) {
        let is_held = || self.state.lock().unwrap().held.iter().any(|(held, ..)| *held == op);
        assert!(comes(is_held), "no {op} came");
    }

    /// Answers what is held back, and holds nothing more.
    pub fn answer_all(&self) {
        self.hold(&[]);
        let held = std::mem::take(&mut self.state.lock().unwrap().held);
        for (_, request, reply) in held {
            self.answer(request, reply);
        }
    }

    fn answer(&self, request: Request, mut reply: Reply) {
        let mut state = self.state.lock().unwrap();
        match request.op {
            Op::Lookup { name, .. } => match state.find(&name) {
                Some(ino) => reply.entry(&state.entry(ino, LONG)),
                None => reply.error(libc::ENOENT),
            },
            Op::Getattr { ino, .. } => reply.attr(&state.attr(ino), LONG),
            Op::Setattr { ino, attr } => {
                if let Some(mode) = attr.mode {
                    state.modes.insert(ino, mode);
                }
                reply.attr(&state.attr(ino), LONG);
            }
            Op::Mkdir { name, .. } => {
                let ino = 100 + state.names.len() as u64;
                state.names.push((String::from_utf8(name.to_vec()).unwrap(), ino));
                state.modes.insert(ino, 0o40755);
                reply.entry(&state.entry(ino, LONG));
            }
            Op::Open { flags, .. } => {
                let marked = flags as i32 & libc::O_DSYNC != 0;
                let choices = &state.choices;
                reply.opened(0, if marked { choices.marked_flags } else { choices.open_flags });
            }
            Op::Opendir { .. } => reply.opened(0, state.choices.dir_flags),
            Op::Ioctl { arg, .. } => {
                state.ioctls.push(arg);
                reply.ioctl(0, &[]);
            }
            Op::Read { ino, offset, size, flags, lock_owner, .. } => {
                state.last_read_flags = flags;
                state.owned_reads += u64::from(lock_owner.is_some());
                let data = &state.data[&ino];
                let start = (offset as usize).min(data.len());
                let part = &data[start..(start + size as usize).min(data.len())];
                let mut buffer = reply.take_buffer(part.len());
                buffer.copy_from_slice(part);
                reply.data(buffer);
            }
            Op::Write { ino, offset, data, flags, .. } => {
                state.last_write = Some((offset, flags, data.len()));
                let file = state.data.get_mut(&ino).unwrap();
                let append = flags as i32 & libc::O_APPEND != 0;
                let offset = if append { file.len() } else { offset as usize };
                let end = offset + data.len();
                file.resize(file.len().max(end), 0);
                file[offset..end].copy_from_slice(&data);
                let len = data.len() as u32;
                drop(data);
                reply.written(len);
            }
            Op::Readdir { ino, offset, .. } => {
                let mut entries = reply.dir_buffer();
                for (name, child) in state.list(ino, offset) {
                    assert!(entries.push(child, child, FileKind::Regular, name.as_bytes()));
                }
                reply.directory(entries);
            }
            Op::Readdirplus { ino, offset, .. } => {
                let mut entries = reply.dir_buffer();
                for (name, child) in state.list(ino, offset) {
                    let entry = state.entry(child, state.choices.entry_valid_plus);
                    assert!(entries.push_plus(&entry, child, name.as_bytes()));
                }
                reply.directory(entries);
            }
            Op::Forget { .. } | Op::BatchForget { .. } => {}
            Op::Flush { .. } | Op::Release { .. } | Op::Releasedir { .. } => reply.ok(),
            _ => reply.error(libc::ENOSYS),
        }
    }
}

impl State {
    fn find(&self, name: &[u8]) -> Option<u64> {
        self.names.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, ino)| *ino)
    }

    fn attr(&self, ino: u64) -> Attr {
        let mode = if ino == ROOT_INO { 0o40755 } else { self.modes[&ino] };
        let size = self.data.get(&ino).map_or(0, Vec::len) as u64;
        Attr { ino, mode, size, nlink: 1, ..Attr::default() }
    }

    fn entry(&self, ino: u64, entry_valid: Duration) -> EntryOut {
        EntryOut { ino, generation: 0, entry_valid, attr_valid: LONG, attr: self.attr(ino) }
    }

    fn list(&self, ino: u64, offset: u64) -> Vec<(String, u64)> {
        let all = if ino == ROOT_INO && offset == 0 { self.names.clone() } else { Vec::new() };
        all.into_iter().filter(|(_, child)| *child > offset).collect()
    }
}

fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Lookup { .. } => "lookup",
        Op::Getattr { .. } => "getattr",
        Op::Setattr { .. } => "setattr",
        Op::Mkdir { .. } => "mkdir",
        Op::Read { .. } => "read",
        Op::Write { .. } => "write",
        Op::Readdir { .. } => "readdir",
        Op::Readdirplus { .. } => "readdirplus",
        _ => "other",
    }
}

impl Filesystem for Probe {
    fn init(&self, offer: &KernelOffer) -> Caps {
        let plus = Caps::DO_READDIRPLUS | Caps::READDIRPLUS_AUTO;
        let wanted = offer.recommended() - plus;
        let readdirplus = self.state.lock().unwrap().choices.readdirplus;
        if readdirplus { wanted | Caps::DO_READDIRPLUS } else { wanted }
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        let name = name_of(&request.op);
        let mut state = self.state.lock().unwrap();
        *state.counts.entry(name).or_default() += 1;
        if state.choices.hold.contains(&name) {
            state.held.push((name, request, reply));
            return;
        }
        drop(state);
        self.answer(request, reply);
    }
}
