//! Programs that wait for a server that is gone, and get a signal: they are let go, what they
//! had asked for does no harm afterwards, and nothing of it is left.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, PATIENCE, Server, until};
use sateen_testkit::watchdog::Watchdog;

use crate::{BINARY, bytes, keeps_nothing};

/// Longer than a program with a handler has to wait before it is let go.
const A_WHILE: Duration = Duration::from_millis(1500);
const EINTR: i32 = 4;

/// A program that handles SIGINT and SIGUSR1 without restarting calls, makes one call, and ends
/// with its errno.
fn call(call: &str, path: &Path) -> Child {
    call_after("", call, path)
}

/// The same, of which these statements are done when it is there.
pub(crate) fn call_after(before: &str, call: &str, path: &Path) -> Child {
    let script = format!(
        "use Fcntl; my ($f, $b); $SIG{{INT}} = sub {{}}; $SIG{{USR1}} = sub {{}}; {before} \
         $| = 1; print \"ready\\n\"; {call} or exit($! + 0); exit 99"
    );
    let mut command = Command::new("perl");
    let mut child = command.arg("-e").arg(script).arg(path).stdout(Stdio::piped()).spawn().unwrap();
    // Before this a signal would end it.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

pub(crate) fn stop(server: &Server) {
    kill_process(server.pid(), Signal::STOP).unwrap();
}

pub(crate) fn go_on(server: &Server) {
    kill_process(server.pid(), Signal::CONT).unwrap();
}

pub(crate) fn end(mut child: Child, what: &str) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: it does not end\n{}", waits_where(&child));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where in the kernel a process waits, and with which signals.
fn waits_where(child: &Child) -> String {
    let read = |file: &str| {
        let read = fs::read_to_string(format!("/proc/{}/{file}", child.id()));
        read.unwrap_or_else(|error| error.to_string())
    };
    let status = read("status");
    let of_interest = |line: &&str| ["State", "Sig", "Shd"].iter().any(|of| line.starts_with(of));
    let status: Vec<&str> = status.lines().filter(of_interest).collect();
    let [call, wchan, stack] = ["syscall", "wchan", "stack"].map(read);
    format!("{}\nsyscall {call}\nwchan {wchan}\n{stack}", status.join("\n"))
}

/// Waits until a program has been in one and the same system call for a while; false if it ends. A
/// signal that came before the call would interrupt nothing.
pub(crate) fn is_waiting(child: &mut Child) -> bool {
    let (mut call, mut since) = (None, Instant::now());
    until("the program waits", || {
        let now = in_call(child);
        if now.is_none() || now != call {
            (call, since) = (now, Instant::now());
        }
        since.elapsed() >= A_WHILE || child.try_wait().unwrap().is_some()
    });
    child.try_wait().unwrap().is_none()
}

/// The system call in which a process sleeps, with its arguments. Where the kernel does not tell,
/// whatever it does is one.
fn in_call(child: &Child) -> Option<String> {
    let path = format!("/proc/{}/syscall", child.id());
    let Ok(call) = fs::read_to_string(path) else { return Some(String::new()) };
    // Else "running", or -1 for a wait outside of any.
    call.starts_with(|first: char| first.is_ascii_digit()).then_some(call)
}

/// A program makes a call that waits, gets these signals, and ends; the last one ends it.
fn interrupted(what: &str, path: &Path, signals: &[Signal]) -> ExitStatus {
    let mut child = call(what, path);
    for sent in signals {
        assert!(is_waiting(&mut child), "{what}: there is nobody to answer");
        signal(&child, *sent);
    }
    end(child, what)
}

#[test]
fn who_waits_for_an_mdt_can_be_interrupted() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "intr-mdt");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    fs::write(mnt.join("file"), b"content").unwrap();
    // Of its own directories a mount knows what is not there without asking.
    fs::create_dir(cluster.mount("other").join("dir")).unwrap();
    stop(&mds);
    for what in [
        "stat($ARGV[0])",
        "sysopen($f, $ARGV[0], O_CREAT | O_RDWR)",
        "mkdir($ARGV[0])",
        "open($f, '<', $ARGV[0])",
        "unlink($ARGV[0])",
    ] {
        let name = mnt.join(format!("dir/new {}", what.len()));
        let status = interrupted(what, &name, &[Signal::INT]);
        assert_eq!(status.code(), Some(EINTR), "{what}: {status}");
        // Who is not asked to stop waits on; who is killed dies.
        let status = interrupted(what, &name, &[Signal::USR1, Signal::KILL]);
        assert_eq!(status.signal(), Some(9), "{what}: {status}");
    }
    go_on(&mds);
    // What was asked for may have happened; it is all usable, and can go.
    until("the mount goes on", || fs::write(mnt.join("after"), b"after").is_ok());
    for dir in [mnt.join("dir"), mnt] {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let gone = if path.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
            gone.unwrap();
        }
    }
    cluster.wait_for_no_objects(&["ost0", "ost1"]);
    let found = cluster.finish([oss, mds]);
    assert!(found.starts_with("clean: 1 inodes, 0 entries, 0 objects"), "{found}");
}

/// Sets handlers of all signals that ask to stop, as a shell's `trap` does; and so that the kernel
/// is to make the calls again.
const HANDLERS: &str = "$SIG{$_} = sub {} for qw(HUP INT QUIT ALRM TERM);";
const RESTARTING: &str = "require POSIX; my $h = POSIX::SigAction->new(sub {}, \
    POSIX::SigSet->new, POSIX::SA_RESTART()); \
    POSIX::sigaction($_, $h) for (1, 2, 3, 14, 15);";

#[test]
fn each_signal_that_asks_to_stop_interrupts() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "intr-each");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    fs::create_dir(cluster.mount("other").join("dir")).unwrap();
    stop(&mds);
    let all = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::ALARM, Signal::TERM];
    for (number, sent) in all.into_iter().enumerate() {
        for (how, before) in [("handlers", HANDLERS), ("restarting", RESTARTING)] {
            let name = mnt.join(format!("dir/{how}{number}"));
            let mut child = call_after(before, "mkdir($ARGV[0])", &name);
            assert!(is_waiting(&mut child), "{how} {sent:?}: there is nobody to answer");
            signal(&child, sent);
            let status = end(child, how);
            assert_eq!(status.code(), Some(EINTR), "{how} {sent:?}: {status}");
        }
    }
    go_on(&mds);
    until("the mount goes on", || fs::write(mnt.join("after"), b"after").is_ok());
    cluster.finish([oss, mds]);
}

#[test]
fn who_waits_for_an_ost_can_be_interrupted() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "intr-ost");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    // What is kept waits for nobody.
    keeps_nothing(&mnt);
    let content = bytes(3 << 20, 5);
    fs::write(mnt.join("file"), &content).unwrap();
    fs::write(mnt.join("other"), &content).unwrap();
    let write = "sysopen($f, $ARGV[0], O_RDWR) && syswrite($f, 'x' x 1000000)";
    let read = "sysopen($f, $ARGV[0], O_RDWR) && sysread($f, $b, 1000000)";
    let sync = "sysopen($f, $ARGV[0], O_RDWR) && require IO::Handle && $f->sync";
    stop(&oss);
    for (what, name) in [(write, "file"), (read, "other"), (sync, "other")] {
        let status = interrupted(what, &mnt.join(name), &[Signal::INT]);
        assert_eq!(status.code(), Some(EINTR), "{what}: {status}");
        let status = interrupted(what, &mnt.join(name), &[Signal::KILL]);
        assert_eq!(status.signal(), Some(9), "{what}: {status}");
    }
    // Many of them take nothing away from others.
    let all: Vec<Child> = (0..150).map(|_| call(read, &mnt.join("other"))).collect();
    std::thread::sleep(A_WHILE);
    for child in &all {
        signal(child, Signal::KILL);
    }
    for child in all {
        assert_eq!(end(child, "it is killed").signal(), Some(9));
    }
    go_on(&oss);
    until("the mount goes on", || fs::read(mnt.join("other")).is_ok_and(|read| read == content));
    // The same of one that is gone altogether.
    oss.crash();
    let status = interrupted(write, &mnt.join("file"), &[Signal::INT]);
    assert_eq!(status.code(), Some(EINTR), "{status}");
    let status = interrupted(read, &mnt.join("other"), &[Signal::KILL]);
    assert_eq!(status.signal(), Some(9), "{status}");
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    until("the mount goes on", || fs::read(mnt.join("other")).is_ok_and(|read| read == content));
    let now = fs::read(mnt.join("file")).unwrap();
    assert_eq!(now.len(), content.len());
    let same = now.iter().zip(&content).skip(1_000_000).all(|(now, was)| now == was);
    assert!(same, "nothing but what was asked for is written");
    cluster.finish([oss, mds]);
}

#[test]
fn a_test_that_hangs_fails() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "hangs");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let mounted = cluster.mount_pid(&mnt);
    mds.crash();
    let _watched = Watchdog::within(&cluster.path(""), Duration::from_secs(3));
    assert!(fs::read(mnt.join("missing")).is_err(), "the server will not return");
    until("the mount is killed", || !Path::new(&format!("/proc/{mounted}")).exists());
    drop(oss);
}
