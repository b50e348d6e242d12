//! The rows of docs/semantics.md, where Sateen differs from ext4 or may be thought to: each is
//! as it is written there. Rows that have a test of their own elsewhere are not repeated here.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags, inotify, mknodat,
    openat, utimensat,
};
use rustix::io::{Errno, ReadWriteFlags};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, until};
use sateen_testkit::program::Program;

use crate::BINARY;
use crate::rig::{Rig, Servers, copy_program, on_both, on_given, with_kernel_caches};

on_both!(
    numbers_and_sizes,
    a_file_ends_where_the_disks_below_end_it,
    a_truncate_by_name_ends_there_as_well,
    attributes_of_a_file,
    what_has_no_effect_on_a_mount,
    what_is_not_there,
    a_directory_is_listed_and_removed,
    direct_io_of_any_alignment,
    a_file_open_for_writing_elsewhere_is_executed,
    what_the_kernel_keeps_of_a_file,
    a_file_is_opened_by_its_handle_on_any_mount,
    the_atime_of_a_directory_is_seen_elsewhere,
    what_one_kernel_knows_no_other_hears_of,
    a_mount_is_what_the_kernel_takes_it_for,
    an_append_moves_its_own_position_only,
    quotas_and_freezing_are_refused,
    appending_by_a_single_call_goes_by_what_the_kernel_knows,
    a_mount_has_no_id_mapping,
);
on_given!(
    numbers_and_sizes,
    a_file_ends_where_the_disks_below_end_it,
    a_truncate_by_name_ends_there_as_well,
    attributes_of_a_file,
    direct_io_of_any_alignment
);

/// The device `null`.
const NULL: (u32, u32) = (1, 3);

fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn numbers_and_sizes(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-numbers", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    let file = read_write(&here);
    let meta = file.metadata().unwrap();
    assert_eq!(meta.blksize(), 1 << 20);
    let space = rustix::fs::statvfs(&here).unwrap();
    assert_eq!((space.f_bsize, space.f_frsize, space.f_fsid), (1 << 20, 4096, 0));
    assert_eq!(fs::metadata(&there).unwrap().ino(), meta.ino());
    assert!(meta.ino() > u64::from(u32::MAX));

    // As large as there are numbers, though not as there is room, if the disks below hold files
    // of that size.
    let most = i64::MAX as u64;
    let local = read_write(&rig.local().join("file"));
    let raw = |result: std::io::Result<()>| result.map_err(|error| error.raw_os_error());
    assert_eq!(raw(file.set_len(most)), raw(local.set_len(most)));
    let len = local.metadata().unwrap().len();
    assert_eq!(fs::metadata(&there).unwrap().len(), len);
    local.set_len(0).unwrap();
    let beyond = file.write_at(b"x", most).unwrap_err();
    assert!([Some(22), Some(27)].contains(&beyond.raw_os_error()), "{beyond}");
    let below = local.write_at(b"x", most - 1);
    let last = file.write_at(b"x", most - 1);
    let errno = |result: std::io::Result<usize>| result.map_err(|error| error.raw_os_error());
    assert_eq!(errno(last), errno(below));
    let far = 1 << 40;
    file.write_at(b"far", far).unwrap();
    let mut read = [9; 4];
    File::open(&there).unwrap().read_exact_at(&mut read, far - 1).unwrap();
    assert_eq!(&read, b"\0far");
    drop(file);
    rig.end();
}

/// What calls say that would write one byte at this offset, each of a file of its own kind: a
/// write, an allocation, and a copy within the file.
fn at_the_end(file: &File, offset: u64) -> [Result<(), Option<i32>>; 3] {
    let flags = rustix::fs::FallocateFlags::empty();
    let copy = |to: &mut u64| rustix::fs::copy_file_range(file, Some(&mut 0), file, Some(to), 1);
    let errno = |error: Errno| Some(error.raw_os_error());
    [
        file.write_at(b"x", offset).map(drop).map_err(|error| error.raw_os_error()),
        rustix::fs::fallocate(file, flags, offset, 1).map_err(errno),
        copy(&mut { offset }).map(drop).map_err(errno),
    ]
}

fn a_file_ends_where_the_disks_below_end_it(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-end", 2, false) else { return };
    let below = read_write(&rig.local().join("file"));
    below.write_all_at(b"begin", 0).unwrap();
    // The first offset at which nothing can be written any more.
    let (mut fits, mut beyond) = (0, i64::MAX as u64);
    while fits + 1 < beyond {
        let middle = fits + (beyond - fits) / 2;
        match below.set_len(middle + 1) {
            Ok(()) => fits = middle,
            Err(_) => beyond = middle,
        }
    }
    below.set_len(5).unwrap();
    let make = |stripes: &str| {
        let path = rig.mnt().join(format!("stripes{stripes}"));
        ok(Command::new(BINARY).args(["lfs", "setstripe", "-c", stripes]).arg(&path));
        let file = read_write(&path);
        file.write_all_at(b"begin", 0).unwrap();
        (file, path)
    };
    let (one, path) = make("1");
    let last = i64::MAX as u64;
    for offset in [fits, beyond, beyond.saturating_add(1 << 30).min(last - 1), last - 1, last] {
        assert_eq!(at_the_end(&one, offset), at_the_end(&below, offset), "{offset} of {fits}");
        let there = fs::metadata(rig.mounts()[1].join(path.file_name().unwrap())).unwrap();
        assert_eq!(there.len(), fits + 1, "{offset}");
    }
    // Two stripes hold twice as much, also of nothing.
    if beyond < 1 << 60 {
        let (two, _) = make("2");
        two.write_all_at(b"x", beyond).unwrap();
        assert_eq!(at_the_end(&two, 3 * beyond), [Err(Some(27)); 3]);
        assert_eq!(two.metadata().unwrap().len(), beyond + 1);
        assert_eq!(below.set_len(beyond + 1).unwrap_err().raw_os_error(), Some(27));
        let errno = |result: std::io::Result<()>| result.map_err(|error| error.raw_os_error());
        assert_eq!(errno(one.set_len(beyond + 1)), Err(Some(27)));
        one.set_len(fits + 1).unwrap();
        two.set_len(beyond + 1).unwrap();
        assert_eq!(errno(two.set_len(3 * beyond)), Err(Some(27)));
    }
    drop((one, below));
    rig.end();
}

fn a_truncate_by_name_ends_there_as_well(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-hole", 2, false) else { return };
    // No descriptor was ever open for writing.
    let [here, local] = [rig.mnt(), &rig.local()].map(|folder| folder.join("file"));
    for path in [&here, &local] {
        mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    let there = rig.mounts()[1].join("file");
    let cut = |path: &Path, size: u64| {
        let script = "print truncate($ARGV[0], $ARGV[1]) ? 0 : $! + 0";
        let mut perl = Command::new("perl");
        let output = perl.args(["-e", script]).arg(path).arg(size.to_string()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for size in [i64::MAX as u64, 1 << 62, 1 << 40, 5] {
        assert_eq!(cut(&here, size), cut(&local, size), "{size}");
        let len = fs::metadata(&local).unwrap().len();
        assert_eq!([&here, &there].map(|path| fs::metadata(path).unwrap().len()), [len; 2]);
    }
    rig.end();
}

fn attributes_of_a_file(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-attributes", 2, false) else { return };
    let path = rig.mnt().join("file");
    fs::write(&path, b"content").unwrap();
    let large = vec![b'v'; 64 << 10];
    rustix::fs::setxattr(&path, "user.large", &large, XattrFlags::empty()).unwrap();
    let mut value = vec![0; 64 << 10];
    let there = rig.mounts()[1].join("file");
    assert_eq!(rustix::fs::getxattr(&there, "user.large", &mut value), Ok(large.len()));
    assert!(value == large);
    for name in ["trusted.t", "security.s"] {
        rustix::fs::setxattr(&path, name, b"v", XattrFlags::empty()).unwrap();
    }
    let more = rig.mnt().join("more");
    fs::write(&more, b"").unwrap();
    let set =
        |name: &str, value: &[u8]| rustix::fs::setxattr(&more, name, value, XattrFlags::empty());
    for at in 0..16 {
        set(&format!("user.{at}"), &large).unwrap();
    }
    assert_eq!(set("user.more", b"v"), Err(Errno::NOSPC));
    set("user.1", b"v").unwrap();
    set("user.more", b"v").unwrap();
    let slash = rustix::fs::setxattr(&path, "user.a/b", b"v", XattrFlags::empty());
    assert_eq!(slash, Err(Errno::RANGE));

    // Following a link is no reading of it.
    let link = rig.mnt().join("link");
    symlink("file", &link).unwrap();
    let old = Timespec { tv_sec: 1000, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    utimensat(CWD, &link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!(fs::read(&link).unwrap(), b"content");
    assert_eq!(fs::read_link(&link).unwrap().as_os_str(), "file");
    assert_eq!(fs::symlink_metadata(&link).unwrap().atime(), 1000);
    rig.end();
}

/// Who a program that is set-uid root is on a mount, started by somebody else.
fn effective_user(mnt: &Path) -> String {
    let program = mnt.join("id");
    copy_program("/usr/bin/id", &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o4755);
    // By a way that the other user can go.
    let script = "mount --bind \"$1\" /mnt && exec setpriv --reuid=nobody --clear-groups \
                  /mnt/id -u";
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-euc", script, "row"])
        .arg(mnt)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn what_has_no_effect_on_a_mount(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-effects", 1, false) else { return };
    let null = rig.mnt().join("null");
    let device = rustix::fs::makedev(NULL.0, NULL.1);
    mknodat(CWD, &null, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device).unwrap();
    let meta = fs::metadata(&null).unwrap();
    assert!(meta.file_type().is_char_device() && meta.rdev() == device);
    assert_eq!(File::open(&null).unwrap_err().raw_os_error(), Some(13));

    assert_eq!(effective_user(rig.mnt()), "65534");
    rig.end();
}

#[test]
fn set_id_programs_and_devices_work_where_a_mount_says_so() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "row-suid");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount_with("mnt", &["suid,dev"]);
    let null = mnt.join("null");
    let device = rustix::fs::makedev(NULL.0, NULL.1);
    mknodat(CWD, &null, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device).unwrap();
    fs::write(&null, b"swallowed").unwrap();
    assert_eq!(fs::read(&null).unwrap(), b"");
    assert_eq!(effective_user(&mnt), "0");
    cluster.finish([oss, mds]);
}

/// Through a descriptor that only reads, too.
fn what_is_not_there_for_readers(path: &Path) {
    let file = File::open(path).unwrap();
    // The second is RWF_DONTCACHE, of Linux 6.14.
    for flags in [ReadWriteFlags::NOWAIT, ReadWriteFlags::from_bits_retain(0x80)] {
        let mut buffer = [0; 10];
        let mut into = [std::io::IoSliceMut::new(&mut buffer)];
        let read = rustix::io::preadv2(file.as_fd(), &mut into, 0, flags);
        assert_eq!(read, Err(Errno::OPNOTSUPP), "{flags:?}");
    }
    // FS_IOC_GETVERSION, FS_IOC_GETFSLABEL, FS_IOC_GETFSUUID, FITRIM.
    let script = "open(my $f, '<', $ARGV[0]) or die; my $room = pack('x256'); \
                  for (0x80087601, 0x81009431, 0x80111500, 0xC0185879) \
                  { print ioctl($f, $_, $room) ? 'told' : $!, ';' }";
    let output = Command::new("perl").args(["-e", script]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "Inappropriate ioctl for device;".repeat(4), "{output:?}");
    // Direct I/O has no alignment to tell.
    let mask = rustix::fs::StatxFlags::from_bits_retain(0x2000);
    let told = rustix::fs::statx(CWD, path, AtFlags::empty(), mask).unwrap();
    assert_eq!(told.stx_mask & mask.bits(), 0);
    let far = i64::MAX as u64;
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(far)), Ok(far));
}

fn what_is_not_there(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-absent", 1, false) else { return };
    let file = read_write(&rig.mnt().join("file"));
    file.write_at(&[7; 1 << 20], 0).unwrap();
    let clone = read_write(&rig.mnt().join("clone"));
    assert_eq!(rustix::fs::ioctl_ficlone(&clone, &file), Err(Errno::OPNOTSUPP));
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 5), &clone, Some(&mut 7), 100_000);
    assert_eq!(copied, Ok(100_000));
    assert_eq!(fs::read(rig.mnt().join("clone")).unwrap(), [vec![0; 7], vec![7; 100_000]].concat());
    assert_eq!(rustix::fs::ioctl_getflags(&file), Err(Errno::NOTTY));
    // FS_IOC_FSGETXATTR, which tells of a project.
    let script = "open(my $f, '<', $ARGV[0]) or die; my $attr = pack('x28'); \
                  print ioctl($f, 0x801C581F, $attr) ? 'told' : $!";
    let mut perl = Command::new("perl");
    let output = perl.args(["-e", script]).arg(rig.mnt().join("file")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "Inappropriate ioctl for device", "{output:?}");
    for mode in
        [rustix::fs::FallocateFlags::COLLAPSE_RANGE, rustix::fs::FallocateFlags::INSERT_RANGE]
    {
        assert_eq!(rustix::fs::fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    let mut buffer = [0; 10];
    let read = rustix::io::preadv2(
        file.as_fd(),
        &mut [std::io::IoSliceMut::new(&mut buffer)],
        0,
        ReadWriteFlags::NOWAIT,
    );
    assert_eq!(read, Err(Errno::OPNOTSUPP));
    what_is_not_there_for_readers(&rig.mnt().join("file"));
    let name = rig.mnt().join("swap");
    fs::write(&name, vec![0; 1 << 20]).unwrap();
    assert!(Command::new("mkswap").arg(&name).output().unwrap().status.success());
    let swapon = Command::new("swapon").arg(&name).output().unwrap();
    assert!(!swapon.status.success(), "{swapon:?}");
    drop((file, clone));
    rig.end();
}

fn a_directory_is_listed_and_removed(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-folders", 2, false) else { return };
    for number in 0..300 {
        File::create(rig.mnt().join(format!("file{number}"))).unwrap();
    }
    let entries = Dir::read_from(File::open(rig.mnt()).unwrap()).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert_eq!(names[..2], [c".".to_owned(), c"..".to_owned()]);
    assert_eq!(names.len(), 302);

    // A working directory that is removed: here, and by the other mount.
    let there = rig.mounts()[1].display().to_string();
    let said = rig.shell(
        "mkdir $MNT/d && cd $MNT/d && rmdir $MNT/d && stat -c %h . && ls -a . && ! mkdir x 2>&1",
    );
    assert!(said.starts_with("0\n"), "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
    let said = rig.shell(&format!(
        "mkdir $MNT/e && cd $MNT/e && rmdir {there}/e && ! ls . 2>&1 && ! mkdir x 2>&1"
    ));
    assert!(said.contains("Stale file handle"), "{said}");
    // One that is open is the same.
    fs::create_dir(rig.mnt().join("f")).unwrap();
    let open = File::open(rig.mnt().join("f")).unwrap();
    fs::remove_dir(rig.mounts()[1].join("f")).unwrap();
    assert_eq!(open.metadata().unwrap_err().raw_os_error(), Some(116));
    drop(open);
    rig.end();
}

fn direct_io_of_any_alignment(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-direct", 2, false) else { return };
    let direct = OFlags::DIRECT.bits() as i32;
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).custom_flags(direct);
    let (file, other) = (options.open(&here).unwrap(), options.open(&there).unwrap());
    let mut want = vec![0; 3_000_000];
    for (number, (offset, len)) in
        [(13, 777), (4096, 4096), (511, 1), (1_048_000, 1_100_001), (2_999_999, 1)]
            .into_iter()
            .enumerate()
    {
        want[offset..offset + len].fill(number as u8 + 1);
        file.write_all_at(&want[offset..offset + len], offset as u64).unwrap();
        // At an odd address in memory, too.
        let mut read = vec![0; len + 1];
        other.read_exact_at(&mut read[1..], offset as u64).unwrap();
        assert!(read[1..] == want[offset..offset + len], "{offset} {len}");
    }
    let mut read = Vec::new();
    File::open(&there).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == want);
    drop((file, other));
    rig.end();
}

fn a_file_open_for_writing_elsewhere_is_executed(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-busy", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("true"));
    copy_program("/bin/true", &here);
    let writing = File::options().write(true).open(&there).unwrap();
    assert!(Command::new(&here).status().unwrap().success());
    drop(writing);
    rig.end();
}

fn what_the_kernel_keeps_of_a_file(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-kept", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    fs::write(&here, b"content").unwrap();
    // Names of our own are for the tools.
    let own = rustix::fs::setxattr(&here, "sateen.mine", b"v", XattrFlags::empty());
    assert_eq!(own, Err(Errno::OPNOTSUPP));
    let space = rustix::fs::setxattr(&here, "sateen.space", b"v", XattrFlags::empty());
    assert_eq!(space, Err(Errno::PERM));

    // Version 2, permitted and effective: CAP_NET_RAW.
    let mut capability = [0; 20];
    capability[..4].copy_from_slice(&0x0200_0001u32.to_le_bytes());
    capability[4..8].copy_from_slice(&(1u32 << 13).to_le_bytes());
    let name = "security.capability";
    // What was written before is no reason to lose it again, wherever that is on its way.
    for _ in 0..10 {
        fs::write(&here, b"content").unwrap();
        rustix::fs::setxattr(&here, name, &capability, XattrFlags::empty()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(rustix::fs::getxattr(&here, name, &mut [0; 64]), Ok(capability.len()));
    }
    let mut value = [0; 64];
    assert_eq!(rustix::fs::getxattr(&there, name, &mut value), Ok(capability.len()));
    assert_eq!(value[..20], capability);
    let mut file = File::options().append(true).open(&here).unwrap();
    file.write_all(b" more").unwrap();
    drop(file);
    until("the first write has taken the capability away", || {
        [&here, &there]
            .iter()
            .all(|path| rustix::fs::getxattr(*path, name, &mut [0; 64]) == Err(Errno::NODATA))
    });

    // No block of a disk is behind a file: each is a hole.
    let script = "open(my $f, '<', $ARGV[0]) or die; my $block = pack('i', 0); \
                  ioctl($f, 1, $block) or die $!; print unpack('i', $block)";
    let output = Command::new("perl").args(["-e", script]).arg(&here).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0", "{output:?}");
    rig.end();
}

/// Takes a handle of a file by its name, and reads the file by it below another mount.
const BY_HANDLE: &str = r#"
my ($path, $mount) = @ARGV;
my ($name, $open) = `uname -m` =~ /x86_64/ ? (303, 304) : (264, 265);
my ($handle, $id) = (pack('I i x128', 128, 0), pack('i', 0));
syscall($name, -100, $path, $handle, $id, 0) == 0 or die "name_to_handle_at: $!";
rename($path, "$path.moved") or die "rename: $!";
open(my $at, '<', $mount) or die "open: $!";
my $fd = syscall($open, fileno($at), $handle, 0);
$fd >= 0 or die "open_by_handle_at: $!";
open(my $file, '<&=', $fd) or die "fdopen: $!";
print <$file>;
close($file);
unlink("$path.moved") or die "unlink: $!";
# Nobody waits for a close: until the MDT has heard of it, the file is still there.
for (1 .. 6000) {
    $fd = syscall($open, fileno($at), $handle, 0);
    last if $fd < 0;
    open(my $still, '<&=', $fd) or die "fdopen: $!";
    close($still);
    select(undef, undef, undef, 0.01);
}
print $fd < 0 ? " then $!" : " then opened";
"#;

fn a_file_is_opened_by_its_handle_on_any_mount(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-handle", 2, false) else { return };
    let path = rig.mnt().join("file");
    fs::write(&path, b"content").unwrap();
    for mount in rig.mounts() {
        fs::write(&path, b"content").unwrap();
        let mut perl = Command::new("perl");
        let output = perl.args(["-e", BY_HANDLE]).arg(&path).arg(mount).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "content then Stale file handle", "{output:?}");
    }
    rig.end();
}

fn the_atime_of_a_directory_is_seen_elsewhere(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-atime", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("dir"));
    fs::create_dir(&here).unwrap();
    fs::write(here.join("file"), b"file").unwrap();
    let old = Timespec { tv_sec: 1000, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    utimensat(CWD, &here, &times, AtFlags::empty()).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().atime(), 1000);
    assert_eq!(fs::read_dir(&here).unwrap().count(), 1);
    assert!(fs::metadata(&here).unwrap().atime() > 1000);
    // Its attributes are asked for anew, because somebody changes them.
    fs::write(here.join("other"), b"other").unwrap();
    until("the atime is seen", || fs::metadata(&there).unwrap().atime() > 1000);
    rig.end();
}

/// Waits for changes of a file, which come by another mount, and by this one.
const FANOTIFY: &str = r#"
my ($here, $there) = @ARGV;
my ($init, $mark) = `uname -m` =~ /x86_64/ ? (300, 301) : (262, 263);
my $watch = syscall($init, 2, 0);
$watch >= 0 or die "fanotify_init: $!";
syscall($mark, $watch, 1, 2, -100, $here) == 0 or die "fanotify_mark: $!";
open(my $events, '<&=', $watch) or die;
for (['there', $there], ['here', $here]) {
    open(my $f, '>>', $_->[1]) or die "open: $!";
    syswrite($f, 'more') == 4 or die "write: $!";
    close($f) or die "close: $!";
    print "$_->[0]: ", (sysread($events, my $event, 4096) ? 'heard' : 'nothing'), "\n";
}
"#;

/// Holds a lease of a file for reading while somebody opens it for writing: by another mount, and
/// by this one. F_SETLEASE and F_GETLEASE are 1024 and 1025.
const LEASE: &str = r#"
use Fcntl;
my ($here, $there, $told) = @ARGV;
$SIG{IO} = sub { $told = 1 };
sysopen(my $held, $here, O_RDONLY) or die "open: $!";
fcntl($held, 1024, F_RDLCK) or die "lease: $!";
for (['there', $there], ['here', $here]) {
    my $opened = sysopen(my $f, $_->[1], O_WRONLY | O_NONBLOCK) ? 'opened' : 'refused';
    print "$_->[0]: $opened, ", ($told ? 'told' : 'held'), "\n";
}
"#;

fn what_one_kernel_knows_no_other_hears_of(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-kernel", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    // The ends of a fifo, each opened by another mount, are not one fifo's.
    mknodat(CWD, here.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let open =
        |mount: &Path, way| openat(CWD, mount.join("fifo"), way | OFlags::NONBLOCK, Mode::empty());
    let reader = open(here, OFlags::RDONLY).unwrap();
    assert_eq!(open(there, OFlags::WRONLY).unwrap_err(), Errno::NXIO);
    open(here, OFlags::WRONLY).unwrap();
    drop(reader);

    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, here, inotify::WatchFlags::CREATE).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    File::create(there.join("elsewhere")).unwrap();
    assert!(here.join("elsewhere").exists());
    assert_eq!(events.next().unwrap_err(), Errno::AGAIN);
    File::create(here.join("here")).unwrap();
    assert_eq!(events.next().unwrap().file_name().unwrap().to_bytes(), b"here");
    for (script, said) in [
        (FANOTIFY, "there: nothing\nhere: heard\n"),
        (LEASE, "there: opened, held\nhere: refused, told\n"),
    ] {
        // By another process: there is no lease of what is open for writing, as what this one has
        // open may be for a moment in a program that another test is just starting.
        rig.shell("printf content >file");
        let files = [here, there.as_path()].map(|mount| mount.join("file"));
        let output = Command::new("perl").args(["-e", script]).args(files).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{output:?}");
    }
    rig.end();
}

fn a_mount_is_what_the_kernel_takes_it_for(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-mount", 1, false) else { return };
    let point = rig.mnt().to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(point)).unwrap();
    assert!(line.contains(" - fuse.sateen "), "{line}");
    let path = rig.mnt().join("file");
    // Without a helper: a distribution's mount.fuse would look for a program of ours, and not find it.
    let remount =
        |options| Command::new("mount").args(["-i", "-o", options, point]).output().unwrap();
    assert!(remount("remount,ro").status.success());
    assert_eq!(
        fs::write(&path, b"no").unwrap_err().raw_os_error(),
        Some(Errno::ROFS.raw_os_error())
    );
    assert!(remount("remount,rw").status.success());
    fs::write(&path, b"again").unwrap();
    // What only the mount's process decides has no effect.
    let line = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().find(|line| line.split(' ').nth(4) == Some(point)).unwrap().to_owned()
    };
    let before = line();
    let output = remount("remount,direct_io");
    assert_eq!(line(), before, "{output:?}");
    assert!(remount("remount,noexec").status.success());
    assert!(line().split(' ').nth(5).unwrap().contains("noexec"));
    // FS_IOC_FIEMAP, with room for no extent; ENOTTY or EOPNOTSUPP.
    let script = "open(my $f, '<', $ARGV[0]) or die; my $map = pack('QQLLLL', 0, ~0, 0, 0, 0, 0); \
                  print ioctl($f, 0xC020660B, $map) ? 'mapped' : $! + 0";
    let output = Command::new("perl").args(["-e", script]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(["25", "95"].contains(&&*said), "{output:?}");
    rig.end();
}

fn an_append_moves_its_own_position_only(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-append", 2, false) else { return };
    let mut files = [0, 1].map(|mount| {
        let path = rig.mounts()[mount].join("file");
        File::options().read(true).append(true).create(true).open(path).unwrap()
    });
    let content = || fs::read_to_string(rig.mnt().join("file")).unwrap();
    files[0].write_all(b"0123456789").unwrap();
    assert_eq!(files[0].stream_position().unwrap(), 10);
    // Where it is written is right; where the descriptor is afterwards may not be.
    files[1].write_all(b"abcde").unwrap();
    files[0].write_all(b"xyz").unwrap();
    assert_eq!(content(), "0123456789abcdexyz");
    let position = files[0].stream_position().unwrap();
    assert!([13, 18].contains(&position), "{position}");
    // Whoever reads on from there says where.
    files[0].seek(SeekFrom::Start(15)).unwrap();
    let mut rest = String::new();
    files[0].read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "xyz");
    files[0].write_all(b"!").unwrap();
    assert_eq!(content(), "0123456789abcdexyz!");
    drop(files);
    rig.end();
}

fn appending_by_a_single_call_goes_by_what_the_kernel_knows(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-rwf", 2, false) else { return };
    // RWF_NOAPPEND.
    let no_append = ReadWriteFlags::from_bits_retain(0x20);
    let put = |file: &File, bytes: &[u8], flags| {
        let written = rustix::io::pwritev2(file.as_fd(), &[std::io::IoSlice::new(bytes)], 0, flags);
        assert_eq!(written, Ok(bytes.len()));
    };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    let content = || fs::read_to_string(&here).unwrap();
    let files = [read_write(&here), read_write(&here), read_write(&there)];
    // By the programs of one mount, at the end.
    for (file, bytes) in files.iter().zip([b"0123", b"4567"]) {
        put(file, bytes, ReadWriteFlags::APPEND);
    }
    assert_eq!(content(), "01234567");
    // By another, at the end that its kernel knows of: here that of when it was opened.
    put(&files[2], b"abc", ReadWriteFlags::APPEND);
    assert_eq!(content(), "abc34567");
    files[2].metadata().unwrap();
    put(&files[2], b"def", ReadWriteFlags::APPEND);
    assert_eq!(content(), "abc34567def");
    // An O_APPEND descriptor appends, whatever the call says.
    let appending = File::options().append(true).open(&here).unwrap();
    put(&appending, b"!", no_append);
    assert_eq!(content(), "abc34567def!");
    drop((files, appending));
    rig.end();
}

/// Has copies of mounts show other owners: open_tree, and mount_setattr with a user namespace.
const MAPPED_IDS: &str = r#"
my ($unshare) = `uname -m` =~ /x86_64/ ? 272 : 97;
pipe(my $out, my $in) or die;
my $child = fork() // die;
END { kill 9, $child if $child }
if (!$child) {
    close(STDOUT);
    close(STDERR);
    syscall($unshare, 0x10000000) == 0 or die "unshare: $!";
    syswrite($in, 'x');
    sleep 1000;
    exit;
}
sysread($out, my $ready, 1);
for my $kind ('uid', 'gid') {
    open(my $map, '>', "/proc/$child/${kind}_map") or die "map: $!";
    syswrite($map, '0 100000 1000') or die "map: $!";
}
open(my $users, '<', "/proc/$child/ns/user") or die;
for my $mount (@ARGV) {
    my $tree = syscall(428, -100, $mount, 1);
    $tree >= 0 or die "open_tree: $!";
    my ($attr, $here) = (pack('QQQQ', 0x100000, 0, 0, fileno($users)), '');
    print syscall(442, $tree, $here, 0x1000, $attr, 32) == 0 ? 'mapped' : $!, "\n";
}
"#;

fn a_mount_has_no_id_mapping(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-idmap", 1, false) else { return };
    let script = "mount -t tmpfs none /mnt && exec perl -e \"$1\" /mnt \"$2\"";
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-euc", script, "row", MAPPED_IDS])
        .arg(rig.mnt())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "mapped\nInvalid argument\n", "{output:?}");
    rig.end();
}

/// `quotactl_fd`, Q_GETQUOTA of root's; and `quotactl` of what is mounted.
const QUOTA: &str = r#"
my ($mount, $buffer) = ($ARGV[0], "\0" x 256);
open(my $f, '<', $mount) or die;
my $get = 0x80000700;
print syscall(443, fileno($f), $get, 0, $buffer) == 0 ? 'a quota' : $!, "\n";
"#;

fn quotas_and_freezing_are_refused(servers: Servers) {
    let Some(rig) = Rig::start(servers, "row-quota", 1, false) else { return };
    let output = Command::new("perl").args(["-e", QUOTA]).arg(rig.mnt()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Function not implemented\n", "{output:?}");
    let output = Command::new("fsfreeze").arg("-f").arg(rig.mnt()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Operation not supported"), "{output:?}");
    fs::write(rig.mnt().join("file"), b"not frozen").unwrap();
    rig.end();
}

/// Requests of a kind that a mount has sent to OSTs.
fn sent(mnt: &Path, kind: &str) -> u64 {
    let mut lctl = Command::new(BINARY);
    lctl.args(["lctl", "--data"]).arg(run_folder(mnt)).args(["get_param", "-n", "osc.*.stats"]);
    let stats = ok(&mut lctl);
    let lines = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words[0] == kind).map(|words| words[1].parse::<u64>().unwrap()).sum()
}

/// Loads from the beginning of a file and stores behind it, ten times, through a shared mapping of
/// a descriptor that is open for writing.
const MAPPED: &str = r#"
my ($map, $read, $write) = `uname -m` =~ /x86_64/ ? (9, 0, 1) : (222, 63, 64);
open(my $f, '+<', $ARGV[0]) or die "open: $!";
my $at = syscall($map, 0, 4096, 3, 1, fileno($f), 0);
$at > 0 or die "mmap: $!";
pipe(my $out, my $in) or die;
for (1 .. 10) {
    syscall($write, fileno($in), $at, 10) == 10 or die "load: $!";
    syscall($read, fileno($out), $at + 100, 10) == 10 or die "store: $!";
}
"#;

#[test]
fn who_writes_goes_past_the_page_cache() {
    if !can_mount() {
        return;
    }
    let _kept = with_kernel_caches();
    let mut cluster = Cluster::new(BINARY, "row-past");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let path = mnt.join("file");
    let count = |kind, work: &mut dyn FnMut()| {
        let before = sent(&mnt, kind);
        work();
        sent(&mnt, kind) - before
    };
    // What is kept goes together, and what an OST answers slowly is read ahead.
    for param in ["osc.*.max_dirty_mb=0", "llite.*.max_read_ahead_mb=0"] {
        let mut lctl = Command::new(BINARY);
        lctl.args(["lctl", "--data"]).arg(run_folder(&mnt));
        ok(lctl.args(["set_param", param]));
    }
    let mut appending = File::options().append(true).create(true).open(&path).unwrap();
    let appends = count("ost_write", &mut || {
        (0..10).for_each(|_| appending.write_all(b"a small record\n").unwrap());
    });
    assert_eq!(appends, 10, "small appends are a round trip each");
    let both = read_write(&path);
    let writes = count("ost_write", &mut || {
        (0..10).for_each(|at| both.write_all_at(b"small", 5 * at).unwrap());
    });
    assert_eq!(writes, 10, "and so are writes");
    let mut buffer = [0; 100];
    let mut keeps = |mib: u32| {
        let mut lctl = Command::new(BINARY);
        lctl.args(["lctl", "--data"]).arg(run_folder(&mnt));
        ok(lctl.args(["set_param", &format!("llite.*.max_cached_mb={mib}")]));
        count("ost_read", &mut || {
            (0..10).for_each(|_| both.read_exact_at(&mut buffer, 0).unwrap());
        })
    };
    assert_eq!(keeps(0), 10, "and what is read by a descriptor that is open for writing");
    assert!(keeps(64) <= 1, "unless the mount keeps it: the kernel does not");
    // Mappings use it, also those of whoever writes.
    let mut mapping = || {
        let output = Command::new("perl").args(["-e", MAPPED]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let mut writes = 0;
    let reads = count("ost_read", &mut || writes = count("ost_write", &mut mapping));
    assert!(reads <= 1 && writes <= 1, "{reads} {writes}: of twenty loads and stores");
    let content = fs::read(&path).unwrap();
    assert_eq!(content[100..110], content[..10], "what was stored is there");
    drop((appending, both));
    let reading = File::open(&path).unwrap();
    let reads = count("ost_read", &mut || {
        (0..10).for_each(|_| reading.read_exact_at(&mut buffer, 0).unwrap());
    });
    assert!(reads <= 1, "{reads}: by one for reading it is kept");
    drop(reading);
    cluster.finish([oss, mds]);
}

#[test]
fn who_sets_space_aside_through_o_sync_is_not_kept_waiting() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "row-osync");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let path = mnt.join("file");
    let sync = OFlags::SYNC.bits() as i32;
    let file = File::options().write(true).create(true).custom_flags(sync).open(&path).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    let before = sent(&mnt, "ost_sync");
    assert!(before > 0, "a write is durable when it returns");
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 0, 1 << 20).unwrap();
    assert_eq!(sent(&mnt, "ost_sync"), before, "this is not");
    file.sync_all().unwrap();
    assert!(sent(&mnt, "ost_sync") > before);
    drop(file);
    cluster.finish([oss, mds]);
}

#[test]
fn a_mount_sets_the_atimes_that_it_is_told_to_set() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "row-atimes");
    let (mds, oss) = cluster.start();
    let old = Timespec { tv_sec: 1000, tv_nsec: 0 };
    // A day ago at least, and since the last change: `relatime` sets it once.
    let newer = Timespec { tv_sec: 900, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: newer };
    for (option, file, dir) in [
        ("relatime", true, true),
        ("noatime", false, false),
        ("strictatime", true, true),
        ("nodiratime", true, false),
    ] {
        let mnt = cluster.mount_with(option, &[option]);
        fs::create_dir(mnt.join("dir")).unwrap();
        fs::write(mnt.join("file"), b"content").unwrap();
        let is_set = |name: &str| {
            let path = mnt.join(name);
            utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            match name {
                "dir" => drop(fs::read_dir(&path).unwrap().count()),
                _ => drop(fs::read(&path).unwrap()),
            }
            fs::metadata(&path).unwrap().atime() != 1000
        };
        assert_eq!((is_set("file"), is_set("dir")), (file, dir), "{option}");
        fs::remove_dir(mnt.join("dir")).unwrap();
        fs::remove_file(mnt.join("file")).unwrap();
        cluster.umount(&mnt);
    }
    cluster.finish([oss, mds]);
}

#[test]
fn what_was_open_at_a_crash_answers_with_errors() {
    if !can_mount() {
        return;
    }
    let program = Program::new(BINARY, "row-crash", 1, &[]).unwrap();
    program.up().unwrap();
    let path = program.mnt().join("file");
    let file = read_write(&path);
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    let gone = |file: &File| {
        let errors = [
            file.read_at(&mut [0; 6], 0).unwrap_err(),
            file.write_at(b"x", 0).unwrap_err(),
            file.set_len(1).unwrap_err(),
            file.sync_all().unwrap_err(),
        ];
        let [not_connected, aborted] =
            [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
        let told = errors.map(|error| error.raw_os_error().unwrap());
        assert!(told.iter().all(|errno| [not_connected, aborted].contains(errno)), "{told:?}");
    };
    program.kill(program.pid().unwrap(), || ()).unwrap();
    gone(&file);
    program.fsck().unwrap();
    program.up().unwrap();
    gone(&file);
    assert_eq!(fs::read(&path).unwrap(), b"synced");
    drop(file);
    program.down().unwrap();
}
