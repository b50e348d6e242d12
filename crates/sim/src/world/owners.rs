//! Whose the locks of MDTs are on inodes, at rest: nobody has any who has gone, and nobody takes for his
//! what his MDT does not hold for him.

use std::collections::{BTreeMap, BTreeSet};

use sateen_ldlm::Held;
use sateen_types::{ClientId, Endpoint, Fid, seq};
use sateen_wire::LockId;
use sateen_wire::disk::mdt::tag;

use super::World;
use crate::invariants::{TARGET, fid_of};

impl World {
    /// See the module.
    pub(super) fn locks_have_owners(&mut self) {
        let mut unknown = 0;
        for index in 0..self.shape.mdts {
            match self.owners_at(index) {
                Ok(of_one) => unknown += of_one,
                Err(what) => self.fail(format!("at the end MDT{index:04x}: {what}")),
            }
        }
        self.report.count("lock that its client does not know", unknown);
    }

    /// Of one MDT; how many locks their clients do not know.
    ///
    /// They may know less than they hold, and no more. A grant that meets the cancel of another lock of its
    /// inode is not believed: it stays, for nobody, until it is called back. What a client is giving
    /// back, and what went with an inode that is gone, the MDT has forgotten first.
    fn owners_at(&mut self, index: u32) -> Result<u64, String> {
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(index)) else { return Ok(0) };
        let inodes = host.records(tag::INODE);
        let inodes: BTreeSet<Fid> = inodes.iter().filter_map(|(key, _)| fid_of(key)).collect();
        let Some(mdt) = host.running_mdt() else { return Ok(0) };
        let mut held: BTreeMap<(ClientId, LockId), Held> = BTreeMap::new();
        for (id, lock) in mdt.all_locks() {
            let Held { fid, client, .. } = lock;
            if client == TARGET {
                return Err(format!("it is at rest, and keeps others away from {fid}: {lock:?}"));
            }
            if !mdt.is_connected(client) {
                return Err(format!("{fid} is locked by somebody who has gone: {lock:?}"));
            }
            held.insert((client, id), lock);
        }
        for node in self.nodes.iter().filter(|node| !node.dead) {
            let me = node.client.incarnation();
            if !mdt.is_connected(me) {
                continue;
            }
            let own = node.client.own_locks();
            for own in own.iter().filter(|own| seq::mdt_of(own.fid.seq) == index) {
                let covers = |held: &Held| {
                    held.fid == own.fid
                        && held.mode.covers(own.mode)
                        && held.bits.contains(own.bits)
                };
                let there = held.remove(&(me, own.id));
                if there.as_ref().is_some_and(covers) {
                    continue;
                }
                if there.is_some() || inodes.contains(&own.fid) && !own.leaves {
                    return Err(format!("{me:?} takes {own:?} for its own, which is {there:?}"));
                }
            }
        }
        let living = self.living();
        let left = held.keys().filter(|(client, _)| living.contains(client));
        Ok(left.count() as u64)
    }
}
