//! The IO500 workload: ior and mdtest with fixed parameters and a parallel find, in a fixed
//! order, and one score of all.
//!
//! | file | is |
//! |---|---|
//! | `config` | the configuration file: read, printed, hashed |
//! | `hash` | IO500's hashes |
//! | `phase` | the phases: order, what each is of, and the command of each |
//! | `find` | the parallel find |
//! | `run` | a run: phases one after the other, with caches dropped and pauses between |
//! | `place` | directories of a run, broken runs, cleaning up |
//! | `results` | result.txt, result_summary.txt and JSON; validity and score |
//! | `record` | a result.txt read again: for going on and for verifying |
//!
//! What a phase does is what a command line of ior or mdtest says, and that line stands in
//! result.txt: the engines are called with the options that it is understood as.

mod config;
mod find;
mod hash;
mod phase;
mod place;
mod record;
mod results;
mod run;

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};

use self::config::Config;
use self::phase::Phase;
use super::{Engine, Setting};
use crate::comm::Communicator;
use crate::error::{EXIT_FAILED, Error, Result};

/// Which phases a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Those that the list scores.
    Standard,
    /// With md-workbench, which is not here.
    Extended,
}

/// The IO500 benchmark: ior, mdtest and find with fixed parameters, and one score.
#[derive(Debug, Clone, Args)]
pub struct Io500 {
    /// The configuration, as IO500's.
    #[arg(value_name = "CONFIG.ini")]
    config: Option<PathBuf>,
    /// Print a configuration with all options.
    #[arg(short = 'l', long)]
    list: bool,
    /// Print a configuration of the phases that a valid run needs.
    #[arg(long, visible_alias = "lm")]
    list_mandatory: bool,
    /// Print the hash of the configuration.
    #[arg(long)]
    config_hash: bool,
    /// Tell whether a result.txt is of this configuration and unchanged.
    #[arg(long, value_name = "RESULT.txt")]
    verify: Option<PathBuf>,
    /// Remove what a broken run has left: of --timestamp, or the last.
    #[arg(long, conflicts_with_all = ["resume", "dry_run"])]
    cleanup: bool,
    /// Go on with a broken run: of --timestamp, or the last. The result is INVALID.
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Leave the files, for phases of later runs (--files-of).
    #[arg(long, conflicts_with_all = ["cleanup", "dry_run"])]
    keep: bool,
    /// Use the files that the run of this name has left (--keep).
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cleanup", "resume"])]
    files_of: Option<String>,
    /// Only these phases, as if the others had run = FALSE.
    #[arg(long = "phase", value_name = "NAME", value_delimiter = ',')]
    phases: Vec<String>,
    /// Show what would be run.
    #[arg(long)]
    dry_run: bool,
    /// Which phases there are.
    #[arg(long, default_value = "standard")]
    mode: Mode,
    /// Name of this run's directories [default: the time].
    #[arg(long, value_name = "NAME")]
    timestamp: Option<String>,
    /// More in result.txt than the configuration says.
    #[arg(short = 'v', action = ArgAction::Count)]
    more: u8,
    /// How much result.txt says, instead of what the configuration says.
    #[arg(long, value_name = "LEVEL")]
    verbose: Option<u64>,
}

impl Io500 {
    /// Answers what needs no run: the exit code, if it was asked for such.
    pub fn answer(&self) -> Option<Result<u8>> {
        if self.list || self.list_mandatory {
            println!("# Supported and current values of the ini file:");
            print!("{}", Config::standard().print(true, self.list_mandatory));
            return Some(Ok(0));
        }
        if !(self.config_hash || self.verify.is_some()) {
            return None;
        }
        Some(self.read().map(|(config, _)| match &self.verify {
            Some(result) => self.verified(&config, result),
            None => {
                println!("{:<15} = {:X}", "config-hash", config.hash());
                0
            }
        }))
    }

    fn verified(&self, config: &Config, result: &Path) -> u8 {
        match record::verify(config, result) {
            Ok(said) => {
                println!("{said}");
                0
            }
            Err(error) => {
                eprintln!("sateen-bench: {error}");
                EXIT_FAILED
            }
        }
    }

    fn read(&self) -> Result<(Config, String)> {
        let path = self.config.as_ref();
        let path = path.ok_or(Error::usage("a CONFIG.ini is needed; --list prints one"))?;
        Config::read(path)
    }

    /// Whether a phase was chosen.
    fn wants(&self, phase: Phase) -> bool {
        self.phases.is_empty() || self.phases.iter().any(|name| name == phase.name())
    }

    /// Refuses what makes no sense for so many ranks.
    fn check(&self, config: &Config, ranks: usize) -> Result<()> {
        if self.mode == Mode::Extended {
            return Err(Error::usage("--mode=extended: md-workbench is not here"));
        }
        if let Some(name) = self.phases.iter().find(|name| Phase::named(name).is_none()) {
            let all = Phase::ALL.map(Phase::name).join(", ");
            return Err(Error::usage(format!("--phase {name}: there are {all}")));
        }
        if config.flag("global", "io-buffers-on-gpu") {
            return Err(Error::usage("io-buffers-on-gpu: buffers are in memory here"));
        }
        if config.number("debug", "stonewall-time") == 0 {
            return Err(Error::usage("stonewall-time: at least a second is needed"));
        }
        let stamp = self.timestamp.as_deref().unwrap_or_default();
        let other = self.files_of.as_deref().unwrap_or("other");
        for (option, name) in [("--timestamp", stamp), ("--files-of", other)] {
            if name.contains('/') || matches!(name, "." | "..") {
                return Err(Error::usage(format!("{option}: it is a name, not a path")));
            }
        }
        if self.files_of.as_deref() == Some(stamp) {
            return Err(Error::usage("--files-of: a run's results would be written over"));
        }
        let plan = place::Plan::of(self, config.clone(), String::new(), stamp);
        if plan.resdir.to_string_lossy().contains(',') {
            return Err(Error::usage("resultdir: ior's -O cannot take a path with a comma"));
        }
        if self.files_of.is_some() && plan.resdir == plan.files_dir {
            return Err(Error::usage(
                "--files-of: a run's results would be written over (timestamp-resultdir = FALSE)",
            ));
        }
        if self.cleanup {
            return Ok(());
        }
        Phase::ALL.into_iter().try_for_each(|phase| plan.check(phase, ranks))?;
        plan.check_script()?;
        // What a broken run has done needs not be done again.
        if self.resume { Ok(()) } else { plan.check_files(ranks) }
    }
}

impl Engine for Io500 {
    fn validate(&self, ranks: usize) -> Result<()> {
        self.check(&self.read()?.0, ranks)
    }

    fn needs_mpi(&self) -> bool {
        let Ok((config, _)) = self.read() else { return false };
        let plan = place::Plan::of(self, config, String::new(), "");
        Phase::ALL.into_iter().any(|phase| plan.runs(phase) && plan.needs_mpi(phase))
    }

    fn run(&self, comm: &dyn Communicator, setting: &Setting) -> Result<u8> {
        run::run(self, comm, setting)
    }
}
