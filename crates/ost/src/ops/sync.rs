//! `Sync`: objects and their records become durable.
//!
//! The object store and the journal work at the same time; the answer waits for both. A sync
//! that names the boot epoch of an earlier start fails, unless that ended in good order: what was
//! written then may be lost.

use sateen_osd::ObjectOp;
use sateen_target::{Effect, Fault, Outbox};
use sateen_types::Errno;
use sateen_wire::{OstReply, OstRequest};

use super::unexpected;
use crate::op::{Op, Step, Work, good};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, op: &mut Op, out: &mut Outbox) -> Result<Step, Fault> {
    let Work::Request { request, .. } = &op.work else { return Err(unexpected()) };
    let OstRequest::Sync { boot_epoch, .. } = *request else { return Err(unexpected()) };
    let known = [0, ost.core.config.boot_epoch].contains(&boot_epoch);
    if !known && !ost.clean_runs.contains(&boot_epoch) {
        return Err(Fault::Errno(Errno::EIO));
    }
    if op.objects.is_empty() {
        return Ok(Step::answer(OstReply::Done));
    }
    op.mark = ost.dirty_upto(&op.objects);
    if op.mark > ost.core.store.committed() {
        out.push(Effect::Flush);
    }
    Ok(Step::Io(ObjectOp::Sync { objects: op.objects.to_vec() }))
}

pub(super) fn done(_ost: &mut Ost, op: &mut Op) -> Step {
    Step::Durable(good(OstReply::Done, 0), op.mark)
}
