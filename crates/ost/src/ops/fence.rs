//! `Fence`: a client incarnation is refused for ever.
//!
//! 1. Its export is closed, and the fence journaled: what it sends from now on, what it has
//!    waiting here, and every later `Connect` is refused.
//! 2. Its writes, cuts and allocations that are already under way are waited for, so that nothing
//!    of it can happen after the answer. Its syncs and reads are not: they harm nobody, and whoever
//!    waits for the fence would wait until a disk has written out all that the client left.
//! 3. The answer follows when the fence is durable.

use sateen_target::Fault;
use sateen_types::ClientId;
use sateen_wire::OstReply;
use sateen_wire::disk::ost::FenceRecord;

use crate::keys;
use crate::op::{Op, Step, good};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, id: u64, op: &mut Op, client: ClientId) -> Result<Step, Fault> {
    if op.phase == 0 {
        ost.room()?;
        op.phase = 1;
        ost.core.exports.disconnect(client);
        ost.client_gone(client);
        ost.batch.clear();
        let wall_ns = ost.now.wall_ns;
        ost.batch.put(&keys::fence(client), &FenceRecord { wall_ns });
        op.mark = ost.commit();
        if ost.wait_for_client(id, op, client) {
            return Ok(Step::Again);
        }
    }
    Ok(Step::Durable(good(OstReply::Done, op.mark), op.mark))
}
