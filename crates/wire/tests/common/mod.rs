//! Values of every type that is encoded, made from a string of bytes: proptest shrinks the
//! bytes, the fuzzers mutate them, and none of them knows a type.
//!
//! A new variant of an enum does not compile here before it is listed.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::sync::Arc;

use bytes::Bytes;
use sateen_types::{
    Attr, COMB_START_MAX, COMB_STRIDE_MAX, ClientId, Comb, Component, DirCookie, Endpoint, Errno,
    Extent, Fid, FileKind, Layout, Name, Nid, Nids, OST_INDEX_MAX, ObjectId, Pattern,
    SEQ_OBJECTS_MAX, STRIPE_COUNT_MAX, STRIPE_SIZE_MIN, Seq, StripePolicy, Timespec, seq,
};
use sateen_wire::codec::{DecodeError, Input, Wire};
use sateen_wire::disk::mdt::{
    ClientRecord, Counters, Entry, Inode, PunchRecord, ReplySlot, RunRecord, SeqGrant, SeqState,
    UnlinkRecord, Xattr,
};
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};
use sateen_wire::disk::ost::{FenceRecord, ObjectRecord, ObjectState, Tombstone, WriterRecord};
use sateen_wire::disk::stopped::{CleanRuns, StopMark, StoppedClient, StoppedSlot};
use sateen_wire::{
    Body, Bulk, Callback, Cred, DirEntry, FSNAME_BYTES_MAX, FileLock, FileLockMode, FileLockState,
    FsName, GRANTS_MAX, GivenBack, Grant, Grants, Header, HeldFileLock, HeldGroup, HeldLock,
    HeldOpen, HeldPart, Ibits, LockId, LockMode, MdtReply, MdtRequest, Message, MgsReply,
    MgsRequest, ObjectAttr, OpenFlags, OpenId, OstReply, OstRequest, ParamInfo, RenameFlags,
    Replayed, Reply, ReplyBody, Request, SetAttr, SizeReport, Span, StatFs, TargetInfo, TimeSet,
    WaitId, XattrMode,
};

/// Bytes that decide everything; zeros follow the last.
pub struct Entropy<'a> {
    rest: &'a [u8],
}

impl<'a> Entropy<'a> {
    pub fn new(bytes: &'a [u8]) -> Entropy<'a> {
        Entropy { rest: bytes }
    }

    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn below(&mut self, end: usize) -> usize {
        let wide = usize::from(self.byte());
        let number =
            if end > 256 { wide << 16 | usize::from(self.byte()) << 8 | wide } else { wide };
        number % end
    }

    fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => u64::from(self.byte()),
            2 => u64::MAX - u64::from(self.byte()),
            3 => 1 << self.below(64),
            _ => u64::from_le_bytes(core::array::from_fn(|_| self.byte())),
        }
    }

    fn some<T: Any>(&mut self, max: usize) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| T::any(self)).collect()
    }
}

/// A type of which any value can be made.
pub trait Any {
    fn any(e: &mut Entropy<'_>) -> Self;
}

/// An enum, with the names of its variants.
pub trait Variants {
    const NAMES: &'static [&'static str];
    fn variant(&self) -> &'static str;
}

macro_rules! any_numbers {
    ($($t:ty),*) => {$(
        impl Any for $t {
            fn any(e: &mut Entropy<'_>) -> Self {
                e.number() as $t
            }
        }
    )*};
}
any_numbers!(u8, u16, u32, u64, i32, i64);

macro_rules! any_struct {
    ($t:ident { $($field:ident),* $(,)? }) => {
        impl Any for $t {
            fn any(e: &mut Entropy<'_>) -> Self {
                $t { $($field: Any::any(e)),* }
            }
        }
    };
}

macro_rules! any_enum {
    ($t:ident { $($v:ident $({ $($f:ident),* $(,)? })? $(($inner:ident))?),* $(,)? }) => {
        impl Any for $t {
            fn any(e: &mut Entropy<'_>) -> Self {
                let makers: &[fn(&mut Entropy<'_>) -> $t] =
                    &[$(|e| { let _ = &e; any_enum!(@make e, $t, $v $({ $($f),* })? $(($inner))?) }),*];
                let at = e.below(makers.len());
                makers[at](e)
            }
        }
        impl Variants for $t {
            const NAMES: &'static [&'static str] = &[$(stringify!($v)),*];
            fn variant(&self) -> &'static str {
                match self { $($t::$v { .. } => stringify!($v),)* }
            }
        }
    };
    (@make $e:ident, $t:ident, $v:ident { $($f:ident),* }) => { $t::$v { $($f: Any::any($e)),* } };
    (@make $e:ident, $t:ident, $v:ident ($inner:ident)) => { $t::$v(Any::any($e)) };
    (@make $e:ident, $t:ident, $v:ident) => { $t::$v };
}

impl Any for bool {
    fn any(e: &mut Entropy<'_>) -> Self {
        e.byte() & 1 == 1
    }
}

impl<T: Any> Any for Option<T> {
    fn any(e: &mut Entropy<'_>) -> Self {
        bool::any(e).then(|| T::any(e))
    }
}

impl<T: Any> Any for Arc<T> {
    fn any(e: &mut Entropy<'_>) -> Self {
        Arc::new(T::any(e))
    }
}

impl<T: Any> Any for Arc<[T]> {
    fn any(e: &mut Entropy<'_>) -> Self {
        Vec::any(e).into()
    }
}

impl<T: Any> Any for Vec<T> {
    fn any(e: &mut Entropy<'_>) -> Self {
        e.some(5)
    }
}

impl Any for [u8; 16] {
    fn any(e: &mut Entropy<'_>) -> Self {
        core::array::from_fn(|_| e.byte())
    }
}

impl Any for Bytes {
    fn any(e: &mut Entropy<'_>) -> Self {
        Bytes::from(e.some::<u8>(40))
    }
}

impl Any for Seq {
    fn any(e: &mut Entropy<'_>) -> Self {
        Seq(e.number())
    }
}

impl Any for ClientId {
    fn any(e: &mut Entropy<'_>) -> Self {
        ClientId(e.number())
    }
}

impl Any for LockId {
    fn any(e: &mut Entropy<'_>) -> Self {
        LockId(e.number())
    }
}

impl Any for Ibits {
    fn any(e: &mut Entropy<'_>) -> Self {
        Ibits(u32::from(e.byte() & 127))
    }
}

impl Any for Fid {
    fn any(e: &mut Entropy<'_>) -> Self {
        let width = seq::END.0 - seq::ROOT.0;
        let oid = 1 + (e.number() % u64::from(SEQ_OBJECTS_MAX)) as u32;
        Fid::new(Seq(seq::ROOT.0 + e.number() % width), oid)
    }
}

impl Any for Name {
    fn any(e: &mut Entropy<'_>) -> Self {
        let len = 1 + if e.byte() > 250 { e.below(255) } else { e.below(12) };
        let bytes: Vec<u8> = (0..len).map(|_| e.byte()).collect();
        let allowed: Vec<u8> =
            bytes.iter().map(|&b| if b == 0 || b == b'/' { b'a' } else { b }).collect();
        Name::new(&allowed).unwrap_or_else(|_| Name::new(b"...").unwrap())
    }
}

impl Any for Timespec {
    fn any(e: &mut Entropy<'_>) -> Self {
        Timespec { sec: i64::any(e), nsec: u32::any(e) % 1_000_000_000 }
    }
}

impl Any for Errno {
    fn any(e: &mut Entropy<'_>) -> Self {
        Errno::from_raw((e.number() % 5000) as i32)
    }
}

impl Any for DirCookie {
    fn any(e: &mut Entropy<'_>) -> Self {
        DirCookie::from_raw(e.number())
    }
}

impl Any for FileKind {
    fn any(e: &mut Entropy<'_>) -> Self {
        FileKind::from_dtype([1, 2, 4, 6, 8, 10, 12][e.below(7)]).unwrap()
    }
}

impl Any for LockMode {
    fn any(e: &mut Entropy<'_>) -> Self {
        use LockMode::{Cr, Cw, Ex, Group, Part, Pr, Pw};
        [Cr, Cw, Pr, Pw, Ex, Group, Part][e.below(7)]
    }
}

impl Any for Comb {
    fn any(e: &mut Entropy<'_>) -> Self {
        let stride = 2 + e.number() % (COMB_STRIDE_MAX - 1);
        let record_len = 1 + e.number() % (stride - 1);
        Comb::new(e.number() % (COMB_START_MAX + 1), record_len, stride).unwrap()
    }
}

impl Any for FileLockMode {
    fn any(e: &mut Entropy<'_>) -> Self {
        [FileLockMode::Read, FileLockMode::Write, FileLockMode::Unlock][e.below(3)]
    }
}

impl Any for FileLockState {
    fn any(e: &mut Entropy<'_>) -> Self {
        [FileLockState::Granted, FileLockState::Busy, FileLockState::Queued][e.below(3)]
    }
}

impl Any for XattrMode {
    fn any(e: &mut Entropy<'_>) -> Self {
        [XattrMode::Any, XattrMode::Create, XattrMode::Replace][e.below(3)]
    }
}

impl Any for StripePolicy {
    fn any(e: &mut Entropy<'_>) -> Self {
        StripePolicy {
            stripe_count: e.below(STRIPE_COUNT_MAX as usize + 2) as i32 - 1,
            stripe_size: STRIPE_SIZE_MIN * e.below(65536) as u32,
            stripe_offset: bool::any(e).then(|| e.below(OST_INDEX_MAX as usize + 1) as u32),
        }
    }
}

impl Any for Layout {
    fn any(e: &mut Entropy<'_>) -> Self {
        let parts = 1 + e.below(3) as u64;
        let (mut components, mut start, mut stripe_base) = (Vec::new(), 0, 0);
        for part in 1..=parts {
            let end = if part == parts { u64::MAX } else { start + 1 + e.number() % (1 << 50) };
            let pattern = if e.below(4) == 3 { Pattern::Mdt } else { Pattern::Raid0 };
            let count = if pattern == Pattern::Raid0 { 1 + e.below(5) } else { 0 };
            stripe_base += e.below(3) as u32;
            components.push(Component {
                id: u32::any(e),
                flags: u32::any(e),
                extent: Extent { start, end },
                pattern,
                stripe_size: STRIPE_SIZE_MIN * (1 + e.below(65535) as u32),
                stripe_base,
                osts: (0..count).map(|_| e.below(OST_INDEX_MAX as usize + 1) as u32).collect(),
            });
            start = end;
            stripe_base += count as u32;
        }
        Layout { generation: u32::any(e), components }
    }
}

impl Any for Attr {
    fn any(e: &mut Entropy<'_>) -> Self {
        Attr {
            fid: Any::any(e),
            mode: FileKind::any(e).mode_bits() | u32::any(e) & 0xfff,
            nlink: Any::any(e),
            uid: Any::any(e),
            gid: Any::any(e),
            projid: Any::any(e),
            rdev: Any::any(e),
            size: Any::any(e),
            blocks: Any::any(e),
            atime: Any::any(e),
            mtime: Any::any(e),
            ctime: Any::any(e),
            btime: Any::any(e),
            version: Any::any(e),
            layout_gen: Any::any(e),
            size_stale: Any::any(e),
            maybe_objects: Any::any(e),
        }
    }
}

/// One; lists have a test of their own.
impl Any for Nids {
    fn any(e: &mut Entropy<'_>) -> Self {
        Nid::any(e).into()
    }
}

impl Any for Nid {
    fn any(e: &mut Entropy<'_>) -> Self {
        if !bool::any(e) {
            return Nid::Lo;
        }
        let (addr, net) = (u32::any(e).into(), u16::any(e));
        let port = if bool::any(e) { u16::any(e).max(1) } else { sateen_types::PORT_DEFAULT };
        if bool::any(e) { Nid::Tcp { addr, port, net } } else { Nid::Shm { addr, port } }
    }
}

impl Any for FsName {
    fn any(e: &mut Entropy<'_>) -> Self {
        let len = e.below(FSNAME_BYTES_MAX + 1);
        let letters: String = (0..len).map(|_| char::from(b'a' + e.below(26) as u8)).collect();
        FsName::new(&letters).unwrap()
    }
}

impl Any for Grants {
    fn any(e: &mut Entropy<'_>) -> Self {
        let mut grants = Grants::NONE;
        for _ in 0..e.below(GRANTS_MAX + 1) {
            assert!(grants.push(Any::any(e)));
        }
        grants
    }
}

impl Any for Message {
    fn any(e: &mut Entropy<'_>) -> Self {
        Message { header: Any::any(e), body: Any::any(e), bulk: Bulk::None }
    }
}

any_struct!(ObjectId { fid, stripe });
any_struct!(Cred { uid, gid, umask });
any_struct!(OpenId { id });
any_struct!(OpenFlags { write, truncate, exec });
any_struct!(SizeReport { size, blocks, mtime, atime });
any_struct!(SetAttr { mode, uid, gid, size, atime, mtime, kill_suid });
any_struct!(RenameFlags { no_replace, exchange });
any_struct!(DirEntry { cookie, fid, kind, name, attr });
any_struct!(Grant { id, fid, mode, bits });
any_struct!(StatFs {
    bytes_total,
    bytes_free,
    bytes_avail,
    files_total,
    files_free,
    object_bytes_max
});
any_struct!(Span { offset, len });
any_struct!(ObjectAttr { object, size, blocks, mtime, ctime, atime });
any_struct!(TargetInfo { target, nids, inactive });
any_struct!(Reply { error, transno, time, last_committed, grants, body });
any_struct!(Header {
    from,
    to,
    client,
    generation,
    slot,
    seq,
    deadline_ms,
    project,
    credential,
    trace,
    job,
    file_system,
    direct,
});
any_struct!(ObjectRecord { layout_gen, version, uid, gid, projid, checksum_map, birth_epoch });
any_struct!(Tombstone { after });
any_struct!(StopMark { boot_epoch });
any_struct!(CleanRuns { epochs });
any_struct!(StoppedClient { peer, attempt });
any_struct!(StoppedSlot { seq, reply, open, closed, cancelled, file_lock, has });
any_struct!(WriterRecord { number });
any_struct!(FenceRecord { wall_ns });
any_struct!(TargetRecord { info, uuid });
any_struct!(ParamsRecord { params });
any_struct!(ConfigRecord { version });

any_enum!(Endpoint { Mgs, Mdt(index), Ost(index), Client(id) });
any_enum!(TimeSet { Now, At(time) });
any_enum!(Callback {
    Blocking { fid, id },
    Evicted,
    FileLockTurn { fid, wait },
    Glimpse { fid, id, question },
});
any_struct!(FileLock { owner, flock, mode, start, end, pid });
any_struct!(WaitId { id });
any_struct!(HeldLock { fid, id, mode, bits });
any_struct!(HeldGroup { fid, id, gid });
any_struct!(HeldPart { fid, id, comb });
any_struct!(GivenBack { fid, id });
any_struct!(HeldOpen { open_id, fid, flags, closing });
any_struct!(HeldFileLock { fid, open_id, lock });
any_struct!(Replayed { transno, time, request, answer });
any_enum!(Body { Request(request), Reply(reply), Callback(callback) });
any_enum!(Request { Connect { features }, Disconnect, Ping, Mdt(mdt), Ost(ost), Mgs(mgs) });
any_enum!(ReplyBody {
    Empty,
    Connected { features, boot_epoch, generation, follows, durable },
    Mdt(mdt),
    Ost(ost),
    Mgs(mgs),
});
any_enum!(MdtRequest {
    GetAttr { fid, want },
    Lookup { parent, name, want_parent, want },
    Create {
        parent,
        name,
        fid,
        mode,
        rdev,
        cred,
        symlink,
        policy,
        open,
        open_id,
        exclusive,
        want,
    },
    Open { fid, flags, open_id, cred, want },
    Close { fid, open_id, report },
    Unlink { parent, name, directory },
    Rename { parent, name, new_parent, new_name, flags },
    Link { fid, parent, name },
    SetAttr { fid, set, cred },
    ReadDir { fid, after, count, plus },
    ReadLink { fid },
    GetXattr { fid, name },
    ListXattr { fid },
    SetXattr { fid, name, value, mode },
    RemoveXattr { fid, name },
    SetStripe { fid, policy },
    GetStripe { fid },
    Enqueue { fid, mode, bits },
    Cancel { fid, id, report, more },
    ReportSize { fid, report, glimpsed, version },
    Sync { upto },
    GrantSeq,
    StatFs,
    SetFileLock { fid, open_id, lock, wait },
    TestFileLock { fid, open_id, lock },
    LeaveFileLock { fid, wait },
    SetLayout { fid, stripe_size, osts },
    AnswerGlimpse { fid, question, told },
    EnqueueGroup { fid, gid },
    ReclaimGroups { groups },
    EnqueuePart { fid, comb },
    ReclaimParts { parts },
    GoesOn { fid, id, done },
    GetLinks { fid },
    NoRoom { fid, ost, unwritten },
    Reclaim { locks, opens, seqs, file_locks, last },
    Replay { changes, last },
    Tmpfile { parent, fid, mode, cred, flags, open_id, linkable, want },
    RenameWhiteout { parent, name, new_parent, new_name, no_replace, fid, cred },
});
any_enum!(MdtReply {
    Done,
    Inode { attr },
    Created { attr, layout, existed, parent },
    Opened { attr, layout },
    Removed { attr, parent },
    Renamed { moved, swapped, replaced, parent, new_parent },
    Entries { entries, end, parent },
    Bytes(bytes),
    Striping { layout, policy },
    Striped { layout, policy, default },
    Sequence(seq),
    StatFs(statfs),
    FileLock { state, holder },
    Grouped,
    Parted { attr, comb },
    Noted { attr },
});
any_enum!(OstRequest {
    Write { object, layout_gen, offset, grant_used },
    Read { object, offset, len },
    Punch { object, size, version },
    Destroy { objects, late_writers },
    Sync { objects, boot_epoch },
    GetAttr { objects },
    List { seq, from_oid, count },
    Fence { client },
    StatFs,
    Seek { object, offset, hole },
    Allocate { object, layout_gen, offset, len, punch_hole, keep_size },
    ZeroRange { object, layout_gen, offset, len, keep_size },
    SetSize { object, layout_gen, size, version },
    SetTimes { object, atime, mtime },
    Append { object, layout_gen, grant_used },
    Alone { object },
    WriteMany { object, layout_gen, pieces, grant_used },
});
any_enum!(OstReply {
    Done,
    Written { len, boot_epoch, granted },
    Read { len },
    Objects(objects),
    StatFs(statfs),
    Offset { offset },
    Appended { offset, len, boot_epoch, granted },
    Alone { alone },
});
any_enum!(MgsRequest {
    GetConfig,
    Register { info, uuid },
    GetFileSystem,
    WaitConfig { version },
    GetParams,
    SetParam { name, value },
    Replace { info, uuid },
});
any_enum!(MgsReply {
    Config { version, targets },
    FileSystem { fsname, uuid, hash_key },
    Params { version, params },
});
any_struct!(ParamInfo { name, value });
any_enum!(ObjectState { Live(record), Dead(tombstone) });

any_struct!(UnlinkRecord { late_writers, layout });
any_struct!(PunchRecord { fid, size, layout });
any_struct!(SeqGrant { client });
any_struct!(ClientRecord { refused, lost, speaks, peer, attempt });
any_struct!(RunRecord { boot_epoch, durable });
any_struct!(ReplySlot { seq, transno });
any_struct!(Counters { inodes });
any_struct!(SeqState { round, next });

/// An [`Inode`] that owns its parts.
#[derive(Clone, PartialEq, Debug)]
pub struct InodeRecord {
    attr: Attr,
    entries: u64,
    xattrs: u32,
    policy: Option<StripePolicy>,
    layout: Vec<u8>,
    symlink: Vec<u8>,
    links: Vec<u8>,
}

/// An [`Entry`] that owns its name.
#[derive(Clone, PartialEq, Debug)]
pub struct EntryRecord {
    more: bool,
    target: Option<(Fid, FileKind)>,
    name: Vec<u8>,
}

/// An [`Xattr`] that owns its parts.
#[derive(Clone, PartialEq, Debug)]
pub struct XattrRecord {
    name: Vec<u8>,
    value: Vec<u8>,
}

any_struct!(InodeRecord { attr, entries, xattrs, policy, layout, symlink, links });

impl Any for EntryRecord {
    fn any(e: &mut Entropy<'_>) -> Self {
        let more = bool::any(e);
        if bool::any(e) {
            return EntryRecord { more, target: None, name: Vec::new() };
        }
        let target = Some((Fid::any(e), FileKind::any(e)));
        EntryRecord { more, target, name: Name::any(e).as_bytes().to_vec() }
    }
}

impl Any for XattrRecord {
    fn any(e: &mut Entropy<'_>) -> Self {
        XattrRecord { name: Name::any(e).as_bytes().to_vec(), value: e.some(60) }
    }
}

fn rest<'a>(input: &mut Input<'a>) -> Result<&'a [u8], DecodeError> {
    input.bytes(input.remaining())
}

impl Wire for InodeRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let inode = Inode {
            attr: self.attr,
            entries: self.entries,
            xattrs: self.xattrs,
            policy: self.policy,
            layout: &self.layout,
            symlink: &self.symlink,
            links: &self.links,
        };
        inode.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let inode = Inode::decode(rest(input)?)?;
        Ok(InodeRecord {
            attr: inode.attr,
            entries: inode.entries,
            xattrs: inode.xattrs,
            policy: inode.policy,
            layout: inode.layout.to_vec(),
            symlink: inode.symlink.to_vec(),
            links: inode.links.to_vec(),
        })
    }
}

impl Wire for EntryRecord {
    fn put(&self, out: &mut Vec<u8>) {
        Entry { more: self.more, target: self.target, name: &self.name }.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let entry = Entry::decode(rest(input)?)?;
        Ok(EntryRecord { more: entry.more, target: entry.target, name: entry.name.to_vec() })
    }
}

impl Wire for XattrRecord {
    fn put(&self, out: &mut Vec<u8>) {
        Xattr { name: &self.name, value: &self.value }.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let xattr = Xattr::decode(rest(input)?)?;
        Ok(XattrRecord { name: xattr.name.to_vec(), value: xattr.value.to_vec() })
    }
}

/// Calls a macro with the records that end with whatever follows, so that a cut one may be
/// another right one.
#[macro_export]
macro_rules! for_every_open_ended_type {
    ($with:ident) => {
        $with!(EntryRecord);
        $with!(XattrRecord);
    };
}

/// Calls a macro with every type that is encoded on its own: bodies, and what lies on disks.
#[macro_export]
macro_rules! for_every_type {
    ($with:ident) => {
        $with!(Body);
        $with!(Request);
        $with!(ReplyBody);
        $with!(Reply);
        $with!(Callback);
        $with!(MdtRequest);
        $with!(MdtReply);
        $with!(OstRequest);
        $with!(OstReply);
        $with!(MgsRequest);
        $with!(MgsReply);
        $with!(ObjectState);
        $with!(WriterRecord);
        $with!(FenceRecord);
        $with!(TargetRecord);
        $with!(ParamsRecord);
        $with!(ConfigRecord);
        $with!(InodeRecord);
        $with!(UnlinkRecord);
        $with!(PunchRecord);
        $with!(SeqGrant);
        $with!(ClientRecord);
        $with!(RunRecord);
        $with!(ReplySlot);
        $with!(Counters);
        $with!(SeqState);
        $with!(StopMark);
        $with!(StoppedClient);
        $with!(StoppedSlot);
        $with!(CleanRuns);
    };
}

/// The same with the enums alone.
#[macro_export]
macro_rules! for_every_enum {
    ($with:ident) => {
        $with!(Body);
        $with!(Request);
        $with!(ReplyBody);
        $with!(Callback);
        $with!(MdtRequest);
        $with!(MdtReply);
        $with!(OstRequest);
        $with!(OstReply);
        $with!(MgsRequest);
        $with!(MgsReply);
        $with!(ObjectState);
        $with!(Endpoint);
        $with!(TimeSet);
    };
}

/// A small generator for seeds.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % (end as u64).max(1)) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Puts a number at a place, if it is there.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Damages bytes in one to four ways.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            5 => {
                let number = [0, 1, 4096, u32::MAX, 1 << 31, 1 << 20][random.below(6)];
                put_u32(bytes, at, number);
            }
            6 => {
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let len = random.below(64);
                bytes.extend(random.bytes(len));
            }
        }
    }
}
