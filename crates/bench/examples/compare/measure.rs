//! A round: each row on each file system, one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::memory;
use crate::numbers::{Processor, Round, Single};
use crate::parts::{self, Part};
use crate::processor;
use crate::rows::{self, Caches, Op, Step, Visit};
use crate::systems::{Kind, System};

/// No step takes longer, whatever happens.
const STEP_SECONDS_MAX: u32 = 900;
/// How long processes are left alone before they count as idle, and how long they are watched.
const SETTLE: Duration = Duration::from_secs(5);
const IDLE_SECONDS: u64 = 20;
const AFTER_WARM_UP: Duration = Duration::from_millis(300);
/// Who removes the data of files behind their names has begun by then, and has done it when twice for so
/// long all processors together worked for less than this part of that; or is not waited for any longer.
const BEGINS: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_millis(400);
const QUIET: f64 = 0.1;
const BEHIND_MAX: Duration = Duration::from_secs(30);
/// sateen-bench ends so if data is wrong, which is told as this.
const EXIT_WRONG_DATA: i32 = 3;
pub(crate) const WRONG: &str = "what was read is not what was written";
/// Folder in each file system.
const FOLDER: &str = "compare";

/// What a round is made with.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The program `sateen-bench`, with words that come first.
    pub(crate) bench: Vec<String>,
    /// The program `sateen`, which sets stripes.
    pub(crate) sateen: Option<PathBuf>,
    pub(crate) round: u32,
    pub(crate) rows: Vec<String>,
    pub(crate) processes: Vec<u32>,
    pub(crate) scale_percent: u32,
    /// In the order of the first row.
    pub(crate) systems: Vec<System>,
    /// Where it is recorded what processors do, if that is wanted.
    pub(crate) records: Option<PathBuf>,
}

impl Plan {
    /// Makes the round.
    pub(crate) fn measure(&self) -> Result<Round> {
        let mut round =
            Round { round: self.round, others_percent: None, verified: 0, singles: Vec::new() };
        for system in &self.systems {
            let folder = system.dir.join(FOLDER);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let visits = rows::visits(&self.rows, &self.processes);
        let mut systems = self.systems.clone();
        let mut begun = Instant::now();
        let first_write = visits.iter().position(Visit::writes_data);
        for (at, visit) in visits.iter().enumerate() {
            let before = round.singles.len();
            for system in systems.iter().filter(|system| visit.is_for(system)) {
                if Some(at) == first_write {
                    self.warm_up(visit, system)?;
                }
                self.visit(visit, system, &mut round)?;
            }
            let new = round.singles.get(before..).unwrap_or_default();
            say(&format!("{} of {}", at + 1, visits.len()), &self.systems, new, begun);
            begun = Instant::now();
            // Nobody is always the first, or always behind the same.
            let step = usize::from(!systems.is_empty());
            systems.rotate_left(step);
        }
        if self.rows.iter().any(|name| name == rows::IDLE) {
            self.idle(&mut round);
            let idle = |one: &&Single| one.row == rows::IDLE_ROW;
            let new: Vec<Single> = round.singles.iter().filter(idle).cloned().collect();
            say("idle", &self.systems, &new, begun);
        }
        Ok(round)
    }

    /// What one file system does before the next.
    fn visit(&self, visit: &Visit, system: &System, round: &mut Round) -> Result<()> {
        let name = format!("{}-{}", visit.group.name, visit.processes);
        let dir = system.dir.join(FOLDER).join(name);
        if visit.first {
            self.prepare(visit, system, &dir)?;
        }
        let count = visit.count(system.known.kind, self.scale_percent);
        memory::back(visit.bytes(count));
        for &step in visit.steps {
            if step.verify {
                self.verify(visit, system, (step, count), &dir, round);
            } else {
                round.singles.push(self.step(visit, system, (step, count), &dir)?);
            }
            // What a system leaves for later is not in the way of the next, nor in its own rate.
            let later = matches!(system.known.kind, Kind::Sateen | Kind::Peer);
            if step.op == Op::Remove && later && visit.group.name == "small" {
                is_done_with_removals();
            }
        }
        // What was never there cannot be listed either; it goes with the mount.
        if visit.last && system.known.keeps_data {
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        Ok(())
    }

    /// Does what the first row that writes data does, and takes it away again. Nothing has been in the
    /// page cache since the round's beginning then, and who comes first would pay for memory that
    /// nobody had yet (see [`memory`]): ext4 wrote 370 MiB/s there, and 2300 in the next such row.
    fn warm_up(&self, visit: &Visit, system: &System) -> Result<()> {
        if !system.known.keeps_data {
            return Ok(());
        }
        let dir = system.dir.join(FOLDER).join("warm-up");
        self.prepare(visit, system, &dir)?;
        let count = visit.count(system.known.kind, self.scale_percent);
        for &step in visit.steps.iter().filter(|step| step.op == Op::Write) {
            // If it fails the row itself will say so.
            drop(self.run(visit, step, count, &places(visit, system, step, &dir), None));
        }
        fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        rustix::fs::sync();
        // Where data goes after its name; but not so long that the host takes the memory again.
        sleep(AFTER_WARM_UP);
        Ok(())
    }

    /// Makes the folder of a group.
    fn prepare(&self, visit: &Visit, system: &System, dir: &Path) -> Result<()> {
        fs::create_dir(dir).with_context(|| dir.display().to_string())?;
        self.stripe(visit.group.stripes, system, dir)?;
        if visit.group.name == rows::TWO {
            // Made in advance: when both mounts open the same new file with O_CREAT, MooseFS says
            // EEXIST to the second now and then.
            fs::write(dir.join("file"), "").with_context(|| dir.display().to_string())?;
        }
        Ok(())
    }

    fn stripe(&self, stripes: u32, system: &System, dir: &Path) -> Result<()> {
        let (Kind::Sateen, Some(sateen)) = (system.known.kind, &self.sateen) else { return Ok(()) };
        let mut command = Command::new(sateen);
        command.args(["lfs", "setstripe", "-c", &stripes.to_string()]).arg(dir);
        let output = command.output().with_context(|| sateen.display().to_string())?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "lfs setstripe {}: {errors}", dir.display());
        Ok(())
    }

    fn step(
        &self,
        visit: &Visit,
        system: &System,
        (step, count): (Step, u64),
        dir: &Path,
    ) -> Result<Single> {
        if step.caches == Caches::Cold {
            drop_caches()?;
        }
        let operations = count * u64::from(visit.processes);
        let [servers, client, programs] = used(system);
        let record = self.records.as_ref().map(|folder| folder.join("perf.data"));
        let done =
            self.run(visit, step, count, &places(visit, system, step, dir), record.as_deref());
        let [servers_after, client_after, programs_after] = used(system);
        let per = |seconds: f64| seconds * 1e6 / operations as f64;
        let part = |pids: &[u32], seconds| (!pids.is_empty()).then(|| per(seconds));
        let processor = Processor {
            servers: part(&system.servers, servers_after - servers),
            client: part(&system.client, client_after - client),
            programs: per(programs_after - programs),
        };
        let (value, failed) = match done.and_then(|report| rate(visit, step, &report)) {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let parts = match record.filter(|_| value.is_some()) {
            Some(file) => Some(self.parts(&file, operations, system)?),
            None => None,
        };
        Ok(Single {
            round: self.round,
            row: step.row(visit.group),
            processes: visit.processes,
            system: system.known.name.to_owned(),
            unit: visit.group.unit.to_owned(),
            value,
            operations,
            processor_us: value.is_some().then_some(processor),
            failed,
            parts,
        })
    }

    /// Compares what was written. Data that is wrong makes all that was read in vain.
    fn verify(
        &self,
        visit: &Visit,
        system: &System,
        (step, count): (Step, u64),
        dir: &Path,
        round: &mut Round,
    ) {
        if !system.known.keeps_data {
            return;
        }
        match self.run(visit, step, count, &places(visit, system, step, dir), None) {
            Ok(_) => round.verified += 1,
            Err(error) => {
                // What is measured just before: reads, or the writing itself.
                let measured = visit.steps.iter().rfind(|step| !step.verify);
                let Some(row) = measured.map(|step| step.row(visit.group)) else { return };
                let name = system.known.name;
                let is_it = |one: &&mut Single| {
                    one.row == row && one.processes == visit.processes && one.system == name
                };
                for one in round.singles.iter_mut().filter(is_it) {
                    one.failed.get_or_insert(format!("when it was compared: {error:#}"));
                }
            }
        }
    }

    /// What was recorded, sorted. The record itself is large, and goes.
    fn parts(&self, file: &Path, operations: u64, system: &System) -> Result<Vec<Part>> {
        let parts = parts::recorded(file, operations, system, &self.systems);
        fs::remove_file(file).with_context(|| file.display().to_string())?;
        parts
    }

    /// Runs sateen-bench, and records what processors do meanwhile, if that is wanted.
    fn run(
        &self,
        visit: &Visit,
        step: Step,
        count: u64,
        dirs: &[PathBuf],
        record: Option<&Path>,
    ) -> Result<Value> {
        let (program, first) = self.bench.split_first().context("no program")?;
        let processes = visit.processes.to_string();
        let mut command = match record {
            Some(file) => {
                let mut perf = Command::new("perf");
                perf.args(parts::recording(file)).arg("timeout");
                perf
            }
            None => Command::new("timeout"),
        };
        let output = command
            .args(["--foreground", "-k", "10", &STEP_SECONDS_MAX.to_string(), program])
            .args(first)
            .args(["-np", &processes, "--quiet", "--json", "--no-self-check"])
            .args(visit.words(step, count, dirs))
            .stdin(Stdio::null())
            .output()
            .context(if record.is_some() { "perf" } else { "timeout" })?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = errors.lines().rfind(|line| !line.contains(": warning "));
        let wrong = output.status.code() == Some(EXIT_WRONG_DATA);
        let what = if wrong { WRONG.to_owned() } else { output.status.to_string() };
        ensure!(output.status.success(), "{what}: {}", said.unwrap_or_default());
        serde_json::from_slice(&output.stdout).context("its report")
    }

    /// What processes use while nobody asks anything, all file systems at once.
    fn idle(&self, round: &mut Round) {
        let seconds = (IDLE_SECONDS * u64::from(self.scale_percent) / 100).clamp(1, IDLE_SECONDS);
        sleep(SETTLE.min(Duration::from_secs(seconds)));
        let pids = |system: &System| [&system.servers[..], &system.client[..]].concat();
        let look = || -> Vec<Duration> {
            self.systems.iter().map(|system| processor::used_by_threads(&pids(system))).collect()
        };
        let (before, busy, begun) = (look(), processor::busy(), Instant::now());
        sleep(Duration::from_secs(seconds));
        let (after, busy_after) = (look(), processor::busy());
        let percent = 100.0 / begun.elapsed().as_secs_f64();
        let mut ours = 0.0;
        for ((system, before), after) in self.systems.iter().zip(before).zip(after) {
            let used = after.saturating_sub(before).as_secs_f64() * percent;
            ours += used;
            if pids(system).is_empty() {
                continue;
            }
            round.singles.push(Single {
                round: self.round,
                row: rows::IDLE_ROW.to_owned(),
                processes: 0,
                system: system.known.name.to_owned(),
                unit: "% of a processor".to_owned(),
                value: Some(used),
                operations: 0,
                processor_us: None,
                failed: None,
                parts: None,
            });
        }
        round.others_percent = Some(((busy_after - busy) * percent - ours).max(0.0));
    }
}

/// Where a visit's programs find its folder: that of two mounts one on each, and what they have
/// written on the third.
fn places(visit: &Visit, system: &System, step: Step, dir: &Path) -> Vec<PathBuf> {
    let name = dir.file_name().unwrap_or_default();
    let other = |at: usize| match system.others.get(at) {
        Some(other) => other.join(FOLDER).join(name),
        None => dir.to_owned(),
    };
    match (visit.group.name, step.verify) {
        (rows::TWO, false) => vec![dir.to_owned(), other(0)],
        (rows::TWO, true) => vec![other(1)],
        _ => vec![dir.to_owned()],
    }
}

/// Of servers, of the client, of ended children.
fn used(system: &System) -> [f64; 3] {
    let of = processor::used;
    [of(&system.servers), of(&system.client), processor::used_by_children()]
}

/// The rate that a report has of a step.
fn rate(visit: &Visit, step: Step, report: &Value) -> Result<f64> {
    let (name, factor) = visit.reported(step);
    let found = if visit.group.metadata {
        let rows =
            report.pointer("/summary").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let row = rows.iter().find(|row| row.get("operation").is_some_and(|is| is == name));
        row.and_then(|row| row.pointer("/rate/median")?.as_f64())
    } else {
        let rows = report.pointer("/tests/0/Results").and_then(Value::as_array);
        let rows = rows.map_or(&[][..], Vec::as_slice);
        let row = rows.iter().find(|row| row.get("access").is_some_and(|is| is == name));
        row.and_then(|row| row.get("bwMiB")?.as_f64())
    };
    match found {
        Some(rate) if rate > 0.0 => Ok(rate * factor),
        _ => bail!("the report has no rate of {name}"),
    }
}

/// Waits until what is done when names are gone is done.
fn is_done_with_removals() {
    sleep(BEGINS);
    let (begun, mut quiet) = (Instant::now(), 0);
    while quiet < 2 && begun.elapsed() < BEHIND_MAX {
        let (before, since) = (processor::busy(), Instant::now());
        sleep(WATCHED);
        let busy = processor::busy() - before;
        quiet = if busy < QUIET * since.elapsed().as_secs_f64() { quiet + 1 } else { 0 };
    }
}

/// Writes back what is dirty, and empties the kernel's caches of everything.
fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("caches are dropped by root alone")
}

/// A line for each row that a visit has measured.
fn say(place: &str, systems: &[System], singles: &[Single], begun: Instant) {
    let mut rows: Vec<(&str, u32)> = Vec::new();
    for one in singles {
        if !rows.contains(&(one.row.as_str(), one.processes)) {
            rows.push((&one.row, one.processes));
        }
    }
    for (row, processes) in rows {
        let mut line =
            format!("  {place:>8}, {:3} s  {:36}", begun.elapsed().as_secs(), rows::title(row));
        if processes > 0 {
            line += &format!(" x {processes}");
        }
        for system in systems {
            let is_it = |one: &&Single| {
                one.row == row && one.processes == processes && one.system == system.known.name
            };
            if let Some(one) = singles.iter().find(is_it) {
                let value = one.value.map_or("FAILED".to_owned(), crate::document::number);
                line += &format!("  {} {value}", system.known.name);
            }
        }
        println!("{line}");
    }
}
