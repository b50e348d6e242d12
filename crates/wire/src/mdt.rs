//! Requests to an MDT and its replies.
//!
//! Every request that changes something is executed exactly once. Requests may bring locks
//! along (`want`), which the MDT grants when nobody else is in the way; a reply without the
//! lock is still a right answer, only not one to cache.

use std::sync::Arc;

use bytes::Bytes;
use sateen_types::{
    Attr, Comb, DirCookie, Fid, FileKind, Layout, Name, Seq, StripePolicy, Timespec,
};

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::file_lock::{FileLock, FileLockState, WaitId};
use crate::lock::{Ibits, LockId, LockMode};
use crate::ost::StatFs;
use crate::reclaim::{GivenBack, HeldFileLock, HeldGroup, HeldLock, HeldOpen, HeldPart};
use crate::replay::Replayed;
use crate::{wire_enum, wire_struct};

/// Longest target of a symbolic link in bytes (PATH_MAX less the NUL).
pub const SYMLINK_MAX: usize = 4095;
/// Longest value of an extended attribute, as on Linux.
pub const XATTR_VALUE_MAX: usize = 65536;
/// Most entries of one directory page.
pub const DIR_ENTRIES_MAX: usize = 4096;

wire_struct! {
    /// On whose behalf.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Cred {
        /// File system user.
        pub uid: u32,
        /// File system group.
        pub gid: u32,
        /// Permissions that what it creates shall not have, where no default ACL says more.
        pub umask: u32,
    }
}

wire_struct! {
    /// A client's name of one open file, chosen by the client and unique within it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub struct OpenId {
        /// The number.
        pub id: u64,
    }
}

wire_struct! {
    /// What an open is for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct OpenFlags {
        /// For writing: starts a write session.
        pub write: bool,
        /// Cut to nothing (`O_TRUNC`).
        pub truncate: bool,
        /// Opened to execute: until it is closed nobody else may write to it (`ETXTBSY`).
        pub exec: bool,
    }
}

wire_struct! {
    /// What a writer knows about a file's size, reported while it still holds the data lock.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SizeReport {
        /// Bytes.
        pub size: u64,
        /// 512-byte blocks.
        pub blocks: u64,
        /// When the data last changed; `None` if it did not.
        pub mtime: Option<Timespec>,
        /// When the data was last read; `None` if it was not.
        pub atime: Option<Timespec>,
    }
}

/// How `setattr` changes a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeSet {
    /// To the MDT's now.
    Now,
    /// To this.
    At(Timespec),
}

impl Wire for TimeSet {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            TimeSet::Now => false.put(out),
            TimeSet::At(time) => {
                true.put(out);
                time.put(out);
            }
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::take(input)? { TimeSet::At(Timespec::take(input)?) } else { TimeSet::Now })
    }
}

wire_struct! {
    /// What `setattr` changes; `None` leaves a value alone.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SetAttr {
        /// Permission bits with set-id and sticky, without the type.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size: truncate or extend.
        pub size: Option<u64>,
        /// Access time.
        pub atime: Option<TimeSet>,
        /// Modification time.
        pub mtime: Option<TimeSet>,
        /// The caller lacks CAP_FSETID: drop set-id bits as POSIX says.
        pub kill_suid: bool,
    }
}

/// What `setxattr` expects to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum XattrMode {
    /// Create or replace.
    Any = 0,
    /// Fail with `EEXIST` if it exists.
    Create = 1,
    /// Fail with `ENODATA` if it does not.
    Replace = 2,
}

impl Wire for XattrMode {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

wire_struct! {
    /// The flags of `renameat2`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RenameFlags {
        /// Fail with `EEXIST` if the new name exists.
        pub no_replace: bool,
        /// Swap the two.
        pub exchange: bool,
    }
}

wire_enum! {
    /// A request to an MDT.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum MdtRequest {
        /// Attributes, and the locks wanted on the inode. Answer: `Inode`.
        1 => GetAttr {
            /// The file.
            fid: Fid,
            /// Locks wanted (PR).
            want: Ibits,
        },
        /// A name in a directory. Answer: `Inode`, or `ENOENT`; even then the lock on the
        /// directory may come along, for a negative entry.
        2 => Lookup {
            /// The directory.
            parent: Fid,
            /// The name.
            name: Name,
            /// Locks wanted on the directory (PR).
            want_parent: Ibits,
            /// Locks wanted on the inode found (PR).
            want: Ibits,
        },
        /// Makes an inode of any kind but a hard link, under a FID from the client's
        /// sequence. With `open` it is the create intent of `open(2)`: an existing regular
        /// file is opened unless `exclusive`. Answer: `Created`.
        3 => Create {
            /// The directory.
            parent: Fid,
            /// The name.
            name: Name,
            /// The new inode's FID.
            fid: Fid,
            /// Type and permissions as asked for.
            mode: u32,
            /// Device number of a device node.
            rdev: u32,
            /// The creator.
            cred: Cred,
            /// The target of a symbolic link; empty otherwise.
            symlink: Bytes,
            /// Striping, where the caller chose one.
            policy: Option<StripePolicy>,
            /// Open it, too.
            open: Option<OpenFlags>,
            /// The name of the open.
            open_id: OpenId,
            /// Fail with `EEXIST` if the name exists.
            exclusive: bool,
            /// Locks wanted on the inode: `DATA` in PW if it is opened for writing, the rest
            /// in PR.
            want: Ibits,
        },
        /// Opens by FID. Answer: `Opened`.
        4 => Open {
            /// The file.
            fid: Fid,
            /// What for.
            flags: OpenFlags,
            /// The name of the open.
            open_id: OpenId,
            /// The opener.
            cred: Cred,
            /// Locks wanted on the inode: `DATA` in PW if it is opened for writing, the rest
            /// in PR.
            want: Ibits,
        },
        /// The last reference to an open is gone. Answer: `Done`.
        5 => Close {
            /// The file.
            fid: Fid,
            /// The open.
            open_id: OpenId,
            /// What a writer knows of the size; ends its write session.
            report: Option<SizeReport>,
        },
        /// Removes a name. Answer: `Removed`.
        6 => Unlink {
            /// The directory.
            parent: Fid,
            /// The name.
            name: Name,
            /// `rmdir`: the name must be an empty directory; otherwise it must not be one.
            directory: bool,
        },
        /// Renames. Answer: `Renamed`.
        7 => Rename {
            /// Directory of the old name.
            parent: Fid,
            /// Old name.
            name: Name,
            /// Directory of the new name.
            new_parent: Fid,
            /// New name.
            new_name: Name,
            /// How.
            flags: RenameFlags,
        },
        /// A further hard link. Answer: `Inode`.
        8 => Link {
            /// The file.
            fid: Fid,
            /// Directory of the new name.
            parent: Fid,
            /// The new name.
            name: Name,
        },
        /// Changes attributes. A change of size happens under the caller's data lock, cuts
        /// the objects, and is answered when both are done. Answer: `Inode`.
        9 => SetAttr {
            /// The file.
            fid: Fid,
            /// What.
            set: SetAttr,
            /// By whom.
            cred: Cred,
        },
        /// A page of a directory from a cookie. Answer: `Entries`.
        10 => ReadDir {
            /// The directory.
            fid: Fid,
            /// Entries after this position.
            after: DirCookie,
            /// Most entries wanted, at most [`DIR_ENTRIES_MAX`].
            count: u32,
            /// Attributes of each entry wanted, too.
            plus: bool,
        },
        /// Target of a symbolic link. Answer: `Bytes`.
        11 => ReadLink {
            /// The link.
            fid: Fid,
        },
        /// Value of an extended attribute. Answer: `Bytes`, or `ENODATA`.
        12 => GetXattr {
            /// The file.
            fid: Fid,
            /// Its full name (`user.x`).
            name: Name,
        },
        /// Names of all extended attributes, each ended by a NUL. Answer: `Bytes`.
        13 => ListXattr {
            /// The file.
            fid: Fid,
        },
        /// Sets an extended attribute. Answer: `Done`.
        14 => SetXattr {
            /// The file.
            fid: Fid,
            /// Full name.
            name: Name,
            /// Value, at most [`XATTR_VALUE_MAX`].
            value: Bytes,
            /// What to expect.
            mode: XattrMode,
        },
        /// Removes an extended attribute. Answer: `Done`, or `ENODATA`.
        15 => RemoveXattr {
            /// The file.
            fid: Fid,
            /// Full name.
            name: Name,
        },
        /// Chooses the striping of a directory's new files, or of a file that has no objects
        /// yet (`EEXIST` otherwise). Answer: `Done`.
        16 => SetStripe {
            /// File or directory.
            fid: Fid,
            /// The choice.
            policy: StripePolicy,
        },
        /// The layout of a file, or the default policy of a directory. Answer: `Striped`.
        17 => GetStripe {
            /// File or directory.
            fid: Fid,
        },
        /// A lock for its own sake. Waits until it can be granted. Answer: `Inode`.
        18 => Enqueue {
            /// The inode.
            fid: Fid,
            /// The mode.
            mode: LockMode,
            /// The parts.
            bits: Ibits,
        },
        /// Gives locks back. Answer: `Done`. An unknown lock is no error: the server may
        /// have dropped it.
        19 => Cancel {
            /// The inode.
            fid: Fid,
            /// The lock.
            id: LockId,
            /// What the holder of a data write lock knows of the size.
            report: Option<SizeReport>,
            /// Others that nobody needs any more, and that say nothing of a size.
            more: Vec<GivenBack>,
        },
        /// Tells the size without giving the PW/DATA lock up (fsync), or after a glimpse.
        /// Answer: `Done`, also if the report came too late to be believed.
        20 => ReportSize {
            /// The file.
            fid: Fid,
            /// What is known.
            report: SizeReport,
            /// Objects were asked: with no writer left, this also clears `size_stale`.
            glimpsed: bool,
            /// The inode's version when the objects were asked; a glimpse of an older one is
            /// not believed. Not looked at otherwise.
            version: u64,
        },
        /// Answered when everything with a transno of `upto` or less is durable (0: all
        /// there is). Answer: `Done`.
        21 => Sync {
            /// The transno.
            upto: u64,
        },
        /// A sequence of FIDs for the client. Answer: `Sequence`.
        22 => GrantSeq,
        /// Space and inodes. Answer: `StatFs`.
        23 => StatFs,
        /// Makes a regular file without a name and opens it (`O_TMPFILE`). It goes with its
        /// last close, unless it has been given a name by then. Answer: `Created`.
        24 => Tmpfile {
            /// The directory whose file system, group, policy and default ACL it gets.
            parent: Fid,
            /// The new inode's FID.
            fid: Fid,
            /// Permissions as asked for.
            mode: u32,
            /// The creator.
            cred: Cred,
            /// What it is opened for.
            flags: OpenFlags,
            /// The name of the open.
            open_id: OpenId,
            /// `Link` may give it its first name (no `O_EXCL`).
            linkable: bool,
            /// Locks wanted on the inode: `DATA` in PW if it is opened for writing, the rest
            /// in PR.
            want: Ibits,
        },
        /// `Rename` that leaves a character device 0:0 under the old name
        /// (`RENAME_WHITEOUT`). Answer: `Renamed`.
        25 => RenameWhiteout {
            /// Directory of the old name.
            parent: Fid,
            /// Old name.
            name: Name,
            /// Directory of the new name.
            new_parent: Fid,
            /// New name.
            new_name: Name,
            /// Fail with `EEXIST` if the new name exists.
            no_replace: bool,
            /// The device's FID.
            fid: Fid,
            /// Its creator.
            cred: Cred,
        },
        /// Takes a lock of a program, changes one, or gives one back, and never waits for others:
        /// a name of a `wait` has the wait kept instead, until the same is asked again or it is
        /// left. Answer: `FileLock`, or `EDEADLK`, or `ENOLCK` if there are too many.
        26 => SetFileLock {
            /// The file.
            fid: Fid,
            /// Through which open: with it the lock goes.
            open_id: OpenId,
            /// The lock.
            lock: FileLock,
            /// The wait.
            wait: Option<WaitId>,
        },
        /// Whether a lock of a program could be taken now. Answer: `FileLock`.
        27 => TestFileLock {
            /// The file.
            fid: Fid,
            /// Through which open.
            open_id: OpenId,
            /// The lock.
            lock: FileLock,
        },
        /// Nobody waits for this lock of a program any more. Answer: `Done`, also if the wait is
        /// not known.
        28 => LeaveFileLock {
            /// The file.
            fid: Fid,
            /// The wait.
            wait: WaitId,
        },
        /// Puts a file that has no objects yet, or the new files of a directory, on these OSTs
        /// (`EEXIST` if it may have some, `EINVAL` if there is no such OST or it is not in use).
        /// Answer: `Done`.
        40 => SetLayout {
            /// File or directory.
            fid: Fid,
            /// Bytes of one stripe; 0 for the directory's, or the file system's default.
            stripe_size: u32,
            /// The OST of each stripe.
            osts: Vec<u32>,
        },
        /// A write found no room on an OST, which is taken for full from now on. If the file is
        /// `unwritten`, nobody said where it lies, and nobody else may have written to it, it gets
        /// another layout, without that OST: the caller writes by that once it is durable. Answer:
        /// `Opened`, with the layout as it is now.
        42 => NoRoom {
            /// The file.
            fid: Fid,
            /// The OST.
            ost: u32,
            /// The caller, who holds the file's `DATA` in PW, has written nothing to it that he has
            /// not reported, and nothing is under way.
            unwritten: bool,
        },
        /// What the client had when the run before ended in good order: the answer to its `Connect`
        /// says in `follows` that it may tell. What does not fit into one message comes in several;
        /// all else has to wait for the `last`. Answer: `Done`, to the last one when all others have
        /// told theirs, or had time enough to. `ESTALE` if anything cannot be, or is not known: the
        /// client goes on like one that was evicted.
        43 => Reclaim {
            /// Locks of the target's.
            locks: Vec<HeldLock>,
            /// Files that are open.
            opens: Vec<HeldOpen>,
            /// Sequences of FIDs.
            seqs: Vec<Seq>,
            /// Locks of programs.
            file_locks: Vec<HeldFileLock>,
            /// That is all.
            last: bool,
        },
        /// Changes that the client was answered for, and that a crash has taken: they are made again
        /// before anybody tells what he had (`Reclaim`). What does not fit into one message comes in
        /// several. Answer: `Done`, to the last one when those of all clients are made, and durable.
        /// `ESTALE` if one cannot be, or would be another: the client goes on like one that was
        /// evicted.
        44 => Replay {
            /// They, by rising number.
            changes: Vec<Replayed>,
            /// That is all.
            last: bool,
        },
        /// What the holder of a lock for writing a file's data knows of it at this moment, asked for
        /// by `Callback::Glimpse`: for those who look, and nothing is stored. Answer: `Done`, also
        /// if nobody asks any more.
        45 => AnswerGlimpse {
            /// The file.
            fid: Fid,
            /// Which question.
            question: u64,
            /// Size and times, with what is not written out yet; the mtime always. `None` if that
            /// cannot be said: the lock is to be called back instead.
            told: Option<SizeReport>,
        },
        /// The data of a file for a group, in mode `Group`. Who has it for the same group keeps nobody
        /// waiting, nor do those who wait themselves; whoever else has it is called back. Answer:
        /// `Inode`, or `Grouped` if another group has it. Only from who has [`crate::GROUPS`].
        46 => EnqueueGroup {
            /// The file.
            fid: Fid,
            /// The group, which is not 0.
            gid: u64,
        },
        /// Group locks that the client had when the run before ended, as `Reclaim` tells of others, and
        /// before the last of those. Answer: `Done`, or as `Reclaim`.
        48 => ReclaimGroups {
            /// They.
            groups: Vec<HeldGroup>,
        },
        /// The records of a comb, in mode `Part`, to write them, and all later ones, without asking
        /// again. Who has others of the file keeps his. It may come to be the whole file in `Pw`, or in
        /// `Cw`: the lock's mode says which. Answer: `Parted` with a lock in `Part`, or `Inode` with one
        /// in `Pw` or `Cw`, or `Grouped` as for `Enqueue`. Only from who has [`crate::COMBS`].
        50 => EnqueuePart {
            /// The file.
            fid: Fid,
            /// The records.
            comb: Comb,
        },
        /// Parts that the client had when the run before ended, as `Reclaim` tells of other locks, and
        /// before the last of those. Answer: `Done`, or as `Reclaim`.
        51 => ReclaimParts {
            /// They.
            parts: Vec<HeldPart>,
        },
        /// The holder of a lock that he was called back for more than once, and cannot give back yet,
        /// because OSTs are slow: they have answered something since he said so last. Answer: `Done`,
        /// also if the lock is not known, or not called back. Only to who has [`crate::PROGRESS`].
        52 => GoesOn {
            /// The inode.
            fid: Fid,
            /// The lock.
            id: LockId,
            /// Bytes that were written out, or read, since he began to give it back.
            done: u64,
        },
        /// Under which names an inode stands. Answer: `Bytes`, a link-EA: see
        /// [`crate::disk::mdt::links`].
        41 => GetLinks {
            /// The inode.
            fid: Fid,
        },
    }
}

wire_struct! {
    /// One entry of a directory page.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DirEntry {
        /// Its position.
        pub cookie: DirCookie,
        /// The inode.
        pub fid: Fid,
        /// Its kind.
        pub kind: FileKind,
        /// The name.
        pub name: Name,
        /// Attributes, if they were wanted and at hand.
        pub attr: Option<Attr>,
    }
}

/// A page of at most [`DIR_ENTRIES_MAX`] entries.
impl MdtRequest {
    /// Whether the MDT notes its client durably before it answers this: others give nothing that it
    /// would have to know of after a crash, and a client that was answered only those may find that
    /// the next run has never heard of it.
    pub fn is_noted(&self) -> bool {
        !matches!(
            self,
            MdtRequest::StatFs
                | MdtRequest::Sync { .. }
                | MdtRequest::AnswerGlimpse { .. }
                | MdtRequest::GoesOn { .. }
                | MdtRequest::Reclaim { .. }
                | MdtRequest::ReclaimGroups { .. }
                | MdtRequest::ReclaimParts { .. }
                | MdtRequest::Replay { .. }
        )
    }
}

impl Wire for Vec<DirEntry> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, DIR_ENTRIES_MAX)
    }
}

wire_enum! {
    /// What an MDT answers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum MdtReply {
        /// Nothing to say.
        1 => Done,
        /// An inode.
        2 => Inode {
            /// Its attributes.
            attr: Attr,
        },
        /// Answer to `Create`.
        3 => Created {
            /// The inode, new or found.
            attr: Attr,
            /// The layout of a regular file.
            layout: Option<Arc<Layout>>,
            /// It existed before.
            existed: bool,
            /// The directory as it is now, if it has been changed: who has its attributes need
            /// not ask for them again.
            parent: Option<Attr>,
        },
        /// Answer to `Open` and `NoRoom`.
        4 => Opened {
            /// The inode.
            attr: Attr,
            /// Its layout; `None` if it is no regular file.
            layout: Option<Arc<Layout>>,
        },
        /// Answer to `Unlink`: the inode that lost a name, as it is now.
        5 => Removed {
            /// `None` if it is not told.
            attr: Option<Attr>,
            /// The directory as it is now, if it is told.
            parent: Option<Attr>,
        },
        /// Answer to `Rename`: whose names and times have changed.
        11 => Renamed {
            /// The inode that was moved.
            moved: Fid,
            /// The one that it changed places with.
            swapped: Option<Fid>,
            /// The one that it replaced, as it is now.
            replaced: Option<Attr>,
            /// The directory that it was in, as it is now, if it has been changed and is told.
            parent: Option<Attr>,
            /// The one that it is in, if it is another, likewise.
            new_parent: Option<Attr>,
        },
        /// A page of a directory.
        6 => Entries {
            /// The entries, by rising cookie.
            entries: Vec<DirEntry>,
            /// No entry follows.
            end: bool,
            /// The parent directory's FID, for `..`.
            parent: Fid,
        },
        /// A symlink target, an xattr value, a list of xattr names.
        7 => Bytes(Bytes),
        /// Answer to `SetStripe` and `SetLayout`.
        8 => Striping {
            /// The layout of a regular file; of a directory the OSTs of its new files, if they
            /// were named one by one.
            layout: Option<Arc<Layout>>,
            /// The default policy of a directory, if it has its own.
            policy: Option<StripePolicy>,
        },
        /// Answer to `GetStripe`.
        14 => Striped {
            /// As `Striping` has it.
            layout: Option<Arc<Layout>>,
            /// As `Striping` has it.
            policy: Option<StripePolicy>,
            /// What the file system says where neither a file nor its directory does.
            default: StripePolicy,
        },
        /// A sequence, durably the client's.
        9 => Sequence(Seq),
        /// Space and inodes.
        10 => StatFs(StatFs),
        /// Answer to a `Close`, `Cancel` or `ReportSize` that has changed the inode: its attributes
        /// as they are now.
        13 => Noted {
            /// They.
            attr: Attr,
        },
        /// Nothing was executed, because a group has the file's data, for as long as people like: to be
        /// asked again, as a new request. Only to who has [`crate::GROUPS`].
        16 => Grouped,
        /// Answer to `EnqueuePart`, if that is what came of it.
        18 => Parted {
            /// The file's attributes.
            attr: Attr,
            /// The lock's records: those that were asked for.
            comb: Comb,
        },
        /// What became of a lock of a program.
        12 => FileLock {
            /// That.
            state: FileLockState,
            /// One that is in its way.
            holder: Option<FileLock>,
        },
    }
}
