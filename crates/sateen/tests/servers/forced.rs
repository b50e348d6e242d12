//! Mounts that are given up with programs waiting in them: `umount -f` and `umount -l` when all
//! servers are gone, and a mount's process that is killed. Everybody hears so, soon, and nothing
//! stays behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, text};

use crate::{BINARY, bytes};

/// So soon everybody has heard, and the mount is gone with its process.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// Programs that wait in a mount of which the servers are gone.
pub(crate) struct Waiting {
    all: Vec<(&'static str, Child)>,
}

/// What it is called that maps a file: it is told by a signal.
pub(crate) const MAPS: &str = "maps";

impl Waiting {
    fn in_mount(mnt: &Path) -> Waiting {
        let scripts = [
            ("reads", "open($f, '<', \"$ARGV[0]/cold\") and sysread($f, my $b, 9) and exit 0"),
            ("makes", "mkdir(\"$ARGV[0]/dir\") and exit 0"),
            ("looks", "stat(\"$ARGV[0]/sub/none\") and exit 0"),
            (
                "syncs",
                "open($f, '+<', \"$ARGV[0]/open\") and syswrite($f, 'x' x 9000) \
                 and POSIX::fsync(fileno($f)) and exit 0",
            ),
        ];
        Waiting::of(mnt, &scripts)
    }

    /// Programs of this mount, each with its name. They end with the error, or with 0.
    pub(crate) fn of(mnt: &Path, scripts: &[(&'static str, &str)]) -> Waiting {
        let begun = |&(what, script): &(&'static str, &str)| {
            let mut command = Command::new("perl");
            let script = format!("use POSIX; {script}; exit($!{{EIO}} ? 10 : $! + 0)");
            command.arg("-e").arg(script).arg(mnt).stderr(Stdio::null());
            (what, command.spawn().unwrap())
        };
        Waiting { all: scripts.iter().map(begun).collect() }
    }

    pub(crate) fn still_wait(&mut self) {
        for (what, child) in &mut self.all {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{what} does not wait: {ended:?}");
        }
    }

    /// Each ends with an error number.
    pub(crate) fn are_told(self, since: Instant) {
        for (what, mut child) in self.all {
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    if what == MAPS && status.signal() == Some(Signal::BUS.as_raw()) {
                        break;
                    }
                    let code = status.code().unwrap_or_else(|| panic!("{what}: {status}"));
                    // EIO, ENOTCONN, ECONNABORTED; which of them the kernel says depends on how far
                    // it had come.
                    assert!([10, 107, 103].contains(&code), "{what}: {code}");
                    break;
                }
                let state = state_of(child.id());
                assert!(since.elapsed() < SOON, "{what} still waits, {state}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The state of a process, and where it waits in the kernel.
pub(crate) fn state_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let place = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let state = status.rsplit(')').next().unwrap_or_default().trim().chars().next();
    format!("state {state:?} in {place}")
}

pub(crate) fn is_mounted(mnt: &Path) -> bool {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().any(|line| line.split(' ').nth(4).is_some_and(|point| Path::new(point) == mnt))
}

pub(crate) fn has_ended(pid: u32) -> bool {
    let pid = Pid::from_raw(pid as i32).unwrap();
    test_kill_process(pid).is_err()
}

pub(crate) fn soon(what: &str, since: Instant, mut so: impl FnMut() -> bool) {
    while !so() {
        assert!(since.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Files of which the mount has nothing in memory.
fn fill(mnt: &Path) {
    fs::create_dir(mnt.join("sub")).unwrap();
    fs::write(mnt.join("cold"), bytes(1 << 20, 3)).unwrap();
    fs::write(mnt.join("open"), b"open").unwrap();
}

fn umount(args: &[&str], mnt: &Path) -> std::process::Output {
    let begun = Instant::now();
    let output = Command::new("umount").args(args).arg(mnt).output().unwrap();
    assert!(begun.elapsed() < SOON, "umount {args:?} takes {:?}", begun.elapsed());
    output
}

/// A mount whose servers are all gone, with programs that wait in it.
fn forsaken(cluster: &mut Cluster) -> (PathBuf, u32, Waiting) {
    let (mds, oss) = cluster.start();
    let filling = cluster.mount("filling");
    fill(&filling);
    cluster.umount(&filling);
    let mnt = cluster.mount("mnt");
    let daemon = cluster.mount_pid(&mnt);
    // The mount is in use: it knows its targets.
    fs::metadata(mnt.join("sub")).unwrap();
    mds.crash();
    oss.crash();
    let mut waiting = Waiting::in_mount(&mnt);
    std::thread::sleep(Duration::from_secs(3));
    waiting.still_wait();
    (mnt, daemon, waiting)
}

/// It can be mounted again at the same place, once there are servers.
fn mounts_again(mut cluster: Cluster, mnt: &Path) {
    cluster.mounts.retain(|mount| mount != mnt);
    let servers = [cluster.serve(1, &["mgt", "mdt0"]), cluster.serve(2, &["ost0", "ost1"])];
    let mut mount = Command::new(BINARY);
    ok(mount.arg("mount").arg(cluster.source()).arg(mnt));
    cluster.mounts.push(mnt.to_owned());
    assert!(fs::read(mnt.join("cold")).unwrap() == bytes(1 << 20, 3));
    let [mds, oss] = servers;
    cluster.finish([oss, mds]);
}

#[test]
fn umount_by_force_ends_a_mount_whose_servers_are_gone() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "forced");
    let (mnt, daemon, waiting) = forsaken(&mut cluster);
    let begun = Instant::now();
    // Refused at most because programs are in there, which are told all the same.
    let first = umount(&["-f"], &mnt);
    assert!(first.status.success() || text(&first).contains("busy"), "{}", text(&first));
    waiting.are_told(begun);
    soon("it is unmounted", begun, || !is_mounted(&mnt) || umount(&["-f"], &mnt).status.success());
    soon("its process ends", begun, || has_ended(daemon));
    assert!(!is_mounted(&mnt));
    mounts_again(cluster, &mnt);
}

#[test]
fn umount_of_a_mount_in_use_whose_servers_are_gone_leaves_nobody_waiting() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "lazy");
    let (mnt, daemon, waiting) = forsaken(&mut cluster);
    let begun = Instant::now();
    ok(Command::new("umount").arg("-l").arg(&mnt));
    assert!(!is_mounted(&mnt), "it is gone from the tree at once");
    waiting.are_told(begun);
    soon("its process ends", begun, || has_ended(daemon));
    mounts_again(cluster, &mnt);
}

#[test]
fn who_waits_in_a_mount_whose_process_is_killed_is_told_and_it_is_mounted_again() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "killed");
    let (mnt, daemon, waiting) = forsaken(&mut cluster);
    let begun = Instant::now();
    kill_process(Pid::from_raw(daemon as i32).unwrap(), Signal::KILL).unwrap();
    waiting.are_told(begun);
    // What the kernel has it may show for a while; what it has to ask for is an error.
    let asks = || fs::metadata(mnt.join("unknown")).unwrap_err().raw_os_error();
    soon("it answers with errors", begun, || [Some(107), Some(103)].contains(&asks()));
    ok(Command::new("umount").arg(&mnt));
    assert!(!is_mounted(&mnt));
    mounts_again(cluster, &mnt);
}
