//! Programs of both clients that write one file as groups do, and others that only look at it.
//!
//! Each record belongs to one program; some lie in two objects. A program joins one of two groups,
//! writes some of its records, and leaves, or closes the file. Of two groups one alone has the file. Who
//! belongs to none, and reads past the kernel's pages, or sets times, waits until all have left, and finds
//! nothing that is begun and not ended. On the clients of members it does not wait, and is served as they
//! are. What members find of each other's is of a write that was begun. Pages are as old as the lock
//! that they stand under: they are right in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sateen_client::OpenHow;
use sateen_types::{Errno, Fid};
use sateen_wire::{SetAttr, TimeSet};

use super::contention::{record, version_of};
use crate::executor::lock;
use crate::kernel::{Handle, Kernel};
use crate::random::Random;

/// Records of each program, and their bytes.
const RECORDS: usize = 4;
const RECORD_BYTES: usize = 3000;
/// Writes of one who has joined.
const WRITES: u64 = 4;
/// The name of the file.
pub(super) const NAME: &[u8] = b"team";

/// What has happened to the file.
#[derive(Debug, Default)]
pub(super) struct Teams {
    /// Of each record: the last version that is complete, and the last that was begun.
    versions: BTreeMap<usize, (u64, u64)>,
    /// How many programs belong to each group.
    inside: BTreeMap<u64, u32>,
    pub(super) joined: u64,
    pub(super) taken: u64,
    pub(super) written: u64,
    pub(super) looked: u64,
    pub(super) touched: u64,
}

impl Teams {
    fn versions(&self, place: usize) -> (u64, u64) {
        self.versions.get(&place).copied().unwrap_or_default()
    }

    /// A program belongs to a group from now on.
    fn enters(&mut self, gid: u64) -> Result<(), String> {
        self.joined += 1;
        if let Some((other, _)) =
            self.inside.iter().find(|(other, all)| **other != gid && **all > 0)
        {
            return Err(format!("groups {gid} and {other} have the file at once"));
        }
        *self.inside.entry(gid).or_default() += 1;
        Ok(())
    }

    /// It is about to leave it.
    fn leaves(&mut self, gid: u64) {
        if let Some(all) = self.inside.get_mut(&gid) {
            *all = all.saturating_sub(1);
        }
    }

    /// Where the file ends once all is written.
    pub(super) fn end(&self) -> u64 {
        let last = self.versions.iter().rfind(|(_, versions)| versions.0 > 0);
        last.map_or(0, |(place, _)| ((place + 1) * RECORD_BYTES) as u64)
    }
}

/// One who writes the file with others, or looks at it.
pub(super) struct Teammate {
    kernel: Arc<Kernel>,
    teams: Arc<Mutex<Teams>>,
    /// Its number, and how many there are.
    me: usize,
    all: usize,
    file: Handle,
    look: Handle,
    how: OpenHow,
}

fn said(what: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("{what}: {}", errno.name())
}

async fn open(kernel: &Kernel, how: OpenHow) -> Result<Handle, String> {
    kernel.open(Fid::ROOT, NAME, Some(0o600), how).await.map_err(said("open"))
}

impl Teammate {
    pub(super) async fn new(
        kernel: &Arc<Kernel>,
        teams: &Arc<Mutex<Teams>>,
        (me, all): (usize, usize),
        random: &mut Random,
    ) -> Result<Teammate, String> {
        let reads = OpenHow { read: true, ..OpenHow::default() };
        let how = OpenHow { write: true, nonblock: random.one_in(3), ..reads };
        let look = OpenHow { direct: random.one_in(3), ..reads };
        let file = open(kernel, how).await?;
        let look = open(kernel, look).await?;
        let (kernel, teams) = (kernel.clone(), teams.clone());
        Ok(Teammate { kernel, teams, me, all, file, look, how })
    }

    pub(super) async fn close(self) -> Result<(), String> {
        self.kernel.close(self.file).await.map_err(said("close"))?;
        self.kernel.close(self.look).await.map_err(said("close"))
    }

    /// Joins a group, or looks at what groups have written.
    pub(super) async fn turn(&mut self, random: &mut Random) -> Result<(), String> {
        if random.one_in(2) {
            let place = random.index(self.all * RECORDS);
            return match random.one_in(6) {
                true => self.touch().await,
                false => self.look_at(place, false).await,
            };
        }
        let gid = 1 + u64::from(random.one_in(4));
        match self.kernel.lock_group(self.file, gid).await {
            Ok(()) => lock(&self.teams).enters(gid)?,
            Err(Errno::EAGAIN) if self.how.nonblock => {
                lock(&self.teams).taken += 1;
                return Ok(());
            }
            Err(errno) => return Err(format!("group {gid}: {}", errno.name())),
        }
        for _ in 0..random.within(1, WRITES) {
            self.write(random).await?;
            self.read_as_member(random).await?;
        }
        if random.one_in(4) {
            self.kernel.fsync_file(self.file).await.map_err(said("fsync"))?;
        }
        lock(&self.teams).leaves(gid);
        if random.one_in(3) {
            // It goes with the close.
            self.kernel.close(self.file).await.map_err(said("close"))?;
            self.file = open(&self.kernel, self.how).await?;
            return Ok(());
        }
        self.kernel.unlock_group(self.file, gid).await.map_err(said("leaving"))
    }

    async fn write(&mut self, random: &mut Random) -> Result<(), String> {
        // Mine lie between those of others.
        let place = random.index(RECORDS) * self.all + self.me;
        let version = {
            let mut teams = lock(&self.teams);
            let versions = teams.versions.entry(place).or_default();
            versions.1 += 1;
            versions.1
        };
        let bytes = Bytes::from(record(place, version, RECORD_BYTES));
        let at = (place * RECORD_BYTES) as u64;
        let written = self.kernel.write(self.file, at, bytes).await;
        if written != Ok(RECORD_BYTES) {
            return Err(format!("write of record {place} of a group: {written:?}"));
        }
        let mut teams = lock(&self.teams);
        teams.written += 1;
        teams.versions.entry(place).or_default().0 = version;
        Ok(())
    }

    /// One's own is as one has written it, and others' not older than what was there before.
    async fn read_as_member(&mut self, random: &mut Random) -> Result<(), String> {
        let mine = random.one_in(2);
        let of = if mine { self.me } else { random.index(self.all) };
        let place = random.index(RECORDS) * self.all + of;
        let (low, _) = lock(&self.teams).versions(place);
        let at = (place * RECORD_BYTES) as u64;
        let got = self.kernel.read(self.file, at, RECORD_BYTES as u64).await;
        let got = got.map_err(said("read as a member"))?;
        let (_, high) = lock(&self.teams).versions(place);
        if mine && !got.is_empty() && got.len() < RECORD_BYTES
            || got.len() < RECORD_BYTES && low > 0
        {
            return Err(format!("record {place} ends after {} bytes for a member", got.len()));
        }
        // Another may be writing it: in two objects it is of two writes then.
        if !mine && high > low {
            return Ok(());
        }
        let version = version_of(place, &got)?;
        if version < low || version > high {
            return Err(format!(
                "a member finds version {version} of {place}, not {low} to {high}"
            ));
        }
        Ok(())
    }

    /// Sets times, as one who belongs to no group: for a kernel that is a change beside which nobody writes.
    async fn touch(&mut self) -> Result<(), String> {
        let set = SetAttr { mtime: Some(TimeSet::Now), ..SetAttr::default() };
        self.kernel.setattr(Fid::ROOT, NAME, set).await.map_err(said("touch"))?;
        lock(&self.teams).touched += 1;
        Ok(())
    }

    /// As one who belongs to no group; `is_over` when there is none any more.
    async fn look_at(&mut self, place: usize, is_over: bool) -> Result<(), String> {
        let (low, _) = lock(&self.teams).versions(place);
        let at = (place * RECORD_BYTES) as u64;
        // Page by page a kernel may read what was written in between.
        let page = (4096 - at % 4096) as usize;
        let len = if self.look.how.direct { RECORD_BYTES } else { RECORD_BYTES.min(page) };
        let apart = self.kernel.apart_from_groups(self.look.fid);
        let got = self.kernel.read(self.look, at, len as u64).await.map_err(said("read"))?;
        let apart = apart.is_some() && apart == self.kernel.apart_from_groups(self.look.fid);
        // What is begun now was not when it was read.
        let (high, begun) = lock(&self.teams).versions(place);
        lock(&self.teams).looked += 1;
        if !self.look.how.direct && !is_over || !apart && begun > low {
            // Members of this client may be writing it, or have been when the page was read.
            return match version_of(place, &got) {
                Ok(version) if version > begun => Err(format!("{version} of {place} is not begun")),
                Err(what) if low == begun => Err(what),
                _ => Ok(()),
            };
        }
        if got.len() < len && low > 0 {
            return Err(format!("record {place} of groups ends after {} bytes", got.len()));
        }
        if got.len() < 16 {
            return Ok(());
        }
        let version = version_of(place, &got)?;
        if version < low || version > high {
            return Err(format!("record {place} of groups has {version}, not {low} to {high}"));
        }
        Ok(())
    }

    /// After the work of all.
    pub(super) async fn look_at_all(&mut self) -> Result<(), String> {
        for place in 0..self.all * RECORDS {
            self.look_at(place, true).await?;
        }
        let end = lock(&self.teams).end();
        let size = self.kernel.getattr(self.look.fid).await.map_err(said("stat"))?.size;
        if size != end {
            return Err(format!("the file of groups has {size} bytes, not {end}"));
        }
        Ok(())
    }
}
