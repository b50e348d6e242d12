//! Batches: the changes of one transaction, in the form the journal keeps them.
//!
//! Changes are absolute (put this value, remove this key), so replaying a batch that is
//! already in the index does no harm.

use sateen_wire::codec::{DecodeError, Input, Wire};

use crate::Key;

/// Largest value in bytes: an extended attribute with its name.
const VALUE_MAX: usize = 128 << 10;

/// The changes of one transaction. Reused between transactions, so that it allocates nothing
/// in the long run.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    bytes: Vec<u8>,
}

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key.
    pub key: Key,
    /// Its new value; `None` removes it.
    pub value: Option<&'a [u8]>,
}

/// A journal record that is no batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchError;

impl From<DecodeError> for BatchError {
    fn from(_: DecodeError) -> BatchError {
        BatchError
    }
}

impl core::fmt::Display for BatchError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a journal record is no batch of changes")
    }
}

impl core::error::Error for BatchError {}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets all changes, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Sets a key to a value that `encode` appends.
    pub fn put_with(&mut self, key: &Key, encode: impl FnOnce(&mut Vec<u8>)) {
        self.head(1, key);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        encode(&mut self.bytes);
        let len = self.bytes.len() - at - 4;
        debug_assert!(len <= VALUE_MAX, "values are bounded");
        if let Some(place) = self.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&(len as u32).to_le_bytes());
        }
    }

    /// Sets a key to an encodable value.
    pub fn put<T: Wire>(&mut self, key: &Key, value: &T) {
        self.put_with(key, |out| value.put(out));
    }

    /// Removes a key; harmless if it does not exist.
    pub fn remove(&mut self, key: &Key) {
        self.head(0, key);
    }

    fn head(&mut self, op: u8, key: &Key) {
        let key = key.as_bytes();
        self.bytes.push(op);
        self.bytes.push(key.len() as u8);
        self.bytes.extend_from_slice(key);
    }

    /// The journal record.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The changes of a journal record, in order; the last change of a key wins.
    pub fn changes(bytes: &[u8]) -> impl Iterator<Item = Result<Change<'_>, BatchError>> {
        let mut input = Input::new(bytes);
        let mut broken = false;
        core::iter::from_fn(move || {
            if input.is_empty() || broken {
                return None;
            }
            let change = change(&mut input);
            broken = change.is_err();
            Some(change)
        })
    }
}

fn change<'a>(input: &mut Input<'a>) -> Result<Change<'a>, BatchError> {
    let op = u8::take(input)?;
    let len = usize::from(u8::take(input)?);
    let key = Key::from_bytes(input.bytes(len)?).ok_or(BatchError)?;
    let value = match op {
        0 => None,
        1 => Some(input.block(VALUE_MAX)?),
        _ => return Err(BatchError),
    };
    Ok(Change { key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_round_trip() {
        let (a, b) = (Key::tag(b'a').with(b"1"), Key::tag(b'b'));
        let mut batch = Batch::new();
        batch.put(&a, &7u32);
        batch.remove(&b);
        let all: Result<Vec<_>, _> = Batch::changes(batch.as_bytes()).collect();
        assert_eq!(
            all,
            Ok(vec![
                Change { key: a, value: Some(&[7, 0, 0, 0][..]) },
                Change { key: b, value: None }
            ])
        );
        for cut in 1..batch.as_bytes().len() {
            let cut_short: Result<Vec<_>, _> = Batch::changes(&batch.as_bytes()[..cut]).collect();
            assert!(cut_short.is_err() || cut == 12, "{cut}");
        }
    }
}
