//! Which objects were given away, for the run that follows one that was killed: programs that had them
//! then read and write them still, and nobody tells of that.
//!
//! The file `given` of the target's folder has a line for each, written before it is given. It is about
//! what this kernel has in memory, so that it need not be durable, and may have lines of objects that are
//! back: whoever reads it asks the kernel about each. When there are too many of those it is written anew,
//! and when a run that begins finds that nobody has anything it goes.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use sateen_types::{Fid, ObjectId, Seq};

use crate::lock;

/// The file in a target's folder.
pub const FILE: &str = "given";
/// The same, being written.
pub const FILE_NEW: &str = "given.new";

/// It is written anew when it has so many lines, and most of them are of objects that are back.
const LINES_MAX: usize = 4096;
/// The kernel lets go of what a program had that was killed a moment after it is gone: so often, and so
/// far apart, it is asked again who has an object.
const ASKED_MAX: u32 = 20;
const ASKED_AGAIN: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Noted {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// To add lines; `None` if it is to be written anew first.
    file: Option<File>,
    /// What is in it.
    lines: HashSet<ObjectId>,
    /// What is given, and how often.
    given: HashMap<ObjectId, u32>,
    /// What an earlier run has left open, when that was asked last.
    left: HashSet<ObjectId>,
}

impl Noted {
    /// Of the target in this folder. Nothing is written before something is given.
    pub(super) fn new(folder: &Path) -> Noted {
        Noted { folder: folder.to_owned(), state: Mutex::default() }
    }

    /// What an earlier run has noted and somebody has still.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn left_open(
        &self,
        alone: impl Fn(ObjectId) -> io::Result<bool>,
    ) -> io::Result<Vec<ObjectId>> {
        let bytes = match fs::read(self.folder.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes?,
        };
        // It was never made durable: a line that is none is no reason not to start.
        let text = String::from_utf8_lossy(&bytes);
        let mut left: Vec<ObjectId> = text.lines().filter_map(parse).collect();
        left.sort_unstable();
        left.dedup();
        for asked in 1.. {
            let mut had = Vec::new();
            for object in left {
                if !alone(object)? {
                    had.push(object);
                }
            }
            left = had;
            if left.is_empty() || asked == ASKED_MAX {
                break;
            }
            std::thread::sleep(ASKED_AGAIN);
        }
        let mut state = lock(&self.state);
        state.left = left.iter().copied().collect();
        // Lines of what is back go with the next that is written.
        (state.file, state.lines) = (None, HashSet::new());
        if left.is_empty() && state.given.is_empty() {
            // Else the next run asks about them once more.
            let _ = fs::remove_file(self.folder.join(FILE));
        }
        Ok(left)
    }

    /// Whether an earlier run has left an object open with somebody, when that was asked last.
    pub(super) fn is_left(&self, object: ObjectId) -> bool {
        lock(&self.state).left.contains(&object)
    }

    /// An object is about to be given. To be followed by [`Noted::ends`], as often.
    ///
    /// # Errors
    /// The file system's; then it must not be given.
    pub(super) fn begins(&self, object: ObjectId) -> io::Result<()> {
        let mut state = lock(&self.state);
        *state.given.entry(object).or_default() += 1;
        let noted = self.note(&mut state, object);
        if noted.is_err() {
            ends(&mut state, object);
            // What it has now is not known.
            state.file = None;
        }
        noted
    }

    /// It is back.
    pub(super) fn ends(&self, object: ObjectId) {
        ends(&mut lock(&self.state), object);
    }

    fn note(&self, state: &mut State, object: ObjectId) -> io::Result<()> {
        let kept = state.given.len() + state.left.len();
        let is_worn = state.lines.len() >= LINES_MAX && state.lines.len() >= 2 * kept;
        match &mut state.file {
            Some(_) if state.lines.contains(&object) => Ok(()),
            Some(file) if !is_worn => {
                file.write_all(line(object).as_bytes())?;
                state.lines.insert(object);
                Ok(())
            }
            _ => self.write_anew(state),
        }
    }

    fn write_anew(&self, state: &mut State) -> io::Result<()> {
        let lines: HashSet<ObjectId> = state.given.keys().chain(&state.left).copied().collect();
        let mut text = String::new();
        for object in &lines {
            text.push_str(&line(*object));
        }
        let new = self.folder.join(FILE_NEW);
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, self.folder.join(FILE))?;
        (state.file, state.lines) = (Some(file), lines);
        Ok(())
    }
}

fn ends(state: &mut State, object: ObjectId) {
    let Some(times) = state.given.get_mut(&object) else { return };
    *times -= 1;
    if *times == 0 {
        state.given.remove(&object);
    }
}

fn line(object: ObjectId) -> String {
    let ObjectId { fid: Fid { seq, oid, ver }, stripe } = object;
    let mut line = String::new();
    // It goes into memory.
    let _ = writeln!(line, "{:x} {oid:x} {ver:x} {stripe:x}.", seq.0);
    line
}

/// The object of a line, if that is whole.
fn parse(line: &str) -> Option<ObjectId> {
    let mut words = line.strip_suffix('.')?.split(' ');
    let seq = Seq(u64::from_str_radix(words.next()?, 16).ok()?);
    let mut next = || u32::from_str_radix(words.next()?, 16).ok();
    let (oid, ver, stripe) = (next()?, next()?, next()?);
    Some(ObjectId { fid: Fid { seq, oid, ver }, stripe })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn object(oid: u32) -> ObjectId {
        ObjectId { fid: Fid { seq: Seq(0x40), oid, ver: 0 }, stripe: 0 }
    }

    /// What the next run believes, if these are had by somebody.
    fn next(scratch: &Scratch, had: &[ObjectId]) -> Vec<ObjectId> {
        Noted::new(scratch.path()).left_open(|object| Ok(!had.contains(&object))).unwrap()
    }

    #[test]
    fn what_was_given_is_asked_after_by_the_next_run() {
        let scratch = Scratch::new("noted");
        let noted = Noted::new(scratch.path());
        assert_eq!(next(&scratch, &[object(1)]), []);
        noted.begins(object(1)).unwrap();
        noted.begins(object(2)).unwrap();
        noted.begins(object(2)).unwrap();
        noted.ends(object(2));
        assert_eq!(next(&scratch, &[object(1), object(2), object(3)]), [object(1), object(2)]);
        // A line that a full disk has cut short.
        let mut file = File::options().append(true).open(scratch.path().join(FILE)).unwrap();
        file.write_all(b"\xff\xfe\n40 3 0 0").unwrap();
        assert_eq!(next(&scratch, &[object(2), object(3)]), [object(2)]);
    }

    #[test]
    fn what_is_left_open_stays_noted_until_it_is_back() {
        let scratch = Scratch::new("noted-left");
        Noted::new(scratch.path()).begins(object(1)).unwrap();
        let second = Noted::new(scratch.path());
        assert_eq!(second.left_open(|_| Ok(false)).unwrap(), [object(1)]);
        second.begins(object(2)).unwrap();
        assert_eq!(next(&scratch, &[object(1), object(2)]), [object(1), object(2)]);
        assert_eq!(second.left_open(|_| Ok(true)).unwrap(), []);
        second.begins(object(3)).unwrap();
        assert_eq!(next(&scratch, &[object(1), object(2), object(3)]), [object(2), object(3)]);
    }

    #[test]
    fn it_goes_when_nobody_has_anything() {
        let scratch = Scratch::new("noted-gone");
        let is_there = || scratch.path().join(FILE).exists();
        Noted::new(scratch.path()).begins(object(1)).unwrap();
        let second = Noted::new(scratch.path());
        second.begins(object(2)).unwrap();
        assert_eq!(second.left_open(|_| Ok(true)).unwrap(), []);
        assert!(is_there(), "one is given");
        second.ends(object(2));
        assert_eq!(second.left_open(|_| Ok(true)).unwrap(), []);
        assert!(!is_there());
        second.begins(object(3)).unwrap();
        assert_eq!(next(&scratch, &[object(3)]), [object(3)]);
        assert!(is_there());
    }

    #[test]
    fn it_does_not_grow_with_what_is_back() {
        let scratch = Scratch::new("noted-worn");
        let noted = Noted::new(scratch.path());
        noted.begins(object(0)).unwrap();
        for oid in 1..3 * LINES_MAX as u32 {
            noted.begins(object(oid)).unwrap();
            noted.ends(object(oid));
        }
        let text = fs::read_to_string(scratch.path().join(FILE)).unwrap();
        assert!(text.lines().count() <= LINES_MAX, "{}", text.lines().count());
        assert_eq!(next(&scratch, &[object(0)]), [object(0)]);
    }
}
