//! `StatFs`: the space of all OSTs as they last told it, and this target's inodes.

use sateen_wire::{Grants, MdtReply, StatFs};

use crate::mdt::Mdt;
use crate::op::Outcome;

pub(super) fn run(mdt: &Mdt) -> Outcome {
    let files_total = mdt.config.inodes_max.max(mdt.inodes);
    let statfs = StatFs { files_total, files_free: files_total - mdt.inodes, ..mdt.alloc.statfs() };
    Outcome::ok(MdtReply::StatFs(statfs), 0, Grants::NONE)
}
