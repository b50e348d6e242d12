//! Grants: how many bytes each OST has promised room for.
//!
//! Who writes takes of them, sends along what was taken, and gets others with the answer. What was
//! taken for data that is kept belongs to the connection of then, and is void when that is lost:
//! an OST promises nothing to a new one. So each OST's grants have an epoch, and what was taken in
//! an earlier one is not sent.

use std::collections::BTreeMap;

use sateen_types::Chunk;

use crate::client::Client;
use crate::sync::lock;

#[derive(Debug, Clone, Copy, Default)]
struct Grant {
    bytes: u64,
    epoch: u64,
}

/// The grants of all OSTs.
#[derive(Debug, Default)]
pub(crate) struct OstGrants(BTreeMap<u32, Grant>);

impl OstGrants {
    /// What is left of one.
    pub(crate) fn left(&self, ost: u32) -> u64 {
        self.0.get(&ost).map_or(0, |grant| grant.bytes)
    }

    /// The epoch of one.
    pub(crate) fn epoch(&self, ost: u32) -> u64 {
        self.0.get(&ost).map_or(0, |grant| grant.epoch)
    }

    /// Takes all of these, or nothing if one of them has less.
    pub(crate) fn take_all(&mut self, wanted: impl Iterator<Item = (u32, u64)> + Clone) -> bool {
        for (at, (ost, bytes)) in wanted.clone().enumerate() {
            let grant = self.0.entry(ost).or_default();
            if let Some(rest) = grant.bytes.checked_sub(bytes) {
                grant.bytes = rest;
                continue;
            }
            for (ost, bytes) in wanted.take(at) {
                self.0.entry(ost).or_default().bytes += bytes;
            }
            return false;
        }
        true
    }

    /// A connection is gone, and with it what was granted on it.
    fn drop_one(&mut self, ost: u32) {
        let grant = self.0.entry(ost).or_default();
        *grant = Grant { bytes: 0, epoch: grant.epoch + 1 };
    }

    /// All connections are.
    pub(crate) fn drop_all(&mut self) {
        let osts: Vec<u32> = self.0.keys().copied().collect();
        osts.into_iter().for_each(|ost| self.drop_one(ost));
    }
}

impl Client {
    /// Takes up to so many bytes from the grant of one OST.
    pub(crate) fn take_grant(&self, index: u32, wanted: u64) -> u64 {
        let mut grants = lock(&self.grants);
        let grant = grants.0.entry(index).or_default();
        let used = wanted.min(grant.bytes);
        grant.bytes -= used;
        used
    }

    /// Takes all of these from the grants of the OSTs, or nothing if one of them has less.
    pub(crate) fn take_grants(&self, wanted: &[Chunk]) -> bool {
        lock(&self.grants).take_all(wanted.iter().map(|chunk| (chunk.ost, chunk.len)))
    }

    pub(crate) fn add_grant(&self, index: u32, bytes: u64) {
        let mut grants = lock(&self.grants);
        let grant = grants.0.entry(index).or_default();
        grant.bytes = grant.bytes.saturating_add(bytes);
    }

    /// A new connection begins without a grant.
    pub(crate) fn drop_grant(&self, index: u32) {
        lock(&self.grants).drop_one(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_taken_or_nothing() {
        let mut grants = OstGrants::default();
        for (ost, bytes) in [(0, 10), (1, 5)] {
            grants.0.insert(ost, Grant { bytes, epoch: 0 });
        }
        let take =
            |grants: &mut OstGrants, wanted: &[(u32, u64)]| grants.take_all(wanted.iter().copied());
        assert!(!take(&mut grants, &[(0, 4), (1, 3), (0, 7)]));
        assert_eq!((grants.left(0), grants.left(1)), (10, 5));
        assert!(take(&mut grants, &[(0, 4), (1, 5), (0, 6)]) && take(&mut grants, &[]));
        assert_eq!((grants.left(0), grants.left(1)), (0, 0));
    }

    #[test]
    fn a_new_connection_has_none_and_an_epoch_of_its_own() {
        let mut grants = OstGrants::default();
        grants.0.insert(2, Grant { bytes: 9, epoch: 0 });
        grants.drop_one(2);
        assert_eq!((grants.left(2), grants.epoch(2), grants.epoch(3)), (0, 1, 0));
        grants.drop_all();
        assert_eq!((grants.epoch(2), grants.epoch(3)), (2, 0), "nothing was taken of the other");
    }
}
