//! Statistics of a client: of the verbs, under the names of the field's `llite.*.stats`, and of
//! the requests to each target, under those of `osc.*.stats` and `mdc.*.stats`.
//!
//! Verbs run on many threads: relaxed counters, of which no sum is ever taken that must be
//! exact at one moment. Requests are counted by their import, under its own mutex.

use std::sync::atomic::{AtomicU64, Ordering};

use sateen_types::{Endpoint, StatName, Stats, Tally};
use sateen_wire::{MdtRequest, OstReply, OstRequest, Reply, ReplyBody, Request};

/// How many verbs are counted.
const VERBS: usize = 29;

/// What a client counts of its verbs.
pub type VerbStats = Stats<VERBS>;

/// A verb, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the verbs'")]
pub enum Verb {
    Read,
    Write,
    Open,
    Close,
    Seek,
    Fsync,
    Readdir,
    Setattr,
    Fallocate,
    Getattr,
    Lookup,
    Create,
    Link,
    Unlink,
    Symlink,
    Mkdir,
    Rmdir,
    Mknod,
    Rename,
    Statfs,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Flock,
    /// Answered by what is known under a lock: no request.
    LockHit,
    /// A lock that others want, or for which the MDT has no room.
    LockCallback,
    /// A lock that goes because nobody uses it.
    LockUnused,
    /// Others have looked at what is written under a lock, which stays.
    LockGlimpse,
}

/// The names of what is counted, in the order of [`Verb`].
pub const LLITE_STATS: [StatName; VERBS] = [
    StatName::bytes("read_bytes"),
    StatName::bytes("write_bytes"),
    StatName::reqs("open"),
    StatName::reqs("close"),
    StatName::reqs("seek"),
    StatName::reqs("fsync"),
    StatName::reqs("readdir"),
    StatName::reqs("setattr"),
    StatName::reqs("fallocate"),
    StatName::reqs("getattr"),
    StatName::reqs("lookup"),
    StatName::reqs("create"),
    StatName::reqs("link"),
    StatName::reqs("unlink"),
    StatName::reqs("symlink"),
    StatName::reqs("mkdir"),
    StatName::reqs("rmdir"),
    StatName::reqs("mknod"),
    StatName::reqs("rename"),
    StatName::reqs("statfs"),
    StatName::reqs("setxattr"),
    StatName::reqs("getxattr"),
    StatName::reqs("listxattr"),
    StatName::reqs("removexattr"),
    StatName::reqs("flock"),
    StatName::reqs("lock_hit"),
    StatName::reqs("lock_callback"),
    StatName::reqs("lock_unused"),
    StatName::reqs("lock_glimpse"),
];

#[derive(Debug, Default)]
struct Sized {
    samples: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    sumsq: AtomicU64,
}

impl Sized {
    fn add(&self, size: u64) {
        // The first sample sets the smallest: 0 stands for none yet, and a size of 0 is one.
        let first = self.samples.fetch_add(1, Ordering::Relaxed) == 0;
        if first {
            self.min.store(size, Ordering::Relaxed);
        } else if size < self.min.load(Ordering::Relaxed) {
            self.min.fetch_min(size, Ordering::Relaxed);
        }
        if size > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(size, Ordering::Relaxed);
        }
        self.sum.fetch_add(size, Ordering::Relaxed);
        self.sumsq.fetch_add(size.wrapping_mul(size), Ordering::Relaxed);
    }

    fn tally(&self) -> Tally {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tally {
            samples: of(&self.samples),
            min: of(&self.min),
            max: of(&self.max),
            sum: of(&self.sum),
            sumsq: of(&self.sumsq),
        }
    }

    fn clear(&self) {
        for counter in [&self.samples, &self.min, &self.max, &self.sum, &self.sumsq] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Counters of the verbs.
#[derive(Debug, Default)]
pub(crate) struct Verbs {
    counts: [AtomicU64; VERBS],
    read: Sized,
    written: Sized,
}

impl Verbs {
    pub(crate) fn count(&self, verb: Verb) {
        self.count_many(verb, 1);
    }

    pub(crate) fn count_many(&self, verb: Verb, times: u64) {
        if let Some(counter) = self.counts.get(verb as usize) {
            counter.fetch_add(times, Ordering::Relaxed);
        }
    }

    pub(crate) fn moved(&self, verb: Verb, bytes: u64) {
        match verb {
            Verb::Read => self.read.add(bytes),
            _ => self.written.add(bytes),
        }
    }

    pub(crate) fn stats(&self) -> VerbStats {
        let of = |counter: &AtomicU64| Tally {
            samples: counter.load(Ordering::Relaxed),
            ..Tally::default()
        };
        let mut all: [Tally; VERBS] =
            core::array::from_fn(|place| self.counts.get(place).map(of).unwrap_or_default());
        for (verb, sized) in [(Verb::Read, &self.read), (Verb::Write, &self.written)] {
            if let Some(tally) = all.get_mut(verb as usize) {
                *tally = sized.tally();
            }
        }
        Stats::of(all)
    }

    pub(crate) fn clear(&self) {
        self.counts.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.read.clear();
        self.written.clear();
    }
}

/// How many kinds of requests are counted for one target.
const REQUESTS: usize = 19;

/// What is counted of the requests to one target.
pub type RequestStats = Stats<REQUESTS>;

/// The names of what is counted of requests to an OST.
pub const OSC_STATS: [StatName; REQUESTS] = named([
    StatName::bytes("read_bytes"),
    StatName::bytes("write_bytes"),
    StatName::reqs("ost_read"),
    StatName::reqs("ost_write"),
    StatName::reqs("ost_getattr"),
    StatName::reqs("ost_sync"),
    StatName::reqs("ost_statfs"),
    StatName::reqs("ost_fallocate"),
    StatName::reqs("ost_seek"),
    StatName::reqs("ost_other"),
    StatName::reqs("obd_ping"),
    StatName::pieces("write_many"),
]);

/// The names of what is counted of requests to an MDT.
pub const MDC_STATS: [StatName; REQUESTS] = named([
    StatName::reqs("mds_getattr"),
    StatName::reqs("mds_getattr_lock"),
    StatName::reqs("mds_reint_create"),
    StatName::reqs("mds_open"),
    StatName::reqs("mds_close"),
    StatName::reqs("mds_reint_unlink"),
    StatName::reqs("mds_reint_rename"),
    StatName::reqs("mds_reint_link"),
    StatName::reqs("mds_reint_setattr"),
    StatName::reqs("mds_readpage"),
    StatName::reqs("mds_getxattr"),
    StatName::reqs("mds_reint_setxattr"),
    StatName::reqs("ldlm_enqueue"),
    StatName::reqs("ldlm_cancel"),
    StatName::reqs("mds_sync"),
    StatName::reqs("mds_statfs"),
    StatName::reqs("obd_ping"),
    StatName::reqs("mds_other"),
    StatName::reqs("ldlm_flock_enqueue"),
]);

/// The list, filled up with names that nothing is counted under.
const fn named<const N: usize>(some: [StatName; N]) -> [StatName; REQUESTS] {
    let mut all = [StatName::reqs(""); REQUESTS];
    let mut at = 0;
    while at < N {
        #[expect(clippy::indexing_slicing, reason = "N is at most REQUESTS: checked when compiled")]
        {
            all[at] = some[at];
        }
        at += 1;
    }
    all
}

fn ost_place(request: &OstRequest) -> usize {
    match request {
        OstRequest::Read { .. } => 2,
        OstRequest::Write { .. } | OstRequest::WriteMany { .. } | OstRequest::Append { .. } => 3,
        OstRequest::GetAttr { .. } => 4,
        OstRequest::Sync { .. } => 5,
        OstRequest::StatFs => 6,
        OstRequest::Allocate { .. } | OstRequest::ZeroRange { .. } => 7,
        OstRequest::Seek { .. } => 8,
        _ => 9,
    }
}

const OST_PING: usize = 10;
/// Those writes that have several pieces, by how many.
const WRITE_MANY: usize = 11;
const MDT_PING: usize = 16;
const FLOCK: usize = 18;

fn mdt_place(request: &MdtRequest) -> usize {
    match request {
        MdtRequest::GetAttr { .. } => 0,
        MdtRequest::Lookup { .. } => 1,
        MdtRequest::Create { .. } => 2,
        MdtRequest::Open { .. } => 3,
        MdtRequest::Close { .. } => 4,
        MdtRequest::Unlink { .. } => 5,
        MdtRequest::Rename { .. } => 6,
        MdtRequest::Link { .. } => 7,
        MdtRequest::SetAttr { .. } => 8,
        MdtRequest::ReadDir { .. } => 9,
        MdtRequest::GetXattr { .. } | MdtRequest::ListXattr { .. } => 10,
        MdtRequest::SetXattr { .. } | MdtRequest::RemoveXattr { .. } => 11,
        MdtRequest::Enqueue { .. }
        | MdtRequest::EnqueueGroup { .. }
        | MdtRequest::EnqueuePart { .. } => 12,
        MdtRequest::Cancel { .. } => 13,
        MdtRequest::Sync { .. } => 14,
        MdtRequest::StatFs => 15,
        MdtRequest::SetFileLock { .. } | MdtRequest::TestFileLock { .. } => FLOCK,
        _ => 17,
    }
}

/// Statistics and timers call one thing by one word, but for what is counted together as `…_other`.
fn is_one_word(names: &[StatName; REQUESTS], place: usize, called: &str) -> bool {
    let other = names.get(place).is_some_and(|stat| stat.name.ends_with("_other"));
    let named = names.iter().position(|stat| stat.name == called);
    named == Some(place) || other && named.is_none()
}

/// An answer came.
pub(crate) fn answered(
    stats: &mut RequestStats,
    target: Endpoint,
    request: &Request,
    reply: &Reply,
) {
    match request {
        Request::Ost(request) => {
            let place = ost_place(request);
            debug_assert!(is_one_word(&OSC_STATS, place, request.called()));
            stats.count(place);
            if let OstRequest::WriteMany { pieces, .. } = request {
                stats.add(WRITE_MANY, pieces.len() as u64);
            }
            match &reply.body {
                ReplyBody::Ost(OstReply::Read { len }) => stats.add(0, u64::from(*len)),
                ReplyBody::Ost(OstReply::Written { len, .. } | OstReply::Appended { len, .. }) => {
                    stats.add(1, u64::from(*len));
                }
                _ => {}
            }
        }
        Request::Mdt(request) => {
            let place = mdt_place(request);
            debug_assert!(is_one_word(&MDC_STATS, place, request.called()));
            stats.count(place);
        }
        Request::Ping => match target {
            Endpoint::Ost(_) => stats.count(OST_PING),
            _ => stats.count(MDT_PING),
        },
        Request::Mgs(_) | Request::Connect { .. } | Request::Disconnect => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_counted_with_their_bytes() {
        let verbs = Verbs::default();
        verbs.count(Verb::Getxattr);
        verbs.moved(Verb::Read, 100);
        verbs.moved(Verb::Read, 50);
        verbs.moved(Verb::Write, 7);
        let mut text = String::new();
        verbs.stats().write(&LLITE_STATS, &mut text).unwrap();
        assert_eq!(
            text,
            "read_bytes                2 samples [bytes] 50 100 150 12500\n\
             write_bytes               1 samples [bytes] 7 7 7 49\n\
             getxattr                  1 samples [reqs]\n"
        );
        verbs.clear();
        assert_eq!(verbs.stats(), VerbStats::default());
    }

    #[test]
    fn one_thing_has_one_word() {
        assert!(is_one_word(&MDC_STATS, 0, "mds_getattr"));
        assert!(!is_one_word(&MDC_STATS, 1, "mds_getattr"), "another's");
        assert!(is_one_word(&MDC_STATS, 17, "seq_query"));
        assert!(!is_one_word(&MDC_STATS, 17, "mds_getattr"), "it has a place");
        assert!(!is_one_word(&MDC_STATS, 0, "seq_query"));
    }

    #[test]
    fn each_place_has_its_name() {
        let name = |names: &[StatName; REQUESTS], place: usize| names[place].name;
        assert_eq!(name(&OSC_STATS, ost_place(&OstRequest::StatFs)), "ost_statfs");
        assert_eq!(name(&OSC_STATS, OST_PING), "obd_ping");
        assert_eq!(name(&OSC_STATS, WRITE_MANY), "write_many");
        assert_eq!(name(&MDC_STATS, mdt_place(&MdtRequest::StatFs)), "mds_statfs");
        assert_eq!(name(&MDC_STATS, mdt_place(&MdtRequest::GrantSeq)), "mds_other");
        assert_eq!(name(&MDC_STATS, MDT_PING), "obd_ping");
        let wait = sateen_wire::WaitId { id: 1 };
        let leave = MdtRequest::LeaveFileLock { fid: sateen_types::Fid::ROOT, wait };
        assert_eq!(name(&MDC_STATS, mdt_place(&leave)), "mds_other");
        assert_eq!(name(&MDC_STATS, FLOCK), "ldlm_flock_enqueue");
        assert_eq!(LLITE_STATS[Verb::Flock as usize].name, "flock");
        assert_eq!(LLITE_STATS[Verb::LockHit as usize].name, "lock_hit");
        assert_eq!(LLITE_STATS[Verb::LockUnused as usize].name, "lock_unused");
        assert_eq!(LLITE_STATS[Verb::Getxattr as usize].name, "getxattr");
        assert_eq!(LLITE_STATS[Verb::Listxattr as usize].name, "listxattr");
        assert_eq!(LLITE_STATS[Verb::Removexattr as usize].name, "removexattr");
        assert_eq!(LLITE_STATS[Verb::Create as usize].name, "create");
    }
}
