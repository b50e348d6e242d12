//! The memory backend: an index, a journal and an object store without a disk, for tests and for file
//! systems that may forget.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use sateen_journal::{Decoded, decode_frame};
use sateen_types::{Falloc, Fid, ObjectId, Seq};
use sateen_wire::StatFs;

use crate::{
    Flush, Index, IndexError, JournalDevice, Key, Memtable, ObjectError, ObjectStat, ObjectStore,
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

/// Objects in memory.
#[derive(Debug)]
pub struct MemoryObjects {
    objects: Mutex<BTreeMap<ObjectId, Vec<u8>>>,
    bytes_max: u64,
}

impl MemoryObjects {
    /// An empty store that holds `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> MemoryObjects {
        MemoryObjects { objects: Mutex::default(), bytes_max }
    }

    fn used(objects: &BTreeMap<ObjectId, Vec<u8>>) -> u64 {
        objects.values().map(|data| data.len() as u64).sum()
    }
}

fn no_space() -> ObjectError {
    ObjectError(io::Error::from_raw_os_error(sateen_types::Errno::ENOSPC.raw()))
}

fn stat_of(object: ObjectId, data: Option<&Vec<u8>>) -> ObjectStat {
    let size = data.map_or(0, |data| data.len() as u64);
    ObjectStat { object, exists: data.is_some(), size, blocks: size.div_ceil(512) }
}

impl ObjectStore for MemoryObjects {
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize, ObjectError> {
        let mut objects = lock(&self.objects);
        let end = offset.checked_add(data.len() as u64).ok_or_else(no_space)?;
        let used = Self::used(&objects);
        let bytes = objects.entry(object).or_default();
        // As on a disk, the object has its name before it is found that there is no room.
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
        Ok(data.len())
    }

    fn read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        let objects = lock(&self.objects);
        let data = objects.get(&object).map(Vec::as_slice).unwrap_or_default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let end = start.saturating_add(len).min(data.len());
        buffer.extend_from_slice(data.get(start..end).unwrap_or_default());
        Ok(end - start)
    }

    fn punch(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        if let Some(data) = lock(&self.objects).get_mut(&object) {
            data.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    fn allocate(
        &self,
        object: ObjectId,
        (offset, len): (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<(), ObjectError> {
        let mut objects = lock(&self.objects);
        let end = offset.checked_add(len).ok_or_else(no_space)?;
        if how != Falloc::Allocate
            && let Some(data) = objects.get_mut(&object)
        {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            let end = usize::try_from(end).unwrap_or(usize::MAX).min(data.len());
            data.get_mut(start..end).unwrap_or_default().fill(0);
        }
        if how == Falloc::PunchHole || keep_size {
            return Ok(());
        }
        let size = objects.get(&object).map_or(0, |data| data.len() as u64);
        if end > size && Self::used(&objects) + (end - size) > self.bytes_max {
            return Err(no_space());
        }
        let data = objects.entry(object).or_default();
        if (data.len() as u64) < end {
            data.resize(end as usize, 0);
        }
        Ok(())
    }

    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, ObjectError> {
        let objects = lock(&self.objects);
        let data = objects.get(&object).map(Vec::as_slice).unwrap_or_default();
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
        for (object, data) in lock(&self.objects).range(start..) {
            let file_ended = out.last().is_some_and(|last| last.object.fid != object.fid);
            if object.fid.seq != seq || (out.len() >= count && file_ended) {
                break;
            }
            out.push(stat_of(*object, Some(data)));
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
