//! The answer to READDIR and READDIRPLUS, built entry by entry.
//!
//! Used by file systems through [`crate::Reply::dir_buffer`]; pure.
use crate::abi::DirentWire;
use crate::attr::{EntryOut, FileKind};
use bytes::{BufMut, BytesMut};
use zerocopy::IntoBytes;

/// Directory entries up to the size the kernel asked for. It is either plain
/// (READDIR, filled with [`DirBuffer::push`]) or with attributes (READDIRPLUS,
/// filled with [`DirBuffer::push_plus`]), never both.
#[derive(Debug)]
pub struct DirBuffer {
    buf: BytesMut,
    limit: usize,
}

impl DirBuffer {
    /// A buffer of at most `limit` bytes that uses the room of `buf`.
    pub(crate) fn over(mut buf: BytesMut, limit: usize) -> DirBuffer {
        buf.clear();
        DirBuffer { buf, limit }
    }

    /// The limit of the whole answer, in bytes.
    pub const fn room(&self) -> usize {
        self.limit
    }

    /// An empty buffer of at most `limit` bytes.
    pub fn new(limit: usize) -> DirBuffer {
        DirBuffer { buf: BytesMut::new(), limit }
    }

    /// Adds an entry for READDIR; false, and nothing added, when it does not
    /// fit. `cookie` is the offset from which the kernel will go on after it.
    #[must_use = "an entry that does not fit is not in the answer"]
    pub fn push(&mut self, ino: u64, cookie: u64, kind: FileKind, name: &[u8]) -> bool {
        self.dirent(&[], ino, cookie, kind as u32, name)
    }

    /// Adds an entry with attributes for READDIRPLUS; false, and nothing added,
    /// when it does not fit. An entry with a node id counts as one lookup of
    /// it; "." and "..", and entries whose attributes are not at hand, have
    /// `entry.ino` 0 and only `attr.ino` and the type bits of `attr.mode` set.
    #[must_use = "an entry that does not fit is not in the answer"]
    pub fn push_plus(&mut self, entry: &EntryOut, cookie: u64, name: &[u8]) -> bool {
        let wire = entry.wire();
        self.dirent(wire.as_bytes(), entry.attr.ino, cookie, (entry.attr.mode >> 12) & 0xf, name)
    }

    fn dirent(&mut self, front: &[u8], ino: u64, cookie: u64, kind: u32, name: &[u8]) -> bool {
        let unpadded = front.len() + size_of::<DirentWire>() + name.len();
        let whole = unpadded.next_multiple_of(8);
        if self.buf.len() + whole > self.limit {
            return false;
        }
        let head = DirentWire { ino, off: cookie, namelen: name.len() as u32, kind };
        self.buf.put_slice(front);
        self.buf.put_slice(head.as_bytes());
        self.buf.put_slice(name);
        self.buf.put_bytes(0, whole - unpadded);
        true
    }

    /// Bytes filled so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether there is no entry yet.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub(crate) fn into_bytes(self) -> BytesMut {
        self.buf
    }
}
