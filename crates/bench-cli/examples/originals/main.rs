//! The original `ior`, `mdtest` and `iozone` beside ours: the same options, the same launcher
//! (`iozone` starts its processes itself, and ours then its ranks), in turns.
//! A pair is one run of each, close together; who is first changes from pair to pair. Of each
//! rate the ratio ours/original with its 95 % interval is shown, and the processor time of an
//! operation beside it (user and system, of the launcher and all ranks, start and end included).
//!
//! Behind each run of `ior` and `mdtest` comes one that measures nothing (`-a DUMMY`, which the
//! originals have, too): it tells the program's own time in an operation. The ratio is shown as
//! it is, and of the rates that are left without that time.
//!
//! `scripts/bench-originals.sh` runs it on tmpfs, ext4 and Sateen.
#![allow(missing_docs, reason = "a program")]

mod cases;
mod facts;
#[path = "../../tests/runs/originals.rs"]
#[allow(dead_code, reason = "what tests look at, too")]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "other output ends the run")]
mod parsers;
mod ratio;
mod runs;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

use cases::{CASES, Case, Target, Tool};
use facts::Facts;
use ratio::{PAIRS_MIN, Ratio};
use runs::{Cpu, Place, Shown, Side};

/// Where the interval has to lie.
const WITHIN: (f64, f64) = (0.9, 1.1);
/// Exit code if it does not, of some rate.
const EXIT_OUTSIDE: u8 = 3;

/// Compares ior, mdtest and iozone with the original programs.
#[derive(Debug, Parser)]
struct Options {
    /// The original ior; without it its cases are left out, and so for the others.
    #[arg(long)]
    ior: Option<PathBuf>,
    /// The original mdtest.
    #[arg(long)]
    mdtest: Option<PathBuf>,
    /// The original iozone.
    #[arg(long)]
    iozone: Option<PathBuf>,
    /// Our sateen-bench, built with the feature mpi.
    #[arg(long)]
    ours: PathBuf,
    /// The folder that is measured; its own folder `originals` is removed.
    #[arg(long)]
    dir: PathBuf,
    /// What the folder is called in the output.
    #[arg(long, default_value = "")]
    name: String,
    /// Pairs of runs.
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Iterations of each run, of which the mean counts.
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    ranks: Vec<u32>,
    /// Cases, in place of all.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Other numbers of transfers or files, CASE=N.
    #[arg(long, value_delimiter = ',')]
    count: Vec<String>,
    /// The state of the source of ours, if it is not that of this folder.
    #[arg(long)]
    commit: Option<String>,
    /// What starts the ranks, with its options.
    #[arg(long, default_value = "mpirun")]
    launcher: String,
    /// All that was measured, as JSON, into this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// A line for each run and rate into this file.
    #[arg(long)]
    csv: Option<PathBuf>,
}

/// A case with so many ranks: its runs in pairs.
#[derive(Debug)]
struct Compared {
    case: Case,
    ranks: u32,
    operations: f64,
    pairs: Vec<(Shown, Shown)>,
}

/// A rate, or a time of an operation.
struct Row {
    name: String,
    pairs: Vec<(f64, f64)>,
    ratio: Option<Ratio>,
    /// Whether its ratio is to be near one.
    judged: bool,
}

/// What stands beside the numbers.
struct Beside {
    facts: Facts,
    load: String,
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_OUTSIDE),
        Err(error) => {
            eprintln!("originals: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all intervals are where they have to be.
fn compare(options: &Options) -> Result<bool, String> {
    if options.pairs < PAIRS_MIN {
        return Err(format!("at least {PAIRS_MIN} pairs are needed for an interval"));
    }
    let place = Place {
        launcher: options.launcher.split_whitespace().map(str::to_owned).collect(),
        ior: options.ior.clone(),
        mdtest: options.mdtest.clone(),
        iozone: options.iozone.clone(),
        ours: options.ours.clone(),
        dir: options.dir.clone(),
        iterations: options.iterations,
    };
    let before = load();
    let mut all = Vec::new();
    let chosen = chosen(options)?;
    for ranks in &options.ranks {
        for case in &chosen {
            all.push(pairs(options, &place, case, *ranks)?);
        }
    }
    let mut facts = facts::of_here(&options.launcher, options.commit.as_deref());
    facts.push(("programs", versions(&all)));
    let beside = Beside { facts, load: format!("load {before} before, {} after", load()) };
    println!("{}", table(options, &all, &beside));
    if let Some(path) = &options.json {
        keep(path, &format!("{:#}\n", document(options, &all, &beside)))?;
    }
    if let Some(path) = &options.csv {
        keep(path, &csv(options, &all))?;
    }
    let within = |row: &Row| row.ratio.is_some_and(|ratio| ratio.within(WITHIN));
    Ok(all.iter().flat_map(Compared::rates).all(|row| within(&row)))
}

/// What the programs call themselves.
fn versions(all: &[Compared]) -> String {
    let pairs = all.iter().flat_map(|one| &one.pairs);
    let all = pairs.flat_map(|(original, ours)| [&original.version, &ours.version]);
    let all: std::collections::BTreeSet<&str> = all.map(String::as_str).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

/// The cases that were asked for, with their counts.
fn chosen(options: &Options) -> Result<Vec<Case>, String> {
    let known = |name: &str| CASES.iter().find(|case| case.name == name).copied();
    let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    let unknown = |name: &str| format!("there is no case {name}, but {}", names.join(", "));
    let asked = options.cases.iter().map(|name| known(name).ok_or_else(|| unknown(name)));
    let mut chosen = asked.collect::<Result<Vec<_>, _>>()?;
    let there = |case: &Case| match case.tool {
        Tool::Ior => options.ior.is_some(),
        Tool::Mdtest => options.mdtest.is_some(),
        Tool::Iozone => options.iozone.is_some(),
    };
    if let Some(case) = chosen.iter().find(|case| !there(case)) {
        return Err(format!("{}: where is the original? --{1} {1}", case.name, case.tool.name()));
    }
    if chosen.is_empty() {
        chosen = CASES.into_iter().filter(there).collect();
    }
    if chosen.is_empty() {
        return Err("there is nothing to compare with: --ior, --mdtest or --iozone".into());
    }
    for one in &options.count {
        let (name, count) = one.split_once('=').ok_or(format!("{one} is not CASE=N"))?;
        known(name).ok_or_else(|| unknown(name))?;
        let count = count.parse().map_err(|_| format!("{one}: {count} is no number"))?;
        chosen.iter_mut().filter(|case| case.name == name).for_each(|case| case.count = count);
    }
    Ok(chosen)
}

/// Runs a case in pairs, after one run of each that does not count.
fn pairs(options: &Options, place: &Place, case: &Case, ranks: u32) -> Result<Compared, String> {
    let one = |side| place.run(side, case, ranks);
    one(Side::Original)?;
    one(Side::Ours)?;
    let mut pairs = Vec::new();
    for number in 0..options.pairs {
        eprint!("\r{} {}, {ranks} ranks: pair {} ", options.name, case.name, number + 1);
        let pair = if number % 2 == 0 {
            let original = one(Side::Original)?;
            (original, one(Side::Ours)?)
        } else {
            let ours = one(Side::Ours)?;
            (one(Side::Original)?, ours)
        };
        pairs.push(pair);
    }
    eprintln!();
    let operations = case.operations(ranks, options.iterations);
    Ok(Compared { case: *case, ranks, operations, pairs })
}

impl Compared {
    fn row(&self, name: String, value: impl Fn(&Shown) -> Option<f64>) -> Row {
        let nothing = f64::NAN;
        let both = |(original, ours): &(Shown, Shown)| {
            (value(original).unwrap_or(nothing), value(ours).unwrap_or(nothing))
        };
        let pairs: Vec<_> = self.pairs.iter().map(both).collect();
        let ratio = Ratio::of(&pairs);
        Row { name, pairs, ratio, judged: true }
    }

    fn rates(&self) -> Vec<Row> {
        let unit = self.case.unit();
        let names = self.case.rates.iter().map(|name| format!("{name}, {unit}")).enumerate();
        names.map(|(at, name)| self.row(name, |shown| shown.rates.get(at).copied())).collect()
    }

    /// Of each rate what is left of it without the program's own time, and that time; nothing
    /// where it is not known.
    fn without_own(&self) -> Vec<[Row; 2]> {
        if !self.case.tool.has_dummy() {
            return Vec::new();
        }
        let of = |at: usize| {
            let rate = move |shown: &Shown| shown.rates.get(at).copied();
            let own = move |shown: &Shown| shown.own.get(at).copied();
            // Of all ranks together, which work at the same time.
            let each_us = self.case.operation * f64::from(self.ranks) * 1e6;
            let left = self.row("  less own time".to_owned(), move |shown| {
                Some(1.0 / (1.0 / rate(shown)? - 1.0 / own(shown)?))
            });
            let time =
                self.row("  own time, us".to_owned(), move |shown| Some(each_us / own(shown)?));
            [left, Row { judged: false, ..time }]
        };
        (0..self.case.rates.len()).map(of).collect()
    }

    /// Each rate with what follows from it, then the processor times.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut without = self.without_own().into_iter();
        for rate in self.rates() {
            rows.push(rate);
            rows.extend(without.next().into_iter().flatten());
        }
        rows.extend(self.cpu());
        rows
    }

    /// Processor time of an operation, over all rates of the case: of both kinds, then each.
    fn cpu(&self) -> [Row; 3] {
        let row = |name: &str, of: fn(&Cpu) -> f64| {
            self.row(name.into(), |shown| Some(of(&shown.cpu) / self.operations * 1e6))
        };
        [
            row("CPU of an operation, us", |cpu| cpu.user_s + cpu.system_s),
            row("  user, us", |cpu| cpu.user_s),
            row("  system, us", |cpu| cpu.system_s),
        ]
    }
}

impl Row {
    /// Geometric means of the original's and of our values.
    fn means(&self) -> (f64, f64) {
        let count = self.pairs.len() as f64;
        let mean = |logs: f64| (logs / count).exp();
        let of = |value: fn(&(f64, f64)) -> f64| self.pairs.iter().map(value).map(f64::ln).sum();
        (mean(of(|pair| pair.0)), mean(of(|pair| pair.1)))
    }
}

/// The processors' load over the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn keep(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn table(options: &Options, all: &[Compared], beside: &Beside) -> String {
    let Options { name, pairs, iterations, .. } = options;
    let load = &beside.load;
    let mut text = format!("{name}: {pairs} pairs, {iterations} iterations each; {load}\n");
    for (what, value) in &beside.facts {
        let _ = writeln!(text, "{what}: {value}");
    }
    let titles = ["case", "ranks", "what", "original", "ours", "ratio", "95 % interval"];
    let [case, ranks, what, original, ours, ratio, interval] = titles;
    let _ = writeln!(
        text,
        "{case:<17}{ranks:>5}  {what:<24}{original:>12}{ours:>12}{ratio:>8}  {interval}"
    );
    for one in all {
        for row in one.rows() {
            let (original, ours) = row.means();
            let places = match original {
                _ if original < 1.0 => 3,
                _ if original < 1000.0 => 2,
                _ => 0,
            };
            let _ = write!(
                text,
                "{:<17}{:>5}  {:<24}{original:>12.places$}{ours:>12.places$}",
                one.case.name, one.ranks, row.name
            );
            let _ = match row.ratio {
                None => writeln!(text, "  no ratio"),
                Some(found) => {
                    let outside = row.judged && !found.within(WITHIN);
                    let verdict = if outside { "  OUTSIDE" } else { "" };
                    let Ratio { mean, low, high } = found;
                    writeln!(text, "{mean:>8.3}  {low:.3} to {high:.3}{verdict}")
                }
            };
        }
    }
    text
}

fn document(options: &Options, all: &[Compared], beside: &Beside) -> Value {
    let row = |row: &Row| {
        let (original, ours) = row.means();
        json!({
            "what": row.name,
            "original": original,
            "ours": ours,
            "ratio": row.ratio.map(|ratio| ratio.mean),
            "low": row.ratio.map(|ratio| ratio.low),
            "high": row.ratio.map(|ratio| ratio.high),
            "pairs": row.pairs,
        })
    };
    let without = |one: &Compared, at: usize| -> Vec<Value> {
        let names = one.case.rates.iter();
        let rows = names.zip(one.without_own()).filter_map(|(name, rows)| {
            let mut value = row(rows.get(at)?);
            value.as_object_mut()?.insert("of".to_owned(), json!(name));
            Some(value)
        });
        rows.collect()
    };
    let case = |one: &Compared| {
        json!({
            "case": one.case.name,
            "options": (one.case.arguments(Target::Folder, options.iterations, one.ranks, "DIR"))
                .join(" "),
            "ranks": one.ranks,
            "rates": one.rates().iter().map(row).collect::<Vec<_>>(),
            "less_own_time": without(one, 0),
            "own_time": without(one, 1),
            "cpu": one.cpu().iter().map(row).collect::<Vec<_>>(),
        })
    };
    json!({
        "name": options.name,
        "pairs": options.pairs,
        "iterations": options.iterations,
        "launcher": options.launcher,
        "load": beside.load,
        "facts": beside.facts.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "cases": all.iter().map(case).collect::<Vec<_>>(),
    })
}

fn csv(options: &Options, all: &[Compared]) -> String {
    let mut text = String::from("name,case,ranks,what,pair,original,ours\n");
    for one in all {
        let mut rate = String::new();
        for row in one.rows() {
            // Rows that follow from a rate are named after it.
            let follows = row.name.starts_with(' ') && row.name.contains("own time");
            if !follows {
                rate.clone_from(&row.name);
            }
            let what = if follows { format!("{rate}{}", row.name) } else { row.name.clone() };
            for (number, (original, ours)) in (1..).zip(&row.pairs) {
                let (case, ranks) = (one.case.name, one.ranks);
                let name = &options.name;
                let _ =
                    writeln!(text, "{name},{case},{ranks},\"{what}\",{number},{original},{ours}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interval_outside_is_marked_and_times_are_told_apart() {
        let shown = |rate: f64, user_s, system_s| Shown {
            rates: vec![rate, 100.0],
            own: vec![rate * 4.0, 400.0],
            version: format!("v{rate}"),
            cpu: Cpu { user_s, system_s },
        };
        let case = CASES.iter().find(|case| case.rates.len() == 2).copied().unwrap();
        let pair = (shown(100.0, 1.0, 4.0), shown(130.0, 1.5, 4.0));
        let pairs = vec![pair; PAIRS_MIN];
        let compared = Compared { case, ranks: 1, operations: 1e6, pairs };
        let options =
            Options::parse_from(["originals", "--dir", ".", "--ours", "x", "--name", "y"]);
        let all = [compared];
        let facts = vec![("commit", "abc".to_owned()), ("programs", versions(&all))];
        let beside = Beside { facts, load: "alone".into() };
        let text = table(&options, &all, &beside);
        assert!(text.contains("\ncommit: abc\nprograms: v100, v130\n"), "{text}");
        let rows: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(rows.len(), 9, "{text}");
        let outside: Vec<bool> = rows.iter().map(|row| row.ends_with("  OUTSIDE")).collect();
        let wanted = [true, true, false, false, false, false, false, true, false];
        assert_eq!(outside, wanted, "the programs' own time is not judged: {text}");
        // A quarter of the time is the programs' own.
        assert!(rows[1].contains("  less own time") && rows[1].contains(" 133.33 "), "{text}");
        assert!(rows[2].contains("  own time, us") && rows[2].contains(" 0.769 "), "{text}");
        assert!(
            rows[6].contains("CPU of an operation, us") && rows[6].contains(" 5.50 "),
            "{text}"
        );
        assert!(rows[7].contains("  user, us") && rows[7].contains(" 1.50 "), "{text}");
        assert!(rows[8].contains("  system, us") && rows[8].contains(" 4.00 "), "{text}");
        let json = document(&options, &all, &beside);
        assert_eq!(json["facts"]["commit"], "abc");
        let case = &json["cases"][0];
        assert_eq!(case["less_own_time"].as_array().unwrap().len(), 2, "{json}");
        assert_eq!(case["own_time"][0]["of"], case_names(&all[0])[0]);
        let csv = csv(&options, &all);
        assert!(csv.contains(", MiB/s  less own time\",1,133.3"), "{csv}");
    }

    fn case_names(one: &Compared) -> &'static [&'static str] {
        one.case.rates
    }
}
