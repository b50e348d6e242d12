//! `sateen fill`, by which `make test-long` fills a file system with millions of files: a small one,
//! so that it is not found broken when a long run needs it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::process::{Command, Output};

struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fill(data: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
    command.arg("fill").arg("--data").arg(data).args(args).output().unwrap()
}

#[test]
fn a_hundred_thousand_files_and_a_start_after_a_crash() {
    let folder = std::env::temp_dir().join(format!("sateen-fill-{}", std::process::id()));
    let folder = Folder(folder);
    let data = folder.0.join("data");
    let files = ["--files", "100000", "--threads", "2", "--mixed", "1", "--every", "1"];
    let filled = fill(&data, &[&files[..], &["--max-start", "10"]].concat());
    let said = String::from_utf8_lossy(&filled.stdout);
    assert!(filled.status.success(), "{said}\n{}", String::from_utf8_lossy(&filled.stderr));
    assert!(said.contains("the disk itself: "), "{said}");
    // It ends without closing anything.
    let again = fill(&data, &["--files", "0", "--mixed", "1", "--max-start", "10"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    let limited = fill(&data, &["--files", "0", "--mixed", "1", "--max-start", "0"]);
    assert_eq!(limited.status.code(), Some(1), "{limited:?}");
    assert!(String::from_utf8_lossy(&limited.stdout).contains("FAILED: the start took"));
    let mut fsck = Command::new(env!("CARGO_BIN_EXE_sateen"));
    let fsck = fsck.arg("fsck").arg("--data").arg(&data).output().unwrap();
    assert!(fsck.status.success(), "{fsck:?}");
}
