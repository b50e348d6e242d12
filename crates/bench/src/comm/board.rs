//! The memory that local ranks and their launcher share, and what is where in it.
//!
//! Words of 32 bits: who has arrived at the barrier and how often it was passed (the futex), the
//! order to stop, and why. Words of 64 bits: for each rank what it has done, whether that is
//! all, and a box whose first word tells how many bytes are still to come from this rank, before
//! those that fit.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::error::{Error, Result};
use crate::sys::{HEAD_BYTES, Shared};

/// Words of a rank: what it has done, whether that is all, what is still to come, and its box.
const RANK_WORDS: usize = 512;
/// Which of them is what.
const DONE: usize = 0;
const OVER: usize = 1;
const LEFT: usize = 2;
/// Bytes that a box holds.
pub(super) const BOX_BYTES: usize = (RANK_WORDS - LEFT - 1) * 8;
/// Turns that a rank waits for the others before it goes to sleep, where each has a processor.
const SPINS: u32 = 20_000;
/// How long it sleeps at most before it looks for the order to stop.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Longest reason.
const REASON_BYTES_MAX: usize = HEAD_BYTES / 4 - REASON;

const ARRIVED: usize = 0;
const PASSED: usize = 1;
const STOPPED: usize = 2;
const REASON_LEN: usize = 3;
const REASON_OWNER: usize = 4;
const REASON: usize = 16;

/// The memory as one process has it.
#[derive(Debug)]
pub(super) struct Board {
    shared: Shared,
    size: usize,
    spins: u32,
}

impl Board {
    /// How many bytes it takes.
    pub(super) fn bytes(size: usize) -> usize {
        HEAD_BYTES + size * RANK_WORDS * 8
    }

    /// Maps it.
    pub(super) fn map(file: impl AsFd, size: usize) -> io::Result<Self> {
        let shared = Shared::map(file, Self::bytes(size))?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { shared, size, spins: if cpus >= size { SPINS } else { 0 } })
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn head(&self, at: usize) -> &AtomicU32 {
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        let word = self.shared.head().get(at);
        debug_assert!(word.is_some(), "the head is a page");
        word.unwrap_or(&NOWHERE)
    }

    fn of(&self, rank: usize) -> &[AtomicU64] {
        let from = rank * RANK_WORDS;
        self.shared.body().get(from..from + RANK_WORDS).unwrap_or_default()
    }

    /// What a rank has done in the current phase.
    pub(super) fn done(&self, rank: usize) -> Option<&AtomicU64> {
        self.of(rank).get(DONE)
    }

    /// Whether that is all: then it is not 0.
    pub(super) fn over(&self, rank: usize) -> Option<&AtomicU64> {
        self.of(rank).get(OVER)
    }

    /// Puts the beginning of `bytes` into a rank's box, and how many they are.
    pub(super) fn put(&self, rank: usize, bytes: &[u8]) {
        let Some((left, room)) = self.of(rank).get(LEFT..).and_then(<[_]>::split_first) else {
            return;
        };
        left.store(bytes.len() as u64, Ordering::Relaxed);
        for (word, bytes) in room.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }

    /// Takes what is in a rank's box, and says how many bytes there were before.
    pub(super) fn take(&self, rank: usize, into: &mut Vec<u8>) -> usize {
        let Some((left, room)) = self.of(rank).get(LEFT..).and_then(<[_]>::split_first) else {
            return 0;
        };
        let left = usize::try_from(left.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let end = into.len() + left.min(BOX_BYTES);
        for word in room.iter().take(left.div_ceil(8)) {
            into.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        into.truncate(end);
        left
    }

    /// Waits for all ranks.
    pub(super) fn barrier(&self) -> Result<()> {
        let passed = self.head(PASSED);
        let before = passed.load(Ordering::Acquire);
        let arrived = self.head(ARRIVED).fetch_add(1, Ordering::AcqRel) + 1;
        if usize::try_from(arrived) == Ok(self.size) {
            self.head(ARRIVED).store(0, Ordering::Relaxed);
            passed.store(before.wrapping_add(1), Ordering::Release);
            wake(passed);
            return self.check();
        }
        for _ in 0..self.spins {
            if passed.load(Ordering::Acquire) != before {
                return self.check();
            }
            std::hint::spin_loop();
        }
        while passed.load(Ordering::Acquire) == before {
            self.check()?;
            match futex::wait(passed, futex::Flags::empty(), before, Some(&SLEEP)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(error) => return Err(Error::system("wait for the other ranks", error)),
            }
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.head(STOPPED).load(Ordering::Relaxed) != 0
    }

    /// Orders all ranks to stop; the first who gives a reason is heard.
    pub(super) fn stop(&self, why: &str) {
        let first = self.head(REASON_OWNER).swap(1, Ordering::AcqRel) == 0;
        if first {
            let bytes = why.as_bytes().get(..REASON_BYTES_MAX.min(why.len())).unwrap_or_default();
            for (at, byte) in bytes.iter().enumerate() {
                // A byte a word: it is said once.
                self.head_reason(at).store(u32::from(*byte), Ordering::Relaxed);
            }
            let len = u32::try_from(bytes.len()).unwrap_or(0);
            self.head(REASON_LEN).store(len, Ordering::Release);
        }
        self.head(STOPPED).store(1, Ordering::Release);
        wake(self.head(PASSED));
    }

    fn head_reason(&self, at: usize) -> &AtomicU32 {
        self.head((REASON + at).min(HEAD_BYTES / 4 - 1))
    }

    /// Why it was stopped, if somebody has said so.
    pub(super) fn reason(&self) -> Option<String> {
        let len = usize::try_from(self.head(REASON_LEN).load(Ordering::Acquire)).ok()?;
        let bytes: Vec<u8> = (0..len)
            .map(|at| u8::try_from(self.head_reason(at).load(Ordering::Relaxed)).unwrap_or(b'?'))
            .collect();
        (len > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn wake(word: &AtomicU32) {
    // Nobody asleep is no error, and there is no other.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
}

/// Waits until a condition holds, for a while.
pub(super) fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_whole_and_the_first_counts() {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, Board::bytes(2) as u64).unwrap();
        let board = Board::map(&fd, 2).unwrap();
        assert_eq!(board.reason(), None);
        board.stop("rank 1: no space left on device");
        board.stop("rank 0: something else");
        assert_eq!(board.reason().as_deref(), Some("rank 1: no space left on device"));
        assert!(matches!(board.barrier(), Err(Error::Stopped)));
    }
}
