//! The guard: a small process that aborts the mounts of a serving process that has died.
//!
//! If the serving process is killed while one of its threads waits in the kernel for a
//! request that only it could answer, that thread never ends, keeps the FUSE connection
//! open, and every program on the mount hangs. So somebody else must abort the connection.
//! Life of a guard:
//!
//! 1. The serving process starts it from its main thread, before it mounts.
//! 2. It takes the lock `guard.lock`, asks the kernel for a signal when that main thread
//!    dies, and says that it is ready.
//! 3. The signal comes. It aborts the connections of all mounts, which leaves them in the
//!    tree, answering with errors, so that nothing is written into the folders below by
//!    mistake. In the usual case they were unmounted before and there is nothing to do.
//! 4. It ends. The next serving process waits for its lock, so that a guard never meets the
//!    mounts of a successor.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::background;
use crate::cli::GuardArgs;
use crate::data_dir::{DataDir, open_lock, open_log};
use crate::logging;
use crate::mounts;
use crate::refusal::{Outcome, Refusal};

/// How long to wait for the guard of a process that has died.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(20);
/// What a guard says when it is ready.
const READY: &str = "ready";
/// Longest line that is read from a guard.
const LINE_BYTES_MAX: u64 = 1024;

const LOCK: &str = "guard.lock";

/// A guard, as the serving process holds it. Dropping it waits for nothing.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts a guard for these mounts. Call it on the main thread, which must live as long
    /// as the mounts.
    pub(crate) fn start(data: &DataDir, points: &[PathBuf]) -> Outcome<Guard> {
        let failed = |error: &io::Error| Refusal::io("start the guard process", error);
        let mut command = background::program()?;
        command.arg("guard").arg("--data").arg(data.path());
        command.arg("--parent").arg(std::process::id().to_string());
        for point in points {
            command.arg("--mount").arg(point);
        }
        let (mut child, line) =
            background::first_line(&mut command, LINE_BYTES_MAX).map_err(|error| failed(&error))?;
        if line.trim() == READY {
            return Ok(Guard { child });
        }
        let status = child.wait().map_err(|error| failed(&error))?;
        Err(Refusal::new(
            format!("the guard process ended at once ({status})"),
            format!("{}; after a crash, wait a little and try again", logging::advice()),
        ))
    }

    /// Everything is unmounted: the guard is not needed any more.
    pub(crate) fn dismiss(mut self) {
        if let Some(pid) =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            // It may have ended by itself, which is as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        // Only a child that somebody else has waited for fails here.
        let _ = self.child.wait();
    }
}

/// Runs a guard.
pub(crate) fn run(args: &GuardArgs) -> Outcome<ExitCode> {
    let data = DataDir::at(&args.data.data)?;
    let failed = |error: io::Error| Refusal::io("guard the mounts", &error);
    background::leave_folder();
    // The terminal's signals are not for it.
    let _ = rustix::process::setsid();
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let _lock = lock(&data).map_err(failed)?;
    background::ends_with_parent(args.parent, rustix::process::Signal::USR1).map_err(failed)?;
    // From here on whoever started the serving process is not to be bothered.
    let log = open_log(&data.join("log")).map_err(failed)?;
    rustix::stdio::dup2_stderr(&log).map_err(|errno| failed(errno.into()))?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).map_err(failed)?;
    rustix::stdio::dup2_stdout(&log).map_err(|errno| failed(errno.into()))?;
    for signal in signals.forever() {
        match signal {
            SIGUSR1 if !background::is_parent(args.parent) => {
                args.mount.iter().for_each(|point| abort(point));
                break;
            }
            SIGTERM => break,
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lock(data: &DataDir) -> io::Result<File> {
    let file = open_lock(&data.join(LOCK))?;
    let deadline = Instant::now() + PREDECESSOR_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Aborts the connection of a mount of ours and leaves the mount in the tree.
fn abort(point: &Path) {
    if !mounts::is_mounted(point) {
        return;
    }
    // Held, so that the forced unmount can only abort: it finds the mount in use.
    let held = rustix::fs::open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let forced = unmount(point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
    drop(held);
    if let Err(error) = forced
        && error != rustix::io::Errno::BUSY
    {
        eprintln!("sateen: cannot abort the mount {}: {error}", point.display());
    }
}
