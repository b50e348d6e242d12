//! Objects: what is in the page cache, and what the last syncs made durable.
//!
//! After a crash an object is what it was at its last sync, with any of the later changes,
//! each whole, cut at any byte, or missing, whatever their order was. An object that was
//! never synced may be gone, name and all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use sateen_osd::memory::MemoryObjects;
use sateen_osd::{Given, ObjectError, ObjectStat, ObjectStore};
use sateen_types::{Errno, Falloc, ObjectId, Seq, Timespec, Timestamp};
use sateen_wire::StatFs;

use crate::random::Random;

/// Largest object that is looked at from outside.
const OBJECT_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Punch(u64),
    Grow(u64),
    Allocate { offset: u64, len: u64, how: Falloc, keep_size: bool },
    Remove,
}

#[derive(Debug, Default)]
struct Durable {
    images: BTreeMap<ObjectId, Vec<u8>>,
    since: BTreeMap<ObjectId, Vec<Change>>,
    /// Those that were given away in this run.
    given: BTreeSet<ObjectId>,
}

/// An object store on a simulated disk.
#[derive(Debug)]
pub struct SimObjects {
    now: MemoryObjects,
    durable: Mutex<Durable>,
    bytes_max: u64,
    /// Nanoseconds since 1970.
    clock: Arc<AtomicU64>,
}

/// What a crash did to a store.
#[derive(Debug, Default, Clone, Copy)]
pub struct Damage {
    /// Changes that were lost.
    pub lost: u64,
    /// Writes that were cut.
    pub torn: u64,
    /// Objects of which not even the name is left.
    pub names: u64,
}

impl SimObjects {
    pub(crate) fn new(bytes_max: u64) -> SimObjects {
        // The limit is kept here: what a crash leaves may be more, because removals are lost.
        let clock = Arc::<AtomicU64>::default();
        let now = MemoryObjects::timed_by(u64::MAX, clock.clone());
        SimObjects { now, durable: Mutex::default(), bytes_max, clock }
    }

    /// It is so late: what is changed from now on has that time.
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.clock.store(u64::try_from(now.wall_ns).unwrap_or(0), Ordering::Relaxed);
    }

    fn durable(&self) -> MutexGuard<'_, Durable> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run begins: like a store on a disk it has all synced that an earlier one has left unsynced.
    pub(crate) fn open(&self) {
        let left: Vec<ObjectId> = self.durable().since.keys().copied().collect();
        let _ = self.sync(&left);
    }

    /// The bytes of an object as a reader sees them now; `None` if it does not exist.
    pub fn image(&self, object: ObjectId) -> Option<Vec<u8>> {
        let stats = self.now.stat(&[object]).ok()?;
        if !stats.first()?.exists {
            return None;
        }
        let mut buffer = BytesMut::new();
        self.now.read(object, 0, OBJECT_BYTES_MAX, &mut buffer).ok()?;
        Some(buffer.into())
    }

    /// All objects there are.
    pub fn all(&self) -> Vec<ObjectStat> {
        let mut out = Vec::new();
        for seq in self.now.sequences().unwrap_or_default() {
            out.extend(self.now.list(seq, 0, usize::MAX).unwrap_or_default());
        }
        out
    }

    /// Bytes that there is room for.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn free(&self) -> Result<u64, ObjectError> {
        Ok(self.bytes_max.saturating_sub(u64::MAX - self.now.statfs()?.bytes_free))
    }

    /// Bytes by which an object has to grow to reach `end`.
    fn grows(&self, object: ObjectId, end: u64) -> Result<u64, ObjectError> {
        let stats = self.now.stat(&[object])?;
        Ok(end.saturating_sub(stats.first().map_or(0, |stat| stat.size)))
    }

    fn note(&self, object: ObjectId, change: Change) {
        self.durable().since.entry(object).or_default().push(change);
    }

    /// The store as it is found after a crash.
    pub fn crash(&self, random: &mut Random) -> (SimObjects, Damage) {
        let after = SimObjects::new(self.bytes_max);
        let mut damage = Damage::default();
        let durable = self.durable();
        let mut images = durable.images.clone();
        for (object, changes) in &durable.since {
            let mut image = images.remove(object);
            for change in changes {
                if random.one_in(2) {
                    apply(&mut image, change);
                } else if let (Change::Write(offset, data), true) = (change, random.one_in(2))
                    && !data.is_empty()
                {
                    let kept = data.get(..random.index(data.len())).unwrap_or_default();
                    apply(&mut image, &Change::Write(*offset, kept.to_vec()));
                    damage.torn += 1;
                } else {
                    damage.lost += 1;
                }
            }
            match image {
                Some(image) => {
                    images.insert(*object, image);
                }
                None => damage.names += u64::from(self.image(*object).is_some()),
            }
        }
        drop(durable);
        for (object, image) in &images {
            // It was there before, so there is room.
            let _ = after.now.write(*object, 0, image);
            // Nor do times get lost that nobody relies on.
            let stats = self.now.stat(&[*object]).unwrap_or_default();
            if let Some(stat) = stats.first().filter(|stat| stat.exists) {
                let _ = after.now.set_times(*object, Some(stat.atime), Some(stat.mtime));
            }
        }
        after.durable().images = images;
        (after, damage)
    }
}

fn no_space() -> ObjectError {
    ObjectError(std::io::Error::from_raw_os_error(Errno::ENOSPC.raw()))
}

fn resize(image: &mut Vec<u8>, size: u64) {
    image.resize(size as usize, 0);
}

fn apply(image: &mut Option<Vec<u8>>, change: &Change) {
    match change {
        Change::Write(offset, data) => {
            let bytes = image.get_or_insert_default();
            let end = offset + data.len() as u64;
            if (bytes.len() as u64) < end {
                resize(bytes, end);
            }
            if let Some(place) = bytes.get_mut(*offset as usize..end as usize) {
                place.copy_from_slice(data);
            }
        }
        Change::Punch(size) => {
            if let Some(bytes) = image {
                bytes.truncate(*size as usize);
            }
        }
        Change::Grow(size) => {
            let bytes = image.get_or_insert_default();
            resize(bytes, (*size).max(bytes.len() as u64));
        }
        Change::Allocate { offset, len, how, keep_size } => {
            let end = offset + len;
            if *how != Falloc::Allocate
                && let Some(bytes) = image
            {
                let start = (*offset as usize).min(bytes.len());
                let end = (end as usize).min(bytes.len());
                bytes.get_mut(start..end).unwrap_or_default().fill(0);
            }
            if *how != Falloc::PunchHole && !keep_size {
                let bytes = image.get_or_insert_default();
                if (bytes.len() as u64) < end {
                    resize(bytes, end);
                }
            }
        }
        Change::Remove => *image = None,
    }
}

impl ObjectStore for SimObjects {
    /// Of what there is no room for, the beginning is written, if any of it fits. If none does,
    /// the object may be born nevertheless.
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize, ObjectError> {
        let grows = self.grows(object, offset.saturating_add(data.len() as u64))?;
        let missing = usize::try_from(grows.saturating_sub(self.free()?)).unwrap_or(usize::MAX);
        let fits = data.get(..data.len().saturating_sub(missing)).unwrap_or_default();
        if fits.is_empty() && missing > 0 {
            if object.fid.oid.is_multiple_of(2) {
                self.now.write(object, 0, fits)?;
                self.note(object, Change::Write(0, Vec::new()));
            }
            return Err(no_space());
        }
        self.now.write(object, offset, fits)?;
        self.note(object, Change::Write(offset, fits.to_vec()));
        Ok(fits.len())
    }

    fn read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        self.now.read(object, offset, len, buffer)
    }

    fn punch(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        self.now.punch(object, size)?;
        self.note(object, Change::Punch(size));
        Ok(())
    }

    /// Calls of a store are one after the other: nothing comes between the end and the write.
    fn append(&self, object: ObjectId, data: &[u8]) -> Result<(u64, usize), ObjectError> {
        let stats = self.now.stat(&[object])?;
        let end = stats.first().map_or(0, |stat| stat.size);
        Ok((end, self.write(object, end, data)?))
    }

    fn grow(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        if self.grows(object, size)? > self.free()? {
            return Err(no_space());
        }
        self.now.grow(object, size)?;
        self.note(object, Change::Grow(size));
        Ok(())
    }

    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<(), ObjectError> {
        self.now.set_times(object, atime, mtime)
    }

    fn give(&self, object: ObjectId) -> Result<Option<Given>, ObjectError> {
        let given = self.now.give(object)?;
        if given.is_some() {
            self.durable().given.insert(object);
        }
        Ok(given)
    }

    fn sync_given(&self) -> Result<(), ObjectError> {
        let given: Vec<ObjectId> = self.durable().given.iter().copied().collect();
        self.sync(&given)
    }

    fn alone(&self, object: ObjectId) -> Result<bool, ObjectError> {
        self.now.alone(object)
    }

    fn allocate(
        &self,
        object: ObjectId,
        (offset, len): (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<(), ObjectError> {
        self.now.allocate(object, (offset, len), how, keep_size)?;
        self.note(object, Change::Allocate { offset, len, how, keep_size });
        Ok(())
    }

    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, ObjectError> {
        self.now.seek(object, offset, hole)
    }

    fn remove(&self, object: ObjectId) -> Result<bool, ObjectError> {
        let was_there = self.now.remove(object)?;
        self.note(object, Change::Remove);
        Ok(was_there)
    }

    fn sync(&self, objects: &[ObjectId]) -> Result<(), ObjectError> {
        for object in objects {
            let image = self.image(*object);
            let mut durable = self.durable();
            match image {
                Some(image) => durable.images.insert(*object, image),
                None => durable.images.remove(object),
            };
            durable.since.remove(object);
        }
        Ok(())
    }

    fn stat(&self, objects: &[ObjectId]) -> Result<Vec<ObjectStat>, ObjectError> {
        self.now.stat(objects)
    }

    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Result<Vec<ObjectStat>, ObjectError> {
        self.now.list(seq, from_oid, count)
    }

    fn sequences(&self) -> Result<Vec<Seq>, ObjectError> {
        self.now.sequences()
    }

    fn statfs(&self) -> Result<StatFs, ObjectError> {
        let free = self.free()?;
        let now = self.now.statfs()?;
        Ok(StatFs { bytes_total: self.bytes_max, bytes_free: free, bytes_avail: free, ..now })
    }
}
