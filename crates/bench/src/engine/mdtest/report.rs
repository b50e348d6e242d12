//! mdtest's SUMMARY tables, and the same numbers as JSON.
//!
//! A rate of an iteration is that of its slowest rank times the ranks, measured until all were
//! done; the table sums the iterations up. Trees are made by few, and their rate is the root's;
//! so is that of the removal of files that all ranks share (-S), which the root alone removes.

use serde::Serialize;

use super::options::Mdtest;
use super::outcome::Rate;
use crate::comm::{Communicator, Nodes};
use crate::engine::shown::{Mark, OWN_VERSION, Room, document, exponential, put, putln};
use crate::engine::{Beside, Setting};
use crate::error::{Error, Result};
use crate::guard::{Pitfall, Spread};
use crate::progress::Series;
use crate::stats::{Deviation, Latencies, Quantiles, Summary};
use crate::when;

/// The version of mdtest whose form it is.
const VERSION: &str = "4.0.0";

/// What is measured of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    DirCreate,
    DirStat,
    DirRename,
    DirRemove,
    FileCreate,
    FileStat,
    FileRead,
    FileRemove,
    TreeCreate,
    TreeRemove,
}

/// All of them, in the order of the table.
const PHASES: [Phase; 10] = [
    Phase::DirCreate,
    Phase::DirStat,
    Phase::DirRename,
    Phase::DirRemove,
    Phase::FileCreate,
    Phase::FileStat,
    Phase::FileRead,
    Phase::FileRemove,
    Phase::TreeCreate,
    Phase::TreeRemove,
];

/// The columns of mdtest's CSV, which are in another order; one of them nobody measures.
const CSV_PHASES: [(&str, Option<Phase>); 11] = [
    ("Directory creation", Some(Phase::DirCreate)),
    ("Directory stat", Some(Phase::DirStat)),
    ("Directory read", None),
    ("Directory rename", Some(Phase::DirRename)),
    ("Directory removal", Some(Phase::DirRemove)),
    ("File creation", Some(Phase::FileCreate)),
    ("File stat", Some(Phase::FileStat)),
    ("File read", Some(Phase::FileRead)),
    ("File removal", Some(Phase::FileRemove)),
    ("Tree creation", Some(Phase::TreeCreate)),
    ("Tree removal", Some(Phase::TreeRemove)),
];

impl Phase {
    /// mdtest's name of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DirCreate => "Directory creation",
            Self::DirStat => "Directory stat",
            Self::DirRename => "Directory rename",
            Self::DirRemove => "Directory removal",
            Self::FileCreate => "File creation",
            Self::FileStat => "File stat",
            Self::FileRead => "File read",
            Self::FileRemove => "File removal",
            Self::TreeCreate => "Tree creation",
            Self::TreeRemove => "Tree removal",
        }
    }

    /// Whether it is about directories that are items.
    pub(super) fn of_dirs(self) -> bool {
        matches!(self, Self::DirCreate | Self::DirStat | Self::DirRename | Self::DirRemove)
    }

    fn of_trees(self) -> bool {
        matches!(self, Self::TreeCreate | Self::TreeRemove)
    }
}

/// A phase of one rank in one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Timed {
    pub(super) items: u64,
    /// Seconds until all ranks were done, and until this one was.
    pub(super) after: f64,
    pub(super) before: f64,
}

impl Timed {
    fn rate(&self) -> f64 {
        if self.items == 0 || self.after <= 0.0 { 0.0 } else { self.items as f64 / self.after }
    }
}

/// What a rank has measured.
#[derive(Debug)]
pub(super) struct Rows {
    /// Whether all ranks use the same files.
    shared: bool,
    iterations: Vec<[Timed; PHASES.len()]>,
    latencies: Vec<Latencies>,
    beside: Vec<[Beside; PHASES.len()]>,
}

/// What all ranks have measured.
#[derive(Debug)]
pub(super) struct AllRows {
    shared: bool,
    ranks: Vec<Vec<[Timed; PHASES.len()]>>,
    latencies: Vec<Quantiles>,
    beside: Vec<[Beside; PHASES.len()]>,
}

impl Rows {
    pub(super) fn new(iterations: usize, shared: bool) -> Result<Self> {
        let latencies = PHASES.iter().map(|_| Latencies::new()).collect::<Result<_>>()?;
        let beside = vec![Default::default(); iterations];
        let iterations = vec![Default::default(); iterations];
        Ok(Self { shared, iterations, latencies, beside })
    }

    pub(super) fn beside(
        &mut self,
        iteration: usize,
        phase: Phase,
        spread: Spread,
        series: Series,
    ) {
        let row = self.beside.get_mut(iteration);
        if let Some(cell) = row.and_then(|row| row.get_mut(phase as usize)) {
            *cell = Beside { spread, series, latency: None };
        }
    }

    pub(super) fn note(&mut self, iteration: usize, phase: Phase, timed: Timed) {
        let row = self.iterations.get_mut(iteration);
        if let Some(cell) = row.and_then(|row| row.get_mut(phase as usize)) {
            *cell = timed;
        }
    }

    /// Where a phase notes its latencies.
    pub(super) fn latencies(&mut self, phase: Phase) -> &mut Latencies {
        let at = (phase as usize).min(self.latencies.len() - 1);
        #[expect(clippy::indexing_slicing, reason = "there is one for each phase, at least one")]
        &mut self.latencies[at]
    }

    /// What all ranks have measured, at all ranks.
    pub(super) fn gather(self, comm: &dyn Communicator) -> Result<AllRows> {
        let cells = self.iterations.iter().flatten();
        let words =
            cells.flat_map(|cell| [cell.items, cell.after.to_bits(), cell.before.to_bits()]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let latencies = self.latencies.iter().map(|one| Ok(one.gather(comm)?.quantiles()));
        let latencies = latencies.collect::<Result<_>>()?;
        let ranks = comm.all_gather(&bytes)?;
        let ranks = ranks.iter().map(|bytes| rows(bytes)).collect();
        Ok(AllRows { shared: self.shared, ranks, latencies, beside: self.beside })
    }
}

fn rows(bytes: &[u8]) -> Vec<[Timed; PHASES.len()]> {
    let word = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
    let cell = |cell: &[u8]| {
        let mut words = cell.chunks_exact(8).map(word);
        let mut next = || words.next().unwrap_or_default();
        Timed { items: next(), after: f64::from_bits(next()), before: f64::from_bits(next()) }
    };
    let row = |row: &[u8]| {
        let mut cells = row.chunks_exact(24).map(cell);
        PHASES.map(|_| cells.next().unwrap_or_default())
    };
    bytes.chunks_exact(24 * PHASES.len()).map(row).collect()
}

impl AllRows {
    /// How many ranks' cells make the value of a phase: where the root works alone, its own.
    fn counted(&self, phase: Phase) -> usize {
        let alone = phase.of_trees() || (self.shared && phase == Phase::FileRemove);
        if alone { 1 } else { self.ranks.len() }
    }

    /// The value of each iteration: a rate of all ranks, or the time of the slowest.
    fn values(&self, phase: Phase, times: bool) -> Vec<f64> {
        let iterations = self.ranks.first().map_or(0, Vec::len);
        let of = |iteration: usize| {
            let cells = self.cells(phase, iteration);
            if times {
                cells.map(|cell| cell.after).fold(0.0, f64::max)
            } else {
                let slowest = cells.map(|cell| cell.rate()).fold(f64::INFINITY, f64::min);
                slowest * self.counted(phase) as f64
            }
        };
        (0..iterations).map(of).collect()
    }

    /// The cells of a phase in an iteration, of the ranks that count.
    fn cells(&self, phase: Phase, iteration: usize) -> impl Iterator<Item = Timed> {
        let cells = self.ranks.iter().filter_map(move |rank| rank.get(iteration));
        let cells = cells.filter_map(move |row| row.get(phase as usize)).copied();
        cells.take(self.counted(phase))
    }

    /// What mdtest writes of ranks: a row of the first iteration with all items over the longest
    /// time, then a row for each rank of each iteration until it was done itself, in which there
    /// is no number of items, and nothing of trees.
    fn csv(&self) -> String {
        let names = CSV_PHASES.map(|(name, _)| format!(",rate-{name},time-{name}"));
        let mut out = format!("rank,items{}\n", names.concat());
        let pair = |items: u64, seconds: f64| match items {
            0 => ",,".to_owned(),
            _ => format!(",{},{}", exponential(items as f64 / seconds), exponential(seconds)),
        };
        let items = PHASES.into_iter().filter(|phase| !phase.of_trees());
        let items = items.flat_map(|phase| self.cells(phase, 0).next()).map(|cell| cell.items);
        put!(out, "all,{}", items.max().unwrap_or(0));
        for (_, phase) in CSV_PHASES {
            let cells = phase.into_iter().flat_map(|phase| self.cells(phase, 0));
            let (items, longest) = cells.fold((0, 0.0_f64), |(items, longest), cell| {
                (items + cell.items, longest.max(cell.after))
            });
            out.push_str(&pair(items, longest));
        }
        out.push('\n');
        for iteration in 0..self.ranks.first().map_or(0, Vec::len) {
            for (rank, iterations) in self.ranks.iter().enumerate() {
                put!(out, "{rank},");
                let phases = CSV_PHASES.iter().map(|(_, phase)| *phase);
                for phase in phases.filter(|phase| !phase.is_some_and(Phase::of_trees)) {
                    let cell =
                        phase.and_then(|phase| iterations.get(iteration)?.get(phase as usize));
                    let cell = cell.copied().unwrap_or_default();
                    out.push_str(&pair(cell.items, cell.before));
                }
                out.push('\n');
            }
        }
        out
    }

    /// A phase of the last iteration, if it was made.
    pub(super) fn last(&self, phase: Phase) -> Option<Rate> {
        let per_second = *self.values(phase, false).last()?;
        let seconds = *self.values(phase, true).last()?;
        let latency = self.latencies.get(phase as usize).filter(|all| all.count > 0).copied();
        let beside = self.beside(phase).last().cloned().unwrap_or_default();
        let beside = Beside { latency, ..beside };
        (seconds > 0.0).then_some(Rate { per_second, seconds, beside })
    }

    fn summary(&self, phase: Phase, times: bool) -> Summary {
        Summary::of(&self.values(phase, times), Deviation::Sample)
    }

    /// What stands beside the rates of a phase, of each iteration.
    fn beside(&self, phase: Phase) -> impl Iterator<Item = &Beside> {
        self.beside.iter().filter_map(move |row| row.get(phase as usize))
    }

    /// The ranks of the best iteration.
    fn best(&self, phase: Phase) -> Option<&Spread> {
        let all = self.beside(phase).map(|one| &one.spread);
        all.max_by(|a, b| a.rate.total_cmp(&b.rate)).filter(|best| !best.ranks.is_empty())
    }

    /// What mdtest does not have: the middle of the iterations, and the ranks beside each other
    /// in the best one. Which of the numbers is the result, it says.
    fn repetitions_text(&self) -> String {
        let mut out = String::from("Iterations, and ranks of the best one (ops/sec):\n");
        putln!(
            out,
            "   {:<20} {:>12} {:>12} {:>12} {:>12} {:>12} {:>14} {:>13}",
            "Operation",
            "Best",
            "Median",
            "SlowRank",
            "MidRank",
            "FastRank",
            "SumOfRanks(*)",
            "StartSkew(s)"
        );
        let mut marked = false;
        for phase in PHASES {
            let Some(best) = self.best(phase) else { continue };
            let Summary { max, median, .. } = self.summary(phase, false);
            let (slow, middle, fast) = best.slowest_median_fastest();
            put!(out, "   {:<20}", own_row(phase));
            for rate in [max, median, slow, middle, fast] {
                put!(out, " {rate:>12.1}");
            }
            put!(out, " {:>14.1} {:>13.6}", best.sum_of_ranks, best.start_skew_s);
            let mark = best.is_sum_too_much();
            marked |= mark;
            out.push_str(if mark { " (!)\n" } else { "\n" });
        }
        out.push_str(
            "   The result is Best, the Max of SUMMARY rate: the items of the slowest rank over the \
             time until all\n   were done, times the ranks.\n   (*) for comparison only, and no \
             result: each rank's items over its own time, added up.\n",
        );
        if marked {
            out.push_str(
                "   (!) far more than the result, because the ranks were not busy at the same time \
                 (W-SUM).\n",
            );
        }
        out
    }

    fn latencies_text(&self) -> String {
        let mut out = String::from("\nLatency of single operations (us):\n");
        putln!(
            out,
            "   {:<20} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
            "Operation",
            "Count",
            "Mean",
            "50%",
            "90%",
            "99%",
            "99.9%",
            "Max"
        );
        for (phase, all) in PHASES.iter().zip(&self.latencies).filter(|one| one.1.count > 0) {
            put!(out, "   {:<20} {:>12}", own_row(*phase), all.count);
            for value in [all.mean_us, all.p50_us, all.p90_us, all.p99_us, all.p999_us] {
                put!(out, " {value:>10.1}");
            }
            putln!(out, " {:>12.1}", all.max_us);
        }
        out
    }
}

/// What is the same for the whole run.
pub(super) struct About<'a> {
    pub(super) test: &'a Mdtest,
    pub(super) comm_size: usize,
    pub(super) nodes: &'a Nodes,
    pub(super) setting: &'a Setting<'a>,
    pub(super) place: String,
    pub(super) room: Option<Room>,
    pub(super) stride: usize,
    pub(super) items: u64,
}

/// The report of the root.
pub(super) struct Report<'a> {
    about: About<'a>,
    began: u64,
}

impl<'a> Report<'a> {
    pub(super) fn begin(about: About<'a>) -> Result<Self> {
        let report = Self { began: when::unix_seconds(), about };
        // What cannot be written is refused before anything is measured.
        report.keep_ranks("")?;
        report.say(&report.header())?;
        Ok(report)
    }

    /// Says it, unless the report is JSON.
    fn say(&self, text: &str) -> Result<()> {
        if self.about.setting.json { Ok(()) } else { self.about.setting.print(text) }
    }

    /// Keeps a table of the ranks, if that was asked for.
    fn keep_ranks(&self, table: &str) -> Result<()> {
        let Some(path) = &self.about.test.ranks_file else { return Ok(()) };
        std::fs::write(path, table).map_err(|error| Error::io("write", path, error))
    }

    fn header(&self) -> String {
        let About { test, comm_size, nodes, setting, place, room, stride, items } = &self.about;
        let mut out = format!("-- started at {} --\n\n", when::american(self.began));
        let count = nodes.count;
        putln!(
            out,
            "mdtest-{VERSION} was launched with {comm_size} total task(s) on {count} node(s)"
        );
        let mut words = setting.command_line.iter();
        let program = words.next().map_or("", String::as_str);
        let words: String = words.map(|word| format!(" '{word}'")).collect();
        putln!(out, "Command line used: {program}{words}");
        putln!(out, "This is sateen-bench {OWN_VERSION}, in mdtest's form");
        if let Some(room) = room {
            out.push_str(&room.lines(place.as_ref()));
        }
        let map: String =
            nodes.with_root.iter().map(|with| if *with { '1' } else { '0' }).collect();
        putln!(out, "Nodemap: {map}");
        if *stride > 0 {
            putln!(out, "Shifting ranks by {stride} for each phase.");
        }
        let all = items * *comm_size as u64;
        let what = match (test.dirs_only, test.files_only) {
            (true, true) => format!("{all} files/directories"),
            (true, false) => format!("{all} directories"),
            (false, _) if test.shared => format!("{items} files of all"),
            (false, _) => format!("{all} files"),
        };
        putln!(out, "{comm_size} tasks, {what}");
        out
    }

    /// The stonewall was hit; how many files each rank had made.
    pub(super) fn stonewall(&mut self, counts: &[u64]) -> Result<()> {
        let (min, max) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        self.say(&format!("Continue stonewall hit min: {min} max: {max} avg: {mean:.1} \n\n"))
    }

    /// Whether a phase has a row in the table.
    fn shows(&self, phase: Phase) -> bool {
        let test = self.about.test;
        phase.of_trees() || if phase.of_dirs() { test.dirs_only } else { test.files_only }
    }

    /// Each phase of each iteration, in mdtest's words and behind what it puts before them: else
    /// they would be taken for rows of the table. There is no line of its source to name.
    fn each(&self, rows: &AllRows) -> String {
        let mut out = String::from("\n");
        let head = format!("V-1: Rank {:>3} Line {:>5} ", 0, 0);
        putln!(out, "{head}   Operation               Duration              Rate");
        putln!(out, "{head}   ---------               --------              ----");
        for iteration in 0..self.about.test.iterations {
            putln!(out, "{head}main: * iteration {} *", iteration + 1);
            for phase in PHASES.into_iter().filter(|phase| self.shows(*phase)) {
                let at = |times| rows.values(phase, times).get(iteration).copied();
                let (Some(seconds), Some(rate)) = (at(true), at(false)) else { continue };
                let name = phase.name();
                putln!(out, "{head}   {name:<18}: {seconds:>14.3} sec, {rate:>14.3} ops/sec");
            }
        }
        out
    }

    fn table(&self, rows: &AllRows, times: bool) -> String {
        let iterations = self.about.test.iterations;
        // Units in this line are what comes after mdtest's release 4.0.0.
        let title = if times { "time" } else { "rate" };
        let mut out = format!("\nSUMMARY {title}: (of {iterations} iterations)\n");
        let pad = " ".repeat(15);
        putln!(out, "   Operation     {pad} Max            Min           Mean        Std Dev");
        putln!(out, "   ---------      {pad}---            ---           ----        -------");
        for phase in PHASES.into_iter().filter(|phase| self.shows(*phase)) {
            let Summary { max, min, mean, deviation, .. } = rows.summary(phase, times);
            let name = phase.name();
            putln!(out, "   {name:<22} {max:>14.3} {min:>14.3} {mean:>14.3} {deviation:>14.3}");
        }
        out
    }

    /// Ends it.
    pub(super) fn finish(self, rows: &AllRows, wrong: u64, pitfalls: &[Pitfall]) -> Result<()> {
        self.keep_ranks(&rows.csv())?;
        if self.about.setting.json {
            return self.about.setting.print(&self.json(rows, wrong, pitfalls)?);
        }
        let test = self.about.test;
        let mut out = String::new();
        if test.verbose > 0 {
            out.push_str(&self.each(rows));
        }
        if !test.times {
            out.push_str(&self.table(rows, false));
        }
        if test.times || test.both {
            out.push_str(&self.table(rows, true));
        }
        if wrong > 0 {
            putln!(
                out,
                "\nERROR: verifying the data on read ({wrong} errors)! Take the performance values \
                 with care!\n"
            );
        }
        putln!(out, "-- finished at {} --\n", when::american(when::unix_seconds()));
        // Whoever reads mdtest takes lines that begin with a phase for rows of its tables: what
        // it does not have comes behind them, and its rows begin otherwise.
        out.push_str(&rows.repetitions_text());
        out.push_str(&rows.latencies_text());
        self.about.setting.print(&out)
    }

    fn json(&self, rows: &AllRows, wrong: u64, pitfalls: &[Pitfall]) -> Result<String> {
        let summary = PHASES.into_iter().zip(&rows.latencies).filter(|one| self.shows(one.0));
        let summary = summary.map(|(phase, latency)| Operation {
            operation: phase.name(),
            rate: rows.summary(phase, false).into(),
            rates: rows.values(phase, false),
            seconds: rows.values(phase, true),
            latency: (latency.count > 0).then_some(*latency),
            iterations: (rows.beside(phase).filter(|one| !one.spread.ranks.is_empty()))
                .map(|one| Iteration {
                    sum_of_ranks: one.spread.sum_of_ranks,
                    start_skew: one.spread.start_skew_s,
                    end_skew: one.spread.end_skew_s,
                    ranks: &one.spread.ranks,
                    series: &one.series,
                })
                .collect(),
        });
        let whole = Whole {
            mark: Mark::of("mdtest"),
            version: VERSION,
            began: when::american(self.began),
            command_line: self.about.setting.command_line.join(" "),
            tasks: self.about.comm_size,
            nodes: self.about.nodes.count,
            iterations: self.about.test.iterations,
            items_per_task: self.about.items,
            summary: summary.collect(),
            unique_dir: self.about.test.unique,
            write_bytes: self.about.test.write_bytes,
            options: Options::of(&self.about),
            path: self.about.place.clone(),
            wrong_files: wrong,
            pitfalls,
            finished: when::american(when::unix_seconds()),
        };
        document(&whole)
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(rename = "sateenBench")]
    mark: Mark,
    version: &'a str,
    began: String,
    command_line: String,
    tasks: usize,
    nodes: usize,
    iterations: usize,
    items_per_task: u64,
    summary: Vec<Operation<'a>>,
    unique_dir: bool,
    write_bytes: u64,
    options: Options,
    path: String,
    wrong_files: u64,
    pitfalls: &'a [Pitfall],
    finished: String,
}

/// What else a rate depends on.
#[derive(Serialize)]
struct Options {
    api: &'static str,
    read_bytes: u64,
    stride: usize,
    shared_files: bool,
    depth: u32,
    branches: u64,
    items_per_dir: u64,
    leaf_only: bool,
    mknod: bool,
    fsync: bool,
    sync: bool,
    verify: bool,
    stonewall_seconds: u64,
    packet: &'static str,
    caches_dropped: bool,
}

impl Options {
    fn of(about: &About) -> Self {
        let test = about.test;
        Self {
            api: test.api.name(),
            read_bytes: test.read_bytes,
            stride: about.stride,
            shared_files: test.shared,
            depth: test.depth,
            branches: test.branches,
            items_per_dir: test.items_per_dir,
            leaf_only: test.leaf_only,
            mknod: test.mknod,
            fsync: test.fsync,
            sync: test.sync,
            verify: test.verify,
            stonewall_seconds: test.stonewall,
            packet: test.packet.name(),
            caches_dropped: about.setting.guard.drop_caches,
        }
    }
}

#[derive(Serialize)]
struct Operation<'a> {
    operation: &'a str,
    rate: Shown,
    rates: Vec<f64>,
    seconds: Vec<f64>,
    latency: Option<Quantiles>,
    iterations: Vec<Iteration<'a>>,
}

/// What rows of tables begin with that mdtest does not have.
fn own_row(phase: Phase) -> String {
    format!("({})", phase.name())
}

/// What stands beside the rate of an iteration; rates in operations a second.
#[derive(Serialize)]
struct Iteration<'a> {
    sum_of_ranks: f64,
    start_skew: f64,
    end_skew: f64,
    ranks: &'a [f64],
    series: &'a Series,
}

#[derive(Serialize)]
struct Shown {
    max: f64,
    min: f64,
    median: f64,
    mean: f64,
    std_dev: f64,
}

impl From<Summary> for Shown {
    fn from(all: Summary) -> Self {
        let Summary { max, min, median, mean, deviation } = all;
        Self { max, min, median, mean, std_dev: deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard;

    #[test]
    fn a_rate_is_that_of_the_slowest_rank_times_the_ranks() {
        let mut ranks = Vec::new();
        for rank in 0..2 {
            let mut rows = Rows::new(2, false).unwrap();
            let slow = 1.0 + f64::from(rank);
            rows.note(0, Phase::FileStat, Timed { items: 100, after: slow, before: slow });
            rows.note(1, Phase::FileStat, Timed { items: 100, after: 4.0, before: 1.0 });
            rows.note(0, Phase::TreeCreate, Timed { items: 7, after: slow, before: slow });
            ranks.push(rows.iterations);
        }
        let all = AllRows { shared: false, ranks, latencies: Vec::new(), beside: Vec::new() };
        assert_eq!(all.values(Phase::FileStat, false), [100.0, 50.0]);
        assert_eq!(all.values(Phase::FileStat, true), [2.0, 4.0]);
        assert_eq!(all.values(Phase::TreeCreate, false), [7.0, 0.0], "the root's alone");
        let found = all.summary(Phase::FileStat, false);
        assert_eq!((found.max, found.min, found.mean), (100.0, 50.0, 75.0));
        assert!((found.deviation - 1250.0_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn which_number_is_the_result_is_said_and_a_sum_that_is_far_above_it_marked() {
        let text = |seconds: [f64; 2]| {
            let works = [0, 1].map(|rank| guard::Work {
                rank,
                begin_s: 0.0,
                end_s: seconds[rank],
                amount: 1000,
            });
            let longest = seconds[0].max(seconds[1]);
            let ranks = seconds.map(|own| {
                let mut rows = Rows::new(1, false).unwrap();
                let timed = Timed { items: 1000, after: longest, before: own };
                rows.note(0, Phase::FileCreate, timed);
                rows.iterations
            });
            let mut rows = Rows::new(1, false).unwrap();
            rows.beside(0, Phase::FileCreate, Spread::of(&works), Series::default());
            let (latencies, beside) = (Vec::new(), rows.beside);
            let all = AllRows { shared: false, ranks: ranks.to_vec(), latencies, beside };
            all.repetitions_text()
        };
        let row = |text: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with("   (File creation)")).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        let unequal = text([1.0, 4.0]);
        let wanted = "500.0 500.0 250.0 625.0 1000.0 1250.0 0.000000 (!)";
        assert_eq!(row(&unequal)[2..].join(" "), wanted, "Best is the result: 2000 in 4 s");
        let result = unequal.find("The result is Best, the Max of SUMMARY rate").unwrap();
        let only = unequal.find("(*) for comparison only, and no result").unwrap();
        assert!(result < only && unequal[only..].contains("(!) far more"), "{unequal}");
        let alike = text([4.0, 4.0]);
        assert_eq!(row(&alike)[2..].join(" "), "500.0 500.0 250.0 250.0 250.0 500.0 0.000000");
        assert!(!alike.contains("(!)") && alike.contains("The result is Best"), "{alike}");
    }
}
