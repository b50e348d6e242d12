//! `Punch`: cuts an object, once per version.
//!
//! 1. A version that is not above the record's was done before: nothing happens.
//! 2. The bytes are cut.
//! 3. The record with the new version is journaled; the cut is made durable before the frame
//!    that holds it, so that no crash leaves the version without the cut.
//! 4. The answer follows when the frame is durable. An earlier answer would let the next
//!    writer in: what he writes and syncs after a crash of this OST alone would be cut when
//!    the MDT repeats the punch that the crash undid.
//!
//! The version is recorded also where there is no object, because one may be born before the
//! MDT, after a crash, repeats the punch.

use sateen_osd::ObjectOp;
use sateen_target::Fault;
use sateen_types::Errno;
use sateen_wire::disk::ost::{ObjectRecord, ObjectState};
use sateen_wire::{OstReply, OstRequest};

use super::{OBJECT_BYTES_MAX, only_from_mdt_of, unexpected};
use crate::op::{Op, Step, Work, good};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &op.work else { return Err(unexpected()) };
    let OstRequest::Punch { object, size, version } = *request else { return Err(unexpected()) };
    only_from_mdt_of(header, [&object])?;
    if size > OBJECT_BYTES_MAX {
        return Err(Fault::Errno(Errno::EFBIG));
    }
    let record = match ost.object(object, &op.fetched)? {
        Some(ObjectState::Dead(_)) => return Ok(Step::answer(OstReply::Done)),
        Some(ObjectState::Live(record)) => record,
        None => ObjectRecord::default(),
    };
    if version <= record.version {
        let upto = ost.dirty_upto(&op.objects);
        return Ok(Step::Durable(good(OstReply::Done, 0), upto));
    }
    ost.room()?;
    if op.phase == 0 {
        return Ok(Step::Io(ObjectOp::Punch { object, size }));
    }
    let transno = ost.put_record(object, ObjectRecord { version, ..record });
    ost.note_cut(object);
    ost.space.doubt();
    Ok(Step::Durable(good(OstReply::Done, transno), transno))
}
