//! The numbers of a report for other programs: four CSV files, and one JSON.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::run::{Repetition, Run};

/// Changes when who read it would read it wrongly.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct All<'a> {
    format: u32,
    runs: &'a [Run],
}

/// Writes all runs as JSON.
pub fn json(out: &mut dyn Write, runs: &[Run]) -> std::io::Result<()> {
    let mut out = BufWriter::new(out);
    serde_json::to_writer_pretty(&mut out, &All { format: FORMAT, runs })?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Names of the CSV files.
const FILES: [&str; 4] = ["results.csv", "ranks.csv", "series.csv", "warnings.csv"];

/// The CSV files of a directory.
pub fn files(dir: &Path) -> [PathBuf; 4] {
    FILES.map(|name| dir.join(name))
}

/// Writes the CSV files into a directory, which is made if it is not there.
pub fn csv(dir: &Path, runs: &[Run]) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| Error::output(dir, error))?;
    let [of_results, of_ranks, of_series, of_warnings] = files(dir);
    write(&of_results, &RESULTS, |put| results(runs, put))?;
    write(&of_ranks, &RANKS, |put| ranks(runs, put))?;
    write(&of_series, &SERIES, |put| series(runs, put))?;
    write(&of_warnings, &WARNINGS, |put| warnings(runs, put))
}

const RESULTS: [&str; 17] = [
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
    "bytes_per_rank",
    "options",
];
const RANKS: [&str; 7] = ["label", "source", "operation", "unit", "repetition", "rank", "rate"];
const SERIES: [&str; 7] = ["label", "source", "operation", "unit", "repetition", "until_s", "rate"];
const WARNINGS: [&str; 5] = ["label", "source", "code", "phase", "message"];

/// Where rows go, one by one: all of them together are many times the numbers.
type Put<'a> = &'a mut dyn FnMut(Vec<String>) -> csv::Result<()>;

fn write(file: &Path, head: &[&str], rows: impl FnOnce(Put) -> csv::Result<()>) -> Result<()> {
    let failed = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => Error::output(file, error),
        other => Error::output(file, std::io::Error::other(format!("{other:?}"))),
    };
    let mut out = csv::Writer::from_path(file).map_err(failed)?;
    out.write_record(head).map_err(failed)?;
    rows(&mut |row| out.write_record(row)).map_err(failed)?;
    out.flush().map_err(|error| Error::output(file, error))
}

fn some(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn results(runs: &[Run], put: Put) -> csv::Result<()> {
    for run in runs {
        for one in &run.outcomes {
            for (number, repetition) in one.repetitions.iter().enumerate() {
                put(vec![
                    run.label.clone(),
                    run.source.clone(),
                    run.program.to_owned(),
                    one.operation.clone(),
                    one.unit.name().to_owned(),
                    some(one.nodes),
                    one.ranks.to_string(),
                    some(one.transfer_bytes),
                    some(one.files),
                    one.access.clone(),
                    number.to_string(),
                    repetition.rate.to_string(),
                    some(repetition.seconds),
                    some(repetition.sum_of_ranks),
                    some(repetition.start_skew_s),
                    some(one.bytes_per_rank),
                    one.aspects.values().cloned().collect::<Vec<_>>().join("; "),
                ])?;
            }
        }
    }
    Ok(())
}

/// Rows of every repetition: where it belongs, and two numbers.
fn each<'a, I: Iterator<Item = (String, f64)>>(
    runs: &'a [Run],
    put: Put,
    of: impl Fn(&'a Repetition) -> I,
) -> csv::Result<()> {
    for run in runs {
        for one in &run.outcomes {
            for (number, repetition) in one.repetitions.iter().enumerate() {
                for (at, rate) in of(repetition) {
                    put(vec![
                        run.label.clone(),
                        run.source.clone(),
                        one.operation.clone(),
                        one.unit.name().to_owned(),
                        number.to_string(),
                        at,
                        rate.to_string(),
                    ])?;
                }
            }
        }
    }
    Ok(())
}

fn ranks(runs: &[Run], put: Put) -> csv::Result<()> {
    each(runs, put, |one| {
        one.ranks.iter().enumerate().map(|(rank, rate)| (rank.to_string(), *rate))
    })
}

fn series(runs: &[Run], put: Put) -> csv::Result<()> {
    each(runs, put, |one| {
        let looks = one.series_s.iter().zip(&one.series);
        looks.map(|(until, rate)| (until.to_string(), *rate))
    })
}

fn warnings(runs: &[Run], put: Put) -> csv::Result<()> {
    for run in runs {
        for one in &run.warnings {
            let row = [&run.label, &run.source, &one.code, &one.phase, &one.message];
            put(row.map(Clone::clone).to_vec())?;
        }
    }
    Ok(())
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
        let mut text = Vec::new();
        json(&mut text, &runs).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json["runs"][0]["outcomes"][1]["unit"], "MiB/s");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_said() {
        let error = csv(Path::new("/dev/null/x"), &[]).unwrap_err();
        assert!(!error.is_of_input() && error.to_string().contains("/dev/null/x"), "{error}");
    }
}
