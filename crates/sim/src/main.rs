//! Runs seeds: `--seed N`, `--seeds A..B`; `--contention` for programs that share files,
//! `--file-locks` for programs that count under locks, `--given` for files that the kernel has.

use std::process::ExitCode;
use std::time::Instant;

use sateen_sim::{Config, Report, World, report};

struct Args {
    from: u64,
    to: u64,
    operations: u64,
    network_faults: bool,
    crashes: bool,
    contention: bool,
    file_locks: bool,
    long_partitions: bool,
    given: bool,
    trace: usize,
}

const USAGE: &str = "usage: sateen-sim [--seed N | --seeds A..B] [--operations N] [--calm] \
                     [--no-crashes] [--contention] [--file-locks] [--long-partitions] \
                     [--given] [--trace LINES]";

impl Args {
    /// What the world that is asked for must do, if it is one that has all its faults.
    fn minimums(&self) -> Option<report::Minimums> {
        if self.given && self.contention {
            None
        } else if self.given && self.crashes && self.operations >= 2000 {
            Some(report::GIVEN)
        } else if !self.network_faults || self.operations < 2000 {
            None
        } else if self.contention {
            Some(report::CONTENTION)
        } else if self.file_locks {
            Some(report::FILE_LOCKS)
        } else if !self.crashes {
            None
        } else if self.long_partitions {
            Some(report::LONG_PARTITIONS)
        } else {
            Some(report::FULL)
        }
    }
}

fn parse() -> Option<Args> {
    let mut args = Args {
        from: 1,
        to: 2,
        operations: 2000,
        network_faults: true,
        crashes: true,
        contention: false,
        file_locks: false,
        long_partitions: false,
        given: false,
        trace: 100,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => {
                args.from = words.next()?.parse().ok()?;
                args.to = args.from + 1;
            }
            "--seeds" => {
                let range = words.next()?;
                let (from, to) = range.split_once("..")?;
                (args.from, args.to) = (from.parse().ok()?, to.parse().ok()?);
            }
            "--operations" => args.operations = words.next()?.parse().ok()?,
            "--trace" => args.trace = words.next()?.parse().ok()?,
            "--calm" => (args.network_faults, args.crashes) = (false, false),
            "--contention" => args.contention = true,
            "--file-locks" => args.file_locks = true,
            "--long-partitions" => args.long_partitions = true,
            "--given" => (args.given, args.network_faults) = (true, false),
            "--no-crashes" => args.crashes = false,
            _ => return None,
        }
    }
    Some(args)
}

fn main() -> ExitCode {
    let Some(args) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let mut total = Report::default();
    let mut failed = Vec::new();
    for seed in args.from..args.to {
        let config = Config {
            seed,
            operations: args.operations,
            network_faults: args.network_faults,
            crashes: args.crashes,
            long_partitions: args.long_partitions,
            given: args.given,
            trace: if args.to - args.from == 1 { args.trace } else { 0 },
        };
        let run = match (args.contention, args.file_locks) {
            (true, _) => World::run_contention,
            (_, true) => World::run_file_locks,
            _ => World::run,
        };
        match run(config) {
            Ok(report) => {
                println!("seed {seed}: {:016x} {} faults", report.hash, report.faults());
                total.add(&report);
            }
            Err(failure) => {
                println!("seed {seed} FAILED: {}", failure.what);
                if args.to - args.from == 1 {
                    for line in &failure.trace {
                        println!("{line}");
                    }
                }
                failed.push(seed);
            }
        }
    }
    let elapsed = began.elapsed();
    println!("{} seeds in {:.1} s", args.to - args.from, elapsed.as_secs_f64());
    print!("{total}");
    let seeds = args.to - args.from - failed.len() as u64;
    let missing = args.minimums().map_or(Vec::new(), |minimums| total.missing(minimums, seeds));
    for kind in &missing {
        println!("too few: {kind}");
    }
    if failed.is_empty() && missing.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}
