//! pjdfstest: system calls and their errors, test by test as on the local disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{Rig, Servers, on_both, tool, tools};

on_both!(calls_do_what_they_do_on_the_local_disk);

/// The tests that were executed, by how they ended.
struct Executed {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Executed {
    fn all(&self) -> BTreeSet<&String> {
        self.passed.union(&self.failed).collect()
    }
}

/// What pjdfstest makes of a folder: of all its tests, but for those that make the file system
/// read-only, or of those alone. They are run by themselves, because others leave files open for
/// writing; and not on the local disk, which everybody here needs.
fn pjdfstest(rig: &Rig, folder: &Path, feature: &str, read_only: bool) -> Executed {
    let config = rig.local().join("pjdfstest.toml");
    let (setting, only) = if read_only { ("allow_remount = true", "erofs") } else { ("", "") };
    fs::write(&config, PJDFSTEST_CONFIG.replace("FEATURE", feature).replace("SETTING", setting))
        .unwrap();
    // Some tests act as another user, who must get at the folder, whatever lies above it.
    let script = "mount --bind \"$1\" /mnt && cd / && exec \"$2\" -c \"$3\" -p /mnt $4";
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-euc", script, "pjdfstest"])
        .arg(folder)
        .arg(tool("pjdfstest").unwrap())
        .arg(&config)
        .arg(only)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ended = |how| {
        let lines = text.lines().filter_map(move |line| line.trim_end().strip_suffix(how));
        lines.map(|name| name.trim().to_owned()).collect::<BTreeSet<String>>()
    };
    let (passed, failed) = (ended(" ok"), ended(" FAILED"));
    let summary = format!("Summary: {} failed", failed.len());
    assert!(text.contains(&summary), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Executed { passed, failed }
}

/// Two users that every Debian has.
const PJDFSTEST_CONFIG: &str = "
[features]
FEATURE
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
SETTING
[dummy_auth]
entries = [ [\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"] ]
";

/// It has 398 tests.
const EXECUTED: usize = 397;
/// How many links a file can have the C library tells of file systems that it knows.
const NOT_OF_THE_MOUNT: &str = "link::link_count_max";
/// Those that need another file system, or make this one read-only.
const NOT_OF_THE_LOCAL_DISK: [&str; 2] = ["exdev", "erofs"];

/// What Sateen is compared with: `ext4`, or what a container has in its place, of which it is said.
const DISKS: [&str; 4] = ["ext4", "xfs", "btrfs", "overlay"];

/// The type of the file system that a folder is on.
fn file_system_of(folder: &Path) -> String {
    let stat = Command::new("findmnt").args(["-n", "-o", "FSTYPE", "-T"]).arg(folder).output();
    String::from_utf8(stat.unwrap().stdout).unwrap().trim().to_owned()
}

fn calls_do_what_they_do_on_the_local_disk(servers: Servers) {
    if !tools(&["pjdfstest"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "pjdfstest", 1, false) else { return };
    let type_of_local = file_system_of(&rig.local());
    println!("pjdfstest: the local disk is {type_of_local}");
    assert!(DISKS.contains(&type_of_local.as_str()), "{type_of_local} is nothing to compare with");
    let there = pjdfstest(&rig, &rig.local(), "", false);
    fs::create_dir(rig.local().join("other")).unwrap();
    let other = format!("secondary_fs = {:?}", rig.local().join("other"));
    let mut here = pjdfstest(&rig, rig.mnt(), &other, false);
    let read_only = pjdfstest(&rig, rig.mnt(), "", true);
    here.passed.extend(read_only.passed);
    here.failed.extend(read_only.failed);
    for (what, done) in [("the mount", &here), ("the local disk", &there)] {
        let (passed, failed) = (done.passed.len(), done.failed.len());
        println!(
            "pjdfstest on {what}: {} executed, {passed} passed, {failed} failed",
            passed + failed
        );
    }
    let only_here: Vec<_> = here.failed.difference(&there.failed).collect();
    assert!(only_here.is_empty(), "{only_here:?}");
    let (ours, local) = (here.all(), there.all());
    let not_here: Vec<_> =
        local.difference(&ours).filter(|name| **name != NOT_OF_THE_MOUNT).collect();
    assert!(not_here.is_empty(), "executed on the local disk only: {not_here:?}");
    let more: Vec<_> = ours
        .difference(&local)
        .filter(|name| !NOT_OF_THE_LOCAL_DISK.iter().any(|kind| name.contains(kind)))
        .collect();
    assert!(more.is_empty(), "executed on the mount only: {more:?}");
    assert_eq!(ours.len(), EXECUTED, "of pjdfstest's tests were executed");
    rig.end();
}
