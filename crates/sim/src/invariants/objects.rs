//! Every object belongs to a file that may have objects, in the place that its layout says;
//! what was destroyed stays dead.

use std::collections::BTreeMap;

use sateen_types::Endpoint;

use super::Records;
use crate::host::Host;

pub(super) fn check(records: &Records, hosts: &BTreeMap<Endpoint, Host>) -> Result<(), String> {
    for host in hosts.values() {
        let Endpoint::Ost(index) = host.me else { continue };
        for stat in host.disk.objects.all() {
            let (object, fid) = (stat.object, stat.object.fid);
            let Some(inode) = records.inodes.get(&fid) else {
                return Err(format!("{} has the object {object} of no file", host.me));
            };
            if !inode.attr.maybe_objects {
                return Err(format!("{} has {object}, whose file has none", host.me));
            }
            let placed = inode.layout.as_ref().is_some_and(|layout| {
                layout.objects().any(|(stripe, ost)| (stripe, ost) == (object.stripe, index))
            });
            if !placed {
                return Err(format!("{object} lies on {}, against its layout", host.me));
            }
        }
    }
    Ok(())
}
