//! Time and randomness of the process: the only place that asks for either.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sateen_types::Timestamp;

/// The process's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { start: Instant::now() }
    }
}

impl Clock {
    /// Both kinds of time. A wall clock that stands before 1970 or after 2262 counts as 1970.
    pub fn now(&self) -> Timestamp {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp {
            mono_ns: self.mono_ns(),
            wall_ns: i64::try_from(wall.as_nanos()).unwrap_or_default(),
        }
    }

    /// Monotonic nanoseconds since the clock was made.
    pub fn mono_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A random number nobody can guess: client incarnations, uuids, hash keys.
///
/// # Panics
/// If the kernel gives no random bytes, without which nothing may be started.
#[expect(clippy::expect_used, reason = "every kernel served here has getrandom")]
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled.expect("getrandom"), bytes.len(), "eight bytes come in one piece");
    u64::from_ne_bytes(bytes)
}
