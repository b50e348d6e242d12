//! `Allocate` and `ZeroRange`: reserve the blocks of a range, free them, or empty them.
//!
//! How long a range is says nothing of what it takes, and it may be at it for long. So:
//! 1. Whether there is room for all of it is seen first, beside what other ranges have yet to take;
//!    if there is not, nothing is done.
//! 2. It is done in pieces, and only the one under way is charged: what was taken before the store
//!    shows itself, and what is still to come writes may have. Who takes it leaves the range done
//!    in part.
//! 3. The object grows with the last piece: nobody would hear of a size that a part has made.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::{Errno, Falloc};
use sateen_wire::disk::ost::ObjectState;
use sateen_wire::{Header, OstReply, OstRequest};

use super::{end_of, unexpected, write};
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

/// The range, what is to be done with it, and whether the object must not grow.
fn range_of(request: &OstRequest) -> Option<(write::Target, Falloc, bool)> {
    let target =
        |object, layout_gen, offset, len| write::Target { object, layout_gen, offset, len };
    match *request {
        OstRequest::Allocate { object, layout_gen, offset, len, punch_hole, keep_size } => {
            let how = if punch_hole { Falloc::PunchHole } else { Falloc::Allocate };
            Some((target(object, layout_gen, offset, len), how, keep_size))
        }
        OstRequest::ZeroRange { object, layout_gen, offset, len, keep_size } => {
            Some((target(object, layout_gen, offset, len), Falloc::ZeroRange, keep_size))
        }
        _ => None,
    }
}

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &op.work else { return Err(unexpected()) };
    let (target, how, keep_size) = range_of(request).ok_or_else(unexpected)?;
    let write::Target { object, layout_gen, offset, len } = target;
    if len == 0 {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    end_of(offset, len)?;
    if how != Falloc::PunchHole {
        let header = *header;
        return next_piece(ost, op, &header, (target, how, keep_size));
    }
    match ost.object(object, &op.fetched)? {
        Some(ObjectState::Live(record)) if layout_gen >= record.layout_gen => {}
        Some(_) => return Err(Fault::Errno(Errno::ESTALE)),
        // There may be bytes nevertheless: a crash of the process alone leaves what was
        // written to the disk's cache, but not the record that was still in memory.
        None => {}
    }
    ost.space.doubt();
    Ok(Step::Io(ObjectOp::Allocate { object, offset, len, how, keep_size }))
}

fn next_piece(
    ost: &mut Ost,
    op: &mut Op,
    header: &Header,
    (target, how, keep_size): (write::Target, Falloc, bool),
) -> Result<Step, Fault> {
    let known = write::record(ost, op, target)?;
    let write::Target { object, offset, len, .. } = target;
    let rest = len - op.done;
    let overwrites = op.phase == write::OVERWRITES;
    if !overwrites && !ost.space.has_room_for(rest, op.to_come) {
        return Ok(write::ask(ost, op, object));
    }
    write::record_layout(ost, header, (known, target));
    let piece = rest.min(ost.piece_bytes);
    ost.space.comes(&mut op.to_come, if overwrites { 0 } else { rest - piece });
    if !overwrites {
        op.phase = write::CHARGED;
        op.charged = piece;
        ost.space.charge(header.client, 0, piece);
    }
    let keep_size = keep_size || piece < rest;
    Ok(Step::Io(ObjectOp::Allocate {
        object,
        offset: offset + op.done,
        len: piece,
        how,
        keep_size,
    }))
}

pub(super) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    let Work::Request { request, .. } = &op.work else { return Err(unexpected()) };
    let (target, how, _) = range_of(request).ok_or_else(unexpected)?;
    let end = end_of(target.offset, target.len)?;
    if let Some(step) = write::asked(ost, op, &done, end)? {
        return Ok(step);
    }
    ost.space.doubt();
    ost.space.finished(core::mem::take(&mut op.charged));
    let rest = target.len - op.done;
    op.done += if how == Falloc::PunchHole { rest } else { rest.min(ost.piece_bytes) };
    Ok(if op.done < target.len { Step::Again } else { Step::answer(OstReply::Done) })
}
