//! What a long operation waited for: the processor, a disk, or another thread.
//!
//! The kernel counts how long a thread ran and how long it was ready to run and did not. What
//! is left of an operation's time it slept; in what, a watcher finds out by looking at its
//! kernel stack every millisecond once it has taken long. The threads' stacks need root;
//! without, sleep is not told apart.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Operations that take longer are looked into: 10 ms.
const LONG: Duration = Duration::from_millis(10);
/// Functions of a kernel stack that are shown, after those that every sleeper is in.
const FRAMES_SHOWN: usize = 3;

/// One thread, watched.
pub(super) struct Watched {
    begun: Instant,
    /// Nanoseconds after `begun` at which the running operation began; 0 if none runs.
    since_ns: AtomicU64,
    seen: Mutex<Seen>,
    tid: u64,
    clock: Option<File>,
    longest: Mutex<Vec<Stall>>,
}

/// What the watcher saw in the running operation.
#[derive(Default)]
struct Seen {
    asleep: u64,
    in_disk: u64,
    /// What the thread, and the others, slept in, and how often they were seen there.
    places: BTreeMap<String, u64>,
}

/// A long operation.
struct Stall {
    took: Duration,
    ran: Duration,
    ready: Duration,
    disk: Duration,
    /// Whether the watcher was in time to see it sleep.
    seen: bool,
    places: BTreeMap<String, u64>,
}

/// An operation that has begun.
pub(super) struct Begun {
    at: Instant,
    clock: (u64, u64),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Watches the calling thread.
    pub(super) fn this_thread() -> Watched {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        Watched {
            begun: Instant::now(),
            since_ns: AtomicU64::new(0),
            seen: Mutex::default(),
            tid: u64::from(tid.unsigned_abs()),
            clock: File::open(format!("/proc/self/task/{tid}/schedstat")).ok(),
            longest: Mutex::default(),
        }
    }

    /// Nanoseconds that the thread ran, and that it was ready and did not.
    fn clock(&self) -> (u64, u64) {
        let mut text = [0; 64];
        let read = self.clock.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = std::str::from_utf8(text.get(..read.unwrap_or(0)).unwrap_or_default());
        let mut numbers = text.unwrap_or_default().split(' ').map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    /// An operation begins.
    pub(super) fn begin(&self) -> Begun {
        let clock = self.clock();
        let at = Instant::now();
        let since = at.duration_since(self.begun).as_nanos() as u64;
        self.since_ns.store(since.max(1), Ordering::Relaxed);
        Begun { at, clock }
    }

    /// It has ended. Returns how long it took.
    pub(super) fn end(&self, begun: &Begun, kind: usize) -> Duration {
        let took = begun.at.elapsed();
        self.since_ns.store(0, Ordering::Relaxed);
        if took < LONG {
            return took;
        }
        let clock = self.clock();
        let ran = Duration::from_nanos(clock.0.saturating_sub(begun.clock.0));
        let ready = Duration::from_nanos(clock.1.saturating_sub(begun.clock.1));
        let seen = std::mem::take(&mut *lock(&self.seen));
        let asleep = took.saturating_sub(ran + ready);
        let disk = asleep.mul_f64(seen.in_disk as f64 / seen.asleep.max(1) as f64);
        let mut longest = lock(&self.longest);
        let kinds = longest.len().max(kind + 1);
        longest.resize_with(kinds, Stall::none);
        if let Some(worst) = longest.get_mut(kind).filter(|worst| worst.took < took) {
            let (seen, places) = (seen.asleep > 0, seen.places);
            *worst = Stall { took, ran, ready, disk, seen, places };
        }
        took
    }

    /// Looks at the thread, if its operation has taken long: every millisecond.
    pub(super) fn look(&self) {
        let since = self.since_ns.load(Ordering::Relaxed);
        let now = self.begun.elapsed().as_nanos() as u64;
        if since == 0 || now.saturating_sub(since) < LONG.as_nanos() as u64 {
            return;
        }
        let mut seen = lock(&self.seen);
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let own = entry.file_name().to_str().is_some_and(|name| name.parse() == Ok(self.tid));
            let state = read("stat");
            let state = state.rsplit(") ").next().and_then(|rest| rest.chars().next());
            if state == Some('R') || !own && state != Some('D') {
                continue;
            }
            let place = place(&read("stack"));
            if own {
                seen.asleep += 1;
                seen.in_disk += u64::from(state == Some('D'));
            }
            let who = if own { "itself".to_owned() } else { read("comm").trim().to_owned() };
            *seen.places.entry(format!("{who}: {place}")).or_default() += 1;
        }
        // It may have ended meanwhile, and then another one has begun.
        if self.since_ns.load(Ordering::Relaxed) != since {
            *seen = Seen::default();
        }
    }

    /// Prints the longest operation of each kind, if it was long.
    pub(super) fn print(&self, kinds: &[&str]) {
        for (stall, kind) in lock(&self.longest).iter().zip(kinds) {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let other = stall.took.saturating_sub(stall.ran + stall.ready + stall.disk);
            println!(
                "longest {kind}: {:.1} ms: ran {:.1}, ready to run {:.1}, disk {:.1}, {} {:.1}",
                ms(stall.took),
                ms(stall.ran),
                ms(stall.ready),
                ms(stall.disk),
                if stall.seen { "other threads" } else { "slept unseen" },
                ms(other)
            );
            for (place, times) in &stall.places {
                println!("    {times:>4} x {place}");
            }
        }
    }
}

impl Stall {
    fn none() -> Stall {
        let zero = Duration::ZERO;
        let places = BTreeMap::new();
        Stall { took: zero, ran: zero, ready: zero, disk: zero, seen: false, places }
    }
}

/// The functions of a kernel stack that tell what a thread sleeps in.
fn place(stack: &str) -> String {
    let names = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
    let names = names.map(|name| name.split('+').next().unwrap_or_default());
    let telling: Vec<&str> = names
        .filter(|name| !name.contains("schedule") && !name.starts_with("bit_wait"))
        .filter(|name| !name.starts_with("do_syscall") && !name.starts_with("entry_"))
        .take(FRAMES_SHOWN)
        .collect();
    telling.join(" < ")
}
