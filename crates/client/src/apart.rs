//! Tables in parts, each with a lock of its own: who looks for one entry waits only for those whose entry
//! is in the same part, and those of different cores mostly are not.

use std::array;
use std::sync::{Mutex, MutexGuard};

use crate::sync::lock;

/// Parts of each table.
pub(crate) const PARTS: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Apart<T>([Mutex<T>; PARTS]);

impl<T: Default> Default for Apart<T> {
    fn default() -> Apart<T> {
        Apart(array::from_fn(|_| Mutex::default()))
    }
}

impl<T> Apart<T> {
    /// The part that has the entry with this number, alone.
    #[expect(clippy::indexing_slicing, reason = "the remainder is below the number of parts")]
    pub(crate) fn of(&self, number: u64) -> MutexGuard<'_, T> {
        lock(&self.0[number as usize % PARTS])
    }

    /// A part by its place; `None` behind the last one.
    pub(crate) fn at(&self, place: usize) -> Option<MutexGuard<'_, T>> {
        self.0.get(place).map(lock)
    }

    /// One part after the other, each as it is when its turn comes.
    pub(crate) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().map(lock)
    }
}
