//! `state.json` in the data folder: what the serving process is, and how the last one ended.
//! For people and for `status` when nothing runs; never believed about what runs now, which
//! the lock says.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, write_durably};

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The serving process.
    pub pid: u32,
    /// Its mounts, the first one first.
    pub mounts: Vec<PathBuf>,
    /// How FUSE is spoken: "io_uring" or "classic".
    pub transport: String,
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
}

const NAME: &str = "state.json";

impl State {
    /// Writes the file.
    pub(crate) fn save(&self, data: &DataDir) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        write_durably(&data.join(NAME), &text)
    }

    /// Reads the file, if there is one that makes sense.
    pub(crate) fn load(data: &DataDir) -> Option<State> {
        serde_json::from_slice(&std::fs::read(data.join(NAME)).ok()?).ok()
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
            ended: Some(Ended { at: 9, why: "asked to".into() }),
        };
        state.save(&data).unwrap();
        assert_eq!(State::load(&data), Some(state));
    }
}
