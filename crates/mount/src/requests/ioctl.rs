//! ioctl(2): group locks, and nothing else.
//!
//! The field's numbers say that a `long` is written to the file system from where the argument points,
//! but its programs put the group's number in the place of the pointer, and the kernel reads 8 bytes
//! from there before it asks us: they get `EFAULT`. So there are two ways here: the field's numbers with
//! a pointer to the group, and the same two commands without a direction, with the group by value.

use sateen_fuse::{IoctlIn, LongWait, Op, Reply};
use sateen_types::{Errno, Result};

use super::Call;

/// `_IOW('f', 158, long)` and `_IOW('f', 159, long)`.
const LOCK_AT: u32 = 0x4008_669e;
const UNLOCK_AT: u32 = 0x4008_669f;
/// `_IO('f', 158)` and `_IO('f', 159)`.
const LOCK_BY_VALUE: u32 = 0x669e;
const UNLOCK_BY_VALUE: u32 = 0x669f;
/// It is one on a directory (`FUSE_IOCTL_DIR`).
const IOCTL_DIR: u32 = 1 << 4;

/// What is asked of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Lock(u64),
    Unlock(u64),
}

/// Which of them it is; `ENOSYS` if it is none, which the kernel makes `ENOTTY` of.
fn group_of(arg: &IoctlIn) -> Result<Group> {
    let pointed = || {
        let bytes = arg.data.first_chunk::<8>().ok_or(Errno::EINVAL)?;
        Ok(u64::from_ne_bytes(*bytes))
    };
    if arg.flags & IOCTL_DIR != 0 {
        return Err(Errno::ENOSYS);
    }
    match arg.cmd {
        LOCK_AT => pointed().map(Group::Lock),
        UNLOCK_AT => pointed().map(Group::Unlock),
        LOCK_BY_VALUE => Ok(Group::Lock(arg.arg)),
        UNLOCK_BY_VALUE => Ok(Group::Unlock(arg.arg)),
        _ => Err(Errno::ENOSYS),
    }
}

/// Whether a request waits for a group, which may have a file for ever.
pub(crate) fn waits_for_group(op: &Op) -> bool {
    matches!(op, Op::Ioctl { arg, .. } if matches!(group_of(arg), Ok(Group::Lock(_))))
}

impl Call {
    /// `long` is kept for as long as the answer takes.
    pub(super) async fn ioctl(&self, op: Op, long: Option<LongWait>, reply: Reply) {
        let Op::Ioctl { arg, .. } = op else { return reply.error(Errno::ENOSYS.raw()) };
        let done = match group_of(&arg) {
            Ok(Group::Lock(gid)) => {
                let locked = self.client.lock_group(arg.fh, gid).await;
                drop(long);
                let Some(reply) = reply.claim() else {
                    // Its program was let go without it.
                    if locked.is_ok()
                        && let Err(error) = self.client.unlock_group(arg.fh, gid).await
                    {
                        tracing::debug!(%error, "a group lock that nobody waited for was left");
                    }
                    return;
                };
                return answer(reply, locked);
            }
            Ok(Group::Unlock(gid)) => self.client.unlock_group(arg.fh, gid).await,
            Err(errno) => Err(errno),
        };
        answer(reply, done);
    }
}

fn answer(reply: Reply, done: Result<()>) {
    match done {
        Ok(()) => reply.ioctl(0, &[]),
        Err(errno) => reply.error(errno.raw()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn arg(cmd: u32, arg: u64, data: &[u8]) -> IoctlIn {
        let data = Bytes::copy_from_slice(data);
        IoctlIn { fh: 1, flags: 0, cmd, arg, data, out_size: 0 }
    }

    #[test]
    fn a_group_comes_by_pointer_or_by_value() {
        let eight = 77u64.to_ne_bytes();
        assert_eq!(group_of(&arg(LOCK_AT, 0x7fff_0000, &eight)), Ok(Group::Lock(77)));
        assert_eq!(group_of(&arg(UNLOCK_AT, 0x7fff_0000, &eight)), Ok(Group::Unlock(77)));
        assert_eq!(group_of(&arg(LOCK_BY_VALUE, 5, &[])), Ok(Group::Lock(5)));
        assert_eq!(group_of(&arg(UNLOCK_BY_VALUE, 5, &[])), Ok(Group::Unlock(5)));
        assert_eq!(group_of(&arg(LOCK_AT, 5, &[1, 2])), Err(Errno::EINVAL));
        assert_eq!(group_of(&arg(0x5401, 5, &[])), Err(Errno::ENOSYS));
        let on_dir = IoctlIn { flags: IOCTL_DIR, ..arg(LOCK_BY_VALUE, 5, &[]) };
        assert_eq!(group_of(&on_dir), Err(Errno::ENOSYS));
        let op = |cmd| Op::Ioctl { ino: 1, arg: arg(cmd, 5, &eight) };
        assert!(waits_for_group(&op(LOCK_AT)) && waits_for_group(&op(LOCK_BY_VALUE)));
        assert!(!waits_for_group(&op(UNLOCK_AT)) && !waits_for_group(&op(0x5401)));
    }
}
