//! What programs do: operations, and how they run on a kernel. How they are chosen: [`chooser`].

pub(crate) mod chooser;

use std::sync::Arc;

use bytes::Bytes;
use sateen_client::{OpenHow, SpaceTotal};
use sateen_types::{Attr, Errno, Fid, Layout, Result, StripePolicy, Timespec};
use sateen_wire::{DirEntry, FileLock, RenameFlags, SetAttr, TimeSet, XattrMode};

use crate::data::Fallocate;
use crate::file_locks::Alarm;
use crate::kernel::{Handle, Kernel};
use crate::names::{Inode, Mutation, Names, Node};

/// A name in a directory, with the way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) path: Vec<Vec<u8>>,
    /// The directories on the way, the last one included.
    pub(crate) dirs: Vec<Fid>,
    pub(crate) name: Vec<u8>,
}

impl At {
    pub(crate) fn dir(&self) -> Fid {
        self.dirs.last().copied().unwrap_or(Fid::ROOT)
    }
}

/// An operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Open {
        at: At,
        create: Option<u32>,
        how: OpenHow,
    },
    Close {
        handle: Handle,
    },
    Write {
        handle: Handle,
        offset: u64,
        data: Vec<u8>,
    },
    Read {
        handle: Handle,
        offset: u64,
        len: u64,
    },
    Seek {
        handle: Handle,
        offset: u64,
        hole: bool,
    },
    /// A file without a name, in this directory.
    Tmpfile {
        at: At,
        how: OpenHow,
    },
    Allocate {
        handle: Handle,
        offset: u64,
        len: u64,
        how: Fallocate,
    },
    Fsync {
        handle: Handle,
    },
    FsyncDir {
        at: At,
    },
    Stat {
        at: At,
    },
    /// Of an open file, which no name has to be looked up for.
    Fstat {
        handle: Handle,
    },
    /// A stat of which nobody takes notice: others may be changing what it finds.
    Peek {
        at: At,
    },
    Truncate {
        at: At,
        size: u64,
    },
    /// Sets the time of the last write.
    Touch {
        at: At,
        mtime: Timespec,
    },
    Chmod {
        at: At,
        mode: u32,
    },
    Mkdir {
        at: At,
    },
    Symlink {
        at: At,
        target: Vec<u8>,
    },
    Readlink {
        at: At,
    },
    Remove {
        at: At,
        directory: bool,
    },
    Rename {
        from: At,
        to: At,
        exchange: bool,
        no_replace: bool,
        whiteout: bool,
    },
    Link {
        from: At,
        to: At,
    },
    Readdir {
        at: At,
    },
    /// With no value it is taken away.
    SetXattr {
        at: At,
        name: Vec<u8>,
        value: Option<(Vec<u8>, XattrMode)>,
    },
    /// With no name the names of all are asked for.
    GetXattr {
        at: At,
        name: Option<Vec<u8>>,
    },
    /// With OSTs a file is put on these, or the new files of a directory are.
    SetStripe {
        at: At,
        policy: StripePolicy,
        osts: Vec<u32>,
    },
    GetStripe {
        at: At,
    },
    /// An OST is said to have no room for the first write of a file.
    NoRoom {
        handle: Handle,
        ost: u32,
    },
    /// All names of an inode.
    GetLinks {
        at: At,
    },
    /// Takes a lock, or gives it back; with an alarm it is waited for.
    SetLock {
        handle: Handle,
        lock: FileLock,
        alarm: Option<Arc<Alarm>>,
    },
    TestLock {
        handle: Handle,
        lock: FileLock,
    },
    /// Joins a group, and waits for that until the alarm; without one it leaves it.
    Group {
        handle: Handle,
        gid: u64,
        alarm: Option<Arc<Alarm>>,
    },
    StatFs,
}

/// What an operation answered.
#[derive(Debug, Clone)]
pub(crate) enum Out {
    Done,
    Opened(Handle),
    Attr(Attr),
    Bytes(Vec<u8>),
    Written(usize),
    /// Where data or a hole begins, if any follows.
    Offset(Option<u64>),
    Entries(Vec<DirEntry>),
    /// This inode was changed.
    Changed(Fid),
    /// The value of an extended attribute of this inode, or its attributes' names.
    Xattr(Fid, Vec<u8>),
    Striping(Fid, Option<Arc<Layout>>, Option<StripePolicy>),
    /// The names of this inode: directory and name.
    Links(Fid, Vec<(Fid, Vec<u8>)>),
    Space(SpaceTotal),
    /// A lock that is in the way.
    InWay(Option<FileLock>),
    /// The path led somewhere else than it should.
    Strayed(Fid),
}

/// What an operation touches; exclusive or shared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touched {
    Name(Fid, Vec<u8>),
    Inode(Fid),
    /// The set of a directory's entries.
    Entries(Fid),
    /// Where a directory hangs.
    Place(Fid),
}

/// Whether a write is made by `fallocate`, with `FALLOC_FL_ZERO_RANGE`, because that does the same.
fn is_zero_range(handle: &Handle, data: &[u8]) -> bool {
    !handle.how.append && !handle.how.sync && data.iter().all(|byte| *byte == 0)
}

/// Whether a client that may keep writes may keep this one.
pub(crate) fn may_be_kept(handle: &Handle, data: &[u8]) -> bool {
    !handle.how.sync && !is_zero_range(handle, data)
}

impl Op {
    /// A directory itself is named by its path with an empty name.
    pub(crate) fn paths(&self) -> Vec<&At> {
        match self {
            Op::Open { at, .. }
            | Op::Tmpfile { at, .. }
            | Op::FsyncDir { at }
            | Op::Stat { at }
            | Op::Peek { at }
            | Op::Truncate { at, .. }
            | Op::Touch { at, .. }
            | Op::Chmod { at, .. }
            | Op::Mkdir { at }
            | Op::Symlink { at, .. }
            | Op::Readlink { at }
            | Op::Remove { at, .. }
            | Op::SetXattr { at, .. }
            | Op::GetXattr { at, .. }
            | Op::SetStripe { at, .. }
            | Op::GetStripe { at }
            | Op::GetLinks { at }
            | Op::Readdir { at } => vec![at],
            Op::Rename { from, to, .. } | Op::Link { from, to } => vec![from, to],
            Op::Close { .. }
            | Op::Write { .. }
            | Op::Read { .. }
            | Op::Seek { .. }
            | Op::Allocate { .. }
            | Op::Fsync { .. }
            | Op::Fstat { .. }
            | Op::NoRoom { .. }
            | Op::SetLock { .. }
            | Op::TestLock { .. }
            | Op::Group { .. }
            | Op::StatFs => Vec::new(),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Op::Open { create: Some(_), .. } => "op create",
            Op::Open { .. } => "op open",
            Op::Tmpfile { .. } => "op open nameless",
            Op::Close { .. } => "op close",
            Op::Write { handle, data, .. } if is_zero_range(handle, data) => "op zero range",
            Op::Write { .. } => "op write",
            Op::Read { .. } => "op read",
            Op::Seek { .. } => "op seek",
            Op::Allocate { how: Fallocate::Punch, .. } => "op punch hole",
            Op::Allocate { .. } => "op allocate",
            Op::Fsync { .. } => "op fsync",
            Op::FsyncDir { .. } => "op fsync dir",
            Op::Stat { .. } => "op stat",
            Op::Fstat { .. } => "op fstat",
            Op::Peek { .. } => "op peek",
            Op::Truncate { .. } => "op truncate",
            Op::Touch { .. } => "op touch",
            Op::Chmod { .. } => "op chmod",
            Op::Mkdir { .. } => "op mkdir",
            Op::Symlink { .. } => "op symlink",
            Op::Readlink { .. } => "op readlink",
            Op::Remove { directory: false, .. } => "op unlink",
            Op::Remove { .. } => "op rmdir",
            Op::Rename { whiteout: true, .. } => "op rename with whiteout",
            Op::Rename { .. } => "op rename",
            Op::Link { .. } => "op link",
            Op::Readdir { .. } => "op readdir",
            Op::SetXattr { value: Some(_), .. } => "op setxattr",
            Op::SetXattr { .. } => "op removexattr",
            Op::GetXattr { name: Some(_), .. } => "op getxattr",
            Op::GetXattr { .. } => "op listxattr",
            Op::SetStripe { osts, .. } if !osts.is_empty() => "op setstripe on OSTs",
            Op::SetStripe { .. } => "op setstripe",
            Op::GetStripe { .. } => "op getstripe",
            Op::GetLinks { .. } => "op names of an inode",
            Op::NoRoom { .. } => "op no room",
            Op::SetLock { lock: FileLock { flock: true, .. }, .. } => "op flock",
            Op::SetLock { .. } => "op fcntl lock",
            Op::TestLock { .. } => "op test lock",
            Op::Group { .. } => "op group",
            Op::StatFs => "op statfs",
        }
    }

    /// Whether it may change the name space.
    pub(crate) fn changes_names(&self) -> bool {
        matches!(
            self,
            Op::Open { create: Some(_), .. }
                | Op::Chmod { .. }
                | Op::Mkdir { .. }
                | Op::Symlink { .. }
                | Op::Remove { .. }
                | Op::Rename { .. }
                | Op::Link { .. }
                | Op::SetXattr { .. }
                | Op::SetStripe { .. }
        )
    }

    /// Whether it may have to ask an OST.
    pub(crate) fn may_need_objects(&self) -> bool {
        !matches!(
            self,
            Op::Mkdir { .. }
                | Op::Symlink { .. }
                | Op::Readdir { .. }
                | Op::FsyncDir { .. }
                | Op::SetXattr { .. }
                | Op::SetStripe { .. }
                | Op::GetStripe { .. }
                | Op::GetLinks { .. }
                | Op::SetLock { .. }
                | Op::TestLock { .. }
                | Op::Group { .. }
        )
    }

    /// The handle it works on.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match self {
            Op::Close { handle }
            | Op::Write { handle, .. }
            | Op::Read { handle, .. }
            | Op::Seek { handle, .. }
            | Op::Allocate { handle, .. }
            | Op::Fstat { handle }
            | Op::NoRoom { handle, .. }
            | Op::SetLock { handle, .. }
            | Op::TestLock { handle, .. }
            | Op::Group { handle, .. }
            | Op::Fsync { handle } => Some(*handle),
            _ => None,
        }
    }

    /// What it touches, and whether it must be alone there.
    pub(crate) fn touches(&self, names: &Names) -> Vec<(Touched, bool)> {
        let mut out = Vec::new();
        for at in self.paths() {
            out.extend(at.dirs.iter().map(|dir| (Touched::Place(*dir), false)));
        }
        let mut name = |at: &At, alone: bool, inode_alone: bool| {
            if at.name.is_empty() {
                out.push((Touched::Inode(at.dir()), inode_alone));
                return None;
            }
            out.push((Touched::Name(at.dir(), at.name.clone()), alone));
            out.push((Touched::Entries(at.dir()), false));
            let fid = names.find(at.dir(), &at.name)?;
            out.push((Touched::Inode(fid), inode_alone));
            Some(fid)
        };
        match self {
            Op::Open { at, create, how } => {
                name(at, create.is_some(), how.truncate || create.is_some());
            }
            Op::Close { handle }
            | Op::Read { handle, .. }
            | Op::Seek { handle, .. }
            | Op::Fstat { handle } => {
                out.push((Touched::Inode(handle.fid), false));
            }
            Op::Write { handle, .. }
            | Op::Allocate { handle, .. }
            | Op::NoRoom { handle, .. }
            | Op::Fsync { handle } => {
                out.push((Touched::Inode(handle.fid), true));
            }
            Op::Stat { at }
            | Op::Readlink { at }
            | Op::GetXattr { at, .. }
            | Op::GetStripe { at }
            | Op::GetLinks { at } => {
                name(at, false, false);
            }
            Op::FsyncDir { .. }
            | Op::StatFs
            | Op::Tmpfile { .. }
            | Op::SetLock { .. }
            | Op::TestLock { .. }
            | Op::Group { .. }
            | Op::Peek { .. } => {}
            Op::Truncate { at, .. }
            | Op::Touch { at, .. }
            | Op::Chmod { at, .. }
            | Op::SetXattr { at, .. } => {
                name(at, false, true);
            }
            Op::SetStripe { at, .. } => {
                // What is made in it meanwhile could go by the one striping or the other.
                if let Some(fid) = name(at, false, true) {
                    out.push((Touched::Entries(fid), true));
                }
            }
            Op::Mkdir { at } => {
                name(at, true, false);
                out.push((Touched::Inode(at.dir()), true));
            }
            Op::Symlink { at, .. } => {
                name(at, true, false);
            }
            Op::Readdir { at } => out.push((Touched::Entries(at.dir()), true)),
            Op::Remove { at, directory } => {
                let fid = name(at, true, true);
                if *directory {
                    out.push((Touched::Inode(at.dir()), true));
                }
                if let Some(fid) = fid {
                    out.push((Touched::Entries(fid), true));
                    out.push((Touched::Place(fid), true));
                }
            }
            Op::Rename { from, to, .. } => {
                let moved = [name(from, true, true), name(to, true, true)];
                out.push((Touched::Inode(from.dir()), true));
                out.push((Touched::Inode(to.dir()), true));
                for fid in moved.into_iter().flatten().filter(|fid| names.is_dir(*fid)) {
                    out.push((Touched::Entries(fid), true));
                    out.push((Touched::Place(fid), true));
                }
            }
            Op::Link { from, to } => {
                name(from, false, true);
                name(to, true, false);
            }
        }
        out
    }

    /// The change that it makes to the name space if it succeeds; `made` is the FID of what
    /// it made.
    pub(crate) fn mutation(&self, names: &Names, made: Option<Fid>) -> Option<Mutation> {
        let make = |at: &At, mode: u32, nlink: u32, node: Node| {
            names.find(at.dir(), &at.name).is_none().then_some(())?;
            let mut inode = Inode::new(mode, nlink, node);
            if let Node::Dir(_) = inode.node
                && let Some(dir) = names.inodes.get(&at.dir())
            {
                inode.policy = dir.policy;
                inode.osts.clone_from(&dir.osts);
            }
            Some(Mutation::Make { parent: at.dir(), name: at.name.clone(), fid: made?, inode })
        };
        match self {
            Op::Open { at, create: Some(mode), .. } => make(at, *mode, 1, Node::File),
            Op::Mkdir { at } => make(at, 0o755, 2, Node::Dir(Default::default())),
            Op::Symlink { at, target } => make(at, 0o777, 1, Node::Symlink(target.clone())),
            Op::Chmod { at, mode } => {
                Some(Mutation::Mode { fid: names.find(at.dir(), &at.name)?, mode: *mode })
            }
            Op::Remove { at, .. } => {
                names.find(at.dir(), &at.name)?;
                Some(Mutation::Remove { parent: at.dir(), name: at.name.clone() })
            }
            Op::Rename { from, to, exchange, whiteout, .. } => {
                let moved = names.find(from.dir(), &from.name)?;
                if names.find(to.dir(), &to.name) == Some(moved) {
                    return None;
                }
                Some(Mutation::Rename {
                    parent: from.dir(),
                    name: from.name.clone(),
                    new_parent: to.dir(),
                    new_name: to.name.clone(),
                    exchange: *exchange,
                    whiteout: if *whiteout { Some(made?) } else { None },
                })
            }
            Op::Link { from, to } => Some(Mutation::Link {
                fid: names.find(from.dir(), &from.name)?,
                parent: to.dir(),
                name: to.name.clone(),
            }),
            Op::SetXattr { at, .. } | Op::SetStripe { at, .. } => {
                self.mutation_of(names, names.find(at.dir(), &at.name)?)
            }
            _ => None,
        }
    }

    /// The change that it makes to this inode if it succeeds there.
    pub(crate) fn mutation_of(&self, names: &Names, fid: Fid) -> Option<Mutation> {
        match self {
            Op::Chmod { mode, .. } => Some(Mutation::Mode { fid, mode: *mode }),
            Op::Link { to, .. } => {
                Some(Mutation::Link { fid, parent: to.dir(), name: to.name.clone() })
            }
            Op::SetXattr { name, value, .. } => {
                let value = value.as_ref().map(|(value, _)| value.clone());
                Some(Mutation::Xattr { fid, name: name.clone(), value })
            }
            // One that says nothing takes the directory's own away. Of a file it changes the
            // layout.
            Op::SetStripe { policy, osts, .. } if names.is_dir(fid) => {
                let mut policy = Some(*policy).filter(|policy| policy.stripe_size != 0);
                if let Some(first) = osts.first() {
                    policy = Some(StripePolicy {
                        stripe_count: osts.len() as i32,
                        stripe_size: policy.map_or(0, |policy| policy.stripe_size),
                        stripe_offset: Some(*first),
                    });
                }
                Some(Mutation::Policy { fid, policy, osts: osts.clone() })
            }
            _ => None,
        }
    }

    /// The inode that it is to make durable.
    pub(crate) fn synced(&self) -> Option<Fid> {
        match self {
            Op::Fsync { handle } => Some(handle.fid),
            Op::FsyncDir { at } => Some(at.dir()),
            _ => None,
        }
    }

    /// Whether it should succeed, in a name space like this.
    pub(crate) fn verdict(&self, names: &Names) -> Result<()> {
        let find = |at: &At| {
            if at.name.is_empty() { Some(at.dir()) } else { names.find(at.dir(), &at.name) }
        };
        let kind = |at: &At| find(at).and_then(|fid| names.inodes.get(&fid)).map(|i| &i.node);
        match self {
            Op::Open { at, create, how } => match (kind(at), create) {
                (Some(_), Some(_)) if how.exclusive => Err(Errno::EEXIST),
                (None, None) => Err(Errno::ENOENT),
                (Some(Node::Dir(_)), Some(_)) => Err(Errno::EISDIR),
                (Some(Node::Dir(_)), None) if how.write => Err(Errno::EISDIR),
                // The kernel goes where it leads before it opens; here nobody does.
                (Some(Node::Symlink(_)), None) => Err(Errno::ELOOP),
                // There is no such device.
                (Some(Node::Device), _) => Err(Errno::ENXIO),
                _ => Ok(()),
            },
            Op::Truncate { at, .. } => match kind(at) {
                None => Err(Errno::ENOENT),
                Some(Node::Device | Node::Symlink(_)) => Err(Errno::EINVAL),
                Some(Node::Dir(_)) => Err(Errno::EISDIR),
                Some(_) => Ok(()),
            },
            Op::Chmod { at, .. } => match kind(at) {
                None => Err(Errno::ENOENT),
                Some(Node::Symlink(_)) => Err(Errno::EOPNOTSUPP),
                Some(_) => Ok(()),
            },
            Op::Stat { at } | Op::Touch { at, .. } | Op::GetStripe { at } | Op::GetLinks { at } => {
                kind(at).map(|_| ()).ok_or(Errno::ENOENT)
            }
            Op::Mkdir { at } | Op::Symlink { at, .. } => {
                if kind(at).is_some() {
                    Err(Errno::EEXIST)
                } else {
                    Ok(())
                }
            }
            Op::Readlink { at } => match kind(at) {
                Some(Node::Symlink(_)) => Ok(()),
                Some(_) => Err(Errno::EINVAL),
                None => Err(Errno::ENOENT),
            },
            Op::Remove { at, directory } => names.may_remove(at.dir(), &at.name, *directory),
            Op::Rename { from, to, exchange, no_replace, .. } => names.may_rename(
                (from.dir(), &from.name),
                (to.dir(), &to.name),
                *exchange,
                *no_replace,
            ),
            Op::Link { from, to } => match (kind(from), kind(to)) {
                (None, _) => Err(Errno::ENOENT),
                (_, Some(_)) => Err(Errno::EEXIST),
                (Some(Node::Dir(_)), _) => Err(Errno::EPERM),
                _ => Ok(()),
            },
            Op::SetXattr { at, name, value } => {
                let fid = find(at).filter(|_| kind(at).is_some()).ok_or(Errno::ENOENT)?;
                let mode = value.as_ref().map_or(XattrMode::Replace, |(_, mode)| *mode);
                names.may_set_xattr(fid, name, mode)
            }
            Op::GetXattr { at, name } => {
                let fid = find(at).filter(|_| kind(at).is_some()).ok_or(Errno::ENOENT)?;
                match name {
                    Some(name) => names.may_set_xattr(fid, name, XattrMode::Replace),
                    None => Ok(()),
                }
            }
            Op::SetStripe { at, .. } => match kind(at) {
                None => Err(Errno::ENOENT),
                Some(Node::Symlink(_) | Node::Device) => Err(Errno::EINVAL),
                Some(_) => Ok(()),
            },
            Op::Close { .. }
            | Op::Write { .. }
            | Op::Read { .. }
            | Op::Seek { .. }
            | Op::Allocate { .. }
            | Op::Fsync { .. }
            | Op::FsyncDir { .. }
            | Op::StatFs
            | Op::SetLock { .. }
            | Op::TestLock { .. }
            | Op::Group { .. }
            | Op::Fstat { .. }
            | Op::NoRoom { .. }
            | Op::Peek { .. }
            | Op::Tmpfile { .. }
            | Op::Readdir { .. } => Ok(()),
        }
    }

    /// Runs it.
    pub(crate) async fn run(self, kernel: &Kernel) -> Result<Out> {
        for at in self.paths() {
            let found = kernel.walk(&at.path).await?;
            if found != at.dir() {
                return Ok(Out::Strayed(found));
            }
        }
        match self {
            Op::Open { at, create, how } => {
                kernel.open(at.dir(), &at.name, create, how).await.map(Out::Opened)
            }
            Op::Tmpfile { at, how } => kernel.tmpfile(at.dir(), how).await.map(Out::Opened),
            Op::Close { handle } => kernel.close(handle).await.map(|()| Out::Done),
            Op::Write { handle, offset, data } if is_zero_range(&handle, &data) => {
                let len = data.len();
                kernel.zero_range(handle, offset, len as u64).await.map(|()| Out::Written(len))
            }
            Op::Write { handle, offset, data } => {
                kernel.write(handle, offset, Bytes::from(data)).await.map(Out::Written)
            }
            Op::Read { handle, offset, len } => {
                kernel.walk_to(handle, offset % 6, (offset, len)).await;
                kernel.read(handle, offset, len).await.map(Out::Bytes)
            }
            Op::Seek { handle, offset, hole } => {
                kernel.seek(handle, offset, hole).await.map(Out::Offset)
            }
            Op::Allocate { handle, offset, len, how } => {
                kernel.allocate(handle, (offset, len), how).await.map(|()| Out::Done)
            }
            Op::NoRoom { handle, ost } => kernel.no_room(handle, ost).await.map(|()| Out::Done),
            Op::Fsync { handle } => kernel.fsync_file(handle).await.map(|()| Out::Done),
            Op::FsyncDir { at } => kernel.fsync(at.dir()).await.map(|()| Out::Done),
            Op::Fstat { handle } => kernel.getattr(handle.fid).await.map(Out::Attr),
            Op::Stat { at } if at.name.is_empty() => kernel.getattr(at.dir()).await.map(Out::Attr),
            Op::Stat { at } | Op::Peek { at } => {
                kernel.stat(at.dir(), &at.name).await.map(Out::Attr)
            }
            Op::Truncate { at, size } => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                kernel.setattr(at.dir(), &at.name, set).await.map(Out::Attr)
            }
            Op::Touch { at, mtime } => {
                let set = SetAttr { mtime: Some(TimeSet::At(mtime)), ..SetAttr::default() };
                kernel.setattr(at.dir(), &at.name, set).await?;
                kernel.stat(at.dir(), &at.name).await.map(Out::Attr)
            }
            Op::Chmod { at, mode } => {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                kernel.setattr(at.dir(), &at.name, set).await.map(Out::Attr)
            }
            Op::Mkdir { at } => kernel.make(at.dir(), &at.name, 0o40755, b"").await.map(Out::Attr),
            Op::Symlink { at, target } => {
                kernel.make(at.dir(), &at.name, 0o120_777, &target).await.map(Out::Attr)
            }
            Op::Readlink { at } => kernel.readlink(at.dir(), &at.name).await.map(Out::Bytes),
            Op::Remove { at, directory } => {
                kernel.unlink(at.dir(), &at.name, directory).await.map(|()| Out::Done)
            }
            Op::Rename { from, to, exchange, no_replace, whiteout } => {
                let flags = RenameFlags { no_replace, exchange };
                let (old, new) = ((from.dir(), &from.name[..]), (to.dir(), &to.name[..]));
                kernel.rename(old, new, (flags, whiteout)).await?;
                match whiteout {
                    true => kernel.stat(from.dir(), &from.name).await.map(Out::Attr),
                    false => Ok(Out::Done),
                }
            }
            Op::Link { from, to } => {
                let old = (from.dir(), &from.name[..]);
                kernel.link(old, to.dir(), &to.name).await.map(Out::Attr)
            }
            Op::Readdir { at } => {
                let entries = kernel.readdir(at.dir()).await?;
                kernel.look_through(at.dir(), &entries).await;
                Ok(Out::Entries(entries))
            }
            Op::SetXattr { at, name, value } => {
                kernel.set_xattr((at.dir(), &at.name), &name, value).await.map(Out::Changed)
            }
            Op::GetXattr { at, name } => {
                let got = kernel.get_xattr((at.dir(), &at.name), name.as_deref()).await;
                got.map(|(fid, bytes)| Out::Xattr(fid, bytes))
            }
            Op::SetStripe { at, policy, osts } => {
                kernel.set_stripe((at.dir(), &at.name), policy, osts).await.map(Out::Changed)
            }
            Op::GetStripe { at } => {
                let got = kernel.get_stripe((at.dir(), &at.name)).await;
                got.map(|(fid, layout, policy)| Out::Striping(fid, layout, policy))
            }
            Op::GetLinks { at } => {
                let got = kernel.links((at.dir(), &at.name)).await;
                got.map(|(fid, links)| Out::Links(fid, links))
            }
            Op::SetLock { handle, lock, alarm } => {
                kernel.set_lock(handle, lock, alarm.as_deref()).await.map(|()| Out::Done)
            }
            Op::TestLock { handle, lock } => kernel.test_lock(handle, lock).await.map(Out::InWay),
            Op::Group { handle, gid, alarm: Some(alarm) } => {
                let joins = kernel.lock_group(handle, gid);
                alarm.patience().run(joins).await.map(|()| Out::Done)
            }
            Op::Group { handle, gid, alarm: None } => {
                kernel.unlock_group(handle, gid).await.map(|()| Out::Done)
            }
            Op::StatFs => kernel.statfs().await.map(Out::Space),
        }
    }
}
