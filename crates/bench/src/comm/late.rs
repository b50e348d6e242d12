//! What tests of time need: ranks that come late, and attempts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{Communicator, Local};
use crate::error::Result;

/// Ranks of which one leaves barriers late.
#[derive(Debug)]
pub(crate) struct Late<'a>(pub(crate) &'a Local, pub(crate) Duration);

impl Communicator for Late<'_> {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn barrier(&self) -> Result<()> {
        self.0.barrier()?;
        if self.rank() == 1 {
            std::thread::sleep(self.1);
        }
        Ok(())
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.0.all_gather(mine)
    }

    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    fn abort(&self, why: &str) {
        self.0.abort(why);
    }

    fn done(&self, rank: usize) -> Option<&AtomicU64> {
        self.0.done(rank)
    }

    fn over(&self, rank: usize) -> Option<&AtomicU64> {
        self.0.over(rank)
    }
}

/// Of some attempts one must show it: anybody may be kept from running for longer than what is
/// waited for here. The last one says what is wrong.
pub(crate) fn attempts(attempt: impl Fn() -> std::result::Result<(), String>) {
    let mut last = Ok(());
    for _ in 0..8 {
        last = attempt();
        if last.is_ok() {
            return;
        }
    }
    last.unwrap();
}
