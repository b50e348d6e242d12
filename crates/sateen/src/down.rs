//! `sateen down`: unmounts a file system and ends its process.

use std::process::ExitCode;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cli::DownArgs;
use crate::control::{self, Answer, Command};
use crate::data_dir::{DataDir, User};
use crate::mounts;
use crate::refusal::{Outcome, Refusal};
use crate::run_dir;
use crate::state::State;

/// How long the process may take to end once everything is durable.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take if it had to be told by a signal.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the command.
pub(crate) fn run(args: &DownArgs) -> Outcome<ExitCode> {
    let data = DataDir::at(&args.data.data)?;
    data.require()?;
    let reading = |error| Refusal::io(format!("read {}", data.path().display()), &error);
    let user = data.user().map_err(reading)?;
    let state = State::load(&data);
    let pid = match user {
        User::Process(pid) => pid,
        User::Checker(pid) => return Err(data.is_checked(pid)),
        User::Nobody => {
            let cleared = clear_dead(state.as_ref())?;
            run_dir::forget(&data);
            let note =
                if cleared { "; the mount that a crash had left is cleared away" } else { "" };
            println!("not running{note}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    match control::ask(&data, Command::Down { force: args.force }) {
        Ok(Answer::Down) => {}
        Ok(Answer::Busy { mount }) => return Err(busy(&mount)),
        Ok(Answer::Failed { what, hint }) => {
            return Err(Refusal::new(format!("it ended, but {what}"), hint));
        }
        Ok(_) | Err(_) => end_by_signal(&data, pid)?,
    }
    if !data.wait_unused(END_TIMEOUT).map_err(reading)? {
        return Err(still_there(&data, pid));
    }
    clear_dead(state.as_ref())?;
    run_dir::forget(&data);
    println!("stopped; everything is on the disk");
    Ok(ExitCode::SUCCESS)
}

fn busy(mount: &std::path::Path) -> Refusal {
    let users = mounts::users(mount);
    let by = if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) };
    Refusal::new(
        format!("{} is in use{by}", mount.display()),
        "end those programs or leave the folder; or use --force, which gives them errors",
    )
}

/// It does not answer on its socket, but holds the lock: the process whose pid is in the file, if
/// it has it. Nobody else is signalled, whatever stands there.
fn end_by_signal(data: &DataDir, pid: Option<u32>) -> Outcome<()> {
    let known = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    // Held, so that the number cannot become somebody else's.
    let process = known.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (Some(known), Some(process)) = (known.filter(|_| holds(data, pid)), process) else {
        return Err(held_elsewhere(data));
    };
    eprintln!("process {known} does not answer; sending it SIGTERM");
    match pidfd_send_signal(process, Signal::TERM) {
        // It has ended by itself.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(Refusal::io(format!("signal process {known}"), &error.into())),
    }
    let ended = data.wait_unused(SIGNAL_TIMEOUT);
    match ended.map_err(|error| Refusal::io(format!("read {}", data.path().display()), &error))? {
        true => Ok(()),
        false => Err(still_there(data, pid)),
    }
}

fn holds(data: &DataDir, pid: Option<u32>) -> bool {
    pid.is_some_and(|pid| data.is_locked_by(pid))
}

fn held_elsewhere(data: &DataDir) -> Refusal {
    let lock = data.join("lock");
    Refusal::new(
        format!("somebody has locked {}, and does not answer", lock.display()),
        format!(
            "it may be starting, or run in a container: end it there; see who has it open with: \
             fuser {}",
            lock.display()
        ),
    )
}

fn still_there(data: &DataDir, pid: Option<u32>) -> Refusal {
    let who = pid.map_or_else(|| "the serving process".to_owned(), |pid| format!("process {pid}"));
    Refusal::new(
        format!("{who} does not end"),
        format!(
            "look at the log ({}); as a last resort kill -9 it: what was synced is safe",
            data.join("log").display()
        ),
    )
}

/// Clears mounts whose process is dead.
fn clear_dead(state: Option<&State>) -> Outcome<bool> {
    Ok(state.map_or(Ok(0), State::clear_dead_mounts)? > 0)
}
