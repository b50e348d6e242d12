//! `make demo` ends as promised and cleans up after itself, also when it is interrupted or fails:
//! the script itself, small, in a folder of the test's, with the program that the tests have.
//!
//! Interrupted means a SIGINT to its process group, which is what a terminal sends.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sateen_testkit::can_mount;

const BINARY: &str = env!("CARGO_BIN_EXE_sateen");
/// Longest time until a headline, and until all is cleaned up: 300 s.
const LONGEST: Duration = Duration::from_secs(300);
/// A demo goes on while nobody looks: one that was met too late is tried so often.
const TRIES: u32 = 5;

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("sateen-demo-{name}-{}", std::process::id()));
    fs::create_dir(&path).unwrap();
    path
}

/// A demo that runs.
struct Demo {
    script: Child,
    scratch: PathBuf,
}

impl Demo {
    fn start(name: &str) -> Demo {
        Demo::start_in(scratch(name), Path::new(BINARY).parent().unwrap())
    }

    fn start_in(scratch: PathBuf, programs: &Path) -> Demo {
        let said = File::create(scratch.join("said")).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // Who runs the tests in the background has them ignore SIGINT, and all that they start.
        let script = Command::new("env")
            .args(["--default-signal=INT", "bash"])
            .arg(root.join("scripts/demo.sh"))
            .env("DEMO_FOLDER", scratch.join("demo"))
            .env("DEMO_PROGRAMS", programs)
            .envs([("DEMO_MIB", "16"), ("DEMO_FILES", "200"), ("DEMO_STONEWALL", "1")])
            .env("DEMO_TREE", "small")
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .process_group(0)
            .spawn()
            .unwrap();
        Demo { script, scratch }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.scratch.join("said")).unwrap()).into_owned()
    }

    /// Waits until it has printed this.
    fn wait_for(&mut self, words: &str) {
        let begun = Instant::now();
        while !self.said().contains(words) {
            let ended = self.script.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?} before {words:?}:\n{}", self.said());
            assert!(begun.elapsed() < LONGEST, "no {words:?}:\n{}", self.said());
            sleep(Duration::from_millis(5));
        }
    }

    fn interrupt(&self) {
        kill_process_group(Pid::from_child(&self.script), Signal::INT).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.script.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < LONGEST, "it does not end:\n{}", self.said());
            sleep(Duration::from_millis(20));
        }
    }

    /// Nothing is left of it but what it said.
    fn is_gone(&self) {
        let demo = self.scratch.join("demo");
        let below = format!("{}/", demo.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounted: Vec<&str> = mounts.lines().filter(|line| line.contains(&below)).collect();
        assert!(mounted.is_empty(), "{mounted:?}\n{}", self.said());
        // One that was killed may take a moment to end.
        let begun = Instant::now();
        let mut running = processes(&below);
        while !running.is_empty() && begun.elapsed() < GONE_WITHIN {
            sleep(Duration::from_millis(50));
            running = processes(&below);
        }
        assert!(running.is_empty(), "{running:?}\n{}", self.said());
        assert!(!demo.exists(), "{below} is there\n{}", self.said());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Only a test that fails leaves anything to end, and mounts to whoever runs the tests.
        let _ = kill_process_group(Pid::from_child(&self.script), Signal::KILL);
        let _ = self.script.wait();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.scratch);
        }
    }
}

/// What was killed has ended by then.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// Processes that were given a path below a folder, with their arguments.
fn processes(below: &str) -> Vec<(Pid, String)> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids = numbers.filter_map(Pid::from_raw);
    pids.filter_map(|pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(below).then_some((pid, line))
    })
    .collect()
}

fn interrupted(name: &str, headline: &str, after: Duration) {
    if !can_mount() {
        return;
    }
    for _ in 0..TRIES {
        let mut demo = Demo::start(name);
        demo.wait_for(headline);
        sleep(after);
        demo.interrupt();
        let status = demo.end();
        if status.success() && demo.said().contains("\n== done in ") {
            // It was over before it was interrupted.
            continue;
        }
        assert_eq!(status.code(), Some(130), "{:?}\n{}", status.signal(), demo.said());
        assert!(demo.said().contains("cleaned up: "), "{}", demo.said());
        demo.is_gone();
        return;
    }
    panic!("{name}: {TRIES} demos were over before they were interrupted");
}

/// It ends with a short io500, and with the report of it, which stays.
#[test]
fn runs_to_its_end() {
    if !can_mount() {
        return;
    }
    let mut demo = Demo::start("end");
    let status = demo.end();
    let said = demo.said();
    assert!(status.success(), "{status}\n{said}");
    let (_, io500) = said.split_once("\n== a short io500: 1 s of writing").unwrap();
    let results = io500.lines().filter(|line| line.trim_start().starts_with("[RESULT]"));
    assert_eq!(results.count(), 12, "each phase that has a score:\n{said}");
    let score = io500.lines().find(|line| line.trim_start().starts_with("[SCORE ]")).unwrap();
    let total = score.split(" : TOTAL ").nth(1).and_then(|rest| rest.split_whitespace().next());
    assert!(total.unwrap().parse::<f64>().unwrap() > 0.0, "{score}");
    let (_, end) = said.split_once("\n== done in ").expect(&said);
    let report = end.lines().find_map(|line| line.trim().strip_prefix("the report of io500: "));
    let report = PathBuf::from(report.expect(&said));
    assert_eq!(report, demo.scratch.join("demo-report.html"));
    let page = fs::read_to_string(report).unwrap();
    assert!(page.contains("A short io500 in the demo") && page.contains("<svg"), "{page}");
    demo.is_gone();
}

#[test]
fn interrupted_while_the_file_system_comes_up() {
    for after_ms in [0, 30, 100] {
        interrupted("up", "\n== starting", Duration::from_millis(after_ms));
    }
}

#[test]
fn interrupted_beside_the_writer() {
    interrupted("writer", "\n== kill -9", Duration::from_millis(700));
}

#[test]
fn interrupted_between_the_kill_and_the_next_start() {
    interrupted("killed", "killed process", Duration::ZERO);
}

#[test]
fn interrupted_in_io500() {
    interrupted("io500", "\n== a short io500", Duration::from_millis(300));
}

/// The file system dies while rates are measured: the demo fails, and says so.
#[test]
fn failed() {
    if !can_mount() {
        return;
    }
    for _ in 0..TRIES {
        let mut demo = Demo::start("failed");
        demo.wait_for("\n== rates");
        let data = format!("{}/demo/data", demo.scratch.display());
        let servers = processes(&data);
        // Whoever asks it something, e.g. for its status, may have ended meanwhile.
        let kill = |(pid, line): (Pid, String)| {
            let killed = kill_process(pid, Signal::KILL);
            killed.is_ok() || !line.contains("up")
        };
        let found = servers.len();
        let all_killed = servers.into_iter().all(kill);
        if demo.said().contains("\n== kill -9") {
            // It kills and starts servers itself by now.
            demo.interrupt();
            demo.end();
            continue;
        }
        assert!(found > 0 && all_killed, "{found} servers ran\n{}", demo.said());
        let status = demo.end();
        assert_eq!(status.code(), Some(1), "{:?}\n{}", status.signal(), demo.said());
        assert!(demo.said().contains("cleaned up: "), "{}", demo.said());
        demo.is_gone();
        return;
    }
    panic!("{TRIES} demos had got on too far");
}

/// Nothing could clean up after a demo that was killed; the next does, whose program is another.
#[test]
fn killed_before_another() {
    if !can_mount() {
        return;
    }
    let scratch = scratch("killed-before");
    let programs = scratch.join("programs");
    fs::create_dir(&programs).unwrap();
    // By another process: a child of this one's, of another test, might have it open for writing
    // just when it is to be run.
    let copied = Command::new("cp").arg(BINARY).arg(programs.join("sateen")).status().unwrap();
    assert!(copied.success());
    // By a way around.
    let around = scratch.join("around");
    std::os::unix::fs::symlink(&programs, &around).unwrap();
    let mut killed = Demo::start_in(scratch.clone(), &around);
    killed.wait_for("\n== a source tree");
    kill_process_group(Pid::from_child(&killed.script), Signal::KILL).unwrap();
    killed.script.wait().unwrap();
    let below = format!("{}/demo/", scratch.display());
    assert!(!processes(&below).is_empty(), "its file system runs");
    // Its folder is the next one's.
    std::mem::forget(killed);
    let mut next = Demo::start_in(scratch, Path::new(BINARY).parent().unwrap());
    next.wait_for("\n== a source tree");
    next.interrupt();
    assert_eq!(next.end().code(), Some(130), "{}", next.said());
    next.is_gone();
}
