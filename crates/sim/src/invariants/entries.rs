//! Every entry leads to an inode of the kind it says, and every inode has as many links as
//! there are entries for it.

use std::collections::BTreeMap;

use sateen_types::{Fid, FileKind};

use super::Records;

pub(super) fn check(records: &Records, has_root: bool) -> Result<(), String> {
    let mut links: BTreeMap<Fid, u32> = BTreeMap::new();
    let mut counts: BTreeMap<Fid, u64> = BTreeMap::new();
    for ((parent, name), (fid, kind)) in &records.entries {
        let shown = String::from_utf8_lossy(name);
        let inode = records.inodes.get(fid);
        let inode = inode.ok_or_else(|| format!("{shown} in {parent} leads to {fid}: no inode"))?;
        if inode.attr.kind() != *kind {
            return Err(format!("{shown} in {parent} is {kind:?}, not {:?}", inode.attr.kind()));
        }
        if !records.inodes.get(parent).is_some_and(|dir| dir.attr.is_dir()) {
            return Err(format!("{shown} lies in {parent}, which is no directory"));
        }
        *counts.entry(*parent).or_default() += 1;
        *links.entry(*fid).or_default() += 1;
        if *kind == FileKind::Directory {
            *links.entry(*parent).or_default() += 1;
        }
    }
    for (fid, record) in &records.inodes {
        let entries = links.get(fid).copied().unwrap_or_default();
        let own = match (record.attr.is_dir(), *fid == Fid::ROOT) {
            (true, true) => 2,
            (true, false) if record.attr.nlink > 0 => 1,
            _ => 0,
        };
        if record.attr.nlink != entries + own {
            return Err(format!("{fid} has nlink {}, not {}", record.attr.nlink, entries + own));
        }
        let count = counts.get(fid).copied().unwrap_or_default();
        if record.attr.is_dir() && record.entries != count {
            return Err(format!("{fid} counts {} entries of {count}", record.entries));
        }
    }
    if has_root && !records.inodes.is_empty() && !records.inodes.contains_key(&Fid::ROOT) {
        return Err("there is no root".to_owned());
    }
    Ok(())
}
