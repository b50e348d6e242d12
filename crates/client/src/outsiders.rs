//! Who waits for a group: how long, how many, and what ends it.
//!
//! Who wants a file's data while a group has it, and no member is of this client, is told so by the MDT, and
//! asks again after a pause ([`Client::pause`]), because people decide when it is over and nobody waits for
//! them in a slot there. Meanwhile he holds one of the kernel's requests, of which a mount has only so many:
//! behind too many of them a member's own unlock would stand. So [`OUTSIDERS_MAX`] may wait, and
//! others are refused. Two kinds are not counted: who wants to join a group himself, whom the transport
//! counts, and what the kernel writes of its pages, which would be lost.
//!
//! Any signal that kills ends the waiting, also where nobody hears of signals otherwise
//! ([`crate::patience::hearing`]); and a member of this client that comes meanwhile, because then all are
//! served under its lock.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use sateen_types::{Errno, Result};

use crate::client::Client;
use crate::inode::Inode;
use crate::locks::Wanted;
use crate::patience;
use crate::port::Task;
use crate::sync::lock;

/// The MDT is asked again after 10 ms, and each time after twice as long, but for 1 s at most.
const GROUPED_NS: u64 = 10_000_000;
const GROUPED_MAX_NS: u64 = 1_000_000_000;
/// So many of a client may wait. Of io_uring's entries there are 80 for each processor, and of requests
/// in the background 64.
const OUTSIDERS_MAX: u32 = 16;

/// How many wait.
#[derive(Debug, Default)]
pub(crate) struct Outsiders(Arc<AtomicU32>);

/// One of those who may wait; free again on drop.
#[derive(Debug)]
struct Place(Arc<AtomicU32>);

impl Outsiders {
    fn place(&self) -> Option<Place> {
        let one_more = |waits: u32| (waits < OUTSIDERS_MAX).then_some(waits + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        taken.then(|| Place(self.0.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Pauses between questions to an MDT that has answered that a group is in the way.
#[derive(Debug)]
pub(crate) struct Pauses {
    next_ns: u64,
    counted: bool,
    place: Option<Place>,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { next_ns: GROUPED_NS, counted: true, place: None }
    }
}

impl Pauses {
    /// Those of one who is not counted.
    pub(crate) fn uncounted() -> Pauses {
        Pauses { counted: false, ..Pauses::default() }
    }
}

/// Whether a pause is over.
fn is_over(sleep: &mut Task, context: &mut Context<'_>) -> Poll<Result<()>> {
    match sleep.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(Ok(())),
        Poll::Pending if patience::is_over() => Poll::Ready(Err(Errno::EINTR)),
        Poll::Pending => Poll::Pending,
    }
}

impl Client {
    /// Waits before the MDT is asked again whether a group is in the way still.
    ///
    /// # Errors
    /// `EBUSY` if too many wait; `EINTR` if nobody waits any more.
    pub(crate) async fn pause(&self, pauses: &mut Pauses) -> Result<()> {
        let mut sleep = self.begin_pause(pauses)?;
        poll_fn(|context| is_over(&mut sleep, context)).await
    }

    /// The same of one who wants a file's data: it ends as well when there is a lock that allows what he
    /// wants to do.
    ///
    /// # Errors
    /// As [`Client::pause`].
    pub(crate) async fn pause_for_data(
        &self,
        inode: &Inode,
        wanted: &Wanted,
        pauses: &mut Pauses,
    ) -> Result<()> {
        let mut sleep = self.begin_pause(pauses)?;
        poll_fn(|context| {
            {
                let mut state = lock(&inode.state);
                if state.allows(wanted) {
                    return Poll::Ready(Ok(()));
                }
                state.waiters.add(context.waker());
            }
            is_over(&mut sleep, context)
        })
        .await
    }

    fn begin_pause(&self, pauses: &mut Pauses) -> Result<Task> {
        if pauses.counted && pauses.place.is_none() {
            pauses.place = Some(self.outsiders.place().ok_or(Errno::EBUSY)?);
        }
        patience::waits_for_people();
        let sleep = self.port.sleep(pauses.next_ns);
        pauses.next_ns = (pauses.next_ns * 2).min(GROUPED_MAX_NS);
        Ok(sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_may_wait_and_who_has_waited_makes_room() {
        let outsiders = Outsiders::default();
        let mut places: Vec<_> = (0..OUTSIDERS_MAX).map(|_| outsiders.place()).collect();
        assert!(places.iter().all(Option::is_some) && outsiders.place().is_none());
        drop(places.pop());
        assert!(outsiders.place().is_some());
    }
}
