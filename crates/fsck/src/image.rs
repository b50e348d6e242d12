//! A target's metadata as its next start will find it: the index with the journal's records
//! over it. The records are kept in memory; nothing is written.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use sateen_journal::records;
use sateen_osd::{Index, IndexError, Key, Memtable};
use sateen_target::RecoveryError;
use sateen_types::Endpoint;

/// Records read at once: few at first, because many scans end soon.
const PAGE_MIN: usize = 8;
/// And at most.
const PAGE_MAX: usize = 1024;

/// A target's index cannot be read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// Whose it is: one target is checked against others.
    pub target: Endpoint,
    /// Why.
    pub error: IndexError,
}

/// See the module. The journal's part is bounded by what targets let come together between
/// two checkpoints.
pub struct Image {
    target: Endpoint,
    index: Arc<dyn Index>,
    table: Memtable,
    last: u64,
}

impl Image {
    /// What the index alone says. The journal's frames then go to [`Image::replay`].
    pub fn new(target: Endpoint, index: Arc<dyn Index>) -> Image {
        let last = index.checkpointed();
        Image { target, index, table: Memtable::new(), last }
    }

    /// Adds a frame of the journal, in order; what the index has already is left out.
    ///
    /// # Errors
    /// As a target's own recovery: see [`RecoveryError`].
    pub fn replay(&mut self, payload: &[u8]) -> Result<(), RecoveryError> {
        for record in records(payload) {
            let (transno, bytes) = record?;
            if transno <= self.last {
                continue;
            }
            if transno != self.last + 1 {
                return Err(RecoveryError::Gap { expected: self.last + 1, found: transno });
            }
            self.table.apply(bytes)?;
            self.last = transno;
        }
        Ok(())
    }

    /// Transno of the last transaction.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Unread> {
        match self.table.get(key) {
            Some(found) => Ok(found.map(<[u8]>::to_vec)),
            None => self.index.get(key).map_err(|error| self.unread(error)),
        }
    }

    fn unread(&self, error: IndexError) -> Unread {
        Unread { target: self.target, error }
    }

    pub(crate) fn has(&self, key: &Key) -> Result<bool, Unread> {
        Ok(self.get(key)?.is_some())
    }

    /// All records whose keys start with `prefix`, in key order.
    pub(crate) fn scan(&self, prefix: Key) -> Records<'_> {
        let page = Vec::new().into_iter();
        Records { image: self, prefix, after: Some(prefix), page, limit: PAGE_MIN }
    }

    /// Whether any record's key starts with `prefix`.
    pub(crate) fn any(&self, prefix: Key) -> Result<bool, Unread> {
        Ok(self.scan(prefix).next()?.is_some())
    }

    /// A page of records above `after`, or at it if it is the prefix itself; and what the next
    /// page comes after.
    fn page(&self, prefix: &Key, after: &Key, limit: usize) -> Result<Page, Unread> {
        let first = after == prefix;
        let below = self.index.scan(prefix, after, limit);
        let mut below = below.map_err(|error| self.unread(error))?;
        let mut horizon = below.last().filter(|_| below.len() == limit).map(|pair| pair.0);
        if first && let Some(value) = self.index.get(prefix).map_err(|error| self.unread(error))? {
            // Indexes leave the prefix itself out, which is a key where nothing follows a tag.
            if below.first().is_none_or(|pair| pair.0 != *prefix) {
                below.insert(0, (*prefix, value));
            }
        }
        let mut merged: BTreeMap<Key, Option<Vec<u8>>> =
            below.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let from = if first { Bound::Included(*after) } else { Bound::Excluded(*after) };
        for (count, (key, value)) in self.table.range(from).enumerate() {
            if !key.starts_with(prefix) || horizon.is_some_and(|last| key > last) {
                break;
            }
            merged.insert(key, value.map(<[u8]>::to_vec));
            if count + 1 == limit {
                horizon = Some(key);
                break;
            }
        }
        let known = merged.into_iter().filter(|(key, _)| horizon.is_none_or(|last| *key <= last));
        let pairs: Vec<_> = known.filter_map(|(key, value)| Some((key, value?))).collect();
        Ok((pairs, horizon))
    }
}

type Page = (Vec<(Key, Vec<u8>)>, Option<Key>);

/// Records being streamed.
pub(crate) struct Records<'a> {
    image: &'a Image,
    prefix: Key,
    after: Option<Key>,
    page: std::vec::IntoIter<(Key, Vec<u8>)>,
    limit: usize,
}

impl Records<'_> {
    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<(Key, Vec<u8>)>, Unread> {
        loop {
            if let Some(pair) = self.page.next() {
                return Ok(Some(pair));
            }
            let Some(after) = self.after else { return Ok(None) };
            let (pairs, next) = self.image.page(&self.prefix, &after, self.limit)?;
            self.limit = (self.limit * 4).min(PAGE_MAX);
            self.page = pairs.into_iter();
            self.after = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_osd::Batch;
    use sateen_osd::memory::MemoryIndex;

    #[test]
    fn an_image_is_the_index_with_the_journal_over_it() {
        let key = |n: u32| Key::tag(b'k').with(&n.to_be_bytes());
        let (mut table, mut batch) = (Memtable::new(), Batch::new());
        for n in 0..5000 {
            batch.put(&key(n), &n);
        }
        table.apply(batch.as_bytes()).unwrap();
        let index = MemoryIndex::default();
        index.checkpoint(&table, 7).unwrap();
        let mut appender = sateen_journal::Appender::new(1, 7);
        batch.clear();
        for n in (0..5000).filter(|n| n % 2 == 0) {
            batch.remove(&key(n));
            batch.put(&key(10_000 + n), &n);
        }
        appender.append(batch.as_bytes());
        let frame = appender.take().unwrap().bytes;
        let mut image = Image::new(Endpoint::Mgs, Arc::new(index));
        image.replay(&frame[sateen_journal::FRAME_HEADER_BYTES..]).unwrap();
        assert_eq!(image.last(), 8);
        let mut records = image.scan(Key::tag(b'k'));
        let odd = (0..5000).filter(|n| n % 2 == 1);
        for n in odd.chain((0..5000).filter(|n| n % 2 == 0).map(|n| 10_000 + n)) {
            assert_eq!(records.next().unwrap().unwrap().0, key(n));
        }
        assert!(records.next().unwrap().is_none());
        assert!(!image.has(&key(0)).unwrap() && image.has(&key(1)).unwrap());
        let mut gap = sateen_journal::Appender::new(1, 9);
        gap.append(batch.as_bytes());
        let frame = gap.take().unwrap().bytes;
        let refused = image.replay(&frame[sateen_journal::FRAME_HEADER_BYTES..]).unwrap_err();
        assert_eq!(refused, RecoveryError::Gap { expected: 9, found: 10 });
    }
}
