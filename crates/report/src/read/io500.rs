//! IO500's `result.txt`: sections of `name = value`, one for each phase with its score, and one
//! with the scores of all.

use super::Parsed;
use crate::run::{Outcome, Repetition, Run, Unit, Warning};

/// Whether a text is one.
pub(super) fn looks_so(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| line == "[run]") && text.contains("score")
}

fn unit(phase: &str) -> Unit {
    if phase.starts_with("ior") { Unit::Gib } else { Unit::Kiops }
}

/// A number that may have INVALID behind it.
fn number(value: &str) -> Option<f64> {
    let word = value.split_whitespace().next()?;
    word.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// Reads it.
pub(super) fn run(text: &str) -> Parsed<Run> {
    let mut section = "";
    let (mut ranks, mut nodes) = (1, 1);
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut warnings: Vec<Warning> = Vec::new();
    let mut facts: Vec<(&'static str, String)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.to_ascii_uppercase().contains("INVALID") {
            let message = format!("IO500 calls it INVALID: {line}");
            warnings.push(Warning { code: String::new(), phase: section.to_owned(), message });
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
            ("run", "nodes") => nodes = value.parse().unwrap_or(1),
            ("run", "config-hash") => facts.push(("Configuration", value.to_owned())),
            ("run", "result-dir") => facts.push(("Results", value.to_owned())),
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
    }
    let (label, source) = (String::new(), String::new());
    Ok(Run { label, source, program: "io500", facts, outcomes, warnings })
}

fn outcome(operation: &str, unit: Unit, rate: f64) -> Outcome {
    Outcome {
        operation: operation.to_owned(),
        unit,
        nodes: 1,
        ranks: 1,
        transfer_bytes: None,
        files: None,
        access: String::new(),
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
version = io500-sc20
result-dir = \"./results\"

[ior-easy-write]
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
        assert_eq!((run.outcomes[0].ranks, run.warnings.len()), (4, 2));
        assert!(super::run("[run]\n[find]\nscore = x\n").is_err());
    }
}
