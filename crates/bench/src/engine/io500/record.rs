//! A result.txt read again: what of a broken run was done, and whether a result is what was
//! measured.

use std::path::Path;

use super::config::{Config, Line};
use super::hash;
use super::phase::{Group, Phase};
use crate::error::{Error, Result};

/// A section of a result.txt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    /// Its name: a phase, or `run`, `SCORE`.
    pub(super) name: String,
    /// Where it begins in the text.
    pub(super) from: usize,
    pairs: Vec<(String, String)>,
    /// Whether it says that something is invalid.
    pub(super) invalid: bool,
}

impl Part {
    /// The value of a name.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    /// The score of a phase.
    pub(super) fn score(&self) -> Option<f64> {
        self.value("score")?.parse().ok()
    }
}

/// What a result.txt says.
pub(super) fn parse(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        let part = parts.last_mut();
        match (Line::of(line), part) {
            (Ok(Line::Section(name)), _) => {
                parts.push(Part { name: name.into(), from, pairs: Vec::new(), invalid: false });
            }
            (Ok(Line::Value(name, value)), Some(part)) => {
                part.pairs.push((name.to_owned(), value.to_owned()));
            }
            (_, Some(part)) if line.contains("INVALID") => part.invalid = true,
            _ => {}
        }
        from += line.len();
    }
    parts
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<(String, Vec<Part>)> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let parts = parse(&text);
    Ok((text, parts))
}

/// The hash that the scores of a result have.
pub(super) fn score_hash(version: &str, parts: &[Part]) -> u32 {
    let mut all = hash::pair("version", version);
    for part in parts {
        let scored = Phase::named(&part.name).is_none_or(|phase| phase.group() != Group::None);
        if part.name == "SCORE" {
            for (name, value) in part.pairs.iter().filter(|pair| pair.0 != "hash") {
                all ^= hash::pair(name, value.split(' ').next().unwrap_or_default());
            }
        } else if let Some(score) = part.value("score").filter(|_| scored) {
            all ^= hash::pair(&part.name, score);
        }
    }
    all
}

/// Tells whether a result is of a configuration, unchanged and valid.
pub(super) fn verify(config: &Config, path: &Path) -> Result<String> {
    let (_, parts) = read(path)?;
    let value = |part: &str, name: &str| {
        let part = parts.iter().find(|one| one.name == part);
        part.and_then(|part| part.value(name)).unwrap_or_default()
    };
    let differs = |what: &str, found: &str, wanted: &str| {
        Err(Error::Failed(format!("{}: the {what} is {found}, not {wanted}", path.display())))
    };
    let wanted = format!("{:X}", config.hash());
    let found = value("run", "config-hash");
    if found != wanted {
        return differs("hash of the configuration", found, &wanted);
    }
    let hash = score_hash(value("run", "version"), &parts);
    let (valid, invalid) = (format!("{hash:X}"), format!("{:X}", hash ^ hash::pair("valid", "NO")));
    match value("SCORE", "hash") {
        found if found == valid => Ok("[OK]".into()),
        found if found == invalid => Err(Error::Failed("[OK] But this is an invalid run!".into())),
        found => differs("hash of the scores", found, &valid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_where_they_are() {
        let text = "[run]\nprocs           = 4\n; ERROR INVALID stonewall-time\n\n\n[find]\n\
                    exe = ./pfind x -name *01*\nscore           = 1.5\n\n[timestamp]\n";
        let parts = parse(text);
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["run", "find", "timestamp"]);
        assert_eq!(parts[0].value("procs"), Some("4"));
        assert!(parts[0].invalid && !parts[1].invalid);
        assert_eq!((parts[1].score(), parts[2].score()), (Some(1.5), None));
        assert!(text[parts[1].from..].starts_with("[find]"));
    }

    #[test]
    fn the_hash_is_of_scores_alone() {
        let text = "[run]\nversion = v1\n[find]\nexe = x\nscore = 2.000000\n\
                    [ior-rnd4K-easy-read]\nscore = 9.000000\n[SCORE]\nMD = 2.000000\n\
                    SCORE = 0.000000 [INVALID]\nhash = X\n";
        let wanted =
            [("version", "v1"), ("find", "2.000000"), ("MD", "2.000000"), ("SCORE", "0.000000")];
        let wanted = wanted.iter().fold(0, |all, (name, value)| all ^ hash::pair(name, value));
        assert_eq!(score_hash("v1", &parse(text)), wanted);
    }
}
