//! Tables that are merged away give their space back little by little.
//!
//! Where the file system below discards what is freed (`mount -o discard`), the deletion of
//! a table of tens of megabytes keeps the disk busy for a tenth of a second, and every read
//! and every group commit waits behind it: these were the longest operations of all. So,
//! before the engine deletes a table, the file is opened once more; and when the name is
//! gone a thread cuts it shorter, piece by piece, and rests after each for a multiple of the
//! time that it took: a disk that is slow at it is left to others for most of the time, however
//! slow it is. If the process ends meanwhile the kernel frees the rest at once; and if the disk
//! is full, whoever needs the space does ([`Trash::empty`]).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Freed at a time: its discard keeps a disk busy for a millisecond or two, or a slow one for
/// hundreds.
const PIECE_BYTES: u64 = 256 << 10;
/// Time between pieces, for others, in multiples of what the last one took.
const REST: u32 = 4;
/// At least so long: at most 250 MB/s are freed, a multiple of what is merged.
const PAUSE: Duration = Duration::from_millis(1);
/// Beyond so much that waits to be freed it rests for the shortest time only: what is merged
/// must not take more of the disk than others can spare.
const WAITING_BYTES_MAX: u64 = 2 << 30;
/// How long it takes at most, in a rest, to see that there is no time for one.
const LOOK: Duration = Duration::from_millis(20);

/// Where tables go. See the module.
#[derive(Debug)]
pub(super) struct Trash {
    pace: Arc<Pace>,
    tables: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
}

/// How the thread is to go on.
#[derive(Debug, Default)]
struct Pace {
    /// Not at all.
    stopping: AtomicBool,
    /// Without pauses.
    hurrying: AtomicBool,
    /// Bytes of the tables in it.
    waiting: AtomicU64,
}

impl Pace {
    /// How long to rest after a piece that took so long.
    fn rest(&self, took: Duration) -> Duration {
        if self.waiting.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
            return PAUSE;
        }
        took.saturating_mul(REST).max(PAUSE)
    }

    /// Rests, unless somebody waits.
    fn sleep(&self, rest: Duration) {
        let begun = Instant::now();
        while let Some(left) = rest.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
            && !self.stopping.load(Ordering::Acquire)
            && !self.hurrying.load(Ordering::Acquire)
        {
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// What the thread gets.
#[derive(Debug)]
enum Item {
    /// And how many bytes of it were counted as waiting.
    Table(File, u64),
    /// Somebody waits until all before this is freed.
    Waiter(Sender<()>),
}

impl Trash {
    /// Starts the thread.
    pub(super) fn start() -> std::io::Result<Trash> {
        let pace = Arc::<Pace>::default();
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("index-trash".into());
        let thread = thread.spawn({
            let pace = pace.clone();
            move || free(&receiver, &pace)
        })?;
        Ok(Trash { pace, tables: Some(sender), thread: Some(thread) })
    }

    /// Takes a table that nobody reads any more, and whose name is gone or will be.
    pub(super) fn put(&self, table: File) {
        if let Some(tables) = &self.tables {
            let bytes = len(&table);
            self.pace.waiting.fetch_add(bytes, Ordering::Relaxed);
            // If the thread has died, the table is closed here, and gone at once.
            let _ = tables.send(Item::Table(table, bytes));
        }
    }

    /// Frees all that was put in, at once, and waits for that. One caller at a time.
    pub(super) fn empty(&self) {
        let Some(tables) = &self.tables else { return };
        let (waiter, freed) = channel();
        self.pace.hurrying.store(true, Ordering::Release);
        // If the thread has died, there is nothing to wait for.
        let _ = tables.send(Item::Waiter(waiter)).map(|()| freed.recv());
        self.pace.hurrying.store(false, Ordering::Release);
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        self.pace.stopping.store(true, Ordering::Release);
        self.tables = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that frees tables panicked");
        }
    }
}

fn free(items: &Receiver<Item>, pace: &Pace) {
    for item in items {
        match item {
            Item::Table(table, bytes) => shrink(&table, bytes, pace),
            Item::Waiter(waiter) => {
                // It waits for this.
                let _ = waiter.send(());
            }
        }
    }
}

fn len(table: &File) -> u64 {
    table.metadata().map_or(0, |table| table.len())
}

fn shrink(table: &File, mut counted: u64, pace: &Pace) {
    let mut len = len(table);
    while len > 0 && !pace.stopping.load(Ordering::Acquire) {
        let hurrying = pace.hurrying.load(Ordering::Acquire);
        let piece = if hurrying { len } else { len.min(PIECE_BYTES) };
        let begun = Instant::now();
        if let Err(error) = table.set_len(len - piece) {
            tracing::debug!(%error, "a table is freed at once");
            break;
        }
        len -= piece;
        pace.waiting.fetch_sub(piece.min(counted), Ordering::Relaxed);
        counted -= piece.min(counted);
        pace.sleep(pace.rest(begun.elapsed()));
    }
    pace.waiting.fetch_sub(counted, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A disk that is slow at it is not kept busy, unless too much waits; and whoever hurries or
    /// ends it does not wait for a rest.
    #[test]
    fn rests_are_multiples_of_what_a_piece_took() {
        let (short, long) = (Duration::from_micros(10), Duration::from_secs(1000));
        let pace = Pace::default();
        assert_eq!((pace.rest(short), pace.rest(long)), (PAUSE, long * REST));
        pace.waiting.store(WAITING_BYTES_MAX + 1, Ordering::Relaxed);
        assert_eq!(pace.rest(long), PAUSE);
        for hurried in [&pace.hurrying, &pace.stopping] {
            std::thread::scope(|scope| {
                let rest = scope.spawn(|| pace.sleep(long));
                std::thread::sleep(PAUSE);
                assert!(!rest.is_finished());
                hurried.store(true, Ordering::Release);
                rest.join().unwrap();
                hurried.store(false, Ordering::Release);
            });
        }
        let begun = Instant::now();
        pace.sleep(3 * LOOK);
        assert!(begun.elapsed() >= 3 * LOOK);
    }

    #[test]
    fn tables_shrink_to_nothing() {
        let scratch = crate::testing::Scratch::new("trash");
        let path = scratch.path().join("1");
        let table = File::create(&path).unwrap();
        table.set_len(10 * PIECE_BYTES + 1).unwrap();
        let trash = Trash::start().unwrap();
        trash.put(table.try_clone().unwrap());
        let begun = Instant::now();
        while table.metadata().unwrap().len() > 0 {
            // A disk that stands still for a while makes it rest for a multiple of that.
            assert!(begun.elapsed() < Duration::from_secs(600), "never freed");
            std::thread::sleep(PAUSE);
        }
        // As long as this it takes days, unless somebody needs it.
        for _ in 0..2 {
            let long = File::create(&path).unwrap();
            long.set_len(1 << 40).unwrap();
            trash.put(long);
        }
        trash.empty();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(trash.pace.waiting.load(Ordering::Relaxed), 0);
        // What is left when it stops is the kernel's to free.
        table.set_len(1 << 40).unwrap();
        trash.put(table.try_clone().unwrap());
        drop(trash);
        assert!(table.metadata().unwrap().len() > 0);
    }
}
