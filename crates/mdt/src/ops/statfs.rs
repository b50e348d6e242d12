//! `StatFs`: the space of this target's own disk, and its inodes.

use sateen_wire::{Grants, MdtReply, StatFs};

use crate::mdt::Mdt;
use crate::op::Outcome;

pub(super) fn run(mdt: &Mdt) -> Outcome {
    let files_total = mdt.config.inodes_max.max(mdt.inodes);
    let statfs = StatFs { files_total, files_free: files_total - mdt.inodes, ..mdt.room.statfs() };
    Outcome::ok(MdtReply::StatFs(statfs), 0, Grants::NONE)
}
