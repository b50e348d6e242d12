//! No two clients hold locks that exclude each other.

use sateen_types::ClientId;

use super::Records;
use crate::host::Host;

/// Who holds the MDT's own locks.
const TARGET: ClientId = ClientId(u64::MAX);

pub(super) fn check(host: &mut Host, records: &Records) -> Result<(), String> {
    let Some(mdt) = host.mdt() else { return Ok(()) };
    for fid in records.inodes.keys() {
        // The MDT's own locks keep others away from a file whose caller has its lock already.
        let held: Vec<_> = mdt.lock_holders(*fid).filter(|held| held.client != TARGET).collect();
        for (index, a) in held.iter().enumerate() {
            for b in held.iter().skip(index + 1) {
                let excluded = a.bits.intersects(b.bits) && !a.mode.compatible(b.mode);
                if a.client != b.client && excluded {
                    return Err(format!("{fid} is locked as {a:?} and as {b:?}"));
                }
            }
        }
    }
    Ok(())
}
