//! `StatFs`: the space of this target's own disk, and its inodes.

use sateen_wire::{Grants, MdtReply, StatFs};

use crate::mdt::Mdt;
use crate::op::Outcome;

pub(super) fn run(mdt: &Mdt) -> Outcome {
    Outcome::ok(MdtReply::StatFs(mdt.statfs()), 0, Grants::NONE)
}

impl Mdt {
    /// The space of its disk, and its inodes.
    pub fn statfs(&self) -> StatFs {
        let files_total = self.config.inodes_max.max(self.inodes);
        StatFs { files_total, files_free: files_total - self.inodes, ..self.room.statfs() }
    }
}
