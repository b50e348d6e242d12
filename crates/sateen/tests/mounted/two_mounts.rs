//! Two mounts of one file system, and a folder of the local disk that is done the same to:
//! whatever one mount does, the other must see at once, and both must look like the local
//! folder, error numbers included: names, content, owners, modes, links, extended attributes, and
//! the times that a program has set. Times that nobody has set are the same on both mounts. When
//! something was read last is left out: looking changes it. So is the ctime after a write: the
//! MDT's clock says it when it hears of it, and the writer does not ask. `STEPS` steps; `SEED`
//! repeats them.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, lgetxattr,
    llistxattr, removexattr, renameat_with, setxattr, utimensat,
};
use rustix::io::Errno;
use sateen_testkit::env_number;
use sateen_testkit::random::Random;

use crate::rig::{Rig, Servers, on_both, tools};

on_both!(
    what_one_mount_does_the_other_sees,
    appended_records_stay_whole,
    a_replaced_file_is_always_whole,
    a_directory_that_stays_open_is_listed_anew,
    an_open_file_outlives_its_name,
    one_of_two_makes_a_file,
    names_change_places,
    mappings_see_what_the_other_mount_wrote,
    a_busy_file_is_given_to_others,
    both_empty_a_file_at_once,
);

fn bytes(random: &mut Random) -> Vec<u8> {
    // Often small, sometimes over several stripes' pages.
    let len = if random.one_in(4) { random.below(200_000) } else { random.below(6000) };
    let start = random.number();
    (0..len).map(|at| (start.wrapping_add(at) % 251) as u8).collect()
}

/// One thing to do; paths are below a root.
#[derive(Debug, Clone)]
enum Op {
    Create(String),
    Write(String, u64, Vec<u8>),
    Append(String, Vec<u8>),
    Truncate(String, u64),
    Rewrite(String, Vec<u8>),
    Rename(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Link(String, String),
    Symlink(String, String),
    Chmod(String, u32),
    Chown(String, u32, u32),
    SetXattr(String, &'static str, Vec<u8>),
    RemoveXattr(String, &'static str),
    /// The time in seconds and nanoseconds; long ago.
    Utimes(String, i64, u32),
}

/// Times before this were set by a step.
const LONG_AGO_S: i64 = 1_500_000_000;
const XATTRS: [&str; 3] = ["user.a", "user.b", "user.longer"];

/// Some names in some folders, few, so that they meet.
fn path(random: &mut Random) -> String {
    let folder = ["", "d0/", "d1/", "d0/e/"][random.below(4) as usize];
    let name = ["f0", "f1", "f2", "d0", "d1", "e", "s"][random.below(7) as usize];
    format!("{folder}{name}")
}

/// What there is below a root, so that most steps find what they are about.
#[derive(Default)]
struct There {
    files: Vec<String>,
    folders: Vec<String>,
    all: Vec<String>,
}

impl There {
    fn below(root: &Path) -> There {
        let mut there = There::default();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(root.join(&folder)).unwrap().map(Result::unwrap);
            for entry in entries {
                let path = format!("{folder}{}", entry.file_name().into_string().unwrap());
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(format!("{path}/"));
                    there.folders.push(path.clone());
                } else if kind.is_file() {
                    there.files.push(path.clone());
                }
                there.all.push(path);
            }
        }
        // Chance must not depend on the order of a listing.
        for paths in [&mut there.files, &mut there.folders, &mut there.all] {
            paths.sort();
        }
        there
    }

    /// One of these, but now and then any.
    fn one_of(random: &mut Random, some: &[String]) -> String {
        let any = path(random);
        if random.one_in(8) { any } else { random.pick(some).cloned().unwrap_or(any) }
    }

    /// One that can be made, but now and then any.
    fn free(&self, random: &mut Random) -> String {
        let can_be = |path: &String| {
            let folder = path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
            !self.all.contains(path) && folder.is_none_or(|folder| self.folders.contains(&folder))
        };
        let tries = if random.one_in(8) { 1 } else { 10 };
        let mut one = path(random);
        for _ in 1..tries {
            if can_be(&one) {
                break;
            }
            one = path(random);
        }
        one
    }
}

fn random_op(random: &mut Random, there: &There) -> Op {
    let file = There::one_of(random, &there.files);
    let any = There::one_of(random, &there.all);
    let free = there.free(random);
    match random.below(20) {
        0 => Op::Create(free),
        1 => Op::Write(free, random.below(300_000), bytes(random)),
        2 | 3 => Op::Write(file, random.below(300_000), bytes(random)),
        4 | 5 => Op::Append(file, bytes(random)),
        6 => Op::Truncate(file, random.below(300_000)),
        7 => Op::Rewrite(file, bytes(random)),
        8 => Op::Rename(any, free),
        9 => Op::Rename(any, There::one_of(random, &there.all)),
        10 => Op::Unlink(There::one_of(random, &there.all)),
        11 | 12 => Op::Mkdir(free),
        13 => Op::Rmdir(There::one_of(random, &there.folders)),
        14 if random.below(2) == 0 => Op::Symlink(format!("f{}", random.below(3)), free),
        14 => Op::Link(file, free),
        15 => Op::Chmod(any, 0o600 | random.below(0o200) as u32),
        16 => Op::Chown(any, random.below(4) as u32, random.below(4) as u32),
        17 => Op::SetXattr(any, XATTRS[random.below(3) as usize], short(random)),
        18 => Op::RemoveXattr(any, XATTRS[random.below(3) as usize]),
        _ => {
            let seconds = random.below(LONG_AGO_S as u64) as i64;
            Op::Utimes(any, seconds, random.below(1_000_000_000) as u32)
        }
    }
}

/// The value of an extended attribute.
fn short(random: &mut Random) -> Vec<u8> {
    (0..random.below(60)).map(|_| random.below(256) as u8).collect()
}

fn perform(root: &Path, op: &Op) -> io::Result<()> {
    let at = |path: &String| root.join(path);
    match op {
        Op::Create(path) => File::create_new(at(path)).map(drop),
        Op::Write(path, offset, bytes) => {
            let file =
                OpenOptions::new().create(true).truncate(false).write(true).open(at(path))?;
            file.write_all_at(bytes, *offset)
        }
        Op::Append(path, bytes) => OpenOptions::new().append(true).open(at(path))?.write_all(bytes),
        Op::Truncate(path, size) => OpenOptions::new().write(true).open(at(path))?.set_len(*size),
        Op::Rewrite(path, bytes) => fs::write(at(path), bytes),
        Op::Rename(from, to) => fs::rename(at(from), at(to)),
        Op::Unlink(path) => fs::remove_file(at(path)),
        Op::Mkdir(path) => fs::create_dir(at(path)),
        Op::Rmdir(path) => fs::remove_dir(at(path)),
        Op::Link(from, to) => fs::hard_link(at(from), at(to)),
        Op::Symlink(what, path) => symlink(what, at(path)),
        Op::Chmod(path, mode) => fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)),
        Op::Chown(path, uid, gid) => chown(at(path), Some(*uid), Some(*gid)),
        Op::SetXattr(path, name, value) => {
            Ok(setxattr(at(path), *name, value, XattrFlags::empty())?)
        }
        Op::RemoveXattr(path, name) => Ok(removexattr(at(path), *name)?),
        Op::Utimes(path, seconds, nanoseconds) => {
            let time = Timespec { tv_sec: *seconds, tv_nsec: (*nanoseconds).into() };
            let times = Timestamps { last_access: time, last_modification: time };
            Ok(utimensat(CWD, at(path), &times, AtFlags::empty())?)
        }
    }
}

impl Op {
    fn paths(&self) -> Vec<&String> {
        match self {
            Op::Create(one)
            | Op::Write(one, ..)
            | Op::Append(one, _)
            | Op::Truncate(one, _)
            | Op::Rewrite(one, _)
            | Op::Unlink(one)
            | Op::Mkdir(one)
            | Op::Rmdir(one)
            | Op::Symlink(_, one)
            | Op::Chmod(one, _)
            | Op::Chown(one, ..)
            | Op::SetXattr(one, ..)
            | Op::RemoveXattr(one, _)
            | Op::Utimes(one, ..) => vec![one],
            Op::Rename(one, other) | Op::Link(one, other) => vec![one, other],
        }
    }
}

/// What can be seen of one path; the content as a checksum of a sort.
fn look(full: &Path) -> io::Result<String> {
    let meta = fs::symlink_metadata(full)?;
    let kind = meta.file_type();
    assert!(!kind.is_socket(), "nobody makes sockets");
    let (mode, nlink) = (meta.mode(), meta.nlink());
    let (uid, gid) = (meta.uid(), meta.gid());
    let time = match meta.mtime() {
        seconds if seconds < LONG_AGO_S => format!("{seconds}.{:09}", meta.mtime_nsec()),
        _ => "now".to_owned(),
    };
    let xattrs = xattrs(full)?;
    let inside = if kind.is_symlink() {
        format!("-> {}", fs::read_link(full)?.display())
    } else if kind.is_file() {
        let bytes = fs::read(full)?;
        assert_eq!(bytes.len() as u64, meta.len(), "size of {}", full.display());
        let sum = bytes
            .iter()
            .fold(7_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
        format!("{} bytes {sum:x}", bytes.len())
    } else {
        String::new()
    };
    Ok(format!("{mode:o} x{nlink} {uid}:{gid} {time} {xattrs} {inside}"))
}

/// The extended attributes of users, by name.
fn xattrs(full: &Path) -> io::Result<String> {
    let mut names = vec![0; 4096];
    let len = llistxattr(full, &mut names)?;
    let names = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let names: BTreeSet<&str> = names.map(|name| std::str::from_utf8(name).unwrap()).collect();
    let mut text = String::new();
    for name in names {
        let mut value = [0; 256];
        let len = lgetxattr(full, name, &mut value[..])?;
        text.push_str(&format!("{name}={:02x?}", &value[..len]));
    }
    Ok(text)
}

/// When paths were changed, their content and, unless that was what the step did, all else, to the
/// nanosecond: of those that are there.
fn times(root: &Path, op: &Op) -> Vec<Option<[i64; 4]>> {
    let writes = matches!(op, Op::Write(..) | Op::Append(..) | Op::Truncate(..) | Op::Rewrite(..));
    let times = |path: &String| {
        let meta = fs::symlink_metadata(root.join(path)).ok()?;
        let changed = if writes { [0, 0] } else { [meta.ctime(), meta.ctime_nsec()] };
        Some([meta.mtime(), meta.mtime_nsec(), changed[0], changed[1]])
    };
    op.paths().into_iter().map(times).collect()
}

/// What can be seen of the paths that a step was about.
fn touched(root: &Path, op: &Op) -> Vec<Result<String, Option<i32>>> {
    let look = |path| look(&root.join(path)).map_err(|error| error.raw_os_error());
    op.paths().into_iter().map(look).collect()
}

/// Everything that can be seen below a folder, one line each.
fn seen(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let names: BTreeSet<_> =
            fs::read_dir(root.join(&folder)).unwrap().map(|e| e.unwrap().file_name()).collect();
        for name in names {
            let path = folder.join(name);
            let full = root.join(&path);
            lines.push(format!("{} {}", path.display(), look(&full).unwrap()));
            if fs::symlink_metadata(&full).unwrap().is_dir() {
                folders.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn what_one_mount_does_the_other_sees(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-steps", 2, false) else { return };
    let local = rig.local();
    let mounts = rig.mounts();
    let steps = env_number("STEPS", 1500);
    println!("STEPS={steps}");
    let seed = sateen_testkit::seed();
    let mut random = Random::new(seed);
    let mut done = 0;
    for step in 0..steps {
        let op = random_op(&mut random, &There::below(&local));
        let actor = random.below(2) as usize;
        let here = perform(&mounts[actor], &op).map_err(|error| error.raw_os_error());
        let there = perform(&local, &op).map_err(|error| error.raw_os_error());
        assert_eq!(here, there, "seed {seed} step {step}: {op:?}, against the local disk");
        done += u64::from(here.is_ok());
        let what = touched(&mounts[1 - actor], &op);
        assert_eq!(what, touched(&local, &op), "seed {seed} step {step}: {op:?}");
        let [one, other] = [0, 1].map(|number| times(&mounts[number], &op));
        assert_eq!(one, other, "seed {seed} step {step}: {op:?}");
        // Not all after every step, so that caches grow old in between; and by turns first.
        if random.below(3) == 0 {
            let want = seen(&local);
            for mount in [&mounts[1 - actor], &mounts[actor]] {
                assert_eq!(seen(mount), want, "seed {seed} step {step}: {op:?}, {mount:?}");
            }
        }
    }
    println!("{done} of {steps} steps did something");
    assert!(done >= steps / 3, "only {done} of {steps} steps did anything");
    rig.end();
}

/// Records appended by both mounts at once: none is torn, lost, or lies over another. The largest
/// are as large as the kernel leaves whole, wherever the buffer begins.
fn appended_records_stay_whole(servers: Servers) {
    const PAGE_BYTES: usize = 4096;
    const LARGEST_BYTES: usize = (1 << 20) - PAGE_BYTES;
    let Some(rig) = Rig::start(servers, "two-append", 2, false) else { return };
    for (bytes, records) in [(4000, 150), (130_001, 20), (LARGEST_BYTES, 12)] {
        let name = format!("log.{bytes}");
        let there = Barrier::new(2);
        std::thread::scope(|scope| {
            for (who, mount) in rig.mounts().iter().enumerate() {
                let (path, there) = (mount.join(&name), &there);
                scope.spawn(move || append(&path, who as u8, records, bytes, there));
            }
        });
        for mount in rig.mounts() {
            let content = fs::read(mount.join(&name)).unwrap();
            assert_eq!(content.len(), 2 * records * bytes);
            let mut next = [0_usize; 2];
            for record in content.chunks(bytes) {
                let who = usize::from(record[0]);
                let torn = record[1..].iter().any(|byte| *byte != next[who] as u8);
                assert!(!torn, "a torn record of {bytes} bytes");
                next[who] += 1;
            }
            assert_eq!(next, [records; 2]);
        }
    }
    rig.end();
}

/// Appends records, each by one call, from a buffer that does not begin on a page.
fn append(path: &Path, who: u8, records: usize, bytes: usize, there: &Barrier) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let mut buffer = vec![0; bytes + 1];
    there.wait();
    for n in 0..records {
        let record = &mut buffer[1..];
        record.fill(n as u8);
        record[0] = who;
        assert_eq!(file.write(record).unwrap(), bytes);
    }
}

/// Whoever lists a directory again by the same descriptor sees what others have done meanwhile.
fn a_directory_that_stays_open_is_listed_anew(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-rewind", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    let mut dir = Dir::read_from(File::open(here).unwrap()).unwrap();
    let mut listed = || {
        dir.rewind();
        let names = dir.by_ref().map(|entry| entry.unwrap().file_name().to_owned());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "." && name != "..");
        names
    };
    for round in 0..3 {
        assert_eq!(listed(), [""; 0], "{round}");
        File::create(there.join("new")).unwrap();
        assert_eq!(listed(), ["new"], "{round}");
        fs::remove_file(there.join("new")).unwrap();
    }
    drop(dir);
    rig.end();
}

/// A file that one mount has open, and whose name the other takes away: by removing it, and by
/// putting another in its place.
fn an_open_file_outlives_its_name(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-unlinked", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    for replace in [false, true] {
        let path = here.join("file");
        fs::write(&path, [1; 5000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        if replace {
            fs::write(there.join("other"), b"other").unwrap();
            fs::rename(there.join("other"), there.join("file")).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"other");
        } else {
            fs::remove_file(there.join("file")).unwrap();
            assert_eq!(File::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        // What is done to it from here on is nobody else's.
        file.write_all_at(&[2; 3000], 4000).unwrap();
        file.set_len(6500).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 6500);
        let mut content = vec![0; 7000];
        assert_eq!(file.read_at(&mut content, 0).unwrap(), 6500);
        assert!(content[..4000].iter().all(|byte| *byte == 1));
        assert!(content[4000..6500].iter().all(|byte| *byte == 2));
        assert_eq!(there.join("file").exists(), replace);
    }
    fs::remove_file(there.join("file")).unwrap();
    rig.end();
}

/// Of two who make a file at the same moment, and insist on having made it, one does.
fn one_of_two_makes_a_file(servers: Servers) {
    const ROUNDS: usize = 200;
    let Some(rig) = Rig::start(servers, "two-exclusive", 2, false) else { return };
    let start = Barrier::new(2);
    let made = std::thread::scope(|scope| {
        let makers = rig.mounts().iter().map(|mount| {
            let start = &start;
            scope.spawn(move || {
                let make = |round: usize| {
                    start.wait();
                    let made = match round % 3 {
                        0 => File::create_new(mount.join(format!("f{round}"))).map(drop),
                        1 => fs::create_dir(mount.join(format!("f{round}"))),
                        _ => symlink("nowhere", mount.join(format!("f{round}"))),
                    };
                    made.map_err(|error| error.kind())
                };
                (0..ROUNDS).map(make).collect::<Vec<_>>()
            })
        });
        let makers: Vec<_> = makers.collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect::<Vec<_>>()
    });
    for (round, (one, other)) in made[0].iter().zip(&made[1]).enumerate() {
        let exists = Err(io::ErrorKind::AlreadyExists);
        let right = (*one == Ok(()) && *other == exists) || (*one == exists && *other == Ok(()));
        assert!(right, "{round}: {one:?} and {other:?}");
    }
    assert_eq!(fs::read_dir(rig.mnt()).unwrap().count(), ROUNDS);
    rig.end();
}

/// `RENAME_EXCHANGE`: whoever looks on sees both names, each as before or as after.
fn names_change_places(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-exchange", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    fs::create_dir_all(here.join("d/inner")).unwrap();
    fs::write(here.join("file"), b"file").unwrap();
    fs::write(there.join("d/inner/other"), b"other").unwrap();
    let exchange = |one: &str, other: &str| {
        renameat_with(CWD, here.join(one), CWD, here.join(other), RenameFlags::EXCHANGE)
    };
    exchange("file", "d/inner/other").unwrap();
    assert_eq!(fs::read(there.join("file")).unwrap(), b"other");
    assert_eq!(fs::read(there.join("d/inner/other")).unwrap(), b"file");
    // A file and a directory, and links are counted right in the parents.
    exchange("file", "d/inner").unwrap();
    assert!(there.join("file/other").is_file() && there.join("d/inner").is_file());
    let links = |path: &str| fs::metadata(there.join(path)).unwrap().nlink();
    assert_eq!((links("d"), links("file"), links("")), (2, 2, 4));
    assert_eq!(exchange("file", "missing").unwrap_err(), Errno::NOENT);
    assert_eq!(exchange("d", "d/inner").unwrap_err(), Errno::INVAL);
    rig.end();
}

/// Shared mappings of one file by both mounts, in turns: the pages that a kernel keeps of what
/// it has read are not those that the other has written since.
fn mappings_see_what_the_other_mount_wrote(servers: Servers) {
    if !tools(&["fio"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "two-mapped", 2, false) else { return };
    let there = rig.mounts()[1].file_name().unwrap().display().to_string();
    let script = r#"
        map() {
            fio --name=m --filename=$1/file --ioengine=mmap --size=8M --bs=64k --fallocate=none \
                --verify=pattern --verify_pattern=$2 --verify_fatal=1 --minimal "${@:3}" >>$LOCAL/log
        }
        here=$MNT; there=$MNT/../THERE
        for round in 1 2 3; do
            map $here 0xa$round --rw=write --do_verify=0
            map $there 0xa$round --rw=read --verify_only
            map $there 0xb$round --rw=randwrite --do_verify=0
            map $here 0xb$round --rw=read --verify_only
        done
    "#;
    rig.shell(&script.replace("THERE", &there));
    rig.end();
}

/// Both know the file, and both cut it to nothing at the same moment: neither waits for the other
/// to give back what it knows by.
fn both_empty_a_file_at_once(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-empty", 2, false) else { return };
    fs::write(rig.mnt().join("file"), b"content").unwrap();
    std::thread::scope(|scope| {
        for mount in rig.mounts() {
            let path = mount.join("file");
            scope.spawn(move || {
                for round in 0..200 {
                    assert!(fs::metadata(&path).unwrap().len() <= 7);
                    let mut file = File::create(&path).unwrap();
                    if round % 3 == 0 {
                        file.write_all(b"content").unwrap();
                    }
                }
            });
        }
    });
    rig.end();
}

/// A mount that reads and writes a file with many calls at a time, without a pause, gives it to
/// another all the same, in time: nobody is thrown out, which would show as `EIO`.
fn a_busy_file_is_given_to_others(servers: Servers) {
    const FILE_BYTES: usize = 4 << 20;
    const BLOCK_BYTES: usize = 64 << 10;
    const WORKERS: u64 = 8;
    /// Takes one to three seconds where nothing else runs.
    const BUSY: Duration = Duration::from_secs(120);
    let Some(rig) = Rig::start(servers, "two-busy", 2, false) else { return };
    let (here, there) = (rig.mnt().join("file"), rig.mounts()[1].join("file"));
    fs::write(&here, vec![7; FILE_BYTES]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = |worker: u64| {
            // Two go through the page cache.
            let flags = if worker < 2 { 0 } else { OFlags::DIRECT.bits() as i32 };
            let mut open = OpenOptions::new();
            let file = open.read(true).write(true).custom_flags(flags).open(&here).unwrap();
            let mut random = Random::new(worker);
            let mut block = vec![7; BLOCK_BYTES];
            while !stop.load(Ordering::Relaxed) {
                let at = random.below((FILE_BYTES / BLOCK_BYTES) as u64) * BLOCK_BYTES as u64;
                if worker.is_multiple_of(2) {
                    file.read_exact_at(&mut block, at).unwrap();
                } else {
                    file.write_all_at(&block, at).unwrap();
                }
            }
        };
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        // A failure here must not leave them running.
        let seen = scope.spawn(|| {
            for round in 0..15 {
                assert_eq!(fs::metadata(&there).unwrap().len(), FILE_BYTES as u64);
                let file = OpenOptions::new().read(true).write(true).open(&there).unwrap();
                file.write_all_at(&[7; 100], round * 1000).unwrap();
                let mut block = vec![0; BLOCK_BYTES];
                file.read_exact_at(&mut block, 0).unwrap();
                assert!(block.iter().all(|byte| *byte == 7));
            }
        });
        let begun = Instant::now();
        while !seen.is_finished() && begun.elapsed() < BUSY {
            std::thread::sleep(Duration::from_millis(10));
        }
        let in_time = seen.is_finished();
        stop.store(true, Ordering::Relaxed);
        let seen = seen.join();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        seen.unwrap();
        assert!(in_time, "the other mount did not get its turn in {BUSY:?}");
    });
    rig.end();
}

/// A file that one mount replaces by rename is never missing for the other, and always whole.
fn a_replaced_file_is_always_whole(servers: Servers) {
    const STALE: i32 = Errno::STALE.raw_os_error();
    let Some(rig) = Rig::start(servers, "two-replace", 2, false) else { return };
    let (here, there) = (rig.mnt(), rig.mounts()[1].join("config"));
    let version = |n: u8| vec![n; 1000 + usize::from(n) * 40];
    fs::write(here.join("config"), version(0)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=100 {
                fs::write(here.join("new"), version(n)).unwrap();
                fs::rename(here.join("new"), here.join("config")).unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        let mut last = 0;
        loop {
            let over = stop.load(Ordering::Acquire);
            let bytes = match fs::read(&there) {
                // Replaced twice while it was being opened: docs/semantics.md.
                Err(error) if error.raw_os_error() == Some(STALE) => continue,
                bytes => bytes.unwrap(),
            };
            let now = bytes[0];
            assert_eq!(bytes, version(now), "a mixture");
            assert!(now >= last, "version {now} after {last}");
            last = now;
            if over {
                break;
            }
        }
        assert_eq!(last, 100, "the last version is seen");
    });
    rig.end();
}
