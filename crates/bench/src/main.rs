//! Measures folders from outside, through the system calls that any program makes. Used by
//! `scripts/demo.sh` and by whoever wants numbers of a mount. It knows nothing of Sateen's
//! insides, so that the same program measures a local disk.

mod crash;
mod rates;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Rates of folders, and proofs of what a crash must not lose.
#[derive(Debug, Parser)]
#[command(name = "sateen-bench", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints a table of rates, a column for each folder.
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
    CrashWrite {
        /// Where to write.
        dir: PathBuf,
        /// Where to note what is safe; on another file system.
        notes: PathBuf,
    },
    /// Checks that everything noted is there, byte for byte.
    CrashCheck {
        /// Where it was written.
        dir: PathBuf,
        /// Where it was noted.
        notes: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Rates { files, mib, columns } => rates::run(files, mib, &columns),
        Command::CrashWrite { dir, notes } => crash::write(&dir, &notes),
        Command::CrashCheck { dir, notes } => crash::check(&dir, &notes),
    }
}
