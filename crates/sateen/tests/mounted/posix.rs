//! pjdfstest: system calls and their errors, test by test as on the local disk.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{Rig, Servers, on_both, tool, tools};

on_both!(calls_do_what_they_do_on_the_local_disk);

/// What pjdfstest makes of a folder: how many of its tests passed, and which failed.
fn pjdfstest(rig: &Rig, folder: &Path) -> (usize, Vec<String>) {
    let config = rig.local().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST_CONFIG).unwrap();
    // Some tests act as another user, who must get at the folder, whatever lies above it.
    let script = "mount --bind \"$1\" /mnt && cd / && exec \"$2\" -c \"$3\" -p /mnt";
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-euc", script, "pjdfstest"])
        .arg(folder)
        .arg(tool("pjdfstest").unwrap())
        .arg(&config)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = text.lines().filter_map(|line| line.strip_suffix("FAILED"));
    let failed: Vec<String> = failed.map(|name| name.trim().to_owned()).collect();
    let passed = text.lines().filter(|line| line.trim_end().ends_with(" ok")).count();
    let summary = format!("Summary: {} failed", failed.len());
    assert!(text.contains(&summary), "{text}{}", String::from_utf8_lossy(&output.stderr));
    (passed, failed)
}

/// Two users that every Debian has.
const PJDFSTEST_CONFIG: &str = "
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
[dummy_auth]
entries = [ [\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"] ]
";

/// It has 398 tests. Some are for other systems, and one for those with few hard links.
const PJDFSTEST_PASSED_MIN: usize = 370;

fn calls_do_what_they_do_on_the_local_disk(servers: Servers) {
    if !tools(&["pjdfstest"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "pjdfstest", 1, false) else { return };
    let (_, there) = pjdfstest(&rig, &rig.local());
    let (passed, here) = pjdfstest(&rig, rig.mnt());
    println!("pjdfstest: {passed} passed");
    let only_here: Vec<_> = here.iter().filter(|name| !there.contains(name)).collect();
    assert!(only_here.is_empty(), "{only_here:?}");
    assert!(passed >= PJDFSTEST_PASSED_MIN, "{passed} of pjdfstest's tests were executed");
    rig.end();
}
