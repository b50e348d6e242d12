//! The object store of an OST on disk: one sparse file per object.
//!
//! Who calls it: the driver's I/O threads, several at a time ([`ObjectStore`]); the OST above
//! orders calls that would disturb each other. What it must never do: say that an object is
//! durable before its data, its name and every folder above it are.
//!
//! Life of an object:
//! 1. *Absent*: reads find nothing, sizes are zero.
//! 2. *Born* by its first write or allocation: the file and the folders above it appear
//!    ([`names`]), and are noted as not yet durable ([`unsynced`]).
//! 3. *Durable* after [`ObjectStore::sync`]: its data, and beside that the names from below to
//!    above ([`namer`]).
//! 4. *Removed*: its name goes; that, too, is durable only after a sync.
//!
//! What an earlier process left unsynced is not in these notes, so opening syncs the whole
//! file system once. The first error of the disk's write side that is not a lack of space is
//! the last: from then on nothing is written or acknowledged.

mod ahead;
mod dense;
mod direct;
mod files;
mod given;
mod namer;
mod names;
mod noted;
mod poison;
mod present;
mod reads;
mod streams;
mod unsynced;
mod walks;
mod watch;

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::IoSlice;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::BytesMut;
use rustix::fs::{FallocateFlags, SeekFrom, Timestamps, UTIME_OMIT, fallocate, futimens, seek};
use rustix::io::{ReadWriteFlags, pwritev2};
use sateen_osd::{Given, ObjectError, ObjectStat, ObjectStore, runs_of, write_runs};
use sateen_types::{Errno, Falloc, Fid, ObjectId, Seq, Timespec};
use sateen_wire::{Span, StatFs};

use crate::folder::{TargetFolder, create_folder};
use crate::runs::{self, Runs};
use crate::{lock, space, writeback};
use ahead::Ahead;
use direct::Direct;
use files::{Files, Need, Open, Opened};
use given::Unseen;
pub use given::{GivenFile, has_leases};
use namer::Namer;
use names::Group;
use noted::Noted;
pub use noted::{FILE as GIVEN_FILE, FILE_NEW as GIVEN_FILE_NEW};
use poison::Poison;
use present::{Known, Present};
use reads::{Got, Reads};
use unsynced::{Changing, Place, Unsynced};

/// Tries at bringing a file into a folder that others remove whenever it is empty.
const BIRTH_TRIES_MAX: u32 = 16;

/// So many objects that were given away are synced at once.
const SYNC_MAX: usize = 256;

/// Limits of an object store.
#[derive(Debug, Clone, Copy)]
pub struct ObjectOptions {
    /// Files kept open.
    pub files_open_max: usize,
    /// How many object stores share the file system below: each counts its part of the free
    /// space as its own, or together they would promise it several times.
    pub sharers: u32,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        Self { files_open_max: 2048, sharers: 1 }
    }
}

/// The objects of one target. See the module.
#[derive(Debug)]
pub struct DiskObjects {
    folder: PathBuf,
    root: File,
    sharers: u32,
    /// What a file of the file system below can have at most; 0 if that is not known.
    object_bytes_max: u64,
    files: Arc<Files>,
    reads: Reads,
    direct: Direct,
    ahead: Ahead,
    unsynced: Arc<Unsynced>,
    unseen: Unseen,
    /// For the run that comes after this one.
    noted: Noted,
    /// Whether it can be found out who has a file; tried with the first that is given away.
    has_leases: OnceLock<bool>,
    namer: Namer,
    present: Present,
    /// The group in which an object was born last.
    busy: Mutex<Option<Group>>,
    poison: Arc<Poison>,
}

impl DiskObjects {
    /// Makes an empty store in `folder`, with a durable name; harmless if there is one.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(folder: &Path) -> io::Result<()> {
        create_folder(folder)
    }

    /// Opens the store in `folder`.
    ///
    /// # Errors
    /// The file system's; there must be one, for an empty one in its place would be served as if
    /// every file were full of zeros.
    pub fn open(folder: &Path, options: ObjectOptions) -> io::Result<Self> {
        let root = File::open(folder)?;
        // The kernel tells of an error once.
        runs::sync_below(folder.parent().unwrap_or(folder))?;
        let unsynced = Arc::<Unsynced>::default();
        let poison = Arc::<Poison>::default();
        let files = Arc::new(Files::new(options.files_open_max, poison.clone()));
        Ok(Self {
            namer: Namer::start(folder.to_path_buf(), unsynced.clone(), files.clone())?,
            ahead: Ahead::new(folder, files.clone(), options.files_open_max),
            unsynced,
            unseen: Unseen::default(),
            noted: Noted::new(folder.parent().unwrap_or(folder)),
            has_leases: OnceLock::new(),
            folder: folder.to_path_buf(),
            root,
            sharers: options.sharers,
            object_bytes_max: space::file_bytes_max(folder),
            files,
            reads: Reads::default(),
            direct: Direct::default(),
            present: Present::default(),
            busy: Mutex::default(),
            poison,
        })
    }

    /// Opens the store of a target for a run with this boot epoch. With it come those of earlier
    /// runs of which nothing is lost, the last one last ([`Runs`]).
    ///
    /// # Errors
    /// As [`DiskObjects::open`]. If the disk could not write something, which the kernel says once,
    /// nothing is said of earlier runs from now on.
    pub fn begin(
        target: &TargetFolder,
        options: ObjectOptions,
        boot_epoch: u64,
    ) -> io::Result<(Self, Vec<u64>)> {
        let runs = Runs::of(target);
        // A start that does not come to its end has proved nothing.
        runs.forget()?;
        let store = Self::open(&target.objects(), options)?;
        store.poison.removes(runs.path().to_owned());
        runs.begin(boot_epoch)?;
        Ok((store, runs.survived().to_vec()))
    }

    /// Whether others than the store may have an object, and with it pages of it, mapped ones, too: of
    /// this run or of an earlier one.
    fn others_have(&self, object: ObjectId) -> bool {
        self.files.is_pinned(object) || self.noted.is_left(object)
    }

    /// Runs a step that changes the disk or vouches for it.
    fn guarded<T>(&self, step: impl FnOnce() -> io::Result<T>) -> Result<T, ObjectError> {
        self.not_poisoned()?;
        step().map_err(|error| {
            let error = ObjectError(error);
            if error.poisons() {
                self.poison.set();
            }
            error
        })
    }

    fn not_poisoned(&self) -> Result<(), ObjectError> {
        match self.poison.is_set() {
            true => Err(ObjectError(io::Error::from_raw_os_error(Errno::EIO.raw()))),
            false => Ok(()),
        }
    }

    /// The open file of an object; `None` if it does not exist.
    fn existing(&self, object: ObjectId, need: Need) -> io::Result<Option<Arc<Open>>> {
        self.existing_by(open_old, object, need)
    }

    fn existing_by(
        &self,
        open: fn(&Path) -> io::Result<Opened>,
        object: ObjectId,
        need: Need,
    ) -> io::Result<Option<Arc<Open>>> {
        let open = || open(&names::path(&self.folder, object));
        match self.files.get(object, need, open) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The open file of an object, which is born if it does not exist: most that are not known have
    /// yet to be.
    fn born(&self, object: ObjectId) -> io::Result<Arc<Open>> {
        if let Some(file) = self.files.known(object) {
            return Ok(file);
        }
        let path = names::path(&self.folder, object);
        let group = Group::of(object);
        *lock(&self.busy) = Some(group);
        let changing = self.unsynced.change(Place::Group(group));
        let made = Cell::new(false);
        let make = || {
            let new = how_to_open().create_new(true).open(&path);
            // Noted before anybody finds the file, as who may be told that a write has succeeded, whoever
            // made it: a sync looks for no object that is not noted.
            let is_there = match &new {
                Ok(_) => true,
                Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
            };
            if is_there {
                self.present.born(object);
            }
            match new {
                Err(_) if is_there => open_old(&path),
                new => {
                    made.set(made.get() || new.is_ok());
                    Ok(Opened { file: new?, is_new: true })
                }
            }
        };
        for _ in 0..BIRTH_TRIES_MAX {
            match self.files.get(object, Need::Change, make) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let _above = self.change_above(group);
                    match std::fs::create_dir_all(group.path(&self.folder)) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        other => other?,
                    }
                }
                other => {
                    if !made.get() && other.is_ok() {
                        changing.undo();
                    }
                    return other;
                }
            }
        }
        Err(io::Error::from_raw_os_error(Errno::EIO.raw()))
    }

    /// Refuses to set so much aside in a file if it is sure that it will not fit. The file system
    /// below would keep the blocks that it finds until it finds no more, and which of them had been
    /// there before, perhaps for a good reason, nobody could say then.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn may_have_room(&self, file: &File, len: u64) -> io::Result<()> {
        // At most all that it has may lie where it is to have more.
        let has = file.metadata()?.blocks() * 512;
        if len.saturating_sub(has) > space::of(&self.root, 1)?.bytes_free {
            return Err(io::Error::from_raw_os_error(Errno::ENOSPC.raw()));
        }
        Ok(())
    }

    fn stat_one(&self, object: ObjectId) -> io::Result<ObjectStat> {
        match std::fs::symlink_metadata(names::path(&self.folder, object)) {
            Ok(meta) => Ok(stat_of(object, &meta)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ObjectStat::absent(object)),
            Err(error) => Err(error),
        }
    }

    fn change_above(&self, group: Group) -> [Changing<'_>; 2] {
        [Place::Sequence(group.seq), Place::Root].map(|place| self.unsynced.change(place))
    }

    /// Removes the folders of a group if they are empty. The file system refuses to remove
    /// others; whoever brings an object into one that just went makes it again.
    fn remove_if_empty(&self, group: Group) {
        // Objects come and go in the newest group, and so would its folder.
        if *lock(&self.busy) == Some(group) {
            return;
        }
        let _above = self.change_above(group);
        if std::fs::remove_dir(group.path(&self.folder)).is_ok() {
            // Not empty, mostly.
            let _ = std::fs::remove_dir(names::sequence_path(&self.folder, group.seq));
        }
    }

    /// Starts to write out the data of objects: blocks are found for it now, so that one
    /// commit of the file system below makes data and names durable. Says which are there.
    fn start_writing(&self, objects: &[ObjectId]) -> io::Result<Vec<ObjectId>> {
        let mut there = Vec::new();
        for object in objects {
            if self.present.lacks(*object) {
                continue;
            }
            if let Some(file) = self.existing(*object, Need::Look)? {
                writeback::start(&file, writeback::ALL);
                there.push(*object);
            }
        }
        Ok(there)
    }

    /// Runs a step that waits until an object's data is written out.
    fn vouch(
        &self,
        object: ObjectId,
        step: impl FnOnce(&Open) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.existing(object, Need::Look)? {
            Some(file) => file.vouch(&self.poison, step),
            None => Ok(()),
        }
    }

    /// Makes the data of objects durable. Several are waited for together first.
    fn sync_data(&self, objects: &[ObjectId]) -> io::Result<()> {
        let several = if objects.len() > 1 { objects } else { &[] };
        for object in several {
            self.vouch(*object, Open::wait)?;
        }
        for object in objects {
            self.vouch(*object, Open::sync_data)?;
        }
        Ok(())
    }

    /// Makes everything durable that the file system below has, for whoever would have to name too
    /// many objects.
    fn sync_everything(&self) -> Result<(), ObjectError> {
        self.guarded(|| {
            // Those that are given now may be written once more before they are back.
            let seen = self.unseen.take(|| self.files.pinned());
            let synced = || {
                let target = self.folder.parent().unwrap_or(&self.folder);
                let synced = runs::sync_below_by(&self.root, target);
                // Also for want of space: it was promised, and what was written is lost.
                synced.inspect_err(|_| self.poison.set())?;
                // And by those that hear of one file alone.
                self.files
                    .changed()
                    .iter()
                    .try_for_each(|file| file.vouch(&self.poison, Open::wait))
            };
            synced().inspect_err(|_| self.unseen.put_back(seen))
        })
    }

    fn list_group(&self, group: Group, from: ObjectId) -> io::Result<Vec<ObjectStat>> {
        let mut found = Vec::new();
        for object in names::objects_in(&self.folder, group)? {
            if object >= from {
                let stat = self.stat_one(object)?;
                found.extend(stat.exists.then_some(stat));
            }
        }
        Ok(found)
    }
}

/// A file that is there.
fn open_old(path: &Path) -> io::Result<Opened> {
    match how_to_open().open(path) {
        // It is somebody else's, who lets us write to it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::options().read(true).write(true).open(path).map(Opened::from)
        }
        opened => opened.map(Opened::from),
    }
}

/// Files of objects are ours, and when we looked at them is nobody's business: their atime is that of
/// whom they are given to.
fn how_to_open() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOATIME);
    options
}

fn stat_of(object: ObjectId, meta: &std::fs::Metadata) -> ObjectStat {
    let time = |sec, nsec| Timespec { sec, nsec: u32::try_from(nsec).unwrap_or(0) };
    ObjectStat {
        object,
        exists: true,
        size: meta.size(),
        blocks: meta.blocks(),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        atime: time(meta.atime(), meta.atime_nsec()),
    }
}

/// Writes at the end, wherever that is by then, as much as one call takes: behind that others may
/// have written already. Where, and how much.
fn append(file: &File, data: &[u8]) -> io::Result<(u64, usize)> {
    loop {
        // By the position, because that tells where it went.
        match pwritev2(file, &[IoSlice::new(data)], u64::MAX, ReadWriteFlags::APPEND) {
            Ok(written) => {
                let end = seek(file, SeekFrom::Current(0))?;
                return Ok((end.saturating_sub(written as u64), written));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes all, or as much as there is room for; fails for want of room if that is nothing.
fn write_what_fits(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if done > 0 && lacks_room(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn lacks_room(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw);
    matches!(raw, Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG))
}

impl ObjectStore for DiskObjects {
    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize, ObjectError> {
        self.guarded(|| self.born(object)?.change(|file| write_what_fits(file, data, offset)))
    }

    fn write_direct(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, ObjectError> {
        if self.others_have(object) {
            return self.write(object, offset, data);
        }
        self.guarded(|| {
            self.born(object)?.change(|file| {
                let path = names::path(&self.folder, object);
                let done = self.direct.write(&path, data, offset)?;
                let rest = data.get(done..).unwrap_or_default();
                if rest.is_empty() {
                    return Ok(done);
                }
                match write_what_fits(file, rest, offset + done as u64) {
                    Ok(more) => Ok(done + more),
                    Err(error) if done > 0 && lacks_room(&error) => Ok(done),
                    Err(error) => Err(error),
                }
            })
        })
    }

    fn write_many(
        &self,
        object: ObjectId,
        pieces: &[Span],
        data: &[u8],
    ) -> Result<usize, ObjectError> {
        self.guarded(|| {
            self.born(object)?.change(|file| {
                let write = |offset, run: &[u8]| write_what_fits(file, run, offset);
                write_runs(runs_of(pieces, data), write, lacks_room)
            })
        })
    }

    fn append(&self, object: ObjectId, data: &[u8]) -> Result<(u64, usize), ObjectError> {
        self.guarded(|| {
            let file = self.born(object)?;
            file.positioned(|_| file.change(|file| append(file, data)))
        })
    }

    fn read(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        let Some(file) = self.existing(object, Need::Look)? else {
            return Ok(0);
        };
        if self.reads.can_tell() {
            self.ahead.read(object, (offset, len), true);
        }
        let Got { bytes, part, .. } = self.reads.wait(&file, (offset, len), buffer)?;
        self.ahead.dense(object, part);
        Ok(bytes)
    }

    fn read_direct(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<usize, ObjectError> {
        let mut done = 0;
        if !self.others_have(object) {
            let path = names::path(&self.folder, object);
            done = self.direct.read(&path, (offset, len), buffer)?;
        }
        if done == len {
            return Ok(done);
        }
        Ok(done + self.read(object, offset + done as u64, len - done, buffer)?)
    }

    fn read_now(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        buffer: &mut BytesMut,
    ) -> Result<Option<usize>, ObjectError> {
        if !self.reads.can_tell() {
            return self.read(object, offset, len, buffer).map(Some);
        }
        match self.existing_by(reads::open_now, object, Need::Look) {
            Ok(Some(file)) => {
                let got = self.reads.now(&file, (offset, len), buffer)?;
                // What is not read here is counted where it is.
                Ok(got.map(|Got { bytes, waited, part }| {
                    self.ahead.read(object, (offset, len), waited);
                    self.ahead.dense(object, part);
                    bytes
                }))
            }
            Ok(None) => Ok(Some(0)),
            // Where it is has to be looked up on the disk.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn punch(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        self.guarded(|| match self.existing(object, Need::Change)? {
            Some(file) if file.metadata()?.len() > size => file.change(|file| file.set_len(size)),
            _ => Ok(()),
        })
    }

    fn grow(&self, object: ObjectId, size: u64) -> Result<(), ObjectError> {
        self.guarded(|| {
            let file = self.born(object)?;
            if file.metadata()?.len() >= size {
                return Ok(());
            }
            // Others may write behind that end meanwhile, which a size that is set would cut off.
            file.change(|file| Ok(fallocate(file, FallocateFlags::empty(), size - 1, 1)?))
        })
    }

    fn set_times(
        &self,
        object: ObjectId,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<(), ObjectError> {
        let time = |time: Option<Timespec>| match time {
            Some(Timespec { sec, nsec }) => {
                rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec.into() }
            }
            None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        // Nothing is promised of times: if the kernel refuses, all else is as good as before.
        self.not_poisoned()?;
        match self.existing(object, Need::Look)? {
            Some(file) => Ok(futimens(&**file, &times).map_err(io::Error::from)?),
            None => Ok(()),
        }
    }

    fn give(&self, object: ObjectId) -> Result<Option<Given>, ObjectError> {
        self.guarded(|| {
            let Some(file) = self.existing(object, Need::Change)? else { return Ok(None) };
            if !*self.has_leases.get_or_init(|| has_leases(&file)) {
                return Err(io::Error::from_raw_os_error(Errno::EOPNOTSUPP.raw()));
            }
            // Before anybody can have it.
            self.noted.begins(object)?;
            let Some(file) = self.files.pin(object, &file) else {
                self.noted.ends(object);
                return Ok(None);
            };
            // Behind the pin, or a sync between the two would take the note of one that is not given
            // yet; and before anybody writes.
            self.unseen.note(object);
            self.ahead.watch(object, &file);
            Ok(Some(Given { file: Some(Arc::new(GivenFile(file))) }))
        })
    }

    fn take_back(&self, object: ObjectId) {
        self.files.unpin(object);
        self.noted.ends(object);
    }

    fn left_open(&self) -> Result<Vec<ObjectId>, ObjectError> {
        let alone = |object| match self.existing(object, Need::Look)? {
            Some(file) => given::nobody_else_has(&file),
            None => Ok(true),
        };
        Ok(self.noted.left_open(alone)?)
    }

    fn is_held(&self, object: ObjectId) -> bool {
        self.direct.is_busy() || self.files.is_pinned(object)
    }

    fn alone(&self, object: ObjectId) -> Result<bool, ObjectError> {
        match self.existing(object, Need::Look)? {
            Some(file) => Ok(given::nobody_else_has(&file)?),
            None => Ok(true),
        }
    }

    fn sync_given(&self) -> Result<(), ObjectError> {
        let given = self.files.pinned();
        match self.unseen.all(&given) {
            Some(objects) => objects.chunks(SYNC_MAX).try_for_each(|some| self.sync(some)),
            None => self.sync_everything(),
        }
    }

    fn allocate(
        &self,
        object: ObjectId,
        (offset, len): (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<(), ObjectError> {
        self.guarded(|| {
            // ext4 lets a file grow with each part that it finds blocks for, and then may say that
            // there are no more. So the size comes last, when nothing has to be found any more.
            let keep = FallocateFlags::KEEP_SIZE;
            let hole = FallocateFlags::PUNCH_HOLE | keep;
            let file = match how {
                Falloc::PunchHole => self.existing(object, Need::Change)?,
                Falloc::Allocate | Falloc::ZeroRange => Some(self.born(object)?),
            };
            let Some(file) = file else { return Ok(()) };
            if how != Falloc::PunchHole {
                self.may_have_room(&file, len)?;
            }
            file.change(|file| {
                match how {
                    Falloc::Allocate => fallocate(file, keep, offset, len)?,
                    Falloc::PunchHole => fallocate(file, hole, offset, len)?,
                    Falloc::ZeroRange => {
                        match fallocate(file, FallocateFlags::ZERO_RANGE | keep, offset, len) {
                            // tmpfs has no such call.
                            Err(rustix::io::Errno::OPNOTSUPP) => {
                                fallocate(file, hole, offset, len)?;
                                fallocate(file, keep, offset, len)?;
                            }
                            result => result?,
                        }
                    }
                }
                let end = offset.saturating_add(len);
                if how != Falloc::PunchHole && !keep_size && len > 0 {
                    // Side by side with writes, which a size that was looked up first could cut off.
                    fallocate(file, FallocateFlags::empty(), end - 1, 1)?;
                }
                Ok(())
            })
        })
    }

    fn seek(&self, object: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, ObjectError> {
        let Some(file) = self.existing(object, Need::Look)? else {
            return Ok(None);
        };
        let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        match file.positioned(|file| seek(file, to)) {
            Ok(found) => Ok(Some(found)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(ObjectError(error.into())),
        }
    }

    fn remove(&self, object: ObjectId) -> Result<bool, ObjectError> {
        self.guarded(|| {
            let group = Group::of(object);
            match self.present.removes(object) {
                // A file has a place on more OSTs than it has objects, mostly.
                Known::Absent => return Ok(false),
                Known::Perhaps => {}
                Known::List => self.present.listed(group, names::objects_in(&self.folder, group)),
            }
            let changing = self.unsynced.change(Place::Group(group));
            let removed = std::fs::remove_file(names::path(&self.folder, object));
            if removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                changing.undo();
                self.present.removed(object);
                return Ok(false);
            }
            self.files.forget(object);
            drop(changing);
            removed?;
            if self.present.removed(object) {
                self.remove_if_empty(group);
            }
            Ok(true)
        })
    }

    fn sync(&self, objects: &[ObjectId]) -> Result<(), ObjectError> {
        self.guarded(|| {
            // One that is removed meanwhile has a name to make durable, too; one that was removed
            // before has no data to look for again.
            let seen = self.unseen.seen(objects, |object| self.files.is_pinned(object));
            let synced = || {
                let there = self.start_writing(objects)?;
                let turn = self.namer.ask(objects.iter().map(|object| Group::of(*object)));
                let data = self.sync_data(&there);
                let names = self.namer.wait(turn);
                data.and(names)
            };
            synced().inspect_err(|_| seen.iter().for_each(|object| self.unseen.note(*object)))
        })
    }

    fn stat(&self, objects: &[ObjectId]) -> Result<Vec<ObjectStat>, ObjectError> {
        Ok(objects.iter().map(|object| self.stat_one(*object)).collect::<io::Result<_>>()?)
    }

    fn list(&self, seq: Seq, from_oid: u32, count: usize) -> Result<Vec<ObjectStat>, ObjectError> {
        let from = ObjectId { fid: Fid { seq, oid: from_oid, ver: 0 }, stripe: 0 };
        let mut out: Vec<ObjectStat> = Vec::new();
        for group in names::groups_in(&self.folder, seq)? {
            if out.len() >= count {
                break;
            }
            if group >= Group::of(from) {
                out.extend(self.list_group(group, from)?);
            }
        }
        // The stripes of the last file stay together; a group holds all of each file.
        let last = count.checked_sub(1).and_then(|last| out.get(last)).map(|stat| stat.object.fid);
        if let Some(last) = last {
            out.retain(|stat| stat.object.fid <= last);
        }
        if count == 0 {
            out.clear();
        }
        Ok(out)
    }

    fn sequences(&self) -> Result<Vec<Seq>, ObjectError> {
        let mut all = Vec::new();
        for seq in names::sequences_in(&self.folder)? {
            if !self.list(seq, 0, 1)?.is_empty() {
                all.push(seq);
            }
        }
        Ok(all)
    }

    fn statfs(&self) -> Result<StatFs, ObjectError> {
        let object_bytes_max = self.object_bytes_max;
        Ok(StatFs { object_bytes_max, ..space::of(&self.root, self.sharers)? })
    }
}

#[cfg(test)]
mod tests;
