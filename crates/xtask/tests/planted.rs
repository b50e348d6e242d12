//! The planted bugs of crates/sim/planted fit the code: each applies, and says where it is looked
//! for. Whoever changes a line that one of them is planted in mends the patch with it, or nobody
//! knows any more what the simulator catches.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::PathBuf;
use std::process::Command;

use sateen_xtask::{functions, repository, sources};

const WORLDS: [&str; 7] =
    ["full", "contention", "file-locks", "partitions", "given", "given-contention", "none"];

/// The patches, and what they are named.
fn patches() -> Vec<(String, PathBuf)> {
    let folder = repository().join("crates/sim/planted");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<(String, PathBuf)> =
        all.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect();
    all.sort();
    assert!(all.len() >= 40, "patches were found");
    all
}

#[test]
fn each_applies() {
    let has_git = Command::new("git").arg("--version").output().is_ok();
    assert!(has_git || !std::env::var("CI").is_ok_and(|ci| ci == "true"), "CI must have git");
    if !has_git {
        // There is nothing to count these by: no git, no clone, no patches to be planted.
        return;
    }
    let mut broken = Vec::new();
    for (name, path) in patches() {
        let mut git = Command::new("git");
        // Also where this is no clone but an archive of one, in whatever folder.
        git.env("GIT_CEILING_DIRECTORIES", repository().parent().unwrap());
        let tried = git.args(["apply", "--check"]).arg(path).current_dir(repository()).output();
        let tried = tried.unwrap();
        if !tried.status.success() {
            broken.push(format!("{name}: {}", String::from_utf8_lossy(&tried.stderr)));
        }
    }
    assert!(broken.is_empty(), "patches that do not fit any more:\n{}", broken.join("\n"));
}

#[test]
fn each_says_what_it_is_and_who_catches_it() {
    let all = sources(&[".rs"]);
    let rooms = all.iter().filter_map(|source| Some((source.room()?, &source.text)));
    let tests: Vec<(&str, &str)> = rooms
        .flat_map(|(room, text)| functions(text).into_iter().map(move |one| (room, one.name)))
        .collect();
    let mut broken = Vec::new();
    for (name, path) in patches() {
        let text = std::fs::read_to_string(path).unwrap();
        let field = |field: &str| {
            let start = format!("# {field}: ");
            text.lines().find_map(|line| line.strip_prefix(&start))
        };
        if field("Slip").is_none() || field("Where").is_none() {
            broken.push(format!("{name}: it does not say what the slip is, and where"));
        }
        let worlds: Vec<&str> = field("World").unwrap_or_default().split(", ").collect();
        if !worlds.iter().all(|world| WORLDS.contains(world)) {
            broken.push(format!("{name}: its worlds are {worlds:?}"));
        }
        let Some(test) = field("Test") else {
            if worlds == ["none"] {
                broken.push(format!("{name}: no seed and no test is to catch it"));
            }
            continue;
        };
        let words: Vec<&str> = test.split(' ').collect();
        let room = words.get(1).and_then(|package| package.strip_prefix("sateen-"));
        let last = words[words.len() - 1];
        // A word may also name a module of tests.
        let found = |(of, test): &(&str, &str)| Some(*of) == room && test.contains(last);
        let module = room.map(|room| repository().join(format!("crates/{room}/src/{last}.rs")));
        if !tests.iter().any(found) && !module.is_some_and(|module| module.exists()) {
            broken.push(format!("{name}: there is no test {test}"));
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}
