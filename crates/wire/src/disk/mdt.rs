//! Records of an MDT. The MDT builds the index keys from the tags here; everything a key
//! does not say stands in the value. Values are read in place: names, layouts and targets
//! stay where they lie.
//!
//! | tag | key behind the tag | value |
//! |---|---|---|
//! | `I` | FID | [`Inode`] |
//! | `E` | parent FID, name hash (6 bytes), collision index (2) | [`Entry`] |
//! | `X` | FID, name hash (8) | [`Xattr`] |
//! | `O` | FID | an inode without a name that is still open: nothing, or 1 if it may be given one |
//! | `U` | FID | [`UnlinkRecord`] |
//! | `P` | transno | [`PunchRecord`] |
//! | `G` | sequence | [`SeqGrant`] |
//! | `S` | client, slot | [`ReplySlot`] |
//! | `K` | client | [`ClientRecord`] |
//! | `C` | nothing | [`Counters`] |
//! | `Q` | nothing | [`SeqState`] |
//! | `B` | nothing | [`RunRecord`] |
//! | `R` | | see [`crate::disk::stopped`] |

use sateen_types::{Attr, ClientId, Endpoint, Fid, FileKind, Layout, Seq, StripePolicy};

use crate::codec::{DecodeError, Input, Wire, put_block};
use crate::wire_struct;

/// First bytes of index keys.
pub mod tag {
    /// Inodes.
    pub const INODE: u8 = b'I';
    /// Directory entries.
    pub const ENTRY: u8 = b'E';
    /// Extended attributes.
    pub const XATTR: u8 = b'X';
    /// Orphans.
    pub const ORPHAN: u8 = b'O';
    /// The unlink llog.
    pub const UNLINK: u8 = b'U';
    /// The punch llog.
    pub const PUNCH: u8 = b'P';
    /// Sequences granted to clients.
    pub const GRANT: u8 = b'G';
    /// Reply slots.
    pub const SLOT: u8 = b'S';
    /// Clients.
    pub const CLIENT: u8 = b'K';
    /// Counters.
    pub const COUNTERS: u8 = b'C';
    /// Where granting sequences stands.
    pub const SEQ: u8 = b'Q';
    /// The run that there is.
    pub const RUN: u8 = b'B';
}

/// Version of [`Inode`] records.
const INODE_VERSION: u8 = 1;
/// Most bytes of one part of an inode record.
const PART_MAX: usize = 64 << 10;
/// Most bytes of a link-EA: names beyond are not recorded.
pub const LINKS_BYTES_MAX: usize = 4096;

/// An inode, with its variable parts left in the record.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inode<'a> {
    /// Its attributes.
    pub attr: Attr,
    /// Entries of a directory.
    pub entries: u64,
    /// Number of extended attributes.
    pub xattrs: u32,
    /// Striping that new files of a directory get, or that a file without a layout will get; of a
    /// file with one, what its owner said of it.
    pub policy: Option<StripePolicy>,
    /// The encoded [`Layout`] of a regular file; empty if it has none yet. In a directory one of
    /// generation 0 over the OSTs that new files lie on, if they were named one by one.
    pub layout: &'a [u8],
    /// The target of a symbolic link.
    pub symlink: &'a [u8],
    /// The link-EA: see [`links`].
    pub links: &'a [u8],
}

impl<'a> Inode<'a> {
    /// An inode with nothing but attributes.
    pub const fn new(attr: Attr) -> Inode<'a> {
        let none: &[u8] = &[];
        Inode {
            attr,
            entries: 0,
            xattrs: 0,
            policy: None,
            layout: none,
            symlink: none,
            links: none,
        }
    }

    /// Appends the record.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(INODE_VERSION);
        self.attr.put(out);
        self.entries.put(out);
        self.xattrs.put(out);
        self.policy.put(out);
        put_block(out, self.layout);
        put_block(out, self.symlink);
        put_block(out, self.links);
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Whatever is wrong with it, also a version that is not known.
    pub fn decode(bytes: &'a [u8]) -> Result<Inode<'a>, DecodeError> {
        let mut input = Input::new(bytes);
        if u8::take(&mut input)? != INODE_VERSION {
            return Err(DecodeError::Invalid);
        }
        let inode = Inode {
            attr: Attr::take(&mut input)?,
            entries: u64::take(&mut input)?,
            xattrs: u32::take(&mut input)?,
            policy: Wire::take(&mut input)?,
            layout: input.block(PART_MAX)?,
            symlink: input.block(PART_MAX)?,
            links: input.block(PART_MAX)?,
        };
        if input.is_empty() { Ok(inode) } else { Err(DecodeError::Trailing) }
    }
}

/// The links of a link-EA: (parent directory, name), in the order they were made. What does
/// not decode ends the list.
pub fn links(bytes: &[u8]) -> impl Iterator<Item = (Fid, &[u8])> {
    let mut input = Input::new(bytes);
    core::iter::from_fn(move || {
        let parent = Fid::from_key(input.bytes(12).ok()?)?;
        let len = usize::from(u8::take(&mut input).ok()?);
        Some((parent, input.bytes(len).ok()?))
    })
}

/// Appends a link to a link-EA, if there is room.
pub fn put_link(out: &mut Vec<u8>, parent: Fid, name: &[u8]) {
    if out.len() + 13 + name.len() > LINKS_BYTES_MAX {
        return;
    }
    out.extend_from_slice(&parent.to_key());
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// A directory entry, or the whiteout that one left behind because others follow it in its
/// chain of equal hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The next collision index is in use, too.
    pub more: bool,
    /// The inode; `None` in a whiteout.
    pub target: Option<(Fid, FileKind)>,
    /// The name; empty in a whiteout.
    pub name: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Appends the record.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.more.put(out);
        match self.target {
            Some((fid, kind)) => {
                kind.put(out);
                out.extend_from_slice(&fid.to_key());
                out.extend_from_slice(self.name);
            }
            None => out.push(0),
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn decode(bytes: &'a [u8]) -> Result<Entry<'a>, DecodeError> {
        let mut input = Input::new(bytes);
        let more = bool::take(&mut input)?;
        let kind = u8::take(&mut input)?;
        if kind == 0 {
            return Ok(Entry { more, target: None, name: &[] });
        }
        let kind = FileKind::from_dtype(kind).ok_or(DecodeError::Invalid)?;
        let fid = Fid::from_key(input.bytes(12)?).ok_or(DecodeError::Invalid)?;
        let name = input.bytes(input.remaining())?;
        if name.is_empty() || name.len() > sateen_types::NAME_MAX {
            return Err(DecodeError::Invalid);
        }
        Ok(Entry { more, target: Some((fid, kind)), name })
    }
}

/// An extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xattr<'a> {
    /// Full name.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Xattr<'a> {
    /// Appends the record.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.name.len() as u8);
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.value);
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is cut short.
    pub fn decode(bytes: &'a [u8]) -> Result<Xattr<'a>, DecodeError> {
        let mut input = Input::new(bytes);
        let len = usize::from(u8::take(&mut input)?);
        let name = input.bytes(len)?;
        Ok(Xattr { name, value: input.bytes(input.remaining())? })
    }
}

wire_struct! {
    /// A client incarnation that may have been given something.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ClientRecord {
        /// It was lost, and all OSTs refuse it.
        pub refused: bool,
        /// It was lost: an MDT that restarts has it refused.
        pub lost: bool,
        /// It has promised to be heard all the time. Otherwise it is one of the MDT's own process,
        /// and does not outlive a crash.
        pub speaks: bool,
        /// Where it is reached.
        pub peer: Endpoint,
        /// The number of the attempt by which it was connected when this was written: those before
        /// are overtaken.
        pub attempt: u64,
    }
}

wire_struct! {
    /// Objects of a file that is gone, to be destroyed.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct UnlinkRecord {
        /// Somebody may still be writing to them.
        pub late_writers: bool,
        /// Where they are.
        pub layout: Layout,
    }
}

wire_struct! {
    /// A truncate whose objects are still to be cut; its version is the key's transno.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct PunchRecord {
        /// The file.
        pub fid: Fid,
        /// Its new size.
        pub size: u64,
        /// Where its objects are.
        pub layout: Layout,
    }
}

wire_struct! {
    /// Whom a sequence was granted to.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SeqGrant {
        /// The client incarnation.
        pub client: ClientId,
    }
}

wire_struct! {
    /// The last change that a client made in a slot.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ReplySlot {
        /// Sequence of the request in its slot.
        pub seq: u64,
        /// The transaction it became.
        pub transno: u64,
    }
}

wire_struct! {
    /// Totals of the target.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Counters {
        /// Inodes that exist.
        pub inodes: u64,
    }
}

wire_struct! {
    /// Where granting sequences stands.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SeqState {
        /// How many super-sequences were used up before the current one.
        pub round: u64,
        /// The next sequence to be granted.
        pub next: Seq,
    }
}

wire_struct! {
    /// The last run that has answered anybody. Each has it written before it does: when the clients
    /// of the one before are back.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct RunRecord {
        /// By which its clients know it.
        pub boot_epoch: u64,
        /// If it has crashed, and those since have answered nobody yet, the last of its transactions
        /// that is there; `u64::MAX` if it is the one that there is, or was.
        pub durable: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::Timespec;

    fn attr() -> Attr {
        Attr {
            fid: Fid::new(Seq(0x2_0000_0400), 7),
            mode: 0o100_644,
            nlink: 1,
            uid: 2,
            gid: 3,
            projid: 4,
            rdev: 5,
            size: 6,
            blocks: 7,
            atime: Timespec::from_ns(8),
            mtime: Timespec::from_ns(9),
            ctime: Timespec::from_ns(10),
            btime: Timespec::from_ns(11),
            version: 12,
            layout_gen: 13,
            size_stale: true,
            maybe_objects: true,
        }
    }

    #[test]
    fn inodes_round_trip_and_cuts_are_noticed() {
        let layout = Layout::raid0(1 << 20, vec![3, 1]).unwrap().to_vec();
        let mut ea = Vec::new();
        put_link(&mut ea, Fid::ROOT, b"one");
        put_link(&mut ea, Fid::new(Seq(0x2_0000_0400), 9), b"two");
        let inode = Inode {
            entries: 1,
            xattrs: 2,
            policy: Some(StripePolicy::DEFAULT),
            layout: &layout,
            symlink: b"target",
            links: &ea,
            ..Inode::new(attr())
        };
        let mut bytes = Vec::new();
        inode.put(&mut bytes);
        assert_eq!(Inode::decode(&bytes), Ok(inode));
        for cut in 0..bytes.len() {
            assert!(Inode::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 2;
        assert_eq!(Inode::decode(&bytes), Err(DecodeError::Invalid));
        let names: Vec<_> = links(&ea).map(|(_, name)| name).collect();
        assert_eq!(names, [b"one", b"two"]);
    }

    #[test]
    fn entries_and_whiteouts_round_trip() {
        let target = Some((Fid::ROOT, FileKind::Directory));
        let entry = Entry { more: true, target, name: b"hello" };
        let whiteout = Entry { more: true, target: None, name: b"" };
        for record in [entry, whiteout] {
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            assert_eq!(Entry::decode(&bytes), Ok(record));
        }
        assert!(Entry::decode(&[0, 3]).is_err());
        assert!(Entry::decode(&[0, 4, 0]).is_err());
    }

    #[test]
    fn link_eas_are_bounded() {
        let mut ea = Vec::new();
        for _ in 0..1000 {
            put_link(&mut ea, Fid::ROOT, &[b'x'; 200]);
        }
        assert!(ea.len() <= LINKS_BYTES_MAX && links(&ea).count() > 10);
    }
}
