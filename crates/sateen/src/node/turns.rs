//! Who may tell the kernel something at once.
//!
//! Whoever has the kernel drop pages waits for READs of them, and keeps a mount's superblock from
//! being taken down meanwhile; an unmount that came since waits for him, and whoever tells the
//! kernel of anything else waits for that unmount. A thread that delivers messages must not, since
//! the answer to the READ may be in its own connection. So it tells the kernel only while nobody
//! waits for READs, and nobody begins to before it is done.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The turns at one mount.
#[derive(Debug, Default)]
pub(super) struct Turns {
    under_way: Mutex<UnderWay>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct UnderWay {
    short: usize,
    long: usize,
}

/// Something that waits for nothing, until this is dropped.
#[derive(Debug)]
pub(super) struct Short<'a>(&'a Turns);

/// Something that may wait for READs, until this is dropped.
#[derive(Debug)]
pub(super) struct Long<'a>(&'a Turns);

impl Turns {
    /// Nothing, while anybody may wait for READs.
    pub(super) fn short(&self) -> Option<Short<'_>> {
        let mut under_way = self.lock();
        let free = under_way.long == 0;
        under_way.short += usize::from(free);
        free.then(|| Short(self))
    }

    /// Waits for those that are short.
    pub(super) fn long(&self) -> Long<'_> {
        let mut under_way = self.lock();
        // From here on no other begins.
        under_way.long += 1;
        while under_way.short > 0 {
            under_way = self.ended.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        Long(self)
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Short<'_> {
    fn drop(&mut self) {
        let mut under_way = self.0.lock();
        under_way.short -= 1;
        if under_way.short == 0 && under_way.long > 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.0.lock().long -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_is_told_at_once_while_somebody_may_wait_for_reads() {
        let turns = Turns::default();
        let (first, second) = (turns.short(), turns.short());
        assert!(first.is_some() && second.is_some(), "they do not wait for each other");
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _long = turns.long();
                tell.send(()).unwrap();
            });
            // It begins to wait, and from then on no other begins.
            while turns.short().is_some() {
                std::thread::yield_now();
            }
            drop(first);
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "there is another");
            drop(second);
            told.recv().unwrap();
        });
        let (one, other) = (turns.long(), turns.long());
        assert!(turns.short().is_none());
        drop(one);
        assert!(turns.short().is_none());
        drop(other);
        assert!(turns.short().is_some());
    }
}
