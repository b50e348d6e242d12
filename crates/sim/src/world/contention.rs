//! Programs on both clients that share two files, all at once: what the programs of the main
//! world, each alone with the inode that it changes, never do.
//!
//! The first file consists of records; each belongs to one program, which writes it with
//! rising versions. Records are smaller than pages, so that clients share pages, too. Whoever
//! reads a record must find a version that was complete before it began or that was begun
//! before it ended. To the second file all append records, each of which must be there once,
//! and whole. The third consists of few records that all programs write, at times two at once,
//! through opens for writing alone: a record is never of two writes, also where it lies in two
//! objects ([`super::registers`]). They read through the kernel's pages or past them, as the file is
//! open, and where they read past them also through mappings. Of two more groups have the data
//! ([`super::teams`]), and those who write in turns ([`super::combs`]). Nothing crashes; the network may be bad, which must not show.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sateen_client::OpenHow;
use sateen_mdt::Parts;
use sateen_types::{Endpoint, Errno, Fid, Result as Answer, STRIPE_SIZE_MIN};

use super::combs::{self, Combs, Rower};
use super::registers::Registers;
use super::teams::{self, Teammate, Teams};
use super::{Config, Failure, HANG_NS, WORKERS, World};
use crate::executor::lock;
use crate::invariants::{Records, proven_size};
use crate::kernel::{Handle, Kernel};
use crate::net::Weather;
use crate::random::Random;
use crate::report::Report;

/// Records of each program.
const RECORDS: usize = 24;
/// Bytes from one record to the next.
const SPACING: u64 = 1024;
/// Bytes of a record.
const RECORD_BYTES: usize = 1000;
/// Bytes of what is appended.
const APPENDED_BYTES: usize = 700;
/// Records that all write, and their bytes: some lie in two objects.
const MANY: usize = 30;
const MANY_BYTES: usize = 3000;
/// Bytes of a kernel's pages.
const PAGE_BYTES: usize = 4096;
/// Those that are written lie around the first end of a stripe.
const MANY_FIRST: usize = 18;
/// The one that lies in two objects.
const MANY_SPLIT: usize = STRIPE_SIZE_MIN as usize / MANY_BYTES;
/// Faults that 2000 turns on a bad network must have met.
const FAULTS_MIN: u64 = 30;
/// Between two changes of the weather: 300 ms.
const WEATHER_NS: u64 = 300_000_000;
/// So many turns one has to do with groups.
const TURNS_PER_GROUP: u64 = 9;
/// And with what is written in turns.
const TURNS_PER_COMB: u64 = 6;

/// What has happened to the files.
#[derive(Debug, Default)]
struct Shared {
    /// Of each record: the last version that is complete, and the last that was begun.
    versions: Vec<(u64, u64)>,
    /// Records that are appended, and those whose append was begun.
    appended: u64,
    appending: u64,
    registers: Registers,
    operations: u64,
    written: u64,
    read: u64,
    mapped: u64,
    ended: usize,
    failure: Option<String>,
}

impl Shared {
    fn progress(&mut self) -> (usize, u64, Option<String>) {
        (self.ended, self.operations, self.failure.take())
    }

    /// Between which ends the file may end now.
    fn sizes(&self) -> (u64, u64) {
        let end = |written: fn(&(u64, u64)) -> bool| {
            let last = self.versions.iter().rposition(written);
            last.map_or(0, |place| place as u64 * SPACING + RECORD_BYTES as u64)
        };
        (end(|versions| versions.0 > 0), end(|versions| versions.1 > 0))
    }
}

/// How many shared locks all runs of the MDT have granted, and those for reading alone; and parts, how
/// often these had to go for what somebody asked for, and how often a range was cut instead.
#[derive(Debug, Default)]
struct Sharing {
    granted: [u64; 5],
    last: [u64; 5],
}

impl Sharing {
    fn look(&mut self, world: &mut World) {
        let mdt = world.hosts.get_mut(&Endpoint::Mdt(0)).and_then(|host| host.mdt());
        let now = mdt.map_or([0; 5], |mdt| {
            let Parts { granted, broken, cut } = mdt.parts();
            [mdt.shared_locks(), mdt.shared_read_locks(), granted, broken, cut]
        });
        for ((granted, last), now) in self.granted.iter_mut().zip(&mut self.last).zip(now) {
            *granted += now.saturating_sub(*last);
            *last = now;
        }
    }
}

/// The bytes of a record: each tells of its place and version.
pub(super) fn record(place: usize, version: u64, len: usize) -> Vec<u8> {
    let words = [place as u64 + 1, version];
    let pattern: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    pattern.iter().copied().cycle().take(len).collect()
}

/// The version that a record's bytes tell; 0 if nothing was written there.
pub(super) fn version_of(place: usize, bytes: &[u8]) -> Result<u64, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let version = bytes.get(8..16).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    match version {
        Some(version) if record(place, version, bytes.len()) == bytes => Ok(version),
        _ => Err(format!("record {place} is of no single version")),
    }
}

fn how(write: bool, append: bool) -> OpenHow {
    OpenHow { read: true, write, append, ..OpenHow::default() }
}

/// For reading past the kernel's pages.
fn past_pages() -> OpenHow {
    OpenHow { direct: true, ..how(false, false) }
}

/// A program.
struct Program {
    kernel: Arc<Kernel>,
    shared: Arc<Mutex<Shared>>,
    teams: Arc<Mutex<Teams>>,
    combs: Arc<Mutex<Combs>>,
    random: Random,
    /// Its number, and how many there are.
    me: usize,
    all: usize,
    /// The kernel is given files.
    given: bool,
}

impl Program {
    async fn run(mut self, turns: u64) {
        if let Err(what) = self.work(turns).await {
            let mut shared = lock(&self.shared);
            shared.failure.get_or_insert(format!("program {}: {what}", self.me));
        }
        lock(&self.shared).ended += 1;
    }

    async fn work(&mut self, turns: u64) -> Result<(), String> {
        let said = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.name());
        // On one client most only read, so that its kernel keeps pages.
        let writes = if self.me.is_multiple_of(2) { 600 } else { 30 };
        let mut hot = self.open_hot(writes).await.map_err(said("open"))?;
        let log = match self.given {
            true => None,
            false => Some(self.open(b"log", how(true, true)).await.map_err(said("open"))?),
        };
        // At times all do nothing else, or nothing would stay shared for long.
        let busy = self.random.permille(400);
        let only_writes = OpenHow { write: true, ..OpenHow::default() };
        let many = self.open(b"many", only_writes).await.map_err(said("open"))?;
        let looks = [how(true, false), how(false, false), past_pages()];
        let look = self.random.pick(&looks).copied().unwrap_or_default();
        let look = self.open(b"many", look).await.map_err(said("open"))?;
        let mut team = self.team().await?;
        let mut rower = self.rower().await?;
        for _ in 0..turns {
            if let Some(team) = &mut team
                && self.random.one_in(TURNS_PER_GROUP)
            {
                team.turn(&mut self.random).await?;
                lock(&self.shared).operations += 1;
                continue;
            }
            if let Some(rower) = &mut rower
                && self.random.one_in(TURNS_PER_COMB)
            {
                // On top: of all else there is as much as without.
                rower.turn(&mut self.random).await?;
            }
            match self.random.below(100) {
                0..=59 if self.given => self.append_anew().await?,
                0..=79 if busy => self.write_many(many).await?,
                0..=11 => self.write_many(many).await?,
                12..=14 => {
                    let place = self.one_of_many();
                    self.read_many(look, place).await?;
                }
                15 => self.stat_many(look.fid).await?,
                16 => self.kernel.fsync_file(many).await.map_err(said("fsync"))?,
                17..=39 if hot.how.write => self.write(hot).await?,
                40..=69 => {
                    let place = self.random.index(self.all * RECORDS);
                    self.read(hot, place).await?;
                }
                70..=79 => self.stat(hot.fid).await?,
                80..=84 => self.kernel.fsync_file(hot).await.map_err(said("fsync"))?,
                85..=93 => match log {
                    Some(log) if self.random.one_in(9) => {
                        self.kernel.fsync_file(log).await.map_err(said("fsync"))?;
                    }
                    Some(log) => self.append(log).await?,
                    None => self.append_anew().await?,
                },
                _ => {
                    self.kernel.close(hot).await.map_err(said("close"))?;
                    hot = self.open_hot(writes).await.map_err(said("open"))?;
                }
            }
            lock(&self.shared).operations += 1;
        }
        if let Some(team) = team {
            team.close().await?;
        }
        if let Some(rower) = rower {
            rower.close().await?;
        }
        self.kernel.close(many).await.map_err(said("close"))?;
        self.kernel.close(look).await.map_err(said("close"))?;
        self.kernel.close(hot).await.map_err(said("close"))?;
        let Some(log) = log else { return Ok(()) };
        self.kernel.close(log).await.map_err(said("close"))
    }

    /// Of files that the kernel has nobody has a group lock.
    async fn team(&mut self) -> Result<Option<Teammate>, String> {
        if self.given {
            return Ok(None);
        }
        let who = (self.me, self.all);
        Teammate::new(&self.kernel, &self.teams, who, &mut self.random).await.map(Some)
    }

    /// Nor parts.
    async fn rower(&mut self) -> Result<Option<Rower>, String> {
        if self.given {
            return Ok(None);
        }
        let who = (self.me, self.all);
        Rower::new(&self.kernel, &self.combs, who, &mut self.random).await.map(Some)
    }

    /// Of each client one program alone has to do with records that lie in two objects: those of one
    /// mount are not put in order there.
    fn keeps_off(&self, places: &core::ops::Range<usize>) -> bool {
        let stripe = |at: usize| at / STRIPE_SIZE_MIN as usize;
        let first = stripe(places.start * MANY_BYTES);
        self.me >= self.all / WORKERS && stripe(places.end * MANY_BYTES - 1) > first
    }

    /// Those few have to do with it every other time.
    fn one_of_many(&mut self) -> usize {
        if self.me < self.all / WORKERS && self.random.one_in(2) {
            return MANY_SPLIT;
        }
        MANY_FIRST + self.random.index(MANY - MANY_FIRST)
    }

    async fn write_many(&mut self, many: Handle) -> Result<(), String> {
        let first = self.one_of_many();
        let places = first..MANY.min(first + 1 + usize::from(self.random.one_in(4)));
        if self.keeps_off(&places) {
            return Ok(());
        }
        let version = lock(&self.shared).registers.begin(places.clone());
        let bytes: Vec<u8> =
            places.clone().flat_map(|place| record(place, version, MANY_BYTES)).collect();
        let len = bytes.len();
        let offset = (first * MANY_BYTES) as u64;
        let written = self.kernel.write(many, offset, Bytes::from(bytes)).await;
        if written != Ok(len) {
            return Err(format!("write of record {first} of many: {written:?}"));
        }
        lock(&self.shared).registers.end(places, version);
        Ok(())
    }

    async fn read_many(&mut self, look: Handle, place: usize) -> Result<(), String> {
        let offset = place * MANY_BYTES;
        // Page by page a kernel may read what was written in between: of what it caches the part in
        // one page is looked at.
        let page = PAGE_BYTES - offset % PAGE_BYTES;
        let way = self.random.below(12);
        self.kernel.walk_to(look, way, (offset as u64, MANY_BYTES as u64)).await;
        let mapped = !look.how.direct || self.random.one_in(4);
        let len = if mapped { MANY_BYTES.min(page) } else { MANY_BYTES };
        if len < 16 || !mapped && self.keeps_off(&(place..place + 1)) {
            return Ok(());
        }
        let (since, ends) = {
            let mut shared = lock(&self.shared);
            (shared.registers.look(), shared.registers.reach().0)
        };
        let got = self.read_bytes(look, mapped, (offset as u64, len as u64)).await;
        let mut got = got.map_err(|errno| format!("read: {}", errno.name()))?;
        if got.len() < len && (!got.is_empty() || place < ends) {
            return Err(format!("record {place} of many ends after {} bytes", got.len()));
        }
        got.resize(len, 0);
        let version = version_of(place, &got)?;
        lock(&self.shared).registers.found(place, version, since)
    }

    async fn stat_many(&mut self, fid: Fid) -> Result<(), String> {
        let (low, _) = lock(&self.shared).registers.reach();
        let attr = self.kernel.getattr(fid).await;
        let size = attr.map_err(|errno| format!("stat: {}", errno.name()))?.size as usize;
        let (_, high) = lock(&self.shared).registers.reach();
        if size < low * MANY_BYTES || size > high * MANY_BYTES {
            return Err(format!("many has {size} bytes, not {low} to {high} records"));
        }
        Ok(())
    }

    /// For writing so often, or for reading through the kernel's pages, or past them.
    async fn open_hot(&mut self, writes: u64) -> Answer<Handle> {
        let how = match (self.random.permille(writes), self.random.one_in(2)) {
            (false, true) => past_pages(),
            (write, _) => how(write, false),
        };
        self.open(b"hot", how).await
    }

    /// Through a mapping, or as the file is open.
    async fn read_bytes(
        &self,
        handle: Handle,
        mapped: bool,
        (offset, len): (u64, u64),
    ) -> Answer<Vec<u8>> {
        if !mapped || !handle.how.direct {
            return self.kernel.read(handle, offset, len).await;
        }
        lock(&self.shared).mapped += 1;
        self.kernel.read_mapped(handle, offset, len).await
    }

    async fn open(&self, name: &[u8], how: OpenHow) -> Answer<Handle> {
        self.kernel.open(Fid::ROOT, name, Some(0o600), how).await
    }

    async fn write(&mut self, hot: Handle) -> Result<(), String> {
        // Mine lie between those of others.
        let place = self.random.index(RECORDS) * self.all + self.me;
        let version = {
            let mut shared = lock(&self.shared);
            let versions = shared.versions.get_mut(place).ok_or("no such record")?;
            versions.1 += 1;
            versions.1
        };
        let bytes = Bytes::from(record(place, version, RECORD_BYTES));
        let written = self.kernel.write(hot, place as u64 * SPACING, bytes).await;
        if written != Ok(RECORD_BYTES) {
            return Err(format!("write of record {place}: {written:?}"));
        }
        let mut shared = lock(&self.shared);
        shared.written += 1;
        if let Some(versions) = shared.versions.get_mut(place) {
            versions.0 = version;
        }
        Ok(())
    }

    async fn read(&mut self, hot: Handle, place: usize) -> Result<(), String> {
        let versions =
            |shared: &Shared| shared.versions.get(place).copied().ok_or("no such record");
        let range = (place as u64 * SPACING, RECORD_BYTES as u64);
        let way = self.random.below(12);
        self.kernel.walk_to(hot, way, range).await;
        let (low, _) = versions(&lock(&self.shared))?;
        // Also a hole has its bytes.
        let is_within = range.0 + range.1 <= lock(&self.shared).sizes().0;
        let mapped = self.random.one_in(4);
        let got = self.read_bytes(hot, mapped, range).await;
        let got = got.map_err(|errno| format!("read: {}", errno.name()))?;
        let (_, high) = versions(&lock(&self.shared))?;
        if got.len() < RECORD_BYTES && is_within {
            return Err(format!("record {place} ends after {} bytes", got.len()));
        }
        let version = version_of(place, &got)?;
        if version < low || version > high {
            return Err(format!("record {place} has version {version}, not {low} to {high}"));
        }
        lock(&self.shared).read += 1;
        Ok(())
    }

    async fn stat(&mut self, fid: Fid) -> Result<(), String> {
        let (low, _) = lock(&self.shared).sizes();
        let attr = self.kernel.getattr(fid).await;
        let size = attr.map_err(|errno| format!("stat: {}", errno.name()))?.size;
        let (_, high) = lock(&self.shared).sizes();
        if size < low || size > high {
            return Err(format!("{size} bytes, not {low} to {high}"));
        }
        Ok(())
    }

    async fn append(&mut self, log: Handle) -> Result<(), String> {
        let number = {
            let mut shared = lock(&self.shared);
            shared.appending += 1;
            shared.appending
        };
        let bytes = Bytes::from(record(0, number, APPENDED_BYTES));
        let written = self.kernel.write(log, 0, bytes).await;
        if written != Ok(APPENDED_BYTES) {
            return Err(format!("append: {written:?}"));
        }
        lock(&self.shared).appended += 1;
        Ok(())
    }

    /// Opens the file for that alone, in any way, or looks at how long it is.
    async fn append_anew(&mut self) -> Result<(), String> {
        let said = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.name());
        let (appends, direct) = (!self.random.one_in(4), self.random.one_in(4));
        let sync = appends && self.random.one_in(8);
        let how = OpenHow { direct, sync, ..how(appends, appends) };
        let log = self.open(b"log", how).await.map_err(said("open"))?;
        for _ in 0..self.random.below(3) * u64::from(appends) {
            self.append(log).await?;
        }
        if self.random.one_in(3) {
            let low = lock(&self.shared).appended * APPENDED_BYTES as u64;
            let size = self.kernel.getattr(log.fid).await.map_err(said("stat"))?.size;
            let high = lock(&self.shared).appending * APPENDED_BYTES as u64;
            if size < low || size > high {
                return Err(format!("log has {size} bytes, not {low} to {high}"));
            }
        }
        self.kernel.close(log).await.map_err(said("close"))
    }

    /// After the work of all: what there is now is exactly what was written.
    async fn look(mut self) {
        let result = self.look_at_all().await;
        let mut shared = lock(&self.shared);
        if let Err(what) = result {
            shared.failure.get_or_insert(format!("at the end: {what}"));
        }
        shared.ended += 1;
    }

    async fn look_at_all(&mut self) -> Result<(), String> {
        let said = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.name());
        let hot = self.open(b"hot", how(false, false)).await.map_err(said("open"))?;
        self.stat(hot.fid).await?;
        for place in 0..self.all * RECORDS {
            self.read(hot, place).await?;
        }
        self.kernel.close(hot).await.map_err(said("close"))?;
        let many = self.open(b"many", how(true, false)).await.map_err(said("open"))?;
        self.stat_many(many.fid).await?;
        for place in 0..MANY {
            self.read_many(many, place).await?;
        }
        self.kernel.close(many).await.map_err(said("close"))?;
        if let Some(mut team) = self.team().await? {
            team.look_at_all().await?;
            team.close().await?;
        }
        if let Some(mut rower) = self.rower().await? {
            rower.look_at_all().await?;
            rower.close().await?;
        }
        let log = self.open(b"log", how(false, false)).await.map_err(said("open"))?;
        let count = lock(&self.shared).appended;
        let mut seen = BTreeSet::new();
        for at in 0..=count {
            let len = APPENDED_BYTES as u64;
            let got = self.kernel.read(log, at * len, len).await.map_err(said("read"))?;
            if got.is_empty() && at == count {
                break;
            }
            let number = version_of(0, &got)?;
            if got.len() != APPENDED_BYTES || number == 0 || !seen.insert(number) {
                return Err(format!("appended record {at} of {count} is {number}"));
            }
        }
        self.kernel.close(log).await.map_err(said("close"))
    }
}

impl World {
    /// Runs one seed of contention: `operations` by all programs together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn run_contention(config: Config) -> Result<Report, Box<Failure>> {
        // Not every turn is an operation that comes to its end.
        let turns = config.operations / 9 * 10;
        World::run_programs(config, |world| world.contend(turns))
    }

    /// Runs one seed of programs that do nothing else, and `work` has do something.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn run_programs(
        config: Config,
        work: impl FnOnce(&mut World),
    ) -> Result<Report, Box<Failure>> {
        let turns = config.operations;
        // No other work than this.
        let mut world = World::new(Config { operations: 0, crashes: false, ..config });
        world.start();
        world.network.is_ordered = world.random.one_in(2);
        // Each kind meets each fault in the full world; here that would lose the same few again
        // and again.
        world.network.is_seeking = false;
        work(&mut world);
        world.report.virtual_ns = world.now_ns;
        // A run that did too little proves nothing.
        let (done, faults) = (world.report.operations, world.report.faults());
        if done < turns {
            world.fail(format!("only {done} operations"));
        } else if config.network_faults && faults < FAULTS_MIN * turns / 2000 {
            world.fail(format!("only {faults} faults"));
        }
        match world.failure.take() {
            None => Ok(world.report),
            Some(what) => Err(Box::new(Failure {
                what,
                trace: world.trace.into_iter().collect(),
                report: world.report,
            })),
        }
    }

    fn contend(&mut self, turns: u64) {
        let all = self.nodes.len() * WORKERS;
        let shared = Arc::new(Mutex::new(Shared {
            versions: vec![(0, 0); all * RECORDS],
            registers: Registers::new(!self.config.network_faults),
            ..Shared::default()
        }));
        let teams = Arc::<Mutex<Teams>>::default();
        let strict = !self.config.network_faults;
        let combs = Arc::new(Mutex::new(Combs::new(strict, &mut self.random)));
        let program = |world: &mut World, me: usize| {
            let node = world.nodes.get(me % world.nodes.len())?;
            let (kernel, owner) = (node.kernel.clone(), node.id.0);
            let (random, given) = (Random::new(world.random.any()), world.config.given);
            let (shared, teams, combs) = (shared.clone(), teams.clone(), combs.clone());
            Some((owner, Program { kernel, shared, teams, combs, random, me, all, given }))
        };
        for me in 0..all {
            if let Some((owner, program)) = program(self, me) {
                self.executor.spawn(owner, Box::pin(program.run(turns / all as u64)));
            }
        }
        let mut sharing = Sharing::default();
        self.until_ended(all, |world| {
            sharing.look(world);
            lock(&shared).progress()
        });
        self.network.weather = Weather::default();
        for me in 0..self.nodes.len() {
            if let Some((owner, program)) = program(self, me) {
                self.executor.spawn(owner, Box::pin(program.look()));
            }
        }
        self.until_ended(all + self.nodes.len(), |_| lock(&shared).progress());
        let closed = shared.clone();
        self.end_kept_sessions(move || lock(&closed).ended += 1);
        self.until_ended(all + 2 * self.nodes.len(), |_| lock(&shared).progress());
        self.until_sessions_end();
        let shared = lock(&shared);
        let log = shared.appended * APPENDED_BYTES as u64;
        let many = (shared.registers.reach().0 * MANY_BYTES) as u64;
        self.sizes_are(&[(b"hot", shared.sizes().0), (b"log", log), (b"many", many)]);
        let (teams, combs) = (lock(&teams), lock(&combs));
        if !self.config.given {
            self.sizes_are(&[(teams::NAME, teams.end()), (combs::NAME, combs.end())]);
        }
        self.report.operations = shared.operations;
        let hits = self.nodes.iter().map(|node| node.kernel.hits()).sum();
        let [shared_locks, of_readers, parts, broken, cut] = sharing.granted;
        let kept = self.nodes.iter().map(|node| node.client.census().kept_in_parts).sum();
        let ahead = self.nodes.iter().map(|node| node.client.read_ahead_stats().hits).sum();
        let again = self.nodes.iter().map(|node| node.client.clean_stats().hits).sum();
        let called_back = self.report.traffic.sent_of("callback Blocking");
        for (kind, count) in [
            ("record written", shared.written),
            ("record read", shared.read),
            ("record appended", shared.appended),
            ("record of many written", shared.registers.written),
            ("record of many read", shared.registers.read),
            ("record read through a mapping", shared.mapped),
            ("shared lock granted", shared_locks),
            ("shared lock for reading granted", of_readers),
            ("answer from a kernel cache", hits),
            ("page read ahead", ahead),
            ("read again of what stays", again),
            ("lock called back", called_back),
            ("group joined", teams.joined),
            ("group not waited for", teams.taken),
            ("record of a group written", teams.written),
            ("record of a group looked at", teams.looked),
            ("file of groups touched", teams.touched),
            ("record of a comb written", combs.registers.written),
            ("record of a segment written", combs.written_in_segments()),
            ("record of a comb read", combs.registers.read),
            ("part granted", parts),
            ("part broken", broken),
            ("range cut", cut),
            ("write kept in a part", kept),
        ] {
            self.report.count(kind, count);
        }
        let given = self.nodes.iter().flat_map(|node| node.kernel.counts());
        for (kind, count) in given.collect::<Vec<_>>() {
            self.report.count(kind, count);
        }
    }

    /// Goes on until so many programs have ended. `look` tells how many have, what has been done,
    /// and what is wrong.
    pub(super) fn until_ended(
        &mut self,
        programs: usize,
        mut look: impl FnMut(&mut World) -> (usize, u64, Option<String>),
    ) {
        let mut weather_ns = self.now_ns;
        let mut progress = (0, self.now_ns);
        loop {
            let (ended, operations, failure) = look(self);
            if let Some(what) = failure {
                return self.fail(what);
            }
            if ended >= programs {
                return;
            }
            if self.config.network_faults && self.now_ns >= weather_ns {
                weather_ns = self.now_ns + WEATHER_NS;
                let bad = self.random.one_in(2);
                let mut up_to = |most| if bad { self.random.below(most) } else { 0 };
                // Who loses four messages of a request in a row, which is sent again after 1, 2, 4
                // and 8 s, may be late with a lock: that must not happen by chance.
                self.network.weather =
                    Weather { drop: up_to(30), duplicate: up_to(100), delay: up_to(100) };
            }
            if self.config.network_faults {
                self.maybe_break(operations);
            }
            if self.config.network_faults && ended == 0 {
                self.maybe_stop(operations, true);
            }
            if operations > progress.0 {
                progress = (operations, self.now_ns);
                self.report.mix(&operations.to_le_bytes());
                self.report.mix(&self.now_ns.to_le_bytes());
            }
            if self.now_ns > progress.1 + HANG_NS {
                return self.fail(format!("no program gets on{}", self.kernels_wait()));
            }
            if !self.step() {
                return;
            }
        }
    }

    /// What the MDT says of sizes once nobody has the files open. A start does not know what was written
    /// in a session that goes on: if nobody who closes after it has anything to tell, the size stays to
    /// be asked for, and whoever asks has to find the right one.
    fn sizes_are(&mut self, right: &[(&[u8], u64)]) {
        let restarted = self.report.get("orderly restart of MDT0000") > 0;
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        let records = Records::of(host);
        for (name, size) in right {
            let fid = records.entries.get(&(Fid::ROOT, name.to_vec())).map(|(fid, _)| fid);
            let attr = fid.and_then(|fid| records.inodes.get(fid)).map(|record| record.attr);
            let known = attr.and_then(|attr| match attr.size_stale {
                false => Some(attr.size),
                true if restarted => {
                    self.report.count("size left to be asked for", 1);
                    Some(attr.size.max(proven_size(&records, &self.hosts, attr.fid)))
                }
                true => None,
            });
            if known != Some(*size) && self.failure.is_none() {
                let name = String::from_utf8_lossy(name);
                self.failure = Some(format!("{name} has {known:?} bytes, not {size}"));
            }
        }
    }
}
