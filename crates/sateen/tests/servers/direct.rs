//! What programs write and read with `O_DIRECT` goes past the page caches of the OSTs, and is right.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok};

use crate::{BINARY, as_program};

/// Bytes of files below a folder that are in memory.
fn resident(folder: &Path) -> u64 {
    let mut find = Command::new("find");
    let all = ok(find.arg(folder).args(["-type", "f"]));
    if all.is_empty() {
        return 0;
    }
    let mut fincore = Command::new("fincore");
    fincore.args(["--bytes", "--noheadings", "--output", "RES"]).args(all.lines());
    ok(&mut fincore).lines().map(|line| line.trim().parse::<u64>().unwrap()).sum()
}

fn dd(from: &Path, to: &Path, words: &[&str]) {
    let mut dd = Command::new("dd");
    let (from, to) = (format!("if={}", from.display()), format!("of={}", to.display()));
    // A whole number of records: the last one is as the others.
    ok(dd.args([&from, &to]).args(["bs=4M", "status=none", "conv=notrunc"]).args(words));
}

#[test]
fn a_program_that_asks_for_it_goes_past_the_osts_page_caches() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "direct");
    cluster.net = None;
    let (mds, oss) = cluster.start();
    let osts: Vec<PathBuf> =
        ["ost0", "ost1"].iter().map(|ost| cluster.path(ost).join("objects")).collect();
    let in_memory = || osts.iter().map(|ost| resident(ost)).sum::<u64>();
    let (source, back) = (cluster.path("source"), cluster.path("back"));
    let pattern: Vec<u8> = (0..8 << 20_u32).map(|at| ((at / 4096) ^ at) as u8).collect();
    fs::write(&source, &pattern).unwrap();
    for net in ["tcp", "shm"] {
        let mnt = cluster.mount_with(net, &[&format!("net={net}")]);
        let file = mnt.join(net);
        ok(as_program("lfs").args(["setstripe", "-c", "2", "-S", "1M"]).arg(&file));
        let before = in_memory();
        dd(&source, &file, &["oflag=direct"]);
        assert_eq!(in_memory(), before, "written over {net}");
        dd(&file, &back, &["iflag=direct"]);
        assert_eq!(in_memory(), before, "read over {net}");
        assert!(fs::read(&back).unwrap() == pattern, "over {net}");
        // Who does not ask for it goes through them.
        dd(&file, &back, &[]);
        assert!(in_memory() >= before + pattern.len() as u64, "over {net}");
        assert!(fs::read(&back).unwrap() == pattern, "over {net}");
    }
    cluster.finish([oss, mds]);
}
