//! A run: for each repetition the files are written, checked, read and removed, each phase by
//! all ranks together.
//!
//! A phase is: all meet; each opens, makes its transfers and closes; all tell what they
//! measured. Whatever ends a run early, each rank that still can removes what the run has made.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::files::{Files, Reader};
use super::options::Ior;
use super::order::{Order, Plan};
use super::report::{About, Kind, Report, Row};
use super::results::{Measured, Point};
use super::transfer::{Access, Limits, Moved, Transfer};
use crate::clock::Clock;
use crate::comm::{Communicator, Nodes, Reduce};
use crate::engine::Setting;
use crate::engine::buffer::Buffer;
use crate::engine::shown::Room;
use crate::error::{EXIT_WRONG_DATA, Error, Result};
use crate::io::{FileInterface, Open};
use crate::pattern::Pattern;
use crate::progress::Stage;
use crate::size::GIB;
use crate::stats::Latencies;
use crate::when;

/// Runs a test; the exit code that it deserves.
pub(super) fn run<I: FileInterface>(
    test: &Ior,
    io: &I,
    comm: &dyn Communicator,
    setting: &Setting,
) -> Result<u8> {
    let mut nodes = Nodes::find(comm)?;
    nodes.count = test.more.nodes.unwrap_or(nodes.count);
    nodes.ranks_on_root = test.more.ranks_on_root.unwrap_or(nodes.ranks_on_root).min(comm.size());
    let seconds = when::unix_seconds();
    let signature = u64::from(test.signature.unwrap_or(u32::try_from(seconds).unwrap_or(1)));
    let signature = u32::try_from(comm.broadcast_u64(signature)?).unwrap_or_default();
    let seed = comm.broadcast_u64(test.random_offset_seed.unwrap_or(seconds))?;
    let files = Files { test, ranks: comm.size() };
    let place = files.place();
    let report = if comm.is_root() {
        let about = About {
            test,
            ranks: comm.size(),
            nodes: &nodes,
            command_line: &setting.command_line,
            place: &place,
            room: io.space(&place).ok().map(|space| Room::of(&space)),
            signature,
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
    let clock = Clock::agree(comm, nodes.count)?;
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
        all,
        written: None,
        wrong: 0,
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
    /// Latencies of writes and of reads, all repetitions.
    all: (Latencies, Latencies),
    /// How many transfers of each rank's data this run has written, if it has.
    written: Option<Vec<u64>>,
    /// Wrong transfers of all ranks in this run.
    wrong: u64,
    /// Repetitions that have begun: their files may be there.
    made: usize,
}

impl<I: FileInterface> Run<'_, I> {
    fn repetitions(&mut self) -> Result<()> {
        self.warn_of_existing()?;
        let moved = self.test.reorder && self.comm.size() > 1;
        if moved && self.nodes.ranks_on_root == self.comm.size() {
            self.warn(
                "-C moves by whole nodes, and there is one: all read what they wrote".into(),
            )?;
        }
        for repetition in 0..self.test.repetitions {
            let wrong_before = self.wrong;
            if self.test.write {
                self.write(repetition)?;
            }
            if self.test.check_write {
                self.check_written(repetition)?;
            }
            if self.test.read || self.test.check_read {
                self.read(repetition)?;
            }
            let keep = self.wrong > wrong_before && self.test.keep_wrong;
            if !(self.test.keep || keep) {
                self.remove(repetition)?;
            }
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
        let (measured, moved) = self.phase(Access::Write, repetition, rank, &path, &limits)?;
        self.written = Some(self.comm.all_gather_u64(moved.count)?);
        if let (Some(file), true) = (&self.test.more.status_file, self.comm.is_root()) {
            let count = moved.stonewall.map_or(moved.count, |wall| wall.count_max);
            std::fs::write(file, count.to_string())
                .map_err(|error| Error::io("write", file, error))?;
        }
        self.conclude(Kind::Write, repetition, measured, moved)
    }

    fn check_written(&mut self, repetition: usize) -> Result<()> {
        let rank = self.reader(repetition, 1);
        let path = self.files.path(rank, repetition);
        let limits = self.limits(self.available(rank)?);
        let limits = Limits { deadline_ns: None, wear_out: false, time_min_ns: 0, ..limits };
        let (_, moved) = self.phase(Access::Check, repetition, rank, &path, &limits)?;
        self.count_wrong(moved.wrong, "write check")
    }

    fn read(&mut self, repetition: usize) -> Result<()> {
        let rank = self.reader(repetition, 0);
        let path = self.files.path(rank, repetition);
        pause(self.comm, self.test.delay)?;
        let access = if self.test.check_read { Access::Check } else { Access::Read };
        let limits = self.limits(self.available(rank)?);
        let (measured, moved) = self.phase(access, repetition, rank, &path, &limits)?;
        self.conclude(Kind::Read, repetition, measured, moved)?;
        self.count_wrong(moved.wrong, "read check")
    }

    /// Whose data this rank reads.
    fn reader(&self, repetition: usize, further: usize) -> usize {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        Reader { rank, ranks, repetition, further }.reads(self.test, self.nodes)
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
        let text = if self.comm.is_root() {
            std::fs::read_to_string(file).map_err(|error| Error::io("read", file, error))?
        } else {
            String::new()
        };
        let text = self.comm.broadcast(text.as_bytes())?;
        let count = String::from_utf8_lossy(&text).trim().parse();
        let strange = || Error::Failed(format!("{} holds no number", file.display()));
        count.map(Some).map_err(|_| strange())
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
    ) -> Result<(Measured, Moved)> {
        let (test, comm, clock) = (self.test, self.comm, self.clock);
        let order = Order::new(&self.plan, owner as u64);
        let rank = u32::try_from(owner).unwrap_or(u32::MAX);
        let pattern = Pattern { packet: test.packet, signature: self.signature, rank };
        pattern.fill(self.buffer.bytes());
        let write = access == Access::Write;
        let mut measured = Measured::default();
        let mut latencies = Latencies::new()?;
        comm.note_done(0);
        let shown = self.setting.progress.show(Stage {
            name: if write { "write" } else { "read" },
            repetition,
            of: test.repetitions,
            per_rank: order.count(),
            bytes: test.transfer,
            deadline_s: test.deadline,
        });
        comm.barrier()?;

        measured.open.0 = clock.now();
        let how = Open { write, create: write, direct: test.direct };
        let file = self.io.open(path, how).map_err(|error| Error::io("open", path, error))?;
        measured.open.1 = clock.now();
        meet(comm, test.barriers)?;
        measured.transfer.0 = clock.now();
        let moved = Transfer {
            io: self.io,
            file: &file,
            path,
            access,
            order: &order,
            pattern,
            buffer: self.buffer.bytes(),
            sync_each: test.fsync_per_write,
            latencies: &mut latencies,
        }
        .run(comm, limits)?;
        if write && test.fsync {
            self.io.sync(&file).map_err(|error| Error::io("fsync", path, error))?;
        }
        measured.transfer.1 = clock.now();
        meet(comm, test.barriers)?;
        measured.close.0 = clock.now();
        self.io.close(file).map_err(|error| Error::io("close", path, error))?;
        measured.close.1 = clock.now();
        comm.barrier()?;
        drop(shown);

        (measured.count, measured.wrong) = (moved.count, moved.wrong);
        let found = self.io.stat(path).map_err(|error| Error::io("stat", path, error))?;
        measured.size = found.size;
        if write {
            self.all.0.add(&latencies)
        } else {
            self.all.1.add(&latencies)
        }
        Ok((measured, moved))
    }

    /// Makes a result of what the ranks measured.
    fn conclude(
        &mut self,
        kind: Kind,
        repetition: usize,
        measured: Measured,
        moved: Moved,
    ) -> Result<()> {
        let all = self.comm.all_gather(&measured.to_bytes())?;
        let all: Vec<Measured> = all.iter().map(|bytes| Measured::from_bytes(bytes)).collect();
        let mut point = Point::of(&all, self.test.transfer, self.plan.shared);
        point.stonewall = moved.stonewall;
        let transfer = self.test.transfer as f64;
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
        report.row(Row { kind, repetition, point })
    }

    fn count_wrong(&mut self, mine: u64, what: &str) -> Result<()> {
        let all = self.comm.reduce_u64(mine, Reduce::Sum)?;
        self.wrong += all;
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
            let _ = self.io.remove_dir(&dir);
        }
    }

    fn finish(mut self) -> Result<u8> {
        for (kind, mine) in [(Kind::Write, &self.all.0), (Kind::Read, &self.all.1)] {
            let all = mine.gather(self.comm)?.quantiles();
            if let Some(report) = self.report.as_mut().filter(|_| all.count > 0) {
                report.results.latencies.push((kind, all));
            }
        }
        if let Some(report) = self.report.take() {
            report.finish()?;
        }
        Ok(if self.wrong > 0 { EXIT_WRONG_DATA } else { 0 })
    }
}

fn meet(comm: &dyn Communicator, wanted: bool) -> Result<()> {
    if wanted { comm.barrier() } else { Ok(()) }
}

/// Waits so many seconds, or until the run is to end.
fn pause(comm: &dyn Communicator, seconds: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        comm.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
