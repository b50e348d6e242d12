//! `GetAttr`: sizes of objects, in the order asked.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::ObjectId;

use super::{objects_reply, unexpected};
use crate::op::Step;

pub(super) fn begin(objects: &[ObjectId]) -> Step {
    Step::Io(ObjectOp::Stat { objects: objects.to_vec() })
}

pub(super) fn done(done: ObjectDone) -> Result<Step, Fault> {
    let ObjectDone::Stats(stats) = done else { return Err(unexpected()) };
    Ok(Step::answer(objects_reply(&stats)?))
}
