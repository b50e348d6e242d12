//! The simulator: a whole cluster of the production code in one thread.
//!
//! MGS, MDTs, OSTs and clients run as they are; time, network, disks, kernels and programs
//! are simulated, and broken, as a seed decides. Whatever a run does, another with the same
//! seed does again: the hash over all events is the same. What operations answer is held
//! against a model ([`names`], [`data`]); what must always be true stands in [`invariants`].

pub mod data;
pub mod disk;
mod executor;
mod file_locks;
pub mod host;
pub mod invariants;
mod kernel;
mod mgc;
pub mod model;
pub mod names;
mod net;
mod port;
mod queue;
pub mod random;
pub mod report;
pub mod traffic;
mod work;
pub mod world;

/// Messages, tasks and pieces of files come and go all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use report::Report;
pub use world::{Config, Failure, World};
