//! Objects as a port: sparse byte arrays named by (file FID, stripe).

use std::any::Any;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_types::{Errno, Falloc, ObjectId, Seq, Timespec};
use sateen_wire::{Span, Spans, StatFs};

/// What the kernel says when this process has no more files to open.
const EMFILE: i32 = 24;

/// Why an object call failed.
#[derive(Debug)]
pub struct ObjectError(pub io::Error);

impl From<io::Error> for ObjectError {
    fn from(error: io::Error) -> ObjectError {
        ObjectError(error)
    }
}

impl std::fmt::Display for ObjectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "object store: {}", self.0)
    }
}

impl std::error::Error for ObjectError {}

impl ObjectError {
    /// What the writer or reader is told.
    pub fn errno(&self) -> Errno {
        match self.0.raw_os_error() {
            // The limit is not that of whoever is told.
            Some(EMFILE) => Errno::ENFILE,
            Some(raw) => Errno::from_raw(raw),
            None => Errno::EIO,
        }
    }

    /// Whether the target cannot go on: anything but a lack of space or of files to open, without
    /// which nothing is done.
    pub fn poisons(&self) -> bool {
        !matches!(
            self.errno(),
            Errno::ENOSPC
                | Errno::EDQUOT
                | Errno::EFBIG
                | Errno::EINTR
                | Errno::EOPNOTSUPP
                | Errno::ENFILE
        )
    }
}

/// Size, space and times of one object; all zero if it does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    /// The object.
    pub object: ObjectId,
    /// Whether it exists.
    pub exists: bool,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// Last change of its bytes, or what it was set to.
    pub mtime: Timespec,
    /// Last change of anything.
    pub ctime: Timespec,
    /// Last look at its bytes by whoever it was [given](ObjectStore::give) to, or what it was set to:
    /// the store's own reads leave it alone.
    pub atime: Timespec,
}

impl ObjectStat {
    /// Of one that does not exist.
    pub fn absent(object: ObjectId) -> ObjectStat {
        let never = Timespec::default();
        ObjectStat {
            object,
            exists: false,
            size: 0,
            blocks: 0,
            mtime: never,
            ctime: never,
            atime: never,
        }
    }
}

/// An object that others than the store read and write meanwhile: see [`ObjectStore::give`].
#[derive(Clone, Debug)]
pub struct Given {
    /// The open file, of a type that the backend and whoever hands files to a kernel know; `None` of
    /// a store without files, whose objects are read and written through the store itself.
    pub file: Option<Arc<dyn Any + Send + Sync>>,
}

/// Writes runs one after the other, as far as there is room; how many bytes that were. An error behind
/// what was written is none if it only `ends` the writing: whoever asks for the rest hears of it.
///
/// # Errors
/// Those of `write`.
pub fn write_runs<'a, E>(
    runs: impl Iterator<Item = (u64, &'a [u8])>,
    mut write: impl FnMut(u64, &[u8]) -> Result<usize, E>,
    ends: impl Fn(&E) -> bool,
) -> Result<usize, E> {
    let mut done = 0;
    for (offset, run) in runs {
        match write(offset, run) {
            Ok(written) => {
                done += written;
                if written < run.len() {
                    break;
                }
            }
            Err(error) if done > 0 && ends(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The pieces with their data: those that follow each other in the object, too, as one.
pub fn runs_of<'a>(
    pieces: &'a [Span],
    mut data: &'a [u8],
) -> impl Iterator<Item = (u64, &'a [u8])> {
    let mut pieces = pieces.iter().map(Span::range).peekable();
    core::iter::from_fn(move || {
        let (offset, mut len) = pieces.next()?;
        while let Some((_, more)) = pieces.next_if(|(next, _)| *next == offset.saturating_add(len))
        {
            len += more;
        }
        let (run, rest) = data.split_at_checked(usize::try_from(len).ok()?)?;
        data = rest;
        Some((offset, run))
    })
}

/// One store of objects. Calls may come from several threads at once; the OST orders those
/// that would disturb each other.
pub trait ObjectStore: Send + Sync {
    /// Writes `data` at `offset`, or as much of its beginning as there is room for; how much
    /// that is. The object is born if it does not exist.
    ///
    /// # Errors
    /// The device's. For want of space: nothing is written, but the object may be born.
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize, ObjectError>;

    /// The same past the page cache, as far as that can be. To be called where one may wait for a
    /// device.
    ///
    /// # Errors
    /// As [`ObjectStore::write`].
    fn write_direct(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, ObjectError> {
        self.write(object, offset, data)
    }

    /// Writes pieces of an object, which `data` has one behind the other, in their order, up to the first
    /// that there is no room for; how many bytes that is. The object is born if it does not exist.
    ///
    /// # Errors
    /// As [`ObjectStore::write`]. If it is not for want of space some of them may be written.
    fn write_many(
        &self,
        object: ObjectId,
        pieces: &[Span],
        data: &[u8],
    ) -> Result<usize, ObjectError> {
        let write = |offset, run: &[u8]| self.write(object, offset, run);
        write_runs(runs_of(pieces, data), write, |error| !error.poisons())
    }

    /// Reads up to `len` bytes at `offset` behind what `buffer` holds; short at the end, and
    /// nothing for an object that does not exist.
    ///
    /// # Errors
    /// The device's.
    fn read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError>;

    /// The same past the page cache, as far as that can be.
    ///
    /// # Errors
    /// The device's.
    fn read_direct(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        self.read(object, offset, len, buffer)
    }

    /// [`ObjectStore::read`] if that needs no waiting for a device; `None`, and the buffer is as it was, if it
    /// does: then [`ObjectStore::read`] is to be asked, where it may sleep.
    ///
    /// # Errors
    /// The device's.
    fn read_now(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<Option<usize>, ObjectError> {
        self.read(object, offset, len, buffer).map(Some)
    }

    /// Writes `data` where the object ends, or as much of its beginning as there is room for; where
    /// that was, and how much: if that is nothing, where says nothing. The object is born if it does
    /// not exist. Whoever appends at the same
    /// time, here or to a file that was given, does it before or behind.
    ///
    /// # Errors
    /// As [`ObjectStore::write`].
    fn append(&self, object: ObjectId, data: &[u8]) -> Result<(u64, usize), ObjectError>;

    /// Cuts an object to `size` if it is longer; does nothing to a shorter or absent one.
    ///
    /// # Errors
    /// The device's.
    fn punch(&self, object: ObjectId, size: u64) -> Result<(), ObjectError>;

    /// Makes an object at least as large as this; what it grows by reads as zeros, and takes no more
    /// space than its last block. It is born if it does not exist. Whoever makes it larger at the
    /// same time, be it a file that was given, loses nothing by this.
    ///
    /// # Errors
    /// The device's.
    fn grow(&self, object: ObjectId, size: u64) -> Result<(), ObjectError>;

    /// Sets the times of an object, those that are said; does nothing to an absent one. A sync need
    /// not make them durable, and nothing is in doubt if this fails.
    ///
    /// # Errors
    /// The device's; `EPERM` for a file of another owner, if the kernel says so.
    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<(), ObjectError>;

    /// Gives an object away: until it is [taken back](ObjectStore::take_back), as often as it was
    /// given, others read and write it at any moment, and nobody tells the store. `None` if it does
    /// not exist, which is not born by this, or if too many are given away.
    ///
    /// Each [`ObjectStore::sync`] syncs it whatever is known, and hears of what the device could not
    /// take of theirs; [`ObjectStore::sync_given`] syncs all that were given and not synced since. To
    /// be called where one may wait for a device.
    ///
    /// # Errors
    /// The device's; `EOPNOTSUPP` from a store that gives nothing away, or could not find out who has
    /// it then.
    fn give(&self, _object: ObjectId) -> Result<Option<Given>, ObjectError> {
        Err(ObjectError(io::Error::from_raw_os_error(Errno::EOPNOTSUPP.raw())))
    }

    /// The opposite. Whoever has the file open, or mapped, may go on with it: see
    /// [`ObjectStore::alone`]. May wait for a device.
    ///
    /// To be called only when no kernel has the file registered any more for opens to come.
    fn take_back(&self, _object: ObjectId) {}

    /// Whether others may hold what a write or a look at its holes has to wait for, for as long as
    /// their own large write takes: the object is given away, or something goes past the page cache.
    fn is_held(&self, _object: ObjectId) -> bool {
        false
    }

    /// Whether nobody but the store has the object open or mapped, as far as the kernel knows. True
    /// of one that does not exist. May be false for a moment without a reason.
    ///
    /// It holds until somebody opens it: whoever could, by a file that was given, is not to be let in
    /// while this is asked. An open that does not wait (`O_NONBLOCK`) fails with `EWOULDBLOCK` if it
    /// comes in between.
    ///
    /// # Errors
    /// The device's.
    fn alone(&self, object: ObjectId) -> Result<bool, ObjectError>;

    /// The objects that an earlier run of this store has given away, and that somebody has open or mapped
    /// still. To be asked before anything is given.
    ///
    /// # Errors
    /// The device's.
    fn left_open(&self) -> Result<Vec<ObjectId>, ObjectError> {
        Ok(Vec::new())
    }

    /// Makes durable what was written to objects that are given, or were and have not been synced
    /// since.
    ///
    /// # Errors
    /// As [`ObjectStore::sync`].
    fn sync_given(&self) -> Result<(), ObjectError> {
        Ok(())
    }

    /// Allocates, frees or empties a range (offset and length); the object is born if it must be. With `keep_size`
    /// it does not grow.
    ///
    /// # Errors
    /// The device's; `EOPNOTSUPP` if the file system below cannot.
    fn allocate(
        &self,
        object: ObjectId,
        range: (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<(), ObjectError>;

    /// The next data or hole at or after `offset`; `None` if there is none.
    ///
    /// # Errors
    /// The device's.
    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, ObjectError>;

    /// Removes an object; harmless if it does not exist. Says whether it did.
    ///
    /// # Errors
    /// The device's.
    fn remove(&self, object: ObjectId) -> Result<bool, ObjectError>;

    /// Makes objects and their names durable, also the absence of removed ones.
    ///
    /// # Errors
    /// The device's: nothing may be acknowledged then.
    fn sync(&self, objects: &[ObjectId]) -> Result<(), ObjectError>;

    /// Sizes and times, in the order asked.
    ///
    /// # Errors
    /// The device's.
    fn stat(&self, objects: &[ObjectId]) -> Result<Vec<ObjectStat>, ObjectError>;

    /// Up to `count` objects of a sequence, with object ids from `from_oid` on, in order.
    /// All stripes of a file come together, even beyond `count`.
    ///
    /// # Errors
    /// The device's.
    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Result<Vec<ObjectStat>, ObjectError>;

    /// All sequences that have objects, in order.
    ///
    /// # Errors
    /// The device's.
    fn sequences(&self) -> Result<Vec<Seq>, ObjectError>;

    /// Space.
    ///
    /// # Errors
    /// The device's.
    fn statfs(&self) -> Result<StatFs, ObjectError>;
}

/// Object I/O as an effect: what an OST wants done. The driver runs it outside the target's
/// lock and hands the [`ObjectDone`] back.
#[derive(Debug)]
pub enum ObjectOp {
    /// Write the data, or as much of it as there is room for.
    Write {
        /// The object.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// What.
        data: Bytes,
        /// Past the page cache, if that can be.
        direct: bool,
    },
    /// Write pieces, as much of them as there is room for.
    WriteMany {
        /// The object.
        object: ObjectId,
        /// Where each lies.
        pieces: Spans,
        /// What, one behind the other.
        data: Bytes,
    },
    /// Read behind what the buffer holds.
    Read {
        /// The object.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How much.
        len: usize,
        /// Whereto.
        buffer: BytesMut,
        /// Past the page cache, if that can be.
        direct: bool,
    },
    /// Write the data at the end, or as much of it as there is room for.
    Append {
        /// The object.
        object: ObjectId,
        /// What.
        data: Bytes,
    },
    /// Cut.
    Punch {
        /// The object.
        object: ObjectId,
        /// To this size.
        size: u64,
    },
    /// Let grow.
    Grow {
        /// The object.
        object: ObjectId,
        /// To this size, if it is smaller.
        size: u64,
    },
    /// Set times.
    SetTimes {
        /// The object.
        object: ObjectId,
        /// If it is to be set.
        atime: Option<Timespec>,
        /// If it is to be set.
        mtime: Option<Timespec>,
    },
    /// Find out whether somebody else has it.
    Alone {
        /// The object.
        object: ObjectId,
    },
    /// Allocate, free or empty.
    Allocate {
        /// The object.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
        /// Which of them.
        how: Falloc,
        /// Do not grow.
        keep_size: bool,
    },
    /// Find data or a hole.
    Seek {
        /// The object.
        object: ObjectId,
        /// From here.
        offset: u64,
        /// A hole.
        hole: bool,
    },
    /// Remove these.
    Remove {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// Make these durable.
    Sync {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// Make durable what was given away.
    SyncGiven,
    /// Sizes and times of these.
    Stat {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// Objects of a sequence.
    List {
        /// The sequence.
        seq: Seq,
        /// From here.
        from_oid: u32,
        /// How many.
        count: usize,
    },
    /// Space.
    StatFs,
}

/// What became of an [`ObjectOp`].
#[derive(Debug)]
pub enum ObjectDone {
    /// Done.
    Done,
    /// Bytes written: fewer than there were to be if there was no room for more.
    Written {
        /// How many.
        len: usize,
    },
    /// Bytes written at the end, likewise.
    Appended {
        /// Where.
        offset: u64,
        /// How many.
        len: usize,
    },
    /// Whether nobody else has it.
    Alone(bool),
    /// Bytes read, now in the buffer.
    Read {
        /// The buffer.
        buffer: BytesMut,
        /// How many bytes were added.
        len: usize,
    },
    /// Of the objects that were to go, these were there.
    Removed(Vec<ObjectId>),
    /// An offset.
    Offset(Option<u64>),
    /// Sizes.
    Stats(Vec<ObjectStat>),
    /// Space.
    StatFs(StatFs),
    /// It failed. A reader's buffer is lost, which costs an allocation, nothing else.
    Failed(ObjectError),
}

impl ObjectOp {
    /// What it is called, for who measures: the words of an OST's statistics, where they have one.
    pub const fn name(&self) -> &'static str {
        match self {
            ObjectOp::Write { .. } => "write",
            ObjectOp::WriteMany { .. } => "write_many",
            ObjectOp::Read { .. } => "read",
            ObjectOp::Append { .. } => "append",
            ObjectOp::Punch { .. } => "punch",
            ObjectOp::Grow { .. } | ObjectOp::SetTimes { .. } => "setattr",
            ObjectOp::Alone { .. } | ObjectOp::List { .. } => "get_info",
            ObjectOp::Allocate { .. } => "prealloc",
            ObjectOp::Seek { .. } => "seek",
            ObjectOp::Remove { .. } => "destroy",
            ObjectOp::Sync { .. } => "sync",
            ObjectOp::SyncGiven => "sync_given",
            ObjectOp::Stat { .. } => "getattr",
            ObjectOp::StatFs => "statfs",
        }
    }

    /// Whether it changes nothing, or only times: if it fails, nothing that was promised is in doubt.
    pub fn promises_nothing(&self) -> bool {
        match self {
            ObjectOp::Read { .. }
            | ObjectOp::Seek { .. }
            | ObjectOp::Stat { .. }
            | ObjectOp::List { .. }
            | ObjectOp::Alone { .. }
            | ObjectOp::SetTimes { .. }
            | ObjectOp::StatFs => true,
            ObjectOp::Write { .. }
            | ObjectOp::WriteMany { .. }
            | ObjectOp::Append { .. }
            | ObjectOp::Punch { .. }
            | ObjectOp::Grow { .. }
            | ObjectOp::Allocate { .. }
            | ObjectOp::Remove { .. }
            | ObjectOp::Sync { .. }
            | ObjectOp::SyncGiven => false,
        }
    }

    /// Runs the operation on a store.
    pub fn run(self, store: &dyn ObjectStore) -> ObjectDone {
        self.try_run(store).unwrap_or_else(ObjectDone::Failed)
    }

    /// Runs the operation on a store, unless it is one that has to wait for a device, or may have to
    /// wait for those whom the object was given to: that is given back.
    ///
    /// # Errors
    /// The operation, as it was.
    pub fn run_now(self, store: &dyn ObjectStore) -> Result<ObjectDone, ObjectOp> {
        let (object, offset, len, mut buffer) = match self {
            ObjectOp::Read { direct: true, .. } | ObjectOp::Write { direct: true, .. } => {
                return Err(self);
            }
            ObjectOp::Read { object, offset, len, buffer, .. } => (object, offset, len, buffer),
            ObjectOp::Write { object, .. }
            | ObjectOp::WriteMany { object, .. }
            | ObjectOp::Seek { object, .. }
                if store.is_held(object) =>
            {
                return Err(self);
            }
            _ => return Ok(self.run(store)),
        };
        match store.read_now(object, offset, len, &mut buffer) {
            Ok(Some(len)) => Ok(ObjectDone::Read { buffer, len }),
            Ok(None) => Err(ObjectOp::Read { object, offset, len, buffer, direct: false }),
            Err(error) => Ok(ObjectDone::Failed(error)),
        }
    }

    fn try_run(self, store: &dyn ObjectStore) -> Result<ObjectDone, ObjectError> {
        match self {
            ObjectOp::Write { object, offset, data, direct } => {
                let len = match direct {
                    true => store.write_direct(object, offset, &data)?,
                    false => store.write(object, offset, &data)?,
                };
                return Ok(ObjectDone::Written { len });
            }
            ObjectOp::WriteMany { object, pieces, data } => {
                let len = store.write_many(object, &pieces, &data)?;
                return Ok(ObjectDone::Written { len });
            }
            ObjectOp::Read { object, offset, len, mut buffer, direct } => {
                let len = match direct {
                    true => store.read_direct(object, offset, len, &mut buffer)?,
                    false => store.read(object, offset, len, &mut buffer)?,
                };
                return Ok(ObjectDone::Read { buffer, len });
            }
            ObjectOp::Append { object, data } => {
                let (offset, len) = store.append(object, &data)?;
                return Ok(ObjectDone::Appended { offset, len });
            }
            ObjectOp::Punch { object, size } => store.punch(object, size)?,
            ObjectOp::Grow { object, size } => store.grow(object, size)?,
            ObjectOp::SetTimes { object, atime, mtime } => store.set_times(object, atime, mtime)?,
            ObjectOp::Alone { object } => return Ok(ObjectDone::Alone(store.alone(object)?)),
            ObjectOp::Allocate { object, offset, len, how, keep_size } => {
                store.allocate(object, (offset, len), how, keep_size)?;
            }
            ObjectOp::Seek { object, offset, hole } => {
                return Ok(ObjectDone::Offset(store.seek(object, offset, hole)?));
            }
            ObjectOp::Remove { objects } => {
                let mut removed = Vec::new();
                for object in objects {
                    if store.remove(object)? {
                        removed.push(object);
                    }
                }
                return Ok(ObjectDone::Removed(removed));
            }
            ObjectOp::Sync { objects } => store.sync(&objects)?,
            ObjectOp::SyncGiven => store.sync_given()?,
            ObjectOp::Stat { objects } => return Ok(ObjectDone::Stats(store.stat(&objects)?)),
            ObjectOp::List { seq, from_oid, count } => {
                return Ok(ObjectDone::Stats(store.list(seq, from_oid, count)?));
            }
            ObjectOp::StatFs => return Ok(ObjectDone::StatFs(store.statfs()?)),
        }
        Ok(ObjectDone::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_follow_each_other_are_written_as_one() {
        let pieces = [(0, 2), (2, 1), (10, 3), (14, 1), (15, 1)];
        let pieces = pieces.map(|(offset, len)| Span { offset, len });
        let runs: Vec<(u64, &[u8])> = runs_of(&pieces, b"aabcccde").collect();
        assert_eq!(runs, [(0, &b"aab"[..]), (10, b"ccc"), (14, b"de")]);
        // Who has less data than pieces loses nothing of what there is.
        let runs: Vec<(u64, &[u8])> = runs_of(&pieces, b"aabcc").collect();
        assert_eq!(runs, [(0, &b"aab"[..])]);
    }

    #[test]
    fn a_lack_of_files_to_open_stops_nothing() {
        for raw in [EMFILE, Errno::ENFILE.raw()] {
            let error = ObjectError(io::Error::from_raw_os_error(raw));
            assert!(!error.poisons(), "{error}");
            assert_eq!(error.errno(), Errno::ENFILE);
        }
        assert!(ObjectError(io::Error::from_raw_os_error(Errno::EIO.raw())).poisons());
    }
}
