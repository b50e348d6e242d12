//! What a run says: result.txt with all details, result_summary.txt and standard output with a
//! line for each phase, in the original's form; or JSON. Only the root has it.
//!
//! A phase is invalid for a reason, which is said where it is found; the run is invalid with
//! its first invalid phase. The score is the geometric mean of the two groups' geometric means;
//! phases without a score are left out of it, as in the original, and make it invalid.

use std::fs::{self, File};
use std::io::Write;

use serde::Serialize;

use super::hash;
use super::phase::{Group, Phase};
use super::place::Plan;
use super::record;
use crate::engine::shown::{Mark, document};
use crate::engine::{Beside, Setting};
use crate::error::{Error, Result};
use crate::guard::Spread;
use crate::progress::Series;
use crate::stats::Quantiles;
use crate::when;

/// The version, by which results are told apart.
pub(super) const VERSION: &str = concat!("sateen-bench-", env!("CARGO_PKG_VERSION"));

/// What stands beside a score, in its unit.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
struct Shown {
    #[serde(flatten)]
    spread: Option<Ranks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Quantiles>,
}

/// The ranks of a phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Ranks {
    sum_of_ranks: f64,
    start_skew: f64,
    end_skew: f64,
    ranks: Vec<f64>,
}

impl From<Beside> for Shown {
    fn from(beside: Beside) -> Self {
        let Beside { spread, series, latency } = beside;
        let ranks = |spread: Spread| Ranks {
            sum_of_ranks: spread.sum_of_ranks,
            start_skew: spread.start_skew_s,
            end_skew: spread.end_skew_s,
            ranks: spread.ranks,
        };
        Self {
            spread: Some(spread).filter(|spread| !spread.ranks.is_empty()).map(ranks),
            series: Some(series).filter(|series| !series.rates.is_empty()),
            latency,
        }
    }
}

/// A phase that was run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Scored {
    operation: &'static str,
    score: f64,
    unit: &'static str,
    seconds: f64,
    scored: bool,
    valid: bool,
    /// Whether it was taken over from a broken run.
    resumed: bool,
    #[serde(flatten)]
    shown: Shown,
}

/// The scores of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Score {
    bandwidth_gib_s: f64,
    kiops: f64,
    total: f64,
}

impl Score {
    /// Of these phases.
    fn of(phases: &[Scored]) -> Self {
        let mean = |group: Group| {
            let of = |one: &&Scored| Phase::named(one.operation).map(Phase::group) == Some(group);
            let scores: Vec<f64> = phases
                .iter()
                .filter(of)
                .map(|one| one.score)
                .filter(|score| *score > 0.0)
                .collect();
            match scores.len() {
                0 => 0.0,
                count => scores.iter().product::<f64>().powf(1.0 / count as f64),
            }
        };
        let (bandwidth_gib_s, kiops) = (mean(Group::Bandwidth), mean(Group::Metadata));
        Self { bandwidth_gib_s, kiops, total: (bandwidth_gib_s * kiops).sqrt() }
    }
}

/// The report of a run.
pub(super) struct Results<'a> {
    plan: &'a Plan,
    setting: &'a Setting<'a>,
    ranks: usize,
    nodes: usize,
    began: u64,
    details: File,
    summary: File,
    phases: Vec<Scored>,
    reasons: Vec<String>,
    remarks: Vec<String>,
    /// Whether the phase that is run is valid so far.
    phase_valid: bool,
    /// What stands beside its score.
    shown: Shown,
    valid: bool,
}

fn create(plan: &Plan, name: &str, text: &str) -> Result<File> {
    let path = plan.resdir.join(name);
    let made =
        File::create(&path).and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file));
    made.map_err(|error| Error::io("write", &path, error))
}

impl<'a> Results<'a> {
    /// Begins it: anew, or after the phases that a broken run has done.
    pub(super) fn begin(
        plan: &'a Plan,
        setting: &'a Setting,
        (ranks, nodes): (usize, usize),
        done: &[Phase],
    ) -> Result<Self> {
        let path = |name: &str| plan.resdir.join(name);
        // What cannot be read now is not to be written over.
        let read = |name: &str| {
            let text = fs::read_to_string(path(name));
            text.map_err(|error| Error::io("read", &path(name), error))
        };
        let (before, summary) = match done {
            [] => (String::new(), String::new()),
            _ => (read("result.txt")?, read("result_summary.txt")?),
        };
        let parts = record::parse(&before);
        let open =
            parts.iter().skip(1).find(|part| !done.iter().any(|one| one.name() == part.name));
        let kept = before.get(..open.map_or(before.len(), |part| part.from)).unwrap_or_default();
        let lines = summary.split_inclusive('\n').filter(|line| {
            let name = line.get(8..).unwrap_or_default().split_whitespace().next();
            line.starts_with("IO500") || done.iter().any(|one| Some(one.name()) == name)
        });
        let lines: Vec<&str> = lines.collect();
        let mut results = Self {
            details: create(plan, "result.txt", kept)?,
            summary: create(plan, "result_summary.txt", &lines.concat())?,
            plan,
            setting,
            ranks,
            nodes,
            began: when::unix_seconds(),
            phases: Vec::new(),
            reasons: Vec::new(),
            remarks: Vec::new(),
            phase_valid: true,
            shown: Shown::default(),
            valid: true,
        };
        for phase in done {
            let part = parts.iter().find(|part| part.name == phase.name());
            let line = lines.iter().find(|line| line.contains(&format!(" {} ", phase.name())));
            let seconds = line.and_then(|line| line.split(": time ").nth(1)?.split(' ').next());
            results.phases.push(Scored {
                operation: phase.name(),
                score: part.and_then(record::Part::score).unwrap_or(0.0),
                unit: phase.unit(),
                seconds: seconds.and_then(|text| text.parse().ok()).unwrap_or(0.0),
                scored: phase.group() != Group::None,
                valid: part.is_none_or(|part| !part.invalid),
                resumed: true,
                // Nobody has kept it.
                shown: Shown::default(),
            });
        }
        if done.is_empty() {
            results.head()?;
        } else {
            results.say(&lines.concat());
            results.invalid("the run broke and was gone on with")?;
        }
        results.valid = results.phase_valid && results.phases.iter().all(|one| one.valid);
        Ok(results)
    }

    /// The first section, the configuration, and what makes all of it invalid.
    fn head(&mut self) -> Result<()> {
        let plan = self.plan;
        create(plan, "config-orig.ini", &plan.original)?;
        create(plan, "config.ini", &plan.config.print(false, false))?;
        self.detail("[run]\n")?;
        self.pair("procs", &self.ranks.to_string())?;
        self.pair("nodes", &self.nodes.to_string())?;
        self.pair("version", VERSION)?;
        self.pair("config-hash", &format!("{:X}", plan.config.hash()))?;
        self.pair("result-dir", &plan.resdir.display().to_string())?;
        self.pair("mode", "standard")?;
        if let Some(name) = &plan.files_of {
            self.pair("files-of", name)?;
        }
        if plan.verbosity > 0 {
            self.detail(&format!("; START {}\n", when::iso(self.began)))?;
        }
        self.line(&format!("IO500 version {VERSION} (standard)\n"))?;
        if plan.dry {
            self.invalid("dry run: nothing is measured")?;
        }
        if plan.config.text("debug", "pause-dir").is_some() {
            self.invalid("pause-dir: the run pauses between its phases")?;
        }
        if plan.stonewall != plan.wanted {
            let (found, wanted) = (plan.stonewall, plan.wanted);
            self.invalid(&format!("stonewall-time is {found} s, the rules want {wanted} s"))?;
        }
        if plan.config.number("mdtest-hard", "files-per-dir") > 0 {
            self.invalid("files-per-dir is set")?;
        }
        self.detail("\n")
    }

    /// Adds to result.txt.
    fn detail(&mut self, text: &str) -> Result<()> {
        let said = self.details.write_all(text.as_bytes());
        said.map_err(|error| Error::io("write", &self.plan.resdir.join("result.txt"), error))
    }

    /// Adds to the summary.
    fn line(&mut self, text: &str) -> Result<()> {
        self.say(text);
        let said = self.summary.write_all(text.as_bytes());
        let path = || self.plan.resdir.join("result_summary.txt");
        said.map_err(|error| Error::io("write", &path(), error))
    }

    /// Says something that stands in files, too.
    fn say(&self, text: &str) {
        if !self.setting.json {
            // The files have it, whoever listens here.
            let _ = std::io::stdout().write_all(text.as_bytes());
        }
    }

    /// A name with its value.
    pub(super) fn pair(&mut self, name: &str, value: &str) -> Result<()> {
        self.detail(&format!("{name:<15} = {value}\n"))
    }

    /// A remark.
    pub(super) fn remark(&mut self, text: &str) -> Result<()> {
        self.remarks.push(text.to_owned());
        self.detail(&format!("; {text}\n"))
    }

    /// What stands beside the score of the phase that is run, in its unit.
    pub(super) fn beside(&mut self, beside: Beside) {
        self.shown = beside.into();
    }

    /// Why the phase that is run, or before the first one the run, is invalid.
    pub(super) fn invalid(&mut self, why: &str) -> Result<()> {
        (self.phase_valid, self.valid) = (false, false);
        self.detail(&format!("; ERROR INVALID {why}\n"))?;
        self.say(&format!("ERROR INVALID {why}\n"));
        self.reasons.push(why.to_owned());
        Ok(())
    }

    /// A phase begins.
    pub(super) fn phase(&mut self, phase: Phase) -> Result<()> {
        self.phase_valid = true;
        self.detail(&format!("\n[{}]\n", phase.name()))?;
        if self.plan.verbosity > 0 {
            self.pair("t_start", &when::iso(when::unix_seconds()))?;
        }
        Ok(())
    }

    /// A phase ends.
    /// By the rules it lasts as long as something is written, by the clock of ior or mdtest:
    /// `wrote_s`. `seconds` are those of the whole phase.
    pub(super) fn scored(
        &mut self,
        phase: Phase,
        score: f64,
        seconds: f64,
        wrote_s: Option<f64>,
    ) -> Result<()> {
        let plan = self.plan;
        let wrote = wrote_s.unwrap_or(seconds);
        let dummy = phase == Phase::Timestamp;
        let run = plan.runs(phase);
        if !plan.dry {
            if score == 0.0 && !dummy {
                let why = if run { "the score is 0" } else { "the phase was not to be run" };
                self.invalid(why)?;
            } else if phase.writes() && wrote < plan.stonewall as f64 {
                self.invalid(&format!("it wrote for {wrote:.3} s, less than the stonewall"))?;
            }
        }
        if phase.writes() && wrote < plan.wanted as f64 {
            let wanted = plan.wanted;
            self.invalid(&format!("it wrote for {wrote:.3} s, less than {wanted} s"))?;
        }
        if !dummy {
            self.pair("score", &format!("{score:.6}"))?;
        }
        let (name, unit) = (phase.name(), phase.unit());
        let valid = self.phase_valid;
        let mark = if phase.group() == Group::None { "[      ]" } else { "[RESULT]" };
        let invalid = if valid { "" } else { " [INVALID]" };
        let value = format!("{score:.6}");
        self.line(&format!(
            "{mark} {name:>20} {value:>15} {unit} : time {seconds:.3} seconds{invalid}\n"
        ))?;
        let scored = phase.group() != Group::None;
        self.phases.push(Scored {
            operation: name,
            score,
            unit,
            seconds,
            scored,
            valid,
            resumed: false,
            shown: std::mem::take(&mut self.shown),
        });
        if plan.verbosity > 0 {
            self.pair("t_delta", &format!("{seconds:.4}"))?;
            self.pair("t_end", &when::iso(when::unix_seconds()))?;
        }
        Ok(())
    }

    /// The run ends: its score.
    pub(super) fn finish(mut self) -> Result<()> {
        let score = Score::of(&self.phases);
        let invalid = if self.valid { "" } else { " [INVALID]" };
        self.detail("\n[SCORE]\n")?;
        self.pair("MD", &format!("{:.6}", score.kiops))?;
        self.pair("BW", &format!("{:.6}", score.bandwidth_gib_s))?;
        self.pair("SCORE", &format!("{:.6}{invalid}", score.total))?;
        let mut all = hash::pair("version", VERSION);
        for one in self.phases.iter().filter(|one| one.scored) {
            all ^= hash::number(one.operation, one.score);
        }
        all ^= hash::number("MD", score.kiops) ^ hash::number("BW", score.bandwidth_gib_s);
        all ^= hash::number("SCORE", score.total);
        if !self.valid {
            all ^= hash::pair("valid", "NO");
        }
        self.pair("hash", &format!("{all:X}"))?;
        self.line(&format!(
            "[SCORE ] Bandwidth {:.6} GiB/s : IOPS {:.6} kiops : TOTAL {:.6}{invalid}\n",
            score.bandwidth_gib_s, score.kiops, score.total
        ))?;
        let dir = self.plan.resdir.display().to_string();
        self.say(&format!("\nThe result files are stored in the directory: {dir}\n"));
        if self.plan.verbosity > 0 {
            self.detail(&format!("; END {}\n", when::iso(when::unix_seconds())))?;
        }
        let json = self.json(score, dir)?;
        create(self.plan, "result.json", &json)?;
        if self.setting.json { self.setting.print(&json) } else { Ok(()) }
    }

    fn json(&self, score: Score, result_dir: String) -> Result<String> {
        let whole = Whole {
            mark: Mark::of("io500"),
            version: VERSION,
            began: when::iso(self.began),
            command_line: self.setting.command_line.join(" "),
            result_dir,
            path: self.plan.datadir.display().to_string(),
            tasks: self.ranks,
            nodes: self.nodes,
            mode: "standard",
            stonewall_seconds: self.plan.stonewall,
            valid: self.valid,
            invalid_because: &self.reasons,
            remarks: &self.remarks,
            score,
            summary: &self.phases,
            finished: when::iso(when::unix_seconds()),
        };
        document(&whole)
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(rename = "sateenBench")]
    mark: Mark,
    version: &'a str,
    began: String,
    command_line: String,
    result_dir: String,
    path: String,
    tasks: usize,
    nodes: usize,
    mode: &'a str,
    stonewall_seconds: u64,
    valid: bool,
    invalid_because: &'a [String],
    remarks: &'a [String],
    score: Score,
    summary: &'a [Scored],
    finished: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;
    use crate::engine::io500::config::Config;
    use crate::guard;
    use crate::progress::Progress;

    /// A run as if its phases had written so long and scored so much, a second after it began;
    /// `--verify` says, and its summary.
    fn played(config: &str, phase: impl Fn(Phase) -> (f64, f64)) -> (Result<String>, String) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("sateen-io500-{}-{number}", std::process::id());
        let resdir = std::env::temp_dir().join(name);
        fs::create_dir(&resdir).unwrap();
        let mut plan = Plan::example(Config::parse(config).unwrap());
        plan.resdir.clone_from(&resdir);
        let options = guard::Options::default();
        let found = Progress::around(&Solo::new().unwrap(), true, |progress| {
            let out = resdir.join("out");
            let out = Some(out.as_path());
            let setting =
                Setting { command_line: Vec::new(), progress, json: true, out, guard: &options };
            let mut results = Results::begin(&plan, &setting, (4, 1), &[]).unwrap();
            for one in Phase::ALL {
                let (score, seconds) = phase(one);
                results.phase(one).unwrap();
                results.scored(one, score, seconds + 1.0, Some(seconds)).unwrap();
            }
            results.finish().unwrap();
            record::verify(&plan.config, &resdir.join("result.txt"))
        });
        let summary = fs::read_to_string(resdir.join("result_summary.txt")).unwrap();
        fs::remove_dir_all(&resdir).unwrap();
        (found, summary)
    }

    /// A phase as the rules want it.
    fn good(phase: Phase) -> (f64, f64) {
        (if phase == Phase::Timestamp { 0.0 } else { 2.5 }, 300.5)
    }

    #[test]
    fn a_run_as_the_rules_want_it_is_valid() {
        let (verified, summary) = played("", good);
        assert_eq!(verified.unwrap(), "[OK]");
        assert!(!summary.contains("INVALID"), "{summary}");
        let lines: Vec<&str> = summary.lines().collect();
        let wanted = "[RESULT]       ior-easy-write        2.500000 GiB/s : time 301.500 seconds";
        assert_eq!(lines[1], wanted);
        let wanted = "[      ]            timestamp        0.000000 kIOPS : time 301.500 seconds";
        assert_eq!(lines[3], wanted);
        let wanted = "[SCORE ] Bandwidth 2.500000 GiB/s : IOPS 2.500000 kiops : TOTAL 2.500000";
        assert_eq!(*lines.last().unwrap(), wanted);
        // Reading may be fast.
        let fast = |phase: Phase| (good(phase).0, if phase.writes() { 300.5 } else { 0.1 });
        assert!(played("", fast).0.is_ok());
    }

    #[test]
    fn what_the_rules_do_not_want_is_invalid() {
        let short = |one| move |phase| (good(phase).0, if phase == one { 299.9 } else { 301.0 });
        for one in Phase::ALL.into_iter().filter(|phase| phase.writes()) {
            let (verified, summary) = played("", short(one));
            assert!(verified.unwrap_err().to_string().contains("invalid run"));
            let marked: Vec<&str> =
                summary.lines().filter(|line| line.ends_with("[INVALID]")).collect();
            assert_eq!(marked.len(), 2, "the phase and the score: {summary}");
            assert!(marked[0].contains(one.name()));
        }
        let none = |phase: Phase| if phase == Phase::Find { (0.0, 1.0) } else { good(phase) };
        assert!(
            played("", none)
                .1
                .contains("find        0.000000 kIOPS : time 2.000 seconds [INVALID]")
        );
        for config in [
            "[debug]\nstonewall-time = 400\n",
            "[debug]\npause-dir = x\n",
            "[mdtest-hard]\nfiles-per-dir = 9\n",
        ] {
            let long = |phase| (good(phase).0, 500.0);
            let (verified, summary) = played(config, long);
            assert!(verified.is_err() && summary.ends_with(" [INVALID]\n"), "{config}: {summary}");
        }
    }

    #[test]
    fn the_score_is_that_of_published_runs() {
        // Submission 703 of the list of 2024.
        let scores = [
            (Phase::IorEasyWrite, 90.518305),
            (Phase::MdtestEasyWrite, 1283.701416),
            (Phase::Timestamp, 0.0),
            (Phase::IorHardWrite, 48.087384),
            (Phase::MdtestHardWrite, 450.497469),
            (Phase::Find, 2881.264049),
            (Phase::IorEasyRead, 71.368873),
            (Phase::MdtestEasyStat, 3894.997663),
            (Phase::IorHardRead, 57.505494),
            (Phase::MdtestHardStat, 3787.388936),
            (Phase::MdtestEasyDelete, 736.179489),
            (Phase::MdtestHardRead, 3190.894658),
            (Phase::MdtestHardDelete, 822.070343),
            (Phase::IorRnd4kEasyRead, 3.0),
        ];
        let phases = scores.map(|(phase, score)| Scored {
            operation: phase.name(),
            score,
            unit: phase.unit(),
            seconds: 300.0,
            scored: phase.group() != Group::None,
            valid: true,
            resumed: false,
            shown: Shown::default(),
        });
        let score = Score::of(&phases);
        assert!((score.bandwidth_gib_s - 65.012435).abs() < 1e-5, "{score:?}");
        assert!((score.kiops - 1620.126639).abs() < 1e-4, "{score:?}");
        assert!((score.total - 324.543338).abs() < 1e-5, "{score:?}");
        assert_eq!(Score::of(&[]).total, 0.0);
    }
}
