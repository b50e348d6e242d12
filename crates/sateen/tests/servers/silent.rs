//! Mounts of which nothing is heard: those that have died are noticed although nobody wants
//! anything that they held, and nobody is thrown out who only stood still for a moment, or whose
//! server did.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, PATIENCE, ok, server_folder, text, until};

use crate::{BINARY, as_program, bytes, keeps_nothing, write_durably};

/// "Text file busy".
const ETXTBSY: i32 = 26;

/// The parameters of one server, by the folder of its first target.
struct Lctl<'a>(&'a Cluster, &'static str);

impl Lctl<'_> {
    fn run(&self, args: &[&str]) -> String {
        let folder = server_folder(&self.0.path(self.1));
        ok(as_program("lctl").arg("--data").arg(folder).args(args))
    }

    /// The sum of what they say, each a number.
    fn sum(&self, of: &str) -> u64 {
        let said = self.run(&["get_param", "-n", of]);
        said.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum()
    }

    /// Whoever is silent for so many seconds is thrown out.
    fn patience_s(&self, seconds: u32) {
        for param in ["at_max", "at_min"] {
            self.run(&["set_param", &format!("mdt.*.{param}={seconds}")]);
        }
    }

    /// How many have been, for whatever reason.
    fn evicted(&self) -> usize {
        let stats = self.run(&["get_param", "-n", "mdt.*.md_stats"]);
        stats.lines().filter(|line| line.starts_with("evict_")).count()
    }
}

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

fn process_of(cluster: &Cluster, mount: &Path) -> Pid {
    Pid::from_raw(cluster.mount_pid(mount) as i32).unwrap()
}

/// Ended with the test.
struct Runs(Child);

impl Drop for Runs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for what takes as long as a mount may be silent, and some time for a busy machine.
fn within_s(what: &str, seconds: u64, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE + Duration::from_secs(seconds), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn what_a_killed_mount_held_comes_back_though_nobody_wants_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "silent");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let (at_mds, at_oss) = (Lctl(&cluster, "mgt"), Lctl(&cluster, "ost0"));
    at_mds.patience_s(15);
    fs::copy("/bin/sleep", mnt.join("sleep")).unwrap();
    let mut started = None;
    until("what was written can be executed", || {
        started = Command::new(mnt.join("sleep")).arg("1000").spawn().ok();
        started.is_some()
    });
    let runs = started.map(Runs);
    // Without a name, and open.
    let mut big = File::create(mnt.join("big")).unwrap();
    big.write_all(&bytes(64 << 20, 3)).unwrap();
    big.sync_all().unwrap();
    fs::remove_file(mnt.join("big")).unwrap();
    until("the removed file takes space", || at_oss.kbytes_used() >= 64 << 10);
    let granted = at_oss.sum("obdfilter.*.tot_granted");
    assert!(granted > 0, "a writer is promised space");
    let busy = || File::options().append(true).open(other.join("sleep"));
    assert_eq!(busy().unwrap_err().raw_os_error(), Some(ETXTBSY));
    assert_eq!(at_mds.sum("mdt.*.num_exports"), 2);
    let shown = at_mds.run(&["get_param", "mdt.*.exports.*.export"]);
    assert!(shown.contains("last_heard: ") && shown.contains("longest_gap: "), "{shown}");

    signal(process_of(&cluster, &mnt), Signal::KILL);
    within_s("it is noticed", 15, || at_mds.sum("mdt.*.num_exports") == 1);
    let stats = at_mds.run(&["get_param", "-n", "mdt.*.md_stats"]);
    assert!(stats.contains("evict_silent") && !stats.contains("evict_callback"), "{stats}");
    until("its promise is another's", || at_oss.sum("obdfilter.*.tot_granted") < granted);
    until("it knows one client", || at_oss.sum("obdfilter.*.num_exports") <= 4);
    until("the space is free", || at_oss.kbytes_used() < 64 << 10);
    until("nobody executes it", || busy().is_ok());
    drop((runs, big));
    let status = Command::new(BINARY).arg("status").arg(&mnt).output().unwrap();
    assert_eq!(status.status.code(), Some(3), "{}", text(&status));
    assert!(
        text(&status).contains("(lost: the process of that mount is gone"),
        "{}",
        text(&status)
    );
    let _ = Command::new("umount").arg("-l").arg(&mnt).status();
    cluster.mounts.retain(|mount| *mount != mnt);
    cluster.finish([oss, mds]);
}

#[test]
fn a_mount_that_is_not_wanted_is_thrown_out_by_its_id() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "unwanted");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let at_mds = Lctl(&cluster, "mgt");
    let id = || at_mds.run(&["get_param", "-n", "mdt.*.exports.*.uuid"]).trim().to_owned();
    let evict = |id: &str| {
        let mut lctl = as_program("lctl");
        lctl.arg("--data").arg(server_folder(&cluster.path("mgt")));
        lctl.args(["set_param", &format!("mdt.*.evict_client={id}")]).output().unwrap()
    };
    fs::write(mnt.join("file"), b"before").unwrap();
    let open = File::open(mnt.join("file")).unwrap();
    let (first, unknown) = (id(), evict("4711"));
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && said.contains("no client '4711'"), "{said}");
    assert_eq!((at_mds.evicted(), id()), (0, first.clone()));
    let done = evict(&first);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    until("it is thrown out", || at_mds.evicted() == 1);
    let stats = at_mds.run(&["get_param", "-n", "mdt.*.md_stats"]);
    assert!(stats.contains("evict_admin"), "{stats}");
    until("it goes on as another", || fs::write(mnt.join("after"), b"after").is_ok());
    assert_ne!(id(), first);
    assert!(open.read_at(&mut [0; 6], 0).is_err(), "what it had open is lost");
    drop(open);
    cluster.finish([oss, mds]);
}

#[test]
fn who_stands_still_is_missed_and_who_judged_it_so_in_his_own_sleep_is_not_believed() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "still");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let at_mds = Lctl(&cluster, "mgt");
    // Or each child closed at its start what this process has open, and waited for the mount that
    // stands still until then.
    keeps_nothing(&mnt);
    write_durably(&mnt.join("file"), b"as it was").unwrap();
    // For writing, too: what is read by it the kernel does not take from its own pages.
    let open = File::options().read(true).write(true).open(mnt.join("file")).unwrap();
    at_mds.patience_s(15);
    // The server, for twice as long, and with what its clients say in its sockets.
    signal(mds.pid(), Signal::STOP);
    std::thread::sleep(Duration::from_secs(30));
    signal(mds.pid(), Signal::CONT);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((at_mds.sum("mdt.*.num_exports"), at_mds.evicted()), (2, 0));
    // A mount, for less than it may.
    let pid = process_of(&cluster, &mnt);
    signal(pid, Signal::STOP);
    std::thread::sleep(Duration::from_secs(4));
    signal(pid, Signal::CONT);
    fs::write(mnt.join("after"), b"after").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 9, "what is open is open");
    assert_eq!((at_mds.sum("mdt.*.num_exports"), at_mds.evicted()), (2, 0));
    // And for longer.
    signal(pid, Signal::STOP);
    within_s("it is noticed", 15, || at_mds.sum("mdt.*.num_exports") == 1);
    fs::write(other.join("file"), b"as it is now").unwrap();
    // Whoever stands still for a moment from here on is not thrown out for it.
    at_mds.patience_s(600);
    signal(pid, Signal::CONT);
    until("it goes on as another", || {
        fs::read(mnt.join("file")).is_ok_and(|read| read == b"as it is now")
    });
    let lost = open.read_at(&mut [0; 1], 0).unwrap_err();
    assert_eq!(lost.raw_os_error(), Some(5), "what was open is lost");
    assert_eq!((at_mds.sum("mdt.*.num_exports"), at_mds.evicted()), (2, 1));
    drop(open);
    cluster.finish([oss, mds]);
}

impl Lctl<'_> {
    fn kbytes_used(&self) -> u64 {
        let folders = ["ost0", "ost1"].map(|ost| self.0.path(ost).join("objects"));
        let du = ok(Command::new("du").args(["-sk"]).args(folders));
        du.lines().map(|line| line.split('\t').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}
