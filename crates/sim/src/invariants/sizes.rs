//! A size that is not marked as stale covers everything that lies in the objects.

use std::collections::BTreeMap;

use sateen_types::{Endpoint, Fid};

use super::Records;
use crate::host::Host;
use crate::model::Model;

/// Of all files, or of one.
pub(crate) fn size_covers_objects(
    records: &Records,
    hosts: &BTreeMap<Endpoint, Host>,
    only: Option<Fid>,
) -> Result<(), String> {
    for host in hosts.values() {
        let Endpoint::Ost(_) = host.me else { continue };
        let wanted = |fid: Fid| only.is_none_or(|only| only == fid);
        for stat in host.disk.objects.all().into_iter().filter(|stat| wanted(stat.object.fid)) {
            let Some(inode) = records.inodes.get(&stat.object.fid) else { continue };
            let Some(layout) = &inode.layout else { continue };
            let proven = layout.size_proven(stat.object.stripe, stat.size);
            if !inode.attr.size_stale && proven > inode.attr.size {
                return Err(format!(
                    "{} has {} bytes, but its objects reach to {proven}",
                    stat.object.fid, inode.attr.size
                ));
            }
        }
    }
    Ok(())
}

/// How far a file's objects prove that it reaches.
pub(crate) fn proven_size(records: &Records, hosts: &BTreeMap<Endpoint, Host>, fid: Fid) -> u64 {
    let layout = records.inodes.get(&fid).and_then(|inode| inode.layout.as_ref());
    let Some(layout) = layout else { return 0 };
    let osts = hosts.values().filter(|host| matches!(host.me, Endpoint::Ost(_)));
    let all = osts.flat_map(|host| host.disk.objects.all()).filter(|stat| stat.object.fid == fid);
    all.map(|stat| layout.size_proven(stat.object.stripe, stat.size)).max().unwrap_or(0)
}

pub(super) fn check(
    records: &Records,
    hosts: &BTreeMap<Endpoint, Host>,
    model: &Model,
) -> Result<(), String> {
    size_covers_objects(records, hosts, None)?;
    for (fid, inode) in &records.inodes {
        let Some(data) = model.data.get(fid) else { continue };
        // A name that a program opened may have become a directory's: see `sizes_survived`.
        if inode.attr.is_dir() {
            continue;
        }
        let known = !inode.attr.size_stale;
        if known && inode.attr.nlink > 0 && !data.may_be_size(inode.attr.size) {
            return Err(format!("{fid} has {} bytes, not {}", inode.attr.size, data.size()));
        }
    }
    Ok(())
}
