//! The rows of docs/semantics.md about times that differ from ext4's: each is as it is written
//! there.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, until};

use crate::BINARY;
use crate::rig::{Rig, Servers, on_both, with_kernel_caches};

on_both!(
    a_write_changes_the_ctime_when_the_mdt_hears_of_it,
    times_before_1901_and_behind_2446_are_kept
);

/// Longer than any step of a clock.
const A_MOMENT: Duration = Duration::from_millis(100);

fn atime(path: &Path) -> (i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.atime(), meta.atime_nsec())
}

fn ctime(path: &Path) -> (i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.ctime(), meta.ctime_nsec())
}

fn read(file: &File) {
    let mut content = [0; 7];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"content");
}

/// By descriptors that are open already, from pages that the kernel has: it tells nobody.
#[test]
fn what_the_kernel_reads_by_itself_sets_no_atime() {
    if !can_mount() {
        return;
    }
    let _kept = with_kernel_caches();
    let mut cluster = Cluster::new(BINARY, "row-pages");
    let (mds, oss) = cluster.start();
    let mount = |cluster: &mut Cluster, option: &str| {
        let mnt = cluster.mount_with(option, &[option]);
        let path = mnt.join(format!("file of {option}"));
        fs::write(&path, b"content").unwrap();
        path
    };
    // The day that has passed since, and a change of the inode.
    let path = mount(&mut cluster, "relatime");
    let long_ago = Timespec { tv_sec: 1000, tv_nsec: 0 };
    let times = Timestamps { last_access: long_ago, last_modification: long_ago };
    let changes: [&dyn Fn(); 2] =
        [&|| utimensat(CWD, &path, &times, AtFlags::empty()).unwrap(), &|| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap()
        }];
    for change in changes {
        let open = File::open(&path).unwrap();
        read(&open);
        std::thread::sleep(A_MOMENT);
        change();
        let before = atime(&path);
        read(&open);
        assert_eq!(atime(&path), before, "nobody has heard of it");
        read(&File::open(&path).unwrap());
        assert!(atime(&path) > before, "by a descriptor that is opened afterwards");
    }
    // Each reading: the first one by each descriptor.
    let path = mount(&mut cluster, "strictatime");
    for _ in 0..2 {
        let before = atime(&path);
        std::thread::sleep(A_MOMENT);
        let open = File::open(&path).unwrap();
        read(&open);
        let first = atime(&path);
        assert!(first > before);
        std::thread::sleep(A_MOMENT);
        read(&open);
        assert_eq!(atime(&path), first, "nobody has heard of the second");
    }
    cluster.finish([oss, mds]);
}

fn a_write_changes_the_ctime_when_the_mdt_hears_of_it(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-ctime", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    fs::write(&here, b"before").unwrap();
    // The MDT hears of the close behind the call, and who wrote of its ctime with the answer.
    until("both show the same", || ctime(&here) == ctime(&there));
    let file = File::options().write(true).open(&here).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    let (written, modified) = (ctime(&here), fs::metadata(&here).unwrap().modified().unwrap());
    std::thread::sleep(A_MOMENT);
    assert_eq!(ctime(&here), written, "who has written knows of no other");
    // Who looks has the MDT ask who has written, and is shown what he says; or, if that was long
    // ago, he has given his lock back and the MDT has heard of it.
    let heard = ctime(&there);
    assert!(heard >= written, "{heard:?}, {written:?}");
    assert!([written, heard].contains(&ctime(&here)));
    // As soon as anybody changes anything of it, it does.
    fs::set_permissions(&there, fs::Permissions::from_mode(0o640)).unwrap();
    let changed = ctime(&there);
    assert!(changed > heard);
    assert_eq!(ctime(&here), changed);
    // The time of the content is when it was written, all along.
    for path in [&here, &there] {
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), modified);
    }
    drop(file);
    rig.end();
}

fn times_before_1901_and_behind_2446_are_kept(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-years", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    fs::write(&here, b"content").unwrap();
    let in_1901 = i64::from(i32::MIN);
    let in_2446 = (i64::from(i32::MAX) + 1) * 7;
    for second in [i64::MIN / 2, in_1901 - 1, -1, 0, in_2446 + 1, 1 << 40, i64::MAX / 2] {
        let [read, written] = [second, second + 1].map(|tv_sec| Timespec { tv_sec, tv_nsec: 7 });
        let times = Timestamps { last_access: read, last_modification: written };
        utimensat(CWD, &here, &times, AtFlags::empty()).unwrap();
        for path in [&here, &there] {
            let meta = fs::metadata(path).unwrap();
            assert_eq!((meta.atime(), meta.atime_nsec()), (second, 7), "{}", path.display());
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (second + 1, 7), "{}", path.display());
        }
    }
    rig.end();
}
