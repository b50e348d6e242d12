//! Timers: sleeping futures, and messages that are held back for a while.
//!
//! One thread waits for the earliest of them, and for the next tick of the targets, and passes on
//! what is due: timers to the pool, ticks to the threads that may sleep in a disk, because a tick
//! may be there for a group commit. So nothing that a timer causes can delay the next one.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sateen_wire::Message;

use crate::clock::Clock;
use crate::pool::Pool;
use crate::reactor::Hosts;
use crate::router::Router;
use crate::run_loop::Work;
use crate::sleepers::Sleepers;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, lock};

/// A timer's place: when it is due, in monotonic nanoseconds, and a number to tell those of
/// the same instant apart.
type Due = (u64, u64);

enum Action {
    Wake(Waker),
    Send(Box<Message>),
}

#[derive(Default)]
struct State {
    timers: BTreeMap<Due, Action>,
    next_id: u64,
    /// Until when the thread sleeps; later timers need not wake it.
    sleeps_until: u64,
    /// The next tick is to come earlier than was said.
    nudged: bool,
    stopped: bool,
}

/// All timers of a reactor. There are as many as sleeping tasks and held messages, whose
/// own limits bound them.
pub struct Timers {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timers").field("waiting", &lock(&self.state).timers.len()).finish()
    }
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Timers {
        Timers { clock, state: Mutex::default(), changed: Condvar::new() }
    }

    /// A future that is ready `ns` nanoseconds from now, or a little later.
    pub fn sleep(self: &Arc<Timers>, ns: u64) -> Sleep {
        let due_ns = self.clock.mono_ns().saturating_add(ns);
        Sleep { timers: self.clone(), due_ns, place: None }
    }

    /// Sends a message `ns` nanoseconds from now.
    pub(crate) fn send_after(&self, ns: u64, message: Message) {
        let due_ns = self.clock.mono_ns().saturating_add(ns);
        let mut state = lock(&self.state);
        self.insert(&mut state, due_ns, Action::Send(Box::new(message)));
    }

    fn insert(&self, state: &mut State, due_ns: u64, action: Action) -> Due {
        let place = (due_ns, state.next_id);
        state.next_id += 1;
        state.timers.insert(place, action);
        if due_ns < state.sleeps_until {
            self.changed.notify_one();
        }
        place
    }

    /// The next tick comes earlier than it was to.
    pub(crate) fn nudge(&self) {
        lock(&self.state).nudged = true;
        self.changed.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_one();
    }

    /// The thread: due timers and ticks.
    pub(crate) fn serve(
        &self,
        pool: &Pool,
        sleepers: &Arc<Sleepers>,
        router: &Router,
        hosts: &Arc<Hosts>,
    ) {
        let mut state = lock(&self.state);
        while !state.stopped {
            // Before it is looked when the next tick is due: whoever changes that says so behind it.
            state.nudged = false;
            let now = self.clock.mono_ns();
            while let Some((_, action)) = pop_due(&mut state, now) {
                drop(state);
                match action {
                    // Waking schedules the task in this thread's run loop, which would run
                    // it here; the worker's loop is the place for that.
                    Action::Wake(waker) => pool.push(Work::Wake(waker)),
                    Action::Send(message) => {
                        if let Some(work) = router.work(*message) {
                            pool.push(work);
                        }
                    }
                }
                state = lock(&self.state);
            }
            if hosts.begin_tick(now) {
                drop(state);
                sleepers.tick(hosts);
                state = lock(&self.state);
            }
            state = self.wait(state, hosts.next_tick_ns());
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, next_tick: u64) -> MutexGuard<'a, State> {
        let earliest = state.timers.first_key_value().map_or(u64::MAX, |(due, _)| due.0);
        let until = earliest.min(next_tick);
        let left = until.saturating_sub(self.clock.mono_ns());
        if left == 0 || state.stopped || state.nudged {
            return state;
        }
        state.sleeps_until = until;
        let waited = self.changed.wait_timeout(state, Duration::from_nanos(left));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.sleeps_until = 0;
        state
    }
}

fn pop_due(state: &mut State, now: u64) -> Option<(Due, Action)> {
    let (due, _) = state.timers.first_key_value()?;
    if due.0 > now { None } else { state.timers.pop_first() }
}

/// See [`Timers::sleep`].
#[derive(Debug)]
pub struct Sleep {
    timers: Arc<Timers>,
    due_ns: u64,
    place: Option<Due>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.timers.state);
        if let Some(place) = self.place {
            let Some(action) = state.timers.get_mut(&place) else { return Poll::Ready(()) };
            let before = std::mem::replace(action, Action::Wake(context.waker().clone()));
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        if self.timers.clock.mono_ns() >= self.due_ns {
            return Poll::Ready(());
        }
        let action = Action::Wake(context.waker().clone());
        let place = self.timers.insert(&mut state, self.due_ns, action);
        drop(state);
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let action = lock(&self.timers.state).timers.remove(&place);
            // Dropping a waker may drop a task, which may drop another sleep.
            drop(action);
        }
    }
}
