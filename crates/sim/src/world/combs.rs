//! Programs of all clients that write one file, each its own records as they get on: in turns, at a
//! distance, or each its own segment of the file, in which one record touches the next. That is what parts of
//! a file are for. Now and then one begins again from the front, writes what belongs to others, at another
//! distance, or looks at the file: then parts have to go.
//!
//! A record is judged as those that all programs write ([`super::registers`]), whether or not what was
//! answered is kept at the client: who reads finds it. Some records lie in two objects, and most in two pages.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sateen_client::OpenHow;
use sateen_types::{Errno, Fid, STRIPE_SIZE_MIN};

use super::WORKERS;
use super::contention::{record, version_of};
use super::registers::Registers;
use crate::executor::lock;
use crate::kernel::{Handle, Kernel};
use crate::random::Random;

/// From one record to the next.
const SPACING: usize = 1000;
/// Bytes of a record of who writes in turns. In a segment there are no gaps.
const IN_TURNS_BYTES: usize = 900;
/// Records of each program.
const RECORDS: usize = 60;
/// Most records that are written in one turn.
const TURN: u64 = 12;
/// Bytes of a kernel's pages.
const PAGE_BYTES: usize = 4096;
/// The name of the file.
pub(super) const NAME: &[u8] = b"comb";

/// What has happened to the file.
#[derive(Debug)]
pub(super) struct Combs {
    pub(super) registers: Registers,
    /// So many turns one does anything else than to write the next records.
    pub(super) else_one_in: u64,
    /// Bytes of a record: of all that there is for one in a segment.
    record_bytes: usize,
}

impl Combs {
    pub(super) fn new(strict: bool, random: &mut Random) -> Combs {
        let else_one_in = random.pick(&[3, 10, 40]).copied().unwrap_or(3);
        let record_bytes = if random.one_in(3) { SPACING } else { IN_TURNS_BYTES };
        Combs { registers: Registers::new(strict), else_one_in, record_bytes }
    }

    /// Records of segments that were written.
    pub(super) fn written_in_segments(&self) -> u64 {
        if self.record_bytes == SPACING { self.registers.written } else { 0 }
    }

    /// Where the file ends once all is written.
    pub(super) fn end(&self) -> u64 {
        self.ends().0
    }

    /// Between which ends it may end now.
    fn ends(&self) -> (u64, u64) {
        let (low, high) = self.registers.reach();
        (self.end_of(low), self.end_of(high))
    }

    fn end_of(&self, records: usize) -> u64 {
        records.checked_sub(1).map_or(0, |last| (last * SPACING + self.record_bytes) as u64)
    }
}

/// One of those who write it.
pub(super) struct Rower {
    kernel: Arc<Kernel>,
    combs: Arc<Mutex<Combs>>,
    /// Its number, and how many there are.
    me: usize,
    all: usize,
    record_bytes: usize,
    /// How many of its own records lie before the next one.
    next: usize,
    file: Handle,
    look: Handle,
}

fn said(what: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("{what}: {}", errno.name())
}

async fn open(kernel: &Kernel, how: OpenHow) -> Result<Handle, String> {
    kernel.open(Fid::ROOT, NAME, Some(0o600), how).await.map_err(said("open"))
}

/// For writing; every eighth has all written through.
fn writes(random: &mut Random) -> OpenHow {
    let sync = random.one_in(8);
    OpenHow { read: true, write: true, sync, ..OpenHow::default() }
}

impl Rower {
    pub(super) async fn new(
        kernel: &Arc<Kernel>,
        combs: &Arc<Mutex<Combs>>,
        (me, all): (usize, usize),
        random: &mut Random,
    ) -> Result<Rower, String> {
        let look = OpenHow { read: true, direct: random.one_in(2), ..OpenHow::default() };
        let file = open(kernel, writes(random)).await?;
        let look = open(kernel, look).await?;
        let record_bytes = lock(combs).record_bytes;
        let (kernel, combs) = (kernel.clone(), combs.clone());
        Ok(Rower { kernel, combs, me, all, record_bytes, next: 0, file, look })
    }

    pub(super) async fn close(self) -> Result<(), String> {
        self.kernel.close(self.file).await.map_err(said("close"))?;
        self.kernel.close(self.look).await.map_err(said("close"))
    }

    fn has_segment(&self) -> bool {
        self.record_bytes == SPACING
    }

    /// Which of all records is so many of its own behind its first.
    fn own(&self, number: usize) -> usize {
        if self.has_segment() { self.me * RECORDS + number } else { number * self.all + self.me }
    }

    /// Whose record it is.
    fn owner(&self, place: usize) -> usize {
        if self.has_segment() { place / RECORDS } else { place % self.all }
    }

    /// Gets on with its records, or does anything else.
    pub(super) async fn turn(&mut self, random: &mut Random) -> Result<(), String> {
        let else_one_in = lock(&self.combs).else_one_in;
        if !random.one_in(else_one_in) {
            for _ in 0..random.within(1, TURN) {
                self.write(self.own(self.next)).await?;
                self.next += 1;
                if self.next == RECORDS || random.one_in(200) {
                    self.next = 0;
                }
            }
            return Ok(());
        }
        let count = self.all * RECORDS;
        match random.below(8) {
            0..=1 => self.read(random.index(count), random.one_in(4)).await,
            // What it has written itself just now.
            2 => self.read(self.own(self.next.saturating_sub(1)), false).await,
            3 => self.stat().await,
            4 => self.kernel.fsync_file(self.file).await.map_err(said("fsync")),
            5 => {
                self.kernel.close(self.file).await.map_err(said("close"))?;
                self.file = open(&self.kernel, writes(random)).await?;
                Ok(())
            }
            6 => {
                let place = random.index(count);
                if self.may_write(place) { self.write(place).await } else { Ok(()) }
            }
            _ => {
                // Records of everybody in turn, or each second one of its own.
                let step = random.pick(&[self.all + 1, 2 * self.all, 3 * self.all]).copied();
                let (first, step) = (random.index(count / 2), step.unwrap_or(1));
                for place in (0..8).map(|at| first + at * step).filter(|place| *place < count) {
                    if self.may_write(place) {
                        self.write(place).await?;
                    }
                }
                Ok(())
            }
        }
    }

    fn is_split(&self, place: usize) -> bool {
        let stripe = |at: usize| at / STRIPE_SIZE_MIN as usize;
        stripe(place * SPACING) != stripe(place * SPACING + self.record_bytes - 1)
    }

    /// Who writes a record, by his number: whether he is on the same client.
    fn is_of_my_client(&self, place: usize) -> bool {
        let clients = self.all / WORKERS;
        self.owner(place) % clients == self.me % clients
    }

    /// A record in two objects is written by one program of each client: those of one client are not put
    /// in order there.
    fn may_write(&self, place: usize) -> bool {
        let (mine, first) = (self.owner(place) == self.me, self.me < self.all / WORKERS);
        mine || !self.is_split(place) || first && !self.is_of_my_client(place)
    }

    async fn write(&mut self, place: usize) -> Result<(), String> {
        let version = lock(&self.combs).registers.begin(place..place + 1);
        let bytes = Bytes::from(record(place, version, self.record_bytes));
        let at = (place * SPACING) as u64;
        let written = self.kernel.write(self.file, at, bytes).await;
        if written != Ok(self.record_bytes) {
            return Err(format!("write of record {place} of a comb: {written:?}"));
        }
        lock(&self.combs).registers.end(place..place + 1, version);
        Ok(())
    }

    async fn read(&mut self, place: usize, mapped: bool) -> Result<(), String> {
        let at = place * SPACING;
        // Page by page a kernel may read what was written in between.
        let page = PAGE_BYTES - at % PAGE_BYTES;
        let mapped = mapped || !self.look.how.direct;
        let len = if mapped { self.record_bytes.min(page) } else { self.record_bytes };
        if len < 16 || !mapped && !self.may_write(place) {
            return Ok(());
        }
        let (since, ends) = {
            let mut combs = lock(&self.combs);
            (combs.registers.look(), combs.registers.reach().0)
        };
        let (offset, len_) = (at as u64, len as u64);
        let got = match mapped && self.look.how.direct {
            true => self.kernel.read_mapped(self.look, offset, len_).await,
            false => self.kernel.read(self.look, offset, len_).await,
        };
        let mut got = got.map_err(said("read"))?;
        if got.len() < len && (!got.is_empty() || place < ends) {
            return Err(format!("record {place} of a comb ends after {} bytes", got.len()));
        }
        got.resize(len, 0);
        let version = version_of(place, &got)?;
        let found = lock(&self.combs).registers.found(place, version, since);
        found.map_err(|what| format!("of a comb {what}"))
    }

    async fn stat(&mut self) -> Result<(), String> {
        let low = lock(&self.combs).ends().0;
        let size = self.kernel.getattr(self.look.fid).await.map_err(said("stat"))?.size;
        let high = lock(&self.combs).ends().1;
        if size < low || size > high {
            return Err(format!("the file of combs has {size} bytes, not {low} to {high}"));
        }
        Ok(())
    }

    /// After the work of all.
    pub(super) async fn look_at_all(&mut self) -> Result<(), String> {
        self.stat().await?;
        for place in 0..self.all * RECORDS {
            self.read(place, false).await?;
        }
        Ok(())
    }
}
