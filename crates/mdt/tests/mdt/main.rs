//! The MDT against a driver in miniature: an index in memory, fake OSTs, a few clients.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "this is a test, in several files"
)]

mod acl;
mod answered;
mod atime;
mod basic;
mod clients;
mod contended;
mod crash;
mod cutting;
mod file_locks;
mod fsck;
mod glimpse;
mod groups;
mod harness;
mod locks;
mod model;
mod no_room;
mod parts;
mod posix;
mod recovery;
mod removals;
mod replay;
mod restart;
mod returning;
mod sharing;
mod silent;
mod tmpfile;
