//! Calls that few programs make, held against the local disk. `SEED` repeats a run.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, fallocate, linkat, openat,
    renameat_with, seek,
};
use sateen_testkit::cluster::until;
use sateen_testkit::random::Random;

use crate::BINARY;
use crate::rig::{Rig, Servers, copy_program, on_both, on_given};

on_both!(
    holes_are_where_the_local_disk_has_them,
    space_is_set_aside_and_given_back,
    files_without_a_name,
    a_rename_leaves_a_whiteout,
    reading_sets_the_atime,
    what_is_removed_right_after_its_close_leaves_nothing,
    a_program_that_runs_is_not_written_from_another_mount,
    supplementary_groups_count,
    a_socket_is_connected_to_on_its_mount,
    a_private_mapping_is_the_programs_own,
    the_space_is_that_of_the_osts,
);
on_given!(
    holes_are_where_the_local_disk_has_them,
    space_is_set_aside_and_given_back,
    files_without_a_name,
    what_is_removed_right_after_its_close_leaves_nothing,
    a_private_mapping_is_the_programs_own
);

/// What is set aside to be seen by `statfs`, beside what others on the machine write meanwhile.
const SET_ASIDE: u64 = 1 << 30;
/// What file systems reckon holes in.
const BLOCK: u64 = 4096;

fn seed(name: &str) -> Random {
    println!("{name}:");
    Random::new(sateen_testkit::seed())
}

fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// An empty file with so many stripes of 64 KiB.
fn striped(path: &Path, stripes: u64) -> File {
    let mut lfs = Command::new(BINARY);
    lfs.args(["lfs", "setstripe", "-S", "65536", "-c", &stripes.to_string()]).arg(path);
    let output = lfs.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    read_write(path)
}

/// The pieces of a file that have data, as `lseek` finds them.
fn pieces(file: &File) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return found,
            Err(error) => panic!("{error} at {at}"),
        };
        at = seek(file, SeekFrom::Hole(data)).unwrap();
        assert!(data < at, "a piece of data is not empty");
        found.push((data, at));
    }
}

/// One of the first so many changes, the same of both. Not every local disk can empty a range.
fn change(files: [&File; 2], random: &mut Random, (ways, empties): (u64, bool)) -> String {
    let offset = random.below(200) * BLOCK;
    let len = (1 + random.below(40)) * BLOCK;
    let what = match random.below(ways) {
        12 | 14 if !empties => 13,
        what => what,
    };
    for file in files {
        match what {
            0..=5 => file.write_all_at(&vec![7; len as usize], offset).unwrap(),
            6..=8 => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, hole, offset, len).unwrap();
            }
            9 => file.set_len(offset).unwrap(),
            10 => file.set_len(offset + len).unwrap(),
            11 => file.sync_all().unwrap(),
            12 => fallocate(file, FallocateFlags::ZERO_RANGE, offset, len).unwrap(),
            13 => fallocate(file, FallocateFlags::KEEP_SIZE, offset, len).unwrap(),
            _ => {
                let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                fallocate(file, keep, offset, len).unwrap();
            }
        }
    }
    format!("{what} {offset}+{len}")
}

fn holes_are_where_the_local_disk_has_them(servers: Servers) {
    let Some(rig) = Rig::start(servers, "holes", 2, false) else { return };
    let mut random = seed("holes");
    for stripes in 1..=4 {
        let name = format!("file{stripes}");
        let here = striped(&rig.mnt().join(&name), stripes);
        let there = read_write(&rig.local().join(&name));
        let other = rig.mounts()[1].join(&name);
        let empties = fallocate(&there, FallocateFlags::ZERO_RANGE, 0, BLOCK).is_ok();
        there.set_len(0).unwrap();
        let mut done = Vec::new();
        for round in 0..60 {
            done.push(change([&here, &there], &mut random, (12, empties)));
            assert_eq!(pieces(&here), pieces(&there), "{stripes} stripes: {done:?}");
            if round % 10 == 0 {
                assert_eq!(pieces(&File::open(&other).unwrap()), pieces(&there), "elsewhere");
            }
        }
        for at in [0, BLOCK + 1, here.metadata().unwrap().len(), 1 << 62] {
            for to in [SeekFrom::Data(at), SeekFrom::Hole(at)] {
                assert_eq!(seek(&here, to), seek(&there, to), "{to:?}");
            }
        }
        // Where space is set aside file systems may find a hole or data, but never lose any.
        for round in 0..60 {
            done.push(change([&here, &there], &mut random, (15, empties)));
            let right = fs::read(rig.local().join(&name)).unwrap();
            assert!(fs::read(rig.mnt().join(&name)).unwrap() == right, "{done:?}");
            let mut kept = vec![0; right.len()];
            let seen = if round % 10 == 0 { &File::open(&other).unwrap() } else { &here };
            for (from, to) in pieces(seen) {
                let range = from as usize..to as usize;
                kept[range.clone()].copy_from_slice(&right[range]);
            }
            assert!(kept == right, "{stripes} stripes: {done:?}");
        }
    }
    rig.end();
}

/// Changes the space of a file, such that doing it again changes nothing. A call that has taken
/// longer is done again: how much space came or went the OSTs are asked at its end, and not waited
/// for longer than a second.
fn counted(change: impl Fn() -> rustix::io::Result<()>) {
    let in_time = (0..60).any(|_| {
        let begun = Instant::now();
        change().unwrap();
        begun.elapsed() < Duration::from_secs(1)
    });
    assert!(in_time, "each call takes seconds");
}

/// What is set aside, emptied and freed is counted, and reads as it should everywhere.
fn space_is_set_aside_and_given_back(servers: Servers) {
    let Some(rig) = Rig::start(servers, "space", 2, false) else { return };
    let path = rig.mnt().join("file");
    let file = striped(&path, 2);
    let other = rig.mounts()[1].join("file");
    let blocks = || file.metadata().unwrap().blocks() / 8;
    file.write_all_at(&[7; 64 << 12], 0).unwrap();
    assert_eq!(blocks(), 64);
    let change = |flags, at: u64, len: u64| fallocate(&file, flags, at * BLOCK, len * BLOCK);
    let (keep, hole) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
    let zero = FallocateFlags::ZERO_RANGE;
    counted(|| change(hole | keep, 8, 32));
    assert_eq!(blocks(), 32);
    counted(|| change(zero, 0, 4));
    assert_eq!(blocks(), 32, "it keeps its space");
    counted(|| change(zero | keep, 60, 10));
    assert_eq!((blocks(), file.metadata().unwrap().len()), (38, 64 * BLOCK));
    counted(|| change(zero, 60, 10));
    assert_eq!((blocks(), file.metadata().unwrap().len()), (38, 70 * BLOCK));
    let mut right = vec![7; 64 << 12];
    right.resize(70 << 12, 0);
    for emptied in [0..4, 8..40, 60..64] {
        right[emptied.start << 12..emptied.end << 12].fill(0);
    }
    assert!(fs::read(&path).unwrap() == right && fs::read(&other).unwrap() == right);
    assert_eq!(fs::metadata(&other).unwrap().blocks() / 8, 38);
    let refused = Err(rustix::io::Errno::OPNOTSUPP);
    assert_eq!(change(hole, 0, 1), refused);
    assert_eq!(change(FallocateFlags::COLLAPSE_RANGE, 0, 1), refused);
    assert_eq!(change(FallocateFlags::INSERT_RANGE, 0, 1), refused);
    assert_eq!(change(zero, 0, 0), Err(rustix::io::Errno::INVAL));
    let too_far = fallocate(&file, zero, i64::MAX as u64 - 10, 100);
    assert_eq!(too_far, Err(rustix::io::Errno::FBIG));
    let read_only = File::open(&path).unwrap();
    assert_eq!(fallocate(&read_only, zero, 0, BLOCK), Err(rustix::io::Errno::BADF));
    drop((file, read_only));
    rig.end();
}

/// What lies in a folder.
fn names(path: &Path) -> Vec<String> {
    let all = fs::read_dir(path).unwrap();
    let mut all: Vec<_> =
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

fn tmpfile(folder: &Path, flags: OFlags) -> File {
    let flags = flags | OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    File::from(openat(CWD, folder, flags, Mode::from(0o640)).unwrap())
}

/// Gives an open file a name by way of its descriptor.
fn link_open(file: &File, to: &Path) -> rustix::io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, fd, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

fn files_without_a_name(servers: Servers) {
    let Some(rig) = Rig::start(servers, "tmpfile", 2, false) else { return };
    let (mnt, other) = (rig.mnt(), &rig.mounts()[1]);
    let file = tmpfile(mnt, OFlags::empty());
    file.write_all_at(b"secret", 0).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 6));
    assert!(names(mnt).is_empty());
    drop(file);
    // It gets a name, and another one, in both ways.
    let file = tmpfile(mnt, OFlags::empty());
    file.write_all_at(b"kept", 0).unwrap();
    link_open(&file, &mnt.join("one")).unwrap();
    assert_eq!(fs::read(other.join("one")).unwrap(), b"kept");
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    linkat(&file, "", CWD, mnt.join("two"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::metadata(other.join("one")).unwrap().nlink(), 2);
    file.write_all_at(b"more", 4).unwrap();
    drop(file);
    assert_eq!(fs::read(other.join("two")).unwrap(), b"keptmore");
    assert_eq!(fs::metadata(mnt.join("two")).unwrap().mode() & 0o777, 0o640);
    // Not if it was opened so, and not if another has the name.
    let file = tmpfile(mnt, OFlags::EXCL);
    assert_eq!(link_open(&file, &mnt.join("three")), Err(rustix::io::Errno::NOENT));
    let taken = tmpfile(mnt, OFlags::empty());
    assert_eq!(link_open(&taken, &mnt.join("one")), Err(rustix::io::Errno::EXIST));
    link_open(&taken, &mnt.join("three")).unwrap();
    fs::remove_file(mnt.join("three")).unwrap();
    assert_eq!(link_open(&taken, &mnt.join("four")), Err(rustix::io::Errno::NOENT));
    for at in ["one", "nothing"] {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let there = openat(CWD, mnt.join(at), flags, Mode::from(0o600)).map(drop);
        let right = openat(CWD, rig.local().join("disk/nothing"), flags, Mode::from(0o600));
        let right = if at == "one" { Err(rustix::io::Errno::NOTDIR) } else { right.map(drop) };
        assert_eq!(there, right, "{at}");
    }
    // All of it is gone after kill -9, but for what has a name and was synced.
    let synced = tmpfile(mnt, OFlags::empty());
    synced.write_all_at(&[5; 3 << 20], 0).unwrap();
    link_open(&synced, &mnt.join("synced")).unwrap();
    synced.sync_all().unwrap();
    File::open(mnt).unwrap().sync_all().unwrap();
    match &rig {
        Rig::Embedded(program) | Rig::Given { program, .. } => {
            program.kill(program.pid().unwrap(), || ()).unwrap();
            program.fsck().unwrap();
            drop((file, taken, synced));
            program.up().unwrap();
        }
        // What killed servers have lost is for other tests to see.
        Rig::Separate { .. } => drop((file, taken, synced)),
    }
    assert_eq!(names(mnt), ["one", "synced", "two"]);
    assert!(fs::read(mnt.join("synced")).unwrap() == [5; 3 << 20]);
    rig.end();
}

fn a_rename_leaves_a_whiteout(servers: Servers) {
    let Some(rig) = Rig::start(servers, "whiteout", 2, false) else { return };
    let (mnt, other) = (rig.mnt(), &rig.mounts()[1]);
    fs::write(mnt.join("old"), "text").unwrap();
    fs::create_dir(mnt.join("dir")).unwrap();
    assert_eq!(fs::read(other.join("old")).unwrap(), b"text");
    let rename =
        |from: &str, to: &str, flags| renameat_with(CWD, mnt.join(from), CWD, mnt.join(to), flags);
    let whiteout = RenameFlags::WHITEOUT;
    rename("old", "dir/new", whiteout).unwrap();
    for folder in [mnt, other] {
        let left = fs::symlink_metadata(folder.join("old")).unwrap();
        assert_eq!((left.mode(), left.rdev(), left.nlink()), (0o020_000, 0, 1));
        assert_eq!(fs::read(folder.join("dir/new")).unwrap(), b"text");
    }
    let exists = Err(rustix::io::Errno::EXIST);
    assert_eq!(rename("dir/new", "old", whiteout | RenameFlags::NOREPLACE), exists);
    let invalid = Err(rustix::io::Errno::INVAL);
    assert_eq!(rename("dir/new", "old", whiteout | RenameFlags::EXCHANGE), invalid);
    rename("dir/new", "old", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(other.join("old")).unwrap(), b"text");
    assert!(names(&other.join("dir")).is_empty());
    rig.end();
}

/// The kernel waits for no close. That the file has objects must reach the MDT all the same,
/// before it has to have them removed: the check at the end looks for what is left.
fn what_is_removed_right_after_its_close_leaves_nothing(servers: Servers) {
    let Some(rig) = Rig::start(servers, "at-once", 1, false) else { return };
    for number in 0..100 {
        let path = rig.mnt().join(format!("file{number}"));
        let file = File::create(&path).unwrap();
        // Not from front to back: how much space it takes is asked for at the close.
        file.write_all_at(&[1; 5000], 200_000).unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        drop(file);
        fs::remove_file(&path).unwrap();
    }
    assert!(names(rig.mnt()).is_empty());
    rig.end();
}

fn reading_sets_the_atime(servers: Servers) {
    let Some(rig) = Rig::start(servers, "atime", 2, false) else { return };
    let (path, other) = (rig.mnt().join("file"), rig.mounts()[1].join("file"));
    fs::write(&path, [1; 10_000]).unwrap();
    let meta = || fs::metadata(&path).unwrap();
    let written = meta();
    assert!(written.accessed().unwrap() <= written.modified().unwrap());
    assert_eq!(fs::metadata(&other).unwrap().accessed().unwrap(), written.accessed().unwrap());
    fs::read(&path).unwrap();
    let read = meta();
    assert!(read.accessed().unwrap() > written.accessed().unwrap(), "at once");
    assert_eq!(read.modified().unwrap(), written.modified().unwrap());
    let seen = || fs::metadata(&other).unwrap().accessed().unwrap() == read.accessed().unwrap();
    until("it is seen on another mount, too, after the close", seen);
    fs::read(&path).unwrap();
    fs::read(&other).unwrap();
    assert_eq!(meta().accessed().unwrap(), read.accessed().unwrap(), "it was newer than the rest");
    // It is set if it is a day old, or if the inode was changed; not with O_NOATIME.
    let day = Duration::from_secs(25 * 3600);
    let set = |atime| {
        let times = fs::FileTimes::new().set_accessed(atime).set_modified(atime - day);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    };
    let yesterday = read.accessed().unwrap() - day;
    set(yesterday);
    assert_eq!(meta().accessed().unwrap(), yesterday);
    let quiet = openat(CWD, &path, OFlags::RDONLY | OFlags::NOATIME, Mode::empty()).unwrap();
    File::from(quiet).read_at(&mut [0; 10], 0).unwrap();
    assert_eq!(meta().accessed().unwrap(), yesterday);
    File::open(&path).unwrap().read_at(&mut [0; 10], 0).unwrap();
    assert!(meta().accessed().unwrap() > yesterday + day);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let changed = meta();
    File::open(&path).unwrap().read_at(&mut [0; 10], 0).unwrap();
    assert!(meta().accessed().unwrap() > changed.accessed().unwrap());
    // Directories.
    let dir = rig.mnt().join("dir");
    fs::create_dir(&dir).unwrap();
    let made = fs::metadata(&dir).unwrap().accessed().unwrap();
    names(&dir);
    let listed = fs::metadata(&dir).unwrap().accessed().unwrap();
    assert!(listed > made);
    names(&dir);
    assert_eq!(fs::metadata(&dir).unwrap().accessed().unwrap(), listed);
    rig.end();
}

fn a_program_that_runs_is_not_written_from_another_mount(servers: Servers) {
    let Some(rig) = Rig::start(servers, "busy", 2, false) else { return };
    let (here, there) = (rig.mnt().join("sleep"), rig.mounts()[1].join("sleep"));
    copy_program("/bin/sleep", &here);
    let mut running = Command::new(&here).arg("600").spawn().unwrap();
    let write = || File::options().write(true).open(&there).map(drop);
    let busy = |result: std::io::Result<()>| {
        result.unwrap_err().raw_os_error() == Some(rustix::io::Errno::TXTBSY.raw_os_error())
    };
    assert!(busy(write()));
    assert!(busy(File::create(&there).map(drop)));
    assert!(fs::read(&there).unwrap() == fs::read("/bin/sleep").unwrap());
    running.kill().unwrap();
    running.wait().unwrap();
    // The kernel says later that nobody runs it any more.
    until("it can be written", || write().is_ok());
    // What was open here may be for a moment in a program that another test is just starting.
    until("it can be executed", || {
        Command::new(&there).arg("0").status().is_ok_and(|status| status.success())
    });
    rig.end();
}

/// As a user who has more groups than his first, and as one who has not: what each may do, from
/// a working directory that he need not find a way to.
const AS_A_MEMBER: &str = r#"
chdir($ARGV[0]) or die; my $groups = $ARGV[1];
$) = "1000 $groups"; $> = 1000; $> == 1000 or die "$!";
sub try { my ($what, $done) = @_; print "$what: ", ($done ? "done" : "$!"), "\n" }
try('read', open(my $f, '<', 'secret'));
try('write', open($f, '>>', 'secret'));
try('list', opendir(my $d, 'shared'));
try('make', open($f, '>', "shared/made$groups"));
print "group: ", (stat("shared/made$groups"))[5] // 'none', "\n";
try('change group', chown(-1, 2000, "shared/made$groups") == 1);
try('not a member of', chown(-1, 3000, "shared/made$groups") == 1);
"#;

fn supplementary_groups_count(servers: Servers) {
    let Some(rig) = Rig::start(servers, "groups", 1, false) else { return };
    let said = |folder: &Path, groups: &str| {
        let mut perl = Command::new("perl");
        let output = perl.args(["-e", AS_A_MEMBER]).arg(folder).arg(groups).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for folder in [rig.mnt(), &rig.local()] {
        fs::write(folder.join("secret"), b"secret").unwrap();
        fs::create_dir(folder.join("shared")).unwrap();
        for (name, mode) in [("secret", 0o640), ("shared", 0o2770)] {
            let path = folder.join(name);
            std::os::unix::fs::chown(&path, None, Some(2000)).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
    }
    let member = said(rig.mnt(), "1000 2000");
    assert!(member.contains("read: done\nwrite: Permission denied\nlist: done"), "{member}");
    assert!(member.contains("make: done\ngroup: 2000\n"), "{member}");
    assert_eq!(member, said(&rig.local(), "1000 2000"));
    let other = said(rig.mnt(), "1000 4000");
    assert!(other.contains("read: Permission denied"), "{other}");
    assert_eq!(other, said(&rig.local(), "1000 4000"));
    rig.end();
}

fn a_socket_is_connected_to_on_its_mount(servers: Servers) {
    let Some(rig) = Rig::start(servers, "socket", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("socket"));
    let listener = UnixListener::bind(&here).unwrap();
    assert!(fs::symlink_metadata(&there).unwrap().file_type().is_socket());
    let mut calling = UnixStream::connect(&here).unwrap();
    let (mut called, _) = listener.accept().unwrap();
    calling.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    called.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    // By another mount it is another socket, at which nobody listens.
    let refused = UnixStream::connect(&there).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{refused}");
    // What was called has the name open, too.
    drop((listener, calling, called));
    // A program that another test is just starting may have the listener for a moment.
    until("nobody listens", || {
        let refused = UnixStream::connect(&here).err().map(|error| error.kind());
        refused == Some(std::io::ErrorKind::ConnectionRefused)
    });
    assert!(UnixListener::bind(&here).is_err(), "the name is taken");
    fs::remove_file(&there).unwrap();
    UnixListener::bind(&here).unwrap();
    rig.end();
}

/// Maps a file privately, changes what it sees, and shows that beside what the file holds.
const PRIVATELY: &str = r#"
my ($map, $read, $write) = `uname -m` =~ /x86_64/ ? (9, 0, 1) : (222, 63, 64);
open(my $f, '<', $ARGV[0]) or die "open: $!";
my $at = syscall($map, 0, 8192, 3, 2, fileno($f), 0);
$at > 0 or die "mmap: $!";
pipe(my $out, my $in) or die;
syswrite($in, 'mine') == 4 or die;
syscall($read, fileno($out), $at + 4096, 4) == 4 or die "read: $!";
$| = 1; print '';
syscall($write, 1, $at + 4094, 10) == 10 or die "write: $!";
"#;

fn a_private_mapping_is_the_programs_own(servers: Servers) {
    let Some(rig) = Rig::start(servers, "private", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    fs::write(&there, [b'f'; 8192]).unwrap();
    let mut perl = Command::new("perl");
    let output = perl.args(["-e", PRIVATELY]).arg(&here).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ffmineffff", "{output:?}");
    for path in [&here, &there] {
        assert!(fs::read(path).unwrap() == [b'f'; 8192]);
    }
    rig.end();
}

fn the_space_is_that_of_the_osts(servers: Servers) {
    /// Both variants measure the same disk.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(rig) = Rig::start(servers, "statfs", 2, false) else { return };
    // All OSTs lie on the disk below, and each counts its share of it.
    let disk = rustix::fs::statvfs(rig.local()).unwrap();
    let disk = disk.f_blocks * disk.f_frsize;
    let part = 64;
    // An OST that has not answered yet is waited for, but not for long.
    for mount in rig.mounts() {
        until("the OSTs have the space of the disk", || {
            let shown = rustix::fs::statvfs(mount).unwrap();
            (shown.f_blocks * shown.f_frsize).abs_diff(disk) <= disk / part
        });
    }
    let [here, there] = [0, 1].map(|mount| rustix::fs::statvfs(&rig.mounts()[mount]).unwrap());
    assert_eq!((here.f_blocks, here.f_frsize), (there.f_blocks, there.f_frsize));
    assert_eq!((here.f_namemax, here.f_bsize), (255, 1 << 20));
    assert!(here.f_blocks >= here.f_bfree && here.f_bfree >= here.f_bavail && here.f_bavail > 0);
    assert!(here.f_files >= here.f_ffree && here.f_ffree > 0);
    // Allocated space is no longer free, until it is given back.
    let file = read_write(&rig.mnt().join("file"));
    let free = || {
        let there = rustix::fs::statvfs(&rig.mounts()[1]).unwrap();
        there.f_bfree * there.f_frsize
    };
    let differs = |less: &dyn Fn(u64, u64) -> bool, change: &dyn Fn()| {
        let before = free();
        change();
        until("the space has changed", || less(free(), before));
    };
    differs(&|now, before| now + SET_ASIDE / 2 < before, &|| {
        counted(|| fallocate(&file, FallocateFlags::empty(), 0, SET_ASIDE));
    });
    assert!(file.metadata().unwrap().blocks() * 512 >= SET_ASIDE);
    drop(file);
    differs(&|now, before| now > before + SET_ASIDE / 2, &|| {
        fs::remove_file(rig.mnt().join("file")).unwrap();
    });
    rig.end();
}
