//! A size that is not marked as stale covers everything that lies in the objects.

use std::collections::BTreeMap;

use sateen_types::Endpoint;

use super::Records;
use crate::host::Host;
use crate::model::Model;

pub(super) fn check(
    records: &Records,
    hosts: &BTreeMap<Endpoint, Host>,
    model: &Model,
) -> Result<(), String> {
    for host in hosts.values() {
        let Endpoint::Ost(_) = host.me else { continue };
        for stat in host.disk.objects.all() {
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
    for (fid, inode) in &records.inodes {
        let Some(data) = model.data.get(fid) else { continue };
        let known = !inode.attr.size_stale;
        if known && inode.attr.nlink > 0 && !data.may_be_size(inode.attr.size) {
            return Err(format!("{fid} has {} bytes, not {}", inode.attr.size, data.size()));
        }
    }
    Ok(())
}
