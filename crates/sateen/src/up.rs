//! `sateen up`: starts a file system and mounts it.
//!
//! Without `--foreground` it starts itself again as a process of its own, waits until that
//! says that the mount answers, and leaves it behind. Everything is checked, and every
//! refusal made, by the process that will serve: standard error is still the user's until
//! it is ready.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cli::UpArgs;
use crate::control::{self, Answer, Command};
use crate::data_dir::{DataDir, User};
use crate::node::mgc::Stop;
use crate::node::{How, Node, Passthrough};
use crate::refusal::{Outcome, Refusal};
use crate::state::State;
use crate::{background, daemon, killed, logging, mounts, run_dir, targets};

/// How long the process of an `up` before may take to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(120);
/// Half the size of its log.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How often to look whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The option with which the kernel is given no files.
pub(crate) const NO_PASSTHROUGH: &str = "--no-passthrough";

/// Runs the command.
pub(crate) fn run(args: &UpArgs) -> Outcome<ExitCode> {
    background::keep_callers_files()?;
    if args.foreground || args.daemon.is_some() { serve_here(args) } else { leave_behind(args) }
}

fn leave_behind(args: &UpArgs) -> Outcome<ExitCode> {
    let mut command = background::program()?;
    command.arg("up").args(background::waited_for());
    command.arg("--data").arg(&args.data.data);
    for mount in &args.mount {
        command.arg("--mount").arg(mount);
    }
    for (name, count) in [("--mdts", args.mdts), ("--osts", args.osts)] {
        if let Some(count) = count {
            command.arg(name).arg(count.to_string());
        }
    }
    if args.direct_io {
        command.arg("--direct-io");
    }
    if args.passthrough {
        command.arg("--passthrough");
    }
    if args.no_passthrough {
        command.arg(NO_PASSTHROUGH);
    }
    command.args(args.requests.to_args());
    if let Some(us) = args.waking.poll {
        command.arg("--poll").arg(us.to_string());
    }
    if args.waking.keep_cores_awake {
        command.arg("--keep-cores-awake");
    }
    background::leave_behind(command, &args.data.data.join("log"))
}

fn serve_here(args: &UpArgs) -> Outcome<ExitCode> {
    let data = DataDir::at(&args.data.data)?;
    if let Some(waits) = args.daemon {
        background::begin(waits)?;
    }
    mounts::require_fuse()?;
    let _awake = args.waking.apply()?;
    data.refuse_a_target()?;
    killed::free_mounts(&data);
    wait_for_the_end(&data)?;
    let lock = data.open()?;
    if args.daemon.is_some() {
        logging::to_file(&data, LOG_BYTES_MAX)?;
    } else {
        logging::to_terminal();
    }
    logging::abort_on_panic();
    let last = State::load(&data);
    if let Some(last) = &last {
        // Before this start takes the place of the only note of them.
        last.clear_dead_mounts()?;
    }
    let wanted = Wanted::of(args, &data, last.as_ref());
    if wanted.passthrough == Passthrough::Always && wanted.mounts.len() > 1 {
        // Mounts do not hear of what others' kernels write.
        return Err(Refusal::new(
            format!("--passthrough is for one mount, and there are {}", wanted.mounts.len()),
            "leave it out, or name one --mount only",
        ));
    }
    if args.passthrough && last.as_ref().is_some_and(|last| last.direct_io) {
        tracing::warn!(
            "it was started with --direct-io before; with --passthrough it is not any more"
        );
    }
    let points = mount_points(&wanted.mounts)?;
    let targets = targets::open_or_make(&data, args.mdts, args.osts)?;
    let (told, how) = (Stop::default(), How::new(wanted.direct_io));
    let how = How { passthrough: wanted.passthrough, requests: args.requests, ..how };
    let node = |_: &Stop| Node::embedded(&targets);
    let mut server = match daemon::Server::start(data.clone(), node, points, how, &told) {
        // Ctrl-C, before it was mounted.
        Err(_) if told.load(Ordering::Relaxed) => return Ok(ExitCode::SUCCESS),
        other => other?,
    };
    let _entered = run_dir::enter(&data);
    background::announce(&mut server, args.daemon.is_some());
    let ended = server.run();
    drop(lock);
    ended.map(|()| ExitCode::SUCCESS)
}

/// The last mount is gone from the tree before its process has made everything durable: one that
/// serves nothing any more is about to end. One that cannot be asked may be, or may be starting.
fn wait_for_the_end(data: &DataDir) -> Outcome<()> {
    let reading = |error| Refusal::io(format!("read {}", data.path().display()), &error);
    let until = Instant::now() + PREDECESSOR_TIMEOUT;
    while Instant::now() < until
        && matches!(data.user().map_err(reading)?, User::Process(_))
        && !matches!(
            control::ask(data, Command::Status),
            Ok(Answer::Status(report))
                if report.mounts.iter().any(|mount| mount.state == "mounted")
        )
    {
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Where it is to be mounted, and how.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    mounts: Vec<PathBuf>,
    direct_io: bool,
    passthrough: Passthrough,
}

impl Wanted {
    /// As it is said; as it was the last time, if nothing is. Elsewhere, programs that go on where
    /// they were would write into the bare folder.
    fn of(args: &UpArgs, data: &DataDir, last: Option<&State>) -> Wanted {
        let last = last.filter(|_| args.mount.is_empty());
        // Direct I/O and passthrough exclude each other: what is said wins.
        let direct_io =
            args.direct_io || !args.passthrough && last.is_some_and(|last| last.direct_io);
        let mounts = match last {
            Some(last) => last.mounts_at(data.path()),
            None => args.mount.clone(),
        };
        let mounts = if mounts.is_empty() { vec![data.default_mount()] } else { mounts };
        let said = args.passthrough || args.no_passthrough;
        let before = last.filter(|_| !said);
        let always = args.passthrough || before.is_some_and(|last| last.passthrough);
        let never = args.no_passthrough || before.is_some_and(|last| last.no_passthrough);
        let passthrough = match (always, never) {
            _ if direct_io => Passthrough::Never("--direct-io"),
            (true, _) => Passthrough::Always,
            (_, true) => Passthrough::Never(NO_PASSTHROUGH),
            // They do not hear of what others' kernels write.
            _ if mounts.len() > 1 => Passthrough::Never("there are several mounts"),
            _ => Passthrough::Perhaps,
        };
        Wanted { mounts, direct_io, passthrough }
    }
}

fn mount_points(wanted: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut points = Vec::new();
    for point in wanted {
        let point = mounts::prepare(point)?;
        if points.contains(&point) {
            return Err(Refusal::new(
                format!("{} is named twice", point.display()),
                "give each --mount a folder of its own",
            ));
        }
        points.push(point);
    }
    Ok(points)
}
