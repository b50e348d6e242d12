//! What a round writes out, as requests: pieces of one object go together, as far as one request carries
//! them.
//!
//! Those that lie one behind the other in memory, as pieces do that were written in order, are sent as they
//! are; others are copied, because a request costs an OST and this process several times what it takes to
//! copy what most pieces have. What is long enough is not: it goes alone.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use sateen_types::{Chunk, Copied, copied};
use sateen_wire::{SPANS_MAX, Span};

use super::extents::adjoin;
use crate::osc::Places;

/// As long a piece goes alone, and as many that lie together without others: 256 KiB. To copy them would
/// take as long as a request.
const ALONE_BYTES: u64 = 256 << 10;

/// Pieces of one object, which rise.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    all: Vec<(u64, BytesMut)>,
    bytes: u64,
}

impl Pieces {
    fn add(&mut self, offset: u64, data: BytesMut) {
        self.bytes += data.len() as u64;
        self.all.push((offset, data));
    }

    fn takes(&self, data: &[u8], bytes_max: u64) -> bool {
        let fits = self.all.len() < SPANS_MAX && self.bytes + data.len() as u64 <= bytes_max;
        let lies_behind = || self.all.last().is_none_or(|(_, last)| adjoin(last, data));
        fits && (self.bytes < ALONE_BYTES || lies_behind())
    }

    /// How many bytes they have together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where they go, and their data one behind the other.
    pub(super) fn joined(self) -> (Places, Bytes) {
        if let [(offset, _)] = self.all[..] {
            let data = self.all.into_iter().next().map(|(_, data)| data).unwrap_or_default();
            return (Places::At(offset), data.freeze());
        }
        let span =
            |(offset, piece): &(u64, BytesMut)| Span { offset: *offset, len: piece.len() as u32 };
        let spans = self.all.iter().map(span).collect();
        let lie_together = self.all.is_sorted_by(|(_, one), (_, next)| adjoin(one, next));
        let mut all = self.all.into_iter().map(|(_, piece)| piece);
        let mut data = match lie_together {
            true => all.next().unwrap_or_default(),
            false => BytesMut::with_capacity(self.bytes as usize),
        };
        if lie_together {
            all.for_each(|piece| data.unsplit(piece));
        } else {
            copied(Copied::ClientJoin, self.bytes as usize);
            all.for_each(|piece| data.extend_from_slice(&piece));
        }
        (Places::Pieces(spans), data.freeze())
    }
}

/// Pieces of a round, by the OST and the stripe of their object.
#[derive(Debug, Default)]
pub(super) struct Sorted(BTreeMap<(u32, u32), Vec<(u64, BytesMut)>>);

impl Sorted {
    /// One more.
    pub(super) fn add(&mut self, chunk: &Chunk, data: BytesMut) {
        let of_object = self.0.entry((chunk.ost, chunk.stripe)).or_default();
        of_object.push((chunk.object_offset, data));
    }

    /// By OST the requests with the stripes of their objects. `bytes_max` says how much one carries, or
    /// that an OST takes each piece by itself.
    pub(super) fn requests(
        self,
        bytes_max: impl Fn(u32) -> Option<u64>,
    ) -> BTreeMap<u32, Vec<(u32, Pieces)>> {
        let mut all: BTreeMap<u32, Vec<(u32, Pieces)>> = BTreeMap::new();
        for ((ost, stripe), mut pieces) in self.0 {
            let requests = all.entry(ost).or_default();
            pieces.sort_unstable_by_key(|(offset, _)| *offset);
            let bytes_max = bytes_max(ost).unwrap_or(0);
            let mut open = Pieces::default();
            for (offset, data) in pieces {
                let bytes = data.len() as u64;
                if bytes >= ALONE_BYTES || bytes > bytes_max {
                    let mut alone = Pieces::default();
                    alone.add(offset, data);
                    requests.push((stripe, alone));
                    continue;
                }
                if !open.takes(&data, bytes_max) {
                    requests.push((stripe, core::mem::take(&mut open)));
                }
                open.add(offset, data);
            }
            if !open.all.is_empty() {
                requests.push((stripe, open));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn chunk(ost: u32, stripe: u32, object_offset: u64, len: u64) -> Chunk {
        Chunk { ost, stripe, file_offset: 0, object_offset, len }
    }

    /// Each request of an OST: its stripe, and offset and length of each piece.
    fn requests(pieces: &[(u32, u64, u64)], bytes_max: Option<u64>) -> Vec<(u32, Vec<(u64, u64)>)> {
        let mut sorted = Sorted::default();
        for (number, (stripe, offset, len)) in pieces.iter().enumerate() {
            let data = BytesMut::from(&vec![number as u8; *len as usize][..]);
            sorted.add(&chunk(7, *stripe, *offset, *len), data);
        }
        let all = sorted.requests(|_| bytes_max).remove(&7).unwrap_or_default();
        let parts = |(stripe, request): (u32, Pieces)| {
            let bytes = request.bytes();
            let (places, data) = request.joined();
            assert_eq!(data.len() as u64, bytes);
            // Each has its own data.
            let mut at = 0;
            let ranges: Vec<(u64, u64)> = places.ranges(bytes).collect();
            for (offset, len) in &ranges {
                let of = pieces.iter().position(|piece| *piece == (stripe, *offset, *len));
                let its = data.slice(at..at + *len as usize);
                assert!(its.iter().all(|byte| Some(usize::from(*byte)) == of));
                at += *len as usize;
            }
            (stripe, ranges)
        };
        all.into_iter().map(parts).collect()
    }

    #[test]
    fn pieces_of_an_object_go_together() {
        let pieces = [(1, 50, 5), (0, 10, 3), (1, 0, 5), (0, 0, 3)];
        assert_eq!(
            requests(&pieces, Some(100)),
            [(0, vec![(0, 3), (10, 3)]), (1, vec![(0, 5), (50, 5)])]
        );
        assert_eq!(requests(&pieces, Some(5)).len(), 4, "as many as fit");
        assert_eq!(requests(&pieces, None).len(), 4, "an OST that takes one at a time");
        assert_eq!(requests(&pieces[..1], Some(100)), [(1, vec![(50, 5)])]);
    }

    #[test]
    fn what_is_long_goes_alone_and_keeps_nothing_from_going_together() {
        let pieces = [(0, 0, 4), (0, 512 * KIB, 256 * KIB), (0, 1024 * KIB, 4)];
        let together = vec![(0, 4), (1024 * KIB, 4)];
        let alone = vec![(512 * KIB, 256 * KIB)];
        assert_eq!(requests(&pieces, Some(1 << 20)), [(0, alone), (0, together)]);
    }

    #[test]
    fn what_lies_together_is_not_copied() {
        let mut room = BytesMut::from(&vec![7; 2 << 20][..]);
        let place = room.as_ptr();
        let mut sorted = Sorted::default();
        for at in 0..20 {
            // Two objects in turns of five pieces each.
            let len = 60 * KIB;
            let piece = room.split_to(len as usize);
            sorted.add(&chunk(0, (at / 5 % 2) as u32, at * 2 * len, len), piece);
        }
        let all = sorted.requests(|_| Some(1 << 20)).remove(&0).unwrap_or_default();
        let joined = all.into_iter().map(|(stripe, pieces)| {
            let (places, data) = pieces.joined();
            let from = data.as_ptr() as usize - place as usize;
            (stripe, places.ranges(1 << 20).count(), from / (60 << 10))
        });
        let joined: Vec<_> = joined.collect();
        assert_eq!(joined, [(0, 5, 0), (0, 5, 10), (1, 5, 5), (1, 5, 15)]);
    }

    #[test]
    fn so_many_go_together_and_no_more() {
        let pieces: Vec<(u32, u64, u64)> = (0..130).map(|at| (0, 2 * at, 1)).collect();
        let counts = requests(&pieces, Some(1 << 20)).into_iter().map(|(_, ranges)| ranges.len());
        assert_eq!(counts.collect::<Vec<_>>(), [64, 64, 2]);
    }

    #[test]
    fn of_what_was_written_in_part_the_first_are_whole() {
        let spans = [(10, 4), (20, 4)].map(|(offset, len)| Span { offset, len });
        let places = Places::Pieces(spans.into_iter().collect());
        let ranges = |len| places.ranges(len).collect::<Vec<_>>();
        assert_eq!(ranges(8), [(10, 4), (20, 4)]);
        assert_eq!(ranges(5), [(10, 4), (20, 1)]);
        assert_eq!(ranges(4), [(10, 4)]);
        assert_eq!((ranges(0), ranges(99)), (vec![], vec![(10, 4), (20, 4)]));
    }
}
