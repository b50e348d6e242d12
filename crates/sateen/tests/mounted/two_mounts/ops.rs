//! What a step does: a call or a few on a path, or on a descriptor that stays open over steps.
//! Most steps are about something that is there, since chance would rarely meet it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Timespec, Timestamps, XattrFlags, fallocate, removexattr,
    setxattr, utimensat,
};
use sateen_testkit::random::Random;

/// Descriptors that stay open, by turns of one mount and of the other.
pub(super) const HELD: usize = 6;
/// The largest offset of a write, and the largest write: together some rows of stripes.
const OFFSET_MAX: u64 = 300_000;
const BYTES_MAX: u64 = 200_000;
/// Times before this were set by a step.
pub(super) const LONG_AGO_S: i64 = 1_500_000_000;
const XATTRS: [&str; 3] = ["user.a", "user.b", "user.longer"];

/// What is written: a sequence that begins somewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes {
    start: u64,
    len: u64,
}

impl Bytes {
    /// Often few, sometimes over several stripes.
    fn some(random: &mut Random) -> Bytes {
        let len = if random.one_in(4) { random.below(BYTES_MAX) } else { random.below(6000) };
        Bytes { start: random.number(), len }
    }

    fn all(self) -> Vec<u8> {
        (0..self.len).map(|at| (self.start.wrapping_add(at) % 251) as u8).collect()
    }
}

/// One thing to do; paths are below a root.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Create(String),
    Write(String, u64, Bytes),
    Append(String, Bytes),
    Truncate(String, u64),
    Rewrite(String, Bytes),
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
    /// Opens a file under this number, and keeps it open.
    Open(usize, String, How),
    /// A call on what is open under this number.
    Held(usize, Call),
}

/// For what a descriptor is open.
#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Reading,
    Both,
    Appending,
}

/// A call on a descriptor.
#[derive(Debug, Clone)]
pub(super) enum Call {
    WriteAt(u64, Bytes),
    /// Where the descriptor is, or at the end.
    Write(Bytes),
    Truncate(u64),
    /// Makes a hole.
    Punch(u64, u64),
    Sync,
    Close,
}

/// Some names in some folders, few, so that they meet.
fn path(random: &mut Random) -> String {
    let folder = ["", "d0/", "d1/", "d0/e/"][random.below(4) as usize];
    let name = ["f0", "f1", "f2", "d0", "d1", "e", "s"][random.below(7) as usize];
    format!("{folder}{name}")
}

/// What there is below a root, so that most steps find what they are about.
#[derive(Default)]
pub(super) struct There {
    files: Vec<String>,
    folders: Vec<String>,
    all: Vec<String>,
}

impl There {
    pub(super) fn below(root: &Path) -> There {
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

impl Op {
    /// One of them by chance; `open` are the numbers of descriptors that are open.
    pub(super) fn any(random: &mut Random, there: &There, open: &[usize]) -> Op {
        let file = There::one_of(random, &there.files);
        let any = There::one_of(random, &there.all);
        let free = there.free(random);
        match random.below(28) {
            0 => Op::Create(free),
            1 => Op::Write(free, random.below(OFFSET_MAX), Bytes::some(random)),
            2 | 3 => Op::Write(file, random.below(OFFSET_MAX), Bytes::some(random)),
            4 | 5 => Op::Append(file, Bytes::some(random)),
            6 => Op::Truncate(file, random.below(OFFSET_MAX)),
            7 => Op::Rewrite(file, Bytes::some(random)),
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
            20 | 21 => Op::Open(random.below(HELD as u64) as usize, file, How::any(random)),
            22.. if !open.is_empty() => Op::Held(*random.pick(open).unwrap(), Call::any(random)),
            _ => {
                let seconds = random.below(LONG_AGO_S as u64) as i64;
                Op::Utimes(any, seconds, random.below(1_000_000_000) as u32)
            }
        }
    }

    /// The descriptor that it is about.
    pub(super) fn held(&self) -> Option<usize> {
        match self {
            Op::Open(number, ..) | Op::Held(number, _) => Some(*number),
            _ => None,
        }
    }

    /// Whether it may change what is in a file.
    pub(super) fn writes(&self) -> bool {
        matches!(
            self,
            Op::Write(..) | Op::Append(..) | Op::Truncate(..) | Op::Rewrite(..) | Op::Held(..)
        )
    }

    /// The paths that it names.
    fn named(&self) -> Vec<&String> {
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
            | Op::Utimes(one, ..)
            | Op::Open(_, one, _) => vec![one],
            Op::Rename(one, other) | Op::Link(one, other) => vec![one, other],
            Op::Held(..) => Vec::new(),
        }
    }
}

impl How {
    fn any(random: &mut Random) -> How {
        *random.pick(&[How::Reading, How::Both, How::Both, How::Appending]).unwrap()
    }

    /// A directory is not kept open: docs/semantics.md has a row of what becomes of one that
    /// another mount removes.
    fn open(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.read(true);
        let file = match self {
            How::Reading => options.open(path)?,
            How::Both => options.write(true).open(path)?,
            How::Appending => options.append(true).open(path)?,
        };
        if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    }
}

impl Call {
    fn any(random: &mut Random) -> Call {
        match random.below(10) {
            0..=2 => Call::WriteAt(random.below(OFFSET_MAX), Bytes::some(random)),
            3 | 4 => Call::Write(Bytes::some(random)),
            5 | 6 => Call::Truncate(random.below(OFFSET_MAX)),
            7 => Call::Punch(random.below(OFFSET_MAX), 1 + random.below(BYTES_MAX)),
            8 => Call::Sync,
            _ => Call::Close,
        }
    }

    fn perform(&self, file: &mut File) -> io::Result<()> {
        match self {
            Call::WriteAt(offset, bytes) => file.write_all_at(&bytes.all(), *offset),
            Call::Write(bytes) => file.write_all(&bytes.all()),
            Call::Truncate(size) => file.set_len(*size),
            Call::Punch(offset, len) => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(file, hole, *offset, *len)?)
            }
            Call::Sync => file.sync_all(),
            Call::Close => Ok(()),
        }
    }
}

/// The value of an extended attribute.
fn short(random: &mut Random) -> Vec<u8> {
    (0..random.below(60)).map(|_| random.below(256) as u8).collect()
}

/// Where steps are done: below a root, and by the descriptors that are open there.
pub(super) struct Place {
    pub(super) root: PathBuf,
    pub(super) held: [Option<File>; HELD],
}

impl Place {
    pub(super) fn new(root: &Path) -> Place {
        Place { root: root.to_owned(), held: Default::default() }
    }

    /// The numbers of the descriptors that are open.
    pub(super) fn open(&self) -> Vec<usize> {
        (0..HELD).filter(|number| self.held[*number].is_some()).collect()
    }

    /// The paths that a step is about: those that it names, and those of its descriptor's file.
    pub(super) fn paths(&self, op: &Op, there: &There) -> Vec<String> {
        let mut paths: Vec<String> = op.named().into_iter().cloned().collect();
        let file = op.held().and_then(|number| self.held[number].as_ref());
        if let Some(file) = file {
            let ino = file.metadata().unwrap().ino();
            let is_it = |path: &&String| {
                fs::symlink_metadata(self.root.join(path)).is_ok_and(|meta| meta.ino() == ino)
            };
            paths.extend(there.files.iter().filter(is_it).cloned());
        }
        paths
    }

    pub(super) fn perform(&mut self, op: &Op) -> io::Result<()> {
        let at = |path: &String| self.root.join(path);
        match op {
            Op::Create(path) => File::create_new(at(path)).map(drop),
            Op::Write(path, offset, bytes) => {
                let mut options = OpenOptions::new();
                let file = options.create(true).truncate(false).write(true).open(at(path))?;
                file.write_all_at(&bytes.all(), *offset)
            }
            Op::Append(path, bytes) => {
                OpenOptions::new().append(true).open(at(path))?.write_all(&bytes.all())
            }
            Op::Truncate(path, size) => {
                OpenOptions::new().write(true).open(at(path))?.set_len(*size)
            }
            Op::Rewrite(path, bytes) => fs::write(at(path), bytes.all()),
            Op::Rename(from, to) => fs::rename(at(from), at(to)),
            Op::Unlink(path) => fs::remove_file(at(path)),
            Op::Mkdir(path) => fs::create_dir(at(path)),
            Op::Rmdir(path) => fs::remove_dir(at(path)),
            Op::Link(from, to) => fs::hard_link(at(from), at(to)),
            Op::Symlink(what, path) => symlink(what, at(path)),
            Op::Chmod(path, mode) => {
                fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))
            }
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
            Op::Open(number, path, how) => {
                self.held[*number] = Some(how.open(&at(path))?);
                Ok(())
            }
            Op::Held(number, call) => {
                let Some(file) = self.held[*number].as_mut() else { return Ok(()) };
                let done = call.perform(file);
                if matches!(call, Call::Close) {
                    self.held[*number] = None;
                }
                done
            }
        }
    }
}
