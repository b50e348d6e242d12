//! What OSTs have answered and may lose in a crash, to be written again then: see
//! docs/protocol.md, "After a crash of an OST".
//!
//! Each write that an OST has answered stays here as a piece, in the order of the answers, until
//! it is durable, nobody else is kept from writing there any more, or there is no room for it. A
//! run of an OST that follows a crash is told all pieces that it has not, in that order, before it
//! is asked anything else (`import/replay.rs`).
//!
//! **Nobody's younger bytes are written over.** Pieces are kept of what is written under a lock
//! that nobody else can write under, and gone before that lock is given back; before the file is
//! cut, or a range of it freed or emptied; and when the order of two of them is not known. A piece
//! on its way is waited for. What was removed an OST does not let come back.
//!
//! **What is not here is told.** A file of which something was written and is neither durable nor
//! here *misses* something. Of one that misses nothing it is noted, when a run has been told
//! everything, where that is now that was written in an earlier one: in this one. An fsync names
//! that run, and succeeds. All others name the run that was lost, and fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use sateen_types::{Copied, Endpoint, Errno, Fid, ObjectId, Result, copied};

use crate::client::Client;
use crate::dirty::DIRTY_MAX;
use crate::held::Held;
use crate::inode::{Inode, InodeState};
use crate::patience;
use crate::sync::{Waiters, Woken, lock, until};

/// Shorter data is copied: it may be a small part of a large buffer. 64 KiB.
const COPIED_BYTES: usize = 64 << 10;

/// Bytes that an OST has answered for.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) object: ObjectId,
    /// Generation of the layout that they were written by.
    pub(crate) layout_gen: u32,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// The run of the OST that has them.
    run: u64,
}

impl Piece {
    fn len(&self) -> u64 {
        self.data.len() as u64
    }
}

#[derive(Debug, Default)]
struct OfOst {
    /// How many bytes there may be, if that was set for this one.
    bytes_max: Option<u64>,
    bytes: u64,
    /// By number.
    pieces: BTreeMap<u64, Piece>,
    /// The piece that it is being told.
    asked: Option<Fid>,
}

#[derive(Debug, Default)]
struct OfFile {
    /// Writes under way, by the number that they began with, each once.
    writes: Vec<u64>,
    /// Those who keep anything from being kept.
    barred: u32,
    /// Others may write, but writes of before are under way.
    forgotten: bool,
    /// Up to this number something was written that is neither here nor known to be durable.
    missing: Option<u64>,
    /// By number, with their OSTs.
    pieces: BTreeSet<(u64, u32)>,
    /// Runs of OSTs in which something was written, and the runs that have it now.
    runs: BTreeMap<(u32, u64), u64>,
}

impl OfFile {
    /// Whether nothing has to be known of it.
    fn is_idle(&self) -> bool {
        // Where something is now that a run before had, the next fsync has to know.
        let moved = self.runs.iter().any(|((_, run), now)| run != now);
        let nothing_here = self.missing.is_none() && self.pieces.is_empty();
        self.writes.is_empty() && self.barred == 0 && nothing_here && !moved
    }
}

#[derive(Debug, Default)]
struct Table {
    /// How many bytes there may be of an OST for which nothing else is set, and of all those.
    bytes_max: u64,
    in_all_max: u64,
    osts: BTreeMap<u32, OfOst>,
    files: BTreeMap<Fid, OfFile>,
    /// The last number: of a piece, or of something that is missing.
    last: u64,
    waiters: Waiters,
}

impl Table {
    fn bytes_max(&self, ost: u32) -> u64 {
        let own = self.osts.get(&ost).and_then(|of_ost| of_ost.bytes_max);
        own.unwrap_or(self.bytes_max)
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn remove(&mut self, ost: u32, number: u64) {
        let Some(of_ost) = self.osts.get_mut(&ost) else { return };
        let Some(piece) = of_ost.pieces.remove(&number) else { return };
        of_ost.bytes -= piece.len();
        if let Some(file) = self.files.get_mut(&piece.object.fid) {
            file.pieces.remove(&(number, ost));
        }
    }

    /// Something of a file is not here, and nothing of it is: younger bytes may be missing.
    fn miss(&mut self, fid: Fid) {
        let number = self.next();
        let Some(file) = self.files.get_mut(&fid) else { return };
        file.missing = Some(number);
        for (number, ost) in core::mem::take(&mut file.pieces) {
            self.remove(ost, number);
        }
    }

    /// Nothing is known of a file any more.
    fn forget(&mut self, fid: Fid) {
        self.miss(fid);
        let Some(file) = self.files.get_mut(&fid) else { return };
        file.forgotten = !file.writes.is_empty();
        if !file.forgotten && file.barred == 0 {
            self.files.remove(&fid);
        }
    }

    fn forget_if_idle(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(OfFile::is_idle) {
            self.files.remove(&fid);
        }
    }

    /// Drops the oldest piece of an OST. The younger ones of its file stay: they lie over it.
    fn drop_oldest(&mut self, ost: u32) {
        let missing = self.next();
        let oldest = self.osts.get(&ost).and_then(|of_ost| of_ost.pieces.first_key_value());
        let Some((number, fid)) = oldest.map(|(number, piece)| (*number, piece.object.fid)) else {
            return;
        };
        self.remove(ost, number);
        if let Some(file) = self.files.get_mut(&fid) {
            file.missing = Some(missing);
        }
    }

    /// Drops pieces until there are no more than there may be.
    fn fit(&mut self) {
        let osts: Vec<u32> = self.osts.keys().copied().collect();
        for ost in &osts {
            while self.osts.get(ost).is_some_and(|of_ost| of_ost.bytes > self.bytes_max(*ost)) {
                self.drop_oldest(*ost);
            }
        }
        let is_common = |of_ost: &OfOst| of_ost.bytes_max.is_none();
        loop {
            let common = || self.osts.iter().filter(|(_, of_ost)| is_common(of_ost));
            if common().map(|(_, of_ost)| of_ost.bytes).sum::<u64>() <= self.in_all_max {
                return;
            }
            let first = |of_ost: &OfOst| of_ost.pieces.keys().next().copied();
            let oldest = common().filter_map(|(ost, of_ost)| Some((first(of_ost)?, *ost))).min();
            let Some((_, ost)) = oldest else { return };
            self.drop_oldest(ost);
        }
    }

    fn is_on(&self) -> bool {
        let mut own = self.osts.values().filter_map(|of_ost| of_ost.bytes_max);
        self.bytes_max > 0 || own.any(|bytes_max| bytes_max > 0)
    }
}

/// The pieces of all OSTs. Locked after everything but runs that ended well.
#[derive(Debug, Default)]
pub(crate) struct Unstable {
    table: Mutex<Table>,
    /// There may be something, or may have been.
    is_used: AtomicBool,
}

/// A write is under way of which a piece can be kept; over on drop.
#[derive(Debug)]
pub(crate) struct Admitted<'a>(&'a Unstable, Fid, u64);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut table = lock(&self.0.table);
        if let Some(file) = table.files.get_mut(&self.1) {
            file.writes.retain(|number| *number != self.2);
            file.forgotten &= !file.writes.is_empty();
        }
        table.forget_if_idle(self.1);
    }
}

/// Nothing of a file is kept meanwhile; over on drop.
#[derive(Debug)]
pub(crate) struct Barred<'a>(&'a Unstable, Fid);

impl Drop for Barred<'_> {
    fn drop(&mut self) {
        let mut table = lock(&self.0.table);
        if let Some(file) = table.files.get_mut(&self.1) {
            file.barred -= 1;
        }
        // What is missing its inode knows, and says to the next write.
        table.forget(self.1);
    }
}

impl Unstable {
    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn set(&self, change: impl FnOnce(&mut Table)) {
        let mut table = lock(&self.table);
        change(&mut table);
        table.fit();
        self.is_used.fetch_or(table.is_on(), Ordering::Relaxed);
    }

    /// How many bytes there may be of each OST for which nothing else was set, and of all those.
    pub(crate) fn set_max(&self, bytes: u64, in_all: u64) {
        self.set(|table| (table.bytes_max, table.in_all_max) = (bytes.min(DIRTY_MAX), in_all));
    }

    fn set_max_of(&self, ost: u32, bytes: u64) {
        self.set(|table| table.osts.entry(ost).or_default().bytes_max = Some(bytes));
    }

    /// A write of a file to an OST begins, under a lock that nobody else can write under. Whether
    /// everything that was written to the file before is durable counts if nothing is known of it.
    pub(crate) fn admit(&self, fid: Fid, ost: u32, is_durable: bool) -> Option<Admitted<'_>> {
        let mut table = lock(&self.table);
        if table.bytes_max(ost) == 0 {
            return None;
        }
        // What is missing was there before.
        let (before, number) = (table.next(), table.next());
        let new = || OfFile { missing: (!is_durable).then_some(before), ..OfFile::default() };
        table.files.entry(fid).or_insert_with(new).writes.push(number);
        Some(Admitted(self, fid, number))
    }

    /// Nothing of a file is kept from now on, nor is anything here of before. A piece that is on its
    /// way may arrive after this: see [`Unstable::arrived`].
    pub(crate) fn bar(&self, fid: Fid) -> Barred<'_> {
        let mut table = lock(&self.table);
        table.files.entry(fid).or_default().barred += 1;
        table.miss(fid);
        Barred(self, fid)
    }

    /// Whether a piece of a file would be kept.
    pub(crate) fn keeps(&self, fid: Fid) -> bool {
        self.is_used() && lock(&self.table).files.contains_key(&fid)
    }

    /// A run of an OST has answered a write.
    pub(crate) fn wrote(
        &self,
        (ost, run): (u32, u64),
        (object, layout_gen, offset): (ObjectId, u32, u64),
        data: &Bytes,
    ) {
        let mut table = lock(&self.table);
        let (fid, number) = (object.fid, table.next());
        let has_room = data.len() as u64 <= table.bytes_max(ost);
        let Some(file) = table.files.get_mut(&fid) else { return };
        file.runs.entry((ost, run)).or_insert(run);
        if file.barred > 0 || file.forgotten || file.writes.is_empty() || !has_room {
            return table.miss(fid);
        }
        file.pieces.insert((number, ost));
        let data = if data.len() < COPIED_BYTES {
            copied(Copied::ClientAgain, data.len());
            Bytes::copy_from_slice(data)
        } else {
            data.clone()
        };
        let of_ost = table.osts.entry(ost).or_default();
        of_ost.bytes += data.len() as u64;
        of_ost.pieces.insert(number, Piece { object, layout_gen, offset, data, run });
        table.fit();
    }

    /// Something was written to a file that cannot be kept, or nobody knows in which order.
    pub(crate) fn miss(&self, fid: Fid) {
        if self.is_used() {
            lock(&self.table).miss(fid);
        }
    }

    /// Others may write to a file, or it is gone.
    pub(crate) fn forget(&self, fid: Fid) {
        if self.is_used() {
            lock(&self.table).forget(fid);
        }
    }

    /// The same for many.
    pub(crate) fn forget_those(&self, which: impl Fn(Fid) -> bool) {
        if self.is_used() {
            let mut table = lock(&self.table);
            let all: Vec<Fid> = table.files.keys().copied().filter(|fid| which(*fid)).collect();
            all.into_iter().for_each(|fid| table.forget(fid));
        }
    }

    /// Nothing of any file is kept any more, and what was on its way has arrived.
    pub(crate) async fn end(&self) {
        if self.is_used() {
            self.set(|table| {
                table.bytes_max = 0;
                table.osts.values_mut().for_each(|of_ost| of_ost.bytes_max = None);
            });
            self.forget_those(|_| true);
            let none = |table: &mut Table| {
                let any = table.osts.values().any(|of_ost| of_ost.asked.is_some());
                (!any).then_some(())
            };
            until(&self.table, |table| &mut table.waiters, none).await;
        }
    }

    /// Waits until no piece of a file is on its way that is not here any more, or this says that
    /// it need not.
    pub(crate) async fn arrived(&self, fid: Fid, enough: impl Fn() -> bool) -> Result<()> {
        if !self.is_used() {
            return Ok(());
        }
        let arrived = |table: &mut Table| {
            if !table.osts.values().any(|of_ost| of_ost.asked == Some(fid)) {
                return Some(Ok(()));
            }
            enough().then_some(Err(Errno::EINTR))
        };
        until(&self.table, |table| &mut table.waiters, arrived).await
    }

    /// A sync of a file that begins after this makes durable what has this number or a lower. Not
    /// what writes have written that are under way: an OST may have answered them, and a sync not
    /// know of it yet.
    pub(crate) fn mark(&self, fid: Fid) -> u64 {
        if !self.is_used() {
            return 0;
        }
        let table = lock(&self.table);
        let begun = table.files.get(&fid).and_then(|file| file.writes.iter().min());
        begun.map_or(table.last, |number| number - 1)
    }

    /// One OST has synced these objects of a file, of which what had this number or a lower is durable.
    /// Not only when all others have, too: if this one crashed before that, older pieces would be written
    /// over durable bytes, and another crash could leave those there.
    pub(crate) fn are_synced(&self, ost: u32, objects: &[ObjectId], mark: u64) {
        let Some(fid) = objects.first().map(|object| object.fid).filter(|_| self.is_used()) else {
            return;
        };
        let mut table = lock(&self.table);
        let (Some(file), Some(of_ost)) = (table.files.get(&fid), table.osts.get(&ost)) else {
            return;
        };
        let is_theirs = |number: &u64| {
            of_ost.pieces.get(number).is_some_and(|piece| objects.contains(&piece.object))
        };
        let until = file.pieces.iter().take_while(|(number, _)| *number <= mark);
        let of_it = until.filter(|(_, of)| *of == ost).map(|(number, _)| *number);
        let durable: Vec<u64> = of_it.filter(is_theirs).collect();
        durable.into_iter().for_each(|number| table.remove(ost, number));
    }

    /// What of a file had this number or a lower is durable.
    pub(crate) fn synced(&self, fid: Fid, mark: u64) {
        if !self.is_used() {
            return;
        }
        let mut table = lock(&self.table);
        let Some(file) = table.files.get_mut(&fid) else { return };
        file.missing = file.missing.filter(|number| *number > mark);
        let later = file.pieces.split_off(&(mark + 1, 0));
        for (number, ost) in core::mem::replace(&mut file.pieces, later) {
            table.remove(ost, number);
        }
        table.forget_if_idle(fid);
    }

    /// A sync of a file is over that some OSTs have not done: what all others have synced may have been
    /// everything.
    pub(crate) fn synced_in_part(&self, fid: Fid) {
        if self.is_used() {
            lock(&self.table).forget_if_idle(fid);
        }
    }

    /// The run of an OST that has now what was written to a file in this one.
    pub(crate) fn now(&self, fid: Fid, (ost, run): (u32, u64)) -> u64 {
        if !self.is_used() {
            return run;
        }
        let table = lock(&self.table);
        let now = table.files.get(&fid).and_then(|file| file.runs.get(&(ost, run)));
        now.copied().unwrap_or(run)
    }

    /// The same of several files, if they agree.
    pub(crate) fn all_now(&self, objects: &[ObjectId], at: (u32, u64)) -> u64 {
        let mut all = objects.iter().map(|object| self.now(object.fid, at));
        let first = all.next().unwrap_or(at.1);
        if all.all(|now| now == first) { first } else { at.1 }
    }
}

/// What an OST is told that has lost something.
impl Unstable {
    /// What runs of an OST have that ended in good order is durable.
    pub(crate) fn are_durable(&self, ost: u32, ended: impl Fn(u64) -> bool) {
        if !self.is_used() {
            return;
        }
        let mut table = lock(&self.table);
        let pieces = table.osts.get(&ost).into_iter().flat_map(|of_ost| &of_ost.pieces);
        let durable: Vec<(u64, Fid)> = pieces
            .filter(|(_, piece)| ended(piece.run))
            .map(|(number, piece)| (*number, piece.object.fid))
            .collect();
        for (number, fid) in durable {
            table.remove(ost, number);
            table.forget_if_idle(fid);
        }
    }

    /// The next piece behind this number that a run of an OST has not. It is on its way from now on.
    pub(crate) fn next_due(&self, ost: u32, run: u64, behind: u64) -> Option<(u64, Piece)> {
        if !self.is_used() {
            return None;
        }
        let mut table = lock(&self.table);
        let of_ost = table.osts.get_mut(&ost)?;
        let mut pieces = of_ost.pieces.range(behind + 1..);
        let (number, piece) = pieces.find(|(_, piece)| piece.run != run)?;
        let next = (*number, piece.clone());
        of_ost.asked = Some(piece.object.fid);
        Some(next)
    }

    /// A run of an OST has the piece that was on its way, or refuses it. Those who wait for that
    /// are to be woken when nothing is locked any more.
    pub(crate) fn is_told(&self, (ost, run): (u32, u64), number: u64, done: bool) -> Woken {
        let mut table = lock(&self.table);
        let Some(of_ost) = table.osts.get_mut(&ost) else { return Woken::default() };
        of_ost.asked = None;
        let refused = match of_ost.pieces.get_mut(&number) {
            Some(piece) if done => {
                piece.run = run;
                None
            }
            piece => piece.map(|piece| piece.object.fid),
        };
        if let Some(fid) = refused {
            table.miss(fid);
        }
        table.waiters.take()
    }

    /// A run of an OST has all pieces.
    pub(crate) fn has_all(&self, ost: u32, run: u64) {
        if !self.is_used() {
            return;
        }
        let mut table = lock(&self.table);
        for file in table.files.values_mut().filter(|file| file.missing.is_none()) {
            let mut any = false;
            for (_, now) in file.runs.iter_mut().filter(|((of, _), _)| *of == ost) {
                (any, *now) = (true, run);
            }
            if any {
                file.runs.insert((ost, run), run);
            }
        }
    }

    /// The connection to an OST is gone, and what was on its way with it. As [`Unstable::is_told`].
    pub(crate) fn cut_off(&self, ost: u32) -> Woken {
        if !self.is_used() {
            return Woken::default();
        }
        let mut table = lock(&self.table);
        if let Some(of_ost) = table.osts.get_mut(&ost) {
            of_ost.asked = None;
        }
        table.waiters.take()
    }

    /// An OST is not used any more, and told nothing when it is again.
    pub(crate) fn give_up(&self, ost: u32) {
        if self.is_used() {
            let mut table = lock(&self.table);
            let pieces = table.osts.get(&ost).into_iter().flat_map(|of_ost| of_ost.pieces.values());
            let files: BTreeSet<Fid> = pieces.map(|piece| piece.object.fid).collect();
            files.into_iter().for_each(|fid| table.miss(fid));
        }
    }
}

impl InodeState {
    /// What was written and not synced is where it is now.
    pub(crate) fn follow_runs(&mut self, fid: Fid, unstable: &Unstable) {
        if let Some(rare) = self.rare_if_any() {
            rare.unsynced.change(|at| at.boot_epoch = unstable.now(fid, (at.ost, at.boot_epoch)));
        }
    }

    /// Whether nobody else can write to the file.
    fn writes_alone(&self) -> bool {
        self.locks.iter().any(Held::owns_data)
    }
}

impl Client {
    /// Whether bytes of writes may stay here when those are answered.
    pub fn may_write_again(&self) -> bool {
        self.unstable.is_used()
    }

    /// How many bytes stay here that each OST may lose for which nothing else was set, and all those
    /// together, at most.
    pub fn set_unstable_max(&self, bytes: u64, in_all: u64) {
        self.unstable.set_max(bytes, in_all);
    }

    /// How many bytes stay here that one OST may lose, at most.
    ///
    /// # Errors
    /// `ENOENT` if there is no such target, `ERANGE` for a number that cannot be.
    pub fn set_unstable_max_of(&self, target: Endpoint, bytes: u64) -> Result<()> {
        let Endpoint::Ost(ost) = target else { return Err(Errno::EOPNOTSUPP) };
        self.import(target).ok_or(Errno::ENOENT)?;
        if bytes > DIRTY_MAX {
            return Err(Errno::ERANGE);
        }
        self.unstable.set_max_of(ost, bytes);
        Ok(())
    }

    /// The same number.
    pub fn unstable_max(&self, ost: u32) -> u64 {
        lock(&self.unstable.table).bytes_max(ost)
    }

    /// Bytes that are here of what one OST may lose.
    pub fn unstable_bytes(&self, ost: u32) -> u64 {
        lock(&self.unstable.table).osts.get(&ost).map_or(0, |of_ost| of_ost.bytes)
    }

    /// Whether something of a file would be written again that OSTs lose, and whether all of it.
    pub fn writes_again(&self, fid: Fid) -> (bool, bool) {
        let table = lock(&self.unstable.table);
        let some = table.files.get(&fid).filter(|file| !file.pieces.is_empty());
        (some.is_some(), some.is_some_and(|file| file.barred == 0 && file.missing.is_none()))
    }

    /// A write begins. As long as this is held what is answered can be kept. Nothing is of a file that
    /// the kernel writes itself.
    pub(crate) fn admit(&self, inode: &Inode, ost: u32) -> Option<Admitted<'_>> {
        if !self.unstable.is_used() {
            return None;
        }
        let (fid, state) = (inode.fid, lock(&inode.state));
        // What the kernel writes over it later it tells nobody.
        if !state.writes_alone() || state.is_given() {
            return None;
        }
        // Not asked with the table locked. If what is known of it goes meanwhile it counts as not.
        let is_durable = !self.unstable.keeps(fid)
            && state.unsynced.is_empty()
            && !state.syncing
            && !self.unsynced.has(fid);
        self.unstable.admit(fid, ost, is_durable)
    }

    /// A file is about to be cut, or a range of it to be emptied: nothing of it is kept meanwhile, or
    /// here, and what was on its way has arrived.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn bar<'a>(&'a self, inode: &Inode) -> Result<Option<Barred<'a>>> {
        if !self.unstable.is_used() {
            return Ok(None);
        }
        let barred = {
            let mut state = lock(&inode.state);
            state.follow_runs(inode.fid, &self.unstable);
            self.unstable.bar(inode.fid)
        };
        self.unstable.arrived(inode.fid, patience::is_over).await?;
        Ok(Some(barred))
    }

    /// A lock is about to be given back: if it was the one under which this client alone could write
    /// nothing is written again any more. What was on its way has arrived.
    pub(crate) async fn lets_others_write(&self, inode: &Inode) {
        if !self.unstable.is_used() {
            return;
        }
        {
            let mut state = lock(&inode.state);
            if state.writes_alone() {
                return;
            }
            state.follow_runs(inode.fid, &self.unstable);
            self.unstable.forget(inode.fid);
        }
        self.unstable.arrived(inode.fid, || false).await.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests;
