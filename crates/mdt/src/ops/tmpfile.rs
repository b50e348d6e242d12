//! `Tmpfile`: an open file without a name, an orphan from birth. Its directory only says where
//! it is made, and what it inherits: it is not changed.

use sateen_target::Fault;
use sateen_types::{Errno, FileKind};
use sateen_wire::MdtRequest;

use super::create::{Lists, New, check, created, handed_by, inode, is_unused, layout_for};
use super::open::Intent;
use super::{LINKABLE, put_inode};
use crate::destroy::count;
use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(mdt: &mut Mdt, op: &mut Op<'_>, request: &MdtRequest) -> Result<Outcome, Fault> {
    let MdtRequest::Tmpfile { parent, fid, mode, cred, flags, open_id, linkable, want } = request
    else {
        return Err(Errno::EINVAL.into());
    };
    let (fid, linkable) = (*fid, *linkable);
    let intent = Intent { flags: *flags, id: *open_id, cred: *cred, want: *want };
    let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
    let mut new = New { fid, mode, rdev: 0, symlink: &[], policy: None, intent, open: true };
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let dir = view.dir(*parent)?;
    let kind = check(&new)?;
    op.need_room(&mdt.room)?;
    is_unused(&mdt.seqs, &view, op, fid)?;
    if op.again.is_none() {
        mdt.clients.may_open(op.client, new.intent.id)?;
    }
    let lists = Lists::of(&view, &dir, kind, &mut new)?;
    let handed = handed_by(&mut mdt.layouts, &dir)?;
    let made = match op.again {
        None => layout_for(&mut mdt.alloc, kind, &new, &handed)?,
        Some(again) => again.layout(kind),
    };

    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    let mut inode = inode(&new, kind, (&dir, made.as_ref()), (&stamp, &[]));
    if op.again.is_some_and(|again| !again.makes(&inode.attr)) {
        return Err(Errno::ESTALE.into());
    }
    inode.attr.nlink = 0;
    inode.xattrs = lists.put(tx, view.hash_key, fid);
    put_inode(tx, &inode);
    // Once it has had a name it has no such record, or another.
    tx.put_with(&keys::orphan(fid), |out| out.extend(linkable.then_some(LINKABLE)));
    let attr = inode.attr;
    mdt.inodes = count(tx, mdt.inodes, 1);
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    let outcome = created(mdt, op, &new, (attr, made, None), transno);
    if let Some(file) = mdt.opens.get_mut(fid) {
        file.linkable = linkable;
    }
    Ok(outcome)
}
