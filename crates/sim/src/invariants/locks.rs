//! No two clients hold locks that exclude each other, and nobody anything on data of which somebody has
//! parts but another part, which does not meet those of other clients; nor do two programs, and nobody waits for a
//! lock that is free.

use sateen_ldlm::{FileLocks, Range};
use sateen_types::ClientId;
use sateen_wire::Ibits;

use super::Records;
use crate::host::Host;

/// Who holds the MDT's own locks.
pub(crate) const TARGET: ClientId = ClientId(u64::MAX);

pub(super) fn check(host: &mut Host, records: &Records) -> Result<(), String> {
    let Some(mdt) = host.mdt() else { return Ok(()) };
    for fid in records.inodes.keys() {
        // The MDT's own locks keep others away from a file whose caller has its lock already.
        let held: Vec<_> = mdt.lock_holders(*fid).filter(|held| held.client != TARGET).collect();
        let parts: Vec<_> = mdt.lock_combs(*fid).collect();
        let on_data = held.iter().filter(|held| held.bits.intersects(Ibits::DATA)).count();
        if !parts.is_empty() && parts.len() != on_data {
            return Err(format!("{fid} has parts beside other locks: {held:?}"));
        }
        for (index, (a, comb)) in parts.iter().enumerate() {
            let mut others = parts.iter().skip(index + 1);
            if let Some((b, other)) = others.find(|(b, other)| a != b && comb.meets(other)) {
                return Err(format!("{fid}: {comb:?} of {a:?} meets {other:?} of {b:?}"));
            }
        }
        for (index, a) in held.iter().enumerate() {
            for b in held.iter().skip(index + 1) {
                let excluded = a.bits.intersects(b.bits) && !a.mode.compatible(b.mode);
                if a.client != b.client && excluded {
                    return Err(format!("{fid} is locked as {a:?} and as {b:?}"));
                }
            }
        }
    }
    check_programs(mdt.file_locks())
}

/// Those of programs: what was offered counts as held.
fn check_programs(locks: &FileLocks) -> Result<(), String> {
    for fid in locks.files() {
        let offered = locks.waits(fid).filter(|(.., offered)| *offered);
        let offered = offered.map(|(flock, want, _)| (flock, want));
        let held: Vec<(bool, Range)> = locks.holders(fid).chain(offered).collect();
        for (index, (flock, a)) in held.iter().enumerate() {
            let others = held.iter().skip(index + 1).filter(|(other, _)| other == flock);
            if let Some((_, b)) = others.into_iter().find(|(_, b)| a.conflicts(b)) {
                return Err(format!("{fid} is locked by programs as {a:?} and as {b:?}"));
            }
        }
        let waits = locks.waits(fid).filter(|(.., offered)| !offered);
        let mut free = waits.filter(|(flock, want, _)| {
            !held.iter().any(|(other, held)| other == flock && want.conflicts(held))
        });
        if let Some((_, want, _)) = free.next() {
            return Err(format!("{fid} is free for {want:?}, who waits"));
        }
    }
    Ok(())
}

/// Of a cluster at rest: nobody has locks who is not there.
pub(super) fn check_rest(host: &mut Host) -> Result<(), String> {
    let Some(mdt) = host.mdt() else { return Ok(()) };
    let locks = mdt.file_locks();
    for fid in locks.files() {
        let waits = locks.waits(fid).map(|(_, want, _)| want);
        let all = locks.holders(fid).map(|(_, held)| held).chain(waits);
        if let Some(of) = all.into_iter().find(|one| !mdt.is_connected(one.owner.client)) {
            return Err(format!("{fid} is locked by somebody who has gone: {of:?}"));
        }
    }
    Ok(())
}
