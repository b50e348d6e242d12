//! The production driver: everything that the pure services and clients must not have.
//! Threads, locks, clocks, timers, and the in-process network `0@lo`.
//!
//! Run to completion: the thread on which a request arrives executes it, does its I/O,
//! carries the answer back to the client in the same process and runs what the client does
//! next. Nothing is handed to another thread but what sleeps in a disk: syncs, removals,
//! cuts and allocations of objects, and reads of what is not in memory. A group commit is written by the thread that wants it, unless
//! objects are to be synced before.
//!
//! | part | is |
//! |---|---|
//! | [`run_loop`] | a queue per thread, drained by the outermost caller, so that nothing recurses and no lock is held across parties |
//! | [`Router`] | from an endpoint to whoever receives for it |
//! | [`TargetHost`] | a service with its lock, its disk, its group commits and its checkpoints |
//! | [`Executor`] | the client's tasks |
//! | [`Reactor`] | the few background threads: timers, workers, checkpoints; those that sleep in disks come and go (`sleepers`) |
//! | [`inherited`] | files that a process has open from whoever started it |
//!
//! Called by the `sateen` program and by tests. The simulator is another driver and uses
//! none of this.

mod clock;
mod executor;
mod host;
pub mod inherited;
mod pool;
mod reactor;
mod router;
pub mod run_loop;
mod sleepers;
#[cfg(test)]
#[path = "sleepers/tests.rs"]
mod sleepers_tests;
mod sync;
mod timer;

pub use clock::{Clock, random};
pub use executor::Executor;
pub use host::{HostError, HostParts, TargetHost};
pub use pool::{POOL_THREADS, Pool};
pub use reactor::{HOSTS_MAX, Reactor};
pub use router::{ENDPOINTS_MAX, Receiver, Router};
pub use run_loop::Driven;
pub use timer::{Sleep, Timers};
