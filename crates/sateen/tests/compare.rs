//! `make compare` goes through, small: the script itself over tmpfs and Sateen embedded, with the
//! programs that the tests have. Its document is well formed, its numbers are there, and nothing is
//! left of it but these.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sateen_testkit::watchdog::Watchdog;
use sateen_testkit::{can_mount, skipped};

const BINARY: &str = env!("CARGO_BIN_EXE_sateen");

/// Ends what still runs or is mounted there, if the test fails.
struct Scratch {
    path: PathBuf,
    _watched: Watchdog,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn compare(scratch: &Path, systems: &str, rows: &str) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash")
        .arg(root.join("scripts/compare.sh"))
        .envs([("SYSTEMS", systems), ("ROUNDS", "1"), ("SCALE", "1"), ("ROWS", rows)])
        .envs([("GROUND_GIB", "1"), ("COMMIT", "a test")])
        .env("BIN", Path::new(BINARY).parent().unwrap())
        .env("WHERE", scratch)
        .env("DOCUMENT", scratch.join("document.md"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), said)
}

#[test]
fn a_small_comparison_makes_its_document() {
    if !can_mount() {
        return;
    }
    let example = Path::new(BINARY).parent().unwrap().join("examples/compare");
    if !example.exists() {
        return skipped("the example compare of sateen-bench is not built");
    }
    let path = std::env::temp_dir().join(format!("sateen-compare-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    let scratch = Scratch { path: path.clone(), _watched: Watchdog::over(&path) };
    let (went_well, said) =
        compare(&scratch.path, "tmpfs sateen", "empty small seq4 shared random seq4k many idle");
    assert!(went_well, "{said}");

    let text = fs::read_to_string(scratch.path.join("document.md")).unwrap();
    assert!(text.contains("**A quick run (1 of 5 rounds, 1 % of the sizes)"), "{text}");
    assert!(!text.contains("failed"), "{text}");
    for row in [
        "empty files: create",
        "files of 3901 bytes: read",
        "47008 bytes, shared file: write",
        "4 KiB sequential: write",
        "100 000 empty files: stat",
    ] {
        assert!(text.contains(&format!("| {row} (")), "{row}: {text}");
    }
    assert!(text.contains("Sateen embedded, idle"), "{text}");
    let mut columns = None;
    for line in text.lines() {
        let cells = line.starts_with('|').then(|| line.matches('|').count());
        assert!(cells.is_none() || columns.is_none() || cells == columns, "{line}");
        columns = cells;
    }
    let json = fs::read_to_string(scratch.path.join("document.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Of each file system 4 + 6 + 3 × 3 rows with one and with two processes (tmpfs knows of no
    // stripes), 4 KiB after 4 KiB, many files on Sateen alone, and what an idle Sateen uses.
    let singles = json["singles"].as_array().unwrap();
    assert_eq!(singles.len(), 2 * (4 + 6 + 9) + 2 * (4 + 6 + 6) + 2 + 3 + 1, "{json}");
    assert!(singles.iter().all(|one| one["value"].as_f64().is_some() && one["failed"].is_null()));

    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(path.to_str().unwrap()), "{mounts}");
    assert!(!scratch.path.join(".sateen-compare").exists(), "{said}");
}

/// Two mounts write one file, and the third shows what they wrote.
#[test]
fn a_comparison_of_two_mounts_is_one_too() {
    if !can_mount() {
        return;
    }
    let example = Path::new(BINARY).parent().unwrap().join("examples/compare");
    if !example.exists() {
        return skipped("the example compare of sateen-bench is not built");
    }
    let path = std::env::temp_dir().join(format!("sateen-compare-two-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    let scratch = Scratch { path: path.clone(), _watched: Watchdog::over(&path) };
    let (went_well, said) = compare(&scratch.path, "tmpfs sateen-tcp", "two");
    assert!(went_well, "{said}");
    let json = fs::read_to_string(scratch.path.join("document.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let singles = json["singles"].as_array().unwrap();
    assert_eq!(
        (singles.len(), &json["rounds"][0]["verified"]),
        (2, &serde_json::json!(2)),
        "{json}"
    );
    assert!(singles.iter().all(|one| one["value"].as_f64().is_some() && one["failed"].is_null()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(path.to_str().unwrap()), "{mounts}");
}
