//! A target's metadata in memory: memtables over a read cache over the index.
//!
//! Life of a change: [`Store::commit`] puts it into the active memtable and the journal's
//! buffer and gives it a transno. A group commit ([`Store::begin_flush`], the driver writes,
//! [`Store::flush_done`]) makes it durable. When the active memtable is large it is frozen
//! ([`Store::begin_checkpoint`]); the driver writes it into the index once everything in it
//! is durable in the journal, and [`Store::checkpoint_done`] drops it.
//!
//! Reads look in this order: active, frozen, what was fetched for the operation, cache. If
//! all are silent the key is noted as wanted and the operation stops with [`Miss`].

use std::cell::RefCell;
use std::collections::btree_map::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use sateen_journal::Appender;

use crate::cache::Cache;
use crate::{Batch, BatchError, Key, Memtable, Miss, Prefetched, RangeWant, Wants};

/// Limits of one store.
#[derive(Debug, Clone, Copy)]
pub struct StoreLimits {
    /// The active memtable is frozen beyond so many bytes.
    pub memtable_bytes_max: usize,
    /// Bytes of clean values kept.
    pub cache_bytes_max: usize,
    /// Removed keys that one scan walks over in a memtable before it stops, so that a scan after
    /// a million removals holds the target's lock for a short time only.
    pub scan_removed_max: usize,
}

impl Default for StoreLimits {
    fn default() -> StoreLimits {
        StoreLimits {
            memtable_bytes_max: 48 << 20,
            cache_bytes_max: 32 << 20,
            scan_removed_max: 4096,
        }
    }
}

/// A group commit: bytes for the journal device.
#[derive(Debug)]
pub struct Flush {
    /// The frame. Give it back to [`Store::flush_done`].
    pub frame: Vec<u8>,
    /// Transno of the frame's first record.
    pub first: u64,
    /// Everything up to this transno is durable once the frame is.
    pub upto: u64,
}

/// A checkpoint: write the table into the index, after `upto` is durable in the journal.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The frozen memtable.
    pub table: Arc<Memtable>,
    /// Transno of its last change.
    pub upto: u64,
}

/// A target's metadata.
#[derive(Debug)]
pub struct Store {
    active: Memtable,
    frozen: Option<Checkpoint>,
    /// The memtable that was frozen last, once it is in the index: its memory is the next
    /// one's.
    spent: Option<Arc<Memtable>>,
    cache: Cache,
    journal: Appender,
    flushing: bool,
    committed: u64,
    generation: u64,
    /// Nothing was ever checkpointed, so that what the memtables do not know does not exist:
    /// a new target asks its index nothing.
    index_empty: bool,
    limits: StoreLimits,
    wants: RefCell<Wants>,
}

impl Store {
    /// An empty store over an index checkpointed at `checkpointed`. Recovery then feeds the
    /// journal's records to [`Store::replay`] before anything else happens.
    pub fn new(journal_epoch: u64, checkpointed: u64, limits: StoreLimits) -> Store {
        Store {
            active: Memtable::new(),
            frozen: None,
            spent: None,
            cache: Cache::new(limits.cache_bytes_max),
            journal: Appender::new(journal_epoch, checkpointed),
            flushing: false,
            committed: checkpointed,
            generation: 0,
            index_empty: checkpointed == 0,
            limits,
            wants: RefCell::default(),
        }
    }

    /// Applies a record found in the journal. Records at or below the checkpoint are skipped.
    ///
    /// # Errors
    /// A malformed record, or a gap in the transnos: the journal is damaged.
    pub fn replay(&mut self, epoch: u64, transno: u64, record: &[u8]) -> Result<(), BatchError> {
        if transno <= self.committed {
            return Ok(());
        }
        if transno != self.committed + 1 {
            return Err(BatchError);
        }
        self.active.apply(record)?;
        self.committed = transno;
        self.journal = Appender::new(epoch, transno);
        Ok(())
    }

    /// The value of a key, or that it has none.
    ///
    /// # Errors
    /// [`Miss`], with the key noted as wanted.
    pub fn get<'a>(&'a self, key: &Key, fetched: &'a Prefetched) -> Result<Option<&'a [u8]>, Miss> {
        if let Some(found) = self.active.get(key) {
            return Ok(found);
        }
        if let Some(found) = self.frozen.as_ref().and_then(|frozen| frozen.table.get(key)) {
            return Ok(found);
        }
        if fetched.generation == self.generation
            && let Some(found) = fetched.get(key)
        {
            return Ok(found);
        }
        if self.index_empty {
            return Ok(None);
        }
        if let Some(found) = self.cache.get(key) {
            return Ok(found);
        }
        self.wants.borrow_mut().keys.push(*key);
        Err(Miss)
    }

    /// Calls `visit` for pairs with keys above `after` that start with `prefix`, in key
    /// order, for at most `limit` pairs. `Some(key)` says that more may follow behind that
    /// key, also when few or no pairs were visited; `None`, that nothing does.
    ///
    /// # Errors
    /// [`Miss`], with the range noted as wanted.
    pub fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
        fetched: &Prefetched,
        mut visit: impl FnMut(&Key, &[u8]),
    ) -> Result<Option<Key>, Miss> {
        let want = RangeWant { prefix: *prefix, after: *after, limit };
        let below: &[(Key, Vec<u8>)] = match fetched.range(&want) {
            _ if self.index_empty => &[],
            Some(range) if fetched.generation == self.generation => &range.pairs,
            _ => {
                self.wants.borrow_mut().ranges.push(want);
                return Err(Miss);
            }
        };
        // A range that is cut off by its limit says nothing of what follows its last key.
        let mut horizon = if below.len() < limit { None } else { below.last().map(|pair| pair.0) };
        let mut merged: BTreeMap<Key, Option<&[u8]>> = BTreeMap::new();
        for (key, value) in below {
            merged.insert(*key, Some(value.as_slice()));
        }
        let start = if after < prefix { Bound::Included(*prefix) } else { Bound::Excluded(*after) };
        let tables =
            self.frozen.as_ref().map(|f| f.table.as_ref()).into_iter().chain([&self.active]);
        for table in tables {
            // Every removal can hide a fetched pair, so removals have a limit of their own.
            let (mut live, mut removed) = (0, 0);
            for (key, value) in table.range(start) {
                if !key.starts_with(prefix) || horizon.is_some_and(|last| key > last) {
                    break;
                }
                live += usize::from(value.is_some());
                removed += usize::from(value.is_none());
                merged.insert(key, value);
                if live > limit || removed >= self.limits.scan_removed_max {
                    horizon = Some(key);
                    break;
                }
            }
        }
        let mut last = None;
        let known = merged.iter().take_while(|(key, _)| horizon.is_none_or(|last| **key <= last));
        let pairs = known.filter_map(|(key, value)| value.map(|value| (key, value)));
        for (seen, (key, value)) in pairs.enumerate() {
            if seen == limit {
                return Ok(last);
            }
            visit(key, value);
            last = Some(*key);
        }
        Ok(horizon)
    }

    /// What the operation that just stopped with [`Miss`] wants, and the generation to read
    /// it in.
    pub fn take_wants(&mut self) -> (Wants, u64) {
        (core::mem::take(self.wants.get_mut()), self.generation)
    }

    /// Keeps fetched values for others.
    pub fn keep(&mut self, fetched: &Prefetched) {
        if fetched.generation != self.generation {
            return;
        }
        for (key, value) in &fetched.values {
            let known = self.active.get(key).is_some()
                || self.frozen.as_ref().is_some_and(|frozen| frozen.table.get(key).is_some());
            if !known {
                self.cache.insert(*key, value.as_deref().map(Box::from));
            }
        }
    }

    /// Marks a cached key as in use.
    pub fn touch(&mut self, key: &Key) {
        self.cache.touch(key);
    }

    /// Makes a batch the next transaction: applied in memory, queued for the journal.
    /// Returns its transno.
    ///
    /// # Panics
    /// If the batch is malformed, which [`Batch`] does not allow.
    #[expect(clippy::expect_used, reason = "Batch encodes what it decodes")]
    pub fn commit(&mut self, batch: &Batch) -> u64 {
        let record = batch.as_bytes();
        if !self.cache.is_empty() {
            for change in Batch::changes(record).flatten() {
                self.cache.remove(&change.key);
            }
        }
        self.active.apply(record).expect("a batch that was just built");
        self.journal.append(record)
    }

    /// Transno of the last transaction.
    pub fn transno(&self) -> u64 {
        self.journal.last()
    }

    /// Everything up to this transno is durable.
    pub const fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether something waits to be made durable.
    pub fn dirty(&self) -> bool {
        self.transno() > self.committed
    }

    /// Bytes waiting for the journal.
    pub fn pending_bytes(&self) -> usize {
        self.journal.pending_bytes()
    }

    /// Starts a group commit of everything queued, or of as much as one frame takes
    /// ([`Flush::upto`] is below [`Store::transno`] then, and another has to follow); `None` if
    /// one is running or there is nothing to do. The driver writes and syncs the frame and calls
    /// [`Store::flush_done`]. A failed write poisons the target: nothing may be acknowledged
    /// as durable afterwards.
    pub fn begin_flush(&mut self) -> Option<Flush> {
        if self.flushing {
            return None;
        }
        let frame = self.journal.take()?;
        self.flushing = true;
        Some(Flush { frame: frame.bytes, first: frame.first, upto: frame.last })
    }

    /// The group commit is durable.
    pub fn flush_done(&mut self, flush: Flush) {
        debug_assert!(self.flushing && flush.upto > self.committed, "one flush at a time");
        self.flushing = false;
        self.committed = flush.upto;
        self.journal.recycle(flush.frame);
    }

    /// Whether the active memtable is large enough to be frozen, and none is frozen yet.
    pub fn wants_checkpoint(&self) -> bool {
        self.frozen.is_none() && self.active.bytes() > self.limits.memtable_bytes_max
    }

    /// How full the active memtable is: 1000 means that it should be frozen, 2000 that it
    /// must not grow any more. Drivers slow changes down in between.
    pub fn fill_permille(&self) -> usize {
        self.active.bytes().saturating_mul(1000) / self.limits.memtable_bytes_max.max(1)
    }

    /// Whether both memtables are full: changes have to wait for the checkpoint to end.
    pub fn must_wait(&self) -> bool {
        self.frozen.is_some() && self.active.bytes() > 2 * self.limits.memtable_bytes_max
    }

    /// Freezes the active memtable. `None` if there is nothing to do or one is frozen.
    pub fn begin_checkpoint(&mut self) -> Option<Checkpoint> {
        if self.frozen.is_some() || self.active.is_empty() {
            return None;
        }
        // Nobody else looks at the spent one any more, unless the driver is late.
        let spent = self.spent.take().and_then(Arc::into_inner);
        let mut next = spent.unwrap_or_default();
        next.clear();
        let table = Arc::new(core::mem::replace(&mut self.active, next));
        let checkpoint = Checkpoint { table, upto: self.transno() };
        self.frozen = Some(checkpoint.clone());
        Some(checkpoint)
    }

    /// The frozen memtable is in the index, durably. Values fetched earlier are no longer
    /// believed, because they may be older than what was just written.
    pub fn checkpoint_done(&mut self) {
        self.spent = self.frozen.take().map(|frozen| frozen.table);
        self.index_empty = false;
        self.generation += 1;
    }

    /// The checkpoint that has begun cannot be written now, and nothing was changed since: it is
    /// as if it had not begun. Whoever has its table must have let go of it.
    pub fn checkpoint_given_up(&mut self) {
        assert!(self.active.is_empty(), "nothing is changed meanwhile");
        let table = self.frozen.take().and_then(|frozen| Arc::into_inner(frozen.table));
        self.active = table.expect("the table is the store's alone");
    }

    /// The checkpoint generation, for [`Prefetched`].
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Drops all clean values; for tests and for measuring.
    pub fn drop_cache(&mut self) {
        self.cache.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Index;
    use crate::memory::MemoryIndex;

    /// A store over a memory index, with operations retried as a driver does.
    struct World {
        store: Store,
        index: MemoryIndex,
    }

    fn key(n: u32) -> Key {
        Key::tag(b'k').with(&n.to_be_bytes())
    }

    impl World {
        fn get(&mut self, n: u32) -> Option<Vec<u8>> {
            let mut fetched = Prefetched::default();
            loop {
                if let Ok(value) = self.store.get(&key(n), &fetched) {
                    return value.map(<[u8]>::to_vec);
                }
                let (wants, generation) = self.store.take_wants();
                fetched.extend(Prefetched::read(&self.index, &wants, generation).unwrap());
                self.store.keep(&fetched);
            }
        }

        fn all(&mut self, limit: usize) -> Vec<Key> {
            let (mut out, mut after) = (Vec::new(), Key::EMPTY);
            loop {
                let mut fetched = Prefetched::default();
                let more = loop {
                    let got = &mut out;
                    let scan = self.store.scan(&Key::tag(b'k'), &after, limit, &fetched, |k, _| {
                        got.push(*k);
                    });
                    if let Ok(more) = scan {
                        break more;
                    }
                    let (wants, generation) = self.store.take_wants();
                    fetched.extend(Prefetched::read(&self.index, &wants, generation).unwrap());
                };
                match more {
                    Some(key) => after = key,
                    None => return out,
                }
            }
        }
    }

    #[test]
    fn a_scan_over_many_removals_is_done_in_pieces() {
        let mut world = World {
            store: Store::new(1, 0, StoreLimits::default()),
            index: MemoryIndex::default(),
        };
        let count = 3 * StoreLimits::default().scan_removed_max as u32;
        let mut batch = Batch::new();
        for n in 0..=count {
            batch.put(&key(n), &n);
        }
        world.store.commit(&batch);
        let checkpoint = world.store.begin_checkpoint().unwrap();
        world.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
        world.store.checkpoint_done();
        batch.clear();
        for n in 0..count {
            batch.remove(&key(n));
        }
        world.store.commit(&batch);
        assert_eq!(world.all(1 << 20), [key(count)]);
        assert_eq!(world.all(100), [key(count)]);
        let (mut pieces, mut after) = (0, Key::EMPTY);
        let mut fetched = Prefetched::default();
        loop {
            match world.store.scan(&Key::tag(b'k'), &after, 1 << 20, &fetched, |_, _| {}) {
                Ok(Some(next)) => (pieces, after) = (pieces + 1, next),
                Ok(None) => break,
                Err(Miss) => {
                    let (wants, generation) = world.store.take_wants();
                    fetched = Prefetched::read(&world.index, &wants, generation).unwrap();
                }
            }
        }
        assert_eq!(pieces, 3);
    }

    /// Random puts, removals, flushes and checkpoints against a plain map.
    #[test]
    fn store_is_a_map_whatever_is_where() {
        let mut random = sateen_testkit::seed();
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut world = World {
            store: Store::new(1, 0, StoreLimits::default()),
            index: MemoryIndex::default(),
        };
        let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        let mut running: Option<Checkpoint> = None;
        for round in 0..4000 {
            let n = next(60) as u32;
            match next(10) {
                0..4 => {
                    let value = vec![n as u8; next(30) as usize];
                    let mut batch = Batch::new();
                    batch.put_with(&key(n), |out| out.extend_from_slice(&value));
                    world.store.commit(&batch);
                    model.insert(key(n), value);
                }
                4..6 => {
                    let mut batch = Batch::new();
                    batch.remove(&key(n));
                    world.store.commit(&batch);
                    model.remove(&key(n));
                }
                6 => {
                    if let Some(flush) = world.store.begin_flush() {
                        world.store.flush_done(flush);
                        assert!(!world.store.dirty());
                    }
                }
                7 => match running.take() {
                    Some(checkpoint) => {
                        world.index.checkpoint(&checkpoint.table, checkpoint.upto).unwrap();
                        world.store.checkpoint_done();
                    }
                    None => running = world.store.begin_checkpoint(),
                },
                8 => assert_eq!(world.get(n), model.get(&key(n)).cloned(), "round {round}"),
                _ => {
                    let keys: Vec<Key> = model.keys().copied().collect();
                    let limit = 1 + next(20) as usize;
                    assert_eq!(world.all(limit), keys, "round {round} limit {limit}");
                }
            }
        }
    }
}
