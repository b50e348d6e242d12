//! What two mounts of one file system see of each other, over TCP with separate servers: named
//! cases, each as one local file system would show it (`suite`), and a storm of everything in few
//! names (`storm`). Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

mod access;
mod attributes;
mod data;
mod folders;
mod mapped;
mod names;
mod opens;
mod renames;
mod side;
mod space;
mod storm;
mod suite;

const BINARY: &str = env!("CARGO_BIN_EXE_sateen");
