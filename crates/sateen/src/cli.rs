//! The arguments of every command. What they mean is in the commands' own files.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Sateen: a parallel file system in user space.
#[derive(Debug, Parser)]
#[command(
    name = "sateen",
    version,
    about = "Sateen: a parallel file system in user space",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts a file system in one process and mounts it, making what is missing.
    Up(UpArgs),
    /// Unmounts and stops a file system.
    Down(DownArgs),
    /// Shows whether a file system runs, where it is mounted, and its targets' space.
    Status(StatusArgs),
    /// Checks a file system that does not run, and changes nothing: exit code 0 if nothing is
    /// damaged, 1 if something is, 2 if it could not be checked.
    Fsck(FsckArgs),
    /// Makes everything that was written on a mount durable; syncfs(2) cannot, because the
    /// kernel does not tell FUSE file systems of it.
    Sync(SyncArgs),
    /// Striping and space of mounted files; the same as this program under the name lfs.
    Lfs(crate::lfs::Lfs),
    /// Started by `up` itself: aborts the mounts if the serving process dies.
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Measures how a file system bears very many files.
    #[command(hide = true)]
    Fill(FillArgs),
}

/// Where the file system keeps everything.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Folder of the file system's data.
    #[arg(long, value_name = "DIR", default_value = "sateen-data")]
    pub data: PathBuf,
}

/// Arguments of `up`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Where to mount it; may be given several times, each a client of its own [default:
    /// `mnt` in the data folder].
    #[arg(long, value_name = "DIR")]
    pub mount: Vec<PathBuf>,
    /// Metadata targets of a new file system [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub mdts: Option<u32>,
    /// Object targets [default: 4]; on a later start more may be asked for, and are added.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: Option<u32>,
    /// Programs' reads and writes go past the kernel's page cache; only mappings use it.
    #[arg(long)]
    pub direct_io: bool,
    /// Stay in the foreground and log to the terminal; Ctrl-C stops it.
    #[arg(long)]
    pub foreground: bool,
    /// Set by `up` itself for the process that it leaves behind.
    #[arg(long, hide = true)]
    pub daemon: bool,
}

/// Arguments of `down`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Unmount even if programs are using the mount; they get errors.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// As JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sync`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SyncArgs {
    /// Anything on the mount.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `guard`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The serving process.
    #[arg(long, value_name = "PID")]
    pub parent: u32,
    /// Its mounts.
    #[arg(long, value_name = "DIR")]
    pub mount: Vec<PathBuf>,
}

/// Arguments of `fill`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FillArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Files to end up with.
    #[arg(long, value_name = "N")]
    pub files: u64,
    /// Clients, each with a thread of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Seconds of creates, stats and unlinks in equal parts afterwards.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub mixed: u64,
    /// Operations a second then, of all threads together.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub rate: u32,
    /// Seconds from line to line.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub every: u64,
    /// Metadata targets.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub mdts: u32,
    /// Object targets.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub osts: u32,
}

/// Arguments of `fsck`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// As JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
