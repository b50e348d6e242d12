//! In which order an open file is read, and what would be read next.

use super::CHUNK_BYTES;

/// Steps of the same distance after which a pattern is one.
const STEPS: u32 = 3;
/// Steps of another distance after which it is none any more, and in what is read forward one behind
/// the other.
const WRONG_STEPS: u32 = 2;
/// Right ones, one behind the other, after which a wrong one is forgiven: who goes here and there in
/// turns would be read ahead for without end.
const RIGHT_STEPS: u32 = 3;
/// Reads that follow each other after which a file is read forward.
const FORWARD_READS: u32 = 3;
/// What is read forward comes a little out of order where several threads ask for it: 4 MiB.
const SLACK_BYTES: u64 = 4 << 20;
/// What lies between pieces is read with them if they are no further apart, 64 KiB: one request for
/// several is cheaper.
const DENSE_BYTES: u64 = 64 << 10;
/// A kernel reads whole pages: where pieces do not begin with pages its steps differ by one.
const PAGE_BYTES: u64 = 4096;
/// Pieces of which it is not known exactly where they lie are read ahead from and to multiples of this,
/// so that what is foreseen of one stays the same while more becomes known.
const GRID_BYTES: u64 = 16 << 10;
/// Pieces elsewhere after which a small file is read whole.
const ELSEWHERE: u32 = 2;
/// Pieces, or chunks, ahead at most.
const WIDTH_MAX: u64 = 256;

/// What would be read next, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// All of the file, if it is small.
    Whole,
    /// So many bytes from here on.
    Forward(u64, u64),
    /// So many bytes before this.
    Backward(u64, u64),
    /// Pieces of a length: where the first is, the distance to each next, and how many. Each lies about
    /// there only, to a page, if `about`.
    Pieces { first: i64, step: i64, len: u64, count: u64, about: bool },
}

impl Next {
    /// How much of each range may be left unread by who reads all that he wants of it.
    pub(crate) fn slack(self) -> u64 {
        match self {
            Next::Pieces { about: true, .. } => 2 * (GRID_BYTES + PAGE_BYTES),
            _ => 0,
        }
    }

    /// What is to be there of a file of `size` bytes: offset and length of each range, of `limit` bytes
    /// in all.
    pub(crate) fn ranges(self, size: u64, limit: u64) -> Vec<(u64, u64)> {
        let mut ranges = Ranges { all: Vec::new(), left: limit };
        match self {
            Next::Whole => ranges.add(0, size),
            Next::Forward(from, len) => ranges.add(from, from.saturating_add(len).min(size)),
            Next::Backward(to, len) => {
                let to = to.min(size);
                ranges.add(to.saturating_sub(len.min(limit)), to);
                ranges.all.reverse();
            }
            Next::Pieces { first, step, len, count, about } => {
                let mut at = Some(first);
                // On the way there: what the pages around a piece share with those of the one before
                // is there with that.
                let (mut begin, mut end) = (0, size);
                for _ in 0..count {
                    let Some(Ok(from)) = at.map(u64::try_from) else { break };
                    if from >= size {
                        break;
                    }
                    let to = from.saturating_add(len);
                    let (from, to) = if about { around(from, to) } else { (from, to) };
                    let (from, to) = (from.max(begin), to.min(end));
                    ranges.add(from, to);
                    if step < 0 {
                        end = end.min(from);
                    } else {
                        begin = begin.max(to);
                    }
                    at = at.and_then(|at| at.checked_add(step));
                }
            }
        }
        ranges.all
    }
}

/// A range with a page on either side, to the grid.
fn around(from: u64, to: u64) -> (u64, u64) {
    let from = from.saturating_sub(PAGE_BYTES);
    let to = to.saturating_add(PAGE_BYTES);
    (from - from % GRID_BYTES, to.div_ceil(GRID_BYTES).saturating_mul(GRID_BYTES))
}

struct Ranges {
    all: Vec<(u64, u64)>,
    left: u64,
}

impl Ranges {
    /// A range, cut where chunks end, so far as there may be more.
    fn add(&mut self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let end = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(to);
            if end - at > self.left {
                self.left = 0;
                return;
            }
            self.left -= end - at;
            self.all.push((at, end - at));
            at = end;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    /// None is known.
    #[default]
    None,
    /// One piece that gets longer and longer.
    Forward,
    /// Pieces of which each next lies as far from the one before.
    Steps,
}

/// The reads of one open file. A piece is what was read in reads that follow each other.
#[derive(Debug, Default)]
pub(crate) struct Pattern {
    /// The piece that is being read, up to here.
    end: u64,
    start: u64,
    /// Reads of it.
    reads: u32,
    /// Where the piece before began, and how long it was.
    before: u64,
    len: u64,
    /// How far this one lies from that, and how often one after the other did; from where on, and whether
    /// some by a page more or less.
    step: i64,
    steps: u32,
    origin: u64,
    about: bool,
    kind: Kind,
    /// Steps that were not foreseen, and how many were since.
    wrong: u32,
    right: u32,
    /// Pieces or chunks ahead, and how many bytes were read since they are as many.
    width: u64,
    since: u64,
    /// Who reads in chunks had to wait for one since then: what is ahead is too little for what his
    /// disks and networks take.
    waited: bool,
    /// Pieces that were where none was expected.
    elsewhere: u32,
    /// The file was asked for whole.
    whole: bool,
}

impl Pattern {
    /// A range that is not empty is read; what is to be read ahead from now on, if it has to be looked
    /// at. What follows a range that is read forward is told if `forward`.
    pub(crate) fn read(&mut self, (offset, len): (u64, u64), forward: bool) -> Option<Next> {
        let end = offset.saturating_add(len);
        if offset == self.end && self.reads > 0 {
            return self.goes_on((offset, end), forward);
        }
        if self.kind == Kind::Forward {
            let far = offset.abs_diff(self.end) > SLACK_BYTES;
            self.wrong = if far { self.wrong + 1 } else { 0 };
            if !far {
                self.end = self.end.max(end);
                return self.forward((offset, end));
            }
            if self.wrong < WRONG_STEPS {
                return None;
            }
            self.begins_anew((offset, end));
            return None;
        }
        if self.reads == 0 {
            self.begins_anew((offset, end));
            return None;
        }
        if self.is_its_begin((offset, end)) {
            // The step was right after all.
            (self.start, self.wrong) = (offset, self.wrong - 1);
            self.width = (self.width * 2).min(WIDTH_MAX);
            return self.next_steps(self.end - offset);
        }
        self.steps_to((offset, end))
    }

    /// Whether this is the begin of a piece whose rest came first: a kernel asks for a long read in
    /// parts, which several threads take.
    fn is_its_begin(&self, (offset, end): (u64, u64)) -> bool {
        let step = offset as i64 - self.before as i64;
        let is_new = self.kind == Kind::Steps && self.wrong > 0 && self.right == 0;
        is_new && self.reads == 1 && end == self.start && step == self.step
    }

    /// What was foreseen, or should have been, was not there yet when it was read.
    pub(crate) fn waited(&mut self) {
        self.waited = true;
    }

    /// As many chunks as are ahead have been read: twice as many are to be if that was too few. For
    /// who never waits more would only take memory, of whoever reads beside him too.
    fn read_as_many(&mut self) {
        if core::mem::take(&mut self.waited) {
            self.width = (self.width * 2).min(WIDTH_MAX);
        }
    }

    /// Whether what is read was foreseen.
    pub(crate) fn is_one(&self) -> bool {
        self.kind != Kind::None
    }

    fn begins_anew(&mut self, (start, end): (u64, u64)) {
        let (elsewhere, whole) = (self.elsewhere, self.whole);
        *self = Pattern { start, end, reads: 1, elsewhere, whole, ..Pattern::default() };
    }

    /// The piece gets longer.
    fn goes_on(&mut self, (offset, end): (u64, u64), forward: bool) -> Option<Next> {
        self.end = end;
        self.reads = self.reads.saturating_add(1);
        match self.kind {
            Kind::Forward => return self.forward((offset, end)),
            // As long as those before it.
            Kind::Steps if end - self.start <= self.len.saturating_mul(2) => return None,
            Kind::Steps | Kind::None => {}
        }
        if !forward || self.reads < FORWARD_READS {
            return None;
        }
        (self.kind, self.width, self.since, self.wrong) = (Kind::Forward, 1, 0, 0);
        Some(self.next_forward(end - offset))
    }

    /// Reads on.
    fn forward(&mut self, (offset, end): (u64, u64)) -> Option<Next> {
        self.since += end - offset;
        if self.since >= self.width * CHUNK_BYTES {
            self.read_as_many();
            self.since = 0;
        }
        // Once for each chunk is enough.
        let is_next = offset / CHUNK_BYTES != self.end / CHUNK_BYTES;
        is_next.then(|| self.next_forward(end - offset))
    }

    fn next_forward(&self, len: u64) -> Next {
        // At least what the next two reads need.
        Next::Forward(self.end, (self.width * CHUNK_BYTES).max(len.saturating_mul(2)))
    }

    /// Another piece begins.
    fn steps_to(&mut self, (offset, end): (u64, u64)) -> Option<Next> {
        let step = offset as i64 - self.start as i64;
        let before = self.end - self.start;
        let is_same = self.is_same(step);
        self.about = is_same && (self.about || step != self.step);
        (self.before, self.len) = (self.start, before);
        (self.start, self.end, self.reads) = (offset, end, 1);
        if self.kind == Kind::Steps {
            if !is_same {
                (self.wrong, self.right) = (self.wrong + 1, 0);
                self.width = (self.width / 2).max(1);
                (self.origin, self.steps) = (offset, 0);
                if self.wrong >= WRONG_STEPS {
                    self.begins_anew((offset, end));
                    (self.step, self.steps, self.origin) = (step, 1, self.before);
                }
                return None;
            }
            self.steps = self.steps.saturating_add(1);
            self.step = step;
            self.right = self.right.saturating_add(1);
            if self.right >= RIGHT_STEPS {
                self.wrong = 0;
            }
            return self.next_steps(end - offset);
        }
        if !is_same {
            (self.steps, self.origin) = (0, self.before);
        }
        (self.step, self.steps) = (step, self.steps + 1);
        if self.steps >= STEPS {
            (self.kind, self.wrong, self.width, self.since) = (Kind::Steps, 0, 1, 0);
            return self.next_steps(end - offset);
        }
        self.elsewhere = if is_same { self.elsewhere } else { self.elsewhere.saturating_add(1) };
        let whole = self.elsewhere >= ELSEWHERE && !self.whole;
        self.whole |= whole;
        whole.then_some(Next::Whole)
    }

    /// Whether a step is the last one once more, to a page if it is longer than that.
    fn is_same(&self, step: i64) -> bool {
        let about = step.abs_diff(self.step) <= PAGE_BYTES && step.unsigned_abs() > DENSE_BYTES;
        step != 0 && (step == self.step || about && (step > 0) == (self.step > 0))
    }

    /// The pieces that follow, or everything in that direction where there is little between them.
    fn next_steps(&mut self, read: u64) -> Option<Next> {
        let len = self.len.max(read);
        let distance = self.step.unsigned_abs();
        if distance > DENSE_BYTES && distance > len.saturating_mul(2) {
            self.width = (self.width * 2).min(WIDTH_MAX);
            let (start, about) = (self.start as i64, self.about);
            let (mut step, mut count) = (self.step, self.width);
            if about {
                // To a page after as many steps as there were: to a quarter of one after a quarter.
                let steps = u64::from(self.steps).max(1);
                count = count.min(steps / 4 + 1);
                step = (start - self.origin as i64) / steps as i64;
            }
            let pieces = |first| Next::Pieces { first, step, len, count, about };
            return start.checked_add(step).map(pieces);
        }
        let passed =
            self.start / CHUNK_BYTES != self.start.wrapping_add_signed(-self.step) / CHUNK_BYTES;
        let is_first = self.since == 0;
        self.since += distance;
        if self.since >= self.width * CHUNK_BYTES {
            self.read_as_many();
            self.since = 1;
        }
        let ahead = (self.width * CHUNK_BYTES).max(distance.saturating_mul(2));
        let next = match self.step < 0 {
            true => Next::Backward(self.start, ahead),
            false => Next::Forward(self.end, ahead),
        };
        (passed || is_first).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const MIB: u64 = 1 << 20;

    fn all(reads: &[(u64, u64)], forward: bool) -> Vec<Option<Next>> {
        let mut pattern = Pattern::default();
        reads.iter().map(|read| pattern.read(*read, forward)).collect()
    }

    /// The pages of records that do not begin with one, as a kernel reads them.
    fn pages_of(record: u64, len: u64, step: u64) -> (u64, u64) {
        let (from, to) = (record * step, record * step + len);
        let from = from - from % PAGE;
        (from, to.div_ceil(PAGE) * PAGE - from)
    }

    #[test]
    fn records_that_do_not_begin_with_pages_are_foreseen() {
        let (len, step, size) = (47_008, 4 * 47_008, 1 << 40);
        let mut pattern = Pattern::default();
        // In units of the grid.
        let mut there = std::collections::BTreeSet::new();
        let (mut missed, mut requests) = (0, 0);
        for record in 0..400 {
            let (from, bytes) = pages_of(record, len, step);
            let units =
                |(from, len): (u64, u64)| from / GRID_BYTES..(from + len).div_ceil(GRID_BYTES);
            missed += u32::from(!units((from, bytes)).all(|unit| there.contains(&unit)));
            let Some(next) = pattern.read((from, bytes), false) else { continue };
            assert!(next.slack() > 0 && matches!(next, Next::Pieces { about: true, .. }));
            for range in next.ranges(size, 64 * MIB) {
                let before = there.len();
                there.extend(units(range));
                requests += u32::from(there.len() > before);
            }
        }
        assert!(missed <= 8, "{missed} records were not there");
        // What is foreseen of a piece hardly changes, so that little is asked for twice: some lie in two
        // chunks, and the last ones are beyond those that were read.
        assert!(requests < 400 + 256 + 100, "{requests} requests");
        assert!((there.len() as u64) < (400 + 256) * 5, "{} units", there.len());
    }

    #[test]
    fn pieces_that_lie_close_are_not_asked_for_twice() {
        let (len, step) = (30_u64 << 10, (65_i64 << 10) + 512);
        for step in [step, -step] {
            let first = 40 * step.abs();
            let next = Next::Pieces { first, step, len, count: 40, about: true };
            let mut ranges = next.ranges(1 << 40, 64 * MIB);
            ranges.sort_unstable();
            let mut before = 0;
            for (from, len) in &ranges {
                assert!(*from >= before, "{from} was asked for before");
                before = from + len;
            }
            // Each piece is there, with a page on either side.
            let is_there =
                |at: u64| ranges.iter().any(|(from, len)| (*from..from + len).contains(&at));
            for n in 0..40 {
                let at = (first + n * step) as u64;
                assert!((at - PAGE..at + len + PAGE).step_by(512).all(is_there), "piece {n}");
            }
        }
    }

    #[test]
    fn three_steps_of_one_distance_begin_it_and_it_gets_wider() {
        let reads: Vec<_> = (0..6).map(|n| (n * MIB, PAGE)).collect();
        let next = all(&reads, false);
        assert_eq!(next[..3], [None; 3]);
        let pieces = |first: u64, count| {
            let (first, step) = ((first * MIB) as i64, MIB as i64);
            Some(Next::Pieces { first, step, len: PAGE, count, about: false })
        };
        assert_eq!(next[3..], [pieces(4, 2), pieces(5, 4), pieces(6, 8)]);
        assert_eq!(
            next[3].unwrap().ranges(5 * MIB, MIB),
            [(4 * MIB, PAGE)],
            "no further than the end"
        );
    }

    #[test]
    fn pieces_may_be_read_in_several_reads_and_from_behind() {
        let mut reads = Vec::new();
        for n in (0..8).rev() {
            reads.extend([(n * 8 * MIB, MIB), (n * 8 * MIB + MIB, PAGE)]);
        }
        let next = all(&reads, true);
        let (first, step) = (3 * 8 * MIB as i64, -8 * MIB as i64);
        let piece = Next::Pieces { first, step, len: MIB + PAGE, count: 2, about: false };
        assert_eq!(next[6], Some(piece));
        let at = [3 * 8 * MIB, 2 * 8 * MIB];
        let ranges = at.map(|at| [(at, MIB), (at + MIB, PAGE)]).concat();
        assert_eq!(piece.ranges(1 << 40, 64 * MIB), ranges);
        assert!(next[..6].iter().all(Option::is_none));
        assert!(next[7].is_none(), "the piece goes on");
        assert_eq!(piece.ranges(1 << 40, MIB), ranges[..1], "no more than there may be");
        // Nothing lies before the beginning.
        assert_eq!(next[14].unwrap().ranges(1 << 40, MIB), []);
    }

    #[test]
    fn what_is_read_backward_is_read_in_chunks() {
        let reads: Vec<_> = (0..300).map(|n| (3 * MIB - (n + 1) * PAGE, PAGE)).collect();
        let next = all(&reads, false);
        let begins = 3 * MIB - 4 * PAGE;
        assert_eq!(next[3], Some(Next::Backward(begins, MIB)));
        assert_eq!(
            next[3].unwrap().ranges(3 * MIB, 64 * MIB),
            [(2 * MIB, MIB - 4 * PAGE), (2 * MIB - 4 * PAGE, 4 * PAGE)]
        );
        let told: Vec<usize> = (4..300).filter(|n| next[*n].is_some()).collect();
        assert_eq!(told, [256], "with each chunk once");
    }

    #[test]
    fn one_other_step_narrows_it_and_two_end_it() {
        let mut pattern = Pattern::default();
        for n in 0..5 {
            pattern.read((n * MIB, PAGE), false);
        }
        assert!(pattern.is_one() && pattern.width == 4);
        assert_eq!(pattern.read((50 * MIB, PAGE), false), None);
        assert!(pattern.is_one() && pattern.width == 2);
        // It is forgiven after three right ones.
        for n in 51..54 {
            assert!(pattern.read((n * MIB, PAGE), false).is_some());
        }
        assert_eq!(pattern.read((10 * MIB, PAGE), false), None);
        assert!(pattern.is_one());
        assert_eq!(pattern.read((80 * MIB, PAGE), false), None);
        assert!(!pattern.is_one());
    }

    #[test]
    fn a_piece_whose_rest_is_asked_for_before_its_begin_is_as_foreseen() {
        let mut pattern = Pattern::default();
        let parts = |n: u64| [(n * MIB, 32 * PAGE), (n * MIB + 32 * PAGE, 32 * PAGE)];
        for part in (0..5).flat_map(parts) {
            pattern.read(part, false);
        }
        for n in 5..20 {
            let [begin, rest] = parts(n);
            assert_eq!(pattern.read(rest, false), None);
            let next = pattern.read(begin, false);
            let Some(Next::Pieces { first, len, .. }) = next else { panic!("{n}: {next:?}") };
            assert_eq!((first as u64, len), ((n + 1) * MIB, 64 * PAGE));
        }
        assert!(pattern.is_one() && pattern.width > 4);
        // Who goes back by as much without a step there does not do that.
        assert_eq!(pattern.read((100 * MIB, PAGE), false), None);
        assert_eq!(pattern.read((99 * MIB, MIB), false), None);
        assert!(!pattern.is_one());
    }

    #[test]
    fn who_goes_on_and_elsewhere_in_turns_is_not_read_ahead_for_without_end() {
        let mut pattern = Pattern::default();
        for n in 0..9 {
            pattern.read((n * MIB, PAGE), false);
        }
        assert!(pattern.is_one());
        let told = (1..20).flat_map(|n| [n * 100 * MIB, (n * 100 + 1) * MIB]);
        let told = told.map(|at| pattern.read((at, PAGE), false));
        let told = told.filter(|next| matches!(next, Some(Next::Pieces { .. })));
        assert_eq!(told.count(), 1, "the first step that is right again");
        assert!(!pattern.is_one());
    }

    #[test]
    fn who_reads_forward_is_left_to_the_kernel_unless_its_servers_are_far() {
        let reads: Vec<_> = (0..64).map(|n| (n * MIB / 4, MIB / 4)).collect();
        assert!(all(&reads, false).iter().all(Option::is_none));
        let next = all(&reads, true);
        assert_eq!(next[..2], [None; 2]);
        assert_eq!(next[2], Some(Next::Forward(3 * MIB / 4, MIB)));
        // It is told as each chunk ends.
        assert_eq!(next[3], Some(Next::Forward(MIB, MIB)));
        assert_eq!(next[4..7], [None; 3]);
        assert_eq!(next[7], Some(Next::Forward(2 * MIB, MIB)));
        // Two threads are not quite in order.
        let mut pattern = Pattern::default();
        let order = [0, 1, 2, 4, 3, 5, 7, 6, 8].map(|n| (n * MIB, MIB));
        let next = order.map(|read| pattern.read(read, true));
        assert!(next[2..].iter().all(Option::is_some), "{next:?}");
    }

    #[test]
    fn it_gets_wider_in_chunks_as_long_as_who_reads_has_to_wait() {
        let mut pattern = Pattern::default();
        let mut read = |chunk: u64, waits: bool| {
            let mut told = None;
            for quarter in 4 * chunk..4 * chunk + 4 {
                told = pattern.read((quarter * MIB / 4, MIB / 4), true).or(told);
                if waits {
                    pattern.waited();
                }
            }
            let Some(Next::Forward(_, bytes)) = told else { panic!("{told:?}") };
            bytes / MIB
        };
        let mut width = 1;
        for chunk in 0..32 {
            let now = read(chunk, true);
            assert!(now == width || now == 2 * width, "{now} behind {width}");
            width = now;
        }
        assert!(width >= 16, "{width}");
        for chunk in 32..32 + 4 * width {
            let now = read(chunk, false);
            // What was waited for before still counts, once.
            assert!(now == width || now == 2 * width && chunk < 32 + 2 * width, "{now}");
            width = now;
        }
    }

    #[test]
    fn who_reads_here_and_there_is_told_nothing_but_that_the_file_may_be_small() {
        let places = [7, 3, 90, 41, 66, 12, 5, 77, 20];
        let next = all(&places.map(|n| (n * MIB, PAGE)), true);
        assert_eq!(next[2], Some(Next::Whole), "once");
        assert!(next.iter().enumerate().all(|(n, next)| n == 2 || next.is_none()), "{next:?}");
        // The same place again and again is no pattern.
        assert!(
            all(&[(MIB, PAGE); 9], true).iter().all(|next| next.is_none_or(|n| n == Next::Whole))
        );
    }
}
