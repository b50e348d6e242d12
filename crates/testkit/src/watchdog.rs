//! A test that hangs fails, and the others go on: what it has mounted and started is torn down
//! under it, so that its calls end with an error.
#![expect(clippy::print_stderr, reason = "what is said of a test that hangs is said to its output")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

/// Long after even a machine ten times slower has ended a test, and soon enough for the rest of
/// them to be run within their time.
const PATIENCE_MIN: u64 = 10;

/// Looks after what lies below one folder until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    _over: Sender<()>,
}

impl Watchdog {
    /// Gives what works below `folder` ten minutes, or `SATEEN_TEST_MINUTES`.
    #[must_use]
    pub fn over(folder: &Path) -> Watchdog {
        let minutes = std::env::var("SATEEN_TEST_MINUTES").ok().and_then(|text| text.parse().ok());
        Watchdog::within(folder, Duration::from_secs(60 * minutes.unwrap_or(PATIENCE_MIN)))
    }

    /// Gives it that long.
    #[must_use]
    pub fn within(folder: &Path, patience: Duration) -> Watchdog {
        let (over, is_over) = channel();
        let folder = folder.to_owned();
        std::thread::spawn(move || {
            if is_over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                tear_down(&folder, patience);
            }
        });
        Watchdog { _over: over }
    }
}

fn tear_down(folder: &Path, patience: Duration) {
    let started = started_below(folder);
    let waits: String = started.iter().copied().chain([own_pid()]).map(threads_of).collect();
    eprintln!("{}: hangs for {patience:?}, is torn down\n{waits}", folder.display());
    // A forced end ends with an error whatever waits for the mount.
    for mount in sateen_fuse::mountinfo::all().unwrap_or_default() {
        if mount.point.starts_with(folder) {
            let _ = unmount(&mount.point, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
    for pid in started {
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

/// Processes that were told of something below a folder.
fn started_below(folder: &Path) -> Vec<i32> {
    let mut below = folder.as_os_str().as_bytes().to_vec();
    below.push(b'/');
    let told = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(below.len()).any(|part| part == below)
    };
    let pids = numbers_in(Path::new("/proc"));
    pids.into_iter().filter(|pid| *pid != own_pid()).filter(told).collect()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Where each thread of a process waits in the kernel: of a test that hangs, for what.
fn threads_of(pid: i32) -> String {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let thread = |id: i32| {
        let of = |what| fs::read_to_string(tasks.join(id.to_string()).join(what));
        let (name, stack) = (of("comm").unwrap_or_default(), of("stack").unwrap_or_default());
        format!("{pid} {}:\n{stack}", name.trim_end())
    };
    numbers_in(&tasks).into_iter().map(thread).collect()
}

fn numbers_in(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
