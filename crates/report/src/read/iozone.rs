//! The JSON of `sateen-bench iozone`: one document with all patterns, record sizes and numbers
//! of ranks.

use serde::Deserialize;

use super::{Parsed, Pitfall, Series, typed};
use crate::apart::{Aspect, Aspects, either, note};
use crate::run::{Latency, Outcome, Repetition, Run, Unit, Warning};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

#[derive(Deserialize)]
struct Whole {
    version: String,
    #[serde(default)]
    began: String,
    #[serde(default)]
    command_line: String,
    #[serde(default)]
    path: String,
    summary: Vec<Operation>,
    #[serde(default)]
    options: Options,
    #[serde(default)]
    wrong_records: u64,
    #[serde(default)]
    pitfalls: Vec<Pitfall>,
    #[serde(default)]
    finished: String,
}

/// What older versions do not say is unknown.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Options {
    api: Option<String>,
    fsync: Option<bool>,
    close: Option<bool>,
    o_direct: Option<bool>,
    operations: bool,
    stride_records: Option<u64>,
    readers_percent: Option<u64>,
    verify: Option<bool>,
    caches_dropped: Option<bool>,
}

#[derive(Deserialize)]
struct Operation {
    operation: String,
    tasks: u64,
    nodes: u64,
    record_bytes: u64,
    /// Of all ranks.
    #[serde(default)]
    bytes: Option<u64>,
    seconds: f64,
    bandwidth: f64,
    bandwidth_sum_of_ranks: Option<f64>,
    latency: Option<Latency>,
    start_skew: Option<f64>,
    /// Bytes a second.
    #[serde(default)]
    ranks: Vec<f64>,
    /// Records a second.
    #[serde(default)]
    series: Series,
}

/// What tells a test apart: of what was asked for, that which it depends on.
fn aspects(options: &Options, operation: &str) -> Aspects {
    let mut all = Aspects::new();
    note(&mut all, Aspect::Interface, options.api.clone());
    note(&mut all, Aspect::PageCache, either(options.o_direct, "O_DIRECT", "page cache"));
    note(&mut all, Aspect::Closed, either(options.close, "with closing", "without closing"));
    let (reads, mixed) = (operation.contains("read"), operation.starts_with("mixed"));
    if reads || mixed {
        let dropped = either(options.caches_dropped, "caches dropped", "caches kept");
        note(&mut all, Aspect::Dropped, dropped);
        note(&mut all, Aspect::Compared, either(options.verify, "compared", "not compared"));
    }
    if !reads || mixed {
        note(&mut all, Aspect::Durable, either(options.fsync, "fsync", "no fsync"));
    }
    if operation.starts_with("stride") {
        let stride = options.stride_records.map(|stride| format!("stride {stride}"));
        note(&mut all, Aspect::Stride, stride);
    }
    if mixed && options.api.is_some() {
        let readers = options.readers_percent.map(|share| format!("{share} % read"));
        note(&mut all, Aspect::Mixture, readers.or(Some("every second reads".to_owned())));
    }
    all
}

/// Reads it.
pub(super) fn run(text: &str) -> Parsed<Run> {
    let whole: Whole = typed(text)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for one in &whole.summary {
        // What a rate is in bytes a second, and in the unit that was asked for.
        let record = one.record_bytes.max(1) as f64;
        let unit = if whole.options.operations { record } else { MIB };
        let repetition = Repetition {
            rate: one.bandwidth / unit,
            seconds: Some(one.seconds),
            sum_of_ranks: one.bandwidth_sum_of_ranks.map(|sum| sum / unit),
            start_skew_s: one.start_skew,
            ranks: one.ranks.iter().map(|rate| rate / unit).collect(),
            series_s: one.series.seconds.clone(),
            series: one.series.rates.iter().map(|rate| rate * record / unit).collect(),
        };
        let same = |old: &&mut Outcome| {
            (old.operation.as_str(), old.ranks, old.nodes, old.transfer_bytes)
                == (
                    one.operation.as_str(),
                    one.tasks,
                    Some(one.nodes.max(1)),
                    Some(one.record_bytes),
                )
        };
        if let Some(old) = outcomes.iter_mut().find(same) {
            old.repetitions.push(repetition);
            continue;
        }
        outcomes.push(Outcome {
            operation: one.operation.clone(),
            unit: if whole.options.operations { Unit::Operations } else { Unit::Mib },
            nodes: Some(one.nodes.max(1)),
            ranks: one.tasks,
            transfer_bytes: Some(one.record_bytes),
            files: None,
            access: String::new(),
            bytes_per_rank: one.bytes.map(|bytes| bytes / one.tasks.max(1)),
            aspects: aspects(&whole.options, &one.operation),
            repetitions: vec![repetition],
            latency: one.latency,
        });
    }
    let mut warnings: Vec<Warning> = Vec::new();
    if whole.wrong_records > 0 {
        let message = format!("{} records held other data than was written", whole.wrong_records);
        warnings.push(Warning { code: String::new(), phase: String::new(), message });
    }
    warnings.extend(whole.pitfalls.into_iter().map(Warning::from));
    let facts = vec![
        ("Command line", whole.command_line),
        ("Version", format!("IOzone {}", whole.version)),
        ("Path", whole.path),
        ("Began", whole.began),
        ("Finished", whole.finished),
    ];
    let (label, source) = (String::new(), String::new());
    Ok(Run { label, source, program: "iozone", facts, outcomes, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_a_pattern_are_one_outcome() {
        let row = |rate: f64, records: u64| {
            serde_json::json!({
                "operation": "readers", "tasks": 2, "nodes": 1, "record_bytes": records,
                "seconds": 1.0, "bandwidth": rate * MIB, "bandwidth_sum_of_ranks": rate * MIB,
                "ranks": [MIB, MIB], "series": {"seconds": [0.5], "rates": [256.0]},
            })
        };
        let rows = [row(2.0, 4096), row(3.0, 4096), row(9.0, 8192)];
        let whole = serde_json::json!({"version": "3.506", "summary": rows, "wrong_records": 5});
        let run = run(&whole.to_string()).unwrap();
        assert_eq!(run.outcomes.len(), 2);
        let rates: Vec<f64> = run.outcomes[0].repetitions.iter().map(|one| one.rate).collect();
        assert_eq!(rates, [2.0, 3.0]);
        let first = &run.outcomes[0].repetitions[0];
        assert_eq!(
            (first.ranks.as_slice(), first.series.as_slice()),
            (&[1.0, 1.0][..], &[1.0][..])
        );
        assert!(run.warnings[0].message.starts_with("5 records"));
    }
}
