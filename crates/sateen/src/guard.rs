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
//! 3. It is told of each mount that is there, and of each that is over, in lines that it reads
//!    when it needs them.
//! 4. The signal comes. The process may be there still, and may be its parent still: as long as one
//!    of its threads waits in the kernel. And if that is the main thread, or if the process is to
//!    leave a core, no signal comes: so the guard also looks from time to time.
//! 5. It aborts the connections of all mounts that are not over, wherever they are by now, which
//!    leaves them in the tree, answering with errors, so that nothing is written into the folders
//!    below by mistake. In the usual case they were unmounted before and there is nothing to do.
//! 6. It ends; or before, if it is dismissed, and by no other signal, since whoever ends all
//!    processes of a group begins with it as well. The next serving process waits for its lock, so
//!    that a guard never meets the mounts of a successor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::GuardArgs;
use crate::data_dir::{DataDir, open_lock, open_log};
use crate::refusal::{Outcome, Refusal};
use crate::{background, killed, logging, mounts};

/// How long to wait for the guard of a process that has died.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(20);
/// How often it looks at the process of which no signal has come.
const LOOK: Duration = Duration::from_secs(2);
/// What a guard says when it is ready.
const READY: &str = "ready";
/// Longest line that is read from a guard.
const LINE_BYTES_MAX: u64 = 1024;
/// Most bytes that a guard reads of what it was told; the kernel keeps as many.
const TOLD_BYTES_MAX: u64 = 64 << 10;

const LOCK: &str = "guard.lock";

/// Major and minor number.
type Device = (u32, u32);

/// A guard, as the serving process holds it. Dropping it waits for nothing.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    teller: Teller,
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
        command.stdin(Stdio::piped());
        let (mut child, line) =
            background::first_line(&mut command, LINE_BYTES_MAX).map_err(|error| failed(&error))?;
        if line.trim() == READY {
            let stdin = child.stdin.take();
            if let Some(stdin) = &stdin {
                // It reads at the end only, and nobody shall wait for it.
                rustix::io::ioctl_fionbio(stdin, true).map_err(|errno| failed(&errno.into()))?;
            }
            return Ok(Guard { child, teller: Teller(Arc::new(Mutex::new(stdin))) });
        }
        let status = child.wait().map_err(|error| failed(&error))?;
        Err(Refusal::new(
            format!("the guard process ended at once ({status})"),
            format!("{}; after a crash, wait a little and try again", logging::advice()),
        ))
    }

    /// Tells it of the mount at the place with this number, which is there now.
    pub(crate) fn watch(&self, place: usize, device: Device) -> Arc<Guarded> {
        self.teller.tell(Told::Mounted(place, device));
        Arc::new(Guarded { teller: self.teller.clone(), device })
    }

    /// Everything is unmounted: the guard is not needed any more.
    pub(crate) fn dismiss(mut self) {
        self.teller.tell(Told::Dismissed);
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself, which is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
        // Only a child that somebody else has waited for fails here.
        let _ = self.child.wait();
    }
}

/// A mount that a guard was told of.
#[derive(Debug)]
pub(crate) struct Guarded {
    teller: Teller,
    device: Device,
}

impl Guarded {
    /// The mount is over: its device may soon be another's.
    pub(crate) fn over(&self) {
        self.teller.tell(Told::Over(self.device));
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.over();
    }
}

/// Where a guard is told. Nobody waits there.
#[derive(Debug, Clone)]
struct Teller(Arc<Mutex<Option<ChildStdin>>>);

impl Teller {
    fn tell(&self, told: Told) {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stdin) = stdin.as_mut()
            && let Err(error) = stdin.write_all(told.line().as_bytes())
        {
            tracing::debug!(%error, "the guard cannot be told");
        }
    }
}

/// What a guard is told, in a line each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Mounted(usize, Device),
    Over(Device),
    Dismissed,
}

impl Told {
    fn line(self) -> String {
        match self {
            Told::Mounted(place, (major, minor)) => format!("mounted {place} {major} {minor}\n"),
            Told::Over((major, minor)) => format!("over {major} {minor}\n"),
            Told::Dismissed => "dismissed\n".to_owned(),
        }
    }

    fn parse(line: &str) -> Option<Told> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let numbers: Option<Vec<u32>> = words.map(|word| word.parse().ok()).collect();
        match (what, numbers?.as_slice()) {
            ("mounted", &[place, major, minor]) => {
                Some(Told::Mounted(usize::try_from(place).ok()?, (major, minor)))
            }
            ("over", &[major, minor]) => Some(Told::Over((major, minor))),
            ("dismissed", []) => Some(Told::Dismissed),
            _ => None,
        }
    }
}

/// What a guard knows of the mounts, each at its place.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    mounts: Vec<Mount>,
    is_dismissed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mount {
    /// It may have been mounted just now.
    Untold,
    There(Device),
    Over,
}

impl Known {
    fn of(mounts: usize) -> Known {
        Known { mounts: vec![Mount::Untold; mounts], is_dismissed: false }
    }

    fn hear(&mut self, lines: &str) {
        for told in lines.lines().filter_map(Told::parse) {
            match told {
                Told::Mounted(place, device) => {
                    if let Some(mount) = self.mounts.get_mut(place) {
                        *mount = Mount::There(device);
                    }
                }
                Told::Over(device) => {
                    let over = self.mounts.iter_mut().filter(|it| **it == Mount::There(device));
                    over.for_each(|mount| *mount = Mount::Over);
                }
                Told::Dismissed => self.is_dismissed = true,
            }
        }
    }

    /// Hears all that was told until now.
    fn catch_up(&mut self) {
        let mut lines = Vec::new();
        // It ends with an error where there is no more, and nobody has closed it.
        let _ = io::stdin().take(TOLD_BYTES_MAX).read_to_end(&mut lines);
        self.hear(&String::from_utf8_lossy(&lines));
    }

    fn abort(&self, points: &[PathBuf]) {
        for (mount, point) in self.mounts.iter().zip(points) {
            let device = match *mount {
                Mount::There(device) => Some(device),
                Mount::Untold => mounts::device_of(point),
                Mount::Over => None,
            };
            if let Some(device) = device
                && let Err(error) = mounts::abort(device)
            {
                eprintln!("sateen: cannot abort the mount {}: {error}", point.display());
            }
        }
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
    rustix::io::ioctl_fionbio(io::stdin(), true).map_err(|errno| failed(errno.into()))?;
    background::ends_with_parent(args.parent, Signal::USR1).map_err(failed)?;
    look_at(args.parent).map_err(failed)?;
    // From here on whoever started the serving process is not to be bothered.
    let log = open_log(&data.join("log")).map_err(failed)?;
    rustix::stdio::dup2_stderr(&log).map_err(|errno| failed(errno.into()))?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).map_err(failed)?;
    rustix::stdio::dup2_stdout(&log).map_err(|errno| failed(errno.into()))?;
    let mut known = Known::of(args.mount.len());
    for signal in signals.forever() {
        known.catch_up();
        match signal {
            SIGUSR1 if is_lost(args.parent) => {
                known.abort(&args.mount);
                break;
            }
            SIGTERM if known.is_dismissed => break,
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the serving process has ended, or cannot but end.
fn is_lost(parent: u32) -> bool {
    !background::is_parent(parent) || killed::is_ending(parent)
}

/// Looks at the serving process from time to time, and sends the signal that the kernel has not.
fn look_at(parent: u32) -> io::Result<()> {
    let looks = move || {
        while !is_lost(parent) {
            std::thread::sleep(LOOK);
        }
        // It is this process's own.
        let _ = kill_process(rustix::process::getpid(), Signal::USR1);
    };
    std::thread::Builder::new().name("look".to_owned()).spawn(looks).map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_known() {
        let all = [
            Told::Mounted(0, (0, 57)),
            Told::Mounted(1, (0, 58)),
            Told::Mounted(9, (0, 59)),
            Told::Over((0, 57)),
            Told::Over((0, 99)),
        ];
        for told in all.into_iter().chain([Told::Dismissed]) {
            assert_eq!(Told::parse(told.line().trim_end()), Some(told));
        }
        for nonsense in ["", "mounted", "mounted 0 0", "over 0 -1", "dismissed 1", "over  0 1"] {
            assert_eq!(Told::parse(nonsense), None, "{nonsense}");
        }
        let mut known = Known::of(3);
        known.hear(&all.map(Told::line).concat());
        assert_eq!(known.mounts, [Mount::Over, Mount::There((0, 58)), Mount::Untold]);
        assert!(!known.is_dismissed);
        known.hear(&Told::Dismissed.line());
        assert!(known.is_dismissed);
    }
}
