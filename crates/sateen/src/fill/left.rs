//! Whether what an earlier run of `sateen fill` has left is there: a sample of its files, looked up
//! by name, those that it removed among them. It ended as by a crash, so of what it did last either
//! may be.

use sateen_client::AtimePolicy;
use sateen_types::{DirCookie, Errno, Fid, Result};

use super::course::Course;
use super::{FILES_PER_FOLDER, file_name, is_there};
use crate::node::Native;

/// Files that are looked up.
const SAMPLE: u64 = 20_000;
/// The last files of a run, which need not have been durable when it ended.
const UNCERTAIN: u64 = 100_000;
/// Names of the root that are asked for at once.
const NAMES: usize = 1000;

/// What a sample has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Files that must be there, and are.
    pub there: u64,
    /// Files that were removed, and are gone.
    pub gone: u64,
    /// Those that are not as they must be.
    pub wrong: u64,
}

/// Looks at what the first thread of a run has left that filled up to so many files of its own, and
/// had so many turns of everything afterwards.
pub(super) fn look(client: &Native, share: u64, mixed_turns: u32) -> Result<Sample> {
    let mut filled = Course::new(0);
    while filled.live() < share {
        filled.filling();
    }
    // What it may have removed after that, and may not.
    let mut later = filled.clone();
    for turn in 0..mixed_turns {
        later.mixed(turn);
    }
    let folders = folders(client)?;
    let certain = filled.made().saturating_sub(UNCERTAIN);
    let mut sample = Sample::default();
    let mut chance = later.clone();
    for _ in 0..SAMPLE.min(certain) {
        let file = chance.draw(certain);
        let wanted = match (filled.is_removed(file), later.is_removed(file)) {
            (true, _) => false,
            (false, false) => true,
            (false, true) => continue,
        };
        let folder = folders.get((file / FILES_PER_FOLDER) as usize).copied().flatten();
        let folder = folder.ok_or(Errno::ENOENT)?;
        let name = file_name(file);
        let found =
            client.run(move |client| async move { is_there(&client, folder, &name).await })?;
        match (wanted, found) {
            (true, true) => sample.there += 1,
            (false, false) => sample.gone += 1,
            _ => sample.wrong += 1,
        }
    }
    Ok(sample)
}

/// The folders of the first thread, by their numbers.
fn folders(client: &Native) -> Result<Vec<Option<Fid>>> {
    let mut folders = Vec::new();
    let mut after = DirCookie::START;
    loop {
        let listing = client.run(move |client| async move {
            client.readdir(Fid::ROOT, after, NAMES, AtimePolicy::Never).await
        })?;
        for entry in &listing.entries {
            let name = String::from_utf8_lossy(entry.name.as_bytes());
            let number =
                name.strip_prefix("t0.").and_then(|rest| rest.split('.').next()?.parse().ok());
            let Some(number) = number.filter(|number: &usize| *number < 1 << 20) else { continue };
            if folders.len() <= number {
                folders.resize(number + 1, None);
            }
            if let Some(place) = folders.get_mut(number) {
                *place = Some(entry.fid);
            }
        }
        match listing.entries.last() {
            Some(last) if !listing.end => after = last.cookie,
            _ => return Ok(folders),
        }
    }
}
