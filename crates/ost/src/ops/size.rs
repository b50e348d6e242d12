//! `SetSize`: an object grows to a size, by a hole.
//!
//! 1. What is older than the last cut came late: nothing happens, as if it had been done before that.
//! 2. The size is looked up: what is large enough stays as it is, because others may have written
//!    behind that end meanwhile, and it may be done once more after a restart.
//! 3. The record is journaled as by a write, and the object grows. Nobody else who asks here does
//!    anything to it between the two; a kernel that it was given to keeps its own writers out while
//!    it sets a size.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::Errno;
use sateen_wire::{OstReply, OstRequest};

use super::{OBJECT_BYTES_MAX, unexpected, write};
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

const LOOKS: u8 = 0;
const GROWS: u8 = 1;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &op.work else { return Err(unexpected()) };
    let OstRequest::SetSize { object, layout_gen, size, version } = *request else {
        return Err(unexpected());
    };
    if size > OBJECT_BYTES_MAX {
        return Err(Fault::Errno(Errno::EFBIG));
    }
    let target = write::Target { object, layout_gen, offset: 0, len: size };
    let known = write::record(ost, op, target)?;
    if known.is_some_and(|record| version < record.version) {
        return Ok(Step::answer(OstReply::Done));
    }
    if op.phase == LOOKS {
        return Ok(Step::Io(ObjectOp::Stat { objects: vec![object] }));
    }
    write::record_layout(ost, header, (known, target));
    Ok(Step::Io(ObjectOp::SetSize { object, size }))
}

pub(super) fn done(op: &mut Op, done: &ObjectDone) -> Result<Step, Fault> {
    let Work::Request { request: OstRequest::SetSize { size, .. }, .. } = &op.work else {
        return Err(unexpected());
    };
    match (op.phase, done) {
        (LOOKS, ObjectDone::Stats(stats)) => {
            if stats.first().is_some_and(|stat| stat.exists && stat.size >= *size) {
                return Ok(Step::answer(OstReply::Done));
            }
            op.phase = GROWS;
            Ok(Step::Again)
        }
        (GROWS, ObjectDone::Done) => Ok(Step::answer(OstReply::Done)),
        _ => Err(unexpected()),
    }
}
