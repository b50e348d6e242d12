//! The JSON of `sateen-bench mdtest`.

use serde::Deserialize;

use super::{Parsed, Pitfall, Series, typed};
use crate::run::{Latency, Outcome, Repetition, Run, Unit, Warning};

#[derive(Deserialize)]
struct Whole {
    version: String,
    #[serde(default)]
    began: String,
    #[serde(default)]
    command_line: String,
    tasks: u64,
    nodes: u64,
    items_per_task: u64,
    summary: Vec<Operation>,
    #[serde(default)]
    unique_dir: bool,
    #[serde(default)]
    write_bytes: u64,
    #[serde(default)]
    path: String,
    #[serde(default)]
    wrong_files: u64,
    #[serde(default)]
    pitfalls: Vec<Pitfall>,
    #[serde(default)]
    finished: String,
}

#[derive(Deserialize)]
struct Operation {
    operation: String,
    rates: Vec<f64>,
    #[serde(default)]
    seconds: Vec<f64>,
    latency: Option<Latency>,
    #[serde(default)]
    iterations: Vec<Iteration>,
}

#[derive(Deserialize)]
struct Iteration {
    sum_of_ranks: Option<f64>,
    start_skew: Option<f64>,
    #[serde(default)]
    ranks: Vec<f64>,
    #[serde(default)]
    series: Series,
}

/// Reads it.
pub(super) fn run(text: &str) -> Parsed<Run> {
    let whole: Whole = typed(text)?;
    let outcomes = whole.summary.iter().filter_map(|one| outcome(&whole, one)).collect();
    let mut warnings: Vec<Warning> = Vec::new();
    if whole.wrong_files > 0 {
        let message = format!("{} files held other data than was written", whole.wrong_files);
        warnings.push(Warning { code: String::new(), phase: String::new(), message });
    }
    warnings.extend(whole.pitfalls.into_iter().map(Warning::from));
    let facts = vec![
        ("Command line", whole.command_line),
        ("Version", format!("mdtest {}", whole.version)),
        ("Path", whole.path),
        ("Bytes of a file", whole.write_bytes.to_string()),
        ("Began", whole.began),
        ("Finished", whole.finished),
    ];
    let (label, source) = (String::new(), String::new());
    Ok(Run { label, source, program: "mdtest", facts, outcomes, warnings })
}

/// Phases that were not run have rates of 0.
fn outcome(whole: &Whole, one: &Operation) -> Option<Outcome> {
    let measured = |(at, rate): (usize, &f64)| {
        let beside = one.iterations.get(at);
        Repetition {
            rate: *rate,
            seconds: one.seconds.get(at).copied(),
            sum_of_ranks: beside.and_then(|beside| beside.sum_of_ranks),
            start_skew_s: beside.and_then(|beside| beside.start_skew),
            ranks: beside.map_or(Vec::new(), |beside| beside.ranks.clone()),
            series_s: beside.map_or(Vec::new(), |beside| beside.series.seconds.clone()),
            series: beside.map_or(Vec::new(), |beside| beside.series.rates.clone()),
        }
    };
    let repetitions = one.rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
    let repetitions: Vec<Repetition> = repetitions.map(measured).collect();
    // Trees are made by few, whatever the number of files.
    let tree = one.operation.starts_with("Tree");
    (!repetitions.is_empty() && !tree).then(|| Outcome {
        operation: one.operation.clone(),
        unit: Unit::Operations,
        nodes: Some(whole.nodes.max(1)),
        ranks: whole.tasks,
        transfer_bytes: None,
        files: Some(whole.items_per_task),
        access: if whole.unique_dir { "directory of its own" } else { "shared directory" }.into(),
        repetitions,
        latency: one.latency,
    })
}
