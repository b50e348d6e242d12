//! The read cache: values that were fetched from the index, present or absent.
//!
//! Two generations of hash tables: a hit in the old one moves the value to the young one;
//! when the young one is full it becomes the old one. Never iterated, so that the order of
//! hashing shows nowhere.

use sateen_types::FastMap;

use crate::Key;

type Table = FastMap<Key, Option<Box<[u8]>>>;

/// A bounded map of clean values.
#[derive(Debug)]
pub(crate) struct Cache {
    young: Table,
    old: Table,
    young_bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Cache {
        Cache { young: Table::default(), old: Table::default(), young_bytes: 0, bytes_max }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        let value = self.young.get(key).or_else(|| self.old.get(key))?;
        Some(value.as_deref())
    }

    /// Keeps a value that is hit in the old generation.
    pub(crate) fn touch(&mut self, key: &Key) {
        if let Some(value) = self.old.remove(key) {
            self.insert(*key, value);
        }
    }

    pub(crate) fn insert(&mut self, key: Key, value: Option<Box<[u8]>>) {
        self.young_bytes += 96 + value.as_ref().map_or(0, |v| v.len());
        self.young.insert(key, value);
        if self.young_bytes > self.bytes_max / 2 {
            self.old = core::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if !self.young.is_empty() {
            self.young.remove(key);
        }
        if !self.old.is_empty() {
            self.old.remove(key);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Cache::new(self.bytes_max);
    }
}
