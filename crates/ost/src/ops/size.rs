//! `SetSize`: an object grows to a size, by a hole.
//!
//! 1. What is older than the last cut came late: nothing happens, as if it had been done before that.
//! 2. The record is journaled as by a write, also if the object is large enough: who comes with an
//!    older layout is refused from now on.
//! 3. The object grows, if it is smaller: the store compares and grows in one, because a kernel that
//!    it was given to may have written behind that end meanwhile; and so it may be done once more
//!    after a restart.
//!
//! What is told again after a crash ([`sateen_wire::CLAIM_SLOT`]) makes no object, as with a write.

use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::Errno;
use sateen_wire::{OstReply, OstRequest};

use super::{OBJECT_BYTES_MAX, unexpected, write};
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

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
    if known.is_none() && write::is_told_again(header) {
        return Err(Fault::Errno(Errno::ESTALE));
    }
    write::record_layout(ost, header, (known, target));
    if known.is_some_and(|record| version < record.version) {
        return Ok(Step::answer(OstReply::Done));
    }
    Ok(Step::Io(ObjectOp::Grow { object, size }))
}

pub(super) fn done(done: &ObjectDone) -> Result<Step, Fault> {
    let ObjectDone::Done = done else { return Err(unexpected()) };
    Ok(Step::answer(OstReply::Done))
}
