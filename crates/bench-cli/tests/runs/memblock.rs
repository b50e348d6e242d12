//! Memory that is blocked, held and let go.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Folder, runs, text, until};

/// KiB of a process that are in memory and locked.
fn locked(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = maps.lines().find_map(|line| line.strip_prefix("Locked:"));
    line.map_or(0, |text| text.trim().trim_end_matches(" kB").parse().unwrap())
}

/// Whether this process may lock some MiB.
fn may_lock() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
    let may = rustix::process::geteuid().is_root() || limit.is_none_or(|limit| limit > 64 << 20);
    if !may {
        sateen_testkit::skipped("memory cannot be locked");
    }
    may
}

#[test]
fn memory_is_held_until_a_signal_comes() {
    if !may_lock() {
        return;
    }
    let folder = Folder::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let child = folder.command("memblock 20m").stderr(Stdio::piped()).spawn().unwrap();
        until("the block", || locked(child.id()) >= 20 << 10);
        let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id()));
        assert_eq!(score.unwrap().trim(), "1000", "it is ended first if memory runs short");
        let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        // The block is there a moment before it waits; then the signal ends it all the same.
        kill_process(pid, signal).unwrap();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        match signal {
            // Nothing can be done then, and nothing has to be.
            Signal::KILL => assert_eq!(output.status.signal(), Some(9), "{output:?}"),
            _ => assert!(output.status.success() && said.contains("20 MiB of "), "{output:?}"),
        }
        assert!(!runs(id) && locked(id) == 0);
    }
}

#[test]
fn memory_is_held_while_a_command_runs() {
    if !may_lock() {
        return;
    }
    let folder = Folder::new();
    let usual = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let mut command = folder.command("--quiet memblock -m 20m --");
    let script = "grep ^Locked: /proc/$PPID/smaps_rollup; cat /proc/self/oom_score_adj; exit 7";
    command.args(["sh", "-c", script]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said = text(&output.stdout);
    let kib: u64 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib >= 20 << 10, "{said}");
    assert_eq!(said.lines().nth(1), Some(usual.trim()), "the command is not ended first");
    assert_eq!(text(&output.stderr), "");

    let mut command = folder.command("memblock 20m -- sleep 600");
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    // Not before it is itself: until then it would take the signal as who has started it does.
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let commands = || crate::rig::children(child.id());
    until("the command", || commands().first().is_some_and(|pid| name(*pid) == "sleep\n"));
    let sleep = commands()[0];
    kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "the command's end is its own");
    assert!(!runs(sleep));
    let said = folder.fails("memblock 20m -- no-such-program", 1);
    assert!(said.contains("start no-such-program: No such file"), "{said}");
}

#[test]
fn too_much_is_refused_before_anything_is_taken() {
    let folder = Folder::new();
    for line in ["memblock 100%", "memblock 900t", "memblock 99%"] {
        let said = folder.fails(line, 2);
        assert!(said.contains("would be too much") && said.contains("at most"), "{line}: {said}");
    }
    for line in ["memblock 0%", "memblock 101%", "memblock 1x", "memblock 5% -m 5%"] {
        folder.fails(line, 2);
    }
    assert!(folder.fails("-np 2 memblock 20m", 2).contains("this command works alone"));
}

#[test]
fn a_limit_on_locked_memory_is_said() {
    let folder = Folder::new();
    let mut program = vec!["prlimit".to_owned(), "--memlock=1048576:1048576".to_owned()];
    if rustix::process::geteuid().is_root() {
        // Root may lock everything, unless it has given that up.
        program.extend(["setpriv", "--bounding-set=-ipc_lock,-sys_resource"].map(str::to_owned));
    }
    program.push(env!("CARGO_BIN_EXE_sateen-bench").to_owned());
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(["memblock", "20m"]).current_dir(&folder.0);
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("20 MiB may not be locked: the limit on locked memory is 1 MiB"),
        "{said}"
    );
}
