//! A file system of several server processes, and mounts of it, as a test drives them. What goes
//! wrong here ends the test.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; where it did says more than an error"
)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::hosts::Hosts;
use crate::transport;
use crate::watchdog::Watchdog;

/// How long anything may take before the test gives it up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The binary, under another of its names.
pub fn as_program(binary: &str, name: &str) -> Command {
    let mut command = Command::new(binary);
    command.arg0(name);
    command
}

/// What a command said, on both channels.
pub fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// What a command says, which must succeed.
pub fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

/// How long a command that is refused may take here. A mount waits for an MDT for 5 s, and then
/// tries for 2 s at most what is there in its place; 10 s are promised to users, and a machine may
/// be busy with other things, or stand still, for much longer than that.
pub const REFUSED_WITHIN: Duration = Duration::from_secs(60);

/// What a refused command says.
pub fn refused(command: &mut Command) -> String {
    // A mount has the exit codes of mount(8).
    let mounts = format!("{command:?}").contains("mount.sateen");
    refused_with(command, if mounts { &[1, 32] } else { &[1] })
}

/// What a server says of targets that cannot be served, however often it is started.
pub fn refused_for_good(command: &mut Command) -> String {
    refused_with(command, &[78])
}

fn refused_with(command: &mut Command, codes: &[i32]) -> String {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + REFUSED_WITHIN;
    while child.try_wait().unwrap().is_none() {
        let late = Instant::now() > deadline;
        // Nothing may be left of it.
        let ended = !late || child.kill().is_ok();
        assert!(ended && !late, "{command:?}: not done within {REFUSED_WITHIN:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output);
    let code = output.status.code();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{command:?}: {code:?}, {said}");
    assert!(said.contains("what to do:"), "{said}");
    said
}

/// A server: some targets in one process.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Server {
    /// The server that a process is.
    pub fn of(child: Child) -> Server {
        Server { child }
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it as a crash does.
    pub fn crash(mut self) {
        kill_process(self.pid(), Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in good order.
    pub fn end(self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        self.ended();
    }

    /// Waits for one that was told to end.
    pub fn ended(mut self) {
        assert!(self.child.wait().unwrap().success(), "it ends in good order");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file system of several servers, in a folder that is removed in the end.
#[derive(Debug)]
pub struct Cluster {
    binary: &'static str,
    folder: PathBuf,
    /// Of every server; their addresses differ.
    pub port: u16,
    /// The mount points in use.
    pub mounts: Vec<PathBuf>,
    small_pages: bool,
    /// Over what servers and mounts are told to go, if they are.
    pub net: Option<String>,
    /// Where each server and each mount is, if not all are here.
    hosts: Option<Mutex<Hosts>>,
    /// Mounts that there have been.
    mounted: u8,
    _watched: Watchdog,
}

/// The host of the first mount, where mounts have hosts of their own; the others follow.
const FIRST_MOUNT: u8 = 100;

/// Over what servers and mounts of tests go that say nothing of it.
const NET: &str = "SATEEN_TEST_NET";

impl Cluster {
    /// Of the binary at `binary`, nothing made or started yet.
    pub fn new(binary: &'static str, name: &str) -> Cluster {
        let folder = std::env::temp_dir().join(format!("sateen-srv-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let _watched = Watchdog::over(&folder);
        let (port, mounts) = (fresh_port(), Vec::new());
        let net = std::env::var(NET).ok().filter(|net| !net.is_empty());
        Cluster {
            binary,
            folder,
            port,
            mounts,
            small_pages: false,
            net,
            hosts: None,
            mounted: 0,
            _watched,
        }
    }

    /// The same with each server and each mount on a host of its own, so over TCP, whatever is said.
    pub fn on_hosts(binary: &'static str, name: &str) -> Cluster {
        let mut cluster = Cluster::new(binary, name);
        cluster.net = Some("tcp".to_owned());
        cluster.hosts = Some(Mutex::new(Hosts::new()));
        cluster
    }

    /// Does something on the host of this number, if there are any: what is started there stays there.
    fn on<T: Send>(&self, host: u8, act: impl FnOnce() -> T + Send) -> T {
        let Some(hosts) = &self.hosts else { return act() };
        let door = {
            let mut hosts = hosts.lock().unwrap();
            hosts.plug_in(host);
            hosts.door(host)
        };
        door.within(act)
    }

    /// From now on its servers and mounts start with memory in small pages only. Of huge ones the
    /// kernel gives 2 MiB to each thread that needs a little, and goes on doing so for hours:
    /// without them a process has what it asked for.
    pub fn in_small_pages(&mut self) {
        self.small_pages = true;
    }

    fn in_its_pages(&self, mut command: Command) -> Command {
        if self.small_pages {
            command.env("MIMALLOC_ALLOW_THP", "0");
        }
        command
    }

    /// NID of the server with this number.
    pub fn nid(&self, host: u8) -> String {
        match self.hosts {
            Some(_) => format!("{}:{}@tcp", Hosts::address(host), self.port),
            None => format!("127.0.0.{host}:{}@tcp", self.port),
        }
    }

    /// A folder or file of the test's own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The command that makes a target in a folder.
    pub fn mkfs(&self, kind: &str, index: Option<u32>, folder: &str) -> Command {
        let mut command = as_program(self.binary, "mkfs.sateen");
        command.arg(format!("--{kind}")).arg("--fsname=scratch");
        if let Some(index) = index {
            command.arg(format!("--index={index}"));
            command.arg(format!("--mgsnode={}", self.nid(1)));
        }
        command.arg(self.path(folder));
        command
    }

    /// The command that serves folders.
    pub fn command(&self, host: u8, folders: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.arg("serve").arg("--nid").arg(self.nid(host));
        command.args(self.net.iter().flat_map(|net| ["--net", net]));
        command.args(folders.iter().map(|folder| self.path(folder)));
        self.in_its_pages(command)
    }

    /// Starts a server and does not wait for it.
    pub fn begin(&self, host: u8, folders: &[&str]) -> Server {
        self.begin_as(&mut self.command(host, folders), host)
    }

    fn begin_as(&self, command: &mut Command, host: u8) -> Server {
        let log = self.path(&format!("log{host}"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        command.stdout(Stdio::piped()).stderr(log);
        Server { child: self.on(host, || command.spawn().unwrap()) }
    }

    /// Starts a server by a command of the test's own, and waits for it.
    pub fn start_as(&self, command: &mut Command, host: u8) -> Server {
        let mut server = self.begin_as(command, host);
        self.wait_ready(&mut server);
        server
    }

    /// Waits until a server says that it serves.
    pub fn wait_ready(&self, server: &mut Server) {
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving "), "{line:?}\n{}", self.logs());
        // The targets, and where clients find them.
        assert!(line.contains(" at ") && line.contains('@'), "{line:?}");
    }

    /// Starts a server, and waits for it.
    pub fn serve(&self, host: u8, folders: &[&str]) -> Server {
        let mut server = self.begin(host, folders);
        self.wait_ready(&mut server);
        server
    }

    /// Makes an MGS, an MDT and that many OSTs.
    pub fn make(&self, osts: u32) {
        ok(&mut self.mkfs("mgs", None, "mgt"));
        ok(&mut self.mkfs("mdt", Some(0), "mdt0"));
        for index in 0..osts {
            ok(&mut self.mkfs("ost", Some(index), &format!("ost{index}")));
        }
    }

    /// Makes and starts the usual one: MGS and MDT in one process, two OSTs in another.
    pub fn start(&self) -> (Server, Server) {
        self.make(2);
        let servers = (self.serve(1, &["mgt", "mdt0"]), self.serve(2, &["ost0", "ost1"]));
        self.knows_osts("mgt", 2);
        servers
    }

    /// Waits until MDT0000 has heard of the first so many OSTs, which it does a moment after they
    /// serve: a file that is made before has no place. `server` is the first folder of its process.
    pub fn knows_osts(&self, server: &str, osts: u32) {
        let folder = server_folder(&self.path(server));
        until("the MDT knows its OSTs", || {
            let mut lctl = as_program(self.binary, "lctl");
            let devices = ok(lctl.arg("--data").arg(&folder).arg("dl"));
            (0..osts).all(|ost| devices.contains(&format!(" scratch-OST{ost:04x}-osc-MDT0000 ")))
        });
    }

    /// What is mounted.
    pub fn source(&self) -> String {
        format!("{}:/scratch", self.nid(1))
    }

    /// The command that mounts it at a folder of that name.
    pub fn mount_command(&self, name: &str) -> Command {
        let point = self.path(name);
        fs::create_dir_all(&point).unwrap();
        let mut command = as_program(self.binary, "mount.sateen");
        command.arg(self.source()).arg(point);
        command.args(self.net.iter().flat_map(|net| ["-o".to_owned(), format!("net={net}")]));
        let asked = transport::asked();
        command.args(asked.iter().flat_map(|name| ["-o".to_owned(), format!("transport={name}")]));
        self.in_its_pages(command)
    }

    /// Mounts it at a folder of that name.
    pub fn mount(&mut self, name: &str) -> PathBuf {
        self.mount_with(name, &[])
    }

    /// Mounts it at a folder of that name with options.
    pub fn mount_with(&mut self, name: &str, options: &[&str]) -> PathBuf {
        let point = self.path(name);
        let host = FIRST_MOUNT + self.mounted;
        self.mounted += 1;
        self.mounts.push(point.clone());
        let mut command = self.mount_command(name);
        // By itself it waits for 5 s, for which a busy machine may stand still.
        command.args(["-o", "retry=2"]).args(options.iter().flat_map(|option| ["-o", option]));
        let output = self.on(host, || command.output().unwrap());
        assert!(output.status.success(), "{}\n{}", text(&output), self.logs());
        let says = options.iter().any(|option| option.contains("transport="));
        if let Some(name) = transport::asked().filter(|_| !says) {
            assert_eq!(self.transport(&point), name, "of {}", point.display());
        }
        point
    }

    /// Over what a mount is served.
    pub fn transport(&self, point: &Path) -> String {
        let mut status = Command::new(self.binary);
        let status = status.args(["status", "--json", "--data"]).arg(run_folder(point));
        transport::of_mounts(&status.output().unwrap().stdout).concat()
    }

    /// Unmounts it, in good order. A program that another test is just starting has all files that
    /// are open here, also those that this test has closed, until it is a program of its own.
    pub fn umount(&mut self, point: &Path) {
        until("what was unmounted is busy", || {
            let output = Command::new("umount").arg(point).output().unwrap();
            let said = text(&output);
            assert!(output.status.success() || said.contains("busy"), "{said}");
            output.status.success()
        });
        self.mounts.retain(|other| other != point);
    }

    /// Unmounts everything, ends the servers in good order, one after the other, and has `fsck`
    /// look at all targets that were made here. What it says.
    pub fn finish(mut self, servers: impl IntoIterator<Item = Server>) -> String {
        for mount in self.mounts.clone() {
            self.umount(&mount);
        }
        servers.into_iter().for_each(Server::end);
        self.fsck()
    }

    /// Has `fsck` look at all targets that were made here, which nobody may be serving.
    pub fn fsck(&self) -> String {
        let inside = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        // A mount would wait for its servers.
        let folders = inside.filter(|path| !self.mounts.contains(path));
        let targets = folders.filter(|path| path.join("label").exists());
        ok(Command::new(self.binary).arg("fsck").args(targets))
    }

    /// Waits until OSTs have no objects: those of files that were removed go a moment later, and
    /// servers that end before leave them to their next start.
    pub fn wait_for_no_objects(&self, osts: &[&str]) {
        for ost in osts {
            until("objects of removed files go", || self.has_no_objects(ost));
        }
    }

    /// Whether an OST has none.
    pub fn has_no_objects(&self, ost: &str) -> bool {
        files_below(&self.path(ost).join("objects")) == 0
    }

    /// The process behind a mount.
    pub fn mount_pid(&self, point: &Path) -> u32 {
        let state = fs::read_to_string(run_folder(point).join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state.get("pid").and_then(serde_json::Value::as_u64).unwrap() as u32
    }

    /// What the servers and the mounts have said, for whoever has to find out why.
    pub fn logs(&self) -> String {
        let mut out = String::new();
        for host in 1..6 {
            let log = fs::read_to_string(self.path(&format!("log{host}"))).unwrap_or_default();
            out.push_str(&format!("--- server {host}\n{log}"));
        }
        for point in &self.mounts {
            let log = fs::read_to_string(run_folder(point).join("log")).unwrap_or_default();
            out.push_str(&format!("--- {}\n{log}", point.display()));
        }
        out
    }
}

/// What a process has in memory.
///
/// # Panics
/// If it is not there: it has crashed.
pub fn resident_mib(pid: u32) -> u64 {
    status_mib(pid, "VmRSS:")
}

/// The most that a process has ever had in memory.
///
/// # Panics
/// As [`resident_mib`].
pub fn peak_mib(pid: u32) -> u64 {
    status_mib(pid, "VmHWM:")
}

fn status_mib(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it has not crashed");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

/// What a mount's process keeps.
pub fn run_folder(point: &Path) -> PathBuf {
    named_after(point, "")
}

/// What a server keeps; by its first target.
pub fn server_folder(target: &Path) -> PathBuf {
    named_after(target, "serve:")
}

fn named_after(path: &Path, kind: &str) -> PathBuf {
    let name = path.to_str().unwrap().trim_start_matches('/');
    let name = name.replace('-', "\\x2d").replace('/', "-");
    Path::new("/run/sateen").join(format!("{kind}{name}"))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for point in &self.mounts {
            let _ = Command::new("umount").arg("-f").arg("-l").arg(point).status();
        }
        for point in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let _ = fs::remove_dir_all(server_folder(&point.path()));
            let run = run_folder(&point.path());
            let down = ["down", "--force", "--data"];
            if run.exists() {
                let _ = Command::new(self.binary).args(down).arg(&run).output();
                let _ = fs::remove_dir_all(run);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A port that no other cluster of this process has; whoever had it a moment ago will hardly be
/// followed by another process.
fn fresh_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Files in a folder and in all those in it. Some may go meanwhile.
fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        Ok(_) => 1,
        Err(_) => 0,
    });
    each.sum()
}
