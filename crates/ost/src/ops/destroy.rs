//! `Destroy`: removes objects for good.
//!
//! 1. The bytes are removed. A file has a place on more OSTs than it has objects, mostly: of an
//!    object that has neither bytes nor a record nothing else is done. (If the bytes went in a run
//!    before that came no further, the store has made that durable when it was opened.)
//! 2. The records are removed, or become tombstones if a writer was lost, in one transaction;
//!    the removal of the bytes is made durable before the frame that holds it.
//! 3. The answer follows when the transaction is durable. Many removals share one sync and
//!    one frame.

use sateen_osd::ObjectOp;
use sateen_target::Fault;
use sateen_wire::disk::ost::{ObjectState, Tombstone};
use sateen_wire::{OstReply, OstRequest};

use super::{only_from_mdt_of, unexpected};
use crate::keys;
use crate::op::{Op, Step, Work, good};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &op.work else { return Err(unexpected()) };
    let OstRequest::Destroy { late_writers, .. } = *request else { return Err(unexpected()) };
    only_from_mdt_of(header, &op.objects)?;
    if op.objects.is_empty() {
        return Ok(Step::answer(OstReply::Done));
    }
    ost.room()?;
    if op.phase == 0 {
        return Ok(Step::Io(ObjectOp::Remove { objects: op.objects.to_vec() }));
    }
    // All lookups come before the first change; one round fetches whatever is missing.
    let mut records = Vec::with_capacity(op.objects.len());
    let mut missed = false;
    for object in &op.objects {
        match ost.object(*object, &op.fetched) {
            Ok(record) => records.push(record),
            Err(Fault::Miss) => missed = true,
            Err(fault) => return Err(fault),
        }
    }
    if missed {
        return Err(Fault::Miss);
    }
    let after = if late_writers { ost.writers.youngest() } else { None };
    ost.batch.clear();
    let mut gone = Vec::with_capacity(op.objects.len());
    for (object, record) in op.objects.iter().zip(records) {
        let key = keys::object(*object);
        match (after, record) {
            // Whoever asked for the tombstone still needs it.
            (None, Some(ObjectState::Dead(_))) => {}
            (None, None) if !op.removed.contains(object) => continue,
            (None, _) => ost.batch.remove(&key),
            (Some(after), older) => {
                match older {
                    Some(ObjectState::Dead(older)) => {
                        ost.batch.remove(&keys::tombstone(older.after, *object))
                    }
                    _ => ost.tombstones += 1,
                }
                ost.batch.put(&key, &ObjectState::Dead(Tombstone { after }));
                ost.batch.put_with(&keys::tombstone(after, *object), |_| {});
            }
        }
        gone.push(*object);
    }
    if ost.batch.is_empty() {
        // All of them are dead already, or never were; only the transactions that say so may be
        // under way.
        return Ok(Step::Durable(good(OstReply::Done, 0), ost.core.store.transno()));
    }
    let transno = ost.commit();
    for object in gone {
        ost.note_cut(object);
        ost.note_dirty(object, transno);
    }
    ost.space.doubt();
    Ok(Step::Durable(good(OstReply::Done, transno), transno))
}
