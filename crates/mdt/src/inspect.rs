//! What there is to be seen and set of an MDT from outside: statistics, its clients, and what is
//! worth tuning.

use sateen_ldlm::{Bounds, Parts};
use sateen_target::Heard;

use sateen_types::{ClientId, Endpoint, Fid, StripePolicy};
use sateen_wire::OpenId;

use crate::mdt::Mdt;
use crate::stats::{self, MdStats};

impl Mdt {
    /// The connected clients: where each is reached, and what it has had done.
    pub fn exports(&self) -> impl Iterator<Item = (ClientId, Endpoint, MdStats)> + '_ {
        let exports = &self.core.exports;
        exports.clients().filter_map(move |id| Some((id, exports.peer(id)?, self.counters.of(id))))
    }

    /// When a connected client was heard of.
    pub fn heard(&self, client: ClientId) -> Heard {
        self.core.exports.heard(client).unwrap_or_default()
    }

    /// What was done for all clients since the start, or since this was cleared.
    pub fn stats(&self) -> MdStats {
        *self.counters.all()
    }

    /// Counts anew.
    pub fn clear_stats(&mut self) {
        self.counters.clear();
    }

    /// The OSTs that it knows, and whether they are in use.
    pub fn osts(&self) -> Vec<(u32, bool)> {
        self.osp.indices().into_iter().map(|ost| (ost, self.alloc.is_active(ost))).collect()
    }

    /// How long a client may take to answer a callback before it is evicted.
    pub fn callback_limit_ns(&self) -> u64 {
        self.config.callback_limit_ns
    }

    /// The same for callbacks from now on.
    pub fn set_callback_limit_ns(&mut self, limit_ns: u64) {
        self.config.callback_limit_ns = limit_ns;
        self.locks.set_callback_limit(limit_ns);
        self.file_locks.set_callback_limit(limit_ns);
    }

    /// Its locks: how many there are, how many there may be, and how many were asked back because
    /// there were too many.
    pub fn locks(&self) -> (usize, Bounds, u64) {
        (self.locks.len(), self.locks.bounds(), self.locks.reclaimed())
    }

    /// How many questions were put to holders of data for the sake of those who look, and how many
    /// were answered without giving the lock back.
    pub fn glimpses(&self) -> (u64, u64) {
        self.locks.glimpses()
    }

    /// Memory for locks, and beyond how much of it some are asked back.
    pub fn lock_bytes(&self) -> (u64, u64) {
        (self.config.lock_limit_bytes, self.config.lock_reclaim_bytes)
    }

    /// Keeps as many locks as have room in so much memory.
    pub fn set_lock_bytes(&mut self, limit: u64, reclaim: u64) {
        (self.config.lock_limit_bytes, self.config.lock_reclaim_bytes) = (limit, reclaim);
        self.locks.set_bounds(Bounds::of_bytes(limit, reclaim));
    }

    /// How often writers of different clients meet on a file before they share it, and within which
    /// time, for which they then do.
    pub fn contention(&self) -> (u32, u64) {
        (self.contention.locks(), self.contention.for_ns())
    }

    /// How many locks were granted under which several clients write a file at a time.
    pub fn shared_locks(&self) -> u64 {
        self.contention.granted_count()
    }

    /// How many of them were for reading alone.
    pub fn shared_read_locks(&self) -> u64 {
        self.contention.granted_to_read()
    }

    /// Sets it. With 0 what is shared is called back, and nothing is any more.
    pub fn set_contention(&mut self, locks: u32, for_ns: u64) {
        (self.config.contended_locks, self.config.contention_ns) = (locks, for_ns);
        self.contention.set(locks, for_ns);
    }

    /// Whether parts of a file are granted.
    pub fn grants_parts(&self) -> bool {
        self.config.parts
    }

    /// Grants parts of a file, or none any more.
    pub fn set_grants_parts(&mut self, grants: bool) {
        self.config.parts = grants;
    }

    /// What came of parts.
    pub fn parts(&self) -> Parts {
        self.contention.parts()
    }

    /// How many clients were evicted because nothing was heard of them, since the start or since
    /// the statistics were cleared.
    pub fn evicted_silent(&self) -> u64 {
        stats::evicted_silent(&self.counters)
    }

    /// Whether it serves whoever comes: nothing of the last run is left.
    pub fn is_serving(&self) -> bool {
        self.startup.serving() && !self.is_leaving()
    }

    /// The clients that have files open, and how many.
    pub fn open_files(&self) -> impl Iterator<Item = (ClientId, usize)> + '_ {
        self.clients.open_files()
    }

    /// Files with a write session, and how many have each open for writing.
    pub fn sessions(&self) -> Vec<(Fid, u32)> {
        self.opens.sessions()
    }

    /// The opens for writing: whose, how they are named, and of which file.
    pub fn writing(&self) -> impl Iterator<Item = (ClientId, OpenId, Fid)> + '_ {
        self.clients.writing()
    }

    /// How long a client may be silent before it is evicted: at least, and at most.
    pub fn silence_ns(&self) -> (u64, u64) {
        (self.config.patience.min_ns, self.config.patience.max_ns)
    }

    /// The same from now on.
    pub fn set_silence_ns(&mut self, min_ns: u64, max_ns: u64) {
        (self.config.patience.min_ns, self.config.patience.max_ns) = (min_ns, max_ns);
    }

    /// What new files get of which neither they nor their directories say anything.
    pub fn default_policy(&self) -> StripePolicy {
        self.alloc.default_policy()
    }

    /// The same for files made from now on.
    pub fn set_default_policy(&mut self, policy: StripePolicy) {
        self.alloc.set_default_policy(policy);
    }

    /// Beyond which difference in free space, in per cent, new files are placed by it.
    pub fn balanced_percent(&self) -> u64 {
        self.alloc.balanced_percent()
    }

    /// The same for files made from now on.
    pub fn set_balanced_percent(&mut self, percent: u64) {
        self.alloc.set_balanced_percent(percent);
    }

    /// How long no file must have been removed before the OSTs destroy objects of those that were.
    pub fn destroy_delay_ns(&self) -> u64 {
        self.config.destroy_delay_ns
    }

    /// The same from now on, also for those that wait.
    pub fn set_destroy_delay_ns(&mut self, delay_ns: u64) {
        self.config.destroy_delay_ns = delay_ns;
        // At its end nothing waits.
        if !self.is_leaving() {
            self.osp.set_destroy_delay(delay_ns);
        }
    }
}
