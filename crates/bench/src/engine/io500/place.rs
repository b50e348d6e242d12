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
}

impl Plan {
    /// Of a run with this name.
    pub(super) fn of(options: &Io500, config: Config, original: String, stamp: &str) -> Self {
        let dir = |name, stamped| {
            let dir = PathBuf::from(config.text("global", name).unwrap_or("."));
            if config.flag("global", stamped) { dir.join(stamp) } else { dir }
        };
        let verbosity = options.verbose.unwrap_or_else(|| config.number("global", "verbosity"));
        let scc = config.flag("global", "scc");
        let chosen = Phase::ALL.into_iter().filter(|phase| options.wants(*phase));
        Self {
            datadir: dir("datadir", "timestamp-datadir"),
            resdir: dir("resultdir", "timestamp-resultdir"),
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
        }
    }

    /// Where a family's number of files or transfers is kept.
    pub(super) fn status_file(&self, family: &str) -> PathBuf {
        self.resdir.join(format!("{family}.stonewall"))
    }

    /// The file that newer files are found by.
    pub(super) fn timestamp_file(&self) -> PathBuf {
        self.resdir.join("timestampfile")
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
        for family in FAMILIES {
            self.clean_family(comm, family)?;
        }
        if comm.is_root() {
            // It stays if somebody has put something into it, or has made it.
            let _ = fs::remove_dir(&self.datadir);
        }
        comm.barrier()
    }

    /// Removes what the phases of a family have made.
    pub(super) fn clean_family(&self, comm: &dyn Communicator, family: &str) -> Result<()> {
        let dir = self.datadir.join(family);
        let gone = sweep(&dir, comm);
        comm.barrier()?;
        gone?;
        if comm.is_root() {
            gone_or(&dir, fs::remove_dir_all(&dir))?;
            let status = self.status_file(family);
            gone_or(&status, fs::remove_file(&status))?;
        }
        comm.barrier()
    }

    /// Whether a run has left files.
    pub(super) fn has_left(&self) -> bool {
        FAMILIES.iter().any(|family| self.datadir.join(family).exists())
    }
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
