//! How the files themselves must be: sizes, first words, words that never stay, dependencies
//! and documents that are complete.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::path::Path;

use sateen_xtask::{functions, packages, repository, sources};

/// Longest source file.
const FILE_LINES_MAX: usize = 1000;
/// Longest function that needs no thought; longer ones are listed in the test's output.
const FUNCTION_LINES_WISHED: usize = 70;
/// Longest function at all, except for those below.
const FUNCTION_LINES_MAX: usize = 110;

/// Functions that are longer and better so, with the reason.
const LONG_FUNCTIONS: [(&str, &str, &str); 0] = [];

/// Marks of unfinished work. In two parts, so that this file does not contain them.
const UNFINISHED: [(&str, &str); 6] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X:"),
    ("unimple", "mented!"),
    ("to", "do!"),
    ("db", "g!("),
];

/// Folders outside the repository, which nobody else has.
const OUTSIDE: [(&str, &str); 2] = [("/wor", "k/"), ("../sha", "red")];

fn none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn files_begin_with_what_they_are_for() {
    let mut broken = Vec::new();
    for source in sources(&[".rs"]) {
        if !source.text.starts_with("//! ") {
            broken.push(format!("{}: its first line does not say what it is for", source.path));
        }
    }
    none(&broken);
}

#[test]
fn files_are_short() {
    let mut broken = Vec::new();
    for source in sources(&[".rs"]) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{}: {lines} lines, more than one subject", source.path));
        }
    }
    none(&broken);
}

#[test]
fn functions_are_short() {
    let mut broken = Vec::new();
    let mut excused = 0;
    for source in sources(&[".rs"]) {
        for function in functions(&source.text) {
            let (name, lines) = (function.name, function.lines);
            if lines <= FUNCTION_LINES_WISHED {
                continue;
            }
            let place = format!("{}:{}: {name} has {lines} lines", source.path, function.line);
            let excuse = LONG_FUNCTIONS.iter().find(|one| (one.0, one.1) == (&source.path, name));
            match excuse {
                Some(excuse) => excused += usize::from(!excuse.2.is_empty()),
                None if lines > FUNCTION_LINES_MAX => broken.push(place),
                None => println!("long: {place}"),
            }
        }
    }
    none(&broken);
    assert_eq!(excused, LONG_FUNCTIONS.len(), "an exception is needed no longer");
}

#[test]
fn nothing_is_left_for_later() {
    let mut broken = Vec::new();
    for source in sources(&[".rs", ".toml", ".sh", ".md", "Makefile", "run"]) {
        for (at, line) in source.text.lines().enumerate() {
            for (head, tail) in UNFINISHED.iter().chain(&OUTSIDE) {
                if line.contains(&format!("{head}{tail}")) {
                    broken.push(format!("{}:{}: {head}{tail}", source.path, at + 1));
                }
            }
        }
    }
    none(&broken);
}

/// `testkit::skipped` sees to it; a word of a test's own would be taken for success.
#[test]
fn only_the_testkit_lets_a_test_be_skipped() {
    let mut broken = Vec::new();
    for source in sources(&[".rs"]) {
        // In two parts, so that this file does not contain it.
        let says = source.text.contains(concat!("\"skip", "ped"));
        if says && !source.is_production() && source.room() != Some("testkit") {
            broken.push(format!("{}: skips without asking for CI", source.path));
        }
    }
    none(&broken);
}

#[test]
fn every_file_is_compiled() {
    let all = sources(&[".rs"]);
    let mut broken = Vec::new();
    for source in all.iter().filter(|source| source.path.split('/').nth(2) == Some("src")) {
        let path = Path::new(&source.path);
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let in_bin = path.parent().unwrap().ends_with("bin");
        if in_bin || ["lib", "main", "build"].contains(&stem) {
            continue;
        }
        let named = |text: &str| {
            text.contains(&format!("mod {stem};")) || text.contains(&format!("/{stem}.rs\""))
        };
        if !all.iter().any(|other| other.room() == source.room() && named(&other.text)) {
            broken.push(format!("{}: no module names it", source.path));
        }
    }
    none(&broken);
}

#[test]
fn dependencies_are_explained() {
    let text = read("docs/dependencies.md");
    let explained: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let packages = packages();
    let all = packages.iter().flat_map(|package| &package.dependencies);
    let used: BTreeSet<&str> =
        all.filter(|one| one.room.is_none()).map(|one| one.name.as_str()).collect();
    assert!(used.len() > 5, "dependencies were found");
    let missing: Vec<_> = used.difference(&explained).collect();
    let stale: Vec<_> = explained.difference(&used).collect();
    assert!(missing.is_empty(), "docs/dependencies.md does not say why we have {missing:?}");
    assert!(stale.is_empty(), "docs/dependencies.md explains what we no longer have: {stale:?}");
}

#[test]
fn the_map_of_the_tree_is_complete() {
    let map = read("docs/sourcetree.md");
    let index = read("docs/README.md");
    let mut broken = Vec::new();
    for package in packages() {
        if !map.contains(&format!("`{}`", package.room)) {
            broken.push(format!("docs/sourcetree.md does not name crates/{}", package.room));
        }
    }
    for document in sources(&[".md"]) {
        let Some(name) = document.path.strip_prefix("docs/") else { continue };
        if name != "README.md" && !index.contains(&format!("({name})")) {
            broken.push(format!("docs/README.md does not name {name}"));
        }
    }
    none(&broken);
}

/// Whether a source has a test of this name, also one that is declared in a list.
fn has_test(text: &str, name: &str) -> bool {
    let direct = text.split("#[test]\n").skip(1);
    let listed = text.split("on_both!(").skip(1).filter_map(|list| list.split(");").next());
    direct
        .filter_map(|after| after.strip_prefix("fn "))
        .any(|after| after.strip_prefix(name).is_some_and(|rest| rest.starts_with("()")))
        || listed.flat_map(str::lines).any(|line| line.trim().trim_end_matches(',') == name)
            && text.contains(&format!("\nfn {name}("))
}

#[test]
fn every_row_of_the_semantics_has_a_test() {
    let all = sources(&[".rs"]);
    let exists = |test: &str| {
        let Some((file, name)) = test.split_once("::") else { return false };
        all.iter().any(|source| {
            source.path.contains("/tests/")
                && source.path.ends_with(&format!("/{file}.rs"))
                && has_test(&source.text, name)
        })
    };
    let text = read("docs/semantics.md");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    let mut broken = Vec::new();
    // The first is the header.
    for row in rows.iter().skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [what, _, _, tests] = cells[..] else {
            broken.push(format!("docs/semantics.md: no four cells: {row}"));
            continue;
        };
        let tests: Vec<&str> = tests.split(", ").map(|test| test.trim_matches('`')).collect();
        for test in tests.into_iter().filter(|test| !exists(test)) {
            broken.push(format!("docs/semantics.md: {what}: no test {test:?}"));
        }
    }
    none(&broken);
    assert!(rows.len() > 40, "rows were found");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in sources(&[".md"]) {
        let folder = repository().join(&document.path);
        let folder = folder.parent().unwrap().to_path_buf();
        for piece in document.text.split("](").skip(1) {
            let target = piece.split([')', '#', ' ']).next().unwrap();
            let elsewhere = target.is_empty() || target.contains("://");
            if !elsewhere && !folder.join(target).exists() {
                broken.push(format!("{}: no {target}", document.path));
            }
        }
    }
    none(&broken);
}
