//! What parties say to each other and what targets write down.
//!
//! In memory a message is a typed value; over `lo` it is moved as it is, over a network it
//! is a fixed header, an encoded body and, apart from both, bulk data. Everything decoded
//! here comes from a peer or a disk and is believed only after every length, range and
//! checksum was checked.

mod called;
pub mod codec;
pub mod disk;
mod file_lock;
mod header;
mod kind;
mod lock;
mod mdt;
mod message;
mod mgs;
mod ost;
mod reclaim;
mod replay;
pub mod spans;

pub use file_lock::{FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, WaitId};
pub use header::{
    CLAIM_SLOT, COMBS, FEATURES, GROUPS, HEADER_BYTES, Header, HeaderError, Kind, Lengths, MANY,
    PROGRESS, PROTOCOL_VERSION, SPEAKS,
};
pub use kind::MessageKind;
pub use lock::{Callback, GRANTS_MAX, Grant, Grants, Ibits, LockId, LockMode};
pub use mdt::{
    Cred, DIR_ENTRIES_MAX, DirEntry, MdtReply, MdtRequest, OpenFlags, OpenId, RenameFlags,
    SYMLINK_MAX, SetAttr, SizeReport, TimeSet, XATTR_VALUE_MAX, XattrMode,
};
pub use message::{BODY_MAX, Body, Bulk, BulkHead, Front, Message, Reply, ReplyBody, Request};
pub use mgs::{
    FSNAME_BYTES_MAX, FsName, MgsReply, MgsRequest, PARAMS_MAX, ParamInfo, TARGETS_MAX, TargetInfo,
};
pub use ost::{BULK_MAX, OBJECTS_PER_RPC_MAX, ObjectAttr, OstReply, OstRequest, StatFs};
pub use reclaim::{
    GIVEN_BACK_MAX, GivenBack, HeldFileLock, HeldGroup, HeldLock, HeldOpen, HeldPart, RECLAIM_MAX,
};
pub use replay::{REPLAY_BYTES_MAX, REPLAY_MAX, Replayed};
pub use spans::{SPANS_MAX, Span, Spans};
