//! The run loop: a queue of work per thread, drained by its outermost caller.
//!
//! Whoever causes work (a message sent, a task woken) puts it into the queue of the thread
//! it runs on. If that thread is not draining its queue yet, it does so now and returns
//! when the queue is empty; otherwise the drain further out does it, after the caller has
//! returned to it. Hence:
//!
//! - nothing here recurses, however long a chain of messages gets;
//! - work starts with none of its causer's locks held, as long as causers outside a loop
//!   hold none (services run inside one, and their effects follow after their lock is free);
//! - what a thread began it finishes, and no other thread is woken for it.
//!
//! Work that sleeps in a disk is for the [`Sleepers`]: of this thread others want more, and what
//! it would be kept from may be what they wait for. Only a group commit, whose frame is short, is
//! done by the thread that asks for it. It goes into a second queue and starts when the first is
//! empty, so that no answer waits behind it; if there is more than one, the others go to the
//! sleepers, so that disks work in parallel. See [`Sleeps`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use sateen_osd::{Flush, ObjectOp};
use sateen_target::IoId;
use sateen_types::{Endpoint, ObjectId};
use sateen_wire::Message;

use crate::executor::Pollable;
use crate::router::Receiver;
use crate::sleepers::{MANY_PIECES, Share, Sleepers};
use crate::sync::{Arc, thread_local};

/// A target as the run loop sees it: what can be asked of it besides messages.
pub trait Driven: Receiver {
    /// Runs a group commit, unless one is running, which will be followed by another then.
    fn flush(self: Arc<Self>);

    /// Writes a group commit that has begun.
    fn commit(self: Arc<Self>, begun: Begun);

    /// Does slow object I/O.
    fn object(self: Arc<Self>, id: IoId, op: ObjectOp);

    /// Time went by. Whether a group commit is due, which is asked for.
    fn tick(self: Arc<Self>) -> bool;

    /// Writes a checkpoint and gives the journal's space back.
    fn checkpoint(self: Arc<Self>);
}

/// A group commit that was taken from its target and is to be written.
#[derive(Debug)]
pub struct Begun {
    pub(crate) flush: Flush,
    /// To be made durable before.
    pub(crate) objects: Vec<ObjectId>,
}

/// What a thread may sleep in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sleeps {
    /// Nothing: a worker, for whom timers wait.
    Nothing,
    /// A group commit. All threads that came from elsewhere, those of transports among them.
    #[default]
    Commits,
    /// Whatever there is: one of the [`Sleepers`].
    Anything,
}

/// One job.
#[expect(clippy::large_enum_variant, reason = "messages are moved, not boxed, to allocate nothing")]
pub(crate) enum Work {
    /// A message for a receiver.
    Deliver(Arc<dyn Receiver>, Message),
    /// Somebody waits for what an uplink keeps back.
    Hurry(Arc<dyn Receiver>),
    /// A task that was woken.
    Poll(Arc<dyn Pollable>),
    /// A timer that is due.
    Wake(Waker),
    /// A group commit. Slow.
    Flush(Arc<dyn Driven>),
    /// What is left of a group commit. Slow.
    Commit(Arc<dyn Driven>, Box<Begun>),
    /// Object I/O that waits for a disk. Slow.
    Object(Arc<dyn Driven>, IoId, ObjectOp),
    /// A turn of the ticker.
    Tick(Arc<crate::reactor::Hosts>),
}

impl Work {
    fn execute(self) {
        match self {
            Work::Deliver(receiver, message) => receiver.receive(message),
            Work::Hurry(uplink) => uplink.hurry(),
            Work::Poll(task) => task.poll(),
            Work::Wake(waker) => waker.wake(),
            Work::Flush(host) => host.flush(),
            Work::Commit(host, begun) => host.commit(*begun),
            Work::Object(host, id, op) => host.object(id, op),
            Work::Tick(hosts) => hosts.tick(),
        }
    }

    /// Whether it is a group commit.
    pub(crate) fn is_commit(&self) -> bool {
        matches!(self, Work::Flush(_) | Work::Commit(..))
    }

    /// What it waits for if it is for the [`Sleepers`]: others of this share, or nothing.
    pub(crate) fn share(&self) -> Option<Share> {
        match self {
            Work::Object(_, _, ObjectOp::Sync { .. }) => Some(Share::Syncs),
            Work::Object(_, _, ObjectOp::Read { .. }) => Some(Share::Reads),
            Work::Object(_, _, ObjectOp::Remove { .. }) => Some(Share::Removals),
            // Of fewer it is known that they may have to wait for others at the file.
            Work::Object(_, _, ObjectOp::WriteMany { object, pieces, .. })
                if pieces.len() >= MANY_PIECES =>
            {
                Some(Share::of_writes(*object))
            }
            _ if self.is_commit() => None,
            _ => Some(Share::Changes),
        }
    }
}

#[derive(Default)]
struct RunLoop {
    draining: Cell<bool>,
    queue: RefCell<VecDeque<Work>>,
    slow: RefCell<VecDeque<(Arc<Sleepers>, Endpoint, Work)>>,
    sleeps: Cell<Sleeps>,
}

thread_local! {
    static LOOP: RunLoop = RunLoop::default();
}

/// Queues work on this thread, and does it now if nobody further out will.
pub(crate) fn run(work: Work) {
    LOOP.with(|this| {
        this.queue.borrow_mut().push_back(work);
        this.drain();
    });
}

/// Has a target's work done that waits for a disk: by this thread, if it may, or by another.
pub(crate) fn run_slow(sleepers: &Arc<Sleepers>, target: Endpoint, work: Work) {
    LOOP.with(|this| {
        // What else sleeps has its place in a line, whoever asks for it.
        if this.sleeps.get() == Sleeps::Nothing || !work.is_commit() {
            return sleepers.push(target, work);
        }
        let mut slow = this.slow.borrow_mut();
        let same = |(_, other, work): &(_, Endpoint, Work)| {
            *other == target && matches!(work, Work::Flush(_))
        };
        // A group commit that has not begun is for whoever asks by then.
        if !matches!(work, Work::Flush(_)) || !slow.iter().any(same) {
            slow.push_back((sleepers.clone(), target, work));
        }
        drop(slow);
        this.drain();
    });
}

/// Says what this thread may sleep in, from now on.
pub(crate) fn may_sleep(sleeps: Sleeps) {
    LOOP.with(|this| this.sleeps.set(sleeps));
}

/// What this thread may sleep in.
pub(crate) fn sleeps() -> Sleeps {
    LOOP.with(|this| this.sleeps.get())
}

/// Runs `body` as part of this thread's loop: what it causes is done when it has returned,
/// before this function returns (unless a loop further out will).
pub fn enter<T>(body: impl FnOnce() -> T) -> T {
    LOOP.with(|this| {
        if this.draining.get() {
            return body();
        }
        let result = {
            let _draining = Draining::start(this);
            body()
        };
        this.drain();
        result
    })
}

/// Whether this thread is in a run loop.
pub fn is_inside() -> bool {
    LOOP.with(|this| this.draining.get())
}

struct Draining<'a>(&'a RunLoop);

impl<'a> Draining<'a> {
    fn start(this: &'a RunLoop) -> Draining<'a> {
        this.draining.set(true);
        Draining(this)
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.draining.set(false);
    }
}

impl RunLoop {
    fn drain(&self) {
        if self.draining.get() {
            return;
        }
        let _draining = Draining::start(self);
        loop {
            // The borrow must end before the work starts, because it queues more.
            let next = self.queue.borrow_mut().pop_front();
            let Some(work) = next.or_else(|| self.next_slow()) else { return };
            work.execute();
        }
    }

    /// The slow work to do here; what is behind it goes to others.
    fn next_slow(&self) -> Option<Work> {
        let mut slow = self.slow.borrow_mut();
        let (_, _, first) = slow.pop_front()?;
        for (sleepers, target, work) in slow.drain(..) {
            sleepers.push(target, work);
        }
        Some(first)
    }
}
