//! IOzone's lines for each test, then the table of all: a row for each test, a column for each
//! number of ranks. The same as JSON.
//!
//! Two rates are told apart. What the children see is the sum of the ranks' own rates, and is
//! too much whenever they did not work at the same time. What the parent sees is all that was
//! moved over the time from the first beginning to the last end; the table has that one.

use std::path::PathBuf;

use serde::Serialize;

use super::options::Iozone;
use super::pattern::Test;
use crate::comm::Nodes;
use crate::engine::Setting;
use crate::engine::shown::{Mark, OWN_VERSION, Room, document, put, putln};
use crate::error::Result;
use crate::guard::{Pitfall, Spread};
use crate::progress::Series;
use crate::size::KIB;
use crate::stats::{Deviation, Quantiles, Summary};
use crate::when;

/// The version of IOzone whose form it is.
const VERSION: &str = "$Revision: 3.506 $";
/// How much more the sum of the ranks' rates may be before it is said.
const SUM_EXCESS_MAX: f64 = 1.05;

/// What one rank has measured in a test; seconds of the common clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Measured {
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) operations: u64,
    pub(super) wrong: u64,
}

impl Measured {
    /// As ranks send it.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let words = [self.begin.to_bits(), self.end.to_bits(), self.operations, self.wrong];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// As ranks have sent it.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut words =
            bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or_default();
        let (begin, end) = (f64::from_bits(next()), f64::from_bits(next()));
        Self { begin, end, operations: next(), wrong: next() }
    }

    fn rate(&self) -> f64 {
        // A clock has nanoseconds, and no test takes none.
        self.operations as f64 / (self.end - self.begin).max(1e-9)
    }
}

/// A test that was made.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) test: Test,
    pub(super) record: u64,
    pub(super) measured: Vec<Measured>,
    pub(super) latencies: Quantiles,
    pub(super) wrong: u64,
    pub(super) spread: Spread,
    pub(super) series: Series,
}

impl Point {
    fn operations(&self) -> u64 {
        self.measured.iter().map(|one| one.operations).sum()
    }

    fn seconds(&self) -> f64 {
        let begin = self.measured.iter().map(|one| one.begin).fold(f64::INFINITY, f64::min);
        let end = self.measured.iter().map(|one| one.end).fold(f64::NEG_INFINITY, f64::max);
        (end - begin).max(1e-9)
    }

    /// Operations a second of all, over the longest time.
    fn rate(&self) -> f64 {
        self.operations() as f64 / self.seconds()
    }

    /// The sum of the ranks' own rates.
    fn sum(&self) -> f64 {
        self.measured.iter().map(Measured::rate).sum()
    }

    fn of_ranks(&self) -> Summary {
        let rates: Vec<f64> = self.measured.iter().map(Measured::rate).collect();
        Summary::of(&rates, Deviation::Population)
    }
}

/// What is the same for the whole run.
pub(super) struct About<'a> {
    pub(super) test: &'a Iozone,
    pub(super) ranks: usize,
    pub(super) nodes: &'a Nodes,
    pub(super) setting: &'a Setting<'a>,
    pub(super) place: PathBuf,
    pub(super) room: Option<Room>,
}

/// The report of the root.
pub(super) struct Report<'a> {
    about: About<'a>,
    began: u64,
    points: Vec<Point>,
}

impl<'a> Report<'a> {
    pub(super) fn begin(about: About<'a>) -> Result<Self> {
        let report = Self { began: when::unix_seconds(), about, points: Vec::new() };
        report.say(&report.header())?;
        Ok(report)
    }

    /// Says it, unless the report is JSON.
    fn say(&self, text: &str) -> Result<()> {
        if self.about.setting.json { Ok(()) } else { self.about.setting.print(text) }
    }

    fn header(&self) -> String {
        let About { test, ranks, nodes, setting, place, room } = &self.about;
        let mut out =
            format!("\tIozone: Performance Test of File I/O\n\t        Version {VERSION}\n\n");
        putln!(out, "\tThis is sateen-bench {OWN_VERSION}, in Iozone's form");
        putln!(out, "\tRun began: {}\n", when::ctime(self.began));
        if let Some(room) = room {
            room.lines(place).lines().for_each(|line| {
                putln!(out, "\t{line}");
            });
        }
        for (set, line) in [
            (test.fsync, "Include fsync in write timing"),
            (test.close, "Include close in write timing"),
            (test.direct, "O_DIRECT feature enabled"),
            (test.no_retest, "No retest option selected"),
            (test.operations, "OPS Mode. Output is in operations per second."),
            (!test.operations, "Output is in kBytes/sec"),
        ] {
            if set {
                putln!(out, "\t{line}");
            }
        }
        putln!(out, "\tCommand line used: {}", setting.command_line.join(" "));
        putln!(out, "\tFile stride size set to {} * record size.", test.stride);
        putln!(out, "\t{ranks} ranks on {} nodes", nodes.count);
        out
    }

    /// Tests with other files begin.
    pub(super) fn round(&mut self, ranks: usize, record: u64, file: u64) -> Result<()> {
        let plural = if ranks == 1 { "" } else { "es" };
        let (record, file) = (record / KIB, file / KIB);
        self.say(&format!(
            "\tThroughput test with {ranks} process{plural}\n\tEach process writes a {file} kByte \
             file in {record} kByte records\n"
        ))
    }

    /// A test was made.
    pub(super) fn point(&mut self, point: Point) -> Result<()> {
        self.say(&self.lines(&point))?;
        self.points.push(point);
        Ok(())
    }

    /// IOzone's unit, and what an operation is in it.
    fn unit(&self, record: u64) -> (&'static str, f64) {
        if self.about.test.operations { ("ops", 1.0) } else { ("kB", record as f64 / KIB as f64) }
    }

    fn lines(&self, point: &Point) -> String {
        let (unit, each) = self.unit(point.record);
        let count = point.measured.len();
        let name = point.test.name();
        let of_ranks = point.of_ranks();
        let min_xfer = point.measured.iter().map(|one| one.operations).min().unwrap_or(0);
        // Tabs so that the values stand below each other, as far as they do in the original.
        let tabs = if name.len() < 10 { "\t\t" } else { "\t" };
        let mut out = String::from("\n");
        let (sum, rate) = (point.sum() * each, point.rate() * each);
        putln!(out, "\tChildren see throughput for {count:2} {name} {tabs}= {sum:10.2} {unit}/sec");
        putln!(out, "\tParent sees throughput for {count:2} {name} {tabs}= {rate:10.2} {unit}/sec");
        for (what, value) in [("Min", of_ranks.min), ("Max", of_ranks.max), ("Avg", of_ranks.mean)]
        {
            let value = value * each;
            putln!(out, "\t{what} throughput per process \t\t\t= {value:10.2} {unit}/sec ");
        }
        putln!(out, "\tMin xfer \t\t\t\t\t= {:10.2} {unit}", min_xfer as f64 * each);
        if self.about.test.each {
            for (rank, one) in point.measured.iter().enumerate() {
                let (moved, rate) = (one.operations as f64 * each, one.rate() * each);
                putln!(
                    out,
                    "\tChild[{rank}] xfer count = {moved:10.2} {unit}, Throughput = {rate:10.2} \
                     {unit}/sec"
                );
            }
        }
        if point.sum() > point.rate() * SUM_EXCESS_MAX {
            putln!(
                out,
                "\tWARNING: ranks did not work at the same time; what the children see is {:.0} % \
                 too much",
                (point.sum() / point.rate() - 1.0) * 100.0
            );
        }
        if point.wrong > 0 {
            putln!(out, "\tERROR: {} records hold other data than was written", point.wrong);
        }
        out
    }

    /// Numbers of ranks that have worked.
    fn columns(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.points.iter().map(|point| point.measured.len()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How many nodes so many ranks are on.
    fn nodes(&self, ranks: usize) -> usize {
        let nodes = self.about.nodes;
        match nodes.by_slot {
            true => ranks.div_ceil(nodes.ranks_on_root.max(1)),
            false => ranks.min(nodes.count),
        }
    }

    fn table(&self, record: u64) -> String {
        let (title, each) = self.unit_of_table(record);
        let columns = self.columns();
        let mut out = format!(
            "\nAll bytes over the longest time, {title}, records of {} kB\n",
            record as f64 / KIB as f64
        );
        let mut row = |name: &str, values: &[String]| {
            put!(out, "{name:<26}");
            values.iter().for_each(|value| {
                put!(out, " {value:>12}");
            });
            out.push('\n');
        };
        let numbers = |of: &dyn Fn(usize) -> usize| -> Vec<String> {
            columns.iter().map(|ranks| of(*ranks).to_string()).collect()
        };
        row("Test/Number of Ranks =>", &numbers(&|ranks| ranks));
        if self.about.nodes.count > 1 {
            row("Number of Nodes =>", &numbers(&|ranks| self.nodes(ranks)));
        }
        for test in Test::ALL {
            let values: Vec<Summary> =
                columns.iter().map(|ranks| self.repeated(test, record, *ranks)).collect();
            if values.iter().all(|all| all.max == 0.0) {
                continue;
            }
            let value = |all: &Summary| format!("{:.1}", all.median * each);
            let values: Vec<String> = values.iter().map(value).collect();
            row(&test.name().replace([' ', '-'], "_"), &values);
        }
        out
    }

    /// The rates of a test's repetitions, in operations a second.
    fn repeated(&self, test: Test, record: u64, ranks: usize) -> Summary {
        let same = self.points.iter().filter(|point| {
            point.test == test && point.record == record && point.measured.len() == ranks
        });
        let rates: Vec<f64> = same.map(Point::rate).collect();
        Summary::of(&rates, Deviation::Sample)
    }

    /// The repetitions of each test, record size and number of ranks.
    fn all_repeated(&self) -> Vec<Repeated> {
        let mut found = Vec::new();
        for record in &self.about.test.records {
            for test in Test::ALL {
                for ranks in self.columns() {
                    let all = self.repeated(test, *record, ranks);
                    if all.max > 0.0 {
                        found.push(Repeated {
                            operation: test.name(),
                            record_bytes: *record,
                            tasks: ranks,
                            bandwidth: Shown::of(all.scaled(*record as f64)),
                            iops: Shown::of(all),
                        });
                    }
                }
            }
        }
        found
    }

    /// How much the repetitions differ.
    fn repetitions(&self, record: u64) -> String {
        let mut out = format!("\nRepetitions: {}\n", self.about.test.repetitions);
        putln!(
            out,
            "{:<20} {:>6} {:>12} {:>12} {:>12} {:>12}",
            "Test",
            "Ranks",
            "Best",
            "Median",
            "Mean",
            "Std Dev"
        );
        let (_, each) = self.unit_of_table(record);
        for test in Test::ALL {
            for ranks in self.columns() {
                let all = self.repeated(test, record, ranks);
                if all.max > 0.0 {
                    put!(out, "{:<20} {ranks:>6}", test.name());
                    for value in [all.max, all.median, all.mean, all.deviation] {
                        put!(out, " {:>12.1}", value * each);
                    }
                    out.push('\n');
                }
            }
        }
        out
    }

    /// The unit of the table, and what an operation is in it.
    fn unit_of_table(&self, record: u64) -> (&'static str, f64) {
        match self.about.test.operations {
            true => ("operations/s", 1.0),
            false => ("MB/s (10^6 bytes)", record as f64 / 1e6),
        }
    }

    fn latencies(&self) -> String {
        let mut out = String::from("\nLatency of single operations (us):\n");
        putln!(
            out,
            "{:<20} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
            "Test",
            "Ranks",
            "Record kB",
            "Mean",
            "50%",
            "99%",
            "99.9%",
            "Max"
        );
        for point in &self.points {
            let all = &point.latencies;
            let name = point.test.name();
            let (ranks, record) = (point.measured.len(), point.record / KIB);
            put!(out, "{name:<20} {ranks:>6} {record:>10}");
            for value in [all.mean_us, all.p50_us, all.p99_us, all.p999_us] {
                put!(out, " {value:>10.1}");
            }
            putln!(out, " {:>12.1}", all.max_us);
        }
        out
    }

    /// Ends it.
    pub(super) fn finish(self, wrong: u64, pitfalls: &[Pitfall]) -> Result<()> {
        if self.about.setting.json {
            return self.about.setting.print(&self.json(wrong, pitfalls)?);
        }
        let mut out = String::new();
        for record in &self.about.test.records {
            out.push_str(&self.table(*record));
            out.push_str(&self.repetitions(*record));
        }
        out.push_str(&self.latencies());
        out.push_str("\niozone test complete.\n");
        self.about.setting.print(&out)
    }

    fn json(&self, wrong: u64, pitfalls: &[Pitfall]) -> Result<String> {
        let summary = self.points.iter().map(|point| {
            let bytes = point.record as f64;
            Operation {
                operation: point.test.name(),
                tasks: point.measured.len(),
                nodes: self.nodes(point.measured.len()),
                record_bytes: point.record,
                bytes: point.operations() * point.record,
                seconds: point.seconds(),
                bandwidth: point.rate() * bytes,
                bandwidth_sum_of_ranks: point.sum() * bytes,
                iops: point.rate(),
                rate_of_ranks: Shown::of(point.of_ranks()),
                latency: point.latencies,
                start_skew: point.spread.start_skew_s,
                end_skew: point.spread.end_skew_s,
                ranks: &point.spread.ranks,
                series: &point.series,
            }
        });
        let whole = Whole {
            mark: Mark::of("iozone"),
            version: VERSION,
            began: when::ctime(self.began),
            command_line: self.about.setting.command_line.join(" "),
            path: self.about.place.display().to_string(),
            tasks: self.about.ranks,
            nodes: self.about.nodes.count,
            summary: summary.collect(),
            repetitions: self.about.test.repetitions,
            repeated: self.all_repeated(),
            options: Options::of(&self.about),
            wrong_records: wrong,
            pitfalls,
            finished: when::ctime(when::unix_seconds()),
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
    path: String,
    tasks: usize,
    nodes: usize,
    summary: Vec<Operation<'a>>,
    repetitions: usize,
    repeated: Vec<Repeated>,
    options: Options,
    wrong_records: u64,
    pitfalls: &'a [Pitfall],
    finished: String,
}

/// What else a rate depends on.
#[derive(Serialize)]
struct Options {
    api: &'static str,
    fsync: bool,
    close: bool,
    o_direct: bool,
    /// Whether rates are asked for in operations.
    operations: bool,
    stride_records: u64,
    /// Percentage of the ranks that read in the mixed test, if it was said.
    readers_percent: Option<u8>,
    verify: bool,
    caches_dropped: bool,
}

impl Options {
    fn of(about: &About) -> Self {
        let test = about.test;
        Self {
            api: test.api.name(),
            fsync: test.fsync,
            close: test.close,
            o_direct: test.direct,
            operations: test.operations,
            stride_records: test.stride,
            readers_percent: test.readers,
            verify: test.verify,
            caches_dropped: about.setting.guard.drop_caches,
        }
    }
}

#[derive(Serialize)]
struct Operation<'a> {
    operation: &'a str,
    tasks: usize,
    nodes: usize,
    record_bytes: u64,
    bytes: u64,
    seconds: f64,
    /// Bytes a second, over the longest time.
    bandwidth: f64,
    bandwidth_sum_of_ranks: f64,
    iops: f64,
    /// Operations a second of each rank.
    rate_of_ranks: Shown,
    latency: Quantiles,
    start_skew: f64,
    end_skew: f64,
    /// Bytes a second of each rank.
    ranks: &'a [f64],
    series: &'a Series,
}

/// A test's repetitions, each over its longest time.
#[derive(Serialize)]
struct Repeated {
    operation: &'static str,
    record_bytes: u64,
    tasks: usize,
    /// Bytes a second.
    bandwidth: Shown,
    /// Operations a second.
    iops: Shown,
}

#[derive(Serialize)]
struct Shown {
    max: f64,
    min: f64,
    median: f64,
    mean: f64,
    std_dev: f64,
}

impl Shown {
    fn of(all: Summary) -> Self {
        Self {
            max: all.max,
            min: all.min,
            median: all.median,
            mean: all.mean,
            std_dev: all.deviation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_over_the_longest_time_and_the_sum_of_rates_are_told_apart() {
        let rank = |begin, end| Measured { begin, end, operations: 100, wrong: 0 };
        let point = |measured: &[Measured]| Point {
            test: Test::Read,
            record: 4096,
            measured: measured.to_vec(),
            latencies: Quantiles::default(),
            wrong: 0,
            spread: Spread::default(),
            series: Series::default(),
        };
        let together = point(&[rank(1.0, 2.0), rank(1.0, 2.0)]);
        assert_eq!((together.rate(), together.sum()), (200.0, 200.0));
        let apart = point(&[rank(1.0, 2.0), rank(2.0, 3.0)]);
        assert_eq!((apart.rate(), apart.sum(), apart.seconds()), (100.0, 200.0, 2.0));
        let sent = rank(1.5, 2.5);
        assert_eq!(Measured::from_bytes(&sent.to_bytes()), sent);
    }
}
