//! `Create`: a new inode of any kind under a new name, or the open of what has that name.

use sateen_ldlm::Need;
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, FileKind, StripePolicy};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{Inode, SeqGrant, put_link};
use sateen_wire::{Grants, Ibits, LockMode, MdtReply, MdtRequest, SYMLINK_MAX};

use super::open::{Intent, Opened, open_file};
use super::{DIR_BLOCKS, DIR_SIZE, S_ISGID, put_inode, shown, xattr};
use crate::acl::{self, Acl};
use crate::alloc::{Allocator, Inherited, joined};
use crate::destroy::count;
use crate::keys;
use crate::layouts::{LayoutCache, Made};
use crate::mdt::Mdt;
use crate::names::{Found, find, insert};
use crate::op::{Op, Outcome};
use crate::opens::Purpose;
use crate::seqs::Seqs;
use crate::view::{Stamp, View};

/// What the new inode shall be.
pub(super) struct New<'a> {
    pub(super) fid: Fid,
    pub(super) mode: u32,
    pub(super) rdev: u32,
    pub(super) symlink: &'a [u8],
    pub(super) policy: Option<StripePolicy>,
    pub(super) intent: Intent,
    pub(super) open: bool,
}

pub(super) fn run(mdt: &mut Mdt, op: &mut Op<'_>, request: &MdtRequest) -> Result<Outcome, Fault> {
    let MdtRequest::Create {
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
    } = request
    else {
        return Err(Errno::EINVAL.into());
    };
    let flags = open.unwrap_or_default();
    let intent = Intent { flags, id: *open_id, cred: *cred, want: *want };
    let (mode, rdev, policy, open) = (*mode, *rdev, *policy, open.is_some());
    let mut new = New { fid: *fid, mode, rdev, symlink, policy, intent, open };
    let (parent, name) = (*parent, name.as_bytes());
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let dir = view.dir(parent);
    let found = find(&view, parent, name);
    let (dir, found) = (dir?, found?);
    if let Found::Entry { fid, kind, .. } = found {
        // What was made anew is not opened now.
        if *exclusive || !open || op.again.is_some() {
            return Err(Errno::EEXIST.into());
        }
        return existing(mdt, op, (fid, kind), &new.intent);
    }
    let kind = check(&new)?;
    op.need_room(&mdt.room)?;
    is_unused(&mdt.seqs, &view, op, new.fid)?;
    if new.open && op.again.is_none() {
        mdt.clients.may_open(op.client, new.intent.id)?;
    }
    op.need(&mut mdt.locks, &[Need::all_gone(parent, Ibits::UPDATE)])?;
    let lists = Lists::of(&view, &dir, kind, &mut new)?;
    let handed = handed_by(&mut mdt.layouts, &dir)?;
    let made = match op.again {
        None => layout_for(&mut mdt.alloc, kind, &new, &handed)?,
        Some(again) => again.layout(kind),
    };

    let stamp = op.stamp(&mdt.core);
    mdt.scratch.clear();
    put_link(&mut mdt.scratch, parent, name);
    let mut inode = inode(&new, kind, (&dir, made.as_ref()), (&stamp, &mdt.scratch));
    if op.again.is_some_and(|again| !again.makes(&inode.attr)) {
        return Err(Errno::ESTALE.into());
    }
    let tx = &mut mdt.batch;
    tx.clear();
    inode.xattrs = lists.put(tx, view.hash_key, new.fid);
    if let Found::Absent { place, extends } = found {
        insert(&view, tx, (&place, extends), name, (new.fid, kind))?;
    }
    put_inode(tx, &inode);
    let attr = inode.attr;
    let mut dir = dir;
    dir.entries += 1;
    dir.attr.nlink += u32::from(kind == FileKind::Directory);
    stamp.touch_content(&mut dir.attr);
    put_inode(tx, &dir);
    mdt.inodes = count(tx, mdt.inodes, 1);
    let parent = Some(dir.attr);
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    Ok(created(mdt, op, &new, (attr, made, parent), transno))
}

/// The lists of permissions that a new inode gets from its directory.
#[derive(Default)]
pub(super) struct Lists {
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Lists {
    /// They, or else the umask, cut down the mode that was asked for.
    pub(super) fn of(
        view: &View<'_>,
        dir: &Inode<'_>,
        kind: FileKind,
        new: &mut New<'_>,
    ) -> Result<Lists, Fault> {
        if kind == FileKind::Symlink {
            return Ok(Lists::default());
        }
        let Some(default) = xattr::acl(view, dir, acl::DEFAULT)? else {
            new.mode &= !(new.intent.cred.umask & 0o777);
            return Ok(Lists::default());
        };
        let mut access = default.clone();
        new.mode = access.inherit(new.mode);
        Ok(Lists {
            access: Some(access).filter(|access| !access.is_mode()),
            default: Some(default).filter(|_| kind == FileKind::Directory),
        })
    }

    /// How many there are.
    pub(super) fn put(&self, tx: &mut Batch, hash_key: u64, fid: Fid) -> u32 {
        let lists = [(acl::ACCESS, &self.access), (acl::DEFAULT, &self.default)];
        let mut count = 0;
        for (name, list) in lists {
            if let Some(list) = list {
                xattr::put_acl(tx, hash_key, fid, (name, list));
                count += 1;
            }
        }
        count
    }
}

/// The name exists: `open(O_CREAT)` opens it, if it is a file.
pub(super) fn existing(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, kind): (Fid, FileKind),
    intent: &Intent,
) -> Result<Outcome, Fault> {
    match kind {
        FileKind::Directory => Err(Errno::EISDIR.into()),
        FileKind::Regular => open_file(mdt, op, fid, intent, |Opened { attr, layout }| {
            MdtReply::Created { attr, layout, existed: true, parent: None }
        }),
        // What a symbolic link or a device leads to is the client's business.
        _ => {
            let view = View::new(&mdt.core, op.fetched, mdt.config.index);
            let attr = view.file(fid)?.attr;
            let body = MdtReply::Created { attr, layout: None, existed: true, parent: None };
            Ok(Outcome::ok(body, 0, Grants::NONE))
        }
    }
}

/// Refuses a FID that is not the client's to use, or was used before.
pub(super) fn is_unused(seqs: &Seqs, view: &View<'_>, op: &Op<'_>, fid: Fid) -> Result<(), Fault> {
    let client = op.client;
    if op.again.is_some() {
        // What it was granted it tells later.
        let granted = view.get(&keys::grant(fid.seq))?.ok_or(Errno::EINVAL)?;
        let granted = SeqGrant::from_bytes(granted).map_err(|_| Errno::EIO)?;
        if granted.client != client {
            return Err(Errno::EINVAL.into());
        }
        return if view.inode(fid)?.is_some() { Err(Errno::EEXIST.into()) } else { Ok(()) };
    }
    if !seqs.check(client, fid)? && view.inode(fid)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    Ok(())
}

pub(super) fn check(new: &New<'_>) -> Result<FileKind, Errno> {
    let kind = FileKind::from_mode(new.mode).ok_or(Errno::EINVAL)?;
    if new.mode & !0o177_777 != 0 || !new.fid.is_valid() {
        return Err(Errno::EINVAL);
    }
    if new.open && kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    if (kind == FileKind::Symlink) == new.symlink.is_empty() {
        return Err(if kind == FileKind::Symlink { Errno::ENOENT } else { Errno::EINVAL });
    }
    if new.symlink.len() > SYMLINK_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(kind) }
}

/// The new inode's record.
pub(super) fn inode<'a>(
    new: &New<'a>,
    kind: FileKind,
    (dir, made): (&Inode<'a>, Option<&'a Made>),
    (stamp, links): (&Stamp, &'a [u8]),
) -> Inode<'a> {
    let mut inode = Inode::new(attributes(new, kind, (&dir.attr, made.is_some()), stamp));
    inode.layout = made.map_or(&[], |made| &made.bytes);
    if kind == FileKind::Directory && new.policy.is_none() {
        inode.layout = dir.layout;
    }
    inode.symlink = new.symlink;
    inode.links = links;
    inode.policy = match kind {
        FileKind::Directory => new.policy.or(dir.policy),
        FileKind::Regular if made.is_none() => joined(new.policy, dir.policy),
        _ => None,
    };
    if new.open && new.intent.flags.write {
        inode.attr.size_stale = true;
        inode.attr.maybe_objects = true;
    }
    inode
}

/// What changes in memory, and the answer.
pub(super) fn created(
    mdt: &mut Mdt,
    op: &Op<'_>,
    new: &New<'_>,
    (attr, made, parent): (Attr, Option<Made>, Option<Attr>),
    transno: u64,
) -> Outcome {
    if op.again.is_some() {
        // What of it is open, and locked, it tells later.
        let layout = made.map(|made| made.layout);
        let body = MdtReply::Created { attr, layout, existed: false, parent };
        return Outcome::ok(body, transno, Grants::NONE);
    }
    mdt.seqs.used(new.fid);
    let write = new.intent.flags.write;
    if new.open {
        let before = Attr { size_stale: false, maybe_objects: false, ..attr };
        let purpose = Purpose { write, exec: false };
        mdt.opens.open(&before, op.client, purpose);
        mdt.clients.open(op.client, new.intent.id, (new.fid, purpose));
    }
    let mut grants = Grants::NONE;
    let data = if new.open && write { LockMode::Pw } else { LockMode::Pr };
    op.grant_new(&mut mdt.locks, &mut grants, new.fid, (new.intent.want, data));
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    let layout = made.map(|made| made.layout);
    Outcome::ok(MdtReply::Created { attr, layout, existed: false, parent }, transno, grants)
}

/// What a directory hands to new files.
pub(super) fn handed_by(layouts: &mut LayoutCache, dir: &Inode<'_>) -> Result<Inherited, Fault> {
    Ok(Inherited { policy: dir.policy, osts: layouts.get(dir.layout)? })
}

/// The layout of a new regular file. Without any OST it gets one when it is first written.
pub(super) fn layout_for(
    alloc: &mut Allocator,
    kind: FileKind,
    new: &New<'_>,
    inherited: &Inherited,
) -> Result<Option<Made>, Errno> {
    if kind != FileKind::Regular {
        return Ok(None);
    }
    let made = alloc.place(new.policy, inherited, 1)?;
    if made.is_none() && new.open && new.intent.flags.write {
        return Err(Errno::ENOSPC);
    }
    Ok(made)
}

fn attributes(
    new: &New<'_>,
    kind: FileKind,
    (dir, has_layout): (&Attr, bool),
    stamp: &Stamp,
) -> Attr {
    let directory = kind == FileKind::Directory;
    let inherits = dir.mode & S_ISGID != 0;
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    let size = match kind {
        FileKind::Directory => DIR_SIZE,
        FileKind::Symlink => new.symlink.len() as u64,
        _ => 0,
    };
    Attr {
        fid: new.fid,
        mode: if directory && inherits { new.mode | S_ISGID } else { new.mode },
        nlink: 1 + u32::from(directory),
        uid: new.intent.cred.uid,
        gid: if inherits { dir.gid } else { new.intent.cred.gid },
        projid: dir.projid,
        rdev: if device { new.rdev } else { 0 },
        size,
        blocks: if directory { DIR_BLOCKS } else { 0 },
        atime: stamp.time,
        mtime: stamp.time,
        ctime: stamp.time,
        btime: stamp.time,
        version: stamp.transno,
        layout_gen: u32::from(has_layout),
        size_stale: false,
        maybe_objects: false,
    }
}
