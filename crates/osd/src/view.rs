//! What an operation found missing, and what was fetched for it.
//!
//! An operation that misses something in memory changes nothing, says what it wants, and is
//! started again once the driver has read it from the index. What was fetched travels with
//! the operation, so that a small cache can never starve it.

use std::collections::BTreeMap;

use crate::{Index, IndexError, Key};

/// The operation must stop here: something is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Miss;

/// A range wanted from the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeWant {
    /// Keys start with this.
    pub prefix: Key,
    /// Keys are above this.
    pub after: Key,
    /// Most pairs wanted.
    pub limit: usize,
}

/// What to read from the index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// Single keys.
    pub keys: Vec<Key>,
    /// Ranges.
    pub ranges: Vec<RangeWant>,
}

impl Wants {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }
}

/// A range as it was fetched.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) want: RangeWant,
    pub(crate) pairs: Vec<(Key, Vec<u8>)>,
}

/// Values fetched for one operation, as of one checkpoint generation.
#[derive(Debug, Clone, Default)]
pub struct Prefetched {
    /// The generation that [`Wants`] were noted in; a store that has moved on does not
    /// believe the values and asks again.
    pub generation: u64,
    pub(crate) values: BTreeMap<Key, Option<Vec<u8>>>,
    pub(crate) ranges: Vec<Range>,
}

impl Prefetched {
    /// Reads what is wanted. Called by drivers, outside any target lock.
    ///
    /// # Errors
    /// The index's.
    pub fn read(
        index: &dyn Index,
        wants: &Wants,
        generation: u64,
    ) -> Result<Prefetched, IndexError> {
        let mut out = Prefetched { generation, ..Prefetched::default() };
        for key in &wants.keys {
            out.values.insert(*key, index.get(key)?);
        }
        for want in &wants.ranges {
            let pairs = index.scan(&want.prefix, &want.after, want.limit)?;
            out.ranges.push(Range { want: *want, pairs });
        }
        Ok(out)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.values.get(key).map(Option::as_deref)
    }

    pub(crate) fn range(&self, want: &RangeWant) -> Option<&Range> {
        self.ranges.iter().find(|range| range.want == *want)
    }

    /// Adds what a later round fetched. Values of an older generation go.
    pub fn extend(&mut self, later: Prefetched) {
        if later.generation == self.generation {
            self.values.extend(later.values);
            self.ranges.extend(later.ranges);
        } else {
            *self = later;
        }
    }
}
