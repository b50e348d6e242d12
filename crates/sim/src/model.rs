//! What the cluster promised: the name space with its uncommitted tail, and the files' bytes.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::{ClientId, Fid};

use crate::data::Data;
use crate::names::{Mutation, Names};

/// A change that the MDT may still lose.
#[derive(Debug, Clone)]
struct Logged {
    client: ClientId,
    transno: u64,
    /// Its number in the run that has answered for it: a crash has taken it since, and it was made
    /// again.
    first: u64,
    mutation: Mutation,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Model {
    /// What no crash can take any more.
    pub base: Names,
    /// What everybody sees.
    pub now: Names,
    log: Vec<Logged>,
    /// What a crash has taken, by its first number, and may be made again.
    missing: BTreeMap<u64, Logged>,
    /// The MDT's transno up to which an fsync was believed.
    pub promised: u64,
    /// Bytes, also of files without a name.
    pub data: BTreeMap<Fid, Data>,
    /// Who must not be told by an fsync of this inode that all is well, because the MDT has lost
    /// a change of it that this client made and was answered for.
    pub must_hear: BTreeSet<(ClientId, Fid)>,
    /// Every FID that was ever made.
    pub made: BTreeSet<Fid>,
}

impl Model {
    /// A client's change became this transaction; 0 if it is durable already.
    pub fn change(&mut self, client: ClientId, transno: u64, mutation: Mutation) {
        self.now.apply(&mutation);
        if transno == 0 {
            self.base.apply(&mutation);
        } else {
            let at = self.log.partition_point(|logged| logged.transno < transno);
            self.log.insert(at, Logged { client, transno, first: transno, mutation });
        }
    }

    /// A change that a crash has taken was made again, as this transaction. Whether it is one that is
    /// known.
    pub fn replayed(&mut self, first: u64, transno: u64) -> bool {
        let Some(again) = self.missing.remove(&first) else { return false };
        self.now.apply(&again.mutation);
        for fid in again.mutation.about() {
            let about = |other: &Logged| other.mutation.about().into_iter().any(|of| of == fid);
            let mut others = self.missing.values().filter(|other| other.client == again.client);
            if !others.any(about) {
                self.must_hear.remove(&(again.client, fid));
            }
        }
        let at = self.log.partition_point(|logged| logged.transno < transno);
        self.log.insert(at, Logged { transno, ..again });
        true
    }

    /// Whether a change of this client is missing.
    pub fn misses(&self, client: ClientId) -> bool {
        self.missing.values().any(|lost| lost.client == client)
    }

    /// What is missing yet is made again no more.
    pub fn nothing_comes_back(&mut self) {
        self.missing.clear();
    }

    /// Everything up to here is durable.
    pub fn committed(&mut self, upto: u64) {
        let done = self.log.partition_point(|logged| logged.transno <= upto);
        for logged in self.log.drain(..done) {
            self.base.apply(&logged.mutation);
        }
    }

    /// The MDT crashed, and what it has now ends with this transno. Returns how many changes
    /// were lost, and whose.
    pub fn rolled_back(&mut self, upto: u64) -> (u64, BTreeSet<ClientId>) {
        self.committed(upto);
        let lost = self.log.len() as u64;
        let mut losers = BTreeSet::new();
        for logged in core::mem::take(&mut self.log) {
            losers.insert(logged.client);
            let about = logged.mutation.about().into_iter();
            self.must_hear.extend(about.map(|fid| (logged.client, fid)));
            self.missing.insert(logged.first, logged);
        }
        self.now = self.base.clone();
        (lost, losers)
    }

    /// The transno that an fsync of the MDT has to make durable.
    pub fn last_transno(&self) -> u64 {
        self.log.last().map_or(0, |logged| logged.transno)
    }

    /// Files that nobody can reach any more are forgotten.
    pub fn collect(&mut self, open: &BTreeSet<Fid>) {
        let (base, now) = (&self.base, &self.now);
        let made = |lost: &Logged| match &lost.mutation {
            Mutation::Make { fid, .. } => Some(*fid),
            _ => None,
        };
        let missing: BTreeSet<Fid> = self.missing.values().filter_map(made).collect();
        self.data.retain(|fid, _| {
            let kept = open.contains(fid) || missing.contains(fid);
            kept || base.inodes.contains_key(fid) || now.inodes.contains_key(fid)
        });
    }
}
