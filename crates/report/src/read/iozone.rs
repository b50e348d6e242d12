//! The JSON of `sateen-bench iozone`: one document with all patterns, record sizes and numbers
//! of ranks.

use serde::Deserialize;
use serde_json::Value;

use super::{Parsed, Pitfall, typed};
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
    wrong_records: u64,
    #[serde(default)]
    pitfalls: Vec<Pitfall>,
    #[serde(default)]
    finished: String,
}

#[derive(Deserialize)]
struct Operation {
    operation: String,
    tasks: u64,
    nodes: u64,
    record_bytes: u64,
    seconds: f64,
    bandwidth: f64,
    bandwidth_sum_of_ranks: Option<f64>,
    latency: Option<Latency>,
}

/// Reads it.
pub(super) fn run(value: Value) -> Parsed<Run> {
    let whole: Whole = typed(value)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for one in &whole.summary {
        let repetition = Repetition {
            rate: one.bandwidth / MIB,
            seconds: Some(one.seconds),
            sum_of_ranks: one.bandwidth_sum_of_ranks.map(|sum| sum / MIB),
            ..Repetition::default()
        };
        let same = |old: &&mut Outcome| {
            (old.operation.as_str(), old.ranks, old.nodes, old.transfer_bytes)
                == (one.operation.as_str(), one.tasks, one.nodes.max(1), Some(one.record_bytes))
        };
        if let Some(old) = outcomes.iter_mut().find(same) {
            old.repetitions.push(repetition);
            continue;
        }
        outcomes.push(Outcome {
            operation: one.operation.clone(),
            unit: Unit::Mib,
            nodes: one.nodes.max(1),
            ranks: one.tasks,
            transfer_bytes: Some(one.record_bytes),
            files: None,
            access: String::new(),
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
