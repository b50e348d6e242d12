//! `Write`, `WriteMany` and `Append`: bytes into an object, in one place, in many, or at its end. It is
//! born if need be.
//!
//! 1. The space is charged. The record is looked up: a dead object, a layout generation that
//!    has passed, and a range that cannot be are refused.
//! 2. If no space seems left that is not promised to others, the store is asked how much
//!    there really is, and then how large the object is: bytes that are overwritten need none.
//! 3. The record is journaled if the object is born, or the layout generation has grown.
//! 4. The bytes are written, or as many as there is room for, and the answer brings a grant for
//!    the next write like this one.
//!
//! What is told again after a crash ([`CLAIM_SLOT`]) makes no object: it may have been removed since.
//!
//! `ENOSPC` is answered in step 2 alone, before anything was done. If there turns out to be no room
//! in step 4, when the object may have been born, 0 bytes were written.
//!
//! Pieces are charged together, and written in one go, one after the other; of those that a crash takes
//! each was told to its writer, who tells it again as a `Write`.
//!
//! An append is done once, because its slot remembers the answer, and never told again: it would be
//! there twice. Its client knows where it went, and tells a `Write` of the same bytes.

use sateen_osd::{ObjectDone, ObjectError, ObjectOp};
use sateen_target::Fault;
use sateen_types::{Errno, ObjectId, suits_direct};
use sateen_wire::disk::ost::{ObjectRecord, ObjectState};
use sateen_wire::{BULK_MAX, Bulk, CLAIM_SLOT, Header, OstReply, OstRequest, Spans, spans};

use super::{end_of, is_allocated, statfs, unexpected};
use crate::op::{Op, Step, Work, good};
use crate::ost::Ost;

/// Phases of whatever takes space.
pub(super) const UNCHARGED: u8 = 0;
pub(super) const CHARGED: u8 = 1;
pub(super) const ASKED_SPACE: u8 = 2;
pub(super) const ASKED_SIZE: u8 = 3;
pub(super) const OVERWRITES: u8 = 4;

/// A range of an object that something is to be put into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) object: ObjectId,
    pub(super) layout_gen: u32,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Where bytes go.
enum Place {
    At(u64),
    /// The bulk has these one behind the other.
    Pieces(Spans),
    End,
}

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, bulk } = &mut op.work else { return Err(unexpected()) };
    let (object, layout_gen, place, grant_used) = match request {
        OstRequest::Write { object, layout_gen, offset, grant_used } => {
            (*object, *layout_gen, Place::At(*offset), *grant_used)
        }
        OstRequest::WriteMany { object, layout_gen, pieces, grant_used } => {
            (*object, *layout_gen, Place::Pieces(pieces.clone()), *grant_used)
        }
        OstRequest::Append { object, layout_gen, grant_used } => {
            (*object, *layout_gen, Place::End, *grant_used)
        }
        _ => return Err(unexpected()),
    };
    if is_told_again(header) && !matches!(place, Place::At(_)) {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    let Bulk::Data(data) = bulk else { return Err(Fault::Errno(Errno::EPROTO)) };
    if data.len() > BULK_MAX {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    let (header, len) = (*header, data.len() as u64);
    if len == 0 {
        return Ok(nothing_of_it(ost, op));
    }
    let offset = match &place {
        Place::At(offset) => *offset,
        // As if all lay in one before the end of the last: what counts is that, and how many they are.
        Place::Pieces(pieces) => spans::extent_of(pieces)?.1.saturating_sub(len),
        Place::End => 0,
    };
    let target = Target { object, layout_gen, offset, len };
    if let Some(step) = prepare(ost, op, &header, (target, grant_used))? {
        return Ok(step);
    }
    let Work::Request { bulk: Bulk::Data(data), .. } = &mut op.work else {
        return Err(unexpected());
    };
    let data = core::mem::take(data);
    Ok(Step::Io(match place {
        Place::At(offset) => {
            let direct = header.direct && suits_direct(offset, data.len());
            ObjectOp::Write { object, offset, data, direct }
        }
        Place::Pieces(pieces) => ObjectOp::WriteMany { object, pieces, data },
        Place::End => ObjectOp::Append { object, data },
    }))
}

/// Steps 1 to 3. `None` says that the object may be changed now.
fn prepare(
    ost: &mut Ost,
    op: &mut Op,
    header: &Header,
    (target, grant_used): (Target, u64),
) -> Result<Option<Step>, Fault> {
    end_of(target.offset, target.len)?;
    // First of all: the grant is used up whatever becomes of the write.
    if op.phase == UNCHARGED {
        op.charged = target.len;
        op.granted = ost.space.charge(header.client, grant_used, target.len);
        op.phase = CHARGED;
    }
    let known = record(ost, op, target)?;
    if known.is_none() && is_told_again(header) {
        // It was removed since, or a crash took its record, too: which of the two nobody knows.
        return Err(Fault::Errno(Errno::ESTALE));
    }
    let needs_room = op.granted < target.len && op.phase != OVERWRITES;
    if needs_room && !ost.space.fits() {
        return Ok(Some(ask(ost, op, target.object)));
    }
    record_layout(ost, header, (known, target));
    Ok(None)
}

/// Whether a run before this one has answered the write, and lost it.
pub(super) fn is_told_again(header: &Header) -> bool {
    header.slot == CLAIM_SLOT
}

/// The record of an object that may be changed; `None` if it is to be born.
pub(super) fn record(ost: &Ost, op: &Op, target: Target) -> Result<Option<ObjectRecord>, Fault> {
    let known = match ost.object(target.object, &op.fetched)? {
        Some(ObjectState::Dead(_)) => return Err(Fault::Errno(Errno::ESTALE)),
        Some(ObjectState::Live(record)) => Some(record),
        None => None,
    };
    if known.is_some_and(|record| target.layout_gen < record.layout_gen) {
        return Err(Fault::Errno(Errno::ESTALE));
    }
    ost.room()?;
    Ok(known)
}

/// Step 3.
pub(super) fn record_layout(
    ost: &mut Ost,
    header: &Header,
    (known, target): (Option<ObjectRecord>, Target),
) {
    if known.is_none_or(|record| target.layout_gen > record.layout_gen) {
        let old = known.unwrap_or(ObjectRecord { projid: header.project, ..Default::default() });
        ost.put_record(target.object, ObjectRecord { layout_gen: target.layout_gen, ..old });
    }
}

/// The next question of step 2.
pub(super) fn ask(ost: &mut Ost, op: &mut Op, object: ObjectId) -> Step {
    if op.phase == ASKED_SPACE {
        op.phase = ASKED_SIZE;
        return Step::Io(ObjectOp::Stat { objects: vec![object] });
    }
    op.phase = ASKED_SPACE;
    statfs::ask(ost, op)
}

/// An answer to one of the questions of step 2; `None` if none was open.
pub(super) fn asked(
    ost: &mut Ost,
    op: &mut Op,
    done: &ObjectDone,
    end: u64,
) -> Result<Option<Step>, Fault> {
    match (op.phase, done) {
        (ASKED_SPACE, ObjectDone::StatFs(_)) => {
            statfs::learn(ost, op, done)?;
            Ok(Some(Step::Again))
        }
        (ASKED_SIZE, ObjectDone::Stats(stats)) => {
            if !stats.first().is_some_and(|stat| is_allocated(stat, end)) {
                return Err(Fault::Errno(Errno::ENOSPC));
            }
            op.phase = OVERWRITES;
            Ok(Some(Step::Again))
        }
        _ => Ok(None),
    }
}

/// Whether a write failed because the store had no room for any of it, though it seemed to.
pub(super) fn found_no_room(op: &Op, error: &ObjectError) -> bool {
    let write = matches!(
        op.work,
        Work::Request {
            request: OstRequest::Write { .. }
                | OstRequest::WriteMany { .. }
                | OstRequest::Append { .. },
            ..
        }
    );
    write && !error.poisons() && error.errno() == Errno::ENOSPC
}

/// The answer to that.
pub(super) fn nothing_of_it(ost: &Ost, op: &Op) -> Step {
    let boot_epoch = ost.core.config.boot_epoch;
    let appends = matches!(op.work, Work::Request { request: OstRequest::Append { .. }, .. });
    Step::answer(if appends {
        OstReply::Appended { offset: 0, len: 0, boot_epoch, granted: 0 }
    } else {
        OstReply::Written { len: 0, boot_epoch, granted: 0 }
    })
}

pub(super) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &op.work else { return Err(unexpected()) };
    let (client, again) = (header.client, is_told_again(header));
    let end = match request {
        OstRequest::Write { offset, .. } => end_of(*offset, op.charged)?,
        OstRequest::WriteMany { pieces, .. } => spans::extent_of(pieces)?.1,
        // Nothing of it is there already.
        _ => u64::MAX,
    };
    if let Some(step) = asked(ost, op, &done, end)? {
        return Ok(step);
    }
    let (appended, len) = match done {
        ObjectDone::Written { len } => (None, len),
        ObjectDone::Appended { offset, len } => (Some(offset), len),
        _ => return Err(unexpected()),
    };
    let is_whole = len as u64 == op.charged;
    // As much as was used up, or, while there is plenty, twice as much as this write needed: who
    // goes on in this way can send all pieces of a write at once, and has soon enough to answer
    // writes that it keeps.
    let ahead = op.granted.max(op.charged).saturating_mul(2);
    let plenty = ost.space.is_plenty_for(ahead);
    let wanted = if plenty { ost.space.ahead(client, ahead).max(op.granted) } else { op.granted };
    let unwanted = op.orphaned || again;
    let granted = if unwanted || !is_whole { 0 } else { ost.space.give(client, wanted) };
    if !is_whole {
        // There was less room than was thought.
        ost.space.doubt();
    }
    let boot_epoch = ost.core.config.boot_epoch;
    let len = u32::try_from(len).map_err(|_| unexpected())?;
    let reply = match appended {
        Some(offset) => OstReply::Appended { offset, len, boot_epoch, granted },
        None => OstReply::Written { len, boot_epoch, granted },
    };
    Ok(Step::Answer(good(reply, 0), Bulk::None))
}
