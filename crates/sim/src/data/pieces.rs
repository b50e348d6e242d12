//! Pieces of a file, and who has them.

use std::collections::BTreeSet;

use sateen_types::ClientId;

/// Whoever it is: what has no writer that could be held to it.
pub(super) const NOBODY: ClientId = ClientId(0);

/// Clients that write again what an OST has lost of a file: some of what they have written, or all
/// that is not durable.
#[derive(Debug, Default)]
pub struct Keepers {
    /// The first.
    pub some: BTreeSet<ClientId>,
    /// The others.
    pub all: BTreeSet<ClientId>,
}

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) client: ClientId,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    /// For bytes that may or may not be there: from when on whoever reads them settles it.
    /// Before that they may still be on their way.
    pub(super) settles_ns: u64,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// What of it lies in a range.
    pub(super) fn within(&self, from: u64, to: u64) -> Option<Piece> {
        let (from, to) = (from.max(self.offset), to.min(self.end()));
        let range = (from - self.offset) as usize..to.checked_sub(self.offset)? as usize;
        let bytes = self.bytes.get(range).filter(|bytes| !bytes.is_empty())?;
        let Piece { client, settles_ns, .. } = *self;
        Some(Piece { client, offset: from, bytes: bytes.to_vec(), settles_ns })
    }

    pub(super) fn at(&self, place: u64) -> Option<u8> {
        let index = place.checked_sub(self.offset)?;
        self.bytes.get(usize::try_from(index).ok()?).copied()
    }
}

/// Takes a range out of pieces.
pub(super) fn subtract(pieces: &mut Vec<Piece>, from: u64, to: u64) {
    subtract_of(pieces, (from, to), |_| true);
}

/// Takes a range out of those pieces of which `goes` says so. All stay in their order.
pub(super) fn subtract_of(
    pieces: &mut Vec<Piece>,
    (from, to): (u64, u64),
    goes: impl Fn(&Piece) -> bool,
) {
    let is_met = |piece: &Piece| piece.end() > from && piece.offset < to && goes(piece);
    if !pieces.iter().any(is_met) {
        return;
    }
    let mut left = Vec::new();
    for mut piece in pieces.drain(..) {
        if !is_met(&piece) {
            left.push(piece);
            continue;
        }
        let behind = (piece.end() > to).then(|| {
            let bytes = piece.bytes.get((to - piece.offset) as usize..).unwrap_or_default();
            Piece { offset: to, bytes: bytes.to_vec(), ..piece }
        });
        if piece.offset < from {
            piece.bytes.truncate((from - piece.offset) as usize);
            left.push(piece);
        }
        left.extend(behind);
    }
    *pieces = left;
}

pub(super) fn overlay(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(start..end) {
        place.copy_from_slice(bytes);
    }
}

impl Keepers {
    /// Whether somebody may write this again. Of what an fsync has told that it may be lost it is not
    /// known any more whose it was.
    pub(super) fn may_have(&self, piece: &Piece) -> bool {
        self.some.contains(&piece.client) || piece.client == NOBODY && !self.some.is_empty()
    }
}

/// Which of these pieces hold a place, in their order, for places that are asked for one behind the
/// other: each piece is looked at when its first byte is passed, and when its last one is.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    pieces: &'a [Piece],
    /// Those that end behind the first place, by their offsets; and how many of them were passed.
    by_offset: Vec<usize>,
    passed: usize,
    holding: BTreeSet<usize>,
}

impl<'a> Sweep<'a> {
    /// None is asked for before the first place, or from the last one on.
    pub(super) fn new(pieces: &'a [Piece], first: u64, last: u64) -> Sweep<'a> {
        let met = pieces.iter().enumerate();
        let met = met.filter(|(_, piece)| piece.end() > first && piece.offset < last);
        let mut by_offset: Vec<usize> = met.map(|(index, _)| index).collect();
        by_offset.sort_by_key(|index| pieces.get(*index).map(|piece| piece.offset));
        Sweep { pieces, by_offset, passed: 0, holding: BTreeSet::new() }
    }

    fn next(&self) -> Option<(usize, &'a Piece)> {
        let index = *self.by_offset.get(self.passed)?;
        Some((index, self.pieces.get(index)?))
    }

    /// Goes on to a place. Up to the one that it returns they are the same.
    pub(super) fn go_to(&mut self, place: u64) -> u64 {
        while let Some((index, _)) = self.next().filter(|(_, next)| next.offset <= place) {
            self.holding.insert(index);
            self.passed += 1;
        }
        let end = |index: &usize| self.pieces.get(*index).map_or(0, Piece::end);
        self.holding.retain(|index| end(index) > place);
        let first_end = self.holding.iter().map(end).min().unwrap_or(u64::MAX);
        self.next().map_or(first_end, |(_, next)| next.offset.min(first_end))
    }

    /// Those that hold the place.
    pub(super) fn holding(&self) -> impl DoubleEndedIterator<Item = &'a Piece> {
        self.holding.iter().filter_map(|index| self.pieces.get(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_finds_what_a_search_at_each_place_does() {
        let mut random = crate::random::Random::new(17);
        for _ in 0..200 {
            let mut piece = |client| {
                let (offset, len) = (random.below(60), random.below(9) as usize);
                Piece { client: ClientId(client), offset, bytes: vec![1; len], settles_ns: 0 }
            };
            let pieces: Vec<Piece> = (0..12).map(&mut piece).collect();
            let (first, last) = (random.below(30), 30 + random.below(40));
            let mut sweep = Sweep::new(&pieces, first, last);
            let mut upto = first;
            for place in first..last {
                if random.one_in(3) {
                    continue;
                }
                if place >= upto {
                    upto = sweep.go_to(place);
                    assert!(upto > place);
                }
                let right: Vec<&Piece> =
                    pieces.iter().filter(|piece| piece.at(place).is_some()).collect();
                assert_eq!(sweep.holding().collect::<Vec<_>>(), right, "at {place}");
            }
        }
    }
}
