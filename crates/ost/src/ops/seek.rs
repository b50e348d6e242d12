//! `Seek`: where the next data or hole of an object begins.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::{Errno, ObjectId};
use sateen_wire::OstReply;

use super::{OBJECT_BYTES_MAX, unexpected};
use crate::op::Step;

pub(super) fn begin(object: ObjectId, offset: u64, hole: bool) -> Result<Step, Fault> {
    if offset > OBJECT_BYTES_MAX {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    Ok(Step::Io(ObjectOp::Seek { object, offset, hole }))
}

pub(super) fn done(done: ObjectDone) -> Result<Step, Fault> {
    let ObjectDone::Offset(offset) = done else { return Err(unexpected()) };
    Ok(Step::answer(OstReply::Offset { offset }))
}
