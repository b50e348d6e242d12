//! How mounts and servers are ended by whoever runs them: Ctrl-C while one waits, a terminal that
//! closes, several `down` at once, `umount` just before.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, text, until};

use crate::BINARY;
use crate::waiting::{end, go_on, signal, stop};

/// Much less than for how long the mount is told to try.
const SOON: Duration = Duration::from_secs(90);

/// Whether a process uses a folder of `/run/sateen`.
fn is_held(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join("lock")) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
}

#[test]
fn a_mount_that_is_interrupted_is_given_up() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "interrupted");
    cluster.make(1);
    let folder = run_folder(&cluster.path("mnt"));
    let interrupted = || {
        let mut mount = cluster.mount_command("mnt");
        let mut mount = mount.args(["-o", "retry=10"]).stderr(Stdio::null()).spawn().unwrap();
        until("its process waits", || is_held(&folder));
        std::thread::sleep(Duration::from_secs(1));
        assert!(mount.try_wait().unwrap().is_none(), "there is nobody to answer");
        signal(&mount, Signal::INT);
        assert_eq!(end(mount, "Ctrl-C ends it").code(), None);
        let begun = Instant::now();
        until("its process ends as well", || !is_held(&folder));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    };
    // Without an MGS, and without an MDT.
    interrupted();
    let (mgs, mds) = (cluster.serve(1, &["mgt"]), cluster.serve(3, &["mdt0"]));
    stop(&mds);
    interrupted();
    go_on(&mds);
    let oss = cluster.serve(2, &["ost0"]);
    cluster.knows_osts("mdt0", 1);
    // Nothing of them is in the way.
    let mnt = cluster.mount("mnt");
    std::fs::write(mnt.join("file"), b"file").unwrap();
    cluster.finish([oss, mds, mgs]);
}

/// A mount is no user of the one in which whoever made it was.
#[test]
fn a_mount_does_not_keep_another() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "keeps");
    let (mds, oss) = cluster.start();
    let (first, second) = (cluster.mount("first"), cluster.path("second"));
    ok(cluster.mount_command("second").args(["-o", "retry=2"]).current_dir(&first));
    cluster.mounts.push(second.clone());
    cluster.umount(&first);
    std::fs::write(second.join("file"), b"file").unwrap();
    cluster.finish([oss, mds]);
}

/// The last thing that a start does fails: it is said, and nothing is left of it.
#[test]
fn a_start_that_fails_late_says_why() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "late");
    let (mds, oss) = cluster.start();
    let (point, run) = (cluster.path("mnt"), cluster.path("run"));
    // No socket can be made there.
    let folder = run.join(run_folder(&point).file_name().unwrap());
    std::fs::create_dir_all(folder.join("control.sock/full")).unwrap();
    std::fs::write(folder.join("lock"), "sateen data folder\n").unwrap();
    let mut mount = cluster.mount_command("mnt");
    let output = mount.args(["-o", "retry=2"]).env("SATEEN_RUN", &run).output().unwrap();
    assert_eq!(output.status.code(), Some(32));
    let (said, logged) = (text(&output), std::fs::read_to_string(folder.join("log")).unwrap());
    for text in [said, logged] {
        assert!(text.contains("make the control socket"), "{text}");
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.lines().any(|line| line.split(' ').nth(4) == point.to_str()), "{table}");
    cluster.finish([oss, mds]);
}

/// Every mount has a folder, and so has every server. They do not stay for ever.
#[test]
fn folders_of_long_ago_are_removed() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "long-ago");
    let (mds, oss) = cluster.start();
    let run = cluster.path("run");
    let mut mount = |name: &str| {
        ok(cluster.mount_command(name).args(["-o", "retry=2"]).env("SATEEN_RUN", &run));
        let point = cluster.path(name);
        cluster.mounts.push(point.clone());
        point
    };
    let folder = |point: &Path| run.join(run_folder(point).file_name().unwrap());
    let gone = |folder: &Path| until("its process has ended", || !is_held(folder));
    let [ended, recent, foreign, killed] = ["ended", "recent", "foreign", "killed"].map(&mut mount);
    let lives = mount("lives");
    for point in [&ended, &recent, &foreign] {
        ok(Command::new("umount").arg(point));
        gone(&folder(point));
    }
    let state = std::fs::read_to_string(folder(&killed).join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let pid = Pid::from_raw(state["pid"].as_i64().unwrap() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    gone(&folder(&killed));
    std::fs::write(folder(&foreign).join("letter"), b"Dear").unwrap();
    let age = |folder: &Path| {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        ok(Command::new("touch").args(["-h", "-d", "8 days ago"]).args(files));
    };
    [&ended, &foreign, &killed, &lives].into_iter().for_each(|point| age(&folder(point)));
    // A server's.
    let server = run.join("serve:nowhere");
    std::fs::create_dir(&server).unwrap();
    std::fs::copy(folder(&ended).join("lock"), server.join("lock")).unwrap();
    age(&server);
    let next = mount("next");
    for (of, stays) in [
        (&folder(&ended), false),
        (&server, false),
        (&folder(&recent), true),
        (&folder(&foreign), true),
        (&folder(&killed), true),
        (&folder(&lives), true),
        (&folder(&next), true),
    ] {
        assert_eq!(of.join("lock").exists(), stays, "{}", of.display());
        assert_eq!(of.exists(), stays, "{}", of.display());
    }
    let status = |of: &Path| Command::new(BINARY).args(["status", "--data"]).arg(of).output();
    let said = text(&status(&folder(&recent)).unwrap());
    assert!(said.contains("unmounted from outside"), "how it ended can be asked: {said}");
    ok(Command::new(BINARY).args(["down", "--data"]).arg(folder(&killed)));
    // Nobody knows when it ended: its week begins when that is seen, and is over at some time.
    age(&folder(&killed));
    let more = ["more", "again", "last"].map(|name| {
        let left = folder(&killed).exists();
        let point = mount(name);
        let seen = folder(&killed).exists();
        if name == "again" {
            let files = ["state.json", "log", "guard.lock"].map(|file| folder(&killed).join(file));
            ok(Command::new("touch").args(["-h", "-d", "9 days ago"]).args(files));
            let lock = folder(&killed).join("lock");
            ok(Command::new("touch").args(["-d", "8 days ago"]).arg(lock));
        }
        assert_eq!((left, seen), (true, name != "last"), "{name}");
        point
    });
    cluster.mounts = vec![lives, next];
    cluster.mounts.extend(more);
    cluster.finish([oss, mds]);
}
