//! `Open`: an open by FID, also as the intent of a create that found its name taken.

use std::sync::Arc;

use sateen_ldlm::Need;
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, FileKind, Layout};
use sateen_wire::disk::mdt::Inode;
use sateen_wire::{Cred, Grants, Ibits, LockMode, MdtReply, OpenFlags, OpenId};

use super::setattr::{can_cut, cuts, drop_set_id, log_punch, set_size};
use super::xattr::drop_capabilities;
use super::{is_regular, put_inode, shown};
use crate::layouts::Made;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome, Punch, reply};
use crate::opens::{Opens, Purpose};
use crate::view::{Stamp, View};

/// How a file is to be opened.
pub(super) struct Intent {
    pub(super) flags: OpenFlags,
    pub(super) id: OpenId,
    pub(super) cred: Cred,
    pub(super) want: Ibits,
}

/// An open file, for the answer.
pub(super) struct Opened {
    pub(super) attr: Attr,
    pub(super) layout: Option<Arc<Layout>>,
}

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    intent: &Intent,
) -> Result<Outcome, Fault> {
    open_file(mdt, op, fid, intent, |Opened { attr, layout }| MdtReply::Opened { attr, layout })
}

/// Opens an inode; `body` makes the answer.
pub(super) fn open_file(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    intent: &Intent,
    body: impl FnOnce(Opened) -> MdtReply,
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    let before = inode.attr;
    let regular = is_regular(&before);
    let OpenFlags { write, truncate, .. } = intent.flags;
    match before.kind() {
        FileKind::Directory if write || truncate => return Err(Errno::EISDIR.into()),
        FileKind::Symlink => return Err(Errno::ELOOP.into()),
        _ => {}
    }
    mdt.clients.may_open(op.client, intent.id)?;
    let truncate = truncate && regular;
    let write = write && regular;
    if write || truncate {
        if mdt.opens.runs_elsewhere(fid, op.client) {
            return Err(Errno::ETXTBSY.into());
        }
        op.need_fences()?;
        let data = Need::all_gone(fid, Ibits::DATA);
        let joins = !truncate && joins(&mdt.opens, &inode);
        // While objects are to be cut nobody begins to write.
        if truncate {
            op.need_as_outsider(&mut mdt.locks, &data)?;
        } else if !joins || mdt.locks.is_held(&data) {
            // Members of a group open what others of it have locked.
            op.need_beside_groups(&mut mdt.locks, &data)?;
        }
    }
    let made = first_layout(mdt, op, fid, write)?;
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    if let Some(made) = &made {
        inode.layout = &made.bytes;
        inode.attr.layout_gen = made.layout.generation;
    }
    if truncate && cuts(&inode, 0) {
        can_cut(&mut mdt.layouts, &mdt.alloc, &inode)?;
    }
    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    if truncate {
        drop_capabilities(&view, tx, &mut inode)?;
    }
    let stale = before.size_stale && mdt.opens.writers(fid) > 0;
    let cut = truncate && cut_to_nothing(tx, &mut inode, stale, (&stamp, &intent.cred));
    let started = write && !(has_begun(&before) && made.is_none());
    let settled = inode.attr;
    if write {
        inode.attr.size_stale = true;
        inode.attr.maybe_objects = true;
    }
    let layout = if regular { mdt.layouts.get(inode.layout)? } else { None };
    let attr = inode.attr;
    let mut transno = 0;
    if started || truncate {
        inode.attr.version = stamp.transno;
        put_inode(tx, &inode);
        transno = op.commit(&mut mdt.core, &mut mdt.batch);
    }
    let version = if transno == 0 { attr.version } else { transno };
    let attr = Attr { version, ..attr };
    if truncate {
        mdt.opens.reported(fid, true);
    }
    let purpose = Purpose { write, exec: intent.flags.exec && regular };
    mdt.opens.open(&settled, op.client, purpose);
    mdt.clients.open(op.client, intent.id, (fid, purpose));
    let mut grants = Grants::NONE;
    let data = if write { LockMode::Pw } else { LockMode::Pr };
    op.grant_inode(&mut mdt.locks, &mut grants, fid, (intent.want, data));
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    let answer = reply(body(Opened { attr, layout: layout.clone() }), transno, grants);
    Ok(match layout {
        Some(layout) if cut => Outcome::Punch(answer, Punch { fid, size: 0, layout }),
        _ => Outcome::Reply(answer),
    })
}

/// Whether a file's write session has begun: its writers count on that it is known to have objects,
/// and that its size is not.
pub(super) const fn has_begun(attr: &Attr) -> bool {
    attr.size_stale && attr.maybe_objects
}

/// Whether one more who opens a file for writing changes nothing: others have begun the session, and
/// it has its layout. Who has its data cached keeps that until somebody writes, and asks for a lock.
fn joins(opens: &Opens, inode: &Inode<'_>) -> bool {
    opens.writers(inode.attr.fid) > 0 && has_begun(&inode.attr) && !inode.layout.is_empty()
}

/// Begins the session of a file that is open for writing since the run before, of which the
/// transaction is lost that had begun it, in one of the MDT's own. Returns the inode then.
pub(super) fn begin_anew(mdt: &mut Mdt, op: &Op<'_>, fid: Fid) -> Result<Attr, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    if has_begun(&inode.attr) {
        return Ok(inode.attr);
    }
    if inode.layout.is_empty() {
        // The writer may know the one that it had, and it is lost.
        return Err(Errno::ESTALE.into());
    }
    (inode.attr.size_stale, inode.attr.maybe_objects) = (true, true);
    inode.attr.version = op.stamp(&mdt.core).transno;
    let attr = inode.attr;
    mdt.batch.clear();
    put_inode(&mut mdt.batch, &inode);
    mdt.core.commit(&mdt.batch);
    Ok(attr)
}

/// `O_TRUNC`. Returns whether objects have to be cut. `stale`: other writers are at it.
pub(super) fn cut_to_nothing(
    tx: &mut Batch,
    inode: &mut Inode<'_>,
    stale: bool,
    (stamp, cred): (&Stamp, &Cred),
) -> bool {
    let cut = cuts(inode, 0);
    set_size(&mut inode.attr, 0);
    inode.attr.size_stale = stale;
    stamp.touch_content(&mut inode.attr);
    if cred.uid != 0 {
        drop_set_id(&mut inode.attr);
    }
    if cut {
        log_punch(tx, stamp.transno, inode);
    }
    cut
}

/// A layout for a file that is to be written and has none yet.
fn first_layout(mdt: &mut Mdt, op: &Op<'_>, fid: Fid, write: bool) -> Result<Option<Made>, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let Inode { layout, policy, attr, .. } = view.file(fid)?;
    if !write || !layout.is_empty() {
        return Ok(None);
    }
    let said = mdt.alloc.resolve(policy, None);
    match mdt.alloc.choose(&said, attr.layout_gen + 1)? {
        Some(made) => Ok(Some(made)),
        None => Err(Errno::ENOSPC.into()),
    }
}
