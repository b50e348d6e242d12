//! Which files several clients write at a time, or read while one writes: whose data locks go to and
//! fro.
//!
//! A file is *contended* from the moment that somebody has met a writer on it so often within so
//! much time; those who ask to read or write are given locks then that stand beside each other
//! ([`LockMode::Cr` and `Cw`](sateen_wire::LockMode)). It stays so for that time after they have last
//! met.
//! Nobody meets anybody under shared locks: so these are called back when that time is over, and
//! once more meeting in the same time again is enough.
//!
//! Who writes records at a distance may have them as a part, as long as parts are not off ([`Break`]).

use std::collections::BTreeMap;

use sateen_types::{ClientId, Fid};

use crate::breaks::{Break, Breaks};

/// So often writers meet before their file is contended.
pub const CONTENDED_LOCKS: u32 = 8;
/// Within this time, and for so long it stays so: 2 s.
pub const CONTENTION_NS: u64 = 2_000_000_000;
/// Files that are remembered; beyond that none becomes contended.
const FILES_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Clock {
    /// When the count began.
    since_ns: u64,
    count: u32,
    /// It is contended until then, but for 0.
    until_ns: u64,
}

/// What came of parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Those that were granted.
    pub granted: u64,
    /// How often parts had to go for what somebody asked for.
    pub broken: u64,
    /// Granted ranges that are shorter than what was asked for, because others have the rest.
    pub cut: u64,
}

/// The files on which writers have met of late.
#[derive(Debug)]
pub struct Contention {
    locks: u32,
    for_ns: u64,
    files: BTreeMap<Fid, Clock>,
    /// Shared locks that were granted, and those among them for reading.
    granted: u64,
    granted_to_read: u64,
    /// All but how many were broken.
    parts: Parts,
    breaks: Breaks,
}

impl Default for Contention {
    fn default() -> Contention {
        let (locks, for_ns) = (CONTENDED_LOCKS, CONTENTION_NS);
        Contention {
            locks,
            for_ns,
            files: BTreeMap::new(),
            granted: 0,
            granted_to_read: 0,
            parts: Parts::default(),
            breaks: Breaks::default(),
        }
    }
}

impl Contention {
    /// So often they must have met; 0: no file is ever contended.
    pub fn locks(&self) -> u32 {
        self.locks
    }

    /// Within this time.
    pub fn for_ns(&self) -> u64 {
        self.for_ns
    }

    /// Sets how often and within which time.
    pub fn set(&mut self, locks: u32, for_ns: u64) {
        (self.locks, self.for_ns) = (locks, for_ns);
        if locks == 0 {
            // What is shared is called back at the next look.
            self.files.values_mut().for_each(|clock| clock.until_ns = clock.until_ns.min(1));
        }
    }

    /// One who could share a file's data asks for them, and another writer has them.
    pub fn met(&mut self, now_ns: u64, fid: Fid) {
        if self.locks == 0 || self.files.len() >= FILES_MAX && !self.files.contains_key(&fid) {
            return;
        }
        let new = Clock { since_ns: now_ns, count: 0, until_ns: 0 };
        let clock = self.files.entry(fid).or_insert(new);
        if now_ns > clock.since_ns.saturating_add(self.for_ns) && clock.until_ns == 0 {
            *clock = new;
        }
        clock.count = clock.count.saturating_add(1);
        if clock.count >= self.locks || clock.until_ns > 0 {
            clock.until_ns = now_ns.saturating_add(self.for_ns);
        }
    }

    /// Somebody's part has to go for what a client asks for. If that is so too often, there are no
    /// parts for a while, and the file is contended.
    pub fn breaks_parts(&mut self, now_ns: u64, fid: Fid, (client, what): (ClientId, Break)) {
        let is_off = self.breaks.note((now_ns, self.for_ns), fid, (client, what));
        let known = self.files.len() < FILES_MAX || self.files.contains_key(&fid);
        if is_off && self.locks > 0 && known {
            self.goes_on(now_ns, fid);
        }
    }

    /// Whether parts of a file are granted to nobody.
    pub fn parts_are_off(&self, now_ns: u64, fid: Fid) -> bool {
        self.locks == 0 || self.breaks.are_off(now_ns, fid)
    }

    /// A part was granted; a range that was cut for others, perhaps.
    pub fn part_granted(&mut self, was_cut: bool) {
        self.parts.granted += 1;
        self.parts.cut += u64::from(was_cut);
    }

    /// How many there were so far.
    pub fn parts(&self) -> Parts {
        Parts { broken: self.breaks.count(), ..self.parts }
    }

    /// A client has a shared lock of the run before.
    pub fn goes_on(&mut self, now_ns: u64, fid: Fid) {
        let until_ns = now_ns.saturating_add(self.for_ns).max(1);
        let clock = Clock { since_ns: now_ns, count: 0, until_ns };
        self.files.insert(fid, clock);
    }

    /// Whether several clients write this file at a time.
    pub fn is_contended(&self, now_ns: u64, fid: Fid) -> bool {
        self.locks > 0 && self.files.get(&fid).is_some_and(|clock| clock.until_ns > now_ns)
    }

    /// A shared lock was granted, for reading alone if so.
    pub fn granted(&mut self, reads: bool) {
        self.granted += 1;
        self.granted_to_read += u64::from(reads);
    }

    /// How many of them were for reading alone.
    pub fn granted_to_read(&self) -> u64 {
        self.granted_to_read
    }

    /// How many were.
    pub fn granted_count(&self) -> u64 {
        self.granted
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files that were contended until now: their shared locks are to be called back.
    pub fn over(&mut self, now_ns: u64) -> Vec<Fid> {
        let (locks, for_ns) = (self.locks, self.for_ns);
        self.breaks.tidy(now_ns, for_ns);
        let mut over = Vec::new();
        self.files.retain(|fid, clock| {
            if clock.until_ns > now_ns {
                return true;
            }
            if clock.until_ns > 0 {
                over.push(*fid);
                let count = locks.saturating_sub(1);
                *clock = Clock { since_ns: now_ns, count, until_ns: 0 };
            }
            now_ns <= clock.since_ns.saturating_add(for_ns)
        });
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid::ROOT;

    #[test]
    fn a_file_is_contended_while_writers_meet_and_one_meeting_brings_that_back() {
        let mut contention = Contention::default();
        contention.set(3, 100);
        contention.met(0, FID);
        contention.met(10, FID);
        assert!(!contention.is_contended(10, FID));
        // The two before are forgotten.
        contention.met(120, FID);
        contention.met(130, FID);
        assert!(!contention.is_contended(130, FID));
        contention.met(140, FID);
        assert!(contention.is_contended(140, FID) && contention.over(239).is_empty());
        contention.met(239, FID);
        assert!(contention.over(338).is_empty());
        assert_eq!(contention.over(339), [FID]);
        assert!(!contention.is_contended(339, FID) && contention.over(340).is_empty());
        contention.met(400, FID);
        assert!(contention.is_contended(400, FID));
        assert_eq!(contention.over(500), [FID]);
        assert!(contention.over(601).is_empty() && contention.is_empty());
    }

    #[test]
    fn none_is_contended_when_that_is_off_and_what_was_is_over() {
        let mut contention = Contention::default();
        contention.set(1, 100);
        contention.met(0, FID);
        assert!(contention.is_contended(1, FID));
        contention.set(0, 100);
        contention.met(2, FID);
        assert!(!contention.is_contended(2, FID));
        assert_eq!(contention.over(2), [FID]);
        // One that a client has of the run before is called back, too.
        contention.goes_on(3, FID);
        assert_eq!(contention.over(103), [FID]);
    }

    #[test]
    fn what_is_set_anew_ends_nothing_and_what_is_remembered_is_no_more_than_files_max() {
        let mut contention = Contention::default();
        assert_eq!((contention.locks(), contention.for_ns()), (CONTENDED_LOCKS, CONTENTION_NS));
        contention.set(2, 100);
        assert_eq!((contention.locks(), contention.for_ns()), (2, 100));
        assert!(contention.is_empty());
        let fid = |number: usize| Fid { oid: number as u32, ..FID };
        for number in 0..FILES_MAX {
            contention.met(0, fid(number));
        }
        assert!(!contention.is_empty());
        for _ in 0..2 {
            contention.met(1, fid(FILES_MAX));
        }
        assert!(!contention.is_contended(2, fid(FILES_MAX)), "one too many");
        contention.met(1, fid(5));
        assert!(contention.is_contended(2, fid(5)), "it was there");
        contention.set(3, 100);
        assert!(contention.is_contended(2, fid(5)));
        assert_eq!(contention.granted_count(), 0);
        contention.granted(false);
        assert_eq!((contention.granted_count(), contention.granted_to_read()), (1, 0));
        contention.granted(true);
        assert_eq!((contention.granted_count(), contention.granted_to_read()), (2, 1));
    }
}
