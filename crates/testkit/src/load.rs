//! Work on a mount until it dies under it, and the proof that nothing promised was lost.
//!
//! Several threads, each in folders of its own, create, write, append, truncate, rename, link
//! and remove, and sync now and then. Each keeps a model ([`names`], [`data`]) of what a crash
//! may leave: what was synced must be there; of the rest, the name space is as it was at some
//! moment, and each byte has a value that it once had. [`Load::check`] holds the mount against
//! it after a restart, and takes what was found as the beginning of the next round, which must
//! keep it: a restart has made it durable.

mod data;
mod names;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};

use crate::random::mix;
use data::Data;
use names::{Ino, Names, Place};
use worker::{Worker, shown};

/// The work of several threads on one or more mounts of a file system.
#[derive(Debug)]
pub struct Load {
    workers: Vec<Worker>,
}

/// Work that is being done.
#[derive(Debug)]
pub struct Running {
    threads: Vec<JoinHandle<(Worker, io::Error, bool)>>,
    steps: Vec<Arc<AtomicU64>>,
    killed: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

/// What one check found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Calls that promised durability, in this round.
    pub syncs: u64,
    /// Entries that were there.
    pub entries: u64,
    /// Bytes that were compared.
    pub bytes: u64,
    /// Operations that were begun and, unpromised, lost.
    pub lost: u64,
}

/// What a walk over one worker's folders found.
#[derive(Debug, Default)]
struct Found {
    entries: BTreeMap<Place, Ino>,
    paths: BTreeMap<Ino, PathBuf>,
    dirs: BTreeSet<Ino>,
    links: BTreeMap<Ino, String>,
    files: BTreeMap<Ino, u64>,
}

impl Load {
    /// Makes the workers' folders, durably. The mounts are taken in turn.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(mounts: &[PathBuf], workers: usize) -> Result<Load> {
        let mut all = Vec::new();
        for (number, mount) in mounts.iter().cycle().take(workers).enumerate() {
            let name = format!("w{number}");
            let path = mount.join(&name);
            fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
            File::open(&path)?.sync_all()?;
            let root = fs::metadata(&path)?.ino();
            // Writes of different workers are told apart, too.
            let next = (number as u64) << 48;
            let worker = Worker { name, mount: mount.clone(), root, next, ..Worker::default() };
            all.push(Worker { dirs: [root].into(), ..worker });
        }
        Ok(Load { workers: all })
    }

    /// Starts working. What is done follows from the seed, how far it gets does not.
    pub fn start(&mut self, seed: u64) -> Running {
        let killed = Arc::new(AtomicBool::new(false));
        let over = Arc::new(AtomicBool::new(false));
        for worker in &mut self.workers {
            worker.steps = Arc::default();
        }
        let steps = self.workers.iter().map(|worker| worker.steps.clone()).collect();
        let workers = std::mem::take(&mut self.workers).into_iter().enumerate();
        let threads = workers.map(|(number, mut worker)| {
            let killed = killed.clone();
            worker.over = over.clone();
            std::thread::spawn(move || {
                let error = worker.run(mix(seed ^ mix(number as u64)));
                (worker, error, !killed.load(Ordering::SeqCst))
            })
        });
        Running { threads: threads.collect(), steps, killed, over }
    }

    /// Waits until the work has ended because the file system died.
    ///
    /// # Errors
    /// A call failed before [`Running::killed`] was called.
    pub fn join(&mut self, running: Running) -> Result<()> {
        let mut early = Vec::new();
        for thread in running.threads {
            let ended = thread.join().map_err(|_| anyhow!("a worker panicked"))?;
            let (worker, error, too_early) = ended;
            if too_early {
                early.push(format!("{}: {error}\n  {}", worker.name, worker.last(8)));
            }
            self.workers.push(worker);
        }
        ensure!(early.is_empty(), "calls failed before the kill:\n{}", early.join("\n"));
        Ok(())
    }

    /// Holds the mounts against the models after a restart.
    ///
    /// # Errors
    /// Something promised is lost, or something is there that never was.
    pub fn check(&mut self) -> Result<Checked> {
        let mut sum = Checked::default();
        for worker in &mut self.workers {
            let one = check(worker).with_context(|| format!("the work of {}", worker.name))?;
            sum.syncs += one.syncs;
            sum.entries += one.entries;
            sum.bytes += one.bytes;
            sum.lost += one.lost;
        }
        Ok(sum)
    }
}

impl Running {
    /// How much each worker has done since the start.
    pub fn steps(&self) -> Vec<u64> {
        self.steps.iter().map(|steps| steps.load(Ordering::Relaxed)).collect()
    }

    /// Which workers still work.
    pub fn alive(&self) -> Vec<bool> {
        self.threads.iter().map(|thread| !thread.is_finished()).collect()
    }

    /// From now on calls may fail.
    pub fn killed(&self) {
        self.killed.store(true, Ordering::SeqCst);
    }

    /// The MDT has crashed, and may have lost changes that it had answered for: whoever syncs
    /// only after its restart is promised nothing, and stops.
    pub fn over(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

fn walk(worker: &Worker) -> Result<Found> {
    let mut found = Found::default();
    let mut nlinks: BTreeMap<Ino, (u64, u64)> = BTreeMap::new();
    let mut todo = vec![(worker.root, worker.mount.join(&worker.name))];
    while let Some((dir, path)) = todo.pop() {
        ensure!(found.dirs.insert(dir), "{} is there twice", path.display());
        let mut subdirs = 0;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| anyhow!("{name:?}"))?;
            let path = entry.path();
            let context = || format!("{} is listed", path.display());
            let meta = fs::symlink_metadata(&path).with_context(context)?;
            let ino = meta.ino();
            found.entries.insert((dir, name), ino);
            found.paths.insert(ino, path.clone());
            if meta.is_dir() {
                subdirs += 1;
                todo.push((ino, path));
                continue;
            }
            nlinks.entry(ino).or_insert((meta.nlink(), 0)).1 += 1;
            if meta.is_symlink() {
                let target = fs::read_link(&path)?;
                found.links.insert(ino, target.to_string_lossy().into_owned());
            } else {
                found.files.insert(ino, meta.len());
            }
        }
        let nlink = fs::metadata(&path)?.nlink();
        ensure!(nlink == 2 + subdirs, "{}: {nlink} links, {subdirs} folders", path.display());
    }
    for (ino, (nlink, names)) in nlinks {
        ensure!(nlink == names, "{:?}: {nlink} links, {names} names", found.paths.get(&ino));
    }
    Ok(found)
}

fn check(worker: &mut Worker) -> Result<Checked> {
    let found = walk(worker)?;
    let lost = worker.names.check(&found.entries).with_context(|| {
        format!("names are wrong; the last that was done:\n  {}", worker.last(10))
    })?;
    let mut checked = Checked { syncs: worker.syncs, lost: lost as u64, ..Checked::default() };
    checked.entries = found.entries.len() as u64;
    for (ino, target) in &found.links {
        let path = found.paths.get(ino).and_then(|path| path.file_name()).unwrap_or_default();
        let made = worker.links.get(ino);
        // One whose call did not return is told by its name.
        let good = match made {
            Some(made) => made == target,
            None => *target == format!("target of {}", path.to_string_lossy()),
        };
        ensure!(good, "symbolic link {path:?} ({ino}) leads to {target:?}, not {made:?}");
    }
    let mut files = BTreeMap::new();
    for (ino, size) in &found.files {
        let path = found.paths.get(ino).context("a file has a path")?;
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        ensure!(bytes.len() as u64 == *size, "{}: {} bytes of {size}", path.display(), bytes.len());
        let known = worker.files.get(ino).cloned().unwrap_or_default();
        known.check(&bytes).with_context(|| {
            let path = shown(path, &worker.mount);
            format!("{path} ({ino}) is wrong; the story {}", worker.story(*ino))
        })?;
        checked.bytes += bytes.len() as u64;
        files.insert(*ino, Data::found(bytes));
    }
    worker.names = Names::found(found.entries);
    (worker.files, worker.dirs, worker.links) = (files, found.dirs, found.links);
    worker.syncs = 0;
    Ok(checked)
}
