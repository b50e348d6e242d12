//! The object target: keeps the stripes of files.
//!
//! Pure: an [`Ost`] is a [`sateen_target::Service`]. It decides what may be done to which
//! object and in which order, and has its driver do it; it never sees a file or a clock. What
//! clients, MDTs and OSTs owe each other is in docs/protocol.md.
//!
//! Objects are born at their first write. Their bytes lie in the object store; their records
//! (layout generation, version of the last truncate), tombstones, fences and writers lie in
//! the metadata store behind the journal. Two orders are kept between them: a record that
//! says that bytes are gone is never durable before they are, and a sync is not answered
//! before the records of its objects are durable.

mod ending;
mod keys;
mod op;
mod ops;
mod order;
mod ost;
mod space;
mod stats;
mod writers;

pub use op::OPS_MAX;
pub use ost::Ost;
pub use stats::{OST_STATS, OstStats};
