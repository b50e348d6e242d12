//! Mounts of a directory of a file system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, refused, text};

use crate::{BINARY, as_program};

#[test]
fn a_directory_is_mounted_as_if_there_were_nothing_above_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "below");
    let (mds, oss) = cluster.start();
    let all = cluster.mount("all");
    fs::create_dir_all(all.join("a/b/c")).unwrap();
    fs::write(all.join("a/b/file"), b"file").unwrap();
    std::os::unix::fs::symlink("b", all.join("a/link")).unwrap();

    let point = cluster.path("below");
    fs::create_dir(&point).unwrap();
    let source = |below: &str| format!("{}/{below}", cluster.source());
    let mount = |below: &str| {
        let mut command = as_program("mount.sateen");
        command.arg(source(below)).arg(&point);
        command
    };
    for (below, why) in [
        ("a/nothing/c", "no directory /a/nothing"),
        ("a/b/file", "/a/b/file of the file system is no directory"),
        ("a/link/c", "/a/link of the file system is no directory"),
        ("a/../a", "from the top"),
    ] {
        let said = refused(&mut mount(below));
        assert!(said.contains(why), "{said}");
    }
    ok(mount("a/b").args(["-o", "retry=2"]));
    let shown = source("a/b");
    cluster.mounts.push(point.clone());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let is_it = |line: &str| line.starts_with(&shown) && line.contains(point.to_str().unwrap());
    assert!(mounts.lines().any(is_it), "{mounts}");

    // The same inodes, under the same numbers; nothing above.
    for name in ["", "c", "file"] {
        let (here, there) = (point.join(name), all.join("a/b").join(name));
        let (here, there) = (fs::metadata(here).unwrap(), fs::metadata(there).unwrap());
        assert_eq!((here.ino(), here.mode()), (there.ino(), there.mode()), "{name}");
    }
    let listed = ok(Command::new("ls").arg("-ai").arg(&point));
    let number = |name: &str| {
        let row = listed.lines().find(|row| row.ends_with(&format!(" {name}"))).unwrap();
        row.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(number("."), fs::metadata(all.join("a/b")).unwrap().ino().to_string());
    // What `ls -i` says of `..` at a mount point is the folder above it: see what is inside.
    let inside = ok(Command::new("ls").arg("-ai").arg(point.join("c")));
    assert!(
        inside.lines().any(|row| row.trim_start() == format!("{} ..", number("."))),
        "{inside}"
    );

    // Both see what the other does, also to the directory itself.
    fs::write(point.join("made below"), b"1").unwrap();
    assert_eq!(fs::read(all.join("a/b/made below")).unwrap(), b"1");
    fs::write(all.join("a/b/made above"), b"2").unwrap();
    assert_eq!(fs::read(point.join("made above")).unwrap(), b"2");
    fs::rename(all.join("a/b"), all.join("moved")).unwrap();
    assert_eq!(fs::read(point.join("file")).unwrap(), b"file");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o750);
    fs::set_permissions(all.join("moved"), permissions).unwrap();
    assert_eq!(fs::metadata(&point).unwrap().mode() & 0o7777, 0o750);
    ok(as_program("lfs").arg("getstripe").arg(point.join("file")));
    // Paths of FIDs are those of the mount that is asked.
    let fid = |path: &Path| ok(as_program("lfs").arg("path2fid").arg(path)).trim().to_owned();
    let path = |mount: &Path, fid: &str| {
        let mut command = as_program("lfs");
        command.arg("fid2path").arg(mount).arg(fid);
        command
    };
    let file = fid(&point.join("file"));
    assert_eq!(ok(&mut path(&point, &file)).trim(), point.join("file").to_str().unwrap());
    assert_eq!(ok(&mut path(&all, &file)).trim(), all.join("moved/file").to_str().unwrap());
    assert_eq!(ok(&mut path(&point, &fid(&point))).trim(), point.to_str().unwrap());
    let outside = path(&point, &fid(&all.join("a"))).output().unwrap();
    let said = text(&outside);
    assert!(outside.status.code() == Some(2) && said.contains("not below"), "{said}");
    cluster.finish([oss, mds]);
}
