//! How many files this process may have open, how many of them each OST may keep, and how many
//! connections there may be beside them.

use rustix::process::{Resource, getrlimit, setrlimit};
use sateen_lnd::CONNECTIONS_MAX;

/// Connections, devices, logs, and objects that are in use at this moment.
const RESERVE: u64 = 256;
/// Of these so many are for others than connections,
const OTHERS: u64 = 64;
/// and connections get so many, however few files are allowed.
const CONNECTIONS_MIN: u64 = 64;
/// Tables of a target's index, segments of its journal, folders that are synced.
const PER_TARGET: u64 = 300;
/// Objects that an OST keeps open at most; more bring nothing.
const PER_OST_MAX: u64 = 2048;
/// An OST keeps so many objects open however few files are allowed: what it reads and writes
/// at the same time.
const PER_OST_MIN: u64 = 16;
/// With fewer than these each object is opened again and again.
const PER_OST_FEW: u64 = 256;

/// Raises the limit as far as this process may. Programs have a low one by default, for the
/// sake of `select`.
pub(super) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the number of open files stays limited");
    }
}

/// How many objects each of `osts` may keep open, in a process of so many targets.
pub(super) fn objects_per_ost(targets: usize, osts: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let each = share(limit, targets as u64, osts as u64);
    if osts > 0 && each < PER_OST_FEW {
        tracing::warn!(
            limit,
            osts,
            "few files may be open: each OST keeps {each} objects open, and is slow with more; \
             raise the hard limit (ulimit -Hn, LimitNOFILE)"
        );
    }
    each as usize
}

/// How many connections a process of so many targets may take: without a descriptor for what it
/// needs itself a target would stop.
pub(super) fn connections(targets: usize, osts: usize) -> usize {
    left_for_connections(getrlimit(Resource::Nofile).current, targets as u64, osts as u64)
}

fn left_for_connections(limit: Option<u64>, targets: u64, osts: u64) -> usize {
    let used = PER_TARGET * targets + share(limit, targets, osts) * osts + OTHERS;
    let left = limit.unwrap_or(u64::MAX).saturating_sub(used);
    (left.max(CONNECTIONS_MIN) as usize).min(CONNECTIONS_MAX)
}

/// `limit` is none if there is none.
fn share(limit: Option<u64>, targets: u64, osts: u64) -> u64 {
    let others = RESERVE + PER_TARGET * targets;
    let left = limit.unwrap_or(u64::MAX).saturating_sub(others);
    (left / osts.max(1)).clamp(PER_OST_MIN, PER_OST_MAX)
}

#[cfg(test)]
mod tests {
    use super::{CONNECTIONS_MAX, left_for_connections, share};

    #[test]
    fn connections_leave_the_targets_theirs() {
        assert_eq!(left_for_connections(None, 6, 4), CONNECTIONS_MAX);
        assert_eq!(left_for_connections(Some(1 << 20), 6, 4), CONNECTIONS_MAX);
        for (targets, osts) in [(6, 4), (1, 1), (1, 0)] {
            let all = share(Some(4096), targets, osts) * osts + 300 * targets;
            let connections = left_for_connections(Some(4096), targets, osts);
            assert!(connections >= 192 && connections as u64 + all <= 4096, "{connections}");
        }
    }

    #[test]
    fn what_all_keep_fits_the_limit() {
        assert_eq!(share(None, 6, 4), 2048);
        assert_eq!(share(Some(1 << 20), 6, 4), 2048);
        // A usual hard limit, and `sateen up` with four OSTs.
        let each = share(Some(4096), 6, 4);
        assert!((256..=512).contains(&each) && 4 * each + 6 * 300 + 256 <= 4096, "{each}");
        assert_eq!(share(Some(1024), 6, 4), 16);
        assert_eq!(share(Some(4096), 1, 0), 2048);
    }
}
