//! A parallel find: everything below a directory that is no directory is counted, and those files
//! found that are no older than a file, have a size, and whose name has a part. What is counted
//! and found is what the original's pfind counts and finds. Ranks share the work:
//!
//! 1. the root begins with the top; each rank works on what it has, for a slice of time;
//! 2. all tell how much they have left; if nobody has anything, it is over;
//! 3. who has much gives to those who have nothing: directories to read, or names to look at,
//!    so that one very large directory is read by one rank and looked at by all.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, ReadDir};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::comm::{Communicator, Reduce};
use crate::error::{Error, Result};

/// Time between two meetings.
const SLICE: Duration = Duration::from_millis(10);
/// Names that are looked at together.
const NAMES: usize = 64;
/// Entries between two looks at the clock.
const LOOK: usize = 64;
/// Chunks of names that wait before reading goes on.
const WAITING_MAX: usize = 1024;
/// Bytes that a rank gives away at a meeting.
const GIVEN_MAX: usize = 64 << 10;

/// What is looked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// A part of the name.
    pub(super) part: String,
    pub(super) size: u64,
    /// Changed (ctime) in this second or later, in seconds since 1970.
    pub(super) since_s: i64,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// Everything below the top but directories.
    pub(super) total: u64,
    /// What fits.
    pub(super) found: u64,
}

/// The second in which a file was changed.
pub(super) fn changed_s(path: &Path) -> Result<i64> {
    let found = fs::symlink_metadata(path).map_err(|error| Error::io("stat", path, error))?;
    Ok(found.ctime())
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// Read a directory.
    Dir(PathBuf),
    /// Look at names in a directory.
    Names(PathBuf, Vec<OsString>),
}

impl Item {
    /// As ranks send it: a directory and how many names follow, then these, each with its length.
    fn put(&self, into: &mut Vec<u8>) {
        let (dir, names) = match self {
            Self::Dir(dir) => (dir, [].as_slice()),
            Self::Names(dir, names) => (dir, names.as_slice()),
        };
        let mut text = |bytes: &[u8]| {
            into.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            into.extend_from_slice(bytes);
        };
        text(dir.as_os_str().as_bytes());
        text(&(names.len() as u64).to_le_bytes());
        names.iter().for_each(|name| text(name.as_bytes()));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
            let (len, rest) = bytes.split_first_chunk::<8>()?;
            let (text, rest) = rest.split_at_checked(u64::from_le_bytes(*len).try_into().ok()?)?;
            *bytes = rest;
            Some(text)
        }
        let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let dir = PathBuf::from(os(text(bytes)?));
        let count = u64::from_le_bytes(text(bytes)?.try_into().ok()?);
        let names: Option<Vec<_>> = (0..count).map(|_| text(bytes).map(os)).collect();
        match names? {
            names if names.is_empty() => Some(Self::Dir(dir)),
            names => Some(Self::Names(dir, names)),
        }
    }
}

/// The work of a rank.
struct Walk<'a> {
    wanted: &'a Wanted,
    queue: VecDeque<Item>,
    /// The directory that is read.
    open: Option<(PathBuf, ReadDir)>,
    found: Found,
}

/// Finds; what all ranks have found. Of the ranks the first `ranks` work.
pub(super) fn find(
    comm: &dyn Communicator,
    top: &Path,
    wanted: &Wanted,
    ranks: usize,
) -> Result<Found> {
    let mut walk = Walk { wanted, queue: VecDeque::new(), open: None, found: Found::default() };
    if comm.is_root() {
        walk.queue.push_back(Item::Dir(top.to_owned()));
    }
    loop {
        walk.work(comm)?;
        comm.note_done(walk.found.total);
        let left = comm.all_gather_u64(walk.left())?;
        if left.iter().all(|left| *left == 0) {
            break;
        }
        let working = left.iter().take(ranks).enumerate();
        let idle: Vec<usize> = working.filter(|one| *one.1 == 0).map(|one| one.0).collect();
        if !idle.is_empty() && left.iter().any(|left| *left > 1) {
            walk.share(comm, &idle)?;
        }
    }
    Ok(Found {
        total: comm.reduce_u64(walk.found.total, Reduce::Sum)?,
        found: comm.reduce_u64(walk.found.found, Reduce::Sum)?,
    })
}

impl Walk<'_> {
    fn left(&self) -> u64 {
        self.queue.len() as u64 + u64::from(self.open.is_some())
    }

    /// Works for a slice of time, or until nothing is left.
    fn work(&mut self, comm: &dyn Communicator) -> Result<()> {
        let end = Instant::now() + SLICE;
        while self.left() > 0 && Instant::now() < end {
            comm.check()?;
            if self.open.is_some() && self.queue.len() < WAITING_MAX {
                self.read()?;
                continue;
            }
            match self.queue.pop_back() {
                Some(Item::Names(dir, names)) => self.look(&dir, &names)?,
                Some(Item::Dir(dir)) if self.open.is_none() => {
                    let entries = fs::read_dir(&dir);
                    let entries =
                        entries.map_err(|error| Error::io("read the directory", &dir, error))?;
                    self.open = Some((dir, entries));
                }
                // One directory is read at a time.
                Some(dir) => {
                    self.queue.push_front(dir);
                    self.read()?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Reads on in the directory that is open.
    fn read(&mut self) -> Result<()> {
        let Some((dir, entries)) = &mut self.open else { return Ok(()) };
        let mut names = Vec::new();
        let mut over = true;
        for entry in entries.by_ref().take(LOOK) {
            let failed = |error| Error::io("read the directory", dir, error);
            let entry = entry.map_err(failed)?;
            over = false;
            let kind = entry.file_type().map_err(|error| Error::io("stat", dir, error))?;
            let name = entry.file_name();
            if kind.is_dir() {
                self.queue.push_back(Item::Dir(dir.join(&name)));
                continue;
            }
            self.found.total += 1;
            if has(&name, &self.wanted.part) {
                names.push(name);
            }
        }
        for names in names.chunks(NAMES) {
            self.queue.push_back(Item::Names(dir.clone(), names.to_vec()));
        }
        if over {
            self.open = None;
        }
        Ok(())
    }

    /// Looks at names.
    fn look(&mut self, dir: &Path, names: &[OsString]) -> Result<()> {
        for name in names {
            let path = dir.join(name);
            let found =
                fs::symlink_metadata(&path).map_err(|error| Error::io("stat", &path, error))?;
            let fits = found.is_file()
                && found.len() == self.wanted.size
                && found.ctime() >= self.wanted.since_s;
            self.found.found += u64::from(fits);
        }
        Ok(())
    }

    /// Gives to ranks that have nothing, or takes from those that have.
    fn share(&mut self, comm: &dyn Communicator, idle: &[usize]) -> Result<()> {
        let mut given = Vec::new();
        // What was first is nearest the top, and so the most.
        let keep = if self.open.is_some() { 0 } else { 1 };
        let most = (self.queue.len().saturating_sub(keep) * idle.len()).div_ceil(idle.len() + 1);
        for _ in 0..most {
            if given.len() >= GIVEN_MAX {
                break;
            }
            let Some(item) = self.queue.pop_front() else { break };
            item.put(&mut given);
        }
        let all = comm.all_gather(&given)?;
        let mut turn = 0;
        for bytes in &all {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let item = Item::take(&mut rest);
                let item = item.ok_or(Error::Failed("ranks differ in what they say".into()))?;
                if idle.get(turn % idle.len().max(1)) == Some(&comm.rank()) {
                    self.queue.push_back(item);
                }
                turn += 1;
            }
        }
        Ok(())
    }
}

fn has(name: &OsStr, part: &str) -> bool {
    name.as_bytes().windows(part.len()).any(|window| window == part.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Solo, local};

    #[test]
    fn work_arrives_as_it_was_sent() {
        let items = [
            Item::Dir("/x/y".into()),
            Item::Names("/x".into(), vec!["a".into(), OsString::from_vec(vec![0xff, 0])]),
            Item::Dir("/".into()),
        ];
        let mut bytes = Vec::new();
        items.iter().for_each(|item| item.put(&mut bytes));
        let mut rest = bytes.as_slice();
        let found: Vec<Item> = std::iter::from_fn(|| Item::take(&mut rest)).collect();
        assert_eq!((found.as_slice(), rest), (items.as_slice(), [].as_slice()));
        assert_eq!(Item::take(&mut &bytes[..bytes.len() - 1]), Some(items[0].clone()));
        assert_eq!(Item::take(&mut [9_u8, 0, 0].as_slice()), None);
    }

    #[test]
    fn all_is_counted_and_what_fits_is_found_by_any_number_of_ranks() {
        let top = std::env::temp_dir().join(format!("sateen-find-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let mut entries = 0;
        for dir in 0..7 {
            let dir = top.join(format!("d{dir}/deep"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..300 {
                // One of a hundred has 01 in its name and is found, unless its size differs.
                fs::write(dir.join(format!("f.{file}")), if file == 201 { "x" } else { "xx" })
                    .unwrap();
                entries += 1;
            }
        }
        fs::create_dir(top.join("d01")).unwrap();
        let wanted = Wanted { part: "01".into(), size: 2, since_s: 0 };
        let expected = Found { total: entries, found: 7 };
        let solo = Solo::new().unwrap();
        assert_eq!(find(&solo, &top, &wanted, 1).unwrap(), expected);
        for used in [1, 3, 4] {
            let found = local::tests::ranks(4, |comm| find(comm, &top, &wanted, used).unwrap());
            assert_eq!(found, [expected; 4], "{used} ranks");
        }
        let later = Wanted { since_s: i64::MAX, ..wanted.clone() };
        assert_eq!(find(&solo, &top, &later, 1).unwrap().found, 0);
        // Of the time of change the second counts, and the same one is late enough.
        let file = top.join("d3/deep/f.101");
        let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::File::options().write(true).open(&file).unwrap().set_times(old).unwrap();
        let since_s = changed_s(&file).unwrap();
        let found = |since_s| find(&solo, &top, &Wanted { since_s, ..wanted.clone() }, 1).unwrap();
        assert!((1..=7).contains(&found(since_s).found), "mtime does not count");
        assert_eq!(found(since_s + 1).found, 0);
        fs::remove_dir_all(&top).unwrap();
        assert!(find(&solo, &top, &later, 1).is_err());
    }
}
