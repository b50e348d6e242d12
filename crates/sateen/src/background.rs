//! Starting this program again as a process of its own that stays behind.
//!
//! The caller waits until the new process says that its mount answers. Everything is checked,
//! and every refusal made, by the process that will serve: standard error is still the user's
//! until it is ready.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use crate::daemon::Server;
use crate::data_dir::open_log;
use crate::refusal::{Outcome, Refusal};

/// What the process left behind writes to standard output when it is ready, before the text
/// for the user.
const READY: &str = "ready ";
/// Longest such line.
const READY_BYTES_MAX: u64 = 64 << 10;

fn failed(error: &io::Error) -> Refusal {
    Refusal::io("start the serving process", error)
}

/// This program, to be started again.
pub(crate) fn program() -> Outcome<Command> {
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.arg0("sateen");
    Ok(command)
}

/// Starts a process and waits for the first line that it prints, which is cut off at `max`
/// bytes; empty if it has ended without one.
pub(crate) fn first_line(command: &mut Command, max: u64) -> io::Result<(Child, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout.take(max)).read_line(&mut line)?;
    }
    Ok((child, line))
}

/// Starts the process, waits until it is ready or has ended, and leaves it behind.
pub(crate) fn leave_behind(mut command: Command, log: &Path) -> Outcome<ExitCode> {
    let (mut child, line) =
        first_line(&mut command, READY_BYTES_MAX).map_err(|error| failed(&error))?;
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
            format!("look at its log: {}", log.display()),
        )),
    }
}

/// Gives the process a session of its own, so that the terminal's signals do not reach it.
pub(crate) fn leave_terminal() {
    // It fails only for one that leads a group already, which is as good.
    let _ = rustix::process::setsid();
}

/// Tells the user, or the process that waits for it, that the mount answers.
pub(crate) fn announce(server: &Server, left_behind: bool) -> Outcome<()> {
    let failed = |error: &io::Error| Refusal::io("announce that it is ready", error);
    let text = format!("{}\n", server.greeting());
    let mut stdout = io::stdout().lock();
    if !left_behind {
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
