//! When a file's data is not worth being given out in parts.
//!
//! Parts cost every holder a callback and what he has kept when somebody needs more than a part, or one
//! that meets theirs: that is a *break*. Where breaks are frequent (records at random, headers between
//! them, readers of the middle) parts are *off* for a while: for longer each time, until they have gone
//! well for long enough.

use std::collections::BTreeMap;

use sateen_types::{ClientId, Fid};

/// So many breaks by one client turn parts off.
const BY_ONE: u32 = 4;
/// So many by all who wanted more than a part.
const BY_ALL: u32 = 16;
/// Clients that are told apart.
const CLIENTS_MAX: usize = 64;
/// So often the time for which they are off is doubled at most.
const DOUBLINGS_MAX: u32 = 5;
/// After so many times the time in which breaks are counted it is as if they had never been off.
const FORGOTTEN_AFTER: u64 = 16;
/// Files that are remembered; of others no part is granted then.
const FILES_MAX: usize = 1 << 16;

/// Who has broken parts, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Another part, which meets one that somebody has.
    ByPart,
    /// More than a part.
    ByWhole,
}

#[derive(Debug)]
struct File {
    /// When the count began.
    since_ns: u64,
    by: Vec<(ClientId, u32)>,
    by_whole: u32,
    /// They are off until then; 0 if they never were.
    off_until_ns: u64,
    doublings: u32,
}

/// The files whose parts were broken of late.
#[derive(Debug, Default)]
pub(crate) struct Breaks {
    files: BTreeMap<Fid, File>,
    count: u64,
}

impl Breaks {
    /// Notes a break, and says whether parts of the file are off from now on for that.
    pub(crate) fn note(
        &mut self,
        (now_ns, within_ns): (u64, u64),
        fid: Fid,
        (client, what): (ClientId, Break),
    ) -> bool {
        self.count += 1;
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&fid) {
            return false;
        }
        let new = || File {
            since_ns: now_ns,
            by: Vec::new(),
            by_whole: 0,
            off_until_ns: 0,
            doublings: 0,
        };
        let file = self.files.entry(fid).or_insert_with(new);
        if now_ns < file.off_until_ns {
            return false;
        }
        if now_ns > file.since_ns.saturating_add(within_ns) {
            (file.since_ns, file.by_whole) = (now_ns, 0);
            file.by.clear();
        }
        file.by_whole += u32::from(what == Break::ByWhole);
        let of_client = match file.by.iter_mut().find(|(other, _)| *other == client) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                if file.by.len() < CLIENTS_MAX {
                    file.by.push((client, 1));
                }
                1
            }
        };
        if of_client < BY_ONE && file.by_whole < BY_ALL {
            return false;
        }
        let again = file.off_until_ns > 0
            && now_ns < file.off_until_ns.saturating_add(within_ns.saturating_mul(FORGOTTEN_AFTER));
        file.doublings = if again { (file.doublings + 1).min(DOUBLINGS_MAX) } else { 0 };
        file.off_until_ns = now_ns.saturating_add(within_ns << file.doublings);
        (file.since_ns, file.by_whole) = (file.off_until_ns, 0);
        file.by.clear();
        true
    }

    /// Whether no part of a file is to be granted.
    pub(crate) fn are_off(&self, now_ns: u64, fid: Fid) -> bool {
        match self.files.get(&fid) {
            Some(file) => now_ns < file.off_until_ns,
            None => self.files.len() >= FILES_MAX,
        }
    }

    /// Forgets what is of no account any more.
    pub(crate) fn tidy(&mut self, now_ns: u64, within_ns: u64) {
        let long_ns = within_ns.saturating_mul(FORGOTTEN_AFTER);
        self.files.retain(|_, file| {
            let counts = now_ns <= file.since_ns.saturating_add(within_ns);
            let was_off = file.off_until_ns > 0;
            counts || was_off && now_ns < file.off_until_ns.saturating_add(long_ns)
        });
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid::ROOT;
    const WITHIN_NS: u64 = 100;

    fn note(breaks: &mut Breaks, now_ns: u64, client: u64, what: Break) -> bool {
        breaks.note((now_ns, WITHIN_NS), FID, (ClientId(client), what))
    }

    #[test]
    fn four_of_one_client_in_time_or_sixteen_of_all_who_want_more_turn_parts_off() {
        let mut breaks = Breaks::default();
        for now_ns in [0, 1, 2] {
            assert!(!note(&mut breaks, now_ns, 1, Break::ByPart));
        }
        assert!(!note(&mut breaks, 102, 1, Break::ByPart), "too late: it is the first again");
        for client in 2..200 {
            assert!(!note(&mut breaks, 103, client, Break::ByPart), "each meets one old part");
        }
        assert!(!breaks.are_off(103, FID));
        for client in 2..17 {
            assert!(!note(&mut breaks, 104, client, Break::ByWhole));
        }
        assert!(note(&mut breaks, 105, 17, Break::ByWhole));
        assert!(breaks.are_off(105, FID) && breaks.are_off(204, FID) && !breaks.are_off(205, FID));
        assert!(!note(&mut breaks, 106, 18, Break::ByWhole), "they are off already");
        let mut breaks = Breaks::default();
        for now_ns in 0..3 {
            assert!(!note(&mut breaks, now_ns, 1, Break::ByWhole));
        }
        assert!(note(&mut breaks, 3, 1, Break::ByPart));
        assert_eq!(breaks.count(), 4);
    }

    /// Has one client break parts until they are off, at once; for how long.
    fn turned_off(breaks: &mut Breaks, now_ns: u64) -> u64 {
        for _ in 0..3 {
            assert!(!note(breaks, now_ns, 1, Break::ByWhole));
        }
        assert!(note(breaks, now_ns, 1, Break::ByWhole));
        (0..).find(|for_ns| !breaks.are_off(now_ns + for_ns, FID)).unwrap_or(u64::MAX)
    }

    #[test]
    fn they_are_off_for_longer_each_time_until_they_have_gone_well_for_long() {
        let mut breaks = Breaks::default();
        let (mut now_ns, mut all) = (1000, Vec::new());
        for _ in 0..8 {
            let for_ns = turned_off(&mut breaks, now_ns);
            all.push(for_ns);
            now_ns += for_ns + 50;
            breaks.tidy(now_ns, WITHIN_NS);
        }
        assert_eq!(all, [100, 200, 400, 800, 1600, 3200, 3200, 3200]);
        now_ns += 1500;
        assert_eq!(turned_off(&mut breaks, now_ns), 3200);
        now_ns += 3200 + 1600;
        assert_eq!(turned_off(&mut breaks, now_ns), 100);
        breaks.tidy(now_ns + 1699, WITHIN_NS);
        assert!(!breaks.files.is_empty());
        breaks.tidy(now_ns + 1700, WITHIN_NS);
        assert!(breaks.files.is_empty());
    }

    #[test]
    fn where_too_many_files_are_remembered_others_have_no_parts() {
        let mut breaks = Breaks::default();
        let fid = |number: usize| Fid { oid: number as u32, ..FID };
        for number in 0..FILES_MAX {
            assert!(!breaks.note((0, WITHIN_NS), fid(number), (ClientId(1), Break::ByWhole)));
        }
        assert!(!breaks.are_off(1, fid(3)) && breaks.are_off(1, fid(FILES_MAX)));
        assert!(!breaks.note((1, WITHIN_NS), fid(FILES_MAX), (ClientId(1), Break::ByWhole)));
        breaks.tidy(101, WITHIN_NS);
        assert!(!breaks.are_off(101, fid(FILES_MAX)));
    }
}
