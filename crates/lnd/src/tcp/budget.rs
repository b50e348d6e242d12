//! How much bulk there may be that came in and that somebody here still holds.
//!
//! A server that cannot write as fast as its clients send would otherwise hold all that they
//! have in flight. Beyond the limit its connections are read no further, which TCP tells the
//! senders. Whoever holds bulk must get rid of it without anything else from the network.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

/// How often whoever waits looks whether its connection is still there.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    held: Mutex<usize>,
    freed: Condvar,
}

/// Some bulk, which counts until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    data: Vec<u8>,
    taken: usize,
    budget: Arc<Budget>,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, held: Mutex::new(0), freed: Condvar::new() })
    }

    fn held(&self) -> MutexGuard<'_, usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be so much more; `None` if that is in vain, because the connection
    /// is `gone`. If there is nothing, there may be anything.
    pub(super) fn take(self: &Arc<Budget>, len: usize, gone: impl Fn() -> bool) -> Option<Held> {
        let mut held = self.held();
        while *held > 0 && *held + len > self.bytes_max {
            if gone() {
                return None;
            }
            let waited = self.freed.wait_timeout(held, LOOK);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *held += len;
        drop(held);
        Some(Held { data: Vec::with_capacity(len), taken: len, budget: self.clone() })
    }
}

impl Held {
    /// What is to be filled.
    pub(super) fn data(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.budget.held() -= self.taken;
        self.budget.freed.notify_all();
    }
}
