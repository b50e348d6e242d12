//! `SetAttr`: owner, mode, times, size.

use sateen_ldlm::Need;
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, FileKind, Timespec};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::Inode;
use sateen_wire::{Cred, Grants, Ibits, MdtReply, SetAttr, TimeSet};

use super::{FILE_SIZE_MAX, S_ISGID, S_ISUID, S_IXGRP, put_inode, shown, xattr};
use crate::acl;
use crate::alloc::Allocator;
use crate::keys;
use crate::layouts::LayoutCache;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome, Punch, reply};
use crate::view::{Stamp, View};

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    set: &SetAttr,
    cred: &Cred,
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    check(&inode.attr, set)?;
    let list = match set.mode {
        Some(_) => xattr::acl(&view, &inode, acl::ACCESS)?,
        None => None,
    };
    let hash_key = view.hash_key;
    if set.size.is_some() {
        if mdt.opens.runs_elsewhere(fid, op.client) {
            return Err(Errno::ETXTBSY.into());
        }
        op.need_fences()?;
    }
    op.need(&mut mdt.locks, &[Need::all_gone(fid, bits(set))])?;
    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    let mut cut = false;
    if set.size.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_suid {
        xattr::drop_capabilities(&view, tx, &mut inode)?;
    }
    if let Some(size) = set.size {
        cut = cuts(&inode, size);
        if cut && op.again.is_some() {
            // The first time it was durable before it was answered.
            return Err(Errno::ESTALE.into());
        }
        if cut {
            can_cut(&mut mdt.layouts, &mdt.alloc, &inode)?;
        }
        if size > inode.attr.size {
            can_grow(&mut mdt.layouts, &mdt.alloc, &inode, size)?;
        }
        set_size(&mut inode.attr, size);
        // Who writes is told later.
        inode.attr.size_stale &= op.again.is_some() || mdt.opens.writers(fid) > 0;
        if cred.uid != 0 {
            drop_set_id(&mut inode.attr);
        }
    }
    apply(&mut inode.attr, set, &stamp);
    if let Some(mut list) = list {
        list.set_mode(inode.attr.mode);
        xattr::put_acl(tx, hash_key, fid, (acl::ACCESS, &list));
    }
    if cut {
        log_punch(tx, stamp.transno, &inode);
    }
    put_inode(tx, &inode);
    let attr = inode.attr;
    let layout = if cut { mdt.layouts.get(inode.layout)? } else { None };
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    if set.size.is_some() {
        mdt.opens.reported(fid, true);
    }
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    let answer = reply(MdtReply::Inode { attr }, transno, Grants::NONE);
    Ok(match layout {
        Some(layout) => Outcome::Punch(answer, Punch { fid, size: set.size.unwrap_or(0), layout }),
        None => Outcome::Reply(answer),
    })
}

fn check(attr: &Attr, set: &SetAttr) -> Result<(), Errno> {
    if set.mode.is_some() && attr.kind() == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    match (set.size, attr.kind()) {
        (None, _) => Ok(()),
        (Some(size), FileKind::Regular) if size > FILE_SIZE_MAX => Err(Errno::EFBIG),
        (Some(_), FileKind::Regular) => Ok(()),
        (Some(_), FileKind::Directory) => Err(Errno::EISDIR),
        (Some(_), _) => Err(Errno::EINVAL),
    }
}

/// What nobody else may have cached.
fn bits(set: &SetAttr) -> Ibits {
    let mut bits = Ibits::UPDATE;
    let owner = set.uid.is_some() || set.gid.is_some();
    if owner || set.mode.is_some() || set.kill_suid || set.size.is_some() {
        bits = bits.union(Ibits::PERM);
    }
    if set.size.is_some() || set.atime.is_some() || set.mtime.is_some() {
        bits = bits.union(Ibits::DATA);
    }
    bits
}

fn apply(attr: &mut Attr, set: &SetAttr, stamp: &Stamp) {
    stamp.touch(attr);
    if set.size.is_some() {
        attr.mtime = attr.ctime;
    }
    if let Some(mode) = set.mode {
        attr.mode = attr.mode & !0o7777 | mode & 0o7777;
    }
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    // As Linux: a change of owner takes the set-id bits from whatever can be executed.
    let owner = set.uid.is_some() || set.gid.is_some();
    if !attr.is_dir() && (set.kill_suid || owner && set.mode.is_none()) {
        drop_set_id(attr);
    }
    let time = |set: Option<TimeSet>, old: Timespec| match set {
        None => old,
        Some(TimeSet::Now) => stamp.time,
        Some(TimeSet::At(time)) => time,
    };
    attr.atime = time(set.atime, attr.atime);
    attr.mtime = time(set.mtime, attr.mtime);
}

/// Drops set-user-id, and set-group-id where it means that and not mandatory locking.
pub(super) fn drop_set_id(attr: &mut Attr) {
    attr.mode &= !S_ISUID;
    if attr.mode & S_IXGRP != 0 {
        attr.mode &= !S_ISGID;
    }
}

/// Whether a new size takes data from objects.
pub(super) fn cuts(inode: &Inode<'_>, size: u64) -> bool {
    inode.attr.maybe_objects
        && !inode.layout.is_empty()
        && (size < inode.attr.size || inode.attr.size_stale)
}

/// Refuses to cut objects on OSTs that are not in use: nobody knows when that would be done.
pub(super) fn can_cut(
    layouts: &mut LayoutCache,
    alloc: &Allocator,
    inode: &Inode<'_>,
) -> Result<(), Fault> {
    let layout = layouts.get(inode.layout)?;
    let mut osts = layout.iter().flat_map(|layout| layout.objects()).map(|(_, ost)| ost);
    if osts.all(|ost| alloc.is_active(ost)) { Ok(()) } else { Err(Errno::EIO.into()) }
}

/// Refuses a size at which some object could not hold its part of the file.
fn can_grow(
    layouts: &mut LayoutCache,
    alloc: &Allocator,
    inode: &Inode<'_>,
    size: u64,
) -> Result<(), Fault> {
    let Some(layout) = layouts.get(inode.layout)? else { return Ok(()) };
    let fits = layout.objects().all(|(stripe, ost)| {
        alloc.object_bytes_max(ost).is_none_or(|max| layout.object_size(stripe, size) <= max)
    });
    if fits { Ok(()) } else { Err(Errno::EFBIG.into()) }
}

/// Sets the size, and what can be said of the space.
pub(super) fn set_size(attr: &mut Attr, size: u64) {
    if size < attr.size {
        attr.blocks = attr.blocks.min(size.div_ceil(512));
    }
    attr.size = size;
}

/// Puts the punch record of a truncate into the batch: `inode` has the new size.
pub(super) fn log_punch(tx: &mut Batch, transno: u64, inode: &Inode<'_>) {
    tx.put_with(&keys::punch(transno), |out| {
        inode.attr.fid.put(out);
        inode.attr.size.put(out);
        out.extend_from_slice(inode.layout);
    });
}
