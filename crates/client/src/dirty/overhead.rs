//! What pieces that are kept take of memory beside their bytes. It counts like bytes, by OST: or
//! writes of a byte each, to many places of many files, took without end what has a bound.
//!
//! It is counted before there is a piece, and for as many as there may be then: how many meet
//! others and become one with them is not looked at. So it is never too little, and goes when
//! all of an inode is written out.

use std::collections::BTreeMap;

/// Of each piece: its place among the others, its allocation, and its request later.
pub(crate) const PIECE_BYTES: u64 = 256;
/// Of each inode of which something is kept: that, and what is noted of it.
pub(crate) const INODE_BYTES: u64 = 1024;

/// Bytes by OST.
pub(crate) type Counted = BTreeMap<u32, u64>;

/// What was counted of one inode. See the module.
#[derive(Debug, Default)]
pub(crate) struct Overhead {
    /// For so many pieces that are not on their way.
    pieces: usize,
    inode: Counted,
    waiting: Counted,
    in_flight: Counted,
}

impl Overhead {
    /// So much is to be counted before there may be so many pieces.
    pub(crate) fn of_more(&self, pieces: usize) -> u64 {
        let more = pieces.saturating_sub(self.pieces) as u64 * PIECE_BYTES;
        if self.inode.is_empty() { INODE_BYTES + more } else { more }
    }

    /// It was, for this OST.
    pub(crate) fn add(&mut self, ost: u32, pieces: usize) {
        let more = pieces.saturating_sub(self.pieces) as u64 * PIECE_BYTES;
        self.pieces = self.pieces.max(pieces);
        *self.waiting.entry(ost).or_default() += more;
        if self.inode.is_empty() {
            self.inode.insert(ost, INODE_BYTES);
        }
    }

    /// All pieces go on their way; none are that did so before.
    pub(crate) fn leave(&mut self) {
        self.pieces = 0;
        for (ost, bytes) in core::mem::take(&mut self.waiting) {
            *self.in_flight.entry(ost).or_default() += bytes;
        }
    }

    /// What was on its way is not any more: so much is not to be counted.
    pub(crate) fn arrive(&mut self) -> Counted {
        core::mem::take(&mut self.in_flight)
    }

    /// Nothing is kept any more.
    pub(crate) fn end(self) -> impl Iterator<Item = (u32, u64)> {
        self.inode.into_iter().chain(self.waiting).chain(self.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_goes_once() {
        let mut overhead = Overhead::default();
        assert_eq!(overhead.of_more(2), INODE_BYTES + 2 * PIECE_BYTES);
        overhead.add(1, 2);
        assert_eq!((overhead.of_more(2), overhead.of_more(3)), (0, PIECE_BYTES));
        overhead.add(0, 3);
        overhead.leave();
        assert_eq!(overhead.of_more(1), PIECE_BYTES);
        overhead.add(1, 1);
        let on_its_way = Counted::from([(0, PIECE_BYTES), (1, 2 * PIECE_BYTES)]);
        assert_eq!((overhead.arrive(), overhead.arrive()), (on_its_way, Counted::default()));
        assert_eq!(overhead.end().map(|(_, bytes)| bytes).sum::<u64>(), INODE_BYTES + PIECE_BYTES);
    }
}
