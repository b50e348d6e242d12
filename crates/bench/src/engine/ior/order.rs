//! Which transfers a rank makes, and in which order.

use crate::pattern::mix;

/// What follows from the options alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of a block.
    pub block: u64,
    /// Bytes of a transfer, of which a block has a whole number.
    pub transfer: u64,
    /// Segments.
    pub segments: u64,
    /// Ranks.
    pub ranks: u64,
    /// Whether all ranks share a file.
    pub shared: bool,
    /// 0: in order; 1: shuffled within a segment; 2: blocks by chance, which may overlap.
    pub random: u8,
    /// Chance, the same at all ranks.
    pub seed: u64,
}

/// The transfers of one rank's data.
#[derive(Debug)]
pub struct Order {
    plan: Plan,
    rank: u64,
    per_segment: u64,
    /// Where a segment of this rank begins, and how far it is to the next.
    first: u64,
    stride: u64,
    /// Offsets within a segment, if they are shuffled.
    shuffled: Vec<u64>,
}

impl Order {
    /// The transfers of a rank's data.
    pub fn new(plan: &Plan, rank: u64) -> Self {
        let shuffled = if plan.random == 1 { shuffle(plan, rank) } else { Vec::new() };
        let per_segment =
            if plan.random == 1 { shuffled.len() as u64 } else { plan.block / plan.transfer };
        let stride = if plan.shared { plan.block * plan.ranks } else { plan.block };
        let first = if plan.shared && plan.random != 1 { plan.block * rank } else { 0 };
        Self { plan: plan.clone(), rank, per_segment, first, stride, shuffled }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.per_segment * self.plan.segments
    }

    /// The offset of one of them.
    #[inline]
    pub fn offset(&self, number: u64) -> u64 {
        let segment = number / self.per_segment;
        let inside = number % self.per_segment;
        match self.plan.random {
            0 => self.first + segment * self.stride + inside * self.plan.transfer,
            1 => {
                let at = usize::try_from(inside).ok().and_then(|at| self.shuffled.get(at));
                segment * self.stride + at.copied().unwrap_or_default()
            }
            _ => self.chance(segment) + inside * self.plan.transfer,
        }
    }

    /// Where a block by chance begins. The first is the last of the file, so that the file has
    /// its size.
    fn chance(&self, segment: u64) -> u64 {
        let ranks = if self.plan.shared { self.plan.ranks } else { 1 };
        let blocks = self.plan.segments * ranks;
        if segment == 0 && (!self.plan.shared || self.rank == 0) {
            return (blocks - 1) * self.plan.block;
        }
        let mut state = self.plan.seed ^ (self.rank << 40) ^ segment;
        mix(&mut state) % blocks * self.plan.block
    }
}

/// A rank's offsets within a segment. In a file of its own they are those of its block; in one
/// file for all each transfer of the segment falls to a rank by chance, so that ranks may have
/// different numbers of them.
fn shuffle(plan: &Plan, rank: u64) -> Vec<u64> {
    let mut state = plan.seed;
    let step = usize::try_from(plan.transfer).unwrap_or(usize::MAX);
    let end = if plan.shared { plan.block * plan.ranks } else { plan.block };
    let mut mine = |_: &u64| !plan.shared || mix(&mut state) % plan.ranks == rank;
    let mut offsets: Vec<u64> = (0..end).step_by(step).filter(|offset| mine(offset)).collect();
    let mut state = plan.seed ^ (rank << 32) ^ 1;
    for at in (1..offsets.len()).rev() {
        let other = usize::try_from(mix(&mut state) % (at as u64 + 1)).unwrap_or(0);
        offsets.swap(at, other);
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shared: bool, random: u8) -> Plan {
        Plan { block: 64, transfer: 8, segments: 3, ranks: 4, shared, random, seed: 5 }
    }

    fn offsets(plan: &Plan, rank: u64) -> Vec<u64> {
        let order = Order::new(plan, rank);
        (0..order.count()).map(|number| order.offset(number)).collect()
    }

    fn all(plan: &Plan) -> Vec<u64> {
        let mut all: Vec<u64> = (0..plan.ranks).flat_map(|rank| offsets(plan, rank)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn segments_hold_a_block_of_each_rank() {
        let found = offsets(&plan(true, 0), 1);
        let wanted: Vec<u64> =
            [64, 320, 576].into_iter().flat_map(|from| (from..from + 64).step_by(8)).collect();
        assert_eq!(found, wanted);
        assert_eq!(offsets(&plan(false, 0), 1), (0..192).step_by(8).collect::<Vec<_>>());
    }

    #[test]
    fn every_place_is_written_exactly_once_unless_by_chance() {
        let whole: Vec<u64> = (0..64 * 4 * 3).step_by(8).collect();
        assert_eq!(all(&plan(true, 0)), whole);
        assert_eq!(all(&plan(true, 1)), whole);
        let own = offsets(&plan(false, 1), 2);
        let mut sorted = own.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..192).step_by(8).collect::<Vec<_>>());
        assert_ne!(own, sorted, "it is shuffled");
        assert_ne!(own, offsets(&plan(false, 1), 3), "each rank otherwise");
    }

    #[test]
    fn blocks_by_chance_stay_within_the_file_and_reach_its_end() {
        for shared in [true, false] {
            let plan = plan(shared, 2);
            let end = if shared { 64 * 4 * 3 } else { 64 * 3 };
            let found = all(&plan);
            assert!(found.iter().all(|offset| offset + 8 <= end));
            assert_eq!(found.last(), Some(&(end - 8)));
            assert_eq!(found.len(), 4 * 3 * 8);
        }
    }
}
