//! Bytes of a file in pieces, as they are to be written out: in order, merged where they meet,
//! and cut where a run ends that one request can carry.

use std::collections::BTreeMap;

use bytes::BytesMut;
use sateen_types::{Copied, copied};
use smallvec::SmallVec;

/// From where to where; of one range there are few as a rule.
pub(crate) type Gaps = SmallVec<[(u64, u64); 2]>;

/// Most bytes that are taken at once for pieces to come: 1 MiB.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// See the module. No two pieces overlap, and none goes over a multiple of the run's length.
///
/// Pieces that are put in one after the other lie so in memory, too, as long as there is room: who sends
/// several of them together need not copy them ([`adjoin`]).
#[derive(Debug)]
pub(crate) struct Extents {
    all: BTreeMap<u64, BytesMut>,
    run_bytes: u64,
    room: Room,
}

/// Memory for pieces to come, behind the last one. How much is taken at once grows with what is put in: one
/// byte takes no more than that, and a run that is written in order has in the end what it needs at once.
#[derive(Debug, Default)]
struct Room {
    free: BytesMut,
    /// So much is taken next.
    next_bytes: usize,
}

impl Room {
    fn reserve(&mut self, bytes: usize) {
        if self.free.capacity() < bytes {
            let size = self.next_bytes.max(bytes);
            self.next_bytes = (2 * size).min(ROOM_BYTES_MAX);
            self.free = BytesMut::with_capacity(size);
        }
    }

    /// A new piece.
    fn place(&mut self, bytes: &[u8]) -> BytesMut {
        self.reserve(bytes.len());
        copied(Copied::ClientKeep, bytes.len());
        self.free.extend_from_slice(bytes);
        self.free.split()
    }

    /// More of a piece. The last one grows where it is, or moves to where there is more room; others, which
    /// lie among pieces, to memory of their own.
    fn extend(&mut self, piece: &mut BytesMut, bytes: &[u8]) {
        let len = piece.len();
        copied(Copied::ClientKeep, bytes.len());
        if adjoin(piece, &self.free) {
            if self.free.capacity() < bytes.len() {
                self.reserve(len + bytes.len());
                *piece = self.place(piece);
            }
            piece.unsplit(core::mem::take(&mut self.free));
            piece.extend_from_slice(bytes);
            self.free = piece.split_off(piece.len());
        } else if piece.capacity() == len && !bytes.is_empty() {
            let mut own = BytesMut::with_capacity((2 * len).max(len + bytes.len()));
            copied(Copied::ClientKeep, len);
            own.extend_from_slice(piece);
            own.extend_from_slice(bytes);
            *piece = own;
        } else {
            piece.extend_from_slice(bytes);
        }
    }
}

fn end_of(start: u64, bytes: &[u8]) -> u64 {
    start + bytes.len() as u64
}

/// Whether bytes seem to lie behind others in memory: if they do, and were taken at once, to put them
/// together copies nothing.
pub(crate) fn adjoin(bytes: &[u8], next: &[u8]) -> bool {
    core::ptr::eq(bytes.as_ptr_range().end, next.as_ptr())
}

impl Extents {
    /// None yet; runs are to have so many bytes.
    pub(crate) fn new(run_bytes: u64) -> Extents {
        assert!(run_bytes > 0, "a run has a length");
        Extents { all: BTreeMap::new(), run_bytes, room: Room::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many pieces there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// How many there may be when a range has been put in.
    pub(crate) fn count_with(&self, offset: u64, len: u64) -> usize {
        let last = offset.saturating_add(len.saturating_sub(1));
        let runs = last / self.run_bytes - offset / self.run_bytes + 1;
        self.all.len() + usize::try_from(runs).unwrap_or(usize::MAX)
    }

    /// Where the piece before or at this place begins that goes to it at least.
    fn before(&self, at: u64) -> Option<u64> {
        let (start, bytes) = self.all.range(..=at).next_back()?;
        (end_of(*start, bytes) >= at).then_some(*start)
    }

    /// Whether there is a byte of this range.
    pub(crate) fn touches(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let last = self.all.range(..end).next_back();
        last.is_some_and(|(start, bytes)| len > 0 && end_of(*start, bytes) > offset)
    }

    /// Parts of a range of which there is nothing: from where to where.
    pub(crate) fn gaps(&self, offset: u64, len: u64) -> Gaps {
        let (mut at, end) = (offset, offset.saturating_add(len));
        let mut gaps = Gaps::new();
        let first = self.before(offset).unwrap_or(offset);
        for (start, bytes) in self.all.range(first..end) {
            if *start > at {
                gaps.push((at, *start));
            }
            at = at.max(end_of(*start, bytes));
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Puts a range behind what the buffer holds, if all of it is there; whether it is.
    pub(crate) fn copy_to(&self, offset: u64, len: u64, buffer: &mut BytesMut) -> bool {
        if !self.gaps(offset, len).is_empty() {
            return false;
        }
        let end = offset.saturating_add(len);
        let first = self.before(offset).unwrap_or(offset);
        for (start, bytes) in self.all.range(first..end) {
            let from = offset.saturating_sub(*start) as usize;
            let to = bytes.len().min((end - start) as usize);
            let part = bytes.get(from..to).unwrap_or_default();
            copied(Copied::ClientRead, part.len());
            buffer.extend_from_slice(part);
        }
        true
    }

    /// Puts bytes in, over those that are there. Whether a run is full now.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8]) -> bool {
        let (mut at, mut rest, mut is_full) = (offset, data, false);
        while !rest.is_empty() {
            let room = self.run_bytes - at % self.run_bytes;
            let len = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let (part, behind) = rest.split_at(len);
            is_full |= self.put_part(at, part);
            (at, rest) = (at + len as u64, behind);
        }
        is_full
    }

    /// The same of bytes that lie within one run.
    fn put_part(&mut self, offset: u64, part: &[u8]) -> bool {
        let run = offset / self.run_bytes;
        let start = self.before(offset).filter(|start| start / self.run_bytes == run);
        let start = start.unwrap_or(offset);
        let old = self.all.remove(&start);
        let is_new = old.is_none();
        let mut piece = old.unwrap_or_default();
        let from = (offset - start) as usize;
        let over = part.len().min(piece.len().saturating_sub(from));
        let (old, new) = part.split_at(over);
        if let Some(place) = piece.get_mut(from..from + over) {
            copied(Copied::ClientKeep, old.len());
            place.copy_from_slice(old);
        }
        if is_new {
            piece = self.room.place(new);
        } else {
            self.room.extend(&mut piece, new);
        }
        let run_end = (run + 1).saturating_mul(self.run_bytes);
        while let Some((next, bytes)) = self.all.range(offset..).next() {
            let (next, end) = (*next, end_of(start, &piece));
            if next > end || next >= run_end {
                break;
            }
            let behind = bytes.get((end - next) as usize..).unwrap_or_default();
            self.room.extend(&mut piece, behind);
            self.all.remove(&next);
        }
        let is_full = piece.len() as u64 == self.run_bytes;
        self.all.insert(start, piece);
        is_full
    }

    /// Takes the runs that are full.
    pub(crate) fn take_full(&mut self) -> Vec<(u64, BytesMut)> {
        let run_bytes = self.run_bytes;
        self.all.extract_if(.., |_, bytes| bytes.len() as u64 == run_bytes).collect()
    }

    /// Takes all there is.
    pub(crate) fn take_all(&mut self) -> Vec<(u64, BytesMut)> {
        // What is left of the room goes with the pieces before it.
        self.room.free = BytesMut::new();
        core::mem::take(&mut self.all).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    const FILE_BYTES: usize = 300;
    const RUN_BYTES: u64 = 32;

    /// What it should be: a byte or none at each place.
    struct Plain(Vec<Option<u8>>);

    impl Plain {
        fn gaps(&self, from: usize, to: usize) -> Vec<(u64, u64)> {
            let mut gaps: Vec<(u64, u64)> = Vec::new();
            for at in (from..to).filter(|at| self.0[*at].is_none()) {
                match gaps.last_mut() {
                    Some(gap) if gap.1 == at as u64 => gap.1 += 1,
                    _ => gaps.push((at as u64, at as u64 + 1)),
                }
            }
            gaps
        }

        /// Takes the pieces, which must be all that is taken; the longest there can be.
        fn takes(&mut self, taken: &[(u64, BytesMut)], whole_runs: bool) {
            let mut end = None;
            for (start, bytes) in taken {
                assert_eq!(start / RUN_BYTES, (end_of(*start, bytes) - 1) / RUN_BYTES);
                assert!(end != Some(*start) || start % RUN_BYTES == 0, "they meet");
                end = Some(end_of(*start, bytes));
                assert!(!whole_runs || bytes.len() as u64 == RUN_BYTES);
                for (at, byte) in (*start as usize..).zip(bytes) {
                    assert_eq!(self.0[at].take(), Some(*byte), "byte {at}");
                }
            }
            let run_is_full = |run: &[Option<u8>]| {
                run.len() as u64 == RUN_BYTES && run.iter().all(Option::is_some)
            };
            let left = self.0.chunks(RUN_BYTES as usize).any(run_is_full);
            assert!(!left && (whole_runs || self.0.iter().all(Option::is_none)));
        }
    }

    #[test]
    fn they_are_as_a_plain_map_of_bytes() {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("SEED={seed}");
        let mut random = Random(seed);
        for _ in 0..200 {
            let (mut extents, mut plain) = (Extents::new(RUN_BYTES), Plain(vec![None; FILE_BYTES]));
            for _ in 0..100 {
                let from = random.below(FILE_BYTES as u64 - 1);
                let len = 1 + random.below((FILE_BYTES as u64 - from).min(70));
                let range = from as usize..(from + len) as usize;
                assert_eq!(extents.gaps(from, len)[..], plain.gaps(range.start, range.end));
                let any = plain.0[range.clone()].iter().any(Option::is_some);
                assert_eq!(extents.touches(from, len), any);
                let mut copy = BytesMut::from(&b"before"[..]);
                let known: Option<Vec<u8>> = plain.0[range.clone()].iter().copied().collect();
                assert_eq!(extents.copy_to(from, len, &mut copy), known.is_some());
                let known = known.unwrap_or_default();
                assert_eq!(copy, [b"before".as_slice(), &known].concat());
                match random.below(12) {
                    0 => plain.takes(&extents.take_full(), true),
                    1 => plain.takes(&extents.take_all(), false),
                    _ => {
                        let data: Vec<u8> =
                            range.clone().map(|_| random.below(256) as u8).collect();
                        plain.0[range].iter_mut().zip(&data).for_each(|(at, new)| *at = Some(*new));
                        let is_full = extents.put(from, &data);
                        let runs =
                            plain.0.chunks(RUN_BYTES as usize).skip((from / RUN_BYTES) as usize);
                        let met = (from + len - 1) / RUN_BYTES - from / RUN_BYTES + 1;
                        let full = |run: &[Option<u8>]| {
                            run.len() as u64 == RUN_BYTES && run.iter().all(Option::is_some)
                        };
                        assert_eq!(is_full, runs.take(met as usize).any(full));
                    }
                }
            }
            plain.takes(&extents.take_all(), false);
            assert!(extents.is_empty() && extents.count() == 0);
        }
    }

    #[test]
    fn pieces_in_order_lie_in_order() {
        let mut extents = Extents::new(1 << 20);
        for at in 0..100u64 {
            extents.put(at * 2000, &[at as u8; 1000]);
        }
        let pieces = extents.take_all();
        let breaks = pieces.windows(2).filter(|two| !adjoin(&two[0].1, &two[1].1)).count();
        assert!(breaks <= 7, "{breaks}: the room is doubled each time");
        let mut pieces = pieces.into_iter().map(|(_, piece)| piece).skip(90);
        let mut all = pieces.next().unwrap();
        let place = all.as_ptr();
        pieces.for_each(|piece| all.unsplit(piece));
        assert!(core::ptr::eq(all.as_ptr(), place), "nothing was copied");
        let right: Vec<u8> = (90..100).flat_map(|at| [at; 1000]).collect();
        assert_eq!(all, right);
    }

    #[test]
    fn runs_in_order_are_moved_no_more_in_the_end() {
        let mut extents = Extents::new(1 << 20);
        let mut moved = 0;
        for at in 0..16 * 256u64 {
            let before = extents.all.values().next_back().map(|last| last.as_ptr());
            extents.put(at * 4096, &[at as u8; 4096]);
            let after = extents.all.values().next_back().map(|last| last.as_ptr());
            moved += u32::from(at % 256 > 0 && at > 512 && before != after);
        }
        assert!(moved <= 1, "{moved}");
        for (number, (_, run)) in extents.take_full().into_iter().enumerate() {
            assert!(run.chunks(4096).enumerate().all(|(page, bytes)| {
                bytes.iter().all(|byte| *byte == (number * 256 + page) as u8)
            }));
        }
    }

    #[test]
    fn one_byte_takes_no_room_for_more() {
        let mut extents = Extents::new(1 << 20);
        extents.put(7, b"x");
        assert!(extents.room.free.capacity() < 64);
    }

    #[test]
    fn what_is_written_in_order_is_one_piece_a_run() {
        let mut extents = Extents::new(1 << 20);
        let mut full = 0;
        for at in 0..512 {
            full += u32::from(extents.put(at * 4096, &[at as u8; 4096]));
        }
        assert_eq!((full, extents.count()), (2, 2));
        assert!(!extents.put(2 << 20, b"more"));
        let runs = extents.take_full();
        assert_eq!(
            runs.iter().map(|(at, run)| (*at, run.len())).collect::<Vec<_>>(),
            [(0, 1 << 20), (1 << 20, 1 << 20)]
        );
        assert!(!extents.touches(0, 2 << 20) && extents.touches(0, (2 << 20) + 1));
        assert!(!extents.touches(2 << 20, 0), "nothing of it is there");
    }
}
