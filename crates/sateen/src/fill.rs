//! `sateen fill`: how a file system bears very many files. A measurement, hidden from users.
//!
//! Starts the targets of a data folder with clients in the same process and no mount, and
//! reports how long the start took, which is what a restart costs if the data is not new.
//! Then some threads, each a client with folders of its own, create empty files (18 of 20
//! operations; one is a stat and one an unlink of a random file) until there are enough, and
//! after that mix creates, stats and unlinks in equal parts at a bounded rate. Every answer
//! is checked. It ends without closing anything, so that the next start is one after a crash.
//!
//! A probe sleeps for a millisecond again and again: a second in which it overslept by more
//! than [`QUIET_NS`] is one in which this process had to wait for a processor. Another one reads
//! and writes the disk itself ([`disk`]). Both explain, and excuse nothing. What the longest
//! operations waited for is printed at the end ([`stalls`]). `scripts/fill.sh` runs it within a
//! limit of memory, with limits ([`limits`]) that make it fail, and once more to see whether the
//! files are there ([`left`]).

mod course;
mod disk;
mod left;
mod limits;
mod stalls;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sateen_client::{Client, OpenHow};
use sateen_types::{Errno, Fid, Result};
use sateen_wire::Cred;

use crate::cli::FillArgs;
use crate::data_dir::DataDir;
use crate::node::{Native, Node};
use crate::refusal::{Outcome, Refusal};
use crate::targets;
use course::{Course, Step};
use disk::DiskProbe;
use limits::Found;
use stalls::Watched;

/// Files in one folder.
const FILES_PER_FOLDER: u64 = 100_000;
/// A probe that overslept by less says that there was a processor to run on: 11 ms.
const QUIET_NS: u64 = 11_000_000;
/// Kinds of operations.
const KINDS: [&str; 3] = ["create", "stat", "unlink"];
const CREATE: usize = 0;
const STAT: usize = 1;
const UNLINK: usize = 2;
const ROOT_CRED: Cred = Cred { uid: 0, gid: 0, umask: 0 };

/// What all threads count.
#[derive(Default)]
struct Counts {
    /// Operations and nanoseconds, by kind, since the last report.
    done: [AtomicU64; 3],
    spent_ns: [AtomicU64; 3],
    /// Longest operation of the running second, by kind.
    longest_ns: [AtomicU64; 3],
    /// Longest oversleeping of the probe in it.
    probe_ns: AtomicU64,
    /// Longest wait for the disk in it.
    disk_ns: AtomicU64,
    live: AtomicU64,
    /// Creates while it fills, and the nanoseconds they took, by quarter.
    quarters: [(AtomicU64, AtomicU64); 4],
    stop: AtomicBool,
    watched: Mutex<Vec<Arc<Watched>>>,
}

impl Counts {
    fn watched(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quarters(&self) -> [(u64, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.quarters.each_ref().map(|(count, ns)| (read(count), read(ns)))
    }

    /// A create when so many of a thread's share of files are there.
    fn filled(&self, live: u64, share: u64, took: Duration) {
        let quarter = live.saturating_mul(4) / share.max(1);
        if let Some((count, ns)) = self.quarters.get(quarter as usize) {
            count.fetch_add(1, Ordering::Relaxed);
            ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn note(&self, kind: usize, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        for (counter, add) in [(&self.done, 1), (&self.spent_ns, ns)] {
            if let Some(counter) = counter.get(kind) {
                counter.fetch_add(add, Ordering::Relaxed);
            }
        }
        if let Some(longest) = self.longest_ns.get(kind) {
            longest.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

/// One thread and its folders.
struct Worker {
    client: Native,
    counts: Arc<Counts>,
    number: u64,
    folders: Vec<Fid>,
    course: Course,
    watched: Option<Arc<Watched>>,
}

/// Runs the command.
pub(crate) fn run(args: &FillArgs) -> Outcome<ExitCode> {
    crate::logging::to_terminal();
    let data = DataDir::at(&args.data.data)?;
    let lock = data.open()?;
    let begun = Instant::now();
    let targets = targets::open_or_make(&data, Some(args.mdts), Some(args.osts))?;
    let embedded = Node::embedded(&targets)?;
    let counts = Arc::new(Counts::default());
    let mut workers = Vec::new();
    for number in 0..args.threads {
        let client = embedded.client()?;
        workers.push(Worker::new(client, counts.clone(), u64::from(number)));
    }
    let first = workers.first_mut().map(|worker| worker.client_root());
    let start = begun.elapsed();
    println!("started in {:.2} s; the root answers {first:?}", start.as_secs_f64());
    let pause = Duration::from_secs(u64::from(args.threads)) / args.rate.max(1);
    let mut broken = Vec::new();
    if let Some((files, first)) = args.left.zip(workers.first()) {
        broken.extend(look(&first.client, args, files, pause));
    }
    let found = std::thread::scope(|scope| {
        let share = args.files / u64::from(args.threads).max(1);
        let mixed = Duration::from_secs(args.mixed);
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(move || worker.work(share, mixed, pause)))
            .collect();
        let (probed, reported) = (counts.clone(), counts.clone());
        scope.spawn(move || probe(&probed));
        let (counted, folder) = (counts.clone(), data.path().to_owned());
        scope.spawn(move || probe_disk(&counted, &folder));
        let reporter = scope.spawn(move || report(&reported, args.every));
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        counts.stop.store(true, Ordering::Relaxed);
        for result in results {
            match result {
                Ok(Ok(())) => {}
                Ok(Err(errno)) => {
                    return Err(Refusal::new(format!("failed: {errno}"), "see above"));
                }
                Err(_) => return Err(Refusal::new("a thread panicked", "see above")),
            }
        }
        reporter.join().map_err(|_| Refusal::new("a thread panicked", "see above"))
    })?;
    drop(lock);
    broken.extend(Found { start, quarters: counts.quarters(), ..found }.broken(&args.limits));
    for limit in &broken {
        println!("FAILED: {limit}");
    }
    // A crash, as far as the targets can tell.
    std::process::exit(i32::from(!broken.is_empty()))
}

/// Says whether what an earlier run has left is there; what is wrong.
fn look(client: &Native, args: &FillArgs, files: u64, pause: Duration) -> Option<String> {
    let share = files / u64::from(args.threads).max(1);
    let turns = Duration::from_secs(args.left_mixed).as_nanos().div_ceil(pause.as_nanos().max(1));
    let begun = Instant::now();
    let sample = match left::look(client, share, u32::try_from(turns).unwrap_or(u32::MAX)) {
        Ok(sample) => sample,
        Err(errno) => return Some(format!("the files of before cannot be looked up: {errno}")),
    };
    let left::Sample { there, gone, wrong } = sample;
    println!(
        "of the files of before, {there} are there and {gone} are gone as they must be, {wrong} are \
         not; looked up in {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    match (there, wrong) {
        (1.., 0) => None,
        (_, 0) => Some("none of the files of before was looked up".to_owned()),
        _ => Some(format!("{wrong} of the files of before are not as they were left")),
    }
}

/// The name of the file of this number.
fn file_name(file: u64) -> Vec<u8> {
    format!("file.{file:08}").into_bytes()
}

/// Whether there is a file of this name; it is forgotten at once, as each is.
async fn is_there(client: &Arc<Client>, folder: Fid, name: &[u8]) -> Result<bool> {
    let entry = client.lookup(folder, name).await?;
    if let Some(known) = entry.inode {
        client.introduce(known.attr.fid);
        client.forget(known.attr.fid, 1);
    }
    Ok(entry.inode.is_some())
}

impl Worker {
    fn new(client: Native, counts: Arc<Counts>, number: u64) -> Worker {
        let course = Course::new(number);
        Worker { client, counts, number, folders: Vec::new(), course, watched: None }
    }

    fn client_root(&mut self) -> Result<Fid> {
        self.client.run(|client| async move { Ok(client.getattr(Fid::ROOT).await?.attr.fid) })
    }

    fn work(mut self, share: u64, mixed: Duration, pause: Duration) -> Result<()> {
        let watched = Arc::new(Watched::this_thread());
        self.counts.watched().push(watched.clone());
        self.watched = Some(watched);
        while self.course.live() < share {
            let live = self.course.live();
            let step = self.course.filling();
            if let Some(took) = self.perform(step)? {
                self.counts.filled(live, share, took);
            }
        }
        let begun = Instant::now();
        for turn in 0u32.. {
            let due = pause.saturating_mul(turn);
            if due >= mixed {
                break;
            }
            if let Some(left) = due.checked_sub(begun.elapsed()) {
                std::thread::sleep(left);
            }
            let step = self.course.mixed(turn);
            self.perform(step)?;
        }
        Ok(())
    }

    /// Takes a step; how long it took, if it made a file.
    fn perform(&mut self, step: Step) -> Result<Option<Duration>> {
        match step {
            Step::Create(file) => return self.create(file).map(Some),
            Step::Stat(file, is_there) => self.stat(file, is_there)?,
            Step::Unlink(file) => self.unlink(file)?,
            Step::Nothing => {}
        }
        Ok(None)
    }

    /// Runs verbs of the client as an operation that counts; their answer, and how long it took.
    fn timed<T: Send + 'static, F>(
        &self,
        kind: usize,
        verbs: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<(T, Duration)>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let watched = self.watched.as_ref().ok_or(Errno::EIO)?;
        let begun = watched.begin();
        let result = self.client.run(verbs)?;
        let took = watched.end(&begun, kind);
        self.counts.note(kind, took);
        Ok((result, took))
    }

    fn place(&self, file: u64) -> Result<(Fid, Vec<u8>)> {
        let folder = self.folders.get((file / FILES_PER_FOLDER) as usize).copied();
        Ok((folder.ok_or(Errno::EIO)?, file_name(file)))
    }

    /// Makes a file, and a folder if it is the first of one; how long the file took.
    fn create(&mut self, file: u64) -> Result<Duration> {
        if file.is_multiple_of(FILES_PER_FOLDER) {
            let random = sateen_reactor::random();
            let name = format!("t{}.{}.{random:x}", self.number, self.folders.len());
            let made = self.client.run(move |client| async move {
                let mode = 0o40_755;
                client.mknod(Fid::ROOT, name.as_bytes(), mode, 0, b"", ROOT_CRED).await
            })?;
            self.folders.push(made.inode.ok_or(Errno::EIO)?.attr.fid);
        }
        let (folder, name) = self.place(file)?;
        let ((), took) = self.timed(CREATE, move |client| async move {
            let how = OpenHow { write: true, exclusive: true, ..OpenHow::default() };
            let (_, opened) = client.create(folder, &name, 0o644, how, ROOT_CRED).await?;
            let fid = opened.known.attr.fid;
            client.introduce(fid);
            client.close(opened.handle).await?;
            client.forget(fid, 1);
            Ok(())
        })?;
        self.counts.live.fetch_add(1, Ordering::Relaxed);
        Ok(took)
    }

    fn stat(&self, file: u64, expected: bool) -> Result<()> {
        let (folder, name) = self.place(file)?;
        let (found, _) =
            self.timed(STAT, move |client| async move { is_there(&client, folder, &name).await })?;
        if found == expected { Ok(()) } else { Err(Errno::EIO) }
    }

    fn unlink(&self, file: u64) -> Result<()> {
        let (folder, name) = self.place(file)?;
        self.timed(UNLINK, move |client| async move { client.unlink(folder, &name, false).await })?;
        self.counts.live.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Sleeps again and again, and notes by how much too long.
fn probe(counts: &Counts) {
    let nap = Duration::from_millis(1);
    while !counts.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(nap);
        let over = u64::try_from(begun.elapsed().saturating_sub(nap).as_nanos());
        counts.probe_ns.fetch_max(over.unwrap_or(u64::MAX), Ordering::Relaxed);
        for watched in counts.watched().iter() {
            watched.look();
        }
    }
}

/// Reads and writes the disk itself again and again.
fn probe_disk(counts: &Counts, folder: &Path) {
    let probed = DiskProbe::new(folder).and_then(|mut probe| {
        while !counts.stop.load(Ordering::Relaxed) {
            let took = u64::try_from(probe.probe()?.as_nanos()).unwrap_or(u64::MAX);
            counts.disk_ns.fetch_max(took, Ordering::Relaxed);
            std::thread::sleep(disk::EVERY);
        }
        Ok(())
    });
    if let Err(error) = probed {
        println!("the disk itself is not measured: {error}");
    }
}

/// Prints a line every so many seconds, and at the end the longest operations; what it found.
fn report(counts: &Counts, every: u64) -> Found {
    println!(
        "seconds     live files  creates/s  average us: create   stat  unlink  longest ms: create  \
         stat unlink  probe ms  disk ms  MiB"
    );
    let begun = Instant::now();
    let mut longest = [0; 3];
    let mut longest_quiet = [0; 3];
    let mut longest_disk = 0;
    let (mut seconds, mut quiet) = (0, 0);
    let mut row = Row::default();
    while !counts.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1));
        let probe = counts.probe_ns.swap(0, Ordering::Relaxed);
        let second: Vec<u64> =
            counts.longest_ns.iter().map(|ns| ns.swap(0, Ordering::Relaxed)).collect();
        seconds += 1;
        quiet += u64::from(probe < QUIET_NS);
        for (kind, ns) in second.iter().enumerate() {
            raise(&mut longest, kind, *ns);
            raise(&mut row.longest, kind, *ns);
            if probe < QUIET_NS {
                raise(&mut longest_quiet, kind, *ns);
            }
        }
        row.probe = row.probe.max(probe);
        row.disk = row.disk.max(counts.disk_ns.swap(0, Ordering::Relaxed));
        longest_disk = longest_disk.max(row.disk);
        if seconds % every.max(1) == 0 {
            row.print(counts, begun.elapsed().as_secs_f64(), every.max(1));
            row = Row::default();
        }
    }
    for (what, longest, of) in
        [("", longest, seconds), (", quiet seconds alone", longest_quiet, quiet)]
    {
        let parts: Vec<String> = KINDS
            .iter()
            .zip(longest)
            .map(|(kind, ns)| format!("{kind} {:.1} ms", ns as f64 / 1e6))
            .collect();
        println!("longest{what} ({of} s): {}", parts.join(", "));
    }
    println!("longest wait of the probe for the disk itself: {:.1} ms", longest_disk as f64 / 1e6);
    for watched in counts.watched().iter() {
        watched.print(&KINDS);
    }
    let longest_ns = longest.into_iter().max().unwrap_or_default();
    Found { longest_ns, ..Found::default() }
}

fn raise(longest: &mut [u64; 3], kind: usize, ns: u64) {
    if let Some(longest) = longest.get_mut(kind) {
        *longest = ns.max(*longest);
    }
}

/// What is printed in one line.
#[derive(Default)]
struct Row {
    longest: [u64; 3],
    probe: u64,
    disk: u64,
}

impl Row {
    fn print(&self, counts: &Counts, at: f64, every: u64) {
        let done: Vec<u64> =
            counts.done.iter().map(|done| done.swap(0, Ordering::Relaxed)).collect();
        let spent = counts.spent_ns.iter().map(|spent| spent.swap(0, Ordering::Relaxed));
        let average: Vec<f64> = spent
            .zip(&done)
            .map(|(spent, done)| spent as f64 / 1e3 / (*done).max(1) as f64)
            .collect();
        let average: String = average.iter().map(|us| format!("{us:>8.1}")).collect();
        let longest: String =
            self.longest.iter().map(|ns| format!("{:>7.1}", *ns as f64 / 1e6)).collect();
        println!(
            "{at:>7.0} {:>14} {:>10} {average:>31} {longest:>30} {:>9.1} {:>8.1} {:>4}",
            counts.live.load(Ordering::Relaxed),
            done.first().copied().unwrap_or_default() / every,
            self.probe as f64 / 1e6,
            self.disk as f64 / 1e6,
            resident_mib(),
        );
    }
}

/// Memory of this process outside the page cache.
fn resident_mib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    (pages.unwrap_or_default() * rustix::param::page_size() as u64) >> 20
}
