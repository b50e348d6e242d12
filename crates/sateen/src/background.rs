//! Starting this program again as a process of its own that stays behind.
//!
//! The caller waits until the new process says that its mount answers. Everything is checked,
//! and every refusal made, by the process that will serve: standard error is still the user's
//! until it is ready. Until then it also ends with its caller, which Ctrl-C has ended: nobody
//! would know of a mount that comes later.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::Signal;
use sateen_reactor::inherited;

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

/// Keeps files that this process has open from its caller from those that stay behind: to be
/// called first of all.
pub(crate) fn keep_callers_files() -> Outcome<()> {
    inherited::keep_from_programs().map_err(|error| failed(&error))
}

/// Leaves the caller's working directory, which may be one that is to be unmounted. Whatever path
/// is used afterwards is absolute.
pub(crate) fn leave_folder() {
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::warn!(%error, "cannot leave the working directory");
    }
}

/// This program, to be started again.
pub(crate) fn program() -> Outcome<Command> {
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.arg0("sateen");
    Ok(command)
}

/// What tells it that it is to be left behind, and who waits for it.
pub(crate) fn waited_for() -> [String; 2] {
    ["--daemon".to_owned(), std::process::id().to_string()]
}

/// Starts a process and waits for the first line that it prints, which is cut off at `max`
/// bytes; empty if it has ended without one.
pub(crate) fn first_line(command: &mut Command, max: u64) -> io::Result<(Child, String)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout.take(max)).read_line(&mut line)?;
    }
    Ok((child, line))
}

/// Starts the process, waits until it is ready or has ended, and leaves it behind.
pub(crate) fn leave_behind(mut command: Command, log: &Path) -> Outcome<ExitCode> {
    command.stdin(Stdio::null());
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

/// The first thing that a process does which is to be left behind: it gets a session of its own,
/// so that the terminal's signals do not reach it, and ends with the process that waits for it.
pub(crate) fn begin(waits: u32) -> Outcome<()> {
    // It fails only for one that leads a group already, which is as good.
    let _ = rustix::process::setsid();
    ends_with_parent(waits, Signal::TERM).map_err(|error| failed(&error))
}

/// Has the kernel send a signal when the parent's main thread dies, which must be this process's.
///
/// # Errors
/// It has died already.
pub(crate) fn ends_with_parent(parent: u32, signal: Signal) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    // Whoever died before that was not noticed.
    match is_parent(parent) {
        true => Ok(()),
        false => Err(io::Error::other("the process that has started it has ended already")),
    }
}

/// Whether this process's parent is still that one.
pub(crate) fn is_parent(pid: u32) -> bool {
    let parent = rustix::process::getppid();
    parent.is_some_and(|parent| parent.as_raw_nonzero().get().unsigned_abs() == pid)
}

/// Tells the user, or the process that waits for it, that the mount answers. If that is gone the
/// server ends as soon as it runs.
pub(crate) fn announce(server: &mut Server, left_behind: bool) {
    let text = format!("{}\n", server.greeting());
    let mut stdout = io::stdout().lock();
    if !left_behind {
        if let Err(error) = stdout.write_all(text.as_bytes()) {
            tracing::debug!(%error, "nobody reads that it is ready");
        }
        return;
    }
    for remark in server.remarks() {
        eprintln!("sateen: {remark}");
    }
    let ready = format!("{READY}{text}");
    // Before whoever waits goes on, and perhaps unmounts it.
    leave_folder();
    // From here on it lives without it. Should it have died before, the line has no reader.
    let told = rustix::process::set_parent_process_death_signal(None)
        .map_err(io::Error::from)
        .and_then(|()| stdout.write_all(ready.as_bytes()))
        .and_then(|()| stdout.flush());
    if let Err(error) = told {
        tracing::warn!(%error, "nobody waits for it any more");
        server.is_unwanted("whoever started it did not wait");
    }
    // Nobody reads these any more; what is written there by mistake belongs into the log.
    let turned = open_log(&server.data().join("log")).and_then(|log| {
        rustix::stdio::dup2_stdout(&log)?;
        Ok(rustix::stdio::dup2_stderr(&log)?)
    });
    if let Err(error) = turned {
        tracing::warn!(%error, "cannot turn its output to the log");
    }
}
