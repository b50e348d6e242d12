//! The client against scripted targets: messages come in just the order that a test wants.

#![allow(clippy::panic, clippy::unwrap_used)]
mod atime;
mod crash;
mod dirty;
mod evicted;
mod file_locks;
mod given;
mod glimpse;
mod goodbye;
mod groups;
mod kept_back;
mod kept_xattrs;
mod known_names;
mod memory;
mod network;
mod open_cache;
mod races;
mod readahead;
mod restart;
mod rig;
mod shared_reads;
mod slots;
mod spaces;
mod statahead;
mod striping;
mod unstable;
