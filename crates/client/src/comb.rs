//! What an open file is written like: records at one distance, as by one of several who write a file in
//! turns, or from one place on, as by one who has a segment of it. Who does that asks for all his future
//! records at once, or for a range that grows as he gets on: a part of the file ([`Comb`]).
//!
//! Life of a comb: it is seen after [`STEPS`] equal steps, and begins with the record of the first; it
//! becomes longer with its records; any other step ends it, also one back, and others are counted anew.
//! Nobody is told of that: what is in none of a client's parts is asked for as ever, and for that the MDT
//! takes its parts back.
//!
//! Life of a range: it is seen after as many calls that touch, and begins with the first of them, so that who
//! writes it once more has it. It is as long as [`RANGE_BYTES_MIN`], or [`RANGE_GROWTH`] times what was
//! written so far; the MDT cuts it where another client's begins. Behind its end a longer one is asked for.
//!
//! [`Vain`] remembers of an inode that a part was asked for in vain.

use sateen_types::{Comb, RANGE_BYTES_MAX};

/// Equal steps after which there is a comb.
const STEPS: u32 = 4;
/// The same for who may write beside others as it is: by then those have seen their combs, too, and ask for
/// nothing that would take this one's away.
const STEPS_UNDER_SHARED: u32 = 16;
/// The same of calls that touch, for who has written in two places before: the second may be a record
/// of some that are written in turns.
const CALLS_BEHIND_A_JUMP: u32 = 64;
/// Bytes of the first range that is asked for: few enough to end before the next one's segment begins in
/// most files, whose writer would have to call it back.
const RANGE_BYTES_MIN: u64 = 16 << 20;
/// So many times what was written from its beginning on is a later one.
const RANGE_GROWTH: u64 = 4;
/// After a question in vain none is asked for so long: 2 s. For who would give back a lock for it, twice as
/// long after each more, but for 64 s at most.
const VAIN_NS: u64 = 2_000_000_000;
const VAIN_DOUBLED_MAX: u32 = 5;
/// Where parts are switched off none is asked for so long, of no file: a minute.
pub(crate) const NO_PARTS_NS: u64 = 60_000_000_000;

/// How an open file is written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Strides {
    /// The record that is being written, from and to; calls that follow each other write one.
    record: (u64, u64),
    /// So many calls it was so far.
    calls: u32,
    /// From the record before to this one; 0 if it is the first.
    step: u64,
    /// So many steps behind each other were like this.
    equal: u32,
    /// Where the first of these began.
    first: u64,
    /// The longest record since.
    longest: u64,
}

impl Strides {
    /// A write begins. Those that do not come one behind the other make no comb.
    pub(crate) fn write(&mut self, offset: u64, len: u64) {
        let (from, to) = self.record;
        let end = offset.saturating_add(len);
        if offset == to && to > from {
            self.record.1 = end;
            self.calls = self.calls.saturating_add(1);
            self.longest = self.longest.max(end - from);
        } else {
            let step = if to > from { offset.saturating_sub(from) } else { 0 };
            if step > 0 && step == self.step {
                self.equal = self.equal.saturating_add(1);
                self.longest = self.longest.max(len);
            } else {
                (self.step, self.equal) = (step, u32::from(step > 0));
                (self.first, self.longest) = (from, (to - from).max(len));
            }
            (self.record, self.calls) = ((offset, end), 1);
        }
        if self.step > 0 && self.longest >= self.step {
            // They touch, or overlap. This one may be the first of others.
            *self = Strides { record: self.record, calls: self.calls, ..Strides::default() };
        }
    }

    /// What is best asked for before a write that was just noted, if it is not the whole file: with `shared`
    /// by one who may write beside others as it is.
    pub(crate) fn part(&self, (offset, len): (u64, u64), shared: bool) -> Option<Comb> {
        let comb = self.comb(shared).or_else(|| self.range(shared));
        comb.filter(|comb| comb.has(offset, len))
    }

    /// From the first of as many calls that touch.
    fn range(&self, shared: bool) -> Option<Comb> {
        let steps = if shared { STEPS_UNDER_SHARED } else { STEPS };
        let calls = if self.step == 0 { steps } else { CALLS_BEHIND_A_JUMP };
        let is_one = self.calls > calls && self.equal <= 1;
        let grown = (self.record.1 - self.record.0).saturating_mul(RANGE_GROWTH);
        let len = grown.clamp(RANGE_BYTES_MIN, RANGE_BYTES_MAX);
        if is_one { Comb::range(self.record.0, len) } else { None }
    }

    /// All records, after as many equal steps; with `shared` of one who may write beside others as it is.
    fn comb(&self, shared: bool) -> Option<Comb> {
        let steps = if shared { STEPS_UNDER_SHARED } else { STEPS };
        let is_one = self.equal >= steps;
        if is_one { Comb::new(self.first, self.longest, self.step) } else { None }
    }
}

/// That a part was asked for in vain: when that was, and how often so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Vain {
    last_ns: u64,
    times: u32,
}

impl Vain {
    /// Whether a part may be asked for; with `shared` by one who gives back a lock for it.
    pub(crate) fn is_over(&self, now_ns: u64, shared: bool) -> bool {
        let Some(before) = self.times.checked_sub(1) else { return true };
        let doubled = if shared { before.min(VAIN_DOUBLED_MAX) } else { 0 };
        now_ns.saturating_sub(self.last_ns) >= VAIN_NS << doubled
    }

    /// A question was answered.
    pub(crate) fn answered(&mut self, now_ns: u64, granted: bool) {
        let times = if granted { 0 } else { self.times.saturating_add(1) };
        *self = Vain { last_ns: now_ns, times };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(writes: &[(u64, u64)]) -> Strides {
        let mut strides = Strides::default();
        writes.iter().for_each(|(offset, len)| strides.write(*offset, *len));
        strides
    }

    fn records(count: u64, start: u64, len: u64, stride: u64) -> Vec<(u64, u64)> {
        (0..count).map(|at| (start + at * stride, len)).collect()
    }

    #[test]
    fn a_comb_is_there_after_equal_steps_and_begins_with_the_first() {
        assert!(after(&records(4, 47, 10, 100)).comb(false).is_none());
        let five = after(&records(5, 47, 10, 100));
        assert_eq!(five.comb(false), Comb::new(47, 10, 100));
        assert!(five.comb(true).is_none(), "others are to see theirs first");
        assert!(after(&records(16, 0, 10, 100)).comb(true).is_none());
        assert_eq!(after(&records(17, 0, 10, 100)).comb(true), Comb::new(0, 10, 100));
    }

    #[test]
    fn calls_that_follow_each_other_are_one_record_and_the_longest_counts() {
        let mut writes = Vec::new();
        for (offset, len) in records(5, 1000, 30, 64) {
            writes.extend([(offset, len), (offset + len, 3)]);
        }
        let strides = after(&writes);
        assert_eq!(strides.comb(false), Comb::new(1000, 33, 64));
        // The first call of the next is in it, and so is the second.
        let comb = strides.comb(false).expect("a comb");
        assert!(comb.has(1000 + 5 * 64, 30) && comb.has(1030 + 5 * 64, 3));
        let mut longer = strides;
        longer.write(1000 + 5 * 64, 40);
        assert_eq!(longer.comb(false), Comb::new(1000, 40, 64), "another one");
    }

    #[test]
    fn another_step_ends_it_and_so_do_records_that_touch() {
        let ended = |offset, len| {
            let mut strides = after(&records(9, 0, 10, 100));
            assert!(strides.comb(false).is_some());
            strides.write(offset, len);
            strides.comb(false)
        };
        assert!(ended(900, 10).is_some());
        for (offset, len) in [(901, 10), (700, 10), (800, 10), (0, 10), (1000, 10), (900, 100)] {
            assert_eq!(ended(offset, len), None, "{offset} {len}");
        }
        assert!(after(&records(9, 0, 10, 10)).comb(false).is_none(), "one behind the other");
        assert!(after(&records(9, 0, 12, 10)).comb(false).is_none(), "they overlap");
        let back: Vec<_> = records(9, 0, 10, 100).into_iter().rev().collect();
        assert!(after(&back).comb(false).is_none());
        // The record with which it ended is the first of another.
        let mut strides = after(&records(9, 0, 10, 100));
        for (offset, len) in records(4, 820, 10, 50) {
            strides.write(offset, len);
            assert!(strides.comb(false).is_none());
        }
        strides.write(1020, 10);
        assert_eq!(strides.comb(false), Comb::new(820, 10, 50));
    }

    fn range(start: u64, len: u64) -> Option<Comb> {
        Comb::range(start, len)
    }

    #[test]
    fn who_writes_on_and_on_asks_for_ever_larger_ranges() {
        let run = |calls: u64, len: u64| after(&records(calls, 1 << 30, len, len));
        let at = |calls: u64, len: u64| ((1 << 30) + (calls - 1) * len, len);
        assert!(run(4, 4096).part(at(4, 4096), false).is_none());
        let (five, seventeen) = (run(5, 4096), run(17, 4096));
        assert_eq!(five.part(at(5, 4096), false), range(1 << 30, RANGE_BYTES_MIN));
        assert!(five.part(at(5, 4096), true).is_none(), "he may write as it is");
        assert!(run(16, 4096).part(at(16, 4096), true).is_none());
        assert!(seventeen.part(at(17, 4096), true).is_some());
        let megabytes = run(100, 1 << 20);
        assert_eq!(megabytes.part(at(100, 1 << 20), true), range(1 << 30, 400 << 20));
        assert!(run(5, 1 << 40).part(at(5, 1 << 40), false).is_none(), "longer than any range");
    }

    #[test]
    fn who_has_written_elsewhere_before_has_to_write_more_before_he_asks_for_a_range() {
        let behind = |calls: u64| {
            let mut writes = vec![(0, 100)];
            writes.extend(records(calls, 1 << 30, 4096, 4096));
            after(&writes).part(((1 << 30) + (calls - 1) * 4096, 4096), false)
        };
        assert!(behind(64).is_none() && behind(65).is_some());
        // Records of many calls at one distance are a comb.
        let mut writes = Vec::new();
        for (offset, _) in records(6, 0, 1, 1 << 20) {
            writes.extend(records(100, offset, 1000, 1000));
        }
        let last = writes[writes.len() - 1];
        assert_eq!(after(&writes).part(last, false), Comb::new(0, 100_000, 1 << 20));
        assert!(after(&writes[..250]).part(writes[249], false).is_none(), "the third record");
    }

    #[test]
    fn offsets_at_the_end_of_all_make_none_and_do_not_overflow() {
        let mut strides = Strides::default();
        for offset in [0, u64::MAX - 5, u64::MAX, u64::MAX, 0, u64::MAX / 2, u64::MAX] {
            strides.write(offset, 1 << 20);
            assert!(strides.comb(false).is_none());
        }
        // Nor do steps that are too long.
        assert!(after(&records(9, 0, 10, 1 << 41)).comb(false).is_none());
    }

    #[test]
    fn who_asks_in_vain_gives_locks_back_for_it_ever_more_seldom() {
        let mut vain = Vain::default();
        assert!(vain.is_over(0, false) && vain.is_over(0, true));
        let (mut now_ns, second_ns) = (7, 1_000_000_000);
        for wait_s in [2, 4, 8, 16, 32, 64, 64] {
            vain.answered(now_ns, false);
            let soon_ns = now_ns + 2 * second_ns;
            assert!(!vain.is_over(soon_ns - 1, false) && vain.is_over(soon_ns, false));
            now_ns += wait_s * second_ns;
            assert!(!vain.is_over(now_ns - 1, true) && vain.is_over(now_ns, true), "{wait_s}");
        }
        vain.answered(now_ns, true);
        assert!(vain.is_over(now_ns, true));
    }
}
