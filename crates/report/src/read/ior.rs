//! IOR's JSON, of `sateen-bench ior` or of IOR itself, which has neither ranks nor rates over
//! time.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Parsed, Pitfall, Series, typed};
use crate::apart::{Aspect, Aspects, either, note};
use crate::run::{Latency, Outcome, Repetition, Run, Unit, Warning};

#[derive(Deserialize)]
struct Whole {
    #[serde(rename = "Version")]
    version: String,
    #[serde(rename = "Began", default)]
    began: String,
    #[serde(rename = "Command line", default)]
    command_line: String,
    #[serde(rename = "Machine", default)]
    machine: String,
    #[serde(rename = "Finished", default)]
    finished: String,
    tests: Vec<Test>,
    #[serde(default)]
    summary: Vec<Summary>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    pitfalls: Vec<Pitfall>,
}

#[derive(Deserialize)]
struct Test {
    #[serde(rename = "Path", default)]
    path: String,
    #[serde(rename = "Capacity", default)]
    capacity: String,
    #[serde(rename = "Used Capacity", default)]
    used: String,
    #[serde(rename = "Parameters", default)]
    parameters: Parameters,
    #[serde(rename = "Options")]
    options: Options,
    #[serde(rename = "Results")]
    results: Vec<Moved>,
}

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    api: String,
    #[serde(rename = "test filename", default)]
    file: String,
    #[serde(default)]
    access: String,
    #[serde(default)]
    nodes: Option<u64>,
    tasks: u64,
    #[serde(rename = "clients per node", default)]
    clients: Option<u64>,
    #[serde(rename = "aggregate filesize", default)]
    aggregate: String,
    #[serde(default)]
    blocksize: String,
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(rename = "ordering in a file", default)]
    ordering: Option<String>,
    #[serde(rename = "ordering inter file", default)]
    readers: Option<String>,
    #[serde(rename = "task offset", default)]
    offset: Option<u64>,
    // What IOR itself says nowhere but in its command line.
    #[serde(rename = "posix.odirect", default)]
    direct: Option<bool>,
    #[serde(rename = "mpiio.preallocate", default)]
    preallocate: Option<bool>,
    #[serde(rename = "mpiio.useFileView", default)]
    file_view: Option<bool>,
    #[serde(rename = "mpiio.hints", default)]
    hints: Option<String>,
    #[serde(rename = "intraTestBarriers", default)]
    barriers: Option<bool>,
    #[serde(rename = "caches dropped", default)]
    drops_caches: Option<bool>,
}

/// All parameters as IOR prints them, most of them numbers.
#[derive(Deserialize, Default)]
struct Parameters(BTreeMap<String, Value>);

impl Parameters {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn is_set(&self, name: &str) -> Option<bool> {
        self.number(name).map(|value| value > 0)
    }
}

/// Options of IOR that have a value behind them.
const WITH_VALUES: &str = "abdDfGhiIjJlMNoOpQstTUXA";

/// Whether a command line of IOR has one of these options, alone or among other letters.
fn asks(line: &str, letter: char, name: &str) -> bool {
    line.split_whitespace().any(|word| {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            return word == name;
        };
        let mut flags = letters.chars().take_while(|one| !WITH_VALUES.contains(*one));
        flags.any(|one| one == letter)
    })
}

/// Only phases that moved something have a rate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Moved {
    access: String,
    #[serde(rename = "bwMiB")]
    rate: Option<f64>,
    #[serde(rename = "xferKiB")]
    transfer_kib: Option<f64>,
    total_time: Option<f64>,
    #[serde(rename = "sumOfRanksMiB")]
    sum_of_ranks: Option<f64>,
    start_skew: Option<f64>,
    #[serde(rename = "ranksMiB", default)]
    ranks: Vec<f64>,
    #[serde(rename = "seriesMiB", default)]
    series: Series,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    operation: String,
    #[serde(default)]
    latency: Option<Latency>,
}

/// Reads it.
pub(super) fn run(text: &str) -> Parsed<Run> {
    let whole: Whole = typed(text)?;
    let mut outcomes = Vec::new();
    for test in &whole.tests {
        outcomes.extend(of_test(test, &whole.summary, &whole.command_line));
    }
    let first = whole.tests.first();
    let of = |part: fn(&Test) -> &String| first.map(part).cloned().unwrap_or_default();
    let facts = vec![
        ("Command line", whole.command_line),
        ("Version", format!("IOR {}", whole.version)),
        ("Machine", whole.machine),
        ("Interface", of(|test| &test.options.api)),
        ("File", of(|test| &test.options.file)),
        ("Path", of(|test| &test.path)),
        ("File system", first.map_or(String::new(), |test| room(&test.capacity, &test.used))),
        ("Block", of(|test| &test.options.blocksize)),
        ("All files", of(|test| &test.options.aggregate)),
        ("Began", whole.began),
        ("Finished", whole.finished),
    ];
    let told = whole.warnings.into_iter().map(|message| Warning {
        code: String::new(),
        phase: String::new(),
        message,
    });
    let warnings = whole.pitfalls.into_iter().map(Warning::from).chain(told).collect();
    let (label, source) = (String::new(), String::new());
    Ok(Run { label, source, program: "ior", facts, outcomes, warnings })
}

fn room(capacity: &str, used: &str) -> String {
    if capacity.is_empty() { String::new() } else { format!("{capacity}, {used} used") }
}

/// Whose data is read, by the letters that say so.
fn readers(options: &Options) -> Option<String> {
    let letter = match options.readers.as_deref()? {
        "no tasks offsets" => return Some("own data".to_owned()),
        "constant task offset" => "-C",
        "random task offset" => "-Z",
        other => other,
    };
    let offset = options.offset.filter(|offset| *offset != 1);
    Some(letter.to_owned() + &offset.map_or(String::new(), |offset| format!(" -Q {offset}")))
}

/// Through which calls, and how.
fn interface(options: &Options, command_line: &str, all: &mut Aspects) {
    let api = Some(options.api.clone()).filter(|api| !api.is_empty());
    note(all, Aspect::Interface, api);
    if options.api != "MPIIO" {
        let known = !command_line.is_empty();
        let asked = || known.then(|| asks(command_line, 'B', "--posix.odirect"));
        let direct = options.direct.or_else(asked);
        return note(all, Aspect::PageCache, either(direct, "O_DIRECT", "page cache"));
    }
    note(all, Aspect::Collective, options.kind.clone());
    let hints = options.hints.clone();
    note(
        all,
        Aspect::Hints,
        hints.map(|some| if some.is_empty() { "no hints".into() } else { some }),
    );
    note(all, Aspect::FileView, either(options.file_view, "file view", "no file view"));
    let preallocated = either(options.preallocate, "preallocated", "not preallocated");
    note(all, Aspect::Preallocated, preallocated);
}

/// What is where in the files, and when ranks stop or wait.
fn course(test: &Test, command_line: &str, all: &mut Aspects) {
    let (options, parameters) = (&test.options, &test.parameters);
    let twice = parameters.number("randomOffset").is_some_and(|count| count > 1);
    let ordering = if twice { Some("random (-zz)".to_owned()) } else { options.ordering.clone() };
    note(all, Aspect::Order, ordering);
    if options.access == "file-per-process" {
        let own = parameters.is_set("uniqueDir");
        note(all, Aspect::Directories, either(own, "directories of each", "one directory"));
    } else {
        let segments = parameters.number("segmentCount");
        let plural = |count| if count == 1 { "" } else { "s" };
        let segments = segments.map(|count| format!("{count} segment{}", plural(count)));
        note(all, Aspect::Segments, segments);
    }
    let packet = parameters.number("dataPacketType").map(|kind| match kind {
        0 => "timestamp".to_owned(),
        1 => "offset".to_owned(),
        2 => "incompressible".to_owned(),
        3 => "random data".to_owned(),
        other => format!("data of kind {other}"),
    });
    note(all, Aspect::Data, packet);
    // The second is what older versions of ours have called it.
    let worn = ["stoneWallingWearOut", "stoneWallWearOut"];
    let worn = worn.iter().any(|name| parameters.is_set(name) == Some(true));
    let deadline = parameters.number("deadlineForStonewall");
    let stonewall = deadline.map(|seconds| match (seconds, worn) {
        (0, _) => "no stonewall".to_owned(),
        (_, true) => format!("stonewall {seconds} s, worn out"),
        (_, false) => format!("stonewall {seconds} s"),
    });
    note(all, Aspect::Stonewall, stonewall);
    let known = !command_line.is_empty();
    let asked = || known.then(|| asks(command_line, 'g', "--intraTestBarriers"));
    let barriers = options.barriers.or_else(asked);
    note(all, Aspect::Barriers, either(barriers, "barriers between", "no barriers between"));
}

/// What tells a kind of access apart: of what was asked for, that which it depends on.
fn aspects(test: &Test, access: &str, command_line: &str) -> Aspects {
    let (options, parameters) = (&test.options, &test.parameters);
    let mut all = Aspects::new();
    interface(options, command_line, &mut all);
    course(test, command_line, &mut all);
    if access == "write" {
        let each = parameters.is_set("fsyncperwrite") == Some(true);
        let each = each.then(|| "fsync of each write".to_owned());
        let at_last = either(parameters.is_set("fsync"), "fsync", "no fsync");
        note(&mut all, Aspect::Durable, each.or(at_last));
        let existing = parameters.is_set("useExistingTestFile");
        note(&mut all, Aspect::Existing, either(existing, "existing files", "new files"));
    } else {
        note(&mut all, Aspect::Readers, readers(options));
        let compared = either(parameters.is_set("checkRead"), "compared", "not compared");
        note(&mut all, Aspect::Compared, compared);
        let dropped = either(options.drops_caches, "caches dropped", "caches kept");
        note(&mut all, Aspect::Dropped, dropped);
    }
    all
}

fn of_test(test: &Test, summary: &[Summary], command_line: &str) -> Vec<Outcome> {
    let options = &test.options;
    let by_clients = options.clients.map(|clients| options.tasks.div_ceil(clients.max(1)));
    let nodes = options.nodes.or(by_clients).map(|nodes| nodes.max(1));
    let parameter = |name| test.parameters.number(name);
    let block = parameter("blockSize").zip(parameter("segmentCount"));
    let bytes_per_rank = block.map(|(block, segments)| block.saturating_mul(segments));
    let mut found: BTreeMap<(bool, String, u64), Outcome> = BTreeMap::new();
    for row in &test.results {
        let (Some(rate), Some(kib)) = (row.rate, row.transfer_kib) else { continue };
        let transfer = (kib * 1024.0) as u64;
        // Writing comes first, as it does in the run.
        let key = (row.access != "write", row.access.clone(), transfer);
        let latency = summary.iter().find(|one| one.operation == row.access);
        let outcome = found.entry(key).or_insert_with(|| Outcome {
            operation: row.access.clone(),
            unit: Unit::Mib,
            nodes,
            ranks: options.tasks,
            transfer_bytes: Some(transfer),
            files: None,
            access: options.access.clone(),
            bytes_per_rank,
            aspects: aspects(test, &row.access, command_line),
            repetitions: Vec::new(),
            latency: latency.and_then(|one| one.latency),
        });
        outcome.repetitions.push(Repetition {
            rate,
            seconds: row.total_time,
            sum_of_ranks: row.sum_of_ranks,
            start_skew_s: row.start_skew,
            ranks: row.ranks.clone(),
            series_s: row.series.seconds.clone(),
            series: row.series.rates.clone(),
        });
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ior_itself_writes_is_read() {
        let text = r#"{
          "Version": "4.0.0rc1", "Began": "Tue", "Command line": "ior -F",
          "Machine": "Linux n1",
          "tests": [{"TestID": 0, "Path": "/x", "Capacity": "1.0 TiB", "Used Capacity": "3.0%",
            "Parameters": {"testID": 0},
            "Options": {"api": "POSIX", "access": "file-per-process", "nodes": 2, "tasks": 8,
                        "clients per node": 4},
            "Results": [
              {"access": "write", "bwMiB": 100.5, "blockKiB": 1024, "xferKiB": 256,
               "totalTime": 2.5},
              {"access": "read", "bwMiB": 200, "xferKiB": 256, "totalTime": 1},
              {"access": "write", "bwMiB": 90, "xferKiB": 256, "totalTime": 3},
              {"access": "remove", "totalTime": 3}]}],
          "summary": [], "Finished": "Wed"}"#;
        let run = run(text).unwrap();
        assert_eq!(run.outcomes.len(), 2);
        let write = &run.outcomes[0];
        assert_eq!((write.operation.as_str(), write.nodes, write.ranks), ("write", Some(2), 8));
        assert_eq!((write.transfer_bytes, write.repetitions.len()), (Some(256 << 10), 2));
        assert_eq!(write.summary().best, 100.5);
        assert!(run.facts.contains(&("File system", "1.0 TiB, 3.0% used".into())));
    }

    #[test]
    fn options_are_found_among_other_letters() {
        for line in ["ior -wrB -o f", "ior -B", "ior --posix.odirect", "ior -F -rB -t 1m"] {
            assert!(asks(line, 'B', "--posix.odirect"), "{line}");
        }
        for line in ["ior -oB -w", "ior -o B", "ior --posix.other -wr", "ior -aPOSIXB", ""] {
            assert!(!asks(line, 'B', "--posix.odirect"), "{line}");
        }
    }

    #[test]
    fn what_an_access_depends_on_tells_it_apart() {
        let of = |options: &str, parameters: &str, line: &str| {
            let text = format!(
                r#"{{"Version": "4.0.0", "Command line": "{line}", "tests": [{{
                "Parameters": {{"platform": "n(Linux)", {parameters}}},
                "Options": {{"access": "file-per-process", "tasks": 1, {options}}},
                "Results": [{{"access": "write", "bwMiB": 1, "xferKiB": 256}},
                            {{"access": "read", "bwMiB": 1, "xferKiB": 256}}]}}]}}"#
            );
            let [write, read] = run(&text).unwrap().outcomes.try_into().unwrap();
            (write, read)
        };
        let plain = r#""api": "POSIX", "ordering in a file": "sequential",
                       "ordering inter file": "no tasks offsets""#;
        let sizes = r#""blockSize": 1048576, "segmentCount": 4, "fsync": 0, "checkRead": 0"#;
        let (write, read) = of(plain, sizes, "ior -F");
        assert_eq!((write.bytes_per_rank, read.bytes_per_rank), (Some(4 << 20), Some(4 << 20)));
        let (again, _) = of(plain, sizes, "ior -F -k -v");
        assert_eq!(again.aspects, write.aspects, "nothing that matters");
        for (options, parameters, line, writes, reads) in [
            (plain.replace("POSIX", "MPIIO"), sizes.to_owned(), "ior -F", true, true),
            (plain.replace("sequential", "random"), sizes.to_owned(), "ior -F", true, true),
            (plain.to_owned(), sizes.to_owned(), "ior -FB", true, true),
            (format!("{plain}, \"posix.odirect\": true"), sizes.to_owned(), "", true, true),
            (
                plain.to_owned(),
                sizes.replace("\"fsync\": 0", "\"fsync\": 1"),
                "ior -F",
                true,
                false,
            ),
            (plain.to_owned(), sizes.replace("Read\": 0", "Read\": 1"), "ior -F", false, true),
            (plain.replace("no tasks", "random task"), sizes.to_owned(), "ior -F", false, true),
        ] {
            let (other_write, other_read) = of(&options, &parameters, line);
            let differ = (other_write.aspects != write.aspects, other_read.aspects != read.aspects);
            assert_eq!(differ, (writes, reads), "{options} {parameters} {line}");
        }
    }
}
