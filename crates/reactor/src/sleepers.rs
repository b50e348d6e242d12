//! Threads that may sleep in a disk, so that no thread of a transport does.
//!
//! A sync writes out whatever of its objects is still in memory, which can take minutes. On the
//! thread that brought the request everything else of that connection would wait for it: writes,
//! and with them the locks that others want back; behind FUSE all requests from a processor. So
//! what sleeps is done here. A job that finds nobody free gets a thread of its own; a target
//! whose disk hangs has [`SHARE_MAX`] of them for each [`Share`] at most ([`REMOVALS_MAX`] for
//! removals, one for a lane of writes), and takes none from the others.
//!
//! Ticks are run here, too: the thread that finds a group commit due writes it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::time::Duration;

use sateen_types::{Endpoint, FastHasher, ObjectId};

use crate::reactor::Hosts;
use crate::run_loop::{self, Sleeps, Work};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, lock, thread};

/// Jobs of one target's share under way at most: disks are as quick with so many as with more.
pub(crate) const SHARE_MAX: usize = 32;
/// Removals of one target under way at most.
pub(crate) const REMOVALS_MAX: usize = 4;
/// A write of so many pieces takes some 20 µs at least, as much as to have another thread do it.
pub(crate) const MANY_PIECES: usize = 16;
/// Lanes of writes of one target. An object's are all in one.
const LANES: u64 = 4;
/// Threads that stay for [`IDLE`] though there is nothing to do.
const KEPT: usize = 4;
const IDLE: Duration = Duration::from_secs(10);
/// Others stay for so long: removals of many small files come in bursts some milliseconds apart, and to
/// start a thread costs as much as to remove two files.
const IDLE_OTHERS: Duration = Duration::from_millis(250);

/// What waits for others of its kind only. Group commits wait for nothing: there is one at a time
/// of each target; nor do ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    /// Syncs, of which one program can ask for any number, and which nobody else waits for.
    Syncs,
    /// Cuts and allocations: their clients hold locks, which others want back.
    Changes,
    /// Removals, which no program waits for. More of them at a time get into each other's way: they
    /// change the same few folders.
    Removals,
    /// Reads of what is not in memory: many come at once, and each is short unless the disk hangs.
    Reads,
    /// Writes of many pieces into the objects of a lane. Two into one object wait for each other at its
    /// file, and a second thread for them is woken for nothing.
    Writes(u8),
}

impl Share {
    /// Of writes of many pieces into an object.
    pub(crate) fn of_writes(object: ObjectId) -> Share {
        // Hashed: files that were made one after the other have objects at an OST whose numbers are whole
        // strides apart.
        let mut hasher = FastHasher::default();
        object.hash(&mut hasher);
        Share::Writes((hasher.finish() % LANES) as u8)
    }

    /// Jobs of one target under way at most.
    const fn most(self) -> usize {
        match self {
            Share::Removals => REMOVALS_MAX,
            Share::Writes(_) => 1,
            Share::Syncs | Share::Changes | Share::Reads => SHARE_MAX,
        }
    }
}

/// The threads and what they are to do.
#[derive(Default)]
pub(crate) struct Sleepers {
    state: Mutex<State>,
    /// There is something to do, or nothing ever again.
    came: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// To be done by the next free thread; group commits first.
    ready: VecDeque<(Option<Place>, Work)>,
    lines: BTreeMap<Place, Line>,
    threads: usize,
    /// Those of them that wait for work, or have not noticed yet that there is some.
    free: usize,
    stopped: bool,
}

/// Where a job stands in line.
type Place = (Endpoint, Share);

/// One target's jobs of one share.
#[derive(Default)]
struct Line {
    /// Ready or under way.
    running: usize,
    /// Beyond what may be.
    waiting: VecDeque<Work>,
}

impl std::fmt::Debug for Sleepers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        let (threads, ready) = (state.threads, state.ready.len());
        f.debug_struct("Sleepers").field("threads", &threads).field("ready", &ready).finish()
    }
}

impl Sleepers {
    /// Has a target's job done. It is done here if no thread can be had at all.
    pub(crate) fn push(self: &Arc<Sleepers>, target: Endpoint, work: Work) {
        let mut state = lock(&self.state);
        match work.share() {
            None => state.ready.push_front((None, work)),
            Some(share) => {
                let place = (target, share);
                let line = state.lines.entry(place).or_default();
                if line.running >= share.most() {
                    line.waiting.push_back(work);
                    return;
                }
                line.running += 1;
                state.ready.push_back((Some(place), work));
            }
        }
        self.have_done(state);
    }

    /// Has a turn of the ticker run.
    pub(crate) fn tick(self: &Arc<Sleepers>, hosts: &Arc<Hosts>) {
        let mut state = lock(&self.state);
        state.ready.push_front((None, Work::Tick(hosts.clone())));
        self.have_done(state);
    }

    /// Has somebody do what was just made ready.
    fn have_done(self: &Arc<Sleepers>, mut state: MutexGuard<'_, State>) {
        // Those that are ready are for who is free, and for threads that were just started.
        if state.free >= state.ready.len() {
            drop(state);
            return self.came.notify_one();
        }
        state.threads += 1;
        state.free += 1;
        drop(state);
        if let Err(error) = self.spawn() {
            tracing::warn!(%error, "no further thread to wait for disks with");
            self.not_started();
        }
    }

    fn spawn(self: &Arc<Sleepers>) -> io::Result<()> {
        let this = self.clone();
        thread::Builder::new().name("disk".to_owned()).spawn(move || this.serve()).map(drop)
    }

    /// What was for that thread waits for another, or is done by this one if there is none. Group
    /// commits are done at once: everybody may wait for them, and the others sleep.
    fn not_started(&self) {
        let mut state = lock(&self.state);
        state.threads -= 1;
        state.free -= 1;
        while (state.threads == 0 || matches!(state.ready.front(), Some((None, _))))
            && let Some((place, work)) = state.ready.pop_front()
        {
            drop(state);
            run_loop::run(work);
            state = lock(&self.state);
            state.done(place);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Ends the threads once there is nothing to do, and waits for that.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopped = true;
        self.came.notify_all();
        while state.threads > 0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One of the threads, which was counted as free.
    fn serve(&self) {
        run_loop::may_sleep(Sleeps::Anything);
        let mut state = lock(&self.state);
        loop {
            state.free -= 1;
            while let Some((place, work)) = state.ready.pop_front() {
                drop(state);
                run_loop::run(work);
                state = lock(&self.state);
                state.done(place);
            }
            if state.stopped {
                break;
            }
            // A burst leaves no threads behind for long.
            let idle = if state.free >= KEPT { IDLE_OTHERS } else { IDLE };
            state.free += 1;
            let timed_out;
            (state, timed_out) = self.wait(state, idle);
            if timed_out && state.ready.is_empty() {
                state.free -= 1;
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        self.ended.notify_all();
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        idle: Duration,
    ) -> (MutexGuard<'a, State>, bool) {
        let waited = self.came.wait_timeout(state, idle).unwrap_or_else(PoisonError::into_inner);
        (waited.0, waited.1.timed_out())
    }
}

impl State {
    /// A job is done; the next one of its line may begin.
    fn done(&mut self, place: Option<Place>) {
        let Some(line) = place.and_then(|place| self.lines.get_mut(&place)) else { return };
        match line.waiting.pop_front() {
            Some(next) => self.ready.push_back((place, next)),
            None => line.running -= 1,
        }
    }
}
