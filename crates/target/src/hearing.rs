//! Time as a target lives it, and how long it has listened to its clients.
//!
//! A client of which nothing is heard may be dead; or the target did not listen: its process was
//! stopped, its machine slept or had no time for it, its network was away. Whoever judges others
//! by their silence must not count such time. So a target has two clocks of its own, both driven
//! by the events it gets:
//!
//! - The *lived* time goes on by at most [`STEP_NS_MAX`] between two events, however much went by
//!   outside, and by as much more as ticks are apart while the target rests. After a stop the
//!   answers that lie in the sockets are read long before anybody's time is over.
//! - The *hearing* clock goes with it, but stands while nobody at all has been heard for
//!   [`NOBODY_NS`]: then it is rather the target that cannot be reached. What silence is measured
//!   by.
//!
//! Which single peers the network could not bring although they may well have spoken (a thread
//! that reads from them hangs in a disk), it says itself: see [`crate::Service::on_heard`].

use sateen_types::Timestamp;

use crate::Pace;

/// By so much the lived time goes on between two events at most, if ticks come often: 100 ms.
pub const STEP_NS_MAX: u64 = 100_000_000;
/// A target that has heard nobody for so long does not listen: 5 s. Whoever [speaks] does so more
/// often.
///
/// [speaks]: sateen_wire::SPEAKS
pub const NOBODY_NS: u64 = 5_000_000_000;

/// The clocks.
#[derive(Debug, Default)]
pub struct Hearing {
    /// The time outside at the last event; `None` before the first.
    seen_ns: Option<u64>,
    lived_ns: u64,
    /// When anybody was heard last, in lived time.
    heard_ns: u64,
    clock_ns: u64,
    pace: Pace,
}

impl Hearing {
    /// An event came. Returns its time as the target lives it.
    pub fn live(&mut self, now: Timestamp) -> Timestamp {
        let Some(seen_ns) = self.seen_ns.replace(now.mono_ns) else {
            (self.lived_ns, self.heard_ns) = (now.mono_ns, now.mono_ns);
            return now;
        };
        let went_by = now.mono_ns.saturating_sub(seen_ns).min(self.step_ns_max());
        self.lived_ns += went_by;
        if self.lived_ns - self.heard_ns <= NOBODY_NS {
            self.clock_ns += went_by;
        }
        Timestamp { mono_ns: self.lived_ns, ..now }
    }

    /// Ticks come so often from now on.
    pub const fn paced(&mut self, pace: Pace) {
        self.pace = pace;
    }

    const fn step_ns_max(&self) -> u64 {
        match self.pace {
            Pace::Soon | Pace::Slow => STEP_NS_MAX,
            Pace::Rest => Pace::Rest.ns() + STEP_NS_MAX,
        }
    }

    /// Somebody was heard.
    pub const fn heard(&mut self) {
        self.heard_ns = self.lived_ns;
    }

    /// The lived time.
    pub const fn lived_ns(&self) -> u64 {
        self.lived_ns
    }

    /// The hearing clock.
    pub const fn clock_ns(&self) -> u64 {
        self.clock_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(mono_ns: u64) -> Timestamp {
        Timestamp { mono_ns, wall_ns: 7 }
    }

    #[test]
    fn a_stop_is_not_lived() {
        let mut hearing = Hearing::default();
        assert_eq!(hearing.live(at(50)), at(50));
        assert_eq!(hearing.live(at(60)), at(60));
        assert_eq!(hearing.clock_ns(), 10);
        // For an hour.
        let stop_ns = 3600 * SECOND_NS;
        assert_eq!(hearing.live(at(60 + stop_ns)), at(60 + STEP_NS_MAX));
        assert_eq!(hearing.clock_ns(), 10 + STEP_NS_MAX);
        assert_eq!(hearing.live(at(70 + stop_ns)), at(70 + STEP_NS_MAX));
        // Time that goes back does not.
        assert_eq!(hearing.live(at(65 + stop_ns)), at(70 + STEP_NS_MAX));
    }

    #[test]
    fn who_rests_is_told_of_time_less_often() {
        let mut hearing = Hearing::default();
        hearing.live(at(0));
        hearing.paced(Pace::Rest);
        assert_eq!(hearing.live(at(Pace::Rest.ns())), at(Pace::Rest.ns()), "a tick");
        let lived_ns = hearing.lived_ns();
        hearing.live(at(3600 * SECOND_NS));
        assert_eq!(hearing.lived_ns() - lived_ns, Pace::Rest.ns() + STEP_NS_MAX, "a stop");
        hearing.paced(Pace::Soon);
        let lived_ns = hearing.lived_ns();
        hearing.live(at(7200 * SECOND_NS));
        assert_eq!(hearing.lived_ns() - lived_ns, STEP_NS_MAX);
    }

    #[test]
    fn who_hears_nobody_does_not_count_the_silence() {
        let mut hearing = Hearing::default();
        let mut now_ns = 1;
        let mut live = |hearing: &mut Hearing, ns: u64| {
            for _ in 0..ns / 50_000_000 {
                now_ns += 50_000_000;
                hearing.live(at(now_ns));
            }
        };
        live(&mut hearing, 60 * SECOND_NS);
        let deaf = hearing.clock_ns();
        assert!(deaf <= NOBODY_NS, "{deaf}");
        for _ in 0..10 {
            hearing.heard();
            live(&mut hearing, 4 * SECOND_NS);
        }
        assert_eq!(hearing.clock_ns(), deaf + 40 * SECOND_NS);
        assert!(hearing.lived_ns() >= 99 * SECOND_NS);
    }
}
