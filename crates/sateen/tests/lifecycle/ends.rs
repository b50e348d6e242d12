//! Several who end it at once, and who starts it again at once: `umount` before `down` or `up`,
//! signals that come twice, a mount that is in use beside one that is not.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::until;

use crate::again::is_mounted;
use crate::{Fs, kill};

/// Enough to be made durable that an end takes its time.
fn work(fs_: &Fs) {
    let dir = fs_.mnt().join("dir");
    fs::create_dir_all(&dir).unwrap();
    (0..500).for_each(|n| fs::write(dir.join(format!("f{n}")), b"file").unwrap());
}

/// Whether it has found a process and asks that: of the files it has open one is a socket.
fn asks(command: &Child) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", command.id())).into_iter().flatten().flatten();
    let mut to = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    to.any(|to| to.to_string_lossy().starts_with("socket:"))
}

/// `umount` is done before the process behind the mount has even heard of it.
#[test]
fn umount_may_come_first() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("umount-first");
    fs_.ok(&["up", "--osts", "1"]);
    for round in 0..4 {
        for next in ["down", "up"] {
            work(&fs_);
            let pid = fs_.status()["pid"].clone();
            kill(&pid, Signal::STOP);
            // The program umount may look at the mount, and wait. So may the kernel, when the mount is out
            // of the tree: for a request that is on its way to a thread that stands still.
            let mnt = fs_.mnt();
            let unmounting = std::thread::spawn(move || {
                rustix::mount::unmount(mnt, rustix::mount::UnmountFlags::NOFOLLOW)
            });
            until("it is out of the tree", || !is_mounted(&fs_.mnt()));
            let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
            let command = command.arg(next).arg("--data").arg(&fs_.data);
            let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
            let command = command.stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(200));
            // If it came after the end there would be nothing to stop.
            if next == "down" {
                until("down asks the process", || asks(&command));
            }
            kill(&pid, Signal::CONT);
            unmounting.join().unwrap().unwrap();
            let output = command.wait_with_output().unwrap();
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
            assert!(output.status.success(), "{round}: {next}: {said:?}");
            if next == "down" {
                assert!(said[0].starts_with("stopped"), "{round}: {said:?}");
                fs_.ok(&["up"]);
            }
            assert_eq!(fs::read(fs_.mnt().join("dir/f7")).unwrap(), b"file");
        }
    }
}

/// Each has its way, and nobody ends it as a crash would.
#[test]
fn several_may_end_it() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("several");
    for _ in 0..2 {
        fs_.ok(&["up", "--osts", "1"]);
        work(&fs_);
        let down = || {
            let mut down = Command::new(env!("CARGO_BIN_EXE_sateen"));
            down.args(["down", "--data"]).arg(&fs_.data);
            down.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for down in [down(), down(), down()] {
            let output = down.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && !said.contains("SIGTERM"), "{said}");
        }
        let status = fs_.wait_ended();
        assert!(status["ended"]["why"].as_str().unwrap().contains("sateen down"), "{status}");
    }
}

/// The exit code of a server that gets this signal twice: the second comes when the first has been
/// taken, and while it is ending.
fn code_after_two(fs_: &Fs, signal: Signal) -> Option<i32> {
    let mut up = Command::new(env!("CARGO_BIN_EXE_sateen"));
    up.args(["up", "--foreground", "--data"]).arg(&fs_.data);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_mounted(&fs_.mnt()) || fs_.run(&["status"]).status.code() != Some(0) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    work(fs_);
    let pid = Pid::from_child(&up);
    kill_process(pid, signal).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    kill_process(pid, signal).unwrap();
    up.wait().unwrap().code()
}

/// `timeout` sends its signal twice, and so does a terminal that closes.
#[test]
fn signals_that_come_twice_are_one() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("twice");
    // Whoever is kept from running between the two for longer than a second makes them two, though
    // never of SIGHUP.
    for (signal, tries) in [(Signal::TERM, 5), (Signal::INT, 5), (Signal::HUP, 1)] {
        let mut codes = (0..tries).map(|_| code_after_two(&fs_, signal));
        assert!(codes.any(|code| code == Some(0)), "{signal:?}");
        assert!(!is_mounted(&fs_.mnt()), "{signal:?}");
    }
}

/// A start takes its time, and answers as soon as it runs: nobody has said --force.
#[test]
fn down_waits_for_a_start() {
    /// How long `down` waits for the socket.
    const MOMENT: Duration = Duration::from_secs(5);
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("down-early");
    let (socket, away) = (fs_.data.join("control.sock"), fs_.data.join("socket"));
    for _ in 0..5 {
        fs_.ok(&["up", "--osts", "1"]);
        // As if it had just begun: its socket is not there yet.
        fs::rename(&socket, &away).unwrap();
        let open = fs::File::open(fs_.mnt()).unwrap();
        let mut down = Command::new(env!("CARGO_BIN_EXE_sateen"));
        let down = down.args(["down", "--data"]).arg(&fs_.data);
        let begun = Instant::now();
        let down = down.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        fs::rename(&away, &socket).unwrap();
        let in_time = begun.elapsed() < MOMENT;
        let output = down.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if in_time {
            assert!(said.contains("is in use") && !said.contains("SIGTERM"), "{said}");
            assert!(is_mounted(&fs_.mnt()), "{said}");
            drop(open);
            fs_.ok(&["down"]);
            return;
        }
        // This test was kept from running for so long that a signal was right.
        drop(open);
        fs_.ok(&["down"]);
    }
    panic!("this test was kept from running five times");
}

#[test]
fn a_refused_down_says_what_it_has_unmounted() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("half-down");
    let points: Vec<PathBuf> = ["a", "b"].map(|name| fs_.data.with_extension(name)).into();
    let [a, b] = [0, 1].map(|at: usize| points[at].to_str().unwrap());
    fs_.ok(&["up", "--osts", "1", "--mount", a, "--mount", b]);
    let open = fs::File::open(&points[1]).unwrap();
    let said = fs_.refused(&["down"]);
    assert!(said.contains(&format!("{b} is in use")), "{said}");
    assert!(said.contains(&format!("unmounted already: {a}")) && !is_mounted(&points[0]), "{said}");
    let again = fs_.refused(&["down"]);
    assert!(!again.contains("unmounted already"), "it was said: {again}");
    drop(open);
    fs_.ok(&["down"]);
    points.iter().for_each(|point| fs::remove_dir(point).unwrap());
}
