//! pjdfstest: system calls and their errors, test by test as on ext4: the local disk, or one in a
//! loop device.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use sateen_testkit::disk::{LoopedExt4, type_of};

use crate::rig::{Rig, Servers, on_both, on_given, tool, tools};

on_both!(calls_do_what_they_do_on_ext4);
on_given!(calls_do_what_they_do_on_ext4);

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
    // Those that remount run mount(8), which runs a distribution's mount.fuse where there is one; and
    // that looks for a program of ours.
    let tools = rig.local().join("tools");
    fs::create_dir_all(&tools).unwrap();
    let mount = r#"printf '%s\n' '#!/bin/sh' 'PATH=${PATH#*:} exec mount -i "$@"' >"$5/mount""#;
    let script = format!(
        "mount --bind \"$1\" /mnt && {mount} && chmod +x \"$5/mount\" && export PATH=\"$5:$PATH\" && \
         cd / && exec \"$2\" -c \"$3\" -p /mnt $4"
    );
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-euc", &script, "pjdfstest"])
        .arg(folder)
        .arg(tool("pjdfstest").unwrap())
        .arg(&config)
        .arg(only)
        .arg(tools)
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
const NOT_OF_THE_DISK: [&str; 2] = ["exdev", "erofs"];

/// What a mount is compared with.
const EXT4: &str = "ext4";
/// Room for all that pjdfstest makes.
const EXT4_MIB: u64 = 256;

fn calls_do_what_they_do_on_ext4(servers: Servers) {
    if !tools(&["pjdfstest"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "pjdfstest", 1, false) else { return };
    let local = rig.local();
    let type_of_local = type_of(&local).unwrap();
    // Goes before the folders.
    let looped = (type_of_local != EXT4).then(|| LoopedExt4::below(&local, EXT4_MIB));
    let disk = match &looped {
        None => local.clone(),
        Some(Ok(looped)) => looped.path().to_owned(),
        Some(Err(error)) => {
            sateen_testkit::skipped(format_args!("no ext4 to compare with: {error:#}"));
            return;
        }
    };
    let kind = type_of(&disk).unwrap();
    assert_eq!(kind, EXT4);
    let there = pjdfstest(&rig, &disk, "", false);
    fs::create_dir(local.join("other")).unwrap();
    let other = format!("secondary_fs = {:?}", local.join("other"));
    let mut here = pjdfstest(&rig, rig.mnt(), &other, false);
    let read_only = pjdfstest(&rig, rig.mnt(), "", true);
    here.passed.extend(read_only.passed);
    here.failed.extend(read_only.failed);
    let sums = [&here, &there].map(|done| {
        let (passed, failed) = (done.passed.len(), done.failed.len());
        format!("{} executed, {passed} passed, {failed} failed", passed + failed)
    });
    let where_it_is = if looped.is_some() { "in a loop device" } else { "the local disk" };
    println!(
        "shown: pjdfstest on a mount, {servers:?}: {}; on {kind} ({where_it_is}): {}",
        sums[0], sums[1]
    );
    let only_here: Vec<_> = here.failed.difference(&there.failed).collect();
    assert!(only_here.is_empty(), "{only_here:?}");
    let (ours, its) = (here.all(), there.all());
    let not_here: Vec<_> =
        its.difference(&ours).filter(|name| **name != NOT_OF_THE_MOUNT).collect();
    assert!(not_here.is_empty(), "executed on ext4 only: {not_here:?}");
    let more: Vec<_> = ours
        .difference(&its)
        .filter(|name| !NOT_OF_THE_DISK.iter().any(|kind| name.contains(kind)))
        .collect();
    assert!(more.is_empty(), "executed on the mount only: {more:?}");
    assert_eq!(ours.len(), EXECUTED, "of pjdfstest's tests were executed");
    drop(looped);
    rig.end();
}
