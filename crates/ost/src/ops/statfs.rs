//! `StatFs`, and the OST's own question how much space there is.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_wire::OstReply;

use super::unexpected;
use crate::op::{Op, Step};
use crate::ost::Ost;

/// Asks the store.
pub(super) fn ask(ost: &mut Ost, op: &mut Op) -> Step {
    op.written = ost.space.mark();
    Step::Io(ObjectOp::StatFs)
}

/// Takes the store's answer in.
pub(super) fn learn(ost: &mut Ost, op: &Op, done: &ObjectDone) -> Result<(), Fault> {
    let ObjectDone::StatFs(statfs) = done else { return Err(unexpected()) };
    ost.space.learn(*statfs, op.written);
    Ok(())
}

pub(super) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    learn(ost, op, &done)?;
    Ok(Step::answer(OstReply::StatFs(ost.space.shown().unwrap_or_default())))
}
