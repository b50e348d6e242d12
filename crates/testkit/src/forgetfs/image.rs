//! The two states of forgetfs: the tree as programs see it, and what of it a power cut leaves.
//!
//! A file's *durable* content is that of its last sync; a directory's *durable* entries are
//! those of its own last sync. A new file whose directory was synced but which was not itself
//! is there and empty. Owner, permissions and times are not told apart: they are kept.
//!
//! Disks keep more than they promise. [`Loss::Some`] therefore keeps a random part of what was
//! not synced: of a file some pages, some of them torn between two sectors; of a directory the
//! first of its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sateen_fuse::{Attr, ROOT_INO, Time};

use crate::random::Random;

/// Bytes of a page: what is lost or kept.
pub(super) const PAGE: u64 = 4096;
/// Bytes of a sector: what is never torn.
const SECTOR: usize = 512;
/// Removed inodes that may wait until they are swept away.
const REMOVED_MAX: usize = 1024;

/// What a power cut does to what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It is lost, all of it.
    All,
    /// A random part of it is lost.
    Some {
        /// Which part.
        seed: u64,
    },
}

type Page = [u8; PAGE as usize];
type Names = BTreeMap<Vec<u8>, u64>;

/// A file's bytes. Pages of zeros need not be there.
#[derive(Debug, Clone, Default)]
struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

#[derive(Debug, Default)]
pub(super) struct FileData {
    now: Content,
    durable: Content,
    /// Pages that may differ.
    dirty: BTreeSet<u64>,
    /// It was made shorter since its last sync.
    cut: bool,
}

/// Names that one operation sets or, without an inode, removes.
type Change = Vec<(Vec<u8>, Option<u64>)>;

#[derive(Debug, Default)]
pub(super) struct DirData {
    pub(super) now: Names,
    durable: Names,
    changes: Vec<Change>,
}

#[derive(Debug)]
pub(super) enum Body {
    File(FileData),
    Dir(DirData),
    Symlink(Vec<u8>),
    Other,
}

/// An inode.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) attr: Attr,
    pub(super) body: Body,
    /// References of the kernel.
    pub(super) lookups: u64,
    pub(super) opens: u64,
}

/// Both states of the whole tree.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) inodes: BTreeMap<u64, Inode>,
    next: u64,
    removed: usize,
}

pub(super) type Result<T> = std::result::Result<T, i32>;

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

impl Content {
    fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let end = self.size.min(offset.saturating_add(out.len() as u64));
        let len = end.saturating_sub(offset) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (page, from) = (at / PAGE, (at % PAGE) as usize);
            let piece = (PAGE as usize - from).min(len - done);
            let Some(to) = out.get_mut(done..done + piece) else { break };
            match self.pages.get(&page).and_then(|page| page.get(from..from + piece)) {
                Some(bytes) => to.copy_from_slice(bytes),
                None => to.fill(0),
            }
            done += piece;
        }
        len
    }
}

impl FileData {
    fn change_page(&mut self, page: u64, change: impl FnOnce(&mut Page)) {
        let mut bytes = self.now.pages.get(&page).map_or([0; PAGE as usize], |page| **page);
        change(&mut bytes);
        if bytes.iter().all(|byte| *byte == 0) {
            self.now.pages.remove(&page);
        } else {
            self.now.pages.insert(page, Arc::new(bytes));
        }
        self.dirty.insert(page);
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let from = (at % PAGE) as usize;
            let piece = (PAGE as usize - from).min(data.len() - done);
            let bytes = data.get(done..done + piece).unwrap_or_default();
            self.change_page(at / PAGE, |page| {
                if let Some(to) = page.get_mut(from..from + piece) {
                    to.copy_from_slice(bytes);
                }
            });
            done += piece;
        }
        self.now.size = self.now.size.max(offset + data.len() as u64);
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        self.now.read(offset, out)
    }

    pub(super) fn zero(&mut self, offset: u64, end: u64) {
        let touched = self.now.pages.range(offset / PAGE..end.div_ceil(PAGE));
        let touched: Vec<u64> = touched.map(|(page, _)| *page).collect();
        for page in touched {
            let (from, to) = (offset.max(page * PAGE), end.min((page + 1) * PAGE));
            let (from, to) = (from - page * PAGE, to - page * PAGE);
            self.change_page(page, |bytes| {
                if let Some(bytes) = bytes.get_mut(from as usize..to as usize) {
                    bytes.fill(0);
                }
            });
        }
    }

    pub(super) fn resize(&mut self, size: u64) {
        if size < self.now.size {
            self.zero(size, self.now.size);
            self.cut = true;
        }
        self.now.size = size;
    }

    pub(super) fn size(&self) -> u64 {
        self.now.size
    }

    pub(super) fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            match self.now.pages.get(&page) {
                Some(bytes) => drop(self.durable.pages.insert(page, bytes.clone())),
                None => drop(self.durable.pages.remove(&page)),
            }
        }
        self.durable.size = self.now.size;
        self.cut = false;
    }

    /// What a power cut leaves.
    fn after(&self, random: Option<&mut Random>) -> Content {
        let Some(random) = random else { return self.durable.clone() };
        if self.cut {
            // Old or new: what lies between two lengths is the file system's own business.
            return if random.one_in(2) { self.durable.clone() } else { self.now.clone() };
        }
        let mut left = self.durable.clone();
        for page in &self.dirty {
            let new = self.now.pages.get(page).map_or([0; PAGE as usize], |page| **page);
            let old = left.pages.get(page).map_or([0; PAGE as usize], |page| **page);
            let sectors = match random.below(4) {
                0 => 0,
                1 => 1 + random.below(PAGE / SECTOR as u64 - 1) as usize,
                _ => PAGE as usize / SECTOR,
            };
            let (mut bytes, kept) = (old, sectors * SECTOR);
            if let (Some(to), Some(from)) = (bytes.get_mut(..kept), new.get(..kept)) {
                to.copy_from_slice(from);
            }
            left.pages.insert(*page, Arc::new(bytes));
            // A file is as long as what of it was written out.
            if sectors > 0 && (page * PAGE) < self.now.size {
                let end = (page * PAGE + kept as u64).min(self.now.size);
                left.size = left.size.max(end);
            }
        }
        let empty: Vec<u64> = left.pages.range(left.size.div_ceil(PAGE)..).map(|p| *p.0).collect();
        empty.iter().for_each(|page| drop(left.pages.remove(page)));
        left
    }
}

impl DirData {
    pub(super) fn change(&mut self, change: Change) {
        apply(&mut self.now, &change);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            apply(&mut self.durable, &change);
        }
    }

    fn after(&self, random: Option<&mut Random>) -> Names {
        let mut left = self.durable.clone();
        if let Some(random) = random {
            let kept = random.below(self.changes.len() as u64 + 1) as usize;
            self.changes.iter().take(kept).for_each(|change| apply(&mut left, change));
        }
        left
    }

    /// Every inode that a cut might leave here.
    fn mentioned(&self) -> impl Iterator<Item = u64> + '_ {
        let changed = self.changes.iter().flatten().filter_map(|(_, ino)| *ino);
        self.now.values().chain(self.durable.values()).copied().chain(changed)
    }
}

fn apply(names: &mut Names, change: &Change) {
    for (name, ino) in change {
        match ino {
            Some(ino) => drop(names.insert(name.clone(), *ino)),
            None => drop(names.remove(name)),
        }
    }
}

impl Image {
    pub(super) fn new() -> Image {
        let mut image = Image { inodes: BTreeMap::new(), next: ROOT_INO, removed: 0 };
        image.insert(Body::Dir(DirData::default()), libc::S_IFDIR | 0o755, (0, 0), 0);
        image
    }

    fn insert(&mut self, body: Body, mode: u32, owner: (u32, u32), rdev: u32) -> u64 {
        let ino = self.next;
        self.next += 1;
        let (uid, gid) = owner;
        let nlink = if matches!(body, Body::Dir(_)) { 2 } else { 1 };
        let (atime, mtime, ctime) = (now(), now(), now());
        let blksize = PAGE as u32;
        let times = Attr { atime, mtime, ctime, ..Attr::default() };
        let attr = Attr { ino, mode, nlink, uid, gid, rdev, blksize, ..times };
        self.inodes.insert(ino, Inode { attr, body, lookups: 0, opens: 0 });
        ino
    }

    pub(super) fn get(&self, ino: u64) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(libc::ESTALE)
    }

    pub(super) fn get_mut(&mut self, ino: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(libc::ESTALE)
    }

    pub(super) fn file(&mut self, ino: u64) -> Result<&mut FileData> {
        match &mut self.get_mut(ino)?.body {
            Body::File(file) => Ok(file),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn dir(&mut self, ino: u64) -> Result<&mut DirData> {
        match &mut self.get_mut(ino)?.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn attr(&self, ino: u64) -> Result<Attr> {
        let inode = self.get(ino)?;
        let mut attr = inode.attr;
        match &inode.body {
            Body::File(file) => {
                attr.size = file.now.size;
                attr.blocks = file.now.pages.len() as u64 * (PAGE / 512);
            }
            Body::Symlink(target) => attr.size = target.len() as u64,
            _ => {}
        }
        Ok(attr)
    }

    pub(super) fn touch(&mut self, ino: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.attr.mtime = now();
            inode.attr.ctime = inode.attr.mtime;
        }
    }

    pub(super) fn find(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        self.dir(parent)?.now.get(name).copied().ok_or(libc::ENOENT)
    }

    /// Makes an inode under a new name.
    pub(super) fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        what: (Body, u32, u32),
        owner: (u32, u32),
    ) -> Result<u64> {
        if self.dir(parent)?.now.contains_key(name) {
            return Err(libc::EEXIST);
        }
        let (body, mode, rdev) = what;
        let is_dir = matches!(body, Body::Dir(_));
        let ino = self.insert(body, mode, owner, rdev);
        self.dir(parent)?.change(vec![(name.to_vec(), Some(ino))]);
        self.get_mut(parent)?.attr.nlink += u32::from(is_dir);
        self.touch(parent);
        Ok(ino)
    }

    pub(super) fn link(&mut self, ino: u64, parent: u64, name: &[u8]) -> Result<()> {
        if self.dir(parent)?.now.contains_key(name) {
            return Err(libc::EEXIST);
        }
        self.get_mut(ino)?.attr.nlink += 1;
        self.dir(parent)?.change(vec![(name.to_vec(), Some(ino))]);
        self.touch(parent);
        Ok(())
    }

    /// An inode has lost a name.
    fn unnamed(&mut self, parent: u64, ino: u64) -> Result<()> {
        let inode = self.get_mut(ino)?;
        let is_dir = matches!(inode.body, Body::Dir(_));
        inode.attr.nlink = if is_dir { 0 } else { inode.attr.nlink.saturating_sub(1) };
        let gone = inode.attr.nlink == 0;
        if is_dir {
            self.get_mut(parent)?.attr.nlink -= 1;
        }
        self.removed += usize::from(gone);
        Ok(())
    }

    /// Whether a name may be replaced or removed as what it is.
    fn check_removable(&mut self, ino: u64, as_dir: bool) -> Result<()> {
        match &self.get(ino)?.body {
            Body::Dir(_) if !as_dir => Err(libc::EISDIR),
            Body::Dir(dir) if !dir.now.is_empty() => Err(libc::ENOTEMPTY),
            Body::Dir(_) => Ok(()),
            _ if as_dir => Err(libc::ENOTDIR),
            _ => Ok(()),
        }
    }

    pub(super) fn remove(&mut self, parent: u64, name: &[u8], as_dir: bool) -> Result<()> {
        let ino = self.find(parent, name)?;
        self.check_removable(ino, as_dir)?;
        self.dir(parent)?.change(vec![(name.to_vec(), None)]);
        self.unnamed(parent, ino)?;
        self.touch(parent);
        self.sweep();
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let moved = self.find(from.0, from.1)?;
        let replaced = self.find(to.0, to.1).ok();
        let is_dir = matches!(self.get(moved)?.body, Body::Dir(_));
        let left = match (flags, replaced) {
            (libc::RENAME_EXCHANGE, Some(other)) => Some(other),
            (libc::RENAME_EXCHANGE, None) => return Err(libc::ENOENT),
            (libc::RENAME_NOREPLACE, Some(_)) => return Err(libc::EEXIST),
            (libc::RENAME_NOREPLACE | 0, _) => None,
            _ => return Err(libc::EINVAL),
        };
        if replaced == Some(moved) {
            return Ok(());
        }
        if let (None, Some(replaced)) = (left, replaced) {
            self.check_removable(replaced, is_dir)?;
            self.unnamed(to.0, replaced)?;
        }
        let (out, come) = ((from.1.to_vec(), left), (to.1.to_vec(), Some(moved)));
        if from.0 == to.0 {
            self.dir(from.0)?.change(vec![out, come]);
        } else {
            self.dir(to.0)?.change(vec![come]);
            self.dir(from.0)?.change(vec![out]);
            let left_dir = left.is_some_and(|ino| {
                self.get(ino).is_ok_and(|inode| matches!(inode.body, Body::Dir(_)))
            });
            let change = i64::from(is_dir) - i64::from(left_dir);
            let attr = &mut self.get_mut(to.0)?.attr;
            attr.nlink = attr.nlink.saturating_add_signed(change as i32);
            let attr = &mut self.get_mut(from.0)?.attr;
            attr.nlink = attr.nlink.saturating_add_signed(-change as i32);
        }
        self.touch(from.0);
        self.touch(to.0);
        Ok(())
    }

    pub(super) fn sync(&mut self, ino: u64) -> Result<()> {
        match &mut self.get_mut(ino)?.body {
            Body::File(file) => file.sync(),
            Body::Dir(dir) => dir.sync(),
            _ => {}
        }
        Ok(())
    }

    /// Whether an inode has a name like that.
    pub(super) fn is_named(&self, ino: u64, like: fn(&str) -> bool) -> bool {
        let dirs = self.inodes.values().filter_map(|inode| match &inode.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        });
        let mut names = dirs.flat_map(|dir| &dir.now).filter(|(_, named)| **named == ino);
        names.any(|(name, _)| std::str::from_utf8(name).is_ok_and(like))
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        let pages = |inode: &Inode| match &inode.body {
            Body::File(file) => file.now.pages.len() as u64,
            _ => 0,
        };
        self.inodes.values().map(pages).sum::<u64>() * PAGE
    }

    /// Lets go of inodes that neither programs nor a cut could find again.
    fn sweep(&mut self) {
        if self.removed <= REMOVED_MAX {
            return;
        }
        self.removed = 0;
        let dirs = self.inodes.values().filter_map(|inode| match &inode.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        });
        let mentioned: BTreeSet<u64> = dirs.flat_map(DirData::mentioned).collect();
        self.inodes.retain(|ino, inode| {
            *ino == ROOT_INO || inode.lookups > 0 || inode.opens > 0 || mentioned.contains(ino)
        });
    }

    /// The power is cut: what was not synced is lost, and nothing is in memory any more.
    pub(super) fn cut(&mut self, loss: Loss) {
        let mut random = match loss {
            Loss::All => None,
            Loss::Some { seed } => Some(Random::new(seed)),
        };
        let mut all = std::mem::take(&mut self.inodes);
        for inode in all.values_mut() {
            (inode.lookups, inode.opens) = (0, 0);
            match &mut inode.body {
                Body::File(file) => {
                    let left = file.after(random.as_mut());
                    *file = FileData { now: left.clone(), durable: left, ..FileData::default() };
                }
                Body::Dir(dir) => {
                    let left = dir.after(random.as_mut());
                    *dir = DirData { now: left.clone(), durable: left, changes: Vec::new() };
                }
                Body::Symlink(_) | Body::Other => {}
            }
            inode.attr.nlink = 0;
        }
        let mut todo = vec![(ROOT_INO, None)];
        while let Some((ino, parent)) = todo.pop() {
            if let Some(again) = self.inodes.get_mut(&ino) {
                again.attr.nlink += 1;
                continue;
            }
            let Some(mut inode) = all.remove(&ino) else { continue };
            inode.attr.nlink = 1;
            if let Body::Dir(dir) = &inode.body {
                inode.attr.nlink = 2;
                todo.extend(dir.now.values().map(|child| (*child, Some(ino))));
                let above: Option<&mut Inode> = parent.and_then(|ino| self.inodes.get_mut(&ino));
                if let Some(above) = above {
                    above.attr.nlink += 1;
                }
            }
            self.inodes.insert(ino, inode);
        }
        self.removed = 0;
    }
}
