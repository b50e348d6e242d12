//! The words of Sateen: the small value types that every layer above speaks.
//!
//! Pure and without I/O. Nothing here knows a message, a disk format or a service; those
//! stand in `wire` and above.

mod attr;
mod comb;
mod cookie;
mod copies;
mod direct;
mod endpoint;
mod errno;
mod falloc;
mod fid;
mod hash;
mod layout;
mod name;
mod nid;
mod stats;
mod time;
pub mod units;

pub use attr::{Attr, FileKind};
pub use comb::{COMB_START_MAX, COMB_STRIDE_MAX, Comb, RANGE_BYTES_MAX};
pub use cookie::{COLLISION_MAX, DirCookie, name_hash};
pub use copies::{
    Copied, clear_copies, copied, copies, copies_are_counted, count_copies, write_copies,
};
pub use direct::{DIRECT_ALIGN, DIRECT_BYTES_MIN, suits_direct, to_direct_align};
pub use endpoint::{ClientId, Endpoint};
pub use errno::{Errno, Result};
pub use falloc::Falloc;
pub use fid::{Fid, FidError, Ino, ObjectId, SEQ_OBJECTS_MAX, Seq, seq};
pub use hash::{FastHasher, FastMap, FidMap};
pub use layout::{
    Chunk, Component, ENCRYPTED, ERASURE_CODED, Extent, Layout, LayoutError, NoPattern,
    OST_INDEX_MAX, Pattern, STRIPE_COUNT_ALL, STRIPE_COUNT_MAX, STRIPE_SIZE_DEFAULT,
    STRIPE_SIZE_MIN, StripePolicy,
};
pub use name::{NAME_MAX, Name};
pub use nid::{NIDS_MAX, Nid, NidError, Nids, PORT_DEFAULT, parse_nids};
pub use stats::{ClientStats, StatName, Stats, Tally};
pub use time::{Timespec, Timestamp};
