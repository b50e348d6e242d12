//! The files of runs. A JSON of `sateen-bench` says which workload wrote it and in which format
//! (`sateenBench`); IOR's own JSON is known by its version, and IO500's `result.txt` by its form.
//!
//! Files come from anywhere: what is read is checked, and an error names the file and what is
//! wrong with it.

mod io500;
mod ior;
mod iozone;
mod mdtest;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::error::{Error, Result};
use crate::run::{Run, Warning};

/// The format of `sateen-bench` that is read here.
const FORMAT: u64 = 1;
/// Longest file: what is read of it takes a few times as much memory.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// All files together: what is read of them is kept until the report is written.
const ALL_BYTES_MAX: u64 = 256 << 20;
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

/// Reads runs.
pub fn runs(sources: &[Source]) -> Result<Vec<Run>> {
    let mut left = ALL_BYTES_MAX;
    let mut runs = sources.iter().map(|one| run(one, &mut left)).collect::<Result<Vec<_>>>()?;
    name_by_place(&mut runs);
    Ok(runs)
}

/// Names runs without a name by where they measured, if that differs: nobody would take the
/// rates of one file system for repetitions of another's.
fn name_by_place(runs: &mut [Run]) {
    let programs: BTreeSet<&str> = runs.iter().map(|run| run.program).collect();
    for program in programs {
        let nameless = |run: &Run| run.program == program && run.label.is_empty();
        let places: BTreeSet<String> = runs.iter().filter(|run| nameless(run)).map(place).collect();
        if places.len() > 1 {
            let these = runs.iter_mut().filter(|run| nameless(run));
            these.for_each(|run| run.label = place(run));
        }
    }
}

/// Where a run has measured, as far as it says so.
fn place(run: &Run) -> String {
    let fact = |name| run.facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1.as_str());
    let path = Path::new(fact("Path").unwrap_or_default());
    let results = Path::new(fact("Results").unwrap_or_default());
    // Each run of IO500 has a directory of its own there, and its results have the same name.
    let own = run.program == "io500" && path.file_name() == results.file_name();
    path.parent().filter(|_| own).unwrap_or(path).display().to_string()
}

/// Reads a run, of so many bytes at most.
fn run(source: &Source, left: &mut u64) -> Result<Run> {
    let text = text(&source.file, left)?;
    let wrong = |why: String| Error::input(&source.file, why);
    let mut run = parse(&text).map_err(wrong)?;
    if run.outcomes.is_empty() {
        return Err(Error::input(&source.file, "it holds no result"));
    }
    run.label.clone_from(&source.label);
    run.source = source.file.display().to_string();
    Ok(run)
}

fn text(file: &Path, left: &mut u64) -> Result<String> {
    let most = FILE_BYTES_MAX.min(*left);
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(file)?.take(most + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| Error::input(file, error.to_string()))?;
    let long = bytes.len() as u64;
    if long > FILE_BYTES_MAX {
        return Err(Error::input(file, "it is larger than 64 MiB"));
    }
    if long > most {
        return Err(Error::input(file, "all runs together are larger than 256 MiB"));
    }
    *left -= long;
    let text = String::from_utf8(bytes).map_err(|_| Error::input(file, "it is no text"))?;
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
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let stranger = || "neither sateen-bench nor IOR has written it".to_owned();
    if !text.trim_start().starts_with('{') {
        return Err(stranger());
    }
    // No more of it is kept than is needed: a tree of any document is many times its text.
    let head: Head = serde_json::from_str(text).map_err(|_| stranger())?;
    let mut own_version = String::new();
    let program = match (head.mark, head.version, head.tests) {
        (Some(_), ..) => {
            let mark = marked(text)?;
            own_version = mark.version;
            mark.program
        }
        (None, Some(version), Some(_)) => {
            let known = ["3.", "4."].iter().any(|major| version.starts_with(major));
            if !known {
                return Err(format!("IOR {version} is not known: 3 and 4 are"));
            }
            "ior".to_owned()
        }
        _ => return Err(stranger()),
    };
    let mut run = match program.as_str() {
        "ior" => ior::run(text),
        "mdtest" => mdtest::run(text),
        "iozone" => iozone::run(text),
        "io500" => io500::json(text),
        other => Err(format!("a report of {other:?} is not known")),
    }?;
    name_writer(&mut run, &own_version);
    Ok(run)
}

/// Adds our own version to that of the original, if the document says both.
fn name_writer(run: &mut Run, own_version: &str) {
    let version = run.facts.iter_mut().find(|fact| fact.0 == "Version");
    if let (Some((_, version)), false) = (version, own_version.is_empty()) {
        version.push_str(&format!(", in the form of sateen-bench {own_version}"));
    }
}

/// What tells documents apart.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "sateenBench")]
    mark: Option<IgnoredAny>,
    #[serde(rename = "Version")]
    version: Option<String>,
    tests: Option<IgnoredAny>,
}

/// What says who wrote a document, and in which format.
#[derive(Deserialize)]
struct Marked {
    #[serde(rename = "sateenBench")]
    mark: Mark,
}

#[derive(Deserialize)]
struct Mark {
    format: u64,
    #[serde(default)]
    program: String,
    /// Of the program that wrote it; older ones do not say it here.
    #[serde(default)]
    version: String,
}

/// The mark that a document has.
fn marked(text: &str) -> Parsed<Mark> {
    let mark = serde_json::from_str::<Marked>(text).map(|marked| marked.mark);
    match mark {
        Ok(mark) if mark.format == FORMAT => Ok(mark),
        other => {
            let format = other.map_or("unknown".into(), |mark| mark.format.to_string());
            Err(format!(
                "its format is {format}, and this program reads {FORMAT}: another version of \
                 sateen-bench wrote it"
            ))
        }
    }
}

fn typed<T: DeserializeOwned>(text: &str) -> Parsed<T> {
    serde_json::from_str(text).map_err(|error| format!("it is not whole: {error}"))
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
    fn who_wrote_a_run_stands_beside_the_original_whose_form_it_has() {
        let rest = r#""Version": "4.1.0", "summary": [],
            "tests": [{"Parameters": {"platform": "n(Linux)"},
            "Options": {"api": "POSIX", "apiVersion": "", "tasks": 1, "GPUDirect": "0"},
            "Results": [{"access": "write", "bwMiB": 1, "xferKiB": 256}]}]"#;
        let version = |mark: &str| {
            let run = parse(&format!(r#"{{"sateenBench": {mark}, {rest}}}"#)).unwrap();
            run.facts.into_iter().find(|fact| fact.0 == "Version").unwrap().1
        };
        let new = version(r#"{"format": 1, "program": "ior", "version": "0.1.0"}"#);
        assert_eq!(new, "IOR 4.1.0, in the form of sateen-bench 0.1.0");
        assert_eq!(version(r#"{"format": 1, "program": "ior"}"#), "IOR 4.1.0", "of before");
    }

    #[test]
    fn sources_may_have_names() {
        let named = source("ext4=a/b=c.json").unwrap();
        assert_eq!((named.label.as_str(), named.file), ("ext4", "a/b=c.json".into()));
        assert_eq!(source("a/b=c.json").unwrap().label, "");
        assert!(source("").is_err() && source("=x").is_err() && source("x=").is_err());
    }

    #[test]
    fn runs_of_several_places_are_no_repetitions_of_each_other() {
        let run = |program, path: &str, results: &str, label: &str| Run {
            label: label.into(),
            program,
            facts: vec![("Path", path.into()), ("Results", results.into())],
            ..crate::figures::tests::a_run("", &["write"], 1, 4096)
        };
        let labels = |mut runs: Vec<Run>| -> Vec<String> {
            name_by_place(&mut runs);
            runs.into_iter().map(|run| run.label).collect()
        };
        let two = labels(vec![run("ior", "/a", "", ""), run("ior", "/b", "", "")]);
        assert_eq!(two, ["/a", "/b"]);
        let named = labels(vec![run("ior", "/a", "", ""), run("ior", "/b", "", "x")]);
        assert_eq!(named, ["", "x"], "one name is enough for two");
        let other = labels(vec![run("ior", "/a", "", ""), run("mdtest", "/b", "", "")]);
        assert_eq!(other, ["", ""], "they are never beside each other");
        let io500 = [("/a/1", "r/1"), ("/a/2", "r/2"), ("/b/3", "r/3")];
        let io500 = io500.map(|(path, results)| run("io500", path, results, ""));
        assert_eq!(labels(io500[..2].to_vec()), ["", ""], "repetitions");
        assert_eq!(labels(io500.to_vec()), ["/a", "/a", "/b"]);
    }

    #[test]
    fn files_that_hold_nothing_are_refused() {
        let file = std::env::temp_dir().join(format!("sateen-report-{}", std::process::id()));
        let source = Source { label: String::new(), file: file.clone() };
        let refused = |left: u64| run(&source, &mut { left }).unwrap_err();
        assert!(refused(99).to_string().contains("No such file"));
        std::fs::write(&file, " \n").unwrap();
        assert!(refused(99).to_string().contains("it is empty"));
        std::fs::write(&file, [0xff, 0xfe, 0]).unwrap();
        assert!(refused(99).is_of_input());
        std::fs::write(&file, r#"{"Version": "4.0.0", "tests": []}"#).unwrap();
        assert!(refused(99).to_string().contains("it holds no result"));
        assert!(refused(9).to_string().contains("all runs together are larger"));
        File::create(&file).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(refused(ALL_BYTES_MAX).to_string().contains("it is larger than 64 MiB"));
        std::fs::remove_file(&file).unwrap();
    }
}
