//! `Replay`: changes that a crash has taken, as they are told, and how one is made again.
//!
//! Only what is stored is changed. Nobody has locks or opens yet: those who have some tell of them
//! when all changes are made. Therefore a file that loses its last name becomes an orphan in any case,
//! and goes when it is known that nobody has it open; what a close or a cancel has told of a size
//! comes from its answer. So do times, layouts, and whether there was room.
//!
//! What is made is what was answered for: the same names with the same files behind them, and what is
//! new with the same attributes. That is looked at, before anything is changed, instead of a gap in the
//! numbers, because most of what is missing there concerns nobody: an MDT's own transactions, what
//! others have lost of the same files and commutes with this, and what had not been answered yet and
//! is asked again.

use std::sync::Arc;

use sateen_osd::Prefetched;
use sateen_target::{Fault, REPLAY_SLOT};
use sateen_types::{Attr, ClientId, Endpoint, Errno, Fid, Layout, Timestamp};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::ReplySlot;
use sateen_wire::{Cred, Grants, Header, MdtReply, MdtRequest, OpenFlags, Replayed, ReplyBody};

use super::open::cut_to_nothing;
use super::reconstruct::named;
use super::setattr::cuts;
use super::xattr::drop_capabilities;
use super::{is_regular, put_inode};
use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome, reply};
use crate::recovery::Place;
use crate::replays::{Change, made};
use crate::view::View;

/// A client tells of changes.
pub(super) fn run(
    mdt: &mut Mdt,
    op: &Op<'_>,
    (changes, last): (&[Replayed], bool),
) -> Result<Outcome, Fault> {
    match mdt.recovery.place(op.client) {
        Place::Back => return Ok(Outcome::done(0)),
        Place::Expected if mdt.recovery.follows_crash() => {}
        Place::Stranger | Place::Expected => return Err(Errno::ESTALE.into()),
    }
    if let Some(upto) = mdt.recovery.replays.made() {
        // It has not heard that they are.
        return Ok(Outcome::Durable(reply(MdtReply::Done, 0, Grants::NONE), upto));
    }
    let run = mdt.recovery.run_followed();
    let read: Result<Vec<Change>, Errno> =
        changes.iter().map(|told| Change::read(run, op.now, told)).collect();
    let taken = read.is_ok_and(|changes| mdt.recovery.replays.add(op.client, changes));
    if !taken {
        tracing::warn!(client = format_args!("{:x}", op.client.0), "changes that nobody can read");
        mdt.recovery.refuse(op.client);
        return Err(Errno::ESTALE.into());
    }
    if !last {
        return Ok(Outcome::done(0));
    }
    mdt.recovery.replays.told(*op.header);
    // Answered when all are made.
    Err(Fault::Blocked)
}

/// Makes a change again. Returns its transaction; `None` if it is there, or nothing is to be done.
pub(crate) fn again(
    mdt: &mut Mdt,
    now: Timestamp,
    (client, change): (ClientId, &Change),
    fetched: &Prefetched,
) -> Result<Option<u64>, Fault> {
    let view = View::new(&mdt.core, fetched, mdt.config.index);
    if mdt.recovery.is_there(change.transno) {
        return Ok(None);
    }
    if let Some(value) = view.get(&keys::slot(client, REPLAY_SLOT))? {
        let ReplySlot { seq, transno } = ReplySlot::from_bytes(value).map_err(|_| Errno::EIO)?;
        if transno == change.run && seq >= change.transno {
            return Ok(None);
        }
    }
    let between = Header::between(Endpoint::Client(client), mdt.core.config.me, client);
    let header = Header { slot: REPLAY_SLOT, ..between };
    let mut op = Op {
        now,
        header: &header,
        client,
        fetched,
        ticket: None,
        fenced: true,
        waits_for_fences: false,
        moves_tree: false,
        told: false,
        asks_again: false,
        grouped: false,
        again: Some(change),
    };
    if !answers(&change.request, &change.answer) {
        return Err(Errno::EINVAL.into());
    }
    finds_the_same(mdt, &op, change)?;
    let outcome = match (&change.request, &change.answer) {
        (
            MdtRequest::Create { open: Some(flags), cred, .. },
            MdtReply::Created { attr, existed: true, .. },
        ) => opened(mdt, &op, attr.fid, (flags, cred))?,
        (MdtRequest::Open { fid, flags, cred, .. }, MdtReply::Opened { .. }) => {
            opened(mdt, &op, *fid, (flags, cred))?
        }
        (
            MdtRequest::Close { fid, .. }
            | MdtRequest::Cancel { fid, .. }
            | MdtRequest::ReportSize { fid, .. },
            MdtReply::Noted { attr },
        ) => noted(mdt, &op, *fid, attr)?,
        (MdtRequest::NoRoom { fid, .. }, MdtReply::Opened { .. }) => moved(mdt, &op, *fid)?,
        // It was the last one of an orphan, which goes when nobody has told that it is open.
        (MdtRequest::Close { .. }, MdtReply::Done) => return Ok(None),
        (
            MdtRequest::Create { .. }
            | MdtRequest::Tmpfile { .. }
            | MdtRequest::Unlink { .. }
            | MdtRequest::Rename { .. }
            | MdtRequest::RenameWhiteout { .. }
            | MdtRequest::Link { .. }
            | MdtRequest::SetAttr { .. }
            | MdtRequest::SetXattr { .. }
            | MdtRequest::RemoveXattr { .. }
            | MdtRequest::SetStripe { .. }
            | MdtRequest::SetLayout { .. },
            answer,
        ) => {
            let outcome = super::run(mdt, &mut op, &change.request)?;
            let Outcome::Reply(reply) = &outcome else { return Err(Errno::ESTALE.into()) };
            let ReplyBody::Mdt(body) = &reply.body else { return Err(Errno::EIO.into()) };
            if !is_same(answer, body) {
                tracing::error!(?answer, ?body, "a change was made again as another");
                return Err(Errno::ESTALE.into());
            }
            outcome
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    mdt.clients.used_slot(client, REPLAY_SLOT);
    match outcome {
        Outcome::Reply(reply) if reply.transno > 0 => Ok(Some(reply.transno)),
        _ => Ok(None),
    }
}

/// Whether names stand for the same files as the first time.
fn finds_the_same(mdt: &Mdt, op: &Op<'_>, change: &Change) -> Result<(), Fault> {
    let is = |parent: Fid, name: &[u8], fid: Option<Fid>| -> Result<(), Fault> {
        if named(mdt, op, (parent, name))? == fid { Ok(()) } else { Err(Errno::ESTALE.into()) }
    };
    match (&change.request, &change.answer) {
        (MdtRequest::Unlink { parent, name, .. }, MdtReply::Removed { attr: Some(attr), .. }) => {
            is(*parent, name.as_bytes(), Some(attr.fid))
        }
        (
            MdtRequest::Rename { parent, name, new_parent, new_name, .. }
            | MdtRequest::RenameWhiteout { parent, name, new_parent, new_name, .. },
            MdtReply::Renamed { moved, swapped, replaced, .. },
        ) => {
            is(*parent, name.as_bytes(), Some(*moved))?;
            let other = swapped.or(replaced.map(|attr| attr.fid));
            is(*new_parent, new_name.as_bytes(), other)
        }
        (
            MdtRequest::Unlink { .. }
            | MdtRequest::Rename { .. }
            | MdtRequest::RenameWhiteout { .. },
            _,
        ) => Err(Errno::EINVAL.into()),
        _ => Ok(()),
    }
}

/// Whether an answer can be one to this request. Nothing is changed for the sake of one that cannot.
fn answers(request: &MdtRequest, answer: &MdtReply) -> bool {
    match (request, answer) {
        (
            MdtRequest::Create { fid, .. } | MdtRequest::Tmpfile { fid, .. },
            MdtReply::Created { attr, existed: false, .. },
        )
        | (
            MdtRequest::Link { fid, .. } | MdtRequest::SetAttr { fid, .. },
            MdtReply::Inode { attr },
        ) => attr.fid == *fid,
        (
            MdtRequest::SetStripe { .. } | MdtRequest::SetLayout { .. },
            MdtReply::Striping { .. },
        ) => super::stripe::is_answered(request, answer),
        (MdtRequest::SetXattr { .. } | MdtRequest::RemoveXattr { .. }, MdtReply::Done)
        | (MdtRequest::Unlink { .. }, MdtReply::Removed { .. })
        | (
            MdtRequest::Rename { .. } | MdtRequest::RenameWhiteout { .. },
            MdtReply::Renamed { .. },
        ) => true,
        (
            MdtRequest::Link { .. }
            | MdtRequest::SetAttr { .. }
            | MdtRequest::SetStripe { .. }
            | MdtRequest::SetLayout { .. }
            | MdtRequest::SetXattr { .. }
            | MdtRequest::RemoveXattr { .. }
            | MdtRequest::Unlink { .. }
            | MdtRequest::Rename { .. }
            | MdtRequest::RenameWhiteout { .. }
            | MdtRequest::Tmpfile { .. },
            _,
        ) => false,
        // Opens and reports, too, each with answers of its own.
        _ => true,
    }
}

/// Whether this is about what was answered for the first time. What others have changed of it, and lost,
/// is another matter.
fn is_same(first: &MdtReply, again: &MdtReply) -> bool {
    match (first, again) {
        (MdtReply::Done, MdtReply::Done) => true,
        (a @ MdtReply::Striping { .. }, b @ MdtReply::Striping { .. }) => a == b,
        (MdtReply::Inode { attr: a }, MdtReply::Inode { attr: b })
        | (MdtReply::Removed { attr: Some(a), .. }, MdtReply::Removed { attr: Some(b), .. })
        | (
            MdtReply::Created { attr: a, existed: false, .. },
            MdtReply::Created { attr: b, existed: false, .. },
        ) => a.fid == b.fid,
        (MdtReply::Renamed { moved: a, .. }, MdtReply::Renamed { moved: b, .. }) => a == b,
        _ => false,
    }
}

/// An open that has begun a write session, or has cut a file that had nothing to be cut.
fn opened(
    mdt: &mut Mdt,
    op: &Op<'_>,
    fid: Fid,
    (flags, cred): (&OpenFlags, &Cred),
) -> Result<Outcome, Fault> {
    let layout = laid_out(op);
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    let before = inode.attr;
    if !is_regular(&before) {
        return Ok(Outcome::done(0));
    }
    let made = made(layout.filter(|_| flags.write && inode.layout.is_empty()));
    if let Some(made) = &made {
        inode.layout = &made.bytes;
        inode.attr.layout_gen = made.layout.generation;
    }
    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    if flags.truncate {
        if cuts(&inode, 0) {
            // The first time it was durable before it was answered.
            return Err(Errno::ESTALE.into());
        }
        drop_capabilities(&view, tx, &mut inode)?;
        cut_to_nothing(tx, &mut inode, false, (&stamp, cred));
    }
    if flags.write {
        if inode.layout.is_empty() {
            return Err(Errno::ESTALE.into());
        }
        (inode.attr.size_stale, inode.attr.maybe_objects) = (true, true);
    }
    if inode.attr == before {
        return Ok(Outcome::done(0));
    }
    inode.attr.version = stamp.transno;
    put_inode(tx, &inode);
    Ok(Outcome::done(op.commit(&mut mdt.core, &mut mdt.batch)))
}

/// The layout in the answer to an open.
fn laid_out<'a>(op: &Op<'a>) -> Option<&'a Arc<Layout>> {
    match op.again.map(|again| &again.answer) {
        Some(MdtReply::Created { layout, .. } | MdtReply::Opened { layout, .. }) => layout.as_ref(),
        _ => None,
    }
}

/// A file that was moved before it was first written.
fn moved(mdt: &mut Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let made = made(laid_out(op)).ok_or(Errno::EINVAL)?;
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    if made.layout.generation != inode.attr.layout_gen + 1 {
        return Err(Errno::ESTALE.into());
    }
    inode.layout = &made.bytes;
    inode.attr.layout_gen = made.layout.generation;
    inode.attr.version = op.stamp(&mdt.core).transno;
    mdt.batch.clear();
    put_inode(&mut mdt.batch, &inode);
    Ok(Outcome::done(op.commit(&mut mdt.core, &mut mdt.batch)))
}

/// What a report has changed in an inode is in its answer: by which locks it was believed, and who
/// else was writing, nobody knows any more.
fn noted(mdt: &mut Mdt, op: &Op<'_>, fid: Fid, attr: &Attr) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    let is_of_it = op.again.is_some_and(|change| attr.version == change.transno);
    if attr.fid != fid || attr.kind() != inode.attr.kind() || !is_of_it {
        return Err(Errno::EINVAL.into());
    }
    mdt.batch.clear();
    if (attr.size, attr.mtime) != (inode.attr.size, inode.attr.mtime) {
        drop_capabilities(&view, &mut mdt.batch, &mut inode)?;
    }
    inode.attr = Attr {
        size: attr.size.min(super::FILE_SIZE_MAX),
        blocks: attr.blocks,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: inode.attr.ctime.max(attr.ctime),
        size_stale: attr.size_stale,
        maybe_objects: attr.maybe_objects,
        version: op.stamp(&mdt.core).transno,
        ..inode.attr
    };
    put_inode(&mut mdt.batch, &inode);
    Ok(Outcome::done(op.commit(&mut mdt.core, &mut mdt.batch)))
}
