//! A folder for a test, and the program in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A folder that is empty at first and gone at last.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sateen-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sateen-bench"));
        command.args(line.split_whitespace()).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    /// Runs it with these arguments here.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// The same, and it works, without a word beside the report.
    pub(crate) fn works(&self, line: &str) -> String {
        let output = self.run(&format!("--quiet {line}"));
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{line}: {}\n{errors}", output.status);
        assert_eq!(beside_warnings(&errors), "", "{line}");
        text(&output.stdout)
    }

    /// The same, and it fails with this code; what it says about it.
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {errors}");
        errors
    }

    /// Everything in it, with directories.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.0, &self.0, &mut found);
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn walk(top: &Path, dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.strip_prefix(top).unwrap().display().to_string());
        if path.is_dir() {
            walk(top, &path, found);
        }
    }
}

/// What is said beside warnings of pitfalls: runs of tests are short.
pub(crate) fn beside_warnings(errors: &str) -> String {
    let other = errors.lines().filter(|line| !line.starts_with("sateen-bench: warning W-"));
    other.collect::<Vec<_>>().join("\n")
}

/// The codes of the pitfalls that were found, with their phases.
pub(crate) fn pitfalls(json: &serde_json::Value) -> Vec<(String, Option<String>)> {
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let all = json["pitfalls"].as_array().unwrap().iter();
    all.map(|one| (text(&one["code"]).unwrap(), text(&one["phase"]))).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits until something is so; it is soon, or never.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Flags (open(2)) that a run has opened a file with, seen while it goes on; then it is ended.
pub(crate) fn flags_of(folder: &Folder, line: &str, file: &str) -> u32 {
    let mut run = folder.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (pid, wanted) = (run.id(), folder.0.join(file));
    let mut flags = None;
    until("the open file", || {
        assert!(run.try_wait().unwrap().is_none(), "{line}: it was over before");
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            // It may be closed by now.
            if fs::read_link(entry.path()).is_ok_and(|target| target == wanted) {
                let name = entry.file_name().into_string().unwrap();
                let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{name}"));
                let info = info.unwrap_or_default();
                let octal = info.lines().find_map(|line| line.strip_prefix("flags:"));
                flags = octal.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
            }
        }
        flags.is_some()
    });
    let number = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(number, Signal::INT).unwrap();
    run.wait().unwrap();
    flags.unwrap()
}

/// The processes whose parent is this one.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Ok(pid) = name.to_string_lossy().parse::<u32>() else { continue };
        // It may be gone by now.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let rest = stat.rsplit(')').next().unwrap();
        if rest.split_whitespace().nth(1) == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    found
}

/// Whether a process runs; a zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap().split_whitespace().next();
    !matches!(state, None | Some("Z" | "X"))
}
