//! `Allocate` and `ZeroRange`: reserve the blocks of a range, free them, or empty them.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::{Errno, Falloc};
use sateen_wire::disk::ost::ObjectState;
use sateen_wire::{OstReply, OstRequest};

use super::{end_of, unexpected, write};
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

/// The range, what is to be done with it, and whether the object must not grow.
fn range_of(request: &OstRequest) -> Option<(write::Target, Falloc, bool)> {
    let target = |object, layout_gen, offset, len| write::Target {
        object,
        layout_gen,
        offset,
        len,
        grant_used: 0,
    };
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
    let write::Target { object, layout_gen, offset, len, .. } = target;
    if len == 0 {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    let header = *header;
    if how == Falloc::PunchHole {
        end_of(offset, len)?;
        match ost.object(object, &op.fetched)? {
            Some(ObjectState::Live(record)) if layout_gen >= record.layout_gen => {}
            Some(_) => return Err(Fault::Errno(Errno::ESTALE)),
            // There may be bytes nevertheless: a crash of the process alone leaves what was
            // written to the disk's cache, but not the record that was still in memory.
            None => {}
        }
        ost.space.doubt();
    } else if let Some(step) = write::prepare(ost, op, &header, target)? {
        return Ok(step);
    }
    Ok(Step::Io(ObjectOp::Allocate { object, offset, len, how, keep_size }))
}

pub(super) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    let Work::Request { request, .. } = &op.work else { return Err(unexpected()) };
    let (target, ..) = range_of(request).ok_or_else(unexpected)?;
    let end = end_of(target.offset, target.len)?;
    if let Some(step) = write::asked(ost, op, &done, end)? {
        return Ok(step);
    }
    ost.space.doubt();
    Ok(Step::answer(OstReply::Done))
}
