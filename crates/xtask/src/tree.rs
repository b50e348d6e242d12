//! What there is: the packages of the workspace as cargo sees them, and the source files as git
//! would see them. Used by the tests of the rules; anything unreadable panics, since a rule
//! that cannot be checked has failed.
#![allow(clippy::panic, clippy::expect_used, reason = "it serves tests only")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Folders below the root that hold no sources of ours.
const FOREIGN: [&str; 3] = ["target", "demo", ".git"];

/// One package of the workspace.
#[derive(Debug)]
pub struct Package {
    /// Its folder's name below `crates/`.
    pub room: String,
    /// What it depends on, of every kind.
    pub dependencies: Vec<Dependency>,
}

/// One dependency of a package.
#[derive(Debug)]
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// The folder's name below `crates/`, if it is one of ours.
    pub room: Option<String>,
    /// Whether tests, benchmarks and examples alone have it.
    pub dev: bool,
    /// Whether it is there only with a feature.
    pub optional: bool,
}

/// One source file.
#[derive(Debug)]
pub struct Source {
    /// Its path from the repository's root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl Source {
    /// The room that it belongs to, if any.
    pub fn room(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether it is compiled into what a user runs, rather than into tests, benchmarks or
    /// examples.
    pub fn is_production(&self) -> bool {
        self.path.split('/').nth(2) == Some("src") && !self.path.ends_with("tests.rs")
    }

    /// Its lines with their numbers, up to its inner test module, comments left out.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let text = self.text.get(..end).unwrap_or_default();
        text.lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.split("//").next().unwrap_or_default()))
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/xtask lies two below the root").to_path_buf()
}

/// The packages of the workspace, as `cargo metadata` tells them.
pub fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(repository())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    list(&all, "packages").iter().map(package).collect()
}

fn package(value: &Value) -> Package {
    let manifest = Path::new(text(value, "manifest_path"));
    let room = room_of(manifest.parent().expect("a manifest lies in a folder"));
    let dependencies = list(value, "dependencies").iter().map(|one| Dependency {
        name: text(one, "name").to_owned(),
        room: one.get("path").and_then(Value::as_str).map(|path| room_of(Path::new(path))),
        dev: one.get("kind").and_then(Value::as_str) == Some("dev"),
        optional: one.get("optional").and_then(Value::as_bool) == Some(true),
    });
    Package { room, dependencies: dependencies.collect() }
}

fn room_of(folder: &Path) -> String {
    folder.file_name().expect("a named folder").to_string_lossy().into_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Every file with one of these endings, sorted by path.
pub fn sources(endings: &[&str]) -> Vec<Source> {
    let root = repository();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).expect("a readable folder");
        for entry in entries {
            let entry = entry.expect("a readable entry");
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().expect("a kind of file");
            if kind.is_dir() {
                // Build folders may lie anywhere, e.g. below `fuzz`.
                if !FOREIGN.iter().any(|foreign| name == *foreign) {
                    folders.push(path);
                }
            } else if kind.is_file()
                && endings.iter().any(|ending| name.to_string_lossy().ends_with(ending))
            {
                let path_below = path.strip_prefix(&root).expect("below the root");
                found.push(Source {
                    path: path_below.to_string_lossy().into_owned(),
                    text: std::fs::read_to_string(&path)
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
