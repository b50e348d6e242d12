//! The kernel's FUSE protocol, spoken by Sateen itself.
//!
//! [`Session::mount`] mounts a [`Filesystem`] and serves it, either over
//! `/dev/fuse` with several threads ([`Transport::Classic`]) or over io_uring
//! with one queue per CPU ([`Transport::Uring`]). Each request arrives decoded
//! as an [`Op`] together with an owned [`Reply`], which any thread may complete
//! exactly once. [`Notifier`] tells the kernel to forget what it cached.
//!
//! Called by the mount command and by tests. It knows nothing of Sateen's own
//! objects: inode numbers, names and bytes are all it sees. It must never trust
//! a length from the kernel, never block a queue on behalf of a handler, and
//! never let the kernel write into memory that somebody else still holds.
#![allow(unsafe_code, reason = "device ioctls and buffers shared with the kernel")]

mod abi;
mod attr;
mod backing;
mod buffer;
mod caps;
mod classic;
mod decode;
mod dir;
pub mod fusectl;
mod mount;
pub mod mountinfo;
mod notify;
mod op;
mod opcode_names;
mod queues;
mod reply;
mod ring;
mod session;

pub use attr::{Attr, EntryOut, FileKind, StatfsOut, Time};
pub use backing::{Backing, Backings};
pub use caps::{Caps, KernelOffer};
pub use decode::{DecodeError, Decoded, arg_len, decode, decode_contiguous};
pub use dir::DirBuffer;
pub use mount::{
    MountFlags, MountOptions, REQUEST_MAX, TransportChoice, UnmountMode, max_pages_limit, remount,
};
pub use notify::{NOTIFY_PRUNE_MAX, Notifier};
pub use op::{FileLock, IoctlIn, Name, Op, Request, SetattrIn};
pub use opcode_names::opcode_name;
pub use queues::NoUring;
pub use reply::{Captured, LongWait, Reply, Revoker};
pub use session::{EndReason, MountError, Session, Transport};

/// The inode number of the root directory.
pub const ROOT_INO: u64 = 1;

/// Bits of the answer to OPEN, OPENDIR and CREATE.
pub mod open_flags {
    /// Reads and writes of this descriptor bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The pages cached by earlier opens stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The file cannot be sought in.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The kernel may cache this directory's entries.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// The file has no position.
    pub const STREAM: u32 = 1 << 4;
    /// No FLUSH is sent when a descriptor of this open is closed.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to one inode may run in parallel.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel reads, writes and maps a backing file instead of asking. Set by the answers that
    /// name one; the kernel allows [`DIRECT_IO`], [`NOFLUSH`] and [`PARALLEL_DIRECT_WRITES`] beside
    /// it, and no other.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// What a file system does with requests.
///
/// `dispatch` runs on a thread of the transport and must not block: work that
/// has to wait keeps the [`Reply`] and completes it from elsewhere. A reply
/// completed before `dispatch` returns costs no extra system call.
///
/// An INTERRUPT may overtake the request it names; a file system with requests
/// that wait for long must remember it until that request comes.
pub trait Filesystem: Send + Sync + 'static {
    /// Chooses from what the kernel offers; called before any request, and once
    /// more if the kernel then does not take the queues that it has offered.
    fn init(&self, offer: &KernelOffer) -> Caps {
        offer.recommended()
    }

    /// Executes one request. For FORGET, BATCH_FORGET and INTERRUPT the kernel
    /// expects no answer and ignores `reply`.
    fn dispatch(&self, request: Request, reply: Reply);

    /// Somebody who looks for what requests wait for, for one thread that serves a queue and would
    /// look for requests alone before it sleeps.
    fn looker(&self) -> Option<Box<dyn Look>> {
        None
    }

    /// The connection has ended; called once, after the last request.
    fn destroy(&self) {}
}

/// Looks for what requests wait for, as long as its thread has nothing else to do: what it finds it
/// completes on this thread, for which nobody has to be woken.
pub trait Look: Send {
    /// Begins to look. False if there is nothing to look for.
    fn begin(&mut self) -> bool;

    /// Takes what has come, if anything has; called again and again.
    fn look(&mut self);

    /// Looks no more; takes what has come meanwhile, of which nobody else was told.
    fn end(&mut self);
}
