//! Waiting for what must happen, on a machine that may stand still.
use std::time::{Duration, Instant};

/// What makes no progress for this long hangs.
pub(crate) const HANG: Duration = Duration::from_secs(120);
/// Between two looks.
const TURN: Duration = Duration::from_millis(1);
/// What a turn counts at most: a machine that stood still for seconds hangs nobody.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Time as it passes for a test: each turn of a loop counts, but none for long.
pub(crate) struct Clock {
    last: Instant,
    elapsed: Duration,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { last: Instant::now(), elapsed: Duration::ZERO }
    }

    /// Sleeps for a turn, and tells what has passed since the beginning.
    pub(crate) fn turn(&mut self) -> Duration {
        std::thread::sleep(TURN);
        self.elapsed += self.last.elapsed().min(TURN_MAX);
        self.last = Instant::now();
        self.elapsed
    }
}

/// Waits until `done`; no longer than `HANG`, and then tells so by `false`.
#[allow(dead_code, reason = "not used by all who include this")]
pub(crate) fn comes(mut done: impl FnMut() -> bool) -> bool {
    let mut clock = Clock::new();
    while !done() {
        if clock.turn() > HANG {
            return done();
        }
    }
    true
}
