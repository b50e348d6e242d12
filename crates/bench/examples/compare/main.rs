//! Sateen beside ext4, tmpfs, FUSE with nothing behind it, and other file systems, on one machine:
//! `make compare`, whose script starts and mounts them all.
//!
//! `compare round` measures a round on what is mounted, with `sateen-bench`, and keeps its single
//! numbers; `compare document` makes the document of all rounds, with a figure and one file of all
//! numbers. `compare profile` makes the one of a round that was recorded.
//!
//! | module | is |
//! |---|---|
//! | `systems` | the file systems: what each is, and what of it is durable |
//! | `rows` | what is measured, and in which order |
//! | `measure` | a round |
//! | `processor` | processor time of processes |
//! | `numbers` | single numbers, and their medians |
//! | `gates` | what rows are to reach |
//! | `document`, `chart` | what is shown |
//! | `parts`, `profile` | where processors' time goes: recorded, and shown |
#![allow(missing_docs, reason = "a program")]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

mod chart;
mod document;
mod gates;
mod measure;
mod memory;
mod numbers;
mod parts;
mod processor;
mod profile;
mod rows;
mod systems;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use serde_json::json;

use document::Beside;
use measure::Plan;
use numbers::Numbers;
use systems::System;

/// Measures file systems beside each other, and writes the document of it.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// One round.
    Round(RoundOptions),
    /// The document of all rounds.
    Document(DocumentOptions),
    /// The document of where processors' time goes, of a round with --record.
    Profile(ProfileOptions),
}

#[derive(Debug, Args)]
struct RoundOptions {
    /// The program sateen-bench, with words that come first.
    #[arg(long, num_args = 1.., required = true)]
    bench: Vec<String>,
    /// The program sateen.
    #[arg(long)]
    sateen: Option<PathBuf>,
    /// A file system that is mounted: NAME=DIR[,others=DIR:DIR…][,servers=PID:PID…][,client=PID:PID…].
    #[arg(long, required = true, value_parser = systems::system)]
    system: Vec<System>,
    /// Groups of rows.
    #[arg(long, value_delimiter = ' ', required = true)]
    rows: Vec<String>,
    /// Numbers of processes.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    processes: Vec<u32>,
    /// Sizes, in percent.
    #[arg(long, default_value_t = 100)]
    scale: u32,
    /// Which round it is.
    #[arg(long)]
    round: u32,
    /// Where its numbers go.
    #[arg(long)]
    json: PathBuf,
    /// Adds them to those of the round that are there.
    #[arg(long)]
    more: bool,
    /// Records with perf, in this folder, where processors' time goes.
    #[arg(long)]
    record: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct DocumentOptions {
    /// What stands beside the numbers: NAME=VALUE.
    #[arg(long)]
    fact: Vec<String>,
    /// Load of the machine when it began.
    #[arg(long)]
    load: Option<f64>,
    /// Sizes, in percent.
    #[arg(long, default_value_t = 100)]
    scale: u32,
    /// The document; beside it are NAME.svg and NAME.json.
    #[arg(long)]
    output: PathBuf,
    /// Numbers of rounds.
    #[arg(required = true)]
    rounds: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct ProfileOptions {
    /// What stands beside the numbers: NAME=VALUE.
    #[arg(long)]
    fact: Vec<String>,
    /// The document.
    #[arg(long)]
    output: PathBuf,
    /// Numbers of rounds.
    #[arg(required = true)]
    rounds: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Options::parse().what {
        What::Round(options) => round(options),
        What::Document(options) => write(&options),
        What::Profile(options) => profile(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn round(options: RoundOptions) -> Result<()> {
    for name in &options.rows {
        let known = rows::GROUPS.map(|group| group.name).join(", ");
        let is_one = name == rows::IDLE || rows::group(name).is_some();
        ensure!(is_one, "{name} is none of {known}, {}", rows::IDLE);
    }
    let plan = Plan {
        bench: options.bench,
        sateen: options.sateen,
        round: options.round,
        rows: options.rows,
        processes: options.processes,
        scale_percent: options.scale,
        systems: options.system,
        records: options.record,
    };
    let mut round = plan.measure()?;
    if options.more {
        let [mut before] = <[numbers::Round; 1]>::try_from(numbers::read(&[&options.json])?)
            .map_err(|_| anyhow::anyhow!("one round is in a file"))?;
        before.verified += round.verified;
        before.singles.append(&mut round.singles);
        round = before;
    }
    keep(&options.json, &serde_json::to_string(&round)?)
}

fn write(options: &DocumentOptions) -> Result<()> {
    let numbers = Numbers { rounds: numbers::read(&options.rounds)? };
    let facts = pairs(&options.fact)?;
    let beside_it = |ending| options.output.with_extension(ending);
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let (svg, singles) = (beside_it("svg"), beside_it("json"));
    let figure = chart::svg(&numbers);
    if let Some(figure) = &figure {
        keep(&svg, figure)?;
    }
    // A line for each round and each number: what changes from run to run is seen as such.
    let lines = |round: &numbers::Round| -> Result<Vec<String>> {
        let lines = round.singles.iter().map(serde_json::to_string);
        Ok(lines.collect::<Result<Vec<String>, _>>()?)
    };
    let mut all = Vec::new();
    for round in &numbers.rounds {
        all.extend(lines(round)?);
    }
    let rounds = numbers.rounds.iter().map(|one| {
        json!({"round": one.round, "others_percent": one.others_percent, "verified": one.verified})
    });
    let rounds: Vec<_> = rounds.collect();
    let facts_json: serde_json::Map<_, _> =
        facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let head = json!({
        "facts": facts_json, "load": options.load, "scale_percent": options.scale, "rounds": rounds
    });
    let head = head.to_string();
    let head = head.strip_suffix('}').unwrap_or_default();
    keep(&singles, &format!("{head},\n\"singles\":[\n{}\n]}}\n", all.join(",\n")))?;
    let beside = Beside {
        facts,
        load: options.load,
        scale_percent: options.scale,
        figure: figure.and(name(&svg)),
        singles: name(&singles).unwrap_or_default(),
    };
    keep(&options.output, &document::write(&numbers, &beside))?;
    let failures = numbers.failures();
    ensure!(failures.is_empty(), "not all is well:\n{}", failures.join("\n"));
    Ok(())
}

fn profile(options: &ProfileOptions) -> Result<()> {
    let numbers = Numbers { rounds: numbers::read(&options.rounds)? };
    keep(&options.output, &profile::write(&numbers, &pairs(&options.fact)?))?;
    let failures = numbers.failures();
    ensure!(failures.is_empty(), "not all is well:\n{}", failures.join("\n"));
    Ok(())
}

fn pairs(facts: &[String]) -> Result<Vec<(String, String)>> {
    let pairs = facts.iter().map(|fact| {
        let (name, value) = fact.split_once('=').context("a fact has the form NAME=VALUE")?;
        Ok((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn keep(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}
