//! The JSON of `sateen-bench mdtest`.

use serde::Deserialize;

use super::{Parsed, Pitfall, Series, typed};
use crate::apart::{Aspect, Aspects, either, note};
use crate::markup::size;
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
    options: Options,
    #[serde(default)]
    path: String,
    #[serde(default)]
    wrong_files: u64,
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
    read_bytes: Option<u64>,
    stride: Option<u64>,
    shared_files: Option<bool>,
    depth: Option<u64>,
    branches: Option<u64>,
    items_per_dir: Option<u64>,
    leaf_only: Option<bool>,
    mknod: Option<bool>,
    fsync: Option<bool>,
    sync: Option<bool>,
    verify: Option<bool>,
    stonewall_seconds: Option<u64>,
    packet: Option<String>,
    caches_dropped: Option<bool>,
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

/// The tree that items are in, if it is known.
fn tree(options: &Options) -> Option<String> {
    let (depth, branches) = (options.depth?, options.branches?);
    let mut words = match depth {
        0 => "no tree".to_owned(),
        _ => format!("tree -z {depth} -b {branches}"),
    };
    if let Some(items) = options.items_per_dir.filter(|items| *items > 0) {
        words.push_str(&format!(" -I {items}"));
    }
    if depth > 0 && options.leaf_only == Some(true) {
        words.push_str(" -L");
    }
    Some(words)
}

/// What tells a phase apart: of what was asked for, that which it depends on.
fn aspects(whole: &Whole, operation: &str) -> Aspects {
    let options = &whole.options;
    let mut all = Aspects::new();
    note(&mut all, Aspect::Interface, options.api.clone());
    note(&mut all, Aspect::Tree, tree(options));
    let sync = either(options.sync, "sync after each phase", "no sync");
    note(&mut all, Aspect::Closed, sync);
    let creation = operation.ends_with("creation");
    if !creation {
        let stride = options.stride.map(|stride| match stride {
            0 => "own items".to_owned(),
            _ => format!("-N {stride}"),
        });
        note(&mut all, Aspect::Readers, stride);
    }
    if operation.ends_with("stat") || operation.ends_with("read") {
        let dropped = either(options.caches_dropped, "caches dropped", "caches kept");
        note(&mut all, Aspect::Dropped, dropped);
    }
    if !operation.starts_with("File") {
        return all;
    }
    let files = match whole.write_bytes {
        0 => "empty files".to_owned(),
        bytes => format!("files of {}", size(bytes)),
    };
    note(&mut all, Aspect::FileBytes, Some(files));
    let sharing = either(options.shared_files, "files of all", "files of each");
    note(&mut all, Aspect::Sharing, sharing);
    let stonewall = options.stonewall_seconds.map(|seconds| match seconds {
        0 => "no stonewall".to_owned(),
        _ => format!("stonewall {seconds} s"),
    });
    note(&mut all, Aspect::Stonewall, stonewall);
    if creation {
        note(&mut all, Aspect::Made, either(options.mknod, "mknod", "open"));
        note(&mut all, Aspect::Durable, either(options.fsync, "fsync", "no fsync"));
    }
    if whole.write_bytes > 0 {
        note(&mut all, Aspect::Data, options.packet.clone());
    }
    if operation == "File read" {
        let bytes = options.read_bytes.map(|bytes| match bytes {
            0 => "opened and closed".to_owned(),
            bytes => format!("{} read", size(bytes)),
        });
        note(&mut all, Aspect::ReadBytes, bytes);
        note(&mut all, Aspect::Compared, either(options.verify, "compared", "not compared"));
    }
    all
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
        bytes_per_rank: None,
        aspects: aspects(whole, &one.operation),
        repetitions,
        latency: one.latency,
    })
}
