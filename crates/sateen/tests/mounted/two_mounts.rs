//! Two mounts of one file system, and a folder of the local disk that is done the same to:
//! whatever one mount does, the other must see at once, and both must look like the local
//! folder, error numbers included. `STEPS` steps; `SEED` repeats them.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Dir;
use sateen_testkit::env_number;
use sateen_testkit::random::Random;

use crate::rig::{Rig, Servers, on_both};

on_both!(
    what_one_mount_does_the_other_sees,
    appended_records_stay_whole,
    a_replaced_file_is_always_whole,
    a_directory_that_stays_open_is_listed_anew,
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
}

/// Some names in some folders, few, so that they meet.
fn path(random: &mut Random) -> String {
    let folder = ["", "d0/", "d1/", "d0/e/"][random.below(4) as usize];
    let name = ["f0", "f1", "f2", "d0", "d1", "e", "s"][random.below(7) as usize];
    format!("{folder}{name}")
}

fn random_op(random: &mut Random) -> Op {
    let one = path(random);
    match random.below(16) {
        0 => Op::Create(one),
        1..=3 => Op::Write(one, random.below(300_000), bytes(random)),
        4 | 5 => Op::Append(one, bytes(random)),
        6 => Op::Truncate(one, random.below(300_000)),
        7 => Op::Rewrite(one, bytes(random)),
        8 | 9 => Op::Rename(one, path(random)),
        10 => Op::Unlink(one),
        11 | 12 => Op::Mkdir(one),
        13 => Op::Rmdir(one),
        14 if random.below(2) == 0 => Op::Symlink(format!("f{}", random.below(3)), one),
        14 => Op::Link(one, path(random)),
        _ => Op::Chmod(one, 0o600 | random.below(0o200) as u32),
    }
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
            | Op::Chmod(one, _) => vec![one],
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
    Ok(format!("{mode:o} x{nlink} {inside}"))
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
        let op = random_op(&mut random);
        let actor = random.below(2) as usize;
        let here = perform(&mounts[actor], &op).map_err(|error| error.raw_os_error());
        let there = perform(&local, &op).map_err(|error| error.raw_os_error());
        assert_eq!(here, there, "seed {seed} step {step}: {op:?}, against the local disk");
        done += u64::from(here.is_ok());
        let what = touched(&mounts[1 - actor], &op);
        assert_eq!(what, touched(&local, &op), "seed {seed} step {step}: {op:?}");
        // Not all after every step, so that caches grow old in between; and by turns first.
        if random.below(3) == 0 {
            let want = seen(&local);
            for mount in [&mounts[1 - actor], &mounts[actor]] {
                assert_eq!(seen(mount), want, "seed {seed} step {step}: {op:?}, {mount:?}");
            }
        }
    }
    assert!(done > steps / 15, "only {done} steps did anything");
    rig.end();
}

/// Records appended by both mounts at once: none is torn, lost, or lies over another.
fn appended_records_stay_whole(servers: Servers) {
    const RECORD_BYTES: usize = 4000;
    let Some(rig) = Rig::start(servers, "two-append", 2, false) else { return };
    let records = 150;
    std::thread::scope(|scope| {
        for (who, mount) in rig.mounts().iter().enumerate() {
            let path = mount.join("log");
            scope.spawn(move || {
                let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
                for n in 0..records {
                    let mut record = vec![n as u8; RECORD_BYTES];
                    record[0] = who as u8;
                    file.write_all(&record).unwrap();
                }
            });
        }
    });
    for mount in rig.mounts() {
        let bytes = fs::read(mount.join("log")).unwrap();
        assert_eq!(bytes.len(), 2 * records * RECORD_BYTES);
        let mut next = [0_usize; 2];
        for record in bytes.chunks(RECORD_BYTES) {
            let who = usize::from(record[0]);
            assert!(record[1..].iter().all(|byte| *byte == next[who] as u8), "a torn record");
            next[who] += 1;
        }
        assert_eq!(next, [records; 2]);
    }
    rig.end();
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

/// A file that one mount replaces by rename is never missing for the other, and always whole.
fn a_replaced_file_is_always_whole(servers: Servers) {
    const STALE: i32 = rustix::io::Errno::STALE.raw_os_error();
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
