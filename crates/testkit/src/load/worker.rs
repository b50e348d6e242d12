//! One thread of the load: does things in folders of its own, and keeps a model of what a
//! crash may leave of them.
//!
//! Every call is noted in the model before it is made, because a call that fails in a crash
//! may have happened; what a sync promises is noted after it has returned.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags};

use super::data::{Change, Data, pattern};
use super::names::{Ino, Names, Place};
use crate::random::Random;

/// Files of one worker; beyond it they are removed rather than made.
const FILES_MAX: usize = 48;
/// Folders of one worker.
const DIRS_MAX: usize = 12;
/// Longest file; it has stripes on every OST.
const FILE_BYTES_MAX: u64 = 6 << 20;
/// Longest of the other files.
const SMALL_BYTES_MAX: u64 = 96 << 10;
/// Files that are kept open.
const HELD_MAX: usize = 4;
/// Lines of the trace that are kept.
const TRACE_MAX: usize = 200_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) mount: PathBuf,
    /// Number of its top folder.
    pub(super) root: Ino,
    pub(super) names: Names,
    pub(super) files: BTreeMap<Ino, Data>,
    pub(super) dirs: BTreeSet<Ino>,
    pub(super) links: BTreeMap<Ino, String>,
    /// The next write, name or target is told apart by it.
    pub(super) next: u64,
    pub(super) trace: Vec<String>,
    pub(super) syncs: u64,
    pub(super) held: Vec<(Ino, File)>,
    /// What was done in this round, as others see it while it is being done.
    pub(super) steps: Arc<AtomicU64>,
    /// See [`super::Running::over`].
    pub(super) over: Arc<AtomicBool>,
}

impl Worker {
    /// Works until a call fails.
    pub(super) fn run(&mut self, seed: u64) -> io::Error {
        let mut random = Random::new(seed);
        self.trace.clear();
        let error = loop {
            if let Err(error) = self.step(&mut random) {
                break error;
            }
            self.steps.fetch_add(1, Ordering::Relaxed);
            if self.over.load(Ordering::SeqCst) {
                break io::Error::other("the MDT has crashed");
            }
        };
        self.note(format!("failed: {error}"));
        self.held.clear();
        error
    }

    fn note(&mut self, line: String) {
        if self.trace.len() < TRACE_MAX {
            self.trace.push(line);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn dir_path(&self, dir: Ino) -> PathBuf {
        if dir == self.root {
            return self.mount.join(&self.name);
        }
        match self.names.places(dir).next() {
            Some(place) => self.path(place),
            None => self.mount.join("nowhere"),
        }
    }

    pub(super) fn path(&self, place: &Place) -> PathBuf {
        self.dir_path(place.0).join(&place.1)
    }

    fn some_dir(&self, random: &mut Random) -> Ino {
        let all: Vec<Ino> = self.dirs.iter().copied().collect();
        random.pick(&all).copied().unwrap_or(self.root)
    }

    /// A name of something that `what` accepts.
    fn some_place(&self, random: &mut Random, what: impl Fn(Ino) -> bool) -> Option<(Place, Ino)> {
        let all: Vec<(Place, Ino)> = self
            .names
            .entries()
            .iter()
            .filter(|entry| what(*entry.1))
            .map(|(place, ino)| (place.clone(), *ino))
            .collect();
        random.pick(&all).cloned()
    }

    fn some_file(&self, random: &mut Random) -> Option<(Place, Ino)> {
        self.some_place(random, |ino| self.files.contains_key(&ino))
    }

    fn new_place(&mut self, random: &mut Random, kind: &str) -> Place {
        let number = self.number();
        (self.some_dir(random), format!("{kind}{number}"))
    }

    fn step(&mut self, random: &mut Random) -> io::Result<()> {
        let named = self.names.entries().values();
        let crowded = named.filter(|ino| self.files.contains_key(ino)).count() > FILES_MAX;
        match random.below(100) {
            0..16 if crowded => self.unlink(random),
            0..16 => self.create(random),
            16..36 => self.write(random),
            36..44 => self.append(random),
            44..50 => self.truncate(random),
            50..53 => self.punch(random),
            53..61 => self.rename(random),
            61..64 => self.mkdir(random),
            64..66 => self.rmdir(random),
            66..69 => self.link(random),
            69..71 => self.symlink(random),
            71..77 => self.unlink(random),
            77..79 => self.exchange(random),
            79..82 => self.replace(random),
            82..85 => self.write_through(random),
            85..92 => self.sync_file(random),
            92..96 => self.sync_dir(random),
            96..98 => self.orphan(random),
            _ => self.sync_everything(),
        }
    }

    fn made(&mut self, place: Place, made: io::Result<Ino>) -> io::Result<Ino> {
        match made {
            Ok(ino) => {
                self.names.apply(&[(place, Some(ino))]);
                Ok(ino)
            }
            Err(error) => {
                self.names.apply_unknown(place);
                Err(error)
            }
        }
    }

    fn create_at(&mut self, place: Place) -> io::Result<(Ino, File)> {
        let path = self.path(&place);
        self.note(format!("create {}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let found = file.and_then(|file| Ok((file.metadata()?.ino(), file)));
        let (ino, file) = match found {
            Ok((ino, file)) => (Ok(ino), Some(file)),
            Err(error) => (Err(error), None),
        };
        let ino = self.made(place, ino)?;
        self.note(format!("  is {ino}"));
        self.files.insert(ino, Data::default());
        file.map(|file| (ino, file)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn some_size(random: &mut Random) -> u64 {
        match random.below(16) {
            0 => 1 + random.below(FILE_BYTES_MAX),
            1..4 => 0,
            4..8 => 1 + random.below(4096),
            _ => 1 + random.below(SMALL_BYTES_MAX),
        }
    }

    fn create(&mut self, random: &mut Random) -> io::Result<()> {
        let place = self.new_place(random, "f");
        let (ino, file) = self.create_at(place)?;
        let size = Worker::some_size(random);
        if size > 0 {
            self.write_at(ino, &file, 0, size)?;
        }
        self.hold(random, ino, file);
        Ok(())
    }

    /// The file stays open, or is closed.
    fn hold(&mut self, random: &mut Random, ino: Ino, file: File) {
        if random.one_in(3) {
            if self.held.len() >= HELD_MAX {
                let at = random.below(self.held.len() as u64) as usize;
                self.held.swap_remove(at);
            }
            self.held.push((ino, file));
        }
    }

    /// An open file, and a name that it may have lost.
    fn opened(&mut self, random: &mut Random) -> io::Result<Option<(Ino, File)>> {
        if random.one_in(2) {
            let at = random.below(self.held.len() as u64) as usize;
            if let Some((ino, file)) = self.held.get(at) {
                return Ok(Some((*ino, file.try_clone()?)));
            }
        }
        let Some((place, ino)) = self.some_file(random) else { return Ok(None) };
        let path = self.path(&place);
        self.note(format!("open {} ({ino})", path.display()));
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let kept = file.try_clone()?;
        self.hold(random, ino, kept);
        Ok(Some((ino, file)))
    }

    fn change(&mut self, ino: Ino, change: Change) {
        self.note(format!("  {ino}: {change:?}"));
        self.files.entry(ino).or_default().change(change);
    }

    fn write_at(&mut self, ino: Ino, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let (number, range) = (self.number(), offset..offset + len);
        self.change(ino, Change::Write { number, range: range.clone() });
        file.write_all_at(&pattern(number, range), offset)
    }

    fn size_of(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, Data::size)
    }

    fn write(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((ino, file)) = self.opened(random)? else { return Ok(()) };
        let size = self.size_of(ino);
        // Mostly inside, sometimes beyond its end.
        let offset = random.below(size + size / 8 + 1);
        let max = if size > SMALL_BYTES_MAX { 2 << 20 } else { SMALL_BYTES_MAX / 4 };
        let len = 1 + random.below(max.min(FILE_BYTES_MAX - offset.min(FILE_BYTES_MAX - 1)));
        self.write_at(ino, &file, offset, len)?;
        self.sometimes_sync(random, ino, &file)
    }

    fn append(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((place, ino)) = self.some_file(random) else { return Ok(()) };
        let size = self.size_of(ino);
        if size > FILE_BYTES_MAX {
            return Ok(());
        }
        let path = self.path(&place);
        let (number, len) = (self.number(), 1 + random.below(5000));
        self.note(format!("append to {}", path.display()));
        let file = OpenOptions::new().append(true).open(path)?;
        self.change(ino, Change::Write { number, range: size..size + len });
        io::Write::write_all(&mut &file, &pattern(number, size..size + len))?;
        self.sometimes_sync(random, ino, &file)
    }

    fn truncate(&mut self, random: &mut Random) -> io::Result<()> {
        if random.one_in(5) {
            let Some((place, ino)) = self.some_file(random) else { return Ok(()) };
            let path = self.path(&place);
            self.note(format!("open {} with O_TRUNC", path.display()));
            self.change(ino, Change::Resize { size: 0 });
            let file = OpenOptions::new().write(true).truncate(true).open(path)?;
            return self.sometimes_sync(random, ino, &file);
        }
        let Some((ino, file)) = self.opened(random)? else { return Ok(()) };
        let old = self.size_of(ino);
        let size = match random.below(5) {
            0 => old,
            1 | 2 => random.below(old + 1),
            _ => (old + random.below(SMALL_BYTES_MAX)).min(FILE_BYTES_MAX),
        };
        self.change(ino, Change::Resize { size });
        file.set_len(size)?;
        self.sometimes_sync(random, ino, &file)
    }

    fn punch(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((ino, file)) = self.opened(random)? else { return Ok(()) };
        let start = random.below(self.size_of(ino) + 1);
        let len = 1 + random.below(SMALL_BYTES_MAX);
        self.change(ino, Change::Punch { range: start..start + len });
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, start, len)?;
        self.sometimes_sync(random, ino, &file)
    }

    fn rename(&mut self, random: &mut Random) -> io::Result<()> {
        let dir = random.one_in(5);
        let what = |ino| self.dirs.contains(&ino) == dir;
        let Some((from, ino)) = self.some_place(random, what) else { return Ok(()) };
        let over = self.some_file(random).filter(|_| !dir && random.one_in(3));
        let to = match over {
            Some((place, other)) if other != ino => place,
            _ => {
                let mut place = self.new_place(random, if dir { "d" } else { "f" });
                if self.is_below(place.0, ino) {
                    place.0 = from.0;
                }
                place
            }
        };
        let (old, new) = (self.path(&from), self.path(&to));
        self.note(format!("rename {} ({ino}) to {}", old.display(), new.display()));
        self.names.apply(&[(from, None), (to, Some(ino))]);
        fs::rename(old, new)?;
        Ok(())
    }

    fn is_below(&self, dir: Ino, above: Ino) -> bool {
        let mut at = Some(dir);
        while let Some(dir) = at.filter(|dir| *dir != above) {
            at = self.names.places(dir).next().map(|place| place.0);
        }
        at.is_some()
    }

    fn exchange(&mut self, random: &mut Random) -> io::Result<()> {
        let (Some((a, one)), Some((b, two))) = (self.some_file(random), self.some_file(random))
        else {
            return Ok(());
        };
        if one == two {
            return Ok(());
        }
        let (old, new) = (self.path(&a), self.path(&b));
        self.note(format!("exchange {} ({one}) and {} ({two})", old.display(), new.display()));
        self.names.apply(&[(a, Some(two)), (b, Some(one))]);
        rustix::fs::renameat_with(CWD, old, CWD, new, RenameFlags::EXCHANGE)?;
        Ok(())
    }

    fn mkdir(&mut self, random: &mut Random) -> io::Result<()> {
        if self.dirs.len() > DIRS_MAX {
            return self.rmdir(random);
        }
        let place = self.new_place(random, "d");
        let path = self.path(&place);
        self.note(format!("mkdir {}", path.display()));
        let made = fs::create_dir(&path).and_then(|()| Ok(fs::symlink_metadata(&path)?.ino()));
        let ino = self.made(place, made)?;
        self.dirs.insert(ino);
        Ok(())
    }

    fn rmdir(&mut self, random: &mut Random) -> io::Result<()> {
        let empty = |ino| self.dirs.contains(&ino) && self.names.is_empty_dir(ino);
        let Some((place, ino)) = self.some_place(random, empty) else { return Ok(()) };
        let path = self.path(&place);
        self.note(format!("rmdir {}", path.display()));
        self.names.apply(&[(place, None)]);
        fs::remove_dir(path)?;
        self.dirs.remove(&ino);
        Ok(())
    }

    fn link(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((from, ino)) = self.some_file(random) else { return Ok(()) };
        let to = self.new_place(random, "f");
        let (old, new) = (self.path(&from), self.path(&to));
        self.note(format!("link {} ({ino}) as {}", old.display(), new.display()));
        self.names.apply(&[(to, Some(ino))]);
        rustix::fs::linkat(CWD, old, CWD, new, AtFlags::empty())?;
        Ok(())
    }

    fn symlink(&mut self, random: &mut Random) -> io::Result<()> {
        if self.links.len() > FILES_MAX / 4 {
            return self.unlink(random);
        }
        let place = self.new_place(random, "s");
        let path = self.path(&place);
        let target = format!("target of {}", place.1);
        self.note(format!("symlink {}", path.display()));
        let made = symlink(&target, &path).and_then(|()| Ok(fs::symlink_metadata(&path)?.ino()));
        let ino = self.made(place, made)?;
        self.links.insert(ino, target);
        Ok(())
    }

    fn unlink(&mut self, random: &mut Random) -> io::Result<()> {
        let what = |ino| !self.dirs.contains(&ino);
        let Some((place, ino)) = self.some_place(random, what) else { return Ok(()) };
        let path = self.path(&place);
        self.note(format!("unlink {} ({ino})", path.display()));
        self.names.apply(&[(place, None)]);
        fs::remove_file(path)?;
        Ok(())
    }

    /// A file is replaced as careful programs do it.
    fn replace(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((place, old)) = self.some_file(random) else { return Ok(()) };
        let part = (place.0, format!("{}.part{}", place.1, self.number()));
        let (ino, file) = self.create_at(part.clone())?;
        self.write_at(ino, &file, 0, 1 + random.below(SMALL_BYTES_MAX))?;
        self.sync(ino, &file, false)?;
        let (from, to) = (self.path(&part), self.path(&place));
        self.note(format!("replace {} ({old}) by {ino}", to.display()));
        self.names.apply(&[(part, None), (place.clone(), Some(ino))]);
        fs::rename(from, to)?;
        self.sync_dir_of(place.0)
    }

    /// O_SYNC and O_DSYNC promise what the call itself wrote; so the file is synced before.
    fn write_through(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((place, ino)) = self.some_file(random) else { return Ok(()) };
        let path = self.path(&place);
        let flag = if random.one_in(2) { libc::O_SYNC } else { libc::O_DSYNC };
        self.note(format!("open {} with {flag:#o}", path.display()));
        let file = OpenOptions::new().write(true).custom_flags(flag).open(path)?;
        self.sync(ino, &file, false)?;
        let offset = random.below(self.size_of(ino) + 1);
        let max = SMALL_BYTES_MAX.min(FILE_BYTES_MAX - offset.min(FILE_BYTES_MAX - 1));
        self.write_at(ino, &file, offset, 1 + random.below(max))?;
        self.promised()?;
        self.note(format!("  {ino} is written through"));
        self.files.entry(ino).or_default().sync();
        Ok(())
    }

    /// A call that promises something has returned.
    fn promised(&mut self) -> io::Result<()> {
        if self.over.load(Ordering::SeqCst) {
            return Err(io::Error::other("the MDT had crashed when it returned"));
        }
        self.syncs += 1;
        Ok(())
    }

    fn sync(&mut self, ino: Ino, file: &File, data_only: bool) -> io::Result<()> {
        self.note(format!("  sync {ino}"));
        if data_only {
            file.sync_data()?
        } else {
            file.sync_all()?
        }
        self.promised()?;
        self.note(format!("  {ino} is synced"));
        self.files.entry(ino).or_default().sync();
        self.names.sync_inode(ino);
        Ok(())
    }

    fn sometimes_sync(&mut self, random: &mut Random, ino: Ino, file: &File) -> io::Result<()> {
        if random.one_in(6) { self.sync(ino, file, random.one_in(2)) } else { Ok(()) }
    }

    fn sync_file(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((ino, file)) = self.opened(random)? else { return Ok(()) };
        self.sync(ino, &file, random.one_in(3))
    }

    fn sync_dir_of(&mut self, dir: Ino) -> io::Result<()> {
        let path = self.dir_path(dir);
        File::open(&path)?.sync_all()?;
        self.promised()?;
        self.note(format!("folder {} ({dir}) is synced", path.display()));
        self.names.sync_dir(dir);
        Ok(())
    }

    fn sync_dir(&mut self, random: &mut Random) -> io::Result<()> {
        let dir = self.some_dir(random);
        self.sync_dir_of(dir)
    }

    fn sync_everything(&mut self) -> io::Result<()> {
        // What `sateen sync` does; the kernel would not tell of syncfs.
        let all = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(self.dir_path(self.root), "sateen.sync", b"", all)?;
        self.promised()?;
        self.note("everything is synced".to_owned());
        self.names.sync_all();
        self.files.values_mut().for_each(Data::sync);
        Ok(())
    }

    /// A file that is used after its last name is gone.
    fn orphan(&mut self, random: &mut Random) -> io::Result<()> {
        let place = self.new_place(random, "o");
        let path = self.path(&place);
        let (ino, file) = self.create_at(place.clone())?;
        self.write_at(ino, &file, 0, 1 + random.below(SMALL_BYTES_MAX))?;
        if random.one_in(2) {
            self.sync(ino, &file, false)?;
        }
        self.note(format!("unlink {} ({ino}), which is open", path.display()));
        self.names.apply(&[(place, None)]);
        fs::remove_file(path)?;
        self.write_at(ino, &file, 0, 1 + random.below(SMALL_BYTES_MAX))
    }

    /// The lines of the trace that name an inode, and the last ones.
    pub(super) fn story(&self, ino: Ino) -> String {
        let word = ino.to_string();
        let lines = self.trace.iter().filter(|line| line.contains(&word));
        let mut story: Vec<String> = lines.cloned().collect();
        let cut = story.len().saturating_sub(40);
        story.drain(..cut);
        format!("of {ino}:\n  {}\nlast:\n  {}", story.join("\n  "), self.last(5))
    }

    /// The last lines of the trace.
    pub(super) fn last(&self, count: usize) -> String {
        let from = self.trace.len().saturating_sub(count);
        self.trace.get(from..).unwrap_or_default().join("\n  ")
    }
}

/// The path below the mount, for reports.
pub(super) fn shown<'a>(path: &'a Path, mount: &Path) -> std::path::Display<'a> {
    path.strip_prefix(mount).unwrap_or(path).display()
}
