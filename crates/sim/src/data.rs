//! The bytes of a file as they may be: what was written, what of it is durable, and what a
//! crash has left open.

mod crash;
mod loss;
mod pieces;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use pieces::Keepers;
use pieces::{NOBODY, Piece, overlay, subtract};
use sateen_types::{ClientId, Layout};
use times::Times;

/// What `fallocate` is to do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocate it; the file may grow.
    Grow,
    /// Allocate it; the size stays.
    KeepSize,
    /// Make a hole of it; the size stays.
    Punch,
}

/// Reading does not settle what caches of several clients may disagree about.
pub const NEVER: u64 = u64::MAX;

/// One file's bytes.
#[derive(Debug, Clone, Default)]
pub struct Data {
    /// Where they lie, once the MDT has told anybody.
    pub layout: Option<Arc<Layout>>,
    /// It has been written to: its layout stays as it is.
    pub is_written: bool,
    /// It may have been opened for writing: it may have objects.
    pub may_have_objects: bool,
    /// When it was changed.
    pub times: Times,
    /// What readers see.
    content: Vec<u8>,
    /// What is durable.
    durable: Vec<u8>,
    /// Writes that no fsync of their writer has covered, in order.
    pending: Vec<Piece>,
    /// Bytes that readers may see instead.
    maybe: Vec<Piece>,
    /// What was there before writes that their client may keep: its OSTs may not have heard of
    /// them yet, and if it is lost they never will.
    kept: Vec<Piece>,
    /// Bytes that may lie under what was written since, where they could come to light again.
    under: Vec<Piece>,
    /// Acknowledged writes that a crash took: their writer's next fsync must say so.
    lost: Vec<Piece>,
    /// After a crash the size may be anything from here to there, until somebody looks from
    /// this time on.
    sizes: Option<(u64, u64, u64)>,
    /// Or it may be one of these, if a truncate has happened, and nothing after it.
    cuts: Vec<u64>,
    /// The size that is durable at least.
    synced_size: u64,
    /// Sizes before truncates that the MDT may still lose, from the least to the largest, with
    /// the truncates' transnos.
    resized: Vec<(u64, (u64, u64))>,
    /// The size that the last truncate gave it, which the MDT knows, and its transno.
    cut_to: Option<(u64, u64)>,
    /// Whoever knew the size was lost, and objects may have to prove it.
    unreliable: bool,
    /// Several clients write it in turns, and each may keep what it writes: who writes something does not
    /// prove that others have written out what they kept elsewhere.
    pub is_in_turns: bool,
    /// OSTs whose crash met the file while it was being removed.
    pub unseen: BTreeSet<u32>,
    /// Clients that have written since their last fsync that succeeded: one that fails has
    /// told nobody the size.
    writers: BTreeSet<ClientId>,
    /// Clients that have everything that they have written and an OST has lost: no fsync of theirs
    /// may say that it is, as long as they have it.
    promised: BTreeSet<ClientId>,
    /// Clients whose fsync may say that something was lost, if it began before or is the
    /// first that began after this operation.
    may_hear: BTreeMap<ClientId, u64>,
    /// Clients that may keep a write that was caught by a crash of the MDT, and as which incarnation:
    /// one that goes on as another has lost it.
    caught: BTreeMap<ClientId, ClientId>,
}

impl Data {
    /// Bytes there should be.
    pub fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// Whether the size is certain.
    pub fn is_certain(&self) -> bool {
        self.sizes.is_none() && self.cuts.is_empty()
    }

    /// Whether `size` may be the size.
    pub fn may_be_size(&self, size: u64) -> bool {
        size == self.size()
            || self.sizes.is_some_and(|(low, high, _)| low <= size && size <= high)
            || self.cuts.contains(&size)
    }

    /// Where an append goes by what the objects show, of a file whose size may be open.
    pub fn appended_at(&self, shown: u64) -> u64 {
        if !self.is_certain() && self.may_be_size(shown) { shown } else { self.size() }
    }

    /// A client whose locks are in order was told this size: false if it cannot be. What was
    /// open is settled, unless a crash has come between the asking and `now_ns`, which is `None`
    /// then.
    pub fn saw_size(&mut self, size: u64, now_ns: Option<u64>) -> bool {
        if !self.may_be_size(size) {
            return false;
        }
        let is_later = |from_ns| now_ns.is_some_and(|now_ns| now_ns >= from_ns);
        if is_later(self.sizes.map_or(NEVER, |(.., from)| from)) {
            self.settle_size(size);
        }
        true
    }

    fn settle_size(&mut self, size: u64) {
        (self.sizes, self.cuts) = (None, Vec::new());
        self.synced_size = self.synced_size.min(size);
        if size < self.size() {
            self.durable.truncate(size as usize);
            self.forget_from(size);
        }
        self.content.resize(size as usize, 0);
    }

    /// Nothing is known any more of what lies behind this size.
    fn forget_from(&mut self, size: u64) {
        let all = [&mut self.pending, &mut self.maybe, &mut self.lost, &mut self.under];
        for pieces in all.into_iter().chain([&mut self.kept]) {
            subtract(pieces, size, u64::MAX);
        }
    }

    fn may_be(&self, place: u64, byte: u8) -> bool {
        let content = self.content.get(place as usize).copied().unwrap_or_default();
        content == byte || self.maybe.iter().any(|piece| piece.at(place) == Some(byte))
    }

    fn loosen(&mut self, low: u64, high: u64, from_ns: u64) {
        let now = self.sizes.unwrap_or((self.size(), self.size(), 0));
        self.sizes = Some((now.0.min(low), now.1.max(high), now.2.max(from_ns)));
    }

    /// Something is done to a file that may have been truncated: from here on its size may be
    /// anything between what it was and what it would be.
    fn forget_cuts(&mut self) {
        for size in core::mem::take(&mut self.cuts) {
            let old = self.size();
            self.loosen(old.min(size), old.max(size), 0);
            self.synced_size = self.synced_size.min(size);
        }
    }

    fn also(&mut self, offset: u64, bytes: Vec<u8>, settles_ns: u64) {
        if !bytes.is_empty() {
            self.under.push(Piece { client: NOBODY, offset, bytes: bytes.clone(), settles_ns });
            self.maybe.push(Piece { client: NOBODY, offset, bytes, settles_ns });
        }
    }

    /// A client may keep a write of this range, which is about to be noted.
    pub fn keep(&mut self, client: ClientId, offset: u64, len: usize) {
        let from = (offset as usize).min(self.content.len());
        let to = (offset as usize + len).min(self.content.len());
        let mut bytes = self.content.get(from..to).unwrap_or_default().to_vec();
        bytes.resize(len, 0);
        // Others have written out theirs when this one was given the lock.
        let end = offset + len as u64;
        self.others_wrote_out(client, (offset, end));
        // What was there may be any of these.
        let before = self.maybe.iter().filter_map(|piece| piece.within(offset, end));
        self.kept.extend(before.map(|piece| Piece { client, ..piece }));
        self.kept.push(Piece { client, offset, bytes, settles_ns: 0 });
    }

    /// A write that a crash of the MDT caught was answered to a client that may keep it, which was this
    /// incarnation. As ever in such a case nobody knows whose lock it is written under.
    pub fn may_keep_caught(&mut self, client: ClientId, incarnation: ClientId, op: u64) {
        self.is_now(client, incarnation, op);
        self.caught.insert(client, incarnation);
    }

    /// A client is this incarnation: if it may have kept something as another it may tell of that, from
    /// the operation behind this one on.
    pub fn is_now(&mut self, client: ClientId, incarnation: ClientId, op: u64) {
        if self.caught.get(&client).is_some_and(|before| *before != incarnation) {
            self.caught.remove(&client);
            self.let_hear(client, op);
        }
    }

    /// This client holds the lock, and others that have held it have written out what they kept.
    fn others_wrote_out(&mut self, client: ClientId, (from, to): (u64, u64)) {
        let (own, mut others) = core::mem::take(&mut self.kept)
            .into_iter()
            .partition::<Vec<_>, _>(|piece| piece.client == client);
        subtract(&mut others, from, to);
        self.kept = own.into_iter().chain(others).collect();
    }

    /// A client that closes a file, or syncs it, has written out what it kept.
    pub fn wrote_out(&mut self, client: ClientId) {
        self.kept.retain(|piece| piece.client != client);
        self.caught.remove(&client);
    }

    /// A write was answered; `kept` if the OSTs may not have it yet.
    pub fn wrote(&mut self, client: ClientId, offset: u64, bytes: &[u8], kept: bool) {
        self.forget_cuts();
        let end = offset + bytes.len() as u64;
        self.is_written = true;
        if kept {
            self.keep(client, offset, bytes.len());
        } else if self.is_in_turns {
            self.others_wrote_out(client, (offset, end));
            self.kept.retain(|piece| piece.client != client);
        } else {
            self.kept.clear();
        }
        subtract(&mut self.maybe, offset, end);
        subtract(&mut self.lost, offset, end);
        overlay(&mut self.content, offset, bytes);
        self.pending.push(Piece { client, offset, bytes: bytes.to_vec(), settles_ns: 0 });
        self.writers.insert(client);
        if let Some((low, high, _)) = &mut self.sizes {
            *low = (*low).max(end);
            *high = (*high).max(end);
        }
    }

    /// Which bytes become zeros by an allocation of this range, or by its opposite: where they
    /// begin, and the zeros.
    pub fn zeroed_by(&self, (offset, len): (u64, u64), how: Fallocate) -> (u64, Vec<u8>) {
        let (from, to) = match how {
            Fallocate::Punch => (offset.min(self.size()), (offset + len).min(self.size())),
            Fallocate::Grow => (self.size(), (offset + len).max(self.size())),
            Fallocate::KeepSize => (0, 0),
        };
        (from, vec![0; (to - from) as usize])
    }

    /// An allocation was answered, or its opposite, which made these zeros.
    pub fn zeroed(
        &mut self,
        client: ClientId,
        (offset, len): (u64, u64),
        how: Fallocate,
        (at, zeros): (u64, &[u8]),
    ) {
        self.forget_cuts();
        self.is_written = true;
        self.kept.clear();
        self.writers.insert(client);
        if how == Fallocate::Punch {
            // Whatever there is of it, also behind what is known as the end.
            subtract(&mut self.maybe, offset, offset + len);
        }
        if !zeros.is_empty() {
            subtract(&mut self.maybe, at, at + zeros.len() as u64);
            subtract(&mut self.lost, at, at + zeros.len() as u64);
            overlay(&mut self.content, at, zeros);
            let piece = Piece { client, offset: at, bytes: zeros.to_vec(), settles_ns: 0 };
            self.pending.push(piece);
        }
        if let (Fallocate::Grow, Some((low, high, _))) = (how, &mut self.sizes) {
            *low = (*low).max(offset + len);
            *high = (*high).max(offset + len);
        }
    }

    /// A write may have happened, in part; whoever reads from `settles_ns` on sees whether it
    /// did. `done` if it was answered as if it had.
    pub fn may_have_written(
        &mut self,
        client: ClientId,
        (offset, bytes): (u64, &[u8]),
        settles_ns: u64,
        done: bool,
    ) {
        self.forget_cuts();
        let end = offset + bytes.len() as u64;
        self.writers.insert(client);
        let from = (offset as usize).min(self.content.len());
        let to = (end as usize).min(self.content.len());
        let mut old = self.content.get(from..to).unwrap_or_default().to_vec();
        old.resize(bytes.len(), 0);
        self.loosen(self.size(), end.max(self.size()), settles_ns);
        self.also(offset, old, settles_ns);
        self.also(offset, bytes.to_vec(), settles_ns);
        if done {
            overlay(&mut self.content, offset, bytes);
            self.pending.push(Piece { client, offset, bytes: bytes.to_vec(), settles_ns: 0 });
        }
    }

    /// A truncate was answered. One that took something away is durable, because objects are
    /// cut before it is answered; the MDT may lose another with its transaction.
    pub fn cut(&mut self, size: u64, transno: u64) {
        // What comes back if the MDT loses it.
        let before = self.sizes.map_or((self.size(), self.size()), |(low, high, _)| (low, high));
        let perhaps = self.cuts.iter().map(|cut| (*cut, *cut));
        let all = perhaps.chain([before]).filter(|before| *before != (size, size));
        self.resized.extend(all.map(|before| (transno, before)));
        let least = self.cuts.iter().copied().min().unwrap_or(u64::MAX);
        self.cut_to = Some((transno, size));
        self.content.resize(size as usize, 0);
        self.durable.truncate(size as usize);
        self.forget_from(size);
        // Whoever kept something has written it out before.
        self.kept.clear();
        (self.sizes, self.cuts) = (None, Vec::new());
        self.synced_size = self.synced_size.min(size).min(least);
    }

    /// A truncate may have happened.
    pub fn may_be_cut(&mut self, size: u64, settles_ns: u64) {
        let old = self.size();
        self.loosen(old, old, settles_ns);
        self.cuts.push(size);
        // Of what is cut off nobody has to be told that it was lost before.
        subtract(&mut self.lost, size, u64::MAX);
        self.cut_to = self.cut_to.map(|(transno, to)| (transno, to.min(size)));
        if size < old {
            self.also(size, vec![0; (old - size) as usize], settles_ns);
        }
    }

    /// An fsync of this client was answered, whose operation had this number.
    ///
    /// # Errors
    /// If a crash took what it claims to be durable.
    pub fn synced(&mut self, client: ClientId, op: u64) -> Result<(), String> {
        if let Some(piece) = self.lost.iter().find(|piece| piece.client == client) {
            return Err(format!(
                "fsync succeeded although {} bytes at {} were lost in a crash",
                piece.bytes.len(),
                piece.offset
            ));
        }
        self.heard(client, op);
        self.wrote_out(client);
        // What it may have lost it would have told.
        self.maybe.retain(|piece| piece.client != client);
        self.writers.remove(&client);
        // Some pieces are older than a cut that may have happened: their end need not be in the file.
        let least = self.cuts.iter().copied().chain(self.sizes.map(|(low, ..)| low)).min();
        let least = least.unwrap_or(u64::MAX);
        let mut left: Vec<Piece> = Vec::new();
        for piece in core::mem::take(&mut self.pending) {
            if piece.client == client {
                subtract(&mut left, piece.offset, piece.end());
                self.forget_under(piece.offset, piece.end());
                overlay(&mut self.durable, piece.offset, &piece.bytes);
                self.synced_size = self.synced_size.max(piece.end().min(least));
            } else {
                left.push(piece);
            }
        }
        self.pending = left;
        Ok(())
    }

    /// What is there is durable, and nothing else can come to light: but where a cut or a write
    /// is open that may still come after it, and is as durable then.
    fn forget_under(&mut self, from: u64, to: u64) {
        let mut sure = vec![(from, to)];
        for open in &self.maybe {
            let (first, last) = (open.offset, open.end());
            let around = sure.into_iter().flat_map(|(from, to)| {
                [(from, to.min(first)), (from.max(last), to)].into_iter().filter(|(a, b)| a < b)
            });
            sure = around.collect();
        }
        for (from, to) in sure {
            subtract(&mut self.under, from, to);
        }
    }

    /// Checks what a reader got, and lets it settle what was open, as [`Data::saw_size`] does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_read(
        &mut self,
        (offset, len): (u64, u64),
        got: &[u8],
        now_ns: Option<u64>,
    ) -> Result<(), String> {
        let end = offset + got.len() as u64;
        let whole = got.len() as u64 == len;
        let right = if whole {
            end <= self.size()
                || self.sizes.is_some_and(|(_, high, _)| end <= high)
                || self.cuts.iter().any(|cut| end <= *cut)
        } else if got.is_empty() {
            self.size() <= offset
                || self.sizes.is_some_and(|(low, ..)| low <= offset)
                || self.cuts.iter().any(|cut| *cut <= offset)
        } else {
            self.saw_size(end, now_ns)
        };
        if !right {
            return Err(format!(
                "read {} of {len} bytes at {offset}, of a file of {} bytes ({:?})",
                got.len(),
                self.size(),
                self.sizes
            ));
        }
        let seen = self.content.get(offset as usize..end as usize);
        if seen == Some(got) && self.maybe.is_empty() {
            return Ok(());
        }
        let differ = if seen == Some(got) { &[][..] } else { got };
        for (index, byte) in differ.iter().enumerate() {
            let place = offset + index as u64;
            if !self.may_be(place, *byte) {
                let expected = self.content.get(place as usize).copied().unwrap_or_default();
                return Err(format!("byte {place} is {byte:#04x}, not {expected:#04x}"));
            }
        }
        if let Some(now_ns) = now_ns {
            self.settle_bytes(offset, got, now_ns);
        }
        Ok(())
    }

    /// What was read is what is there, where nothing is on its way any more.
    fn settle_bytes(&mut self, offset: u64, got: &[u8], now_ns: u64) {
        let end = offset + got.len() as u64;
        let open =
            self.maybe.iter().any(|p| p.settles_ns > now_ns && p.offset < end && p.end() > offset);
        if open || end > self.size() {
            return;
        }
        // It is there, but nobody has synced it: the disk may still have what stood there before.
        for piece in &self.maybe {
            let (from, to) = (piece.offset.max(offset), piece.end().min(end));
            if from < to {
                let range = (from - offset) as usize..(to - offset) as usize;
                let bytes = got.get(range).unwrap_or_default().to_vec();
                let piece = Piece { client: NOBODY, offset: from, bytes, settles_ns: 0 };
                self.pending.push(piece);
            }
        }
        subtract(&mut self.maybe, offset, end);
        overlay(&mut self.content, offset, got);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: ClientId = ClientId(0x100);

    #[test]
    fn an_fsync_behind_a_cut_that_may_have_happened_makes_no_older_size_durable() {
        let mut data = Data::default();
        data.wrote(WRITER, 0, &[1; 40], false);
        data.may_be_cut(0, 0);
        data.wrote(WRITER, 0, &[2; 10], false);
        assert_eq!(data.synced(WRITER, 1), Ok(()));
        data.wrote(WRITER, 10, &[3; 5], true);
        data.writer_lost(WRITER, 0, None);
        assert!(data.may_be_size(10), "it was cut, and what was kept is lost");
        assert!(data.may_be_size(40), "it was not cut");
        assert!(!data.may_be_size(9), "this was synced");
    }

    #[test]
    fn an_append_goes_where_the_file_ends_without_what_a_lost_client_kept() {
        const KEEPER: ClientId = ClientId(0x101);
        let mut data = Data::default();
        data.wrote(KEEPER, 0, &[1; 40], false);
        data.wrote(KEEPER, 0, &[2; 50], true);
        assert_eq!(data.appended_at(40), 50, "who is asked for the lock writes it out");
        data.writer_lost(KEEPER, 0, None);
        assert_eq!(data.appended_at(60), 50, "nobody wrote so far");
        let at = data.appended_at(40);
        assert!(at == 40 && data.saw_size(at, Some(1)));
        data.wrote(WRITER, at, &[3; 5], false);
        assert_eq!(data.synced(WRITER, 1), Ok(()));
        let there = [[1; 40].as_slice(), &[3; 5]].concat();
        assert_eq!(data.check_read((0, 50), &there, Some(2)), Ok(()));
        assert!(!data.may_be_size(55), "what was kept does not lie before it");
    }

    #[test]
    fn an_fsync_makes_the_size_durable() {
        let mut data = Data::default();
        data.wrote(WRITER, 0, &[1; 40], false);
        assert_eq!(data.synced(WRITER, 1), Ok(()));
        data.wrote(WRITER, 40, &[2; 10], false);
        data.writer_lost(WRITER, 0, None);
        assert!(data.may_be_size(40) && data.may_be_size(50), "the end was not synced");
        assert!(!data.may_be_size(39));
    }

    #[test]
    fn who_goes_on_as_another_may_tell_of_a_kept_write_that_a_crash_caught() {
        let (client, later, other) = (ClientId(0x100), ClientId(7), ClientId(0x101));
        let mut data = Data::default();
        data.may_have_written(client, (0, b"kept"), NEVER, true);
        data.is_now(client, later, 2);
        assert!(!data.may_hear(client), "it was not kept");
        data.may_keep_caught(client, client, 3);
        data.is_now(client, client, 4);
        assert!(!data.may_hear(client), "it has everything");
        data.is_now(client, later, 5);
        assert!(data.may_hear(client) && !data.may_hear(other));
        data.told(client, 5);
        assert!(data.may_hear(client), "that one began before");
        data.told(client, 6);
        data.is_now(client, later, 7);
        assert!(!data.may_hear(client), "it was told");
        data.may_keep_caught(client, later, 8);
        data.wrote_out(client);
        data.is_now(client, client, 9);
        assert!(!data.may_hear(client), "it was written out");
    }
}
