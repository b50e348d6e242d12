//! An inode without a name is an orphan that somebody has open.

use std::collections::BTreeSet;

use sateen_types::Fid;

use super::Records;

pub(super) fn check(records: &Records, open: &BTreeSet<Fid>) -> Result<(), String> {
    for (fid, record) in &records.inodes {
        let orphan = records.orphans.contains(fid);
        if (record.attr.nlink == 0) != orphan {
            return Err(format!("{fid} has nlink {}, orphan: {orphan}", record.attr.nlink));
        }
        if orphan && !open.contains(fid) {
            return Err(format!("{fid} is an orphan, but nobody has it open"));
        }
    }
    match records.orphans.iter().find(|fid| !records.inodes.contains_key(fid)) {
        Some(fid) => Err(format!("the orphan {fid} has no inode")),
        None => Ok(()),
    }
}
