//! `SetTimes`: times of an object, for whoever has one clock with those who write to it.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::{ObjectId, Timespec};
use sateen_wire::OstReply;

use super::unexpected;
use crate::op::Step;

pub(super) fn begin(object: ObjectId, atime: Option<Timespec>, mtime: Option<Timespec>) -> Step {
    Step::Io(ObjectOp::SetTimes { object, atime, mtime })
}

pub(super) fn done(done: &ObjectDone) -> Result<Step, Fault> {
    let ObjectDone::Done = done else { return Err(unexpected()) };
    Ok(Step::answer(OstReply::Done))
}
