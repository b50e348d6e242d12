//! The frame an index lives in: memtables above it, a checkpoint thread, and a
//! journal that is written beside it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::engines::Engine;

/// Values lie behind one another in one buffer: a small allocation per pair,
/// freed by another thread, cost a third of the whole run.
#[derive(Default)]
struct Memtable {
    keys: BTreeMap<Key, Place>,
    values: Vec<u8>,
}

/// A key padded with zeros; no key here is another one padded.
type Key = [u8; KEY];
const KEY: usize = 21;
/// Offset and length in the buffer; none: deleted.
type Place = Option<(u32, u32)>;

/// What a pair costs in memory beside its value, roughly.
const PAIR_OVERHEAD: u64 = 56;

fn padded(key: &[u8]) -> Key {
    let mut padded = [0; KEY];
    padded[..key.len()].copy_from_slice(key);
    padded
}

impl Memtable {
    fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.keys.get(key).map(|place| self.value(*place))
    }

    fn value(&self, place: Place) -> Option<&[u8]> {
        place.map(|(at, len)| &self.values[at as usize..(at + len) as usize])
    }

    /// Returns the memory it takes in addition.
    fn insert(&mut self, key: &[u8], value: Option<&[u8]>) -> u64 {
        let place = value.map(|value| {
            let at = self.values.len() as u32;
            self.values.extend_from_slice(value);
            (at, value.len() as u32)
        });
        let slot = if self.keys.insert(padded(key), place).is_none() { PAIR_OVERHEAD } else { 0 };
        slot + value.map_or(0, <[u8]>::len) as u64
    }

    /// In the order of the keys, without their padding.
    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.keys.iter().map(|(key, place)| {
            let len = if key[0] == 1 { 13 } else { KEY };
            (&key[..len], self.value(*place))
        })
    }
}

#[derive(Default)]
struct Frozen {
    table: Option<Arc<Memtable>>,
    lsn: u64,
    stop: bool,
    failed: bool,
}

pub(crate) struct Shared {
    pub(crate) engine: Box<dyn Engine>,
    frozen: Mutex<Frozen>,
    wake: Condvar,
    /// The same memtable for readers.
    readable: RwLock<Option<Arc<Memtable>>>,
    pub(crate) checkpointing: AtomicBool,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoint_ms: AtomicU64,
    pub(crate) checkpoint_ms_max: AtomicU64,
    /// Longest waits for the engine's locks, and for the processor after a sleep.
    pub(crate) lock_us_max: AtomicU64,
    pub(crate) sleep_us_max: AtomicU64,
    journal_pending: AtomicU64,
    pub(crate) journal_us_max: AtomicU64,
    stop: AtomicBool,
}

pub(crate) struct Store {
    pub(crate) shared: Arc<Shared>,
    active: Memtable,
    active_bytes: u64,
    limit: u64,
    lsn: u64,
    pub(crate) waited: Duration,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Store {
    pub(crate) fn new(engine: Box<dyn Engine>, limit: u64, journal: &Path) -> Result<Self> {
        let lsn = engine.lsn()?.unwrap_or(0);
        let shared = Arc::new(Shared {
            engine,
            frozen: Mutex::default(),
            wake: Condvar::new(),
            readable: RwLock::new(None),
            checkpointing: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
            checkpoint_ms: AtomicU64::new(0),
            checkpoint_ms_max: AtomicU64::new(0),
            lock_us_max: AtomicU64::new(0),
            sleep_us_max: AtomicU64::new(0),
            journal_pending: AtomicU64::new(0),
            journal_us_max: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let file = File::create(journal)?;
        let threads = vec![
            std::thread::spawn({
                let shared = shared.clone();
                move || shared.checkpointer()
            }),
            std::thread::spawn({
                let shared = shared.clone();
                move || shared.journal(file)
            }),
            std::thread::spawn({
                let shared = shared.clone();
                move || shared.probe()
            }),
        ];
        Ok(Self {
            shared,
            active: Memtable::default(),
            active_bytes: 0,
            limit,
            lsn,
            waited: Duration::ZERO,
            threads,
        })
    }

    /// Overlay, then the index. The nanoseconds spent in the index, if asked.
    pub(crate) fn get(&self, key: &[u8]) -> Result<(Option<Vec<u8>>, Option<u64>)> {
        let padded = padded(key);
        if let Some(found) = self.active.get(&padded) {
            return Ok((found.map(<[u8]>::to_vec), None));
        }
        if let Some(frozen) = &*self.shared.readable.read().expect("lock")
            && let Some(found) = frozen.get(&padded)
        {
            return Ok((found.map(<[u8]>::to_vec), None));
        }
        let begin = Instant::now();
        let value = self.shared.engine.get(key)?;
        Ok((value, Some(begin.elapsed().as_nanos() as u64)))
    }

    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let bytes = (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.shared.journal_pending.fetch_add(bytes, Relaxed);
        self.active_bytes += self.active.insert(key, value);
        self.lsn += 1;
    }

    /// Between operations: freeze when full, and slow down smoothly while the
    /// checkpoint before is not finished.
    pub(crate) fn breathe(&mut self) -> Result<()> {
        if self.active_bytes < self.limit {
            return Ok(());
        }
        let mut frozen = self.shared.frozen.lock().expect("lock");
        anyhow::ensure!(!frozen.failed, "a background thread failed");
        if frozen.table.is_none() {
            let values = Vec::with_capacity(self.limit as usize);
            let fresh = Memtable { values, ..Memtable::default() };
            let table = Arc::new(std::mem::replace(&mut self.active, fresh));
            self.active_bytes = 0;
            frozen.table = Some(table.clone());
            frozen.lsn = self.lsn;
            *self.shared.readable.write().expect("lock") = Some(table);
            self.shared.wake.notify_all();
            return Ok(());
        }
        drop(frozen);
        // 0 at the limit, 20 ms at 1.5 times the limit.
        let over = (self.active_bytes - self.limit) as f64 / (self.limit as f64 / 2.0);
        let pause = Duration::from_secs_f64(0.02 * over.min(1.0).powi(3));
        if pause > Duration::from_micros(20) {
            std::thread::sleep(pause);
            self.waited += pause;
        }
        Ok(())
    }

    /// Writes out everything and ends the threads.
    pub(crate) fn close(mut self) -> Result<()> {
        while !self.active.keys.is_empty() {
            self.limit = 0;
            self.breathe()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.shared.frozen.lock().expect("lock").stop = true;
        self.shared.stop.store(true, Relaxed);
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().ok().context("thread died")??;
        }
        Ok(())
    }
}

impl Shared {
    fn checkpointer(&self) -> Result<()> {
        // A thread's own on Linux: what nobody waits for makes way for what somebody does.
        rustix::process::nice(10)?;
        loop {
            let (table, lsn) = {
                let mut frozen = self.frozen.lock().expect("lock");
                loop {
                    if let Some(table) = &frozen.table {
                        break (table.clone(), frozen.lsn);
                    }
                    if frozen.stop {
                        return Ok(());
                    }
                    frozen = self.wake.wait(frozen).expect("lock");
                }
            };
            let begin = Instant::now();
            self.checkpointing.store(true, Relaxed);
            let result = self.engine.checkpoint(lsn, &mut table.iter());
            self.checkpointing.store(false, Relaxed);
            let ms = begin.elapsed().as_millis() as u64;
            self.checkpoints.fetch_add(1, Relaxed);
            self.checkpoint_ms.fetch_add(ms, Relaxed);
            self.checkpoint_ms_max.fetch_max(ms, Relaxed);
            let mut frozen = self.frozen.lock().expect("lock");
            frozen.failed = result.is_err();
            result?;
            *self.readable.write().expect("lock") = None;
            frozen.table = None;
            drop(frozen);
            drop(table);
        }
    }

    fn probe(&self) -> Result<()> {
        let us = |begin: Instant| begin.elapsed().as_micros() as u64;
        while !self.stop.load(Relaxed) {
            let begin = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            self.sleep_us_max.fetch_max(us(begin).saturating_sub(1000), Relaxed);
            let begin = Instant::now();
            self.engine.touch_locks();
            self.lock_us_max.fetch_max(us(begin), Relaxed);
        }
        Ok(())
    }

    /// The journal's cost: what was logged is written and synced every 5 ms,
    /// round a file of 256 MiB that exists already.
    fn journal(&self, mut file: File) -> Result<()> {
        use std::io::{Seek as _, SeekFrom};
        const SIZE: u64 = 256 << 20;
        let block = vec![0x5a; 1 << 20];
        for _ in 0..SIZE >> 20 {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        file.seek(SeekFrom::Start(0))?;
        let mut at = 0;
        while !self.stop.load(Relaxed) {
            let mut bytes = self.journal_pending.swap(0, Relaxed);
            if bytes > 0 {
                let begin = Instant::now();
                while bytes > 0 {
                    let n = bytes.min(1 << 20);
                    if at + n > SIZE {
                        at = 0;
                        file.seek(SeekFrom::Start(0))?;
                    }
                    file.write_all(&block[..n as usize])?;
                    at += n;
                    bytes -= n;
                }
                file.sync_data()?;
                self.journal_us_max.fetch_max(begin.elapsed().as_micros() as u64, Relaxed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
