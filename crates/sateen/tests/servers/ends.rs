//! How mounts and servers are ended by whoever runs them: Ctrl-C while one waits, a terminal that
//! closes, several `down` at once, `umount` just before.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, until};

use crate::BINARY;
use crate::waiting::{end, go_on, signal, stop};

/// Much less than for how long the mount is told to try.
const SOON: Duration = Duration::from_secs(30);

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
    ok(cluster.mount_command("second").current_dir(&first));
    cluster.mounts.push(second.clone());
    cluster.umount(&first);
    std::fs::write(second.join("file"), b"file").unwrap();
    cluster.finish([oss, mds]);
}
