//! The memory backend: an index, a journal and an object store without a disk, for tests and for file
//! systems that may forget.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use sateen_journal::{Decoded, decode_frame};
use sateen_types::{Falloc, Fid, ObjectId, Seq, Timespec};
use sateen_wire::StatFs;

use crate::{
    Flush, Given, Index, IndexError, JournalDevice, Key, Memtable, ObjectError, ObjectStat,
    ObjectStore,
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An index in memory.
#[derive(Debug, Default)]
pub struct MemoryIndex {
    pairs: Mutex<(BTreeMap<Key, Vec<u8>>, u64)>,
}

impl Index for MemoryIndex {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(lock(&self.pairs).0.get(key).cloned())
    }

    fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, IndexError> {
        let start = if after < prefix { Bound::Included(*prefix) } else { Bound::Excluded(*after) };
        let pairs = lock(&self.pairs);
        let range = pairs.0.range((start, Bound::Unbounded));
        let within = range.take_while(|(key, _)| key.starts_with(prefix)).take(limit);
        Ok(within.map(|(key, value)| (*key, value.clone())).collect())
    }

    fn checkpoint(&self, table: &Memtable, upto: u64) -> Result<(), IndexError> {
        let mut pairs = lock(&self.pairs);
        for (key, value) in table.range(Bound::Unbounded) {
            match value {
                Some(value) => pairs.0.insert(key, value.to_vec()),
                None => pairs.0.remove(&key),
            };
        }
        pairs.1 = upto;
        Ok(())
    }

    fn checkpointed(&self) -> u64 {
        lock(&self.pairs).1
    }
}

/// A journal in memory. Clones are the same journal, so that what one target wrote can be
/// given to its successor.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    frames: Arc<Mutex<Vec<KeptFrame>>>,
}

#[derive(Debug)]
struct KeptFrame {
    last: u64,
    bytes: Vec<u8>,
}

impl MemoryJournal {
    /// The payloads of all frames of a journal epoch, in order, for recovery.
    pub fn payloads(&self, epoch: u64) -> Vec<Vec<u8>> {
        let frames = lock(&self.frames);
        let payload = |frame: &KeptFrame| match decode_frame(epoch, &frame.bytes) {
            Decoded::Frame { payload, .. } => Some(payload.to_vec()),
            Decoded::End => None,
        };
        frames.iter().map_while(payload).collect()
    }
}

impl JournalDevice for MemoryJournal {
    fn write(&mut self, flush: &Flush) -> io::Result<()> {
        lock(&self.frames).push(KeptFrame { last: flush.upto, bytes: flush.frame.clone() });
        Ok(())
    }

    fn trim(&mut self, upto: u64) -> io::Result<()> {
        lock(&self.frames).retain(|frame| frame.last > upto);
        Ok(())
    }
}

/// What `seek` looks at: a block of nothing but zeros counts as a hole.
const BLOCK_BYTES: usize = 4096;

/// Objects in memory. What is given away has no file: whoever has it calls the store.
#[derive(Debug)]
pub struct MemoryObjects {
    objects: Mutex<BTreeMap<ObjectId, Object>>,
    bytes_max: u64,
    /// Nanoseconds since 1970. Whoever tells the time tells it here; otherwise each change is one
    /// later than the last.
    clock: Arc<AtomicU64>,
    is_told_the_time: bool,
}

/// When the first object is born in a store that nobody tells the time.
const FIRST_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Default)]
struct Object {
    data: Vec<u8>,
    atime: Timespec,
    mtime: Timespec,
    ctime: Timespec,
}

impl Object {
    fn born(now: Timespec) -> Object {
        Object { data: Vec::new(), atime: now, mtime: now, ctime: now }
    }

    fn is_changed(&mut self, now: Timespec) {
        (self.mtime, self.ctime) = (now, now);
    }
}

impl MemoryObjects {
    /// An empty store that holds `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> MemoryObjects {
        let clock = Arc::new(AtomicU64::new(FIRST_NS));
        MemoryObjects { objects: Mutex::default(), bytes_max, clock, is_told_the_time: false }
    }

    /// The same with a clock, in nanoseconds since 1970.
    pub fn timed_by(bytes_max: u64, clock: Arc<AtomicU64>) -> MemoryObjects {
        MemoryObjects { clock, is_told_the_time: true, ..MemoryObjects::new(bytes_max) }
    }

    fn now(&self) -> Timespec {
        let ns = match self.is_told_the_time {
            true => self.clock.load(Ordering::Relaxed),
            false => self.clock.fetch_add(1, Ordering::Relaxed),
        };
        Timespec::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    fn used(objects: &BTreeMap<ObjectId, Object>) -> u64 {
        objects.values().map(|object| object.data.len() as u64).sum()
    }

    /// Writes at `offset`, or at the end. Where that was, and how much.
    fn write_at(
        &self,
        object: ObjectId,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize), ObjectError> {
        let now = self.now();
        let mut objects = lock(&self.objects);
        let size = objects.get(&object).map_or(0, |object| object.data.len() as u64);
        let offset = offset.unwrap_or(size);
        let end = offset.checked_add(data.len() as u64).ok_or_else(no_space)?;
        let used = Self::used(&objects);
        // As on a disk, the object has its name before it is found that there is no room.
        let stored = objects.entry(object).or_insert_with(|| Object::born(now));
        let bytes = &mut stored.data;
        let room = (bytes.len() as u64).saturating_add(self.bytes_max.saturating_sub(used));
        let fits = end.min(room).saturating_sub(offset) as usize;
        let data = match data.get(..fits) {
            Some([]) if !data.is_empty() => return Err(no_space()),
            Some(fitting) => fitting,
            None => data,
        };
        let (start, end) = (offset as usize, offset as usize + data.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        if let Some(place) = bytes.get_mut(start..end) {
            place.copy_from_slice(data);
        }
        stored.is_changed(now);
        Ok((offset, data.len()))
    }
}

fn no_space() -> ObjectError {
    ObjectError(io::Error::from_raw_os_error(sateen_types::Errno::ENOSPC.raw()))
}

fn stat_of(object: ObjectId, stored: Option<&Object>) -> ObjectStat {
    let Some(stored) = stored else { return ObjectStat::absent(object) };
    let size = stored.data.len() as u64;
    ObjectStat {
        object,
        exists: true,
        size,
        blocks: size.div_ceil(512),
        mtime: stored.mtime,
        ctime: stored.ctime,
        atime: stored.atime,
    }
}

/// The bytes of an object that may not be there.
fn bytes_of(objects: &BTreeMap<ObjectId, Object>, object: ObjectId) -> &[u8] {
    objects.get(&object).map(|object| object.data.as_slice()).unwrap_or_default()
}

impl ObjectStore for MemoryObjects {
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize, ObjectError> {
        self.write_at(object, Some(offset), data).map(|(_, written)| written)
    }

    fn append(&self, object: ObjectId, data: &[u8]) -> Result<(u64, usize), ObjectError> {
        self.write_at(object, None, data)
    }

    fn read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        let objects = lock(&self.objects);
        let data = bytes_of(&objects, object);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let end = start.saturating_add(len).min(data.len());
        buffer.extend_from_slice(data.get(start..end).unwrap_or_default());
        Ok(end - start)
    }

    fn punch(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        let now = self.now();
        if let Some(stored) = lock(&self.objects).get_mut(&object)
            && stored.data.len() as u64 > size
        {
            stored.data.truncate(usize::try_from(size).unwrap_or(usize::MAX));
            stored.is_changed(now);
        }
        Ok(())
    }

    fn grow(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        let now = self.now();
        let mut objects = lock(&self.objects);
        let has = bytes_of(&objects, object).len() as u64;
        if size <= has && objects.contains_key(&object) {
            return Ok(());
        }
        let grows = size.saturating_sub(has);
        if grows > self.bytes_max.saturating_sub(Self::used(&objects)) {
            return Err(no_space());
        }
        let stored = objects.entry(object).or_insert_with(|| Object::born(now));
        stored.data.resize(usize::try_from(size).map_err(|_| no_space())?, 0);
        stored.is_changed(now);
        Ok(())
    }

    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<(), ObjectError> {
        let now = self.now();
        if let Some(stored) = lock(&self.objects).get_mut(&object)
            && (atime.is_some() || mtime.is_some())
        {
            stored.atime = atime.unwrap_or(stored.atime);
            stored.mtime = mtime.unwrap_or(stored.mtime);
            stored.ctime = now;
        }
        Ok(())
    }

    fn give(&self, object: ObjectId) -> Result<Option<Given>, ObjectError> {
        Ok(lock(&self.objects).contains_key(&object).then_some(Given { file: None }))
    }

    fn alone(&self, _object: ObjectId) -> Result<bool, ObjectError> {
        Ok(true)
    }

    fn allocate(
        &self,
        object: ObjectId,
        (offset, len): (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<(), ObjectError> {
        let now = self.now();
        let mut objects = lock(&self.objects);
        let end = offset.checked_add(len).ok_or_else(no_space)?;
        if how != Falloc::Allocate
            && let Some(stored) = objects.get_mut(&object)
        {
            let data = &mut stored.data;
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            let end = usize::try_from(end).unwrap_or(usize::MAX).min(data.len());
            data.get_mut(start..end).unwrap_or_default().fill(0);
            stored.is_changed(now);
        }
        if how == Falloc::PunchHole || keep_size {
            return Ok(());
        }
        let size = bytes_of(&objects, object).len() as u64;
        if end > size && Self::used(&objects) + (end - size) > self.bytes_max {
            return Err(no_space());
        }
        let stored = objects.entry(object).or_insert_with(|| Object::born(now));
        if (stored.data.len() as u64) < end {
            stored.data.resize(end as usize, 0);
            stored.is_changed(now);
        }
        Ok(())
    }

    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, ObjectError> {
        let objects = lock(&self.objects);
        let data = bytes_of(&objects, object);
        let Some(rest) = usize::try_from(offset).ok().and_then(|at| data.get(at..)) else {
            return Ok(None);
        };
        // Up to the end of the block that the offset lies in, and then block by block.
        let first = (BLOCK_BYTES - offset as usize % BLOCK_BYTES).min(rest.len());
        let (first, blocks) = rest.split_at(first);
        let mut at = offset;
        for block in core::iter::once(first).chain(blocks.chunks(BLOCK_BYTES)) {
            if !block.is_empty() && block.iter().all(|byte| *byte == 0) == hole {
                return Ok(Some(at));
            }
            at += block.len() as u64;
        }
        Ok((hole && !rest.is_empty()).then_some(at))
    }

    fn remove(&self, object: ObjectId) -> Result<bool, ObjectError> {
        Ok(lock(&self.objects).remove(&object).is_some())
    }

    fn sync(&self, _objects: &[ObjectId]) -> Result<(), ObjectError> {
        Ok(())
    }

    fn stat(&self, objects: &[ObjectId]) -> Result<Vec<ObjectStat>, ObjectError> {
        let stored = lock(&self.objects);
        Ok(objects.iter().map(|object| stat_of(*object, stored.get(object))).collect())
    }

    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Result<Vec<ObjectStat>, ObjectError> {
        let start = ObjectId { fid: Fid { seq, oid: from_oid, ver: 0 }, stripe: 0 };
        let mut out: Vec<ObjectStat> = Vec::new();
        for (object, stored) in lock(&self.objects).range(start..) {
            let file_ended = out.last().is_some_and(|last| last.object.fid != object.fid);
            if object.fid.seq != seq || (out.len() >= count && file_ended) {
                break;
            }
            out.push(stat_of(*object, Some(stored)));
        }
        Ok(out)
    }

    fn sequences(&self) -> Result<Vec<Seq>, ObjectError> {
        let mut all: Vec<Seq> = lock(&self.objects).keys().map(|object| object.fid.seq).collect();
        all.dedup();
        Ok(all)
    }

    fn statfs(&self) -> Result<StatFs, ObjectError> {
        let objects = lock(&self.objects);
        let free = self.bytes_max.saturating_sub(Self::used(&objects));
        Ok(StatFs {
            bytes_total: self.bytes_max,
            bytes_free: free,
            bytes_avail: free,
            files_total: u64::from(u32::MAX),
            files_free: u64::from(u32::MAX) - objects.len() as u64,
            object_bytes_max: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Store, StoreLimits};
    use sateen_types::Errno;

    #[test]
    fn blocks_of_zeros_are_holes() {
        let objects = MemoryObjects::new(1 << 20);
        let object = ObjectId { fid: Fid::ROOT, stripe: 0 };
        let seek = |offset, hole| objects.seek(object, offset, hole).unwrap();
        assert_eq!((seek(0, false), seek(0, true)), (None, None));
        objects.write(object, 10_000, b"x").unwrap();
        assert_eq!((seek(0, false), seek(0, true)), (Some(8192), Some(0)));
        assert_eq!((seek(9000, false), seek(9000, true)), (Some(9000), Some(10_001)));
        assert_eq!((seek(10_001, false), seek(10_001, true)), (None, None));
        objects.write(object, 20_000, b"x").unwrap();
        assert_eq!((seek(9000, true), seek(12_288, false)), (Some(12_288), Some(16_384)));
    }

    #[test]
    fn what_fits_is_written() {
        let objects = MemoryObjects::new(100);
        let object = |stripe| ObjectId { fid: Fid::ROOT, stripe };
        assert_eq!(objects.write(object(0), 10, &[1; 200]).unwrap(), 90);
        assert_eq!(objects.write(object(0), 0, &[2; 200]).unwrap(), 100);
        assert_eq!(objects.write(object(0), 100, b"x").unwrap_err().errno(), Errno::ENOSPC);
        assert_eq!(objects.write(object(1), 0, b"x").unwrap_err().errno(), Errno::ENOSPC);
        let stats = objects.stat(&[object(0), object(1), object(2)]).unwrap();
        assert_eq!(stats.iter().map(|stat| stat.size).collect::<Vec<_>>(), [100, 0, 0]);
        let exist: Vec<bool> = stats.iter().map(|stat| stat.exists).collect();
        assert_eq!(exist, [true, true, false]);
    }

    #[test]
    fn journal_keeps_what_trim_does_not_cover() {
        let mut journal = MemoryJournal::default();
        let mut store = Store::new(5, 0, StoreLimits::default());
        for n in 0..4u32 {
            for copy in 0..2u32 {
                let mut batch = Batch::new();
                batch.put(&Key::tag(b'k'), &(n * 2 + copy));
                store.commit(&batch);
            }
            let flush = store.begin_flush().unwrap();
            journal.write(&flush).unwrap();
            store.flush_done(flush);
        }
        journal.trim(3).unwrap();
        let payloads = journal.clone().payloads(5);
        assert_eq!(payloads.len(), 3);
        let first = sateen_journal::records(&payloads[0]).next().unwrap().unwrap();
        assert_eq!(first.0, 3);
        assert!(journal.payloads(6).is_empty());
    }
}
