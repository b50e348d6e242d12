//! `Alone`: whether anybody else still has an object open or mapped, to whom it was given.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::ObjectId;
use sateen_wire::OstReply;

use super::unexpected;
use crate::op::Step;

pub(super) fn begin(object: ObjectId) -> Step {
    Step::Io(ObjectOp::Alone { object })
}

pub(super) fn done(done: &ObjectDone) -> Result<Step, Fault> {
    let ObjectDone::Alone(alone) = done else { return Err(unexpected()) };
    Ok(Step::answer(OstReply::Alone { alone: *alone }))
}
