//! forgetfs forgets what it should and nothing else. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use sateen_testkit::can_mount;
use sateen_testkit::forgetfs::{ForgetFs, Loss};

struct Disk {
    path: PathBuf,
    fs: Option<ForgetFs>,
}

impl Disk {
    fn new(name: &str) -> Disk {
        let path = std::env::temp_dir().join(format!("forgetfs-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Disk { fs: Some(ForgetFs::mount(&path).unwrap()), path }
    }

    fn cut(&mut self, loss: Loss) {
        self.fs.as_mut().unwrap().cut(loss).unwrap();
    }

    fn sync_root(&self) {
        File::open(&self.path).unwrap().sync_all().unwrap();
    }

    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(&self.path).unwrap();
        let mut all: Vec<String> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.fs = None;
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn data_and_names_are_forgotten_unless_synced() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("plain");
    let path = |name: &str| disk.path.join(name);
    let (unsynced, nameless, kept, half) =
        (path("unsynced"), path("nameless"), path("kept"), path("half"));
    fs::write(&kept, b"kept").unwrap();
    File::open(&kept).unwrap().sync_all().unwrap();
    fs::write(&unsynced, b"data without a sync").unwrap();
    let mut file = File::create(&half).unwrap();
    file.write_all(b"first").unwrap();
    file.sync_data().unwrap();
    file.write_all(b" second").unwrap();
    disk.sync_root();
    fs::write(&nameless, b"synced, but not its name").unwrap();
    File::open(&nameless).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(File::open(&disk.path).unwrap()).unwrap();
    drop(file);
    disk.cut(Loss::All);
    assert_eq!(disk.names(), ["half", "kept", "unsynced"]);
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    assert_eq!(fs::read(&half).unwrap(), b"first");
    assert_eq!(fs::read(&unsynced).unwrap(), b"");
}

#[test]
fn renames_and_removals_come_back_unless_synced() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("names");
    let path = |name: &str| disk.path.join(name);
    let (a, b, d) = (path("a"), path("b"), path("d"));
    for (name, bytes) in [(&a, b"a"), (&b, b"b")] {
        fs::write(name, bytes).unwrap();
        File::open(name).unwrap().sync_all().unwrap();
    }
    fs::create_dir(&d).unwrap();
    fs::write(d.join("inside"), b"").unwrap();
    disk.sync_root();
    fs::rename(&a, &b).unwrap();
    fs::remove_file(d.join("inside")).unwrap();
    fs::remove_dir(&d).unwrap();
    disk.cut(Loss::All);
    assert_eq!(disk.names(), ["a", "b", "d"]);
    assert_eq!(fs::read(&b).unwrap(), b"b", "what was replaced is back");
    assert_eq!(fs::read_dir(&d).unwrap().count(), 0, "the folder's own entry was never synced");
    fs::rename(&a, &b).unwrap();
    disk.sync_root();
    disk.cut(Loss::All);
    assert_eq!(disk.names(), ["b", "d"]);
    assert_eq!(fs::read(&b).unwrap(), b"a");
}

#[test]
fn direct_and_synchronous_writes_work() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("modes");
    let path = |name: &str| disk.path.join(name);
    let (direct, through, unsynced) = (path("direct"), path("through"), path("unsynced"));
    let open = |path: &PathBuf, flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(path).unwrap()
    };
    let page = [5; 8192];
    let file = open(&direct, libc::O_DIRECT);
    file.write_all_at(&page, 4096).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[6; 4096], 4096).unwrap();
    drop(file);
    open(&through, libc::O_DSYNC).write_all_at(b"through", 0).unwrap();
    let file = open(&unsynced, 0);
    file.set_len(4096).unwrap();
    let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, keep, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4096);
    file.write_all_at(b"y", 0).unwrap();
    disk.sync_root();
    drop(file);
    disk.cut(Loss::All);
    let found = fs::read(&direct).unwrap();
    assert!(found.len() == 12288 && found[..4096] == [0; 4096] && found[4096..] == page);
    assert_eq!(fs::read(&through).unwrap(), b"through");
    assert_eq!(fs::read(&unsynced).unwrap(), b"");
}

#[test]
fn a_part_of_it_may_stay_and_a_sector_is_whole() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("some");
    let path = disk.path.join("file");
    fs::write(&path, [1; 65536]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    disk.sync_root();
    let (mut old, mut new, mut torn, mut names) = (0, 0, 0, [0; 4]);
    for seed in 0..20 {
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[2; 65536], 0).unwrap();
        for name in ["x", "y", "z"] {
            fs::write(disk.path.join(name), b"").unwrap();
        }
        disk.cut(Loss::Some { seed });
        let found = fs::read(&path).unwrap();
        assert_eq!(found.len(), 65536);
        for page in found.chunks(4096) {
            assert!(page.chunks(512).all(|s| s.iter().all(|b| *b == s[0] && (1..=2).contains(b))));
            match (page[0], page[4095]) {
                (1, 1) => old += 1,
                (2, 2) => new += 1,
                _ => torn += 1,
            }
        }
        let left = disk.names().len() - 1;
        assert_eq!(disk.names()[1..], ["x", "y", "z"][..left], "the first of the changes");
        names[left] += 1;
        fs::write(&path, [1; 65536]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        for name in ["x", "y", "z"] {
            let _ = fs::remove_file(disk.path.join(name));
        }
        disk.sync_root();
    }
    assert!(old > 20 && new > 20 && torn > 20, "{old} {new} {torn}");
    assert!(names.iter().filter(|count| **count > 0).count() > 2, "{names:?}");
}

/// From some change on everything fails, also what reads; what was synced before is there again.
#[test]
fn it_fails_when_it_shall_and_lies_when_it_shall() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("fails");
    let (one, two) = (disk.path.join("one"), disk.path.join("two"));
    let eio = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(libc::EIO);
    fs::write(&one, b"one").unwrap();
    disk.fs.as_ref().unwrap().lie_about(|name| name == "two");
    // A file is made, written and synced, and so is the folder.
    disk.fs.as_ref().unwrap().fail_after(4);
    let mut file = File::create(&two).unwrap();
    file.write_all(b"two").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(!disk.fs.as_ref().unwrap().fails());
    disk.sync_root();
    assert!(disk.fs.as_ref().unwrap().fails());
    assert!(eio(fs::write(disk.path.join("three"), b"")));
    assert!(eio(fs::read_dir(&disk.path).map(drop)));
    disk.fs.as_mut().unwrap().remount().unwrap();
    assert_eq!((fs::read(&one).unwrap(), fs::read(&two).unwrap()), (b"one".into(), b"two".into()));
    assert_eq!(disk.names(), ["one", "two"]);
    disk.cut(Loss::All);
    assert_eq!(disk.names(), ["one", "two"]);
    assert!(fs::read(&two).unwrap().is_empty(), "a sync that was none");
    disk.fs.as_ref().unwrap().fail_after_renames(2);
    let three = disk.path.join("three");
    fs::rename(&one, &three).unwrap();
    fs::rename(&three, &one).unwrap();
    assert!(eio(fs::rename(&one, &three)));
    disk.fs.as_mut().unwrap().remount().unwrap();
    assert_eq!(disk.names(), ["one", "two"]);
}
