//! What an MDT is started with, besides what every target is.

use sateen_target::Patience;
use sateen_types::StripePolicy;
use sateen_wire::{SPEAKS, StatFs};

/// An OST that the MDT may put files on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OstConfig {
    /// Its index.
    pub index: u32,
    /// Its space, if known; the MDT asks soon after its start.
    pub statfs: Option<StatFs>,
}

/// An MDT's own configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdtConfig {
    /// Its index; MDT 0 has the root.
    pub index: u32,
    /// The OSTs, by rising index.
    pub osts: Vec<OstConfig>,
    /// What new files get of which neither they nor their directories say anything.
    pub stripe: StripePolicy,
    /// Most inodes, as `statfs` shows it.
    pub inodes_max: u64,
    /// How long a client may take to answer a callback before it is evicted.
    pub callback_limit_ns: u64,
    /// So often writers of different clients meet on a file before they share it; 0: they never do.
    pub contended_locks: u32,
    /// Within this time, and for so long they share it.
    pub contention_ns: u64,
    /// Whether those who write a contended file at a distance may have parts of it.
    pub parts: bool,
    /// Memory for its locks.
    pub lock_limit_bytes: u64,
    /// Beyond so much of it those are asked back that were granted first.
    pub lock_reclaim_bytes: u64,
    /// How long a client that promised to speak may be silent before it is evicted.
    pub patience: Patience,
    /// How long clients of a run that ended in good order are waited for.
    pub recovery_time_soft_ns: u64,
    /// How long no file must have been removed before the OSTs destroy objects of those that were.
    pub destroy_delay_ns: u64,
    /// Id of the file system; 0 takes messages about any.
    pub file_system: u64,
}

/// How long clients may be silent unless it is set otherwise: 60 s, and those that were silent for
/// long before 10 minutes at most.
pub const PATIENCE: Patience =
    Patience { min_ns: 60_000_000_000, max_ns: 600_000_000_000, features: SPEAKS };

/// How long clients of a run that ended in good order are waited for, unless it is set otherwise:
/// 60 s in which anybody is heard.
pub const RECOVERY_TIME_SOFT_NS: u64 = 60_000_000_000;

/// How long no file must have been removed before objects of those that were go, unless it is set
/// otherwise: half a second. Who removes many files is done by then, or goes on for 5 s at least.
pub const DESTROY_DELAY_NS: u64 = 500_000_000;

impl MdtConfig {
    /// An MDT over OSTs whose space is not known yet.
    pub fn new(index: u32, osts: impl IntoIterator<Item = u32>) -> MdtConfig {
        let osts = osts.into_iter().map(|index| OstConfig { index, statfs: None }).collect();
        let callback_limit_ns = sateen_ldlm::CALLBACK_LIMIT_NS;
        MdtConfig {
            index,
            osts,
            stripe: StripePolicy::DEFAULT,
            inodes_max: 1 << 32,
            callback_limit_ns,
            contended_locks: sateen_ldlm::CONTENDED_LOCKS,
            contention_ns: sateen_ldlm::CONTENTION_NS,
            parts: true,
            lock_limit_bytes: sateen_ldlm::LOCK_LIMIT_BYTES,
            lock_reclaim_bytes: sateen_ldlm::LOCK_RECLAIM_BYTES,
            patience: PATIENCE,
            recovery_time_soft_ns: RECOVERY_TIME_SOFT_NS,
            destroy_delay_ns: DESTROY_DELAY_NS,
            file_system: 0,
        }
    }
}
