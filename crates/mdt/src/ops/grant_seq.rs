//! `GrantSeq`: a sequence of FIDs for the client, durable before it hears of it.

use sateen_target::Fault;
use sateen_types::Errno;
use sateen_wire::disk::mdt::SeqGrant;
use sateen_wire::{Grants, MdtReply};

use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome, reply};
use crate::seqs::SEQS_PER_CLIENT_MAX;

pub(super) fn run(mdt: &mut Mdt, op: &Op<'_>) -> Result<Outcome, Fault> {
    if mdt.clients.seqs(op.client) >= SEQS_PER_CLIENT_MAX as usize {
        return Err(Errno::ENOSPC.into());
    }
    let (seq, state) = mdt.seqs.next()?;
    mdt.batch.clear();
    mdt.batch.put(&keys::grant(seq), &SeqGrant { client: op.client });
    mdt.batch.put(&keys::seq_state(), &state);
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    mdt.seqs.grant(seq, op.client, state);
    mdt.clients.granted(op.client, seq);
    Ok(Outcome::Durable(reply(MdtReply::Sequence(seq), transno, Grants::NONE), transno))
}
