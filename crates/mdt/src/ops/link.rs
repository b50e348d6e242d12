//! `Link`: a further hard link.

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::disk::mdt::Inode;
use sateen_wire::{Grants, Ibits, MdtReply};

use super::{LINK_MAX, LINKABLE, put_inode, shown};
use crate::keys;
use crate::mdt::Mdt;
use crate::names::{Found, find, insert, with_link};
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    (parent, name): (Fid, &[u8]),
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let dir = view.dir(parent);
    let found = find(&view, parent, name);
    let mut dir = dir?;
    let Found::Absent { place, extends } = found? else { return Err(Errno::EEXIST.into()) };
    let mut inode = view.file(fid)?;
    if inode.attr.is_dir() {
        return Err(Errno::EPERM.into());
    }
    let nameless = inode.attr.nlink == 0;
    let linkable = match op.again {
        // Who has it open is told later.
        Some(_) => view.get(&keys::orphan(fid))? == Some(&[LINKABLE][..]),
        None => mdt.opens.get(fid).is_some_and(|file| file.linkable),
    };
    if nameless && !linkable {
        return Err(Errno::ENOENT.into());
    }
    if inode.attr.nlink >= LINK_MAX {
        return Err(Errno::EMLINK.into());
    }
    op.need_room(&mdt.room)?;
    let needs = [Need::all_gone(parent, Ibits::UPDATE), Need::all_gone(fid, Ibits::UPDATE)];
    op.need(&mut mdt.locks, &needs)?;

    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    insert(&view, tx, (&place, extends), name, (fid, inode.attr.kind()))?;
    dir.entries += 1;
    stamp.touch_content(&mut dir.attr);
    put_inode(tx, &dir);
    inode.attr.nlink += 1;
    stamp.touch(&mut inode.attr);
    mdt.scratch.clear();
    with_link(inode.links, parent, name, &mut mdt.scratch);
    let inode = Inode { links: &mdt.scratch, ..inode };
    put_inode(tx, &inode);
    if nameless {
        tx.remove(&keys::orphan(fid));
    }
    let attr = inode.attr;
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    if let Some(file) = mdt.opens.get_mut(fid) {
        // As in Linux, what has had a name is not given another once it has lost its last.
        (file.orphan, file.linkable) = (false, false);
    }
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    Ok(Outcome::ok(MdtReply::Inode { attr }, transno, Grants::NONE))
}
