//! The verbs: what a VFS asks of a client. One file per family.
//!
//! Verbs take FIDs. What they return says for how long it may be believed: [`Known`] is
//! `held` where a lock covers it, and then holds until the port is asked to invalidate it.

mod ahead;
mod attrs;
mod data;
mod dirs;
mod files;
mod holes;
mod names;
mod readahead;
mod replacing;
mod space;
mod targets;
mod xattrs;

pub(crate) use data::Cutting;
pub(crate) use files::File;

pub use dirs::Listing;
pub use files::{OpenHow, Opened};
pub use space::SpaceTotal;
pub(crate) use space::Spaces;
pub use targets::TargetState;
pub use xattrs::Striping;

use sateen_types::Attr;

/// Attributes, and whether a lock covers them.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The attributes.
    pub attr: Attr,
    /// They may be cached until invalidated.
    pub held: bool,
}

/// A name's inode.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The inode; `None` if there is no such name.
    pub inode: Option<Known>,
    /// The name (or its absence) may be cached until invalidated.
    pub held: bool,
    /// That stands under the inode's own lock, which was there for the request sent then.
    since: Option<u64>,
}

impl Entry {
    /// An inode that no name has led to.
    pub fn nameless(known: Known) -> Entry {
        Entry { inode: Some(known), held: false, since: None }
    }
}
