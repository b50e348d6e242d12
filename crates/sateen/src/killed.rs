//! Serving processes that were killed and do not end: one of their threads waits in the kernel for
//! an answer that only they could give, and keeps the FUSE connection open. Whoever waits for an
//! answer of theirs, or asks for one, waits for ever, until somebody else aborts the connection.
//!
//! The guard does that as soon as it happens. Whoever comes later, to mount or to unmount, does it
//! if there is no guard any more, because that was killed as well.

use crate::data_dir::{DataDir, User};
use crate::mounts;
use crate::state::State;

/// Bits of the flags that the kernel shows of a thread (`PF_EXITING`, `PF_POSTCOREDUMP`,
/// `PF_DUMPCORE` and `PF_SIGNALED`): it comes back from the kernel no more.
const FLAGS_AT_THE_END: u64 = 0x4 | 0x8 | 0x200 | 0x400;
/// SIGKILL among the signals that wait for a thread.
const KILL: u64 = 1 << 8;

/// Whether a process is about to end: its main thread has ended, or was told to by SIGKILL, or the
/// process dumps core. Its other threads may still be there. Of one that cannot be looked at nothing is
/// known: it may be in another PID namespace, and well.
pub(crate) fn is_ending(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_at_the_end(&stat))
}

/// The same, by what the kernel shows of the main thread.
fn is_at_the_end(stat: &str) -> bool {
    // The name may hold anything, parentheses among it.
    let Some((_, shown)) = stat.rsplit_once(')') else { return false };
    let words: Vec<&str> = shown.split_whitespace().collect();
    let has = |place: usize, bits: u64| {
        let number = words.get(place).and_then(|word| word.parse::<u64>().ok());
        number.is_some_and(|number| number & bits != 0)
    };
    matches!(words.first(), Some(&("Z" | "X" | "x"))) || has(6, FLAGS_AT_THE_END) || has(28, KILL)
}

/// Aborts the mounts of the process that holds this folder, if it was killed and does not end.
pub(crate) fn free_mounts(data: &DataDir) {
    let Some(state) = State::load(data) else { return };
    let holds = matches!(data.user(), Ok(User::Process(Some(pid))) if pid == state.pid);
    if !holds || !is_ending(state.pid) {
        return;
    }
    for point in &state.mounts {
        let Some(device) = mounts::device_of(point) else { continue };
        match mounts::abort(device) {
            Ok(()) => eprintln!("{}: aborted, its process was killed", point.display()),
            Err(error) => eprintln!("cannot abort the mount {}: {error}", point.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ending_is_known_by_its_main_thread() {
        let stat = |state: &str, flags: u32, pending: u32| {
            let zeros = "0 ".repeat(21);
            format!("7 (a) Z (b) {state} 1 7 7 0 -1 {flags} {zeros}{pending} 0 0\n")
        };
        assert!(!is_at_the_end(&stat("S", 0x0040_0000, 0)));
        assert!(!is_at_the_end(&stat("D", 0x0040_0100, 1 << 14)));
        assert!(is_at_the_end(&stat("Z", 0x0040_0000, 0)));
        assert!(is_at_the_end(&stat("R", 0x0040_0004, 0)));
        // It waits in the kernel itself.
        assert!(is_at_the_end(&stat("D", 0x0040_0000, 1 << 8)));
        // It waits for a thread that is to be in its core.
        assert!(is_at_the_end(&stat("D", 0x0040_0008, 0)));
        assert!(!is_at_the_end("") && !is_at_the_end("7 (a"));
    }

    #[test]
    fn processes_are_looked_at() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !is_ending(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        // As one of another PID namespace.
        assert!(!is_ending(child.id()));
    }
}
