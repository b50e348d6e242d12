//! What mounts of one file system see of each other, with separate servers: named cases, each as one
//! local file system would show it (`suite`), and a storm of everything in few names (`storm`). Both
//! with everything on one host, which is over shared memory, and with each server and each mount on
//! a host of its own, over TCP. Needs root, /dev/fuse and `ip`.
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
