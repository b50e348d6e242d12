//! Reading before anybody asks: see [`crate::readahead`].

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use sateen_types::{Copied, Endpoint, Layout, Result, copied};
use sateen_wire::LockId;

use super::files::File;
use crate::client::Client;
use crate::inode::Inode;
use crate::locks::DataUse;
use crate::patience;
use crate::readahead::{Ask, CleanStats, Full, Keeping, Next, ReadAheadStats, Ready, Wanted};
use crate::sync::{lock, until};

/// What there was already for whoever reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It was read ahead.
    Ahead,
    /// A program had read it before.
    Again,
}

impl Client {
    /// Bytes that are read ahead of all files together, at most.
    pub fn read_ahead_max(&self) -> u64 {
        self.read_ahead.max()
    }

    /// Sets that. With 0 nothing is read ahead.
    ///
    /// # Errors
    /// `ERANGE` beyond [`READ_AHEAD_MAX`](crate::READ_AHEAD_MAX).
    pub fn set_read_ahead_max(&self, bytes: u64) -> Result<()> {
        self.read_ahead.set_max(bytes)?;
        self.read_ahead.fit();
        Ok(())
    }

    /// The same of one file.
    pub fn read_ahead_per_file(&self) -> u64 {
        self.read_ahead.per_file()
    }

    /// Sets that.
    ///
    /// # Errors
    /// As [`Client::set_read_ahead_max`].
    pub fn set_read_ahead_per_file(&self, bytes: u64) -> Result<()> {
        self.read_ahead.set_per_file(bytes)
    }

    /// Files that are no longer than this are read whole.
    pub fn read_ahead_whole(&self) -> u64 {
        self.read_ahead.whole()
    }

    /// Sets that.
    ///
    /// # Errors
    /// As [`Client::set_read_ahead_max`].
    pub fn set_read_ahead_whole(&self, bytes: u64) -> Result<()> {
        self.read_ahead.set_whole(bytes)
    }

    /// From which mean on reads count as slow: nanoseconds that one takes beyond one for each byte. Where
    /// they are quicker nothing is read ahead.
    pub fn read_ahead_slow_ns(&self) -> u64 {
        self.read_ahead.slow_ns()
    }

    /// Sets that. With 0 all are slow.
    ///
    /// # Errors
    /// `ERANGE` beyond 10 s.
    pub fn set_read_ahead_slow_ns(&self, ns: u64) -> Result<()> {
        self.read_ahead.set_slow_ns(ns)
    }

    /// Whether more is read ahead of who reads forward than his kernel reads, and small files are read
    /// whole: where its servers are far.
    pub fn set_read_ahead_forward(&self, forward: bool) {
        self.read_ahead.set_forward(forward);
    }

    /// What reading ahead was good for.
    pub fn read_ahead_stats(&self) -> ReadAheadStats {
        self.read_ahead.stats()
    }

    /// Counts that anew.
    pub fn clear_read_ahead_stats(&self) {
        self.read_ahead.clear_stats();
    }

    /// Drops what nobody has read for a while.
    pub(crate) fn drop_old_ahead(&self) {
        self.read_ahead.drop_old(self.ticks.load(Ordering::Relaxed));
    }

    /// This client begins to change a range of a file: offset and length. A write of it is under way.
    pub(super) fn changes(&self, inode: &Inode, range: (u64, u64)) {
        if !self.read_ahead.is_idle() {
            inode.update(|state| state.changes_ahead(range));
        }
    }

    /// Whether anything may be read ahead of who reads by an open: as in the kernel, who goes past its
    /// pages goes past what was read ahead.
    pub(super) fn reads_ahead(&self, file: &File) -> bool {
        !file.how.direct && self.read_ahead.max() > 0
    }

    /// A range of a file of `size` bytes is about to be read under a lock in use that keeps writers
    /// away. Puts it behind what the buffer holds, if it was read ahead; whether it was. Asks for what
    /// will be read next.
    pub(super) async fn read_ahead(
        self: &Arc<Client>,
        file: &File,
        used: &DataUse,
        (range, size): ((u64, u64), u64),
        buffer: &mut BytesMut,
    ) -> bool {
        if !self.reads_ahead(file) {
            return self.keeps_clean(file)
                && !self.read_ahead.is_idle()
                && self.take_ahead(&file.inode, used, range, buffer).await.is_some();
        }
        let forward = self.read_ahead.forward();
        let (next, is_one) = {
            let mut pattern = lock(&file.pattern);
            (pattern.read(range, forward), pattern.is_one())
        };
        let is_worth_it = self.read_ahead.is_worth_it();
        if let Some(next) = next.filter(|_| is_worth_it) {
            let limit = self.read_ahead.of_file();
            if next != Next::Whole || forward && size <= self.read_ahead.whole().min(limit) {
                let ranges = next.ranges(size, limit);
                self.ask_ahead(&file.inode, used.id(), (&ranges, next.slack()));
            }
        }
        let (mut found, mut waited) = (None, false);
        if !self.read_ahead.is_idle() {
            let mut taking = pin!(self.take_ahead(&file.inode, used, range, buffer));
            found = poll_fn(|context| {
                let taken = taking.as_mut().poll(context);
                waited |= taken.is_pending();
                taken
            })
            .await;
        }
        if waited || found.is_none() && is_one {
            lock(&file.pattern).waited();
        }
        match found {
            Some(Found::Ahead) => self.read_ahead.hit(range.1),
            None if is_one && is_worth_it => self.read_ahead.miss(range.1),
            Some(Found::Again) | None => {}
        }
        found.is_some()
    }

    /// What was read ahead, if all of it was; waits for what is on its way. It is copied while nothing
    /// is locked, and freed then: whoever brings what comes next waits for neither.
    async fn take_ahead(
        &self,
        inode: &Inode,
        used: &DataUse,
        range: (u64, u64),
        buffer: &mut BytesMut,
    ) -> Option<Found> {
        let id = used.id();
        let pieces = until(
            &inode.state,
            |state| &mut state.waiters,
            |state| match state.ahead_ready(id, range) {
                Ready::Yes => Some(Some(state.take_ahead(range))),
                Ready::No => Some(None),
                Ready::Waits => patience::is_over().then_some(None),
            },
        )
        .await;
        let (pieces, again) = pieces?;
        for piece in &pieces {
            copied(Copied::ClientAhead, piece.len());
            buffer.extend_from_slice(piece);
        }
        if !again {
            return Some(Found::Ahead);
        }
        self.read_ahead.clean().hit();
        Some(Found::Again)
    }

    /// Whether what is read by an open may stay: where OSTs are elsewhere, and no kernel keeps it.
    fn keeps_clean(&self, file: &File) -> bool {
        let past_pages = file.how.write && !file.how.direct;
        past_pages
            && self.read_ahead.clean().max() > 0
            && !self.osts_are_here.load(Ordering::Relaxed)
    }

    /// A place for what is about to be read of a file of `size` bytes, if it may stay.
    pub(super) fn keep_clean<'a>(
        &self,
        file: &'a File,
        used: &DataUse,
        (range, size): ((u64, u64), u64),
    ) -> Option<Keeping<'a>> {
        if !self.keeps_clean(file) || !self.read_ahead.clean().is_for(size) {
            return None;
        }
        let now = self.ticks.load(Ordering::Relaxed);
        self.read_ahead.clean().keep(&file.inode, used.id(), range, now)
    }

    /// Bytes of what programs have read past their kernel's pages that stay for others, at most.
    pub fn clean_max(&self) -> u64 {
        self.read_ahead.clean().max()
    }

    /// Sets that. With 0 nothing stays.
    ///
    /// # Errors
    /// `ERANGE` beyond [`CLEAN_MAX`](crate::CLEAN_MAX).
    pub fn set_clean_max(&self, bytes: u64) -> Result<()> {
        self.read_ahead.clean().set_max(bytes)
    }

    /// How much of it there is, and what it was good for.
    pub fn clean_stats(&self) -> CleanStats {
        self.read_ahead.clean().stats()
    }

    /// Asks for what of these ranges is not there, nearest first. Half of the slots of an OST are left
    /// to others.
    fn ask_ahead(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        id: LockId,
        (ranges, slack): (&[(u64, u64)], u64),
    ) {
        if self.is_stopped() || ranges.is_empty() {
            return;
        }
        let now = self.ticks.load(Ordering::Relaxed);
        let Some(layout) = lock(&inode.state).layout.clone() else { return };
        // Imports are looked at while no inode is locked: what they do may lock inodes.
        let spare = self.spare_of(&layout, ranges);
        let mut spare_at = |offset| {
            let ost = layout.chunks(offset, 1).next()?.ost;
            Some((ost, spare.get(&ost).copied()?))
        };
        // What there has to be room for, if there is not.
        let mut wanted = None;
        loop {
            let in_part = wanted.is_some();
            let asked = {
                let mut state = lock(&inode.state);
                if state.layout.as_ref() != Some(&layout) {
                    return;
                }
                let of = (inode, &mut *state);
                self.read_ahead.ask(of, id, Wanted { ranges, slack, in_part }, now, &mut spare_at)
            };
            match asked {
                Ok(asks) => {
                    let room: u64 = asks.iter().map(|ask| ask.len).sum();
                    self.read_ahead.refuse(wanted.unwrap_or(room).saturating_sub(room));
                    for ask in asks {
                        self.fetch_ahead(inode, &layout, ask);
                    }
                    return;
                }
                Err(Full::NoRoom(bytes)) if in_part => return self.read_ahead.refuse(bytes),
                Err(Full::NoRoom(bytes)) => {
                    // Whether there is or not: the nearest will do.
                    self.read_ahead.make_room(bytes, now);
                    wanted = Some(bytes);
                }
                Err(Full::Enough) => return,
            }
        }
    }

    /// How many requests each OST takes yet that has something of these ranges. Others may ask it for
    /// something before who asks this does: so much more may be asked for than it has slots to spare.
    fn spare_of(&self, layout: &Layout, ranges: &[(u64, u64)]) -> BTreeMap<u32, usize> {
        let mut spare = BTreeMap::new();
        for chunk in ranges.iter().flat_map(|(offset, len)| layout.chunks(*offset, *len)) {
            spare.entry(chunk.ost).or_insert_with(|| {
                let import = self.import(Endpoint::Ost(chunk.ost));
                import.map_or(0, |import| import.slots_to_spare(self.read_ahead.asked(chunk.ost)))
            });
        }
        spare
    }

    fn fetch_ahead(self: &Arc<Client>, inode: &Arc<Inode>, layout: &Arc<Layout>, ask: Ask) {
        let (client, inode, layout) = (self.clone(), inode.clone(), layout.clone());
        self.port.spawn(Box::pin(async move {
            let buffer = BytesMut::with_capacity(ask.len as usize);
            let range = (ask.offset, ask.len);
            let read = client.read_stripes(inode.fid, &layout, range, (buffer, false)).await;
            let data = read.ok().map(BytesMut::freeze);
            inode.update(|state| state.came_ahead(&ask, data));
            drop(ask);
            client.retire(inode);
        }));
    }
}
