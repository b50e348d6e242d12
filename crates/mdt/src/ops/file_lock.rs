//! Programs' locks: flock(2) and fcntl(2). Nothing of them is ever written down: they end with the
//! opens that they came through, which end with a run of the MDT.
//!
//! None of these waits for anybody but for the fences of a start: who would get a lock before could
//! meet late writes of one who had it in the run before. Whoever has to wait for others is kept in
//! the table, and holds no slot.

use sateen_ldlm::{FileLockAnswer, Range};
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::{
    FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, Grants, MdtReply, OpenId, WaitId,
};

use crate::mdt::Mdt;
use crate::op::{Op, Outcome};

/// Looks whether this open may have such a lock.
pub(super) fn check(
    mdt: &Mdt,
    op: &Op<'_>,
    (fid, id): (Fid, OpenId),
    lock: &FileLock,
) -> Result<(), Fault> {
    check_range(lock)?;
    // Behind the close that it has overtaken it locks nothing.
    match mdt.clients.opened(op.client, id) {
        Some((opened, _)) if opened == fid => Ok(()),
        _ => Err(Errno::EBADF.into()),
    }
}

fn check_range(lock: &FileLock) -> Result<(), Fault> {
    match lock.start > lock.end || lock.end > FILE_LOCK_END_MAX {
        true => Err(Errno::EINVAL.into()),
        false => Ok(()),
    }
}

/// What is in the way, as the client is told: the process is nobody's business elsewhere, where
/// another has its number.
fn told(op: &Op<'_>, held: Range, flock: bool) -> FileLock {
    let lock = held.lock(flock);
    if held.owner.client == op.client { lock } else { FileLock { pid: 0, ..lock } }
}

fn answer(state: FileLockState, holder: Option<FileLock>) -> Outcome {
    Outcome::ok(MdtReply::FileLock { state, holder }, 0, Grants::NONE)
}

pub(super) fn set(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, id): (Fid, OpenId),
    (lock, wait): (&FileLock, Option<WaitId>),
) -> Result<Outcome, Fault> {
    if lock.mode == FileLockMode::Unlock {
        // Whatever open its owner does that through: it may be closed by now, by a close that has
        // overtaken this, or before a crash of this MDT; and the owner has the file open elsewhere.
        check_range(lock)?;
    } else {
        op.need_fences()?;
        check(mdt, op, (fid, id), lock)?;
    }
    Ok(match mdt.file_locks.set((op.client, id), fid, lock, wait)? {
        FileLockAnswer::Granted => answer(FileLockState::Granted, None),
        FileLockAnswer::Queued => answer(FileLockState::Queued, None),
        FileLockAnswer::Busy(held) => answer(FileLockState::Busy, Some(told(op, held, lock.flock))),
    })
}

pub(super) fn test(
    mdt: &Mdt,
    op: &mut Op<'_>,
    (fid, id): (Fid, OpenId),
    lock: &FileLock,
) -> Result<Outcome, Fault> {
    op.need_fences()?;
    check(mdt, op, (fid, id), lock)?;
    Ok(match mdt.file_locks.test(op.client, fid, lock) {
        Some(held) => answer(FileLockState::Busy, Some(told(op, held, lock.flock))),
        None => answer(FileLockState::Granted, None),
    })
}

pub(super) fn leave(mdt: &mut Mdt, op: &Op<'_>, fid: Fid, wait: WaitId) -> Outcome {
    mdt.file_locks.leave(op.client, fid, wait);
    Outcome::done(0)
}
