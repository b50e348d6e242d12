//! Pitfalls of measuring, planted one by one: each is flagged in words and in JSON, and not
//! where it was not planted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::skipped;
use serde_json::Value;

use crate::rig::{Folder, children, pitfalls, text};

/// What the kernel keeps of files. Who has it dropped does so for all: alone, and not while others
/// count on what they have read or written.
static KERNEL_CACHES: RwLock<()> = RwLock::new(());

/// Until this is dropped nobody here has the kernel's caches dropped.
fn with_kernel_caches() -> RwLockReadGuard<'static, ()> {
    KERNEL_CACHES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Of some attempts one must show it: where anybody may be kept from running for seconds, others
/// are held up, too, or this test comes too late. The last one says what is wrong.
fn attempts(attempt: impl Fn() -> Result<(), String>) {
    let mut last = Ok(());
    for _ in 0..5 {
        last = attempt();
        if last.is_ok() {
            return;
        }
    }
    last.unwrap();
}

/// An attempt has failed unless this is so.
fn so(is_so: bool, what: impl std::fmt::Display) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_string()) }
}

fn json(folder: &Folder, line: &str) -> Value {
    let output = folder.run(&format!("--quiet --json {line}"));
    assert!(output.status.success(), "{line}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn has(json: &Value, code: &str, phase: Option<&str>) -> bool {
    pitfalls(json).iter().any(|one| one.0 == code && one.1.as_deref() == phase)
}

fn message(json: &Value, code: &str) -> String {
    let all = json["pitfalls"].as_array().unwrap();
    let found = all.iter().find(|one| one["code"] == code);
    found.unwrap_or_else(|| panic!("no {code}: {all:?}"))["message"].as_str().unwrap().to_owned()
}

#[test]
fn warnings_are_said_once_each_beside_the_report() {
    let folder = Folder::new();
    let output = folder.run("-np 2 --quiet ior -w -r -b 64k -t 64k -o f");
    let said = text(&output.stderr);
    assert!(said.lines().all(|line| line.starts_with("sateen-bench: warning W-")), "{said}");
    assert_eq!(said.matches("W-SHORT").count(), 1, "{said}");
    assert!(said.contains("W-SHORT") && said.contains("W-REPEATS"), "{said}");
    assert!(!text(&output.stdout).contains("W-"), "tables stay as they are");
}

#[test]
fn reading_what_memory_holds() {
    let _kept = with_kernel_caches();
    let folder = Folder::new();
    let json = json(&folder, "-np 2 ior -w -r -e -F -b 256k -t 64k -o f");
    assert!(has(&json, "W-CACHE", Some("read")), "{json}");
    let json = self::json(&folder, "-np 2 mdtest -F -n 5 -C -T -r -d x");
    assert!(has(&json, "W-CACHE", Some("File stat")), "{json}");
    assert!(!has(&json, "W-CACHE", Some("File creation")), "{json}");
    let json = self::json(&folder, "-np 2 ior -w -r -a DUMMY -b 256k -t 64k -o f");
    assert!(!pitfalls(&json).iter().any(|one| one.0 == "W-CACHE"), "no file system: {json}");
}

/// The remarks of an io500 run, by the phases whose sections they stand in.
fn remarks(folder: &Folder, line: &str) -> Vec<(String, String)> {
    folder.works(line);
    let text = std::fs::read_to_string(folder.0.join("results/T/result.txt")).unwrap();
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some(remark) = line.strip_prefix("; warning ") {
            found.push((section.clone(), remark.to_owned()));
        }
    }
    found
}

#[test]
fn io500_phases_that_read_what_their_own_node_has_written() {
    let _kept = with_kernel_caches();
    let folder = Folder::new();
    std::fs::write(folder.0.join("c.ini"), crate::io500::SMALL).unwrap();
    let cached = |line: &str| -> Vec<String> {
        let all = remarks(&folder, line).into_iter();
        all.filter(|one| one.1.starts_with("W-CACHE")).map(|one| one.0).collect()
    };
    let reads = [
        "find",
        "ior-easy-read",
        "mdtest-easy-stat",
        "ior-hard-read",
        "mdtest-hard-stat",
        "mdtest-hard-read",
        "ior-rnd4K-easy-read",
    ];
    assert_eq!(cached("-np 2 io500 c.ini --timestamp T"), reads);
    // What is dropped is not there; whether something was is the command's word.
    let dropped = "[global]\ndrop-caches = 1\ndrop-caches-cmd = true\n";
    std::fs::write(folder.0.join("c.ini"), format!("{}{dropped}", crate::io500::SMALL)).unwrap();
    let names = cached("-np 2 io500 c.ini --timestamp T");
    assert!(!names.iter().any(|name| name == "find" || name.ends_with("stat")), "{names:?}");
}

#[test]
fn io500_beside_what_another_run_has_left() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("c.ini"), crate::io500::SMALL).unwrap();
    let left = |line: &str| -> Vec<(String, String)> {
        let all = remarks(&folder, line).into_iter();
        all.filter(|one| one.1.starts_with("W-LEFTOVERS")).collect()
    };
    // What else is there is no run's.
    std::fs::create_dir_all(folder.0.join("data/lost+found")).unwrap();
    let phase = "--phase mdtest-easy-write --timestamp";
    folder.works(&format!("io500 c.ini --keep {phase} A"));
    let said = left(&format!("io500 c.ini {phase} T"));
    let wanted = "W-LEFTOVERS: data holds the files of another run, A: \
                  --cleanup --timestamp A removes them";
    assert_eq!(said, [("run".to_owned(), wanted.to_owned())]);
    folder.works("io500 c.ini --cleanup --timestamp A");
    std::fs::remove_dir_all(folder.0.join("results/T")).unwrap();
    assert_eq!(left(&format!("io500 c.ini {phase} T")), []);
}

/// A file system whose reads nothing counts; not every machine lets it be mounted.
#[test]
fn io500_where_no_counter_tells() {
    let skip = |what: &str| skipped(format_args!("{what} cannot be mounted"));
    let folder = Folder::new();
    let Some(_below) = mounted(&folder, "below", &["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
    else {
        return skip("tmpfs");
    };
    for name in ["lower", "upper", "work"] {
        std::fs::create_dir(folder.0.join("below").join(name)).unwrap();
    }
    let at = folder.0.join("below").display().to_string();
    let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
    let Some(_data) = mounted(&folder, "data", &["-t", "overlay", "-o", &options, "overlay"])
    else {
        return skip("overlay");
    };
    std::fs::write(folder.0.join("c.ini"), crate::io500::SMALL).unwrap();
    let found = remarks(&folder, "-np 2 io500 c.ini --timestamp T");
    for phase in ["ior-easy-read", "ior-hard-read", "mdtest-hard-read", "ior-rnd4K-easy-read"] {
        let own = |one: &&(String, String)| one.1.contains("each node reads what it has just");
        let one = found.iter().filter(own).find(|one| one.0 == phase);
        assert!(one.is_some_and(|one| one.1.starts_with("W-CACHE: ")), "{phase}: {found:?}");
    }
}

#[test]
fn reading_faster_than_a_node_can() {
    let folder = Folder::new();
    let fast = json(&folder, "-np 2 --node-rate 1k ior -w -r -F -b 256k -t 64k -o f");
    assert!(message(&fast, "W-FAST").contains("1024 bytes/s"), "{fast}");
    let slow = json(&folder, "-np 2 ior --node-rate 1p -w -r -F -b 256k -t 64k -o f");
    assert!(!has(&slow, "W-FAST", Some("read")), "{slow}");
}

#[test]
fn caches_are_dropped_or_it_is_said_why_not() {
    let _alone = KERNEL_CACHES.write().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let line = "-np 2 --drop-caches ior -w -r -e -F -b 256k -t 64k -o f";
    let may = std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok();
    if may {
        let text = folder.works(line);
        assert!(text.contains("caches              : dropped on each node"), "{text}");
    } else {
        assert!(folder.fails(line, 2).contains("--drop-caches: /proc/sys/vm/drop_caches"));
    }
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn dropped_caches_answer_no_read() {
    let _alone = KERNEL_CACHES.write().unwrap_or_else(PoisonError::into_inner);
    if std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_err() {
        return skipped("caches cannot be dropped here");
    }
    let Some((folder, _below)) = telling() else {
        return skipped("no file system here counts what its device delivers");
    };
    // Where others use the same device, its counter counts theirs, too.
    attempts(|| {
        let line = "ior -w -r -e -F -b 1m -t 64k -o f";
        let kept = json(&folder, &format!("-np 2 {line}"));
        so(has(&kept, "W-CACHE", Some("read")), &kept)?;
        let dropped = json(&folder, &format!("-np 2 --drop-caches {line}"));
        so(!has(&dropped, "W-CACHE", Some("read")), &dropped)
    });
}

#[test]
fn nodes_with_unequal_work() {
    let folder = Folder::new();
    let line = "ior -w -F -b 256k -t 64k -o f -O numNodes=2,numTasksOnNode0";
    let uneven = json(&folder, &format!("-np 3 {line}=2"));
    let said = message(&uneven, "W-UNEQUAL");
    assert!(said.starts_with("nodes moved between 262144 bytes and 524288 bytes"), "{said}");
    let even = json(&folder, &format!("-np 2 {line}=1"));
    assert!(!has(&even, "W-UNEQUAL", Some("write")), "{even}");
}

#[test]
fn a_rank_that_was_held_up_is_named_and_the_sum_of_ranks_flagged() {
    attempts(one_rank_is_held_up);
}

fn one_rank_is_held_up() -> Result<(), String> {
    let folder = Folder::new();
    let line = "-np 2 ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 4 -o f \
                -O summaryFormat=JSON,summaryFile=out.json";
    let mut run =
        folder.command(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let mut first = String::new();
    // It comes while ranks are working.
    said.read_line(&mut first).unwrap();
    let held = children(run.id()).into_iter().max();
    let pid = held.and_then(|held| Pid::from_raw(i32::try_from(held).unwrap()));
    // It may be over before it is stopped.
    let stopped = pid.is_some_and(|pid| kill_process(pid, Signal::STOP).is_ok());
    if let Some(pid) = pid.filter(|_| stopped) {
        std::thread::sleep(Duration::from_secs(7));
        kill_process(pid, Signal::CONT).unwrap();
    }
    assert!(run.wait().unwrap().success());
    so(first.starts_with("write 1/1: ") && stopped, &first)?;
    let out = std::fs::read_to_string(folder.0.join("out.json")).unwrap();
    let json: Value = serde_json::from_str(&out).unwrap();
    so(has(&json, "W-STRAGGLER", Some("write")), &out)?;
    so(message(&json, "W-STRAGGLER").contains("rank 1 on "), &out)?;
    so(has(&json, "W-SUM", Some("write")) && has(&json, "W-UNEQUAL", Some("write")), &out)?;
    let row = &json["tests"][0]["Results"][0];
    let value = |name: &str| row[name].as_f64().unwrap();
    so(value("sumOfRanksMiB") > value("bwMiB") * 1.1 && value("endSkew") > 2.0, row)?;
    let series = &row["seriesMiB"]["rates"];
    so(series.as_array().unwrap().len() > 8, series)
}

#[test]
fn a_rank_that_starts_late_is_named() {
    attempts(one_rank_starts_late);
}

fn one_rank_starts_late() -> Result<(), String> {
    let folder = Folder::new();
    let mut run = folder
        .command("-np 2 --quiet ior -w -a DUMMY -b 1m -t 4k -d 3 -o f")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(run.stdout.take().unwrap());
    let mut lines = out.lines().map(Result::unwrap);
    // It is said before the pause, in which both are soon then.
    assert!(lines.any(|line| line.starts_with("Results:")));
    std::thread::sleep(Duration::from_millis(500));
    let mut ranks = children(run.id());
    ranks.sort_unstable();
    let signal = |rank: usize, signal| {
        let pid = ranks.get(rank).and_then(|rank| Pid::from_raw((*rank).try_into().unwrap()));
        // It may be over already.
        pid.map(|pid| kill_process(pid, signal));
    };
    // The first is late, so that the second waits for it; and when it comes, the second is held.
    signal(0, Signal::STOP);
    std::thread::sleep(Duration::from_secs(4));
    signal(1, Signal::STOP);
    signal(0, Signal::CONT);
    std::thread::sleep(Duration::from_secs(1));
    signal(1, Signal::CONT);
    let rest: Vec<String> = lines.collect();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{rest:?}");
    let said = text(&output.stderr);
    let skew = said.lines().find(|line| line.contains(" W-SKEW: write: "));
    so(skew.is_some_and(|line| line.contains("rank 1 on ")), &said)
}

#[test]
fn too_few_repetitions_and_short_ones() {
    let folder = Folder::new();
    let twice = json(&folder, "ior -w -b 64k -t 64k -i 2 -o f");
    assert!(has(&twice, "W-REPEATS", None) && has(&twice, "W-SHORT", Some("write")), "{twice}");
    let median = twice["summary"][0]["bwMedianMIB"].as_f64().unwrap();
    assert!((median / twice["summary"][0]["bwMeanMIB"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let thrice = json(&folder, "mdtest -F -n 2 -C -r -i 3 -d x");
    assert!(!has(&thrice, "W-REPEATS", None), "{thrice}");
    let create = &thrice["summary"][0];
    assert_eq!(create["iterations"].as_array().unwrap().len(), 3);
    assert!(create["rate"]["median"].as_f64().unwrap() > 0.0);
}

/// A file system of its own, for a test.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Mounts something in a folder, if this may be done here.
fn mounted(folder: &Folder, name: &str, what: &[&str]) -> Option<Mounted> {
    let at = folder.0.join(name);
    std::fs::create_dir(&at).unwrap();
    let done = Command::new("mount").args(what).arg(&at).status();
    done.is_ok_and(|status| status.success()).then_some(Mounted(at))
}

#[test]
fn a_file_system_that_is_nearly_full() {
    let folder = Folder::new();
    let small = mounted(&folder, "small", &["-t", "tmpfs", "-o", "size=8m", "tmpfs"]);
    if small.is_none() {
        return skipped("mounting needs root");
    }
    let at = folder.0.join("small");
    let half = json(&folder, "ior -w -b 256k -t 64k -o small/f");
    assert!(!has(&half, "W-FULL", None), "{half}");
    let much = folder.run("--json ior -w -b 16m -t 64k -o small/f");
    assert!(text(&much.stderr).contains("No space left"), "{much:?}");
    std::fs::write(at.join("filled"), vec![0; 7 << 20]).unwrap();
    let full = json(&folder, "ior -w -b 256k -t 64k -o small/f");
    assert!(message(&full, "W-FULL").contains("% full"), "{full}");
    let full = json(&folder, "mdtest -F -n 2 -C -r -d small/x");
    assert!(has(&full, "W-FULL", None), "{full}");
}

#[test]
fn a_node_that_is_busy_with_something_else() {
    let folder = Folder::new();
    let over = AtomicBool::new(false);
    let cpus = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let line = "-np 2 ior -w -b 64k -t 64k -o f";
        let busy = json(&folder, line);
        let unchecked = json(&folder, &format!("--no-self-check {line}"));
        std::fs::write(folder.0.join("c.ini"), crate::io500::SMALL).unwrap();
        let io500 = remarks(&folder, "io500 c.ini --timestamp T --phase mdtest-easy-write");
        over.store(true, Ordering::Relaxed);
        assert!(message(&busy, "W-NODE").contains("% of its processors"), "{busy}");
        assert!(!has(&unchecked, "W-NODE", None), "{unchecked}");
        let run = ("run".to_owned(), "W-NODE");
        let once = io500.iter().filter(|one| one.1.starts_with(run.1) && one.0 == run.0);
        assert_eq!(once.count(), 1, "{io500:?}");
    });
}

#[test]
fn a_file_system_whose_inodes_are_nearly_used_up() {
    let folder = Folder::new();
    let options = ["-t", "tmpfs", "-o", "size=8m,nr_inodes=200", "tmpfs"];
    let Some(_few) = mounted(&folder, "few", &options) else {
        return skipped("mounting needs root");
    };
    let line = "ior -w -b 64k -t 64k -o few/f";
    assert!(!has(&json(&folder, line), "W-FULL", None));
    for name in 0..180 {
        std::fs::write(folder.0.join(format!("few/{name}")), "").unwrap();
    }
    let said = message(&json(&folder, line), "W-FULL");
    assert!(said.ends_with("% of the file system's inodes will be used"), "{said}");
}

#[test]
fn a_run_that_is_about_to_use_up_the_inodes() {
    let folder = Folder::new();
    let options = ["-t", "tmpfs", "-o", "size=8m,nr_inodes=400", "tmpfs"];
    let Some(_few) = mounted(&folder, "few", &options) else {
        return skipped("mounting needs root");
    };
    let flagged = |line: &str| {
        let json = json(&folder, &format!("-np 2 {line} -i 3 -d few/x"));
        has(&json, "W-FULL", None)
    };
    assert!(!flagged("mdtest -F -n 150"));
    assert!(flagged("mdtest -F -n 170"));
    assert!(flagged("mdtest -D -n 170"));
    assert!(flagged("mdtest -n 170"), "directories are gone before there are files");
    assert!(!flagged("mdtest -n 150"));
    // What is not removed is there of each repetition.
    assert!(flagged("mdtest -C -F -n 60"));
    assert!(has(&json(&folder, "ior -w -F -b 64k -t 64k -o few/f"), "W-FULL", None));
}

/// The program with these mounts, `FROM TO`, in a mount namespace of its own; none if that may
/// not be made here.
fn with_mounts(folder: &Folder, mounts: &[(&str, &str)], line: &str) -> Option<Command> {
    let allowed = Command::new("unshare").args(["--mount", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mounts = mounts.iter().map(|(from, to)| format!("mount --bind {from} {to} && "));
    let program = env!("CARGO_BIN_EXE_sateen-bench");
    let script = format!("{}exec {program} {line}", mounts.collect::<String>());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).current_dir(&folder.0).stdin(Stdio::null());
    Some(command)
}

#[test]
fn a_node_that_is_short_of_memory() {
    let short = "only 12 % of its memory that is not locked are free";
    let meminfo = "MemTotal:       1000 kB\nMemFree:  5 kB\nMemAvailable:   120 kB\n";
    // What memblock has taken is not missed.
    for (locked, wanted) in [("", true), ("Mlocked:       800 kB\n", false)] {
        let folder = Folder::new();
        std::fs::write(folder.0.join("meminfo"), format!("{meminfo}{locked}")).unwrap();
        let line = "--quiet --json ior -w -b 64k -t 64k -o f";
        let Some(mut command) = with_mounts(&folder, &[("meminfo", "/proc/meminfo")], line) else {
            return skipped("unshare --mount needs root");
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["pitfalls"].to_string().contains(short), wanted, "{json}");
        assert_eq!(json["pitfalls"].to_string().contains("of its memory"), wanted, "{json}");
    }
}

#[test]
fn a_link_that_has_errors_during_the_run() {
    attempts(one_link_has_errors);
}

fn one_link_has_errors() -> Result<(), String> {
    let folder = Folder::new();
    let card = folder.0.join("net/card0");
    std::fs::create_dir_all(card.join("device")).unwrap();
    std::fs::create_dir(card.join("statistics")).unwrap();
    let errors = card.join("statistics/rx_errors");
    std::fs::write(&errors, "5\n").unwrap();
    let line = "ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 4 -o f \
                -O summaryFormat=JSON,summaryFile=out.json";
    let Some(mut command) = with_mounts(&folder, &[("net", "/sys/class/net")], line) else {
        skipped("unshare --mount needs root");
        return Ok(());
    };
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let mut first = String::new();
    // It comes while ranks are working.
    said.read_line(&mut first).unwrap();
    std::fs::write(&errors, "12\n").unwrap();
    assert!(run.wait().unwrap().success());
    so(first.starts_with("write 1/1: "), &first)?;
    let out = std::fs::read_to_string(folder.0.join("out.json")).unwrap();
    let json: Value = serde_json::from_str(&out).unwrap();
    so(has(&json, "W-NODE", Some("after")), &json)?;
    so(out.contains(": 7 errors of its links or slow-downs for heat"), &out)
}

#[test]
fn what_earlier_runs_of_iozone_have_left() {
    let folder = Folder::new();
    for (files, wanted) in [
        ("-f z", "holds 2 names of earlier runs, the first is z.DUMMY.0"),
        ("-F a b", "2 files of earlier runs are there already, the first is a"),
    ] {
        let line = format!("-np 2 iozone -i 0 -r 4k -s 64k {files} -w");
        assert!(!has(&json(&folder, &line), "W-LEFTOVERS", None), "{line}");
        let said = message(&json(&folder, &line), "W-LEFTOVERS");
        assert!(said.contains(wanted), "{said}");
        let reads = json(&folder, &line.replace("-i 0", "-i 1"));
        assert!(!has(&reads, "W-LEFTOVERS", None), "they are what is read: {reads}");
    }
}

#[test]
fn what_earlier_runs_have_left() {
    let folder = Folder::new();
    let line = "-np 2 ior -w -F -b 64k -t 64k -o f";
    assert!(!has(&json(&folder, line), "W-LEFTOVERS", None));
    // More ranks than now, so that not all will be overwritten.
    folder.works("-np 4 ior -w -F -b 64k -t 64k -o f -k");
    let said = message(&json(&folder, line), "W-LEFTOVERS");
    assert!(said.contains("4 names of earlier runs, the first is f.00000000"), "{said}");
    let line = "-np 2 ior -w -F -u -b 64k -t 64k -o g";
    assert!(!has(&json(&folder, &format!("{line} -k")), "W-LEFTOVERS", None));
    let said = message(&json(&folder, line), "W-LEFTOVERS");
    assert!(said.contains(" holds g.0000000"), "in the ranks' own directories: {said}");
    let line = "mdtest -F -n 2 -C -d x";
    assert!(!has(&json(&folder, line), "W-LEFTOVERS", None));
    let said = message(&json(&folder, &format!("{line} -r")), "W-LEFTOVERS");
    assert!(said.contains("x holds test-dir.0-0 of an earlier run"), "{said}");
}

/// Has the kernel forget what it has in memory of the files in a folder.
fn forget(folder: &Folder) {
    for name in folder.all() {
        let file = std::fs::File::open(folder.0.join(name)).unwrap();
        if file.metadata().unwrap().is_file() {
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
}

#[test]
fn what_another_run_of_mdtest_or_iozone_has_left_in_memory() {
    let _kept = with_kernel_caches();
    let Some((folder, _below)) = telling() else {
        return skipped("nothing tells here what is in memory of a file");
    };
    let runs = [
        ("mdtest -F -n 5 -w 64k -e 64k -d x -C", "mdtest -F -n 5 -e 64k -d x -E", "File read"),
        ("iozone -i 0 -r 64k -s 1m -f z -w", "iozone -i 1 -r 64k -s 1m -f z -w -+n", "Readers"),
    ];
    for (writes, reads, phase) in runs {
        folder.works(&format!("-np 2 {writes}"));
        let before = |json: &Value| {
            let all = json["pitfalls"].as_array().unwrap();
            all.iter().any(|one| {
                one["message"].as_str().unwrap().contains(" had 100 % of what it reads in memory")
                    && one["phase"].as_str().unwrap().eq_ignore_ascii_case(phase)
            })
        };
        let said = json(&folder, &format!("-np 2 {reads}"));
        assert!(before(&said), "{reads}: {said}");
        forget(&folder);
        let said = json(&folder, &format!("-np 2 {reads}"));
        assert!(!said.to_string().contains("before it began"), "{reads}: {said}");
    }
}

#[test]
fn names_that_another_run_has_left_in_memory() {
    let _alone = KERNEL_CACHES.write().unwrap_or_else(PoisonError::into_inner);
    let Some((folder, _below)) = telling() else {
        return skipped("no file system here counts what its device delivers");
    };
    folder.works("-np 2 mdtest -F -n 200 -d x -C");
    let line = "mdtest -F -n 200 -d x -T";
    let said = message(&json(&folder, &format!("-np 2 {line}")), "W-CACHE");
    assert!(said.contains("looked at 400 names, and its device delivered"), "{said}");
    if std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_err() {
        return skipped("caches cannot be dropped here");
    }
    // Who uses the same device meanwhile may have the kernel fetch these blocks.
    attempts(|| {
        let cold = json(&folder, &format!("-np 2 --drop-caches {line}"));
        so(!has(&cold, "W-CACHE", Some("File stat")), &cold)
    });
}

/// A folder of which the kernel tells what is in memory of its files, and what it needs; not
/// every machine has one.
fn telling() -> Option<(Folder, Option<(Mounted, Folder)>)> {
    let folder = Folder::new();
    // Where files are memory anyway, that is what is said (TMPFS_MAGIC); an overlay hides what is
    // in memory of the files below it (OVERLAYFS_SUPER_MAGIC), and so do kernels before 6.5.
    let kind = rustix::fs::statfs(&folder.0).unwrap().f_type;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|word| word.trim().parse::<u32>().unwrap_or(0));
    if (numbers.next().unwrap(), numbers.next().unwrap_or(0)) < (6, 5) {
        return None;
    }
    if kind != 0x0102_1994 && kind != 0x794c_7630 {
        return Some((folder, None));
    }
    let image = folder.0.join("image");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    if !made.is_ok_and(|made| made.success()) {
        return None;
    }
    let mount = mounted(&folder, "ext4", &["-o", "loop", &image.display().to_string()])?;
    let top = Folder(folder.0.join("ext4"));
    std::fs::remove_dir(top.0.join("lost+found")).unwrap();
    Some((top, Some((mount, folder))))
}

#[test]
fn what_another_run_has_left_in_memory() {
    let _kept = with_kernel_caches();
    let Some((folder, _below)) = telling() else {
        return skipped("nothing tells here what is in memory of a file");
    };
    for how in ["-F", ""] {
        let with = format!("{how} -b 1m -t 64k -o f -k");
        folder.works(&format!("-np 2 ior -w {with}"));
        let said = message(&json(&folder, &format!("-np 2 ior -r {with}")), "W-CACHE");
        let wanted = " had 100 % of what it reads in memory before it began (2 MiB of the 2 MiB ";
        assert!(said.contains(wanted), "{how}: {said}");
        for moved in ["-C", "-Z"] {
            let said = message(&json(&folder, &format!("-np 2 ior -r {moved} {with}")), "W-CACHE");
            assert!(said.contains(wanted), "{how} {moved}: {said}");
        }
        let past = json(&folder, &format!("-np 2 ior -r -B {with}"));
        assert!(!past.to_string().contains("before it began"), "{past}");
        let own = json(&folder, &format!("-np 2 ior -w -r {with}"));
        assert!(!own.to_string().contains("before it began"), "{own}");
        // What the first repetition has read is nothing that was there before.
        forget(&folder);
        let cold = json(&folder, &format!("-np 2 ior -r -i 2 {with}"));
        assert!(!cold.to_string().contains("before it began"), "{how}: {cold}");
        for name in folder.all() {
            std::fs::remove_file(folder.0.join(name)).unwrap();
        }
    }
    // A file that a command has been told to drop is not opened before it is read.
    let files = crate::io500::SMALL;
    std::fs::write(folder.0.join("c.ini"), files).unwrap();
    folder.works("-np 2 io500 c.ini --phase ior-easy-write --keep --timestamp A");
    let line = "-np 2 io500 c.ini --phase ior-easy-read --files-of A --timestamp T";
    let looked = || remarks(&folder, line).iter().any(|one| one.1.contains("before it began"));
    assert!(looked());
    let dropped = format!("{files}[global]\ndrop-caches = 1\ndrop-caches-cmd = true\n");
    std::fs::write(folder.0.join("c.ini"), dropped).unwrap();
    assert!(!looked());
}
