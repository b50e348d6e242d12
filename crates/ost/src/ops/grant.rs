//! `Grant`: promises space to a client. Promising less than was asked, or nothing, is no
//! error.

use sateen_osd::ObjectDone;
use sateen_target::Fault;
use sateen_wire::{OstReply, OstRequest};

use super::{statfs, unexpected};
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Step {
    if ost.space.is_known() { give(ost, op) } else { statfs::ask(ost, op) }
}

fn give(ost: &mut Ost, op: &Op) -> Step {
    let Work::Request { header, request: OstRequest::Grant { bytes }, .. } = &op.work else {
        return Step::End;
    };
    Step::answer(OstReply::Granted { bytes: ost.space.give(header.client, *bytes) })
}

pub(super) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    statfs::learn(ost, op, &done)?;
    if op.orphaned {
        return Ok(Step::End);
    }
    match give(ost, op) {
        Step::End => Err(unexpected()),
        step => Ok(step),
    }
}
