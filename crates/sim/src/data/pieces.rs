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

    pub(super) fn at(&self, place: u64) -> Option<u8> {
        let index = place.checked_sub(self.offset)?;
        self.bytes.get(usize::try_from(index).ok()?).copied()
    }
}

/// Takes a range out of pieces.
pub(super) fn subtract(pieces: &mut Vec<Piece>, from: u64, to: u64) {
    let is_met = |piece: &Piece| piece.end() > from && piece.offset < to;
    if !pieces.iter().any(is_met) {
        return;
    }
    let mut left = Vec::new();
    for mut piece in pieces.drain(..) {
        if piece.end() <= from || piece.offset >= to {
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

/// The pieces that hold a place, in their order, and all places behind it up to another.
#[derive(Debug, Default)]
pub(super) struct Pieces<'a> {
    pub(super) pending: Vec<&'a Piece>,
    pub(super) maybe: Vec<&'a Piece>,
    pub(super) under: Vec<&'a Piece>,
    pub(super) is_kept: bool,
    pub(super) upto: u64,
}
