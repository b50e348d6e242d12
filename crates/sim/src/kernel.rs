//! A kernel above a client: it caches names, attributes and pages for as long as it was told
//! it may, so that an answer that should not have been believed is noticed as a stale one.
//!
//! The rules are FUSE's: a name is believed from the epoch that its lookup began in; an
//! attribute, unless it was invalidated after its request began; pages of readers stay until
//! they are invalidated, and an invalidation waits for the READs in flight. Writers go past
//! the pages. What calls lock meanwhile: [`locks`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use sateen_client::{AtimePolicy, Client, Entry, KernelInval, Known, OpenHow, SpaceTotal, Way};
use sateen_types::{
    Attr, DirCookie, Errno, Falloc, Fid, FileKind, Ino, Layout, Result, StripePolicy,
};
use sateen_wire::disk::mdt::links;
use sateen_wire::{Cred, DirEntry, FileLock, RenameFlags, SetAttr, XattrMode};

use crate::data::Fallocate;
use crate::executor::{Raised, lock};
use crate::file_locks::Alarm;
use crate::random::Random;

mod given;
mod locks;
mod pages;

use given::GivenFiles;
use locks::{Lock, Locks};
use pages::{PAGE_BYTES, Pages};

/// Entries asked for at once, so that directories take several pages.
const READDIR_COUNT: usize = 7;
/// Reads on the way to one.
const WALKED: i64 = 4;
/// Names of a listing that are looked up behind it.
const LOOKED_THROUGH: usize = 8;

#[derive(Default)]
struct State {
    epoch: u64,
    attr_version: u64,
    names: BTreeMap<(Fid, Vec<u8>), Option<Fid>>,
    /// Where each inode was found last.
    parents: BTreeMap<Fid, Fid>,
    /// Inodes that are directories.
    dirs: BTreeSet<Fid>,
    /// How often calls from here have made or removed each name.
    changes: BTreeMap<(Fid, Vec<u8>), u64>,
    attrs: BTreeMap<Fid, Attr>,
    attr_versions: BTreeMap<Fid, u64>,
    /// Sizes, as they were heard of last: also of inodes whose attributes are not believed.
    sizes: BTreeMap<Fid, u64>,
    /// How often each file is open through the page cache, and the opens past it that were mapped.
    cached: BTreeMap<Fid, u64>,
    mapped: BTreeSet<u64>,
    pages: Pages,
    /// References to inodes, as the client counts them.
    refs: BTreeMap<Fid, u64>,
    /// Requests and open files that keep an inode.
    used: BTreeMap<Fid, u64>,
    hits: u64,
    /// Calls that join a group: under way, and all there were.
    joining: (u64, u64),
}

/// The kernel of one client's node.
pub(crate) struct Kernel {
    client: Arc<Client>,
    state: Mutex<State>,
    locks: Locks,
    /// In worlds where it is given files.
    given: Option<GivenFiles>,
}

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) id: u64,
    pub(crate) fid: Fid,
    pub(crate) how: How,
    pub(crate) way: Way,
    /// The program that has opened it, for locks; 0 if it is not known.
    pub(crate) owner: u64,
}

/// How a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct How {
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) sync: bool,
    /// Reads and writes go past the pages; mappings do not.
    pub(crate) direct: bool,
}

impl How {
    fn of(how: OpenHow) -> How {
        let OpenHow { write, append, sync, .. } = how;
        How { write, append, sync, direct: write || how.direct }
    }
}

impl State {
    fn name_changed(&mut self, parent: Fid, name: &[u8]) {
        *self.changes.entry((parent, name.to_vec())).or_default() += 1;
    }

    fn changes_of(&self, parent: Fid, name: &[u8]) -> u64 {
        self.changes.get(&(parent, name.to_vec())).copied().unwrap_or_default()
    }

    fn use_inode(&mut self, fid: Fid) {
        *self.used.entry(fid).or_default() += 1;
    }

    fn release(&mut self, fid: Fid) {
        if let Some(count) = self.used.get_mut(&fid) {
            *count -= 1;
            if *count == 0 {
                self.used.remove(&fid);
            }
        }
    }

    fn drop_attr(&mut self, fid: Fid) {
        self.attr_version += 1;
        self.attr_versions.insert(fid, self.attr_version);
        self.attrs.remove(&fid);
    }

    fn keep_attr(&mut self, known: &Known, held: bool, asked_at: u64) {
        let fid = known.attr.fid;
        self.sizes.insert(fid, known.attr.size);
        if known.attr.kind() == FileKind::Directory {
            self.dirs.insert(fid);
        }
        if self.attr_versions.get(&fid).is_some_and(|version| *version > asked_at) {
            return;
        }
        if held {
            self.attrs.insert(fid, known.attr);
        } else {
            self.attrs.remove(&fid);
        }
    }
}

/// Keeps an inode in use while a request runs.
struct InUse<'a>(&'a Kernel, Fid);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).release(self.1);
    }
}

fn cred() -> Cred {
    Cred::default()
}

impl Kernel {
    /// If it `keeps_apart`, calls wait for its locks; if it is `traced`, it tells of that.
    pub(crate) fn new(client: Arc<Client>, keeps_apart: bool, traced: bool) -> Kernel {
        let locks = Locks::new(keeps_apart, traced);
        Kernel { client, state: Mutex::default(), locks, given: None }
    }

    /// Who has waited for whom since this was asked last, if that is traced.
    pub(crate) fn told(&self) -> Vec<String> {
        self.locks.told()
    }

    /// Who waits for whom now.
    pub(crate) fn waits(&self) -> Vec<String> {
        let mut all = self.locks.waits();
        all.extend(lock(&self.state).pages.waits());
        all.into_iter().map(|(who, what)| format!("{who} waits for {what}")).collect()
    }

    /// An invalidation that waits for a call to end, and not only for pages, if there is one.
    pub(crate) fn stuck(&self) -> Option<String> {
        let mut waits = self.locks.waits().into_iter();
        let (_, what) = waits.find(|(who, _)| *who == locks::INVALIDATION)?;
        Some(format!("its kernel waits for {what}"))
    }

    /// What it has done, by kind.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let (calls, invalidations) = lock(&self.state).pages.waited();
        let mut counts = self.given_counts();
        counts.push(("call waited for a lock of the kernel", self.locks.waited()));
        counts.push(("call waited for pages", calls));
        counts.push(("invalidation waited for pages", invalidations));
        counts
    }

    /// Answers that came from a cache.
    pub(crate) fn hits(&self) -> u64 {
        lock(&self.state).hits
    }

    fn hold(&self, fid: Fid) -> InUse<'_> {
        lock(&self.state).use_inode(fid);
        InUse(self, fid)
    }

    /// The client wants something forgotten; whether the inode is known at all.
    pub(crate) async fn invalidate(&self, what: KernelInval) -> bool {
        let waits = {
            let mut state = lock(&self.state);
            let ino = match what {
                KernelInval::Names => {
                    state.epoch += 1;
                    state.names.clear();
                    return true;
                }
                KernelInval::Attr(ino) | KernelInval::Data(ino) | KernelInval::Pages(ino, ..) => {
                    ino
                }
            };
            let known = |fid: &Fid| *fid == Fid::ROOT || state.refs.contains_key(fid);
            let Some(fid) = Fid::from_ino(ino).filter(known) else { return false };
            state.drop_attr(fid);
            let pages = match what {
                KernelInval::Data(_) => 0..=u64::MAX,
                KernelInval::Pages(_, offset, len) => pages::holding(offset, len.max(1)),
                KernelInval::Names | KernelInval::Attr(_) => return true,
            };
            state.pages.invalidate(fid, pages)
        };
        if let Some(signal) = waits {
            Raised(signal).await;
        }
        true
    }

    fn introduce(&self, entry: &Entry, asked_at: u64) -> Entry {
        let entry = self.client.introduce_entry(*entry);
        if let Some(known) = &entry.inode {
            let mut state = lock(&self.state);
            *state.refs.entry(known.attr.fid).or_default() += 1;
            state.keep_attr(known, known.held, asked_at);
        }
        entry
    }

    /// A name that this has made.
    fn keep_made(&self, parent: Fid, name: &[u8], entry: &Entry, epoch: u64) {
        lock(&self.state).name_changed(parent, name);
        self.keep_name(parent, name, entry, epoch);
    }

    fn keep_name(&self, parent: Fid, name: &[u8], entry: &Entry, epoch: u64) {
        let mut state = lock(&self.state);
        let key = (parent, name.to_vec());
        if let Some(known) = entry.inode {
            state.parents.insert(known.attr.fid, parent);
        }
        if entry.held && state.epoch == epoch {
            state.names.insert(key, entry.inode.map(|known| known.attr.fid));
        } else {
            state.names.remove(&key);
        }
    }

    fn began(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.epoch, state.attr_version)
    }

    fn cached_name(&self, parent: Fid, name: &[u8]) -> Option<Option<Fid>> {
        let mut state = lock(&self.state);
        let found = state.names.get(&(parent, name.to_vec())).copied();
        state.hits += u64::from(found.is_some());
        found
    }

    async fn lookup(&self, parent: Fid, name: &[u8]) -> Result<Option<Fid>> {
        if let Some(found) = self.cached_name(parent, name) {
            return Ok(found);
        }
        let _parent = self.locks.shared(Lock::Inode(parent), "lookup").await;
        self.look(parent, name).await
    }

    /// Looks a name up while the directory is locked.
    async fn look(&self, parent: Fid, name: &[u8]) -> Result<Option<Fid>> {
        if let Some(found) = self.cached_name(parent, name) {
            return Ok(found);
        }
        let (epoch, asked_at) = self.began();
        let changes = lock(&self.state).changes_of(parent, name);
        let entry = self.client.lookup(parent, name).await?;
        let entry = self.introduce(&entry, asked_at);
        // A kernel lets nobody make or remove a name that it is looking up. One that keeps nothing
        // apart does, and what was looked up then must leave nothing behind.
        if lock(&self.state).changes_of(parent, name) == changes {
            self.keep_name(parent, name, &entry, epoch);
        }
        Ok(entry.inode.map(|known| known.attr.fid))
    }

    /// Walks from the root.
    pub(crate) async fn walk(&self, path: &[Vec<u8>]) -> Result<Fid> {
        let mut at = Fid::ROOT;
        for name in path {
            let _used = self.hold(at);
            at = self.lookup(at, name).await?.ok_or(Errno::ENOENT)?;
        }
        Ok(at)
    }

    /// `stat` of a name.
    pub(crate) async fn stat(&self, parent: Fid, name: &[u8]) -> Result<Attr> {
        let _used = self.hold(parent);
        let fid = self.lookup(parent, name).await?.ok_or(Errno::ENOENT)?;
        self.getattr(fid).await
    }

    pub(crate) async fn getattr(&self, fid: Fid) -> Result<Attr> {
        let _used = self.hold(fid);
        if let Some(attr) = {
            let mut state = lock(&self.state);
            let found = state.attrs.get(&fid).copied();
            state.hits += u64::from(found.is_some());
            found
        } {
            return Ok(attr);
        }
        let (_, asked_at) = self.began();
        let known = self.client.getattr(fid).await?;
        lock(&self.state).keep_attr(&known, known.held, asked_at);
        Ok(known.attr)
    }

    /// `open` with or without `O_CREAT`. If the name was believed and its inode is gone, or another
    /// client has made something of it that is not opened by creating it, it is looked up again,
    /// once.
    pub(crate) async fn open(
        &self,
        parent: Fid,
        name: &[u8],
        create: Option<u32>,
        how: OpenHow,
    ) -> Result<Handle> {
        // Only a name in the cache saves the create.
        let cached = lock(&self.state).names.get(&(parent, name.to_vec())).copied().flatten();
        match self.open_once(parent, name, (create, cached), how).await {
            Err(Errno::ESTALE) => {
                lock(&self.state).names.remove(&(parent, name.to_vec()));
                let found = {
                    let _used = self.hold(parent);
                    self.lookup(parent, name).await?
                };
                self.open_once(parent, name, (create, found), how).await
            }
            opened => opened,
        }
    }

    /// `known` is what an open with `create` goes by.
    async fn open_once(
        &self,
        parent: Fid,
        name: &[u8],
        (create, known): (Option<u32>, Option<Fid>),
        how: OpenHow,
    ) -> Result<Handle> {
        let _used = self.hold(parent);
        let mut known = match create {
            Some(_) => known,
            None => Some(self.lookup(parent, name).await?.ok_or(Errno::ENOENT)?),
        };
        let mut dir = None;
        if known.is_none() {
            dir = Some(self.locks.alone(Lock::Inode(parent), "create").await);
            // Another program may have made it meanwhile.
            known = lock(&self.state).names.get(&(parent, name.to_vec())).copied().flatten();
            dir = dir.filter(|_| known.is_none());
        }
        let (fid, id, kind) = match (known, create) {
            (Some(_), Some(_)) if how.exclusive => return Err(Errno::EEXIST),
            (Some(fid), _) => {
                let _used = self.hold(fid);
                let opened = self.client.open(fid, how, cred()).await?;
                (fid, opened.handle, opened.known.attr.kind())
            }
            (None, Some(mode)) => {
                let (epoch, asked_at) = self.began();
                let created = self.client.create(parent, name, mode, how, cred()).await;
                let (mut entry, opened) = created?;
                entry.inode = Some(opened.known);
                let entry = self.introduce(&entry, asked_at);
                self.keep_made(parent, name, &entry, epoch);
                lock(&self.state).drop_attr(parent);
                (opened.known.attr.fid, opened.handle, opened.known.attr.kind())
            }
            (None, None) => return Err(Errno::ENOENT),
        };
        if kind == FileKind::CharDevice {
            // Who opens a device has to do with its driver, and there is none.
            let _closed = self.client.close(id).await;
            return Err(Errno::ENXIO);
        }
        if kind == FileKind::Directory && create.is_some() {
            // So says Linux to whoever would make a file where a directory is.
            let _closed = self.client.close(id).await;
            return Err(Errno::EISDIR);
        }
        // A file that is new has no object.
        let way = self.answered((fid, id), known.is_some()).await?;
        let handle = Handle { id, fid, how: How::of(how), way, owner: 0 };
        self.finish_open(handle, kind, how.truncate).await;
        drop(dir);
        Ok(handle)
    }

    /// What is left of an open once it was answered. Of one that has created the file the directory is
    /// still locked.
    async fn finish_open(&self, handle: Handle, kind: FileKind, truncates: bool) {
        let Handle { fid, how, way, .. } = handle;
        {
            let mut state = lock(&self.state);
            state.use_inode(fid);
            if truncates {
                state.pages.changed(fid);
                state.drop_attr(fid);
                state.sizes.insert(fid, 0);
            }
        }
        if kind != FileKind::Regular {
            return;
        }
        if truncates || how.direct {
            self.drop_pages(fid, pages::ALL, "open").await;
        }
        if way == Way::Ordinary && !how.direct {
            self.begin_caching(fid).await;
        }
    }

    /// `open` with `O_TMPFILE`.
    pub(crate) async fn tmpfile(&self, parent: Fid, how: OpenHow) -> Result<Handle> {
        let _used = self.hold(parent);
        let (_, asked_at) = self.began();
        let opened = self.client.tmpfile(parent, 0o600, how, cred()).await?;
        let fid = opened.known.attr.fid;
        self.introduce(&Entry::nameless(opened.known), asked_at);
        let way = self.answered((fid, opened.handle), false).await?;
        let handle = Handle { id: opened.handle, fid, how: How::of(how), way, owner: 0 };
        self.finish_open(handle, FileKind::Regular, false).await;
        Ok(handle)
    }

    pub(crate) async fn close(&self, handle: Handle) -> Result<()> {
        // FLUSH, and RELEASE, for which nobody waits.
        let is_late = self.released(handle);
        drop(self.locks.alone(Lock::Inode(handle.fid), "close").await);
        let flushed = self.client.flush_file(handle.id);
        self.client.closed_by(handle.id, handle.owner).await;
        self.end_caching(handle);
        if is_late {
            lock(&self.state).release(handle.fid);
            self.closes_late(handle);
            return flushed;
        }
        let closed = self.client.close(handle.id).await;
        lock(&self.state).release(handle.fid);
        flushed.and(closed)
    }

    /// Joins a group, and waits for that.
    pub(crate) async fn lock_group(&self, handle: Handle, gid: u64) -> Result<()> {
        let _used = self.hold(handle.fid);
        {
            let joining = &mut lock(&self.state).joining;
            *joining = (joining.0 + 1, joining.1 + 1);
        }
        let joined = self.client.lock_group(handle.id, gid).await;
        lock(&self.state).joining.0 -= 1;
        joined
    }

    /// `None` while programs of this kernel may belong to a group that has the file; else a number, which
    /// is another as soon as one may have belonged to it since.
    pub(crate) fn apart_from_groups(&self, fid: Fid) -> Option<u64> {
        let (now, all) = lock(&self.state).joining;
        (now == 0 && !self.client.is_beside_group(fid)).then_some(all)
    }

    /// Leaves it.
    pub(crate) async fn unlock_group(&self, handle: Handle, gid: u64) -> Result<()> {
        let _used = self.hold(handle.fid);
        self.client.unlock_group(handle.id, gid).await
    }

    /// `flock` and `fcntl`: with an alarm it waits, until that rings.
    pub(crate) async fn set_lock(
        &self,
        handle: Handle,
        lock: FileLock,
        alarm: Option<&Alarm>,
    ) -> Result<()> {
        let _used = self.hold(handle.fid);
        let heard = || alarm.is_none_or(|alarm| !alarm.has_rung());
        let set = self.client.set_file_lock(handle.id, lock, alarm.is_some(), heard);
        match alarm {
            Some(alarm) => alarm.patience().run(set).await,
            None => set.await,
        }
    }

    /// `fcntl` with `F_GETLK`.
    pub(crate) async fn test_lock(
        &self,
        handle: Handle,
        lock: FileLock,
    ) -> Result<Option<FileLock>> {
        let _used = self.hold(handle.fid);
        self.client.test_file_lock(handle.id, lock).await
    }

    pub(crate) async fn write(&self, handle: Handle, offset: u64, data: Bytes) -> Result<usize> {
        if handle.way == Way::Given {
            return self.write_given(handle, offset, &data).await;
        }
        if handle.how.append {
            self.others_come_and_go(handle);
        }
        let (at, len) = (self.place_of(handle, offset), data.len() as u64);
        let _locked = self.lock_to_write(handle, at + len).await;
        let pages = pages::holding(at, len.max(1));
        self.drop_pages(handle.fid, pages.clone(), "write").await;
        let written = self.client.write(handle.id, offset, data, handle.how.append).await;
        {
            let mut state = lock(&self.state);
            state.pages.changed(handle.fid);
            state.drop_attr(handle.fid);
            if written.is_ok() {
                let size = state.sizes.entry(handle.fid).or_default();
                *size = (*size).max(at + len);
            }
        }
        // What was read ahead meanwhile goes as well.
        self.drop_pages(handle.fid, pages, "write").await;
        written
    }

    pub(crate) async fn read(&self, handle: Handle, offset: u64, len: u64) -> Result<Vec<u8>> {
        if handle.way == Way::Given {
            return self.read_given(handle, offset, len).await;
        }
        if !handle.how.direct && handle.way == Way::Ordinary {
            return self.read_mapped(handle, offset, len).await;
        }
        let buffer = BytesMut::new();
        let data = self.client.read_past_cache(handle.id, offset, len as u32, buffer).await?;
        Ok(data.to_vec())
    }

    /// `fallocate` with `FALLOC_FL_ZERO_RANGE`.
    pub(crate) async fn zero_range(&self, handle: Handle, offset: u64, len: u64) -> Result<()> {
        self.fallocate(handle, (offset, len), Falloc::ZeroRange, false).await
    }

    /// As if an OST had refused the first write of a file for want of space.
    pub(crate) async fn no_room(&self, handle: Handle, ost: u32) -> Result<()> {
        self.client.found_no_room(handle.id, ost).await.map(drop)
    }

    /// `fallocate`.
    pub(crate) async fn allocate(
        &self,
        handle: Handle,
        (offset, len): (u64, u64),
        how: Fallocate,
    ) -> Result<()> {
        let (falloc, keep_size) = match how {
            Fallocate::Grow => (Falloc::Allocate, false),
            Fallocate::KeepSize => (Falloc::Allocate, true),
            Fallocate::Punch => (Falloc::PunchHole, true),
        };
        self.fallocate(handle, (offset, len), falloc, keep_size).await
    }

    async fn fallocate(
        &self,
        handle: Handle,
        (offset, len): (u64, u64),
        how: Falloc,
        keep_size: bool,
    ) -> Result<()> {
        let fid = handle.fid;
        let _inode = self.locks.alone(Lock::Inode(fid), "fallocate").await;
        let makes_zeros = how != Falloc::Allocate;
        let _mapping = match makes_zeros {
            true => Some(self.locks.alone(Lock::Mapping(fid), "fallocate").await),
            false => None,
        };
        let done = self.client.allocate(handle.id, (offset, len), how, keep_size).await;
        {
            let mut state = lock(&self.state);
            state.pages.changed(fid);
            state.drop_attr(fid);
        }
        if makes_zeros && len > 0 {
            self.drop_pages(fid, pages::holding(offset, len), "fallocate").await;
        }
        done
    }

    /// Where the next data or hole begins.
    pub(crate) async fn seek(
        &self,
        handle: Handle,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>> {
        let _inode = self.locks.alone(Lock::Inode(handle.fid), "lseek").await;
        match self.client.seek(handle.id, offset, hole).await {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// An open file is made durable.
    pub(crate) async fn fsync_file(&self, handle: Handle) -> Result<()> {
        let _used = self.hold(handle.fid);
        let _inode = self.locks.alone(Lock::Inode(handle.fid), "fsync").await;
        self.client.fsync_file(handle.id).await
    }

    /// The inode behind a directory is made durable.
    pub(crate) async fn fsync(&self, fid: Fid) -> Result<()> {
        let _used = self.hold(fid);
        let _inode = self.locks.alone(Lock::Inode(fid), "fsync").await;
        self.client.fsync(fid).await
    }

    pub(crate) async fn make(
        &self,
        parent: Fid,
        name: &[u8],
        mode: u32,
        symlink: &[u8],
    ) -> Result<Attr> {
        let _used = self.hold(parent);
        let _dir = self.locks.alone(Lock::Inode(parent), "mknod").await;
        let (epoch, asked_at) = self.began();
        let entry = self.client.mknod(parent, name, mode, 0, symlink, cred()).await?;
        let entry = self.introduce(&entry, asked_at);
        self.keep_made(parent, name, &entry, epoch);
        lock(&self.state).drop_attr(parent);
        entry.inode.map(|known| known.attr).ok_or(Errno::ENOENT)
    }

    pub(crate) async fn readlink(&self, parent: Fid, name: &[u8]) -> Result<Vec<u8>> {
        let _used = self.hold(parent);
        let fid = self.lookup(parent, name).await?.ok_or(Errno::ENOENT)?;
        Ok(self.client.readlink(fid).await?.to_vec())
    }

    pub(crate) async fn unlink(&self, parent: Fid, name: &[u8], directory: bool) -> Result<()> {
        let _used = self.hold(parent);
        let _dir = self.locks.alone(Lock::Inode(parent), "unlink").await;
        let fid = self.look(parent, name).await?.ok_or(Errno::ENOENT)?;
        let _file = self.hold(fid);
        let _inode = self.locks.alone(Lock::Inode(fid), "unlink").await;
        let done = self.client.unlink(parent, name, directory).await;
        let mut state = lock(&self.state);
        state.drop_attr(parent);
        state.drop_attr(fid);
        if done.is_ok() {
            state.name_changed(parent, name);
            state.names.remove(&(parent, name.to_vec()));
        }
        done
    }

    pub(crate) async fn rename(
        &self,
        from: (Fid, &[u8]),
        to: (Fid, &[u8]),
        (flags, whiteout): (RenameFlags, bool),
    ) -> Result<()> {
        let _used = (self.hold(from.0), self.hold(to.0));
        let _dirs = self.lock_to_rename(from.0, to.0).await;
        let moved = self.look(from.0, from.1).await?.ok_or(Errno::ENOENT)?;
        let replaced = self.look(to.0, to.1).await?;
        let _inodes = self.lock_children((from.0, moved), (to.0, replaced), flags.exchange).await;
        let done = match whiteout {
            true => self.client.rename_whiteout(from, to, flags.no_replace, cred()).await,
            false => self.client.rename(from, to, flags).await,
        };
        let mut state = lock(&self.state);
        state.drop_attr(from.0);
        state.drop_attr(to.0);
        state.drop_attr(moved);
        if let Some(replaced) = replaced {
            state.drop_attr(replaced);
        }
        if done.is_ok() {
            for (parent, name) in [from, to] {
                state.name_changed(parent, name);
                state.names.remove(&(parent, name.to_vec()));
            }
            state.parents.insert(moved, to.0);
            if let Some(replaced) = replaced.filter(|_| flags.exchange) {
                state.parents.insert(replaced, from.0);
            }
        }
        done
    }

    pub(crate) async fn link(&self, from: (Fid, &[u8]), parent: Fid, name: &[u8]) -> Result<Attr> {
        let _used = (self.hold(from.0), self.hold(parent));
        let fid = self.lookup(from.0, from.1).await?.ok_or(Errno::ENOENT)?;
        let _file = self.hold(fid);
        let _dir = self.locks.alone(Lock::Inode(parent), "link").await;
        let is_dir = lock(&self.state).dirs.contains(&fid);
        let _inode = match is_dir {
            // It is refused before that.
            true => None,
            false => Some(self.locks.alone(Lock::Inode(fid), "link").await),
        };
        let (epoch, asked_at) = self.began();
        let entry = self.client.link(fid, parent, name).await?;
        let entry = self.introduce(&entry, asked_at);
        self.keep_made(parent, name, &entry, epoch);
        lock(&self.state).drop_attr(parent);
        entry.inode.map(|known| known.attr).ok_or(Errno::ENOENT)
    }

    pub(crate) async fn setattr(&self, parent: Fid, name: &[u8], set: SetAttr) -> Result<Attr> {
        let _used = self.hold(parent);
        let fid = self.lookup(parent, name).await?.ok_or(Errno::ENOENT)?;
        let _file = self.hold(fid);
        let _inode = self.locks.alone(Lock::Inode(fid), "setattr").await;
        let known = self.client.setattr(fid, set, cred()).await;
        {
            let mut state = lock(&self.state);
            state.drop_attr(fid);
            if let Some(size) = set.size {
                state.pages.changed(fid);
                state.sizes.insert(fid, size);
            }
        }
        if set.size.is_some() {
            self.drop_pages(fid, pages::ALL, "setattr").await;
        }
        known.map(|known| known.attr)
    }

    /// The inode of a name, or the directory itself if it is empty.
    async fn inode_of(&self, parent: Fid, name: &[u8]) -> Result<Fid> {
        if name.is_empty() {
            return Ok(parent);
        }
        self.lookup(parent, name).await?.ok_or(Errno::ENOENT)
    }

    /// Sets an extended attribute, or takes it away; of which inode.
    pub(crate) async fn set_xattr(
        &self,
        (parent, name): (Fid, &[u8]),
        attribute: &[u8],
        value: Option<(Vec<u8>, XattrMode)>,
    ) -> Result<Fid> {
        let _used = self.hold(parent);
        let fid = self.inode_of(parent, name).await?;
        let _file = self.hold(fid);
        let _inode = self.locks.alone(Lock::Inode(fid), "setxattr").await;
        let done = match value {
            Some((value, mode)) => {
                self.client.setxattr(fid, attribute, Bytes::from(value), mode).await
            }
            None => self.client.removexattr(fid, attribute).await,
        };
        lock(&self.state).drop_attr(fid);
        done.map(|()| fid)
    }

    /// The value of an extended attribute, or the names of all; of which inode.
    pub(crate) async fn get_xattr(
        &self,
        (parent, name): (Fid, &[u8]),
        attribute: Option<&[u8]>,
    ) -> Result<(Fid, Vec<u8>)> {
        let _used = self.hold(parent);
        let fid = self.inode_of(parent, name).await?;
        let _file = self.hold(fid);
        let bytes = match attribute {
            Some(attribute) => self.client.getxattr(fid, attribute).await?,
            None => self.client.listxattr(fid).await?,
        };
        Ok((fid, bytes.to_vec()))
    }

    /// Chooses the striping, or the OSTs themselves; of which inode.
    pub(crate) async fn set_stripe(
        &self,
        (parent, name): (Fid, &[u8]),
        policy: StripePolicy,
        osts: Vec<u32>,
    ) -> Result<Fid> {
        let _used = self.hold(parent);
        let fid = self.inode_of(parent, name).await?;
        let _file = self.hold(fid);
        let _inode = self.locks.alone(Lock::Inode(fid), "setxattr").await;
        let done = match osts.is_empty() {
            true => self.client.setstripe(fid, policy).await,
            false => self.client.setlayout(fid, policy.stripe_size, osts).await,
        };
        lock(&self.state).drop_attr(fid);
        done.map(|()| fid)
    }

    /// The striping, and of which inode.
    pub(crate) async fn get_stripe(
        &self,
        (parent, name): (Fid, &[u8]),
    ) -> Result<(Fid, Option<Arc<Layout>>, Option<StripePolicy>)> {
        let _used = self.hold(parent);
        let fid = self.inode_of(parent, name).await?;
        let _file = self.hold(fid);
        let found = self.client.getstripe(fid).await?;
        Ok((fid, found.layout, found.policy))
    }

    /// All names of an inode, and which it is.
    pub(crate) async fn links(
        &self,
        (parent, name): (Fid, &[u8]),
    ) -> Result<(Fid, Vec<(Fid, Vec<u8>)>)> {
        let _used = self.hold(parent);
        let fid = self.inode_of(parent, name).await?;
        let _file = self.hold(fid);
        // The name was believed, and its inode is gone.
        let gone = |errno| if errno == Errno::ENOENT { Errno::ESTALE } else { errno };
        let got = self.client.links(fid).await.map_err(gone)?;
        Ok((fid, links(&got).map(|(dir, name)| (dir, name.to_vec())).collect()))
    }

    /// `statfs`.
    pub(crate) async fn statfs(&self) -> Result<SpaceTotal> {
        self.client.statfs().await
    }

    pub(crate) async fn readdir(&self, fid: Fid) -> Result<Vec<DirEntry>> {
        let _used = self.hold(fid);
        let mut after = DirCookie::START;
        let mut out = Vec::new();
        loop {
            let _dir = self.locks.shared(Lock::Inode(fid), "readdir").await;
            let page =
                self.client.readdir(fid, after, READDIR_COUNT, AtimePolicy::Relative).await?;
            if let Some(last) = page.entries.last() {
                after = last.cookie;
            }
            out.extend(page.entries);
            if page.end {
                return Ok(out);
            }
        }
    }

    /// Looks at the first names of a listing in its order, as `ls -l` does, so that what the client
    /// has looked up ahead is believed like all that a kernel keeps.
    pub(crate) async fn look_through(&self, dir: Fid, entries: &[DirEntry]) {
        let _used = self.hold(dir);
        for entry in entries.iter().take(LOOKED_THROUGH) {
            // They may be gone, or nobody answers.
            let Ok(found) = self.lookup(dir, entry.name.as_bytes()).await else { break };
            if let Some(fid) = found {
                let _file = self.hold(fid);
                let _ = self.client.getxattr(fid, b"security.selinux").await;
            }
        }
        self.client.close_dir(dir);
    }

    /// Reads a file up to a place as programs do that go through it by steps, backward, or forward in
    /// small pieces, so that the client has read what is there, and behind it, already. Other programs
    /// may change it meanwhile: nobody takes notice of what is read on the way.
    pub(crate) async fn walk_to(&self, handle: Handle, way: u64, (offset, len): (u64, u64)) {
        let (piece, step) = match way {
            0 => (PAGE_BYTES, -(PAGE_BYTES as i64)),
            1 => (PAGE_BYTES, PAGE_BYTES as i64),
            2 => (len, 3 * len as i64),
            3 => (len / 2 + 1, -(len as i64)),
            _ => return,
        };
        for number in (1..=WALKED).rev() {
            let Some(at) = offset.checked_add_signed(-step * number) else { continue };
            if self.read(handle, at, piece).await.is_err() {
                return;
            }
        }
    }

    /// Memory is short: inodes that nobody uses are forgotten.
    pub(crate) fn shrink(&self, random: &mut Random) {
        self.forget(|_| random.one_in(3));
    }

    /// Forgets those of these inodes that nobody uses.
    pub(crate) fn prune(&self, inodes: &[Ino]) {
        self.forget(|fid| inodes.contains(&fid.ino()));
    }

    fn forget(&self, mut which: impl FnMut(Fid) -> bool) {
        let mut state = lock(&self.state);
        let idle: Vec<(Fid, u64)> = state
            .refs
            .iter()
            .filter(|(fid, _)| !state.used.contains_key(fid) && which(**fid))
            .map(|(fid, refs)| (*fid, *refs))
            .collect();
        for (fid, _) in &idle {
            state.refs.remove(fid);
            state.attrs.remove(fid);
            state.pages.forget(*fid);
            state.sizes.remove(fid);
            state.parents.remove(fid);
            state.dirs.remove(fid);
            state.names.retain(|(parent, _), found| parent != fid && *found != Some(*fid));
        }
        drop(state);
        for (fid, refs) in idle {
            self.client.forget(fid, refs);
        }
    }
}
