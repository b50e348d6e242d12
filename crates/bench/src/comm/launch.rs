//! `-np N`: starts N copies of this program, and ends all of them when one is lost.
//!
//! Life of a run:
//! 1. shared memory is made, which is every rank's standard input;
//! 2. the copies are started with the same arguments, each in a process group of its own, so
//!    that the terminal's Ctrl-C comes to the launcher alone;
//! 3. the launcher sleeps until a child or a signal calls it: it takes no time from the ranks;
//! 4. a rank that fails says why through the memory; of one that vanishes the launcher says so.
//!    Either way the others find the order to stop, clean up and leave;
//! 5. whoever is still there after a while is killed.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::board::{Board, within};
use super::local::VARIABLE;
use crate::error::{EXIT_FAILED, EXIT_USAGE, EXIT_WRONG_DATA, Error, Result};

/// How long ranks may take to clean up after the order to stop.
const GRACE: Duration = Duration::from_secs(30);
/// How long those that were killed may take to end. One that waits in a call of a file system
/// which does not answer (state D) takes no signal until it does.
const KILLED: Duration = Duration::from_secs(5);

/// A rank's process.
struct Rank {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Rank {
    /// Whether it has ended; asked without waiting.
    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            // An error means that there is no such child.
            self.ended = self.child.try_wait().unwrap_or(Some(ExitStatus::from_raw(1 << 8)));
        }
        self.ended.is_some()
    }
}

/// Runs `size` copies of this program with the same arguments; the exit code of all.
pub fn launch(size: usize, args: &[OsString]) -> Result<u8> {
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Error::system("handle signals", error))?;
    let memory = memfd_create("sateen-bench", MemfdFlags::CLOEXEC)
        .map_err(|error| Error::system("make memory for the ranks", error))?;
    ftruncate(&memory, Board::bytes(size) as u64)
        .map_err(|error| Error::system("make memory for the ranks", error))?;
    let board = Board::map(&memory, size)
        .map_err(|error| Error::system("map the memory of the ranks", error))?;

    let program = std::env::current_exe().map_err(|error| Error::system("find myself", error))?;
    let mut ranks = Vec::with_capacity(size);
    for rank in 0..size {
        let input = memory.try_clone().map_err(|error| Error::system("start a rank", error))?;
        let mut command = Command::new(&program);
        if let Some((name, rest)) = args.split_first() {
            command.arg0(name).args(rest);
        }
        command.env(VARIABLE, format!("{rank}:{size}:{}", std::process::id()));
        match command.stdin(Stdio::from(input)).process_group(0).spawn() {
            Ok(child) => ranks.push(Rank { child, ended: None }),
            Err(error) => {
                board.stop("the ranks could not be started");
                end(&mut ranks);
                return Err(Error::system("start a rank", error));
            }
        }
    }
    let signal = watch(&board, &mut ranks, &mut signals);
    end(&mut ranks);
    Ok(conclude(&board, &ranks, signal))
}

/// How a rank was lost that ended in this way; not if all of them end so.
fn lost(status: ExitStatus) -> Option<String> {
    if let Some(signal) = status.signal() {
        return Some(format!("was killed by signal {signal}"));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED);
    let agreed = [0, EXIT_USAGE, EXIT_WRONG_DATA].contains(&code);
    (!agreed).then(|| format!("ended with exit code {code}"))
}

/// Waits until all have ended, or are ordered to. The signal that ordered it, if one did.
fn watch(board: &Board, ranks: &mut [Rank], signals: &mut Signals) -> Option<i32> {
    loop {
        let mut running = false;
        for (number, rank) in ranks.iter_mut().enumerate() {
            running |= !rank.has_ended();
            if let Some(how) = rank.ended.and_then(lost).filter(|_| !board.is_stopped()) {
                let pid = rank.child.id();
                let who = format!("rank {number} (process {pid})");
                board.stop(&format!("{who} {how}; the other ranks were ended"));
            }
        }
        if !running || board.is_stopped() {
            return None;
        }
        for signal in signals.wait() {
            if signal != SIGCHLD {
                board.stop("interrupted; the ranks were ended");
                return Some(signal);
            }
        }
    }
}

/// Gives those that run the time to leave, and kills who does not; whoever does not end even
/// then is named and left behind.
fn end(ranks: &mut [Rank]) {
    if all_end(ranks, GRACE) {
        return;
    }
    for rank in ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
        // It may have ended just now.
        let _ = rank.child.kill();
    }
    if !all_end(ranks, KILLED) {
        for (number, rank) in ranks.iter().enumerate().filter(|(_, rank)| rank.ended.is_none()) {
            eprintln!("sateen-bench: {}", left_behind(number, rank.child.id()));
        }
    }
}

/// Whether all of them end within a time.
fn all_end(ranks: &mut [Rank], limit: Duration) -> bool {
    // All are asked each time: of those that have ended nobody is to be left out.
    within(limit, || {
        ranks.iter_mut().filter_map(|rank| (!rank.has_ended()).then_some(())).count() == 0
    })
}

/// What is said of a rank that outlives being killed, with what the system says of it.
fn left_behind(number: usize, pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything, brackets and spaces as well.
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    let state = state.map_or(String::new(), |state| format!(", state {state}"));
    format!(
        "rank {number} (process {pid}{state}) was killed and does not end: it waits for a file \
         system that does not answer, and was left behind"
    )
}

/// Says what went wrong, and what the exit code is.
fn conclude(board: &Board, ranks: &[Rank], signal: Option<i32>) -> u8 {
    if let Some(why) = board.reason() {
        eprintln!("sateen-bench: {why}");
    }
    if let Some(code) = signal.and_then(|signal| u8::try_from(128 + signal).ok()) {
        return code;
    }
    let code = |rank: &Rank| match rank.ended.and_then(|status| status.code()) {
        Some(code) => u8::try_from(code).unwrap_or(EXIT_FAILED),
        None => EXIT_FAILED,
    };
    ranks.iter().map(code).max().unwrap_or(EXIT_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that a test which fails does not leave behind.
    struct Sleeps([Rank; 1]);

    impl Drop for Sleeps {
        fn drop(&mut self) {
            let [rank] = &mut self.0;
            // It may have ended already.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }

    #[test]
    fn who_does_not_end_is_named_with_its_state() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let mut sleeps = Sleeps([Rank { child, ended: None }]);
        assert!(!all_end(&mut sleeps.0, Duration::from_millis(30)), "nobody has ended it");
        let wanted = format!("rank 3 (process {pid}, state S) was killed and does not end");
        // On a busy machine it takes its time to begin, and then to sleep.
        let named = within(Duration::from_secs(60), || left_behind(3, pid).starts_with(&wanted));
        assert!(named, "{}", left_behind(3, pid));
        sleeps.0[0].child.kill().unwrap();
        assert!(all_end(&mut sleeps.0, Duration::from_secs(60)));
        let child = Command::new("true").spawn().unwrap();
        let mut ranks = [Rank { child, ended: None }];
        end(&mut ranks);
        assert!(ranks[0].ended.unwrap().success());
    }
}
