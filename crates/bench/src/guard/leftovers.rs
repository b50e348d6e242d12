//! Files that earlier runs have left beside those of this one: they fill the file system, make
//! directories longer, and make creating a file into overwriting one.

use std::path::Path;

use super::{Code, Pitfall};

/// Names that are looked at: a directory may hold millions.
const LOOKED_MAX: usize = 100_000;

/// Which names in the directory a run would give.
#[derive(Debug, Clone, Copy)]
pub enum Mine<'a> {
    /// One name, and those that go on with a dot and digits: IOR's files.
    Files(&'a str),
    /// Those that begin so: mdtest's folders.
    Begin(&'a str),
}

impl Mine<'_> {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Files(file) => name.strip_prefix(file).is_some_and(|rest| {
                rest.is_empty()
                    || rest.starts_with('.')
                        && rest.chars().all(|one| one == '.' || one.is_ascii_digit())
            }),
            Self::Begin(begin) => name.starts_with(begin),
        }
    }
}

/// Looks into a directory; one that cannot be read holds nothing that could be told of.
pub(super) fn look(dir: &Path, mine: Mine) -> Option<Pitfall> {
    let entries = std::fs::read_dir(dir).ok()?;
    let names = entries.take(LOOKED_MAX).flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut left: Vec<String> = names.filter(|name| mine.has(name)).collect();
    left.sort();
    let first = left.first()?;
    let (count, dir) = (left.len(), dir.display());
    let message = match count {
        1 => format!("{dir} holds {first} of an earlier run"),
        _ => format!("{dir} holds {count} names of earlier runs, the first is {first}"),
    };
    Some(Pitfall::new(Code::Leftovers, None, count as f64, message))
}

/// Looks for files by their names.
pub(super) fn named<'a>(files: impl Iterator<Item = &'a Path>) -> Option<Pitfall> {
    let left: Vec<&Path> = files.filter(|file| file.symlink_metadata().is_ok()).collect();
    let first = left.first()?.display();
    let message = match left.len() {
        1 => format!("{first} of an earlier run is there already"),
        count => format!("{count} files of earlier runs are there already, the first is {first}"),
    };
    Some(Pitfall::new(Code::Leftovers, None, left.len() as f64, message))
}

/// Tells of runs whose files are in a directory.
pub(super) fn runs(dir: &Path, names: &[String]) -> Option<Pitfall> {
    let first = names.first()?;
    let (count, dir) = (names.len(), dir.display());
    let what = match count {
        1 => format!("the files of another run, {first}"),
        _ => format!("the files of {count} other runs, the first is {first}"),
    };
    let message = format!("{dir} holds {what}: --cleanup --timestamp {first} removes them");
    Some(Pitfall::new(Code::Leftovers, None, count as f64, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs_are_told_from_others() {
        let file = Mine::Files("f");
        assert!(file.has("f") && file.has("f.00000003") && file.has("f.00000003.1"));
        assert!(!file.has("ff") && !file.has("f.txt") && !file.has("g"));
        assert!(Mine::Begin("test-dir.").has("test-dir.0-0"));
    }
}
