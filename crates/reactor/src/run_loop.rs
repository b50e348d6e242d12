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
//! Work that sleeps in a disk's sync goes into a second queue and starts when the first is
//! empty, so that no answer waits behind it. If there is more than one such piece, all but
//! one go to the [`Pool`], so that disks work in parallel.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use sateen_osd::ObjectOp;
use sateen_target::IoId;
use sateen_wire::Message;

use crate::executor::Task;
use crate::pool::Pool;
use crate::router::Receiver;
use crate::sync::{Arc, thread_local};

/// A target as the run loop sees it: what can be asked of it besides messages.
pub trait Driven: Receiver {
    /// Runs a group commit, unless one is running, which will be followed by another then.
    fn flush(self: Arc<Self>);

    /// Does slow object I/O.
    fn object(self: Arc<Self>, id: IoId, op: ObjectOp);

    /// Time went by. Whether a group commit is due.
    fn tick(self: Arc<Self>) -> bool;

    /// Writes a checkpoint and gives the journal's space back.
    fn checkpoint(self: Arc<Self>);
}

/// One piece of work.
#[expect(clippy::large_enum_variant, reason = "messages are moved, not boxed, to allocate nothing")]
pub(crate) enum Work {
    /// A message for a receiver.
    Deliver(Arc<dyn Receiver>, Message),
    /// A task that was woken.
    Poll(Arc<Task>),
    /// A timer that is due.
    Wake(Waker),
    /// A group commit. Slow.
    Flush(Arc<dyn Driven>),
    /// Object I/O that waits for a disk. Slow.
    Object(Arc<dyn Driven>, IoId, ObjectOp),
    /// A turn of the ticker.
    Tick(Arc<crate::reactor::Hosts>),
}

impl Work {
    fn execute(self) {
        match self {
            Work::Deliver(receiver, message) => receiver.receive(message),
            Work::Poll(task) => task.poll(),
            Work::Wake(waker) => waker.wake(),
            Work::Flush(host) => host.flush(),
            Work::Object(host, id, op) => host.object(id, op),
            Work::Tick(hosts) => hosts.tick(),
        }
    }
}

#[derive(Default)]
struct RunLoop {
    draining: Cell<bool>,
    queue: RefCell<VecDeque<Work>>,
    slow: RefCell<VecDeque<(Arc<Pool>, Work)>>,
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

/// Queues work that waits for a disk.
pub(crate) fn run_slow(pool: &Arc<Pool>, work: Work) {
    LOOP.with(|this| {
        this.slow.borrow_mut().push_back((pool.clone(), work));
        this.drain();
    });
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

    /// The slow work to do here; what is behind it goes to the pool.
    fn next_slow(&self) -> Option<Work> {
        let mut slow = self.slow.borrow_mut();
        let (_, first) = slow.pop_front()?;
        for (pool, work) in slow.drain(..) {
            pool.push(work);
        }
        Some(first)
    }
}
