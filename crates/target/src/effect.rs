//! Effects: what a target asks its driver to do, and the events that answer.

use sateen_osd::{ObjectDone, ObjectOp, Prefetched, Store, Wants};
use sateen_types::{Endpoint, Timestamp};
use sateen_wire::{Message, StatFs};

use crate::Pace;

/// A target's name for one object I/O in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// A target's name for one request that waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkId(pub u64);

/// Something to be done by the driver, after it has let go of the target's lock.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "messages are inline so that sending allocates nothing"
)]
pub enum Effect {
    /// Send a message to the endpoint in its header.
    Send(Message),
    /// Do object I/O; then call [`Service::on_object_done`].
    Object {
        /// Names it.
        id: IoId,
        /// What to do.
        op: ObjectOp,
    },
    /// Read from the index; then call [`Service::on_prefetched`].
    Prefetch {
        /// The request that waits.
        id: ParkId,
        /// What it wants.
        wants: Wants,
        /// The generation to read it in.
        generation: u64,
    },
    /// Somebody waits for durability: start a group commit now rather than at the next tick.
    Flush,
}

/// A caller-owned list of effects, reused so that steady work allocates nothing.
#[derive(Debug, Default)]
pub struct Outbox {
    effects: Vec<Effect>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Sends a message.
    pub fn send(&mut self, message: Message) {
        self.effects.push(Effect::Send(message));
    }

    /// Takes all effects, in order, keeping the memory.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.effects.drain(..)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}

/// How a target ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is at it, or was not told to.
    Working,
    /// In good order: its clients may go on with the next run.
    Clean,
    /// There is nothing left to be done, and what clients had is lost.
    Lost,
}

/// A target, as its driver sees it.
///
/// Besides the events below the driver runs the store: after any event it may call
/// [`Store::begin_flush`], write the frame, and report with [`Service::on_flushed`]; the
/// same with checkpoints. It calls [`Service::on_tick`] as often as [`Service::pace`] says, or more
/// often, and starts a group commit when a change is [`crate::COMMIT_AGE_NS`] old at the latest.
pub trait Service: Send {
    /// The metadata store, for flushes and checkpoints.
    fn store(&mut self) -> &mut Store;

    /// Objects that must be synced before the frame that [`Store::begin_flush`] just gave is
    /// written, because records in it say that they already look so.
    fn sync_before_flush(&mut self) -> Vec<sateen_types::ObjectId> {
        Vec::new()
    }

    /// A message arrived: a request, a reply to one of the target's own requests, or a
    /// callback.
    fn on_message(&mut self, now: Timestamp, message: Message, out: &mut Outbox);

    /// Object I/O ended.
    fn on_object_done(&mut self, now: Timestamp, id: IoId, done: ObjectDone, out: &mut Outbox);

    /// What a parked request wanted was read.
    fn on_prefetched(&mut self, now: Timestamp, id: ParkId, view: Prefetched, out: &mut Outbox);

    /// [`Store::flush_done`] was called: answer those who waited for durability.
    fn on_flushed(&mut self, now: Timestamp, out: &mut Outbox);

    /// How soon it wants the next tick, as things are after the last event. Asked after each.
    fn pace(&mut self) -> Pace {
        Pace::Soon
    }

    /// Time went by.
    fn on_tick(&mut self, now: Timestamp, out: &mut Outbox);

    /// Since the last call, some seconds ago at most, the network has heard of these peers, of
    /// this target or of others in the process; or it would have, had it had the time to read what
    /// they sent. None of them is silent, whatever has come here. For [`crate::Core::network_heard`].
    fn on_heard(&mut self, _peers: &[Endpoint]) {}

    /// The space where the metadata lies, as it was a moment ago: after the start, after each
    /// group commit, and now and then. A target whose metadata grows refuses to grow in time,
    /// with `ENOSPC`: a journal without room would stop it.
    fn on_space(&mut self, _space: StatFs) {}

    /// The process is about to end. Nothing new is executed from now on; what was is answered, and
    /// what the next run needs in order to go on with the same clients is written down. Events go
    /// on until [`Service::ending`] says that this is done.
    fn on_stop(&mut self, _now: Timestamp, _out: &mut Outbox) {}

    /// How far [`Service::on_stop`] has come.
    fn ending(&self) -> Ending {
        Ending::Clean
    }

    /// A read or write of the journal, the index or the objects failed. Call
    /// [`crate::Core::poison`], and answer with `EIO` everybody whom only the service itself
    /// knows to be waiting (behind locks, behind other targets). The driver starts no group
    /// commit or checkpoint afterwards; events in flight may still arrive.
    fn on_poisoned(&mut self, now: Timestamp, out: &mut Outbox);
}
