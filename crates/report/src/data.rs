//! The numbers of a report for other programs: four CSV files, and one JSON.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::run::Run;

/// Changes when who read it would read it wrongly.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct All<'a> {
    format: u32,
    runs: &'a [Run],
}

/// All runs as JSON.
pub fn json(runs: &[Run]) -> String {
    // What it is made of has neither maps with strange keys nor anything else that could fail.
    let text = serde_json::to_string_pretty(&All { format: FORMAT, runs });
    text.unwrap_or_default() + "\n"
}

/// Writes the CSV files into a directory, which is made if it is not there.
pub fn csv(dir: &Path, runs: &[Run]) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| Error::output(dir, error))?;
    write(&dir.join("results.csv"), &RESULTS, results(runs))?;
    write(&dir.join("ranks.csv"), &RANKS, ranks(runs))?;
    write(&dir.join("series.csv"), &SERIES, series(runs))?;
    write(&dir.join("warnings.csv"), &WARNINGS, warnings(runs))
}

const RESULTS: [&str; 15] = [
    "label",
    "source",
    "program",
    "operation",
    "unit",
    "nodes",
    "ranks",
    "transfer_bytes",
    "files_per_rank",
    "access",
    "repetition",
    "rate",
    "seconds",
    "sum_of_ranks",
    "start_skew_s",
];
const RANKS: [&str; 7] = ["label", "source", "operation", "unit", "repetition", "rank", "rate"];
const SERIES: [&str; 7] = ["label", "source", "operation", "unit", "repetition", "until_s", "rate"];
const WARNINGS: [&str; 5] = ["label", "source", "code", "phase", "message"];

fn write(file: &Path, head: &[&str], rows: Vec<Vec<String>>) -> Result<()> {
    let failed = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => Error::output(file, error),
        other => Error::output(file, std::io::Error::other(format!("{other:?}"))),
    };
    let mut out = csv::Writer::from_path(file).map_err(failed)?;
    out.write_record(head).map_err(failed)?;
    for row in rows {
        out.write_record(row).map_err(failed)?;
    }
    out.flush().map_err(|error| Error::output(file, error))
}

fn some(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn results(runs: &[Run]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for run in runs {
        for one in &run.outcomes {
            for (number, repetition) in one.repetitions.iter().enumerate() {
                rows.push(vec![
                    run.label.clone(),
                    run.source.clone(),
                    run.program.to_owned(),
                    one.operation.clone(),
                    one.unit.name().to_owned(),
                    one.nodes.to_string(),
                    one.ranks.to_string(),
                    some(one.transfer_bytes),
                    some(one.files),
                    one.access.clone(),
                    number.to_string(),
                    repetition.rate.to_string(),
                    some(repetition.seconds),
                    some(repetition.sum_of_ranks),
                    some(repetition.start_skew_s),
                ]);
            }
        }
    }
    rows
}

/// Rows of every repetition: where it belongs, and two numbers.
fn each(
    runs: &[Run],
    of: impl Fn(&crate::run::Repetition) -> Vec<(String, f64)>,
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for run in runs {
        for one in &run.outcomes {
            for (number, repetition) in one.repetitions.iter().enumerate() {
                for (at, rate) in of(repetition) {
                    rows.push(vec![
                        run.label.clone(),
                        run.source.clone(),
                        one.operation.clone(),
                        one.unit.name().to_owned(),
                        number.to_string(),
                        at,
                        rate.to_string(),
                    ]);
                }
            }
        }
    }
    rows
}

fn ranks(runs: &[Run]) -> Vec<Vec<String>> {
    each(runs, |one| {
        one.ranks.iter().enumerate().map(|(rank, rate)| (rank.to_string(), *rate)).collect()
    })
}

fn series(runs: &[Run]) -> Vec<Vec<String>> {
    each(runs, |one| {
        let looks = one.series_s.iter().zip(&one.series);
        looks.map(|(until, rate)| (until.to_string(), *rate)).collect()
    })
}

fn warnings(runs: &[Run]) -> Vec<Vec<String>> {
    let row = |(run, one): (&Run, &crate::run::Warning)| {
        [&run.label, &run.source, &one.code, &one.phase, &one.message].map(Clone::clone).to_vec()
    };
    runs.iter().flat_map(|run| run.warnings.iter().map(move |one| (run, one))).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::a_run;

    #[test]
    fn every_number_is_in_the_tables() {
        let runs = [a_run("a,\"b", &["write", "read"], 3, 4096)];
        let dir = std::env::temp_dir().join(format!("sateen-report-csv-{}", std::process::id()));
        csv(&dir, &runs).unwrap();
        let read = |name: &str, head: &[&str]| {
            let mut table = csv::Reader::from_path(dir.join(name)).unwrap();
            assert_eq!(table.headers().unwrap(), head);
            table.records().map(|row| row.unwrap()).collect::<Vec<_>>()
        };
        let results = read("results.csv", &RESULTS);
        assert_eq!((results.len(), &results[0][0], &results[0][11]), (4, "a,\"b", "300"));
        assert_eq!(read("ranks.csv", &RANKS).len(), 6);
        assert_eq!(read("series.csv", &SERIES).len(), 8);
        assert!(read("warnings.csv", &WARNINGS).is_empty());
        fs::remove_dir_all(&dir).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json(&runs)).unwrap();
        assert_eq!(json["runs"][0]["outcomes"][1]["unit"], "MiB/s");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_said() {
        let error = csv(Path::new("/dev/null/x"), &[]).unwrap_err();
        assert!(!error.is_of_input() && error.to_string().contains("/dev/null/x"), "{error}");
    }
}
