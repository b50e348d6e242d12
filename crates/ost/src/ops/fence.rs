//! `Fence`: a client incarnation is refused for ever.
//!
//! 1. Its export is closed, and the fence journaled: what it sends from now on, what it has
//!    waiting here, and every later `Connect` is refused.
//! 2. Its I/O that is already under way is waited for, so that nothing of it can happen after
//!    the answer.
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
