//! The MDT is killed again and again under programs on two mounts, which read, and write what they have
//! open and locked: nothing that they had was lost with it, and none of them may notice but by having
//! to wait.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server};

use crate::upgrade::{NAMES, Programs, holds, is_locked_out, reads};
use crate::{BINARY, bytes};

/// It is killed so often.
const ROUNDS: u64 = 5;
/// By then everything is durable that was begun: 500 ms.
const DURABLE: Duration = Duration::from_millis(500);

#[test]
fn an_mdt_is_killed_and_who_lost_nothing_goes_on() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "crashed");
    cluster.make(2);
    let mgs = cluster.serve(1, &["mgt"]);
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let mut mds: Option<Server> = Some(cluster.serve(4, &["mdt0"]));
    cluster.knows_osts("mdt0", 2);
    let mounts: Vec<PathBuf> = ["one", "two"].map(|name| cluster.mount(name)).into();
    let constant = mounts[0].join("constant");
    fs::create_dir(&constant).unwrap();
    for number in 0..NAMES {
        fs::write(constant.join(number.to_string()), bytes(50_000, 5)).unwrap();
    }
    // That it was read is a change, too, the first time.
    for mount in &mounts {
        let constant = mount.join("constant");
        assert_eq!(fs::read_dir(&constant).unwrap().count(), NAMES);
        for number in 0..NAMES {
            fs::read(constant.join(number.to_string())).unwrap();
        }
    }
    let locked = File::create(mounts[0].join("locked")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();

    let mut programs = Programs::default();
    for (number, mount) in mounts.iter().enumerate() {
        holds(&mut programs, mount, &format!("holds{number}"));
        reads(&mut programs, mount, &format!("reads{number}"));
    }
    is_locked_out(&mut programs, &mounts[1], "is locked out");
    programs.get_on(&cluster, "from the start");
    std::thread::sleep(DURABLE);
    for round in 0..ROUNDS {
        mds.take().unwrap().crash();
        mds = Some(cluster.serve(4, &["mdt0"]));
        programs.get_on(&cluster, &format!("after the MDT was killed in round {round}"));
        std::thread::sleep(DURABLE);
    }
    println!("{:?}", programs.end(&cluster));
    drop(locked);
    let again = File::open(mounts[1].join("locked")).unwrap();
    flock(&again, FlockOperation::LockExclusive).unwrap();
    drop(again);
    let logs = cluster.logs();
    assert!(logs.contains("has crashed"), "{logs}");
    assert!(!logs.contains("evict"), "{logs}");
    cluster.finish([mgs, oss].into_iter().chain(mds));
}
