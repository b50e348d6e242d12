//! What stays behind after `up` keeps nothing of whoever has called it: neither the folder in which
//! that was, nor files that it had open.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sateen_testkit::can_mount;

use crate::Fs;

/// The processes of a data folder.
fn processes(data: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for process in all {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        if line.split(|byte| *byte == 0).any(|word| word == data.as_os_str().as_encoded_bytes()) {
            found.push(process);
        }
    }
    found
}

#[test]
fn what_is_left_behind_keeps_nothing_of_its_caller() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("behind");
    let here = fs_.data.with_extension("here");
    fs::create_dir(&here).unwrap();
    // As a script does that has a lock of its own.
    let script = "exec 7>lock 9>&7; exec \"$@\"";
    let mut up = Command::new("bash");
    up.args(["-c", script, "bash", env!("CARGO_BIN_EXE_sateen"), "up", "--osts", "1", "--data"]);
    let up = up.arg(&fs_.data).args(["--mount", "mnt"]).current_dir(&here).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let left = processes(&fs_.data);
    assert_eq!(left.len(), 2, "it and its guard: {left:?}");
    for process in left {
        assert_eq!(fs::read_link(process.join("cwd")).unwrap(), Path::new("/"));
        for open in fs::read_dir(process.join("fd")).unwrap().flatten() {
            let to = fs::read_link(open.path()).unwrap_or_default();
            assert!(!to.starts_with(&here), "{} is {}", open.path().display(), to.display());
        }
    }
    fs::write(here.join("mnt/file"), b"file").unwrap();
    fs_.ok(&["down"]);
    fs::remove_file(here.join("lock")).unwrap();
    fs::remove_dir(here.join("mnt")).unwrap();
    fs::remove_dir(&here).unwrap();
}
