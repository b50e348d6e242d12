//! One tree in memory, its lock server, and the FUSE face of two clients.
//!
//! A small model of what Sateen does, in which every rule about the kernel's
//! caches can be seen at work: a client keeps in its kernel only what it has a
//! lock on, and a lock is given back only after the kernel was told.
//!
//! - A *meta* lock covers an inode's attributes and, for a directory, its names.
//!   Giving it back takes no kernel lock. While one is being given back, or
//!   another client is changing the inode, answers simply carry no validity.
//! - A *data* lock covers pages: for reading, or for writing from the first
//!   writable open on. While it is being given back, the kernel's invalidation
//!   waits for pages that READs and WRITEs in flight have locked; so those that
//!   arrive during an invalidation are served under the lock, and their range is
//!   invalidated again. READs that arrive between two invalidations are kept
//!   waiting, and their range is left out: such pages have no content yet. So it
//!   ends, however much is read meanwhile.
use sateen_fuse::{
    Attr, Caps, EntryOut, FileKind, Filesystem, KernelOffer, Notifier, Op, ROOT_INO, Reply,
    Request, Time, open_flags,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// How long the kernel may believe what a lock covers.
const VALID: Duration = Duration::from_secs(3600);
/// Threads that serve the requests of a client; more than processes wait.
const WORKERS: usize = 32;
const REVOKERS: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    #[default]
    None,
    Read,
    Write,
}

/// A range of pages, the end exclusive.
type Pages = (u64, u64);

/// How long a READ is kept waiting at most: should its pages share a folio with
/// others, the invalidation would wait for it.
const KEEP_MAX: Duration = Duration::from_millis(5);

/// What one client holds of one inode.
#[derive(Clone, Debug, Default)]
struct Held {
    meta: bool,
    data: Data,
    cancel_meta: bool,
    cancel_data: bool,
    /// An invalidation of pages is under way.
    running: bool,
    /// Served during invalidations: to be invalidated again.
    again: Vec<Pages>,
    /// Of READs kept waiting.
    kept: Vec<Pages>,
    /// References the kernel has.
    lookups: u64,
    writers: u32,
}

#[derive(Debug)]
pub struct Node {
    attr: Attr,
    names: BTreeMap<Vec<u8>, u64>,
    data: Vec<u8>,
}

#[derive(Default)]
pub struct State {
    nodes: HashMap<u64, Node>,
    held: HashMap<(usize, u64), Held>,
    next: u64,
    clock: u64,
}

/// What the revocations cost and did.
#[derive(Debug, Default)]
pub struct Counters {
    pub meta: AtomicU64,
    pub data: AtomicU64,
    pub rounds: AtomicU64,
    pub rounds_max: AtomicU64,
    pub unknown: AtomicU64,
    pub kept: AtomicU64,
    pub kept_too_long: AtomicU64,
    pub epoch_ns: AtomicU64,
    pub attr_ns: AtomicU64,
    pub pages_ns: AtomicU64,
    pub pages_max_ns: AtomicU64,
}

pub struct Server {
    state: Mutex<State>,
    changed: Condvar,
    clients: [ClientQueue; 2],
    pub counters: Counters,
}

#[derive(Default)]
struct ClientQueue {
    notifier: OnceLock<Notifier>,
    jobs: Mutex<VecDeque<Job>>,
    ready: Condvar,
    revokes: Mutex<VecDeque<(u64, bool)>>,
    revoke_ready: Condvar,
}

enum Job {
    Serve(Box<(Request, Reply)>),
    Stop,
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
            std::thread::spawn(move || server.work(id));
        }
        Arc::new(Client { server: self.clone(), id })
    }

    /// To be called when the client is mounted.
    pub fn attach(self: &Arc<Server>, id: usize, notifier: Notifier) {
        self.clients[id].notifier.set(notifier).unwrap();
        for _ in 0..REVOKERS {
            let server = self.clone();
            std::thread::spawn(move || server.revoker(id));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn work(&self, id: usize) {
        let queue = &self.clients[id];
        loop {
            let mut jobs = queue.jobs.lock().unwrap();
            let job = loop {
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => jobs = queue.ready.wait(jobs).unwrap(),
                }
            };
            drop(jobs);
            match job {
                Job::Serve(job) => self.serve(id, job.0, job.1),
                Job::Stop => return,
            }
        }
    }

    /// Gives back whatever a random holder has, as a hostile lock server would.
    pub fn revoke_some(&self, turn: u64) {
        let mut state = self.state();
        let mut holders: Vec<_> = state
            .held
            .iter()
            .filter(|(_, h)| h.meta || h.data > Data::None)
            .map(|(key, _)| *key)
            .collect();
        holders.sort_unstable();
        if let Some(&(id, ino)) = holders.get(turn as usize % holders.len().max(1)) {
            self.ask_back(&mut state, id, ino, true, Data::Read);
        }
    }

    /// Asks `id` to give back what conflicts: its meta lock if `meta`, its data
    /// lock if that is at least `data`.
    fn ask_back(&self, state: &mut State, id: usize, ino: u64, meta: bool, data: Data) -> bool {
        let held = state.held.entry((id, ino)).or_default();
        let meta = meta && held.meta;
        let pages = data > Data::None && held.data >= data;
        let mut queue = self.clients[id].revokes.lock().unwrap();
        if meta && !held.cancel_meta {
            held.cancel_meta = true;
            queue.push_back((ino, false));
        }
        if pages && !held.cancel_data {
            held.cancel_data = true;
            queue.push_back((ino, true));
        }
        self.clients[id].revoke_ready.notify_all();
        meta || pages
    }

    /// Waits until the other client holds nothing that is in the way: of its
    /// meta locks on `metas` none, of its data lock on `ino` less than `data`.
    fn conquer<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: usize,
        metas: &[u64],
        data: Option<(u64, Data)>,
    ) -> MutexGuard<'a, State> {
        let other = 1 - id;
        loop {
            let mut busy = false;
            for ino in metas {
                busy |= self.ask_back(&mut state, other, *ino, true, Data::None);
            }
            if let Some((ino, least)) = data {
                busy |= self.ask_back(&mut state, other, ino, false, least);
            }
            if !busy {
                return state;
            }
            state = self.changed.wait(state).unwrap();
        }
    }

    fn revoker(&self, id: usize) {
        let queue = &self.clients[id];
        let notifier = queue.notifier.get().unwrap();
        loop {
            let mut revokes = queue.revokes.lock().unwrap();
            let (ino, pages) = loop {
                match revokes.pop_front() {
                    Some((0, _)) => return,
                    Some(found) => break found,
                    None => revokes = queue.revoke_ready.wait(revokes).unwrap(),
                }
            };
            drop(revokes);
            if pages {
                self.give_back_data(id, ino, notifier);
            } else {
                self.give_back_meta(id, ino, notifier);
            }
            self.changed.notify_all();
        }
    }

    /// Names and attributes: the epoch first, then the attributes until the
    /// kernel has either taken them up or forgotten the inode. No kernel locks.
    fn give_back_meta(&self, id: usize, ino: u64, notifier: &Notifier) {
        loop {
            let start = Instant::now();
            if notifier.inc_epoch().is_err() {
                break;
            }
            let between = Instant::now();
            let Ok(found) = notifier.inval_inode(ino, -1, 0) else { break };
            add_time(&self.counters.epoch_ns, between - start);
            add_time(&self.counters.attr_ns, between.elapsed());
            self.counters.meta.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state();
            let held = state.held.entry((id, ino)).or_default();
            if found || held.lookups == 0 || ino == ROOT_INO {
                (held.meta, held.cancel_meta) = (false, false);
                return;
            }
            self.counters.unknown.fetch_add(1, Ordering::Relaxed);
            drop(state);
            std::thread::yield_now();
        }
        let mut state = self.state();
        let held = state.held.entry((id, ino)).or_default();
        (held.meta, held.cancel_meta) = (false, false);
    }

    /// Pages: again, where requests were served while they were being dropped.
    fn give_back_data(&self, id: usize, ino: u64, notifier: &Notifier) {
        let mut rounds = 0;
        let mut state = self.state();
        let mut ranges: Vec<Pages> = vec![(0, u64::MAX)];
        loop {
            let held = state.held.entry((id, ino)).or_default();
            ranges.append(&mut held.again);
            for kept in &held.kept {
                ranges = without(&ranges, *kept);
            }
            if ranges.is_empty() {
                (held.data, held.cancel_data) = (Data::None, false);
                break;
            }
            held.running = true;
            drop(state);
            let start = Instant::now();
            let mut gone = false;
            for (from, to) in ranges.drain(..) {
                let (offset, end) = (from as i64 * 4096, (to as i64).saturating_mul(4096));
                let len = if to == u64::MAX { 0 } else { end - offset };
                gone |= notifier.inval_inode(ino, offset, len).is_err();
            }
            let took = start.elapsed().as_nanos() as u64;
            self.counters.pages_ns.fetch_add(took, Ordering::Relaxed);
            self.counters.pages_max_ns.fetch_max(took, Ordering::Relaxed);
            rounds += 1;
            state = self.state();
            let held = state.held.entry((id, ino)).or_default();
            held.running = false;
            if gone {
                (held.data, held.cancel_data) = (Data::None, false);
                break;
            }
        }
        self.counters.data.fetch_add(1, Ordering::Relaxed);
        self.counters.rounds.fetch_add(rounds, Ordering::Relaxed);
        self.counters.rounds_max.fetch_max(rounds, Ordering::Relaxed);
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
                let least = set.size.map(|_| (ino, Data::Read));
                let mut state = self.conquer(self.state(), id, &[ino], least);
                state.setattr(ino, &set);
                let attr = state.attr(ino);
                drop(state);
                // The kernel takes these up without a look at their age.
                reply.attr(&attr, Duration::ZERO);
            }
            Op::Create { parent, name, mode, flags, .. } => {
                let mut state = self.conquer(self.state(), id, &[parent], None);
                let Some(ino) = state.make(parent, &name, mode) else {
                    return reply.error(libc::EEXIST);
                };
                let valid = state.claim_meta(id, parent);
                let entry = state.entry(id, ino, valid);
                if flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
                    state.held.entry((id, ino)).or_default().writers += 1;
                }
                drop(state);
                reply.created(&entry, flags.into(), open_mode(flags));
            }
            Op::Mkdir { parent, name, mode, .. } => {
                let mut state = self.conquer(self.state(), id, &[parent], None);
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
                let mut state = self.conquer(self.state(), id, &[parent, ino], None);
                let gone = state.unlink(parent, &name);
                drop(state);
                if gone { reply.ok() } else { reply.error(libc::ENOENT) }
            }
            Op::Rename { parent, name, new_parent, new_name, .. } => {
                let mut state = self.conquer(self.state(), id, &[parent, new_parent], None);
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
                    self.state().held.entry((id, ino)).or_default().writers -= 1;
                }
                reply.ok();
            }
            Op::Read { ino, offset, size, fh, .. } => {
                let pages = pages_of(offset, size.into());
                let state = self.enter_data(id, ino, fh, pages, true);
                let data = &state.nodes[&ino].data;
                let start = (offset as usize).min(data.len());
                let end = (start + size as usize).min(data.len());
                let mut buffer = reply.take_buffer(end - start);
                buffer.copy_from_slice(&data[start..end]);
                drop(state);
                reply.data(buffer);
            }
            Op::Write { ino, offset, data, flags, fh, write_flags, .. } => {
                let len = data.len() as u32;
                // Attributes change; the other client must not show old ones.
                let mut state = if is_direct(fh) {
                    self.conquer(self.state(), id, &[ino], Some((ino, Data::Read)))
                } else {
                    self.enter_write(id, ino, fh, pages_of(offset, len.into()))
                };
                let append = flags as i32 & libc::O_APPEND != 0 && write_flags & 1 == 0;
                state.write(ino, offset as usize, &data, append);
                drop((state, data));
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

    /// Rule 3: from the first writable open on all pages stand under a write
    /// lock; those cached for reading are dropped here.
    fn open(&self, id: usize, ino: u64, flags: u32, reply: Reply) {
        let writes = flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            let mut state = self.state();
            state.held.entry((id, ino)).or_default().writers += 1;
            if state.held[&(id, ino)].data == Data::Read {
                self.ask_back(&mut state, id, ino, false, Data::Read);
                while state.held[&(id, ino)].data == Data::Read {
                    state = self.changed.wait(state).unwrap();
                }
            }
            if flags as i32 & libc::O_TRUNC != 0 {
                state = self.conquer(state, id, &[ino], Some((ino, Data::Read)));
                state.setattr(ino, &sateen_fuse::SetattrIn { size: Some(0), ..Default::default() });
            }
        }
        reply.opened(flags.into(), open_mode(flags));
    }

    /// Takes part in the data lock, which is acquired if it is not held; never
    /// waits while it is. Appends are placed by the server and need none, but
    /// nobody may keep pages.
    fn enter_data(
        &self,
        id: usize,
        ino: u64,
        fh: u64,
        pages: Pages,
        read: bool,
    ) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if is_direct(fh) {
            return self.conquer(state, id, &[], Some((ino, Data::Write)));
        }
        let mut patience = Some(Instant::now() + KEEP_MAX);
        loop {
            let held = state.held.entry((id, ino)).or_default();
            let want = if held.writers > 0 { Data::Write } else { Data::Read };
            if held.data >= want {
                if !held.cancel_data {
                    return state;
                }
                let Some(until) = patience.filter(|_| read && !held.running) else {
                    held.again.push(pages);
                    return state;
                };
                held.kept.push(pages);
                state = self.keep(state, id, ino, until);
                let held = state.held.entry((id, ino)).or_default();
                let at = held.kept.iter().position(|kept| *kept == pages).unwrap();
                held.kept.swap_remove(at);
                if until <= Instant::now() {
                    self.counters.kept_too_long.fetch_add(1, Ordering::Relaxed);
                    patience = None;
                }
                continue;
            }
            let least = if want == Data::Write { Data::Read } else { Data::Write };
            let busy = self.ask_back(&mut state, 1 - id, ino, false, least);
            if !busy {
                state.held.entry((id, ino)).or_default().data = want;
                // Others of this client may wait with pages locked.
                self.changed.notify_all();
            } else {
                state = self.changed.wait(state).unwrap();
            }
        }
    }

    /// Like `enter_data`, with nobody else's meta lock in the way. Waiting for
    /// that lets go of the data lock, so both are looked at together.
    fn enter_write(&self, id: usize, ino: u64, fh: u64, pages: Pages) -> MutexGuard<'_, State> {
        loop {
            let mut state = self.enter_data(id, ino, fh, pages, false);
            if !self.ask_back(&mut state, 1 - id, ino, true, Data::None) {
                return state;
            }
            drop(self.conquer(state, id, &[ino], None));
        }
    }

    /// Waits until the data lock is given back, but not for ever.
    fn keep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: usize,
        ino: u64,
        until: Instant,
    ) -> MutexGuard<'a, State> {
        self.counters.kept.fetch_add(1, Ordering::Relaxed);
        while state.held[&(id, ino)].cancel_data {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
        state
    }
}

fn pages_of(offset: u64, len: u64) -> Pages {
    (offset / 4096, (offset + len).div_ceil(4096))
}

/// `ranges` without the pages of `hole`.
fn without(ranges: &[Pages], hole: Pages) -> Vec<Pages> {
    let parts = ranges
        .iter()
        .flat_map(|(from, to)| [(*from, (*to).min(hole.0)), ((*from).max(hole.1), *to)]);
    parts.filter(|(from, to)| from < to).collect()
}

fn add_time(to: &AtomicU64, time: Duration) {
    to.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}

fn is_direct(fh: u64) -> bool {
    fh as i32 & libc::O_APPEND != 0
}

/// Appends bypass the page cache; everything else keeps it.
fn open_mode(flags: u32) -> u32 {
    if is_direct(flags.into()) { open_flags::DIRECT_IO } else { open_flags::KEEP_CACHE }
}

impl State {
    fn tick(&mut self) -> Time {
        self.clock += 1;
        Time { sec: self.clock as i64, nsec: 0 }
    }

    /// The meta lock of `ino` for `id`, if it is to be had without waiting: how
    /// long answers are valid.
    fn claim_meta(&mut self, id: usize, ino: u64) -> Duration {
        let waits = self.held.get(&(1 - id, ino)).is_some_and(|other| other.cancel_meta);
        let held = self.held.entry((id, ino)).or_default();
        if held.cancel_meta || waits {
            return Duration::ZERO;
        }
        held.meta = true;
        VALID
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
        self.held.entry((id, ino)).or_default().lookups += 1;
        EntryOut { ino, generation: 0, entry_valid, attr_valid, attr: self.attr(ino) }
    }

    fn forget(&mut self, id: usize, ino: u64, count: u64) {
        let held = self.held.entry((id, ino)).or_default();
        held.lookups = held.lookups.checked_sub(count).expect("more forgotten than looked up");
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
        let queue = &self.server.clients[self.id];
        queue.jobs.lock().unwrap().push_back(Job::Serve(Box::new((request, reply))));
        queue.ready.notify_one();
    }

    fn destroy(&self) {
        let queue = &self.server.clients[self.id];
        let mut jobs = queue.jobs.lock().unwrap();
        (0..WORKERS).for_each(|_| jobs.push_back(Job::Stop));
        queue.ready.notify_all();
        let mut revokes = queue.revokes.lock().unwrap();
        (0..REVOKERS).for_each(|_| revokes.push_back((0, false)));
        queue.revoke_ready.notify_all();
    }
}
