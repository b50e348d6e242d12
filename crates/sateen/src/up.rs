//! `sateen up`: starts a file system and mounts it.
//!
//! Without `--foreground` it starts itself again as a process of its own, waits until that
//! says that the mount answers, and leaves it behind. Everything is checked, and every
//! refusal made, by the process that will serve: standard error is still the user's until
//! it is ready.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use crate::cli::UpArgs;
use crate::data_dir::{DataDir, open_log};
use crate::refusal::{Outcome, Refusal};
use crate::{logging, mounts, serve, targets};

/// What the process left behind writes to standard output when it is ready, before the text
/// for the user.
const READY: &str = "ready ";
/// Longest such line.
const READY_BYTES_MAX: u64 = 64 << 10;

/// Runs the command.
pub(crate) fn run(args: &UpArgs) -> Outcome<ExitCode> {
    if args.foreground || args.daemon { serve_here(args) } else { leave_behind(args) }
}

fn leave_behind(args: &UpArgs) -> Outcome<ExitCode> {
    let failed = |error: &io::Error| Refusal::io("start the serving process", error);
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.arg0("sateen").arg("up").arg("--daemon").arg("--data").arg(&args.data.data);
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
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout.take(READY_BYTES_MAX));
        lines.read_line(&mut line).map_err(|error| failed(&error))?;
    }
    if let Some(text) = line.strip_prefix(READY) {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why.
    let status = child.wait().map_err(|error| failed(&error))?;
    match status.code() {
        Some(code) if code != 0 => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        _ => Err(Refusal::new(
            format!("the serving process ended before it was ready ({status})"),
            format!("look at its log: {}", args.data.data.join("log").display()),
        )),
    }
}

fn serve_here(args: &UpArgs) -> Outcome<ExitCode> {
    let data = DataDir::at(&args.data.data)?;
    if args.daemon {
        // A session of its own, so that the terminal's signals do not reach it. It fails only
        // for one that leads a group already, which is as good.
        let _ = rustix::process::setsid();
    }
    mounts::require_fuse()?;
    let lock = data.open()?;
    if args.daemon {
        logging::to_file(&data)?;
    } else {
        logging::to_terminal();
    }
    logging::abort_on_panic();
    let points = mount_points(&data, &args.mount)?;
    let targets = targets::open_or_make(&data, args.mdts, args.osts)?;
    let server = serve::Server::start(data.clone(), &targets, points, args.direct_io)?;
    announce(args, &server)?;
    let ended = server.run();
    drop(lock);
    ended.map(|()| ExitCode::SUCCESS)
}

fn mount_points(data: &DataDir, wanted: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let default = [data.default_mount()];
    let wanted = if wanted.is_empty() { &default[..] } else { wanted };
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

/// Tells the user, or the process that waits for it, that the mount answers.
fn announce(args: &UpArgs, server: &serve::Server) -> Outcome<()> {
    let failed = |error: &io::Error| Refusal::io("announce that it is ready", error);
    let text = format!("{}\n", server.greeting());
    let mut stdout = io::stdout().lock();
    if !args.daemon {
        return stdout.write_all(text.as_bytes()).map_err(|error| failed(&error));
    }
    let ready = format!("{READY}{text}");
    stdout.write_all(ready.as_bytes()).map_err(|error| failed(&error))?;
    stdout.flush().map_err(|error| failed(&error))?;
    // Nobody reads these any more; what is written there by mistake belongs into the log.
    let log = open_log(&server.data().join("log")).map_err(|error| failed(&error))?;
    rustix::stdio::dup2_stdout(&log)
        .and_then(|()| rustix::stdio::dup2_stderr(&log))
        .map_err(|error| failed(&error.into()))
}
