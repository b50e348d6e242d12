//! Requests of 16 MiB, the largest that there are: each goes whole from the program to the OST and
//! back, over TCP and over shared memory, or in as many pieces as its mount is told.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, until};
use sateen_testkit::fuse_limit::FuseLimit;

use crate::trips::counted;
use crate::{BINARY, as_program, bytes, set_param};

const LARGE: usize = 16 << 20;
const PAGE: usize = 4096;

fn open(path: &Path) -> File {
    let direct = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(direct).open(path).unwrap()
}

/// How often the kernel has asked for these, and the mount its OSTs.
fn requests(mount: &Path) -> [u64; 4] {
    let kernel = counted(&run_folder(mount), "fuse.timers");
    let osts = counted(&run_folder(mount), "osc.*.stats");
    let of = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
    [of(&kernel, "write"), of(&kernel, "read"), of(&osts, "ost_write"), of(&osts, "ost_read")]
}

#[test]
fn they_go_whole_over_either_network() {
    if !can_mount() {
        return;
    }
    let Some(_limit) = FuseLimit::set((LARGE / PAGE) as u32).unwrap() else { return };
    let mut cluster = Cluster::new(BINARY, "large");
    cluster.net = None;
    let (mds, oss) = cluster.start();
    let other = cluster.mount("other");
    // Memory that begins a page: the kernel needs no page more for it.
    let mut memory = vec![0; LARGE + PAGE];
    let skew = memory.as_ptr().align_offset(PAGE);
    for net in ["tcp", "shm"] {
        let mnt = cluster.mount_with(net, &[&format!("net={net}"), "max_request=16M"]);
        let reached = ok(as_program("lctl").arg("--data").arg(run_folder(&mnt)).args(["dl", "-t"]));
        let mut oscs = reached.lines().filter(|line| line.contains(" UP osc "));
        assert!(oscs.all(|line| line.ends_with(&format!("@{net}"))), "{reached}");
        set_param(&run_folder(&mnt), "fuse.timers=1");
        for (pages, pieces) in [(4096, 1), (1024, 4)] {
            set_param(&run_folder(&mnt), &format!("osc.*.max_pages_per_rpc={pages}"));
            let name = format!("{net}{pages}");
            let path = mnt.join(&name);
            ok(as_program("lfs").args(["setstripe", "-c", "1", "-S", "16M"]).arg(&path));
            let file = open(&path);
            let content = bytes(LARGE, pages);
            let buffer = &mut memory[skew..skew + LARGE];
            let before = requests(&mnt);
            buffer.copy_from_slice(&content);
            assert_eq!(file.write_at(buffer, 0).unwrap(), LARGE);
            buffer.fill(0);
            assert_eq!(file.read_at(buffer, 0).unwrap(), LARGE);
            assert!(*buffer == content, "over {net}");
            // One is counted when it was answered.
            let mut made = [0; 4];
            until("requests are counted", || {
                made = requests(&mnt);
                made.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
                made[0] > 0 && made[1] > 0
            });
            assert_eq!(made, [1, 1, pieces, pieces], "over {net}, of {pages} pages");
            drop(file);
            assert!(fs::read(other.join(&name)).unwrap() == content, "seen by another");
        }
        cluster.umount(&mnt);
    }
    cluster.finish([oss, mds]);
}
