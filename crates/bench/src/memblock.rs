//! `memblock`: takes most of a host's memory and locks it, so that what is read comes from the
//! file system and not from the page cache, and files need not be larger than memory.
//!
//! Life of a block:
//! 1. what there is (`room`): memory of the host or of the smallest control group above this
//!    process, and what of it can be had; more than leaves a reserve is refused before anything
//!    is taken, and so is what may not be locked (RLIMIT_MEMLOCK);
//! 2. should memory run short all the same, the kernel is told to end this process first;
//! 3. memory is taken piece by piece (`block`), looking each time whether others have taken it, and
//!    the kernel is asked whether all of it is there and locked;
//! 4. it is held until a signal comes, or while a command runs;
//! 5. it is the process's own memory, and so is free again however the process ends.

mod block;
mod room;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use clap::Args;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::block::Block;
use self::room::Room;
use crate::error::{EXIT_FAILED, Error, Result};
use crate::size;

/// The bit of CAP_IPC_LOCK, which lifts the limit on locked memory.
const CAP_IPC_LOCK: u32 = 14;
/// Where a process says how gladly the kernel may end it when memory runs short; its children
/// begin with the same.
const SCORE: &str = "/proc/self/oom_score_adj";
/// Before all others: then the machine has its memory back.
const ENDED_FIRST: &str = "1000";

/// How much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// So many percent of all there is.
    Percent(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Share {
    /// `90%`, or `6g`.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return match size::parse(text)? {
                0 => Err("nothing would be taken".into()),
                bytes => Ok(Self::Bytes(bytes)),
            };
        };
        match number.trim().parse() {
            Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
            _ => Err(format!("{text} is no share, such as 90%")),
        }
    }

    fn of(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => total / 100 * percent,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Takes most of this host's memory and locks it, so that caches cannot flatter what is measured.
#[derive(Debug, Clone, Args)]
pub struct Memblock {
    /// How much: a share of all memory (90%), or bytes (6g) [default: 90%].
    #[arg(value_name = "SHARE", value_parser = Share::parse, conflicts_with = "memory")]
    share: Option<Share>,
    /// The same as an option.
    #[arg(short = 'm', long, value_name = "SHARE", value_parser = Share::parse)]
    memory: Option<Share>,
    /// Held while this runs, and its exit code is that of all; else until a signal comes.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Memblock {
    /// Takes it, holds it and lets it go; the exit code.
    pub fn run(&self, quiet: bool) -> Result<u8> {
        let room = Room::look()?;
        let share = self.share.or(self.memory).unwrap_or(Share::Percent(90));
        let bytes = share.of(room.total);
        room.check(bytes)?;
        may_lock(bytes)?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])
            .map_err(|error| Error::system("handle signals", error))?;
        let usual = fs::read_to_string(SCORE).unwrap_or_default();
        score(ENDED_FIRST);
        let block =
            Block::take(bytes, || match signals.pending().find(|signal| *signal != SIGCHLD) {
                Some(_) => Err(Error::Stopped),
                None => Room::look()?.still_has(),
            })?;
        if !quiet {
            let left = Room::look()?.available;
            eprintln!(
                "sateen-bench: {} of {} are locked, {} are left{}",
                size::human(block.bytes()),
                size::human(room.total),
                size::human(left),
                if self.command.is_empty() { "; a signal (Ctrl-C) lets them go" } else { "" }
            );
        }
        match self.command.split_first() {
            None => {
                signals.wait_for_end();
                Ok(0)
            }
            Some((program, args)) => {
                // What runs is not what should be ended first.
                score(&usual);
                let child = Command::new(program).args(args).spawn();
                score(ENDED_FIRST);
                let what = format!("start {}", program.display());
                let mut child = child.map_err(|error| Error::system(&what, error))?;
                watch(&mut child, &mut signals)
            }
        }
    }
}

/// Waiting for a signal that ends.
trait WaitForEnd {
    fn wait_for_end(&mut self);
}

impl WaitForEnd for Signals {
    fn wait_for_end(&mut self) {
        while !self.wait().any(|signal| signal != SIGCHLD) {}
    }
}

/// Waits for the command and passes signals on to it; its exit code.
fn watch(child: &mut Child, signals: &mut Signals) -> Result<u8> {
    loop {
        let ended = child.try_wait();
        if let Some(status) = ended.map_err(|error| Error::system("wait for the command", error))? {
            return Ok(code(status));
        }
        for signal in signals.wait() {
            // From a terminal it has come to the command already; then a second one does no harm.
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let which = match signal {
                SIGINT => Signal::INT,
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            if let Some(pid) = pid {
                // It may have ended just now.
                let _ = kill_process(pid, which);
            }
        }
    }
}

/// An exit code as a shell gives it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED)
}

/// Says how gladly the kernel may end this process when memory runs short.
fn score(score: &str) {
    // Where it cannot be said, the kernel chooses as it does for others: mostly the largest.
    let _ = fs::write(SCORE, score.trim());
}

/// Whether so much may be locked; raises the limit as far as this process may.
fn may_lock(bytes: u64) -> Result<()> {
    let wanted = block::in_pages(bytes);
    if has_ipc_lock() {
        return Ok(());
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if enough(current) {
        return Ok(());
    }
    if enough(maximum) && setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }).is_ok()
    {
        return Ok(());
    }
    let limit = maximum.or(current).map_or_else(|| "unknown".to_owned(), size::human);
    Err(Error::Failed(format!(
        "{} may not be locked: the limit on locked memory is {limit}; raise it (ulimit -l, \
         memlock in /etc/security/limits.conf, LimitMEMLOCK= of a unit), or run this as root",
        size::human(bytes)
    )))
}

fn has_ipc_lock() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_all_or_in_bytes() {
        assert_eq!(Share::parse("90%"), Ok(Share::Percent(90)));
        assert_eq!(Share::parse("90%").unwrap().of(64 << 30), (64 << 30) / 100 * 90);
        assert_eq!(Share::parse("6g").unwrap().of(64 << 30), 6 << 30);
        for bad in ["", "0%", "101%", "%", "-5%", "1.5%", "x", "0"] {
            assert!(Share::parse(bad).is_err(), "{bad}");
        }
    }
}
