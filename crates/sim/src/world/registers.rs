//! Records that several programs write at a time, and what a reader may find in them: an atomic
//! register each, whose values are versions that no two writes share.
//!
//! A read finds a version that nobody had overwritten before it began: no other write began after
//! that of the version had ended, and ended before the read began. And what a later read finds in
//! its place is gone for good; but not where messages are lost: a write that was executed by a run of
//! an OST, and not answered, is executed once more by the next one.

use std::collections::BTreeMap;

/// One write of a record.
#[derive(Debug, Clone, Copy)]
struct Write {
    begun: u64,
    ended: Option<u64>,
    /// It was read, first by one that had ended then; and not any more by one that had ended then.
    seen: Option<u64>,
    gone: Option<u64>,
}

/// All records.
#[derive(Debug, Default)]
pub(super) struct Registers {
    /// Counts all that begins or ends.
    clock: u64,
    version: u64,
    records: BTreeMap<usize, BTreeMap<u64, Write>>,
    strict: bool,
    pub(super) written: u64,
    pub(super) read: u64,
}

impl Registers {
    /// Nothing is written yet. `strict`: what was found in another's place stays gone.
    pub(super) fn new(strict: bool) -> Registers {
        Registers { strict, ..Registers::default() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A program begins to write records with a version of its own, which is returned.
    pub(super) fn begin(&mut self, places: core::ops::Range<usize>) -> u64 {
        self.version += 1;
        let (version, begun) = (self.version, self.tick());
        for place in places {
            let write = Write { begun, ended: None, seen: None, gone: None };
            self.records.entry(place).or_default().insert(version, write);
        }
        version
    }

    /// It has.
    pub(super) fn end(&mut self, places: core::ops::Range<usize>, version: u64) {
        let now = self.tick();
        self.written += 1;
        for place in places {
            let writes = self.records.entry(place).or_default();
            if let Some(write) = writes.get_mut(&version) {
                write.ended = Some(now);
            }
        }
    }

    /// A read begins; when, for [`Registers::found`].
    pub(super) fn look(&mut self) -> u64 {
        self.tick()
    }

    /// A read that began then has found this version; 0 is none.
    pub(super) fn found(&mut self, place: usize, version: u64, since: u64) -> Result<(), String> {
        let now = self.tick();
        self.read += 1;
        let strict = self.strict;
        let writes = self.records.entry(place).or_default();
        let (from, was_gone) = match writes.get(&version) {
            Some(write) => (write.ended, write.gone),
            None if version == 0 => (Some(0), None),
            None => return Err(format!("record {place} has version {version}, of no write")),
        };
        let overwrites = |write: &Write| {
            from.is_some_and(|from| write.begun > from)
                && write.ended.is_some_and(|ended| ended < since)
        };
        if let Some((by, _)) = writes.iter().find(|(_, write)| overwrites(write)) {
            return Err(format!("record {place} has version {version}, and {by} is newer"));
        }
        if strict && was_gone.is_some_and(|gone| gone < since) {
            return Err(format!("record {place} has version {version} again"));
        }
        for (other, write) in writes.iter_mut() {
            if *other == version {
                write.seen = write.seen.or(Some(now));
            } else if write.seen.is_some_and(|seen| seen < since) {
                write.gone = write.gone.or(Some(now));
            }
        }
        Ok(())
    }

    /// The end of the last record that anybody has surely written, and of the last that anybody may
    /// have: how many records that is.
    pub(super) fn reach(&self) -> (usize, usize) {
        let end = |may: bool| {
            let has = |writes: &BTreeMap<u64, Write>| {
                writes.values().any(|write| may || write.ended.is_some())
            };
            self.records.iter().rfind(|(_, writes)| has(writes)).map_or(0, |(place, _)| place + 1)
        };
        (end(false), end(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overwritten_is_not_found() {
        let mut registers = Registers::new(true);
        let none = registers.look();
        assert!(registers.found(0, 0, none).is_ok());
        let (one, two) = (registers.begin(0..2), registers.begin(0..1));
        registers.end(0..2, one);
        // The two ran at a time.
        let since = registers.look();
        assert!(registers.found(0, one, since).is_ok() && registers.found(0, 9, since).is_err());
        let since = registers.look();
        assert!(registers.found(0, two, since).is_ok());
        let since = registers.look();
        assert!(registers.found(0, one, since).is_err(), "it was gone");
        registers.end(0..1, two);
        let three = registers.begin(0..1);
        let early = registers.look();
        registers.end(0..1, three);
        assert!(registers.found(0, two, early).is_ok());
        let since = registers.look();
        assert!(registers.found(0, two, since).is_err(), "three has ended");
        assert!(registers.found(0, 0, since).is_err() && registers.found(1, one, since).is_ok());
        assert_eq!(registers.reach(), (2, 2));
    }
}
