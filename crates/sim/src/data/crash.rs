//! What a crash of an OST leaves of a file, and of a write that it has met.

use std::collections::BTreeMap;

use sateen_types::ClientId;

use super::pieces::{Keepers, NOBODY, Piece, Sweep, overlay, subtract, subtract_of};
use super::{Data, NEVER};

impl Data {
    /// A write of this client has ended in a crash, and nothing of it is under way any more:
    /// holds what the objects have now against what they may have, and goes on from there.
    /// `acked` if it was answered as if it had happened.
    ///
    /// # Errors
    /// If something is there that nobody wrote.
    pub fn ended(
        &mut self,
        client: ClientId,
        (offset, bytes): (u64, &[u8]),
        there: &[u8],
        (acked, keepers): (bool, &Keepers),
    ) -> Result<(), String> {
        self.forget_cuts();
        let end = offset + bytes.len() as u64;
        let mut comes_back: Vec<Piece> = Vec::new();
        for (place, (new, byte)) in (offset..).zip(bytes.iter().zip(there)) {
            // In the middle of being written again.
            let older = || {
                let mut again = self.pending.iter().filter(|piece| keepers.may_have(piece));
                again.any(|piece| piece.at(place) == Some(*byte))
            };
            if new != byte && !self.may_be(place, *byte) && !older() {
                return Err(format!("byte {place} is {byte:#04x} after a write that failed"));
            }
            if acked && new != byte && keepers.all.contains(&client) {
                let bytes = vec![*new];
                comes_back.push(Piece { client, offset: place, bytes, settles_ns: NEVER });
            } else if acked && new != byte {
                let bytes = vec![*byte];
                match self.lost.last_mut() {
                    Some(run) if run.end() == place && run.client == client => {
                        run.bytes.push(*byte);
                    }
                    _ => self.lost.push(Piece { client, offset: place, bytes, settles_ns: 0 }),
                }
            }
        }
        let size = self.size();
        self.loosen(size, end.max(size), 0);
        subtract(&mut self.maybe, offset, end);
        overlay(&mut self.content, offset, there);
        self.content.resize(if acked { end.max(size) } else { size } as usize, 0);
        if !acked && end > size {
            let from = size.max(offset);
            let beyond = there.get((from - offset) as usize..).unwrap_or_default();
            self.also(from, beyond.to_vec(), 0);
        }
        // Of what was refused the client need not make anything durable.
        let whose = if acked { client } else { NOBODY };
        let there = there.to_vec();
        self.pending.push(Piece { client: whose, offset, bytes: there, settles_ns: 0 });
        self.writers.insert(client);
        if keepers.some.contains(&client) {
            // Whatever is told of it: what an OST has answered may come back.
            self.also(offset, bytes.to_vec(), NEVER);
        }
        self.come_back(comes_back);
        Ok(())
    }

    /// What an OST has lost, and the client that wrote it has: it is still what there should be. Until
    /// that client's next fsync says that it is durable it may stay as it is now.
    fn come_back(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            let range = piece.offset as usize..piece.end() as usize;
            let there = self.content.get(range).unwrap_or_default().to_vec();
            let there = Piece { bytes: there, ..piece.clone() };
            self.under.push(Piece { client: NOBODY, ..there.clone() });
            self.maybe.push(there);
            overlay(&mut self.content, piece.offset, &piece.bytes);
            self.pending.push(Piece { settles_ns: 0, ..piece });
        }
    }

    /// A client is lost while it writes again what an OST has lost, in the order in which it was
    /// written first, or gives that up: any of it may be there, and nothing that came after it.
    pub fn was_writing_again(&mut self, client: ClientId, ost: u32, settles_ns: u64) {
        let Some(layout) = self.layout.clone() else { return };
        // Of some it is not known any more whose they were.
        let mine = self.pending.iter().filter(|piece| [client, NOBODY].contains(&piece.client));
        let mine = mine.cloned();
        for piece in mine.collect::<Vec<Piece>>() {
            for chunk in layout.chunks(piece.offset, piece.bytes.len() as u64) {
                let from = (chunk.file_offset - piece.offset) as usize;
                let bytes = piece.bytes.get(from..from + chunk.len as usize);
                if let Some(bytes) = bytes.filter(|_| chunk.ost == ost) {
                    self.also(chunk.file_offset, bytes.to_vec(), settles_ns);
                }
            }
        }
    }

    /// An OST has crashed: holds what it has against what it may have, and goes on from there.
    /// `images` are its objects by stripe. If that is not at once, what was written since is
    /// in them, and nobody knows what of them is durable.
    ///
    /// # Errors
    /// If something durable is gone, or something is there that nobody wrote.
    pub fn survived(
        &mut self,
        ost: u32,
        images: &BTreeMap<u32, Vec<u8>>,
        (at_once, keepers): (bool, &Keepers),
    ) -> Result<(), String> {
        let Some(layout) = self.layout.clone() else { return Ok(()) };
        let mut before = None;
        // Of what is kept the OST may have had nothing, and it comes when the OST is back; or it
        // had it, and it is lost.
        for piece in self.kept.clone() {
            self.maybe.push(Piece { settles_ns: NEVER, ..piece.clone() });
            self.under.push(Piece { client: NOBODY, ..piece });
        }
        let mut changed = false;
        let mut comes_back = Vec::new();
        for chunk in layout.chunks(0, self.size()) {
            if chunk.ost != ost {
                continue;
            }
            let (from, to) = (chunk.file_offset as usize, (chunk.file_offset + chunk.len) as usize);
            let image = images.get(&chunk.stripe).map_or(&[][..], Vec::as_slice);
            let at = (chunk.object_offset as usize).min(image.len());
            let mut there = image.get(at..).unwrap_or_default().to_vec();
            there.resize(chunk.len as usize, 0);
            if self.content.get(from..to) != Some(&there[..]) {
                changed = true;
                before.get_or_insert_with(|| self.content.clone());
                let lost = self.compare(ost, chunk.file_offset, &there)?;
                let (kept, lost) = lost.into_iter().partition(|p| keepers.all.contains(&p.client));
                let _: &Vec<Piece> = &kept;
                self.lost.extend::<Vec<Piece>>(lost);
                comes_back.extend(kept);
                overlay(&mut self.content, chunk.file_offset, &there);
                if !at_once {
                    let (offset, bytes) = (chunk.file_offset, there.clone());
                    self.pending.push(Piece { client: NOBODY, offset, bytes, settles_ns: 0 });
                }
            }
            if !at_once {
                continue;
            }
            // What is there now is durable, until something older is written again, and what came
            // after it. The order stays: of the next chunk it says whose a byte was last.
            let (from, to) = (chunk.file_offset, chunk.file_offset + chunk.len);
            overlay(&mut self.durable, from, &there);
            subtract_of(&mut self.pending, (from, to), |piece| !keepers.may_have(piece));
            self.forget_under(from, to);
            // What was open before, and is settled here by the crash, somebody may have read and
            // keep in his cache: it proves nothing about the object any more.
            let met = self.maybe.iter_mut().filter(|piece| piece.offset < to && piece.end() > from);
            met.for_each(|piece| piece.settles_ns = NEVER);
        }
        let old = match before {
            Some(before) => before,
            None if self.kept.is_empty() => Vec::new(),
            None => self.content.clone(),
        };
        for piece in &mut comes_back {
            let (from, to) = (piece.offset as usize, piece.end() as usize);
            piece.bytes = old.get(from..to).unwrap_or_default().to_vec();
            piece.settles_ns = NEVER;
        }
        self.come_back(comes_back);
        self.will_come(&old);
        if changed {
            // Who has it cached may still see it.
            self.also(0, old, NEVER);
        }
        if self.unreliable {
            // A client that has looked before may go on with what it saw.
            self.size_doubtful(NEVER);
        }
        Ok(())
    }

    /// What was kept when an OST crashed is still what there should be: this was there before. If
    /// the OST had it, and has lost it, what it has now stays.
    fn will_come(&mut self, before: &[u8]) {
        for Piece { client, offset, bytes, .. } in self.kept.clone() {
            let range = offset as usize..offset as usize + bytes.len();
            let there = self.content.get(range.clone()).unwrap_or_default().to_vec();
            self.also(offset, there, NEVER);
            let bytes = before.get(range).unwrap_or_default().to_vec();
            overlay(&mut self.content, offset, &bytes);
            self.pending.push(Piece { client, offset, bytes, settles_ns: 0 });
        }
    }

    /// Every byte must be what is durable, or one of those that were written since; what is
    /// lost has to be told.
    fn compare(&self, ost: u32, offset: u64, there: &[u8]) -> Result<Vec<Piece>, String> {
        let mut lost: Vec<Piece> = Vec::new();
        let end = offset + there.len() as u64;
        let mut pending = Sweep::new(&self.pending, offset, end);
        let mut maybe = Sweep::new(&self.maybe, offset, end);
        let mut under = Sweep::new(&self.under, offset, end);
        let mut kept = Sweep::new(&self.kept, offset, end);
        let mut upto = offset;
        for (place, byte) in (offset..).zip(there.iter().copied()) {
            let seen = self.content.get(place as usize).copied().unwrap_or_default();
            if seen == byte {
                continue;
            }
            if place >= upto {
                let all = [&mut pending, &mut maybe, &mut under, &mut kept];
                upto = all.map(|pieces| pieces.go_to(place)).into_iter().min().unwrap_or(place);
            }
            let durable = self.durable.get(place as usize).copied().unwrap_or_default();
            let is_it = |piece: &Piece| piece.at(place) == Some(byte);
            let last = pending.holding().next_back();
            let maybe = maybe.holding().any(is_it);
            let unsynced = pending.holding().any(is_it);
            let under = under.holding().any(is_it);
            if last.is_none() && !maybe {
                return Err(format!(
                    "after a crash of OST{ost:04x} byte {place} is {byte:#04x}, but {seen:#04x} \
                     was synced"
                ));
            }
            if !maybe && !unsynced && !under && durable != byte {
                return Err(format!(
                    "after a crash of OST{ost:04x} byte {place} is {byte:#04x}; durable is \
                     {durable:#04x}, unsynced {:?}",
                    last.and_then(|piece| piece.at(place))
                ));
            }
            // What is kept over it is still to come: nobody misses this.
            if kept.holding().next().is_some() {
                continue;
            }
            // Of a write under way it is not said yet that it happened.
            let Some(client) = last.filter(|_| !maybe).map(|piece| piece.client) else {
                continue;
            };
            match lost.last_mut() {
                Some(run) if run.end() == place && run.client == client => run.bytes.push(byte),
                _ => lost.push(Piece { client, offset: place, bytes: vec![byte], settles_ns: 0 }),
            }
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use sateen_types::Layout;

    use super::*;

    const OST: u32 = 1;
    const STRIPE: u64 = 1 << 16;
    const KEEPER: ClientId = ClientId(0x100);
    const OTHER: ClientId = ClientId(0x101);

    /// Both write a place in the second chunk of an OST, in this order, and a crash leaves what the
    /// first one wrote. The keeper has all that it wrote, and goes on to write it again.
    fn a_crash_takes_the_second(writers: [ClientId; 2]) -> Data {
        let layout = Layout::raid0(STRIPE as u32, vec![OST]).unwrap();
        let mut data = Data { layout: Some(Arc::new(layout)), ..Data::default() };
        for (byte, client) in (1..).zip(writers) {
            data.wrote(client, STRIPE, &[byte; 8], false);
        }
        data.wrote(KEEPER, 0, &[3; 4], false);
        let mut image = vec![0; STRIPE as usize + 8];
        overlay(&mut image, STRIPE, &[1; 8]);
        let all = BTreeSet::from([KEEPER]);
        let keepers = Keepers { some: all.clone(), all };
        assert_eq!(data.survived(OST, &[(0, image)].into(), (true, &keepers)), Ok(()));
        data
    }

    #[test]
    fn what_somebody_wrote_over_a_keepers_bytes_does_not_come_back() {
        let mut data = a_crash_takes_the_second([KEEPER, OTHER]);
        assert_eq!(data.synced(KEEPER, 1), Ok(()));
        assert_eq!(data.check_read((STRIPE, 8), &[1; 8], Some(1)), Ok(()));
        assert!(data.synced(OTHER, 2).is_err(), "it has to tell that its write is lost");
    }

    #[test]
    fn what_a_keeper_wrote_last_comes_back() {
        let mut data = a_crash_takes_the_second([OTHER, KEEPER]);
        assert_eq!(data.clone().check_read((STRIPE, 8), &[1; 8], Some(1)), Ok(()));
        assert_eq!(data.synced(OTHER, 1), Ok(()));
        assert_eq!(data.synced(KEEPER, 2), Ok(()));
        assert!(data.check_read((STRIPE, 8), &[1; 8], Some(2)).is_err(), "it was written again");
        assert_eq!(data.check_read((STRIPE, 8), &[2; 8], Some(2)), Ok(()));
    }
}
