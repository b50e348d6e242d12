//! A file system run by the real binary, as a user runs it: up, kill -9, fsck, down.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::forgetfs::{ForgetFs, Loss};
use crate::transport;
use crate::watchdog::Watchdog;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal};

/// How long a killed process and its guard may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(180);
/// How long a mount may be in use after all its files were closed here: a program that another
/// test is just starting has them, too, until it is a program of its own.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// A file system that is taken down and whose folders are removed in the end, however it ends.
#[derive(Debug)]
pub struct Program {
    binary: PathBuf,
    scratch: PathBuf,
    data: PathBuf,
    mounts: Vec<PathBuf>,
    options: Vec<String>,
    disk: Option<ForgetFs>,
    _watched: Watchdog,
}

impl Program {
    /// A file system of the binary at `binary` (or at `SATEEN_BINARY`), in a folder of its own below the folder for
    /// temporary files. `options` are added to every `up`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(binary: &str, name: &str, mounts: usize, options: &[&str]) -> Result<Program> {
        let name = format!("sateen-{name}-{}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        fs::create_dir(&scratch).with_context(|| format!("make {}", scratch.display()))?;
        fs::create_dir(scratch.join("disk"))?;
        Ok(Program {
            binary: std::env::var_os("SATEEN_BINARY").map_or(binary.into(), PathBuf::from),
            data: scratch.join("disk/data"),
            mounts: (0..mounts).map(|number| scratch.join(format!("mnt{number}"))).collect(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            _watched: Watchdog::over(&scratch),
            scratch,
            disk: None,
        })
    }

    /// Puts the data folder onto a disk that forgets. To be called before anything else.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn forget(&mut self) -> Result<()> {
        self.disk = Some(ForgetFs::mount(&self.scratch.join("disk"))?);
        Ok(())
    }

    /// Cuts the power of a disk that forgets; any other keeps everything. The process must
    /// have been killed.
    ///
    /// # Errors
    /// The disk cannot be unmounted or mounted.
    pub fn cut_power(&mut self, loss: Loss) -> Result<()> {
        self.disk.as_mut().map_or(Ok(()), |disk| disk.cut(loss))
    }

    /// The folder of its data.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A folder for whatever the test needs beside.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The mount points.
    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// The first mount point.
    ///
    /// # Panics
    /// There is none.
    pub fn mnt(&self) -> &Path {
        let first = self.mounts.first();
        assert!(first.is_some(), "a file system has a mount");
        first.unwrap_or(&self.scratch)
    }

    fn run(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.binary);
        let (name, rest) = args.split_first().context("a command has a name")?;
        command.arg(name).arg("--data").arg(&self.data).args(rest);
        if *name == "up" {
            for mount in &self.mounts {
                command.arg("--mount").arg(mount);
            }
            if let Some(name) = self.transport() {
                command.args(["--transport", &name]);
            }
            command.args(&self.options);
        }
        Ok(command.output()?)
    }

    fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let log = || self.log();
        ensure!(output.status.success(), "sateen {args:?}: {text}{errors}\nits log:\n{}", log());
        Ok(text)
    }

    /// The last lines of the log.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.data.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
    }

    /// Starts and mounts it.
    ///
    /// # Errors
    /// It does not start.
    pub fn up(&self) -> Result<()> {
        self.ok(&["up"])?;
        if let Some(name) = self.transport() {
            let all = transport::of_mounts(&self.run(&["status", "--json"])?.stdout);
            let as_asked = !all.is_empty() && all.iter().all(|used| *used == name);
            ensure!(as_asked, "mounts are to be served over {name}, and are over {all:?}");
        }
        Ok(())
    }

    /// The transport that it is started with, if the test leaves that open and somebody says one.
    fn transport(&self) -> Option<String> {
        let says = self.options.iter().any(|option| option.starts_with("--transport"));
        transport::asked().filter(|_| !says)
    }

    /// Over how many OSTs new files lie from now on, until it is started again; -1 for all.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn set_stripes(&self, count: i32) -> Result<()> {
        let setting = format!("lod.*.stripecount={count}");
        self.ok(&["lctl", "set_param", &setting]).map(drop)
    }

    /// Stops it in good order.
    ///
    /// # Errors
    /// It does not stop.
    pub fn down(&self) -> Result<()> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            let ended = self.ok(&["down"]).map(drop);
            let in_use = |error: &anyhow::Error| error.to_string().contains(" is in use");
            if !ended.as_ref().is_err_and(in_use) || Instant::now() > deadline {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Checks it, at rest.
    ///
    /// # Errors
    /// It is damaged.
    pub fn fsck(&self) -> Result<String> {
        self.ok(&["fsck"])
    }

    /// The serving process.
    ///
    /// # Errors
    /// There is none.
    pub fn pid(&self) -> Result<Pid> {
        let status: serde_json::Value =
            serde_json::from_slice(&self.run(&["status", "--json"])?.stdout)?;
        let pid = status.get("pid").and_then(serde_json::Value::as_i64);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.with_context(|| format!("no process serves it: {status}"))
    }

    /// Kills the process with -9, `before` being called just before, and waits until nothing
    /// of it is left.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub fn kill(&self, pid: Pid, before: impl FnOnce()) -> Result<()> {
        let guards = guards_of(pid)?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        before();
        rustix::process::pidfd_send_signal(&process, Signal::KILL)?;
        let deadline = Instant::now() + END_TIMEOUT;
        for end in std::iter::once(process).chain(guards) {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = rustix::event::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut wait = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut wait, Some(&timeout))? == 0 {
                bail!("a killed process or its guard is still there");
            }
        }
        Ok(())
    }
}

/// The processes started by this one: its guard, which must be gone before the next start.
fn guards_of(pid: Pid) -> Result<Vec<rustix::fd::OwnedFd>> {
    let pid = pid.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut found = Vec::new();
    for child in children.split_whitespace() {
        if let Some(child) = child.parse().ok().and_then(Pid::from_raw) {
            found.push(rustix::process::pidfd_open(child, PidfdFlags::empty())?);
        }
    }
    Ok(found)
}

impl Drop for Program {
    fn drop(&mut self) {
        // Whatever is left of it; what fails here was not there.
        let _ = self.run(&["down", "--force"]);
        self.disk = None;
        let keep = std::env::var_os("KEEP_FAILED").is_some() && std::thread::panicking();
        if !keep {
            let _ = fs::remove_dir_all(&self.scratch);
        }
    }
}
