//! `Allocate`: reserves the blocks of a range, or frees them.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::Errno;
use sateen_wire::disk::ost::ObjectState;
use sateen_wire::{OstReply, OstRequest};

use super::{end_of, unexpected, write};
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &op.work else { return Err(unexpected()) };
    let OstRequest::Allocate { object, layout_gen, offset, len, punch_hole, keep_size } = *request
    else {
        return Err(unexpected());
    };
    if len == 0 {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    let header = *header;
    if punch_hole {
        end_of(offset, len)?;
        match ost.object(object, &op.fetched)? {
            Some(ObjectState::Live(record)) if layout_gen >= record.layout_gen => {}
            Some(_) => return Err(Fault::Errno(Errno::ESTALE)),
            // There may be bytes nevertheless: a crash of the process alone leaves what was
            // written to the disk's cache, but not the record that was still in memory.
            None => {}
        }
        ost.space.doubt();
    } else {
        let target = write::Target { object, layout_gen, offset, len, grant_used: 0 };
        if let Some(step) = write::prepare(ost, op, &header, target)? {
            return Ok(step);
        }
    }
    Ok(Step::Io(ObjectOp::Allocate { object, offset, len, punch_hole, keep_size }))
}

pub(super) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    let Work::Request { request: OstRequest::Allocate { offset, len, .. }, .. } = &op.work else {
        return Err(unexpected());
    };
    let end = end_of(*offset, *len)?;
    if let Some(step) = write::asked(ost, op, &done, end)? {
        return Ok(step);
    }
    ost.space.doubt();
    Ok(Step::answer(OstReply::Done))
}
