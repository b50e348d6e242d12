//! One tree in memory, its lock server, and the FUSE face of two clients.
//!
//! A client keeps in its kernel only what it has a lock on, and gives a lock back only after the
//! kernel was told: `locks.rs` beside this.
use crate::locks::{Access, Counters, Inode};
use sateen_fuse::{
    Attr, Caps, EntryOut, FileKind, Filesystem, KernelOffer, Notifier, Op, ROOT_INO, Reply,
    Request, Time, open_flags,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the kernel may believe what a lock covers.
const VALID: Duration = Duration::from_secs(3600);
/// Threads that serve the requests of a client; more than processes wait.
const WORKERS: usize = 32;
/// Threads of a client that give data locks back: more than there are files with data, because
/// one may wait for a write that waits for another client's.
const GIVERS: usize = 4;
/// How long the OSTs take for a read or write, with the lock in use.
const OST: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub struct Node {
    attr: Attr,
    names: BTreeMap<Vec<u8>, u64>,
    data: Vec<u8>,
}

#[derive(Default)]
pub struct State {
    nodes: HashMap<u64, Node>,
    inodes: HashMap<(usize, u64), Inode>,
    next: u64,
    clock: u64,
}

pub struct Server {
    state: Mutex<State>,
    pub changed: Condvar,
    pub clients: [Queues; 2],
    pub counters: Counters,
}

/// What the threads of a client have to do.
#[derive(Default)]
pub struct Queues {
    requests: Queue<(Request, Reply)>,
    /// Inodes whose meta locks, and whose data locks, are to be given back.
    pub metas: Queue<u64>,
    pub datas: Queue<u64>,
}

/// Jobs, and whether no more will come.
pub struct Queue<T> {
    jobs: Mutex<(VecDeque<T>, bool)>,
    ready: Condvar,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { jobs: Mutex::default(), ready: Condvar::new() }
    }
}

impl<T> Queue<T> {
    pub fn push(&self, job: T) {
        self.jobs.lock().unwrap().0.push_back(job);
        self.ready.notify_one();
    }

    /// Does what comes, until the end.
    fn work(&self, mut body: impl FnMut(T)) {
        loop {
            let jobs = self.jobs.lock().unwrap();
            let idle = |(jobs, ended): &mut (VecDeque<T>, bool)| jobs.is_empty() && !*ended;
            let job = self.ready.wait_while(jobs, idle).unwrap().0.pop_front();
            let Some(job) = job else { return };
            body(job);
        }
    }

    fn end(&self) {
        self.jobs.lock().unwrap().1 = true;
        self.ready.notify_all();
    }
}

/// One mount's file system.
pub struct Client {
    server: Arc<Server>,
    id: usize,
}

impl Server {
    pub fn new() -> Arc<Server> {
        let mut state = State { next: 2, ..State::default() };
        let attr = Attr { ino: ROOT_INO, mode: 0o40755, nlink: 2, ..Attr::default() };
        state.nodes.insert(ROOT_INO, Node { attr, names: BTreeMap::new(), data: Vec::new() });
        Arc::new(Server {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clients: Default::default(),
            counters: Counters::default(),
        })
    }

    /// The file system of a client; its threads end when it is destroyed.
    pub fn client(self: &Arc<Server>, id: usize) -> Arc<Client> {
        for _ in 0..WORKERS {
            let server = self.clone();
            let serve = move || server.clients[id].requests.work(|(r, to)| server.serve(id, r, to));
            std::thread::spawn(serve);
        }
        Arc::new(Client { server: self.clone(), id })
    }

    /// To be called when the client is mounted.
    pub fn attach(self: &Arc<Server>, id: usize, notifier: Notifier) {
        for giver in 0..=GIVERS {
            let (server, notifier) = (self.clone(), notifier.clone());
            std::thread::spawn(move || {
                let queues = &server.clients[id];
                match giver {
                    0 => queues.metas.work(|ino| server.give_back_meta(id, ino, &notifier)),
                    _ => queues.datas.work(|ino| server.give_back_data(id, ino, &notifier)),
                }
            });
        }
    }

    /// Also after a panic elsewhere, whose request fails, and a process with it: that is the
    /// failure to be seen, and the mounts must go before this process ends.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back whatever a random holder has, as a hostile lock server would.
    pub fn revoke_some(&self, turn: u64) {
        let mut state = self.state();
        let holders = state.inodes.iter().filter(|(_, inode)| inode.has_locks());
        let mut holders: Vec<_> = holders.map(|(key, _)| *key).collect();
        holders.sort_unstable();
        if let Some(&(id, ino)) = holders.get(turn as usize % holders.len().max(1)) {
            self.ask_back(&mut state, id, ino, true, Some(Access::Read));
        }
    }

    /// Waits until the other client holds nothing that is in the way: none of its meta locks on
    /// `metas`, and no data lock on `data`.
    fn conquer(&self, id: usize, metas: &[u64], data: Option<u64>) -> MutexGuard<'_, State> {
        let (other, mut state) = (1 - id, self.state());
        loop {
            let mut busy = false;
            for ino in metas {
                busy |= self.ask_back(&mut state, other, *ino, true, None);
            }
            if let Some(ino) = data {
                busy |= self.ask_back(&mut state, other, ino, false, Some(Access::Read));
            }
            if !busy {
                return state;
            }
            state = self.changed.wait(state).unwrap();
        }
    }

    fn serve(&self, id: usize, request: Request, reply: Reply) {
        match request.op {
            Op::Lookup { parent, name } => {
                let mut state = self.state();
                let valid = state.claim_meta(id, parent);
                match state.child(parent, &name) {
                    Some(ino) => {
                        let entry = state.entry(id, ino, valid);
                        drop(state);
                        reply.entry(&entry);
                    }
                    None => {
                        drop(state);
                        reply.no_entry(valid);
                    }
                }
            }
            Op::Getattr { ino, .. } => {
                let mut state = self.state();
                let valid = state.claim_meta(id, ino);
                let attr = state.attr(ino);
                drop(state);
                reply.attr(&attr, valid);
            }
            // No CACHE_DIR: a READDIR in flight would outlive the invalidation.
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Forget { ino, nlookup } => self.state().forget(id, ino, nlookup),
            Op::BatchForget { items } => {
                let mut state = self.state();
                items.iter().for_each(|(ino, count)| state.forget(id, *ino, *count));
            }
            Op::Flush { .. } | Op::Fsync { .. } | Op::Releasedir { .. } | Op::Fsyncdir { .. } => {
                reply.ok();
            }
            op => self.serve_data(id, op, reply),
        }
    }

    /// Changes of names and attributes.
    fn serve_change(&self, id: usize, op: Op, reply: Reply) {
        match op {
            Op::Setattr { ino, attr: set } => {
                let mut state = self.conquer(id, &[ino], set.size.map(|_| ino));
                state.setattr(ino, &set);
                let attr = state.attr(ino);
                drop(state);
                // The kernel takes these up without a look at their age.
                reply.attr(&attr, Duration::ZERO);
            }
            Op::Create { parent, name, mode, flags, .. } => {
                let mut state = self.conquer(id, &[parent], None);
                let Some(ino) = state.make(parent, &name, mode) else {
                    return reply.error(libc::EEXIST);
                };
                let valid = state.claim_meta(id, parent);
                let entry = state.entry(id, ino, valid);
                if flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
                    state.inode(id, ino).write_opens += 1;
                }
                drop(state);
                reply.created(&entry, flags.into(), open_mode(flags));
            }
            Op::Mkdir { parent, name, mode, .. } => {
                let mut state = self.conquer(id, &[parent], None);
                let mode = mode | FileKind::Directory.mode_bits();
                let Some(ino) = state.make(parent, &name, mode) else {
                    return reply.error(libc::EEXIST);
                };
                let valid = state.claim_meta(id, parent);
                let entry = state.entry(id, ino, valid);
                drop(state);
                reply.entry(&entry);
            }
            Op::Unlink { parent, name } | Op::Rmdir { parent, name } => {
                let Some(ino) = self.state().child(parent, &name) else {
                    return reply.error(libc::ENOENT);
                };
                let mut state = self.conquer(id, &[parent, ino], None);
                let gone = state.unlink(parent, &name);
                drop(state);
                if gone { reply.ok() } else { reply.error(libc::ENOENT) }
            }
            Op::Rename { parent, name, new_parent, new_name, .. } => {
                let mut state = self.conquer(id, &[parent, new_parent], None);
                let done = state.rename(parent, &name, new_parent, &new_name);
                drop(state);
                if done { reply.ok() } else { reply.error(libc::ENOENT) }
            }
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn serve_data(&self, id: usize, op: Op, mut reply: Reply) {
        match op {
            Op::Open { ino, flags, .. } => self.open(id, ino, flags, reply),
            Op::Release { ino, flags, .. } => {
                if flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
                    self.state().inode(id, ino).write_opens -= 1;
                }
                reply.ok();
            }
            Op::Read { ino, offset, size, .. } => {
                let used = self.use_data(id, ino, Access::Read, Some((offset, size.into())));
                std::thread::sleep(OST);
                let state = self.state();
                let data = &state.nodes[&ino].data;
                let start = (offset as usize).min(data.len());
                let end = (start + size as usize).min(data.len());
                let mut buffer = reply.take_buffer(end - start);
                buffer.copy_from_slice(&data[start..end]);
                drop(state);
                drop(used);
                reply.data(buffer);
            }
            Op::Write { ino, offset, data, flags, write_flags, .. } => {
                let len = data.len() as u32;
                let append = flags as i32 & libc::O_APPEND != 0 && write_flags & 1 == 0;
                // Where an append will lie is not known before there is a lock.
                let range = (!append).then_some((offset, len.into()));
                let used = self.use_data(id, ino, Access::Write, range);
                std::thread::sleep(OST);
                // Attributes change; the other client must not show old ones. The data lock stays
                // in use meanwhile.
                let mut state = self.conquer(id, &[ino], None);
                state.write(ino, offset as usize, &data, append);
                drop(state);
                drop((used, data));
                reply.written(len);
            }
            Op::Readdir { ino, offset, .. } => {
                let mut entries = reply.dir_buffer();
                let mut state = self.state();
                state.claim_meta(id, ino);
                for (at, (name, child)) in state.nodes[&ino].names.iter().enumerate() {
                    let more = at as u64 >= offset
                        && !entries.push(*child, at as u64 + 1, FileKind::Directory, name);
                    if more {
                        break;
                    }
                }
                drop(state);
                reply.directory(entries);
            }
            op => self.serve_change(id, op, reply),
        }
    }

    /// From the first writable open on, all pages of the inode stand under a write lock: what
    /// stands under a read lock is dropped.
    fn open(&self, id: usize, ino: u64, flags: u32, reply: Reply) {
        let writes = flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            let mut state = self.state();
            state.inode(id, ino).write_opens += 1;
            while state.inode(id, ino).only_reads() {
                self.ask_back(&mut state, id, ino, false, Some(Access::Read));
                state = self.changed.wait(state).unwrap();
            }
            drop(state);
            if flags as i32 & libc::O_TRUNC != 0 {
                let mut state = self.conquer(id, &[ino], Some(ino));
                state.setattr(ino, &sateen_fuse::SetattrIn { size: Some(0), ..Default::default() });
            }
        }
        reply.opened(flags.into(), open_mode(flags));
    }
}

/// Appends bypass the page cache; everything else keeps it.
fn open_mode(flags: u32) -> u32 {
    let append = flags as i32 & libc::O_APPEND != 0;
    if append { open_flags::DIRECT_IO } else { open_flags::KEEP_CACHE }
}

impl State {
    /// What client `id` has of an inode.
    pub fn inode(&mut self, id: usize, ino: u64) -> &mut Inode {
        self.inodes.entry((id, ino)).or_default()
    }

    fn tick(&mut self) -> Time {
        self.clock += 1;
        Time { sec: self.clock as i64, nsec: 0 }
    }

    /// The meta lock of `ino` for `id`, if it is to be had without waiting: how
    /// long answers are valid.
    fn claim_meta(&mut self, id: usize, ino: u64) -> Duration {
        let waits = self.inode(1 - id, ino).gives_meta_back();
        if waits || !self.inode(id, ino).claim_meta() { Duration::ZERO } else { VALID }
    }

    fn child(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.nodes.get(&parent)?.names.get(name).copied()
    }

    fn attr(&self, ino: u64) -> Attr {
        let node = &self.nodes[&ino];
        Attr { size: node.data.len() as u64, ..node.attr }
    }

    fn entry(&mut self, id: usize, ino: u64, entry_valid: Duration) -> EntryOut {
        let attr_valid = self.claim_meta(id, ino);
        self.inode(id, ino).lookups += 1;
        EntryOut { ino, generation: 0, entry_valid, attr_valid, attr: self.attr(ino) }
    }

    fn forget(&mut self, id: usize, ino: u64, count: u64) {
        let inode = self.inode(id, ino);
        inode.lookups = inode.lookups.checked_sub(count).expect("more forgotten than looked up");
    }

    fn make(&mut self, parent: u64, name: &[u8], mode: u32) -> Option<u64> {
        if self.child(parent, name).is_some() {
            return None;
        }
        let (ino, now) = (self.next, self.tick());
        self.next += 1;
        let attr = Attr { ino, mode, nlink: 1, mtime: now, ctime: now, ..Attr::default() };
        self.nodes.insert(ino, Node { attr, names: BTreeMap::new(), data: Vec::new() });
        let parent = self.nodes.get_mut(&parent)?;
        parent.names.insert(name.to_vec(), ino);
        (parent.attr.mtime, parent.attr.ctime) = (now, now);
        Some(ino)
    }

    fn unlink(&mut self, parent: u64, name: &[u8]) -> bool {
        let now = self.tick();
        let Some(parent) = self.nodes.get_mut(&parent) else { return false };
        parent.attr.mtime = now;
        let gone = parent.names.remove(name);
        if let Some(node) = gone.and_then(|ino| self.nodes.get_mut(&ino)) {
            node.attr.nlink = 0;
        }
        gone.is_some()
    }

    fn rename(&mut self, from: u64, name: &[u8], to: u64, new_name: &[u8]) -> bool {
        let now = self.tick();
        let Some(ino) = self.nodes.get_mut(&from).and_then(|dir| dir.names.remove(name)) else {
            return false;
        };
        let dir = self.nodes.get_mut(&to).unwrap();
        dir.names.insert(new_name.to_vec(), ino);
        dir.attr.mtime = now;
        self.nodes.get_mut(&from).unwrap().attr.mtime = now;
        true
    }

    fn setattr(&mut self, ino: u64, set: &sateen_fuse::SetattrIn) {
        let now = self.tick();
        let node = self.nodes.get_mut(&ino).unwrap();
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
        }
        node.attr.mode = set.mode.unwrap_or(node.attr.mode);
        (node.attr.mtime, node.attr.ctime) = (now, now);
    }

    fn write(&mut self, ino: u64, offset: usize, data: &[u8], append: bool) {
        let now = self.tick();
        let node = self.nodes.get_mut(&ino).unwrap();
        let offset = if append { node.data.len() } else { offset };
        let end = offset + data.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[offset..end].copy_from_slice(data);
        node.attr.mtime = now;
    }
}

impl Filesystem for Client {
    fn init(&self, offer: &KernelOffer) -> Caps {
        offer.recommended() - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        self.server.clients[self.id].requests.push((request, reply));
    }

    fn destroy(&self) {
        let queues = &self.server.clients[self.id];
        queues.requests.end();
        queues.metas.end();
        queues.datas.end();
    }
}
