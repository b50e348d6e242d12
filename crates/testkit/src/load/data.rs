//! What one file may hold: its content when it was last synced, and what was done to it since.
//!
//! After a crash each byte must have a value that it had at some moment since the last sync,
//! and the size must be one that was set since then, or lie within the last write that made
//! the file longer. Bytes beyond the synced size may be zero: a later write may have come
//! without them.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

use crate::random::mix;

/// What the disk below writes at once.
const PAGE: u64 = 4096;

/// A change of a file's data that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Bytes that follow from the write's number.
    Write { number: u64, range: Range<u64> },
    /// A new size.
    Resize { size: u64 },
    /// A hole.
    Punch { range: Range<u64> },
}

/// What is known of a file's data.
#[derive(Debug, Clone, Default)]
pub(super) struct Data {
    /// As it was last synced.
    synced: Vec<u8>,
    changes: Vec<Change>,
    /// As it is now.
    size: u64,
}

/// The bytes that write number `number` puts into `range`.
pub(super) fn pattern(number: u64, range: Range<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity((range.end - range.start) as usize + 16);
    let first = range.start / 8;
    for word in first..range.end.div_ceil(8) {
        // Never zero: a hole must not pass for data.
        let bytes = (mix(number ^ mix(word)) | 0x0101_0101_0101_0101).to_le_bytes();
        out.extend_from_slice(&bytes);
    }
    let skip = (range.start - first * 8) as usize;
    out.drain(..skip);
    out.truncate((range.end - range.start) as usize);
    out
}

fn part(range: &Range<u64>, len: usize) -> Range<usize> {
    let clip = |at: u64| usize::try_from(at).unwrap_or(len).min(len);
    clip(range.start)..clip(range.end)
}

impl Data {
    /// What a crash left, and a restart made durable.
    pub(super) fn found(bytes: Vec<u8>) -> Data {
        let size = bytes.len() as u64;
        Data { synced: bytes, changes: Vec::new(), size }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// A change begins: from here on a crash may leave it or not.
    pub(super) fn change(&mut self, change: Change) {
        match &change {
            Change::Write { range, .. } => self.size = self.size.max(range.end),
            Change::Resize { size } => self.size = *size,
            Change::Punch { .. } => {}
        }
        self.changes.push(change);
    }

    /// The program was told that all of it is safe.
    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Write { number, range } => {
                    let len = range.end as usize;
                    self.synced.resize(self.synced.len().max(len), 0);
                    if let Some(to) = self.synced.get_mut(range.start as usize..len) {
                        to.copy_from_slice(&pattern(number, range));
                    }
                }
                Change::Resize { size } => self.synced.resize(size as usize, 0),
                Change::Punch { range } => {
                    let range = part(&range, self.synced.len());
                    self.synced.get_mut(range).unwrap_or_default().fill(0);
                }
            }
        }
    }

    fn check_size(&self, size: u64) -> Result<()> {
        let mut before = self.synced.len() as u64;
        let mut good = size == before;
        let mut allowed = format!("{before} (synced)");
        for change in &self.changes {
            match change {
                Change::Write { range, .. } if range.end > before => {
                    good |= (range.start.max(before)..=range.end).contains(&size);
                    // Also without what was written before it, and the disk below writes whole
                    // pages, with zeros before the range.
                    good |= (range.start / PAGE * PAGE + 1..=range.end).contains(&size);
                    allowed += &format!(", up to {} (write)", range.end);
                    before = range.end;
                }
                Change::Write { range, .. } => {
                    // It makes the file longer if what is before it is lost.
                    let synced = self.synced.len() as u64;
                    let written = range.start / PAGE * PAGE + 1..=range.end;
                    good |= range.end > synced && written.contains(&size);
                }
                Change::Resize { size: new } => {
                    good |= size == *new;
                    allowed += &format!(", {new} (truncated)");
                    before = *new;
                }
                Change::Punch { .. } => {}
            }
        }
        ensure!(good, "its size is {size}; possible are {allowed}");
        Ok(())
    }

    /// Holds what was found against what may be there.
    pub(super) fn check(&self, found: &[u8]) -> Result<()> {
        self.check_size(found.len() as u64)?;
        let zero = |byte: &u8| *byte == 0;
        let mut good: Vec<bool> = found
            .iter()
            .enumerate()
            .map(|(at, byte)| match self.synced.get(at) {
                Some(synced) => synced == byte,
                None => zero(byte),
            })
            .collect();
        for change in &self.changes {
            let (range, bytes) = match change {
                Change::Write { number, range } => (range.clone(), pattern(*number, range.clone())),
                Change::Resize { size } => (*size..u64::MAX, Vec::new()),
                Change::Punch { range } => (range.clone(), Vec::new()),
            };
            let range = part(&range, found.len());
            let goods = good.get_mut(range.clone()).unwrap_or_default().iter_mut();
            let founds = found.get(range).unwrap_or_default();
            for (at, (good, byte)) in goods.zip(founds).enumerate() {
                *good |= match bytes.is_empty() {
                    true => zero(byte),
                    false => bytes.get(at) == Some(byte),
                };
            }
        }
        if let Some(at) = good.iter().position(|good| !good) {
            let wrong = good.iter().filter(|good| !**good).count();
            let last = good.iter().rposition(|good| !good).unwrap_or(at);
            let zeros = found.get(at..=last).is_some_and(|bytes| bytes.iter().all(zero));
            let what = if zeros { "zeros" } else { "something else" };
            bail!(
                "{wrong} bytes between {at} and {last} are {what}, neither old nor new; synced \
                 were {} bytes, then {:?}",
                self.synced.len(),
                self.changes
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: u64, range: Range<u64>) -> Change {
        Change::Write { number, range }
    }

    /// What it holds if nothing goes wrong.
    fn now(data: &Data) -> Vec<u8> {
        let mut copy = data.clone();
        copy.sync();
        copy.synced
    }

    #[test]
    fn patterns_agree_wherever_they_are_cut() {
        let whole = pattern(7, 0..1000);
        for range in [0..8, 3..5, 7..9, 15..999, 8..16] {
            let cut = range.start as usize..range.end as usize;
            assert_eq!(pattern(7, range), whole[cut]);
        }
        assert!(whole.iter().all(|byte| *byte != 0));
    }

    #[test]
    fn old_and_new_are_good_and_nothing_else() {
        let mut data = Data::default();
        data.change(write(1, 0..100));
        data.check(&[]).unwrap();
        data.check(&pattern(1, 0..60)).unwrap();
        data.sync();
        assert!(data.check(&[]).is_err(), "lost");
        assert!(data.check(&pattern(1, 0..99)).is_err(), "shorter");
        let old = pattern(1, 0..100);
        data.check(&old).unwrap();
        data.change(write(2, 50..150));
        let new = now(&data);
        let mut torn = old.clone();
        torn[50..60].copy_from_slice(&new[50..60]);
        for good in [&old, &new, &torn] {
            data.check(good).unwrap();
        }
        torn[55] = 0;
        assert!(data.check(&torn).is_err(), "a hole where data was");
        data.sync();
        assert!(data.check(&old).is_err(), "the old one after a sync");
    }

    #[test]
    fn a_hole_at_the_end_belongs_to_the_file() {
        let mut data = Data::default();
        data.change(write(1, 0..10));
        data.change(Change::Resize { size: 5000 });
        data.sync();
        data.change(write(2, 0..5));
        assert!(data.check(&pattern(1, 0..10)).is_err());
        let mut whole = pattern(1, 0..10);
        whole.resize(5000, 0);
        data.check(&whole).unwrap();
        data.change(Change::Resize { size: 3 });
        data.check(&pattern(2, 0..3)).unwrap();
        assert!(data.check(&pattern(2, 0..4)).is_err());
    }
}
