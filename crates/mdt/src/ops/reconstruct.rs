//! A request that is asked again after a crash, and that the run before has executed: its reply slot
//! is there, and with it everything that it did. Only the answer is lost, and is made again here from
//! the names and FIDs of the request and from what there is. Others may have gone on with that since,
//! which is as if they had done so right after the answer.
//!
//! Locks do not come along: who wants some asks for them. What lay in memory alone is done again: an
//! open that was not told of is one once more. So is what changes nothing when it is done twice.

use sateen_target::Fault;
use sateen_types::{Attr, Fid};
use sateen_wire::{Grants, HeldOpen, MdtReply, MdtRequest, OpenFlags, OpenId};

use super::open::{self, Intent, Opened, has_begun, open_file};
use super::shown;
use crate::mdt::Mdt;
use crate::names::{Found, find};
use crate::op::{Op, Outcome};
use crate::view::View;

/// A name in a directory.
type Spot<'a> = (Fid, &'a [u8]);

/// The answer; `None` if there is nothing that it could be made from.
pub(crate) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    request: &MdtRequest,
    transno: u64,
) -> Result<Option<Outcome>, Fault> {
    match request {
        MdtRequest::Create { .. } => create(mdt, op, request, transno),
        // An orphan that nobody has told of is gone.
        MdtRequest::Tmpfile { .. } => Ok(None),
        MdtRequest::Open { fid, flags, open_id, cred, want } => {
            let flags = OpenFlags { truncate: false, ..*flags };
            let intent = Intent { flags, id: *open_id, cred: *cred, want: *want };
            let opened = open::run(mdt, op, *fid, &intent)?;
            Ok(Some(when_cut(opened, transno)))
        }
        MdtRequest::Close { open_id, .. } if mdt.clients.opened(op.client, *open_id).is_none() => {
            Ok(Some(Outcome::done(transno)))
        }
        MdtRequest::Unlink { .. } => {
            let body = MdtReply::Removed { attr: None, parent: None };
            Ok(Some(Outcome::ok(body, transno, Grants::NONE)))
        }
        MdtRequest::Rename { parent, name, new_parent, new_name, flags } => {
            let (from, to) = ((*parent, name.as_bytes()), (*new_parent, new_name.as_bytes()));
            renamed(mdt, op, (from, to), flags.exchange, transno)
        }
        MdtRequest::RenameWhiteout { parent, name, new_parent, new_name, .. } => {
            let (from, to) = ((*parent, name.as_bytes()), (*new_parent, new_name.as_bytes()));
            renamed(mdt, op, (from, to), false, transno)
        }
        MdtRequest::Link { fid, .. } | MdtRequest::SetAttr { fid, .. } => {
            let Some(attr) = attr(mdt, op, *fid)? else { return Ok(None) };
            let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
            let outcome = Outcome::ok(MdtReply::Inode { attr }, transno, Grants::NONE);
            Ok(Some(when_cut(outcome, transno)))
        }
        MdtRequest::SetXattr { .. }
        | MdtRequest::RemoveXattr { .. }
        | MdtRequest::SetStripe { .. }
        | MdtRequest::SetLayout { .. } => Ok(Some(Outcome::done(transno))),
        // A size told once more is the same, another sequence as good, and no file moves twice.
        _ => super::run(mdt, op, request).map(Some),
    }
}

/// Whoever has truncated goes on when all objects are cut: the start has found it in the llog.
fn when_cut(outcome: Outcome, transno: u64) -> Outcome {
    match outcome {
        Outcome::Reply(reply) => Outcome::WhenCut(reply, transno),
        other => other,
    }
}

fn attr(mdt: &Mdt, op: &Op<'_>, fid: Fid) -> Result<Option<Attr>, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    Ok(view.inode(fid)?.map(|inode| inode.attr))
}

pub(super) fn named(
    mdt: &Mdt,
    op: &Op<'_>,
    (parent, name): Spot<'_>,
) -> Result<Option<Fid>, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    Ok(match find(&view, parent, name)? {
        Found::Entry { fid, .. } => Some(fid),
        Found::Absent { .. } => None,
    })
}

fn renamed(
    mdt: &Mdt,
    op: &Op<'_>,
    (from, to): (Spot<'_>, Spot<'_>),
    exchange: bool,
    transno: u64,
) -> Result<Option<Outcome>, Fault> {
    let Some(moved) = named(mdt, op, to)? else { return Ok(None) };
    let swapped = if exchange { named(mdt, op, from)? } else { None };
    if exchange && swapped.is_none() {
        return Ok(None);
    }
    let (parent, new_parent) = (None, None);
    let body = MdtReply::Renamed { moved, swapped, replaced: None, parent, new_parent };
    Ok(Some(Outcome::ok(body, transno, Grants::NONE)))
}

/// What it has made has the FID that it was to have; otherwise it has opened what had the name.
fn create(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    request: &MdtRequest,
    transno: u64,
) -> Result<Option<Outcome>, Fault> {
    let MdtRequest::Create { parent, name, fid, cred, open, open_id, want, .. } = request else {
        return Ok(None);
    };
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let Some(inode) = view.inode(*fid)? else {
        let (Some(flags), Some(there)) = (open, named(mdt, op, (*parent, name.as_bytes()))?) else {
            return Ok(None);
        };
        let flags = OpenFlags { truncate: false, ..*flags };
        let intent = Intent { flags, id: *open_id, cred: *cred, want: *want };
        let opened = open_file(mdt, op, there, &intent, |Opened { attr, layout }| {
            MdtReply::Created { attr, layout, existed: true, parent: None }
        })?;
        return Ok(Some(when_cut(opened, transno)));
    };
    let attr = inode.attr;
    let layout = if super::is_regular(&attr) { mdt.layouts.get(inode.layout)? } else { None };
    if let Some(flags) = open
        && !reopened(mdt, op, (*fid, *open_id, *flags), &attr)?
    {
        return Ok(None);
    }
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    let body = MdtReply::Created { attr, layout, existed: false, parent: None };
    Ok(Some(Outcome::ok(body, transno, Grants::NONE)))
}

/// Whether the file that was made is open again: it has not lost its name since.
fn reopened(
    mdt: &mut Mdt,
    op: &Op<'_>,
    (fid, open_id, flags): (Fid, OpenId, OpenFlags),
    attr: &Attr,
) -> Result<bool, Fault> {
    if attr.nlink == 0 || flags.write && !has_begun(attr) {
        return Ok(false);
    }
    let open = HeldOpen { open_id, fid, flags, closing: false };
    mdt.reopen(op.client, &open, (attr, false))?;
    Ok(true)
}
