//! A run: the phases one after the other, as all ranks make them together.
//!
//! Life of a run:
//! 1. the root reads the configuration, names the run and tells all;
//! 2. of a broken run, what was done is kept and what was begun is removed;
//! 3. for each phase caches are dropped and pauses kept, then it is run and scored;
//! 4. the score is written, and the files are removed.
//!
//! Whatever ends it early, what is done stays, for going on (`--resume`) or removing
//! (`--cleanup`): a run takes hours.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Io500;
use super::config::Config;
use super::find::{self, Wanted};
use super::phase::{Phase, Work};
use super::place::{self, Plan};
use super::record;
use super::results::Results;
use crate::comm::{Communicator, Nodes, Reduce, outside};
use crate::engine::{Beside, Setting, ior, mdtest};
use crate::error::{EXIT_WRONG_DATA, Error, Result};
use crate::guard::{self, Code, Guard, Pitfall, Placement};
use crate::progress::Stage;
use crate::size::GIB;
use crate::when;

/// Bytes of a file of the hard mdtest, by which find finds it.
const HARD_BYTES: u64 = 3901;
/// Bytes of a random read, and most of them of a rank.
const RANDOM: (u64, u64) = (4096, 10_000_000);
/// find as it is shown; nobody knows how much there is.
const FIND: Stage = Stage {
    name: "find",
    repetition: 0,
    of: 1,
    per_rank: 0,
    bytes: 0,
    deadline_s: 0,
    wear_out: false,
};

/// Runs it; the exit code that it deserves.
pub(super) fn run(options: &Io500, comm: &dyn Communicator, setting: &Setting) -> Result<u8> {
    let plan = agree(options, comm)?;
    let nodes = Nodes::find(comm)?;
    if options.cleanup {
        if comm.is_root() && !setting.json {
            println!("Removing what a run has left in {}", plan.datadir.display());
        }
        plan.clean_up(comm)?;
        return Ok(0);
    }
    let before = if options.resume { broken(&plan, comm)? } else { Before::default() };
    if comm.is_root() {
        plan.make()?;
    }
    comm.barrier()?;
    let options = &guard::Options {
        no_self_check: setting.guard.no_self_check || plan.dry,
        ..setting.guard.clone()
    };
    // How often phases are run is a matter of the rules.
    let watched = guard::Plan { place: &plan.datadir, real: !plan.dry, repetitions: usize::MAX };
    let guard = Guard::begin(comm, options, watched, Placement::find(comm)?)?;
    let lost = before.lost;
    let mut run =
        Run { plan: &plan, comm, setting, results: None, guard, cold: false, lost, wrong: false };
    let outcome = run.all(&nodes, &before.done);
    if let Err(error) = &outcome {
        error.tell(comm);
        if comm.is_root() && plan.has_begun() && !matches!(error, Error::Usage(_)) {
            broke(&plan);
        }
    }
    outcome?;
    let wrong = run.wrong;
    // One that has only been shown has made nothing: what is there is another's.
    if !plan.dry {
        plan.end(comm)?;
        if comm.is_root() && plan.keep && plan.has_left() && !setting.json {
            println!(
                "The files stay in {}: --files-of {name} uses them, --cleanup --timestamp {name} \
                 removes them",
                plan.datadir.display(),
                name = plan.files_stamp()
            );
        }
    }
    Ok(if wrong { EXIT_WRONG_DATA } else { 0 })
}

/// Says what can be done about a run that broke.
fn broke(plan: &Plan) {
    let (name, dir) = (plan.files_stamp(), plan.datadir.display());
    match plan.files_of {
        None => eprintln!(
            "sateen-bench: the run broke; with --timestamp {name} and --resume{keep} it goes on, \
             with --cleanup instead its files are removed from {dir}",
            keep = if plan.keep { " --keep" } else { "" }
        ),
        Some(_) => eprintln!(
            "sateen-bench: the run broke; its files are among those of {name} in {dir}, which \
             --timestamp {name} --cleanup removes"
        ),
    }
}

/// Has all ranks know the same.
fn agree(options: &Io500, comm: &dyn Communicator) -> Result<Plan> {
    let read = || {
        let (config, text) = options.read()?;
        options.check(&config, comm.size())?;
        let stamp = match (&options.timestamp, options.resume || options.cleanup) {
            (Some(stamp), _) => stamp.clone(),
            (None, false) => when::stamp(when::unix_seconds()),
            (None, true) => last(options, &config)?,
        };
        let resdir = Plan::of(options, config.clone(), String::new(), &stamp).resdir;
        if options.dry_run && resdir.join("result.txt").exists() {
            return Err(Error::usage(format!(
                "--dry-run: {} holds the results of a run; choose another --timestamp",
                resdir.display()
            )));
        }
        Ok::<_, Error>((config, text, stamp))
    };
    let mine = if comm.is_root() { Some(read()) } else { None };
    let (said, mine) = match mine {
        Some(Ok((config, text, stamp))) => {
            ([stamp.as_bytes(), b"\n", text.as_bytes()].concat(), Some(Ok((config, text, stamp))))
        }
        other => (Vec::new(), other),
    };
    let said = String::from_utf8_lossy(&comm.broadcast(&said)?).into_owned();
    let (config, text, stamp) = match (mine, said.split_once('\n')) {
        (Some(mine), _) => mine?,
        (None, Some((stamp, text))) => {
            let config = Config::parse(text).map_err(|(line, why)| {
                Error::Failed(format!("line {line} of the configuration: {why}"))
            })?;
            (config, text.to_owned(), stamp.to_owned())
        }
        // The root says why.
        (None, None) => return Err(Error::usage("the configuration is wrong")),
    };
    Ok(Plan::of(options, config, text, &stamp))
}

/// The name of the last run that has left files.
fn last(options: &Io500, config: &Config) -> Result<String> {
    let plan = |stamp: &str| Plan::of(options, config.clone(), String::new(), stamp);
    // What one that went through has left was to be kept.
    let has_left = |stamp: &String| plan(stamp).has_begun() && !has_ended(&plan(stamp));
    if !config.flag("global", "timestamp-datadir") {
        // Then all runs have the same files; results may tell which was the last.
        let name = place::names(plan("").resdir.as_path()).into_iter().next();
        let name = name.filter(|_| config.flag("global", "timestamp-resultdir"));
        let name = name.unwrap_or_default();
        return if has_left(&name) { Ok(name) } else { Err(nothing(&plan("").datadir)) };
    }
    let top = plan("").datadir;
    place::names(&top).into_iter().find(has_left).ok_or_else(|| nothing(&top))
}

/// Whether a run went through to its score.
fn has_ended(plan: &Plan) -> bool {
    let read = record::read(&plan.resdir.join("result.txt"));
    read.is_ok_and(|(_, parts)| parts.iter().any(|part| part.name == "SCORE"))
}

fn nothing(dir: &std::path::Path) -> Error {
    Error::usage(format!("no broken run has left files in {}", dir.display()))
}

/// What a broken run has come to.
#[derive(Debug, Default)]
struct Before {
    /// What it has done.
    done: Vec<Phase>,
    /// What it had begun and what cannot be done again: some of its files are gone.
    lost: Option<Phase>,
}

/// What a broken run has done, at all ranks; removes what it had begun.
fn broken(plan: &Plan, comm: &dyn Communicator) -> Result<Before> {
    let read = || {
        let path = plan.resdir.join("result.txt");
        let (_, parts) = record::read(&path)?;
        let value = |name| {
            let part = parts.iter().find(|part| part.name == "run");
            part.and_then(|part| part.value(name)).unwrap_or_default().to_owned()
        };
        let hash = format!("{:X}", plan.config.hash());
        let differ = |what: &str| Error::usage(format!("--resume: the broken run had {what}"));
        if value("procs") != comm.size().to_string() {
            return Err(differ(&format!("{} ranks", value("procs"))));
        }
        if value("config-hash") != hash {
            return Err(differ("another configuration"));
        }
        if parts.iter().any(|part| part.name == "SCORE") {
            return Err(Error::usage("--resume: that run has gone through"));
        }
        let over = |phase: &Phase| {
            let at = parts.iter().position(|part| part.name == phase.name());
            match phase {
                Phase::Timestamp => at.is_some_and(|at| at + 1 < parts.len()),
                _ => at.and_then(|at| parts.get(at)?.score()).is_some(),
            }
        };
        let done = Phase::ALL.iter().take_while(|phase| over(phase)).count();
        let begun = Phase::ALL
            .get(done)
            .is_some_and(|phase| parts.iter().any(|part| part.name == phase.name()));
        Ok((done, begun))
    };
    let mine = if comm.is_root() { read() } else { Ok((0, false)) };
    let code = match &mine {
        Ok((done, begun)) => (*done as u64) << 1 | u64::from(*begun),
        Err(_) => u64::MAX,
    };
    let code = comm.broadcast_u64(code)?;
    mine?;
    if code == u64::MAX {
        return Err(Error::usage("the root says why"));
    }
    let count = usize::try_from(code >> 1).unwrap_or(0);
    let done = Phase::ALL.get(..count).unwrap_or_default().to_vec();
    let mut before = Before { done, lost: None };
    if let Some(phase) = Phase::ALL.get(count).filter(|_| code & 1 == 1)
        && let Some(family) = phase.family()
        && (phase.writes() || phase.removes())
    {
        // Half of it would be another phase.
        plan.empty_family(comm, family)?;
        before.lost = phase.removes().then_some(*phase);
    }
    Ok(before)
}

/// What a phase has given.
#[derive(Debug, Default)]
struct Measured {
    score: f64,
    pairs: Vec<(&'static str, String)>,
    /// Seconds that something was written for, by the clock of ior or mdtest.
    wrote_s: Option<f64>,
    /// Why it is invalid.
    invalid: Vec<String>,
    pitfalls: Vec<Pitfall>,
    /// Ranks, course and latencies, in the unit of the score.
    beside: Beside,
}

/// A run as one rank makes it.
struct Run<'a> {
    plan: &'a Plan,
    comm: &'a dyn Communicator,
    setting: &'a Setting<'a>,
    results: Option<Results<'a>>,
    guard: Guard<'a>,
    /// Whether all nodes' caches were dropped before the phase.
    cold: bool,
    /// What a broken run had begun and what cannot be done again.
    lost: Option<Phase>,
    /// Whether data was read that nobody had written.
    wrong: bool,
}

impl Run<'_> {
    fn all(&mut self, nodes: &Nodes, done: &[Phase]) -> Result<()> {
        let (plan, comm) = (self.plan, self.comm);
        if comm.is_root() {
            let place = (comm.size(), nodes.count);
            let (top, others) = plan.others();
            self.guard.leftover_runs(&top, &others);
            let mut results = Results::begin(plan, self.setting, place, done)?;
            // Now, rather than after the hours that sick nodes take.
            guard::say(self.guard.found());
            for one in self.guard.found() {
                results.remark(&one.line())?;
            }
            self.results = Some(results);
        }
        comm.barrier()?;
        for phase in Phase::ALL.into_iter().skip(done.len()) {
            self.phase(phase)?;
        }
        self.results.take().map_or(Ok(()), Results::finish)
    }

    fn phase(&mut self, phase: Phase) -> Result<()> {
        let (plan, comm) = (self.plan, self.comm);
        self.cold = false;
        if plan.config.flag("global", "drop-caches") && phase != Phase::Timestamp && !plan.dry {
            let command = plan.config.text("global", "drop-caches-cmd").unwrap_or_default();
            let code = if self.guard.placement.leads(comm.rank()) { shell(command)? } else { 0 };
            let code = comm.reduce_u64(code, Reduce::Max)?;
            self.cold = code == 0;
            if let Some(results) = self.results.as_mut().filter(|_| code != 0) {
                results.remark(&format!("WARNING \"{command}\" returned {code}"))?;
            }
        }
        comm.barrier()?;
        if let Some(results) = &mut self.results {
            results.phase(phase)?;
        }
        self.pause(phase)?;
        let start = Instant::now();
        let measured = self.measure(phase)?;
        let seconds = start.elapsed().as_secs_f64();
        let Some(results) = &mut self.results else { return Ok(()) };
        for (name, value) in &measured.pairs {
            results.pair(name, value)?;
        }
        // How long and how often phases are run is a matter of the rules.
        let fixed = |one: &&Pitfall| matches!(one.code, Code::Repeats | Code::Short);
        for one in measured.pitfalls.iter().filter(|one| !fixed(one)) {
            results.remark(&one.line())?;
        }
        for why in &measured.invalid {
            results.invalid(why)?;
        }
        results.beside(measured.beside);
        results.scored(phase, measured.score, seconds, measured.wrote_s)
    }

    /// Waits while there is a file of the phase's name.
    fn pause(&self, phase: Phase) -> Result<()> {
        let Some(dir) = self.plan.config.text("debug", "pause-dir") else { return Ok(()) };
        let file = std::path::Path::new(dir).join(phase.name());
        while self.comm.is_root() && file.exists() {
            self.comm.check()?;
            std::thread::sleep(Duration::from_millis(200));
        }
        self.comm.barrier()
    }

    fn measure(&mut self, phase: Phase) -> Result<Measured> {
        let plan = self.plan;
        let skipped = plan.dry || !plan.runs(phase);
        let random = phase == Phase::IorRnd4kEasyRead && !skipped;
        let segments = if random { self.segments()? } else { RANDOM.1 };
        let words = plan.words(phase, segments);
        let exe = words.join(" ");
        if let Some(results) = self.results.as_mut().filter(|_| !words.is_empty()) {
            results.pair("exe", &exe)?;
        }
        if skipped {
            return Ok(Measured::default());
        }
        if self.lost == Some(phase) {
            let why = "it had begun before the run broke, and cannot be done again".to_owned();
            return Ok(Measured { invalid: vec![why], ..Measured::default() });
        }
        let file = plan.resdir.join(format!("{}.txt", phase.name()));
        let work = plan.work(phase, segments)?;
        if self.comm.is_root() && matches!(work, Work::Ior(_) | Work::Mdtest(_)) {
            std::fs::write(&file, "").map_err(|error| Error::io("write", &file, error))?;
            if let Some(results) = self.results.as_mut().filter(|_| plan.verbosity > 1) {
                results.pair("result-file", &file.display().to_string())?;
            }
        }
        // Nodes have been looked at, and what is read was written by a phase before.
        let written_before = match (self.cold, &plan.files_of) {
            (true, _) => guard::Before::Dropped,
            (false, None) => guard::Before::JustNow,
            (false, Some(_)) => guard::Before::Earlier,
        };
        let guard =
            &guard::Options { no_self_check: true, written_before, ..self.setting.guard.clone() };
        let own = self.setting.clone();
        let own = Setting { command_line: words, json: false, out: Some(&file), guard, ..own };
        match work {
            Work::Ior(ior) => {
                let outcome = ior.measure(self.comm, &own)?;
                Ok(self.moved(phase, &outcome))
            }
            Work::Mdtest(mdtest) => {
                let outcome = mdtest.measure(self.comm, &own)?;
                Ok(self.made(phase, &outcome))
            }
            Work::Timestamp => {
                let file = plan.timestamp_file();
                if self.comm.is_root() {
                    std::fs::write(&file, "").map_err(|error| Error::io("write", &file, error))?;
                }
                Ok(Measured::default())
            }
            Work::Find => self.find(&exe),
        }
    }

    /// How many blocks a rank reads at random: of the files that the easy phase has left, which
    /// a stonewall may have kept short.
    fn segments(&self) -> Result<u64> {
        let path = self.plan.ior_easy_file(self.comm.rank());
        let found = std::fs::metadata(&path).map_err(|error| Error::io("stat", &path, error))?;
        let shared = !self.plan.config.flag("ior-easy", "filePerProc");
        let ranks = if shared { self.comm.size() as u64 } else { 1 };
        let blocks = self.comm.reduce_u64(found.len() / RANDOM.0 / ranks, Reduce::Min)?;
        match blocks.min(RANDOM.1) {
            0 => Err(Error::Failed(format!("{}: there is nothing to read", path.display()))),
            blocks => Ok(blocks),
        }
    }

    /// What ior has measured.
    fn moved(&mut self, phase: Phase, outcome: &ior::Outcome) -> Measured {
        let mut measured = Measured::default();
        let moving = if phase.writes() { &outcome.write } else { &outcome.read };
        let gib = |bytes: u64| bytes as f64 / GIB as f64;
        if let Some(moving) = moving {
            measured.score = gib(moving.bytes) / moving.seconds.max(1e-9);
            measured.wrote_s = phase.writes().then_some(moving.seconds);
            measured.beside = moving.beside.scaled(1.0 / GIB as f64);
            if let Some((seconds, bytes)) = moving.stonewall {
                let rate = gib(bytes) / seconds.max(1e-9);
                measured.pairs.push(("throughput-stonewall", format!("{rate:.2}")));
            }
        }
        measured.pitfalls.clone_from(&outcome.pitfalls);
        self.check(outcome.wrong, "transfers", &mut measured);
        measured
    }

    /// What mdtest has measured.
    fn made(&mut self, phase: Phase, outcome: &mdtest::Outcome) -> Measured {
        let mut measured = Measured::default();
        let rate = match phase.name().rsplit('-').next() {
            Some("write") => &outcome.create,
            Some("stat") => &outcome.stat,
            Some("read") => &outcome.read,
            _ => &outcome.remove,
        };
        if let Some(rate) = rate {
            measured.score = rate.per_second / 1e3;
            measured.wrote_s = phase.writes().then_some(rate.seconds);
            measured.beside = rate.beside.scaled(1e-3);
            if self.plan.verbosity > 1 {
                measured.pairs.push(("time", format!("{:.6}", rate.seconds)));
            }
        }
        if phase.writes() {
            let rate = outcome.stonewall.map(|(seconds, files)| files as f64 / seconds / 1e3);
            measured
                .pairs
                .push(("rate-stonewall", format!("{:.6}", rate.unwrap_or(measured.score))));
        }
        measured.pitfalls.clone_from(&outcome.pitfalls);
        self.check(outcome.wrong, "files", &mut measured);
        measured
    }

    fn check(&mut self, wrong: u64, what: &str, measured: &mut Measured) {
        if wrong > 0 {
            self.wrong = true;
            measured.invalid.push(format!("{wrong} {what} held other data than was written"));
        }
    }

    fn find(&mut self, exe: &str) -> Result<Measured> {
        let (plan, comm) = (self.plan, self.comm);
        if let Some(script) = plan.config.text("find", "external-script") {
            return self.find_outside(exe, script);
        }
        let asked = usize::try_from(plan.config.number("find", "nproc")).unwrap_or(0);
        let ranks = if asked == 0 { comm.size() } else { asked.min(comm.size()) };
        let since_s = find::changed_s(&plan.timestamp_file());
        let since_s = if comm.is_root() { since_s? } else { 0 };
        let since_s = comm.broadcast_u64(since_s.cast_unsigned())?.cast_signed();
        let wanted = Wanted { part: "01".into(), size: HARD_BYTES, since_s };
        self.guard.before_reading()?;
        comm.note_begin();
        let shown = self.setting.progress.show(FIND);
        comm.barrier()?;
        let start = Instant::now();
        let found = find::find(comm, &plan.datadir, &wanted, ranks)?;
        let seconds = start.elapsed().as_secs_f64();
        let series = shown.series(comm)?.scaled(1e-3);
        drop(shown);
        let mut measured =
            Measured { score: found.total as f64 / seconds / 1e3, ..Measured::default() };
        measured.beside.series = series;
        measured.pairs.push(("nproc", ranks.to_string()));
        measured.pairs.push(("found", found.found.to_string()));
        measured.pairs.push(("total-files", found.total.to_string()));
        if found.found == 0 {
            measured.invalid.push("find has found nothing".into());
        }
        if self.guard.placement.nodes() == 1 && !self.cold {
            measured.pitfalls.extend(self.guard.knows_names("find"));
        }
        Ok(measured)
    }

    /// Has a program find, whose last line is `MATCHED found/all`; the root starts it.
    fn find_outside(&self, exe: &str, script: &str) -> Result<Measured> {
        let mut measured = Measured::default();
        self.comm.note_begin();
        let _shown = self.setting.progress.show(FIND);
        if self.comm.is_root() {
            let start = Instant::now();
            // The parameters have no characters that a shell would read, but for the pattern.
            let output = outside(&exe.replace("*01*", "'*01*'")).output();
            let output =
                output.map_err(|error| Error::system(&format!("start {script}"), error))?;
            let seconds = start.elapsed().as_secs_f64();
            let said = String::from_utf8_lossy(&output.stdout);
            let last = said.lines().last().unwrap_or_default();
            measured.pairs.push(("last-output", format!("\"{last}\"")));
            if !output.status.success() {
                measured.invalid.push(format!("{script}: {}", output.status));
            }
            let numbers = last.strip_prefix("MATCHED ").and_then(|rest| rest.split_once('/'));
            let number = |text: &str| text.trim().parse::<u64>().ok();
            let numbers = numbers.and_then(|(found, all)| Some((number(found)?, number(all)?)));
            let lines = said.lines().count() as u64;
            let (found, all) = numbers.unwrap_or((lines, lines));
            measured.score = all as f64 / seconds / 1e3;
            measured.pairs.push(("total-files", all.to_string()));
            measured.pairs.push(("found", found.to_string()));
            if found == 0 {
                measured.invalid.push("find has found nothing".into());
            }
        }
        self.comm.barrier()?;
        Ok(measured)
    }
}

/// Calls a command; its exit code.
fn shell(command: &str) -> Result<u64> {
    let status = outside(command).stdout(Stdio::null()).status();
    let status = status.map_err(|error| Error::system("start sh", error))?;
    Ok(status.code().and_then(|code| u64::try_from(code).ok()).unwrap_or(255))
}
