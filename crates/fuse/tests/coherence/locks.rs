//! Which lock covers what, and how one is given back: a model of the client's `locks.rs`.
//!
//! Rules, order, limits and names are those of `crates/client/src/locks.rs`; whatever is changed
//! there is changed here, and tried. Threads and one condition stand for its tasks and wakers.
//! What the kernel does not see is left out: messages to the MDT, stamps, reports of sizes. A
//! client has one data lock on an inode at most, gets it and puts it to use in one step, and
//! looks whether it is clean and lets it go in one step.
//!
//! - A *meta* lock covers an inode's attributes and, for a directory, its names. Giving it back
//!   takes no kernel lock. While one is being given back, answers simply carry no validity.
//! - A *data* lock covers pages: for reading, or for writing from the first writable open on.
//!   While the kernel drops them it waits for READs and WRITEs that hold the pages' locks, so
//!   those are still served under the lock, and the next round drops what they were served of.
//!   From the second round on they are held back for a moment; and for longer between the
//!   rounds, while the kernel waits for none of them, until those that came before have ended.
use crate::server::{Server, State};
use sateen_fuse::Notifier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// From the second round of an invalidation on, reads and writes wait this long at most.
const HOLD: Duration = Duration::from_millis(1);
/// Those that come between two rounds wait this long at most for those before them.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two looks whether the kernel has heard of an inode.
const INTRODUCE: Duration = Duration::from_micros(100);

/// Bytes that are read or written: offset and length, or all of the file.
pub type Range = Option<(u64, u64)>;

/// Ranges of a file that reads and writes were served of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Served {
    #[default]
    Nothing,
    Ranges(Vec<(u64, u64)>),
    /// All of it, or nobody has counted.
    All,
}

impl Served {
    /// More than these are taken for all of it.
    const RANGES_MAX: usize = 64;

    fn add(&mut self, range: Range) {
        match (&mut *self, range) {
            (Served::Nothing, Some(range)) => *self = Served::Ranges(vec![range]),
            (Served::Ranges(all), Some(range)) if all.len() < Served::RANGES_MAX => {
                all.push(range);
            }
            _ => *self = Served::All,
        }
    }
}

/// What a data lock is needed for, and what it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    Read,
    Write,
}

/// A data lock that a client holds.
#[derive(Clone, Debug)]
struct Held {
    mode: Access,
    /// It is being given back: only reads and writes of data may still go by it.
    cancelling: bool,
    /// What was served since the invalidation that is running began.
    served: Served,
    /// Rounds of invalidation so far.
    rounds: u64,
    /// The kernel has no pages of it any more, and those who still use it are waited for.
    draining: bool,
    /// Reads and writes that go by it now.
    users: u32,
}

/// What a client has of an inode.
#[derive(Clone, Debug, Default)]
pub struct Inode {
    meta: bool,
    meta_cancelling: bool,
    data: Option<Held>,
    /// References of the kernel.
    pub lookups: u64,
    pub write_opens: u32,
}

impl Held {
    fn new(mode: Access) -> Held {
        let served = Served::Nothing;
        Held { mode, cancelling: false, served, rounds: 0, draining: false, users: 0 }
    }
}

enum Found {
    Use,
    /// For those before to end.
    Drains,
    /// For the kernel to drop pages that others have brought.
    Wait,
    None,
}

/// What somebody who needs a lock has waited for long enough.
#[derive(Clone, Copy, Debug, Default)]
struct Tired {
    drains: bool,
    waits: bool,
}

impl Tired {
    const OF_ALL: Tired = Tired { drains: true, waits: true };
}

impl Inode {
    pub fn has_locks(&self) -> bool {
        self.meta || self.data.is_some()
    }

    /// Whether all pages stand under a lock for reading.
    pub fn only_reads(&self) -> bool {
        self.data.as_ref().is_some_and(|held| held.mode == Access::Read)
    }

    pub fn gives_meta_back(&self) -> bool {
        self.meta_cancelling
    }

    /// The meta lock, if there is none that is being given back.
    pub fn claim_meta(&mut self) -> bool {
        self.meta |= !self.meta_cancelling;
        !self.meta_cancelling
    }

    /// The mode to ask for. Once this client may write a file, all its pages stand under a lock
    /// for writing, because stores through mappings make no call.
    fn mode_for(&self, access: Access) -> Access {
        if self.write_opens > 0 { Access::Write } else { access }
    }

    fn find_data(&mut self, access: Access, range: Range, tired: Tired) -> Found {
        match self.data.as_mut().filter(|held| held.mode >= access) {
            Some(held) if !held.cancelling => {
                held.users += 1;
                Found::Use
            }
            Some(held) if held.draining && !tired.drains => Found::Drains,
            Some(held) if held.rounds > 1 && !held.draining && !tired.waits => Found::Wait,
            Some(held) => {
                held.users += 1;
                held.served.add(range);
                Found::Use
            }
            None => Found::None,
        }
    }
}

/// A data lock in use; given back on drop, never while the server's state is locked.
pub struct DataUse<'a> {
    server: &'a Server,
    id: usize,
    ino: u64,
}

impl Drop for DataUse<'_> {
    fn drop(&mut self) {
        let mut state = self.server.state();
        // It cannot be gone; but a panic here would end the process, with the mounts in place.
        if let Some(held) = &mut state.inode(self.id, self.ino).data {
            held.users = held.users.saturating_sub(1);
            if held.cancelling && held.users == 0 {
                self.server.changed.notify_all();
            }
        }
    }
}

/// What was held back and given back, and what that cost.
#[derive(Debug, Default)]
pub struct Counters {
    pub meta: AtomicU64,
    pub data: AtomicU64,
    pub rounds: AtomicU64,
    pub rounds_max: AtomicU64,
    pub unknown: AtomicU64,
    /// Requests that waited for a round to end, and those that were tired of it.
    pub waits: AtomicU64,
    pub waits_tired: AtomicU64,
    /// The same, for those before them.
    pub drains: AtomicU64,
    pub drains_tired: AtomicU64,
    /// The longest that a request waited for both.
    pub found_max_ns: AtomicU64,
    pub epoch_ns: AtomicU64,
    pub attr_ns: AtomicU64,
    pub pages_ns: AtomicU64,
    pub pages_max_ns: AtomicU64,
    /// From the callback to the end of the lock.
    pub data_ns: AtomicU64,
    pub data_max_ns: AtomicU64,
}

fn add_ns(to: &AtomicU64, time: Duration) {
    to.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}

fn max_ns(to: &AtomicU64, time: Duration) {
    to.fetch_max(time.as_nanos() as u64, Ordering::Relaxed);
}

impl Counters {
    fn waited(&self, time: Duration, (drains, waits): (bool, bool), tired: Tired) {
        if !drains && !waits {
            return;
        }
        max_ns(&self.found_max_ns, time);
        self.drains.fetch_add(u64::from(drains), Ordering::Relaxed);
        self.drains_tired.fetch_add(u64::from(tired.drains), Ordering::Relaxed);
        self.waits.fetch_add(u64::from(waits), Ordering::Relaxed);
        self.waits_tired.fetch_add(u64::from(tired.waits), Ordering::Relaxed);
    }

    fn invalidated(&self, time: Duration, attr: bool) {
        add_ns(if attr { &self.attr_ns } else { &self.pages_ns }, time);
        if !attr {
            max_ns(&self.pages_max_ns, time);
        }
    }

    fn given_back(&self, time: Duration, rounds: u64) {
        add_ns(&self.data_ns, time);
        max_ns(&self.data_max_ns, time);
        self.data.fetch_add(1, Ordering::Relaxed);
        self.rounds.fetch_add(rounds, Ordering::Relaxed);
        self.rounds_max.fetch_max(rounds, Ordering::Relaxed);
    }
}

impl State {
    fn held(&mut self, id: usize, ino: u64) -> &mut Held {
        self.inode(id, ino).data.as_mut().expect("a lock that is given back is there")
    }
}

impl Server {
    /// A data lock for one read or write, of this range. While one is asked for, any other that
    /// comes along is as good, also if it is about to be given back.
    pub fn use_data(&self, id: usize, ino: u64, access: Access, range: Range) -> DataUse<'_> {
        let used = || DataUse { server: self, id, ino };
        if self.find_data(id, ino, access, range) {
            return used();
        }
        let mut state = self.state();
        loop {
            let inode = state.inode(id, ino);
            if let Found::Use = inode.find_data(access, range, Tired::OF_ALL) {
                return used();
            }
            assert!(inode.data.is_none(), "the first writable open leaves no lock for reading");
            let mode = inode.mode_for(access);
            let in_the_way = if mode == Access::Write { Access::Read } else { Access::Write };
            if self.ask_back(&mut state, 1 - id, ino, false, Some(in_the_way)) {
                state = self.changed.wait(state).unwrap();
            } else {
                state.inode(id, ino).data = Some(Held::new(mode));
                self.changed.notify_all();
            }
        }
    }

    /// Puts a lock to use that is there, if there is one.
    fn find_data(&self, id: usize, ino: u64, access: Access, range: Range) -> bool {
        let (start, mut drains, mut waits) = (Instant::now(), None, None);
        let mut tired = Tired::default();
        let mut state = self.state();
        let found = loop {
            let (until, tired_of) = match state.inode(id, ino).find_data(access, range, tired) {
                Found::Use => break true,
                Found::None => break false,
                Found::Drains => {
                    // In the next round it waits anew, or all who have waited here would be in
                    // its way at once.
                    (tired.waits, waits) = (false, None);
                    (drains.get_or_insert(start.elapsed() + DRAIN), &mut tired.drains)
                }
                Found::Wait => (waits.get_or_insert(start.elapsed() + HOLD), &mut tired.waits),
            };
            match until.checked_sub(start.elapsed()) {
                Some(left) => state = self.changed.wait_timeout(state, left).unwrap().0,
                None => *tired_of = true,
            }
        };
        drop(state);
        self.counters.waited(start.elapsed(), (drains.is_some(), waits.is_some()), tired);
        found
    }

    /// Asks `id` to give back what is in the way: its meta lock if `meta`, its data lock if that
    /// is `data` at least. Returns whether there is something.
    pub fn ask_back(
        &self,
        state: &mut State,
        id: usize,
        ino: u64,
        meta: bool,
        data: Option<Access>,
    ) -> bool {
        let client = &self.clients[id];
        let inode = state.inode(id, ino);
        let meta = meta && inode.meta;
        if meta && !std::mem::replace(&mut inode.meta_cancelling, true) {
            client.metas.push(ino);
        }
        let held = inode.data.as_mut().filter(|held| data.is_some_and(|data| held.mode >= data));
        let Some(held) = held else { return meta };
        if !std::mem::replace(&mut held.cancelling, true) {
            client.datas.push(ino);
        }
        true
    }

    /// Gives a meta lock back: the epoch first, then the attributes. Takes no kernel locks.
    pub fn give_back_meta(&self, id: usize, ino: u64, notifier: &Notifier) {
        let start = Instant::now();
        // A mount that is gone believes nothing any more; so everywhere below.
        let _ = notifier.inc_epoch();
        add_ns(&self.counters.epoch_ns, start.elapsed());
        self.invalidate_known(id, ino, notifier, (-1, 0));
        self.counters.meta.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let inode = state.inode(id, ino);
        (inode.meta, inode.meta_cancelling) = (false, false);
        self.changed.notify_all();
    }

    /// Gives a data lock back: kernel first.
    pub fn give_back_data(&self, id: usize, ino: u64, notifier: &Notifier) {
        let start = Instant::now();
        loop {
            let mut state = self.state();
            let held = state.held(id, ino);
            held.rounds += 1;
            held.draining = false;
            let served = std::mem::take(&mut held.served);
            let served = if held.rounds == 1 { Served::All } else { served };
            self.changed.notify_all();
            drop(state);
            self.drop_from_kernel(id, ino, notifier, served);
            let mut state = self.state();
            while state.held(id, ino).users > 0 {
                state.held(id, ino).draining = true;
                state = self.changed.wait(state).unwrap();
            }
            let held = state.held(id, ino);
            if held.served == Served::Nothing {
                self.counters.given_back(start.elapsed(), held.rounds);
                state.inode(id, ino).data = None;
                self.changed.notify_all();
                return;
            }
        }
    }

    /// After the first round only what was served since: the kernel waits for all who read or
    /// write within what it is to drop, and for those alone.
    fn drop_from_kernel(&self, id: usize, ino: u64, notifier: &Notifier, served: Served) {
        let ranges = match served {
            Served::Nothing => vec![],
            Served::Ranges(ranges) => ranges,
            // No length: to the end.
            Served::All => return self.invalidate_known(id, ino, notifier, (0, 0)),
        };
        for (offset, len) in ranges {
            self.invalidate_known(id, ino, notifier, (offset as i64, len.max(1) as i64));
        }
    }

    /// Invalidates an inode. One that was introduced but that the kernel does not know yet is on
    /// its way there in an answer, which would be believed afterwards: try again until it has
    /// arrived or was forgotten.
    fn invalidate_known(
        &self,
        id: usize,
        ino: u64,
        notifier: &Notifier,
        (offset, len): (i64, i64),
    ) {
        loop {
            let start = Instant::now();
            let known = notifier.inval_inode(ino, offset, len).unwrap_or(true);
            self.counters.invalidated(start.elapsed(), offset < 0);
            if known || self.state().inode(id, ino).lookups == 0 {
                return;
            }
            self.counters.unknown.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(INTRODUCE);
        }
    }
}
