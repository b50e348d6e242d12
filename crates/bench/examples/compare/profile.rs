//! The document of a run that was recorded: for each row where the processors' time of an operation
//! goes, on Sateen beside what it is held against.

use std::fmt::Write as _;

use crate::document::number;
use crate::numbers::{Numbers, Single};
use crate::parts::{Part, Who};
use crate::rows;
use crate::systems::{KNOWN, Known};

/// What is less than this of an operation everywhere is put together, in percent.
const SHOWN_PERCENT: f64 = 2.0;

/// The whole document.
pub(crate) fn write(numbers: &Numbers, facts: &[(String, String)]) -> String {
    let mut out = "# Where the processors' time goes\n\n".to_owned();
    out.push_str("Rows of [performance.md](../performance.md) once more, each recorded by `perf` on all processors (`make profile`): microseconds of a processor for an operation, by whose they are, and by what they are spent on. A sample counts for one part alone: for what the kernel does, whoever asked it to, else for the crate whose code it is in, or for copies and allocation in user space. The first line is the time between two operations, all processes together; processors times that are what all others add up to. Recording costs something itself, so rates are lower than those of performance.md: what counts are parts beside each other.\n\n");
    out.push_str("| | |\n|---|---|\n");
    for (name, value) in facts {
        let _ = writeln!(out, "| {name} | {} |", value.replace('|', "/"));
    }
    for row in rows::all_rows() {
        for processes in numbers.processes() {
            let of = |known: &'static Known| {
                let single = numbers.recorded(&row, processes, known.name)?;
                Some((known, single))
            };
            let systems: Vec<(&Known, &Single)> = KNOWN.iter().filter_map(of).collect();
            if !systems.is_empty() {
                table(&mut out, &rows::title(&row), processes, &systems);
            }
        }
    }
    out
}

/// Microseconds from one operation to the next, of all processes together.
fn between_us(single: &Single) -> Option<f64> {
    let mib = if single.unit == "MiB/s" { rows::mib_of(&single.row) } else { 1.0 };
    single.value.map(|value| mib * 1e6 / value)
}

/// A row of the run: a column for each file system.
fn table(out: &mut String, title: &str, processes: u32, systems: &[(&Known, &Single)]) {
    let plural = if processes == 1 { "process" } else { "processes" };
    let _ = writeln!(out, "\n## {title}, {processes} {plural}\n");
    let titles: Vec<&str> = systems.iter().map(|(known, _)| known.title).collect();
    let _ = writeln!(out, "| µs | {} |\n|---|{}", titles.join(" | "), "---|".repeat(titles.len()));
    let mut line = |name: &str, values: Vec<Option<f64>>| {
        let cells = values.into_iter().map(|value| value.map_or("–".to_owned(), number));
        let _ = writeln!(out, "| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    };
    line("**between two operations**", systems.iter().map(|(_, one)| between_us(one)).collect());
    let sum = |single: &Single, is_in: &dyn Fn(&Part) -> bool| -> Option<f64> {
        let parts = single.parts.iter().flatten().filter(|part| is_in(part));
        let sum: f64 = parts.map(|part| part.us).sum();
        (sum > 0.0).then_some(sum)
    };
    let whose = [
        (Who::Programs, "programs"),
        (Who::Client, "the mount's process"),
        (Who::Servers, "servers, or all in one"),
        (Who::Kernel, "the kernel's threads"),
        (Who::Others, "others"),
        (Who::Idle, "nobody: idle"),
    ];
    for (who, name) in whose {
        let of = |(_, single): &(&Known, &Single)| sum(single, &|part| part.who == who);
        line(&format!("**{name}**"), systems.iter().map(of).collect());
    }
    let counts = |part: &Part| !matches!(part.who, Who::Others | Who::Idle);
    let all = |single: &Single| sum(single, &counts).unwrap_or(0.0);
    let mut names: Vec<&str> = systems
        .iter()
        .flat_map(|(_, single)| single.parts.iter().flatten().filter(|part| counts(part)))
        .map(|part| part.what.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let of = |single: &Single, name: &str| sum(single, &|part| counts(part) && part.what == name);
    let is_shown = |name: &&str| {
        let is_large = |single: &Single| {
            of(single, name).unwrap_or(0.0) >= all(single) * SHOWN_PERCENT / 100.0
        };
        systems.iter().any(|(_, single)| is_large(single))
    };
    let (mut shown, small): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_shown);
    let most = |name: &&str| -> f64 {
        systems.iter().filter_map(|(_, single)| of(single, name)).fold(0.0, f64::max)
    };
    shown.sort_by(|one, other| most(other).total_cmp(&most(one)));
    for name in shown {
        line(name, systems.iter().map(|(_, single)| of(single, name)).collect());
    }
    let rest = |(_, single): &(&Known, &Single)| {
        sum(single, &|part| counts(part) && small.contains(&part.what.as_str()))
    };
    line("all else", systems.iter().map(rest).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Round;

    #[test]
    fn parts_stand_beside_each_other() {
        let single = |system: &str, us: f64| Single {
            round: 1,
            row: "empty.create".to_owned(),
            processes: 2,
            system: system.to_owned(),
            unit: "files/s".to_owned(),
            value: Some(50_000.0),
            operations: 10,
            processor_us: None,
            failed: None,
            parts: Some(vec![
                Part { who: Who::Servers, what: "sateen_mdt".to_owned(), us },
                Part { who: Who::Programs, what: "copies".to_owned(), us: 0.01 },
                Part { who: Who::Idle, what: "idle".to_owned(), us: 7.0 },
            ]),
        };
        let singles = vec![single("ext4", 0.0), single("sateen", 13.0)];
        let round = Round { round: 1, others_percent: None, verified: 0, singles };
        let text = write(&Numbers { rounds: vec![round] }, &[]);
        assert!(text.contains("## empty files: create, 2 processes"), "{text}");
        assert!(text.contains("| **between two operations** | 20.0 | 20.0 |"), "{text}");
        assert!(text.contains("| sateen_mdt | – | 13.0 |"), "{text}");
        assert!(text.contains("| **nobody: idle** | 7.00 | 7.00 |"), "{text}");
        assert_eq!(text.matches("\n## ").count(), 1, "{text}");
    }
}
