//! Ranges of one file that owners have locked: replaced, split and merged as fcntl(2) says.
//!
//! Both sides keep them: the MDT's table those of all clients, a client those that it was granted,
//! to know what to go back to, and what there is to be given back at a close.

use sateen_types::ClientId;
use sateen_wire::{FileLock, FileLockMode, OpenId};

/// Who has a lock: of one client, as its kernel tells its programs apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The client.
    pub client: ClientId,
    /// Within it.
    pub id: u64,
}

/// A locked range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// How.
    pub mode: FileLockMode,
    /// By whom.
    pub owner: Owner,
    /// Through which open: it goes with it.
    pub open: OpenId,
    /// The process that asked for it.
    pub pid: u32,
}

impl Range {
    /// The range of a lock that a client asks for.
    pub const fn of(client: ClientId, open: OpenId, lock: &FileLock) -> Range {
        let FileLock { owner, start, end, mode, pid, .. } = *lock;
        Range { start, end, mode, owner: Owner { client, id: owner }, open, pid }
    }

    /// The same as a lock of its client.
    pub const fn lock(&self, flock: bool) -> FileLock {
        let Range { start, end, mode, owner, pid, .. } = *self;
        FileLock { owner: owner.id, flock, mode, start, end, pid }
    }

    /// Whether the two share a byte.
    pub const fn overlaps(&self, other: &Range) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether the two exclude each other.
    pub fn conflicts(&self, other: &Range) -> bool {
        self.owner != other.owner && self.overlaps(other) && !self.mode.compatible(other.mode)
    }

    /// Whether the two can be one range, being of one owner.
    fn joins(&self, other: &Range) -> bool {
        let touches =
            self.start <= other.end.saturating_add(1) && other.start <= self.end.saturating_add(1);
        // One that goes with another open stays for itself.
        touches && self.mode == other.mode && self.open == other.open
    }
}

/// The locked ranges of one file, by their starts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }

    /// One of another owner that is in the way.
    pub fn in_way(&self, want: &Range) -> Option<&Range> {
        self.0.iter().take_while(|held| held.start <= want.end).find(|held| want.conflicts(held))
    }

    /// Whether one of its owner's would become two if this went.
    pub fn splits(&self, gone: &Range) -> bool {
        let mut mine = self.0.iter().filter(|held| held.owner == gone.owner);
        mine.any(|held| held.start < gone.start && gone.end < held.end)
    }

    /// What an owner has is from now on what this says, within its range.
    pub fn set(&mut self, new: Range) {
        let mut joined = new;
        let mut kept = Vec::with_capacity(self.0.len() + 2);
        for held in self.0.drain(..) {
            if held.owner != new.owner {
                kept.push(held);
            } else if new.mode != FileLockMode::Unlock && held.joins(&new) {
                joined.start = joined.start.min(held.start);
                joined.end = joined.end.max(held.end);
            } else if held.overlaps(&new) {
                if held.start < new.start {
                    kept.push(Range { end: new.start - 1, ..held });
                }
                if held.end > new.end {
                    kept.push(Range { start: new.end + 1, ..held });
                }
            } else {
                kept.push(held);
            }
        }
        if new.mode != FileLockMode::Unlock {
            kept.push(joined);
        }
        kept.sort_by_key(|held| (held.start, held.owner));
        self.0 = kept;
    }

    /// What an owner has within a range: pieces that cover all of it, unlocked ones among them.
    pub fn within(&self, want: &Range) -> Vec<Range> {
        let mut pieces = Vec::new();
        let mut at = Some(want.start);
        let mine = self.0.iter().filter(|held| held.owner == want.owner && held.overlaps(want));
        for held in mine {
            let Some(from) = at else { break };
            let (start, end) = (held.start.max(from), held.end.min(want.end));
            if start > from {
                let mode = FileLockMode::Unlock;
                pieces.push(Range { start: from, end: start - 1, mode, ..*want });
            }
            pieces.push(Range { start, end, ..*held });
            at = (end < want.end).then(|| end + 1);
        }
        if let Some(start) = at {
            pieces.push(Range { start, mode: FileLockMode::Unlock, ..*want });
        }
        pieces
    }

    /// Drops those that are `gone`; whether there were any.
    pub fn drop_those(&mut self, gone: impl Fn(&Range) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|held| !gone(held));
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_wire::FileLockMode::{Read, Unlock, Write};

    fn range(owner: u64, (start, end): (u64, u64), mode: FileLockMode, open: u64) -> Range {
        let owner = Owner { client: ClientId(1), id: owner };
        Range { start, end, mode, owner, open: OpenId { id: open }, pid: 0 }
    }

    fn shown(ranges: &Ranges) -> Vec<(u64, u64, FileLockMode, u64)> {
        ranges.iter().map(|held| (held.start, held.end, held.mode, held.open.id)).collect()
    }

    #[test]
    fn ranges_are_split_and_merged() {
        let mut ranges = Ranges::default();
        ranges.set(range(1, (0, 99), Write, 1));
        ranges.set(range(1, (40, 59), Unlock, 1));
        assert_eq!(shown(&ranges), [(0, 39, Write, 1), (60, 99, Write, 1)]);
        ranges.set(range(1, (40, 59), Write, 1));
        assert_eq!(shown(&ranges), [(0, 99, Write, 1)], "joined again");
        ranges.set(range(1, (10, 19), Read, 1));
        assert_eq!(shown(&ranges), [(0, 9, Write, 1), (10, 19, Read, 1), (20, 99, Write, 1)]);
        ranges.set(range(1, (100, 120), Write, 2));
        assert_eq!(ranges.len(), 4, "another open's goes with that");
        ranges.set(range(1, (0, u64::MAX), Unlock, 1));
        assert!(ranges.is_empty());
        ranges.set(range(1, (5, i64::MAX as u64), Read, 1));
        ranges.set(range(2, (5, 5), Read, 1));
        assert_eq!(ranges.len(), 2, "others' are left alone");
    }

    #[test]
    fn what_goes_from_the_middle_makes_two() {
        let mut ranges = Ranges::default();
        ranges.set(range(1, (10, 20), Write, 1));
        for (at, splits) in
            [((10, 12), false), ((18, 30), false), ((0, 9), false), ((12, 12), true)]
        {
            assert_eq!(ranges.splits(&range(1, at, Unlock, 1)), splits, "{at:?}");
        }
        assert!(!ranges.splits(&range(2, (12, 12), Unlock, 1)), "another owner's");
    }

    #[test]
    fn what_was_there_is_told_in_pieces() {
        let mut ranges = Ranges::default();
        ranges.set(range(1, (10, 19), Read, 7));
        ranges.set(range(2, (0, 50), Read, 8));
        let want = range(1, (5, 29), Write, 9);
        let pieces = ranges.within(&want);
        let shown: Vec<_> = pieces.iter().map(|p| (p.start, p.end, p.mode, p.open.id)).collect();
        assert_eq!(shown, [(5, 9, Unlock, 9), (10, 19, Read, 7), (20, 29, Unlock, 9)]);
        let before = ranges.clone();
        ranges.set(want);
        pieces.into_iter().for_each(|piece| ranges.set(piece));
        assert_eq!(ranges, before);
    }

    #[test]
    fn pieces_begin_and_end_with_what_is_asked() {
        let mut ranges = Ranges::default();
        ranges.set(range(1, (0, 9), Read, 7));
        ranges.set(range(1, (20, 29), Write, 7));
        ranges.set(range(1, (40, 60), Read, 7));
        let pieces = |at| {
            let pieces = ranges.within(&range(1, at, Write, 9));
            pieces.iter().map(|p| (p.start, p.end, p.mode)).collect::<Vec<_>>()
        };
        let middle = [(5, 9, Read), (10, 19, Unlock), (20, 29, Write), (30, 39, Unlock)];
        assert_eq!(pieces((5, 39)), middle);
        assert_eq!(pieces((5, 45))[..4], middle);
        assert_eq!(pieces((5, 45))[4..], [(40, 45, Read)]);
        assert_eq!(pieces((22, 24)), [(22, 24, Write)]);
        assert_eq!(pieces((22, 29)), [(22, 29, Write)], "nothing is behind it");
        assert_eq!(pieces((10, 19)), [(10, 19, Unlock)]);
        assert_eq!(pieces((0, u64::MAX)).last(), Some(&(61, u64::MAX, Unlock)));
    }

    #[test]
    fn those_that_go_are_told() {
        let mut ranges = Ranges::default();
        ranges.set(range(1, (0, 9), Read, 7));
        ranges.set(range(2, (5, 9), Read, 8));
        assert!(!ranges.drop_those(|held| held.open.id == 9));
        assert!(ranges.drop_those(|held| held.open.id == 8));
        assert_eq!(shown(&ranges), [(0, 9, Read, 7)]);
    }
}
