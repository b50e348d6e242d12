//! A request that is asked again after a crash, and that the run before has executed: its reply slot
//! is there, and with it everything that it did. Only the answer is lost, and is made again here from
//! the names and FIDs of the request and from what there is. Others may have gone on with that since,
//! which is as if they had done so right after the answer. Of a file that was made to be open and is
//! gone by now nothing can be made again, since objects of its FID may be on their way out: its client
//! hears `ESTALE`, and makes another.
//!
//! Locks do not come along: who wants some asks for them. What lay in memory alone is done again: an
//! open that was not told of is one once more. So is what changes nothing when it is done twice.

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid};
use sateen_wire::{Grants, HeldOpen, Ibits, MdtReply, MdtRequest, OpenFlags};

use super::create::{Lists, New, check, existing, inode};
use super::open::{self, Intent, begin_anew, has_begun};
use super::shown;
use crate::mdt::Mdt;
use crate::names::{Found, find};
use crate::op::{Op, Outcome};
use crate::view::View;

/// A name in a directory.
type Spot<'a> = (Fid, &'a [u8]);

/// The answer.
///
/// # Errors
/// `ESTALE` if there is nothing that it could be made from: another file is to be made.
pub(crate) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    request: &MdtRequest,
    transno: u64,
) -> Result<Outcome, Fault> {
    match request {
        MdtRequest::Create { .. } => create(mdt, op, request, transno),
        MdtRequest::Tmpfile { fid, flags, open_id, linkable, cred, want, .. } => {
            let intent = Intent { flags: *flags, id: *open_id, cred: *cred, want: *want };
            match attr(mdt, op, *fid)? {
                // Nobody has told that it is open, so it is gone, and its objects go. Nobody else has
                // seen it: the client makes another, of another FID.
                None => Err(Errno::ESTALE.into()),
                Some(_) => reopened(mdt, op, (*fid, *linkable), &intent, transno),
            }
        }
        MdtRequest::Open { fid, flags, open_id, cred, want } => {
            let flags = OpenFlags { truncate: false, ..*flags };
            let intent = Intent { flags, id: *open_id, cred: *cred, want: *want };
            let opened = open::run(mdt, op, *fid, &intent)?;
            Ok(when_cut(opened, transno))
        }
        MdtRequest::Close { open_id, .. } if mdt.clients.opened(op.client, *open_id).is_none() => {
            Ok(Outcome::done(transno))
        }
        MdtRequest::Unlink { .. } => {
            let body = MdtReply::Removed { attr: None, parent: None };
            Ok(Outcome::ok(body, transno, Grants::NONE))
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
            // Whoever has removed it might have come first.
            let attr = attr(mdt, op, *fid)?.ok_or(Errno::ENOENT)?;
            let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
            let outcome = Outcome::ok(MdtReply::Inode { attr }, transno, Grants::NONE);
            Ok(when_cut(outcome, transno))
        }
        MdtRequest::SetXattr { .. }
        | MdtRequest::RemoveXattr { .. }
        | MdtRequest::SetStripe { .. }
        | MdtRequest::SetLayout { .. } => Ok(Outcome::done(transno)),
        // A size told once more is the same, another sequence as good, and no file moves twice.
        _ => super::run(mdt, op, request),
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
) -> Result<Outcome, Fault> {
    // What it is told for: that the client's lock on it may know too little. Whoever has moved it on
    // since has called that lock back, so that any inode will do.
    let moved = named(mdt, op, to)?.unwrap_or(to.0);
    let swapped = if exchange { named(mdt, op, from)? } else { None };
    let (parent, new_parent) = (None, None);
    let body = MdtReply::Renamed { moved, swapped, replaced: None, parent, new_parent };
    Ok(Outcome::ok(body, transno, Grants::NONE))
}

/// What it has made has the FID that it was to have; otherwise it has opened what had the name.
fn create(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    request: &MdtRequest,
    transno: u64,
) -> Result<Outcome, Fault> {
    let MdtRequest::Create { parent, name, fid, cred, open, open_id, exclusive, want, .. } =
        request
    else {
        return Err(Errno::EINVAL.into());
    };
    let there = attr(mdt, op, *fid)?;
    let Some(flags) = *open else {
        return match there {
            Some(attr) => made(mdt, op, attr, transno),
            None => gone(mdt, op, request, transno),
        };
    };
    let flags = OpenFlags { truncate: false, ..flags };
    let intent = Intent { flags, id: *open_id, cred: *cred, want: *want };
    if there.is_some() {
        return reopened(mdt, op, (*fid, false), &intent, transno);
    }
    // Who wanted to be the one that makes it has not opened what somebody else has made since.
    let there = if *exclusive { None } else { named(mdt, op, (*parent, name.as_bytes()))? };
    let there = there.ok_or(Errno::ESTALE)?;
    let kind = attr(mdt, op, there)?.ok_or(Errno::ESTALE)?.kind();
    Ok(when_cut(existing(mdt, op, (there, kind), &intent)?, transno))
}

/// The answer to a create of something that is not to be open, and is gone again.
fn gone(mdt: &Mdt, op: &Op<'_>, request: &MdtRequest, transno: u64) -> Result<Outcome, Fault> {
    let MdtRequest::Create {
        parent, fid, mode, rdev, cred, symlink, policy, open_id, want, ..
    } = request
    else {
        return Err(Errno::EINVAL.into());
    };
    let intent = Intent { flags: OpenFlags::default(), id: *open_id, cred: *cred, want: *want };
    let (mode, rdev, policy) = (*mode, *rdev, *policy);
    let mut new = New { fid: *fid, mode, rdev, symlink, policy, intent, open: false };
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let dir = view.dir(*parent)?;
    let kind = check(&new)?;
    Lists::of(&view, &dir, kind, &mut new)?;
    let stamp = op.stamp(&mdt.core);
    let attr = Attr { nlink: 0, ..inode(&new, kind, (&dir, None), (&stamp, &[])).attr };
    let body = MdtReply::Created { attr, layout: None, existed: false, parent: None };
    Ok(Outcome::ok(body, transno, Grants::NONE))
}

/// The answer to a create of what is there.
fn made(mdt: &mut Mdt, op: &Op<'_>, attr: Attr, transno: u64) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let layout = match view.inode(attr.fid)? {
        Some(inode) if super::is_regular(&attr) => mdt.layouts.get(inode.layout)?,
        _ => None,
    };
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    let body = MdtReply::Created { attr, layout, existed: false, parent: None };
    Ok(Outcome::ok(body, transno, Grants::NONE))
}

/// The file that was made is open again. Whoever has opened it by its name, and closed it, has ended
/// its write session, which is begun as by an open then; but in a transaction of the MDT's own, since
/// what the client has made again after the next crash is a create.
fn reopened(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, linkable): (Fid, bool),
    intent: &Intent,
    transno: u64,
) -> Result<Outcome, Fault> {
    let mut attr = attr(mdt, op, fid)?.ok_or(Errno::ENOENT)?;
    let begins = intent.flags.write && !has_begun(&attr);
    if begins {
        if mdt.opens.runs_elsewhere(fid, op.client) {
            return Err(Errno::ETXTBSY.into());
        }
        op.need_fences()?;
        op.need_beside_groups(&mut mdt.locks, &Need::all_gone(fid, Ibits::DATA))?;
        attr = begin_anew(mdt, op, fid)?;
    }
    let open = HeldOpen { open_id: intent.id, fid, flags: intent.flags, closing: false };
    mdt.reopen(op.client, &open, (&attr, linkable && attr.nlink == 0))?;
    let upto = if begins { mdt.core.store.transno() } else { transno };
    Ok(match made(mdt, op, attr, transno)? {
        Outcome::Reply(reply) => Outcome::Durable(reply, upto),
        other => other,
    })
}
