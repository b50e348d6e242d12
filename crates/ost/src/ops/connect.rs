//! `Connect`: refuses fenced incarnations, numbers those that may write, and lets go of those
//! that they have succeeded.

use sateen_target::{Fault, Outbox};
use sateen_types::{Endpoint, Errno};
use sateen_wire::disk::ost::WriterRecord;
use sateen_wire::{Bulk, Message, Reply};

use crate::keys;
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

pub(super) fn begin(ost: &mut Ost, op: &mut Op, out: &mut Outbox) -> Result<Step, Fault> {
    let Work::Connect(message) = &op.work else { return Ok(Step::End) };
    let header = message.header;
    let client = header.client;
    if ost.core.store.get(&keys::fence(client), &op.fetched)?.is_some() {
        out.send(Message::reply_to(&header, Reply::error(Errno::ESTALE), Bulk::None));
        return Ok(Step::End);
    }
    ost.room()?;
    let before = ost.core.exports.generation(client);
    ost.core.admit(message.as_ref().clone(), out);
    let after = ost.core.exports.generation(client);
    if after.is_some() && before != after {
        // A new connection knows of no grant.
        ost.space.release(client);
        if !matches!(header.from, Endpoint::Client(_)) {
            return Ok(Step::End);
        }
        if let Some(number) = ost.writers.connected(client) {
            ost.batch.clear();
            ost.batch.put(&keys::writer(client), &WriterRecord { number });
            ost.commit();
        }
        // Who it was before may be fenced later, by the MDT; what is kept for it here no longer
        // serves anybody. An MDT begins its attempts anew when it restarts: of two of its
        // incarnations nobody can tell which is the later.
        while let Some(old) = ost.core.exports.predecessor(client, header.from) {
            ost.core.exports.disconnect(old);
            ost.client_gone(old);
        }
    }
    Ok(Step::End)
}
