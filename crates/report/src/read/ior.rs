//! IOR's JSON, of `sateen-bench ior` or of IOR itself, which has neither ranks nor rates over
//! time.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Parsed, Pitfall, Series, typed};
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
        outcomes.extend(of_test(test, &whole.summary));
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

fn of_test(test: &Test, summary: &[Summary]) -> Vec<Outcome> {
    let options = &test.options;
    let by_clients = options.clients.map(|clients| options.tasks.div_ceil(clients.max(1)));
    let nodes = options.nodes.or(by_clients).map(|nodes| nodes.max(1));
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
}
