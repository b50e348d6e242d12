//! How fast an OST takes what is written out, and so how much is worth keeping for it.
//!
//! What is kept has to be written out before a sync ends, before another client gets the lock, and
//! before an unmount. So of an OST that takes little there is to be no more than it takes in
//! [`DRAIN_NS`]: a program that writes faster than that has to wait for it either way.

/// As long as this it may take until all is written out: 2 s.
const DRAIN_NS: u64 = 2_000_000_000;
/// So much may be kept of any, 3 MiB: two runs, one that is on its way and one that is filled, with what
/// they take beside.
const BYTES_MIN: u64 = 3 << 20;
/// Of smaller requests the time is that of the way to the OST, and says nothing of its disks: 64 KiB.
const REQUEST_BYTES_MIN: u64 = 64 << 10;
/// Requests have to have taken so long, together, before anything is said of their OST: 100 ms.
const KNOWN_NS: u64 = 100_000_000;
/// What is older than about a second counts ever less.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// What was found out so long ago, 10 s, is nothing known: who writes small files alone would be held by it
/// for ever.
const FORGOTTEN_NS: u64 = 10_000_000_000;
/// An OST that does not answer at all for a while is not slow, but away: 4 s.
const REQUEST_NS_MAX: u64 = 4_000_000_000;

/// See the module. Bytes, and the time for which any were on their way.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pace {
    on_their_way: u32,
    since_ns: u64,
    bytes: u64,
    ns: u64,
    /// When that was found out last.
    known_ns: u64,
}

impl Pace {
    /// A request sets out.
    pub(super) fn begins(&mut self, now_ns: u64) {
        if self.on_their_way == 0 {
            self.since_ns = now_ns;
        }
        self.on_their_way += 1;
        if now_ns.saturating_sub(self.known_ns) > FORGOTTEN_NS {
            (self.bytes, self.ns) = (0, 0);
        }
    }

    /// One is answered that had so many bytes.
    pub(super) fn ends(&mut self, bytes: u64, now_ns: u64) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        // Also of a small one, or the next large one would be charged with its time.
        let since_ns = core::mem::replace(&mut self.since_ns, now_ns);
        if bytes < REQUEST_BYTES_MIN {
            return;
        }
        let took = now_ns.saturating_sub(since_ns).min(REQUEST_NS_MAX);
        while self.ns > REMEMBERED_NS {
            (self.bytes, self.ns) = (self.bytes / 2, self.ns / 2);
        }
        (self.bytes, self.ns) = (self.bytes + bytes, self.ns + took);
        self.known_ns = now_ns;
    }

    /// How much may be kept, if it is known how fast the OST is.
    pub(super) fn limit(&self) -> Option<u64> {
        let drained = u128::from(self.bytes) * u128::from(DRAIN_NS) / u128::from(self.ns.max(1));
        let drained = u64::try_from(drained).unwrap_or(u64::MAX);
        (self.ns >= KNOWN_NS).then(|| drained.max(BYTES_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    /// Requests of a MiB, two at a time, each so long after the one before.
    fn paced(pace: &mut Pace, count: u64, each_ns: u64, now: &mut u64) {
        pace.begins(*now);
        for _ in 0..count {
            pace.begins(*now);
            *now += each_ns;
            pace.ends(MIB, *now);
        }
        pace.ends(0, *now);
    }

    #[test]
    fn a_slow_ost_is_kept_little_for_and_a_quick_one_is_not_limited() {
        let (mut pace, mut now) = (Pace::default(), 5);
        assert_eq!(pace.limit(), None);
        paced(&mut pace, 1, 99 * MS, &mut now);
        assert_eq!(pace.limit(), None, "too little is known");
        paced(&mut pace, 50, 100 * MS, &mut now);
        let limit = pace.limit().unwrap();
        assert!((18 * MIB..22 * MIB).contains(&limit), "{limit} of one that takes 10 MiB a second");
        // It is idle for a minute, and quick then.
        now += 60_000 * MS;
        paced(&mut pace, 2000, MS, &mut now);
        assert!(pace.limit().unwrap() > 1000 * MIB);
        // And almost stands.
        paced(&mut pace, 10, 60_000 * MS, &mut now);
        assert_eq!(pace.limit(), Some(BYTES_MIN));
        // It recovers soon from having been away.
        paced(&mut pace, 2000, MS, &mut now);
        assert!(pace.limit().unwrap() > 500 * MIB, "{:?}", pace.limit());
    }

    #[test]
    fn small_requests_say_nothing() {
        let mut pace = Pace::default();
        for request in 0..100 {
            pace.begins(request * 100 * MS);
            pace.ends(4096, (request + 1) * 100 * MS);
        }
        assert_eq!(pace.limit(), None);
        // Nor do they keep what was known of it before.
        paced(&mut pace, 3, 4000 * MS, &mut 0);
        assert_eq!(pace.limit(), Some(BYTES_MIN));
        for request in 1..=12 {
            pace.begins((12 + request) * 1000 * MS);
            pace.ends(4096, (12 + request) * 1000 * MS + MS);
        }
        assert_eq!(pace.limit(), None);
        // Nor are they charged to a large one that is quick.
        let mut now = 100_000 * MS;
        for _ in 0..400 {
            pace.begins(now);
            pace.begins(now);
            now += 100 * MS;
            pace.ends(4096, now);
            now += MS;
            pace.ends(MIB, now);
        }
        assert!(pace.limit().unwrap() > 1000 * MIB, "{:?}", pace.limit());
    }
}
