//! A client behind a FUSE mount: requests of the kernel become verbs of the client.
//!
//! The process around it owns the mount itself, and the way by which the client tells the
//! kernel to forget. This crate must never block: what has to wait is a task of the client.

mod convert;
mod fs;
mod given;
mod interrupts;
mod requests;
mod virtual_xattr;
mod xattr_names;

pub use fs::{Atime, Durable, KernelFs, Locking, Lookers};
pub use given::GivenFiles;
pub use interrupts::Sleep;
pub use virtual_xattr::{
    CHECK_XATTR, CONNECTED_SPACE_XATTR, LINKS_XATTR, OSTS_XATTR, SPACE_XATTR, STRIPE_XATTR,
    SYNC_XATTR, SpaceRow, TARGETS_XATTR, TargetRow,
};
