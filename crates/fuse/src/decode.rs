//! From the kernel's bytes to a [`Request`].
//!
//! Pure and without unsafe code. Called by both transports, which lay out a
//! request differently: /dev/fuse delivers header, operation header and payload
//! in one piece ([`decode_contiguous`]), io_uring delivers the three apart
//! ([`decode`]). Every length is checked; nothing here can panic.
use crate::abi::{self, opcode};
use crate::attr::Time;
use crate::op::{FileLock, IoctlIn, Name, Op, Request, SetattrIn};
use bytes::Bytes;
use zerocopy::FromBytes;

/// Why a request cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the operation needs.
    #[error("request of operation {opcode} is too short")]
    Short {
        /// The operation.
        opcode: u32,
    },
    /// Lengths inside the request contradict each other.
    #[error("request of operation {opcode} is malformed: {what}")]
    Malformed {
        /// The operation.
        opcode: u32,
        /// Which rule was broken.
        what: &'static str,
    },
    /// An operation this crate does not serve; ENOSYS tells the kernel.
    #[error("operation {opcode} is not served")]
    Unsupported {
        /// The operation.
        opcode: u32,
    },
}

impl DecodeError {
    /// The errno the kernel gets.
    pub fn errno(self) -> i32 {
        match self {
            DecodeError::Short { .. } | DecodeError::Malformed { .. } => libc::EIO,
            DecodeError::Unsupported { .. } => libc::ENOSYS,
        }
    }
}

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The request. The data of a WRITE is left empty for the transport, which
    /// has it without a copy.
    pub request: Request,
    /// Where a WRITE's data begins in the payload, always 0, and its length.
    pub write_len: Option<usize>,
}

/// Length of the fixed header of an operation, in bytes; none if the operation
/// is not served.
pub fn arg_len(op: u32) -> Option<usize> {
    Some(match op {
        opcode::LOOKUP
        | opcode::READLINK
        | opcode::SYMLINK
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::STATFS
        | opcode::REMOVEXATTR => 0,
        opcode::FORGET => size_of::<abi::ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        opcode::GETATTR => size_of::<abi::GetattrIn>(),
        opcode::STATX => size_of::<abi::StatxIn>(),
        opcode::SETATTR => size_of::<abi::SetattrWire>(),
        opcode::MKNOD => size_of::<abi::MknodIn>(),
        opcode::MKDIR => size_of::<abi::MkdirIn>(),
        opcode::RENAME => size_of::<abi::RenameIn>(),
        opcode::RENAME2 => size_of::<abi::Rename2In>(),
        opcode::LINK => size_of::<abi::LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<abi::OpenIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<abi::CreateIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<abi::ReadIn>(),
        opcode::WRITE => size_of::<abi::WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<abi::ReleaseIn>(),
        opcode::FLUSH => size_of::<abi::FlushIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<abi::FsyncIn>(),
        opcode::SETXATTR => size_of::<abi::SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<abi::GetxattrIn>(),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => size_of::<abi::LkIn>(),
        opcode::ACCESS => size_of::<abi::AccessIn>(),
        opcode::INTERRUPT => size_of::<abi::InterruptIn>(),
        opcode::IOCTL => size_of::<abi::IoctlWire>(),
        opcode::FALLOCATE => size_of::<abi::FallocateIn>(),
        opcode::LSEEK => size_of::<abi::LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<abi::CopyFileRangeIn>(),
        opcode::SYNCFS => size_of::<abi::SyncfsIn>(),
        _ => return None,
    })
}

/// Decodes a request read from /dev/fuse: `message` is exactly what was read.
/// The second value is where the payload begins in `message`.
pub fn decode_contiguous(message: &[u8]) -> Result<(Decoded, usize), DecodeError> {
    let short = DecodeError::Short { opcode: 0 };
    let (header, body) = abi::InHeader::read_from_prefix(message).map_err(|_| short)?;
    let opcode = header.opcode;
    if header.len as usize != message.len() {
        return Err(DecodeError::Malformed { opcode, what: "length differs from what was read" });
    }
    let len = arg_len(opcode).ok_or(DecodeError::Unsupported { opcode })?;
    let (arg, payload) = body.split_at_checked(len).ok_or(DecodeError::Short { opcode })?;
    let decoded = decode_parts(&header, arg, payload)?;
    Ok((decoded, message.len() - payload.len()))
}

/// Decodes a request whose header (40 bytes), operation header (at least
/// [`arg_len`] bytes) and payload lie apart.
pub fn decode(header: &[u8], arg: &[u8], payload: &[u8]) -> Result<Decoded, DecodeError> {
    let short = DecodeError::Short { opcode: 0 };
    let (header, _) = abi::InHeader::read_from_prefix(header).map_err(|_| short)?;
    decode_parts(&header, arg, payload)
}

pub(crate) fn decode_parts(
    header: &abi::InHeader,
    arg: &[u8],
    payload: &[u8],
) -> Result<Decoded, DecodeError> {
    let opcode = header.opcode;
    let ext_len = usize::from(header.total_extlen) * 8;
    let body_len = payload.len().checked_sub(ext_len).ok_or(DecodeError::Short { opcode })?;
    let (body, ext) = payload.split_at_checked(body_len).unwrap_or_default();
    let mut input = Input { opcode, ino: header.nodeid, arg, body };
    let op = input.op()?;
    let write_len = matches!(op, Op::Write { .. }).then_some(body.len());
    let request = Request {
        unique: header.unique,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        supp_group: supp_group(opcode, ext)?,
        op,
    };
    Ok(Decoded { request, write_len })
}

/// The first supplementary group among the extensions; the kernel sends at most
/// one, the one that matches the parent's group.
fn supp_group(opcode: u32, mut ext: &[u8]) -> Result<Option<u32>, DecodeError> {
    while !ext.is_empty() {
        let (head, _) = abi::ExtHeader::read_from_prefix(ext)
            .map_err(|_| DecodeError::Malformed { opcode, what: "extension header" })?;
        let malformed = DecodeError::Malformed { opcode, what: "extension length" };
        // A record is at least its header long, so that the loop advances.
        let size = (head.size as usize).next_multiple_of(8);
        if size < size_of::<abi::ExtHeader>() {
            return Err(malformed);
        }
        let (record, rest) = ext.split_at_checked(size).ok_or(malformed)?;
        if head.kind == abi::EXT_GROUPS {
            let groups = record.get(size_of::<abi::ExtHeader>()..).unwrap_or_default();
            let (count, list) = u32::read_from_prefix(groups).map_err(|_| malformed)?;
            if count > 0 {
                let (gid, _) = u32::read_from_prefix(list).map_err(|_| malformed)?;
                return Ok(Some(gid));
            }
        }
        ext = rest;
    }
    Ok(None)
}

/// A request being taken apart.
struct Input<'a> {
    opcode: u32,
    ino: u64,
    arg: &'a [u8],
    body: &'a [u8],
}

impl Input<'_> {
    fn arg<T: FromBytes>(&self) -> Result<T, DecodeError> {
        T::read_from_prefix(self.arg)
            .map(|(value, _)| value)
            .map_err(|_| DecodeError::Short { opcode: self.opcode })
    }

    fn malformed(&self, what: &'static str) -> DecodeError {
        DecodeError::Malformed { opcode: self.opcode, what }
    }

    /// Takes a NUL-ended, non-empty name off the payload.
    fn name(&mut self) -> Result<Name, DecodeError> {
        let end = self.body.iter().position(|byte| *byte == 0);
        let end = end.ok_or(self.malformed("name without end"))?;
        if end == 0 || end > abi::NAME_MAX {
            return Err(self.malformed("length of a name"));
        }
        let (name, rest) = self.body.split_at_checked(end).unwrap_or_default();
        self.body = rest.get(1..).unwrap_or_default();
        Ok(Name::new(name))
    }

    fn op(&mut self) -> Result<Op, DecodeError> {
        match self.opcode {
            opcode::READ | opcode::WRITE | opcode::READDIR | opcode::READDIRPLUS => self.data_op(),
            opcode::GETATTR
            | opcode::STATX
            | opcode::SETATTR
            | opcode::SETXATTR
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::REMOVEXATTR => self.attr_op(),
            opcode::LOOKUP
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE => self.name_op(),
            opcode::OPEN
            | opcode::OPENDIR
            | opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::FLUSH
            | opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::GETLK
            | opcode::SETLK
            | opcode::SETLKW
            | opcode::FALLOCATE
            | opcode::LSEEK
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64
            | opcode::IOCTL => self.handle_op(),
            _ => self.other_op(),
        }
    }

    fn data_op(&mut self) -> Result<Op, DecodeError> {
        let ino = self.ino;
        if self.opcode == opcode::WRITE {
            let w: abi::WriteIn = self.arg()?;
            if w.size as usize != self.body.len() {
                return Err(self.malformed("size of the data"));
            }
            return Ok(Op::Write {
                ino,
                fh: w.fh,
                offset: w.offset,
                data: Bytes::new(),
                flags: w.flags,
                write_flags: w.write_flags,
                lock_owner: (w.write_flags & 2 != 0).then_some(w.lock_owner),
            });
        }
        let r: abi::ReadIn = self.arg()?;
        let (fh, offset, size) = (r.fh, r.offset, r.size);
        Ok(match self.opcode {
            opcode::READDIR => Op::Readdir { ino, fh, offset, size },
            opcode::READDIRPLUS => Op::Readdirplus { ino, fh, offset, size },
            _ => {
                let lock_owner = (r.read_flags & 2 != 0).then_some(r.lock_owner);
                Op::Read { ino, fh, offset, size, flags: r.flags, lock_owner }
            }
        })
    }

    fn attr_op(&mut self) -> Result<Op, DecodeError> {
        let ino = self.ino;
        Ok(match self.opcode {
            opcode::GETATTR => {
                let g: abi::GetattrIn = self.arg()?;
                Op::Getattr { ino, fh: (g.flags & abi::GETATTR_FH != 0).then_some(g.fh) }
            }
            opcode::STATX => {
                let s: abi::StatxIn = self.arg()?;
                let fh = (s.flags & abi::GETATTR_FH != 0).then_some(s.fh);
                Op::Statx { ino, fh, flags: s.sx_flags, mask: s.sx_mask }
            }
            opcode::SETATTR => Op::Setattr { ino, attr: setattr(&self.arg()?) },
            opcode::SETXATTR => {
                let s: abi::SetxattrIn = self.arg()?;
                let name = self.name()?;
                if s.size as usize != self.body.len() {
                    return Err(self.malformed("size of the value"));
                }
                let value = Bytes::copy_from_slice(self.body);
                let acl_kill_sgid = s.setxattr_flags & 1 != 0;
                Op::Setxattr { ino, name, value, flags: s.flags, acl_kill_sgid }
            }
            opcode::GETXATTR => {
                let g: abi::GetxattrIn = self.arg()?;
                Op::Getxattr { ino, name: self.name()?, size: g.size }
            }
            opcode::LISTXATTR => {
                let g: abi::GetxattrIn = self.arg()?;
                Op::Listxattr { ino, size: g.size }
            }
            _ => Op::Removexattr { ino, name: self.name()? },
        })
    }

    fn name_op(&mut self) -> Result<Op, DecodeError> {
        let parent = self.ino;
        Ok(match self.opcode {
            opcode::LOOKUP => Op::Lookup { parent, name: self.name()? },
            opcode::SYMLINK => {
                let name = self.name()?;
                Op::Symlink { parent, name, target: self.name()? }
            }
            opcode::MKNOD => {
                let m: abi::MknodIn = self.arg()?;
                let name = self.name()?;
                Op::Mknod { parent, name, mode: m.mode, rdev: m.rdev, umask: m.umask }
            }
            opcode::MKDIR => {
                let m: abi::MkdirIn = self.arg()?;
                Op::Mkdir { parent, name: self.name()?, mode: m.mode, umask: m.umask }
            }
            opcode::UNLINK => Op::Unlink { parent, name: self.name()? },
            opcode::RMDIR => Op::Rmdir { parent, name: self.name()? },
            opcode::RENAME => {
                let r: abi::RenameIn = self.arg()?;
                let (name, new_name) = (self.name()?, self.name()?);
                Op::Rename { parent, name, new_parent: r.newdir, new_name, flags: 0 }
            }
            opcode::RENAME2 => {
                let r: abi::Rename2In = self.arg()?;
                let (name, new_name) = (self.name()?, self.name()?);
                Op::Rename { parent, name, new_parent: r.newdir, new_name, flags: r.flags }
            }
            opcode::LINK => {
                let l: abi::LinkIn = self.arg()?;
                Op::Link { ino: l.oldnodeid, new_parent: parent, new_name: self.name()? }
            }
            opcode::CREATE => {
                let c: abi::CreateIn = self.arg()?;
                let name = self.name()?;
                Op::Create { parent, name, mode: c.mode, flags: c.flags, umask: c.umask }
            }
            _ => {
                // The kernel sends a placeholder name with TMPFILE.
                let c: abi::CreateIn = self.arg()?;
                Op::Tmpfile { parent, mode: c.mode, flags: c.flags, umask: c.umask }
            }
        })
    }

    fn handle_op(&mut self) -> Result<Op, DecodeError> {
        let ino = self.ino;
        Ok(match self.opcode {
            opcode::OPEN => {
                let o: abi::OpenIn = self.arg()?;
                Op::Open { ino, flags: o.flags, kill_suidgid: o.open_flags & 1 != 0 }
            }
            opcode::OPENDIR => {
                let o: abi::OpenIn = self.arg()?;
                Op::Opendir { ino, flags: o.flags }
            }
            opcode::RELEASE => {
                let r: abi::ReleaseIn = self.arg()?;
                Op::Release {
                    ino,
                    fh: r.fh,
                    flags: r.flags,
                    lock_owner: r.lock_owner,
                    flush: r.release_flags & abi::RELEASE_FLUSH != 0,
                    flock_unlock: r.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0,
                }
            }
            opcode::RELEASEDIR => {
                let r: abi::ReleaseIn = self.arg()?;
                Op::Releasedir { ino, fh: r.fh, flags: r.flags }
            }
            opcode::FLUSH => {
                let f: abi::FlushIn = self.arg()?;
                Op::Flush { ino, fh: f.fh, lock_owner: f.lock_owner }
            }
            opcode::FSYNC | opcode::FSYNCDIR => {
                let f: abi::FsyncIn = self.arg()?;
                let (fh, datasync) = (f.fh, f.flags & abi::FSYNC_FDATASYNC != 0);
                match self.opcode {
                    opcode::FSYNC => Op::Fsync { ino, fh, datasync },
                    _ => Op::Fsyncdir { ino, fh, datasync },
                }
            }
            opcode::GETLK | opcode::SETLK | opcode::SETLKW => self.lock_op()?,
            opcode::FALLOCATE => {
                let f: abi::FallocateIn = self.arg()?;
                let (fh, offset, length, mode) = (f.fh, f.offset, f.length, f.mode);
                Op::Fallocate { ino, fh, offset, length, mode }
            }
            opcode::LSEEK => {
                let l: abi::LseekIn = self.arg()?;
                Op::Lseek { ino, fh: l.fh, offset: l.offset, whence: l.whence }
            }
            opcode::IOCTL => self.ioctl_op()?,
            _ => {
                let c: abi::CopyFileRangeIn = self.arg()?;
                Op::CopyFileRange {
                    ino_in: ino,
                    fh_in: c.fh_in,
                    off_in: c.off_in,
                    ino_out: c.nodeid_out,
                    fh_out: c.fh_out,
                    off_out: c.off_out,
                    len: c.len,
                    flags: c.flags,
                }
            }
        })
    }

    fn ioctl_op(&mut self) -> Result<Op, DecodeError> {
        let i: abi::IoctlWire = self.arg()?;
        if i.in_size as usize != self.body.len() {
            return Err(self.malformed("size of the argument"));
        }
        let data = Bytes::copy_from_slice(self.body);
        let (fh, flags, cmd, arg, out_size) = (i.fh, i.flags, i.cmd, i.arg, i.out_size);
        Ok(Op::Ioctl { ino: self.ino, arg: IoctlIn { fh, flags, cmd, arg, data, out_size } })
    }

    fn lock_op(&mut self) -> Result<Op, DecodeError> {
        let l: abi::LkIn = self.arg()?;
        let lock = FileLock { start: l.lk.start, end: l.lk.end, kind: l.lk.kind, pid: l.lk.pid };
        let (ino, fh, owner, flock) = (self.ino, l.fh, l.owner, l.lk_flags & abi::LK_FLOCK != 0);
        Ok(match self.opcode {
            opcode::GETLK => Op::Getlk { ino, fh, owner, lock, flock },
            _ => {
                let wait = self.opcode == opcode::SETLKW;
                Op::Setlk { ino, fh, owner, lock, flock, wait }
            }
        })
    }

    fn other_op(&mut self) -> Result<Op, DecodeError> {
        let ino = self.ino;
        Ok(match self.opcode {
            opcode::FORGET => {
                let f: abi::ForgetIn = self.arg()?;
                Op::Forget { ino, nlookup: f.nlookup }
            }
            opcode::BATCH_FORGET => self.batch_forget()?,
            opcode::READLINK => Op::Readlink { ino },
            opcode::STATFS => Op::Statfs { ino },
            opcode::SYNCFS => Op::Syncfs { ino },
            opcode::ACCESS => {
                let a: abi::AccessIn = self.arg()?;
                Op::Access { ino, mask: a.mask }
            }
            opcode::INTERRUPT => {
                let i: abi::InterruptIn = self.arg()?;
                Op::Interrupt { unique: i.unique }
            }
            opcode => return Err(DecodeError::Unsupported { opcode }),
        })
    }

    fn batch_forget(&mut self) -> Result<Op, DecodeError> {
        let b: abi::BatchForgetIn = self.arg()?;
        let one = size_of::<abi::ForgetOne>();
        // The count is believed only as far as there are bytes for it.
        let need = (b.count as usize).checked_mul(one).ok_or(self.malformed("count"))?;
        let list = self.body.get(..need).ok_or(self.malformed("count"))?;
        let mut items = Vec::with_capacity(list.len() / one);
        for record in list.chunks_exact(one) {
            let f =
                abi::ForgetOne::read_from_bytes(record).map_err(|_| self.malformed("record"))?;
            items.push((f.nodeid, f.nlookup));
        }
        Ok(Op::BatchForget { items })
    }
}

fn setattr(s: &abi::SetattrWire) -> SetattrIn {
    let bit = |n: u32| s.valid & (1 << n) != 0;
    let time = |sec: u64, nsec: u32| Time { sec: sec.cast_signed(), nsec };
    SetattrIn {
        mode: bit(0).then_some(s.mode),
        uid: bit(1).then_some(s.uid),
        gid: bit(2).then_some(s.gid),
        size: bit(3).then_some(s.size),
        atime: bit(4).then(|| time(s.atime, s.atimensec)),
        mtime: bit(5).then(|| time(s.mtime, s.mtimensec)),
        fh: bit(6).then_some(s.fh),
        atime_now: bit(7),
        mtime_now: bit(8),
        lock_owner: bit(9).then_some(s.lock_owner),
        ctime: bit(10).then(|| time(s.ctime, s.ctimensec)),
        kill_suidgid: bit(11),
    }
}
