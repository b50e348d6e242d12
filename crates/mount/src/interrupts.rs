//! Programs that got a signal while they wait for an answer.
//!
//! The kernel lets nobody go before the request is answered, not even one who was killed. It
//! tells of the first signal that comes (INTERRUPT), whichever that is, and of no other. A local
//! file system would not be interrupted at all, and programs count on that; but a server may
//! be gone for hours. So:
//!
//! - A signal that kills ends the waiting at once.
//! - One of those that people and timers send to stop something ([`ASKING`]), and that the
//!   program has a handler for, ends it if it has lasted [`PATIENCE`].
//! - After any other the program waits on, and is looked at from time to time.
//! - Whoever waits for a lock of flock(2) or fcntl(2), or for a group, is let go at once by any signal, as on a local
//!   file system: the kernel begins that call anew where nothing else was to come of the signal.
//!
//! Life of a request: it is dispatched and entered here; interrupted, perhaps, and then given up
//! (answered with `EINTR`, while the verb goes on without anybody who waits for it); its verb
//! ends, and it is removed. An INTERRUPT may overtake its request.
//!
//! Who waits for a group that has a file is like the others, but where targets are always there nobody is
//! entered for that: only when its verb begins to wait ([`Interrupts::begin_late`]). The verb then ends by
//! itself, and answers.
//!
//! Over io_uring it may also never come: of a signal that arrives when a queue has been given the
//! request, and before the queue's thread has taken it, the kernel tells nobody. So whoever has
//! waited there for [`PATIENCE`] is looked at once a second, told of or not. So is who reads, because a
//! request that fills pages is nobody's: the kernel lets its program go without it, and it would wait on.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sateen_client::Patience;
use sateen_fuse::{Op, Reply, Revoker};
use sateen_reactor::Executor;
use sateen_types::Errno;

use crate::requests::{F_UNLCK, WRITE_CACHE, waits_for_group};

/// How long a program with a handler waits before its signal ends that: 1 s.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a program is looked at after a signal that did not end its waiting: 100 ms.
const LOOK_NS: u64 = 100_000_000;
/// How often those are looked at of whose signals the kernel may not have told: 1 s.
const ROUND_NS: u64 = 1_000_000_000;
/// INTERRUPTs that are remembered because their request has not come yet.
const EARLY_MAX: usize = 256;
/// Requests that are over whose memory the next ones get.
const SPARE_MAX: usize = 64;

/// SIGHUP, SIGINT, SIGQUIT, SIGALRM and SIGTERM as a mask.
const ASKING: u64 = bit(1) | bit(2) | bit(3) | bit(14) | bit(15);
/// SIGKILL. The kernel turns others that kill, and dump no core, into it.
const KILL: u64 = bit(9);
/// Without a handler these do not end a program: SIGCHLD, SIGCONT, the four that stop it,
/// SIGURG and SIGWINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Ends after so many nanoseconds.
pub type Sleep = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What a program that got a signal wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// To die.
    Die,
    /// To be let go, if that does not come soon.
    Stop,
    /// Nothing: the signal is not about this.
    Wait,
}

/// The signals of a thread, as /proc shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Signals {
    pending: u64,
    blocked: u64,
    ignored: u64,
    caught: u64,
}

impl Signals {
    /// Whether a thread is gone.
    fn are_over(thread: u32) -> bool {
        let status = |of: u32| std::fs::read_to_string(format!("/proc/{of}/status"));
        match status(thread) {
            _ if thread == 0 => false,
            Ok(status) => status.contains("\nState:\tZ") || status.contains("\nState:\tX"),
            // Where others' programs cannot be seen that of number 1 cannot either.
            Err(error) => error.kind() == ErrorKind::NotFound && status(1).is_ok(),
        }
    }

    fn parse(status: &str) -> Signals {
        let mut signals = Signals::default();
        for line in status.lines() {
            let Some((name, mask)) = line.split_once(":\t") else { continue };
            let Ok(mask) = u64::from_str_radix(mask.trim(), 16) else { continue };
            match name {
                "SigPnd" | "ShdPnd" => signals.pending |= mask,
                "SigBlk" => signals.blocked = mask,
                "SigIgn" => signals.ignored = mask,
                "SigCgt" => signals.caught = mask,
                _ => {}
            }
        }
        signals
    }

    /// Those of a thread; `None` of one that cannot be looked at, because it lives in a place of its
    /// own or is gone.
    fn seen(thread: u32) -> Option<Signals> {
        // The kernel names it 0 where it cannot be seen from here.
        let status = format!("/proc/{thread}/status");
        let status = (thread != 0).then(|| std::fs::read_to_string(status).ok());
        status.flatten().map(|status| Signals::parse(&status))
    }

    /// Those of a thread that got one. Which it was does not matter where that cannot be seen.
    fn of(thread: u32) -> Signals {
        let unseen = Signals { pending: ASKING, caught: ASKING, ..Signals::default() };
        Signals::seen(thread).unwrap_or(unseen)
    }

    /// Whether there is any that the thread is yet to hear of.
    fn any(&self) -> bool {
        self.pending & (!self.blocked | KILL) != 0
    }

    fn wish(&self) -> Wish {
        let pending = self.pending & !self.blocked;
        if (self.pending & KILL | pending & !(self.caught | self.ignored | HARMLESS)) != 0 {
            return Wish::Die;
        }
        if pending & self.caught & ASKING != 0 { Wish::Stop } else { Wish::Wait }
    }
}

/// A request that somebody waits for.
#[derive(Clone)]
struct Waiting {
    thread: u32,
    since: Instant,
    /// `None` of one whose verb answers.
    revoker: Option<Revoker>,
    patience: Arc<Patience>,
    /// It may fill pages, for which nobody waits when its program is gone.
    reads: bool,
    /// Any signal ends it.
    at_once: bool,
    /// The kernel may not tell of a signal.
    untold: bool,
}

impl Waiting {
    /// Whether nobody waits any more, because of the signals that the program has.
    fn look(&self) -> bool {
        let wish = if self.at_once { Wish::Die } else { Signals::of(self.thread).wish() };
        match wish {
            Wish::Wait => return false,
            Wish::Stop if self.since.elapsed() < PATIENCE => return false,
            Wish::Stop | Wish::Die => {}
        }
        self.let_go();
        true
    }

    /// Nobody waits any more.
    fn let_go(&self) {
        let revoke = |revoker: &Revoker| revoker.revoke(Errno::EINTR.raw());
        if self.revoker.as_ref().is_none_or(revoke) {
            self.patience.end();
        }
    }

    /// Whether it has lasted so long that a signal would end it, and there is one, or nobody waits.
    fn has_signal(&self) -> bool {
        if self.reads && Signals::are_over(self.thread) {
            return true;
        }
        let signals = Signals::seen(self.thread).unwrap_or_default();
        signals.wish() != Wish::Wait || self.at_once && signals.any()
    }
}

/// A request that was entered.
pub(crate) struct Entered {
    pub(crate) reply: Reply,
    /// Unless it is of those that are always waited for.
    pub(crate) patience: Option<Arc<Patience>>,
    /// It was interrupted before it came.
    pub(crate) early: bool,
    /// Somebody has to [`Interrupts::watch`] from now on.
    pub(crate) watch: bool,
}

/// A request that was entered because its verb waits for people; it is removed on drop.
pub(crate) struct Late {
    interrupts: Arc<Interrupts>,
    unique: u64,
    patience: Arc<Patience>,
}

impl AsRef<Patience> for Late {
    fn as_ref(&self) -> &Patience {
        &self.patience
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.interrupts.end(self.unique);
    }
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    /// Of requests that are over.
    spare: Vec<(Revoker, Arc<Patience>)>,
    early: VecDeque<u64>,
    /// Somebody looks at those of whose signals the kernel may not tell.
    watched: bool,
}

impl State {
    /// Enters a request. Whether it was interrupted before, and whether somebody has to watch from now
    /// on.
    fn enter(&mut self, unique: u64, waiting: Waiting) -> (bool, bool) {
        let untold = waiting.untold;
        self.waiting.insert(unique, waiting);
        let early = self.early.iter().position(|other| *other == unique);
        let early = early.and_then(|at| self.early.remove(at)).is_some();
        let watch = untold && !self.watched;
        self.watched |= untold;
        (early, watch)
    }
}

/// All requests of a mount that may be interrupted.
pub(crate) struct Interrupts {
    state: Mutex<State>,
    /// `None` where nobody can be looked at again.
    sleep: Option<Sleep>,
    /// Programs may wait for long for anything, and not only for locks of others.
    for_anything: bool,
    executor: Executor,
}

/// Whether it waits for a lock that another program, or a group, may have for ever. Giving one back does not,
/// though the kernel says so of `LOCK_UN`, which comes without `LOCK_NB`.
pub(crate) fn waits_for_lock(op: &Op) -> bool {
    matches!(op, Op::Setlk { wait: true, lock, .. } if lock.kind != F_UNLCK) || waits_for_group(op)
}

/// Whether it may meet a group that has a file, and somebody waits for it. Nobody does for what the kernel
/// writes of its pages, which would be lost.
fn may_meet_groups(op: &Op) -> bool {
    match op {
        Op::Write { write_flags, .. } => write_flags & WRITE_CACHE == 0,
        Op::Read { .. }
        | Op::Open { .. }
        | Op::Create { .. }
        | Op::Setattr { .. }
        | Op::Fallocate { .. }
        | Op::Lseek { .. } => true,
        _ => false,
    }
}

impl Interrupts {
    /// Those of a mount whose programs wait for long `for_anything`, or only for locks and groups.
    pub(crate) fn new(
        sleep: Option<Sleep>,
        for_anything: bool,
        executor: Executor,
    ) -> Arc<Interrupts> {
        Arc::new(Interrupts { state: Mutex::default(), sleep, for_anything, executor })
    }

    /// Whether somebody may begin to wait for long, though it was not entered.
    pub(crate) fn may_come_late(&self, op: &Op) -> bool {
        self.sleep.is_some() && may_meet_groups(op)
    }

    /// Whether somebody may wait for long for the answer, and can be let go without one.
    pub(crate) fn may_be_given_up(&self, op: &Op) -> bool {
        // Nobody waits for the end of an open, and the handles must go.
        let is_end = matches!(op, Op::Release { .. } | Op::Releasedir { .. } | Op::Flush { .. });
        if self.for_anything { !is_end } else { waits_for_lock(op) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request, unless it is of those that are always waited for.
    pub(crate) fn begin(&self, (unique, thread): (u64, u32), op: &Op, reply: Reply) -> Entered {
        if !self.may_be_given_up(op) {
            return Entered { reply, patience: None, early: false, watch: false };
        }
        // Those that fill pages: of others it is not the thread that waits, but perhaps a program that
        // looks for all of them at once (libaio), whichever of its threads has asked.
        let reads = matches!(op, Op::Read { lock_owner: None, .. });
        let untold = (reply.may_miss_interrupts() || reads) && self.sleep.is_some();
        let mut state = self.state();
        let (spare, patience) = state.spare.pop().unzip();
        let (reply, revoker) = reply.revocable(spare);
        let patience = patience.unwrap_or_default();
        let waiting = Waiting {
            thread,
            since: Instant::now(),
            revoker: Some(revoker),
            patience: patience.clone(),
            reads,
            at_once: waits_for_lock(op),
            untold,
        };
        let (early, watch) = state.enter(unique, waiting);
        drop(state);
        Entered { reply, patience: Some(patience), early, watch }
    }

    /// Enters a request whose verb has begun to wait for people. Its signals may have come before.
    pub(crate) fn begin_late(
        self: Arc<Interrupts>,
        (unique, thread): (u64, u32),
        reads: bool,
    ) -> Late {
        let patience = Arc::new(Patience::default());
        let waiting = Waiting {
            thread,
            since: Instant::now(),
            revoker: None,
            patience: patience.clone(),
            reads,
            at_once: false,
            untold: true,
        };
        let (early, watch) = self.state().enter(unique, waiting);
        if early {
            self.executor.spawn(Box::pin(self.clone().look_after(unique)));
        }
        if watch {
            self.executor.spawn(Box::pin(self.clone().watch()));
        }
        Late { interrupts: self, unique, patience }
    }

    /// The verb of a request has ended.
    pub(crate) fn end(&self, unique: u64) {
        let gone = self.state().waiting.remove(&unique);
        let Some(Waiting { revoker: Some(revoker), mut patience, .. }) = gone else { return };
        // Whoever looks after it has it still.
        let Some(unused) = Arc::get_mut(&mut patience) else { return };
        // It keeps nobody awake who has ended, nor his memory.
        *unused = Patience::default();
        let mut state = self.state();
        if state.spare.len() < SPARE_MAX {
            state.spare.push((revoker, patience));
        }
    }

    /// The program behind a request got a signal: looks after it until it is let go, or the
    /// request's verb has ended.
    pub(crate) async fn look_after(self: Arc<Interrupts>, unique: u64) {
        loop {
            let waiting = self.state().waiting.get(&unique).cloned();
            let Some(waiting) = waiting else { return };
            if waiting.look() {
                return;
            }
            drop(waiting);
            let Some(sleep) = &self.sleep else { return };
            sleep(LOOK_NS).await;
        }
    }

    /// Looks after those who have waited for long and of whose signals the kernel may not have told.
    /// Ends when there are none; the next one begins it anew.
    pub(crate) async fn watch(self: Arc<Interrupts>) {
        let Some(sleep) = &self.sleep else { return };
        loop {
            sleep(ROUND_NS).await;
            let Some(mut lasting) = self.lasting() else { return };
            lasting.retain(|waiting| waiting.has_signal());
            if lasting.is_empty() {
                continue;
            }
            // A thread that does not wait for this request, as of one to read ahead, may just have
            // been about to hear of its signal.
            sleep(LOOK_NS).await;
            for waiting in lasting.iter().filter(|waiting| waiting.has_signal()) {
                waiting.let_go();
            }
        }
    }

    /// Those of them who have waited for long; `None` if there are none to be watched.
    fn lasting(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        state.watched = state.waiting.values().any(|waiting| waiting.untold);
        let lasting = |waiting: &&Waiting| waiting.untold && waiting.since.elapsed() >= PATIENCE;
        let watched = state.watched;
        watched.then(|| state.waiting.values().filter(lasting).cloned().collect())
    }

    /// Whether an interrupted request is there; if not, it may have been answered, or not have
    /// come yet.
    pub(crate) fn is_here(&self, unique: u64) -> bool {
        let mut state = self.state();
        if state.waiting.contains_key(&unique) {
            return true;
        }
        if state.early.len() >= EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(pending: u64, blocked: u64, ignored: u64, caught: u64) -> Wish {
        Signals { pending, blocked, ignored, caught }.wish()
    }

    #[test]
    fn what_kills_is_told_from_what_asks_and_from_the_rest() {
        let (int, quit, chld, usr1) = (bit(2), bit(3), bit(17), bit(10));
        assert_eq!(wish(KILL, KILL, 0, 0), Wish::Die);
        assert_eq!(wish(quit, 0, 0, 0), Wish::Die, "it dumps core");
        assert_eq!(wish(quit, quit, 0, 0), Wish::Wait);
        assert_eq!(wish(int, 0, 0, int), Wish::Stop);
        assert_eq!(wish(int, int, 0, int), Wish::Wait);
        assert_eq!(wish(int, 0, int, 0), Wish::Wait);
        assert_eq!(wish(usr1, 0, 0, usr1), Wish::Wait, "a timer of the program's own");
        assert_eq!(wish(chld, 0, 0, 0), Wish::Wait);
    }

    #[test]
    fn the_signals_of_a_thread_are_read() {
        let status = "Name:\tcat\nSigQ:\t0/1\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000002\n\
            SigBlk:\t0000000000000004\nSigIgn:\t0000000000000008\nSigCgt:\t0000000000000010\n";
        let read = Signals { pending: 0x102, blocked: 4, ignored: 8, caught: 16 };
        assert_eq!(Signals::parse(status), read);
        assert_eq!(Signals::of(std::process::id()).wish(), Wish::Wait);
        assert_eq!(Signals::seen(0), None);
        assert_eq!(Signals::of(0).wish(), Wish::Stop, "it is believed that it got one");
        assert!(read.any() && Signals { blocked: u64::MAX, ..read }.any(), "nobody blocks SIGKILL");
        assert!(!Signals { pending: 2, blocked: 2, ..read }.any());
    }

    #[test]
    fn an_interrupt_may_overtake_its_request() {
        let sleep: Sleep = Arc::new(|_| Box::pin(core::future::pending()));
        let interrupts = Interrupts::new(Some(sleep), true, Executor::default());
        let begin = |unique| {
            let (reply, cell) = Reply::capture(0);
            let entered = interrupts.begin((unique, 0), &Op::Statfs { ino: 1 }, reply);
            assert!(entered.patience.is_some() && !entered.watch, "the kernel tells of all");
            (entered.reply, cell, entered.early)
        };
        assert!(!interrupts.is_here(4));
        let (reply, _, early) = begin(4);
        assert!(early && interrupts.is_here(4));
        reply.ok();
        interrupts.end(4);
        let (reply, cell, early) = begin(6);
        assert!(!early);
        let waiting = interrupts.state().waiting.get(&6).cloned().unwrap();
        let revoker = waiting.revoker.as_ref().unwrap();
        assert!(revoker.revoke(Errno::EINTR.raw()));
        assert!(!revoker.revoke(Errno::EINTR.raw()), "once");
        assert!(reply.claim().is_none(), "whoever works on it takes back what it has");
        assert_eq!(cell.lock().unwrap().as_ref().map(|answer| answer.errno), Some(4));
    }

    #[test]
    fn who_begins_to_wait_for_people_is_entered_then() {
        let sleep: Sleep = Arc::new(|_| Box::pin(core::future::pending()));
        let interrupts = Interrupts::new(Some(sleep), false, Executor::default());
        let seek = Op::Lseek { ino: 1, fh: 1, offset: 0, whence: 3 };
        assert!(!interrupts.may_be_given_up(&seek) && interrupts.may_come_late(&seek));
        assert!(!interrupts.may_come_late(&Op::Statfs { ino: 1 }));
        // The kernel has told of a signal before, and of this process there is none.
        assert!(!interrupts.is_here(4));
        let late = interrupts.clone().begin_late((4, std::process::id()), false);
        assert!(interrupts.is_here(4) && interrupts.state().early.is_empty());
        let waiting = interrupts.state().waiting.get(&4).cloned().unwrap();
        assert!(!waiting.look() && !waiting.has_signal());
        drop((late, waiting));
        assert!(!interrupts.is_here(4));
        // What fills pages is nobody's when its program is gone.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !Signals::are_over(child.id()) {
            std::thread::yield_now();
        }
        let gone = (6, child.id());
        let late = interrupts.clone().begin_late(gone, true);
        assert!(interrupts.state().waiting.get(&6).unwrap().has_signal());
        drop(late);
        child.wait().unwrap();
        assert!(Signals::are_over(gone.1) && !Signals::are_over(0));
    }

    #[test]
    fn any_signal_ends_the_wait_for_a_programs_lock() {
        let interrupts = Interrupts::new(None, false, Executor::default());
        let begin = |unique, op: Op| {
            let (reply, cell) = Reply::capture(0);
            let Entered { reply, patience, .. } =
                interrupts.begin((unique, std::process::id()), &op, reply);
            (reply, patience, cell)
        };
        let lock = sateen_fuse::FileLock { start: 0, end: 0, kind: 1, pid: 1 };
        let set = |wait| Op::Setlk { ino: 1, fh: 1, owner: 1, lock, flock: true, wait };
        let given_back = sateen_fuse::FileLock { kind: F_UNLCK, ..lock };
        let unlock =
            Op::Setlk { ino: 1, fh: 1, owner: 1, lock: given_back, flock: true, wait: true };
        for op in [set(false), unlock, Op::Statfs { ino: 1 }] {
            let (reply, patience, _) = begin(2, op);
            assert!(patience.is_none(), "nobody waits for long");
            reply.ok();
        }
        let (reply, patience, cell) = begin(4, set(true));
        assert!(patience.is_some() && interrupts.is_here(4));
        let waiting = interrupts.state().waiting.get(&4).cloned().unwrap();
        assert!(!waiting.has_signal(), "this process has none");
        assert!(waiting.look(), "but the kernel says so");
        assert_eq!(cell.lock().unwrap().as_ref().map(|answer| answer.errno), Some(4));
        assert!(reply.claim().is_none());
    }
}
