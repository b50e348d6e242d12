//! `sateen down`: unmounts a file system and ends its process.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cli::DownArgs;
use crate::control::{self, Answer, Command};
use crate::data_dir::{DataDir, User};
use crate::refusal::{Outcome, Refusal};
use crate::run_dir;
use crate::state::{Ended, State};
use crate::{killed, mounts};

/// How long the process may take to end once everything is durable.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take if it had to be told by a signal.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one may take that is ending already: its disks may be slow.
const HEARD_TIMEOUT: Duration = Duration::from_secs(120);
/// How long one that is about to end, or to begin, cannot be asked.
const MOMENT: Duration = Duration::from_secs(5);
/// How often to try whether it can.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
    killed::free_mounts(&data);
    let asked = match reach(&data).map_err(reading)? {
        Reached::It(stream) => control::ask_over(stream, Command::Down { force: args.force }),
        Reached::Deaf => {
            // Not those of a process of another PID namespace, which cannot be ended from here either.
            let is_seen = |pid| killed::is_ending(pid) || data.is_locked_by(pid);
            if args.force && pid.is_some_and(is_seen) {
                abort_mounts(state.as_ref().filter(|state| Some(state.pid) == pid));
            }
            end_by_signal(&data, pid)?;
            // What it managed to do it has written down, if anything.
            return ended_already(&data, pid, state.as_ref(), MOMENT);
        }
        Reached::Nobody => return ended_already(&data, pid, state.as_ref(), MOMENT),
    };
    let failed = match asked {
        Ok(Answer::Down) => None,
        Ok(Answer::Busy { mount, unmounted }) => return Err(busy(&mount, &unmounted)),
        Ok(Answer::Failed { what, hint }) => {
            Some(Refusal::new(format!("it ended, but {what}"), hint))
        }
        // It has heard, and is busy with its end: a signal would be one too many.
        _ => return ended_already(&data, pid, state.as_ref(), HEARD_TIMEOUT),
    };
    let ended = data.wait_unused(END_TIMEOUT).map_err(reading)?;
    let cleared = if ended { clear_dead(state.as_ref()) } else { Err(still_there(&data, pid)) };
    if cleared.is_ok() {
        run_dir::forget(&data);
    }
    // Of two things that went wrong the first is the cause.
    if let Some(failed) = failed {
        return Err(failed);
    }
    cleared?;
    println!("stopped; everything is on the disk");
    Ok(ExitCode::SUCCESS)
}

/// Who is there to be asked.
enum Reached {
    /// The serving process.
    It(UnixStream),
    /// One that cannot be asked.
    Deaf,
    /// It has ended.
    Nobody,
}

/// It may be past the moment in which it can be asked, or before it: a start takes its time.
fn reach(data: &DataDir) -> io::Result<Reached> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let late = Instant::now() >= deadline;
        if let Ok(stream) = control::connect(data) {
            return Ok(Reached::It(stream));
        }
        if data.user()? == User::Nobody {
            return Ok(Reached::Nobody);
        }
        if late {
            return Ok(Reached::Deaf);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// It was ending before it was told to, as after `umount`: how it ends is for it to say.
fn ended_already(
    data: &DataDir,
    pid: Option<u32>,
    state: Option<&State>,
    patience: Duration,
) -> Outcome<ExitCode> {
    let reading = |error| Refusal::io(format!("read {}", data.path().display()), &error);
    if !data.wait_unused(patience).map_err(reading)? {
        return Err(still_there(data, pid));
    }
    clear_dead(state)?;
    run_dir::forget(data);
    // It may have been killed before it could write any: what is there is of the run before, then.
    let own = State::load(data).filter(|state| Some(state.pid) == pid);
    match own.and_then(|state| state.ended) {
        Some(Ended { failed: Some(failed), .. }) => Err(Refusal::new(
            format!("it ended, but {failed}"),
            format!("look at its log and at the disk: {}", data.join("log").display()),
        )),
        Some(Ended { why, .. }) => {
            println!("stopped ({why}); everything is on the disk");
            Ok(ExitCode::SUCCESS)
        }
        None => {
            println!("not running: its process was killed; what was synced is safe");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn busy(mount: &Path, unmounted: &[PathBuf]) -> Refusal {
    let users = mounts::users(mount);
    let by = if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) };
    let gone: Vec<String> = unmounted.iter().map(|path| path.display().to_string()).collect();
    let gone = match gone.is_empty() {
        true => String::new(),
        false => format!("; unmounted already: {}", gone.join(", ")),
    };
    Refusal::new(
        format!("{} is in use{by}{gone}", mount.display()),
        "end those programs or leave the folder; or use --force, which gives them errors",
    )
}

/// It does not answer on its socket, but holds the lock: the process whose pid is in the file, if
/// it has it. Nobody else is signalled, whatever stands there. It has ended then.
fn end_by_signal(data: &DataDir, pid: Option<u32>) -> Outcome<()> {
    let reading = |error| Refusal::io(format!("read {}", data.path().display()), &error);
    let known = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    // Held, so that the number cannot become somebody else's.
    let process = known.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (Some(known), Some(process)) = (known.filter(|_| holds(data, pid)), process) else {
        return match data.user().map_err(reading)? {
            User::Nobody => Ok(()),
            _ => Err(held_elsewhere(data)),
        };
    };
    eprintln!("process {known} does not answer; sending it SIGTERM");
    match pidfd_send_signal(process, Signal::TERM) {
        Ok(()) => {}
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(Refusal::io(format!("signal process {known}"), &error.into())),
    }
    match data.wait_unused(SIGNAL_TIMEOUT).map_err(reading)? {
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

/// Gives programs in these mounts errors, without their process, which does not answer.
fn abort_mounts(state: Option<&State>) {
    for point in state.into_iter().flat_map(|state| &state.mounts) {
        let aborted = mounts::device_of(point).map(mounts::abort);
        if let Some(Err(error)) = aborted {
            eprintln!("cannot abort the mount {}: {error}", point.display());
        }
    }
}

/// Clears mounts whose process is dead.
fn clear_dead(state: Option<&State>) -> Outcome<bool> {
    Ok(state.map_or(Ok(0), State::clear_dead_mounts)? > 0)
}
