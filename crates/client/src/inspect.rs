//! What there is to be seen and set of a client from outside: statistics, and what is worth
//! tuning of its connections.

use std::sync::Arc;

use sateen_types::{Endpoint, Errno, Fid, Result};
use sateen_wire::{Ibits, LockId, LockMode};

use crate::client::Client;
use crate::held::Held;
use crate::import::{Import, RPCS_IN_FLIGHT_MAX};
use crate::inode::InodeState;
use crate::stats::{RequestStats, Verb, VerbStats};
use crate::sync::lock;

/// A connection to a target.
#[derive(Debug, Clone, Copy)]
pub struct ImportInfo {
    /// Which.
    pub target: Endpoint,
    /// Whether the target is in use.
    pub active: bool,
    /// How it stands.
    pub state: ImportState,
    /// Whether the target is being asked whether it is there.
    pub asked: bool,
    /// Its generation.
    pub generation: u32,
    /// What both sides can do.
    pub features: u64,
    /// How often it was tried.
    pub attempts: u64,
    /// Requests that are not answered yet.
    pub in_flight: usize,
    /// How many there may be at most.
    pub rpcs_max: usize,
    /// How many of those may change something.
    pub mod_rpcs_max: usize,
    /// Pages of data that one of them carries at most.
    pub rpc_pages_max: u32,
    /// What was answered.
    pub stats: RequestStats,
}

/// How a connection to a target stands, in the words of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportState {
    /// There is none, or nobody answers on it.
    Disconnected,
    /// It is asked for.
    Connecting,
    /// The MDT was started again and is being told of what is held.
    Recovering,
    /// It is used.
    Full,
    /// The target has given this client up, and there was none since.
    Evicted,
}

impl ImportState {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "DISCONN",
            Self::Connecting => "CONNECTING",
            Self::Recovering => "RECOVER",
            Self::Full => "FULL",
            Self::Evicted => "EVICTED",
        }
    }
}

/// How many entries the tables of a client have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Inodes, with the root.
    pub inodes: usize,
    /// Locks, also those being given back.
    pub locks: usize,
    /// Open files.
    pub files: usize,
    /// Objects that dropped inodes have written and not synced.
    pub unsynced: usize,
    /// Files dropped of which acknowledged writes may be lost.
    pub lost: usize,
    /// Bytes that were written and are not at the OSTs yet.
    pub dirty_bytes: u64,
    /// Files that no program has open, and MDTs have for the next one.
    pub opens_kept: usize,
    /// How many opens have taken such a file over, and asked nobody.
    pub opens_reused: u64,
    /// How many files had what was kept of them closed before their last name was to be removed.
    pub opens_closed_first: u64,
    /// How many that nobody has any more MDTs have refused to close.
    pub opens_unclosed: u64,
    /// How many writes were kept under parts of files.
    pub kept_in_parts: u64,
}

/// A lock that a client takes for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLock {
    /// Of which inode.
    pub fid: Fid,
    /// What the MDT calls it.
    pub id: LockId,
    /// What it allows.
    pub mode: LockMode,
    /// Of what.
    pub bits: Ibits,
    /// It is being given back.
    pub leaves: bool,
}

impl Client {
    /// Most requests that may be in flight to one target.
    pub const RPCS_IN_FLIGHT_MAX: usize = RPCS_IN_FLIGHT_MAX;

    /// A verb was asked for.
    pub fn count(&self, verb: Verb) {
        self.verbs.count(verb);
    }

    /// What was asked for, and how many bytes were read and written.
    pub fn verb_stats(&self) -> VerbStats {
        self.verbs.stats()
    }

    /// Counts verbs anew.
    pub fn clear_verb_stats(&self) {
        self.verbs.clear();
    }

    /// The connections, by target.
    pub fn imports(&self) -> Vec<ImportInfo> {
        self.all_imports().into_iter().map(|(_, import)| import.info()).collect()
    }

    /// Asks a target whether it is there, if it is connected to: what comes of it the connection
    /// shows.
    pub fn probe(&self, target: Endpoint) {
        if let Some(import) = self.import(target) {
            import.probe(self.port.as_ref());
        }
    }

    /// The connection to a target.
    pub fn import_info(&self, target: Endpoint) -> Option<ImportInfo> {
        self.import(target).map(|import| import.info())
    }

    /// How many entries the tables have.
    pub fn census(&self) -> Census {
        let inodes = self.inodes.all();
        let count = |state: &InodeState| state.locks.len() + state.cancels.len();
        let locks = inodes.iter().map(|inode| count(&lock(&inode.state))).sum();
        let files = self.files.all().map(|part| part.len()).sum();
        let (unsynced, lost) = self.unsynced.census();
        let dirty_bytes = self.dirty.bytes_in_all();
        let (opens_kept, opens_reused, opens_closed_first, opens_unclosed) =
            self.open_cache.census();
        let inodes = inodes.len();
        Census {
            inodes,
            locks,
            files,
            unsynced,
            lost,
            dirty_bytes,
            opens_kept,
            opens_reused,
            opens_closed_first,
            opens_unclosed,
            kept_in_parts: self.dirty.kept_in_parts(),
        }
    }

    /// The locks it has.
    pub fn own_locks(&self) -> Vec<OwnLock> {
        let mut own = Vec::new();
        for inode in self.inodes.all() {
            let (fid, state) = (inode.fid, lock(&inode.state));
            own.extend(state.locks.iter().map(|held| {
                let Held { id, mode, bits, cancelling: leaves, .. } = *held;
                OwnLock { fid, id, mode, bits, leaves }
            }));
            own.extend(state.cancels.iter().filter_map(|leaving| {
                let (mode, bits) = leaving.was?;
                Some(OwnLock { fid, id: leaving.id, mode, bits, leaves: true })
            }));
        }
        own
    }

    /// What an OST has promised room for and is not used yet.
    pub fn grant(&self, ost: u32) -> u64 {
        lock(&self.grants).left(ost)
    }

    /// Bytes written that one OST does not have yet.
    pub fn dirty_bytes(&self, ost: u32) -> u64 {
        self.dirty.bytes(ost)
    }

    /// How many there may be.
    pub fn dirty_max(&self, ost: u32) -> u64 {
        self.dirty.bytes_max(ost)
    }

    /// And how many now: less of an OST that takes little.
    pub fn dirty_limit(&self, ost: u32) -> u64 {
        self.dirty.limit(ost)
    }

    fn named(&self, target: Endpoint) -> Result<Arc<Import>> {
        self.import(target).ok_or(Errno::ENOENT)
    }

    /// Counts requests to a target anew.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target.
    pub fn clear_request_stats(&self, target: Endpoint) -> Result<()> {
        self.named(target)?.clear_stats();
        Ok(())
    }

    /// Takes an OST out of use, or back into it.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target, `EOPNOTSUPP` for one that nobody can do without.
    pub fn set_active(&self, target: Endpoint, active: bool) -> Result<()> {
        let Endpoint::Ost(index) = target else { return Err(Errno::EOPNOTSUPP) };
        let import = self.named(target)?;
        if active == import.is_active() {
            return Ok(());
        }
        // A new connection begins without a grant.
        self.drop_grant(index);
        import.set_active(active);
        self.unsynced.wake();
        if active {
            import.connect(self.port.as_ref());
        }
        Ok(())
    }

    /// How many pages of data one request to a target may carry.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target, `ERANGE` for a number that cannot be.
    pub fn set_rpc_pages_max(&self, target: Endpoint, pages: u32) -> Result<()> {
        self.named(target)?.set_rpc_pages_max(pages)
    }

    /// How many requests to a target may be in flight.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target, `ERANGE` for a number that cannot be.
    pub fn set_rpcs_max(&self, target: Endpoint, max: usize) -> Result<()> {
        self.named(target)?.set_rpcs_max(max)
    }

    /// How many requests that change something may be in flight to an MDT: always fewer than all that
    /// may be.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target, `EOPNOTSUPP` for one that is no MDT, `ERANGE` for a
    /// number that cannot be.
    pub fn set_mod_rpcs_max(&self, target: Endpoint, max: usize) -> Result<()> {
        self.named(target)?.set_mod_rpcs_max(max)
    }
}
