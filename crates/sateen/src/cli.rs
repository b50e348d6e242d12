//! The arguments of every command. What they mean is in the commands' own files.

use std::num::ParseIntError;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use sateen_fuse::TransportChoice;
use sateen_types::Nid;

use crate::nids;
use crate::requests;
use crate::waking::POLL_US_MAX;
use crate::ways::Net;

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
    /// Shows whether a file system runs, where it is mounted, and its targets' space: exit code 0
    /// if all of it does, 3 if it does not run, or not all of its targets are up, or one of its
    /// mounts is gone.
    Status(StatusArgs),
    /// Checks a file system that does not run, and changes nothing: exit code 0 if nothing is
    /// damaged, 1 if something is, 2 if it could not be checked.
    Fsck(FsckArgs),
    /// Makes everything that was written on a mount durable; syncfs(2) cannot, because the
    /// kernel does not tell FUSE file systems of it.
    Sync(SyncArgs),
    /// Striping and space of mounted files; the same as this program under the name lfs.
    Lfs(crate::lfs::Lfs),
    /// Devices, parameters and statistics of the processes of this host; the same as this program
    /// under the name lctl.
    Lctl(crate::lctl::Lctl),
    /// Makes one target of a file system; the same as this program under the name mkfs.sateen.
    Mkfs(MkfsArgs),
    /// Serves targets to clients on other hosts, in the foreground.
    Serve(ServeArgs),
    /// Mounts a file system whose servers are elsewhere; the same as this program under the
    /// name mount.sateen, which mount(8) runs for `mount -t sateen`.
    Mount(MountArgs),
    /// Benchmarks of any folder, with the options and the output of IOR and mdtest; the same as
    /// this program under the name sateen-bench.
    Bench(Box<sateen_bench::cli::Bench>),
    /// Started by `up` itself: aborts the mounts if the serving process dies.
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Measures how a file system bears very many files.
    #[command(hide = true)]
    Fill(FillArgs),
    /// Writes manual pages and completions, for `make install`.
    #[command(hide = true)]
    Generate(GenerateArgs),
}

impl Command {
    /// Whether all it does is to ask and to show.
    pub(crate) fn only_asks(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Fsck(_) | Self::Lfs(_) | Self::Lctl(_))
    }
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
    /// Where to mount it; may be given several times, each a client of its own [default: where
    /// it was mounted the last time; at first `mnt` in the data folder].
    #[arg(long, value_name = "DIR")]
    pub mount: Vec<PathBuf>,
    /// Metadata targets of a new file system [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub mdts: Option<u32>,
    /// Object targets [default: 4]; on a later start more may be asked for, and are added.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: Option<u32>,
    /// Programs' reads and writes go past the kernel's page cache; only mappings use it. It stays
    /// so until a start with --mount and without this.
    #[arg(long)]
    pub direct_io: bool,
    /// Large files of one stripe are read and written by the kernel itself (Linux 6.9), or it does
    /// not start [default: they are, where there is one mount and the machine can]. It stays so
    /// until a start with --mount and without this.
    #[arg(long, conflicts_with_all = ["direct_io", "no_passthrough"])]
    pub passthrough: bool,
    /// They are not. It stays so, likewise.
    #[arg(long)]
    pub no_passthrough: bool,
    #[command(flatten)]
    pub requests: RequestArgs,
    #[command(flatten)]
    pub waking: WakingArgs,
    /// Stay in the foreground and log to the terminal; Ctrl-C stops it.
    #[arg(long)]
    pub foreground: bool,
    /// Set by `up` itself for the process that it leaves behind: who waits for that.
    #[arg(long, value_name = "PID", hide = true)]
    pub daemon: Option<u32>,
}

/// How the kernel's requests come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(crate) struct RequestArgs {
    /// Over what the kernel's requests come, until the next start: io_uring, refused where the
    /// kernel has it not or has it switched off; /dev/fuse (classic); or auto, which is io_uring
    /// where it is to be had and else /dev/fuse.
    #[arg(long, value_name = "TRANSPORT", value_parser = requests::transports(), default_value = "auto", hide_default_value = true)]
    pub transport: TransportChoice,
    /// The largest request that the kernel is asked for, a multiple of 4K from 128K to 16M, as far as its
    /// fs.fuse.max_pages_limit lets it [default: 1M].
    #[arg(long, value_name = "SIZE", value_parser = requests::max_request)]
    pub max_request: Option<u32>,
}

/// How threads wait for work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(crate) struct WakingArgs {
    /// For so many microseconds a thread that has run out of work looks for more before it sleeps,
    /// while work keeps coming [default: 50; 0: not at all].
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u16).range(0..=i64::from(POLL_US_MAX)))]
    pub poll: Option<u16>,
    /// No processor of this host halts while this runs (/dev/cpu_dma_latency): answers come sooner,
    /// for more electricity.
    #[arg(long)]
    pub keep_cores_awake: bool,
}

/// Arguments of `mkfs.sateen`.
#[derive(Debug, Clone, Parser)]
#[command(name = "mkfs.sateen", version, about = "Makes one target of a Sateen file system")]
#[command(group = clap::ArgGroup::new("kind").required(true).multiple(true))]
pub(crate) struct MkfsArgs {
    /// The management target: one for each file system, made first.
    #[arg(long, group = "kind")]
    pub mgs: bool,
    /// A metadata target; the one with index 0 holds the root.
    #[arg(long, group = "kind")]
    pub mdt: bool,
    /// An object target.
    #[arg(long, group = "kind")]
    pub ost: bool,
    /// Name of the file system: 1 to 8 letters, digits, - and _.
    #[arg(long, value_name = "NAME")]
    pub fsname: String,
    /// Index of the target among those of its kind, never used before; also in hexadecimal, as
    /// 0x1a.
    #[arg(long, value_name = "N", value_parser = target_index)]
    pub index: Option<u32>,
    /// Destroys the target that is in the folder, whatever it holds.
    #[arg(long)]
    pub reformat: bool,
    /// Takes the place of the OST that had this index and is lost for good. Files keep their
    /// names; what they had there reads as zeros.
    #[arg(long)]
    pub replace: bool,
    /// Where the MGS is, as ADDRESS[:PORT]@tcp; several with colons between, or each with an
    /// option of its own. A host's name may stand for its address.
    #[arg(long, value_name = "NID[:NID]")]
    pub mgsnode: Vec<String>,
    /// A parameter that the MGS is to keep, as with lctl set_param -P: the target hands it over
    /// when it is first served. May be given several times.
    #[arg(long, value_name = "PARAM=VALUE")]
    pub param: Vec<String>,
    /// Not needed, and refused: where a target is served, the MGS hears from its server.
    #[arg(long, value_name = "NID", visible_alias = "failnode")]
    pub servicenode: Vec<String>,
    /// The target's folder: an empty one, or the mount point of an empty disk.
    #[arg(value_name = "DIR")]
    pub target: PathBuf,
}

/// An index as it may be written.
fn target_index(text: &str) -> Result<u32, ParseIntError> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // A sign would be none of a number that stands behind an x.
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16),
        _ => text.parse(),
    }
}

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Where this server is reached, as ADDRESS[:PORT]@tcp; it listens there. ADDRESS[:PORT]@shm:
    /// by processes of this host alone, over memory that they share. May be given up to eight times; whoever looks for it tries them in turn [default: this host's address towards the
    /// MGS, port 988].
    #[arg(long, value_name = "NID", value_parser = nids::resolve_one)]
    pub nid: Vec<Nid>,
    /// Over what clients and other servers are reached: memory that is shared with processes of
    /// this host, and TCP with all others; or one of these alone.
    #[arg(long, value_name = "WAY", value_enum, default_value_t)]
    pub net: Net,
    #[command(flatten)]
    pub waking: WakingArgs,
    /// Folders of targets, made with mkfs.sateen.
    #[arg(value_name = "DIR", required = true)]
    pub targets: Vec<PathBuf>,
}

/// Arguments of `mount.sateen`.
#[derive(Debug, Clone, Parser)]
#[command(name = "mount.sateen", version, about = "Mounts a Sateen file system")]
pub(crate) struct MountArgs {
    /// The MGS and the file system, as NID[:NID]:/FSNAME, or a directory of it, as
    /// NID[:NID]:/FSNAME/SUBDIR. A NID is ADDRESS[:PORT]@tcp, or HOST[:PORT]@tcp.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Where to mount it.
    #[arg(value_name = "DIR")]
    pub point: PathBuf,
    /// Options with commas between: ro, rw, sync, dirsync, and atime, diratime, relatime, dev,
    /// suid, exec with or without `no`, strictatime; direct_io: programs' reads and writes go
    /// past the kernel's page cache; nopassthrough: the kernel is given no files to read and write itself, which only the mount of `sateen up` does; flock, localflock or noflock: flock and fcntl locks hold for
    /// all mounts (as without; but every close is heard of from the start), for this one alone, or do not exist; retry=MINUTES: for how long servers that do not answer are
    /// tried, which in the field is a number of tries (in fstab with x-systemd.mount-timeout, which is 90 s otherwise); exclude=FSNAME-OST0001[:FSNAME-OST0002]: OSTs that this mount does not use; transport=io_uring or
    /// transport=classic: over what the kernel's requests come, or no mount, without it (or with transport=auto) io_uring where it is to be had and else /dev/fuse; max_request=SIZE: the largest request that the kernel is asked for, a multiple of 4K from 128K to 16M, as far as its fs.fuse.max_pages_limit lets it (1M without it); poll=MICROSECONDS: for so long a thread that has run out of work looks for more before it sleeps (50 without it, 0: not at all); keep_cores_awake: no processor of this host halts while this is mounted; net=tcp or net=shm: over what servers are reached, without it memory that is shared with those of this host, and TCP with others; remount: a mount that is there gets these options.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// As `-o ro`.
    #[arg(short = 'r')]
    pub read_only: bool,
    /// Check everything, and mount nothing.
    #[arg(short = 'f')]
    pub fake: bool,
    /// Stay in the foreground and log to the terminal.
    #[arg(long)]
    pub foreground: bool,
    /// Set by `mount.sateen` itself for the process that it leaves behind: who waits for that.
    #[arg(long, value_name = "PID", hide = true)]
    pub daemon: Option<u32>,
    /// For mount(8): the mount namespace to do it in, which it only passes on.
    #[arg(short = 'N', value_name = "NAMESPACE", hide = true)]
    pub namespace: Option<PathBuf>,
    #[command(flatten)]
    pub ignored: MountIgnored,
}

/// What mount(8) may pass to any helper.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MountIgnored {
    /// Accepted for mount(8): unknown options are refused all the same.
    #[arg(short = 's', hide = true)]
    pub sloppy: bool,
    /// Accepted for mount(8): /etc/mtab is the kernel's.
    #[arg(short = 'n', hide = true)]
    pub no_mtab: bool,
    /// Accepted for mount(8): there is nothing more to say.
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    /// As `-o rw`, the default.
    #[arg(short = 'w', hide = true)]
    pub read_write: bool,
    /// Accepted for mount(8).
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    pub fs_type: Option<String>,
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
    /// A file system whose servers are elsewhere: a mount of it, or its MGS and name, as
    /// NID[:NID]:/FSNAME.
    #[arg(value_name = "MOUNT|SOURCE", conflicts_with = "data")]
    pub what: Option<String>,
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
    /// Look up first what the run before has left, whose --files this was; --threads and --rate
    /// were the same.
    #[arg(long, value_name = "N")]
    pub left: Option<u64>,
    /// The --mixed of that run.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub left_mixed: u64,
    #[command(flatten)]
    pub limits: FillLimits,
}

/// What makes `fill` fail.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FillLimits {
    /// Fail if an operation takes longer.
    #[arg(long, value_name = "MS")]
    pub max_ms: Option<f64>,
    /// Fail if the average create of the last quarter of the files takes longer than so many of
    /// the first quarter.
    #[arg(long, value_name = "RATIO")]
    pub max_slowdown: Option<f64>,
    /// Fail if the start takes longer.
    #[arg(long, value_name = "SECONDS")]
    pub max_start: Option<f64>,
}

/// Arguments of `generate`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GenerateArgs {
    /// The folder `share`.
    #[arg(value_name = "DIR")]
    pub share: PathBuf,
    /// Only say which files there would be.
    #[arg(long)]
    pub list: bool,
    /// Nothing of this program: its name is somebody else's here.
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
}

/// Arguments of `fsck`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Folders of targets that separate servers serve: all of one file system, none of them
    /// being served.
    #[arg(value_name = "DIR", conflicts_with = "data")]
    pub targets: Vec<PathBuf>,
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

    #[test]
    fn an_index_is_written_in_two_ways() {
        for (text, index) in [("0", 0), ("26", 26), ("0x1a", 26), ("0X1A", 26), ("010", 10)] {
            assert_eq!(target_index(text), Ok(index), "{text}");
        }
        for bad in ["", "x", "1a", "0x", "0x+1", "-1", "0x100000000", "1 "] {
            assert!(target_index(bad).is_err(), "{bad}");
        }
    }
}
