//! A run: for each number of ranks and each record size, one test after the other.
//!
//! A test is: all meet; each that works opens its file, all meet again, and the time counts
//! from there to the rank's last record (with -e and -c until the data is durable and the file
//! closed). Whatever ends a run early, each rank that still can removes what the run has made.

use std::io;
use std::path::{Path, PathBuf};

use super::data::Data;
use super::options::Iozone;
use super::pattern::{Order, Test};
use super::report::{About, Measured, Point, Report};
use super::work::Work;
use crate::clock::Clock;
use crate::comm::{Communicator, Nodes, Reduce};
use crate::engine::Setting;
use crate::engine::buffer::Buffer;
use crate::engine::shown::Room;
use crate::error::{EXIT_WRONG_DATA, Error, Result};
use crate::guard::{self, Guard, Mine, Placement, Reading, ToCome, ToRead};
use crate::io::{FileInterface, Open};
use crate::progress::Stage;
use crate::stats::Latencies;

/// Runs it; the exit code that it deserves.
pub(super) fn run<I: FileInterface>(
    test: &Iozone,
    io: &I,
    comm: &dyn Communicator,
    setting: &Setting,
) -> Result<u8> {
    let nodes = Nodes::find(comm)?;
    let clock = Clock::agree(comm, nodes.count)?;
    let place = path(test, 0).parent().map(PathBuf::from).unwrap_or_default();
    let place = if place.as_os_str().is_empty() { PathBuf::from(".") } else { place };
    let guard = watch(test, io, comm, setting, &place)?;
    let report = if comm.is_root() {
        let room = io.space(&place).ok().map(|space| Room::of(&space));
        Some(Report::begin(About {
            test,
            ranks: comm.size(),
            nodes: &nodes,
            setting,
            place,
            room,
        })?)
    } else {
        None
    };
    let mut run = Run { test, io, comm, setting, clock, report, guard, made: 0, wrong: 0 };
    let done = run.rounds();
    if let Err(error) = &done {
        error.tell(comm);
        run.clean_up();
    }
    done?;
    let pitfalls = run.guard.finish()?;
    if let Some(report) = run.report.take() {
        setting.warn(&pitfalls)?;
        report.finish(run.wrong, &pitfalls)?;
    }
    Ok(if run.wrong > 0 { EXIT_WRONG_DATA } else { 0 })
}

/// Begins to watch for pitfalls; the root looks at the room and for leftovers.
fn watch<'a, I: FileInterface>(
    test: &Iozone,
    io: &I,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    place: &Path,
) -> Result<Guard<'a>> {
    let plan = guard::Plan { place, real: io.keeps_data(), repetitions: test.repetitions };
    let mut guard = Guard::begin(comm, setting.guard, plan, Placement::find(comm)?)?;
    if comm.is_root() && io.keeps_data() {
        let writes = test.chosen().into_iter().any(Test::makes);
        if let Ok(space) = io.space(place) {
            let ranks = test.rounds(comm.size()).into_iter().max().unwrap_or(0) as u64;
            let bytes = test.total.unwrap_or(test.file_bytes.saturating_mul(ranks));
            let inodes = if test.files.is_empty() { ranks } else { test.files.len() as u64 };
            let to_come = ToCome { bytes, inodes };
            guard.room(&space, if writes { to_come } else { ToCome::default() });
        }
        // Without it, what an earlier run has left is what this one is to read or write again.
        if test.chosen().contains(&Test::InitialWrite) {
            let name = Path::new(&test.base).file_name().unwrap_or_default();
            match test.files.is_empty() {
                true => {
                    let begin = format!("{}.DUMMY.", name.to_string_lossy());
                    guard.leftovers(place, Mine::Begin(&begin));
                }
                false => guard.leftover_files(test.files.iter().map(Path::new)),
            }
        }
    }
    // Nobody makes or removes what is looked for before.
    comm.barrier()?;
    Ok(guard)
}

/// The file of a rank.
fn path(test: &Iozone, rank: usize) -> PathBuf {
    match test.files.get(rank) {
        Some(file) => file.into(),
        None => format!("{}.DUMMY.{rank}", test.base).into(),
    }
}

/// A run as one rank makes it.
struct Run<'a, I> {
    test: &'a Iozone,
    io: &'a I,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    clock: Clock,
    report: Option<Report<'a>>,
    guard: Guard<'a>,
    /// Ranks whose files this run has made.
    made: usize,
    /// Records of all ranks that held other data than was written.
    wrong: u64,
}

/// Tests with the same files.
#[derive(Debug, Clone, Copy)]
struct Round {
    ranks: usize,
    record: u64,
    count: u64,
}

impl<I: FileInterface> Run<'_, I> {
    fn rounds(&mut self) -> Result<()> {
        for ranks in self.test.rounds(self.comm.size()) {
            for record in self.test.records.clone() {
                let count = self.test.count(record, ranks);
                let round = Round { ranks, record, count };
                if let Some(report) = &mut self.report {
                    report.round(ranks, record, record * count)?;
                }
                for repetition in 0..self.test.repetitions {
                    for test in self.test.chosen() {
                        self.one(test, round, repetition)?;
                    }
                }
                if !self.test.keeps_files() {
                    self.remove(ranks)?;
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, test: Test, round: Round, repetition: usize) -> Result<()> {
        let comm = self.comm;
        let works = comm.rank() < round.ranks;
        let count = if works { round.count } else { 0 };
        let mut latencies = Latencies::new()?;
        let reads = !test.writes(0, 1, None);
        // A test of its own run's files has its own pitfall.
        if reads && self.made == 0 && !self.test.direct {
            let file = path(self.test, comm.rank());
            let files =
                || if works { vec![ToRead { file, parts: Vec::new() }] } else { Vec::new() };
            self.guard.before_reading_others(test.name(), files)?;
        }
        let before = if reads { Some(self.guard.before_reading()?) } else { None };
        comm.note_begin();
        let shown = self.setting.progress.show(Stage {
            name: test.name(),
            repetition,
            of: self.test.repetitions,
            per_rank: round.count,
            bytes: round.record,
            deadline_s: 0,
            wear_out: false,
        });
        if test == Test::InitialWrite {
            if works {
                self.remove_own()?;
            }
            self.made = round.ranks;
        } else if test.makes() && self.made == 0 {
            // What an earlier run has left is not this one's to remove if it fails.
            let there = works && self.io.exists(&path(self.test, comm.rank())).unwrap_or(true);
            let there = comm.reduce_u64(there.into(), Reduce::Max)?;
            self.made = if there == 0 { round.ranks } else { 0 };
        }
        comm.barrier()?;
        let measured = if works {
            self.measure(test, round, &mut latencies)?
        } else {
            comm.note_over();
            comm.barrier()?;
            if self.syncs_later() {
                comm.barrier()?;
            }
            Measured::default()
        };
        comm.barrier()?;
        let series = shown.series(comm)?;
        drop(shown);
        let delivered = before.map(|before| self.guard.after_reading(before)).transpose()?;
        let wrong = comm.reduce_u64(measured.wrong, Reduce::Sum)?;
        self.wrong += wrong;
        let all = comm.all_gather(&measured.to_bytes())?;
        let latencies = latencies.gather(comm)?.quantiles();
        let measured: Vec<Measured> =
            all.iter().take(round.ranks).map(|bytes| Measured::from_bytes(bytes)).collect();
        debug_assert!(!works || measured.iter().any(|one| one.operations == count));
        let spread = self.judge(test, round, &measured, delivered.as_deref());
        if let Some(report) = &mut self.report {
            let record = round.record;
            report.point(Point { test, record, measured, latencies, wrong, spread, series })?;
        }
        Ok(())
    }

    /// Tells the guard of a test.
    fn judge(
        &mut self,
        test: Test,
        round: Round,
        measured: &[Measured],
        delivered: Option<&[u64]>,
    ) -> guard::Spread {
        let works = measured.iter().enumerate().map(|(rank, one)| guard::Work {
            rank,
            begin_s: one.begin,
            end_s: one.end,
            amount: one.operations * round.record,
        });
        let works: Vec<guard::Work> = works.collect();
        let spread = self.guard.phase(test.name(), guard::Unit::Bytes, &works);
        match delivered {
            None => self.guard.written(test.name(), self.test.fsync || self.test.direct),
            // Some ranks of the mixed test write.
            Some(_) if test == Test::Mixed => {}
            Some(delivered) => {
                let mut bytes: Vec<u64> = works.iter().map(|work| work.amount).collect();
                bytes.resize(delivered.len(), 0);
                self.guard.read(&Reading {
                    phase: test.name(),
                    bytes: &bytes,
                    seconds: spread.seconds,
                    delivered,
                    direct: self.test.direct,
                    own: self.made > 0 && !self.guard.drops_caches(),
                });
            }
        }
        spread
    }

    /// Opens, moves and closes; all that work meet when the files are open.
    fn measure(&self, test: Test, round: Round, latencies: &mut Latencies) -> Result<Measured> {
        let (options, comm, rank) = (self.test, self.comm, self.comm.rank());
        let path = path(options, rank);
        let write = test.writes(rank, round.ranks, options.readers);
        let order = Order::new(test, round.count, options.stride, rank);
        let data = Data::of(rank);
        let mut buffer = Buffer::new(usize::try_from(round.record).unwrap_or(0));
        data.fill(buffer.bytes());
        let (create, empty) = (test.makes(), test.empties());
        let how = Open { write, create, empty, direct: options.direct, ..Open::default() };
        let file = self.io.open(&path, how).map_err(|error| Error::io("open", &path, error))?;
        let sync = |file: &I::File| match write {
            true => self.io.sync(file).map_err(|error| Error::io("fsync", &path, error)),
            false => Ok(()),
        };
        let close = |file| self.io.close(file).map_err(|error| Error::io("close", &path, error));
        comm.barrier()?;
        let begin = self.clock.now();
        let mut work = Work {
            io: self.io,
            file: &file,
            path: &path,
            call: test.call(),
            write,
            order: &order,
            count: round.count,
            data,
            buffer: buffer.bytes(),
            compare: options.compare(),
            latencies,
            wrong: 0,
        };
        work.run(comm)?;
        let wrong = work.wrong;
        if options.fsync {
            sync(&file)?;
        }
        comm.note_over();
        let mut end = self.clock.now();
        if self.syncs_later() {
            // What is still in memory is not to be a burden on the test that follows, nor on
            // those who are still at this one.
            comm.barrier()?;
            sync(&file)?;
        }
        close(file)?;
        if options.close {
            end = self.clock.now();
        }
        Ok(Measured { begin, end, operations: round.count, wrong })
    }

    /// Whether what a test has written is synced when its time is over.
    fn syncs_later(&self) -> bool {
        !(self.test.fsync || self.test.close)
    }

    fn remove(&mut self, ranks: usize) -> Result<()> {
        if self.comm.rank() < ranks {
            self.remove_own()?;
        }
        self.made = 0;
        self.comm.barrier()
    }

    fn remove_own(&self) -> Result<()> {
        let path = path(self.test, self.comm.rank());
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
        for rank in 0..self.made {
            // Another rank may have been faster, and more than trying cannot be done.
            let _ = self.io.remove_file(&path(self.test, rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::comm::Solo;
    use crate::comm::late::attempts;
    use crate::engine::iozone::options::tests::iozone;
    use crate::io::slow::Slow;
    use crate::io::{Null, Space, Stat};
    use crate::progress::Progress;

    /// Nothing, with notes of what is done to files.
    #[derive(Debug, Default)]
    struct Noted(Mutex<Vec<&'static str>>);

    impl Noted {
        fn note(&self, what: &'static str) -> io::Result<()> {
            self.0.lock().unwrap().push(what);
            Ok(())
        }
    }

    impl FileInterface for Noted {
        type File = ();

        fn name(&self) -> &'static str {
            "NOTED"
        }

        fn keeps_data(&self) -> bool {
            false
        }

        fn open(&self, _: &Path, how: Open) -> io::Result<()> {
            self.note(match (how.create, how.empty) {
                (_, true) => "empty",
                (true, false) => "create",
                (false, false) => "open",
            })
        }

        fn write_at(&self, (): &(), bytes: &[u8], _: u64) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn read_at(&self, (): &(), bytes: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn seek(&self, (): &(), _: u64) -> io::Result<()> {
            Ok(())
        }

        fn write_next(&self, (): &(), bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn read_next(&self, (): &(), bytes: &mut [u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn sync(&self, (): &()) -> io::Result<()> {
            self.note("sync")
        }

        fn close(&self, (): ()) -> io::Result<()> {
            self.note("close")
        }

        fn stat(&self, _: &Path) -> io::Result<Stat> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn make_node(&self, path: &Path) -> io::Result<()> {
            Null.make_node(path)
        }

        fn make_dir(&self, path: &Path) -> io::Result<()> {
            Null.make_dir(path)
        }

        fn remove_dir(&self, path: &Path) -> io::Result<()> {
            Null.remove_dir(path)
        }

        fn remove_file(&self, path: &Path) -> io::Result<()> {
            Null.remove_file(path)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            Null.rename(from, to)
        }

        fn space(&self, path: &Path) -> io::Result<Space> {
            Null.space(path)
        }

        fn remove_tree(&self, path: &Path) -> io::Result<()> {
            Null.remove_tree(path)
        }
    }

    fn noted(line: &str) -> Vec<&'static str> {
        let (io, comm) = (Noted::default(), Solo::new().unwrap());
        let guard = &guard::Options { no_self_check: true, ..Default::default() };
        Progress::around(&comm, true, |progress| {
            let out = Some(Path::new("/dev/null"));
            let setting = Setting { command_line: Vec::new(), progress, json: true, out, guard };
            // Nothing is kept, so that what is read is wrong.
            let code = run(&iozone(line), &io, &comm, &setting).unwrap();
            assert!([0, EXIT_WRONG_DATA].contains(&code), "{code}");
        });
        io.0.into_inner().unwrap()
    }

    #[test]
    fn what_was_written_is_no_burden_on_the_next_test() {
        let line = "-r 4k -s 8k -i 0 -i 1 -+n";
        assert_eq!(noted(line), ["create", "sync", "close", "open", "close"]);
        // Once within the time is enough, and nothing comes after a close that was timed.
        assert_eq!(noted(&format!("{line} -e")), noted(line));
        assert_eq!(noted(&format!("{line} -c")), ["create", "close", "open", "close"]);
    }

    /// Seconds that writing takes where fsync and close take their time.
    fn write_s(line: &str, io: &Slow) -> f64 {
        let comm = Solo::new().unwrap();
        let name = format!("sateen-iozone-slow-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "").unwrap();
        let guard = &guard::Options { no_self_check: true, ..Default::default() };
        Progress::around(&comm, true, |progress| {
            let out = Some(path.as_path());
            let setting = Setting { command_line: Vec::new(), progress, json: true, out, guard };
            run(&iozone(line), io, &comm, &setting).unwrap()
        });
        let said = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // Warnings stand before it.
        let json = said.split_at(said.find('{').unwrap()).1;
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        json["summary"][0]["seconds"].as_f64().unwrap()
    }

    #[test]
    fn fsync_and_close_are_part_of_the_time_if_that_is_asked_for() {
        let some = Duration::from_millis(300);
        let io = Slow { sync: some, close: some, ..Slow::default() };
        let line = "-r 4k -s 8k -i 0 -+n";
        for (options, times) in [("-e", 1), ("-c", 1), ("-e -c", 2)] {
            let seconds = write_s(&format!("{line} {options}"), &io);
            assert!(seconds >= (times * some).as_secs_f64(), "{options}: {seconds}");
        }
        attempts(|| {
            let without = write_s(line, &io);
            if without < some.as_secs_f64() { Ok(()) } else { Err(without.to_string()) }
        });
    }

    #[test]
    fn pwrite_makes_its_files() {
        assert_eq!(noted("-r 4k -s 8k -i 9"), ["empty", "sync", "close"]);
        assert_eq!(noted("-r 4k -s 8k -i 6"), ["open", "sync", "close"]);
    }
}
