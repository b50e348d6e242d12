//! The bytes of a file as they may be: what was written, what of it is durable, and what a
//! crash has left open.

use std::collections::BTreeSet;
use std::sync::Arc;

use sateen_types::{ClientId, Layout};

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    client: ClientId,
    offset: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn at(&self, place: u64) -> Option<u8> {
        let index = place.checked_sub(self.offset)?;
        self.bytes.get(usize::try_from(index).ok()?).copied()
    }
}

/// Takes a range out of pieces.
fn subtract(pieces: &mut Vec<Piece>, from: u64, to: u64) {
    let mut left = Vec::new();
    for piece in pieces.drain(..) {
        if piece.end() <= from || piece.offset >= to {
            left.push(piece);
            continue;
        }
        if piece.offset < from {
            let bytes = piece.bytes.get(..(from - piece.offset) as usize).unwrap_or_default();
            left.push(Piece { bytes: bytes.to_vec(), ..piece.clone() });
        }
        if piece.end() > to {
            let bytes = piece.bytes.get((to - piece.offset) as usize..).unwrap_or_default();
            left.push(Piece { offset: to, bytes: bytes.to_vec(), ..piece.clone() });
        }
    }
    *pieces = left;
}

fn overlay(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(start..end) {
        place.copy_from_slice(bytes);
    }
}

/// One file's bytes.
#[derive(Debug, Clone, Default)]
pub struct Data {
    /// Where they lie, once the MDT has told anybody.
    pub layout: Option<Arc<Layout>>,
    /// What readers see.
    content: Vec<u8>,
    /// What is durable.
    durable: Vec<u8>,
    /// Writes that no fsync of their writer has covered, in order.
    pending: Vec<Piece>,
    /// Bytes that readers may see instead.
    maybe: Vec<Piece>,
    /// Acknowledged writes that a crash took: their writer's next fsync must say so.
    lost: Vec<Piece>,
    /// After a crash the size may be anything from here to there.
    sizes: Option<(u64, u64)>,
    /// The size that is durable at least.
    synced_size: u64,
    /// A crash caught it in a way that is not followed here: nothing is checked any more.
    pub wild: bool,
    /// Clients whose next fsync may say that something was lost.
    pub crashed: BTreeSet<ClientId>,
}

const NOBODY: ClientId = ClientId(0);

impl Data {
    /// Bytes there should be.
    pub fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// Whether the size is certain.
    pub fn is_certain(&self) -> bool {
        self.sizes.is_none()
    }

    /// Whether `size` may be the size.
    pub fn may_be_size(&self, size: u64) -> bool {
        size == self.size() || self.sizes.is_some_and(|(low, high)| low <= size && size <= high)
    }

    fn may_be(&self, place: u64, byte: u8) -> bool {
        let content = self.content.get(place as usize).copied().unwrap_or_default();
        content == byte || self.maybe.iter().any(|piece| piece.at(place) == Some(byte))
    }

    fn loosen(&mut self, low: u64, high: u64) {
        let now = self.sizes.unwrap_or((self.size(), self.size()));
        self.sizes = Some((now.0.min(low), now.1.max(high)));
    }

    fn also(&mut self, offset: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.maybe.push(Piece { client: NOBODY, offset, bytes });
        }
    }

    /// A write was answered.
    pub fn wrote(&mut self, client: ClientId, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        subtract(&mut self.maybe, offset, end);
        subtract(&mut self.lost, offset, end);
        overlay(&mut self.content, offset, bytes);
        self.pending.push(Piece { client, offset, bytes: bytes.to_vec() });
        if let Some((low, high)) = &mut self.sizes {
            *low = (*low).max(end);
            *high = (*high).max(end);
        }
    }

    /// A write may have happened, in part. `done` if it was answered as if it had.
    pub fn may_have_written(&mut self, client: ClientId, offset: u64, bytes: &[u8], done: bool) {
        let end = offset + bytes.len() as u64;
        let from = (offset as usize).min(self.content.len());
        let to = (end as usize).min(self.content.len());
        let mut old = self.content.get(from..to).unwrap_or_default().to_vec();
        old.resize(bytes.len(), 0);
        self.loosen(self.size(), end.max(self.size()));
        self.also(offset, old);
        self.also(offset, bytes.to_vec());
        if done {
            overlay(&mut self.content, offset, bytes);
            self.pending.push(Piece { client, offset, bytes: bytes.to_vec() });
        }
    }

    /// A truncate was answered, which makes it durable.
    pub fn cut(&mut self, size: u64) {
        self.content.resize(size as usize, 0);
        self.durable.resize(size as usize, 0);
        for pieces in [&mut self.pending, &mut self.maybe, &mut self.lost] {
            subtract(pieces, size, u64::MAX);
        }
        self.sizes = None;
        self.synced_size = size;
    }

    /// A truncate may have happened.
    pub fn may_be_cut(&mut self, size: u64) {
        let old = self.size();
        self.loosen(old.min(size), old.max(size));
        if size < old {
            self.also(size, vec![0; (old - size) as usize]);
        }
    }

    /// An fsync of this client was answered.
    ///
    /// # Errors
    /// If a crash took what it claims to be durable.
    pub fn synced(&mut self, client: ClientId) -> Result<(), String> {
        if let Some(piece) = self.lost.iter().find(|piece| piece.client == client)
            && !self.wild
        {
            return Err(format!(
                "fsync succeeded although {} bytes at {} were lost in a crash",
                piece.bytes.len(),
                piece.offset
            ));
        }
        let mut left: Vec<Piece> = Vec::new();
        for piece in core::mem::take(&mut self.pending) {
            if piece.client == client {
                subtract(&mut left, piece.offset, piece.end());
                overlay(&mut self.durable, piece.offset, &piece.bytes);
                self.synced_size = self.synced_size.max(piece.end());
            } else {
                left.push(piece);
            }
        }
        self.pending = left;
        Ok(())
    }

    /// An fsync of this client failed: it has been told.
    pub fn told(&mut self, client: ClientId) {
        self.lost.retain(|piece| piece.client != client);
    }

    /// An OST crashed: whoever has unsynced writes may hear of it.
    pub fn everybody_may_hear_of_a_loss(&mut self) {
        self.crashed.extend(self.pending.iter().map(|piece| piece.client));
    }

    /// Checks what a reader got.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_read(&self, offset: u64, len: u64, got: &[u8]) -> Result<(), String> {
        if self.wild {
            return Ok(());
        }
        let end = offset + got.len() as u64;
        let whole = got.len() as u64 == len;
        let right = if whole {
            end <= self.size() || self.sizes.is_some_and(|s| end <= s.1)
        } else {
            self.may_be_size(end) || (got.is_empty() && (0..=offset).any(|s| self.may_be_size(s)))
        };
        if !right {
            return Err(format!(
                "read {} of {len} bytes at {offset}, of a file of {} bytes ({:?})",
                got.len(),
                self.size(),
                self.sizes
            ));
        }
        for (index, byte) in got.iter().enumerate() {
            let place = offset + index as u64;
            if !self.may_be(place, *byte) {
                let expected = self.content.get(place as usize).copied().unwrap_or_default();
                return Err(format!("byte {place} is {byte:#04x}, not {expected:#04x}"));
            }
        }
        Ok(())
    }

    /// An OST has crashed and is back: holds what it has against what it may have, and goes
    /// on from there. `actual` gives the byte at a place of an object, 0 where there is none.
    ///
    /// # Errors
    /// If something durable is gone, or something is there that nobody wrote.
    pub fn survived(&mut self, ost: u32, actual: impl Fn(u32, u64) -> u8) -> Result<(), String> {
        let Some(layout) = self.layout.clone().filter(|_| !self.wild) else { return Ok(()) };
        if self.pending.is_empty() && self.maybe.is_empty() && self.durable.is_empty() {
            return Ok(());
        }
        let old = self.content.clone();
        let mut changed = false;
        let mut lost: Vec<Piece> = Vec::new();
        for chunk in layout.chunks(0, self.size()) {
            if chunk.ost != ost {
                continue;
            }
            for step in 0..chunk.len {
                let place = chunk.file_offset + step;
                let byte = actual(chunk.stripe, chunk.object_offset + step);
                let durable = self.durable.get(place as usize).copied().unwrap_or_default();
                let last = self.pending.iter().rev().find(|piece| piece.at(place).is_some());
                let right = self.may_be(place, byte)
                    || durable == byte
                    || self.pending.iter().any(|piece| piece.at(place) == Some(byte));
                if !right {
                    return Err(format!(
                        "after a crash of OST{ost:04x} byte {place} is {byte:#04x}; durable is \
                         {durable:#04x}, unsynced {:?}",
                        last.and_then(|piece| piece.at(place))
                    ));
                }
                let Some(seen) = self.content.get_mut(place as usize) else { continue };
                if *seen != byte {
                    changed = true;
                    if last.is_none() && self.maybe.iter().all(|piece| piece.at(place).is_none()) {
                        return Err(format!(
                            "after a crash of OST{ost:04x} byte {place} is {byte:#04x}, but \
                             {seen:#04x} was synced"
                        ));
                    }
                    if let Some(piece) = last {
                        match lost.last_mut() {
                            Some(run) if run.end() == place && run.client == piece.client => {
                                run.bytes.push(byte);
                            }
                            _ => lost.push(Piece {
                                client: piece.client,
                                offset: place,
                                bytes: vec![byte],
                            }),
                        }
                    }
                    *seen = byte;
                }
            }
            // What is there now is durable.
            let (from, to) = (chunk.file_offset as usize, (chunk.file_offset + chunk.len) as usize);
            let bytes = self.content.get(from..to).unwrap_or_default().to_vec();
            overlay(&mut self.durable, chunk.file_offset, &bytes);
        }
        let unsynced_size = self.pending.iter().map(Piece::end).max().unwrap_or_default();
        let chunks: Vec<_> =
            layout.chunks(0, self.size()).filter(|chunk| chunk.ost == ost).collect();
        for chunk in chunks {
            subtract(&mut self.pending, chunk.file_offset, chunk.file_offset + chunk.len);
        }
        if changed || unsynced_size >= self.size() {
            self.loosen(self.synced_size, self.size());
            self.also(0, old);
        }
        self.lost.extend(lost);
        Ok(())
    }
}
