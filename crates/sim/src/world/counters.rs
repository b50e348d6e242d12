//! Programs on both clients that count under locks of flock(2) and fcntl(2), and do nothing else:
//! whoever has a counter's lock reads it, adds one, and writes it. In the end each counter must be
//! what was counted, whatever became of messages and signals, and everybody must have had his turn.
//!
//! One file has counters under ranges; some programs lock two of them, in any order, and one of each
//! ring that comes of that must be told so. The other has one counter, under locks of flock(2),
//! which some share first. Nothing crashes; the network may be bad, which must not show.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sateen_client::OpenHow;
use sateen_types::{Errno, Fid};
use sateen_wire::{FileLock, FileLockMode};

use super::{Config, Event, Failure, WORKERS, World};
use crate::executor::lock;
use crate::file_locks::{Alarm, UNITS, range};
use crate::invariants;
use crate::kernel::{Handle, Kernel};
use crate::net::Weather;
use crate::random::Random;
use crate::report::Report;

/// A signal comes after as long: from here to there. Most locks are there before.
const ALARM_NS: (u64, u64) = (1_000_000, 2_000_000_000);
/// Bytes of a counter.
const COUNTER_BYTES: u64 = 8;

/// What has happened.
#[derive(Debug, Default)]
struct Counted {
    /// What the counters under ranges should be, and the one of the other file.
    ranges: [u64; UNITS as usize],
    flock: u64,
    /// Signals that are to come.
    alarms: Vec<Arc<Alarm>>,
    operations: u64,
    refused: u64,
    given_up: u64,
    deadlocks: u64,
    ended: usize,
    failure: Option<String>,
}

impl Counted {
    fn progress(&mut self) -> (usize, u64, Option<String>) {
        (self.ended, self.operations, self.failure.take())
    }
}

/// A program.
struct Program {
    kernel: Arc<Kernel>,
    counted: Arc<Mutex<Counted>>,
    random: Random,
    me: u64,
    ranges: Handle,
    flocked: Handle,
}

fn said(what: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("{what}: {}", errno.name())
}

async fn open(kernel: &Kernel, name: &[u8], me: u64) -> Result<Handle, String> {
    let how = OpenHow { read: true, write: true, ..OpenHow::default() };
    let opened = kernel.open(Fid::ROOT, name, Some(0o600), how).await.map_err(said("open"))?;
    Ok(Handle { owner: me, ..opened })
}

impl Program {
    async fn run(
        kernel: Arc<Kernel>,
        counted: Arc<Mutex<Counted>>,
        random: Random,
        me: u64,
        turns: u64,
    ) {
        let result = Program::work(kernel, counted.clone(), random, me, turns).await;
        let mut counted = lock(&counted);
        if let Err(what) = result {
            counted.failure.get_or_insert(format!("program {me}: {what}"));
        }
        counted.ended += 1;
    }

    async fn work(
        kernel: Arc<Kernel>,
        counted: Arc<Mutex<Counted>>,
        random: Random,
        me: u64,
        turns: u64,
    ) -> Result<(), String> {
        let ranges = open(&kernel, b"ranges", me).await?;
        let flocked = open(&kernel, b"flocked", me).await?;
        let mut program = Program { kernel, counted, random, me, ranges, flocked };
        for _ in 0..turns {
            match program.random.below(10) {
                0..=3 => program.count_one().await?,
                4..=6 => program.count_two().await?,
                _ => program.count_flocked().await?,
            }
            lock(&program.counted).operations += 1;
        }
        program.kernel.close(program.ranges).await.map_err(said("close"))?;
        program.kernel.close(program.flocked).await.map_err(said("close"))
    }

    /// A lock on a counter's range, or on all; of flock(2) it is the open's.
    fn lock(&self, unit: Option<u64>, mode: FileLockMode) -> FileLock {
        let (start, end) = unit.map_or(range(0, UNITS - 1), |unit| range(unit, unit));
        FileLock { owner: self.me, flock: false, mode, start, end, pid: 0 }
    }

    fn flock(&self, mode: FileLockMode) -> FileLock {
        let owner = 1 << 32 | self.flocked.id;
        FileLock { owner, flock: true, ..self.lock(None, mode) }
    }

    /// Takes a lock; whether it is there. Some only try, and some get a signal.
    async fn takes(&mut self, handle: Handle, lock_: FileLock) -> Result<bool, String> {
        let alarm = (!self.random.one_in(5)).then(Arc::<Alarm>::default);
        if let Some(alarm) = alarm.clone().filter(|_| self.random.one_in(3)) {
            lock(&self.counted).alarms.push(alarm);
        }
        let set = self.kernel.set_lock(handle, lock_, alarm.as_deref()).await;
        let mut counted = lock(&self.counted);
        match set {
            Ok(()) => return Ok(true),
            Err(Errno::EAGAIN) if alarm.is_none() => counted.refused += 1,
            Err(Errno::EINTR) if alarm.is_some_and(|alarm| alarm.has_rung()) => {
                counted.given_up += 1;
            }
            Err(Errno::EDEADLK) if !lock_.flock => counted.deadlocks += 1,
            Err(errno) => return Err(format!("{lock_:?}: {}", errno.name())),
        }
        Ok(false)
    }

    async fn gives_back(&mut self, handle: Handle, lock: FileLock) -> Result<(), String> {
        self.kernel.set_lock(handle, lock, None).await.map_err(said("unlock"))
    }

    async fn value(&self, handle: Handle, unit: u64) -> Result<u64, String> {
        let got = self.kernel.read(handle, range(unit, unit).0, COUNTER_BYTES).await;
        let mut bytes = got.map_err(said("read"))?;
        bytes.resize(COUNTER_BYTES as usize, 0);
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    async fn adds_one(&self, handle: Handle, unit: u64) -> Result<(), String> {
        let value = self.value(handle, unit).await? + 1;
        let bytes = Bytes::from(value.to_le_bytes().to_vec());
        let written = self.kernel.write(handle, range(unit, unit).0, bytes).await;
        if written == Ok(COUNTER_BYTES as usize) { Ok(()) } else { Err(format!("{written:?}")) }
    }

    async fn counts(&mut self, unit: u64) -> Result<(), String> {
        self.adds_one(self.ranges, unit).await?;
        if let Some(count) = lock(&self.counted).ranges.get_mut(unit as usize) {
            *count += 1;
        }
        Ok(())
    }

    async fn count_one(&mut self) -> Result<(), String> {
        let unit = self.random.below(UNITS);
        if self.random.one_in(4) {
            // Nobody counts while somebody reads.
            if self.takes(self.ranges, self.lock(Some(unit), FileLockMode::Read)).await? {
                let first = self.value(self.ranges, unit).await?;
                if self.value(self.ranges, unit).await? != first {
                    return Err(format!("counter {unit} was changed while it was locked"));
                }
            }
        }
        if self.takes(self.ranges, self.lock(Some(unit), FileLockMode::Write)).await? {
            self.counts(unit).await?;
        }
        if self.random.one_in(6) {
            // Any close of the file gives all back.
            let again = open(&self.kernel, b"ranges", self.me).await?;
            let closed = core::mem::replace(&mut self.ranges, again);
            return self.kernel.close(closed).await.map_err(said("close"));
        }
        self.gives_back(self.ranges, self.lock(None, FileLockMode::Unlock)).await
    }

    async fn count_two(&mut self) -> Result<(), String> {
        let units = [self.random.below(UNITS), self.random.below(UNITS)];
        let mut there = true;
        for unit in units {
            there = there
                && self.takes(self.ranges, self.lock(Some(unit), FileLockMode::Write)).await?;
        }
        if there {
            for unit in units {
                self.counts(unit).await?;
            }
        }
        self.gives_back(self.ranges, self.lock(None, FileLockMode::Unlock)).await
    }

    async fn count_flocked(&mut self) -> Result<(), String> {
        if self.random.one_in(3) {
            self.takes(self.flocked, self.flock(FileLockMode::Read)).await?;
        }
        if self.takes(self.flocked, self.flock(FileLockMode::Write)).await? {
            self.adds_one(self.flocked, 0).await?;
            lock(&self.counted).flock += 1;
        }
        if self.random.one_in(6) {
            let again = open(&self.kernel, b"flocked", self.me).await?;
            let closed = core::mem::replace(&mut self.flocked, again);
            return self.kernel.close(closed).await.map_err(said("close"));
        }
        self.gives_back(self.flocked, self.flock(FileLockMode::Unlock)).await
    }

    /// After the work of all.
    async fn look(kernel: Arc<Kernel>, counted: Arc<Mutex<Counted>>) {
        let found = Program::look_at_all(kernel, counted.clone()).await;
        let mut counted = lock(&counted);
        if let Err(what) = found {
            counted.failure.get_or_insert(format!("at the end: {what}"));
        }
        counted.ended += 1;
    }

    async fn look_at_all(kernel: Arc<Kernel>, counted: Arc<Mutex<Counted>>) -> Result<(), String> {
        let ranges = open(&kernel, b"ranges", 0).await?;
        let flocked = open(&kernel, b"flocked", 0).await?;
        let (right, flock) = {
            let counted = lock(&counted);
            (counted.ranges, counted.flock)
        };
        let random = Random::new(0);
        let program = Program { kernel, counted, random, me: 0, ranges, flocked };
        for (unit, count) in (0..).zip(right) {
            let value = program.value(ranges, unit).await?;
            if value != count {
                return Err(format!("counter {unit} is {value}, not {count}"));
            }
        }
        let value = program.value(flocked, 0).await?;
        if value != flock {
            return Err(format!("the counter under flock is {value}, not {flock}"));
        }
        for handle in [ranges, flocked] {
            program.kernel.close(handle).await.map_err(said("close"))?;
        }
        Ok(())
    }
}

impl World {
    /// Runs one seed of programs that count under locks: `operations` by all together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn run_file_locks(config: Config) -> Result<Report, Box<Failure>> {
        let turns = config.operations / 9 * 10;
        World::run_programs(config, |world| world.count_under_locks(turns))
    }

    fn count_under_locks(&mut self, turns: u64) {
        let all = self.nodes.len() * WORKERS;
        let counted = Arc::new(Mutex::new(Counted::default()));
        for me in 0..all {
            let Some(node) = self.nodes.get(me % self.nodes.len()) else { continue };
            let (kernel, owner) = (node.kernel.clone(), node.id.0);
            let random = Random::new(self.random.any());
            let (counted, me) = (counted.clone(), me as u64 + 1);
            let program = Program::run(kernel, counted, random, me, turns / all as u64);
            self.executor.spawn(owner, Box::pin(program));
        }
        self.until_ended(all, |world| {
            let (alarms, progress) = {
                let mut counted = lock(&counted);
                (core::mem::take(&mut counted.alarms), counted.progress())
            };
            for alarm in alarms {
                let after = world.random.within(ALARM_NS.0, ALARM_NS.1);
                world.after(after, Event::Alarm(alarm));
            }
            progress
        });
        self.network.weather = Weather::default();
        let Some(node) = self.nodes.first() else { return };
        let (kernel, owner) = (node.kernel.clone(), node.id.0);
        self.executor.spawn(owner, Box::pin(Program::look(kernel, counted.clone())));
        self.until_ended(all + 1, |_| lock(&counted).progress());
        if let Err(what) = invariants::check_always(&mut self.hosts) {
            self.fail(what);
        }
        let counted = lock(&counted);
        self.report.operations = counted.operations;
        let told = self.report.traffic.sent_of("callback FileLockTurn");
        for (kind, count) in [
            ("counted under a range", counted.ranges.iter().sum()),
            ("counted under flock", counted.flock),
            ("lock refused", counted.refused),
            ("wait for a lock given up", counted.given_up),
            ("deadlock found", counted.deadlocks),
            ("told that it is its turn", told),
        ] {
            self.report.count(kind, count);
        }
        let evicted = self.report.get("client evicted");
        if evicted > 0 {
            self.fail(format!("{evicted} clients were evicted"));
        }
    }
}
