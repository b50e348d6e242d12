//! `state.json` in the data folder: what the serving process is, and how the last one ended.
//! For people, for `status` when nothing runs, and for the next `up`, which mounts where the last
//! one did; never believed about what runs now, which the lock says.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, write_durably, write_in_place};
use crate::mounts;
use crate::refusal::Outcome;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The serving process.
    pub pid: u32,
    /// Its mounts, the first one first.
    pub mounts: Vec<PathBuf>,
    /// How FUSE is spoken: "io_uring" or "classic".
    pub transport: String,
    /// Where the data folder was. Empty, if an older program has written this.
    #[serde(default)]
    pub data: PathBuf,
    /// Whether programs' reads and writes went past the kernel's page cache.
    #[serde(default)]
    pub direct_io: bool,
    /// Whether the kernel had to be given files, or was not to be given any, because somebody said so.
    #[serde(default)]
    pub passthrough: bool,
    #[serde(default)]
    pub no_passthrough: bool,
    /// Whether it was given any.
    #[serde(default)]
    pub gives: bool,
    /// The options that its mount was made with, if `mount.sateen` has made it.
    #[serde(default)]
    pub options: Vec<String>,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
}

/// How a serving process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Seconds since 1970.
    pub at: u64,
    /// Why, in words.
    pub why: String,
    /// What went wrong at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

const NAME: &str = "state.json";

impl State {
    /// Writes the file. On a full disk there is room in the old one only; and if not even that can
    /// be written it goes: no note is better than the one of another run.
    pub(crate) fn save(&self, data: &DataDir) -> io::Result<()> {
        let (text, path) = (serde_json::to_vec_pretty(self)?, data.join(NAME));
        let Err(error) = write_durably(&path, &text) else { return Ok(()) };
        if !path.exists() {
            return Err(error);
        }
        write_in_place(&path, &text).or_else(|_| std::fs::remove_file(&path).and(Err(error)))
    }

    /// Reads the file, if there is one that makes sense.
    pub(crate) fn load(data: &DataDir) -> Option<State> {
        serde_json::from_slice(&std::fs::read(data.join(NAME)).ok()?).ok()
    }

    /// Where its mounts are if the data folder is here now: one that lay in it has moved with it.
    /// Others are left out then: it may be a copy, and they are the original's.
    pub(crate) fn mounts_at(&self, data: &Path) -> Vec<PathBuf> {
        let here = data.canonicalize().unwrap_or_else(|_| data.to_owned());
        if self.data.as_os_str().is_empty() || self.data == here {
            return self.mounts.clone();
        }
        let inner = |mount: &PathBuf| Some(data.join(mount.strip_prefix(&self.data).ok()?));
        self.mounts.iter().filter_map(inner).collect()
    }

    /// Clears away those of its mounts that answer no more. Returns how many there were.
    pub(crate) fn clear_dead_mounts(&self) -> Outcome<usize> {
        self.mounts.iter().map(|mount| mounts::clear_dead_mounts(mount)).sum()
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn state_round_trips() {
        let scratch = Scratch::new("state");
        let data = DataDir::at(scratch.path()).unwrap();
        assert_eq!(State::load(&data), None);
        let state = State {
            pid: 7,
            mounts: vec!["/a".into()],
            transport: "classic".into(),
            data: "/srv/fs".into(),
            direct_io: true,
            passthrough: true,
            no_passthrough: false,
            gives: true,
            options: vec!["ro,direct_io".into()],
            ended: Some(Ended { at: 9, why: "asked to".into(), failed: Some("MDT0000".into()) }),
        };
        state.save(&data).unwrap();
        assert_eq!(State::load(&data), Some(state.clone()));
        // As on a full disk: no other file can be made.
        std::fs::create_dir(data.join("state.new")).unwrap();
        let shorter = State { pid: 8, ended: None, ..state.clone() };
        shorter.save(&data).unwrap();
        assert_eq!(State::load(&data), Some(shorter));
        std::fs::remove_file(data.join(NAME)).unwrap();
        assert!(state.save(&data).is_err(), "there is nothing to write over");
        std::fs::create_dir(scratch.path().join("elsewhere")).unwrap();
        let target = scratch.path().join("elsewhere/state");
        std::fs::write(&target, b"other").unwrap();
        std::os::unix::fs::symlink(&target, data.join(NAME)).unwrap();
        assert!(state.save(&data).is_err());
        assert!(!data.join(NAME).exists(), "it would be believed");
        assert_eq!(std::fs::read(&target).unwrap(), b"other");
    }

    #[test]
    fn mounts_move_with_the_folder_that_they_lie_in() {
        let state = |data: &str| {
            let text =
                format!(r#"{{"pid":7,"mounts":["/old/mnt","/mnt/a"],"transport":""{data}}}"#);
            serde_json::from_str::<State>(&text).unwrap()
        };
        let at = |state: State, here: &str| state.mounts_at(Path::new(here));
        let moved = [PathBuf::from("/new/mnt")];
        assert_eq!(at(state(r#","data":"/old""#), "/new"), moved);
        let stayed = [PathBuf::from("/old/mnt"), "/mnt/a".into()];
        assert_eq!(at(state(r#","data":"/old""#), "/old"), stayed);
        assert_eq!(at(state(""), "/new"), stayed, "an older program did not say where it was");
    }
}
