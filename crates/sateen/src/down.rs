//! `sateen down`: unmounts a file system and ends its process.

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

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
    let User::Process(pid) = user else {
        let cleared = clear_dead(state.as_ref())?;
        run_dir::forget(&data);
        let note = if cleared { "; the mount that a crash had left is cleared away" } else { "" };
        println!("not running{note}");
        return Ok(ExitCode::SUCCESS);
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

/// It does not answer on its socket, but holds the lock.
fn end_by_signal(data: &DataDir, pid: Option<u32>) -> Outcome<()> {
    let known = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let Some(known) = known else { return Err(still_there(data, pid)) };
    eprintln!("process {known} does not answer; sending it SIGTERM");
    kill_process(known, Signal::TERM)
        .map_err(|error| Refusal::io(format!("signal process {known}"), &error.into()))?;
    let ended = data.wait_unused(SIGNAL_TIMEOUT);
    match ended.map_err(|error| Refusal::io(format!("read {}", data.path().display()), &error))? {
        true => Ok(()),
        false => Err(still_there(data, pid)),
    }
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
