//! A run: for each repetition the files are written, checked, read and removed, each phase by
//! all ranks together.
//!
//! A phase is: all meet; each opens, makes its transfers and closes; all tell what they
//! measured. Whatever ends a run early, each rank that still can removes what the run has made.

use std::io;
use std::path::Path;

use super::files::{Files, Reader};
use super::options::Ior;
use super::order::{Order, Plan};
use super::outcome::Outcome;
use super::report::{About, Kind, Report, Row};
use super::results::{Measured, Point};
use super::transfer::{Access, Limits, Moved, Transfer};
use crate::clock::Clock;
use crate::comm::{Communicator, Nodes, Reduce};
use crate::engine::buffer::Buffer;
use crate::engine::shown::Room;
use crate::engine::{self, Api, Setting, kept, pause};
use crate::error::{Error, Result};
use crate::guard::{self, Guard, Mine, Placement, Reading, ToCome, ToRead};
use crate::io::{FileInterface, Open};
use crate::pattern::Pattern;
use crate::progress::{Series, Stage};
use crate::size::GIB;
use crate::stats::Latencies;
use crate::when;

/// Parts of a file of all that are looked for in memory before it is read; the sample is enough.
const PARTS_LOOKED_MAX: u64 = 1024;

/// Runs a test; what it has measured.
pub(super) fn run<I: FileInterface>(
    test: &Ior,
    io: &I,
    comm: &dyn Communicator,
    setting: &Setting,
) -> Result<Outcome> {
    let mut nodes = Nodes::find(comm)?;
    let clock = Clock::agree(comm, nodes.count)?;
    nodes.count = test.more.nodes.unwrap_or(nodes.count);
    nodes.ranks_on_root = test.more.ranks_on_root.unwrap_or(nodes.ranks_on_root).min(comm.size());
    let seconds = when::unix_seconds();
    let signature = u64::from(test.signature.unwrap_or(u32::try_from(seconds).unwrap_or(1)));
    let signature = u32::try_from(comm.broadcast_u64(signature)?).unwrap_or_default();
    let seed = comm.broadcast_u64(test.random_offset_seed.unwrap_or(seconds))?;
    let files = Files { test, ranks: comm.size() };
    let place = files.place();
    let guard = watch(test, io, comm, setting, &nodes, &files)?;
    let report = if comm.is_root() {
        let about = About {
            test,
            ranks: comm.size(),
            nodes: &nodes,
            command_line: &setting.command_line,
            place: &place,
            room: io.space(&place).ok().map(|space| Room::of(&space)),
            signature,
            api_version: io.version(),
            hints: io.hints(),
            drops_caches: guard.drops_caches(),
        };
        Some(Report::begin(about, setting)?)
    } else {
        None
    };
    let plan = Plan {
        block: test.block,
        transfer: test.transfer,
        segments: test.segments,
        ranks: comm.size() as u64,
        shared: !test.file_per_rank,
        random: test.random_offset,
        seed,
    };
    let buffer = Buffer::new(usize::try_from(test.transfer).unwrap_or(0));
    let all = (Latencies::new()?, Latencies::new()?);
    let mut run = Run {
        test,
        io,
        comm,
        setting,
        nodes: &nodes,
        files,
        plan,
        clock,
        signature,
        buffer,
        report,
        guard,
        all,
        written: None,
        outcome: Outcome::default(),
        made: 0,
    };
    let done = run.repetitions();
    if let Err(error) = &done {
        error.tell(comm);
        run.clean_up();
    }
    done?;
    run.finish()
}

/// Begins to watch for pitfalls; the root looks at the room and for leftovers.
fn watch<'a, I: FileInterface>(
    test: &Ior,
    io: &I,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    nodes: &Nodes,
    files: &Files,
) -> Result<Guard<'a>> {
    let said = test.more.nodes.is_some() || test.more.ranks_on_root.is_some();
    let placement = match said {
        true => Placement::said(nodes.count, nodes.ranks_on_root, comm.size()),
        false => Placement::find(comm)?,
    };
    let place = files.place();
    let plan = guard::Plan { place: &place, real: io.keeps_data(), repetitions: test.repetitions };
    let mut guard = Guard::begin(comm, setting.guard, plan, placement)?;
    if comm.is_root() && io.keeps_data() {
        let copies = if test.multi_file { test.repetitions as u64 } else { 1 };
        // With a stonewall nobody knows how much it will be.
        let known = test.write && test.deadline == 0 && !test.existing;
        let bytes = if known { test.expected_bytes(comm.size()).saturating_mul(copies) } else { 0 };
        if let Ok(space) = io.space(&place) {
            let inodes = if test.write && !test.existing { files.count() } else { 0 };
            guard.room(&space, ToCome { bytes, inodes: inodes.saturating_mul(copies) });
        }
        if test.write && !test.existing {
            let places = files.places();
            for (dir, name) in &places {
                guard.leftovers(dir, Mine::Files(name));
            }
        }
    }
    // Nobody makes or removes what is looked for before.
    comm.barrier()?;
    Ok(guard)
}

/// What a phase has measured beside its times.
#[derive(Debug, Default)]
struct Beside {
    series: Series,
    /// Of a phase that reads: what devices have delivered.
    delivered: Vec<u64>,
}

/// A run as one rank makes it.
struct Run<'a, I> {
    test: &'a Ior,
    io: &'a I,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    nodes: &'a Nodes,
    files: Files<'a>,
    plan: Plan,
    clock: Clock,
    signature: u32,
    buffer: Buffer,
    report: Option<Report<'a>>,
    guard: Guard<'a>,
    /// Latencies of writes and of reads, all repetitions.
    all: (Latencies, Latencies),
    /// How many transfers of each rank's data this run has written, if it has.
    written: Option<Vec<u64>>,
    /// What was measured so far.
    outcome: Outcome,
    /// Repetitions that have begun: their files may be there.
    made: usize,
}

impl<I: FileInterface> Run<'_, I> {
    fn repetitions(&mut self) -> Result<()> {
        self.warn_of_idle_options()?;
        self.warn_of_existing()?;
        let moved = self.test.reorder && self.comm.size() > 1;
        if moved && self.nodes.ranks_on_root == self.comm.size() {
            self.warn(
                "-C moves by whole nodes, and there is one: all read what they wrote".into(),
            )?;
        }
        for repetition in 0..self.test.repetitions {
            let wrong_before = self.outcome.wrong;
            if self.test.write {
                self.write(repetition)?;
            }
            if self.test.check_write {
                self.check_written(repetition)?;
            }
            if self.test.read || self.test.check_read {
                self.read(repetition)?;
            }
            let keep = self.outcome.wrong > wrong_before && self.test.keep_wrong;
            if !(self.test.keep || keep) {
                self.remove(repetition)?;
            }
        }
        Ok(())
    }

    /// What was asked for and changes nothing: scripts give one line of options to all runs.
    fn warn_of_idle_options(&mut self) -> Result<()> {
        let test = self.test;
        if (test.fsync || test.fsync_per_write) && !test.write {
            self.warn("-e, -Y: nothing is written (-w) that could be made durable".into())?;
        }
        if test.unique_dir && !test.file_per_rank {
            self.warn("-u: without a file for each rank (-F) there are no directories".into())?;
        }
        Ok(())
    }

    fn warn_of_existing(&mut self) -> Result<()> {
        let path = self.files.path(self.comm.rank(), 0);
        let concerned = self.test.write && (self.test.file_per_rank || self.comm.is_root());
        let there = concerned && self.io.exists(&path).unwrap_or(false);
        let there = self.comm.reduce_u64(there.into(), Reduce::Sum)?;
        if there == 0 {
            return Ok(());
        }
        let fate = if self.test.existing { "overwritten" } else { "deleted" };
        let first = path.display();
        self.warn(format!(
            "The file \"{first}\" exists already and will be {fate} ({there} in all)"
        ))
    }

    fn warn(&mut self, warning: String) -> Result<()> {
        self.report.as_mut().map_or(Ok(()), |report| report.warn(warning))
    }

    fn write(&mut self, repetition: usize) -> Result<()> {
        let rank = self.comm.rank();
        let path = self.files.path(rank, repetition);
        pause(self.comm, self.test.delay)?;
        if !self.test.existing {
            self.remove_own(repetition)?;
        }
        self.made = repetition + 1;
        if let Some(dir) = self.files.directory(rank)
            && let Err(error) = self.io.make_dir(&dir)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(Error::io("make the directory", &dir, error));
        }
        let limits = self.limits(None);
        self.commence(Kind::Write)?;
        let (measured, moved, beside) =
            self.phase(Access::Write, repetition, rank, &path, &limits)?;
        self.written = Some(self.comm.all_gather_u64(moved.count)?);
        if let (Some(file), true) = (&self.test.more.status_file, self.comm.is_root()) {
            let count = moved.stonewall.map_or(moved.count, |wall| wall.count_max);
            std::fs::write(file, count.to_string())
                .map_err(|error| Error::io("write", file, error))?;
        }
        self.conclude(Kind::Write, repetition, measured, moved, beside)
    }

    fn check_written(&mut self, repetition: usize) -> Result<()> {
        let rank = self.reader(repetition, true);
        let path = self.files.path(rank, repetition);
        let limits = self.limits(self.available(rank)?);
        let limits = Limits { deadline_ns: None, wear_out: false, time_min_ns: 0, ..limits };
        let (_, moved, _) = self.phase(Access::Check, repetition, rank, &path, &limits)?;
        self.count_wrong(moved.wrong, "write check")
    }

    fn read(&mut self, repetition: usize) -> Result<()> {
        let rank = self.reader(repetition, false);
        let path = self.files.path(rank, repetition);
        pause(self.comm, self.test.delay)?;
        let access = if self.test.check_read { Access::Check } else { Access::Read };
        // Later repetitions find what the first has read, and no more than it has measured.
        if repetition == 0 && self.written.is_none() && !self.test.direct {
            self.look_at_memory(rank, &path)?;
        }
        let limits = self.limits(self.available(rank)?);
        self.commence(Kind::Read)?;
        let (measured, moved, beside) = self.phase(access, repetition, rank, &path, &limits)?;
        self.conclude(Kind::Read, repetition, measured, moved, beside)?;
        self.count_wrong(moved.wrong, "read check")
    }

    /// Says what comes, as IOR does where more is to be said; all ranks meet after it.
    fn commence(&mut self, kind: Kind) -> Result<()> {
        if self.test.verbose == 0 {
            return Ok(());
        }
        let now = when::ctime(when::unix_seconds());
        let line = format!("Commencing {} performance test: {now}", kind.name());
        self.report.as_mut().map_or(Ok(()), |report| report.line(&line))
    }

    /// Looks what of the file is in memory before it is read.
    fn look_at_memory(&mut self, rank: usize, path: &Path) -> Result<()> {
        let file = path.to_path_buf();
        let whole = self.test.file_per_rank || self.fetch_for_each_other();
        // Where ranks fetch for others, a node may have any part of a file of all.
        let looks =
            !whole || self.test.file_per_rank || self.guard.placement.leads(self.comm.rank());
        let order = Order::new(&self.plan, rank as u64);
        let transfer = self.test.transfer;
        self.guard.before_reading_others(Kind::Read.name(), || {
            if !looks {
                return Vec::new();
            }
            let part = |number| {
                let from = order.offset(number);
                from..from.saturating_add(transfer)
            };
            let numbers = guard::sample(order.count(), PARTS_LOOKED_MAX);
            vec![ToRead {
                file,
                parts: if whole { Vec::new() } else { numbers.map(part).collect() },
            }]
        })
    }

    /// Whose data this rank reads.
    fn reader(&self, repetition: usize, checks: bool) -> usize {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        Reader { rank, ranks, repetition, checks }.reads(self.test, self.nodes)
    }

    /// Whether a node may have in memory what it reads: its own writing, and no cache dropped.
    fn reads_own(&self, repetition: usize) -> bool {
        let (ranks, placement) = (self.comm.size(), &self.guard.placement);
        let own = |rank| {
            let reader = Reader { rank, ranks, repetition, checks: false };
            placement.of(reader.reads(self.test, self.nodes)) == placement.of(rank)
        };
        let written = self.written.is_some() || self.guard.written_before();
        written
            && !self.guard.drops_caches()
            && (self.fetch_for_each_other() || (0..ranks).any(own))
    }

    /// Whether a rank's data may pass through another: MPI has some ranks, the same for writing
    /// and reading, do what all ask for together. What those have written they may still have,
    /// whoever reads it.
    fn fetch_for_each_other(&self) -> bool {
        self.test.api == Api::Mpiio && self.test.collective && !self.test.file_per_rank
    }

    /// How many transfers of a rank's data there are, if a stonewall has made them fewer.
    fn available(&self, rank: usize) -> Result<Option<u64>> {
        if self.test.deadline == 0 && self.test.more.status_file.is_none() {
            return Ok(None);
        }
        if let Some(written) = &self.written {
            return Ok(written.get(rank).copied());
        }
        let Some(file) = &self.test.more.status_file else { return Ok(None) };
        kept(self.comm, file).map(Some)
    }

    fn limits(&self, available: Option<u64>) -> Limits {
        let more = &self.test.more;
        let ns = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        let asked = (more.wear_out_iterations > 0).then_some(more.wear_out_iterations);
        Limits {
            deadline_ns: (self.test.deadline > 0).then(|| ns(self.test.deadline)),
            count_max: [asked, available].into_iter().flatten().min(),
            time_min_ns: ns(more.time_min),
            wear_out: more.wear_out,
            together: self.test.collective,
        }
    }

    /// Opens, moves and closes a file with a rank's data.
    fn phase(
        &mut self,
        access: Access,
        repetition: usize,
        owner: usize,
        path: &Path,
        limits: &Limits,
    ) -> Result<(Measured, Moved, Beside)> {
        let (test, comm) = (self.test, self.comm);
        let order = Order::new(&self.plan, owner as u64);
        let rank = u32::try_from(owner).unwrap_or(u32::MAX);
        let pattern = Pattern { packet: test.packet, signature: self.signature, rank };
        pattern.fill(self.buffer.bytes());
        let write = access == Access::Write;
        let mut latencies = Latencies::new()?;
        let before = if write { None } else { Some(self.guard.before_reading()?) };
        comm.note_begin();
        let shown = self.setting.progress.show(Stage {
            name: if write { "write" } else { "read" },
            repetition,
            of: test.repetitions,
            per_rank: order.count(),
            bytes: test.transfer,
            deadline_s: if limits.deadline_ns.is_some() { test.deadline } else { 0 },
            wear_out: limits.wear_out,
        });
        let work = (access, &order, pattern, &mut latencies);
        let (mut measured, moved) = self.timed(path, work, limits)?;
        let mut beside = Beside { series: shown.series(comm)?, delivered: Vec::new() };
        drop(shown);
        if let Some(before) = before {
            beside.delivered = self.guard.after_reading(before)?;
        }

        (measured.count, measured.wrong) = (moved.count, moved.wrong);
        let found = self.io.stat(path).map_err(|error| Error::io("stat", path, error))?;
        measured.size = found.size;
        self.require_one_file(found.inode)?;
        if write {
            self.all.0.add(&latencies)
        } else {
            self.all.1.add(&latencies)
        }
        Ok((measured, moved, beside))
    }

    /// Several names without a file for each rank are one file, seen through several mounts: blocks of
    /// different files would leave holes in each, and measure something else.
    fn require_one_file(&self, inode: u64) -> Result<()> {
        if self.test.file_per_rank || !self.test.file.contains('@') {
            return Ok(());
        }
        let all = self.comm.all_gather_u64(inode)?;
        let same = all.windows(2).all(|two| two.first() == two.last());
        let what = "-o: without -F, the names (@) must be of one file, as several mounts show it, and \
                    are of different ones: give each rank a file (-F), or other names";
        if same { Ok(()) } else { Err(Error::Failed(what.to_owned())) }
    }

    /// What is measured of a phase: from where all have met until all are done.
    fn timed(
        &mut self,
        path: &Path,
        (access, order, pattern, latencies): (Access, &Order, Pattern, &mut Latencies),
        limits: &Limits,
    ) -> Result<(Measured, Moved)> {
        let (test, comm, clock) = (self.test, self.comm, self.clock);
        let write = access == Access::Write;
        let mut measured = Measured::default();
        comm.barrier()?;

        measured.open.0 = clock.now();
        let part = u64::from(pattern.rank);
        let how = Open { write, create: write, direct: test.direct, part, ..Open::default() };
        let file = self.io.open(path, how).map_err(|error| Error::io("open", path, error))?;
        measured.open.1 = clock.now();
        meet(comm, test.barriers)?;
        measured.transfer.0 = clock.now();
        let moved = Transfer {
            io: self.io,
            file: &file,
            path,
            access,
            order,
            pattern,
            buffer: self.buffer.bytes(),
            sync_each: test.fsync_per_write,
            latencies,
        }
        .run(comm, limits)?;
        if write && test.fsync {
            self.io.sync(&file).map_err(|error| Error::io("fsync", path, error))?;
        }
        measured.transfer.1 = clock.now();
        comm.note_over();
        meet(comm, test.barriers)?;
        measured.close.0 = clock.now();
        self.io.close(file).map_err(|error| Error::io("close", path, error))?;
        measured.close.1 = clock.now();
        comm.barrier()?;
        Ok((measured, moved))
    }

    /// Makes a result of what the ranks measured.
    fn conclude(
        &mut self,
        kind: Kind,
        repetition: usize,
        measured: Measured,
        moved: Moved,
        beside: Beside,
    ) -> Result<()> {
        let all = self.comm.all_gather(&measured.to_bytes())?;
        let all: Vec<Measured> = all.iter().map(|bytes| Measured::from_bytes(bytes)).collect();
        let spread = self.judge(kind, repetition, &all, &beside);
        let mut point = Point::of(&all, self.test.transfer, self.plan.shared);
        point.stonewall = moved.stonewall;
        let transfer = self.test.transfer as f64;
        let series = beside.series.scaled(transfer);
        let shown = engine::Beside { spread: spread.clone(), series, latency: None };
        self.outcome.note(kind, &point, shown, self.test.transfer);
        let ranks = self.comm.size() as f64;
        let expected = self.test.expected_bytes(self.comm.size());
        let Some(report) = &mut self.report else { return Ok(()) };
        if let Some(wall) = moved.stonewall {
            let gib = |count: f64| count * transfer / GIB as f64;
            report.line(&format!(
                "stonewalling pairs accessed min: {} max: {} -- min data: {:.1} GiB mean data: \
                 {:.1} GiB time: {:.1}s",
                wall.count_min,
                wall.count_max,
                gib(wall.count_min as f64),
                gib(wall.count_sum as f64 / ranks),
                wall.seconds
            ))?;
        }
        let keeps = self.io.keeps_data();
        if expected != point.bytes || (keeps && point.bytes_found != point.bytes) {
            report.warn(format!("Expected aggregate file size       = {expected}"))?;
            report.warn(format!("Stat() of aggregate file size      = {}", point.bytes_found))?;
            report.warn(format!("Using actual aggregate bytes moved = {}", point.bytes))?;
            if self.test.deadline > 0 {
                report.warn("Maybe caused by deadlineForStonewalling".into())?;
            }
        }
        report.ranks(kind, &all, point.bytes)?;
        report.row(Row { kind, repetition, point, spread, series: beside.series })
    }

    /// Tells the guard of a phase.
    fn judge(
        &mut self,
        kind: Kind,
        repetition: usize,
        all: &[Measured],
        beside: &Beside,
    ) -> guard::Spread {
        let (test, phase) = (self.test, kind.name());
        let works: Vec<guard::Work> =
            all.iter().enumerate().map(|(rank, one)| one.work(rank, test.transfer)).collect();
        let spread = self.guard.phase(phase, guard::Unit::Bytes, &works);
        if kind == Kind::Write {
            self.guard.written(phase, test.fsync || test.fsync_per_write || test.direct);
        } else {
            let bytes: Vec<u64> = works.iter().map(|one| one.amount).collect();
            let delivered = match self.fetch_for_each_other() {
                true => guard::shared_out(&beside.delivered, &bytes),
                false => beside.delivered.clone(),
            };
            self.guard.read(&Reading {
                phase,
                bytes: &bytes,
                seconds: spread.seconds,
                delivered: &delivered,
                direct: test.direct,
                own: self.reads_own(repetition),
            });
        }
        spread
    }

    fn count_wrong(&mut self, mine: u64, what: &str) -> Result<()> {
        let all = self.comm.reduce_u64(mine, Reduce::Sum)?;
        self.outcome.wrong += all;
        if all == 0 {
            return Ok(());
        }
        self.warn(format!("{what}: {all} transfers hold other data than was written"))
    }

    fn remove(&mut self, repetition: usize) -> Result<()> {
        let start = self.clock.now();
        self.comm.barrier()?;
        self.remove_own(repetition)?;
        self.comm.barrier()?;
        if let Some(dir) = self.files.directory(self.comm.rank()) {
            // With -m another repetition's file may still be in it; then the last removes it.
            let _ = self.io.remove_dir(&dir);
        }
        let seconds = self.clock.now() - start;
        self.report.as_mut().map_or(Ok(()), |report| report.removed(repetition, seconds))
    }

    /// Removes this rank's file, if it is there; one for all is the root's.
    fn remove_own(&self, repetition: usize) -> Result<()> {
        if !self.test.file_per_rank && !self.comm.is_root() {
            return Ok(());
        }
        let path = self.files.path(self.comm.rank(), repetition);
        match self.io.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// After a failure: removes what this run has made, of all ranks, since it is unknown which
    /// of them can still do so.
    fn clean_up(&self) {
        if self.test.keep || self.test.existing || !self.test.write {
            return;
        }
        let first = if self.test.multi_file { 0 } else { self.made.saturating_sub(1) };
        for repetition in first..self.made {
            for path in self.files.all(repetition) {
                // Another rank may have been faster, and more than trying cannot be done.
                let _ = self.io.remove_file(&path);
            }
        }
        for dir in (0..self.comm.size()).filter_map(|rank| self.files.directory(rank)) {
            // The same: files of earlier runs may be in it, too.
            let _ = self.io.remove_dir(&dir);
        }
    }

    fn finish(mut self) -> Result<Outcome> {
        if self.test.keep
            && self.comm.is_root()
            && let Ok(space) = self.io.space(&self.files.place())
        {
            self.guard.room(&space, ToCome::default());
        }
        let pitfalls = self.guard.finish()?;
        self.outcome.pitfalls.clone_from(&pitfalls);
        for (kind, mine) in [(Kind::Write, &self.all.0), (Kind::Read, &self.all.1)] {
            let all = mine.gather(self.comm)?.quantiles();
            if let Some(report) = self.report.as_mut().filter(|_| all.count > 0) {
                report.results.latencies.push((kind, all));
                self.outcome.note_latency(kind, all);
            }
        }
        if let Some(mut report) = self.report.take() {
            self.setting.warn(&pitfalls)?;
            report.results.pitfalls = pitfalls;
            report.finish()?;
        }
        Ok(self.outcome)
    }
}

fn meet(comm: &dyn Communicator, wanted: bool) -> Result<()> {
    if wanted { comm.barrier() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::comm::late::{Late, attempts};
    use crate::comm::{Solo, local};
    use crate::engine::Engine;
    use crate::engine::ior::options::tests::ior;
    use crate::io::slow::Slow;
    use crate::progress::Progress;

    /// Whether so many ranks are done, and so many seconds left.
    fn shows(text: &str, done: usize, seconds: std::ops::RangeInclusive<u32>) -> bool {
        let left = text.split(", ").last().and_then(|left| left.strip_suffix(" s left"));
        text.contains(&format!(", {done} of 2 ranks done, "))
            && left
                .and_then(|left| left.parse::<u32>().ok())
                .is_some_and(|left| seconds.contains(&left))
    }

    /// What is shown at a moment after the stonewall, as one of two ranks is four times slower.
    fn shown_after(line: &str, moment: Duration) -> String {
        let test = ior(line).resolved().unwrap();
        let texts = local::tests::ranks(2, |comm| {
            let write = Duration::from_millis(if comm.rank() == 1 { 20 } else { 5 });
            let io = Slow { write, ..Slow::default() };
            Progress::around(comm, true, |progress| {
                let guard = &guard::Options { no_self_check: true, ..Default::default() };
                let out = Some(Path::new("/dev/null"));
                let setting =
                    Setting { command_line: Vec::new(), progress, json: true, out, guard };
                std::thread::scope(|scope| {
                    let text = scope.spawn(|| {
                        std::thread::sleep(moment);
                        progress.line(comm)
                    });
                    run(&test, &io, comm, &setting).unwrap();
                    text.join().unwrap()
                })
            })
        });
        texts[0].clone().unwrap_or_default()
    }

    /// Seconds that writing two transfers takes where fsync takes its time.
    fn seconds_with_slow_fsync(line: &str, sync: Duration) -> f64 {
        let test = ior(line).resolved().unwrap();
        let (io, comm) = (Slow { sync, ..Slow::default() }, Solo::new().unwrap());
        let outcome = Progress::around(&comm, true, |progress| {
            let guard = &guard::Options { no_self_check: true, ..Default::default() };
            let out = Some(Path::new("/dev/null"));
            let setting = Setting { command_line: Vec::new(), progress, json: true, out, guard };
            run(&test, &io, &comm, &setting).unwrap()
        });
        outcome.write.unwrap().seconds
    }

    #[test]
    fn an_fsync_is_part_of_the_time_if_it_is_asked_for() {
        let sync = Duration::from_millis(300);
        let line = "-w -b 8k -t 4k -o f";
        let fsync = seconds_with_slow_fsync(&format!("{line} -e"), sync);
        assert!(fsync >= sync.as_secs_f64(), "{fsync}");
        let each = seconds_with_slow_fsync(&format!("{line} -Y"), sync);
        assert!(each >= 2.0 * sync.as_secs_f64(), "{each}");
        attempts(|| {
            let without = seconds_with_slow_fsync(line, sync);
            if without < sync.as_secs_f64() { Ok(()) } else { Err(without.to_string()) }
        });
    }

    #[test]
    fn after_a_stonewall_the_ranks_are_shown_that_go_on_and_what_they_have_left() {
        let line = "-w -b 1g -t 4k -o f -D 1";
        let moment = Duration::from_millis(1800);
        attempts(|| {
            let text = shown_after(&format!("{line} -O stoneWallingWearOut=1"), moment);
            // 200 transfers were done by one, and 90 by the other of them: about 2 s.
            if shows(&text, 1, 1..=4) { Ok(()) } else { Err(text) }
        });
        attempts(|| {
            let text = shown_after("-w -b 1g -t 4k -o f -D 3", Duration::from_millis(700));
            if shows(&text, 0, 1..=2) { Ok(()) } else { Err(text) }
        });
    }

    #[test]
    fn a_rank_that_starts_late_is_named() {
        attempts(one_rank_starts_late);
    }

    fn one_rank_starts_late() -> std::result::Result<(), String> {
        let name = format!("sateen-bench-late-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let line = format!(
            "-w -a DUMMY -b 1m -t 64k -o f -O summaryFormat=JSON,summaryFile={}",
            path.display()
        );
        let test = ior(&line);
        let late = Duration::from_secs(1);
        let codes = local::tests::ranks(3, |comm| {
            let comm = &Late(comm, late);
            Progress::around(comm, true, |progress| {
                let guard = &guard::Options { no_self_check: true, ..Default::default() };
                let setting =
                    Setting { command_line: Vec::new(), progress, json: true, out: None, guard };
                test.run(comm, &setting).unwrap()
            })
        });
        assert_eq!(codes, [0, 0, 0]);
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let row = &json["tests"][0]["Results"][0];
        // The others may have come late together.
        if row["startSkew"].as_f64().unwrap() < late.as_secs_f64() {
            return Err(row.to_string());
        }
        assert_eq!(row["ranksMiB"].as_array().unwrap().len(), 3);
        let all = json["pitfalls"].as_array().unwrap();
        let skew = all.iter().find(|one| one["code"] == "W-SKEW").unwrap();
        assert_eq!(skew["phase"], "write");
        let sum = all.iter().find(|one| one["code"] == "W-SUM").unwrap();
        assert!(sum["message"].as_str().unwrap().contains("not busy at the same time"), "{sum}");
        // Another one may have come even later.
        let named = skew["message"].as_str().unwrap().contains("rank 1 on ");
        if named { Ok(()) } else { Err(skew.to_string()) }
    }
}
