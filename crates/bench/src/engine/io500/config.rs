//! IO500's configuration: which sections and options there are, how a file is read, printed and
//! hashed. The forms are the original's, so that its files, and programs that read what is
//! written here, go on working.

use std::path::Path;

use super::hash;
use crate::engine::shown::putln;
use crate::error::{Error, Result};

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Int,
    Uint,
    Float,
    Bool,
}

/// An option.
struct Item {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    default: Option<&'static str>,
}

/// A section.
struct Section {
    name: &'static str,
    /// Only of extended runs.
    optional: bool,
    items: &'static [Item],
}

const fn item(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    default: Option<&'static str>,
) -> Item {
    Item { name, help, kind, default }
}

const API: Item = item("API", "What is measured, with its options", Kind::Text, None);
const RUN: Item = item("run", "Whether this phase is run", Kind::Bool, Some("TRUE"));
const VERBOSITY: Item = item("verbosity", "How much is said of it", Kind::Int, None);
const COLLECTIVE: Item =
    item("collective", "Ranks agree after each transfer (-c)", Kind::Bool, None);
/// A phase without options of its own.
const PLAIN: &[Item] = &[API, RUN];
const WITH_COLLECTIVE: &[Item] = &[API, COLLECTIVE, RUN];
const FIND: &[Item] = &[
    item("external-script", "A program that finds, instead of the built-in one", Kind::Text, None),
    item("external-mpi-args", "What stands before that program", Kind::Text, Some("")),
    item("external-extra-args", "Arguments of that program", Kind::Text, Some("")),
    item("nproc", "How many ranks find [all]", Kind::Uint, None),
    RUN,
    item("pfind-queue-length", "Taken for compatibility, without effect", Kind::Int, Some("10000")),
    item("pfind-steal-next", "Taken for compatibility, without effect", Kind::Bool, Some("FALSE")),
    item(
        "pfind-parallelize-single-dir-access-using-hashing",
        "Taken for compatibility, without effect",
        Kind::Bool,
        Some("FALSE"),
    ),
];

const fn section(name: &'static str, items: &'static [Item]) -> Section {
    Section { name, optional: false, items }
}

const fn extended(name: &'static str, items: &'static [Item]) -> Section {
    Section { name, optional: true, items }
}

/// All of it, in the original's order, on which its hash of the options depends no more.
const SCHEMA: &[Section] = &[
    section(
        "global",
        &[
            item("datadir", "Where files are made", Kind::Text, Some("./datafiles")),
            item(
                "timestamp-datadir",
                "Each run has a directory of its own there, named by its time",
                Kind::Bool,
                Some("TRUE"),
            ),
            item("resultdir", "Where results are written", Kind::Text, Some("./results")),
            item(
                "timestamp-resultdir",
                "Each run has a directory of its own there, named by its time",
                Kind::Bool,
                Some("TRUE"),
            ),
            item("api", "What is measured, with its options", Kind::Text, Some("POSIX")),
            item("drop-caches", "Drop caches before each phase", Kind::Bool, Some("FALSE")),
            item(
                "drop-caches-cmd",
                "How they are dropped; called once on each node",
                Kind::Text,
                Some("sudo -n bash -c \"echo 3 > /proc/sys/vm/drop_caches\""),
            ),
            item("io-buffers-on-gpu", "Not here: it has to be FALSE", Kind::Bool, Some("FALSE")),
            item("verbosity", "How much result.txt says, 0 to 10", Kind::Uint, Some("1")),
            item("scc", "30 s instead of 300 s: the rules for students", Kind::Bool, Some("FALSE")),
            item(
                "dataPacketType",
                "What ior writes: timestamp, offset, incompressible or random",
                Kind::Text,
                Some("timestamp"),
            ),
        ],
    ),
    section(
        "debug",
        &[
            item(
                "stonewall-time",
                "Seconds that something is written; other than the rules say: INVALID",
                Kind::Int,
                Some("300"),
            ),
            item(
                "pause-dir",
                "Before a phase, wait while there is a file of its name here: INVALID",
                Kind::Text,
                None,
            ),
        ],
    ),
    section(
        "ior-easy",
        &[
            API,
            item("transferSize", "Bytes of a call", Kind::Text, Some("2m")),
            item(
                "blockSize",
                "Most that a rank writes; a multiple of transferSize",
                Kind::Text,
                Some("9920000m"),
            ),
            item("filePerProc", "A file for each rank", Kind::Bool, Some("TRUE")),
            item("uniqueDir", "A directory for each file", Kind::Bool, Some("FALSE")),
            RUN,
            VERBOSITY,
        ],
    ),
    section("ior-easy-write", PLAIN),
    section(
        "mdtest-easy",
        &[API, item("n", "Most files of a rank", Kind::Uint, Some("1000000")), RUN],
    ),
    section("mdtest-easy-write", PLAIN),
    extended(
        "mdworkbench",
        &[
            API,
            item("waitingTime", "Waiting, in runtimes of an operation", Kind::Float, Some("0.0")),
            item("precreatePerSet", "Files that are there in a set", Kind::Uint, None),
            item("filesPerProc", "Files of an iteration in a set", Kind::Uint, None),
            RUN,
            VERBOSITY,
        ],
    ),
    extended("mdworkbench-create", &[RUN]),
    section("timestamp", &[]),
    extended("find-easy", FIND),
    section(
        "ior-hard",
        &[
            API,
            item("segmentCount", "Most transfers of a rank", Kind::Int, Some("10000000")),
            COLLECTIVE,
            RUN,
            VERBOSITY,
        ],
    ),
    section("ior-hard-write", WITH_COLLECTIVE),
    section(
        "mdtest-hard",
        &[
            API,
            item("n", "Most files of a rank", Kind::Uint, Some("1000000")),
            item("files-per-dir", "Files in a directory (-I): INVALID", Kind::Uint, None),
            RUN,
        ],
    ),
    section("mdtest-hard-write", PLAIN),
    section("find", FIND),
    extended("find-hard", FIND),
    extended("mdworkbench-bench", &[RUN]),
    section("ior-easy-read", PLAIN),
    section("mdtest-easy-stat", PLAIN),
    section("ior-hard-read", WITH_COLLECTIVE),
    section("mdtest-hard-stat", PLAIN),
    extended("mdworkbench-delete", &[RUN]),
    section("mdtest-easy-delete", PLAIN),
    section("mdtest-hard-read", PLAIN),
    section("mdtest-hard-delete", PLAIN),
    section("ior-rnd4K-easy-read", PLAIN),
];

/// A configuration: a value, or none, for each option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config(Vec<Vec<Option<String>>>);

impl Config {
    /// What is used if a file says nothing.
    pub(super) fn standard() -> Self {
        let values = |section: &Section| {
            section.items.iter().map(|item| item.default.map(str::to_owned)).collect()
        };
        Self(SCHEMA.iter().map(values).collect())
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<(Self, String)> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
        let config = Self::parse(&text);
        let config = config
            .map_err(|(line, why)| Error::usage(format!("{}:{line}: {why}", path.display())))?;
        Ok((config, text))
    }

    /// Understands a file; else the line that is wrong, and why.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut config = Self::standard();
        let mut section: Option<usize> = None;
        for (line, text) in (1..).zip(text.lines()) {
            match Line::of(text).map_err(|why| (line, why))? {
                Line::Empty => {}
                Line::Section(name) => {
                    let known = |one: &Section| one.name.eq_ignore_ascii_case(name);
                    let found = SCHEMA.iter().position(known);
                    let unknown = || (line, format!("there is no section {name}"));
                    section = Some(found.ok_or_else(unknown)?);
                }
                Line::Value(name, value) => {
                    let at = section.ok_or_else(|| {
                        (line, format!("{name} is in no section, such as [global]"))
                    })?;
                    config.set(at, name, value).map_err(|why| (line, why))?;
                }
            }
        }
        Ok(config)
    }

    fn set(&mut self, at: usize, name: &str, value: &str) -> std::result::Result<(), String> {
        let Some(section) = SCHEMA.get(at) else { return Ok(()) };
        let mut items = section.items.iter();
        let Some(index) = items.position(|item| item.name.eq_ignore_ascii_case(name)) else {
            return Err(format!("[{}] has no option {name}", section.name));
        };
        if value.is_empty() {
            return Ok(());
        }
        let kind = section.items.get(index).map_or(Kind::Text, |item| item.kind);
        let value = kind.check(value).map_err(|wanted| format!("{name} = {value}: {wanted}"))?;
        if let Some(cell) = self.0.get_mut(at).and_then(|values| values.get_mut(index)) {
            *cell = Some(value);
        }
        Ok(())
    }

    /// The value of an option, if it has one.
    pub(super) fn text(&self, section: &str, name: &str) -> Option<&str> {
        let at = SCHEMA.iter().position(|one| one.name == section);
        let items = at.and_then(|at| SCHEMA.get(at));
        let index = items.and_then(|one| one.items.iter().position(|item| item.name == name));
        debug_assert!(index.is_some(), "[{section}] {name} is in the schema");
        self.0.get(at?)?.get(index?)?.as_deref()
    }

    /// Whether an option is set.
    pub(super) fn flag(&self, section: &str, name: &str) -> bool {
        self.text(section, name) == Some("TRUE")
    }

    /// A number, or 0.
    pub(super) fn number(&self, section: &str, name: &str) -> u64 {
        self.text(section, name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// The options by which a family's files differ, with their sections.
    pub(super) fn of_files(family: &str) -> Vec<(&'static str, &'static str)> {
        let own: &[(&str, &str)] = match family {
            "ior-easy" => &[
                ("ior-easy", "transferSize"),
                ("ior-easy", "blockSize"),
                ("ior-easy", "filePerProc"),
                ("ior-easy", "uniqueDir"),
            ],
            "ior-hard" => &[("ior-hard", "segmentCount")],
            "mdtest-easy" => &[("mdtest-easy", "n")],
            _ => &[("mdtest-hard", "n"), ("mdtest-hard", "files-per-dir")],
        };
        [own, &[("global", "dataPacketType")]].concat()
    }

    /// As a file that says the same.
    pub(super) fn print(&self, help: bool, only_needed: bool) -> String {
        let mut out = String::new();
        let sections = SCHEMA.iter().zip(&self.0);
        for (section, values) in sections.filter(|one| !(only_needed && one.0.optional)) {
            putln!(out, "[{}]", section.name);
            for (item, value) in section.items.iter().zip(values) {
                if help {
                    putln!(out, "# {}", item.help);
                }
                putln!(out, "{} = {}", item.name, value.as_deref().unwrap_or_default());
            }
            out.push('\n');
        }
        out
    }

    /// The hash of all options, whatever their order.
    pub(super) fn hash(&self) -> u32 {
        let mut all = 0;
        for (section, values) in SCHEMA.iter().zip(&self.0) {
            for (item, value) in section.items.iter().zip(values) {
                if let Some(value) = value {
                    all ^= hash::pair(item.name, value);
                }
            }
        }
        all
    }
}

impl Kind {
    /// The value as it is kept; else what was expected.
    fn check(self, value: &str) -> std::result::Result<String, &'static str> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let fits = match self {
            Self::Text => true,
            Self::Int => digits(value.strip_prefix('-').unwrap_or(value)),
            Self::Uint => digits(value) && value.parse::<u64>().is_ok(),
            Self::Float => value.parse::<f64>().is_ok(),
            Self::Bool => match value.to_ascii_lowercase().as_str() {
                "true" | "1" => return Ok("TRUE".into()),
                "false" | "0" => return Ok("FALSE".into()),
                _ => false,
            },
        };
        match self {
            _ if fits => Ok(value.to_owned()),
            Self::Bool => Err("true or false is expected"),
            Self::Uint => Err("a number, not negative, is expected"),
            _ => Err("a number is expected"),
        }
    }
}

/// A line of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Empty,
    Section(&'a str),
    Value(&'a str, &'a str),
}

impl<'a> Line<'a> {
    /// What a line says. A comment begins with `#` or `;` at the line's beginning or after a
    /// space.
    pub(super) fn of(line: &'a str) -> std::result::Result<Self, String> {
        let text = line.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            return Ok(Self::Empty);
        }
        let strange = || format!("neither [section] nor name = value: {text}");
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest.split_once(']').ok_or_else(strange)?;
            let (name, rest) = (name.trim(), rest.trim());
            let fits = !name.is_empty() && name.chars().all(word);
            let comment = rest.is_empty() || rest.starts_with(['#', ';']);
            return if fits && comment { Ok(Self::Section(name)) } else { Err(strange()) };
        }
        let (name, value) = text.split_once('=').ok_or_else(strange)?;
        let name = name.trim();
        if name.is_empty() || !name.chars().all(word) {
            return Err(strange());
        }
        let value = match value.find(['#', ';']) {
            Some(at) => {
                let (value, _) = value.split_at_checked(at).ok_or_else(strange)?;
                if !value.ends_with(char::is_whitespace) {
                    return Err(format!("{name}: a value has neither # nor ;"));
                }
                value
            }
            None => value,
        };
        Ok(Self::Value(name, value.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs_from_the_standard() {
        let text = "# comment\n[global]\n datadir = /x/y  ; there\ntimestamp-datadir = false\n\n\
                    [ ior-easy ] # easy\nblocksize = 1g\nrun = 0\napi =\n[debug]\n\
                    stonewall-time = 30\r\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.text("global", "datadir"), Some("/x/y"));
        assert!(!config.flag("global", "timestamp-datadir"));
        assert!(config.flag("global", "timestamp-resultdir"));
        assert_eq!(config.text("ior-easy", "blockSize"), Some("1g"));
        assert_eq!(config.text("ior-easy", "API"), None);
        assert!(!config.flag("ior-easy", "run") && config.flag("ior-hard", "run"));
        assert_eq!(config.number("debug", "stonewall-time"), 30);
        assert_eq!(Config::parse(&config.print(true, false)), Ok(config.clone()));
        assert_eq!(Config::parse(&config.print(false, true)), Ok(config));
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let standard = Config::standard();
        let printed = standard.print(true, false);
        assert!(printed.starts_with("[global]\n# Where files are made\ndatadir = ./datafiles\n"));
        assert_eq!(Config::parse(&printed), Ok(standard.clone()));
        assert!(printed.contains("[mdworkbench]"));
        assert!(!standard.print(true, true).contains("[mdworkbench]"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line, why) in [
            ("[global]\nx = 1\n", 2, "[global] has no option x"),
            ("[nothing]\n", 1, "there is no section nothing"),
            ("\n\nrun = 1\n", 3, "run is in no section"),
            ("[find]\nrun = perhaps\n", 2, "true or false is expected"),
            ("[find]\nnproc = -1\n", 2, "not negative"),
            ("[debug]\nstonewall-time = 3x\n", 2, "a number is expected"),
            ("[global]\ndatadir\n", 2, "neither [section] nor"),
            ("[global]\ndatadir = a#b\n", 2, "neither # nor ;"),
            ("[global\n", 1, "neither"),
        ] {
            let (at, said) = Config::parse(text).unwrap_err();
            assert!(at == line && said.contains(why), "{text}: {at}: {said}");
        }
    }

    #[test]
    fn the_hash_depends_on_each_value() {
        let standard = Config::standard();
        let same = Config::parse("[global]\ndatadir = ./datafiles\n").unwrap();
        let other = Config::parse("[mdtest-hard]\nn = 7\n").unwrap();
        assert_eq!(standard.hash(), same.hash());
        assert_ne!(standard.hash(), other.hash());
    }
}
