//! IO500's `result.txt`: sections of `name = value`, one for each phase with its score, and one
//! with the scores of all. And `result.json` of `sateen-bench io500`, which has the same, and of
//! each phase its ranks, its rates over time and its latencies.

use std::path::Path;

use serde::Deserialize;

use super::{Parsed, Series, typed};
use crate::apart::{self, Aspect, Aspects};
use crate::run::{Latency, Outcome, Repetition, Run, Unit, Warning};

/// Whether a text is one.
pub(super) fn looks_so(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| line == "[run]") && text.contains("score")
}

fn unit(phase: &str) -> Unit {
    if phase.starts_with("ior") { Unit::Gib } else { Unit::Kiops }
}

#[derive(Deserialize)]
struct Whole {
    version: String,
    #[serde(default)]
    began: String,
    #[serde(default)]
    command_line: String,
    #[serde(default)]
    result_dir: String,
    #[serde(default)]
    path: String,
    tasks: u64,
    nodes: u64,
    #[serde(default)]
    stonewall_seconds: Option<u64>,
    valid: bool,
    #[serde(default)]
    invalid_because: Vec<String>,
    #[serde(default)]
    remarks: Vec<String>,
    score: Score,
    summary: Vec<Phase>,
    #[serde(default)]
    finished: String,
}

#[derive(Deserialize)]
struct Score {
    bandwidth_gib_s: f64,
    kiops: f64,
    total: f64,
}

#[derive(Deserialize)]
struct Phase {
    operation: String,
    score: f64,
    seconds: f64,
    #[serde(default)]
    scored: bool,
    // What older versions do not say, and nobody of a phase before a break; in the score's unit.
    sum_of_ranks: Option<f64>,
    start_skew: Option<f64>,
    #[serde(default)]
    ranks: Vec<f64>,
    #[serde(default)]
    series: Series,
    latency: Option<Latency>,
}

impl Phase {
    fn outcome(self) -> Outcome {
        let mut outcome = outcome(&self.operation, unit(&self.operation), self.score);
        outcome.repetitions = vec![Repetition {
            rate: self.score,
            seconds: Some(self.seconds),
            sum_of_ranks: self.sum_of_ranks,
            start_skew_s: self.start_skew,
            ranks: self.ranks,
            series_s: self.series.seconds,
            series: self.series.rates,
        }];
        outcome.latency = self.latency;
        if !self.scored {
            outcome.operation.push_str(" (without a score)");
        }
        outcome
    }
}

fn invalid(phase: &str, why: &str) -> Warning {
    let message = format!("IO500 calls it INVALID: {why}");
    Warning { code: String::new(), phase: phase.to_owned(), message }
}

/// A remark of the run; a pitfall among them begins with its code.
fn remark(text: &str) -> Warning {
    let pitfall = text.strip_prefix("warning W-").and_then(|rest| rest.split_once(": "));
    let (code, message) = match pitfall {
        Some((code, message)) => (format!("W-{code}"), message),
        None => (String::new(), text),
    };
    Warning { code, phase: String::new(), message: message.to_owned() }
}

/// Reads the JSON.
pub(super) fn json(text: &str) -> Parsed<Run> {
    let whole: Whole = typed(text)?;
    // A phase that was not run scores nothing.
    let phases = whole.summary.into_iter().filter(|one| one.score > 0.0);
    let mut outcomes: Vec<Outcome> = phases.map(Phase::outcome).collect();
    for (name, unit, rate) in [
        ("BW of all", Unit::Gib, whole.score.bandwidth_gib_s),
        ("MD of all", Unit::Kiops, whole.score.kiops),
        ("SCORE of all", Unit::Score, whole.score.total),
    ] {
        outcomes.push(outcome(name, unit, rate));
    }
    for one in &mut outcomes {
        (one.ranks, one.nodes) = (whole.tasks, Some(whole.nodes.max(1)));
        apart::note(&mut one.aspects, Aspect::Stonewall, whole.stonewall_seconds.map(stonewall));
    }
    let mut warnings: Vec<Warning> =
        whole.invalid_because.iter().map(|why| invalid("", why)).collect();
    if !whole.valid && warnings.is_empty() {
        warnings.push(invalid("", "it does not say why"));
    }
    warnings.extend(whole.remarks.iter().map(|text| remark(text)));
    let facts = vec![
        ("Command line", whole.command_line),
        ("Version", format!("IO500 {}", whole.version)),
        ("Path", whole.path),
        ("Results", whole.result_dir),
        ("Began", whole.began),
        ("Finished", whole.finished),
    ];
    let (label, source) = (String::new(), String::new());
    Ok(Run { label, source, program: "io500", facts, outcomes, warnings })
}

/// A number that may have INVALID behind it.
fn number(value: &str) -> Option<f64> {
    let word = value.split_whitespace().next()?;
    word.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// How long was written.
fn stonewall(seconds: u64) -> String {
    format!("{seconds} s of writing")
}

/// The number behind an option of a command line.
fn option(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().skip_while(|word| *word != name).nth(1)?.parse().ok()
}

/// Reads it.
pub(super) fn run(text: &str) -> Parsed<Run> {
    let mut section = "";
    let (mut ranks, mut nodes, mut written_s) = (1, None, None);
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut warnings: Vec<Warning> = Vec::new();
    let mut facts: Vec<(&'static str, String)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.to_ascii_uppercase().contains("INVALID") {
            warnings.push(invalid(section, line));
        } else if line.starts_with("; warning W-") {
            warnings.push(remark(line.trim_start_matches([';', ' '])));
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with(';')) else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        match (section, name) {
            ("run", "procs") => ranks = value.parse().unwrap_or(1),
            ("run", "nodes") => nodes = value.parse().ok().filter(|nodes: &u64| *nodes > 0),
            ("run", "config-hash") => facts.push(("Configuration", value.to_owned())),
            ("run", "result-dir") => facts.push(("Results", value.to_owned())),
            ("ior-easy-write", "exe") => {
                written_s = option(value, "-D");
                // The file stands in a directory of its own below the one that is measured.
                let mut words = value.split_whitespace().skip_while(|word| *word != "-o").skip(1);
                let path = words.next().and_then(|file| Path::new(file).ancestors().nth(2));
                facts.extend(path.map(|path| ("Path", path.display().to_string())));
            }
            ("" | "run", "version") => facts.push(("Version", format!("IO500 {value}"))),
            ("SCORE", "MD" | "BW" | "SCORE") => {
                let unit = match name {
                    "MD" => Unit::Kiops,
                    "BW" => Unit::Gib,
                    _ => Unit::Score,
                };
                let rate = number(value).ok_or_else(|| format!("[SCORE] {name} is no number"))?;
                outcomes.push(outcome(&format!("{name} of all"), unit, rate));
            }
            (phase, "score") => {
                let rate = number(value).ok_or_else(|| format!("[{phase}] score is no number"))?;
                // A phase that was not run scores nothing.
                if rate > 0.0 {
                    outcomes.push(outcome(phase, unit(phase), rate));
                }
            }
            (_, "t_delta") => {
                let last = outcomes.last_mut().filter(|one| one.operation == section);
                let last = last.and_then(|one| one.repetitions.last_mut());
                if let (Some(last), Some(seconds)) = (last, number(value)) {
                    last.seconds = Some(seconds);
                }
            }
            _ => {}
        }
    }
    for one in &mut outcomes {
        (one.ranks, one.nodes) = (ranks, nodes);
        apart::note(&mut one.aspects, Aspect::Stonewall, written_s.map(stonewall));
    }
    let (label, source) = (String::new(), String::new());
    Ok(Run { label, source, program: "io500", facts, outcomes, warnings })
}

fn outcome(operation: &str, unit: Unit, rate: f64) -> Outcome {
    Outcome {
        operation: operation.to_owned(),
        unit,
        nodes: None,
        ranks: 1,
        transfer_bytes: None,
        files: None,
        access: String::new(),
        bytes_per_rank: None,
        aspects: Aspects::new(),
        repetitions: vec![Repetition { rate, ..Repetition::default() }],
        latency: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
; START 2026-11-22 15:00:00
[run]
procs = 4
; warning W-NODE: n1: busy
version = io500-sc20
result-dir = \"./results\"

[ior-easy-write]
exe = ./ior -C -D 300 -o /mnt/a/T/ior-easy/ior_file_easy -t 2m
t_start = 2026-11-22 15:00:00
score = 1.250000
t_delta = 301.5

[mdtest-easy-write]
score = 12.5 [INVALID]

[find]
score = 0.000000

[SCORE]
MD = 12.5
BW = 1.25
SCORE = 3.95 [INVALID]
";

    #[test]
    fn phases_and_scores_are_read() {
        assert!(looks_so(TEXT) && !looks_so("{}"));
        let run = run(TEXT).unwrap();
        let found: Vec<(&str, Unit, f64)> = run
            .outcomes
            .iter()
            .map(|one| (one.operation.as_str(), one.unit, one.summary().best))
            .collect();
        let wanted = [
            ("ior-easy-write", Unit::Gib, 1.25),
            ("mdtest-easy-write", Unit::Kiops, 12.5),
            ("MD of all", Unit::Kiops, 12.5),
            ("BW of all", Unit::Gib, 1.25),
            ("SCORE of all", Unit::Score, 3.95),
        ];
        assert_eq!(found, wanted);
        assert_eq!(run.outcomes[0].repetitions[0].seconds, Some(301.5));
        assert_eq!((run.outcomes[0].ranks, run.warnings.len()), (4, 3));
        let (code, message) = (&run.warnings[0].code, &run.warnings[0].message);
        assert_eq!((code.as_str(), message.as_str()), ("W-NODE", "n1: busy"));
        assert_eq!(run.outcomes[0].nodes, None, "it does not say how many");
        assert_eq!(run.outcomes[1].aspects[&Aspect::Stonewall], "300 s of writing");
        let told = super::run(&TEXT.replace("procs = 4", "procs = 4\nnodes = 2")).unwrap();
        assert_eq!(told.outcomes[0].nodes, Some(2));
        assert!(run.facts.contains(&("Path", "/mnt/a/T".into())));
        assert!(super::run("[run]\n[find]\nscore = x\n").is_err());
    }

    #[test]
    fn the_json_says_the_same() {
        let text = r#"{
          "version": "v", "tasks": 4, "nodes": 2, "valid": false,
          "invalid_because": ["it took 1 s, less than 300 s"],
          "remarks": ["warning W-SHORT: write: it took 1 s", "something"],
          "score": {"bandwidth_gib_s": 1.25, "kiops": 12.5, "total": 3.95},
          "summary": [
            {"operation": "ior-easy-write", "score": 1.25, "unit": "GiB/s", "seconds": 1.5,
             "scored": true, "valid": false, "sum_of_ranks": 1.5, "start_skew": 0.125,
             "end_skew": 0.25, "ranks": [0.5, 1.0],
             "series": {"seconds": [1, 1.5], "rates": [1.0, 1.75]},
             "latency": {"count": 9, "mean_us": 3, "p50_us": 2, "p90_us": 4, "p99_us": 5,
                         "p999_us": 6, "max_us": 7}},
            {"operation": "mdtest-easy-stat", "score": 2.5, "unit": "kIOPS", "seconds": 2.0,
             "scored": true, "valid": true, "resumed": true},
            {"operation": "timestamp", "score": 0.0, "unit": "kIOPS", "seconds": 0, "scored": false,
             "valid": true}]}"#;
        let run = json(text).unwrap();
        let names: Vec<&str> = run.outcomes.iter().map(|one| one.operation.as_str()).collect();
        let all = ["ior-easy-write", "mdtest-easy-stat", "BW of all", "MD of all", "SCORE of all"];
        assert_eq!(names, all);
        let wrote = Repetition {
            rate: 1.25,
            seconds: Some(1.5),
            sum_of_ranks: Some(1.5),
            start_skew_s: Some(0.125),
            ranks: vec![0.5, 1.0],
            series_s: vec![1.0, 1.5],
            series: vec![1.0, 1.75],
        };
        assert_eq!(run.outcomes[0].repetitions, [wrote]);
        assert_eq!(run.outcomes[0].latency.map(|all| (all.count, all.p99_us)), Some((9, 5.0)));
        let bare = Repetition { rate: 2.5, seconds: Some(2.0), ..Repetition::default() };
        assert_eq!(run.outcomes[1].repetitions, [bare], "of before a break");
        assert_eq!(run.outcomes[1].latency, None);
        assert_eq!((run.outcomes[4].nodes, run.outcomes[4].ranks), (Some(2), 4));
        let codes: Vec<&str> = run.warnings.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, ["", "W-SHORT", ""]);
        assert!(run.warnings[0].message.contains("INVALID: it took 1 s"));
    }
}
