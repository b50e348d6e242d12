//! Storage ports: what a target sees of its disk, and the memory backend.
//!
//! A target's metadata is an ordered key-value index behind our own journal. The target
//! owns durability (its [`Store`]: memtables over a journal), and rents the index (trait
//! [`Index`]). File data are objects (trait [`ObjectStore`]). Services never call a trait
//! that does I/O: they return [`ObjectOp`]s and [`Wants`] as effects, and the driver runs
//! them, so that the simulator can run the same services over its own disks.

mod batch;
mod cache;
mod index;
mod journal_device;
mod key;
mod memtable;
mod object;
mod store;
mod view;

pub mod memory;

pub use batch::{Batch, BatchError, Change};
pub use index::{Index, IndexError};
pub use journal_device::JournalDevice;
pub use key::{KEY_MAX, Key};
pub use memtable::Memtable;
pub use object::{
    Given, ObjectDone, ObjectError, ObjectOp, ObjectStat, ObjectStore, runs_of, write_runs,
};
pub use store::{Checkpoint, Flush, Store, StoreLimits};
pub use view::{Miss, Prefetched, RangeWant, Wants};
