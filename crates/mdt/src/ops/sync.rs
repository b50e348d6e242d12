//! `Sync`: an answer once everything up to a transno is durable.

use sateen_wire::{Grants, MdtReply};

use crate::mdt::Mdt;
use crate::op::{Outcome, reply};

pub(super) fn run(mdt: &Mdt, upto: u64) -> Outcome {
    let last = mdt.core.store.transno();
    let upto = if upto == 0 { last } else { upto.min(last) };
    Outcome::Durable(reply(MdtReply::Done, 0, Grants::NONE), upto)
}
