//! Which operation a program does next: chance decides, over what there is.

use sateen_client::OpenHow;
use sateen_types::{Fid, STRIPE_SIZE_MIN, StripePolicy, Timespec};
use sateen_wire::XattrMode;

use super::{At, Op};
use crate::data::Fallocate;
use crate::kernel::Handle;
use crate::names::{Inode, Names, Node};
use crate::random::Random;

/// Names that each directory's entries are taken from.
const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h"];
/// Names that extended attributes are taken from.
const XATTRS: &[&str] = &["user.a", "user.b", "trusted.c"];
/// Most bytes of their values.
const XATTR_BYTES_MAX: u64 = 600;
/// Deepest directory below the root.
const DEPTH_MAX: usize = 3;
/// Files do not grow far beyond this.
pub(crate) const FILE_BYTES_MAX: u64 = 400_000;
/// The record that HPC codes are known for.
const RECORD_BYTES: u64 = 47_008;

/// Chooses operations.
pub(crate) struct Chooser<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) names: &'a Names,
    /// How many OSTs there are.
    pub(crate) osts: u32,
    /// The kernel is given files.
    pub(crate) given: bool,
}

impl Chooser<'_> {
    /// A name in some directory, or with an empty name the directory itself.
    fn at(&mut self, dir_itself: bool) -> At {
        let (mut path, mut dirs) = (Vec::new(), vec![Fid::ROOT]);
        while path.len() < DEPTH_MAX && !self.random.one_in(3) {
            let dir = dirs.last().copied().unwrap_or(Fid::ROOT);
            let entries = self.names.entries(dir).into_iter().flatten();
            let below: Vec<(&Vec<u8>, Fid)> = entries
                .map(|(name, fid)| (name, *fid))
                .filter(|(_, fid)| self.names.is_dir(*fid))
                .collect();
            let Some((name, fid)) = self.random.pick(&below).copied() else { break };
            path.push(name.clone());
            dirs.push(fid);
        }
        let name = if dir_itself {
            Vec::new()
        } else {
            self.random.pick(NAMES).map(|name| name.as_bytes().to_vec()).unwrap_or_default()
        };
        At { path, dirs, name }
    }

    /// A name that exists and is of such a kind, if a few tries find one.
    fn existing(&mut self, fits: impl Fn(&Inode) -> bool) -> Option<At> {
        (0..6).find_map(|_| {
            let at = self.at(false);
            let fid = self.names.find(at.dir(), &at.name)?;
            self.names.inodes.get(&fid).filter(|inode| fits(inode)).map(|_| at)
        })
    }

    /// A name that nothing has, if a few tries find one.
    fn free(&mut self) -> Option<At> {
        (0..6).find_map(|_| {
            let at = self.at(false);
            self.names.find(at.dir(), &at.name).is_none().then_some(at)
        })
    }

    fn how(&mut self) -> OpenHow {
        let write = self.random.permille(650);
        OpenHow {
            read: true,
            write,
            append: write && self.random.one_in(5),
            truncate: write && self.random.one_in(8),
            exclusive: false,
            sync: write && self.random.one_in(20),
            direct: self.given && self.random.one_in(5),
            ..OpenHow::default()
        }
    }

    /// On an open file.
    fn on_handle(&mut self, handle: Handle, size: u64, certain: bool) -> Op {
        let room = FILE_BYTES_MAX.saturating_sub(size);
        match self.random.below(116) {
            108.. if handle.how.write && certain => {
                let ost = self.random.below(u64::from(self.osts)) as u32;
                Op::NoRoom { handle, ost }
            }
            104.. => Op::Fstat { handle },
            100.. if handle.how.write && certain => {
                let how = match self.random.below(4) {
                    0 => Fallocate::Grow,
                    1 => Fallocate::KeepSize,
                    _ => Fallocate::Punch,
                };
                let offset = self.random.below(size + 20_000).min(FILE_BYTES_MAX);
                Op::Allocate { handle, offset, len: self.random.within(1, 90_000), how }
            }
            0..=44 if handle.how.write && (certain || !handle.how.append) => {
                let len = match self.random.below(4) {
                    0 => RECORD_BYTES,
                    1 => 4096,
                    _ => self.random.within(1, 20_000),
                };
                let offset = match self.random.below(4) {
                    0 => size,
                    1 => self.random.below(size / RECORD_BYTES + 1) * RECORD_BYTES,
                    _ => self.random.below(size + 70_000),
                };
                let offset = if handle.how.append { size } else { offset };
                if handle.how.append && room < len {
                    return Op::Close { handle };
                }
                let offset = offset.min(FILE_BYTES_MAX);
                if self.random.one_in(8) {
                    // Most of these are made by `fallocate`.
                    return Op::Write { handle, offset, data: vec![0; len as usize] };
                }
                let seed = self.random.any();
                let data = pattern(len, seed);
                Op::Write { handle, offset, data }
            }
            45..=48 => {
                let offset = self.random.below(size + 5000);
                Op::Seek { handle, offset, hole: self.random.one_in(2) }
            }
            49..=79 => {
                let offset = self.random.below(size + 5000);
                Op::Read { handle, offset, len: self.random.within(1, 60_000) }
            }
            80..=90 => Op::Fsync { handle },
            _ => Op::Close { handle },
        }
    }

    /// The next operation of a program with these open files: (handle, size, size is known).
    pub(crate) fn next(&mut self, open: &[(Handle, u64, bool)]) -> Option<Op> {
        if !open.is_empty() && self.random.permille(if open.len() > 3 { 900 } else { 600 }) {
            let (handle, size, certain) = *self.random.pick(open)?;
            return Some(self.on_handle(handle, size, certain));
        }
        let is_file = |inode: &Inode| inode.node == Node::File;
        let op = match self.random.below(123) {
            0..=24 => {
                let at = self.at(false);
                let there = self.names.find(at.dir(), &at.name);
                let kind = there.and_then(|fid| self.names.inodes.get(&fid));
                if kind.is_some_and(|inode| !is_file(inode)) {
                    return None;
                }
                let mut how = self.how();
                how.exclusive = self.random.one_in(4);
                Op::Open { at, create: Some(0o600 | self.random.below(0o200) as u32), how }
            }
            25..=36 => {
                let how = self.how();
                Op::Open { at: self.existing(is_file)?, create: None, how }
            }
            37..=48 => {
                let itself = self.random.one_in(4);
                Op::Stat { at: self.at(itself) }
            }
            49..=53 => {
                let size = self.random.below(150_000);
                Op::Truncate { at: self.existing(is_file)?, size }
            }
            54..=57 => {
                let mode = self.random.below(0o1000) as u32;
                Op::Chmod {
                    at: self.existing(|inode| !matches!(inode.node, Node::Symlink(_)))?,
                    mode,
                }
            }
            58..=63 => {
                let at = self.at(false);
                if at.path.len() >= DEPTH_MAX {
                    return None;
                }
                Op::Mkdir { at }
            }
            64..=65 => {
                let len = self.random.within(1, 40) as usize;
                Op::Symlink { at: self.at(false), target: vec![b't'; len] }
            }
            66..=67 => Op::Readlink { at: self.at(false) },
            68..=77 => Op::Remove { at: self.at(false), directory: false },
            78..=80 => Op::Remove { at: self.at(false), directory: true },
            81..=88 => self.rename()?,
            89..=91 => self.link()?,
            92..=96 => Op::Readdir { at: self.at(true) },
            97..=99 => Op::FsyncDir { at: self.at(true) },
            100..=108 => self.on_xattrs()?,
            109 | 110 | 116 | 117 => {
                Op::SetStripe { at: self.striped()?, policy: self.policy(), osts: Vec::new() }
            }
            111 | 112 => Op::GetStripe { at: self.striped()? },
            113 => Op::StatFs,
            114 | 115 => Op::GetLinks { at: self.existing(|_| true)? },
            118..=120 => {
                let policy = StripePolicy { stripe_count: 0, ..self.policy() };
                let of_file = !self.random.one_in(3);
                let at = if of_file { self.existing(is_file)? } else { self.striped()? };
                Op::SetStripe { at, policy, osts: self.some_osts() }
            }
            _ => {
                let how = OpenHow { write: true, truncate: false, ..self.how() };
                Op::Tmpfile { at: self.at(true), how }
            }
        };
        Some(op)
    }

    fn on_xattrs(&mut self) -> Option<Op> {
        let at = if self.random.one_in(6) { self.at(false) } else { self.existing(|_| true)? };
        let name = self.random.pick(XATTRS).map(|name| name.as_bytes().to_vec())?;
        Some(match self.random.below(10) {
            0..=3 => {
                let len = self.random.below(XATTR_BYTES_MAX);
                let seed = self.random.any();
                let value = pattern(len, seed);
                let mode = match self.random.below(6) {
                    0 => XattrMode::Create,
                    1 => XattrMode::Replace,
                    _ => XattrMode::Any,
                };
                Op::SetXattr { at, name, value: Some((value, mode)) }
            }
            4 | 5 => Op::SetXattr { at, name, value: None },
            6 | 7 => Op::GetXattr { at, name: Some(name) },
            _ => Op::GetXattr { at, name: None },
        })
    }

    /// Something that has a striping, or would have one if it were a directory or file.
    fn striped(&mut self) -> Option<At> {
        match self.random.below(8) {
            0 => Some(self.at(false)),
            1..=3 => self.existing(|inode| inode.node == Node::File),
            _ => self.existing(|inode| matches!(inode.node, Node::Dir(_))),
        }
    }

    /// Stripes stay so small that many files have several.
    fn policy(&mut self) -> StripePolicy {
        if self.random.one_in(8) {
            return StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None };
        }
        let osts = u64::from(self.osts);
        let count = self.random.within(0, osts) as i32;
        StripePolicy {
            stripe_count: if count == 0 { -1 } else { count },
            stripe_size: STRIPE_SIZE_MIN * self.random.within(1, 2) as u32,
            stripe_offset: self.random.one_in(2).then(|| self.random.below(osts) as u32),
        }
    }

    /// OSTs in any order, each once.
    fn some_osts(&mut self) -> Vec<u32> {
        let mut left: Vec<u32> = (0..self.osts).collect();
        let mut osts = Vec::new();
        while osts.is_empty() || !left.is_empty() && self.random.one_in(2) {
            let at = self.random.index(left.len());
            osts.push(left.remove(at));
        }
        osts
    }

    /// Opens a file that is open, or does something to it by its name.
    pub(crate) fn beside(&mut self, fid: Fid) -> Option<Op> {
        let at = self.named(fid)?;
        Some(match self.random.below(8) {
            0 => return self.touch(fid),
            1 => Op::Truncate { at, size: self.random.below(150_000) },
            2 => Op::Stat { at },
            _ => Op::Open { at, create: None, how: self.how() },
        })
    }

    /// Sets its mtime.
    pub(crate) fn touch(&mut self, fid: Fid) -> Option<Op> {
        let at = self.named(fid)?;
        let (sec, nsec) = (self.random.below(1 << 31) as i64, self.random.below(1 << 29));
        Some(Op::Touch { at, mtime: Timespec { sec, nsec: nsec as u32 } })
    }

    /// Opens a file to read it through the kernel's pages.
    pub(crate) fn look_into(&mut self, fid: Fid) -> Option<Op> {
        let how = OpenHow { read: true, ..OpenHow::default() };
        Some(Op::Open { at: self.named(fid)?, create: None, how })
    }

    /// Writes to this file, or opens it for that.
    pub(crate) fn write_to(&mut self, fid: Fid, open: &[(Handle, u64, bool)]) -> Option<Op> {
        let writes = |(handle, ..): &&(Handle, u64, bool)| handle.fid == fid && handle.how.write;
        if let Some((handle, size, certain)) = open.iter().find(writes).copied() {
            return Some(self.on_handle(handle, size, certain));
        }
        let how = OpenHow { read: true, write: true, ..OpenHow::default() };
        Some(Op::Open { at: self.named(fid)?, create: None, how })
    }

    /// Looks at this file, or changes what those see who look.
    pub(crate) fn share(&mut self, fid: Fid, open: &[(Handle, u64, bool)]) -> Option<Op> {
        let at = self.named(fid)?;
        let has_other_names = self.names.inodes.get(&fid).is_some_and(|inode| inode.nlink > 1);
        Some(match self.random.below(11) {
            0..=4 => match open.iter().find(|(handle, ..)| handle.fid == fid) {
                Some((handle, ..)) => Op::Fstat { handle: *handle },
                None => {
                    Op::Open { at, create: None, how: OpenHow { read: true, ..OpenHow::default() } }
                }
            },
            5 | 6 => Op::Stat { at },
            7 if has_other_names => Op::Remove { at, directory: false },
            8 => Op::Chmod { at, mode: self.random.below(0o1000) as u32 },
            _ => Op::Link { from: at, to: self.free()? },
        })
    }

    /// A name of this inode.
    pub(crate) fn named(&self, fid: Fid) -> Option<At> {
        self.at_of(At { path: Vec::new(), dirs: vec![Fid::ROOT], name: Vec::new() }, fid)
    }

    /// A name of this inode in or below the directory `dir`.
    fn at_of(&self, dir: At, fid: Fid) -> Option<At> {
        let entries = self.names.entries(dir.dir())?;
        if let Some((name, _)) = entries.iter().find(|(_, found)| **found == fid) {
            return Some(At { name: name.clone(), ..dir });
        }
        let below = entries.iter().filter(|(_, found)| self.names.is_dir(**found));
        below.into_iter().find_map(|(name, found)| {
            let mut below = dir.clone();
            below.path.push(name.clone());
            below.dirs.push(*found);
            self.at_of(below, fid)
        })
    }

    /// Mostly of something that is there and may have further names.
    fn link(&mut self) -> Option<Op> {
        let is_linkable = |inode: &Inode| !matches!(inode.node, Node::Dir(_));
        let from = if self.random.one_in(5) { self.at(false) } else { self.existing(is_linkable)? };
        Some(Op::Link { from, to: self.at(false) })
    }

    fn rename(&mut self) -> Option<Op> {
        let from = if self.random.one_in(5) { self.at(false) } else { self.existing(|_| true)? };
        let to = self.at(false);
        let exchange = self.random.one_in(8);
        let no_replace = !exchange && self.random.one_in(8);
        let whiteout = !exchange && self.random.one_in(3);
        Some(Op::Rename { from, to, exchange, no_replace, whiteout })
    }
}

/// Bytes that show by their place and their seed where they belong: they begin anew after 251, a prime, so
/// that they do not look right either where they lie some pages beside that.
fn pattern(len: u64, seed: u64) -> Vec<u8> {
    let round: Vec<u8> = (0..251).map(|i| (seed >> (i % 8 * 8)) as u8 ^ i).collect();
    let mut bytes = round.repeat(len as usize / round.len() + 1);
    bytes.truncate(len as usize);
    bytes
}
