//! What a host measures, by name: messages by what they are called, and what else it does. The names of
//! object operations are their own.

use sateen_meter::{Begun, Part, Took, begin, named};
use sateen_wire::Message;

/// Waiting for the target's lock, before each of the others of its part.
const LOCK: &str = "lock_wait";
pub(super) const TICK: &str = "tick";
pub(super) const STOP: &str = "stop";
/// The service goes on after its object store has done something.
pub(super) const OBJECT_DONE: &str = "object_done";
/// The service goes on after the index was read.
pub(super) const PREFETCHED: &str = "prefetched";
/// The index is read for a request that needs what is not in memory.
pub(super) const PREFETCH: &str = "prefetch";
/// The memtable is written into the index.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// Objects that a group commit relies on are made durable before it.
pub(super) const SYNC_BEFORE: &str = "sync_before_commit";
/// A group commit is written and made durable.
pub(super) const COMMIT: &str = "commit";
/// Space of the journal is given back.
pub(super) const TRIM: &str = "trim";

/// What a message is called, if that is measured.
pub(super) fn of_message(message: &Message) -> &'static str {
    named(Part::Target, || message.body.called())
}

/// An event of a target: how long it waits for the target's lock, and how long it is executed. Made before
/// the lock is taken, so that it is dropped after it: then it is counted, and nobody waits for that.
pub(super) struct Event {
    what: &'static str,
    begun: Begun,
    waited: Took,
    ran: Took,
}

impl Event {
    /// It waits.
    pub(super) fn waits(what: &'static str) -> Event {
        Event { what, begun: begin(Part::Target), waited: Took::NEVER, ran: Took::NEVER }
    }

    /// It has the lock.
    pub(super) fn runs(&mut self) {
        (self.waited, self.begun) = self.begun.lap();
    }

    /// It is executed.
    pub(super) fn ran(&mut self) {
        self.ran = self.begun.stop();
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.waited.count(Part::Target, || LOCK);
        self.ran.count(Part::Target, || self.what);
    }
}
