//! Locks of programs: flock(2), fcntl(2), and what a close has to do with them.

use std::sync::atomic::Ordering;

use sateen_fuse::{FileLock as KernelLock, LongWait, Op, Reply};
use sateen_types::{Errno, Result};
use sateen_wire::{FILE_LOCK_END_MAX, FileLock, FileLockMode};

use super::Call;

// Linux's kinds of locks.
const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
pub(crate) const F_UNLCK: u32 = 2;

fn lock_of(owner: u64, lock: &KernelLock, flock: bool) -> Result<FileLock> {
    let mode = match lock.kind {
        F_RDLCK => FileLockMode::Read,
        F_WRLCK => FileLockMode::Write,
        F_UNLCK => FileLockMode::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    let KernelLock { start, end, pid, .. } = *lock;
    if start > end {
        return Err(Errno::EINVAL);
    }
    // That of flock(2) is all of the file, whatever it is told.
    let (start, end) = if flock { (0, FILE_LOCK_END_MAX) } else { (start, end) };
    Ok(FileLock { owner, flock, mode, start, end: end.min(FILE_LOCK_END_MAX), pid })
}

fn kernel_lock(held: Option<FileLock>) -> KernelLock {
    let Some(held) = held else { return KernelLock { start: 0, end: 0, kind: F_UNLCK, pid: 0 } };
    let kind = match held.mode {
        FileLockMode::Read => F_RDLCK,
        FileLockMode::Write => F_WRLCK,
        FileLockMode::Unlock => F_UNLCK,
    };
    KernelLock { start: held.start, end: held.end, kind, pid: held.pid }
}

impl Call {
    /// `long` is kept for as long as the answer takes.
    pub(super) async fn file_lock(&self, op: Op, long: Option<LongWait>, reply: Reply) {
        if !self.locking.is_cluster() {
            // Only a mount without locks of its own is asked then.
            return reply.error(Errno::ENOSYS.raw());
        }
        match op {
            Op::Getlk { fh, owner, lock, flock, .. } => {
                let held = match lock_of(owner, &lock, flock) {
                    Ok(lock) => self.client.test_file_lock(fh, lock).await,
                    Err(errno) => Err(errno),
                };
                match held {
                    Ok(held) => reply.lk(&kernel_lock(held)),
                    Err(errno) => reply.error(errno.raw()),
                }
            }
            Op::Setlk { fh, owner, lock, flock, wait, .. } => {
                if !flock {
                    self.fcntl_locks.store(true, Ordering::Relaxed);
                }
                let mut reply = Some(reply);
                let set = match lock_of(owner, &lock, flock) {
                    Ok(lock) => {
                        // Once it is there, nobody tells the program anything else any more.
                        let heard = || {
                            reply = reply.take().and_then(Reply::claim);
                            reply.is_some()
                        };
                        self.client.set_file_lock(fh, lock, wait, heard).await
                    }
                    Err(errno) => Err(errno),
                };
                drop(long);
                match (set, reply) {
                    (Ok(()), Some(reply)) => reply.ok(),
                    (Err(errno), Some(reply)) => reply.error(errno.raw()),
                    (_, None) => {}
                }
            }
            _ => reply.error(Errno::ENOSYS.raw()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_locks_are_understood() {
        let kernels = |start, end, kind| KernelLock { start, end, kind, pid: 7 };
        let lock = lock_of(3, &kernels(10, i64::MAX as u64, F_RDLCK), false).unwrap();
        assert_eq!((lock.start, lock.end, lock.mode), (10, FILE_LOCK_END_MAX, FileLockMode::Read));
        assert_eq!(kernel_lock(Some(lock)), kernels(10, i64::MAX as u64, F_RDLCK));
        let lock = lock_of(3, &kernels(5, 5, F_WRLCK), true).unwrap();
        assert_eq!((lock.start, lock.end), (0, FILE_LOCK_END_MAX), "all of the file");
        assert_eq!(lock_of(3, &kernels(0, 1, 3), false), Err(Errno::EINVAL));
        assert_eq!(lock_of(3, &kernels(2, 1, F_RDLCK), false), Err(Errno::EINVAL));
        assert_eq!(kernel_lock(None).kind, F_UNLCK);
    }
}
