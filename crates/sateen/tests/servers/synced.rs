//! The row of docs/semantics.md about `syncfs`: what is asked of the servers by whoever syncs a
//! whole mount.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder};

use crate::{BINARY, as_program};

/// Requests of a kind that a mount has sent to targets of a kind, `mdc` or `osc`.
pub(crate) fn sent(mnt: &Path, targets: &str, kind: &str) -> u64 {
    let stats = format!("{targets}.*.stats");
    let mut lctl = as_program("lctl");
    let shown = ok(lctl.arg("--data").arg(run_folder(mnt)).args(["get_param", "-n", &stats]));
    let lines = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words[0] == kind).map(|words| words[1].parse::<u64>().unwrap()).sum()
}

#[test]
fn only_sateen_sync_syncs_a_mount() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "syncfs");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    // With a file on each OST, one of them still open.
    for (name, ost) in [("one", "0"), ("two", "1")] {
        ok(as_program("lfs").args(["setstripe", "-c", "1", "-i", ost]).arg(mnt.join(name)));
        fs::write(mnt.join(name), b"content").unwrap();
    }
    let open = File::options().write(true).open(mnt.join("two")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, b"more", 0).unwrap();
    let synced = || [sent(&mnt, "mdc", "mds_sync"), sent(&mnt, "osc", "ost_sync")];
    let before = synced();
    rustix::fs::syncfs(&open).unwrap();
    ok(Command::new("sync").arg("-f").arg(mnt.join("one")));
    assert_eq!(synced(), before, "the kernel says nothing of it");
    ok(Command::new(BINARY).arg("sync").arg(&mnt));
    let after = synced();
    assert!(after[0] > before[0], "the MDT was asked: {before:?}, {after:?}");
    assert!(after[1] >= before[1] + 2, "and each OST: {before:?}, {after:?}");
    drop(open);
    cluster.finish([oss, mds]);
}
