//! Memtables: the changes since the last checkpoint, in memory, in key order.
//!
//! Keys stand in a tree ([`tree`]), values in blocks that are filled one after the other.
//! Neither is ever given back in part: a value that is replaced by one no longer than itself
//! is overwritten in place; otherwise the old bytes stay behind until the memtable goes,
//! which the memtable's own size limit bounds. A memtable that is emptied keeps its blocks,
//! so that two that take turns allocate nothing.

mod tree;

use std::ops::Bound;

use crate::{Batch, BatchError, Key};
use tree::{Place, Tree};

/// Marks a removed key, which hides an older value below.
const REMOVED: Place = Place { start: 0, len: u32::MAX };
/// Where all empty values are: they need no block, and the one being filled may be full.
const EMPTY: Place = Place { start: 0, len: 0 };

/// Bytes of a block of values: what one allocation brings. A value lies in one block.
const BLOCK_BYTES: usize = 1 << 20;

/// Memory of a key in the tree while there are few, whose leaves are hardly filled yet.
const KEY_BYTES: usize = 56;

/// An ordered map from keys to values or removals.
#[derive(Debug, Default)]
pub struct Memtable {
    places: Tree,
    values: Values,
}

impl Memtable {
    /// An empty one.
    pub fn new() -> Memtable {
        Memtable::default()
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.places.clear();
        self.values.clear();
    }

    /// Applies all changes of a journal record.
    ///
    /// # Errors
    /// If the record is malformed; changes before the bad one stay applied, which only
    /// recovery meets, and it gives up then.
    pub fn apply(&mut self, record: &[u8]) -> Result<(), BatchError> {
        for change in Batch::changes(record) {
            let change = change?;
            self.set(&change.key, change.value);
        }
        Ok(())
    }

    fn set(&mut self, key: &Key, value: Option<&[u8]>) {
        let place = self.places.entry(key, REMOVED);
        *place = match value {
            None => REMOVED,
            Some(value) => self.values.replace(*place, value),
        };
    }

    /// `None`: this memtable says nothing of the key. `Some(None)`: it was removed.
    pub fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.places.get(key).map(|place| self.values.get(place))
    }

    /// Keys from `from` on with what became of them.
    pub fn range(&self, from: Bound<Key>) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.places.range(from).map(|(key, place)| (key, self.values.get(place)))
    }

    /// Bytes of memory in use: nodes of the tree, and blocks up to where they are filled.
    pub fn bytes(&self) -> usize {
        self.values.bytes() + self.places.bytes().max(self.places.len() * KEY_BYTES)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Blocks of values.
#[derive(Debug, Default)]
struct Values {
    blocks: Vec<Vec<u8>>,
    /// The block that is being filled.
    filling: usize,
}

impl Values {
    fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
        self.filling = 0;
    }

    /// Bytes of all values, also of those that were replaced, and what was left of blocks
    /// that the next value did not fit into.
    fn bytes(&self) -> usize {
        self.filling * BLOCK_BYTES + self.blocks.get(self.filling).map_or(0, Vec::len)
    }

    fn get(&self, place: Place) -> Option<&[u8]> {
        if place == REMOVED {
            return None;
        }
        if place.len == 0 {
            return Some(&[]);
        }
        let (block, start) =
            (place.start as usize / BLOCK_BYTES, place.start as usize % BLOCK_BYTES);
        self.blocks.get(block)?.get(start..start + place.len as usize)
    }

    /// Puts a value where the old one stood if it fits there, and else behind all others.
    fn replace(&mut self, old: Place, value: &[u8]) -> Place {
        let len = value.len() as u32;
        if len == 0 {
            return EMPTY;
        }
        if old == REMOVED || len > old.len {
            return self.push(value);
        }
        let (block, start) = (old.start as usize / BLOCK_BYTES, old.start as usize % BLOCK_BYTES);
        let block = self.blocks.get_mut(block);
        if let Some(room) = block.and_then(|block| block.get_mut(start..start + value.len())) {
            room.copy_from_slice(value);
        }
        Place { start: old.start, len }
    }

    fn push(&mut self, value: &[u8]) -> Place {
        let room = |block: &Vec<u8>| block.len() + value.len() <= BLOCK_BYTES;
        if self.blocks.get(self.filling).is_some_and(|block| !room(block)) {
            self.filling += 1;
        }
        if self.filling == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES));
        }
        let mut start = 0;
        if let Some(block) = self.blocks.get_mut(self.filling) {
            start = block.len();
            block.extend_from_slice(value);
        }
        Place { start: (self.filling * BLOCK_BYTES + start) as u32, len: value.len() as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: &mut Memtable, key: &Key, value: &[u8]) {
        let mut batch = Batch::new();
        batch.put_with(key, |out| out.extend_from_slice(value));
        table.apply(batch.as_bytes()).unwrap();
    }

    #[test]
    fn values_of_all_sizes_are_kept_and_replaced() {
        let mut table = Memtable::new();
        let key = |n: usize| Key::tag(b'k').with(&(n as u32).to_be_bytes());
        let value = |n: usize, len: usize| vec![n as u8; len];
        for round in 0..2 {
            for n in 0..200 {
                put(&mut table, &key(n), &value(n, n * 577 % 100_000));
            }
            for n in 0..200 {
                let len = n * 577 % 100_000;
                assert_eq!(table.get(&key(n)), Some(Some(value(n, len).as_slice())));
                // Every third shrinks, every third grows.
                put(&mut table, &key(n), &value(n + 1, len + n % 3 - 1.min(len)));
            }
            for n in 0..200 {
                let len = n * 577 % 100_000;
                let now = value(n + 1, len + n % 3 - 1.min(len));
                assert_eq!(table.get(&key(n)), Some(Some(now.as_slice())), "{round} {n}");
            }
            table.clear();
            assert!(table.is_empty() && table.bytes() == 0);
            assert_eq!(table.get(&key(3)), None);
        }
    }

    /// Empty values beside blocks that are exactly full.
    #[test]
    fn an_empty_value_needs_no_room() {
        let mut table = Memtable::new();
        let key = |n: u8| Key::tag(b'k').with(&[n]);
        (2..18).for_each(|n| put(&mut table, &key(n), &[7; BLOCK_BYTES / 16]));
        put(&mut table, &key(1), b"");
        assert_eq!(table.get(&key(1)), Some(Some(&b""[..])));
        put(&mut table, &key(2), b"");
        assert_eq!(table.get(&key(2)), Some(Some(&b""[..])));
        put(&mut table, &key(1), b"grown");
        assert_eq!(table.get(&key(1)), Some(Some(&b"grown"[..])));
        assert_eq!(table.get(&key(2)), Some(Some(&b""[..])));
    }

    #[test]
    fn a_removed_key_hides_and_comes_back() {
        let mut table = Memtable::new();
        let key = Key::tag(b'k');
        put(&mut table, &key, b"");
        assert_eq!(table.get(&key), Some(Some(&b""[..])));
        let mut batch = Batch::new();
        batch.remove(&key);
        table.apply(batch.as_bytes()).unwrap();
        assert_eq!(table.get(&key), Some(None));
        put(&mut table, &key, b"again");
        assert_eq!(table.get(&key), Some(Some(&b"again"[..])));
        assert_eq!(table.len(), 1);
    }
}
