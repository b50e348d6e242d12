//! The commands, and who runs them: this process alone, copies of it, or ranks of MPI.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, Parser, Subcommand};

use crate::comm::{Communicator, Local, RANKS_MAX, Solo, launch};
use crate::engine::io500::Io500;
use crate::engine::ior::Ior;
use crate::engine::iozone::Iozone;
use crate::engine::mdtest::Mdtest;
use crate::engine::{Engine, NEEDS_MPI, Setting};
use crate::error::{EXIT_FAILED, EXIT_USAGE, Error, Result};
use crate::memblock::Memblock;
use crate::progress::Progress;
use crate::{crash, guard, missed, rates};

/// Variables that tell a process that MPI has started it.
const MPI_VARIABLES: [&str; 5] =
    ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"];

/// Measures file systems by the methods that the field compares them with.
#[derive(Debug, Parser)]
#[command(name = "sateen-bench", version, about, disable_help_subcommand = true)]
pub struct Program {
    /// The arguments.
    #[command(flatten)]
    pub bench: Bench,
}

/// Measures file systems by the methods that the field compares them with.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub struct Bench {
    /// Ranks: so many copies of the program work together, on this host (also -np N).
    #[arg(long = "np", value_name = "N", global = true)]
    pub np: Option<usize>,
    /// Show nothing while it runs.
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Report as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What is done about pitfalls.
    #[command(flatten)]
    pub guard: guard::Options,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bandwidth of reading and writing in parallel, with IOR's options and output.
    Ior(Ior),
    /// Rates of directories and files, with mdtest's options and output.
    Mdtest(Mdtest),
    /// Throughput of access patterns, with IOzone's options and output.
    Iozone(Iozone),
    /// The IO500 benchmark: ior, mdtest and find in its order, with its files and its score.
    Io500(Io500),
    /// Takes most of this host's memory and locks it, so that caches cannot flatter a result.
    #[command(args = of_others_and_json())]
    Memblock(Memblock),
    /// What a described system will do: bandwidth and metadata rates, and what limits them.
    #[command(args = of_others())]
    Predict(sateen_model::command::Predict),
    /// How large a test of a system must be: nodes, threads, bytes and hours.
    #[command(args = of_others())]
    Plan(sateen_model::command::Plan),
    /// One HTML file with tables and figures from one or more runs; CSV and JSON.
    #[command(args = of_others())]
    Report(sateen_report::command::Report),
    /// Prints a table of rates, a column for each folder.
    #[command(args = of_others_and_json())]
    Rates {
        /// Files to create, stat and remove.
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        files: u32,
        /// Size of the file that is written and read, in MiB.
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
        mib: u32,
        /// Folders with the titles of their columns.
        #[arg(required = true, value_name = "TITLE=DIR", value_parser = rates::column)]
        columns: Vec<rates::Column>,
    },
    /// Writes, syncs and renames files until the file system fails, and notes elsewhere what
    /// was synced.
    #[command(args = of_others_and_json())]
    CrashWrite {
        /// Where to write.
        dir: PathBuf,
        /// Where to note what is safe; on another file system.
        notes: PathBuf,
    },
    /// Checks that everything noted is there, byte for byte.
    #[command(args = of_others_and_json())]
    CrashCheck {
        /// Where it was written.
        dir: PathBuf,
        /// Where it was noted.
        notes: PathBuf,
    },
}

/// Options of workloads as all other commands have them: known, so that they are refused with a
/// reason (`senseless`), and not shown.
fn of_others() -> Vec<Arg> {
    let np = Arg::new("np").long("np").value_name("N").value_parser(clap::value_parser!(usize));
    let guard = guard::Options::augment_args(clap::Command::new("guard"));
    let all = std::iter::once(np).chain(guard.get_arguments().cloned());
    all.map(|one| one.hide(true)).collect()
}

/// The same with `--json`, for those that have no report.
fn of_others_and_json() -> Vec<Arg> {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).hide(true);
    of_others().into_iter().chain([json]).collect()
}

/// Arguments as clap can read them: `-np`, which is everywhere in the field, IOzone's `-+n`
/// and IO500's `-lm` are no forms that it knows. What follows `--` is another program's.
pub fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut ours = true;
    let known = |one: OsString| match one.to_str() {
        Some("-np") => "--np".into(),
        Some("-lm") => "--list-mandatory".into(),
        Some(text) if text.starts_with("-+") => format!("-{text}").into(),
        _ => one,
    };
    all.map(|one| {
        ours = ours && one != "--";
        if ours { known(one) } else { one }
    })
    .collect()
}

/// What arguments say; the program ends if they make no sense, or if only help was wanted.
pub fn parse(all: impl Iterator<Item = OsString>) -> Program {
    let args = arguments(all);
    Program::try_parse_from(&args).unwrap_or_else(|error| {
        let Some(said) = missed::said(&error, &args) else { error.exit() };
        eprintln!("sateen-bench: {said}");
        std::process::exit(EXIT_USAGE.into())
    })
}

/// Whether MPI has started this process.
pub fn started_by_mpi() -> bool {
    MPI_VARIABLES.iter().any(|name| std::env::var_os(name).is_some())
}

/// How many copies of this process Slurm has started that know nothing of each other.
fn copies_of_srun() -> Option<u32> {
    let tasks = std::env::var("SLURM_STEP_NUM_TASKS").ok()?.trim().parse().ok()?;
    (tasks > 1 && !started_by_mpi()).then_some(tasks)
}

/// Which option for workloads was given to a command that is none, or asks for JSON of what has
/// none.
fn senseless(bench: &Bench) -> Option<&'static str> {
    let (workload, reports) = match &bench.command {
        Command::Ior(_) | Command::Mdtest(_) | Command::Iozone(_) | Command::Io500(_) => {
            (true, true)
        }
        Command::Predict(_) | Command::Plan(_) | Command::Report(_) => (false, true),
        Command::Memblock(_)
        | Command::Rates { .. }
        | Command::CrashWrite { .. }
        | Command::CrashCheck { .. } => (false, false),
    };
    let found = [
        (!workload && bench.np.is_some(), "-np: this command works alone; a workload has ranks"),
        (!workload && bench.guard.drop_caches, "--drop-caches: this command measures nothing"),
        (!workload && bench.guard.node_rate.is_some(), "--node-rate: nothing is read here"),
        (!workload && bench.guard.no_self_check, "--no-self-check: no nodes are checked here"),
        (!reports && bench.json, "--json: this command has no report"),
    ];
    found.into_iter().find_map(|(given, why)| given.then_some(why))
}

/// Runs a command; the exit code. `world` are the ranks of MPI, if the program has it and was
/// started by it.
pub fn run(bench: &Bench, world: Option<&dyn Communicator>) -> u8 {
    if let Some(why) = senseless(bench) {
        return code(Err(Error::usage(why)));
    }
    let done = match &bench.command {
        Command::Ior(ior) => return work(bench, ior, world),
        Command::Mdtest(mdtest) => return work(bench, mdtest, world),
        Command::Iozone(iozone) => return work(bench, iozone, world),
        Command::Io500(io500) => {
            let answer = io500.answer();
            return answer.map_or_else(|| work(bench, io500, world), code);
        }
        Command::Memblock(memblock) => return hold(bench, memblock),
        Command::Predict(predict) => return told(predict.run(&mut std::io::stdout().lock())),
        Command::Report(report) => return reported(report, bench.json),
        Command::Plan(plan) => return told(plan.run(&mut std::io::stdout().lock())),
        Command::Rates { files, mib, columns } => rates::run(*files, *mib, columns),
        Command::CrashWrite { dir, notes } => crash::write(dir, notes),
        Command::CrashCheck { dir, notes } => crash::check(dir, notes),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sateen-bench: {error:#}");
            EXIT_FAILED
        }
    }
}

/// What a command that measures nothing ends with: it fails only if it was asked nonsense, or
/// nobody reads what it says.
fn told(done: anyhow::Result<()>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sateen-bench: {error:#}");
            EXIT_USAGE
        }
    }
}

/// Blocks memory.
fn hold(bench: &Bench, memblock: &Memblock) -> u8 {
    memblock.run(bench.quiet).unwrap_or_else(|error| {
        match &error {
            Error::Stopped => eprintln!("sateen-bench: interrupted; all was let go"),
            _ => eprintln!("sateen-bench: {error}"),
        }
        error.exit_code()
    })
}

/// What `report` ends with.
fn reported(report: &sateen_report::command::Report, json: bool) -> u8 {
    match report.run(json, &mut std::io::stdout().lock()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sateen-bench: {error}");
            if error.is_of_input() { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
}

/// Runs a workload, as one of the ranks or as who starts them.
fn work(bench: &Bench, engine: &dyn Engine, world: Option<&dyn Communicator>) -> u8 {
    if let Some(comm) = world {
        return match (bench.np, comm.is_root()) {
            (None, _) => rank(bench, engine, comm),
            (Some(_), root) => {
                if root {
                    eprintln!("sateen-bench: -np: MPI has started the ranks already");
                }
                EXIT_USAGE
            }
        };
    }
    let done = match Local::attach() {
        Ok(Some(comm)) => return rank(bench, engine, &comm),
        Ok(None) => start(bench, engine),
        Err(error) => Err(error),
    };
    code(done)
}

/// The exit code of what needed no ranks, after saying what went wrong.
fn code(done: Result<u8>) -> u8 {
    done.unwrap_or_else(|error| {
        eprintln!("sateen-bench: {error}");
        error.exit_code()
    })
}

/// Starts the ranks that were asked for, or works alone.
fn start(bench: &Bench, engine: &dyn Engine) -> Result<u8> {
    if started_by_mpi() {
        return Err(Error::usage(
            "MPI has started this, but it was built without: build the program sateen-bench with \
             its feature mpi, or use -np N for ranks on this host",
        ));
    }
    if let Some(tasks) = copies_of_srun() {
        return Err(Error::usage(format!(
            "srun has started this {tasks} times without MPI (--mpi=none): each would work alone \
             over the same files; use srun --mpi=pmix (srun --mpi=list says what there is) with a \
             program that has the feature mpi, or srun -n 1 with -np N"
        )));
    }
    let size = bench.np.unwrap_or(1);
    if size == 0 || size > RANKS_MAX {
        return Err(Error::usage(format!("-np: between 1 and {RANKS_MAX} ranks")));
    }
    engine.validate(size)?;
    if engine.needs_mpi() {
        return Err(Error::usage(NEEDS_MPI));
    }
    guard::check(&bench.guard)?;
    if size > 1 {
        return launch(size, &std::env::args_os().collect::<Vec<_>>());
    }
    Ok(rank(bench, engine, &Solo::new()?))
}

/// Works as a rank.
fn rank(bench: &Bench, engine: &dyn Engine, comm: &dyn Communicator) -> u8 {
    let command_line = std::env::args_os().map(|one| one.to_string_lossy().into_owned()).collect();
    let done = Progress::around(comm, bench.quiet || bench.json, |progress| {
        engine.run(
            comm,
            &Setting { command_line, progress, json: bench.json, out: None, guard: &bench.guard },
        )
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            match &error {
                Error::Usage(_) if comm.is_root() => eprintln!("sateen-bench: {error}"),
                Error::Stopped if comm.size() == 1 => eprintln!("sateen-bench: interrupted"),
                Error::Usage(_) => {}
                // Others than the first to say why are not heard.
                _ => comm.abort(&error.to_string()),
            }
            error.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Program::command().debug_assert();
    }

    /// Options that are known before and after a command are told apart by name: another of that name
    /// would be read as the wrong kind.
    #[test]
    fn no_command_has_an_option_of_all_commands_for_itself() {
        let program = Program::command();
        let of_all = |name: &str| {
            program.get_arguments().any(|one| one.is_global_set() && one.get_id() == name)
        };
        assert!(of_all("node_rate") && of_all("json"));
        for command in program.get_subcommands() {
            for own in command.get_arguments() {
                let name = own.get_id().as_str();
                // Whose form is the same.
                let same = name == "json" || own.is_hide_set();
                assert!(!of_all(name) || same, "{} --{name}", command.get_name());
            }
        }
    }

    /// What each command shows of the options of all.
    #[test]
    fn a_command_shows_only_options_that_it_takes() {
        let mut program = Program::command();
        program.build();
        let all = ["np", "drop_caches", "node_rate", "no_self_check", "json"];
        for command in program.get_subcommands() {
            let wanted: &[&str] = match command.get_name() {
                "ior" | "mdtest" | "iozone" | "io500" => &all,
                "predict" | "plan" | "report" => &["json"],
                _ => &[],
            };
            let name = command.get_name();
            let shown: Vec<&str> = all
                .into_iter()
                .filter(|id| {
                    command.get_arguments().any(|one| one.get_id() == *id && !one.is_hide_set())
                })
                .collect();
            assert_eq!(shown, wanted, "{name}");
            let help = command.clone().render_long_help().to_string();
            assert_eq!(help.contains("--np"), wanted.contains(&"np"), "{name}: {help}");
            assert_eq!(help.contains("Pitfalls"), wanted.contains(&"np"), "{name}: {help}");
        }
    }

    #[test]
    fn what_a_command_cannot_heed_is_refused() {
        for line in [
            "-np 4 predict --profiles",
            "predict --drop-caches --profiles",
            "--node-rate 5 plan x.toml",
            "report --no-self-check x.json",
            "memblock -np 2 1m",
            "--json memblock 1m",
            "memblock --node-rate 1g 1m",
            "report --drop-caches x.json",
            "crash-write --np 2 a b",
            "rates --json here=.",
        ] {
            let words = format!("sateen-bench {line}");
            let words = arguments(words.split(' ').map(OsString::from));
            let program = Program::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(senseless(&program.bench).is_some(), "{line}");
        }
        for line in ["--json predict --profiles", "--quiet memblock 1m", "-np 2 --json ior"] {
            let words = format!("sateen-bench {line}");
            let words = arguments(words.split(' ').map(OsString::from));
            let program = Program::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(senseless(&program.bench), None, "{line}");
        }
    }

    #[test]
    fn ranks_may_be_asked_for_before_and_after_the_command() {
        for line in ["sateen-bench -np 3 ior -F", "sateen-bench ior -np 3 -F"] {
            let words = arguments(line.split(' ').map(OsString::from));
            let program = Program::try_parse_from(words).unwrap();
            assert_eq!(program.bench.np, Some(3));
        }
    }

    #[test]
    fn what_another_program_is_told_stays_as_it_is() {
        let line = "sateen-bench memblock 5% -- mpirun -np 4 iozone -+n";
        let words = arguments(line.split(' ').map(OsString::from));
        assert_eq!(words.last().unwrap(), "-+n");
        assert!(words.contains(&OsString::from("-np")));
        let line = "sateen-bench iozone -+n -np 2";
        let words = arguments(line.split(' ').map(OsString::from));
        assert_eq!(words[2..], ["--+n", "--np", "2"].map(OsString::from));
    }
}
