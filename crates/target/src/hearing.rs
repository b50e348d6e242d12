//! Time as a target lives it, and how long it has listened to its clients.
//!
//! A client of which nothing is heard may be dead; or the target did not listen: its process was
//! stopped, its machine slept or had no time for it, its network was away. Whoever judges others
//! by their silence must not count such time. So a target has two clocks of its own, both driven
//! by the events it gets:
//!
//! - The *lived* time goes on by at most [`STEP_NS_MAX`] between two events, however much went by
//!   outside, and while the target rests by as much more as ticks are apart, also if one comes as late
//!   as the next was due. A longer time is a stop, and counts no more for a target that rested: the
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
        let went_by = self.counted(now.mono_ns.saturating_sub(seen_ns));
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

    /// How much counts of the time between two events.
    const fn counted(&self, went_by: u64) -> u64 {
        let (most, late) = match self.pace {
            Pace::Soon | Pace::Slow => (STEP_NS_MAX, STEP_NS_MAX),
            Pace::Rest => (Pace::Rest.ns() + STEP_NS_MAX, 2 * Pace::Rest.ns()),
        };
        if went_by > late {
            STEP_NS_MAX
        } else if went_by > most {
            most
        } else {
            went_by
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
        assert_eq!(hearing.lived_ns() - lived_ns, STEP_NS_MAX, "a stop");
        let lived_ns = hearing.lived_ns();
        hearing.live(at(3601 * SECOND_NS + STEP_NS_MAX));
        assert_eq!(hearing.lived_ns() - lived_ns, Pace::Rest.ns() + STEP_NS_MAX, "a late tick");
        let lived_ns = hearing.lived_ns();
        hearing.live(at(3603 * SECOND_NS + STEP_NS_MAX));
        let counted = hearing.lived_ns() - lived_ns;
        assert_eq!(counted, Pace::Rest.ns() + STEP_NS_MAX, "as late as the next was due");
        let lived_ns = hearing.lived_ns();
        hearing.live(at(3605 * SECOND_NS + STEP_NS_MAX + 1));
        assert_eq!(hearing.lived_ns() - lived_ns, STEP_NS_MAX, "a stop");
        hearing.paced(Pace::Soon);
        let lived_ns = hearing.lived_ns();
        hearing.live(at(7200 * SECOND_NS));
        assert_eq!(hearing.lived_ns() - lived_ns, STEP_NS_MAX);
    }

    /// A client whose messages were lost for a while has spoken again while the target stood still:
    /// the first event after that comes before what it said is read.
    #[test]
    fn silence_before_a_stop_does_not_grow_by_a_tick_of_who_rests() {
        let mut hearing = Hearing::default();
        hearing.live(at(0));
        hearing.paced(Pace::Rest);
        for second in 1..=7 {
            hearing.heard();
            hearing.live(at(second * SECOND_NS));
        }
        assert_eq!(hearing.clock_ns(), 7 * SECOND_NS);
        hearing.live(at(20 * SECOND_NS));
        assert_eq!(hearing.clock_ns(), 7 * SECOND_NS + STEP_NS_MAX, "patience is 8 s");
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
