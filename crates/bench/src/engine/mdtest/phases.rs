//! A run: for each iteration the trees are made, then directories and files are made, looked
//! at, read, renamed and removed, then the trees are removed.
//!
//! A phase is: all meet; each works on its items; all meet again. The time is from the first
//! meeting to the second. Whatever ends a run early, each rank that still can removes the
//! folders that the run has made.

use std::io;
use std::path::{Path, PathBuf};

use super::names::Names;
use super::options::Mdtest;
use super::outcome::Outcome;
use super::report::{About, Phase, Report, Rows, Timed};
use super::shape::Shape;
use super::work::{Kind, Operation, Work};
use crate::clock::{Clock, now_ns, seconds};
use crate::comm::{Communicator, Nodes, Reduce};
use crate::engine::buffer::Buffer;
use crate::engine::shown::Room;
use crate::engine::{Setting, kept, pause};
use crate::error::{Error, Result};
use crate::guard::{self, Guard, Looking, Mine, Placement, Reading, ToCome, ToRead};
use crate::io::FileInterface;
use crate::pattern::Pattern;
use crate::progress::Stage;
use crate::when;

/// Files of another run that are looked for in memory before they are read: each is opened for
/// it, and is not as cold as the others then.
const FILES_LOOKED_MAX: u64 = 16;

/// Runs a test; what it has measured.
pub(super) fn run<I: FileInterface>(
    test: &Mdtest,
    io: &I,
    comm: &dyn Communicator,
    setting: &Setting,
) -> Result<Outcome> {
    let nodes = Nodes::find(comm)?;
    let shape = Shape::of(test)?;
    let signature = test.signature.unwrap_or(u32::try_from(when::unix_seconds()).unwrap_or(1));
    let signature = u32::try_from(comm.broadcast_u64(signature.into())?).unwrap_or_default();
    let by_slot = nodes.count > 1 && nodes.by_slot;
    let stride = test.stride * if by_slot { nodes.ranks_on_root } else { 1 };
    let names_of_all = test.dirs().len();
    let names = Names {
        dirs: test.dirs().into_iter().map(str::to_owned).collect(),
        shape,
        unique: test.unique,
        shared: test.shared,
        ranks: comm.size(),
        stride,
        iteration: 0,
    };
    let mut dirs = make_dirs(io, comm, &names)?;
    let guard = watch(test, io, comm, setting, &names)?;
    let report = comm.is_root().then(|| {
        let place = names.dirs.first().cloned().unwrap_or_default();
        let room = io.space(Path::new(&place)).ok().map(|space| Room::of(&space));
        Report::begin(About {
            test,
            comm_size: comm.size(),
            nodes: &nodes,
            setting,
            place,
            room,
            stride,
            items: shape.items(),
        })
    });
    let bytes = usize::try_from(test.write_bytes.max(test.read_bytes)).unwrap_or(0);
    let mut run = Run {
        test,
        io,
        comm,
        setting,
        names,
        pattern: Pattern { packet: test.packet, signature, rank: 0 },
        buffer: Buffer::new(bytes),
        report: report.transpose()?,
        rows: Rows::new(test.iterations, test.shared)?,
        guard,
        clock: Clock::agree(comm, nodes.count)?,
        made: false,
        in_own_dirs: dirs.paths.len() == names_of_all,
        stonewall: None,
        wrong: 0,
    };
    let mut done = Ok(());
    for iteration in 0..test.iterations {
        run.names.iteration = iteration;
        done = run.iteration();
        if let Err(error) = &done {
            error.tell(comm);
            run.clean_up();
            break;
        }
    }
    done?;
    // Nobody is missing: each rank removes what it has made itself.
    let own = run.names.dirs.get(comm.rank()).filter(|_| test.remove).map(Path::new);
    dirs.paths.retain(|path| Some(path.as_path()) == own);
    drop(dirs);
    run.finish()
}

/// The directories of -d that this run has made, whichever rank did: all of them, since it is
/// unknown which ranks can still remove them when it breaks. They go with this.
struct MadeDirs<'a, I: FileInterface> {
    io: &'a I,
    paths: Vec<PathBuf>,
}

impl<I: FileInterface> Drop for MadeDirs<'_, I> {
    fn drop(&mut self) {
        for path in &self.paths {
            // Another rank may have been faster, and it stays if somebody has put something
            // into it.
            let _ = self.io.remove_dir(path);
        }
    }
}

/// Makes the directories of -d that are not there.
fn make_dirs<'a, I: FileInterface>(
    io: &'a I,
    comm: &dyn Communicator,
    names: &Names,
) -> Result<MadeDirs<'a, I>> {
    let mut made = MadeDirs { io, paths: Vec::new() };
    if let Some(dir) = names.dirs.get(comm.rank()) {
        let dir = Path::new(dir);
        if !io.exists(dir).map_err(|error| Error::io("stat", dir, error))? {
            io.make_dir(dir).map_err(|error| Error::io("create the directory", dir, error))?;
            if io.keeps_data() {
                made.paths.push(dir.into());
            }
        }
    }
    let counts = comm.all_gather_u64(made.paths.len() as u64)?;
    let all = names.dirs.iter().zip(counts).filter(|(_, count)| *count > 0);
    made.paths = all.map(|(dir, _)| dir.into()).collect();
    Ok(made)
}

/// Begins to watch for pitfalls; the root looks at the room and for leftovers.
fn watch<'a, I: FileInterface>(
    test: &Mdtest,
    io: &I,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    names: &Names,
) -> Result<Guard<'a>> {
    let place = names.dirs.first().map_or(Path::new("."), Path::new);
    let plan = guard::Plan { place, real: io.keeps_data(), repetitions: test.iterations };
    let mut guard = Guard::begin(comm, setting.guard, plan, Placement::find(comm)?)?;
    if comm.is_root() && io.keeps_data() {
        if let Ok(space) = io.space(place) {
            guard.room(&space, to_come(test, names));
        }
        if test.create {
            for dir in &names.dirs {
                guard.leftovers(Path::new(dir), Mine::Begin("test-dir."));
            }
        }
    }
    // Nobody makes or removes what is looked for before.
    comm.barrier()?;
    Ok(guard)
}

/// What a run makes, as far as it is known: with a stonewall it is not.
fn to_come(test: &Mdtest, names: &Names) -> ToCome {
    if !test.create || test.stonewall > 0 {
        return ToCome::default();
    }
    let (shape, ranks) = (names.shape, names.ranks as u64);
    let items = shape.items().saturating_mul(ranks);
    let files = if names.shared { shape.items() } else { items };
    let of = |made: bool, count: u64| if made { count } else { 0 };
    let (dirs, files) = (of(test.dirs_only, items), of(test.files_only, files));
    let trees = if names.unique { ranks } else { 1 };
    let folders = shape.dirs.saturating_mul(shape.trees).saturating_mul(trees);
    // Directories are removed before there are files, and everything before it is made again.
    let (items, times) = match test.remove {
        true => (dirs.max(files), 1),
        false => (dirs.saturating_add(files), test.iterations as u64),
    };
    ToCome {
        bytes: files.saturating_mul(test.write_bytes).saturating_mul(times),
        inodes: items.saturating_add(folders).saturating_mul(times),
    }
}

/// A run as one rank makes it.
struct Run<'a, I> {
    test: &'a Mdtest,
    io: &'a I,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    names: Names,
    pattern: Pattern,
    buffer: Buffer,
    report: Option<Report<'a>>,
    rows: Rows,
    guard: Guard<'a>,
    clock: Clock,
    /// Whether the folders of this iteration were made by this run.
    made: bool,
    /// Whether the directories of -d were: then nobody else has folders in them.
    in_own_dirs: bool,
    /// Seconds and files of all ranks until the stonewall, if it was hit.
    stonewall: Option<(f64, u64)>,
    /// Files of all ranks that held other data than was written.
    wrong: u64,
}

impl<I: FileInterface> Run<'_, I> {
    fn iteration(&mut self) -> Result<()> {
        self.made = self.in_own_dirs;
        if self.test.create {
            self.make_trees()?;
        }
        if self.test.dirs_only {
            pause(self.comm, self.test.delay)?;
            self.directories()?;
        }
        if self.test.files_only {
            pause(self.comm, self.test.delay)?;
            self.files()?;
        }
        self.comm.barrier()?;
        if self.test.remove {
            self.remove_trees()?;
            self.made = false;
        }
        Ok(())
    }

    /// The ranks whose trees this rank makes and removes.
    fn owned(&self) -> Option<usize> {
        if self.test.unique { Some(self.comm.rank()) } else { self.comm.is_root().then_some(0) }
    }

    fn make_trees(&mut self) -> Result<()> {
        let (rank, trees) = (self.comm.rank(), self.names.shape.trees);
        let mut made = false;
        for tree in (0..trees).filter(|_| rank < self.names.dirs.len()) {
            made |= make(self.io, &self.names.test_dir(rank, tree))?;
        }
        self.made = self.comm.reduce_u64(made.into(), Reduce::Max)? == 1;
        self.comm.barrier()?;
        self.trees(Phase::TreeCreate, |io, dir| make(io, dir).map(drop))
    }

    /// Makes or removes this rank's trees, if it has any; with their directories in the order
    /// that this takes.
    fn trees(&mut self, phase: Phase, each: impl Fn(&I, &Path) -> Result<()>) -> Result<()> {
        let shape = self.names.shape;
        let owned = if self.owned().is_some() { shape.dirs } else { 0 };
        let start = now_ns();
        for tree in 0..shape.trees {
            for at in 0..owned {
                let dir = if phase == Phase::TreeCreate { at } else { owned - 1 - at };
                each(self.io, &self.names.tree_dir(self.comm.rank(), tree, dir))?;
                self.comm.check()?;
            }
        }
        self.comm.barrier()?;
        let took = seconds(now_ns() - start);
        let timed = Timed { items: shape.dirs * shape.trees, after: took, before: took };
        self.rows.note(self.names.iteration, phase, timed);
        Ok(())
    }

    fn remove_trees(&mut self) -> Result<()> {
        let (rank, trees) = (self.comm.rank(), self.names.shape.trees);
        self.trees(Phase::TreeRemove, remove)?;
        for tree in (0..trees).filter(|_| rank < self.names.dirs.len()) {
            remove(self.io, &self.names.test_dir(rank, tree))?;
        }
        Ok(())
    }

    fn directories(&mut self) -> Result<()> {
        let (test, all) = (self.test, self.names.shape.items());
        let wanted = [
            (test.create, Phase::DirCreate, Kind::MakeDir, 0),
            (test.stat, Phase::DirStat, Kind::StatDir, 1),
            // A single directory has no other's name to take.
            (test.rename && all > 1, Phase::DirRename, Kind::RenameDir, 1),
            (test.remove, Phase::DirRemove, Kind::RemoveDir, 3),
        ];
        for (_, phase, kind, further) in wanted.into_iter().filter(|one| one.0) {
            self.phase(phase, kind, further, all, None)?;
        }
        Ok(())
    }

    fn files(&mut self) -> Result<()> {
        let test = self.test;
        let mut all = self.names.shape.items();
        if test.create {
            let kind = if test.mknod { Kind::MakeNode } else { Kind::CreateFile };
            let wall = (test.stonewall > 0).then_some(test.stonewall);
            all = self.phase(Phase::FileCreate, kind, 0, all, wall)?;
            if let (Some(file), true) = (&test.status_file, self.comm.is_root()) {
                std::fs::write(file, all.to_string())
                    .map_err(|error| Error::io("write", file, error))?;
            }
        } else if let Some(file) = &test.status_file {
            all = kept(self.comm, file)?.min(all);
        }
        let wanted = [
            (test.stat, Phase::FileStat, Kind::StatFile, 1),
            (test.read, Phase::FileRead, Kind::ReadFile, 2),
            (test.remove, Phase::FileRemove, Kind::RemoveFile, 3),
        ];
        for (_, phase, kind, further) in wanted.into_iter().filter(|one| one.0) {
            self.phase(phase, kind, further, all, None)?;
        }
        Ok(())
    }

    /// Works on the items of the rank that is `further` strides away; how many there are.
    fn phase(
        &mut self,
        phase: Phase,
        kind: Kind,
        further: usize,
        all: u64,
        wall: Option<u64>,
    ) -> Result<u64> {
        let (comm, test) = (self.comm, self.test);
        let creator = self.creator(comm.rank(), further);
        // Files of all are removed by one.
        let mine = if test.shared && kind == Kind::RemoveFile && !comm.is_root() { 0 } else { all };
        if kind == Kind::ReadFile && !test.create && self.names.iteration == 0 {
            self.look_at_memory(phase, creator, mine)?;
        }
        let pattern = Pattern { rank: u32::try_from(creator).unwrap_or(u32::MAX), ..self.pattern };
        let bytes = match kind {
            Kind::CreateFile => test.write_bytes,
            Kind::ReadFile => test.read_bytes,
            _ => 0,
        };
        let buffer = self.buffer.bytes().get_mut(..usize::try_from(bytes).unwrap_or(0));
        let buffer = buffer.unwrap_or_default();
        pattern.fill(buffer);
        let operation = Operation { kind, pattern, buffer, fsync: test.fsync, verify: test.verify };
        let looks = matches!(kind, Kind::StatDir | Kind::StatFile | Kind::ReadFile);
        let before = if looks { Some(self.guard.before_reading()?) } else { None };
        let latencies = self.rows.latencies(phase);
        let paths = self.names.of(creator, if phase.of_dirs() { "dir" } else { "file" });
        let mut work = Work { io: self.io, paths, operation, latencies, wrong: 0 };

        comm.note_begin();
        let shown = self.setting.progress.show(Stage {
            name: phase.name(),
            repetition: self.names.iteration,
            of: test.iterations,
            per_rank: mine,
            bytes: 0,
            deadline_s: wall.unwrap_or(0),
            wear_out: true,
        });
        comm.barrier()?;
        let mut start = now_ns();
        let mut begin_s = self.clock.now();
        if test.unique {
            comm.barrier()?;
            if !test.time_unique {
                (start, begin_s) = (now_ns(), self.clock.now());
            }
        }
        let deadline = wall.map(|seconds| start + seconds * 1_000_000_000);
        let (items, hit) = items_of(&mut work, comm, mine, deadline)?;
        let took = seconds(now_ns() - start);
        // Each node has written to its own memory.
        if test.sync && self.guard.placement.leads(comm.rank()) {
            rustix::fs::sync();
        }
        comm.note_over();
        comm.barrier()?;
        let after = seconds(now_ns() - start);
        let series = shown.series(comm)?;
        drop(shown);
        let delivered = before.map(|before| self.guard.after_reading(before)).transpose()?;
        let wrong = work.wrong;
        let timed = Timed { items, after, before: took };
        self.rows.note(self.names.iteration, phase, timed);
        let own = guard::Work { rank: comm.rank(), begin_s, end_s: begin_s + took, amount: items };
        let looked = delivered.map(|delivered| Looked { further, bytes, delivered });
        let spread = self.judge(phase, own, after, looked)?;
        self.rows.beside(self.names.iteration, phase, spread, series);
        if test.verify {
            self.wrong += comm.reduce_u64(wrong, Reduce::Sum)?;
        }
        if let Some(hit) = hit {
            let longest = comm.reduce_f64(hit.seconds, Reduce::Max)?;
            self.stonewall = Some((longest, hit.counts.iter().sum()));
            self.report.as_mut().map_or(Ok(()), |report| report.stonewall(&hit.counts))?;
        }
        Ok(items)
    }

    /// Looks what of another run's files is in memory before they are read.
    fn look_at_memory(&mut self, phase: Phase, creator: usize, items: u64) -> Result<()> {
        if self.test.read_bytes == 0 {
            return Ok(());
        }
        let mut paths = self.names.of(creator, "file");
        let mut one = |at| ToRead { file: paths.item(at).0.to_path_buf(), parts: Vec::new() };
        let files = || guard::sample(items, FILES_LOOKED_MAX).map(&mut one).collect();
        self.guard.before_reading_others(phase.name(), files)
    }

    /// The rank whose items a rank works on.
    fn creator(&self, rank: usize, further: usize) -> usize {
        (rank + further * self.names.stride) % self.comm.size()
    }

    /// Whether nodes look at items that they have made themselves, and no cache was dropped.
    fn looks_at_own(&self, further: usize) -> bool {
        let placement = &self.guard.placement;
        let own = |rank| placement.of(self.creator(rank, further)) == placement.of(rank);
        let made = self.test.create || self.guard.written_before();
        made && !self.guard.drops_caches() && (self.test.shared || (0..self.comm.size()).any(own))
    }

    /// Tells the guard of a phase, all ranks together.
    fn judge(
        &mut self,
        phase: Phase,
        own: guard::Work,
        after: f64,
        looked: Option<Looked>,
    ) -> Result<guard::Spread> {
        let words = [own.begin_s.to_bits(), own.end_s.to_bits(), own.amount, after.to_bits()];
        let bytes = words.map(u64::to_le_bytes);
        let all = self.comm.all_gather(&bytes.concat())?;
        let work = |(rank, bytes): (usize, &Vec<u8>)| {
            let mut words =
                bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
            let mut next = || words.next().unwrap_or_default();
            let (begin_s, end_s) = (f64::from_bits(next()), f64::from_bits(next()));
            let work = guard::Work { rank, begin_s, end_s, amount: next() };
            (work, f64::from_bits(next()))
        };
        // Files of all are removed by one: the others have nothing to do.
        let mut all: Vec<(guard::Work, f64)> = all.iter().enumerate().map(work).collect();
        let counts: Vec<u64> = all.iter().map(|(one, _)| one.amount).collect();
        all.retain(|(one, _)| one.amount > 0);
        // As the report has it: the slowest rank, until all were done, times the ranks.
        let rates = all.iter().map(|(one, after)| one.amount as f64 / after.max(1e-9));
        let rate = rates.reduce(f64::min).unwrap_or(0.0) * all.len() as f64;
        let works: Vec<guard::Work> = all.into_iter().map(|(one, _)| one).collect();
        let (name, unit) = (phase.name(), guard::Unit::Operations);
        let spread = self.guard.phase_by_rule(name, unit, &works, rate);
        let Some(looked) = looked else { return Ok(spread) };
        let own = self.looks_at_own(looked.further);
        if looked.bytes > 0 {
            let bytes: Vec<u64> = counts.iter().map(|count| count * looked.bytes).collect();
            self.guard.read(&Reading {
                phase: phase.name(),
                bytes: &bytes,
                seconds: spread.seconds,
                delivered: &looked.delivered,
                direct: false,
                own,
            });
        } else if own {
            self.guard.own_names(phase.name());
        } else {
            let (phase, delivered) = (phase.name(), looked.delivered.as_slice());
            self.guard.others_names(&Looking { phase, works: &works, delivered });
        }
        Ok(spread)
    }

    /// After a failure: removes the folders of this iteration, of all ranks, since it is
    /// unknown which of them can still do so.
    fn clean_up(&self) {
        if !self.made {
            return;
        }
        for owner in 0..self.names.dirs.len() {
            for tree in 0..self.names.shape.trees {
                // Several ranks try, and each may find that another was faster; twice, because
                // one that was not yet told to stop may have made something meanwhile.
                for _ in 0..2 {
                    let _ = self.io.remove_tree(&self.names.test_dir(owner, tree));
                }
            }
        }
    }

    fn finish(mut self) -> Result<Outcome> {
        let pitfalls = self.guard.finish()?;
        let rows = self.rows.gather(self.comm)?;
        let outcome = Outcome {
            create: rows.last(Phase::FileCreate),
            stat: rows.last(Phase::FileStat),
            read: rows.last(Phase::FileRead),
            remove: rows.last(Phase::FileRemove),
            stonewall: self.stonewall,
            wrong: self.wrong,
            pitfalls: pitfalls.clone(),
        };
        if let Some(report) = self.report.take() {
            self.setting.warn(&pitfalls)?;
            report.finish(&rows, self.wrong, &pitfalls)?;
        }
        Ok(outcome)
    }
}

/// What a phase has looked at.
struct Looked {
    /// Strides between a rank and those whose items it looks at.
    further: usize,
    /// Bytes that were read of each item.
    bytes: u64,
    /// What devices have delivered to each rank meanwhile.
    delivered: Vec<u64>,
}

/// How it was when a stonewall was hit: how many items each rank had done, and when this one
/// stopped.
struct Hit {
    counts: Vec<u64>,
    seconds: f64,
}

/// Works on so many items, or until the stonewall and then to where the fastest rank was. How
/// many there are then, and whether the stonewall was hit.
fn items_of<I: FileInterface>(
    work: &mut Work<I>,
    comm: &dyn Communicator,
    all: u64,
    deadline: Option<u64>,
) -> Result<(u64, Option<Hit>)> {
    if work.operation.kind == Kind::RenameDir {
        return work.rename_all(comm, all).map(|()| (all, None));
    }
    let start = now_ns();
    let done = work.run(comm, (0, all), deadline)?;
    let until = seconds(now_ns() - start);
    if deadline.is_none() {
        return Ok((all, None));
    }
    let counts = comm.all_gather_u64(done)?;
    let items = counts.iter().copied().max().unwrap_or(done);
    work.run(comm, (done, items), None)?;
    let hit = counts.iter().any(|count| *count < all);
    Ok((items, hit.then_some(Hit { counts, seconds: until })))
}

/// Makes a directory that may be there already; whether it was not.
fn make<I: FileInterface>(io: &I, path: &Path) -> Result<bool> {
    match io.make_dir(path) {
        Ok(()) => Ok(io.keeps_data()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::io("create the directory", path, error)),
    }
}

fn remove<I: FileInterface>(io: &I, path: &Path) -> Result<()> {
    io.remove_dir(path).map_err(|error| Error::io("remove the directory", path, error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::comm::late::{Late, attempts};
    use crate::comm::local;
    use crate::engine::mdtest::options::tests::mdtest;
    use crate::io::slow::Slow;
    use crate::progress::Progress;

    /// Seconds that creating files takes two ranks, of which the second leaves barriers so late.
    fn creation_s(line: &str, io: &Slow, late: Duration) -> f64 {
        let test = mdtest(line).resolved();
        let seconds = local::tests::ranks(2, |comm| {
            let comm = &Late(comm, late);
            Progress::around(comm, true, |progress| {
                let guard = &guard::Options { no_self_check: true, ..Default::default() };
                let out = Some(Path::new("/dev/null"));
                let setting =
                    Setting { command_line: Vec::new(), progress, json: true, out, guard };
                run(&test, io, comm, &setting).unwrap().create.unwrap().seconds
            })
        });
        seconds.into_iter().fold(0.0, f64::max)
    }

    /// That what an option does takes so long, and that nothing does without it.
    fn takes(line: &str, option: &str, io: &Slow, late: Duration, wanted: Duration) {
        let wanted = wanted.as_secs_f64();
        let with = creation_s(&format!("{line} {option}"), io, late);
        assert!(with >= wanted, "{option}: {with} s");
        attempts(|| {
            let without = creation_s(line, io, late);
            if without < wanted { Ok(()) } else { Err(format!("{option}: {without} s without")) }
        });
    }

    #[test]
    fn files_are_durable_or_nodes_alone_if_that_is_asked_for() {
        let some = Duration::from_millis(100);
        let io = Slow { sync: some, node: some, ..Slow::default() };
        takes("-F -C -n 3 -w 4k -d x", "-y", &io, Duration::ZERO, 3 * some);
        takes("-F -C -n 3 -d x", "-k", &io, Duration::ZERO, 3 * some);
    }

    #[test]
    fn meeting_before_ranks_own_trees_counts_if_that_is_asked_for() {
        let late = Duration::from_millis(400);
        // The one who waits at the end for the late one waits before, too.
        takes("-F -C -n 1 -u -d x", "-t", &Slow::default(), late, 2 * late);
    }

    /// What is said of two ranks, of which one takes so long to write each of its 20 files.
    fn said_of_unequal(slow: Duration) -> String {
        let name = format!("sateen-mdtest-unequal-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "").unwrap();
        let test = mdtest("-F -C -n 20 -w 1 -d x").resolved();
        local::tests::ranks(2, |comm| {
            let write = if comm.rank() == 1 { slow } else { Duration::ZERO };
            let io = Slow { write, ..Slow::default() };
            Progress::around(comm, true, |progress| {
                let guard = &guard::Options { no_self_check: true, ..Default::default() };
                let out = Some(path.as_path());
                let setting =
                    Setting { command_line: Vec::new(), progress, json: false, out, guard };
                run(&test, &io, comm, &setting).unwrap();
            });
        });
        let said = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        said
    }

    #[test]
    fn of_unequal_ranks_the_slowest_counts_and_their_sum_is_marked() {
        let slow = Duration::from_millis(30);
        // The fast rank may be kept from running for as long as the slow one sleeps.
        let all = (0..8).map(|_| said_of_unequal(slow));
        let mut said = all.filter(|said| said.contains(" (!)\n"));
        let said = said.next().expect("one of the ranks is faster");
        let numbers = |begin: &str| -> Vec<f64> {
            let line = said.lines().find_map(|line| line.trim_start().strip_prefix(begin)).unwrap();
            line.split_whitespace().map_while(|word| word.parse().ok()).collect()
        };
        let (table, own) = (numbers("File creation "), numbers("(File creation) "));
        assert!((table[0] - own[0]).abs() <= 0.1, "Best is Max: {said}");
        assert!(table[0] <= 40.0 / (20.0 * slow.as_secs_f64()), "all files in its time: {said}");
        assert!(own[5] > own[0] * 1.1, "{said}");
        let begin = "warning W-SUM: File creation: the result is ";
        let message = said.lines().find_map(|line| line.strip_prefix(begin)).unwrap();
        let (result, rest) =
            message.split_once(" ops/s, what all ranks reached together; ").unwrap();
        assert!(
            (result.parse::<f64>().unwrap() - table[0]).abs() <= 1.0,
            "as in the table: {said}"
        );
        assert!(rest.starts_with("their own rates add up to "), "{said}");
        assert!(message.contains("which is for comparison only"), "{message}");
    }
}
