//! How long a thread that has run out of work looks for more before it sleeps.
//!
//! To put a thread to sleep and wake it costs a few microseconds of the processor's time; to wake a
//! processor that has halted costs ten times that, in a virtual machine more. Who waits for one
//! answer after the other pays both each time. What is more, a scheduler that finds another
//! processor idle moves the program there that it wakes, and with it every request to that
//! processor's queue: the program goes to and fro between processors that have just halted. A
//! queue's thread that looks for work a little longer ends that: its processor is not idle, so the
//! program stays where it is.
//!
//! Used by the queues of FUSE and by those who read from sockets. Between looks a thread gives way
//! ([`std::thread::yield_now`]), so that whoever has something to do on its processor does it. How
//! long it looks adapts, in the manner of KVM's polling before a virtual processor halts
//! (Documentation/virt/kvm/halt-polling.rst in the kernel's source): longer while work keeps
//! coming soon, shorter if it comes late, so that who is asked rarely sleeps at once and idle
//! machines stay idle. "Soon" is longer than is ever looked: a program that goes to and fro asks
//! each of two queues half as often as it would ask one. So it has to be tried whether looking
//! helps, and a few looks in vain end it for a while. So does a processor that others want: giving
//! way puts a thread behind all of them, further than sleeping would.
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long is looked at most, in microseconds, if nothing else is said: longer than an answer takes
/// over loopback, and about as long as it takes to wake a halted processor.
pub const LIMIT_US: u16 = 50;
/// The limit of this process.
static PROCESS_LIMIT_US: AtomicU64 = AtomicU64::new(LIMIT_US as u64);
/// Work that comes within so many limits came soon.
const SOON_LIMITS: u32 = 4;
/// So many looks in vain, one after the other, are enough.
const VAIN_MAX: u32 = 16;
/// How long is looked first.
const FIRST: Duration = Duration::from_micros(10);
/// Who gets the processor back so late has given way to somebody with work of his own; if it is three
/// times as late, to somebody with much.
const CROWDED: Duration = Duration::from_micros(100);
/// That may happen once in so many looks that find something, as beside programs that wake up now
/// and then; and twice beyond that before it is taken for a processor that others want.
const CROWDED_COST: u32 = 16;
const CROWDED_MAX: u32 = 2 * CROWDED_COST;
/// For so many waits nothing is looked for after either; twice as many each time that it happens
/// again at the next try.
const REST_FIRST: u32 = 64;
/// Most waits for which nothing is looked for.
const REST_MAX: u32 = 4096;

/// Sets the limit for all threads of this process that begin to look from now on; zero: they do not.
pub fn set_limit(limit_us: u16) {
    PROCESS_LIMIT_US.store(limit_us.into(), Ordering::Relaxed);
}

/// How long one thread looks for work: what it has learned.
#[derive(Debug, Clone)]
pub struct Polling {
    limit: Duration,
    budget: Duration,
    /// Looks in vain since one found something.
    vain: u32,
    /// More for each time that the processor came back late, less for each that found something.
    crowded: u32,
    /// So many waits more without looking.
    rest: u32,
    /// How many it will be the next time.
    rest_next: u32,
}

impl Polling {
    /// As the process is told ([`set_limit`]).
    pub fn of_process() -> Polling {
        Polling::new(Duration::from_micros(PROCESS_LIMIT_US.load(Ordering::Relaxed)))
    }

    /// Never looks for longer than the limit; never at all with zero.
    pub fn new(limit: Duration) -> Polling {
        Polling {
            limit,
            budget: Duration::ZERO,
            vain: 0,
            crowded: 0,
            rest: 0,
            rest_next: REST_FIRST,
        }
    }

    /// Whether to look for work before sleeping.
    pub fn is_on(&self) -> bool {
        !self.budget.is_zero()
    }

    /// Looks for work, which `look` says that there is, since when there was none. False if there
    /// is none still: sleep, and say afterwards for how long ([`Polling::waited`]).
    ///
    /// # Errors
    /// Those of `look`.
    pub fn look(
        &mut self,
        idle_since: Instant,
        mut look: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<bool> {
        while self.is_on() {
            if look()? {
                (self.vain, self.crowded) = (0, self.crowded.saturating_sub(1));
                if self.crowded == 0 {
                    self.rest_next = REST_FIRST;
                }
                return Ok(true);
            }
            let before = Instant::now();
            std::thread::yield_now();
            let now = Instant::now();
            self.gave_way_for(now.saturating_duration_since(before));
            if now.saturating_duration_since(idle_since) >= self.budget {
                break;
            }
        }
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            self.take_a_rest();
        }
        look()
    }

    /// Work came after so long a time, of which the most was slept.
    pub fn waited(&mut self, idle: Duration) {
        if self.rest > 0 {
            self.rest -= 1;
        } else if idle > self.limit * SOON_LIMITS {
            let half = self.budget / 2;
            self.budget = if half < FIRST { Duration::ZERO } else { half };
        } else {
            self.budget = (self.budget * 2).max(FIRST).min(self.limit);
        }
    }

    /// Whether somebody else had the processor for long, lately.
    pub fn is_crowded(&self) -> bool {
        self.crowded > 0
    }

    /// Somebody else had the processor for so long.
    fn gave_way_for(&mut self, time: Duration) {
        let times = (time.as_micros() / CROWDED.as_micros()).min(3) as u32;
        self.crowded += CROWDED_COST * times;
        if self.crowded > CROWDED_MAX {
            // Once more is enough, until it has gone well again.
            self.crowded = CROWDED_MAX;
            self.take_a_rest();
        }
    }

    /// Nothing is looked for, for a while.
    fn take_a_rest(&mut self) {
        (self.budget, self.vain) = (Duration::ZERO, 0);
        self.rest = self.rest_next;
        self.rest_next = (self.rest_next * 2).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(LIMIT_US as u64);
    const SOON: Duration = Duration::from_micros(150);
    const LATE: Duration = Duration::from_millis(2);

    fn grown() -> Polling {
        let mut polling = Polling::new(LIMIT);
        (0..4).for_each(|_| polling.waited(SOON));
        polling
    }

    #[test]
    fn who_is_asked_soon_looks_longer_and_who_is_asked_late_sleeps_at_once() {
        let mut polling = Polling::new(LIMIT);
        assert!(!polling.is_on(), "nothing was learned yet");
        polling.waited(LATE);
        assert!(!polling.is_on());
        polling.waited(SOON);
        assert_eq!(polling.budget, FIRST);
        polling.waited(SOON);
        assert_eq!(polling.budget, FIRST * 2);
        (0..9).for_each(|_| polling.waited(SOON));
        assert_eq!(polling.budget, LIMIT);
        polling.waited(LATE);
        assert_eq!(polling.budget, LIMIT / 2);
        (0..3).for_each(|_| polling.waited(LATE));
        assert!(!polling.is_on(), "idle machines stay idle");
    }

    #[test]
    fn without_a_limit_nothing_is_looked_for() {
        let mut polling = Polling::new(Duration::ZERO);
        (0..9).for_each(|_| polling.waited(Duration::ZERO));
        assert!(!polling.is_on());
        let found = polling.look(Instant::now(), || Ok(false));
        assert!(!found.unwrap_or(true));
    }

    #[test]
    fn work_that_comes_while_it_is_looked_for_is_found() {
        let mut polling = Polling::new(Duration::from_secs(100));
        polling.waited(SOON);
        polling.budget = Duration::from_secs(100);
        let mut looks = 0;
        let found = polling.look(Instant::now(), || {
            looks += 1;
            Ok(looks == 3)
        });
        assert!(found.unwrap_or(false));
        assert_eq!(looks, 3);
    }

    #[test]
    fn what_came_with_the_last_look_is_not_slept_over() {
        let mut polling = grown();
        let idle_since = Instant::now();
        // The budget is used up when this says yes for the first time.
        let found = polling.look(idle_since, || Ok(idle_since.elapsed() > LIMIT));
        assert!(found.unwrap_or(false));
    }

    #[test]
    fn where_others_want_the_processor_it_rests_longer_each_time() {
        let mut polling = grown();
        polling.take_a_rest();
        assert!(!polling.is_on());
        let rested = |polling: &mut Polling| {
            let mut waits = 0;
            while !polling.is_on() {
                polling.waited(SOON);
                waits += 1;
            }
            waits
        };
        assert_eq!(rested(&mut polling), REST_FIRST + 1);
        polling.take_a_rest();
        assert_eq!(rested(&mut polling), 2 * REST_FIRST + 1);
        // Once work was found in time it is as before.
        find(&mut polling);
        polling.take_a_rest();
        assert_eq!(rested(&mut polling), REST_FIRST + 1);
        for _ in 0..40 {
            polling.take_a_rest();
        }
        assert_eq!(rested(&mut polling), REST_MAX + 1);
    }

    #[test]
    fn looks_in_vain_come_to_an_end() {
        let mut polling = grown();
        let mut vain = 0;
        while polling.is_on() {
            assert!(!polling.look(Instant::now(), || Ok(false)).unwrap_or(true));
            polling.waited(SOON);
            vain += 1;
        }
        // A machine with other work says so sooner.
        assert!(vain <= VAIN_MAX, "{vain}");
        assert!(polling.rest > 0);
    }

    fn find(polling: &mut Polling) {
        assert!(polling.look(Instant::now(), || Ok(true)).unwrap_or(false));
    }

    #[test]
    fn a_processor_that_others_want_is_noticed_at_once() {
        let mut polling = grown();
        polling.gave_way_for(CROWDED / 2);
        assert!(polling.is_on() && !polling.is_crowded());
        polling.gave_way_for(LATE);
        assert!(!polling.is_on() && polling.is_crowded());
        assert_eq!(polling.rest, REST_FIRST);
        while !polling.is_on() {
            polling.waited(SOON);
        }
        polling.gave_way_for(CROWDED);
        assert!(!polling.is_on(), "once more is enough");
        assert_eq!(polling.rest, 2 * REST_FIRST);
    }

    #[test]
    fn who_is_seldom_kept_waiting_goes_on_looking() {
        let rests = |finds_between: u32| {
            let mut polling = grown();
            for _ in 0..50 {
                polling.gave_way_for(CROWDED);
                (0..finds_between).for_each(|_| find(&mut polling));
            }
            !polling.is_on()
        };
        assert!(!rests(CROWDED_COST) && rests(CROWDED_COST / 2) && rests(0));
    }
}
