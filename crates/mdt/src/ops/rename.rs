//! `Rename` and `RenameWhiteout`: `renameat2` with its flags.

use sateen_ldlm::Need;
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, FileKind};
use sateen_wire::disk::mdt::{Inode, put_link};
use sateen_wire::{Cred, Grants, Ibits, MdtReply, OpenFlags, OpenId, RenameFlags};

use super::create::{Lists, New, check as check_new, inode, is_unused};
use super::open::Intent;
use super::put_inode;
use super::unlink::{Losing, Victim};
use crate::destroy::{Doomed, count};
use crate::mdt::Mdt;
use crate::names::{
    Found, Place, find, insert, parent_of, put, remove, white_out, with_link, without_link,
};
use crate::op::{Op, Outcome};
use crate::view::{Stamp, View};

/// Deepest directory whose place in the tree is looked up before a move.
const DEPTH_MAX: usize = 1 << 16;

type Spot<'a> = (Fid, &'a [u8]);

/// Both directories as they are afterwards; no second one if it is the same.
type Dirs = (Option<Attr>, Option<Attr>);

/// Everything that takes part, as it was found.
struct Move<'a> {
    from: Spot<'a>,
    to: Spot<'a>,
    source: Inode<'a>,
    source_place: Place,
    target: Option<Inode<'a>>,
    found: Found,
    old_dir: Inode<'a>,
    /// The new directory, if it is another one.
    new_dir: Option<Inode<'a>>,
}

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    from: Spot<'_>,
    to: Spot<'_>,
    (flags, whiteout): (RenameFlags, Option<(Fid, Cred)>),
) -> Result<Outcome, Fault> {
    if flags.exchange && flags.no_replace {
        return Err(Errno::EINVAL.into());
    }
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let found = gather(&view, from, to, flags)?;
    let moved = found.source.attr.fid;
    if found.target.as_ref().is_some_and(|target| target.attr.fid == moved) {
        // Two names of one file: nothing happens.
        let nothing = renamed(moved, (None, None), (None, None));
        return Ok(Outcome::ok(nothing, 0, Grants::NONE));
    }
    let is_dir = |inode: &Inode<'_>| inode.attr.is_dir();
    let dirs = is_dir(&found.source) || found.target.as_ref().is_some_and(is_dir);
    op.moves_tree = dirs && from.0 != to.0;
    check(&view, &found, flags)?;
    if let Some((fid, _)) = whiteout {
        op.need_room(&mdt.room)?;
        is_unused(&mdt.seqs, &view, op, fid)?;
    }
    let name = Ibits::LOOKUP.union(Ibits::UPDATE);
    let victim =
        found.target.as_ref().map(|target| Victim::new(&target.attr, (&mdt.opens, &mdt.locks), op));
    let source = Need::all_gone(found.source.attr.fid, name);
    let swapped = found.target.as_ref().map(|target| Need::all_gone(target.attr.fid, name));
    let replaced = victim.as_ref().map(Victim::need);
    let needs = [
        Need::all_gone(from.0, Ibits::UPDATE),
        Need::all_gone(to.0, Ibits::UPDATE),
        source,
        if flags.exchange { swapped } else { replaced }.unwrap_or(source),
    ];
    op.need(&mut mdt.locks, &needs)?;

    let stamp = op.stamp(&mdt.core);
    mdt.batch.clear();
    if flags.exchange {
        let swapped = found.target.as_ref().map(|target| target.attr.fid);
        let dirs = exchange(&mut mdt.batch, &mut mdt.scratch, found, &stamp)?;
        let transno = op.commit(&mut mdt.core, &mut mdt.batch);
        let done = renamed(moved, (swapped, None), dirs);
        return Ok(Outcome::ok(done, transno, Grants::NONE));
    }
    let mut lost: (Option<Attr>, Option<Doomed>) = (None, None);
    if let (Some(victim), Some(target)) = (victim, found.target) {
        let mut cx = Losing {
            view: &view,
            tx: &mut mdt.batch,
            layouts: &mut mdt.layouts,
            scratch: &mut mdt.scratch,
            stamp,
        };
        let (attr, doomed) = victim.lose(&mut cx, target, to)?;
        lost = (Some(attr), doomed);
    }
    if let Some(whiteout) = whiteout {
        make_whiteout(&view, (&mut mdt.batch, &mut mdt.scratch), &found, whiteout, &stamp)?;
    }
    let left = whiteout.map(|(fid, _)| fid);
    move_entry(&view, &mut mdt.batch, &found, left)?;
    let dirs = move_inode(&mut mdt.batch, &mut mdt.scratch, found, left, &stamp);
    let mut inodes = mdt.inodes;
    if lost.1.is_some() != left.is_some() {
        inodes = count(&mut mdt.batch, inodes, if left.is_some() { 1 } else { -1 });
    }
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    mdt.inodes = inodes;
    if let Some(fid) = left {
        mdt.seqs.used(fid);
    }
    if let (Some(attr), doomed) = &mut lost {
        mdt.lost_name(attr, doomed.take(), transno);
    }
    Ok(Outcome::ok(renamed(moved, (None, lost.0), dirs), transno, Grants::NONE))
}

fn renamed(
    moved: Fid,
    (swapped, replaced): (Option<Fid>, Option<Attr>),
    (parent, new_parent): Dirs,
) -> MdtReply {
    MdtReply::Renamed { moved, swapped, replaced, parent, new_parent }
}

fn gather<'a>(
    view: &View<'a>,
    from: Spot<'a>,
    to: Spot<'a>,
    flags: RenameFlags,
) -> Result<Move<'a>, Fault> {
    let (old_dir, new_dir) = (view.dir(from.0), view.dir(to.0));
    let (old, new) = (find(view, from.0, from.1), find(view, to.0, to.1));
    let (old_dir, new_dir) = (old_dir?, new_dir?);
    let (old, found) = (old?, new?);
    let Found::Entry { place: source_place, fid, .. } = old else {
        return Err(Errno::ENOENT.into());
    };
    let source = view.inode(fid)?.ok_or(Errno::EIO)?;
    let target = match found {
        Found::Entry { .. } if flags.no_replace => return Err(Errno::EEXIST.into()),
        Found::Entry { fid, .. } => Some(view.inode(fid)?.ok_or(Errno::EIO)?),
        Found::Absent { .. } if flags.exchange => return Err(Errno::ENOENT.into()),
        Found::Absent { .. } => None,
    };
    let new_dir = (from.0 != to.0).then_some(new_dir);
    Ok(Move { from, to, source, source_place, target, found, old_dir, new_dir })
}

/// Whether `dir` is `top` or lies below it.
fn is_below(view: &View<'_>, dir: Fid, top: Fid) -> Result<bool, Fault> {
    let mut at = dir;
    for _ in 0..DEPTH_MAX {
        if at == top {
            return Ok(true);
        }
        if at == Fid::ROOT {
            return Ok(false);
        }
        let inode = view.inode(at)?.ok_or(Errno::EIO)?;
        at = parent_of(inode.links);
    }
    Err(Errno::ELOOP.into())
}

fn check(view: &View<'_>, found: &Move<'_>, flags: RenameFlags) -> Result<(), Fault> {
    let source = &found.source.attr;
    if source.is_dir() && is_below(view, found.to.0, source.fid)? {
        return Err(Errno::EINVAL.into());
    }
    let Some(target) = &found.target else { return Ok(()) };
    if target.attr.is_dir() && is_below(view, found.from.0, target.attr.fid)? {
        return Err(if flags.exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
    }
    if flags.exchange {
        return Ok(());
    }
    match (source.is_dir(), target.attr.is_dir()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        _ if target.entries > 0 => Err(Errno::ENOTEMPTY.into()),
        _ => Ok(()),
    }
}

/// The entry under its new name, and no more under the old. Two names in one chain of equal
/// hashes are never tidied up in the same batch: each change is made from the store.
///
/// With a whiteout `left` behind the old name stays where it is.
fn move_entry(
    view: &View<'_>,
    tx: &mut Batch,
    found: &Move<'_>,
    left: Option<Fid>,
) -> Result<(), Fault> {
    let attr = &found.source.attr;
    let what = (attr.fid, attr.kind());
    let new = found.found.place();
    let old = &found.source_place;
    let chained = (new.parent, new.hash) == (old.parent, old.hash);
    match found.found {
        Found::Entry { .. } => put(tx, &new, found.to.1, what),
        Found::Absent { .. } if chained && left.is_none() => {
            put(tx, old, found.to.1, what);
            return Ok(());
        }
        Found::Absent { extends, .. } => insert(view, tx, (&new, extends), found.to.1, what)?,
    }
    if let Some(fid) = left {
        // Whoever looks for the new name may have to come by here.
        let is_new = matches!(found.found, Found::Absent { .. });
        let place = if is_new && new.follows(old) { old.followed() } else { *old };
        put(tx, &place, found.from.1, (fid, FileKind::CharDevice));
        return Ok(());
    }
    if chained {
        white_out(tx, old);
        return Ok(());
    }
    remove(view, tx, old)
}

/// The inode's link-EA and times, and both directories.
fn move_inode(
    tx: &mut Batch,
    scratch: &mut Vec<u8>,
    found: Move<'_>,
    left: Option<Fid>,
    stamp: &Stamp,
) -> Dirs {
    let Move { from, to, mut source, mut old_dir, new_dir, target, .. } = found;
    let directory = u32::from(source.attr.is_dir());
    stamp.touch(&mut source.attr);
    relink(scratch, source.links, from, to);
    let fid = source.attr.fid;
    put_inode(tx, &Inode { links: scratch, ..source });
    debug_assert!(fid != old_dir.attr.fid, "a directory is not its own child");
    let replaced = u64::from(target.is_some());
    let replaced_dir = u32::from(target.is_some_and(|target| target.attr.is_dir()));
    stamp.touch_content(&mut old_dir.attr);
    old_dir.entries -= u64::from(left.is_none());
    let new_dir = match new_dir {
        Some(mut new_dir) => {
            old_dir.attr.nlink -= directory;
            stamp.touch_content(&mut new_dir.attr);
            new_dir.entries += 1 - replaced;
            new_dir.attr.nlink = new_dir.attr.nlink + directory - replaced_dir;
            put_inode(tx, &new_dir);
            Some(new_dir.attr)
        }
        None => {
            old_dir.entries += 1 - replaced;
            old_dir.attr.nlink -= replaced_dir;
            None
        }
    };
    put_inode(tx, &old_dir);
    (Some(old_dir.attr), new_dir)
}

/// The device that is left under the old name.
fn make_whiteout(
    view: &View<'_>,
    (tx, scratch): (&mut Batch, &mut Vec<u8>),
    found: &Move<'_>,
    (fid, cred): (Fid, Cred),
    stamp: &Stamp,
) -> Result<(), Fault> {
    let kind = FileKind::CharDevice;
    let intent =
        Intent { flags: OpenFlags::default(), id: OpenId { id: 0 }, cred, want: Ibits::NONE };
    let mode = kind.mode_bits();
    let mut new = New { fid, mode, rdev: 0, symlink: &[], policy: None, intent, open: false };
    check_new(&new)?;
    let lists = Lists::of(view, &found.old_dir, kind, &mut new)?;
    scratch.clear();
    put_link(scratch, found.from.0, found.from.1);
    let mut inode = inode(&new, kind, (&found.old_dir, None), (stamp, scratch));
    inode.xattrs = lists.put(tx, view.hash_key, fid);
    put_inode(tx, &inode);
    Ok(())
}

fn relink(scratch: &mut Vec<u8>, links: &[u8], from: Spot<'_>, to: Spot<'_>) {
    let mut rest = Vec::with_capacity(links.len());
    without_link(links, from.0, from.1, &mut rest);
    scratch.clear();
    with_link(&rest, to.0, to.1, scratch);
}

/// Two names swap their inodes.
fn exchange(
    tx: &mut Batch,
    scratch: &mut Vec<u8>,
    found: Move<'_>,
    stamp: &Stamp,
) -> Result<Dirs, Fault> {
    let Move { from, to, mut source, source_place, target, found, mut old_dir, mut new_dir } =
        found;
    let mut target = target.ok_or(Errno::ENOENT)?;
    let what = |inode: &Inode<'_>| -> (Fid, FileKind) { (inode.attr.fid, inode.attr.kind()) };
    put(tx, &source_place, from.1, what(&target));
    put(tx, &found.place(), to.1, what(&source));
    let (up, down) = (u32::from(source.attr.is_dir()), u32::from(target.attr.is_dir()));
    stamp.touch_content(&mut old_dir.attr);
    if let Some(new_dir) = &mut new_dir {
        stamp.touch_content(&mut new_dir.attr);
        new_dir.attr.nlink = new_dir.attr.nlink + up - down;
        old_dir.attr.nlink = old_dir.attr.nlink + down - up;
        put_inode(tx, new_dir);
    }
    put_inode(tx, &old_dir);
    stamp.touch(&mut source.attr);
    relink(scratch, source.links, from, to);
    put_inode(tx, &Inode { links: scratch, ..source });
    stamp.touch(&mut target.attr);
    relink(scratch, target.links, to, from);
    put_inode(tx, &Inode { links: scratch, ..target });
    Ok((Some(old_dir.attr), new_dir.map(|dir| dir.attr)))
}
