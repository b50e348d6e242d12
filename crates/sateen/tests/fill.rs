//! `sateen fill`, by which `make test-long` fills a file system with millions of files: a small one,
//! so that it is not found broken when a long run needs it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::process::{Command, Output};

/// How long a start may take: a second or two where nothing else runs.
const START_MAX: [&str; 2] = ["--max-start", "120"];

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
fn some_hundred_thousand_files_and_a_start_after_a_crash() {
    let folder = std::env::temp_dir().join(format!("sateen-fill-{}", std::process::id()));
    let folder = Folder(folder);
    let data = folder.0.join("data");
    let files = ["--files", "300000", "--threads", "2", "--mixed", "1", "--every", "1"];
    let filled = fill(&data, &[&files[..], &START_MAX].concat());
    let said = String::from_utf8_lossy(&filled.stdout);
    assert!(filled.status.success(), "{said}\n{}", String::from_utf8_lossy(&filled.stderr));
    assert!(said.contains("the disk itself: "), "{said}");
    // It ends without closing anything.
    let once_more = ["--files", "0", "--threads", "2", "--mixed", "1"];
    let left = ["--left", "300000", "--left-mixed", "1"];
    let again = fill(&data, &[&once_more[..], &START_MAX, &left].concat());
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success(), "{said}");
    assert!(said.contains(" are gone as they must be, 0 are not"), "{said}");
    // Whoever believes that there were more sees that they are not there.
    let more = fill(&data, &[&once_more[..], &["--left", "600000"]].concat());
    assert_eq!(more.status.code(), Some(1), "{more:?}");
    assert!(String::from_utf8_lossy(&more.stdout).contains("FAILED: "), "{more:?}");
    let limited = fill(&data, &["--files", "0", "--mixed", "1", "--max-start", "0"]);
    assert_eq!(limited.status.code(), Some(1), "{limited:?}");
    assert!(String::from_utf8_lossy(&limited.stdout).contains("FAILED: the start took"));
    let mut fsck = Command::new(env!("CARGO_BIN_EXE_sateen"));
    let fsck = fsck.arg("fsck").arg("--data").arg(&data).output().unwrap();
    assert!(fsck.status.success(), "{fsck:?}");
}
