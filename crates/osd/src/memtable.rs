//! Memtables: the changes since the last checkpoint, in memory, in key order.
//!
//! Values lie in one growing arena, so that applying a batch allocates only when the arena
//! or a tree node is full. A value that is replaced by one no longer than itself is
//! overwritten in place; otherwise the old bytes stay behind until the memtable goes, which
//! the memtable's own size limit bounds.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::{Batch, BatchError, Key};

#[derive(Debug, Clone, Copy)]
struct Place {
    start: u32,
    /// `u32::MAX` marks a removed key, which hides an older value below.
    len: u32,
}

const REMOVED: u32 = u32::MAX;

/// An ordered map from keys to values or removals.
#[derive(Debug, Default)]
pub struct Memtable {
    places: BTreeMap<Key, Place>,
    arena: Vec<u8>,
}

impl Memtable {
    /// An empty one.
    pub fn new() -> Memtable {
        Memtable::default()
    }

    /// Applies all changes of a journal record.
    ///
    /// # Errors
    /// If the record is malformed; changes before the bad one stay applied, which only
    /// recovery meets, and it gives up then.
    pub fn apply(&mut self, record: &[u8]) -> Result<(), BatchError> {
        for change in Batch::changes(record) {
            let change = change?;
            self.set(change.key, change.value);
        }
        Ok(())
    }

    fn set(&mut self, key: Key, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.places.insert(key, Place { start: 0, len: REMOVED });
            return;
        };
        let place = self.places.entry(key).or_insert(Place { start: 0, len: REMOVED });
        let (start, len) = (place.start as usize, place.len as usize);
        if place.len != REMOVED && value.len() <= len {
            if let Some(old) = self.arena.get_mut(start..start + value.len()) {
                old.copy_from_slice(value);
            }
        } else {
            place.start = self.arena.len() as u32;
            self.arena.extend_from_slice(value);
        }
        place.len = value.len() as u32;
    }

    /// `None`: this memtable says nothing of the key. `Some(None)`: it was removed.
    pub fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.places.get(key).map(|place| self.value(*place))
    }

    fn value(&self, place: Place) -> Option<&[u8]> {
        if place.len == REMOVED {
            return None;
        }
        let start = place.start as usize;
        self.arena.get(start..start + place.len as usize)
    }

    /// Keys from `from` on with what became of them.
    pub fn range(&self, from: Bound<Key>) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.places.range((from, Bound::Unbounded)).map(|(key, place)| (*key, self.value(*place)))
    }

    /// Bytes of memory in use, roughly.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.places.len() * 56
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
