//! Runs of OSTs that ended in good order.
//!
//! Whatever was written in one is durable, and no line about it has to be kept: an OST that was
//! stopped and started again says in its answer to `Connect` which run it follows. A line is
//! made by whoever has heard an answer, which may have been given before that and be looked at
//! after it; so the runs are remembered, and a line of one of them is as good as none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use crate::client::Client;
use crate::inode::Unsynced;
use crate::sync::lock;

/// Runs remembered of each OST. What was written in an older one, and is noted only now, counts as
/// perhaps lost.
const RUNS_MAX: usize = 64;

/// Boot epochs of runs that ended well. Locked after everything else.
#[derive(Debug, Default)]
pub(crate) struct EndedWell(Mutex<BTreeMap<u32, VecDeque<u64>>>);

impl EndedWell {
    /// A run of an OST has ended in good order.
    pub(crate) fn add(&self, ost: u32, boot_epoch: u64) {
        let mut all = lock(&self.0);
        let runs = all.entry(ost).or_default();
        runs.push_back(boot_epoch);
        if runs.len() > RUNS_MAX {
            runs.pop_front();
        }
    }

    /// Whether what was written there then is durable.
    pub(crate) fn has(&self, at: Unsynced) -> bool {
        lock(&self.0).get(&at.ost).is_some_and(|runs| runs.contains(&at.boot_epoch))
    }
}

impl Client {
    /// An OST was started again after a run that ended in good order, as is noted by now: nothing
    /// that was written then has to be synced.
    pub(crate) fn ost_ended_well(&self, ost: u32) {
        let inodes = self.inodes.all();
        for inode in inodes {
            if let Some(rare) = lock(&inode.state).rare_if_any() {
                rare.unsynced.retain(|at| at.ost != ost || !self.ended.has(*at));
            }
        }
        self.unsynced.drop_durable(ost, &self.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_remembered_for_a_while() {
        let ended = EndedWell::default();
        for boot_epoch in 1..=RUNS_MAX as u64 + 1 {
            ended.add(3, boot_epoch);
        }
        let has = |ost, boot_epoch| ended.has(Unsynced { ost, boot_epoch });
        assert!(has(3, 2) && has(3, RUNS_MAX as u64 + 1));
        assert!(!has(3, 1) && !has(2, 2));
    }
}
