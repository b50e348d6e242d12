//! Where a run's files and results are, which of its runs broke, and how they are cleaned up.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Io500;
use super::config::Config;
use super::hash;
use super::phase::Phase;
use super::record;
use crate::comm::Communicator;
use crate::error::{Error, Result};

/// Seconds that something is written by the rules.
const WRITE_S: u64 = 300;
/// The same for students.
const WRITE_SCC_S: u64 = 30;
/// What a run makes in its directory.
const FAMILIES: [&str; 4] = ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard"];

/// What is the same for a whole run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) config: Config,
    /// The configuration as it was written.
    pub(super) original: String,
    pub(super) stamp: String,
    pub(super) datadir: PathBuf,
    pub(super) resdir: PathBuf,
    pub(super) stonewall: u64,
    /// What the rules want it to be.
    pub(super) wanted: u64,
    pub(super) verbosity: u64,
    pub(super) dry: bool,
    pub(super) chosen: Vec<Phase>,
    /// Whether the files stay.
    pub(super) keep: bool,
    /// The run whose files are used, if it is another.
    pub(super) files_of: Option<String>,
    /// Where is kept what must be known of the files: of that run, or of this one.
    pub(super) files_dir: PathBuf,
}

impl Plan {
    /// Of a run with this name.
    pub(super) fn of(options: &Io500, config: Config, original: String, stamp: &str) -> Self {
        let dir = |name, stamped, stamp: &str| {
            let dir = PathBuf::from(config.text("global", name).unwrap_or("."));
            if config.flag("global", stamped) { dir.join(stamp) } else { dir }
        };
        let files = options.files_of.as_deref().unwrap_or(stamp);
        let verbosity = options.verbose.unwrap_or_else(|| config.number("global", "verbosity"));
        let scc = config.flag("global", "scc");
        // As in IO500, a run cannot be without a timestamp; one may have it from another.
        let own = |phase| phase == Phase::Timestamp && options.files_of.is_none();
        let chosen = Phase::ALL.into_iter().filter(|phase| options.wants(*phase) || own(*phase));
        Self {
            datadir: dir("datadir", "timestamp-datadir", files),
            resdir: dir("resultdir", "timestamp-resultdir", stamp),
            files_dir: dir("resultdir", "timestamp-resultdir", files),
            keep: options.keep,
            files_of: options.files_of.clone(),
            stonewall: config.number("debug", "stonewall-time"),
            wanted: if scc { WRITE_SCC_S } else { WRITE_S },
            verbosity: verbosity.saturating_add(options.more.into()),
            dry: options.dry_run,
            chosen: chosen.collect(),
            stamp: stamp.to_owned(),
            original,
            config,
        }
    }

    #[cfg(test)]
    pub(super) fn example(config: Config) -> Self {
        Self {
            stonewall: config.number("debug", "stonewall-time"),
            config,
            original: String::new(),
            stamp: "T".into(),
            datadir: "/data/T".into(),
            resdir: "/results/T".into(),
            wanted: WRITE_S,
            verbosity: 1,
            dry: false,
            chosen: Phase::ALL.to_vec(),
            keep: false,
            files_of: None,
            files_dir: "/results/T".into(),
        }
    }

    /// The name of the run whose files are used.
    pub(super) fn files_stamp(&self) -> &str {
        self.files_of.as_deref().unwrap_or(&self.stamp)
    }

    /// Where a family's number of files or transfers is kept.
    pub(super) fn status_file(&self, family: &str) -> PathBuf {
        self.files_dir.join(format!("{family}.stonewall"))
    }

    /// The file that newer files are found by.
    pub(super) fn timestamp_file(&self) -> PathBuf {
        self.files_dir.join("timestampfile")
    }

    /// Makes the directories of a run; the root does. One that is only shown needs none for data.
    pub(super) fn make(&self) -> Result<()> {
        let made = |dir: &Path| {
            fs::create_dir_all(dir).map_err(|error| Error::io("create the directory", dir, error))
        };
        made(&self.resdir)?;
        if self.dry {
            return Ok(());
        }
        made(&self.datadir)?;
        ["ior-easy", "ior-hard"].iter().try_for_each(|family| made(&self.datadir.join(family)))
    }

    /// Removes all that a run has made, by all ranks together: what it measured stays.
    pub(super) fn clean_up(&self, comm: &dyn Communicator) -> Result<()> {
        self.clean(comm, &FAMILIES)
    }

    /// The same at the end of a run: what is to be kept stays, and what another run has made.
    pub(super) fn end(&self, comm: &dyn Communicator) -> Result<()> {
        let runs = |family: &str, does: fn(Phase) -> bool| {
            let of = |phase: &Phase| phase.family() == Some(family) && does(*phase);
            Phase::ALL.iter().any(|phase| of(phase) && self.runs(*phase))
        };
        let over = |family: &&str| {
            // Directories that a phase has emptied are of no use.
            let mine = runs(family, Phase::writes) || self.files_of.is_none();
            runs(family, Phase::removes) || (mine && !self.keep)
        };
        let families: Vec<&str> = FAMILIES.into_iter().filter(over).collect();
        self.clean(comm, &families)
    }

    fn clean(&self, comm: &dyn Communicator, families: &[&str]) -> Result<()> {
        for family in families {
            self.clean_family(comm, family)?;
        }
        if comm.is_root() {
            // It stays if somebody has put something into it.
            match fs::remove_dir(&self.datadir) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                done => gone_or(&self.datadir, done)?,
            }
        }
        comm.barrier()
    }

    /// Removes what the phases of a family have made, and its directory.
    fn clean_family(&self, comm: &dyn Communicator, family: &str) -> Result<()> {
        self.empty_family(comm, family)?;
        if comm.is_root() {
            let dir = self.datadir.join(family);
            gone_or(&dir, fs::remove_dir(&dir))?;
        }
        comm.barrier()
    }

    /// Removes what the phases of a family have made. Its directory stays: somebody may have
    /// striped it, and the phase is to begin again there.
    pub(super) fn empty_family(&self, comm: &dyn Communicator, family: &str) -> Result<()> {
        let dir = self.datadir.join(family);
        let gone = sweep(&dir, comm);
        comm.barrier()?;
        gone?;
        if comm.is_root() {
            empty(&dir)?;
            let status = self.status_file(family);
            gone_or(&status, fs::remove_file(&status))?;
        }
        comm.barrier()
    }

    /// Whether the files of a family are there.
    fn has(&self, family: &str) -> bool {
        holds_something(&self.datadir.join(family))
            && (!family.starts_with("ior") || self.status_file(family).exists())
    }

    /// Refuses phases that have not what they need, and those that would write over the files of
    /// another run; `ranks` will use them.
    pub(super) fn check_files(&self, ranks: usize) -> Result<()> {
        if let Some(name) = &self.files_of {
            self.check_left(name, ranks)?;
        } else if !self.dry && self.has_left() {
            return Err(Error::usage(format!(
                "{} holds the files of a run: --files-of uses them, --resume goes on with a run \
                 that broke, --cleanup removes them; all want its name (--timestamp), if it has one",
                self.datadir.display()
            )));
        }
        for phase in Phase::ALL.into_iter().filter(|phase| self.runs(*phase)) {
            let refuse = |why: String| Err(Error::usage(format!("[{}]: {why}", phase.name())));
            let other = self.files_of.as_deref();
            let Some(family) = phase.family() else {
                let marked = self.timestamp_file().exists();
                match (phase, other) {
                    (Phase::Timestamp, Some(name)) if marked => {
                        return refuse(format!("the run {name} has its timestamp already"));
                    }
                    (Phase::Find, Some(name)) if !marked && !self.runs(Phase::Timestamp) => {
                        return refuse(format!("the run {name} has left no timestamp"));
                    }
                    _ => continue,
                }
            };
            let writer = format!("{family}-write");
            let writes = Phase::named(&writer).is_some_and(|phase| self.runs(phase));
            match other {
                Some(name) if phase.writes() && self.has(family) => {
                    return refuse(format!("the run {name} has written its files already"));
                }
                Some(name) if !writes && !self.has(family) => {
                    return refuse(format!("the run {name} has left no files of {family}"));
                }
                None if !writes => {
                    return refuse(format!(
                        "it needs the files of {writer}: run that, too, or take those that a \
                         run has left with --keep (--files-of)"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses files that another run has left otherwise than this one would.
    fn check_left(&self, name: &str, ranks: usize) -> Result<()> {
        let refuse = |what: String| Err(Error::usage(format!("--files-of {name}: {what}")));
        let dir = self.files_dir.display();
        let Ok((_, parts)) = record::read(&self.files_dir.join("result.txt")) else {
            return refuse(format!("{dir} holds no results of a run"));
        };
        let run = parts.iter().find(|part| part.name == "run");
        let procs = run.and_then(|part| part.value("procs")).unwrap_or_default();
        if procs != ranks.to_string() {
            return refuse(format!("that run had {procs} ranks"));
        }
        let (config, _) = Config::read(&self.files_dir.join("config.ini"))?;
        let families = FAMILIES.into_iter().filter(|family| self.has(family));
        for (section, option) in families.flat_map(Config::of_files) {
            let (then, now) = (config.text(section, option), self.config.text(section, option));
            if then != now {
                let then = then.unwrap_or_default();
                return refuse(format!("that run had [{section}] {option} = {then}"));
            }
        }
        Ok(())
    }

    /// Where directories of runs are, and the names of the others that have left files there.
    pub(super) fn others(&self) -> (PathBuf, Vec<String>) {
        let top = PathBuf::from(self.config.text("global", "datadir").unwrap_or("."));
        let left = |name: &String| {
            let dir = top.join(name);
            let mut families = FAMILIES.iter().map(|family| dir.join(family));
            dir != self.datadir && families.any(|one| holds_something(&one))
        };
        let mut others: Vec<String> = names(&top).into_iter().filter(left).collect();
        others.reverse();
        (top, others)
    }

    /// Whether a run has left files. Directories that are empty may have been prepared for one.
    pub(super) fn has_left(&self) -> bool {
        FAMILIES.iter().any(|family| holds_something(&self.datadir.join(family)))
    }

    /// Whether there is something that a run has begun: files, or its results and the
    /// directories that it makes first.
    pub(super) fn has_begun(&self) -> bool {
        let made = || FAMILIES.iter().any(|family| self.datadir.join(family).exists());
        self.has_left() || (self.resdir.join("result.txt").exists() && made())
    }
}

/// Whether there is something in a directory; so it is taken of one that cannot be read.
fn holds_something(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes what is in a directory, and not the directory.
fn empty(dir: &Path) -> Result<()> {
    let failed = |error| Error::io("read the directory", dir, error);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| Error::io("stat", &path, error))?;
        let gone = if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        gone_or(&path, gone)?;
    }
    Ok(())
}

fn gone_or(path: &Path, done: io::Result<()>) -> Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Removes the files below a directory that fall to this rank by their names; directories stay.
fn sweep(dir: &Path, comm: &dyn Communicator) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| Error::io("read the directory", dir, error))?,
    };
    for entry in entries {
        comm.check()?;
        let entry = entry.map_err(|error| Error::io("read the directory", dir, error))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| Error::io("stat", &path, error))?;
        if kind.is_dir() {
            sweep(&path, comm)?;
        } else if rank_of(&entry.file_name(), comm.size()) == comm.rank() {
            gone_or(&path, fs::remove_file(&path))?;
        }
    }
    Ok(())
}

fn rank_of(name: &OsStr, ranks: usize) -> usize {
    let hash = hash::text(0, &String::from_utf8_lossy(name.as_bytes()));
    usize::try_from(hash).unwrap_or(0) % ranks.max(1)
}

/// The names of runs in a directory, the last first: names are times.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    names
}
