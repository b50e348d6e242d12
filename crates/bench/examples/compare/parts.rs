//! Where the processors' time of a row goes: samples of all processors, sorted by what they were doing.
//!
//! `perf record` looks at every processor some thousand times a second while a step runs, and what it
//! finds on each stack counts for one part: the first of [`KERNEL`] that any of its frames belongs to,
//! else the crate of the innermost frame that is Sateen's. So what the kernel does for a part of ours
//! counts as the kernel's part, and a part is never counted twice.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::systems::System;

/// Samples of each processor in a second. No divisor of what goes by the millisecond.
pub(crate) const HERTZ: u32 = 4999;

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Who {
    /// Those that ask.
    Programs,
    /// The process behind the mount, where servers are others.
    Client,
    /// The servers, or the one process that is the whole file system.
    Servers,
    /// The kernel's own threads, for everybody.
    Kernel,
    /// Whoever else there is.
    Others,
    /// Nobody's: a processor had nothing to do.
    Idle,
}

/// Part of the time of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) who: Who,
    pub(crate) what: String,
    /// Microseconds of a processor for an operation.
    pub(crate) us: f64,
}

/// What the kernel does, by functions whose names begin so; the first that is met counts. Who waits in
/// `fsync` for a disk sleeps; so going to sleep and waking stand before what one sleeps for.
const KERNEL: [(&str, &[&str]); 7] = [
    (
        "going to sleep",
        &[
            "schedule",
            "do_nanosleep",
            "futex_wait",
            "io_cqring_wait",
            "io_schedule",
            "do_sched_yield",
        ],
    ),
    (
        "waking others",
        &[
            "try_to_wake_up",
            "wake_up",
            "__wake_up",
            "eventfd_",
            "futex_wake",
            "ttwu_",
            "sched_ttwu",
        ],
    ),
    ("network", &["tcp_", "inet_", "sock_", "__sock_", "net_rx_", "ip_", "__napi_poll"]),
    ("page faults", &["exc_page_fault", "asm_exc_page_fault", "do_user_addr_fault"]),
    (
        "disk, its file system, page cache",
        &[
            "ext4_",
            "jbd2_",
            "iomap_",
            "blk_",
            "submit_bio",
            "loop_",
            "lo_",
            "vfs_fsync",
            "vfs_fallocate",
            "shmem_",
            "generic_file_read",
            "filemap_read",
            "generic_perform_write",
            "btrfs_",
            "xfs_",
        ],
    ),
    ("FUSE in the kernel", &["fuse_", "io_uring_", "__do_sys_io_uring", "io_submit_", "io_uring"]),
    (
        "names and calls",
        &["path_", "do_sys_open", "vfs_", "do_filp_open", "filename_", "__x64_sys_", "ksys_"],
    ),
];

/// User space by innermost functions whose names begin so.
const USER: [(&str, &[&str]); 2] = [
    ("copies", &["__memmove", "__memcpy", "__memset", "memcpy", "memmove", "memset"]),
    (
        "allocation",
        &["mi_", "_mi_", "malloc", "_int_malloc", "cfree", "_int_free", "realloc", "calloc"],
    ),
];
const SUMS: &str = "checksums";
const KERNEL_REST: &str = "kernel, rest";
const USER_REST: &str = "programs and libraries";

/// What `perf` is called with, before the program.
pub(crate) fn recording(into: &Path) -> Vec<OsString> {
    let words = format!("record -q -a -g -e cpu-clock -F {HERTZ} -o");
    let words = words.split(' ').map(OsString::from);
    words.chain([into.into(), "--".into()]).collect()
}

/// The parts of so many operations that were recorded.
pub(crate) fn recorded(
    file: &Path,
    operations: u64,
    system: &System,
    all: &[System],
) -> Result<Vec<Part>> {
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "comm,pid,ip,sym", "-i"]).arg(file);
    let output = script.output().context("perf")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "perf script {}: {errors}", file.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let known = |one: &System, pid| one.servers.contains(&pid) || one.client.contains(&pid);
    let who = |comm: &str, pid: u32| {
        if pid == 0 {
            Who::Idle
        } else if system.client.contains(&pid) {
            Who::Client
        } else if system.servers.contains(&pid) {
            Who::Servers
        } else if comm.starts_with("perf") || all.iter().any(|one| known(one, pid)) {
            Who::Others
        } else {
            unknown(pid, system)
        }
    };
    Ok(sorted(&text, operations, who))
}

/// Whose time it is of a process that nobody has named. Programs that ask have ended by now; the kernel's
/// threads do not end, and have no command line; a further mount has its place there.
fn unknown(pid: u32, system: &System) -> Who {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return Who::Programs };
    let line = String::from_utf8_lossy(&line);
    let is_mount = |place: &PathBuf| line.contains(&*place.to_string_lossy());
    match line.is_empty() {
        true => Who::Kernel,
        false if system.others.iter().any(is_mount) => Who::Client,
        false => Who::Others,
    }
}

/// Sorts what `perf script` says.
fn sorted(text: &str, operations: u64, who: impl Fn(&str, u32) -> Who) -> Vec<Part> {
    let mut counts: BTreeMap<(Who, &str), u64> = BTreeMap::new();
    for sample in text.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some((comm, pid)) = lines.next().and_then(|line| line.trim().rsplit_once(' ')) else {
            continue;
        };
        let Ok(pid) = pid.parse() else { continue };
        let frames: Vec<(&str, &str)> =
            lines.filter_map(|line| line.trim().split_once(' ')).collect();
        let (who, part) = (who(comm.trim(), pid), part_of(&frames));
        // What a processor does in an interrupt while it has nothing to do is no rest.
        let is_rest = who == Who::Idle && !frames.iter().any(|(_, name)| is_interrupt(name));
        let key = match who {
            Who::Idle if !is_rest => (Who::Kernel, part),
            Who::Idle => (Who::Idle, "idle"),
            who => (who, part),
        };
        *counts.entry(key).or_default() += 1;
    }
    let us = 1e6 / f64::from(HERTZ) / operations.max(1) as f64;
    let part = |((who, what), count)| Part { who, what: String::from(what), us: count as f64 * us };
    counts.into_iter().map(part).collect()
}

/// Softirqs: the network's and timers' work. The interrupt that takes the sample itself is none.
fn is_interrupt(name: &str) -> bool {
    name.starts_with("handle_softirqs") || name.starts_with("__do_softirq")
}

/// The part that a stack belongs to, innermost frame first: addresses and functions.
fn part_of<'a>(frames: &[(&str, &'a str)]) -> &'a str {
    let begins = |name: &str, all: &[&str]| all.iter().any(|one| name.starts_with(one));
    for (part, functions) in KERNEL {
        if frames.iter().any(|(at, name)| is_kernel(at) && begins(name, functions)) {
            return part;
        }
    }
    let Some((at, innermost)) = frames.first() else { return KERNEL_REST };
    if is_kernel(at) {
        return KERNEL_REST;
    }
    for (part, functions) in USER {
        if begins(innermost, functions) {
            return part;
        }
    }
    if innermost.contains("xxh") || innermost.contains("crc32") {
        return SUMS;
    }
    // `<sateen_mdt::Mdt as …>::handle`, `sateen_client::open`.
    let of = |name: &'a str| {
        let (_, rest) = name.split_once("sateen_")?;
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (start, end) =
            (name.len() - rest.len() - "sateen_".len(), name.len() - rest.len() + len);
        name.get(start..end)
    };
    frames.iter().find_map(|(_, name)| of(name)).unwrap_or(USER_REST)
}

/// Addresses of the kernel are in the upper half.
fn is_kernel(address: &str) -> bool {
    address.len() == 16 && address.starts_with('f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
sateen-bench  100 \n\tffffffff8100 schedule\n\tffffffff81000001 schedule\n\tffffffff81000002 fuse_request_wait\n\n\
fuse 3  200 \n\t    5555000000000010 __memmove_avx_unaligned_erms\n\t    5555000000000020 <sateen_mdt::Mdt as X>::step\n\n\
fuse 3  200 \n\t    5555000000000010 <alloc::vec::Vec<T> as Y>::clone\n\t    5555000000000020 <sateen_mdt::Mdt as X>::step\n\n\
swapper  0 \n\tffffffff81000003 pv_native_safe_halt\n\n\
swapper  0 \n\tffffffff81000003 tcp_v4_rcv\n\tffffffff81000004 handle_softirqs\n\n";

    #[test]
    fn a_sample_counts_once_and_for_the_first_part() {
        let who = |_: &str, pid| match pid {
            0 => Who::Idle,
            200 => Who::Servers,
            _ => Who::Programs,
        };
        let parts = sorted(SCRIPT, 2, who);
        let each = 1e6 / f64::from(HERTZ) / 2.0;
        let found: Vec<(Who, &str)> =
            parts.iter().map(|one| (one.who, one.what.as_str())).collect();
        let wanted = [
            (Who::Programs, "going to sleep"),
            (Who::Servers, "copies"),
            (Who::Servers, "sateen_mdt"),
            (Who::Kernel, "network"),
            (Who::Idle, "idle"),
        ];
        assert_eq!(found, wanted);
        assert!(parts.iter().all(|one| (one.us - each).abs() < 1e-9), "{parts:?}");
    }
}
