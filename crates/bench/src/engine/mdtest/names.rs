//! The path of each item: `DIR/test-dir.ITERATION-TREE/mdtest_tree.0/mdtest_tree.7/
//! file.mdtest.RANK.NUMBER`, with `mdtest_tree.RANK` for trees of their own.
//!
//! Paths are made in a buffer that is kept: from item to item only the digits of the number
//! change.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::shape::Shape;

/// What names follow from.
#[derive(Debug, Clone)]
pub struct Names {
    /// The directories of -d.
    pub dirs: Vec<String>,
    /// Items and directories.
    pub shape: Shape,
    /// A tree for each rank.
    pub unique: bool,
    /// Files that all ranks use.
    pub shared: bool,
    /// Ranks.
    pub ranks: usize,
    /// How much further the tree is in which a rank creates.
    pub stride: usize,
    /// The iteration.
    pub iteration: usize,
}

impl Names {
    /// The folder of a rank's tree.
    pub(super) fn test_dir(&self, owner: usize, tree: u64) -> PathBuf {
        let dir = self.dirs.get(owner % self.dirs.len().max(1)).map_or("", String::as_str);
        Path::new(dir).join(format!("test-dir.{}-{tree}", self.iteration))
    }

    fn base(&self, owner: usize) -> String {
        if self.unique { format!("mdtest_tree.{owner}") } else { "mdtest_tree".to_owned() }
    }

    /// A directory of the tree that a rank owns, or of the one for all.
    pub(super) fn tree_dir(&self, owner: usize, tree: u64, dir: u64) -> PathBuf {
        let base = self.base(owner);
        let mut path = self.test_dir(owner, tree);
        path.push(format!("{base}.0"));
        for dir in self.shape.way_to(dir) {
            path.push(format!("{base}.{dir}"));
        }
        path
    }

    /// The tree in which a rank's items are.
    fn tree_of(&self, creator: usize) -> usize {
        if self.unique { (creator + self.stride) % self.ranks } else { 0 }
    }

    /// The paths of the items that a rank has created.
    pub fn of(&self, creator: usize, kind: &str) -> Paths<'_> {
        let stem = if self.shared {
            format!("/{kind}.mdtest.shared.")
        } else {
            format!("/{kind}.mdtest.{creator}.")
        };
        let owner = self.tree_of(creator);
        Paths { names: self, owner, stem, at: None, path: String::new(), prefix: 0 }
    }
}

/// Makes the paths of a rank's items.
#[derive(Debug)]
pub struct Paths<'a> {
    names: &'a Names,
    owner: usize,
    stem: String,
    /// The tree and directory that the prefix is of.
    at: Option<(u64, u64)>,
    path: String,
    prefix: usize,
}

impl Paths<'_> {
    /// The path of the `at`th item, and the item's number.
    #[inline]
    pub fn item(&mut self, at: u64) -> (&Path, u64) {
        let place = self.names.shape.place(at);
        if self.at != Some((place.tree, place.dir)) {
            self.enter(place.tree, place.dir);
        }
        self.path.truncate(self.prefix);
        push_number(&mut self.path, place.number);
        (Path::new(OsStr::from_bytes(self.path.as_bytes())), place.number)
    }

    #[cold]
    fn enter(&mut self, tree: u64, dir: u64) {
        self.path.clear();
        let folder = self.names.tree_dir(self.owner, tree, dir);
        // Paths come from the command line as text.
        let _ = write!(self.path, "{}{}", folder.display(), self.stem);
        self.prefix = self.path.len();
        self.path.reserve(32);
        self.at = Some((tree, dir));
    }
}

/// Appends the digits of a number.
fn push_number(text: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut from = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        from = at;
        if number == 0 {
            break;
        }
    }
    let digits = digits.get(from..).and_then(|digits| std::str::from_utf8(digits).ok());
    text.push_str(digits.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::mdtest::options::tests::mdtest;

    fn names(line: &str) -> Names {
        let test = mdtest(line);
        Names {
            dirs: test.dirs().into_iter().map(str::to_owned).collect(),
            shape: Shape::of(&test).unwrap(),
            unique: test.unique,
            shared: test.shared,
            ranks: 4,
            stride: test.stride,
            iteration: 1,
        }
    }

    fn item(names: &Names, rank: usize, at: u64) -> String {
        names.of(rank, "file").item(at).0.display().to_string()
    }

    #[test]
    fn items_are_named_as_mdtest_names_them() {
        let flat = names("-n 10 -d /x");
        assert_eq!(item(&flat, 2, 7), "/x/test-dir.1-0/mdtest_tree.0/file.mdtest.2.7");
        let deep = names("-I 3 -z 2 -b 2 -u -d /x");
        let wanted =
            "/x/test-dir.1-0/mdtest_tree.3.0/mdtest_tree.3.1/mdtest_tree.3.4/file.mdtest.3.13";
        assert_eq!(item(&deep, 3, 13), wanted);
        let shared = names("-n 3 -S -d /x");
        assert_eq!(item(&shared, 2, 1), "/x/test-dir.1-0/mdtest_tree.0/file.mdtest.shared.1");
        let several = names("-n 3 -u -d /x@/y");
        assert_eq!(item(&several, 3, 0), "/y/test-dir.1-0/mdtest_tree.3.0/file.mdtest.3.0");
        let strided = names("-n 3 -u -N 1 -d /x");
        assert_eq!(item(&strided, 3, 0), "/x/test-dir.1-0/mdtest_tree.0.0/file.mdtest.3.0");
    }

    #[test]
    fn paths_change_with_the_directory() {
        let names = names("-I 2 -z 1 -b 2 -d /x");
        let mut paths = names.of(0, "dir");
        let all: Vec<String> = (0..6).map(|at| paths.item(at).0.display().to_string()).collect();
        assert!(all[1].ends_with("mdtest_tree.0/dir.mdtest.0.1"), "{all:?}");
        assert!(all[2].ends_with("mdtest_tree.0/mdtest_tree.1/dir.mdtest.0.2"), "{all:?}");
        assert!(all[5].ends_with("mdtest_tree.0/mdtest_tree.2/dir.mdtest.0.5"), "{all:?}");
    }

    #[test]
    fn numbers_are_written_whole() {
        for number in [0, 9, 10, 1234567890, u64::MAX] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }
}
