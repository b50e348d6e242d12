//! Tables that are merged away give their space back little by little.
//!
//! Where the file system below discards what is freed (`mount -o discard`), the deletion of
//! a table of tens of megabytes keeps the disk busy for a tenth of a second, and every read
//! and every group commit waits behind it: these were the longest operations of all. So,
//! before the engine deletes a table, the file is opened once more; and when the name is
//! gone a thread cuts it shorter, piece by piece. If the process ends meanwhile the kernel
//! frees the rest at once; and if the disk is full, whoever needs the space does
//! ([`Trash::empty`]).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Freed at a time: its discard keeps a slow disk busy for a millisecond or two.
const PIECE_BYTES: u64 = 256 << 10;
/// Time between pieces, for others: at most 250 MB/s are freed, a multiple of what is merged.
const PAUSE: Duration = Duration::from_millis(1);

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
}

/// What the thread gets.
#[derive(Debug)]
enum Item {
    Table(File),
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
            // If the thread has died, the table is closed here, and gone at once.
            let _ = tables.send(Item::Table(table));
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
            Item::Table(table) => shrink(&table, pace),
            Item::Waiter(waiter) => {
                // It waits for this.
                let _ = waiter.send(());
            }
        }
    }
}

fn shrink(table: &File, pace: &Pace) {
    let mut len = table.metadata().map_or(0, |table| table.len());
    while len > 0 && !pace.stopping.load(Ordering::Acquire) {
        let hurrying = pace.hurrying.load(Ordering::Acquire);
        len = if hurrying { 0 } else { len.saturating_sub(PIECE_BYTES) };
        if let Err(error) = table.set_len(len) {
            tracing::debug!(%error, "a table is freed at once");
            break;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

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
            assert!(begun.elapsed() < Duration::from_secs(120), "never freed");
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
        // What is left when it stops is the kernel's to free.
        table.set_len(1 << 40).unwrap();
        trash.put(table.try_clone().unwrap());
        drop(trash);
        assert!(table.metadata().unwrap().len() > 0);
    }
}
