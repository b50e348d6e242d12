//! The files of runs. A JSON of `sateen-bench` says which workload wrote it and in which format
//! (`sateenBench`); IOR's own JSON is known by its version, and IO500's `result.txt` by its form.
//!
//! Files come from anywhere: what is read is checked, and an error names the file and what is
//! wrong with it.

mod io500;
mod ior;
mod iozone;
mod mdtest;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::run::{Run, Warning};

/// The format of `sateen-bench` that is read here.
const FORMAT: u64 = 1;
/// Longest file.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Most runs in a report.
pub const RUNS_MAX: usize = 1000;

/// A file and what its user calls the run: `sateen=run.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name, or nothing.
    pub label: String,
    /// The file.
    pub file: PathBuf,
}

/// Reads `NAME=FILE` or `FILE`; a file with that whole name is meant before one behind a `=`.
pub fn source(text: &str) -> std::result::Result<Source, String> {
    if text.is_empty() {
        return Err("a file has a name".into());
    }
    let whole = Source { label: String::new(), file: text.into() };
    match text.split_once('=') {
        Some((label, file)) if !Path::new(text).exists() && !label.contains('/') => {
            if label.is_empty() || file.is_empty() {
                return Err("a name stands before the = and a file behind it".into());
            }
            Ok(Source { label: label.to_owned(), file: file.into() })
        }
        _ => Ok(whole),
    }
}

/// Reads a run.
pub fn run(source: &Source) -> Result<Run> {
    let text = text(&source.file)?;
    let wrong = |why: String| Error::input(&source.file, why);
    let mut run = parse(&text).map_err(wrong)?;
    if run.outcomes.is_empty() {
        return Err(Error::input(&source.file, "it holds no result"));
    }
    run.label.clone_from(&source.label);
    run.source = source.file.display().to_string();
    Ok(run)
}

fn text(file: &Path) -> Result<String> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| Error::input(file, error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::input(file, "it is larger than 256 MiB"));
    }
    if text.trim().is_empty() {
        return Err(Error::input(file, "it is empty: did the run end?"));
    }
    Ok(text)
}

/// Why something is no run.
type Parsed<T> = std::result::Result<T, String>;

fn parse(text: &str) -> Parsed<Run> {
    if io500::looks_so(text) {
        return io500::run(text);
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let mark = value.get("sateenBench");
    let program = match mark {
        Some(mark) => {
            let format = mark.get("format").and_then(Value::as_u64);
            if format != Some(FORMAT) {
                let format = format.map_or("unknown".into(), |format| format.to_string());
                return Err(format!(
                    "its format is {format}, and this program reads {FORMAT}: another version of \
                     sateen-bench wrote it"
                ));
            }
            mark.get("program").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        None => unmarked(&value)?.to_owned(),
    };
    match program.as_str() {
        "ior" => ior::run(value),
        "mdtest" => mdtest::run(value),
        "iozone" => iozone::run(value),
        "io500" => io500::json(value),
        other => Err(format!("a report of {other:?} is not known")),
    }
}

/// Which program has written a document that does not say so.
fn unmarked(value: &Value) -> Parsed<&'static str> {
    let version = value.get("Version").and_then(Value::as_str);
    match version {
        Some(version) if value.get("tests").is_some() => {
            let known = ["3.", "4."].iter().any(|major| version.starts_with(major));
            if known { Ok("ior") } else { Err(format!("IOR {version} is not known: 3 and 4 are")) }
        }
        _ => Err("neither sateen-bench nor IOR has written it".into()),
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Parsed<T> {
    serde_json::from_value(value).map_err(|error| format!("it is not whole: {error}"))
}

/// A pitfall as `sateen-bench` writes it.
#[derive(Debug, Deserialize)]
struct Pitfall {
    code: String,
    phase: Option<String>,
    message: String,
}

impl From<Pitfall> for Warning {
    fn from(one: Pitfall) -> Self {
        Self { code: one.code, phase: one.phase.unwrap_or_default(), message: one.message }
    }
}

/// Rates over time as `sateen-bench` writes them.
#[derive(Debug, Default, Deserialize)]
struct Series {
    seconds: Vec<f64>,
    rates: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn what_is_no_run_is_refused_in_words() {
        assert!(refused("{").starts_with("it is no JSON: "));
        assert!(refused("[1, 2]").contains("neither sateen-bench nor IOR"));
        assert!(refused(r#"{"a": 1}"#).contains("neither sateen-bench nor IOR"));
        let other = refused(r#"{"sateenBench": {"format": 9, "program": "ior"}}"#);
        assert!(other.contains("its format is 9, and this program reads 1"), "{other}");
        assert!(refused(r#"{"sateenBench": 7}"#).contains("its format is unknown"));
        assert!(refused(r#"{"sateenBench": {"format": 1, "program": "x"}}"#).contains("\"x\""));
        assert!(refused(r#"{"Version": "5.0", "tests": []}"#).contains("IOR 5.0 is not known"));
        let part = refused(r#"{"sateenBench": {"format": 1, "program": "mdtest"}}"#);
        assert!(part.starts_with("it is not whole: missing field"), "{part}");
    }

    #[test]
    fn sources_may_have_names() {
        let named = source("ext4=a/b=c.json").unwrap();
        assert_eq!((named.label.as_str(), named.file), ("ext4", "a/b=c.json".into()));
        assert_eq!(source("a/b=c.json").unwrap().label, "");
        assert!(source("").is_err() && source("=x").is_err() && source("x=").is_err());
    }

    #[test]
    fn files_that_hold_nothing_are_refused() {
        let file = std::env::temp_dir().join(format!("sateen-report-{}", std::process::id()));
        let source = Source { label: String::new(), file: file.clone() };
        assert!(run(&source).unwrap_err().to_string().contains("No such file"));
        std::fs::write(&file, " \n").unwrap();
        assert!(run(&source).unwrap_err().to_string().contains("it is empty"));
        std::fs::write(&file, [0xff, 0xfe, 0]).unwrap();
        assert!(run(&source).unwrap_err().is_of_input());
        std::fs::write(&file, r#"{"Version": "4.0.0", "tests": []}"#).unwrap();
        assert!(run(&source).unwrap_err().to_string().contains("it holds no result"));
        std::fs::remove_file(&file).unwrap();
    }
}
