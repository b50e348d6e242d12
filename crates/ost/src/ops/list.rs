//! `List`: which objects exist. Whoever lists on asks again from behind the
//! last file, until nothing comes.

use sateen_osd::ObjectOp;
use sateen_target::Fault;
use sateen_types::{Errno, STRIPE_COUNT_MAX, Seq};
use sateen_wire::OBJECTS_PER_RPC_MAX;

use crate::op::Step;

/// Objects asked of the store at most: all stripes of the last file come too, and have to fit
/// into the answer.
const LIST_MAX: usize = OBJECTS_PER_RPC_MAX - STRIPE_COUNT_MAX as usize;

pub(super) fn begin(seq: Seq, from_oid: u32, count: u32) -> Result<Step, Fault> {
    let count = (count as usize).min(LIST_MAX);
    if count == 0 {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    Ok(Step::Io(ObjectOp::List { seq, from_oid, count }))
}
