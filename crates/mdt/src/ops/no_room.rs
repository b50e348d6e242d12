//! `NoRoom`: a write found no room on an OST, which is taken for full at once. If it was the first
//! write of its file, that gets another layout, if that is safe and nobody said where it lies.
//!
//! Safe it is because there is no object of the file, nor will there be one by the old layout:
//! 1. Nothing was written since it had no objects, as far as reports say (`fresh`, not `wrote`), and
//!    nobody was lost who could have.
//! 2. The caller alone has it open for writing and holds its data. What he wrote without having
//!    reported it he knows himself: he says so only if there is nothing, and has nothing under way.
//! 3. An OST answers `ENOSPC` before anything is done.
//!
//! Who writes waits until the new layout is durable: or a crash could leave objects by a layout that
//! nobody knows any more.

use std::sync::Arc;

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Errno, Fid, Layout};
use sateen_wire::disk::mdt::Inode;
use sateen_wire::{Grants, Ibits, MdtReply};

use super::create::handed_by;
use super::{is_regular, put_inode, shown, writes_data};
use crate::alloc::Allocator;
use crate::layouts::{LayoutCache, Made};
use crate::mdt::Mdt;
use crate::names::parent_of;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    (ost, unwritten): (u32, bool),
) -> Result<Outcome, Fault> {
    // Not once more when it has waited for a lock: the OST may have told of room since.
    if op.ticket.is_none() {
        mdt.alloc.had_no_room(ost);
        mdt.osp.had_no_room(ost);
    }
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    if !is_regular(&inode.attr) {
        return Err(Errno::EINVAL.into());
    }
    let now = mdt.layouts.get(inode.layout)?.ok_or(Errno::EINVAL)?;
    let mut made = None;
    if unwritten && lies_on(&now, ost) && is_unwritten(mdt, op, fid) {
        op.need(&mut mdt.locks, &[Need::all_gone(fid, Ibits::UPDATE.union(Ibits::LAYOUT))])?;
        made = elsewhere(&view, (&mut mdt.layouts, &mut mdt.alloc), &inode)?;
    }
    let mut transno = 0;
    if let Some(made) = &made {
        let stamp = op.stamp(&mdt.core);
        inode.layout = &made.bytes;
        inode.attr.layout_gen = made.layout.generation;
        inode.attr.version = stamp.transno;
        mdt.batch.clear();
        put_inode(&mut mdt.batch, &inode);
    }
    let attr = inode.attr;
    if made.is_some() {
        transno = op.commit(&mut mdt.core, &mut mdt.batch);
    }
    let layout = Some(made.map_or(now, |made| made.layout));
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    Ok(Outcome::ok(MdtReply::Opened { attr, layout }, transno, Grants::NONE))
}

fn lies_on(layout: &Arc<Layout>, ost: u32) -> bool {
    layout.objects().any(|(_, at)| at == ost)
}

/// Whether the caller alone could have written to the file, and has not said that he has.
fn is_unwritten(mdt: &Mdt, op: &Op<'_>, fid: Fid) -> bool {
    let Some(file) = mdt.opens.get(fid) else { return false };
    let alone = file.writers > 0 && file.writers == mdt.clients.writers(op.client, fid);
    file.fresh && !file.wrote && alone && mdt.locks.covers(op.client, &writes_data(fid))
}

/// Another layout over OSTs that have room, by what is said of the file and by its directory; `None` if
/// there is none, or the file's own OSTs were chosen.
fn elsewhere(
    view: &View<'_>,
    (layouts, alloc): (&mut LayoutCache, &mut Allocator),
    inode: &Inode<'_>,
) -> Result<Option<Made>, Fault> {
    let wish = inode.policy;
    if inode.links.is_empty() || wish.is_some_and(|wish| wish.stripe_offset.is_some()) {
        return Ok(None);
    }
    let Some(parent) = view.inode(parent_of(inode.links))? else { return Ok(None) };
    let handed = handed_by(layouts, &parent)?;
    let made = match alloc.place(wish, &handed, inode.attr.layout_gen + 1) {
        Ok(made) => made,
        Err(Errno::ENOSPC) => None,
        Err(errno) => return Err(errno.into()),
    };
    // Where there is none either, it need not go.
    Ok(made.filter(|made| made.layout.objects().all(|(_, at)| alloc.has_room(at))))
}
