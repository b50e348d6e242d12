//! What all targets share: exports with exactly-once execution, transactions, parked
//! requests, and the effects by which a target asks its driver for everything it cannot do
//! itself.
//!
//! A target is a [`Service`]: plain code, events in, effects out. Its driver owns the
//! threads, the disk and the network; the simulator is another driver. A target is one
//! shard: the driver calls it under one lock, from whatever thread the event came on.

mod boot;
mod core;
mod effect;
mod exports;
mod hearing;
mod label;
mod pace;

pub use self::core::{Core, CoreConfig, Fault};
pub use boot::{Recovery, RecoveryError};
pub use effect::{Effect, Ending, IoId, Outbox, ParkId, Service};
pub use exports::{
    Admission, Carried, Connection, EXPORTS_MAX, Exports, Heard, Patience, REPLAY_SLOT, SLOTS_MAX,
};
pub use hearing::{Hearing, NOBODY_NS, STEP_NS_MAX};
pub use label::{
    COMPAT_REPLACES, FORMAT_VERSION, Label, LabelError, MGS_NODES_BYTES_MAX, TargetKind,
};
pub use pace::{COMMIT_AGE_NS, Pace, REST_NS, TICK_NS};
